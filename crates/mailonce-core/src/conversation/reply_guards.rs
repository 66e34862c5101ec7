//! The guards that a reply or a forward passes inside the accept transaction, in this order.

use serde_json::json;

use super::{
    caps::{RecentReplyTimes, ReplyCaps, recipient_hash},
    thread::Thread,
};
use crate::{
    control::budget::ExceededBudget,
    events::event::{EventKind, NewEvent},
    id::{EmailId, MessageId},
    inbox::{
        message::{Message, MessageState},
        progress::{MAX_ANSWERS, ReplySlot},
    },
    mutant,
    outbound::{
        accept::NewEmail,
        email::{Email, EmailState, Guard},
        key_binding::KeyBinding,
    },
    time::Time,
};

/// A new reply or forward, to be accepted.
#[derive(Clone, Debug)]
pub struct NewReply {
    /// The email. Its head names the thread and the message.
    pub email: NewEmail,
    /// The message that it replies to.
    pub message: MessageId,
    /// The reply slot that it takes. Each slot of a message is taken once.
    pub slot: ReplySlot,
    /// The token hash of the sender's lease.
    pub lease_token_hash: Option<String>,
    /// Newer messages that the sender has seen.
    pub seen: Vec<MessageId>,
    /// Whether policy allows replies to messages with only soft signs of being automatic.
    pub may_answer_soft_automatic: bool,
    /// The limits.
    pub caps: ReplyCaps,
    /// Whether all its recipients belong to its own team.
    pub is_to_own_team: bool,
    /// The hash by which replies to the same person are counted. `None` when it is not counted.
    pub recipient_hash: Option<[u8; 16]>,
}

/// What the ledger knows about a reply.
#[derive(Clone, Debug)]
pub struct ReplyContext {
    /// The message.
    pub message: Message,
    /// Its thread.
    pub thread: Thread,
    /// The email that took the slot, in the version chosen by [`effective_version`]. `None` when the slot is free or
    /// the email was deleted.
    pub previous_reply: Option<Email>,
    /// The recent replies to the same person.
    pub recipient_tally: RecentReplyTimes,
}

/// Of a reply and its next version, the one that counts: the later, unless that surely was not sent and the earlier may
/// have been.
pub fn effective_version(earlier: Email, later: Email) -> Email {
    let left = is_surely_unsent(&later) && !is_surely_unsent(&earlier) && !mutant!("earlier-version-forgotten");
    if left { earlier } else { later }
}

/// Whether surely nothing of a reply was sent, so that its message can be answered again.
pub fn is_surely_unsent(email: &Email) -> bool {
    email.is_surely_unsent() || (mutant!("slot-freed-in-doubt") && email.state() == EmailState::Unknown)
}

/// Whether a held reply may be sent now, itself or in a changed version.
fn is_released(before: &Email, after: &Email) -> bool {
    !counts(before) && counts(after) && !is_surely_unsent(after)
}

/// Whether a reply counts: when it may be sent without a person, because nothing holds it, its sender may release it, or
/// it leaves by itself when a budget has room.
fn counts(email: &Email) -> bool {
    let needs_person = !email.holds.without(Guard::LooksDuplicate).without(Guard::Budget).is_empty();
    email.state() != EmailState::Held || !needs_person || mutant!("held-answer-counted")
}

/// The message to reassess after a change of an email or of its next version. That is needed when the email became
/// surely unsent, or is so no longer, or was released.
pub fn message_to_reassess(before: &Email, after: &Email) -> Option<MessageId> {
    after.head.answers.filter(|_| is_surely_unsent(before) != is_surely_unsent(after) || is_released(before, after))
}

/// The recipient of an email that counts only now, because a person released it. A forward counts for no recipient.
/// `None` when it does not count.
pub fn recipient_counted_on_release(message: &Message, before: &Email, after: &Email) -> Option<Option<[u8; 16]>> {
    if !is_released(before, after) {
        return None;
    }
    let forwards = |(slot, id): &(ReplySlot, EmailId)| *id == before.id && matches!(slot, ReplySlot::Forward(_));
    if message.annotations.progress.answers.iter().any(forwards) {
        return Some(None);
    }
    let wanted = message.head.reply_to.first().or(message.head.from.as_ref());
    let is_wanted = |to: &&String| wanted.is_some_and(|party| party.address.eq_ignore_ascii_case(to));
    let to = &after.head.to;
    Some(to.iter().find(is_wanted).or(to.first()).map(|to| recipient_hash(to)))
}

/// Reassesses a message by its replies, each in the version chosen by [`effective_version`]. A message whose replies
/// were all surely not sent is open again; it is answered again when one of them may have been sent. Nothing is known
/// about deleted replies, so they count as neither.
pub fn reassess_message(
    message: &mut Message,
    answers: &[Option<Email>],
    changed: EmailId,
    now: Time,
) -> Option<NewEvent> {
    let unsent = |answer: &Option<Email>| answer.as_ref().is_some_and(is_surely_unsent);
    let left = |answer: &Option<Email>| answer.as_ref().is_some_and(|email| !is_surely_unsent(email));
    if !message.is_visible() {
        return None;
    }
    let kind = match message.state {
        MessageState::Answered if !answers.is_empty() && answers.iter().all(unsent) => EventKind::MessageReopened,
        MessageState::Unanswered if answers.iter().any(left) => EventKind::MessageAnswered,
        _ => return None,
    };
    if mutant!("unsent-answer-stands") {
        return None;
    }
    message.rev += 1;
    message.state = if kind == EventKind::MessageReopened { MessageState::Unanswered } else { MessageState::Answered };
    Some(message.to_event(kind, json!({ "email": changed }), now))
}

/// The result of accepting a reply.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum ReplyResult {
    /// It was accepted, perhaps held.
    First(Email, Thread),
    /// Its key was bound before.
    KeyBound(KeyBinding),
    /// This email has taken the slot before. The email is `None` when it was deleted.
    AlreadyAnswered(EmailId, Option<Email>, Thread),
    /// A guard refused it. For [`Guard::NewerMessage`], with the message that the sender has not seen.
    Refused(Guard, Option<MessageId>, Message, Thread),
    /// It would exceed a budget. Nothing was written.
    OverBudget(ExceededBudget),
    /// No such message in this team.
    Missing,
}

/// The decision of the guards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyVerdict {
    /// Accept it. With a guard: hold it.
    Accept(Option<Guard>),
    /// This email already replied.
    AlreadyAnswered(EmailId),
    /// Refuse it.
    Refuse(Guard, Option<MessageId>),
}

/// What the sender of a reply holds and has seen.
#[derive(Clone, Copy, Debug)]
pub struct ReplyAuthor<'a> {
    /// The token hash of its lease.
    pub lease_token_hash: Option<&'a str>,
    /// Newer messages that it has seen.
    pub seen: &'a [MessageId],
    /// Whether it is a reply. New messages do not matter to a forward.
    pub is_reply: bool,
}

impl ReplyAuthor<'_> {
    /// The guard that refuses it because of something that happened in the thread in the meantime.
    pub fn find_conflict(&self, message: &Message, thread: &Thread, now: Time) -> Option<(Guard, Option<MessageId>)> {
        if !self.may_reply(thread, now) {
            return Some((Guard::Leased, None));
        }
        let newer = thread.unseen_messages(message.seq, self.seen).next();
        let newer = newer.filter(|_| self.is_reply)?;
        Some((Guard::NewerMessage, Some(newer)))
    }

    /// Whether no other agent holds the thread, and the sender did not lose it to another agent.
    fn may_reply(&self, thread: &Thread, now: Time) -> bool {
        match self.lease_token_hash {
            Some(token) => thread.is_latest_token(token),
            None => thread.active_lease(now).is_none(),
        }
    }
}

impl NewReply {
    /// Runs every guard, in order.
    pub fn check_guards(&self, ground: &ReplyContext, now: Time) -> ReplyVerdict {
        let verdict = self.run_guards(ground, now);
        #[cfg(feature = "failpoints")]
        let verdict = super::mutants::alter_verdict(self, verdict);
        verdict
    }

    fn run_guards(&self, ground: &ReplyContext, now: Time) -> ReplyVerdict {
        let refuse = |guard| ReplyVerdict::Refuse(guard, None);
        if self.is_refused_by(&ground.message, Guard::Itself) {
            return refuse(Guard::Itself);
        }
        if self.is_refused_by(&ground.message, Guard::Automatic) {
            return refuse(Guard::Automatic);
        }
        if let Some(email) = self.slot_taken_by(ground) {
            return ReplyVerdict::AlreadyAnswered(email);
        }
        let reader = ReplyAuthor {
            lease_token_hash: self.lease_token_hash.as_deref(),
            seen: &self.seen,
            is_reply: self.is_reply(),
        };
        if let Some((guard, newer)) = reader.find_conflict(&ground.message, &ground.thread, now) {
            return ReplyVerdict::Refuse(guard, newer);
        }
        let caps = self.caps.are_exceeded(
            &ground.thread.details.sends,
            ground.thread.details.sent,
            &ground.recipient_tally,
            now,
        );
        ReplyVerdict::Accept(caps.then_some(Guard::Cap))
    }

    fn is_reply(&self) -> bool {
        matches!(self.slot, ReplySlot::Reply(_))
    }

    /// A forward goes to another person, so these properties of the message do not matter to it.
    fn is_refused_by(&self, message: &Message, guard: Guard) -> bool {
        let head = &message.head;
        self.is_reply()
            && match guard {
                Guard::Itself => head.own.is_some() || self.is_to_own_team,
                _ => head.automatic.as_ref().is_some_and(|(_, hard)| *hard || !self.may_answer_soft_automatic),
            }
    }

    /// The email that took the slot, unless that surely was not sent. Of a deleted email only the id is known.
    fn slot_taken_by(&self, ground: &ReplyContext) -> Option<EmailId> {
        let turn = &ground.message.annotations.progress;
        let taken = turn.answered_by(&self.slot);
        if taken.is_none() && turn.answers.len() >= MAX_ANSWERS {
            return turn.answers.last().map(|(_, email)| *email);
        }
        taken.filter(|_| !ground.previous_reply.as_ref().is_some_and(is_surely_unsent))
    }

    /// Applies an accepted reply to message, thread and tally, and returns the events.
    pub fn apply(&self, ground: &mut ReplyContext, email: &Email, now: Time) -> Vec<NewEvent> {
        let counts = counts(email);
        let mut events = vec![ground.message.record_answer(self.slot.clone(), email.id, now)];
        ground.thread.add_email(counts, now);
        if counts {
            ground.recipient_tally.record(now);
        } else if email.holds.contains(Guard::Cap) {
            events.push(ground.thread.to_event(EventKind::ThreadCapReached, json!({ "email": email.id }), now));
        }
        events
    }

    /// The event of a refusal.
    pub fn refusal_event(&self, guard: Guard, ground: &ReplyContext, now: Time) -> NewEvent {
        let holder = ground.thread.active_lease(now).map(|lease| &lease.holder);
        let data = json!({ "guard": guard, "holder": holder, "fence": ground.thread.details.fence });
        ground.message.to_event(EventKind::ReplyRefused, data, now)
    }
}
