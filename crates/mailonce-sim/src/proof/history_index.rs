//! A history, indexed for the rules.

use super::history::{CallKind, CallOutcome, CallRecord, Email, Event, FaultRecord, History, HopArrival};
use crate::proof::invariants::Rule;
use crate::proof::violation::{Violation, ViolationSubject, lines_about};
use std::collections::{BTreeMap, BTreeSet};

/// How long after a stall recorded times may still lag, in microseconds.
const STALL_MARGIN_US: u64 = 5_000_000;

/// Calls by team and key.
type CallsByKey<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a CallRecord>>;

/// A team and recipients.
pub(super) type RecipientSet<'a> = (&'a str, BTreeSet<&'a str>);

/// The index key of mail to these recipients.
pub(super) fn recipient_set<'a>(team: &'a str, to: &'a [String]) -> RecipientSet<'a> {
    (team, to.iter().map(String::as_str).collect())
}

pub(super) struct HistoryIndex<'a> {
    pub(super) history: &'a History,
    pub(super) emails_by_id: BTreeMap<&'a str, &'a Email>,
    /// Calls that create emails.
    pub(super) calls_by_key: CallsByKey<'a>,
    /// Calls by recipients, once for each email.
    pub(super) calls_by_recipients: BTreeMap<RecipientSet<'a>, Vec<&'a CallRecord>>,
    /// Emails by recipients, without replies, whose recipients the caller does not name.
    pub(super) emails_by_recipients: BTreeMap<RecipientSet<'a>, Vec<&'a Email>>,
    key_expiries: BTreeMap<(&'a str, &'a str), usize>,
    resent_emails: BTreeSet<(&'a str, &'a str)>,
    cancelled_emails: BTreeSet<&'a str>,
    arrivals_by_email: BTreeMap<&'a str, Vec<&'a HopArrival>>,
    events_by_subject: BTreeMap<&'a str, Vec<&'a Event>>,
}

impl<'a> HistoryIndex<'a> {
    pub(super) fn new(history: &'a History) -> Self {
        let mut view = Self {
            history,
            emails_by_id: history.emails.iter().map(|email| (email.id.as_str(), email)).collect(),
            calls_by_key: BTreeMap::new(),
            calls_by_recipients: BTreeMap::new(),
            emails_by_recipients: BTreeMap::new(),
            key_expiries: BTreeMap::new(),
            resent_emails: BTreeSet::new(),
            cancelled_emails: BTreeSet::new(),
            arrivals_by_email: BTreeMap::new(),
            events_by_subject: BTreeMap::new(),
        };
        history.calls.iter().for_each(|call| view.index_call(call));
        for email in history.emails.iter().filter(|email| email.answers.is_empty()) {
            view.emails_by_recipients.entry(recipient_set(&email.team, &email.to)).or_default().push(email);
        }
        for arrival in &history.arrivals {
            view.arrivals_by_email.entry(&arrival.email).or_default().push(arrival);
        }
        for event in history.events.iter().filter(|event| event.kind.starts_with("email.")) {
            view.events_by_subject.entry(&event.about).or_default().push(event);
        }
        view
    }

    fn index_call(&mut self, call: &'a CallRecord) {
        let refused = matches!(call.end, CallOutcome::Fail { status, .. } if status != 503);
        match (call.verb, &call.key, &call.about) {
            (CallKind::Send | CallKind::Batch, key, _) => {
                if let Some(key) = key {
                    self.calls_by_key.entry((&call.team, key)).or_default().push(call);
                }
                for wanted in &call.wanted {
                    self.calls_by_recipients.entry(recipient_set(&call.team, &wanted.to)).or_default().push(call);
                }
            }
            (CallKind::Forget, Some(key), _) if !refused => {
                *self.key_expiries.entry((&call.team, key)).or_default() += 1
            }
            (CallKind::Resend, _, Some(about)) if !refused => drop(self.resent_emails.insert((&call.team, about))),
            (CallKind::Cancel, _, Some(about)) if matches!(call.end, CallOutcome::Ok { .. }) => {
                self.cancelled_emails.insert(about);
            }
            _ => {}
        }
    }

    /// Whether a caller got the confirmation that an email is cancelled.
    pub(super) fn is_acknowledged_cancelled(&self, email: &str) -> bool {
        self.cancelled_emails.contains(email)
    }

    /// Whether a process was stopped or killed around a call.
    pub(super) fn overlaps_stall(&self, call: &CallRecord) -> bool {
        let ended = call.ended.unwrap_or(u64::MAX).saturating_add(STALL_MARGIN_US);
        self.history.stalls.iter().any(|(from, to)| *from <= ended && to.saturating_add(STALL_MARGIN_US) >= call.at)
    }

    /// How often a key can have been bound: once, and once more after each possible expiry.
    pub(super) fn max_binds(&self, key: (&str, &str)) -> usize {
        1 + self.key_expiries.get(&key).copied().unwrap_or(0)
    }

    /// Whether a resend of an email was requested.
    pub(super) fn is_resent(&self, email: &Email) -> bool {
        self.resent_emails.contains(&(&*email.team, &*email.id))
    }

    /// The arrivals of an email.
    pub(super) fn arrivals(&self, email: &str) -> &[&'a HopArrival] {
        self.arrivals_by_email.get(email).map_or(&[], Vec::as_slice)
    }

    /// How many copies of an email a recipient has.
    pub(super) fn copies(&self, email: &str, to: &str) -> usize {
        let reached = |arrival: &&&HopArrival| arrival.taken && arrival.to.iter().any(|address| address == to);
        self.arrivals(email).iter().filter(reached).count()
    }

    /// Events about an email.
    pub(super) fn events(&self, email: &str) -> &[&'a Event] {
        self.events_by_subject.get(email).map_or(&[], Vec::as_slice)
    }

    /// The ids of event subjects.
    pub(super) fn event_subjects(&self) -> impl Iterator<Item = &'a str> {
        self.events_by_subject.keys().copied()
    }

    /// Whether a fault can have caused an unknown outcome. If the test saw the transition, the fault must precede it.
    pub(super) fn has_ambiguous_fault(&self, email: &str) -> bool {
        let lost = self.history.moves.iter().find(|step| step.email == email && step.to == "unknown");
        let before = lost.map_or(u64::MAX, |step| step.at);
        let touches = |fault: &FaultRecord| fault.emails.is_empty() || fault.emails.iter().any(|id| id == email);
        self.history.faults.iter().any(|fault| fault.ambiguous && fault.at < before && touches(fault))
    }

    /// A violation about an email.
    pub(super) fn email_violation(&self, rule: Rule, email: &Email, found: impl Into<String>) -> Violation {
        self.violation(rule, &email.id, found, &ViolationSubject::email(email))
    }

    /// A violation about a team's key.
    pub(super) fn key_violation(&self, rule: Rule, (team, key): (&str, &str), found: impl Into<String>) -> Violation {
        self.violation(rule, key, found, &ViolationSubject::key(team, key))
    }

    /// A violation about any subject.
    pub(super) fn violation(
        &self,
        rule: Rule,
        about: &str,
        found: impl Into<String>,
        subject: &ViolationSubject<'_>,
    ) -> Violation {
        Violation { rule, about: about.to_owned(), found: found.into(), story: lines_about(self.history, subject) }
    }
}

impl CallRecord {
    /// The ids in its reply, if it succeeded.
    pub(super) fn acknowledged_ids(&self) -> Option<&[String]> {
        match &self.end {
            CallOutcome::Ok { ids, .. } => Some(ids),
            CallOutcome::Fail { .. } | CallOutcome::Info => None,
        }
    }
}
