//! Promises about replies: each message is answered once, whatever the content of a second reply.

use mailonce_core::{
    conversation::reply_guards::{NewReply, ReplyResult},
    handoff::{action::Resolution, reply::ReplyMeaning},
    id::{EmailId, MessageId},
    inbox::{
        message::MessageState,
        progress::{MAX_ANSWERS, ReplySlot},
    },
    operation::IdempotentResult,
    outbound::{
        accept::AcceptResult,
        email::{Email, EmailChangeRefusal, EmailState, Guard},
        email_commands::EmailResendResult,
        key_binding::KeyBinding,
    },
    ports::store::StoreHooks,
};
use std::collections::BTreeSet;

use crate::conformance::{
    OTHER_TEAM, T0, TEAM, TestStore, accept_first, all_at_once, all_events, cancel_email, capture_due, event_kinds,
    fixtures::{
        conversations::{
            accept_reply, expect_accepted, expect_already_answered, expect_leased_thread, expect_refused, file_message,
            inbox_with_message, inbox_with_messages, lease_messages, lease_thread, load_message, load_thread,
            message_lease_spec, new_forward, plain_reply, reply_with, thread_lease_spec,
        },
        handoffs::{self, LeasedJob, resolve_action},
        inbound::{automatic_message, from_own_address, new_message, open_inbox},
    },
    given_key_hash, keyed_email, keyless_email, list_all, load_email, new_operation, next_id, next_version,
};

pub(super) async fn a_second_reply_to_a_message_returns_the_first(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let ReplyResult::First(email, thread) = accept_reply(&store, plain_reply(&message), T0).await else { panic!() };
    assert_eq!((email.head.answers, email.head.thread), (Some(message.id), Some(message.thread)));
    assert_eq!((thread.details.messages, thread.details.emails, thread.rev), (1, 1, 2));
    assert_eq!(load_thread(&store, message.thread).await, thread);
    let now = load_message(&store, message.id).await;
    assert_eq!((now.state, now.rev), (MessageState::Answered, message.rev + 1));
    assert_eq!(now.annotations.progress.answers, [(ReplySlot::Reply(0), email.id)]);
    assert_eq!(now.annotations.labels, message.annotations.labels);
    assert_eq!(load_email(&store, email.id).await, email);

    let again = accept_reply(&store, reply_with(&message, &keyed_email("k").text("other words"), T0), T0).await;

    assert_eq!(again, ReplyResult::AlreadyAnswered(email.id, Some(email.clone()), thread));
    assert_eq!(list_all(&store, TEAM).await, [email]);
    assert_eq!(
        store.key_binding(TEAM, given_key_hash(TEAM, "k"), T0).await.unwrap(),
        None,
        "a reply that was not accepted binds no key"
    );
    assert_eq!(event_kinds(&store).await, ["message.received", "email.accepted", "message.answered"]);
}

pub(super) async fn each_numbered_follow_up_is_accepted_once(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let first = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    let follow_up = || NewReply { slot: ReplySlot::Reply(1), ..plain_reply(&message) };
    let second = expect_accepted(accept_reply(&store, follow_up(), T0).await);
    assert_ne!(first.id, second.id);
    assert_eq!(expect_already_answered(accept_reply(&store, follow_up(), T0).await).0, second.id);
    assert_eq!(expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await).0, first.id);
}

pub(super) async fn a_second_reply_returns_the_current_state_of_the_first(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let email = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(capture_due(&store, 10, T0).await, 1);
    let (id, now) = expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!((id, now.state()), (email.id, EmailState::Sent));
}

/// Accepts a reply, leases its handoff and writes the marker.
async fn reply_and_mark(store: &TestStore, reply: NewReply) -> LeasedJob {
    let email = expect_accepted(accept_reply(store, reply, T0).await);
    let job = handoffs::lease_only_handoff(store, T0).await;
    assert_eq!(job.id, email.id);
    handoffs::write_marker(store, job, T0).await
}

pub(super) async fn a_reply_slot_is_free_again_when_its_reply_certainly_was_not_sent(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let first = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(cancel_email(&store, first.id, T0).await.state(), EmailState::Cancelled);

    let job = reply_and_mark(&store, plain_reply(&message)).await;
    assert_eq!(handoffs::record_attempt(&store, &job, ReplyMeaning::Refused, T0).await.1.state(), EmailState::Failed);

    let third = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(load_message(&store, message.id).await.annotations.progress.answers, [(ReplySlot::Reply(0), third.id)]);
    assert_eq!(expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await).0, third.id);
    assert_eq!(load_thread(&store, message.thread).await.details.emails, 3);
}

pub(super) async fn a_message_is_unanswered_again_when_its_reply_certainly_was_not_sent(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let state = async || load_message(&store, message.id).await.state;
    let first = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(lease_messages(&store, message_lease_spec(&inbox, &["a"]), T0).await, []);
    let _cancelled = cancel_email(&store, first.id, T0).await;
    assert_eq!(state().await, MessageState::Unanswered);
    let expected = ["message.answered", "email.cancelled", "message.reopened"];
    assert_eq!(event_kinds(&store).await[2..], expected);
    assert_eq!(lease_messages(&store, message_lease_spec(&inbox, &["a"]), T0).await.len(), 1);

    let reply = NewReply { lease_token_hash: Some("a".into()), ..plain_reply(&message) };
    let job = reply_and_mark(&store, reply).await;
    assert_eq!(state().await, MessageState::Answered);
    let (_, failed) = handoffs::record_attempt(&store, &job, ReplyMeaning::Refused, T0).await;
    assert_eq!(state().await, MessageState::Unanswered);

    let mut resend = next_version(&failed).to_new_email(T0);
    resend.head.answers = failed.head.answers;
    let resent = store.resend(resend, None, T0).await.unwrap();
    let IdempotentResult::Done(EmailResendResult::First(second)) = resent else { panic!("{resent:?}") };
    assert_eq!(state().await, MessageState::Answered, "its next version may be sent");
    let _cancelled = cancel_email(&store, second.id, T0).await;
    assert_eq!(state().await, MessageState::Unanswered);
}

pub(super) async fn a_replaced_reply_cannot_be_resent(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let first = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    let first = cancel_email(&store, first.id, T0).await;
    let second = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    let again = |of: &Email| {
        let mut resend = next_version(of).to_new_email(T0);
        resend.head.answers = of.head.answers;
        resend
    };

    let refused = store.resend(again(&first), None, T0).await.unwrap();

    assert_eq!(
        refused,
        IdempotentResult::Done(EmailResendResult::Refused(EmailChangeRefusal::AnsweredByAnother, first))
    );
    let second = cancel_email(&store, second.id, T0).await;
    let resent = store.resend(again(&second), None, T0).await.unwrap();
    assert!(matches!(resent, IdempotentResult::Done(EmailResendResult::First(_))), "{resent:?}");
}

pub(super) async fn a_resend_refused_for_another_answer_cancels_nothing(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let _answer = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    let mut replaced = keyless_email().held(Guard::Approval).to_new_email(T0);
    replaced.head.answers = Some(message.id);
    let AcceptResult::First(held) = store.accept(replaced, T0).await.unwrap() else { panic!() };
    let events = all_events(&store, TEAM).await;
    let mut new_email = next_version(&held).to_new_email(T0);
    new_email.head.answers = held.head.answers;
    new_email.guard_input.cancels_previous = true;

    let refused = store.resend(new_email, Some(new_operation("op", 1, T0)), T0).await.unwrap();

    let refusal = EmailResendResult::Refused(EmailChangeRefusal::AnsweredByAnother, held.clone());
    assert_eq!(refused, IdempotentResult::Done(refusal));
    assert_eq!(load_email(&store, held.id).await, held);
    assert_eq!(all_events(&store, TEAM).await, events);
    let _free = accept_first(&store, &keyed_email("op"), T0).await;
}

pub(super) async fn editing_a_held_reply_never_frees_its_slot(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let held =
        expect_accepted(accept_reply(&store, reply_with(&message, &keyless_email().held(Guard::Cap), T0), T0).await);
    let mut resend = next_version(&held).to_new_email(T0);
    resend.head.answers = held.head.answers;
    let too_soon = store.resend(resend.clone(), None, T0).await.unwrap();
    assert_eq!(
        too_soon,
        IdempotentResult::Done(EmailResendResult::Refused(EmailChangeRefusal::NotTerminal, held.clone()))
    );

    resend.guard_input.cancels_previous = true;
    let edited = store.resend(resend, None, T0).await.unwrap();

    let IdempotentResult::Done(EmailResendResult::First(edited)) = edited else { panic!("{edited:?}") };
    assert_eq!(load_email(&store, held.id).await.state(), EmailState::Cancelled);
    assert_eq!(load_message(&store, message.id).await.state, MessageState::Answered);
    assert_eq!(expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await).1.id, edited.id);
    let kinds = event_kinds(&store).await;
    assert!(!kinds.contains(&"message.reopened") && kinds.contains(&"email.cancelled"), "{kinds:?}");
}

pub(super) async fn a_message_stays_answered_while_one_of_its_replies_may_be_sent(store: TestStore) {
    let (_inbox, messages) = inbox_with_messages(&store, 2).await;
    let (message, other) = (&messages[0], &messages[1]);
    let _first = expect_accepted(accept_reply(&store, plain_reply(message), T0).await);
    assert_eq!(capture_due(&store, 10, T0).await, 1);
    let follow_up =
        expect_accepted(accept_reply(&store, NewReply { slot: ReplySlot::Reply(1), ..plain_reply(message) }, T0).await);
    let forward = expect_accepted(accept_reply(&store, new_forward(message, "c@example.com"), T0).await);
    for email in [follow_up, forward] {
        let _cancelled = cancel_email(&store, email.id, T0).await;
    }
    assert_eq!(load_message(&store, message.id).await.state, MessageState::Answered);

    let forward = expect_accepted(accept_reply(&store, new_forward(other, "c@example.com"), T0).await);
    let _cancelled = cancel_email(&store, forward.id, T0).await;
    assert_eq!(load_message(&store, other.id).await.state, MessageState::Unanswered);
    assert!(!event_kinds(&store).await.contains(&"message.reopened"));
}

pub(super) async fn a_reply_slot_stays_taken_while_its_reply_may_have_been_sent(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let job = reply_and_mark(&store, plain_reply(&message)).await;
    let _lost = handoffs::record_attempt(&store, &job, ReplyMeaning::Unknown, T0).await;
    let (id, email) = expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!((id, email.state()), (job.id, EmailState::Unknown));
    let action = resolve_action(Resolution::Abandon, email.rev, None);
    assert_eq!(handoffs::apply_action(&store, job.id, action, T0).await.1.state(), EmailState::Abandoned);
    assert_eq!(expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await).0, job.id);
}

pub(super) async fn a_held_reply_keeps_its_slot(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let held = expect_accepted(
        accept_reply(&store, reply_with(&message, &keyless_email().held(Guard::Approval), T0), T0).await,
    );
    assert_eq!((held.state(), held.guard), (EmailState::Held, Some(Guard::Approval)));
    assert_eq!(expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await), (held.id, held));
}

pub(super) async fn a_resent_reply_keeps_its_slot(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let first = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    let _cancelled = cancel_email(&store, first.id, T0).await;
    let resent = store.resend(next_version(&first).to_new_email(T0), None, T0).await.unwrap();
    let IdempotentResult::Done(EmailResendResult::First(second)) = resent else { panic!("{resent:?}") };

    assert_eq!(
        expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await),
        (first.id, second.clone())
    );

    let _cancelled = cancel_email(&store, second.id, T0).await;
    assert_ne!(expect_accepted(accept_reply(&store, plain_reply(&message), T0).await).id, first.id);
}

pub(super) async fn a_sent_reply_keeps_its_slot_whatever_its_next_version_does(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let first = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(capture_due(&store, 10, T0).await, 1);
    let resent = store.resend(next_version(&first).to_new_email(T0), None, T0).await.unwrap();
    let IdempotentResult::Done(EmailResendResult::First(second)) = resent else { panic!("{resent:?}") };
    assert_eq!(cancel_email(&store, second.id, T0).await.state(), EmailState::Cancelled);

    let (id, current) = expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!((id, current.id, current.state()), (first.id, first.id, EmailState::Sent));
}

pub(super) async fn a_key_is_looked_up_before_any_guard(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let reply = || reply_with(&message, &keyed_email("k"), T0);
    let email = expect_accepted(accept_reply(&store, reply(), T0).await);
    let _leased = expect_leased_thread(&store, message.thread, "t", T0).await;
    let automatic = file_message(&store, &inbox, automatic_message(new_message(Some(2), 2), true), T0).await;
    let event_count = event_kinds(&store).await.len();

    assert_eq!(accept_reply(&store, reply(), T0).await, ReplyResult::KeyBound(KeyBinding::Email(email.clone())));
    let elsewhere = reply_with(&automatic, &keyed_email("k"), T0);
    assert_eq!(accept_reply(&store, elsewhere, T0).await, ReplyResult::KeyBound(KeyBinding::Email(email)));
    let nowhere = NewReply { message: MessageId(next_id(T0)), ..reply() };
    assert!(matches!(accept_reply(&store, nowhere, T0).await, ReplyResult::KeyBound(KeyBinding::Email(_))));

    let other = accept_first(&store, &keyed_email("other"), T0).await;
    let _done = store.cancel(TEAM, other.id, Some(new_operation("op", 1, T0)), T0).await.unwrap();
    let bound = accept_reply(&store, reply_with(&automatic, &keyed_email("op"), T0), T0).await;
    assert_eq!(bound, ReplyResult::KeyBound(KeyBinding::Operation { digest: [1; 32] }));
    assert_eq!(event_kinds(&store).await.len(), event_count + 2, "only the email and its cancel emitted events");
}

pub(super) async fn a_forward_has_a_slot_for_each_set_of_recipients(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let ann = expect_accepted(accept_reply(&store, new_forward(&message, "ann"), T0).await);
    assert_eq!(expect_already_answered(accept_reply(&store, new_forward(&message, "ann"), T0).await).0, ann.id);
    let bob = expect_accepted(accept_reply(&store, new_forward(&message, "bob"), T0).await);
    assert_ne!(ann.id, bob.id);
    assert_eq!(load_message(&store, message.id).await.state, MessageState::Unanswered);
    let _reply = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(load_message(&store, message.id).await.state, MessageState::Answered);
    // Own and automatic messages can be forwarded.
    for message in [from_own_address(new_message(Some(2), 2)), automatic_message(new_message(Some(3), 3), true)] {
        let message = file_message(&store, &inbox, message, T0).await;
        let _forward = expect_accepted(accept_reply(&store, new_forward(&message, "ann"), T0).await);
    }
    assert_eq!(event_kinds(&store).await.iter().filter(|kind| **kind == "message.forwarded").count(), 4);
    let _leased = expect_leased_thread(&store, message.thread, "t", T0).await;
    assert_eq!(expect_refused(accept_reply(&store, new_forward(&message, "eve"), T0).await), (Guard::Leased, None));
}

pub(super) async fn a_message_accepts_no_more_replies_than_its_limit(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let mut last = None;
    for n in 0..MAX_ANSWERS as u32 {
        last = Some(
            expect_accepted(
                accept_reply(&store, NewReply { slot: ReplySlot::Reply(n), ..plain_reply(&message) }, T0).await,
            )
            .id,
        );
    }
    let over = NewReply { slot: ReplySlot::Reply(MAX_ANSWERS as u32), ..plain_reply(&message) };
    let ReplyResult::AlreadyAnswered(id, _, _) = accept_reply(&store, over, T0).await else { panic!() };
    assert_eq!(Some(id), last);
    assert_eq!(list_all(&store, TEAM).await.len(), MAX_ANSWERS);
}

pub(super) async fn unknown_messages_and_those_of_other_teams_cannot_be_answered(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let theirs = mailonce_core::inbox::message::Message { team: OTHER_TEAM, ..message.clone() };
    assert_eq!(accept_reply(&store, plain_reply(&theirs), T0).await, ReplyResult::Missing);
    let missing = NewReply { message: MessageId(next_id(T0)), ..plain_reply(&message) };
    assert_eq!(accept_reply(&store, missing, T0).await, ReplyResult::Missing);
    assert!(list_all(&store, OTHER_TEAM).await.is_empty() && list_all(&store, TEAM).await.is_empty());
    assert_eq!(load_message(&store, message.id).await, message);
}

pub(super) async fn subscribers_are_notified_of_a_reply(store: TestStore) {
    let notified = std::sync::Arc::new(std::sync::Mutex::new(Vec::<Email>::new()));
    let recorder = notified.clone();
    let emails = std::sync::Arc::new(move |email: &Email| recorder.lock().unwrap().push(email.clone()));
    let subscribed = store.attach(StoreHooks { emails: Some(emails), ..StoreHooks::default() }).emails;
    let (_inbox, message) = inbox_with_message(&store).await;
    let email = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(notified.lock().unwrap().last(), subscribed.then_some(&email));
}

/// Sends replies concurrently. Returns the accepted emails, and the emails that the other calls got.
async fn reply_concurrently(store: &TestStore, replies: Vec<NewReply>) -> (BTreeSet<EmailId>, BTreeSet<EmailId>) {
    let work = replies.into_iter().map(|reply| (store.clone(), reply));
    let answers =
        all_at_once(work.map(|(store, reply)| async move { store.accept_reply(reply, T0).await.unwrap() })).await;
    let (mut accepted, mut returned) = (BTreeSet::new(), BTreeSet::new());
    for result in answers {
        match result {
            ReplyResult::First(email, _) => assert!(accepted.insert(email.id)),
            ReplyResult::AlreadyAnswered(id, Some(_), _)
            | ReplyResult::KeyBound(KeyBinding::Email(Email { id, .. })) => {
                returned.insert(id);
            }
            other => panic!("{other:?}"),
        }
    }
    (accepted, returned)
}

pub(super) async fn of_32_concurrent_replies_to_one_message_one_is_accepted(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let fixture = |n: u8| {
        if n.is_multiple_of(2) { keyless_email() } else { keyed_email(&format!("k{n}")) }.text(&format!("words {n}"))
    };
    let (accepted, returned) =
        reply_concurrently(&store, (0..32).map(|n| reply_with(&message, &fixture(n), T0)).collect()).await;
    assert_eq!(accepted.len(), 1);
    assert_eq!(accepted, returned);
    assert_eq!(list_all(&store, TEAM).await.len(), 1);
    assert_eq!(load_thread(&store, message.thread).await.details.emails, 1);
    assert_eq!(event_kinds(&store).await, ["message.received", "email.accepted", "message.answered"]);
}

pub(super) async fn concurrent_replies_to_many_messages_are_each_accepted_once(store: TestStore) {
    let (_inbox, messages) = inbox_with_messages(&store, 12).await;
    let replies = (0..4).flat_map(|_| messages.iter().map(plain_reply)).collect();
    let (accepted, returned) = reply_concurrently(&store, replies).await;
    assert_eq!((accepted.len(), &accepted), (12, &returned));
}

pub(super) async fn of_32_concurrent_replies_under_one_key_one_is_accepted(store: TestStore) {
    let (_inbox, messages) = inbox_with_messages(&store, 2).await;
    let replies = (0..32).map(|n: usize| reply_with(&messages[n % 2], &keyed_email("k"), T0)).collect();
    let (accepted, returned) = reply_concurrently(&store, replies).await;
    assert_eq!(accepted.len(), 1);
    assert_eq!(accepted, returned);
    let states = [load_message(&store, messages[0].id).await.state, load_message(&store, messages[1].id).await.state];
    assert!(states.contains(&MessageState::Answered) && states.contains(&MessageState::Unanswered));
}

pub(super) async fn a_reply_with_the_lease_is_accepted_and_keeps_the_lease(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let message = file_message(&store, &inbox, new_message(Some(1), 1), T0).await;
    let thread = expect_leased_thread(&store, message.thread, "t", T0).await;
    let reply = NewReply { lease_token_hash: Some("t".into()), ..plain_reply(&message) };
    let _email = expect_accepted(accept_reply(&store, reply, T0).await);
    let now = load_thread(&store, message.thread).await;
    assert_eq!((now.details.lease, now.details.fence), (thread.details.lease, 1));
    assert!(matches!(
        lease_thread(&store, message.thread, thread_lease_spec("u"), T0).await,
        mailonce_core::conversation::thread::ThreadLeaseResult::Busy(_)
    ));
}
