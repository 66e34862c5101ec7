//! The conditions under which a reply is accepted: its lease, and what its author has seen of the thread.

use crate::{outbound::Outbound, runtime::problems::unavailable};
use mailonce_core::{
    conversation::{reply_guards::ReplyAuthor, thread::Thread},
    id::MessageId,
    inbox::{message::Message, progress::ReplySlot},
    outbound::email::Guard,
    problem::{Code, Problem},
    time::Time,
};
use sha2::{Digest as _, Sha256};

/// The conditions of a reply: its slot, its lease and the messages that its author has seen.
pub(crate) struct ReplyTerms {
    pub(crate) slot: ReplySlot,
    pub(crate) lease: Option<String>,
    pub(crate) seen: Vec<MessageId>,
    pub(crate) is_to_self: bool,
    pub(crate) person_hash: Option<[u8; 16]>,
    /// The guard that flags the reply without holding it.
    pub(crate) flag: Option<Guard>,
}

/// The hash of a lease token. Only the hash is stored.
pub(crate) fn lease_token_hash(token: &str) -> String {
    crate::runtime::hex::hex(&Sha256::digest(token.as_bytes()))
}

/// The problem for a caller without the current lease of a thread.
pub(crate) fn leased_problem(thread: &Thread, now: Time) -> Problem {
    let lease = thread.active_lease(now);
    let detail = match lease {
        Some(lease) => format!("the thread is held by {} until {}", lease.holder, lease.expires_at),
        None => "this token does not belong to the current lease of the thread; lease the thread again".to_owned(),
    };
    Problem::new(Code::Leased, detail)
        .with_extension("holder", lease.map(|lease| lease.holder.clone()))
        .with_extension("expires_at", lease.map(|lease| lease.expires_at.to_string()))
        .with_extension("fence", thread.details.fence)
        .with_extension("thread", thread.id.to_string())
}

pub(crate) fn guard_problem(
    guard: Guard,
    newer: Option<MessageId>,
    message: &Message,
    thread: &Thread,
    now: Time,
) -> Problem {
    let problem = match guard {
        Guard::Itself => {
            let (why, detail) = match &message.head.own {
                Some(why) => (why.as_str(), format!("the message {} is your own ({why})", message.id)),
                None => ("recipients", format!("a reply to the message {} would go only to your own team", message.id)),
            };
            Problem::new(Code::Itself, detail).with_extension("reason", why)
        }
        Guard::Automatic => {
            let (why, hard) = message.head.automatic.clone().unwrap_or_default();
            let detail = format!("the message {} is automatic ({why})", message.id);
            Problem::new(Code::Automatic, detail).with_extension("reason", why).with_extension("overridable", !hard)
        }
        Guard::NewerMessage => {
            let newer = newer.map(|id| id.to_string()).unwrap_or_default();
            let detail = format!("the thread has a newer message {newer}");
            Problem::new(Code::NewerMessage, detail).with_extension("message", newer)
        }
        _ => leased_problem(thread, now),
    };
    problem
        .with_extension("guard", guard.as_str())
        .with_extension("fence", thread.details.fence)
        .with_extension("thread", thread.id.to_string())
}

impl Outbound {
    /// Refuses to release a held reply when another agent holds its thread, or newer messages arrived.
    pub(crate) async fn check_thread_unchanged(&self, message: &Message, terms: &ReplyTerms) -> Result<(), Problem> {
        let Some(thread) = self.ctx.store.thread(message.team, message.thread).await.map_err(unavailable)? else {
            return Ok(());
        };
        let (lease, now) = (terms.lease.as_deref().map(lease_token_hash), self.ctx.now());
        let is_reply = matches!(terms.slot, ReplySlot::Reply(_));
        let author = ReplyAuthor { lease_token_hash: lease.as_deref(), seen: &terms.seen, is_reply };
        match author.find_conflict(message, &thread, now) {
            Some((guard, newer)) => Err(guard_problem(guard, newer, message, &thread, now)),
            None => Ok(()),
        }
    }
}
