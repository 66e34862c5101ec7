//! Conversations: threads, replies and leases, as plain maps.

use async_trait::async_trait;
use mailonce_core::{
    conversation::{
        caps::RecentReplyTimes,
        message_progress::{Acknowledgement, MessageLeaseRef},
        reply_guards::{self, NewReply, ReplyContext, ReplyResult, ReplyVerdict},
        thread::{
            AcknowledgeResult, MessageLeaseSpec, MessageOffer, Thread, ThreadEdit, ThreadLeaseResult, ThreadLeaseSpec,
            ThreadQuery,
        },
    },
    id::{EmailId, InboxId, MessageId, TeamId, ThreadId},
    inbox::message::Message,
    mutant,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::AcceptResult,
        content_guard::{self, Comparison, ContentFingerprint},
        email::Email,
        key_binding::KeyBinding,
    },
    ports::{conversation_store::ConversationStore, store::Result},
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};

use super::{Memory, Tables, inbound::tables::InboundTables, outbound::tables::OutboundTables};

/// The tables of conversations.
#[derive(Default)]
pub(crate) struct ConversationTables {
    pub(crate) threads: BTreeMap<ThreadId, Thread>,
    pub(crate) emails: BTreeMap<ThreadId, BTreeSet<EmailId>>,
    pub(crate) person_tallies: BTreeMap<(TeamId, [u8; 16]), RecentReplyTimes>,
    /// Fingerprints of recent emails by team and the hash of sender and recipients, oldest first.
    pub(crate) recent_fingerprints: BTreeMap<(TeamId, [u8; 16]), Vec<(Time, EmailId, ContentFingerprint)>>,
}

impl Tables {
    fn accept_reply(&mut self, new_reply: NewReply, now: Time) -> ReplyResult {
        let team = new_reply.email.team;
        if let Some(bound) = new_reply.email.key.and_then(|key| self.outbound.key_binding(team, key, now)) {
            return ReplyResult::KeyBound(bound);
        }
        let Some(mut context) = self.load_reply_context(&new_reply, now) else { return ReplyResult::Missing };
        match new_reply.check_guards(&context, now) {
            ReplyVerdict::Refuse(guard, newer) => {
                let event = new_reply.refusal_event(guard, &context, now);
                self.events.log.entry(team).or_default().extend(Some(event).filter(|_| !mutant!("refusal-untold")));
                ReplyResult::Refused(guard, newer, context.message, context.thread)
            }
            ReplyVerdict::AlreadyAnswered(id) => {
                ReplyResult::AlreadyAnswered(id, context.previous_reply, context.thread)
            }
            ReplyVerdict::Accept(guard) => {
                let mut inner = new_reply.email.clone();
                inner.guard_input.holds = inner.guard_input.holds.union(guard.into());
                match self.accept(inner, now) {
                    AcceptResult::First(email) => self.save_reply_effects(&new_reply, &mut context, email, now),
                    AcceptResult::KeyBound(bound) => ReplyResult::KeyBound(bound),
                    // A reply is recognized by its slot and is never asked for identical emails.
                    AcceptResult::Identical(email) => ReplyResult::KeyBound(KeyBinding::Email(email)),
                    AcceptResult::OverBudget(exceeded) => ReplyResult::OverBudget(exceeded),
                }
            }
        }
    }

    fn load_reply_context(&self, new_reply: &NewReply, now: Time) -> Option<ReplyContext> {
        let team = new_reply.email.team;
        let message = self.inbound.message(team, new_reply.message)?;
        let thread = self.conversations.thread_of(&message, now);
        let before = message
            .annotations
            .progress
            .answered_by(&new_reply.slot)
            .and_then(|id| self.outbound.effective_version(team, id));
        let person = new_reply
            .recipient_hash
            .and_then(|person| self.conversations.person_tallies.get(&(team, person)).cloned())
            .unwrap_or_default();
        Some(ReplyContext { message, thread, previous_reply: before, recipient_tally: person })
    }

    fn save_reply_effects(
        &mut self,
        new_reply: &NewReply,
        context: &mut ReplyContext,
        email: Email,
        now: Time,
    ) -> ReplyResult {
        let team = new_reply.email.team;
        let events = new_reply.apply(context, &email, now);
        self.events.log.entry(team).or_default().extend(events.into_iter().filter(|_| !mutant!("answer-untold")));
        self.inbound.messages.insert(context.message.id, context.message.clone());
        self.conversations.threads.insert(context.thread.id, context.thread.clone());
        self.conversations.emails.entry(context.thread.id).or_default().insert(email.id);
        if let Some(person) = new_reply.recipient_hash {
            self.conversations.person_tallies.insert((team, person), context.recipient_tally.clone());
        }
        ReplyResult::First(email, context.thread.clone())
    }

    /// Whether an email is a version of a current reply to its message. True when it is not a reply.
    pub(crate) fn is_current_reply(&self, email: &Email) -> bool {
        let Some(message) = email.head.answers.and_then(|id| self.inbound.message(email.team, id)) else { return true };
        let is_version = |first: EmailId| {
            let next = |id: &EmailId| self.outbound.emails.get(id).and_then(|email| email.resent_as);
            std::iter::successors(Some(first), next).any(|id| id == email.id)
        };
        message.annotations.progress.answers.iter().any(|(_, first)| is_version(*first))
    }

    /// Updates the state of the message that an email replies to, after the email changed.
    pub(crate) fn update_message_progress(&mut self, before: &Email, after: &Email, now: Time) {
        let Some(mut message) =
            reply_guards::message_to_reassess(before, after).and_then(|id| self.inbound.message(after.team, id))
        else {
            return;
        };
        if let Some(person) = reply_guards::recipient_counted_on_release(&message, before, after) {
            let mut thread = self.conversations.thread_of(&message, now);
            thread.count_released_reply(now);
            self.conversations.threads.insert(thread.id, thread);
            if let Some(person) = person {
                self.conversations.person_tallies.entry((after.team, person)).or_default().record(now);
            }
        }
        let answers: Vec<_> =
            message.annotations.progress.replies().map(|id| self.outbound.effective_version(after.team, id)).collect();
        if let Some(event) = reply_guards::reassess_message(&mut message, &answers, after.id, now) {
            self.events.log.entry(after.team).or_default().push(event);
            self.inbound.messages.insert(message.id, message);
        }
    }

    pub(crate) fn find_similar_email(
        &self,
        team: TeamId,
        Comparison { fingerprint, window_ms }: Comparison<'_>,
        now: Time,
    ) -> Option<&Email> {
        let latest = self.conversations.recent_fingerprints.get(&(team, fingerprint.correspondents_hash))?;
        latest
            .iter()
            .rev()
            .take(content_guard::MAX_COMPARED)
            .filter(|(at, _, other)| now.since(*at) < window_ms && fingerprint.is_similar_to(other))
            .filter_map(|(_, id, _)| self.outbound.emails.get(id))
            .find(|email| !email.is_surely_unsent())
    }

    fn lease_thread(
        &mut self,
        team: TeamId,
        id: ThreadId,
        ask: &ThreadLeaseSpec,
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<ThreadLeaseResult> {
        let Some(thread) = self.conversations.thread(team, id) else {
            return IdempotentResult::Done(ThreadLeaseResult::Missing);
        };
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        let (leasing, event) = thread.lease(ask, None, now);
        if let ThreadLeaseResult::Leased(thread) = &leasing {
            self.conversations.threads.insert(id, thread.clone());
            self.events.log.entry(team).or_default().extend(event);
            if let Some(operation) = operation {
                self.outbound.bind_operation(operation);
            }
        }
        IdempotentResult::Done(leasing)
    }

    fn lease_messages(
        &mut self,
        team: TeamId,
        ask: &MessageLeaseSpec,
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<Vec<MessageOffer>> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        let mut offers = Vec::new();
        for id in self.inbound.offerable_messages(team, ask.inbox, now) {
            if offers.len() == ask.tokens.len() {
                break;
            }
            offers.extend(self.offer_message(id, ask, offers.len(), now));
        }
        if let Some(operation) = operation.filter(|_| !offers.is_empty()) {
            self.outbound.bind_operation(operation);
        }
        IdempotentResult::Done(offers)
    }

    fn offer_message(
        &mut self,
        id: MessageId,
        ask: &MessageLeaseSpec,
        token: usize,
        now: Time,
    ) -> Option<MessageOffer> {
        let mut message = self.inbound.messages.get(&id)?.clone();
        let thread = self.conversations.thread_of(&message, now);
        if thread.active_lease(now).is_some() && !mutant!("thread-leased-twice") {
            return None;
        }
        let ended = message.record_offer(now);
        self.inbound.messages.insert(id, message.clone());
        if let Some(ended) = ended {
            self.events.log.entry(message.team).or_default().push(ended);
            return None;
        }
        let spec = ThreadLeaseSpec {
            renew: None,
            token: ask.tokens.get(token)?.clone(),
            holder: ask.holder.clone(),
            ttl_ms: ask.ttl_ms,
        };
        let (ThreadLeaseResult::Leased(thread), event) = thread.lease(&spec, Some(id), now) else { return None };
        self.conversations.threads.insert(thread.id, thread.clone());
        self.events.log.entry(message.team).or_default().extend(event);
        Some(MessageOffer { message, thread, token_index: token })
    }

    fn acknowledge_message(
        &mut self,
        team: TeamId,
        held: &MessageLeaseRef,
        how: Acknowledgement,
        now: Time,
    ) -> AcknowledgeResult {
        let Some(mut message) = self.inbound.message(team, held.message) else { return AcknowledgeResult::Missing };
        let mut thread = self.conversations.thread_of(&message, now);
        let Some(events) = thread.acknowledge(&mut message, &held.token_hash, how, now) else {
            return AcknowledgeResult::Stale(message, thread);
        };
        self.events.log.entry(team).or_default().extend(events);
        self.inbound.messages.insert(message.id, message.clone());
        self.conversations.threads.insert(thread.id, thread.clone());
        AcknowledgeResult::Done(message, thread)
    }
}

impl OutboundTables {
    /// The version of an email that counts: the email itself, or one of its resends.
    pub(crate) fn effective_version(&self, team: TeamId, id: EmailId) -> Option<Email> {
        let email = self.email_of_team(team, id)?;
        let later = email
            .resent_as
            .filter(|_| !mutant!("later-version-forgotten"))
            .and_then(|id| self.effective_version(team, id));
        Some(match later {
            Some(later) => reply_guards::effective_version(email, later),
            None => email,
        })
    }
}

impl ConversationTables {
    pub(crate) fn thread_of(&self, message: &Message, now: Time) -> Thread {
        self.threads.get(&message.thread).cloned().unwrap_or_else(|| Thread::from_first_message(message, now))
    }

    pub(crate) fn remember_fingerprint(&mut self, fingerprint: ContentFingerprint, email: &Email, now: Time) {
        let latest = self.recent_fingerprints.entry((email.team, fingerprint.correspondents_hash)).or_default();
        latest.retain(|(at, ..)| now.since(*at) < content_guard::MAX_IDENTICAL_WINDOW_MS);
        latest.push((now, email.id, fingerprint));
    }

    pub(crate) fn thread(&self, team: TeamId, id: ThreadId) -> Option<Thread> {
        self.threads.get(&id).filter(|thread| thread.team == team).cloned()
    }

    pub(crate) fn threads(&self, team: TeamId, query: &ThreadQuery) -> Vec<Thread> {
        let behind = |thread: &Thread| query.before.is_none_or(|before| (thread.last_activity_at, thread.id) < before);
        let listed = |thread: &&Thread| thread.team == team && behind(thread) && query.matches(thread);
        let mut rows: Vec<Thread> = self.threads.values().filter(listed).cloned().collect();
        rows.sort_by_key(|thread| std::cmp::Reverse((thread.last_activity_at, thread.id)));
        rows.truncate(query.limit);
        rows
    }

    pub(crate) fn thread_emails(
        &self,
        team: TeamId,
        id: ThreadId,
        after: Option<EmailId>,
        limit: usize,
    ) -> Vec<EmailId> {
        if self.thread(team, id).is_none() {
            return Vec::new();
        }
        let emails = self.emails.get(&id).into_iter().flatten().copied();
        emails.filter(|id| after.is_none_or(|after| *id > after)).take(limit).collect()
    }

    pub(crate) fn edit_thread(&mut self, team: TeamId, id: ThreadId, edit: impl FnOnce(&mut Thread)) -> Option<Thread> {
        let thread = self.threads.get_mut(&id).filter(|thread| thread.team == team)?;
        edit(thread);
        Some(thread.clone())
    }

    /// Removes the threads of a removed inbox.
    pub(crate) fn remove_threads_of_inbox(&mut self, inbox: InboxId) {
        self.threads.retain(|_, thread| thread.inbox != inbox);
        let threads = &self.threads;
        self.emails.retain(|id, _| threads.contains_key(id));
    }
}

impl InboundTables {
    /// Messages that may be offered, oldest first.
    pub(crate) fn offerable_messages(&self, team: TeamId, inbox: InboxId, now: Time) -> Vec<MessageId> {
        let waits = |message: &&Message| message.team == team && message.inbox == inbox && message.may_be_offered(now);
        let mut waiting: Vec<&Message> = self.messages.values().filter(waits).collect();
        waiting.sort_by_key(|message| message.seq);
        waiting.into_iter().map(|message| message.id).collect()
    }
}

#[async_trait]
impl ConversationStore for Memory {
    async fn accept_reply(&self, new_reply: NewReply, now: Time) -> Result<ReplyResult> {
        // Notify under the lock, so that subscribers see changes in commit order.
        let mut tables = self.lock_tables();
        let answered = tables.accept_reply(new_reply, now);
        if let ReplyResult::First(email, _) = &answered {
            self.notify_email_changed(email);
        }
        Ok(answered)
    }

    async fn thread(&self, team: TeamId, id: ThreadId) -> Result<Option<Thread>> {
        Ok(self.lock_tables().conversations.thread(team, id))
    }

    async fn threads(&self, team: TeamId, query: ThreadQuery) -> Result<Vec<Thread>> {
        Ok(self.lock_tables().conversations.threads(team, &query))
    }

    async fn thread_emails(
        &self,
        team: TeamId,
        id: ThreadId,
        after: Option<EmailId>,
        limit: usize,
    ) -> Result<Vec<EmailId>> {
        Ok(self.lock_tables().conversations.thread_emails(team, id, after, limit))
    }

    async fn change_thread(&self, team: TeamId, id: ThreadId, edit: ThreadEdit, now: Time) -> Result<Option<Thread>> {
        Ok(self.lock_tables().conversations.edit_thread(team, id, |thread| thread.edit(edit, now)))
    }

    async fn lease_thread(
        &self,
        team: TeamId,
        id: ThreadId,
        ask: ThreadLeaseSpec,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<ThreadLeaseResult>> {
        Ok(self.lock_tables().lease_thread(team, id, &ask, operation.as_ref(), now))
    }

    async fn release_thread(&self, team: TeamId, id: ThreadId, token: &str, _now: Time) -> Result<Option<Thread>> {
        Ok(self.lock_tables().conversations.edit_thread(team, id, |thread| {
            thread.release_lease(token);
        }))
    }

    async fn lease_messages(
        &self,
        team: TeamId,
        ask: MessageLeaseSpec,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Vec<MessageOffer>>> {
        Ok(self.lock_tables().lease_messages(team, &ask, operation.as_ref(), now))
    }

    async fn acknowledge_message(
        &self,
        team: TeamId,
        held: MessageLeaseRef,
        how: Acknowledgement,
        now: Time,
    ) -> Result<AcknowledgeResult> {
        Ok(self.lock_tables().acknowledge_message(team, &held, how, now))
    }
}
