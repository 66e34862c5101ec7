//! Conversations: threads, answers and leases, as plain maps.

use async_trait::async_trait;
use mailonce_core::{
    conversation::{
        answer::{self, AnswerWish, Answered, Ground, Judged},
        caps::Tally,
        likeness::{self, Likeness},
        thread::{LeaseAsk, Leasing, NextAsk, Offer, Settled, Thread, ThreadEdit, ThreadQuery},
        turn::{Held, Settling},
    },
    email::{Email, EmailState},
    handoff::State,
    id::{EmailId, InboxId, MessageId, TeamId, ThreadId},
    message::Message,
    mutant,
    port::{
        conversations::Conversations,
        store::{Accept, Once, Operation, Result, Wish},
    },
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};

use super::{Memory, World};

/// Everything about conversations.
#[derive(Default)]
pub(super) struct Talk {
    pub(super) threads: BTreeMap<ThreadId, Thread>,
    pub(super) emails: BTreeMap<ThreadId, BTreeSet<EmailId>>,
    pub(super) people: BTreeMap<(TeamId, [u8; 16]), Tally>,
    /// What was said between the same people of late, oldest first.
    pub(super) likenesses: BTreeMap<(TeamId, [u8; 16]), Vec<(Time, EmailId, Likeness)>>,
}

impl World {
    fn answer(&mut self, wish: AnswerWish, now: Time) -> Answered {
        let team = wish.wish.team;
        if let Some(bound) = wish.wish.key.and_then(|key| self.bound(team, key, now)) {
            return Answered::Bound(bound);
        }
        let Some(mut ground) = self.answer_ground(&wish, now) else { return Answered::Missing };
        match wish.judge(&ground, now) {
            Judged::Refuse(guard, newer) => {
                let event = wish.refused(guard, &ground, now);
                self.events.entry(team).or_default().extend(Some(event).filter(|_| !mutant!("refusal-untold")));
                Answered::Refused(guard, newer, ground.message, ground.thread)
            }
            Judged::Already(id) => Answered::Already(id, ground.before, ground.thread),
            Judged::Accept(guard) => {
                let mut inner = wish.wish.clone();
                inner.care.hold = guard.or(inner.care.hold);
                match self.accept(inner, now) {
                    Accept::First(email) => self.answered(&wish, &mut ground, email, now),
                    Accept::Bound(bound) => Answered::Bound(bound),
                    Accept::OverBudget(exceeded) => Answered::OverBudget(exceeded),
                }
            }
        }
    }

    fn answer_ground(&self, wish: &AnswerWish, now: Time) -> Option<Ground> {
        let team = wish.wish.team;
        let message = self.message(team, wish.message)?;
        let thread = self.thread_of(&message, now);
        let before = message.marks.turn.answered_by(&wish.slot).and_then(|id| self.standing_version(team, id));
        let person = wish.person.and_then(|person| self.talk.people.get(&(team, person)).cloned()).unwrap_or_default();
        Some(Ground { message, thread, before, person })
    }

    /// The email, or what it was sent again as, whichever counts.
    fn standing_version(&self, team: TeamId, id: EmailId) -> Option<Email> {
        let email = self.of_team(team, id)?;
        let later = email
            .resent_as
            .filter(|_| !mutant!("later-version-forgotten"))
            .and_then(|id| self.standing_version(team, id));
        Some(match later {
            Some(later) => answer::standing(email, later),
            None => email,
        })
    }

    fn answered(&mut self, wish: &AnswerWish, ground: &mut Ground, email: Email, now: Time) -> Answered {
        let team = wish.wish.team;
        let events = wish.apply(ground, &email, now);
        self.events.entry(team).or_default().extend(events.into_iter().filter(|_| !mutant!("answer-untold")));
        self.inbound.messages.insert(ground.message.id, ground.message.clone());
        self.talk.threads.insert(ground.thread.id, ground.thread.clone());
        self.talk.emails.entry(ground.thread.id).or_default().insert(email.id);
        if let Some(person) = wish.person {
            self.talk.people.insert((team, person), ground.person.clone());
        }
        Answered::First(email, ground.thread.clone())
    }

    /// Whether an email is still a version of what answered its message. True when it answers none.
    pub(super) fn still_answers(&self, email: &Email) -> bool {
        let Some(message) = email.head.answers.and_then(|id| self.message(email.team, id)) else { return true };
        let is_version = |first: EmailId| {
            let next = |id: &EmailId| self.emails.get(id).and_then(|email| email.resent_as);
            std::iter::successors(Some(first), next).any(|id| id == email.id)
        };
        message.marks.turn.answers.iter().any(|(_, first)| is_version(*first))
    }

    /// Whose turn the message is that an email answers, now that the email is another.
    pub(super) fn turn_over(&mut self, before: &Email, after: &Email, now: Time) {
        let Some(mut message) = answer::turns(before, after).and_then(|id| self.message(after.team, id)) else {
            return;
        };
        if let Some(person) = answer::counts_now(&message, before, after) {
            let mut thread = self.thread_of(&message, now);
            thread.let_go(now);
            self.talk.threads.insert(thread.id, thread);
            if let Some(person) = person {
                self.talk.people.entry((after.team, person)).or_default().count(now);
            }
        }
        let answers: Vec<_> = message.marks.turn.replies().map(|id| self.standing_version(after.team, id)).collect();
        if let Some(event) = answer::weigh(&mut message, &answers, after.id, now) {
            self.events.entry(after.team).or_default().push(event);
            self.inbound.messages.insert(message.id, message);
        }
    }

    fn thread_of(&self, message: &Message, now: Time) -> Thread {
        self.talk.threads.get(&message.thread).cloned().unwrap_or_else(|| Thread::begun_by(message, now))
    }

    pub(super) fn looks_duplicate(&self, wish: &Wish, now: Time) -> bool {
        let Some(likeness) = wish.compared() else { return false };
        let latest = self.talk.likenesses.get(&(wish.team, likeness.pair)).map_or(&[][..], Vec::as_slice);
        let stands = |id: &EmailId| {
            let state = self.emails.get(id).map(Email::state);
            !matches!(state, None | Some(EmailState::Failed | EmailState::Cancelled))
        };
        let recent = latest.iter().rev().take(likeness::LATEST);
        let recent = recent.filter(|(at, id, _)| now.since(*at) < likeness::WINDOW_MS && stands(id));
        recent.map(|(_, _, other)| other).any(|other| likeness.is_like(other))
    }

    pub(super) fn note_likeness(&mut self, likeness: Option<Likeness>, email: &Email, now: Time) {
        let Some(likeness) = likeness else { return };
        let latest = self.talk.likenesses.entry((email.team, likeness.pair)).or_default();
        latest.retain(|(at, ..)| now.since(*at) < likeness::WINDOW_MS);
        latest.push((now, email.id, likeness));
    }

    fn thread(&self, team: TeamId, id: ThreadId) -> Option<Thread> {
        self.talk.threads.get(&id).filter(|thread| thread.team == team).cloned()
    }

    fn threads(&self, team: TeamId, query: &ThreadQuery) -> Vec<Thread> {
        let behind = |thread: &Thread| query.before.is_none_or(|before| (thread.latest_at, thread.id) < before);
        let listed = |thread: &&Thread| thread.team == team && behind(thread) && query.matches(thread);
        let mut rows: Vec<Thread> = self.talk.threads.values().filter(listed).cloned().collect();
        rows.sort_by_key(|thread| std::cmp::Reverse((thread.latest_at, thread.id)));
        rows.truncate(query.limit);
        rows
    }

    fn thread_emails(&self, team: TeamId, id: ThreadId, after: Option<EmailId>, limit: usize) -> Vec<EmailId> {
        if self.thread(team, id).is_none() {
            return Vec::new();
        }
        let emails = self.talk.emails.get(&id).into_iter().flatten().copied();
        emails.filter(|id| after.is_none_or(|after| *id > after)).take(limit).collect()
    }

    fn lease_thread(
        &mut self,
        team: TeamId,
        id: ThreadId,
        ask: &LeaseAsk,
        operation: Option<&Operation>,
        now: Time,
    ) -> Once<Leasing> {
        let Some(thread) = self.thread(team, id) else { return Once::Done(Leasing::Missing) };
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, now)) {
            return answer;
        }
        let (leasing, event) = thread.lease(ask, None, now);
        if let Leasing::Taken(thread) = &leasing {
            self.talk.threads.insert(id, thread.clone());
            self.events.entry(team).or_default().extend(event);
            if let Some(operation) = operation {
                self.bind_operation(operation);
            }
        }
        Once::Done(leasing)
    }

    fn edit_thread(&mut self, team: TeamId, id: ThreadId, edit: impl FnOnce(&mut Thread)) -> Option<Thread> {
        let thread = self.talk.threads.get_mut(&id).filter(|thread| thread.team == team)?;
        edit(thread);
        Some(thread.clone())
    }

    fn next_messages(
        &mut self,
        team: TeamId,
        ask: &NextAsk,
        operation: Option<&Operation>,
        now: Time,
    ) -> Once<Vec<Offer>> {
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, now)) {
            return answer;
        }
        let mut offers = Vec::new();
        for id in self.unanswered(team, ask.inbox, now) {
            if offers.len() == ask.tokens.len() {
                break;
            }
            offers.extend(self.offer(id, ask, offers.len(), now));
        }
        if let Some(operation) = operation.filter(|_| !offers.is_empty()) {
            self.bind_operation(operation);
        }
        Once::Done(offers)
    }

    /// Messages that may be offered, the oldest first.
    fn unanswered(&self, team: TeamId, inbox: InboxId, now: Time) -> Vec<MessageId> {
        let waits = |message: &&Message| message.team == team && message.inbox == inbox && message.may_be_offered(now);
        let mut waiting: Vec<&Message> = self.inbound.messages.values().filter(waits).collect();
        waiting.sort_by_key(|message| message.seq);
        waiting.into_iter().map(|message| message.id).collect()
    }

    fn offer(&mut self, id: MessageId, ask: &NextAsk, token: usize, now: Time) -> Option<Offer> {
        let mut message = self.inbound.messages.get(&id)?.clone();
        let thread = self.thread_of(&message, now);
        if thread.lease_at(now).is_some() && !mutant!("thread-leased-twice") {
            return None;
        }
        let ended = message.offer(now);
        self.inbound.messages.insert(id, message.clone());
        if let Some(ended) = ended {
            self.events.entry(message.team).or_default().push(ended);
            return None;
        }
        let wish = LeaseAsk {
            renew: None,
            token: ask.tokens.get(token)?.clone(),
            holder: ask.holder.clone(),
            ttl_ms: ask.ttl_ms,
        };
        let (Leasing::Taken(thread), event) = thread.lease(&wish, Some(id), now) else { return None };
        self.talk.threads.insert(thread.id, thread.clone());
        self.events.entry(message.team).or_default().extend(event);
        Some(Offer { message, thread, token })
    }

    fn settle_message(&mut self, team: TeamId, held: &Held, how: Settling, now: Time) -> Settled {
        let Some(mut message) = self.message(team, held.message) else { return Settled::Missing };
        let mut thread = self.thread_of(&message, now);
        let Some(events) = thread.settle(&mut message, &held.token, how, now) else {
            return Settled::Stale(message, thread);
        };
        self.events.entry(team).or_default().extend(events);
        self.inbound.messages.insert(message.id, message.clone());
        self.talk.threads.insert(thread.id, thread.clone());
        Settled::Done(message, thread)
    }

    /// Lets go of what a removed inbox held.
    pub(super) fn forget_threads(&mut self, inbox: InboxId) {
        self.talk.threads.retain(|_, thread| thread.inbox != inbox);
        let threads = &self.talk.threads;
        self.talk.emails.retain(|id, _| threads.contains_key(id));
    }

    /// Emails that are held or unknown.
    pub(super) fn stuck(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Vec<Email> {
        let is_stuck = |email: &&Email| {
            let stuck = |state: State| matches!(state, State::Held | State::Unknown);
            email.handoffs.iter().any(|handoff| stuck(handoff.state))
        };
        let mut emails: Vec<Email> = self.emails.values().filter(is_stuck).cloned().collect();
        emails.sort_by_key(|email| (email.team, email.id));
        let behind = |email: &Email| after.is_none_or(|after| (email.team, email.id) > after);
        emails.into_iter().filter(behind).take(limit).collect()
    }
}

#[async_trait]
impl Conversations for Memory {
    async fn answer(&self, wish: AnswerWish, now: Time) -> Result<Answered> {
        // Told under the lock, so that watchers hear of changes in their order.
        let mut world = self.world();
        let answered = world.answer(wish, now);
        if let Answered::First(email, _) = &answered {
            self.tell(email);
        }
        Ok(answered)
    }

    async fn thread(&self, team: TeamId, id: ThreadId) -> Result<Option<Thread>> {
        Ok(self.world().thread(team, id))
    }

    async fn threads(&self, team: TeamId, query: ThreadQuery) -> Result<Vec<Thread>> {
        Ok(self.world().threads(team, &query))
    }

    async fn thread_emails(
        &self,
        team: TeamId,
        id: ThreadId,
        after: Option<EmailId>,
        limit: usize,
    ) -> Result<Vec<EmailId>> {
        Ok(self.world().thread_emails(team, id, after, limit))
    }

    async fn change_thread(&self, team: TeamId, id: ThreadId, edit: ThreadEdit, now: Time) -> Result<Option<Thread>> {
        Ok(self.world().edit_thread(team, id, |thread| thread.edit(edit, now)))
    }

    async fn lease_thread(
        &self,
        team: TeamId,
        id: ThreadId,
        ask: LeaseAsk,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Leasing>> {
        Ok(self.world().lease_thread(team, id, &ask, operation.as_ref(), now))
    }

    async fn release_thread(&self, team: TeamId, id: ThreadId, token: &str, _now: Time) -> Result<Option<Thread>> {
        Ok(self.world().edit_thread(team, id, |thread| {
            thread.release(token);
        }))
    }

    async fn next_messages(
        &self,
        team: TeamId,
        ask: NextAsk,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Vec<Offer>>> {
        Ok(self.world().next_messages(team, &ask, operation.as_ref(), now))
    }

    async fn settle_message(&self, team: TeamId, held: Held, how: Settling, now: Time) -> Result<Settled> {
        Ok(self.world().settle_message(team, &held, how, now))
    }
}
