//! Promises about reply guards: when each refuses, in which order, and what a refusal leaves behind.

use mailonce_core::{
    conversation::{caps::ReplyCaps, reply_guards::NewReply},
    inbox::message::Message,
    outbound::email::{EmailState, Guard},
};

use crate::conformance::{
    HOUR, MINUTE, T0, TEAM, TestStore, all_events, event_kinds,
    fixtures::{
        conversations::{
            UNLIMITED_CAPS, accept_reply, expect_accepted, expect_already_answered, expect_leased_thread,
            expect_refused, file_message, inbox_with_message, load_message, load_thread, message_in_thread_1,
            new_forward, plain_reply, reply_with,
        },
        inbound::{automatic_message, from_own_address, in_reply_to, new_message, open_inbox},
    },
    given_key_hash, keyed_email, list_all,
};

/// The guard that refuses a reply now.
async fn refusing_guard(store: &TestStore, reply: NewReply) -> Guard {
    expect_refused(accept_reply(store, reply, T0).await).0
}

pub(super) async fn mail_from_our_own_agents_is_not_answered(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let message = file_message(&store, &inbox, from_own_address(new_message(Some(1), 1)), T0).await;
    let reply = NewReply { may_answer_soft_automatic: true, ..plain_reply(&message) };
    assert_eq!(refusing_guard(&store, reply).await, Guard::Itself);
}

pub(super) async fn a_reply_only_to_ourselves_is_refused(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    assert_eq!(refusing_guard(&store, NewReply { is_to_own_team: true, ..plain_reply(&message) }).await, Guard::Itself);
    let _email = expect_accepted(
        accept_reply(&store, NewReply { is_to_own_team: true, ..new_forward(&message, "b@d.test") }, T0).await,
    );
}

pub(super) async fn likely_automatic_mail_is_answered_only_if_the_inbox_allows_it(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let hard = file_message(&store, &inbox, automatic_message(new_message(Some(1), 1), true), T0).await;
    let soft = file_message(&store, &inbox, automatic_message(new_message(Some(2), 2), false), T0).await;
    assert_eq!(refusing_guard(&store, plain_reply(&hard)).await, Guard::Automatic);
    assert_eq!(
        refusing_guard(&store, NewReply { may_answer_soft_automatic: true, ..plain_reply(&hard) }).await,
        Guard::Automatic
    );
    assert_eq!(refusing_guard(&store, plain_reply(&soft)).await, Guard::Automatic);
    let _email = expect_accepted(
        accept_reply(&store, NewReply { may_answer_soft_automatic: true, ..plain_reply(&soft) }, T0).await,
    );
}

pub(super) async fn a_thread_leased_to_another_agent_is_not_answered(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let _leased = expect_leased_thread(&store, message.thread, "t", T0).await;
    assert_eq!(refusing_guard(&store, plain_reply(&message)).await, Guard::Leased);
    let event = all_events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!((event.kind.as_str(), event.subject_id, event.rev), ("reply.refused", message.id.0, message.rev));
    assert_eq!((&event.data["guard"], &event.data["holder"]), (&"leased".into(), &"agent t".into()));
    assert_eq!((&event.data["fence"], &event.data["thread"]), (&1.into(), &message.thread.to_string().into()));
    let wrong = NewReply { lease_token_hash: Some("u".into()), ..plain_reply(&message) };
    assert_eq!(refusing_guard(&store, wrong).await, Guard::Leased);
    // The lease has expired.
    let _email = expect_accepted(accept_reply(&store, plain_reply(&message), T0.plus(HOUR)).await);
}

pub(super) async fn a_stale_lease_token_is_refused(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let with = |token: &str| NewReply { lease_token_hash: Some(token.into()), ..plain_reply(&message) };
    let later = T0.plus(HOUR);
    let _first = expect_leased_thread(&store, message.thread, "t", T0).await;
    let _second = expect_leased_thread(&store, message.thread, "u", later).await;
    assert_eq!(expect_refused(accept_reply(&store, with("t"), later).await).0, Guard::Leased);
    // The second lease expired, too, but no other agent took the thread since.
    let _email = expect_accepted(accept_reply(&store, with("u"), later.plus(2 * HOUR)).await);
}

pub(super) async fn a_released_lease_token_is_stale(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let _leased = expect_leased_thread(&store, message.thread, "t", T0).await;
    let _free = store.release_thread(TEAM, message.thread, "t", T0).await.unwrap().unwrap();
    assert_eq!(
        refusing_guard(&store, NewReply { lease_token_hash: Some("t".into()), ..plain_reply(&message) }).await,
        Guard::Leased
    );
    let _email = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
}

pub(super) async fn a_reply_must_have_seen_newer_messages_of_people(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let robot = file_message(&store, &inbox, automatic_message(message_in_thread_1(2), false), T0).await;
    assert_eq!(robot.thread, message.thread);
    let two = file_message(&store, &inbox, message_in_thread_1(3), T0).await;
    let three = file_message(&store, &inbox, message_in_thread_1(4), T0).await;

    let seeing = |seen: &[&Message]| {
        let seen = seen.iter().map(|message| message.id).collect();
        NewReply { seen, ..plain_reply(&message) }
    };
    assert_eq!(expect_refused(accept_reply(&store, seeing(&[]), T0).await), (Guard::NewerMessage, Some(two.id)));
    assert_eq!(expect_refused(accept_reply(&store, seeing(&[&two]), T0).await), (Guard::NewerMessage, Some(three.id)));
    assert_eq!(expect_refused(accept_reply(&store, seeing(&[&three]), T0).await), (Guard::NewerMessage, Some(two.id)));
    let _forward = expect_accepted(accept_reply(&store, new_forward(&message, "ann"), T0).await);
    let _email = expect_accepted(accept_reply(&store, seeing(&[&two, &three]), T0).await);
    // A reply to the latest message has no newer message to name.
    let _email = expect_accepted(accept_reply(&store, plain_reply(&three), T0).await);
}

pub(super) async fn guards_are_checked_in_order(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let both =
        file_message(&store, &inbox, from_own_address(automatic_message(new_message(Some(1), 1), true)), T0).await;
    let robot = file_message(&store, &inbox, automatic_message(message_in_thread_1(2), true), T0).await;
    let answered = file_message(&store, &inbox, message_in_thread_1(3), T0).await;
    let first = expect_accepted(accept_reply(&store, plain_reply(&answered), T0).await);
    let message = file_message(&store, &inbox, message_in_thread_1(4), T0).await;
    let newer = file_message(&store, &inbox, in_reply_to(new_message(Some(5), 5), &[4]), T0).await;
    let _leased = expect_leased_thread(&store, message.thread, "t", T0).await;
    let capped = |message: &Message, lease: Option<&str>| {
        let caps = ReplyCaps { per_window: 1, ..UNLIMITED_CAPS };
        NewReply { caps, lease_token_hash: lease.map(Into::into), ..plain_reply(message) }
    };
    assert_eq!(refusing_guard(&store, capped(&both, None)).await, Guard::Itself);
    assert_eq!(refusing_guard(&store, capped(&robot, None)).await, Guard::Automatic);
    assert_eq!(expect_already_answered(accept_reply(&store, capped(&answered, None), T0).await).0, first.id);
    assert_eq!(refusing_guard(&store, capped(&message, None)).await, Guard::Leased);
    assert_eq!(refusing_guard(&store, capped(&message, Some("t"))).await, Guard::NewerMessage);
    let last = NewReply { seen: vec![newer.id], ..capped(&message, Some("t")) };
    let held = expect_accepted(accept_reply(&store, last, T0.plus(MINUTE - 1)).await);
    assert_eq!((held.state(), held.guard), (EmailState::Held, Some(Guard::Cap)));
}

pub(super) async fn a_refusal_leaves_an_event_and_nothing_else(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let _newer = file_message(&store, &inbox, message_in_thread_1(2), T0).await;
    let (thread, kinds) = (load_thread(&store, message.thread).await, event_kinds(&store).await);

    let reply = NewReply { recipient_hash: Some([1; 16]), ..reply_with(&message, &keyed_email("k"), T0) };
    let _guard = refusing_guard(&store, reply).await;

    assert_eq!(load_message(&store, message.id).await, message);
    assert_eq!(load_thread(&store, message.thread).await, thread);
    assert!(list_all(&store, TEAM).await.is_empty());
    assert_eq!(store.key(TEAM, given_key_hash(TEAM, "k"), T0).await.unwrap(), None);
    assert!(store.thread_emails(TEAM, message.thread, None, 10).await.unwrap().is_empty());
    assert_eq!(event_kinds(&store).await, [kinds, vec!["reply.refused"]].concat());
}
