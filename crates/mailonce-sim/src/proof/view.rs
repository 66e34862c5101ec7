//! A history, sorted so that each rule finds what it needs.

use super::history::{Arrival, Call, Email, End, Event, Fault, History, Verb};
use super::promise::Rule;
use super::story::{Subject, Violation, story};
use std::collections::{BTreeMap, BTreeSet};

/// How long after a stall times on record may still lag, in microseconds.
const STALL_MARGIN_US: u64 = 5_000_000;

/// Calls under one key of one team, by team and key.
type ByKey<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a Call>>;

/// A team, and people that mail of it is for.
pub(super) type Slot<'a> = (&'a str, BTreeSet<&'a str>);

/// The slot of mail to these people.
pub(super) fn slot<'a>(team: &'a str, to: &'a [String]) -> Slot<'a> {
    (team, to.iter().map(String::as_str).collect())
}

pub(super) struct View<'a> {
    pub(super) history: &'a History,
    pub(super) by_id: BTreeMap<&'a str, &'a Email>,
    /// Calls that ask for emails.
    pub(super) by_key: ByKey<'a>,
    /// Calls that ask for an email to these people, each as often as it asks.
    pub(super) by_slot: BTreeMap<Slot<'a>, Vec<&'a Call>>,
    /// Emails to these people, but for answers, which nobody addressed.
    pub(super) emails: BTreeMap<Slot<'a>, Vec<&'a Email>>,
    forgets: BTreeMap<(&'a str, &'a str), usize>,
    resends: BTreeSet<(&'a str, &'a str)>,
    cancels: BTreeSet<&'a str>,
    arrivals: BTreeMap<&'a str, Vec<&'a Arrival>>,
    events: BTreeMap<&'a str, Vec<&'a Event>>,
}

impl<'a> View<'a> {
    pub(super) fn new(history: &'a History) -> Self {
        let mut view = Self {
            history,
            by_id: history.emails.iter().map(|email| (email.id.as_str(), email)).collect(),
            by_key: BTreeMap::new(),
            by_slot: BTreeMap::new(),
            emails: BTreeMap::new(),
            forgets: BTreeMap::new(),
            resends: BTreeSet::new(),
            cancels: BTreeSet::new(),
            arrivals: BTreeMap::new(),
            events: BTreeMap::new(),
        };
        history.calls.iter().for_each(|call| view.sort_call(call));
        for email in history.emails.iter().filter(|email| email.answers.is_empty()) {
            view.emails.entry(slot(&email.team, &email.to)).or_default().push(email);
        }
        for arrival in &history.arrivals {
            view.arrivals.entry(&arrival.email).or_default().push(arrival);
        }
        for event in history.events.iter().filter(|event| event.kind.starts_with("email.")) {
            view.events.entry(&event.about).or_default().push(event);
        }
        view
    }

    fn sort_call(&mut self, call: &'a Call) {
        let refused = matches!(call.end, End::Fail { status, .. } if status != 503);
        match (call.verb, &call.key, &call.about) {
            (Verb::Send | Verb::Batch, key, _) => {
                if let Some(key) = key {
                    self.by_key.entry((&call.team, key)).or_default().push(call);
                }
                for wanted in &call.wanted {
                    self.by_slot.entry(slot(&call.team, &wanted.to)).or_default().push(call);
                }
            }
            (Verb::Forget, Some(key), _) if !refused => *self.forgets.entry((&call.team, key)).or_default() += 1,
            (Verb::Resend, _, Some(about)) if !refused => drop(self.resends.insert((&call.team, about))),
            (Verb::Cancel, _, Some(about)) if matches!(call.end, End::Ok { .. }) => drop(self.cancels.insert(about)),
            _ => {}
        }
    }

    /// Whether a caller was told that an email is cancelled.
    pub(super) fn is_told_cancelled(&self, email: &str) -> bool {
        self.cancels.contains(email)
    }

    /// Whether a process was stopped or ended around a call.
    pub(super) fn is_disturbed(&self, call: &Call) -> bool {
        let ended = call.ended.unwrap_or(u64::MAX).saturating_add(STALL_MARGIN_US);
        self.history.stalls.iter().any(|(from, to)| *from <= ended && to.saturating_add(STALL_MARGIN_US) >= call.at)
    }

    /// How often a key can have been bound: once, and once more after each time it may have been forgotten.
    pub(super) fn lives(&self, key: (&str, &str)) -> usize {
        1 + self.forgets.get(&key).copied().unwrap_or(0)
    }

    /// Whether the next version of an email was asked for.
    pub(super) fn is_resent(&self, email: &Email) -> bool {
        self.resends.contains(&(&*email.team, &*email.id))
    }

    /// What reached next hops of an email.
    pub(super) fn arrivals(&self, email: &str) -> &[&'a Arrival] {
        self.arrivals.get(email).map_or(&[], Vec::as_slice)
    }

    /// How many copies of an email a recipient has.
    pub(super) fn copies(&self, email: &str, to: &str) -> usize {
        let reached = |arrival: &&&Arrival| arrival.taken && arrival.to.iter().any(|address| address == to);
        self.arrivals(email).iter().filter(reached).count()
    }

    /// Events about an email.
    pub(super) fn events(&self, email: &str) -> &[&'a Event] {
        self.events.get(email).map_or(&[], Vec::as_slice)
    }

    /// The ids that events are about.
    pub(super) fn told_of(&self) -> impl Iterator<Item = &'a str> {
        self.events.keys().copied()
    }

    /// Whether a fault can have left an email in doubt: one that came before the doubt, if the rig saw that.
    pub(super) fn ambiguous(&self, email: &str) -> bool {
        let lost = self.history.moves.iter().find(|step| step.email == email && step.to == "unknown");
        let before = lost.map_or(u64::MAX, |step| step.at);
        let touches = |fault: &Fault| fault.emails.is_empty() || fault.emails.iter().any(|id| id == email);
        self.history.faults.iter().any(|fault| fault.ambiguous && fault.at < before && touches(fault))
    }

    /// A violation about an email.
    pub(super) fn of_email(&self, rule: Rule, email: &Email, found: impl Into<String>) -> Violation {
        self.of(rule, &email.id, found, &Subject::email(email))
    }

    /// A violation about the key of a team.
    pub(super) fn of_key(&self, rule: Rule, (team, key): (&str, &str), found: impl Into<String>) -> Violation {
        self.of(rule, key, found, &Subject::key(team, key))
    }

    /// A violation about anything.
    pub(super) fn of(&self, rule: Rule, about: &str, found: impl Into<String>, subject: &Subject<'_>) -> Violation {
        Violation { rule, about: about.to_owned(), found: found.into(), story: story(self.history, subject) }
    }
}

impl Call {
    /// The ids that it was told, when it was answered.
    pub(super) fn told(&self) -> Option<&[String]> {
        match &self.end {
            End::Ok { ids, .. } => Some(ids),
            End::Fail { .. } | End::Info => None,
        }
    }
}
