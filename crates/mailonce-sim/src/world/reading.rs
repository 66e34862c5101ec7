//! What the ledger shows in the end, in the words of the history.

use super::client::{Clients, team_name};
use super::desk;
use super::hop::Hop;
use super::mail;
use super::plan::{Class, FaultKind};
use super::town::Town;
use super::wishes::meaning;
use crate::proof::history::{self, Attempt, Event, Evidence, Handoff};
use mailonce_core::email::{Email, OnUnknown};
use mailonce_core::handoff::{self, State};
use mailonce_core::port::store::{EmailDetail, EmailQuery, Store as _, StoreError};
use mailonce_core::port::transport::Recovery;
use mailonce_engine::{Caller, Engine};
use std::sync::Arc;
use std::time::Duration;

/// Emails of one team that are read.
const ALL: usize = 1_000;

/// How often what is under way in the end is waited for: a few of the longest answers.
const LOOKS: usize = 120;

/// What still has to happen.
pub(super) enum Rest {
    /// Nothing.
    Over,
    /// Nothing before this ledger time.
    At(i64),
    /// Something is held by a process that may have ended.
    Held,
}

/// What has to happen before everything is settled.
pub(super) async fn rest(town: &Town) -> Result<Rest, StoreError> {
    let (mut due, mut held) = (None::<i64>, false);
    for caller in &town.callers {
        for email in emails(town, caller).await? {
            for handoff in &email.handoffs {
                let waits = match handoff.state {
                    State::Leased | State::Sending => {
                        held = true;
                        false
                    }
                    State::Queued | State::Scheduled => true,
                    State::Unknown => is_decidable(town, &email, handoff) || will_be_resent(&email, handoff),
                    _ => false,
                };
                if let Some(at) = handoff.due_at.filter(|_| waits) {
                    due = Some(due.map_or(at.0, |due| due.min(at.0)));
                }
            }
        }
    }
    let due = [due, mail::due(town).await?, desk::due(town).await?].into_iter().flatten().min();
    Ok(match (due, held) {
        (Some(due), _) => Rest::At(due),
        (None, true) => Rest::Held,
        (None, false) => Rest::Over,
    })
}

async fn emails(town: &Town, caller: &Caller) -> Result<Vec<Email>, StoreError> {
    let query = EmailQuery { limit: ALL, ..EmailQuery::default() };
    Ok(town.store.emails(caller.team.id, query).await?.rows)
}

fn will_be_resent(email: &Email, handoff: &handoff::Handoff) -> bool {
    email.head.on_unknown == OnUnknown::Resend && !handoff.work.resent && !handoff.work.puzzling
}

/// Whether the next hop tells what became of an unknown handoff when it is asked in its own way.
fn is_decidable(town: &Town, email: &Email, handoff: &handoff::Handoff) -> bool {
    let Some(hop) = town.hops.iter().find(|hop| hop.name == handoff.transport) else { return false };
    if handoff.work.puzzling {
        return false;
    }
    match hop.class {
        Class::Keyed(window) => window_is_open(town, handoff, window),
        Class::Asked(_) => asked_for(town, hop, email, handoff),
        Class::Plain | Class::Relay => false,
    }
}

/// By the plainest reading of a clock that nobody touched.
fn window_is_open(town: &Town, handoff: &handoff::Handoff, window: i64) -> bool {
    let touched = [FaultKind::ClockJump, FaultKind::OtherAccount].iter().any(|kind| town.shared.plan.has(*kind));
    let closes = handoff.work.doubt_since.map(|since| since.0 + window - Recovery::margin_ms(window));
    !touched && closes.is_some_and(|closes| town.shared.now() + 60_000 < closes)
}

/// It has the mail, and it will be asked again within days.
fn asked_for(town: &Town, hop: &Hop, email: &Email, handoff: &handoff::Handoff) -> bool {
    let recent = handoff.work.doubt_since.is_some_and(|since| town.shared.now() - since.0 < 60 * 3_600_000);
    recent && !town.shared.plan.has(FaultKind::ClockJump) && hop.finds(email.id, handoff.number)
}

/// Reads everything into the history.
pub(super) async fn read(town: &Town, clients: &Clients) -> Result<(), StoreError> {
    let mut rows = rows(town, clients).await?;
    // Whose window a touched clock leaves open may be asked again at this very moment: that ends first.
    for _ in 0..LOOKS {
        if !rows.iter().any(is_under_way) {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        rows = self::rows(town, clients).await?;
    }
    let mut events = Vec::new();
    for (team, caller) in clients.callers.iter().enumerate() {
        for event in town.store.events(caller.team.id, 0, usize::MAX).await? {
            events.push(Event {
                at: 0,
                team: team_name(team),
                seq: event.seq,
                id: event.id().to_string(),
                kind: event.event.kind.word().to_owned(),
                about: event.event.about.to_string(),
                rev: event.event.rev,
            });
        }
    }
    let hops = town.hops.iter().map(|hop| (hop.name.clone(), class(hop.class))).collect();
    let heard = town.nodes.iter().filter(|node| !node.body.is_dead()).flat_map(|node| node.body.heard()).collect();
    town.shared.end_inboxes(mail::read(town).await?);
    town.shared.end_questions(desk::questions(town).await?);
    town.shared.end_with(hops, rows, events, heard);
    Ok(())
}

/// Every email as it is now.
async fn rows(town: &Town, clients: &Clients) -> Result<Vec<history::Email>, StoreError> {
    let (engine, mut rows) = (Arc::clone(&town.nodes[0].engine), Vec::new());
    for (team, caller) in clients.callers.iter().enumerate() {
        for email in emails(town, caller).await? {
            if let Some(detail) = town.store.email_detail(caller.team.id, email.id).await? {
                let body = body(&engine, caller, &email).await;
                rows.push(row(town, &engine, team, &detail, body));
            }
        }
    }
    Ok(rows)
}

fn is_under_way(email: &history::Email) -> bool {
    email.handoffs.iter().any(|handoff| matches!(&*handoff.state, "leased" | "sending"))
}

fn class(class: Class) -> history::Hop {
    match class {
        Class::Keyed(window) => history::Hop::Keyed(window as u64),
        Class::Asked(_) => history::Hop::Asked,
        Class::Plain | Class::Relay => history::Hop::Blind,
    }
}

/// What an email says.
async fn body(engine: &Engine, caller: &Caller, email: &Email) -> Option<u64> {
    let content = engine.email_view(caller, email.id).await.ok()?.content?;
    content.text.as_deref().map(meaning)
}

fn row(town: &Town, engine: &Engine, team: usize, detail: &EmailDetail, body: Option<u64>) -> history::Email {
    let email = &detail.email;
    let intent = email.head.intent.as_ref();
    history::Email {
        id: email.id.to_string(),
        team: team_name(team),
        key: email.head.key.as_ref().map(mailonce_core::key::KeyName::shown).unwrap_or_default(),
        bind: email.bind,
        to: email.head.to.clone(),
        body,
        message_id: engine.message_id(email),
        state: email.state().word().to_owned(),
        rev: email.rev,
        resend: email.head.on_unknown == OnUnknown::Resend,
        intent: intent
            .map(|intent| format!("{} {} {}", intent.kind, intent.entity, intent.version))
            .unwrap_or_default(),
        answers: email.head.answers.map(|id| id.to_string()).unwrap_or_default(),
        resend_of: email.head.resend_of.map(|id| id.to_string()).unwrap_or_default(),
        handoffs: email.handoffs.iter().map(|handoff| handoff_row(town, detail, handoff)).collect(),
    }
}

fn handoff_row(town: &Town, detail: &EmailDetail, handoff: &handoff::Handoff) -> Handoff {
    let attempts = detail.attempts.iter().filter(|attempt| attempt.handoff == handoff.number);
    let evidence = detail.evidence.iter().filter(|fact| fact.handoff == handoff.number);
    Handoff {
        number: handoff.number,
        transport: handoff.transport.clone(),
        to: handoff.recipients.clone(),
        state: handoff.state.word().to_owned(),
        may_duplicate: handoff.work.may_duplicate,
        later: handoff.due_at.is_some_and(|due| due.0 > town.shared.now()),
        decidable: is_decidable(town, &detail.email, handoff),
        attempts: attempts
            .map(|attempt| Attempt {
                number: attempt.number,
                fence: Some(attempt.about.fence),
                outcome: attempt.outcome.map(|outcome| outcome.word().to_owned()).unwrap_or_default(),
                at_ms: Some(attempt.at.0),
                ended_ms: attempt.ended_at.map(|at| at.0),
            })
            .collect(),
        evidence: evidence
            .map(|fact| Evidence {
                source: fact.source.word().to_owned(),
                says: fact.says.word().to_owned(),
                once: fact.once.clone().unwrap_or_default(),
                at_ms: Some(fact.at.0),
            })
            .collect(),
    }
}
