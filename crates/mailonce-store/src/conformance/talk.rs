//! Steps of conversations: messages that are answered, threads that are leased, messages that are offered.

use mailonce_core::{
    conversation::{
        answer::{AnswerWish, Answered},
        caps::Caps,
        thread::{LeaseAsk, Leasing, NextAsk, Offer, Settled, Thread},
        turn::{Held, Settling, Slot},
    },
    email::{Email, Guard},
    id::{EmailId, MessageId, ThreadId},
    inbox::Inbox,
    message::{Message, NewMessage},
    port::store::Once,
    time::Time,
};

use super::{
    Draft, HOUR, Ledger, MINUTE, T0, TEAM, keyless,
    post::{answering, filed, letter, open},
};

/// Caps that nothing here reaches.
pub(super) const LOOSE: Caps =
    Caps { per_window: 1_000, window_ms: MINUTE, per_day: 1_000, per_person: 1_000, per_thread: None };

/// A draft as the first answer of a message, with nothing said about leases, newer messages or people.
pub(super) fn answers(message: &Message, draft: &Draft, now: Time) -> AnswerWish {
    let mut wish = draft.clone().team(message.team).wish(now);
    (wish.head.answers, wish.head.thread) = (Some(message.id), Some(message.thread));
    AnswerWish {
        wish,
        message: message.id,
        slot: Slot::Reply(0),
        lease: None,
        seen: Vec::new(),
        answers_soft: false,
        to_itself: false,
        caps: LOOSE,
        person: None,
    }
}

/// An answer without a key.
pub(super) fn reply(message: &Message) -> AnswerWish {
    answers(message, &keyless(), T0)
}

/// A message passed on to some people.
pub(super) fn forward(message: &Message, to: &str) -> AnswerWish {
    AnswerWish { slot: Slot::Forward(to.into()), ..reply(message) }
}

pub(super) async fn answer(store: &Ledger, wish: AnswerWish, now: Time) -> Answered {
    store.answer(wish, now).await.unwrap()
}

/// The email that an answer becomes. It must be the first.
pub(super) fn went(answered: Answered) -> Email {
    match answered {
        Answered::First(email, _) => email,
        other => panic!("{other:?}"),
    }
}

/// The answer that was there before, and what that became.
pub(super) fn before(answered: Answered) -> (EmailId, Email) {
    match answered {
        Answered::Already(id, Some(email), _) => (id, email),
        other => panic!("{other:?}"),
    }
}

/// The guard that refused an answer, and the message it names.
pub(super) fn refused(answered: Answered) -> (Guard, Option<MessageId>) {
    match answered {
        Answered::Refused(guard, newer, ..) => (guard, newer),
        other => panic!("{other:?}"),
    }
}

/// An inbox with one letter of a person.
pub(super) async fn letter_in(store: &Ledger) -> (Inbox, Message) {
    let inbox = open(store, "a@d.test").await;
    let message = came(store, &inbox, letter(Some(1), 1), T0).await;
    (inbox, message)
}

/// An inbox with so many letters, each in a thread of its own.
pub(super) async fn letters_in(store: &Ledger, count: u8) -> (Inbox, Vec<Message>) {
    let inbox = open(store, "a@d.test").await;
    let mut messages = Vec::new();
    for n in 1..=count {
        messages.push(came(store, &inbox, letter(Some(n), n), T0).await);
    }
    (inbox, messages)
}

/// A letter that was filed.
pub(super) async fn came(store: &Ledger, inbox: &Inbox, letter: NewMessage, now: Time) -> Message {
    filed(store, inbox, letter, now).await.0
}

/// The letter of this number in the thread that letter 1 began.
pub(super) fn next_letter(n: u8) -> NewMessage {
    answering(letter(Some(n), n), &[1])
}

/// Our team's message as it is now.
pub(super) async fn the_message(store: &Ledger, id: MessageId) -> Message {
    store.message(TEAM, id).await.unwrap().unwrap()
}

/// Our team's thread as it is now.
pub(super) async fn the_thread(store: &Ledger, id: ThreadId) -> Thread {
    store.thread(TEAM, id).await.unwrap().unwrap()
}

/// A wish for a lease for an hour, by whoever shows this token.
pub(super) fn asks(token: &str) -> LeaseAsk {
    LeaseAsk { renew: None, token: token.into(), holder: format!("agent {token}"), ttl_ms: HOUR }
}

pub(super) async fn lease(store: &Ledger, id: ThreadId, ask: LeaseAsk, now: Time) -> Leasing {
    match store.lease_thread(TEAM, id, ask, None, now).await.unwrap() {
        Once::Done(leasing) => leasing,
        other => panic!("{other:?}"),
    }
}

/// The thread with a lease that was free.
pub(super) async fn leased(store: &Ledger, id: ThreadId, token: &str, now: Time) -> Thread {
    match lease(store, id, asks(token), now).await {
        Leasing::Taken(thread) => thread,
        other => panic!("{other:?}"),
    }
}

/// A wish for messages for an hour, as many as there are tokens.
pub(super) fn wants(inbox: &Inbox, tokens: &[&str]) -> NextAsk {
    let tokens = tokens.iter().map(ToString::to_string).collect();
    NextAsk { inbox: inbox.id, holder: "agent".into(), ttl_ms: HOUR, tokens }
}

pub(super) async fn next(store: &Ledger, ask: NextAsk, now: Time) -> Vec<Offer> {
    match store.next_messages(TEAM, ask, None, now).await.unwrap() {
        Once::Done(offers) => offers,
        other => panic!("{other:?}"),
    }
}

/// The numbers of the messages that are offered.
pub(super) async fn offered(store: &Ledger, inbox: &Inbox, tokens: &[&str], now: Time) -> Vec<u64> {
    next(store, wants(inbox, tokens), now).await.iter().map(|offer| offer.message.seq).collect()
}

pub(super) async fn settle(store: &Ledger, message: MessageId, token: &str, how: Settling, now: Time) -> Settled {
    store.settle_message(TEAM, Held { message, token: token.into() }, how, now).await.unwrap()
}

/// What a message and its thread are after its holder said something.
pub(super) fn done(settled: Settled) -> (Message, Thread) {
    match settled {
        Settled::Done(message, thread) => (message, thread),
        other => panic!("{other:?}"),
    }
}
