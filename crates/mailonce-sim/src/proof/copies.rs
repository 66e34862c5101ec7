//! P3, P4, P6, P7 and P9: arrivals at next hops, compared with the ledger.

use super::history::{Email, Evidence, Handoff, HopArrival};
use crate::proof::history_index::HistoryIndex;
use crate::proof::invariants::Rule;
use crate::proof::violation::{Violation, ViolationSubject};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    for email in &view.history.emails {
        let people: BTreeSet<&String> = email.handoffs.iter().flat_map(|handoff| &handoff.to).collect();
        for to in people {
            check_recipient_copies(view, email, to, found);
        }
        check_policy_resends(view, email, found);
    }
    check_identical_bytes(view, found);
    check_downstream_keys(view, found);
    check_intent_recipients(view, found);
    for arrival in view.history.arrivals.iter().filter(|arrival| arrival.taken) {
        if !view.emails_by_id.contains_key(arrival.email.as_str()) {
            let subject = ViolationSubject::id(&arrival.email);
            found.push(view.violation(Rule::Stray, &arrival.email, "a mail of no email was taken", &subject));
        }
    }
}

/// Whether the next hop has the mail, according to the ledger.
fn is_sent_state(state: &str) -> bool {
    matches!(state, "sent" | "delivered" | "bounced" | "complained")
}

/// Resends in spite of a possible arrival, by the email's policy or by an operator.
fn count_resends(handoff: &Handoff) -> usize {
    let again = |fact: &&Evidence| fact.says == "again" && matches!(fact.source.as_str(), "policy" | "person");
    handoff.evidence.iter().filter(again).count()
}

fn check_recipient_copies(view: &HistoryIndex<'_>, email: &Email, to: &String, found: &mut Vec<Violation>) {
    let handoffs: Vec<&Handoff> = email.handoffs.iter().filter(|handoff| handoff.to.contains(to)).collect();
    let copies = view.copies(&email.id, to);
    let again: usize = handoffs.iter().map(|handoff| count_resends(handoff)).sum();
    let flagged = handoffs.iter().any(|handoff| handoff.may_duplicate);
    if copies > 1 + again {
        let rule = if again == 0 { Rule::TakenTwice } else { Rule::TakenTooOften };
        found.push(view.email_violation(
            rule,
            email,
            format!("{to} has {copies} copies, {again} resends are on record"),
        ));
    }
    if (copies > 1 || again > 0) && !flagged {
        found.push(view.email_violation(
            Rule::Unflagged,
            email,
            format!("{to} has {copies} copies and nothing says so"),
        ));
    }
    let by_person = |fact: &Evidence| fact.source == "person" && fact.says == "accepted";
    let believed = handoffs.iter().any(|handoff| handoff.evidence.iter().any(by_person));
    if copies == 0 && !believed && handoffs.iter().any(|handoff| is_sent_state(&handoff.state)) {
        found.push(view.email_violation(Rule::FalseSuccess, email, format!("{to} has nothing")));
    }
    if copies > 0 && view.is_acknowledged_cancelled(&email.id) {
        found.push(view.email_violation(
            Rule::FalseFailure,
            email,
            format!("it was called cancelled, and {to} has it"),
        ));
    }
    let unsent = |handoff: &&Handoff| matches!(handoff.state.as_str(), "failed" | "cancelled");
    if copies > 0 && handoffs.iter().all(unsent) {
        found.push(view.email_violation(Rule::FalseFailure, email, format!("{to} has {copies} copies")));
    }
}

/// The policy resends once, and only if the email asks for it.
fn check_policy_resends(view: &HistoryIndex<'_>, email: &Email, found: &mut Vec<Violation>) {
    for handoff in &email.handoffs {
        let policy = handoff.evidence.iter().filter(|fact| fact.source == "policy" && fact.says == "again").count();
        if policy > usize::from(email.resend) {
            let asks = if email.resend { "resend" } else { "hold" };
            let why = format!("the policy `{asks}` sent handoff {} again {policy} times", handoff.number);
            found.push(view.email_violation(Rule::TakenTooOften, email, why));
        }
    }
}

/// One intent reaches a recipient through one email.
fn check_intent_recipients(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let mut holders: BTreeMap<(&str, &str, &str), &Email> = BTreeMap::new();
    for email in view.history.emails.iter().filter(|email| !email.intent.is_empty()) {
        for to in email.to.iter().filter(|to| view.copies(&email.id, to) > 0) {
            let other = holders.insert((&email.team, &email.intent, to), email);
            // Expired emails do not count, and the order of deliberate versions is not recorded.
            let remembered = |email: &Email| {
                let key = (email.team.as_str(), email.key.as_str());
                view.calls_by_key.contains_key(&key) && view.max_binds(key) == 1
            };
            if let Some(other) = other.filter(|other| remembered(other) && remembered(email)) {
                let subject = ViolationSubject { emails: BTreeSet::from([&*other.id, &*email.id]), key: None };
                let why = format!("{} and {} went to {to}", other.id, email.id);
                found.push(view.violation(Rule::Overlapped, &email.intent, why, &subject));
            }
        }
    }
}

/// All requests of one handoff have the same bytes and the same Message-ID.
fn check_identical_bytes(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    for email in &view.history.emails {
        let arrivals = view.arrivals(&email.id);
        let mut first: BTreeMap<(&str, &[String], Option<u16>), &HopArrival> = BTreeMap::new();
        for arrival in arrivals {
            let known = *first.entry((&arrival.transport, &arrival.to, arrival.handoff)).or_insert(arrival);
            if known.bytes != arrival.bytes {
                let why = format!("{:x} and {:x} by {}", known.bytes, arrival.bytes, arrival.transport);
                found.push(view.email_violation(Rule::OtherBytes, email, why));
            }
            if known.key != arrival.key {
                let why = format!("{:?} and {:?} by {}", known.key, arrival.key, arrival.transport);
                found.push(view.email_violation(Rule::OtherKey, email, why));
            }
        }
        let named = arrivals.iter().map(|arrival| arrival.message_id.as_str()).chain([email.message_id.as_str()]);
        let names: BTreeSet<&str> = named.filter(|name| !name.is_empty()).collect();
        if names.len() > 1 {
            found.push(view.email_violation(Rule::OtherMessageId, email, format!("{names:?}")));
        }
    }
}

/// A provider key belongs to one handoff.
fn check_downstream_keys(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let mut owners: BTreeMap<(&str, &str), &HopArrival> = BTreeMap::new();
    for arrival in &view.history.arrivals {
        let Some(key) = &arrival.key else { continue };
        let owner = *owners.entry((&arrival.transport, key)).or_insert(arrival);
        if (&owner.email, &owner.to) != (&arrival.email, &arrival.to) {
            let subject = ViolationSubject { emails: BTreeSet::from([&*owner.email, &*arrival.email]), key: None };
            let why = format!("{} and {} went under one key", owner.email, arrival.email);
            found.push(view.violation(Rule::OtherKey, key, why, &subject));
        }
    }
}
