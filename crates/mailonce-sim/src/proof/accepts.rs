//! P1, P2 and P15: one first call per key, acknowledged emails exist, and other content under a key is refused.

use super::history::{CallKind, CallOutcome, CallRecord, Email, ExpectedEmail};
use crate::proof::history_index::{HistoryIndex, RecipientSet, recipient_set};
use crate::proof::invariants::Rule;
use crate::proof::violation::{Violation, ViolationSubject};
use std::collections::{BTreeMap, BTreeSet};

/// The error code for a key that is bound to other content.
const KEY_MISMATCH: &str = "key_mismatch";

pub(super) fn check(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    for (key, calls) in &view.calls_by_key {
        check_key_agreement(view, *key, calls, found);
        check_key_content(view, *key, calls, found);
    }
    for call in &view.history.calls {
        check_acknowledged(view, call, found);
    }
    check_every_email_requested(view, found);
    check_batches_complete(view, found);
}

/// The replies under one key, which must agree.
fn check_key_agreement(view: &HistoryIndex<'_>, key: (&str, &str), calls: &[&CallRecord], found: &mut Vec<Violation>) {
    let lives = view.max_binds(key);
    let ids: BTreeSet<&[String]> = calls.iter().filter_map(|call| call.acknowledged_ids()).collect();
    let firsts = calls.iter().filter(|call| matches!(call.end, CallOutcome::Ok { first: true, .. })).count();
    if ids.len() > lives {
        found.push(view.key_violation(Rule::TwoIds, key, format!("{ids:?}")));
    }
    if firsts > lives {
        found.push(view.key_violation(Rule::TwoFirsts, key, format!("{firsts} calls made it")));
    }
}

/// Every acknowledged email exists and is the requested one, and no call was refused without a reason.
fn check_acknowledged(view: &HistoryIndex<'_>, call: &CallRecord, found: &mut Vec<Violation>) {
    let subject = ViolationSubject {
        key: call.key.as_deref().map(|key| (call.team.as_str(), key)),
        ..ViolationSubject::default()
    };
    match &call.end {
        CallOutcome::Ok { ids, .. } => {
            for (index, id) in ids.iter().enumerate() {
                let Some(email) = view.emails_by_id.get(id.as_str()) else {
                    found.push(view.violation(
                        Rule::Lost,
                        id,
                        "it was acknowledged and is not there",
                        &ViolationSubject::id(id),
                    ));
                    continue;
                };
                let wanted = call.wanted.get(index);
                if let Some(wanted) =
                    wanted.filter(|wanted| recipient_set("", &wanted.to) != recipient_set("", &email.to))
                {
                    let why = format!("expected recipients {:?}, the reply names {:?}", wanted.to, email.to);
                    found.push(view.email_violation(Rule::OutOfOrder, email, why));
                }
            }
            if matches!(call.verb, CallKind::Send | CallKind::Batch) && ids.len() != call.wanted.len() {
                let why = format!("expected {} emails, the reply names {}", call.wanted.len(), ids.len());
                found.push(view.violation(Rule::Torn, call.key.as_deref().unwrap_or("no key"), why, &subject));
            }
        }
        // 503 leaves it open whether the call took effect, like a missing reply.
        CallOutcome::Info | CallOutcome::Fail { status: 503, .. } => {}
        CallOutcome::Fail { code, .. } if call.may_fail.contains(code) => {}
        CallOutcome::Fail { status, code } => {
            let about = call.key.as_deref().or(call.about.as_deref()).unwrap_or("no key");
            found.push(view.violation(Rule::Refusal, about, format!("{:?} {status} {code}", call.verb), &subject));
        }
    }
}

/// Every email was requested, is the only one of its send, and has its key to itself.
fn check_every_email_requested(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let mut by_key: BTreeMap<(&str, &str, u32), Vec<&Email>> = BTreeMap::new();
    for email in view.history.emails.iter().filter(|email| !email.key.is_empty()) {
        by_key.entry((&email.team, &email.key, email.bind)).or_default().push(email);
    }
    for (slot, emails) in &view.emails_by_recipients {
        check_email_count(view, slot, emails, found);
    }
    for ((_, key, _), emails) in by_key.into_iter().filter(|(_, emails)| emails.len() > 1) {
        let ids: Vec<&str> = emails.iter().map(|email| email.id.as_str()).collect();
        let subject = ViolationSubject { emails: ids.iter().copied().collect(), key: None };
        found.push(view.violation(Rule::SharedKey, key, ids.join(" "), &subject));
    }
}

/// The number of emails to the same recipients matches the calls: one for each binding of each key, one for each call
/// without a key, and one for each resend.
fn check_email_count(view: &HistoryIndex<'_>, slot: &RecipientSet<'_>, emails: &[&Email], found: &mut Vec<Violation>) {
    let calls = view.calls_by_recipients.get(slot).map_or(&[][..], Vec::as_slice);
    let keys: BTreeSet<&str> = calls.iter().filter_map(|call| call.key.as_deref()).collect();
    let keyed: usize = keys.iter().map(|key| view.max_binds((slot.0, key))).sum();
    let sends = keyed + calls.iter().filter(|call| call.key.is_none()).count();
    let resends = emails.iter().filter(|email| view.is_resent(email)).count();
    if sends == 0 {
        let unasked = |email: &&Email| view.email_violation(Rule::Unasked, email, "nobody asked for it");
        found.extend(emails.iter().map(unasked));
    } else if emails.len() > sends + resends {
        let ids: Vec<&str> = emails.iter().map(|email| email.id.as_str()).collect();
        let why = format!("{} emails for {sends} wishes and {resends} resends: {}", ids.len(), ids.join(" "));
        let key = keys.first().map(|key| (slot.0, *key));
        let subject = ViolationSubject { emails: ids.iter().copied().collect(), key };
        let people: Vec<&str> = slot.1.iter().copied().collect();
        found.push(view.violation(Rule::Duplicated, &people.join("+"), why, &subject));
    }
}

/// All items of a batch exist, or none.
fn check_batches_complete(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    for (key, calls) in &view.calls_by_key {
        let Some(batch) = calls.iter().find(|call| call.verb == CallKind::Batch) else { continue };
        let refused = calls.iter().all(|call| matches!(call.end, CallOutcome::Fail { .. }));
        let there =
            |wanted: &&ExpectedEmail| view.emails_by_recipients.contains_key(&recipient_set(&batch.team, &wanted.to));
        let (some, all) = (batch.wanted.iter().filter(there).count(), batch.wanted.len());
        if some != 0 && some != all && !refused {
            found.push(view.key_violation(Rule::Torn, *key, format!("{some} of {all} items")));
        }
    }
}

/// A key is bound to the content of one of its calls, and each call was answered accordingly.
fn check_key_content(view: &HistoryIndex<'_>, key: (&str, &str), calls: &[&CallRecord], found: &mut Vec<Violation>) {
    let Some(first) = calls.first() else { return };
    // Two operations under one key always differ, and a key that was bound twice has two contents.
    if view.max_binds(key) > 1 || calls.iter().any(|call| call.verb != first.verb) {
        return;
    }
    let Some(ids) = calls.iter().find_map(|call| call.acknowledged_ids()) else { return };
    let emails: Vec<&Email> = ids.iter().filter_map(|id| view.emails_by_id.get(id.as_str()).copied()).collect();
    let bound: Vec<Option<u64>> = emails.iter().map(|email| email.body).collect();
    if bound.iter().any(Option::is_none) || bound.len() != ids.len() {
        return;
    }
    for (index, email) in emails.iter().enumerate() {
        let asked = |call: &&&CallRecord| call.wanted.get(index).map(|wanted| wanted.body) == email.body;
        if !calls.iter().any(|call| asked(&call)) {
            found.push(view.email_violation(Rule::OtherWords, email, "no call under its key asked for what it says"));
        }
    }
    for call in calls {
        let same = call.wanted.len() == bound.len()
            && call.wanted.iter().zip(&bound).all(|(wanted, body)| Some(wanted.body) == *body);
        match &call.end {
            CallOutcome::Ok { .. } if !same && !call.forgives => {
                found.push(view.key_violation(Rule::Swallowed, key, "another meaning was answered with the first"));
            }
            CallOutcome::Fail { code, .. } if same && code == KEY_MISMATCH => {
                found.push(view.key_violation(Rule::FalseMismatch, key, "the same meaning was refused"));
            }
            _ => {}
        }
    }
}
