//! Promises about too many answers: in a thread within minutes, within a day, and to one person.

use mailonce_core::{
    conversation::{
        caps::{ReplyCaps, recipient_hash},
        message_progress::ReplySlot,
        reply_guards::{NewReply, ReplyResult},
    },
    handoff::action::{HandoffAction, HandoffActionStatus},
    inbox::message::Message,
    operation::IdempotentResult,
    outbound::{
        email::{Email, EmailState, Guard},
        email_commands::EmailResendResult,
    },
    time::Time,
};

use super::{
    DAY, HOUR, MINUTE, OTHER_TEAM, T0, TEAM, TestStore, all_at_once, all_events, cancel_email, event_kinds,
    keyless_email, next_version,
    post::{created_inbox, new_inbox, new_message},
    talk::{
        UNLIMITED_CAPS, accept_reply, expect_accepted, expect_already_answered, file_message, inbox_with_message,
        inbox_with_messages, load_message, load_thread, message_in_thread_1, plain_reply, reply_with,
    },
    work::apply_action,
};

/// The follow-up of this number, under these caps.
fn new_follow_up(message: &Message, n: u32, caps: ReplyCaps, now: Time) -> NewReply {
    NewReply { slot: ReplySlot::Reply(n), caps, ..reply_with(message, &keyless_email(), now) }
}

/// Whether the follow-up goes, or is held by the cap.
async fn is_sent(store: &TestStore, wish: NewReply, now: Time) -> bool {
    let email = expect_accepted(accept_reply(store, wish, now).await);
    match (email.state(), email.guard) {
        (EmailState::Queued, None) => true,
        (EmailState::Held, Some(Guard::Cap)) => false,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn one_answer_too_many_is_held_and_takes_its_slot(store: TestStore) {
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
        load_message(&store, message.id).await.annotations.turn.answered_by(&ReplySlot::Reply(2)),
        Some(held.id)
    );
    assert_eq!(event_kinds(&store).await[5..], ["email.held", "message.answered", "thread.cap"]);
    let told = all_events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!(
        (told.subject_id, told.rev, &told.data["email"]),
        (thread.id.0, thread.rev, &held.id.to_string().into())
    );
}

pub(super) async fn a_held_answer_is_not_counted(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let caps = ReplyCaps { per_window: 1, ..UNLIMITED_CAPS };
    let at = |ms: i64| T0.plus(ms);
    assert!(is_sent(&store, new_follow_up(&message, 0, caps, T0), T0).await);
    assert!(!is_sent(&store, new_follow_up(&message, 1, caps, T0), at(MINUTE - 1)).await);
    assert!(is_sent(&store, new_follow_up(&message, 2, caps, T0), at(MINUTE)).await);
}

pub(super) async fn an_answer_that_a_person_lets_go_counts_from_then_on(store: TestStore) {
    let (_inbox, messages) = inbox_with_messages(&store, 2).await;
    let caps = ReplyCaps { per_window: 1, ..UNLIMITED_CAPS };
    assert!(is_sent(&store, new_follow_up(&messages[0], 0, caps, T0), T0).await);
    let held = expect_accepted(accept_reply(&store, new_follow_up(&messages[0], 1, caps, T0), T0).await);
    let (verdict, _email) = apply_action(&store, held.id, HandoffAction::Release, T0).await;
    assert_eq!(verdict, HandoffActionStatus::Done);
    let thread = load_thread(&store, messages[0].thread).await;
    assert_eq!((thread.details.emails, thread.details.sent, thread.details.sends.count_within(DAY, T0)), (2, 2, 2));
    let _again = apply_action(&store, held.id, HandoffAction::Release, T0).await;
    assert_eq!(load_thread(&store, messages[0].thread).await, thread, "once");
    let two = ReplyCaps { per_window: 2, ..UNLIMITED_CAPS };
    assert!(!is_sent(&store, new_follow_up(&messages[0], 2, two, T0), T0).await);
    // The person was answered as well, over all threads.
    let caps = ReplyCaps { per_person: 1, ..UNLIMITED_CAPS };
    let person = Some(recipient_hash(&held.head.to[0]));
    assert!(!is_sent(&store, NewReply { caps, recipient_hash: person, ..plain_reply(&messages[1]) }, T0).await);
}

pub(super) async fn an_answer_that_goes_in_other_words_counts_once(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let held = expect_accepted(
        accept_reply(&store, reply_with(&message, &keyless_email().held(Guard::Approval), T0), T0).await,
    );
    let mut wish = next_version(&held).to_new_email(T0);
    (wish.head.answers, wish.guard_input.cancels_previous) = (held.head.answers, true);
    let edited = store.resend(wish, None, T0).await.unwrap();
    assert!(matches!(edited, IdempotentResult::Done(EmailResendResult::First(_))), "{edited:?}");
    let thread = load_thread(&store, message.thread).await;
    assert_eq!((thread.details.sent, thread.details.sends.count_within(DAY, T0)), (1, 1));
}

pub(super) async fn an_answer_that_its_own_sender_may_let_go_counts_at_once(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let caps = ReplyCaps { per_window: 1, ..UNLIMITED_CAPS };
    let alike = reply_with(&message, &keyless_email().held(Guard::LooksDuplicate), T0);
    let held = expect_accepted(accept_reply(&store, NewReply { caps, ..alike }, T0).await);
    assert_eq!((held.state(), held.guard), (EmailState::Held, Some(Guard::LooksDuplicate)));
    assert!(!is_sent(&store, new_follow_up(&message, 1, caps, T0), T0).await);
    let _released = apply_action(&store, held.id, HandoffAction::Release, T0).await;
    assert_eq!(load_thread(&store, message.thread).await.details.sent, 1);
}

pub(super) async fn an_answer_that_is_rejected_is_never_counted(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let held =
        expect_accepted(accept_reply(&store, reply_with(&message, &keyless_email().held(Guard::Cap), T0), T0).await);
    let _gone = cancel_email(&store, held.id, T0).await;
    assert_eq!(load_thread(&store, message.thread).await.details.sent, 0);
}

pub(super) async fn a_day_has_a_cap_of_its_own(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let caps = ReplyCaps { per_day: 2, ..UNLIMITED_CAPS };
    for n in 0..2 {
        let now = T0.plus(i64::from(n) * HOUR);
        assert!(is_sent(&store, new_follow_up(&message, n, caps, now), now).await);
    }
    assert!(!is_sent(&store, new_follow_up(&message, 2, caps, T0), T0.plus(DAY - 1)).await);
    assert!(is_sent(&store, new_follow_up(&message, 3, caps, T0), T0.plus(DAY)).await);
}

pub(super) async fn a_thread_has_a_cap_in_all_that_no_day_opens(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let caps = ReplyCaps { per_thread: Some(2), ..UNLIMITED_CAPS };
    for n in 0..2 {
        assert!(is_sent(&store, new_follow_up(&message, n, caps, T0), T0.plus(i64::from(n) * DAY)).await);
    }
    assert!(!is_sent(&store, new_follow_up(&message, 2, caps, T0), T0.plus(9 * DAY)).await);
    assert!(is_sent(&store, new_follow_up(&message, 3, UNLIMITED_CAPS, T0), T0.plus(9 * DAY)).await);
}

pub(super) async fn answers_to_one_person_are_counted_over_all_threads_of_the_team(store: TestStore) {
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
    let again = |wish: NewReply, n: u32| NewReply { slot: ReplySlot::Reply(n), ..wish };
    assert!(is_sent(&store, again(to(&messages[2], Some(2)), 1), T0).await, "another person");
    assert!(is_sent(&store, again(to(&messages[2], None), 2), T0).await, "nobody who is counted");
    assert!(!is_sent(&store, to(&messages[2], Some(1)), T0).await);
    assert!(is_sent(&store, again(to(&other, Some(1)), 1), T0).await, "another team");
    assert!(is_sent(&store, to(&messages[3], Some(1)), T0.plus(DAY)).await);
}

pub(super) async fn a_sweep_takes_no_count_that_a_cap_asks_about(store: TestStore) {
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

/// How many of these answers go when they come at once.
async fn count_sent_concurrently(store: &TestStore, wishes: Vec<NewReply>) -> usize {
    let work = wishes.into_iter().map(|wish| (store.clone(), wish));
    let answers =
        all_at_once(work.map(|(store, wish)| async move { store.accept_reply(wish, T0).await.unwrap() })).await;
    let emails: Vec<Email> = answers.into_iter().map(expect_accepted).collect();
    emails.iter().filter(|email| email.state() == EmailState::Queued).count()
}

pub(super) async fn of_16_answers_at_once_only_as_many_as_the_caps_go(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let mut messages = vec![message];
    for n in 2..=16 {
        messages.push(file_message(&store, &inbox, message_in_thread_1(n), T0).await);
    }
    let seen: Vec<_> = messages.iter().map(|message| message.id).collect();
    let caps = ReplyCaps { per_window: 3, ..UNLIMITED_CAPS };
    let wish = |message| NewReply { caps, seen: seen.clone(), ..plain_reply(message) };
    assert_eq!(count_sent_concurrently(&store, messages.iter().map(wish).collect()).await, 3);
}

pub(super) async fn of_16_answers_to_one_person_at_once_only_as_many_as_the_cap_go(store: TestStore) {
    let (_inbox, messages) = inbox_with_messages(&store, 16).await;
    let caps = ReplyCaps { per_person: 5, ..UNLIMITED_CAPS };
    let wish = |message| NewReply { caps, recipient_hash: Some([1; 16]), ..plain_reply(message) };
    assert_eq!(count_sent_concurrently(&store, messages.iter().map(wish).collect()).await, 5);
}
