//! Threads: their received messages and sent emails, and the lease that lets one agent at a time work on a thread.

use crate::{
    access::caller::Caller,
    conversation::Conversations,
    inbox::messages::thread_not_found,
    outbound::reply_terms::{lease_token_hash, leased_problem},
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    control::audit::act::Act,
    conversation::{
        caps::ReplyCaps,
        thread::{Thread, ThreadEdit, ThreadLeaseResult, ThreadLeaseSpec, ThreadQuery},
    },
    id::{InboxId, ThreadId},
    inbox::message::{Message, MessagePosition, MessageQuery},
    limits,
    operation::IdempotentResult,
    outbound::email::Email,
    ports::store::StoreError,
    problem::Problem,
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, hash_map::Entry};

/// How many of the latest messages, and of the latest emails, of a thread are shown.
const MAX_SHOWN: usize = 100;
/// Pages that are read from the store to find them.
const MAX_PAGES: usize = 10;
/// Pages of threads that are scanned for those that a restricted API key may read.
const MAX_SCAN_PAGES: usize = 50;
/// Longest duration of a lease, in milliseconds.
pub const MAX_LEASE_MS: i64 = 600_000;

/// A mail of a thread.
#[derive(Clone, Debug)]
pub enum ThreadEntry {
    /// Received.
    Message(Box<Message>),
    /// Sent.
    Email(Box<Email>),
}

impl ThreadEntry {
    /// When the mail was received or accepted for sending.
    pub fn at(&self) -> Time {
        match self {
            Self::Message(message) => message.received_at,
            Self::Email(email) => email.head.created_at,
        }
    }
}

/// A thread as the API shows it.
#[derive(Clone, Debug)]
pub struct ThreadView {
    /// The thread.
    pub thread: Thread,
    /// Its reply limits.
    pub caps: ReplyCaps,
    /// Its mail, oldest first; empty in a list of threads.
    pub entries: Vec<ThreadEntry>,
}

/// A page of threads, latest activity first.
#[derive(Clone, Debug, Default)]
pub struct ThreadPage {
    /// The threads.
    pub rows: Vec<Thread>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<(Time, ThreadId)>,
}

/// A lease as its holder sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLeaseView {
    /// The token that proves that a caller holds the lease.
    pub token: String,
    /// The fence number, which grows with each lease.
    pub fence: u64,
    /// Who holds it.
    pub holder: String,
    /// When it expires.
    pub expires_at: Time,
}

/// A request to lease a thread.
#[derive(Clone, Debug)]
pub struct NewThreadLease {
    /// The token of the lease to renew; `None` for a new lease.
    pub renew: Option<String>,
    /// The name of the agent that will hold the lease.
    pub holder: String,
    /// The duration of the lease, in milliseconds.
    pub ttl_ms: i64,
}

impl Conversations {
    /// Lists threads, latest activity first.
    pub async fn threads(&self, caller: &Caller, query: ThreadQuery) -> Result<ThreadPage, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        if let Some(inbox) = query.inbox {
            self.inboxes.inbox(caller, inbox).await?;
        }
        let (limit, mut readable_inboxes, mut page_query) = (query.limit, HashMap::new(), query);
        let mut page = ThreadPage::default();
        // For an API key restricted to inboxes, skip the threads of other inboxes, up to a limit.
        for _ in 0..MAX_SCAN_PAGES {
            let query_with_extra = ThreadQuery { limit: limit + 1, ..page_query.clone() };
            let mut rows = self.ctx.store.threads(caller.team.id, query_with_extra).await.map_err(unavailable)?;
            let more = rows.len() > limit;
            rows.truncate(limit);
            page.next = rows.last().filter(|_| more).map(|thread| (thread.last_activity_at, thread.id));
            for thread in rows {
                let may_read = match readable_inboxes.entry(thread.inbox) {
                    Entry::Occupied(entry) => *entry.get(),
                    Entry::Vacant(entry) => *entry.insert(self.may_read_inbox(caller, thread.inbox).await),
                };
                page.rows.extend(Some(thread).filter(|_| may_read));
            }
            if page.rows.len() >= limit || page.next.is_none() {
                break;
            }
            page_query.before = page.next;
        }
        if page.rows.len() > limit {
            page.rows.truncate(limit);
            page.next = page.rows.last().map(|thread| (thread.last_activity_at, thread.id));
        }
        Ok(page)
    }

    async fn may_read_inbox(&self, caller: &Caller, inbox: InboxId) -> bool {
        caller.key.details.inboxes.is_empty() || self.inboxes.inbox(caller, inbox).await.is_ok()
    }

    /// A thread with its mail.
    pub async fn thread_view(&self, caller: &Caller, id: ThreadId) -> Result<ThreadView, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let (thread, inbox) = self.inboxes.thread(caller, id).await?;
        let mut entries = self.thread_messages(&thread).await.map_err(unavailable)?;
        entries.extend(self.thread_emails(&thread).await.map_err(unavailable)?);
        entries.sort_by_key(ThreadEntry::at);
        Ok(ThreadView { thread, caps: inbox.settings.caps.unwrap_or_default(), entries })
    }

    async fn thread_messages(&self, thread: &Thread) -> Result<Vec<ThreadEntry>, StoreError> {
        let (mut position, mut found) = (MessagePosition::Before(u64::MAX), Vec::new());
        for _ in 0..MAX_PAGES {
            let query = MessageQuery {
                thread: Some(thread.id),
                position,
                limit: MAX_SHOWN - found.len(),
                ..MessageQuery::default()
            };
            let page = self.ctx.store.messages(thread.team, thread.inbox, query).await?;
            found.extend(page.rows);
            match page.next.filter(|_| found.len() < MAX_SHOWN && found.len() < thread.details.messages as usize) {
                Some(next) => position = MessagePosition::Before(next),
                None => break,
            }
        }
        self.inboxes.mark_leased_messages(thread.team, &mut found).await?;
        Ok(found.into_iter().map(|message| ThreadEntry::Message(Box::new(message))).collect())
    }

    /// The latest emails of a thread, each followed by its resent version if there is one.
    async fn thread_emails(&self, thread: &Thread) -> Result<Vec<ThreadEntry>, StoreError> {
        let (mut after, mut ids) = (None, Vec::new());
        for _ in 0..MAX_PAGES {
            let page = self.ctx.store.thread_emails(thread.team, thread.id, after, MAX_SHOWN).await?;
            after = page.last().copied();
            let full = page.len() == MAX_SHOWN;
            ids.extend(page);
            if !full {
                break;
            }
        }
        let mut entries = Vec::new();
        let over = ids.len().saturating_sub(MAX_SHOWN);
        for id in ids.drain(over..) {
            let Some(email) = self.ctx.store.email(thread.team, id).await? else { continue };
            let later = match email.resent_as {
                Some(later) => self.ctx.store.email(thread.team, later).await?,
                None => None,
            };
            entries.extend([Some(email), later].into_iter().flatten().map(|email| ThreadEntry::Email(Box::new(email))));
        }
        Ok(entries)
    }

    /// Changes the labels of a thread, or whether it is handled.
    pub async fn change_thread(&self, caller: &Caller, id: ThreadId, edit: ThreadEdit) -> Result<ThreadView, Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let (_, inbox) = self.inboxes.thread(caller, id).await?;
        let changed =
            self.ctx.store.change_thread(caller.team.id, id, edit, self.ctx.now()).await.map_err(unavailable)?;
        let thread = changed.ok_or_else(|| thread_not_found(id))?;
        Ok(ThreadView { thread, caps: inbox.settings.caps.unwrap_or_default(), entries: Vec::new() })
    }

    /// Generates a lease token.
    pub(crate) fn new_lease_token(&self) -> String {
        let mut bytes = [0; 20];
        self.ctx.entropy.fill(&mut bytes);
        format!("lt_{}", crate::runtime::hex::hex(&bytes))
    }

    /// Takes or renews the lease of a thread.
    pub async fn lease_thread(
        &self,
        caller: &Caller,
        id: ThreadId,
        request: NewThreadLease,
        keyed_call: Option<KeyedCall>,
    ) -> Result<ThreadLeaseView, Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let (thread, _) = self.inboxes.thread(caller, id).await?;
        let now = self.ctx.now();
        let token = request.renew.clone().unwrap_or_else(|| self.new_lease_token());
        // A replay under the same idempotency key returns this view when the lease has another holder by then.
        let fence = thread.details.fence + u64::from(request.renew.is_none());
        let expires_at = now.plus(request.ttl_ms);
        let view = ThreadLeaseView { token: token.clone(), fence, holder: request.holder.clone(), expires_at };
        let answer = self.ctx.seal_answer(keyed_call.as_ref(), &view);
        let spec = ThreadLeaseSpec {
            renew: request.renew.as_deref().map(lease_token_hash),
            token: lease_token_hash(&token),
            holder: request.holder,
            ttl_ms: request.ttl_ms,
        };
        let operation = operation(caller, keyed_call.as_ref(), answer, now);
        match self.ctx.store.lease_thread(caller.team.id, id, spec, operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(ThreadLeaseResult::Leased(thread)) => Ok(lease_view(token, &thread)),
            IdempotentResult::Done(ThreadLeaseResult::Busy(thread) | ThreadLeaseResult::Stale(thread)) => {
                Err(leased_problem(&thread, now))
            }
            IdempotentResult::Done(ThreadLeaseResult::Missing) => Err(thread_not_found(id)),
            IdempotentResult::Replayed(answer) => {
                let first: ThreadLeaseView = self.ctx.open_answer(keyed_call.as_ref(), &answer)?;
                let still = thread.is_latest_token(&lease_token_hash(&first.token));
                Ok(if still { lease_view(first.token, &thread) } else { first })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Releases a lease that the caller holds. Refuses when another agent holds it.
    pub async fn release_thread(&self, caller: &Caller, id: ThreadId, token: &str) -> Result<ThreadView, Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let (before, inbox) = self.inboxes.thread(caller, id).await?;
        let now = self.ctx.now();
        let released = self.ctx.store.release_thread(caller.team.id, id, &lease_token_hash(token), now).await;
        let thread = released.map_err(unavailable)?.ok_or_else(|| thread_not_found(id))?;
        if thread.rev == before.rev && thread.details.lease.is_some() {
            return Err(leased_problem(&thread, now));
        }
        self.ctx.inbound.waiters.wake(thread.inbox);
        Ok(ThreadView { thread, caps: inbox.settings.caps.unwrap_or_default(), entries: Vec::new() })
    }

    /// Ends the lease of a thread, whoever holds it, so that a person or another agent can take over. The holder's
    /// next reply under its lease is refused.
    pub async fn end_thread_lease(&self, caller: &Caller, id: ThreadId) -> Result<ThreadView, Problem> {
        caller.require_decider()?;
        let (_, inbox) = self.inboxes.thread(caller, id).await?;
        let (team, now) = (caller.team.id, self.ctx.now());
        let act = Act::new(Some(team), "thread.lease_ended", format!("thread/{id}"));
        self.ctx.store.record_act(act, now).await.map_err(unavailable)?;
        let edit = ThreadEdit { ends_lease: true, ..ThreadEdit::default() };
        let changed = self.ctx.store.change_thread(team, id, edit, now).await.map_err(unavailable)?;
        let thread = changed.ok_or_else(|| thread_not_found(id))?;
        self.ctx.inbound.waiters.wake(thread.inbox);
        Ok(ThreadView { thread, caps: inbox.settings.caps.unwrap_or_default(), entries: Vec::new() })
    }
}

/// The lease of a thread as its holder sees it.
pub(crate) fn lease_view(token: String, thread: &Thread) -> ThreadLeaseView {
    let lease = thread.details.lease.as_ref();
    ThreadLeaseView {
        token,
        fence: thread.details.fence,
        holder: lease.map(|lease| lease.holder.clone()).unwrap_or_default(),
        expires_at: lease.map_or(Time(0), |lease| lease.expires_at),
    }
}

/// Most labels of a thread.
pub const MAX_LABELS: usize = limits::MESSAGE_LABELS;
