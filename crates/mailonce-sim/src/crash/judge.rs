//! One history of everything: what was asked, what the sink got, which faults were made, and what the ledger shows.

use super::read::Shown;
use super::round::Live;
use super::table::Class;
use super::world::ANSWER;
use crate::proof::history::{Arrival, Fault, History, Hop};
use crate::proof::{Violation, check};
use crate::rig::chance::number_of;
use crate::sink::oracle::journal::{Journal, Line, now_us};
use anyhow::Result;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Milliseconds by which the clock of a ledger and ours may differ.
const SLACK_MS: i64 = 250;
/// How long the keyed sink remembers.
const DAY_MS: u64 = 24 * 3_600_000;

/// A fault that the rig made itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mishap {
    /// When it began.
    pub at_us: u64,
    /// When it was over.
    pub until_us: u64,
    /// What it was.
    pub what: String,
}

impl Mishap {
    /// A fault of this moment.
    pub fn now(what: String) -> Self {
        Self { at_us: now_us(), until_us: now_us(), what }
    }

    /// The emails that were on the wire meanwhile.
    fn touched(&self, shown: &Shown) -> Vec<String> {
        let (from, to) = ((self.at_us / 1_000) as i64 - SLACK_MS, (self.until_us / 1_000) as i64 + SLACK_MS);
        let meanwhile = |began: i64, ended: Option<i64>| began <= to && ended.is_none_or(|ended| ended >= from);
        let touched = shown.attempts.iter().filter(|(_, began, ended)| meanwhile(*began, *ended));
        touched.map(|(id, _, _)| id.clone()).collect()
    }
}

/// What became of a round.
#[derive(Debug, Clone, Default)]
pub struct Judgement {
    /// What was broken.
    pub violations: Vec<Violation>,
    /// Emails.
    pub emails: u64,
    /// Mails that the sink took.
    pub taken: u64,
    /// What happened, cycle by cycle.
    pub story: String,
    /// The whole history.
    pub history: History,
    /// Where the server showed its ledger, while it still runs.
    pub at: Option<SocketAddr>,
}

impl Live<'_> {
    /// Reads everything and judges it.
    pub(super) fn judge(&self, at: SocketAddr) -> Result<Judgement> {
        let teams = self.callers.teams.lock().map(|teams| teams.clone()).unwrap_or_default();
        let shown = Shown::read(at, &teams)?;
        let lines = Journal::read(&self.world.journal())?;
        let class = self.round().class;
        let mut history = self.callers.client.history().clone();
        history.hops = BTreeMap::from([(class.word().to_owned(), hop(class))]);
        history.arrivals = lines.iter().map(arrival).chain(captures(&shown)).collect();
        history.faults = self.faults(&shown, &lines);
        history.events.clone_from(&shown.events);
        history.emails.clone_from(&shown.emails);
        history.healed = true;
        let taken = lines.iter().filter(|line| line.taken).count() as u64;
        let violations = check(&history);
        let emails = history.emails.len() as u64;
        Ok(Judgement { violations, emails, taken, history, at: Some(at), story: String::new() })
    }

    fn faults(&self, shown: &Shown, lines: &[Line]) -> Vec<Fault> {
        let none = |emails: &Vec<String>| emails.is_empty();
        let mishap = |mishap: &super::judge::Mishap| Fault {
            at: mishap.at_us,
            kind: mishap.what.clone(),
            ambiguous: true,
            emails: mishap.touched(shown),
        };
        let misbehaved = |line: &Line| Fault {
            at: line.at_us,
            kind: line.did.clone(),
            ambiguous: true,
            emails: vec![line.email.clone()],
        };
        // A machine that is busy enough makes an answer late all by itself.
        let slow = shown.attempts.iter().filter(|(_, began, ended)| {
            ended.is_some_and(|ended| ended - began >= ANSWER.as_millis() as i64 - SLACK_MS)
        });
        let slow = slow.map(|(id, began, _)| Fault {
            at: (*began as u64) * 1_000,
            kind: "no answer in time".to_owned(),
            ambiguous: true,
            emails: vec![id.clone()],
        });
        let made = self.mishaps.iter().map(mishap).filter(|fault| !none(&fault.emails));
        let sandbox = shown.emails.iter().filter(|email| email.to.iter().any(|to| to.starts_with("unknown@sandbox.")));
        let sandbox = sandbox.map(|email| Fault {
            at: 0,
            kind: "an address that never tells".to_owned(),
            ambiguous: true,
            emails: vec![email.id.clone()],
        });
        made.chain(lines.iter().filter(|line| line.ambiguous).map(misbehaved)).chain(slow).chain(sandbox).collect()
    }
}

fn hop(class: Class) -> Hop {
    match class {
        Class::Keyed => Hop::Keyed(DAY_MS),
        Class::LookUp => Hop::Asked,
        Class::Sandbox | Class::Smtp | Class::Keyless => Hop::Blind,
    }
}

fn arrival(line: &Line) -> Arrival {
    Arrival {
        at: line.at_us,
        transport: line.transport.clone(),
        email: line.email.clone(),
        message_id: line.message_id.clone(),
        key: line.key.clone(),
        bytes: number_of(&line.body) >> 11,
        to: line.to.clone(),
        taken: line.taken,
    }
}

/// What the sandbox has: nothing but the ledger can tell, since both are one commit.
fn captures(shown: &Shown) -> impl Iterator<Item = Arrival> {
    let handoffs = shown.emails.iter().flat_map(|email| email.handoffs.iter().map(move |handoff| (email, handoff)));
    let out = |state: &str| matches!(state, "sent" | "delivered" | "bounced" | "complained");
    let own = handoffs.filter(move |(_, handoff)| handoff.transport.starts_with("sandbox") && out(&handoff.state));
    own.map(|(email, handoff)| Arrival {
        at: 0,
        transport: handoff.transport.clone(),
        email: email.id.clone(),
        message_id: email.message_id.clone(),
        key: None,
        bytes: 0,
        to: handoff.to.clone(),
        taken: true,
    })
}
