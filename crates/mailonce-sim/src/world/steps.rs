//! What the ledger commits about conversations, in the words of the history.

use super::shared::Shared;
use crate::proof::history::{Answer, Did};
use mailonce_core::{
    conversation::{
        answer::{AnswerWish, Answered},
        thread::{LeaseAsk, Leasing, Offer, Settled, Thread},
        turn::{Held, Settling, Slot},
    },
    email::Email,
    id::MessageId,
    message::Filed,
    port::store::{Accept, Once},
    time::Time,
};

/// The guard that holds an email; empty when none does.
fn guard(email: &Email) -> String {
    let held = email.state() == mailonce_core::email::EmailState::Held;
    email.guard.filter(|_| held).map(|guard| guard.word().to_owned()).unwrap_or_default()
}

fn wished(wish: &AnswerWish) -> Answer {
    Answer {
        message: wish.message.to_string(),
        slot: match &wish.slot {
            Slot::Reply(number) => format!("reply {number}"),
            Slot::Forward(to) => format!("forward {to}"),
        },
        token: wish.lease.clone(),
        seen: wish.seen.iter().map(ToString::to_string).collect(),
        key: wish.wish.head.key.as_ref().map(mailonce_core::key::KeyName::shown),
        ..Answer::default()
    }
}

fn leased(thread: &Thread, offered: Option<MessageId>) -> Option<Did> {
    let lease = thread.about.lease.as_ref()?;
    Some(Did::Leased {
        thread: thread.id.to_string(),
        token: lease.token.clone(),
        until: lease.expires_at.0,
        fence: thread.about.fence,
        offered: offered.map(|id| id.to_string()),
    })
}

impl Shared {
    pub(super) fn answered(&self, wish: &AnswerWish, answered: &Answered, now: Time) {
        let wish = wished(wish);
        let did = match answered {
            Answered::First(email, _) => {
                Did::Answered(Answer { email: email.id.to_string(), guard: guard(email), ..wish })
            }
            Answered::Already(email, ..) => {
                Did::Again { message: wish.message, slot: wish.slot, email: email.to_string() }
            }
            Answered::Refused(guard, ..) => Did::Refused { guard: guard.word().to_owned(), wish },
            Answered::Bound(_) | Answered::OverBudget(_) | Answered::Missing => return,
        };
        self.step(did, now);
    }

    pub(super) fn leased(&self, ask: &LeaseAsk, leasing: &Once<Leasing>, now: Time) {
        let Once::Done(Leasing::Taken(thread)) = leasing else { return };
        let did = match &ask.renew {
            Some(token) => {
                let until = now.plus(ask.ttl_ms).0;
                Some(Did::Extended { thread: thread.id.to_string(), token: token.clone(), until })
            }
            None => leased(thread, None),
        };
        did.into_iter().for_each(|did| self.step(did, now));
    }

    pub(super) fn offered(&self, offers: &Once<Vec<Offer>>, now: Time) {
        let Once::Done(offers) = offers else { return };
        for offer in offers {
            leased(&offer.thread, Some(offer.message.id)).into_iter().for_each(|did| self.step(did, now));
        }
    }

    pub(super) fn released(&self, thread: &Thread, token: &str, now: Time) {
        self.step(Did::Released { thread: thread.id.to_string(), token: token.to_owned() }, now);
    }

    pub(super) fn settled(&self, held: &Held, how: Settling, settled: &Settled, now: Time) {
        let Settled::Done(message, thread) = settled else { return };
        let (message, thread, token) = (message.id.to_string(), thread.id.to_string(), held.token.clone());
        let released = Did::Released { thread: thread.clone(), token: token.clone() };
        match how {
            Settling::Extend { ttl_ms } => self.step(Did::Extended { thread, token, until: now.plus(ttl_ms).0 }, now),
            Settling::Ack => {
                self.step(released, now);
                self.step(Did::Acked(message), now);
            }
            Settling::Nack { delay_ms } => {
                self.step(released, now);
                self.step(Did::PutOff(message, now.plus(delay_ms).0), now);
            }
        }
    }

    pub(super) fn filed(&self, filed: &Filed, now: Time) {
        let Filed::New(message, _) = filed else { return };
        let did = Did::Came {
            message: message.id.to_string(),
            thread: message.thread.to_string(),
            seq: message.seq,
            message_id: message.head.message_id.clone().unwrap_or_default(),
        };
        self.step(did, now);
    }

    pub(super) fn accepted(&self, accept: &Accept, now: Time) {
        if let Accept::First(email) = accept
            && email.head.key.is_none()
        {
            self.step(Did::Keyless { email: email.id.to_string(), guard: guard(email) }, now);
        }
    }
}
