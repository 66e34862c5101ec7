//! Steps of conversations: messages that are answered, threads that are leased, messages that are offered.

use mailonce_core::{
    conversation::{
        caps::ReplyCaps,
        message_progress::{Acknowledgement, MessageLeaseRef, ReplySlot},
        reply_guards::{NewReply, ReplyResult},
        thread::{AcknowledgeResult, MessageLeaseSpec, MessageOffer, Thread, ThreadLeaseResult, ThreadLeaseSpec},
    },
    id::{EmailId, MessageId, ThreadId},
    inbox::{
        Inbox,
        message::{Message, NewMessage},
    },
    operation::IdempotentResult,
    outbound::email::{Email, Guard},
    time::Time,
};

use super::{
    EmailFixture, HOUR, MINUTE, T0, TEAM, TestStore, keyless_email,
    post::{file_new, in_reply_to, new_message, open_inbox},
};

/// Caps that nothing here reaches.
pub(super) const UNLIMITED_CAPS: ReplyCaps =
    ReplyCaps { per_window: 1_000, window_ms: MINUTE, per_day: 1_000, per_person: 1_000, per_thread: None };

/// A draft as the first answer of a message, with nothing said about leases, newer messages or people.
pub(super) fn reply_with(message: &Message, draft: &EmailFixture, now: Time) -> NewReply {
    let mut wish = draft.clone().team(message.team).to_new_email(now);
    (wish.head.answers, wish.head.thread) = (Some(message.id), Some(message.thread));
    NewReply {
        email: wish,
        message: message.id,
        slot: ReplySlot::Reply(0),
        lease_token_hash: None,
        seen: Vec::new(),
        may_answer_soft_automatic: false,
        is_to_own_team: false,
        caps: UNLIMITED_CAPS,
        recipient_hash: None,
    }
}

/// An answer without a key.
pub(super) fn plain_reply(message: &Message) -> NewReply {
    reply_with(message, &keyless_email(), T0)
}

/// A message passed on to some people.
pub(super) fn new_forward(message: &Message, to: &str) -> NewReply {
    NewReply { slot: ReplySlot::Forward(to.into()), ..plain_reply(message) }
}

pub(super) async fn accept_reply(store: &TestStore, wish: NewReply, now: Time) -> ReplyResult {
    store.accept_reply(wish, now).await.unwrap()
}

/// The email that an answer becomes. It must be the first.
pub(super) fn expect_accepted(answered: ReplyResult) -> Email {
    match answered {
        ReplyResult::First(email, _) => email,
        other => panic!("{other:?}"),
    }
}

/// The answer that was there before, and what that became.
pub(super) fn expect_already_answered(answered: ReplyResult) -> (EmailId, Email) {
    match answered {
        ReplyResult::AlreadyAnswered(id, Some(email), _) => (id, email),
        other => panic!("{other:?}"),
    }
}

/// The guard that refused an answer, and the message it names.
pub(super) fn expect_refused(answered: ReplyResult) -> (Guard, Option<MessageId>) {
    match answered {
        ReplyResult::Refused(guard, newer, ..) => (guard, newer),
        other => panic!("{other:?}"),
    }
}

/// An inbox with one letter of a person.
pub(super) async fn inbox_with_message(store: &TestStore) -> (Inbox, Message) {
    let inbox = open_inbox(store, "a@d.test").await;
    let message = file_message(store, &inbox, new_message(Some(1), 1), T0).await;
    (inbox, message)
}

/// An inbox with so many letters, each in a thread of its own.
pub(super) async fn inbox_with_messages(store: &TestStore, count: u8) -> (Inbox, Vec<Message>) {
    let inbox = open_inbox(store, "a@d.test").await;
    let mut messages = Vec::new();
    for n in 1..=count {
        messages.push(file_message(store, &inbox, new_message(Some(n), n), T0).await);
    }
    (inbox, messages)
}

/// A letter that was filed.
pub(super) async fn file_message(store: &TestStore, inbox: &Inbox, letter: NewMessage, now: Time) -> Message {
    file_new(store, inbox, letter, now).await.0
}

/// The letter of this number in the thread that letter 1 began.
pub(super) fn message_in_thread_1(n: u8) -> NewMessage {
    in_reply_to(new_message(Some(n), n), &[1])
}

/// Our team's message as it is now.
pub(super) async fn load_message(store: &TestStore, id: MessageId) -> Message {
    store.message(TEAM, id).await.unwrap().unwrap()
}

/// Our team's thread as it is now.
pub(super) async fn load_thread(store: &TestStore, id: ThreadId) -> Thread {
    store.thread(TEAM, id).await.unwrap().unwrap()
}

/// A wish for a lease for an hour, by whoever shows this token.
pub(super) fn lease_request(token: &str) -> ThreadLeaseSpec {
    ThreadLeaseSpec { renew: None, token: token.into(), holder: format!("agent {token}"), ttl_ms: HOUR }
}

pub(super) async fn lease_thread(
    store: &TestStore,
    id: ThreadId,
    ask: ThreadLeaseSpec,
    now: Time,
) -> ThreadLeaseResult {
    match store.lease_thread(TEAM, id, ask, None, now).await.unwrap() {
        IdempotentResult::Done(leasing) => leasing,
        other => panic!("{other:?}"),
    }
}

/// The thread with a lease that was free.
pub(super) async fn expect_leased_thread(store: &TestStore, id: ThreadId, token: &str, now: Time) -> Thread {
    match lease_thread(store, id, lease_request(token), now).await {
        ThreadLeaseResult::Leased(thread) => thread,
        other => panic!("{other:?}"),
    }
}

/// A wish for messages for an hour, as many as there are tokens.
pub(super) fn next_request(inbox: &Inbox, tokens: &[&str]) -> MessageLeaseSpec {
    let tokens = tokens.iter().map(ToString::to_string).collect();
    MessageLeaseSpec { inbox: inbox.id, holder: "agent".into(), ttl_ms: HOUR, tokens }
}

pub(super) async fn lease_messages(store: &TestStore, ask: MessageLeaseSpec, now: Time) -> Vec<MessageOffer> {
    match store.lease_messages(TEAM, ask, None, now).await.unwrap() {
        IdempotentResult::Done(offers) => offers,
        other => panic!("{other:?}"),
    }
}

/// The numbers of the messages that are offered.
pub(super) async fn lease_message_seqs(store: &TestStore, inbox: &Inbox, tokens: &[&str], now: Time) -> Vec<u64> {
    lease_messages(store, next_request(inbox, tokens), now).await.iter().map(|offer| offer.message.seq).collect()
}

pub(super) async fn acknowledge(
    store: &TestStore,
    message: MessageId,
    token: &str,
    how: Acknowledgement,
    now: Time,
) -> AcknowledgeResult {
    store.acknowledge_message(TEAM, MessageLeaseRef { message, token_hash: token.into() }, how, now).await.unwrap()
}

/// What a message and its thread are after its holder said something.
pub(super) fn expect_acknowledged(settled: AcknowledgeResult) -> (Message, Thread) {
    match settled {
        AcknowledgeResult::Done(message, thread) => (message, thread),
        other => panic!("{other:?}"),
    }
}
