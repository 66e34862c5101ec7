//! Runs a world from its start to the check.

use super::WorldOutcome;
use super::plan::{FaultKind, WorldPlan};
use crate::proof;
use crate::proof::{Rule, Violation};
use crate::world::claim_workers::ClaimWorkers;
use crate::world::clients::{EmailOperation, SimulatedClients, team_name};
use crate::world::cluster::SimulatedCluster;
use crate::world::code_mail;
use crate::world::conversation_mail;
use crate::world::final_state;
use crate::world::node_process;
use crate::world::planned_sends::PlannedSend;
use crate::world::reply_agents::ReplyAgents;
use crate::world::world_state::WorldState;
use mailonce_core::handoff::action::Resolution;
use mailonce_core::limits;
use mailonce_core::ports::store::StoreError;
use mailonce_engine::Engine;
use mailonce_engine::failpoint;
use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum number of rounds after all faults ended.
const MAX_SETTLE_ROUNDS: usize = 48;
/// The length of a round, in milliseconds of the runtime's time.
const SETTLE_ROUND_MS: u64 = 620;
/// After this many rounds without progress, time advances until a former account expires.
const LAPSE_ROUNDS: usize = 8;
/// How long a process counts as alive after its last heartbeat, plus a margin.
const HEARTBEAT_LAPSE_MS: i64 = 16_000;
/// A silence after which a node may be considered dead, in milliseconds.
const TAKEOVER_SKIP_MS: i64 = 10_000;
/// The longest time that is skipped at once after all faults ended, in milliseconds.
const MAX_SKIP_MS: i64 = 40 * 3_600_000;

/// Runs a world.
pub(super) fn run_simulation(plan: WorldPlan, tell: bool) -> WorldOutcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let (shared, ended) = match runtime {
        Ok(runtime) => runtime.block_on(async {
            let shared = WorldState::new(plan, tell);
            install_failpoint_hook(&shared);
            let ended = run_world(&shared).await;
            (shared, ended)
        }),
        Err(why) => {
            let shared = WorldState::new(plan, tell);
            (shared, Err(StoreError::Unreachable(why.to_string())))
        }
    };
    failpoint::set_hook(None);
    node_process::clear_current_process();
    let (history, trace, lines, faults) = shared.take_results();
    let mut violations = proof::check(&history);
    if let Err(why) = ended {
        let (about, found) = ("the world".to_owned(), why.to_string());
        violations.push(Violation { rule: Rule::Unanswered, about, found, story: Vec::new() });
    }
    WorldOutcome { plan: shared.plan.clone(), trace, log: lines, faults, history, violations }
}

/// Kills or pauses a node at the failpoint of the plan.
fn install_failpoint_hook(shared: &Arc<WorldState>) {
    let (shared, reached) = (Arc::clone(shared), Cell::new(0));
    failpoint::set_hook(Some(Box::new(move |name| {
        let (point, time) = shared.plan.failpoint;
        let (ends, stands) = (shared.plan.has_fault(FaultKind::CrashAtPoint), shared.plan.has_fault(FaultKind::Pause));
        if name != point || !(ends || stands) || !shared.has_faults() {
            return false;
        }
        reached.set(reached.get() + 1);
        let Some(body) = node_process::current_process().filter(|_| reached.get() == time) else { return false };
        if ends {
            body.crash(FaultKind::CrashAtPoint);
        } else {
            body.set_paused(true);
        }
        ends
    })));
}

async fn run_world(shared: &Arc<WorldState>) -> Result<(), StoreError> {
    let mut cluster = SimulatedCluster::create(shared).await?;
    let clients = SimulatedClients {
        shared: Arc::clone(shared),
        store: Arc::clone(&cluster.store),
        callers: cluster.callers.clone(),
        known_emails: Arc::new(Mutex::default()),
    };
    let sends: Vec<PlannedSend> = (0..shared.plan.sends).map(|number| PlannedSend::draw(shared, number)).collect();
    let mails = code_mail::draw_code_mail(shared, &cluster.inboxes);
    let (letters, agents) =
        (conversation_mail::draw_conversation_mail(shared, &cluster.inboxes), ReplyAgents::new(&clients));
    let workers = ClaimWorkers::new(&clients);
    for step in 0..shared.plan.steps {
        spawn_sends(&cluster, &clients, &sends, step);
        if !mails.is_empty() {
            code_mail::deliver_due_mail(&cluster, &clients, &mails, step);
        }
        if !letters.is_empty() {
            conversation_mail::deliver_due_mail(&cluster, &letters, step);
            agents.run_step(&cluster).await?;
        }
        workers.run_step(&cluster, step);
        spawn_email_operation(&cluster, &clients);
        spawn_reports(&cluster, &clients, false);
        cluster.inject_node_faults().await?;
        tokio::time::sleep(Duration::from_millis(shared.between(50, 700))).await;
        advance_time(&cluster);
    }
    cluster.end_all_faults().await?;
    code_mail::redeliver_unacknowledged(&cluster, &clients, &mails).await;
    conversation_mail::redeliver_unacknowledged(&cluster, &letters).await;
    workers.finish().await;
    run_until_settled(&mut cluster, &clients, &agents, &sends).await?;
    final_state::read_final_state(&cluster, &clients).await
}

/// Makes the planned send of this step, and repeats earlier ones, some with other content.
fn spawn_sends(cluster: &SimulatedCluster, clients: &SimulatedClients, sends: &[PlannedSend], step: usize) {
    let shared = &cluster.shared;
    let mut turns: Vec<&PlannedSend> = sends.iter().skip(step).take(1).collect();
    while shared.below(10) < 4 {
        let seen = &sends[..sends.len().min(step + 1)];
        turns.push(&seen[shared.below(seen.len() as u64) as usize]);
    }
    for send in turns {
        let Some(engine) = cluster.any_engine() else { continue };
        let (variant, turn) = (u64::from(shared.below(6) == 0), shared.below(2) == 0);
        tokio::spawn(clients.clone().send_planned(engine, send.clone(), variant, turn));
    }
}

/// Runs an operation on a known email.
fn spawn_email_operation(cluster: &SimulatedCluster, clients: &SimulatedClients) {
    let (shared, known) = (&cluster.shared, clients.known_emails());
    if known.is_empty() || shared.below(10) < 5 {
        return;
    }
    let (Some(engine), at) = (cluster.any_engine(), shared.below(known.len() as u64) as usize) else { return };
    let choice = shared.pick(&[Resolution::Sent, Resolution::Resend, Resolution::Abandon]);
    let operations = [
        EmailOperation::Cancel,
        EmailOperation::Cancel,
        EmailOperation::Resend,
        EmailOperation::Resolve(choice),
        EmailOperation::ResolveStale(choice),
        EmailOperation::Forget,
        EmailOperation::Read,
    ];
    let team = if shared.below(4) == 0 { shared.below(shared.plan.teams as u64) as usize } else { known[at].team };
    tokio::spawn(clients.clone().run_operation(engine, known[at].clone(), shared.pick(&operations), team));
}

/// Providers report due events, sometimes to the wrong team.
fn spawn_reports(cluster: &SimulatedCluster, clients: &SimulatedClients, all: bool) {
    for hop in &cluster.hops {
        for report in hop.take_due_reports(all) {
            let Some(engine) = cluster.any_engine() else {
                hop.requeue_report(report);
                continue;
            };
            let own = cluster.callers.iter().position(|caller| caller.team.id == report.team).unwrap_or_default();
            let stray = (own + 1) % cluster.callers.len();
            if stray != own && cluster.shared.below(3) == 0 {
                spawn_report(clients, &engine, cluster, stray, hop, report.clone());
            }
            spawn_report(clients, &engine, cluster, own, hop, report);
        }
    }
}

fn spawn_report(
    clients: &SimulatedClients,
    engine: &Arc<Engine>,
    cluster: &SimulatedCluster,
    team: usize,
    hop: &Arc<crate::world::next_hop::SimulatedHop>,
    report: crate::world::next_hop::ProviderReport,
) {
    let (engine, hop, id) = (Arc::clone(engine), Arc::clone(hop), cluster.callers[team].team.id);
    tokio::spawn(clients.clone().send_report(engine, hop, report, id, team_name(team)));
}

/// Advances time, more in some worlds than in others.
fn advance_time(cluster: &SimulatedCluster) {
    let shared = &cluster.shared;
    let ms = if shared.draw_fault(FaultKind::Leap) {
        shared.pick(&[70_000, 11 * 60_000, 3_600_000, 25 * 3_600_000])
    } else if shared.plan.has_long_pauses {
        shared.pick(&[1_000, 20_000, 5 * 60_000])
    } else {
        shared.pick(&[0, 0, 1_000, 3_000])
    };
    skip_time(cluster, ms);
}

/// Advances time at once. After a long silence one node may take over from another that is alive.
fn skip_time(cluster: &SimulatedCluster, ms: i64) {
    if cluster.shared.add_unreported_skip(ms) >= TAKEOVER_SKIP_MS {
        let touched = if cluster.nodes.len() > 1 { Vec::new() } else { vec!["nobody".to_owned()] };
        cluster.shared.record_fault(FaultKind::Leap, touched);
    }
    cluster.shared.skip_time(ms);
}

/// After all faults ended: repeats every send, reports all provider events, and advances time until nothing remains.
async fn run_until_settled(
    cluster: &mut SimulatedCluster,
    clients: &SimulatedClients,
    agents: &ReplyAgents,
    sends: &[PlannedSend],
) -> Result<(), StoreError> {
    for send in sends.iter().filter(|send| send.idempotency_key().is_some()) {
        if let Some(engine) = cluster.any_engine() {
            clients.clone().send_planned(engine, send.clone(), 0, false).await;
        }
    }
    for round in 0..MAX_SETTLE_ROUNDS {
        spawn_reports(cluster, clients, true);
        code_mail::replay_dead_deliveries(cluster, clients).await?;
        agents.answer_remaining(cluster, round).await?;
        tokio::time::sleep(Duration::from_millis(SETTLE_ROUND_MS)).await;
        let rest = final_state::pending_work(cluster).await?;
        match rest {
            final_state::PendingWork::None if round > 2 => break,
            final_state::PendingWork::None => {}
            // The handoffs of a former account are undecided until that account expires.
            final_state::PendingWork::DueAt(due)
                if due <= cluster.shared.now() && (round + 1).is_multiple_of(LAPSE_ROUNDS) =>
            {
                skip_time(cluster, limits::ORPHANED_AFTER_MS);
            }
            // Ledger time does not advance until a clock that was fast is caught up.
            final_state::PendingWork::DueAt(due) => {
                skip_time(cluster, (due - cluster.shared.now()).clamp(0, MAX_SKIP_MS) + 1)
            }
            final_state::PendingWork::Leased => {
                let ahead = cluster.shared.latest_time() - cluster.shared.now();
                skip_time(cluster, ahead + HEARTBEAT_LAPSE_MS);
            }
        }
    }
    cluster.shared.mark_healed();
    for node in 0..cluster.nodes.len() {
        cluster.record_node_clock(node);
    }
    Ok(())
}
