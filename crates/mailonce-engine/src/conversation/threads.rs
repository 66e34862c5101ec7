//! Threads: what was said in both directions, and the lease by which one agent at a time works on them.

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

/// Messages, and emails, of a thread that are shown: the latest.
const MAX_SHOWN: usize = 100;
/// Pages of an inbox or thread that are read for them.
const MAX_PAGES: usize = 10;
/// Pages of threads that are looked through for those that a key may read.
const MAX_SCAN_PAGES: usize = 50;
/// How long a lease lasts at the most, in milliseconds.
pub const MAX_LEASE_MS: i64 = 600_000;

/// Something that was said in a thread.
#[derive(Clone, Debug)]
pub enum ThreadEntry {
    /// By somebody else.
    Message(Box<Message>),
    /// By us.
    Email(Box<Email>),
}

impl ThreadEntry {
    /// When.
    pub fn at(&self) -> Time {
        match self {
            Self::Message(message) => message.received_at,
            Self::Email(email) => email.head.created_at,
        }
    }
}

/// A thread as its team sees it.
#[derive(Clone, Debug)]
pub struct ThreadView {
    /// The thread.
    pub thread: Thread,
    /// The limits it lives by.
    pub caps: ReplyCaps,
    /// What was said in it, oldest first; empty in a list.
    pub entries: Vec<ThreadEntry>,
}

/// Threads, those with the latest news first.
#[derive(Clone, Debug, Default)]
pub struct ThreadPage {
    /// The threads.
    pub rows: Vec<Thread>,
    /// Where to go on; `None` at the end.
    pub next: Option<(Time, ThreadId)>,
}

/// A lease as its holder sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLeaseView {
    /// What its holder shows.
    pub token: String,
    /// Grows with each lease.
    pub fence: u64,
    /// Who holds it.
    pub holder: String,
    /// When it lapses.
    pub expires_at: Time,
}

/// A wish for a lease.
#[derive(Clone, Debug)]
pub struct NewThreadLease {
    /// The token of a lease that is to last longer.
    pub renew: Option<String>,
    /// Who asks.
    pub holder: String,
    /// How long it is to last.
    pub ttl_ms: i64,
}

impl Conversations {
    /// Threads, those with the latest news first.
    pub async fn threads(&self, caller: &Caller, query: ThreadQuery) -> Result<ThreadPage, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        if let Some(inbox) = query.inbox {
            self.inboxes.inbox(caller, inbox).await?;
        }
        let (limit, mut usable, mut asked) = (query.limit, HashMap::new(), query);
        let mut page = ThreadPage::default();
        // A key that is tied to inboxes looks past the threads of others, for a while.
        for _ in 0..MAX_SCAN_PAGES {
            let ask = ThreadQuery { limit: limit + 1, ..asked.clone() };
            let mut rows = self.ctx.store.threads(caller.team.id, ask).await.map_err(unavailable)?;
            let more = rows.len() > limit;
            rows.truncate(limit);
            page.next = rows.last().filter(|_| more).map(|thread| (thread.last_activity_at, thread.id));
            for thread in rows {
                let may = match usable.entry(thread.inbox) {
                    Entry::Occupied(entry) => *entry.get(),
                    Entry::Vacant(entry) => *entry.insert(self.may_read_inbox(caller, thread.inbox).await),
                };
                page.rows.extend(Some(thread).filter(|_| may));
            }
            if page.rows.len() >= limit || page.next.is_none() {
                break;
            }
            asked.before = page.next;
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

    /// A thread with what was said in it.
    pub async fn thread_view(&self, caller: &Caller, id: ThreadId) -> Result<ThreadView, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let (thread, inbox) = self.inboxes.thread(caller, id).await?;
        let mut said = self.thread_messages(&thread).await.map_err(unavailable)?;
        said.extend(self.thread_emails(&thread).await.map_err(unavailable)?);
        said.sort_by_key(ThreadEntry::at);
        Ok(ThreadView { thread, caps: inbox.settings.caps.unwrap_or_default(), entries: said })
    }

    async fn thread_messages(&self, thread: &Thread) -> Result<Vec<ThreadEntry>, StoreError> {
        let (mut place, mut found) = (MessagePosition::Before(u64::MAX), Vec::new());
        for _ in 0..MAX_PAGES {
            let query = MessageQuery {
                thread: Some(thread.id),
                position: place,
                limit: MAX_SHOWN - found.len(),
                ..MessageQuery::default()
            };
            let page = self.ctx.store.messages(thread.team, thread.inbox, query).await?;
            found.extend(page.rows);
            match page.next.filter(|_| found.len() < MAX_SHOWN && found.len() < thread.details.messages as usize) {
                Some(next) => place = MessagePosition::Before(next),
                None => break,
            }
        }
        self.inboxes.mark_leased_messages(thread.team, &mut found).await?;
        Ok(found.into_iter().map(|message| ThreadEntry::Message(Box::new(message))).collect())
    }

    /// The latest emails of a thread, in the version that stands.
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
        let mut said = Vec::new();
        let over = ids.len().saturating_sub(MAX_SHOWN);
        for id in ids.drain(over..) {
            let Some(email) = self.ctx.store.email(thread.team, id).await? else { continue };
            let later = match email.resent_as {
                Some(later) => self.ctx.store.email(thread.team, later).await?,
                None => None,
            };
            said.extend([Some(email), later].into_iter().flatten().map(|email| ThreadEntry::Email(Box::new(email))));
        }
        Ok(said)
    }

    /// Changes labels, or says that nothing is left to do.
    pub async fn change_thread(&self, caller: &Caller, id: ThreadId, edit: ThreadEdit) -> Result<ThreadView, Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let (_, inbox) = self.inboxes.thread(caller, id).await?;
        let changed =
            self.ctx.store.change_thread(caller.team.id, id, edit, self.ctx.now()).await.map_err(unavailable)?;
        let thread = changed.ok_or_else(|| thread_not_found(id))?;
        Ok(ThreadView { thread, caps: inbox.settings.caps.unwrap_or_default(), entries: Vec::new() })
    }

    /// A fresh token of a lease.
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
        asked: Option<KeyedCall>,
    ) -> Result<ThreadLeaseView, Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let (thread, _) = self.inboxes.thread(caller, id).await?;
        let now = self.ctx.now();
        let token = request.renew.clone().unwrap_or_else(|| self.new_lease_token());
        // Whoever comes with the same key again gets this, once the lease is another's.
        let fence = thread.details.fence + u64::from(request.renew.is_none());
        let expires_at = now.plus(request.ttl_ms);
        let view = ThreadLeaseView { token: token.clone(), fence, holder: request.holder.clone(), expires_at };
        let answer = self.ctx.seal_answer(asked.as_ref(), &view);
        let ask = ThreadLeaseSpec {
            renew: request.renew.as_deref().map(lease_token_hash),
            token: lease_token_hash(&token),
            holder: request.holder,
            ttl_ms: request.ttl_ms,
        };
        let operation = operation(caller, asked.as_ref(), answer, now);
        match self.ctx.store.lease_thread(caller.team.id, id, ask, operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(ThreadLeaseResult::Leased(thread)) => Ok(lease_view(token, &thread)),
            IdempotentResult::Done(ThreadLeaseResult::Busy(thread) | ThreadLeaseResult::Stale(thread)) => {
                Err(leased_problem(&thread, now))
            }
            IdempotentResult::Done(ThreadLeaseResult::Missing) => Err(thread_not_found(id)),
            IdempotentResult::Replayed(answer) => {
                let first: ThreadLeaseView = self.ctx.open_answer(asked.as_ref(), &answer)?;
                let still = thread.is_latest_token(&lease_token_hash(&first.token));
                Ok(if still { lease_view(first.token, &thread) } else { first })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Gives a lease back. Only one's own: another's stays.
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
}

/// A lease as whoever holds the token sees it.
pub(crate) fn lease_view(token: String, thread: &Thread) -> ThreadLeaseView {
    let lease = thread.details.lease.as_ref();
    ThreadLeaseView {
        token,
        fence: thread.details.fence,
        holder: lease.map(|lease| lease.holder.clone()).unwrap_or_default(),
        expires_at: lease.map_or(Time(0), |lease| lease.expires_at),
    }
}

/// How many labels a thread may have.
pub const MAX_LABELS: usize = limits::MESSAGE_LABELS;
