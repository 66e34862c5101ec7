//! Records the final state of the ledger as a history.

use super::plan::{FaultKind, HopProfile};
use crate::{
    proof::history::{self, Attempt, Event, Evidence, Handoff},
    world::{
        claim_workers,
        clients::{SimulatedClients, team_name},
        cluster::SimulatedCluster,
        code_mail, conversation_mail,
        next_hop::SimulatedHop,
        planned_sends::content_hash,
    },
};
use mailonce_core::{
    handoff::{self, HandoffState, capabilities::RecoveryMethod},
    outbound::{
        email::{Email, OnUnknown},
        email_query::{EmailDetail, EmailQuery},
    },
    ports::store::{Store as _, StoreError},
};
use mailonce_engine::{Caller, Engine};
use std::{sync::Arc, time::Duration};

/// Maximum number of emails that are read per team.
const EMAIL_LIMIT: usize = 1_000;

/// How many times the final read is tried, one second apart, while attempts are running. Together they take a few times
/// as long as the slowest reply.
const FINAL_READ_TRIES: usize = 120;

/// The work that remains.
pub(super) enum PendingWork {
    /// Nothing.
    None,
    /// Nothing before this ledger time.
    DueAt(i64),
    /// A process that may be dead holds a lease.
    Leased,
}

/// The work that remains until everything is settled.
pub(super) async fn pending_work(cluster: &SimulatedCluster) -> Result<PendingWork, StoreError> {
    let (mut due, mut held) = (None::<i64>, false);
    for caller in &cluster.callers {
        for email in emails(cluster, caller).await? {
            for handoff in &email.handoffs {
                let waits = match handoff.state {
                    HandoffState::Leased | HandoffState::Sending => {
                        held = true;
                        false
                    }
                    HandoffState::Queued | HandoffState::Scheduled => true,
                    HandoffState::Unknown => {
                        can_be_resolved(cluster, &email, handoff) || will_be_resent(&email, handoff)
                    }
                    _ => false,
                };
                if let Some(at) = handoff.due_at.filter(|_| waits) {
                    due = Some(due.map_or(at.0, |due| due.min(at.0)));
                }
            }
        }
    }
    let others = [
        code_mail::next_due(cluster).await?,
        conversation_mail::next_due(cluster).await?,
        claim_workers::next_due(cluster).await?,
    ];
    let due = others.into_iter().chain([due]).flatten().min();
    Ok(match (due, held) {
        (Some(due), _) => PendingWork::DueAt(due),
        (None, true) => PendingWork::Leased,
        (None, false) => PendingWork::None,
    })
}

async fn emails(cluster: &SimulatedCluster, caller: &Caller) -> Result<Vec<Email>, StoreError> {
    let query = EmailQuery { limit: EMAIL_LIMIT, ..EmailQuery::default() };
    Ok(cluster.store.emails(caller.team.id, query).await?.rows)
}

fn will_be_resent(email: &Email, handoff: &handoff::Handoff) -> bool {
    email.head.on_unknown == OnUnknown::Resend && !handoff.progress.resent && !handoff.progress.needs_person
}

/// Whether the next hop reveals the outcome of an unknown handoff, by a repeat or a look-up.
fn can_be_resolved(cluster: &SimulatedCluster, email: &Email, handoff: &handoff::Handoff) -> bool {
    let Some(hop) = cluster.hops.iter().find(|hop| hop.name == handoff.transport) else { return false };
    if handoff.progress.needs_person {
        return false;
    }
    match hop.class {
        HopProfile::Keyed(window) => window_is_open(cluster, handoff, window),
        HopProfile::LookUp(_) => lookup_will_find(cluster, hop, email, handoff),
        HopProfile::Keyless | HopProfile::Relay => false,
    }
}

/// By the reading of an untouched clock.
fn window_is_open(cluster: &SimulatedCluster, handoff: &handoff::Handoff, window: i64) -> bool {
    let touched =
        [FaultKind::ClockJump, FaultKind::OtherAccount].iter().any(|kind| cluster.shared.plan.has_fault(*kind));
    let closes =
        handoff.progress.in_doubt_since.map(|since| since.0 + window - RecoveryMethod::window_margin_ms(window));
    !touched && closes.is_some_and(|closes| cluster.shared.now() + 60_000 < closes)
}

/// It has the mail, and a look-up will find it within days.
fn lookup_will_find(cluster: &SimulatedCluster, hop: &SimulatedHop, email: &Email, handoff: &handoff::Handoff) -> bool {
    let recent = handoff.progress.in_doubt_since.is_some_and(|since| cluster.shared.now() - since.0 < 60 * 3_600_000);
    recent && !cluster.shared.plan.has_fault(FaultKind::ClockJump) && hop.is_found_by_lookup(email.id, handoff.number)
}

/// Records everything.
pub(super) async fn read_final_state(cluster: &SimulatedCluster, clients: &SimulatedClients) -> Result<(), StoreError> {
    let mut rows = read_emails(cluster, clients).await?;
    // An attempt that a wrong clock allows may be running at this moment; it ends first.
    for _ in 0..FINAL_READ_TRIES {
        if !rows.iter().any(is_in_progress) {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        rows = self::read_emails(cluster, clients).await?;
    }
    let mut events = Vec::new();
    for (team, caller) in clients.callers.iter().enumerate() {
        for event in cluster.store.events(caller.team.id, 0, usize::MAX).await? {
            events.push(Event {
                at: 0,
                team: team_name(team),
                seq: event.seq,
                id: event.id().to_string(),
                kind: event.event.kind.as_str().to_owned(),
                about: event.event.subject_id.to_string(),
                rev: event.event.rev,
            });
        }
    }
    let hops = cluster.hops.iter().map(|hop| (hop.name.clone(), hop_capability(hop.class))).collect();
    let known_accepted = cluster
        .nodes
        .iter()
        .filter(|node| !node.process.is_dead())
        .flat_map(|node| node.process.known_accepted())
        .collect();
    cluster.shared.record_inboxes(code_mail::read_inboxes(cluster).await?);
    cluster.shared.record_escalations(conversation_mail::read_escalations(cluster).await?);
    cluster.shared.record_claims(claim_workers::read_claims(cluster).await?);
    cluster.shared.record_final_state(hops, rows, events, known_accepted);
    Ok(())
}

/// Every email as it is now.
async fn read_emails(
    cluster: &SimulatedCluster,
    clients: &SimulatedClients,
) -> Result<Vec<history::Email>, StoreError> {
    let (engine, mut rows) = (Arc::clone(&cluster.nodes[0].engine), Vec::new());
    for (team, caller) in clients.callers.iter().enumerate() {
        for email in emails(cluster, caller).await? {
            if let Some(detail) = cluster.store.email_detail(caller.team.id, email.id).await? {
                let body = email_content_hash(&engine, caller, &email).await;
                rows.push(to_email(cluster, &engine, team, &detail, body));
            }
        }
    }
    Ok(rows)
}

fn is_in_progress(email: &history::Email) -> bool {
    email.handoffs.iter().any(|handoff| matches!(&*handoff.state, "leased" | "sending"))
}

fn hop_capability(class: HopProfile) -> history::HopCapability {
    match class {
        HopProfile::Keyed(window) => history::HopCapability::Keyed(window as u64),
        HopProfile::LookUp(_) => history::HopCapability::Asked,
        HopProfile::Keyless | HopProfile::Relay => history::HopCapability::Blind,
    }
}

/// The content of an email.
async fn email_content_hash(engine: &Engine, caller: &Caller, email: &Email) -> Option<u64> {
    let content = engine.outbound.email_view(caller, email.id).await.ok()?.content?;
    content.text.as_deref().map(content_hash)
}

fn to_email(
    cluster: &SimulatedCluster,
    engine: &Engine,
    team: usize,
    detail: &EmailDetail,
    body: Option<u64>,
) -> history::Email {
    let email = &detail.email;
    let intent = email.head.intent.as_ref();
    history::Email {
        id: email.id.to_string(),
        team: team_name(team),
        key: email.head.key.as_ref().map(mailonce_core::key::EmailKey::display_name).unwrap_or_default(),
        bind: email.bind_number,
        to: email.head.to.clone(),
        body,
        message_id: engine.ctx.message_id(email),
        state: email.state().as_str().to_owned(),
        rev: email.rev,
        resend: email.head.on_unknown == OnUnknown::Resend,
        intent: intent
            .map(|intent| format!("{} {} {}", intent.kind, intent.entity, intent.version))
            .unwrap_or_default(),
        answers: email.head.answers.map(|id| id.to_string()).unwrap_or_default(),
        resend_of: email.head.resend_of.map(|id| id.to_string()).unwrap_or_default(),
        handoffs: email.handoffs.iter().map(|handoff| to_handoff(cluster, detail, handoff)).collect(),
    }
}

fn to_handoff(cluster: &SimulatedCluster, detail: &EmailDetail, handoff: &handoff::Handoff) -> Handoff {
    let attempts = detail.attempts.iter().filter(|attempt| attempt.handoff == handoff.number);
    let evidence = detail.evidence.iter().filter(|fact| fact.handoff == handoff.number);
    Handoff {
        number: handoff.number,
        transport: handoff.transport.clone(),
        to: handoff.recipients.clone(),
        state: handoff.state.as_str().to_owned(),
        may_duplicate: handoff.progress.may_duplicate,
        later: handoff.due_at.is_some_and(|due| due.0 > cluster.shared.now()),
        decidable: can_be_resolved(cluster, &detail.email, handoff),
        attempts: attempts
            .map(|attempt| Attempt {
                number: attempt.number,
                fence: Some(attempt.details.fence),
                outcome: attempt.outcome.map(|outcome| outcome.as_str().to_owned()).unwrap_or_default(),
                at_ms: Some(attempt.at.0),
                ended_ms: attempt.ended_at.map(|at| at.0),
            })
            .collect(),
        evidence: evidence
            .map(|fact| Evidence {
                source: fact.source.as_str().to_owned(),
                says: fact.finding.as_str().to_owned(),
                once: fact.dedup_key.clone().unwrap_or_default(),
                at_ms: Some(fact.at.0),
            })
            .collect(),
    }
}
