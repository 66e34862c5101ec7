//! P14: forged conversations.

use mailonce_sim::proof::history::{
    ConversationChange, ConversationCommit, DeliveryTry, Email, EscalationRow, Event, HandoffTransition, Message,
    ReplyLimits, ReplyRecord,
};
use mailonce_sim::proof::{History, Invariant, Rule, check};
use std::collections::BTreeSet;

/// The rules that are forged here.
pub(crate) const FORGED: &[Rule] = &[
    Rule::AnsweredTwice,
    Rule::OwnAnswered,
    Rule::MachineAnswered,
    Rule::LeaseIgnored,
    Rule::NewerIgnored,
    Rule::CapExceeded,
    Rule::NeedlessGuard,
    Rule::TwoHolders,
    Rule::LeaseFence,
    Rule::OfferedSettled,
    Rule::OfferedEarly,
    Rule::OfferedTooOften,
    Rule::ConversationEvents,
    Rule::Unattended,
    Rule::Unescalated,
    Rule::LookAlike,
];

const INBOX_ADDRESS: &str = "desk@inbox.example";

fn conversation_commit(at: u64, change: ConversationChange) -> ConversationCommit {
    ConversationCommit { at, now: at as i64, change }
}

fn reply_record(email: &str, guard: &str) -> ReplyRecord {
    let (message, slot) = ("m1".to_owned(), "reply 0".to_owned());
    ReplyRecord { message, slot, email: email.to_owned(), guard: guard.to_owned(), ..ReplyRecord::default() }
}

/// A person's message that was answered, with its events.
fn valid_conversation() -> History {
    let mut history = History { healed: true, ..History::default() };
    let limits = ReplyLimits { per_window: 2, window_ms: 100, per_day: 9, per_person: 9, ..ReplyLimits::default() };
    history.conversations.limits_by_inbox.insert(INBOX_ADDRESS.into(), limits);
    history.inbound.delivery_tries.push(DeliveryTry {
        inbox: INBOX_ADDRESS.into(),
        message_id: "<1@x>".into(),
        sender: "ann@x".into(),
        kind: "person".into(),
        ..DeliveryTry::default()
    });
    let (id, inbox, message_id) = ("m1".to_owned(), INBOX_ADDRESS.to_owned(), "<1@x>".to_owned());
    let state = "answered".to_owned();
    history.inbound.messages.push(Message { id, inbox, seq: 1, message_id, state, ..Message::default() });
    let (message, thread, message_id) = ("m1".to_owned(), "t1".to_owned(), "<1@x>".to_owned());
    history
        .conversations
        .commits
        .push(conversation_commit(1, ConversationChange::Filed { message, thread, seq: 1, message_id }));
    history.conversations.commits.push(conversation_commit(3, ConversationChange::Answered(reply_record("e1", ""))));
    let (email, to) = ("e1".to_owned(), "queued".to_owned());
    history.moves.push(HandoffTransition { at: 2, email, handoff: 0, from: String::new(), to, fence: 0, rev: 1 });
    let (id, answers, state) = ("e1".to_owned(), "m1".to_owned(), "sent".to_owned());
    history.emails.push(Email { id, answers, state, ..Email::default() });
    history
}

/// The broken rules of a forged conversation, each once.
fn conversation_rules(forge: impl FnOnce(&mut History)) -> Vec<Rule> {
    let mut history = valid_conversation();
    forge(&mut history);
    let rules: BTreeSet<Rule> = check(&history).into_iter().map(|violation| violation.rule).collect();
    rules.into_iter().filter(|rule| rule.promise() == Invariant::P14).collect()
}

/// The broken rules if this happens before the reply.
fn rules_with_earlier(change: ConversationChange) -> Vec<Rule> {
    conversation_rules(|history| history.conversations.commits.insert(1, conversation_commit(2, change)))
}

/// The broken rules if this happens after the reply.
fn rules_with_later(changes: Vec<ConversationChange>) -> Vec<Rule> {
    conversation_rules(|history| {
        history.conversations.commits.extend((10..).zip(changes).map(|(at, change)| conversation_commit(at, change)))
    })
}

fn lease_change(token: &str, until: i64, fence: u64, offered: Option<&str>) -> ConversationChange {
    let (thread, token, offered) = ("t1".to_owned(), token.to_owned(), offered.map(str::to_owned));
    ConversationChange::Leased { thread, token, until, fence, offered }
}

#[test]
fn a_correct_conversation_has_no_violations() {
    assert_eq!(conversation_rules(|_| {}), []);
}

#[test]
fn a_reply_without_an_event_is_detected() {
    let event = |kind: &str, about: &str| Event { seq: 1, kind: kind.into(), about: about.into(), ..Event::default() };
    assert_eq!(conversation_rules(|history| history.events.push(event("message.answered", "m1"))), []);
    assert_eq!(
        conversation_rules(|history| history.events.push(event("message.answered", "m2"))),
        [Rule::ConversationEvents]
    );
    assert_eq!(
        conversation_rules(|history| history.events.push(event("email.sent", "e1"))),
        [Rule::ConversationEvents]
    );
}

#[test]
fn a_second_reply_is_detected_unless_the_first_was_certainly_not_sent() {
    let second = |history: &mut History| {
        history.conversations.commits.push(conversation_commit(9, ConversationChange::Answered(reply_record("e2", ""))))
    };
    assert_eq!(conversation_rules(second), [Rule::AnsweredTwice]);
    let free = conversation_rules(|history| {
        second(history);
        let (email, from, to) = ("e1".to_owned(), "queued".to_owned(), "cancelled".to_owned());
        history.moves.push(HandoffTransition { at: 5, email, handoff: 0, from, to, fence: 0, rev: 2 });
        history.emails[0].state = "cancelled".into();
    });
    assert_eq!(free, []);
}

#[test]
fn a_reply_loop_is_detected() {
    let written = |kind: &str| conversation_rules(|history| history.inbound.delivery_tries[0].kind = kind.to_owned());
    assert_eq!(written("own"), [Rule::OwnAnswered]);
    assert_eq!(written("machine"), [Rule::MachineAnswered]);
    assert_eq!(written("soft"), [Rule::MachineAnswered]);
}

#[test]
fn a_reply_past_a_lease_a_newer_message_or_a_limit_is_detected() {
    assert_eq!(rules_with_earlier(lease_change("a", 9, 1, None)), [Rule::LeaseIgnored]);
    assert_eq!(rules_with_earlier(lease_change("a", 3, 1, None)), []);
    let lost = conversation_rules(|history| {
        let shown = ReplyRecord { token: Some("lost".into()), ..reply_record("e1", "") };
        history.conversations.commits[1] = conversation_commit(3, ConversationChange::Answered(shown));
    });
    assert_eq!(lost, [Rule::LeaseIgnored]);
    let newer = conversation_rules(|history| {
        let mut delivery_try = history.inbound.delivery_tries[0].clone();
        delivery_try.message_id = "<2@x>".into();
        history.inbound.delivery_tries.push(delivery_try);
        let (message, thread, message_id) = ("m2".to_owned(), "t1".to_owned(), "<2@x>".to_owned());
        history
            .conversations
            .commits
            .insert(1, conversation_commit(2, ConversationChange::Filed { message, thread, seq: 2, message_id }));
    });
    assert_eq!(newer, [Rule::NewerIgnored]);
    let often = |n: u32| {
        ConversationChange::Answered(ReplyRecord { slot: format!("reply {n}"), ..reply_record(&format!("e{n}"), "") })
    };
    assert_eq!(rules_with_later(vec![often(2)]), []);
    assert_eq!(rules_with_later(vec![often(2), often(3)]), [Rule::CapExceeded]);
}

#[test]
fn a_thread_with_two_holders_is_detected() {
    assert_eq!(
        rules_with_later(vec![lease_change("a", 99, 1, None), lease_change("b", 99, 2, None)]),
        [Rule::TwoHolders]
    );
    let (thread, token) = ("t1".to_owned(), "b".to_owned());
    assert_eq!(
        rules_with_later(vec![lease_change("a", 99, 1, None), ConversationChange::Released { thread, token }]),
        [Rule::TwoHolders]
    );
    assert_eq!(
        rules_with_later(vec![lease_change("a", 10, 1, None), lease_change("b", 99, 1, None)]),
        [Rule::LeaseFence]
    );
}

#[test]
fn an_offer_at_the_wrong_time_is_detected() {
    let offered = |fence: u64| lease_change(&format!("a{fence}"), 2, fence, Some("m1"));
    assert_eq!(rules_with_earlier(offered(1)), []);
    assert_eq!(rules_with_later(vec![offered(1)]), [Rule::OfferedSettled]);
    let early = conversation_rules(|history| {
        history.conversations.commits.insert(1, conversation_commit(2, ConversationChange::Postponed("m1".into(), 9)));
        history.conversations.commits.insert(2, conversation_commit(2, offered(1)));
    });
    assert_eq!(early, [Rule::OfferedEarly]);
    let often = conversation_rules(|history| {
        (1..=6).for_each(|n| history.conversations.commits.insert(1, conversation_commit(2, offered(7 - n))))
    });
    assert_eq!(often, [Rule::OfferedTooOften]);
}

#[test]
fn a_repeated_mail_without_a_key_is_detected() {
    let twice = |guard: &str| {
        conversation_rules(|history| {
            for (at, id, guard) in [(4, "k1", ""), (5, "k2", guard)] {
                let (email, to) = (id.to_owned(), vec!["ann@x".to_owned()]);
                history
                    .conversations
                    .commits
                    .push(conversation_commit(at, ConversationChange::Keyless { email, guard: guard.to_owned() }));
                history.emails.push(Email { id: id.to_owned(), to, body: Some(1), ..Email::default() });
            }
        })
    };
    assert_eq!(twice(""), [Rule::LookAlike]);
    assert_eq!(twice("looks_duplicate"), []);
}

#[test]
fn a_guard_that_refuses_without_a_reason_is_detected() {
    for guard in ["self", "automatic", "leased", "newer_message"] {
        let refused = ConversationChange::Refused { guard: guard.to_owned(), reply: reply_record("", "") };
        assert_eq!(
            conversation_rules(|history| history.conversations.commits.push(conversation_commit(9, refused))),
            [Rule::NeedlessGuard],
            "{guard}"
        );
    }
    let capped = conversation_rules(|history| {
        history.conversations.commits[1] =
            conversation_commit(3, ConversationChange::Answered(reply_record("e1", "cap")));
    });
    assert_eq!(capped, [Rule::NeedlessGuard]);
    let again = ConversationChange::Again { message: "m1".into(), slot: "reply 7".into(), email: "e1".into() };
    assert_eq!(
        conversation_rules(|history| history.conversations.commits.push(conversation_commit(9, again))),
        [Rule::NeedlessGuard]
    );
}

#[test]
fn an_unanswered_message_is_detected_unless_it_was_escalated() {
    let lies = |history: &mut History| {
        history.conversations.commits.pop();
        history.emails.clear();
        history.moves.clear();
        history.inbound.messages[0].state = "unanswered".into();
    };
    assert_eq!(conversation_rules(lies), [Rule::Unattended]);
    let asked = conversation_rules(|history| {
        lies(history);
        history.conversations.escalations.push(EscalationRow { message: "m1".into(), ..EscalationRow::default() });
    });
    assert_eq!(asked, []);
    let vain = conversation_rules(|history| history.inbound.messages[0].dead = true);
    assert_eq!(vain, [Rule::Unescalated]);
}
