//! A world from its beginning to the judgement.

use super::Outcome;
use super::agents::Agents;
use super::body;
use super::client::{Clients, Deed, team_name};
use super::desk;
use super::mail;
use super::plan::{FaultKind, Plan};
use super::reading;
use super::shared::Shared;
use super::town::Town;
use super::wishes::Wish;
use crate::proof;
use crate::proof::{Rule, Violation};
use mailonce_core::dispatch::Choice;
use mailonce_core::limits;
use mailonce_core::port::store::StoreError;
use mailonce_engine::Engine;
use mailonce_engine::failpoint;
use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Rounds after healing, at the most.
const ROUNDS: usize = 48;
/// How long one round lasts, in milliseconds of the runtime's own time.
const ROUND_MS: u64 = 620;
/// After so many rounds in which something is due and nobody does it, the time passes in which a former account lapses.
const LAPSE_ROUNDS: usize = 8;
/// How long a process counts as alive after it was last heard of, and some.
const UNHEARD_MS: i64 = 16_000;
/// A stretch after which a node may be thought dead, in milliseconds.
const NOTICED_MS: i64 = 10_000;
/// The longest stretch that is skipped at once after healing, in milliseconds.
const LONGEST_MS: i64 = 40 * 3_600_000;

/// Runs a world.
pub(super) fn run(plan: Plan, tell: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let (shared, ended) = match runtime {
        Ok(runtime) => runtime.block_on(async {
            let shared = Shared::new(plan, tell);
            watch_points(&shared);
            let ended = live(&shared).await;
            (shared, ended)
        }),
        Err(why) => {
            let shared = Shared::new(plan, tell);
            (shared, Err(StoreError::Unreachable(why.to_string())))
        }
    };
    failpoint::hook(None);
    body::forget_current();
    let (history, trace, lines, faults) = shared.finish();
    let mut violations = proof::check(&history);
    if let Err(why) = ended {
        let (about, found) = ("the world".to_owned(), why.to_string());
        violations.push(Violation { rule: Rule::Unanswered, about, found, story: Vec::new() });
    }
    Outcome { plan: shared.plan.clone(), trace, lines, faults, history, violations }
}

/// Ends a node at the named point of the plan, or lets it stand still there.
fn watch_points(shared: &Arc<Shared>) {
    let (shared, reached) = (Arc::clone(shared), Cell::new(0));
    failpoint::hook(Some(Box::new(move |name| {
        let (point, time) = shared.plan.point;
        let (ends, stands) = (shared.plan.has(FaultKind::CrashAtPoint), shared.plan.has(FaultKind::Pause));
        if name != point || !(ends || stands) || !shared.is_stormy() {
            return false;
        }
        reached.set(reached.get() + 1);
        let Some(body) = body::current().filter(|_| reached.get() == time) else { return false };
        if ends {
            body.die(FaultKind::CrashAtPoint);
        } else {
            body.pause(true);
        }
        ends
    })));
}

async fn live(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let mut town = Town::found(shared).await?;
    let clients = Clients {
        shared: Arc::clone(shared),
        store: Arc::clone(&town.store),
        callers: town.callers.clone(),
        told: Arc::new(Mutex::default()),
    };
    let wishes: Vec<Wish> = (0..shared.plan.wishes).map(|number| Wish::draw(shared, number)).collect();
    let mails = mail::mails(shared, &town.places);
    let (letters, agents) = (desk::letters(shared, &town.places), Agents::new(&clients));
    for step in 0..shared.plan.steps {
        ask(&town, &clients, &wishes, step);
        if !mails.is_empty() {
            mail::come(&town, &clients, &mails, step);
        }
        if !letters.is_empty() {
            desk::come(&town, &letters, step);
            agents.work(&town).await?;
        }
        meddle(&town, &clients);
        report(&town, &clients, false);
        town.trouble().await?;
        tokio::time::sleep(Duration::from_millis(shared.between(50, 700))).await;
        leap(&town);
    }
    town.heal().await?;
    mail::come_again(&town, &clients, &mails).await;
    desk::come_again(&town, &letters).await;
    settle(&mut town, &clients, &agents, &wishes).await?;
    reading::read(&town, &clients).await
}

/// Callers ask for what they want: each wish in its turn, and others again, some of them in other words.
fn ask(town: &Town, clients: &Clients, wishes: &[Wish], step: usize) {
    let shared = &town.shared;
    let mut turns: Vec<&Wish> = wishes.iter().skip(step).take(1).collect();
    while shared.below(10) < 4 {
        let seen = &wishes[..wishes.len().min(step + 1)];
        turns.push(&seen[shared.below(seen.len() as u64) as usize]);
    }
    for wish in turns {
        let Some(engine) = town.any_engine() else { continue };
        let (words, turn) = (u64::from(shared.below(6) == 0), shared.below(2) == 0);
        tokio::spawn(clients.clone().ask(engine, wish.clone(), words, turn));
    }
}

/// Somebody does something with an email that somebody was told of.
fn meddle(town: &Town, clients: &Clients) {
    let (shared, told) = (&town.shared, clients.told());
    if told.is_empty() || shared.below(10) < 5 {
        return;
    }
    let (Some(engine), at) = (town.any_engine(), shared.below(told.len() as u64) as usize) else { return };
    let choice = shared.pick(&[Choice::Sent, Choice::Resend, Choice::Abandon]);
    let deeds = [
        Deed::Cancel,
        Deed::Cancel,
        Deed::Resend,
        Deed::Resolve(choice),
        Deed::ResolveStale(choice),
        Deed::Forget,
        Deed::Look,
    ];
    let team = if shared.below(4) == 0 { shared.below(shared.plan.teams as u64) as usize } else { told[at].team };
    tokio::spawn(clients.clone().deed(engine, told[at].clone(), shared.pick(&deeds), team));
}

/// Providers tell what is due, sometimes to the wrong team.
fn report(town: &Town, clients: &Clients, all: bool) {
    for hop in &town.hops {
        for report in hop.reports(all) {
            let Some(engine) = town.any_engine() else {
                hop.report_again(report);
                continue;
            };
            let own = town.callers.iter().position(|caller| caller.team.id == report.team).unwrap_or_default();
            let stray = (own + 1) % town.callers.len();
            if stray != own && town.shared.below(3) == 0 {
                tell(clients, &engine, town, stray, hop, report.clone());
            }
            tell(clients, &engine, town, own, hop, report);
        }
    }
}

fn tell(
    clients: &Clients,
    engine: &Arc<Engine>,
    town: &Town,
    team: usize,
    hop: &Arc<super::hop::Hop>,
    report: super::hop::Report,
) {
    let (engine, hop, id) = (Arc::clone(engine), Arc::clone(hop), town.callers[team].team.id);
    tokio::spawn(clients.clone().report(engine, hop, report, id, team_name(team)));
}

/// Time passes, more of it in some worlds than in others.
fn leap(town: &Town) {
    let shared = &town.shared;
    let ms = if shared.strikes(FaultKind::Leap) {
        shared.pick(&[70_000, 11 * 60_000, 3_600_000, 25 * 3_600_000])
    } else if shared.plan.slow {
        shared.pick(&[1_000, 20_000, 5 * 60_000])
    } else {
        shared.pick(&[0, 0, 1_000, 3_000])
    };
    skip(town, ms);
}

/// Lets time pass at once. When nodes are not heard of for long, one may take over from another that lives.
fn skip(town: &Town, ms: i64) {
    if town.shared.skipped(ms) >= NOTICED_MS {
        let touched = if town.nodes.len() > 1 { Vec::new() } else { vec!["nobody".to_owned()] };
        town.shared.fault(FaultKind::Leap, touched);
    }
    town.shared.leap(ms);
}

/// After healing: every wish is asked for once more, providers tell all they have to tell, and time passes until
/// nothing more can happen.
async fn settle(town: &mut Town, clients: &Clients, agents: &Agents, wishes: &[Wish]) -> Result<(), StoreError> {
    for wish in wishes.iter().filter(|wish| wish.key().is_some()) {
        if let Some(engine) = town.any_engine() {
            clients.clone().ask(engine, wish.clone(), 0, false).await;
        }
    }
    for round in 0..ROUNDS {
        report(town, clients, true);
        mail::replay_dead(town, clients).await?;
        agents.attend(town, round).await?;
        tokio::time::sleep(Duration::from_millis(ROUND_MS)).await;
        let rest = reading::rest(town).await?;
        match rest {
            reading::Rest::Over if round > 2 => break,
            reading::Rest::Over => {}
            // Nobody decides about a former account's handoffs before that account has lapsed.
            reading::Rest::At(due) if due <= town.shared.now() && (round + 1).is_multiple_of(LAPSE_ROUNDS) => {
                skip(town, limits::ORPHANED_AFTER_MS);
            }
            // Time stands still in the ledger until a clock that was fast has caught up.
            reading::Rest::At(due) => skip(town, (due - town.shared.now()).clamp(0, LONGEST_MS) + 1),
            reading::Rest::Held => {
                let ahead = town.shared.latest() - town.shared.now();
                skip(town, ahead + UNHEARD_MS);
            }
        }
    }
    town.shared.heal();
    for node in 0..town.nodes.len() {
        town.read_clock(node);
    }
    Ok(())
}
