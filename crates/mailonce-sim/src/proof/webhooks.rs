//! P11 for webhooks: an endpoint receives every event under one id, and the events of one subject in order.

use super::history::ReceivedWebhook;
use crate::proof::history_index::HistoryIndex;
use crate::proof::invariants::Rule;
use crate::proof::violation::{Violation, ViolationSubject};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let webhooks = &view.history.webhooks;
    for (team, until) in &webhooks.owed {
        let own = |one: &&ReceivedWebhook| one.team == *team && one.seq <= *until;
        let received: Vec<&ReceivedWebhook> = webhooks.received.iter().filter(own).collect();
        check_all_delivered(view, (team, *until), &received, found);
        check_notice_ids(view, &received, found);
        check_subject_order(view, &received, found);
    }
}

/// Every event is received, and nothing else, each with a valid signature.
fn check_all_delivered(
    view: &HistoryIndex<'_>,
    (team, until): (&str, u64),
    received: &[&ReceivedWebhook],
    found: &mut Vec<Violation>,
) {
    let owed = view.history.events.iter().filter(|event| event.team == *team && event.seq <= until);
    let owed: BTreeMap<&str, &str> = owed.map(|event| (event.id.as_str(), event.about.as_str())).collect();
    let event_ids: BTreeSet<&str> = received.iter().map(|one| one.event.as_str()).collect();
    if view.history.healed {
        for (event, about) in owed.iter().filter(|(event, _)| !event_ids.contains(*event)) {
            found.push(view.violation(
                Rule::NoticeLost,
                event,
                "the endpoint never got it",
                &ViolationSubject::id(about),
            ));
        }
    }
    for one in received {
        let subject = ViolationSubject::id(&one.about);
        if !owed.contains_key(one.event.as_str()) {
            found.push(view.violation(Rule::NoticeForged, &one.event, "no such event", &subject));
        }
        if !one.signed {
            found.push(view.violation(Rule::NoticeForged, &one.event, "the signature does not hold", &subject));
        }
    }
}

/// An event has one id, and an id belongs to one event.
fn check_notice_ids(view: &HistoryIndex<'_>, received: &[&ReceivedWebhook], found: &mut Vec<Violation>) {
    let (mut by_event, mut by_id) = (BTreeMap::new(), BTreeMap::new());
    for one in received {
        let (event, id) = (one.event.as_str(), one.id.as_str());
        if *by_event.entry(event).or_insert(id) != id || *by_id.entry(id).or_insert(event) != event {
            found.push(view.violation(
                Rule::NoticeRenamed,
                event,
                format!("under {id}"),
                &ViolationSubject::id(&one.about),
            ));
        }
    }
}

/// The first deliveries of a subject's events are in order.
fn check_subject_order(view: &HistoryIndex<'_>, received: &[&ReceivedWebhook], found: &mut Vec<Violation>) {
    let (mut last, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for one in received.iter().filter(|one| seen.insert(one.event.as_str())) {
        let before = last.insert(one.about.as_str(), one.seq).unwrap_or(0);
        if before >= one.seq {
            let why = format!("{} came first after {before} of the same subject", one.seq);
            found.push(view.violation(Rule::NoticeOrder, &one.event, why, &ViolationSubject::id(&one.about)));
        }
    }
}
