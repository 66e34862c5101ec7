//! Promises about reply caps: per thread within minutes, per day, in total, and per person.

use mailonce_core::{
    conversation::{
        caps::{ReplyCaps, recipient_hash},
        reply_guards::{NewReply, ReplyResult},
    },
    handoff::action::HandoffActionStatus,
    inbox::{message::Message, progress::ReplySlot},
    operation::IdempotentResult,
    outbound::{
        email::{Email, EmailState, Guard},
        email_commands::EmailResendResult,
    },
    time::Time,
};

use crate::conformance::{
    DAY, HOUR, MINUTE, OTHER_TEAM, T0, TEAM, TestStore, all_at_once, all_events, cancel_email, event_kinds,
    fixtures::{
        conversations::{
            UNLIMITED_CAPS, accept_reply, expect_accepted, expect_already_answered, file_message, inbox_with_message,
            inbox_with_messages, load_message, load_thread, message_in_thread_1, plain_reply, reply_with,
        },
        handoffs::{apply_action, release_of},
        inbound::{created_inbox, new_inbox, new_message},
    },
    keyless_email, next_version,
};

/// A follow-up with this number, under these caps.
fn new_follow_up(message: &Message, n: u32, caps: ReplyCaps, now: Time) -> NewReply {
    NewReply { slot: ReplySlot::Reply(n), caps, ..reply_with(message, &keyless_email(), now) }
}

/// Whether the reply is queued or held by the cap.
async fn is_sent(store: &TestStore, reply: NewReply, now: Time) -> bool {
    let email = expect_accepted(accept_reply(store, reply, now).await);
    match (email.state(), email.guard) {
        (EmailState::Queued, None) => true,
        (EmailState::Held, Some(Guard::Cap)) => false,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_reply_over_the_cap_is_held_and_takes_its_slot(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let caps = ReplyCaps { per_window: 2, ..UNLIMITED_CAPS };
    assert!(is_sent(&store, new_follow_up(&message, 0, caps, T0), T0).await);
    assert!(is_sent(&store, new_follow_up(&message, 1, caps, T0), T0).await);
    let ReplyResult::First(held, thread) = accept_reply(&store, new_follow_up(&message, 2, caps, T0), T0).await else {
        panic!()
    };
    assert_eq!((held.state(), held.guard), (EmailState::Held, Some(Guard::Cap)));
    assert_eq!((thread.details.emails, thread.details.sends.count_within(DAY, T0)), (3, 2));
    assert_eq!(thread, load_thread(&store, message.thread).await);
    assert_eq!(
        expect_already_answered(accept_reply(&store, new_follow_up(&message, 2, UNLIMITED_CAPS, T0), T0).await),
        (held.id, held.clone())
    );
    assert_eq!(
        load_message(&store, message.id).await.annotations.progress.answered_by(&ReplySlot::Reply(2)),
        Some(held.id)
    );
    assert_eq!(event_kinds(&store).await[5..], ["email.held", "message.answered", "thread.cap_reached"]);
    let event = all_events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!(
        (event.subject_id, event.rev, &event.data["email"]),
        (thread.id.0, thread.rev, &held.id.to_string().into())
    );
}

pub(super) async fn a_held_reply_is_not_counted(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let caps = ReplyCaps { per_window: 1, ..UNLIMITED_CAPS };
    let at = |ms: i64| T0.plus(ms);
    assert!(is_sent(&store, new_follow_up(&message, 0, caps, T0), T0).await);
    assert!(!is_sent(&store, new_follow_up(&message, 1, caps, T0), at(MINUTE - 1)).await);
    assert!(is_sent(&store, new_follow_up(&message, 2, caps, T0), at(MINUTE)).await);
}

pub(super) async fn a_reply_released_by_a_person_counts_from_its_release(store: TestStore) {
    let (_inbox, messages) = inbox_with_messages(&store, 2).await;
    let caps = ReplyCaps { per_window: 1, ..UNLIMITED_CAPS };
    assert!(is_sent(&store, new_follow_up(&messages[0], 0, caps, T0), T0).await);
    let held = expect_accepted(accept_reply(&store, new_follow_up(&messages[0], 1, caps, T0), T0).await);
    let (status, _email) = apply_action(&store, held.id, release_of(Guard::Cap), T0).await;
    assert_eq!(status, HandoffActionStatus::Done);
    let thread = load_thread(&store, messages[0].thread).await;
    assert_eq!((thread.details.emails, thread.details.sent, thread.details.sends.count_within(DAY, T0)), (2, 2, 2));
    let _again = apply_action(&store, held.id, release_of(Guard::Cap), T0).await;
    assert_eq!(load_thread(&store, messages[0].thread).await, thread, "once");
    let two = ReplyCaps { per_window: 2, ..UNLIMITED_CAPS };
    assert!(!is_sent(&store, new_follow_up(&messages[0], 2, two, T0), T0).await);
    // The reply counts for the person, too, across all threads.
    let caps = ReplyCaps { per_person: 1, ..UNLIMITED_CAPS };
    let person = Some(recipient_hash(&held.head.to[0]));
    assert!(!is_sent(&store, NewReply { caps, recipient_hash: person, ..plain_reply(&messages[1]) }, T0).await);
}

pub(super) async fn an_edited_held_reply_counts_once(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let held = expect_accepted(
        accept_reply(&store, reply_with(&message, &keyless_email().held(Guard::Approval), T0), T0).await,
    );
    let mut resend = next_version(&held).to_new_email(T0);
    (resend.head.answers, resend.guard_input.cancels_previous) = (held.head.answers, true);
    let edited = store.resend(resend, None, T0).await.unwrap();
    assert!(matches!(edited, IdempotentResult::Done(EmailResendResult::First(_))), "{edited:?}");
    let thread = load_thread(&store, message.thread).await;
    assert_eq!((thread.details.sent, thread.details.sends.count_within(DAY, T0)), (1, 1));
}

pub(super) async fn a_reply_held_as_look_alike_counts_at_once(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let caps = ReplyCaps { per_window: 1, ..UNLIMITED_CAPS };
    let look_alike = reply_with(&message, &keyless_email().held(Guard::LooksDuplicate), T0);
    let held = expect_accepted(accept_reply(&store, NewReply { caps, ..look_alike }, T0).await);
    assert_eq!((held.state(), held.guard), (EmailState::Held, Some(Guard::LooksDuplicate)));
    assert!(!is_sent(&store, new_follow_up(&message, 1, caps, T0), T0).await);
    let _released = apply_action(&store, held.id, release_of(Guard::LooksDuplicate), T0).await;
    assert_eq!(load_thread(&store, message.thread).await.details.sent, 1);
}

pub(super) async fn a_reply_with_two_holds_counts_once(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let fixture = keyless_email().held(Guard::LooksDuplicate).held(Guard::Approval);
    let held = expect_accepted(accept_reply(&store, reply_with(&message, &fixture, T0), T0).await);
    let sent = async || load_thread(&store, message.thread).await.details.sent;
    assert_eq!(sent().await, 0);
    let _approved = apply_action(&store, held.id, release_of(Guard::Approval), T0).await;
    assert_eq!(sent().await, 1, "its sender alone may release it now");
    let _confirmed = apply_action(&store, held.id, release_of(Guard::LooksDuplicate), T0).await;
    assert_eq!(sent().await, 1);
}

pub(super) async fn a_rejected_reply_is_never_counted(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let held =
        expect_accepted(accept_reply(&store, reply_with(&message, &keyless_email().held(Guard::Cap), T0), T0).await);
    let _cancelled = cancel_email(&store, held.id, T0).await;
    assert_eq!(load_thread(&store, message.thread).await.details.sent, 0);
}

pub(super) async fn the_daily_cap_is_separate_from_the_window_cap(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let caps = ReplyCaps { per_day: 2, ..UNLIMITED_CAPS };
    for n in 0..2 {
        let now = T0.plus(i64::from(n) * HOUR);
        assert!(is_sent(&store, new_follow_up(&message, n, caps, now), now).await);
    }
    assert!(!is_sent(&store, new_follow_up(&message, 2, caps, T0), T0.plus(DAY - 1)).await);
    assert!(is_sent(&store, new_follow_up(&message, 3, caps, T0), T0.plus(DAY)).await);
}

pub(super) async fn a_threads_total_cap_is_not_reset_by_a_new_day(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let caps = ReplyCaps { per_thread: Some(2), ..UNLIMITED_CAPS };
    for n in 0..2 {
        assert!(is_sent(&store, new_follow_up(&message, n, caps, T0), T0.plus(i64::from(n) * DAY)).await);
    }
    assert!(!is_sent(&store, new_follow_up(&message, 2, caps, T0), T0.plus(9 * DAY)).await);
    assert!(is_sent(&store, new_follow_up(&message, 3, UNLIMITED_CAPS, T0), T0.plus(9 * DAY)).await);
}

pub(super) async fn replies_to_one_person_are_counted_across_threads(store: TestStore) {
    let (_inbox, messages) = inbox_with_messages(&store, 4).await;
    let theirs =
        created_inbox(&store, &mailonce_core::inbox::Inbox { team: OTHER_TEAM, ..new_inbox("b@d.test") }).await;
    let other = file_message(&store, &theirs, new_message(Some(1), 1), T0).await;
    let to = |message: &Message, person: Option<u8>| {
        let caps = ReplyCaps { per_person: 2, ..UNLIMITED_CAPS };
        NewReply { caps, recipient_hash: person.map(|n| [n; 16]), ..plain_reply(message) }
    };
    assert!(is_sent(&store, to(&other, Some(1)), T0).await);
    assert!(is_sent(&store, to(&messages[0], Some(1)), T0).await);
    assert!(is_sent(&store, to(&messages[1], Some(1)), T0).await);
    let again = |reply: NewReply, n: u32| NewReply { slot: ReplySlot::Reply(n), ..reply };
    assert!(is_sent(&store, again(to(&messages[2], Some(2)), 1), T0).await, "another person");
    assert!(is_sent(&store, again(to(&messages[2], None), 2), T0).await, "no recipient that is counted");
    assert!(!is_sent(&store, to(&messages[2], Some(1)), T0).await);
    assert!(is_sent(&store, again(to(&other, Some(1)), 1), T0).await, "another team");
    assert!(is_sent(&store, to(&messages[3], Some(1)), T0.plus(DAY)).await);
}

pub(super) async fn a_sweep_keeps_counts_that_a_cap_needs(store: TestStore) {
    let (_inbox, messages) = inbox_with_messages(&store, 3).await;
    let to = |message: &Message| {
        let caps = ReplyCaps { per_person: 1, ..UNLIMITED_CAPS };
        NewReply { caps, recipient_hash: Some([1; 16]), ..plain_reply(message) }
    };
    assert!(is_sent(&store, to(&messages[0]), T0).await);
    let _swept = store.sweep(100, T0.plus(DAY - 1)).await.unwrap();
    assert!(!is_sent(&store, to(&messages[1]), T0.plus(DAY - 1)).await);
    let _swept = store.sweep(100, T0.plus(DAY)).await.unwrap();
    assert!(is_sent(&store, to(&messages[2]), T0.plus(DAY)).await);
}

/// How many of these concurrent replies are queued.
async fn count_sent_concurrently(store: &TestStore, replies: Vec<NewReply>) -> usize {
    let work = replies.into_iter().map(|reply| (store.clone(), reply));
    let answers =
        all_at_once(work.map(|(store, reply)| async move { store.accept_reply(reply, T0).await.unwrap() })).await;
    let emails: Vec<Email> = answers.into_iter().map(expect_accepted).collect();
    emails.iter().filter(|email| email.state() == EmailState::Queued).count()
}

pub(super) async fn of_16_concurrent_replies_only_as_many_as_the_cap_are_sent(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let mut messages = vec![message];
    for n in 2..=16 {
        messages.push(file_message(&store, &inbox, message_in_thread_1(n), T0).await);
    }
    let seen: Vec<_> = messages.iter().map(|message| message.id).collect();
    let caps = ReplyCaps { per_window: 3, ..UNLIMITED_CAPS };
    let reply = |message| NewReply { caps, seen: seen.clone(), ..plain_reply(message) };
    assert_eq!(count_sent_concurrently(&store, messages.iter().map(reply).collect()).await, 3);
}

pub(super) async fn of_16_concurrent_replies_to_one_person_only_as_many_as_the_cap_are_sent(store: TestStore) {
    let (_inbox, messages) = inbox_with_messages(&store, 16).await;
    let caps = ReplyCaps { per_person: 5, ..UNLIMITED_CAPS };
    let reply = |message| NewReply { caps, recipient_hash: Some([1; 16]), ..plain_reply(message) };
    assert_eq!(count_sent_concurrently(&store, messages.iter().map(reply).collect()).await, 5);
}
