//! Inboxes that agents answer from, and the letters that come there: from people, from machines and from ourselves.

use super::client::team_name;
use super::mail::{self, Place};
use super::plan::Plan;
use super::shared::Shared;
use super::town::Town;
use crate::proof::history::{Brought, Desk, Question};
use mailonce_core::{
    conversation::{caps::Caps, escalation::Escalation},
    delivery::{Form, Intake},
    email::{Email, EmailState},
    id::SourceId,
    inbox::AboutInbox,
    message::{Message, MessagePlace, MessageQuery, MessageState},
    port::{
        arrivals::Arrivals as _,
        conversations::Conversations as _,
        store::{Store as _, StoreError},
    },
    record::RecordKind,
};
use mailonce_engine::receive::Incoming;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// Rows that are read of one desk.
const ALL: usize = 1_000;
/// A limit that no world reaches.
const WIDE: u32 = 50;
/// The window of the limit on a thread, in milliseconds.
const WINDOW_MS: i64 = 300_000;

/// The limits of a world's desks. One is tight, so that each has worlds in which it speaks.
pub(super) fn limits(plan: &Plan) -> Desk {
    let (tight, caps) = match plan.seed % 6 {
        0 | 3 => ("window", (1, WIDE, WIDE, None)),
        1 => ("day", (WIDE, 2, WIDE, None)),
        4 => ("total", (WIDE, WIDE, WIDE, Some(2))),
        _ => ("person", (WIDE, WIDE, 2, None)),
    };
    let (per_window, per_day, per_person, per_thread) = caps;
    Desk {
        tight: tight.to_owned(),
        per_window: per_window as usize,
        window_ms: WINDOW_MS,
        per_day: per_day as usize,
        per_person: per_person as usize,
        per_thread,
        answers_soft: plan.seed.is_multiple_of(2),
    }
}

/// What an inbox is that lives by these limits.
pub(super) fn about(desk: &Desk) -> AboutInbox {
    let caps = Caps {
        per_window: desk.per_window as u32,
        window_ms: desk.window_ms,
        per_day: desk.per_day as u32,
        per_person: desk.per_person as u32,
        per_thread: desk.per_thread.map(|most| most as u32),
    };
    AboutInbox { caps: Some(caps), answers_soft: desk.answers_soft, ..AboutInbox::default() }
}

/// A letter.
#[derive(Clone)]
pub(super) struct Letter {
    pub(super) place: Place,
    number: usize,
    /// The conversation that it belongs to.
    line: usize,
    kind: &'static str,
}

/// The letters of a world: two conversations, or one where few letters come.
pub(super) fn letters(shared: &Shared, places: &[Place]) -> Vec<Letter> {
    let desks: Vec<&Place> = places.iter().filter(|place| place.desk).collect();
    let kinds = ["person", "person", "person", "person", "machine", "soft", "own"];
    let lines = 1 + shared.plan.letters / 3;
    let letter = |number: usize| {
        // Somebody begins, or there is no conversation.
        let kind = if number < lines { "person" } else { shared.pick(&kinds) };
        Letter { place: desks[number % lines % desks.len()].clone(), number, line: number % lines, kind }
    };
    (0..shared.plan.letters).filter(|_| !desks.is_empty()).map(letter).collect()
}

impl Letter {
    fn message_id(&self) -> String {
        format!("<letter{}@people.example>", self.number)
    }

    fn sender(&self) -> String {
        match self.kind {
            "machine" => format!("machine{}@machines.example", self.line),
            "own" => self.place.address.clone(),
            // One person under two addresses.
            _ => format!("ann+{}@people.example", self.line),
        }
    }

    fn raw(&self) -> Vec<u8> {
        let (sender, to, id, line) = (self.sender(), &self.place.address, self.message_id(), self.line);
        let first = format!("<letter{line}@people.example>");
        let follows = if self.number == line {
            String::new()
        } else {
            format!("In-Reply-To: {first}\r\nReferences: {first}\r\n")
        };
        let sign = match self.kind {
            "machine" => "Auto-Submitted: auto-replied\r\n",
            "soft" => "Precedence: bulk\r\n",
            _ => "",
        };
        let head =
            format!("From: {sender}\r\nTo: {to}\r\nSubject: Question {line}\r\nMessage-ID: {id}\r\n{follows}{sign}");
        format!("{head}\r\nThis is letter {} and it asks something.\r\n", self.number).into_bytes()
    }

    fn incoming(&self, hook: bool) -> Incoming {
        Incoming {
            intake: if hook { Intake::Hook } else { Intake::Smtp },
            source: hook.then(|| (self.place.team, SourceId(Uuid::from_u128(11 + self.place.number as u128)))),
            name: hook.then(|| format!("letter-{}", self.number)),
            ip: None,
            helo: None,
            sender: Some(self.sender()),
            recipients: vec![self.place.address.clone()],
            form: Form::Mime,
            raw: self.raw(),
        }
    }

    fn brought(&self, hook: bool) -> Brought {
        Brought {
            way: if hook { "hook" } else { "smtp" }.to_owned(),
            inbox: self.place.address.clone(),
            message_id: self.message_id(),
            sender: self.sender(),
            kind: self.kind.to_owned(),
            ..Brought::default()
        }
    }
}

/// One step: the next letters come, and others come again.
pub(super) fn come(town: &Town, letters: &[Letter], step: usize) {
    let shared = &town.shared;
    let seen = &letters[..letters.len().min(2 * step + 2)];
    let mut turns: Vec<&Letter> = letters.iter().skip(2 * step).take(2).collect();
    while !seen.is_empty() && shared.below(10) < 2 {
        turns.push(&seen[shared.below(seen.len() as u64) as usize]);
    }
    for letter in turns {
        let (Some(engine), hook) = (town.any_engine(), shared.below(2) == 0) else { continue };
        tokio::spawn(mail::bring(Arc::clone(shared), engine, letter.brought(hook), letter.incoming(hook)));
    }
}

/// After healing every letter that was never acknowledged comes once more.
pub(super) async fn come_again(town: &Town, letters: &[Letter]) {
    for letter in letters.iter().filter(|letter| !town.shared.is_kept(&letter.message_id())) {
        let Some(engine) = town.any_engine() else { continue };
        mail::bring(Arc::clone(&town.shared), engine, letter.brought(false), letter.incoming(false)).await;
    }
}

/// The messages of a desk, oldest first.
pub(super) async fn messages(town: &Town, place: &Place) -> Result<Vec<Message>, StoreError> {
    let query = MessageQuery { place: MessagePlace::After(0), limit: ALL, ..MessageQuery::default() };
    Ok(town.store.messages(place.team, place.id, query).await?.rows)
}

/// Whether an answer is held and nobody was asked about it yet: that is done in rounds.
async fn is_asking(town: &Town) -> Result<bool, StoreError> {
    let held = |email: &Email| email.state() == EmailState::Held && email.head.answers.is_some();
    let asked: BTreeSet<String> = questions(town).await?.into_iter().map(|question| question.email).collect();
    let stuck = town.store.stuck(None, ALL).await?;
    Ok(stuck.iter().any(|email| held(email) && !asked.contains(&email.id.to_string())))
}

/// When the next message that nobody answered may be offered, or the next question is asked, if one waits.
pub(super) async fn due(town: &Town) -> Result<Option<i64>, StoreError> {
    if town.shared.plan.letters == 0 {
        return Ok(None);
    }
    let mut due = is_asking(town).await?.then_some(0);
    for place in town.places.iter().filter(|place| place.desk) {
        for message in messages(town, place).await? {
            if message.state != MessageState::Unanswered {
                continue;
            }
            let thread = town.store.thread(place.team, message.thread).await?;
            let leased = thread.and_then(|thread| thread.about.lease).map(|lease| lease.expires_at);
            let at = [leased, message.marks.turn.not_before].into_iter().flatten().max().map_or(0, |at| at.0);
            due = Some(due.map_or(at, |due: i64| due.min(at)));
        }
    }
    Ok(due)
}

/// The questions for people in the end.
pub(super) async fn questions(town: &Town) -> Result<Vec<Question>, StoreError> {
    let mut all = Vec::new();
    for caller in &town.callers {
        let page = town.store.records(caller.team.id, RecordKind::Escalation, None, ALL).await?;
        for record in page.rows {
            let asked: Escalation =
                serde_json::from_str(&record.about).map_err(|why| StoreError::Corrupt(why.to_string()))?;
            all.push(Question {
                reason: asked.reason.word().to_owned(),
                email: asked.about.email.map(|id| id.to_string()).unwrap_or_default(),
                message: asked.about.message.map(|id| id.to_string()).unwrap_or_default(),
            });
        }
    }
    Ok(all)
}

/// The name of the team that a desk belongs to.
pub(super) fn team(place: &Place) -> String {
    team_name(place.number)
}
