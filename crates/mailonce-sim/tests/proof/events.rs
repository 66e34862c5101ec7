//! P11: forged, lost, repeated and rewritten events.

use crate::valid_history::{HistoryBuilder, PLAIN_EMAIL, broken_rules, valid_history};
use mailonce_sim::proof::history::{Evidence, ReceivedWebhook, WebhookHistory};
use mailonce_sim::proof::{Rule, check_reread};

/// The rules that are forged here.
pub(crate) const FORGED: &[Rule] = &[
    Rule::Gap,
    Rule::AcceptanceEvent,
    Rule::MisplacedEvent,
    Rule::UnmatchedEvent,
    Rule::Ghost,
    Rule::CountedTwice,
    Rule::Rewritten,
    Rule::NoticeLost,
    Rule::NoticeRenamed,
    Rule::NoticeOrder,
    Rule::NoticeForged,
];

/// An endpoint that received everything, then the forged webhooks.
fn rules_for_webhooks(forge: impl Fn(&mut Vec<ReceivedWebhook>)) -> Vec<Rule> {
    broken_rules(|scribe| {
        let own = scribe.history.events.iter().filter(|event| event.team == "ours");
        let mut received: Vec<ReceivedWebhook> = own
            .map(|event| ReceivedWebhook {
                team: event.team.clone(),
                id: format!("n{}", event.seq),
                event: event.id.clone(),
                about: event.about.clone(),
                seq: event.seq,
                signed: true,
            })
            .collect();
        let last = received.last().map_or(0, |one| one.seq);
        forge(&mut received);
        scribe.history.webhooks = WebhookHistory { owed: [("ours".to_owned(), last)].into(), received };
    })
}

#[test]
fn webhooks_that_are_lost_renamed_out_of_order_or_forged_are_detected() {
    assert_eq!(rules_for_webhooks(|_| {}), []);
    assert_eq!(
        rules_for_webhooks(|received| received.push(received[0].clone())),
        [],
        "once more under the same id is allowed"
    );
    let late = |received: &mut Vec<ReceivedWebhook>| {
        received.push(ReceivedWebhook { event: "later".into(), seq: 999, ..received[0].clone() })
    };
    assert_eq!(rules_for_webhooks(late), [], "events beyond the last expected one are not checked");
    assert_eq!(rules_for_webhooks(|received| drop(received.pop())), [Rule::NoticeLost]);
    let renamed = |received: &mut Vec<ReceivedWebhook>| {
        received.push(ReceivedWebhook { id: "other".into(), ..received[0].clone() })
    };
    assert_eq!(rules_for_webhooks(renamed), [Rule::NoticeRenamed]);
    assert_eq!(rules_for_webhooks(|received| received[1].id = received[0].id.clone()), [Rule::NoticeRenamed]);
    let swapped = |received: &mut Vec<ReceivedWebhook>| {
        let next = (1..received.len()).find(|n| received[*n].about == received[0].about).unwrap();
        received.swap(0, next);
    };
    assert_eq!(rules_for_webhooks(swapped), [Rule::NoticeOrder]);
    assert_eq!(rules_for_webhooks(|received| received[0].signed = false), [Rule::NoticeForged]);
    let invented = |received: &mut Vec<ReceivedWebhook>| {
        let (id, event, about) = ("new".into(), "invented".into(), "x".into());
        received.push(ReceivedWebhook { id, event, about, ..received[0].clone() });
    };
    assert_eq!(rules_for_webhooks(invented), [Rule::NoticeForged]);
}

#[test]
fn gaps_and_repeats_in_the_numbers_are_detected() {
    let from_two = |scribe: &mut HistoryBuilder| scribe.history.events.iter_mut().for_each(|event| event.seq += 1);
    assert_eq!(broken_rules(from_two), [Rule::Gap]);
    let hole = |scribe: &mut HistoryBuilder| scribe.history.events.iter_mut().skip(5).for_each(|event| event.seq += 1);
    assert_eq!(broken_rules(hole), [Rule::Gap]);
    let twice = |scribe: &mut HistoryBuilder| scribe.history.events[4].seq = 4;
    assert_eq!(broken_rules(twice), [Rule::Gap]);
    let missing = |scribe: &mut HistoryBuilder| drop(scribe.history.events.remove(1));
    assert!(broken_rules(missing).contains(&Rule::Gap));
}

#[test]
fn an_acceptance_told_never_or_twice_is_detected() {
    let never = broken_rules(|scribe| scribe.history.events[0].kind = "email.duplicate".into());
    assert_eq!(never, [Rule::AcceptanceEvent, Rule::MisplacedEvent]);
    let twice = broken_rules(|scribe| scribe.add_event("ours", "e0", "email.held", 99));
    assert_eq!(twice, [Rule::AcceptanceEvent]);
}

#[test]
fn a_change_told_twice_or_too_early_is_detected() {
    assert_eq!(
        broken_rules(|scribe| scribe.add_event("ours", "e0", "email.sent", 99)),
        [Rule::MisplacedEvent, Rule::UnmatchedEvent]
    );
    let early = broken_rules(|scribe| {
        scribe.history.events[0].kind = "email.sent".into();
        scribe.history.events[1].kind = "email.accepted".into();
    });
    assert_eq!(early, [Rule::MisplacedEvent]);
    let same_rev = broken_rules(|scribe| scribe.history.events[1].rev = 1);
    assert_eq!(same_rev, [Rule::MisplacedEvent]);
    let same_id = broken_rules(|scribe| scribe.history.events[1].id = scribe.history.events[0].id.clone());
    assert_eq!(same_id, [Rule::MisplacedEvent]);
}

#[test]
fn a_change_that_is_not_told_is_detected() {
    for kind in ["email.sent", "email.delivered"] {
        let forged = broken_rules(|scribe| {
            let event = scribe.history.events.iter_mut().find(|event| event.kind == kind).unwrap();
            (event.kind, event.rev) = ("email.duplicate".into(), 0);
        });
        assert_eq!(forged, [Rule::UnmatchedEvent], "{kind}");
    }
    let from_nothing = broken_rules(|scribe| scribe.add_event("ours", "e0", "email.bounced", 99));
    assert_eq!(from_nothing, [Rule::UnmatchedEvent]);
}

#[test]
fn events_of_an_email_that_is_not_there_are_detected() {
    assert_eq!(broken_rules(|scribe| scribe.add_event("ours", "nobody", "email.sent", 1)), [Rule::Ghost]);
}

#[test]
fn events_that_changed_or_went_are_detected() {
    let before = valid_history().history.events;
    assert_eq!(check_reread(&before, &before), []);
    let mut changed = before.clone();
    changed[4].about = "another".into();
    let mut gone = before.clone();
    gone.pop();
    for now in [changed, gone] {
        let found = check_reread(&before, &now);
        assert_eq!(found.iter().map(|found| found.rule).collect::<Vec<_>>(), [Rule::Rewritten]);
    }
}

#[test]
fn a_named_fact_on_record_twice_is_detected() {
    let named = |names: [&str; 2]| {
        broken_rules(|scribe| {
            for once in names {
                let (source, says, once) = ("provider_event".into(), "delivered".into(), once.to_owned());
                scribe.history.emails[PLAIN_EMAIL].handoffs[0].evidence.push(Evidence {
                    source,
                    says,
                    once,
                    at_ms: None,
                });
            }
        })
    };
    assert_eq!(named(["n1", "n1"]), [Rule::CountedTwice]);
    assert_eq!(named(["n1", "n2"]), []);
    assert_eq!(named(["", ""]), []);
}
