//! P11: each change has one event, in one order without gaps.

use super::history::{Email, Event, HandoffTransition};
use crate::proof::history_index::HistoryIndex;
use crate::proof::invariants::Rule;
use crate::proof::violation::{Violation, ViolationSubject};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    check_sequence(view, found);
    if view.history.events.is_empty() {
        return;
    }
    let mut moves: BTreeMap<&str, Vec<&HandoffTransition>> = BTreeMap::new();
    for step in &view.history.moves {
        moves.entry(&step.email).or_default().push(step);
    }
    for email in &view.history.emails {
        check_evidence_once(view, email, found);
        check_email_events(view, email, found);
        if let Some(moves) = moves.get(email.id.as_str()) {
            check_changes(view, email, moves, found);
        }
    }
    for id in view.event_subjects().filter(|id| !view.emails_by_id.contains_key(id)) {
        found.push(view.violation(Rule::Ghost, id, "events about nothing", &ViolationSubject::id(id)));
    }
}

/// Each team's events are numbered from 1 without gaps, and ids are unique.
fn check_sequence(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let (mut last, mut ids) = (BTreeMap::new(), BTreeSet::new());
    for event in &view.history.events {
        let last = last.entry(event.team.as_str()).or_insert(0);
        *last += 1;
        let subject = ViolationSubject::id(&event.about);
        if event.seq != *last {
            let why = format!("{} stands where {last} must stand", event.seq);
            found.push(view.violation(Rule::Gap, &event.team, why, &subject));
            return;
        }
        if !event.id.is_empty() && !ids.insert(event.id.as_str()) {
            found.push(view.violation(
                Rule::MisplacedEvent,
                &event.about,
                format!("event {} twice", event.id),
                &subject,
            ));
        }
    }
}

fn is_accept_event(event: &Event) -> bool {
    matches!(event.kind.as_str(), "email.accepted" | "email.held")
}

/// Evidence with an id is recorded once.
fn check_evidence_once(view: &HistoryIndex<'_>, email: &Email, found: &mut Vec<Violation>) {
    let facts = email.handoffs.iter().flat_map(|handoff| &handoff.evidence);
    let mut names = BTreeSet::new();
    for fact in facts.filter(|fact| !fact.once.is_empty()) {
        if !names.insert(&fact.once) {
            found.push(view.email_violation(Rule::CountedTwice, email, &fact.once));
        }
    }
}

/// An email's accept event is its first and only one, each handoff event occurs once, and its revision grows.
fn check_email_events(view: &HistoryIndex<'_>, email: &Email, found: &mut Vec<Violation>) {
    let events = view.events(&email.id);
    let accept_events = events.iter().filter(|event| is_accept_event(event)).count();
    if accept_events != 1 {
        found.push(view.email_violation(Rule::AcceptanceEvent, email, format!("{accept_events} times")));
    }
    let sent = events.iter().filter(|event| event.kind == "email.sent").count();
    // Repeats have events without a change.
    let revs: Vec<u32> = events.iter().filter(|e| e.kind != "email.duplicate" && e.rev > 0).map(|e| e.rev).collect();
    let early = events.first().is_some_and(|event| !is_accept_event(event));
    if early || sent > email.handoffs.len().max(1) || !revs.is_sorted_by(|a, b| a < b) {
        let kinds: Vec<String> = events.iter().map(|event| format!("{}@{}", event.kind, event.rev)).collect();
        found.push(view.email_violation(Rule::MisplacedEvent, email, kinds.join(" ")));
    }
}

/// Each visible change has its event, and each such event its change.
fn check_changes(view: &HistoryIndex<'_>, email: &Email, moves: &[&HandoffTransition], found: &mut Vec<Violation>) {
    let event_count = |kind: &str| view.events(&email.id).iter().filter(|event| event.kind == kind).count();
    let into = |state: &str| moves.iter().filter(|step| step.to == state).count();
    let lost = moves.iter().filter(|step| step.from == "sending" && step.to == "unknown").count();
    let settled = into("sent").saturating_sub(event_count("email.resolved"));
    let taken_back = usize::from(email.state == "cancelled");
    let bounds = [
        ("email.failed", into("failed"), into("failed")),
        ("email.delivered", into("delivered"), into("delivered")),
        ("email.bounced", into("bounced"), into("bounced")),
        ("email.complained", into("complained"), into("complained")),
        // A repeat that is abandoned before its marker has no event.
        ("email.unknown", lost, into("unknown")),
        // An operator's `sent` has a `resolved` event.
        ("email.sent", settled, into("sent")),
        ("email.cancelled", taken_back, usize::from(into("cancelled") > 0)),
    ];
    for (kind, least, most) in bounds {
        let count = event_count(kind);
        if count < least || count > most {
            let why = format!("{count} times {kind} for {least} to {most} changes");
            found.push(view.email_violation(Rule::UnmatchedEvent, email, why));
        }
    }
}

/// Events that were read earlier must be unchanged.
pub(super) fn check_reread(before: &[Event], now: &[Event]) -> Vec<Violation> {
    let differs = |(index, event): (usize, &Event)| {
        let now = now.get(index);
        (now != Some(event)).then(|| Violation {
            rule: Rule::Rewritten,
            about: event.seq.to_string(),
            found: format!("{event:?} is now {now:?}"),
            story: Vec::new(),
        })
    };
    before.iter().enumerate().filter_map(differs).collect()
}
