//! Forged inboxes: P12.

use crate::valid_history::{HistoryBuilder, broken_rules};
use mailonce_sim::proof::Rule;
use mailonce_sim::proof::history::{
    Artifact, ConsumeTry, ConsumedCode, DeliveryTry, InboundHistory, Message, ShownDelivery,
};

pub(crate) const FORGED: &[Rule] = &[
    Rule::MailLost,
    Rule::MailTwice,
    Rule::MailUnasked,
    Rule::Unrecorded,
    Rule::StoredTwice,
    Rule::InboxGap,
    Rule::Unread,
    Rule::CodeLost,
    Rule::CodeTwice,
    Rule::TwoConsumers,
    Rule::WrongCode,
    Rule::ConsumptionLost,
    Rule::InboundEvents,
];

fn delivery_try(n: u64, acknowledged: bool) -> DeliveryTry {
    DeliveryTry {
        at: n,
        ended: Some(n),
        channel: "smtp".into(),
        inbox: "one".into(),
        message_id: format!("<m{n}>"),
        sender: format!("s{n}"),
        code: format!("10000{n}"),
        acknowledged,
        ..DeliveryTry::default()
    }
}

fn message(n: u64) -> Message {
    let (id, message_id) = (format!("m{n}"), format!("<m{n}>"));
    Message { id, team: "ours".into(), inbox: "one".into(), seq: n, message_id, ..Message::default() }
}

fn artifact(n: u64, consumed_for: Option<&str>) -> Artifact {
    Artifact {
        id: format!("a{n}"),
        inbox: "one".into(),
        sender: format!("s{n}"),
        value: format!("10000{n}"),
        found_at: 0,
        consumed_for: consumed_for.map(str::to_owned),
    }
}

fn shown_delivery(id: &str, state: &str, message: u64) -> ShownDelivery {
    let repeat = state == "duplicate";
    ShownDelivery {
        id: id.into(),
        state: state.into(),
        channel: "smtp".into(),
        reason: if repeat { "same_delivery".into() } else { String::new() },
        // It arrived before the first was parsed.
        of: repeat.then(|| "d1".to_owned()),
        message: (!repeat).then(|| format!("m{message}")),
    }
}

fn consume_try(purpose: &str, succeeds: bool) -> ConsumeTry {
    ConsumeTry {
        team: "ours".into(),
        inbox: "one".into(),
        sender: "s1".into(),
        purpose: purpose.into(),
        consumed: succeeds.then(|| ConsumedCode { artifact: "a1".into(), value: "100001".into() }),
        refused: if succeeds { String::new() } else { "already_consumed".into() },
        ..ConsumeTry::default()
    }
}

/// Two mails, one delivered twice, and a code with two consumers.
pub(crate) fn add_inbound(scribe: &mut HistoryBuilder) {
    scribe.history.inbound = InboundHistory {
        delivery_tries: vec![
            delivery_try(1, false),
            delivery_try(1, true),
            delivery_try(1, true),
            delivery_try(2, true),
        ],
        consume_tries: vec![consume_try("run-0", true), consume_try("run-1", false), consume_try("run-0", true)],
        messages: vec![message(1), message(2)],
        artifacts: vec![artifact(1, Some("run-0")), artifact(2, None)],
        deliveries: vec![
            shown_delivery("d1", "done", 1),
            shown_delivery("d2", "duplicate", 1),
            shown_delivery("d3", "done", 2),
        ],
    };
    for (about, kind) in [
        ("m1", "message.received"),
        ("a1", "artifact.found"),
        ("d2", "delivery.duplicate"),
        ("m2", "message.received"),
        ("a2", "artifact.found"),
        ("a1", "artifact.consumed"),
    ] {
        scribe.add_event("ours", about, kind, 1);
    }
}

fn rules_for_inbound(forge: impl FnOnce(&mut InboundHistory)) -> Vec<Rule> {
    broken_rules(|scribe| forge(&mut scribe.history.inbound))
}

#[test]
fn what_was_acknowledged_and_is_not_there_is_detected() {
    assert!(rules_for_inbound(|inbound| drop(inbound.messages.remove(1))).contains(&Rule::MailLost));
    // It was not acknowledged.
    let unheard = rules_for_inbound(|inbound| inbound.delivery_tries.push(delivery_try(3, false)));
    assert_eq!(unheard, []);
}

#[test]
fn one_mail_that_is_two_messages_is_detected() {
    let twice = rules_for_inbound(|inbound| inbound.messages.push(Message { id: "m3".into(), seq: 3, ..message(2) }));
    assert_eq!(twice, [Rule::MailTwice, Rule::InboundEvents]);
}

#[test]
fn an_undelivered_message_is_detected() {
    assert!(rules_for_inbound(|inbound| inbound.messages.push(message(3))).contains(&Rule::MailUnasked));
}

#[test]
fn a_repeat_without_a_row_is_detected() {
    assert_eq!(
        rules_for_inbound(|inbound| drop(inbound.deliveries.remove(1))),
        [Rule::Unrecorded, Rule::InboundEvents]
    );
}

#[test]
fn a_delivery_that_was_kept_twice_is_detected() {
    let twice = rules_for_inbound(|inbound| {
        inbound.deliveries.push(ShownDelivery { reason: "same_message".into(), ..shown_delivery("d4", "done", 2) })
    });
    assert_eq!(twice, [Rule::StoredTwice]);
}

#[test]
fn a_gap_in_an_inbox_is_detected() {
    assert_eq!(rules_for_inbound(|inbound| inbound.messages[1].seq = 3), [Rule::InboxGap]);
}

#[test]
fn an_unparsed_delivery_is_detected() {
    for state in ["waiting", "dead"] {
        let unread = rules_for_inbound(|inbound| {
            inbound.deliveries.push(ShownDelivery { message: None, ..shown_delivery("d4", state, 0) })
        });
        assert_eq!(unread, [Rule::Unread]);
    }
}

#[test]
fn a_code_that_is_lost_doubled_or_another_is_detected() {
    assert!(rules_for_inbound(|inbound| drop(inbound.artifacts.remove(1))).contains(&Rule::CodeLost));
    let doubled =
        rules_for_inbound(|inbound| inbound.artifacts.push(Artifact { id: "a3".into(), ..artifact(2, None) }));
    assert_eq!(doubled, [Rule::CodeTwice, Rule::InboundEvents]);
    // An hour later it is another code.
    let later = Artifact { id: "a3".into(), found_at: 3_600_000, ..artifact(2, None) };
    assert_eq!(rules_for_inbound(|inbound| inbound.artifacts.push(later)), [Rule::InboundEvents]);
    let other = rules_for_inbound(|inbound| {
        inbound.consume_tries[0].consumed = Some(ConsumedCode { artifact: "a1".into(), value: "999999".into() })
    });
    assert_eq!(other, [Rule::WrongCode]);
}

#[test]
fn a_second_consumer_and_a_forgotten_one_are_detected() {
    let second = rules_for_inbound(|inbound| inbound.consume_tries.push(consume_try("run-1", true)));
    assert_eq!(second, [Rule::TwoConsumers, Rule::ConsumptionLost]);
    let forgotten = rules_for_inbound(|inbound| inbound.artifacts[0].consumed_for = Some("run-9".into()));
    assert_eq!(forgotten, [Rule::ConsumptionLost]);
    let refused = rules_for_inbound(|inbound| inbound.consume_tries[1].refused = "forbidden".into());
    assert_eq!(refused, [Rule::ConsumptionLost]);
}

#[test]
fn missing_repeated_and_unfounded_events_are_detected() {
    for (about, kind) in [("m1", "message.received"), ("a1", "artifact.consumed"), ("d9", "delivery.duplicate")] {
        assert_eq!(broken_rules(|scribe| scribe.add_event("ours", about, kind, 2)), [Rule::InboundEvents]);
    }
    let never = broken_rules(|scribe| {
        scribe.history.events.iter_mut().filter(|event| event.kind == "artifact.found").for_each(|event| {
            event.kind = "artifact.applied".into();
        });
    });
    assert_eq!(never, [Rule::InboundEvents]);
}
