//! The plan of a seed: emails, and steps with calls about them. The calls of one step concern different emails and
//! different people, so that their order does not matter.

use mailonce_core::time::Time;
use mailonce_sim::harness::rng::SeededRng;
use serde_json::{Value, json};
use std::collections::BTreeSet;

use crate::installation::InstallationConfig;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
/// People who get emails with an intent, so that versions of the same intent meet.
const PEOPLE: u64 = 6;
/// Calls of a step at the most.
const CALLS: u64 = 14;
/// The first steps of every seed, so that the short form has each kind of step and fault.
const FIRST_STEP_ROLLS: [u64; 9] = [0, 12, 11, 15, 18, 0, 10, 12, 9];
/// How near to the end of a key's life no call is made: whether it is over depends on the moment then.
const KEY_EXPIRY_MARGIN_MS: i64 = 2 * MINUTE;

/// An email as the test asked for it, and what became of it on each installation.
#[derive(Debug)]
pub(crate) struct PlannedEmail {
    pub(crate) number: usize,
    /// Its idempotency key. `None` when its intent makes the key.
    pub(crate) key: Option<String>,
    pub(crate) body: Value,
    /// Whoever must not appear twice in a step: the intent's entity.
    person: Option<u64>,
    pub(crate) transport: &'static str,
    pub(crate) recipients: Vec<String>,
    pub(crate) due_ms: Option<i64>,
    ttl_ms: Option<i64>,
    pub(crate) sent_at_ms: i64,
    /// Its ids on memory, SQLite and PostgreSQL. More than one when its key expired and was used again.
    pub(crate) ids: [Vec<String>; 3],
    /// When memory settled it last, as far as the test saw.
    pub(crate) settled_ms: Option<i64>,
}

impl PlannedEmail {
    /// Whether a retry at this time is surely a replay (`Some(true)`) or surely a new email (`Some(false)`).
    fn is_replay_at(&self, now_ms: i64) -> Option<bool> {
        let Some(ttl_ms) = self.ttl_ms else { return Some(true) };
        let Some(settled_ms) = self.settled_ms else { return Some(true) };
        if now_ms + KEY_EXPIRY_MARGIN_MS < self.sent_at_ms + ttl_ms {
            return Some(true);
        }
        (now_ms - KEY_EXPIRY_MARGIN_MS > settled_ms + ttl_ms).then_some(false)
    }

    /// Whether a retry at this time is surely a replay.
    pub(crate) fn surely_replays(&self, now_ms: i64) -> bool {
        self.is_replay_at(now_ms) == Some(true)
    }

    /// Whether the relay keeps deferring one of its recipients.
    pub(crate) fn is_deferred(&self) -> bool {
        self.recipients.iter().any(|to| to.starts_with("deferred-"))
    }

    pub(crate) fn is_accepted(&self) -> bool {
        self.ids.iter().all(|ids| !ids.is_empty())
    }
}

/// One call. Emails are named by their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlannedCall {
    Send(usize),
    /// The same call again, which must be a replay.
    Retry(usize),
    /// The same call again after the key expired, which must make a new email.
    SendAfterExpiry(usize),
    /// Another body under the same key.
    Mismatch(usize),
    Cancel(usize),
    /// A person says that an unknown email was sent.
    ResolveAsSent(usize),
}

impl PlannedCall {
    pub(crate) fn email(self) -> usize {
        match self {
            Self::Send(n)
            | Self::Retry(n)
            | Self::SendAfterExpiry(n)
            | Self::Mismatch(n)
            | Self::Cancel(n)
            | Self::ResolveAsSent(n) => n,
        }
    }
}

/// What happens to PostgreSQL while the calls of a step run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatabaseFault {
    None,
    /// The standby goes away, commits stop waiting for it, and it comes back.
    StandbyAway,
    /// The primary is lost and the standby promoted.
    Failover,
    /// The same after commits that only the primary has.
    LossyFailover,
}

/// One mail that comes in.
#[derive(Debug, Clone)]
pub(crate) struct PlannedIncoming {
    pub(crate) number: usize,
    /// Names of inboxes.
    pub(crate) recipients: Vec<String>,
    /// The inbox that is deleted after `RCPT`.
    pub(crate) deleted: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum PlannedStep {
    Calls(Vec<PlannedCall>, DatabaseFault),
    Incoming(PlannedIncoming),
    AdvanceTime(i64),
    Restart(InstallationConfig),
}

/// Draws steps.
pub(crate) struct DifferentialPlan {
    pub(crate) rng: SeededRng,
    pub(crate) emails: Vec<PlannedEmail>,
    /// The inboxes that there are.
    pub(crate) inboxes: Vec<String>,
    inboxes_made: usize,
    incoming: usize,
    steps: usize,
    pub(crate) config: InstallationConfig,
}

impl DifferentialPlan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = SeededRng::derive(seed, &[4]);
        let config = draw_config(&mut rng);
        Self { rng, emails: Vec::new(), inboxes: Vec::new(), inboxes_made: 0, incoming: 0, steps: 0, config }
    }

    /// A name for a new inbox.
    pub(crate) fn new_inbox(&mut self) -> String {
        self.inboxes_made += 1;
        let name = format!("inbox{}", self.inboxes_made);
        self.inboxes.push(name.clone());
        name
    }

    pub(crate) fn step(&mut self, now_ms: i64) -> PlannedStep {
        let roll = FIRST_STEP_ROLLS.get(self.steps).copied().unwrap_or_else(|| self.rng.below(20));
        self.steps += 1;
        match roll {
            0..=8 => PlannedStep::Calls(self.calls(now_ms), DatabaseFault::None),
            9 => PlannedStep::Calls(self.calls(now_ms), DatabaseFault::StandbyAway),
            10 => PlannedStep::Calls(self.calls(now_ms), DatabaseFault::Failover),
            11 => PlannedStep::Calls(self.calls(now_ms), DatabaseFault::LossyFailover),
            12..=14 => self.incoming(),
            15..=17 => {
                let spans = [11 * MINUTE, 31 * MINUTE, 61 * MINUTE];
                PlannedStep::AdvanceTime(spans[self.rng.below(3) as usize])
            }
            _ => {
                self.config = draw_config(&mut self.rng);
                PlannedStep::Restart(self.config.clone())
            }
        }
    }

    fn incoming(&mut self) -> PlannedStep {
        self.incoming += 1;
        let mut recipients = self.inboxes.clone();
        let wanted = self.rng.between(1, 2) as usize;
        while recipients.len() > wanted {
            recipients.remove(self.rng.below(recipients.len() as u64) as usize);
        }
        let deleted = (self.incoming.is_multiple_of(2) || self.rng.below(2) == 0).then(|| recipients[0].clone());
        PlannedStep::Incoming(PlannedIncoming { number: self.incoming, recipients, deleted })
    }

    fn calls(&mut self, now_ms: i64) -> Vec<PlannedCall> {
        let (mut calls, mut people, mut numbers) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for _ in 0..self.rng.between(4, CALLS) {
            let Some(call) = self.call(now_ms) else { continue };
            let email = &self.emails[call.email()];
            let free = email.person.is_none_or(|person| people.insert(person));
            if free && numbers.insert(email.number) {
                calls.push(call);
            } else if let PlannedCall::Send(number) = call {
                // It was drawn a moment ago and is the last one.
                self.emails.truncate(number);
            }
        }
        calls
    }

    fn call(&mut self, now_ms: i64) -> Option<PlannedCall> {
        let roll = self.rng.below(10);
        if roll < 5 || self.emails.is_empty() {
            let email = self.draw_email(now_ms);
            self.emails.push(email);
            return Some(PlannedCall::Send(self.emails.len() - 1));
        }
        let n = self.rng.below(self.emails.len() as u64) as usize;
        let email = &self.emails[n];
        if !email.is_accepted() {
            return None;
        }
        let is_replay = email.is_replay_at(now_ms);
        // The first node gets the new email, and accepts it only for a transport that it has.
        let has_transport = email.transport != "keyed" || self.config.keyed[0];
        match roll {
            5 | 6 if is_replay == Some(true) => Some(PlannedCall::Retry(n)),
            5 | 6 if is_replay == Some(false) && email.due_ms.is_none() && has_transport => {
                Some(PlannedCall::SendAfterExpiry(n))
            }
            7 if is_replay == Some(true) && email.key.is_some() => Some(PlannedCall::Mismatch(n)),
            8 => Some(PlannedCall::Cancel(n)),
            9 if email.transport == "silent" => Some(PlannedCall::ResolveAsSent(n)),
            _ => None,
        }
    }

    /// Adds an email that fits.
    pub(crate) fn add_email(&mut self, now_ms: i64, fits: impl Fn(&PlannedEmail) -> bool) -> usize {
        loop {
            let email = self.draw_email(now_ms);
            if fits(&email) {
                self.emails.push(email);
                return self.emails.len() - 1;
            }
        }
    }

    fn draw_email(&mut self, now_ms: i64) -> PlannedEmail {
        let number = self.emails.len();
        let transport = match self.rng.below(8) {
            0 | 1 => "silent",
            2 if self.config.has_keyed() => "keyed",
            _ => "relay",
        };
        let person = (self.rng.below(4) == 0 && transport == "relay").then(|| self.rng.below(PEOPLE));
        let recipients = match person {
            Some(person) => vec![format!("person{person}@example.org")],
            None => self.draw_recipients(number, transport),
        };
        let due_ms = (self.rng.below(6) == 0).then(|| now_ms + self.rng.between(5, 120) as i64 * MINUTE);
        let ttl_ms = (self.rng.below(5) == 0 && person.is_none()).then_some(if number.is_multiple_of(2) {
            HOUR / 2
        } else {
            2 * HOUR
        });
        let mut body = json!({
            "from": "agent@example.com",
            "to": recipients,
            "subject": format!("Email {number}"),
            "text": format!("The text of email {number}, which no other email has."),
            "transport": transport,
        });
        if let Some(person) = person {
            let version = self.rng.between(1, 3);
            body["intent"] = json!({"type": "order.update", "entity": format!("person{person}"), "version": version});
        }
        if let Some(due_ms) = due_ms {
            body["scheduled_at"] = json!(Time(due_ms).to_string());
        }
        if let Some(ttl_ms) = ttl_ms {
            body["ttl"] = json!(format!("{}s", ttl_ms / 1000));
        }
        let key = person.is_none().then(|| format!("key-{number}"));
        let ids = Default::default();
        let (sent_at_ms, settled_ms) = (now_ms, None);
        PlannedEmail { number, key, body, person, transport, recipients, due_ms, ttl_ms, sent_at_ms, ids, settled_ms }
    }

    /// Names that tell the relay what to answer.
    fn draw_recipients(&mut self, number: usize, transport: &str) -> Vec<String> {
        let kinds: &[&str] = if transport == "relay" { &["taken", "taken", "refused", "deferred"] } else { &["taken"] };
        let count = if transport == "relay" { self.rng.between(1, 2) } else { 1 };
        let mut draw = |n: u64| {
            let kind = kinds[self.rng.below(kinds.len() as u64) as usize];
            format!("{kind}-{number}-{n}@example.org")
        };
        (0..count).map(&mut draw).collect()
    }
}

fn draw_config(rng: &mut SeededRng) -> InstallationConfig {
    let keyed = [(false, false), (true, false), (false, true), (true, true)][rng.below(4) as usize];
    let most = [0, 20_000, HOUR, 23 * HOUR, 48 * HOUR][rng.below(5) as usize];
    let offset_ms = if most == 0 { 0 } else { rng.below(2 * most as u64) as i64 - most };
    // A node whose clock is off sends no scheduled email, so another one must have the transport.
    let offset_ms = if keyed == (false, true) { offset_ms.clamp(-20_000, 20_000) } else { offset_ms };
    InstallationConfig { keyed: [keyed.0, keyed.1], offset_ms }
}
