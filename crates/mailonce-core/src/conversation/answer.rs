//! The guards that a reply or a forward passes inside the accept transaction, in their order.

use serde_json::json;

use super::{
    caps::{Caps, Tally, person_hash},
    thread::Thread,
    turn::{ANSWERS, Slot},
};
use crate::{
    control::budget::Overrun,
    email::{Email, EmailState, Guard},
    event::{Kind, NewEvent},
    id::{EmailId, MessageId},
    message::{Message, MessageState},
    mutant,
    port::store::{Bound, Wish},
    time::Time,
};

/// An answer that wants to be accepted.
#[derive(Clone, Debug)]
pub struct AnswerWish {
    /// The email that it becomes. Its head names the thread and the message.
    pub wish: Wish,
    /// The message it answers.
    pub message: MessageId,
    /// What of the message it takes.
    pub slot: Slot,
    /// The hash of the token of the lease that its writer holds.
    pub lease: Option<String>,
    /// Newer messages that its writer knows of.
    pub seen: Vec<MessageId>,
    /// Whether policy lets soft signs of a machine be answered.
    pub answers_soft: bool,
    /// The limits.
    pub caps: Caps,
    /// Whether nobody but its own team would get it.
    pub to_itself: bool,
    /// The hash under which answers to the same person are counted; none when it is not counted.
    pub person: Option<[u8; 16]>,
}

/// What the ledger has to say about an answer.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The message.
    pub message: Message,
    /// Its thread.
    pub thread: Thread,
    /// The email that took the slot, in the version that [`standing`] says; none when the slot is free or the email is
    /// gone for good.
    pub before: Option<Email>,
    /// Answers to the same person.
    pub person: Tally,
}

/// Of an answer and its next version the one that counts: the later, unless that surely never left and the earlier may
/// have.
pub fn standing(earlier: Email, later: Email) -> Email {
    let left = is_unsent(&later) && !is_unsent(&earlier) && !mutant!("earlier-version-forgotten");
    if left { earlier } else { later }
}

/// Whether nothing of an email can have left.
pub fn is_unsent(email: &Email) -> bool {
    matches!(email.state(), EmailState::Failed | EmailState::Cancelled)
        || (mutant!("slot-freed-in-doubt") && email.state() == EmailState::Unknown)
}

/// Whether an answer that was held may leave now, itself or in other words.
fn is_let_go(before: &Email, after: &Email) -> bool {
    let held = |email: &Email| email.state() == EmailState::Held;
    held(before) && !counted_at_once(before) && !held(after) && !is_unsent(after)
}

/// Whether an answer counts as soon as it is accepted: when it may leave, or its own sender may say that it does.
fn counted_at_once(email: &Email) -> bool {
    email.state() != EmailState::Held || email.guard == Some(Guard::LooksDuplicate) || mutant!("held-answer-counted")
}

/// The message that is to be looked at again because of what became of an email, or of its next version: it is as good
/// as unwritten now and was not before, or the other way round, or it may leave after all.
pub fn turns(before: &Email, after: &Email) -> Option<MessageId> {
    after.head.answers.filter(|_| is_unsent(before) != is_unsent(after) || is_let_go(before, after))
}

/// Who is answered by an email that is counted only now, because a person let it go. For a forward there is nobody to
/// count it for. `None` when it counts for nothing.
pub fn counts_now(message: &Message, before: &Email, after: &Email) -> Option<Option<[u8; 16]>> {
    if !is_let_go(before, after) {
        return None;
    }
    let forwards = |(slot, id): &(Slot, EmailId)| *id == before.id && matches!(slot, Slot::Forward(_));
    if message.marks.turn.answers.iter().any(forwards) {
        return Some(None);
    }
    let wanted = message.head.reply_to.first().or(message.head.from.as_ref());
    let is_wanted = |to: &&String| wanted.is_some_and(|party| party.address.eq_ignore_ascii_case(to));
    let to = &after.head.to;
    Some(to.iter().find(is_wanted).or(to.first()).map(|to| person_hash(to)))
}

/// Weighs what answered a message, each answer in the version that [`standing`] says; an answer that is long gone says
/// nothing. A message whose answers all surely never left is open again, and no longer when one left after all.
pub fn weigh(message: &mut Message, answers: &[Option<Email>], changed: EmailId, now: Time) -> Option<NewEvent> {
    let unsent = |answer: &Option<Email>| answer.as_ref().is_some_and(is_unsent);
    let left = |answer: &Option<Email>| answer.as_ref().is_some_and(|email| !is_unsent(email));
    let kind = match message.state {
        MessageState::Answered if !answers.is_empty() && answers.iter().all(unsent) => Kind::MessageReopened,
        MessageState::Unanswered if answers.iter().any(left) => Kind::MessageAnswered,
        _ => return None,
    };
    if mutant!("unsent-answer-stands") {
        return None;
    }
    message.rev += 1;
    message.state = if kind == Kind::MessageReopened { MessageState::Unanswered } else { MessageState::Answered };
    Some(message.told(kind, json!({ "email": changed }), now))
}

/// The answer to an answer.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Answered {
    /// It was the first; this is what it became, perhaps held.
    First(Email, Thread),
    /// Its key was bound before.
    Bound(Bound),
    /// The message was answered before, by this, and this is what that became; `None` when it is long gone.
    Already(EmailId, Option<Email>, Thread),
    /// A guard refuses it. For [`Guard::NewerMessage`] the message that was not seen.
    Refused(Guard, Option<MessageId>, Message, Thread),
    /// It would exceed a budget. Nothing was written.
    OverBudget(Overrun),
    /// No such message in this team.
    Missing,
}

/// What the guards say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Accept it; hold it if a guard is named.
    Accept(Option<Guard>),
    /// It was answered by this email.
    Already(EmailId),
    /// Refuse it.
    Refuse(Guard, Option<MessageId>),
}

/// What the writer of an answer holds and knows of.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// The hash of the token of its lease.
    pub lease: Option<&'a str>,
    /// Newer messages that it knows of.
    pub seen: &'a [MessageId],
    /// Whether it replies; a forward has nothing to do with what people write meanwhile.
    pub replies: bool,
}

impl Reader<'_> {
    /// What happened in the thread that it had to know of before it may answer.
    pub fn is_late(&self, message: &Message, thread: &Thread, now: Time) -> Option<(Guard, Option<MessageId>)> {
        if !self.may_work(thread, now) && !mutant!("thread-lease-ignored") {
            return Some((Guard::Leased, None));
        }
        let newer = thread.unseen(message.seq, self.seen).next();
        let newer = newer.filter(|_| self.replies && !mutant!("newer-message-ignored"))?;
        Some((Guard::NewerMessage, Some(newer)))
    }

    /// Whether no other agent works on the thread, and this one did not lose it to another.
    fn may_work(&self, thread: &Thread, now: Time) -> bool {
        match self.lease {
            Some(token) => thread.is_latest(token) || mutant!("lost-lease-obeyed"),
            None => thread.lease_at(now).is_none(),
        }
    }
}

impl AnswerWish {
    /// Asks every guard, in order.
    pub fn judge(&self, ground: &Ground, now: Time) -> Judged {
        let refuse = |guard| Judged::Refuse(guard, None);
        if self.is_stopped(&ground.message, Guard::Itself) {
            return refuse(Guard::Itself);
        }
        if self.is_stopped(&ground.message, Guard::Automatic) {
            return refuse(Guard::Automatic);
        }
        if let Some(email) = self.taken(ground) {
            return Judged::Already(email);
        }
        let reader = Reader { lease: self.lease.as_deref(), seen: &self.seen, replies: self.is_reply() };
        if let Some((guard, newer)) = reader.is_late(&ground.message, &ground.thread, now) {
            return Judged::Refuse(guard, newer);
        }
        let caps = self.caps.are_reached((&ground.thread.about.sends, ground.thread.about.sent), &ground.person, now);
        let cap = (caps && !mutant!("cap-ignored")).then_some(Guard::Cap);
        Judged::Accept(cap)
    }

    fn is_reply(&self) -> bool {
        matches!(self.slot, Slot::Reply(_))
    }

    /// A forward goes to somebody else, so what the message itself is does not matter.
    fn is_stopped(&self, message: &Message, guard: Guard) -> bool {
        let head = &message.head;
        self.is_reply()
            && match guard {
                Guard::Itself => (head.own.is_some() || self.to_itself) && !mutant!("own-mail-answered"),
                _ => head
                    .automatic
                    .as_ref()
                    .is_some_and(|(_, hard)| (*hard || !self.answers_soft) && !mutant!("automatic-mail-answered")),
            }
    }

    /// What took the slot, unless that surely never left. Of an email that is long gone only its id is known.
    fn taken(&self, ground: &Ground) -> Option<EmailId> {
        let turn = &ground.message.marks.turn;
        let taken = turn.answered_by(&self.slot).filter(|_| !mutant!("answered-twice"));
        if taken.is_none() && turn.answers.len() >= ANSWERS {
            return turn.answers.last().map(|(_, email)| *email);
        }
        taken.filter(|_| !ground.before.as_ref().is_some_and(is_unsent))
    }

    /// What an accepted answer changes besides its own rows: message, thread, tally; and what is told of it.
    pub fn apply(&self, ground: &mut Ground, email: &Email, now: Time) -> Vec<NewEvent> {
        let counts = counted_at_once(email);
        let mut events = vec![ground.message.answer(self.slot.clone(), email.id, now)];
        ground.thread.add_email(counts, now);
        if counts {
            ground.person.count(now);
        } else if email.guard == Some(Guard::Cap) {
            events.push(ground.thread.told(Kind::ThreadCap, json!({ "email": email.id }), now));
        }
        events
    }

    /// What is told of a refusal.
    pub fn refused(&self, guard: Guard, ground: &Ground, now: Time) -> NewEvent {
        let holder = ground.thread.lease_at(now).map(|lease| &lease.holder);
        let data = json!({ "guard": guard, "holder": holder, "fence": ground.thread.about.fence });
        ground.message.told(Kind::ReplyRefused, data, now)
    }
}
