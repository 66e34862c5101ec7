//! One history of everything: what was asked, what the sink got, which faults were made, and what the ledger shows. It
//! is judged twice: here, and by a program in another language that knows the documents alone.

use super::inbound::{self, MailDeed};
use super::read::Shown;
use super::table::Class;
use super::world::ANSWER;
use crate::proof::history::{Arrival, Call, Email, Fault, History, Hop, Inbound, Verb, Webhook, Webhooks};
use crate::proof::{Promise, Violation, check};
use crate::rig::chance::number_of;
use crate::sink::oracle::journal::{Journal, Line, now_us};
use crate::sink::oracle::receiver::{self, NoticeLine};
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Milliseconds by which the clock of a ledger and ours may differ.
const SLACK_MS: i64 = 250;
/// How long the keyed sink remembers.
const DAY_MS: u64 = 24 * 3_600_000;
/// What the second judge does not look at, save what endpoints are told.
const NOT_JUDGED_TWICE: [Promise; 2] = [Promise::P10, Promise::P11];

/// What the second judge is given.
const FILES: [(&str, &str); 5] = [
    ("--history", "history.jsonl"),
    ("--sink", "sink.jsonl"),
    ("--faults", "faults.jsonl"),
    ("--mail", "mail.jsonl"),
    ("--notices", receiver::LOG),
];

/// A fault that the rig made itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// What a round left to be judged.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// What was asked and told.
    pub calls: Vec<Call>,
    /// What the sink got.
    pub lines: Vec<Line>,
    /// What endpoints were told.
    pub notices: Vec<NoticeLine>,
    /// What senders brought and agents took.
    pub mail: Vec<MailDeed>,
    /// What the rig did.
    pub mishaps: Vec<Mishap>,
    /// What the API showed in the end.
    pub api: Value,
}

impl Record {
    /// Writes what is not in files yet.
    pub fn write(&self, root: &Path) -> Result<()> {
        std::fs::write(root.join("api.json"), self.api.to_string())?;
        let mishaps = self.mishaps.iter().map(|mishap| Ok(serde_json::to_string(mishap)? + "\n"));
        std::fs::write(root.join("faults.jsonl"), mishaps.collect::<Result<String>>()?)?;
        Ok(())
    }

    /// Reads what a round left.
    pub fn read(root: &Path) -> Result<Self> {
        let file = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"));
        let calls = file("history.jsonl")?.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        let mishaps = file("faults.jsonl")?.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        let lines = Journal::read(&root.join("sink.jsonl"))?;
        let notices = Journal::read(&root.join(receiver::LOG))?;
        let mail = file("mail.jsonl")?.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        Ok(Self { mail, calls, lines, notices, mishaps, api: serde_json::from_str(&file("api.json")?)? })
    }

    /// Everything as one history.
    pub fn history(&self, class: Class) -> History {
        let mut shown = Shown::of(&self.api);
        self.number_binds(&mut shown.emails);
        let (mut brought, mut takes) = (Vec::new(), Vec::new());
        for deed in self.mail.iter().cloned() {
            match deed {
                MailDeed::Brought(one) => brought.push(one),
                MailDeed::Take(one) => takes.push(one),
            }
        }
        History {
            hops: BTreeMap::from([(class.transport().to_owned(), hop(class))]),
            calls: self.calls.clone(),
            arrivals: self.lines.iter().map(arrival).chain(captures(&shown)).collect(),
            faults: self.faults(&shown),
            stalls: self.mishaps.iter().map(|mishap| (mishap.at_us, mishap.until_us)).collect(),
            events: shown.events,
            emails: shown.emails,
            webhooks: self.webhooks(),
            inbound: Inbound { brought, takes, ..inbound::shown(&self.api) },
            healed: true,
            ..History::default()
        }
    }

    /// What endpoints were told, and what they are owed.
    fn webhooks(&self) -> Webhooks {
        let teams = self.api.as_object().into_iter().flatten();
        let owed = teams.filter_map(|(team, shown)| Some((team.clone(), shown["owed"].as_u64()?)));
        let came = self.notices.iter().cloned().map(|line| {
            let NoticeLine { team, id, event, about, seq, signed, .. } = line;
            Webhook { team, id, event, about, seq, signed }
        });
        Webhooks { owed: owed.collect(), came: came.collect() }
    }

    /// The API does not tell how often a key was bound. One that may be forgotten is bound anew by each of its emails.
    fn number_binds(&self, emails: &mut [Email]) {
        let forgotten = self.calls.iter().filter(|call| call.verb == Verb::Forget);
        let forgotten: BTreeSet<(&str, &str)> =
            forgotten.filter_map(|call| Some((call.team.as_str(), call.key.as_deref()?))).collect();
        let mut binds: BTreeMap<(String, String), u32> = BTreeMap::new();
        // Ids grow with time.
        emails.sort_by(|a, b| a.id.cmp(&b.id));
        for email in emails.iter_mut().filter(|email| forgotten.contains(&(&*email.team, &*email.key))) {
            let bind = binds.entry((email.team.clone(), email.key.clone())).or_default();
            *bind += 1;
            email.bind = *bind;
        }
    }

    /// Judges it.
    pub fn judge(&self, class: Class) -> Judgement {
        let history = self.history(class);
        let taken = self.lines.iter().filter(|line| line.taken).count() as u64;
        Judgement { violations: check(&history), emails: history.emails.len() as u64, taken, story: String::new() }
    }

    fn faults(&self, shown: &Shown) -> Vec<Fault> {
        let fault = |at: u64, kind: &str, emails: Vec<String>| Fault { at, kind: kind.into(), ambiguous: true, emails };
        let made = self.mishaps.iter().map(|mishap| fault(mishap.at_us, &mishap.what, mishap.touched(shown)));
        // One that touched nobody would count for everybody.
        let made = made.filter(|fault| !fault.emails.is_empty());
        let lines = self.lines.iter().filter(|line| line.ambiguous);
        let misbehaved = lines.map(|line| fault(line.at_us, &line.did, vec![line.email.clone()]));
        // A machine that is busy enough makes an answer late all by itself.
        let patience = ANSWER.as_millis() as i64 - SLACK_MS;
        let late = |ended: Option<i64>, began: i64| ended.is_some_and(|ended| ended - began >= patience);
        let slow = shown.attempts.iter().filter(|(_, began, ended)| late(*ended, *began));
        let slow = slow.map(|(id, began, _)| fault(*began as u64 * 1_000, "no answer in time", vec![id.clone()]));
        let mute = shown.emails.iter().filter(|email| email.to.iter().any(|to| to.starts_with("unknown@sandbox.")));
        let mute = mute.map(|email| fault(0, "an address that never tells", vec![email.id.clone()]));
        made.chain(misbehaved).chain(slow).chain(mute).collect()
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
}

impl Judgement {
    /// The promises that were broken, of those that both judges look at.
    pub fn broken(&self) -> BTreeSet<String> {
        let rules = self.violations.iter().map(|violation| violation.rule);
        let twice = rules.filter(|rule| rule.is_about_notices() || !NOT_JUDGED_TWICE.contains(&rule.promise()));
        twice.map(|rule| format!("{:?}", rule.promise())).collect()
    }
}

/// What the other judge says.
#[derive(Debug, Clone, Default)]
pub struct Opinion {
    /// The promises that hold.
    pub holds: BTreeSet<String>,
    /// The promises that are broken.
    pub broken: BTreeSet<String>,
    /// Its words.
    pub words: String,
}

impl Opinion {
    /// Of the files in a directory, and of the API.
    pub fn ask(program: &Path, root: &Path, api: &[String]) -> Result<Self> {
        let mut command = Command::new("python3");
        command.arg(program);
        for (flag, file) in FILES {
            command.arg(flag).arg(root.join(file));
        }
        let said = command.args(api).output().context("cannot run python3")?;
        let words = String::from_utf8_lossy(&said.stdout).into_owned();
        let why = String::from_utf8_lossy(&said.stderr).into_owned();
        ensure!(matches!(said.status.code(), Some(0 | 1)), "the second judge could not judge: {why}");
        let verdict: Value = serde_json::from_str(&words)?;
        let broken = verdict["broken"].as_object().context("a verdict without an answer")?.keys().cloned().collect();
        let holds = verdict["holds"].as_array().context("a verdict without what holds")?;
        let holds = holds.iter().filter_map(|promise| promise.as_str().map(str::to_owned)).collect();
        Ok(Self { holds, broken, words })
    }
}

fn hop(class: Class) -> Hop {
    match class {
        Class::Keyed => Hop::Keyed(DAY_MS),
        Class::LookUp => Hop::Asked,
        Class::Sandbox | Class::Inbound | Class::Smtp | Class::Keyless => Hop::Blind,
    }
}

fn arrival(line: &Line) -> Arrival {
    Arrival {
        at: line.at_us,
        transport: line.transport.clone(),
        email: line.email.clone(),
        message_id: line.message_id.clone(),
        key: line.key.clone(),
        bytes: number_of(&line.body),
        to: line.to.clone(),
        taken: line.taken,
        ..Arrival::default()
    }
}

/// What the sandbox has: nothing but the ledger can tell, since both are one commit.
fn captures(shown: &Shown) -> Vec<Arrival> {
    let handoffs = shown.emails.iter().flat_map(|email| email.handoffs.iter().map(move |handoff| (email, handoff)));
    let out = |state: &str| matches!(state, "sent" | "delivered" | "bounced" | "complained");
    let own = handoffs.filter(|(_, handoff)| handoff.transport.starts_with("sandbox") && out(&handoff.state));
    let capture = own.map(|(email, handoff)| Arrival {
        at: 0,
        transport: handoff.transport.clone(),
        email: email.id.clone(),
        message_id: email.message_id.clone(),
        key: None,
        bytes: 0,
        to: handoff.to.clone(),
        taken: true,
        ..Arrival::default()
    });
    capture.collect()
}
