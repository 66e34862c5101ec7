//! One history of everything: what was asked, what the sink got, which faults were made, and what the ledger shows. It
//! is judged twice: here, and by a program in another language that knows the documents alone.

use crate::crash::api_snapshot::ApiSnapshot;
use crate::crash::environment::SINK_REPLY_TIMEOUT;
use crate::crash::failpoints::HopClass;
use crate::crash::inbox_snapshot::{self, InboundRecord};
use crate::harness::rng::fnv1a;
use crate::proof::history::{
    CallKind, CallRecord, Email, FaultRecord, History, HopArrival, HopCapability, InboundHistory, ReceivedWebhook,
    WebhookHistory,
};
use crate::proof::{Invariant, Violation, check};
use crate::sink::oracle::sink_log::{SinkLog, SinkLogLine, now_us};
use crate::sink::oracle::webhook_receiver::{self, WebhookLogLine};
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Milliseconds by which the clock of a ledger and ours may differ.
const CLOCK_SLACK_MS: i64 = 250;
/// How long the keyed sink remembers.
const DAY_MS: u64 = 24 * 3_600_000;
/// What the second judge does not look at, save what endpoints are told.
const FIRST_CHECKER_ONLY: [Invariant; 2] = [Invariant::P10, Invariant::P11];

/// What the second judge is given.
const SECOND_CHECKER_FILES: [(&str, &str); 5] = [
    ("--history", "history.jsonl"),
    ("--sink", "sink.jsonl"),
    ("--faults", "faults.jsonl"),
    ("--mail", "mail.jsonl"),
    ("--notices", webhook_receiver::WEBHOOK_LOG_FILE),
];

/// A fault that the rig made itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedFault {
    /// When it began.
    pub at_us: u64,
    /// When it was over.
    pub until_us: u64,
    /// What it was.
    pub what: String,
}

impl InjectedFault {
    /// A fault of this moment.
    pub fn now(what: String) -> Self {
        Self { at_us: now_us(), until_us: now_us(), what }
    }

    /// The emails that were on the wire meanwhile.
    fn affected_emails(&self, shown: &ApiSnapshot) -> Vec<String> {
        let (from, to) =
            ((self.at_us / 1_000) as i64 - CLOCK_SLACK_MS, (self.until_us / 1_000) as i64 + CLOCK_SLACK_MS);
        let meanwhile = |began: i64, ended: Option<i64>| began <= to && ended.is_none_or(|ended| ended >= from);
        let touched = shown.attempts.iter().filter(|(_, began, ended)| meanwhile(*began, *ended));
        touched.map(|(id, _, _)| id.clone()).collect()
    }
}

/// What a round left to be judged.
#[derive(Debug, Clone, Default)]
pub struct RoundRecord {
    /// What was asked and told.
    pub calls: Vec<CallRecord>,
    /// What the sink got.
    pub sink_lines: Vec<SinkLogLine>,
    /// What endpoints were told.
    pub notices: Vec<WebhookLogLine>,
    /// What senders brought and agents took.
    pub mail: Vec<InboundRecord>,
    /// What the rig did.
    pub injected_faults: Vec<InjectedFault>,
    /// What the API showed in the end.
    pub api: Value,
}

impl RoundRecord {
    /// Writes what is not in files yet.
    pub fn write(&self, root: &Path) -> Result<()> {
        std::fs::write(root.join("api.json"), self.api.to_string())?;
        let mishaps = self.injected_faults.iter().map(|mishap| Ok(serde_json::to_string(mishap)? + "\n"));
        std::fs::write(root.join("faults.jsonl"), mishaps.collect::<Result<String>>()?)?;
        Ok(())
    }

    /// Reads what a round left.
    pub fn read(root: &Path) -> Result<Self> {
        let file = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"));
        let calls = file("history.jsonl")?.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        let mishaps = file("faults.jsonl")?.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        let lines = SinkLog::read(&root.join("sink.jsonl"))?;
        let notices = SinkLog::read(&root.join(webhook_receiver::WEBHOOK_LOG_FILE))?;
        let mail = file("mail.jsonl")?.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        Ok(Self {
            mail,
            calls,
            sink_lines: lines,
            notices,
            injected_faults: mishaps,
            api: serde_json::from_str(&file("api.json")?)?,
        })
    }

    /// Everything as one history.
    pub fn history(&self, class: HopClass) -> History {
        let mut shown = ApiSnapshot::from_api(&self.api);
        self.infer_bind_numbers(&mut shown.emails);
        let (mut brought, mut takes) = (Vec::new(), Vec::new());
        for deed in self.mail.iter().cloned() {
            match deed {
                InboundRecord::Brought(one) => brought.push(one),
                InboundRecord::Take(one) => takes.push(one),
            }
        }
        History {
            hops: BTreeMap::from([(class.transport_name().to_owned(), hop_capability(class))]),
            calls: self.calls.clone(),
            arrivals: self.sink_lines.iter().map(to_arrival).chain(sandbox_arrivals(&shown)).collect(),
            faults: self.faults(&shown),
            stalls: self.injected_faults.iter().map(|mishap| (mishap.at_us, mishap.until_us)).collect(),
            events: shown.events,
            emails: shown.emails,
            webhooks: self.webhooks(),
            inbound: InboundHistory { brought, takes, ..inbox_snapshot::to_history(&self.api) },
            healed: true,
            ..History::default()
        }
    }

    /// What endpoints were told, and what they are owed.
    fn webhooks(&self) -> WebhookHistory {
        let teams = self.api.as_object().into_iter().flatten();
        let owed = teams.filter_map(|(team, shown)| Some((team.clone(), shown["owed"].as_u64()?)));
        let came = self.notices.iter().cloned().map(|line| {
            let WebhookLogLine { team, id, event, about, seq, signed, .. } = line;
            ReceivedWebhook { team, id, event, about, seq, signed }
        });
        WebhookHistory { owed: owed.collect(), came: came.collect() }
    }

    /// The API does not tell how often a key was bound. One that may be forgotten is bound anew by each of its emails.
    fn infer_bind_numbers(&self, emails: &mut [Email]) {
        let forgotten = self.calls.iter().filter(|call| call.verb == CallKind::Forget);
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
    pub fn check(&self, class: HopClass) -> RoundVerdict {
        let history = self.history(class);
        let taken = self.sink_lines.iter().filter(|line| line.taken).count() as u64;
        RoundVerdict {
            violations: check(&history),
            emails: history.emails.len() as u64,
            mails_accepted: taken,
            log: String::new(),
        }
    }

    fn faults(&self, shown: &ApiSnapshot) -> Vec<FaultRecord> {
        let fault =
            |at: u64, kind: &str, emails: Vec<String>| FaultRecord { at, kind: kind.into(), ambiguous: true, emails };
        let made =
            self.injected_faults.iter().map(|mishap| fault(mishap.at_us, &mishap.what, mishap.affected_emails(shown)));
        // One that touched nobody would count for everybody.
        let made = made.filter(|fault| !fault.emails.is_empty());
        let lines = self.sink_lines.iter().filter(|line| line.ambiguous);
        let misbehaved = lines.map(|line| fault(line.at_us, &line.did, vec![line.email.clone()]));
        // A machine that is busy enough makes an answer late all by itself.
        let patience = SINK_REPLY_TIMEOUT.as_millis() as i64 - CLOCK_SLACK_MS;
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
pub struct RoundVerdict {
    /// What was broken.
    pub violations: Vec<Violation>,
    /// Emails.
    pub emails: u64,
    /// Mails that the sink took.
    pub mails_accepted: u64,
    /// What happened, cycle by cycle.
    pub log: String,
}

impl RoundVerdict {
    /// The promises that were broken, of those that both judges look at.
    pub fn broken_invariants(&self) -> BTreeSet<String> {
        let rules = self.violations.iter().map(|violation| violation.rule);
        let twice = rules.filter(|rule| rule.is_about_notices() || !FIRST_CHECKER_ONLY.contains(&rule.promise()));
        twice.map(|rule| format!("{:?}", rule.promise())).collect()
    }
}

/// What the other judge says.
#[derive(Debug, Clone, Default)]
pub struct SecondVerdict {
    /// The promises that hold.
    pub holds: BTreeSet<String>,
    /// The promises that are broken.
    pub broken: BTreeSet<String>,
    /// Its words.
    pub output: String,
}

impl SecondVerdict {
    /// Of the files in a directory, and of the API.
    pub fn run(program: &Path, root: &Path, api: &[String]) -> Result<Self> {
        let mut command = Command::new("python3");
        command.arg(program);
        for (flag, file) in SECOND_CHECKER_FILES {
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
        Ok(Self { holds, broken, output: words })
    }
}

fn hop_capability(class: HopClass) -> HopCapability {
    match class {
        HopClass::Keyed => HopCapability::Keyed(DAY_MS),
        HopClass::LookUp => HopCapability::Asked,
        HopClass::Sandbox | HopClass::Inbound | HopClass::Smtp | HopClass::Keyless => HopCapability::Blind,
    }
}

fn to_arrival(line: &SinkLogLine) -> HopArrival {
    HopArrival {
        at: line.at_us,
        transport: line.transport.clone(),
        email: line.email.clone(),
        message_id: line.message_id.clone(),
        key: line.key.clone(),
        bytes: fnv1a(&line.body),
        to: line.to.clone(),
        taken: line.taken,
        ..HopArrival::default()
    }
}

/// What the sandbox has: nothing but the ledger can tell, since both are one commit.
fn sandbox_arrivals(shown: &ApiSnapshot) -> Vec<HopArrival> {
    let handoffs = shown.emails.iter().flat_map(|email| email.handoffs.iter().map(move |handoff| (email, handoff)));
    let out = |state: &str| matches!(state, "sent" | "delivered" | "bounced" | "complained");
    let own = handoffs.filter(|(_, handoff)| handoff.transport.starts_with("sandbox") && out(&handoff.state));
    let capture = own.map(|(email, handoff)| HopArrival {
        at: 0,
        transport: handoff.transport.clone(),
        email: email.id.clone(),
        message_id: email.message_id.clone(),
        key: None,
        bytes: 0,
        to: handoff.to.clone(),
        taken: true,
        ..HopArrival::default()
    });
    capture.collect()
}
