//! Forged inboxes: P12.

use crate::honest::{Scribe, convicted};
use mailonce_sim::proof::Rule;
use mailonce_sim::proof::history::{Artifact, Brought, Got, Inbound, Kept, Message, Take};

pub(crate) const FORGED: &[Rule] = &[
    Rule::MailLost,
    Rule::MailTwice,
    Rule::MailUnasked,
    Rule::Unrecorded,
    Rule::KeptTwice,
    Rule::InboxGap,
    Rule::Unread,
    Rule::CodeLost,
    Rule::CodeTwice,
    Rule::TwoConsumers,
    Rule::WrongCode,
    Rule::TakeForgotten,
    Rule::MailTold,
];

fn brought(n: u64, acknowledged: bool) -> Brought {
    Brought {
        at: n,
        ended: Some(n),
        way: "smtp".into(),
        inbox: "one".into(),
        message_id: format!("<m{n}>"),
        sender: format!("s{n}"),
        code: format!("10000{n}"),
        acknowledged,
        ..Brought::default()
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

fn kept(id: &str, state: &str, message: u64) -> Kept {
    let repeat = state == "duplicate";
    Kept {
        id: id.into(),
        state: state.into(),
        way: "smtp".into(),
        reason: if repeat { "same_delivery".into() } else { String::new() },
        // It came before the first was read.
        of: repeat.then(|| "d1".to_owned()),
        message: (!repeat).then(|| format!("m{message}")),
    }
}

fn take(purpose: &str, got: bool) -> Take {
    Take {
        team: "ours".into(),
        inbox: "one".into(),
        sender: "s1".into(),
        purpose: purpose.into(),
        got: got.then(|| Got { artifact: "a1".into(), value: "100001".into() }),
        refused: if got { String::new() } else { "already_consumed".into() },
        ..Take::default()
    }
}

/// Two mails of which one came twice, and a code that two wanted.
pub(crate) fn receive(scribe: &mut Scribe) {
    scribe.history.inbound = Inbound {
        brought: vec![brought(1, false), brought(1, true), brought(1, true), brought(2, true)],
        takes: vec![take("run-0", true), take("run-1", false), take("run-0", true)],
        messages: vec![message(1), message(2)],
        artifacts: vec![artifact(1, Some("run-0")), artifact(2, None)],
        kept: vec![kept("d1", "done", 1), kept("d2", "duplicate", 1), kept("d3", "done", 2)],
    };
    for (about, kind) in [
        ("m1", "message.received"),
        ("a1", "artifact.found"),
        ("d2", "delivery.duplicate"),
        ("m2", "message.received"),
        ("a2", "artifact.found"),
        ("a1", "artifact.consumed"),
    ] {
        scribe.event("ours", about, kind, 1);
    }
}

fn forged(forge: impl FnOnce(&mut Inbound)) -> Vec<Rule> {
    convicted(|scribe| forge(&mut scribe.history.inbound))
}

#[test]
fn what_was_acknowledged_and_is_not_there_is_convicted() {
    assert!(forged(|inbound| drop(inbound.messages.remove(1))).contains(&Rule::MailLost));
    // Nobody was told that it is kept.
    let unheard = forged(|inbound| inbound.brought.push(brought(3, false)));
    assert_eq!(unheard, []);
}

#[test]
fn one_mail_that_is_two_messages_is_convicted() {
    let twice = forged(|inbound| inbound.messages.push(Message { id: "m3".into(), seq: 3, ..message(2) }));
    assert_eq!(twice, [Rule::MailTwice, Rule::MailTold]);
}

#[test]
fn a_message_that_nobody_brought_is_convicted() {
    assert!(forged(|inbound| inbound.messages.push(message(3))).contains(&Rule::MailUnasked));
}

#[test]
fn a_repeat_without_a_row_is_convicted() {
    assert_eq!(forged(|inbound| drop(inbound.kept.remove(1))), [Rule::Unrecorded, Rule::MailTold]);
}

#[test]
fn a_delivery_that_was_kept_twice_is_convicted() {
    let twice = forged(|inbound| inbound.kept.push(Kept { reason: "same_message".into(), ..kept("d4", "done", 2) }));
    assert_eq!(twice, [Rule::KeptTwice]);
}

#[test]
fn a_gap_in_an_inbox_is_convicted() {
    assert_eq!(forged(|inbound| inbound.messages[1].seq = 3), [Rule::InboxGap]);
}

#[test]
fn a_delivery_that_nobody_reads_is_convicted() {
    for state in ["waiting", "dead"] {
        let unread = forged(|inbound| inbound.kept.push(Kept { message: None, ..kept("d4", state, 0) }));
        assert_eq!(unread, [Rule::Unread]);
    }
}

#[test]
fn a_code_that_is_lost_doubled_or_another_is_convicted() {
    assert!(forged(|inbound| drop(inbound.artifacts.remove(1))).contains(&Rule::CodeLost));
    let doubled = forged(|inbound| inbound.artifacts.push(Artifact { id: "a3".into(), ..artifact(2, None) }));
    assert_eq!(doubled, [Rule::CodeTwice, Rule::MailTold]);
    // An hour later it is another code.
    let later = Artifact { id: "a3".into(), found_at: 3_600_000, ..artifact(2, None) };
    assert_eq!(forged(|inbound| inbound.artifacts.push(later)), [Rule::MailTold]);
    let other = forged(|inbound| inbound.takes[0].got = Some(Got { artifact: "a1".into(), value: "999999".into() }));
    assert_eq!(other, [Rule::WrongCode]);
}

#[test]
fn a_second_consumer_and_a_forgotten_one_are_convicted() {
    let second = forged(|inbound| inbound.takes.push(take("run-1", true)));
    assert_eq!(second, [Rule::TwoConsumers, Rule::TakeForgotten]);
    let forgotten = forged(|inbound| inbound.artifacts[0].consumed_for = Some("run-9".into()));
    assert_eq!(forgotten, [Rule::TakeForgotten]);
    let refused = forged(|inbound| inbound.takes[1].refused = "forbidden".into());
    assert_eq!(refused, [Rule::TakeForgotten]);
}

#[test]
fn what_is_told_twice_never_or_of_nothing_is_convicted() {
    for (about, kind) in [("m1", "message.received"), ("a1", "artifact.consumed"), ("d9", "delivery.duplicate")] {
        assert_eq!(convicted(|scribe| scribe.event("ours", about, kind, 2)), [Rule::MailTold]);
    }
    let never = convicted(|scribe| {
        scribe.history.events.iter_mut().filter(|event| event.kind == "artifact.found").for_each(|event| {
            event.kind = "artifact.applied".into();
        });
    });
    assert_eq!(never, [Rule::MailTold]);
}
