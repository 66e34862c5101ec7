//! Builds one history of a round (calls, arrivals at the sink, injected faults, final ledger) and checks it. A second
//! checker, in another language and written from the docs alone, checks the same files.

use crate::crash::api_snapshot::ApiSnapshot;
use crate::crash::environment::SINK_REPLY_TIMEOUT;
use crate::crash::failpoints::HopClass;
use crate::crash::inbox_snapshot::{self, InboundRecord};
use crate::harness::rng::fnv1a;
use crate::proof::history::{
    CallKind, CallRecord, ClaimHistory, Email, FaultRecord, History, HopArrival, HopCapability, InboundHistory,
    ReceivedWebhook, WebhookHistory,
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

/// Tolerated difference between the ledger's clock and ours, in milliseconds.
const CLOCK_SLACK_MS: i64 = 250;
/// How long the keyed sink remembers keys.
const DAY_MS: u64 = 24 * 3_600_000;
/// Invariants that the second checker covers only in part, for webhooks.
const FIRST_CHECKER_ONLY: [Invariant; 2] = [Invariant::P10, Invariant::P11];

/// The files that the second checker reads.
const SECOND_CHECKER_FILES: [(&str, &str); 5] = [
    ("--history", "history.jsonl"),
    ("--sink", "sink.jsonl"),
    ("--faults", "faults.jsonl"),
    ("--mail", "mail.jsonl"),
    ("--notices", webhook_receiver::WEBHOOK_LOG_FILE),
];

/// A kill or a pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedFault {
    /// Its start.
    pub at_us: u64,
    /// Its end.
    pub until_us: u64,
    /// Its description.
    pub what: String,
}

impl InjectedFault {
    /// A fault at this moment.
    pub fn now(what: String) -> Self {
        Self { at_us: now_us(), until_us: now_us(), what }
    }

    /// The emails with an attempt in progress during the fault.
    fn affected_emails(&self, shown: &ApiSnapshot) -> Vec<String> {
        let (from, to) =
            ((self.at_us / 1_000) as i64 - CLOCK_SLACK_MS, (self.until_us / 1_000) as i64 + CLOCK_SLACK_MS);
        let meanwhile = |began: i64, ended: Option<i64>| began <= to && ended.is_none_or(|ended| ended >= from);
        let touched = shown.attempts.iter().filter(|(_, began, ended)| meanwhile(*began, *ended));
        touched.map(|(id, _, _)| id.clone()).collect()
    }
}

/// The files of a round.
#[derive(Debug, Clone, Default)]
pub struct RoundRecord {
    /// The calls with their replies.
    pub calls: Vec<CallRecord>,
    /// The mails that reached the sink.
    pub sink_lines: Vec<SinkLogLine>,
    /// The webhooks that endpoints received.
    pub notices: Vec<WebhookLogLine>,
    /// Deliveries of received mail, and consumed codes.
    pub mail: Vec<InboundRecord>,
    /// The injected faults.
    pub injected_faults: Vec<InjectedFault>,
    /// The final state that the API showed.
    pub api: Value,
}

impl RoundRecord {
    /// Writes the files that are not written during the round.
    pub fn write(&self, root: &Path) -> Result<()> {
        std::fs::write(root.join("api.json"), self.api.to_string())?;
        let injected_faults = self.injected_faults.iter().map(|injected| Ok(serde_json::to_string(injected)? + "\n"));
        std::fs::write(root.join("faults.jsonl"), injected_faults.collect::<Result<String>>()?)?;
        Ok(())
    }

    /// Reads the files of a round.
    pub fn read(root: &Path) -> Result<Self> {
        let file = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"));
        let calls = file("history.jsonl")?.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        let injected_faults =
            file("faults.jsonl")?.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        let lines = SinkLog::read(&root.join("sink.jsonl"))?;
        let notices = SinkLog::read(&root.join(webhook_receiver::WEBHOOK_LOG_FILE))?;
        let mail = file("mail.jsonl")?.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        Ok(Self {
            mail,
            calls,
            sink_lines: lines,
            notices,
            injected_faults,
            api: serde_json::from_str(&file("api.json")?)?,
        })
    }

    /// Everything as one history.
    pub fn history(&self, class: HopClass) -> History {
        let mut shown = ApiSnapshot::from_api(&self.api);
        self.infer_bind_numbers(&mut shown.emails);
        let (mut delivery_tries, mut consume_tries) = (Vec::new(), Vec::new());
        for record in self.mail.iter().cloned() {
            match record {
                InboundRecord::Delivery(one) => delivery_tries.push(one),
                InboundRecord::Consume(one) => consume_tries.push(one),
            }
        }
        History {
            hops: BTreeMap::from([(class.transport_name().to_owned(), hop_capability(class))]),
            calls: self.calls.clone(),
            arrivals: self.arrived_lines().map(to_arrival).chain(sandbox_arrivals(&shown)).collect(),
            faults: self.faults(&shown),
            stalls: self.injected_faults.iter().map(|injected| (injected.at_us, injected.until_us)).collect(),
            events: shown.events,
            emails: shown.emails,
            webhooks: self.webhooks(),
            inbound: InboundHistory { delivery_tries, consume_tries, ..inbox_snapshot::to_history(&self.api) },
            healed: true,
            ..History::default()
        }
    }

    /// The webhooks that endpoints received, and those that they should have received.
    fn webhooks(&self) -> WebhookHistory {
        let teams = self.api.as_object().into_iter().flatten();
        let owed = teams.filter_map(|(team, shown)| Some((team.clone(), shown["owed"].as_u64()?)));
        let received = self.notices.iter().cloned().map(|line| {
            let WebhookLogLine { team, id, event, about, seq, signed, .. } = line;
            ReceivedWebhook { team, id, event, about, seq, signed }
        });
        WebhookHistory { owed: owed.collect(), received: received.collect() }
    }

    /// Numbers the emails of keys that expire. The API does not show how often a key was bound, and each email binds it
    /// again.
    fn infer_bind_numbers(&self, emails: &mut [Email]) {
        let forgotten = self.calls.iter().filter(|call| call.verb == CallKind::Forget);
        let forgotten: BTreeSet<(&str, &str)> =
            forgotten.filter_map(|call| Some((call.team.as_str(), call.key.as_deref()?))).collect();
        let mut binds: BTreeMap<(String, String), u32> = BTreeMap::new();
        // Ids are ordered by time.
        emails.sort_by(|a, b| a.id.cmp(&b.id));
        for email in emails.iter_mut().filter(|email| forgotten.contains(&(&*email.team, &*email.key))) {
            let bind = binds.entry((email.team.clone(), email.key.clone())).or_default();
            *bind += 1;
            email.bind = *bind;
        }
    }

    /// Checks the history.
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

    /// What the sink logged about whole mails. Of the others it knows only the recipients.
    fn arrived_lines(&self) -> impl Iterator<Item = &SinkLogLine> {
        self.sink_lines.iter().filter(|line| line.taken || !line.email.is_empty())
    }

    fn faults(&self, shown: &ApiSnapshot) -> Vec<FaultRecord> {
        let fault =
            |at: u64, kind: &str, emails: Vec<String>| FaultRecord { at, kind: kind.into(), ambiguous: true, emails };
        let made = self
            .injected_faults
            .iter()
            .map(|injected| fault(injected.at_us, &injected.what, injected.affected_emails(shown)));
        // The checker would apply a fault without emails to all emails.
        let made = made.filter(|fault| !fault.emails.is_empty());
        let lines = self.sink_lines.iter().filter(|line| line.ambiguous);
        let to_same = |line: &SinkLogLine, email: &Email| email.to.iter().any(|to| line.to.contains(to));
        let of_line = |line: &SinkLogLine| -> Vec<String> {
            // A connection that closed in the body did not show the email's id.
            if line.email.is_empty() {
                return shown.emails.iter().filter(|e| to_same(line, e)).map(|e| e.id.clone()).collect();
            }
            vec![line.email.clone()]
        };
        let misbehaved = lines.map(|line| fault(line.at_us, &line.action, of_line(line)));
        let misbehaved = misbehaved.filter(|fault| !fault.emails.is_empty());
        // On a busy machine a reply can be late without a fault.
        let timeout = SINK_REPLY_TIMEOUT.as_millis() as i64 - CLOCK_SLACK_MS;
        let late = |ended: Option<i64>, began: i64| ended.is_some_and(|ended| ended - began >= timeout);
        let slow = shown.attempts.iter().filter(|(_, began, ended)| late(*ended, *began));
        let slow = slow.map(|(id, began, _)| fault(*began as u64 * 1_000, "no reply in time", vec![id.clone()]));
        let mute = shown.emails.iter().filter(|email| email.to.iter().any(|to| to.starts_with("unknown@sandbox.")));
        let mute = mute.map(|email| fault(0, "a test address without an outcome", vec![email.id.clone()]));
        made.chain(misbehaved).chain(slow).chain(mute).collect()
    }
}

/// The result of a round.
#[derive(Debug, Clone, Default)]
pub struct RoundVerdict {
    /// Broken invariants.
    pub violations: Vec<Violation>,
    /// Emails.
    pub emails: u64,
    /// Mails that the sink accepted.
    pub mails_accepted: u64,
    /// The log, one line per cycle.
    pub log: String,
}

impl RoundVerdict {
    /// The broken invariants that both checkers cover.
    pub fn broken_invariants(&self) -> BTreeSet<String> {
        let rules = self.violations.iter().map(|violation| violation.rule);
        let twice = rules.filter(|rule| rule.is_about_notices() || !FIRST_CHECKER_ONLY.contains(&rule.promise()));
        twice.map(|rule| format!("{:?}", rule.promise())).collect()
    }
}

/// The verdict of the second checker.
#[derive(Debug, Clone, Default)]
pub struct SecondVerdict {
    /// Invariants that hold.
    pub holds: BTreeSet<String>,
    /// Broken invariants.
    pub broken: BTreeSet<String>,
    /// Its output.
    pub output: String,
}

impl SecondVerdict {
    /// Runs the second checker on the files of a directory and on the API.
    pub fn run(program: &Path, root: &Path, api: &[String]) -> Result<Self> {
        let mut command = Command::new("python3");
        command.arg(program);
        for (flag, file) in SECOND_CHECKER_FILES {
            command.arg(flag).arg(root.join(file));
        }
        Self::read(command.args(api))
    }

    /// Runs the second checker of claims.
    pub fn of_claims(program: &Path, history: &ClaimHistory) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("claims.json");
        std::fs::write(&file, serde_json::to_vec(history)?)?;
        Self::read(Command::new("python3").arg(program).arg(file))
    }

    fn read(command: &mut Command) -> Result<Self> {
        let result = command.output().context("cannot run python3")?;
        let stdout = String::from_utf8_lossy(&result.stdout).into_owned();
        let why = String::from_utf8_lossy(&result.stderr).into_owned();
        ensure!(matches!(result.status.code(), Some(0 | 1)), "the second checker failed: {why}");
        let verdict: Value = serde_json::from_str(&stdout)?;
        let broken = verdict["broken"].as_object().context("a verdict without `broken`")?.keys().cloned().collect();
        let holds = verdict["holds"].as_array().context("a verdict without `holds`")?;
        let holds = holds.iter().filter_map(|promise| promise.as_str().map(str::to_owned)).collect();
        Ok(Self { holds, broken, output: stdout })
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

/// Mail that the sandbox captured, taken from the ledger, since capture and accept are one commit.
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
