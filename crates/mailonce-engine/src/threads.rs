//! Threads: what was said in both directions, and the lease by which one agent at a time works on them.

use mailonce_core::{
    conversation::{
        caps::Caps,
        thread::{LeaseAsk, Leasing, Thread, ThreadEdit, ThreadQuery},
    },
    email::Email,
    id::{InboxId, TeamId, ThreadId},
    inbox::Inbox,
    limits,
    message::{Message, MessagePlace, MessageQuery, MessageState},
    port::store::{Once, StoreError},
    problem::{Code, Problem},
    team::Scope,
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, hash_map::Entry};

use crate::{
    Asked, Caller, Engine,
    change::taken,
    inboxes::may_use,
    operation,
    reply::{leased, token_hash},
    unavailable,
};

/// Messages, and emails, of a thread that are shown: the latest.
const SHOWN: usize = 100;
/// Pages of an inbox or thread that are read for them.
const PAGES: usize = 10;
/// Pages of threads that are looked through for those that a key may read.
const LOOKS: usize = 50;
/// How long a lease lasts at the most, in milliseconds.
pub const LEASE_MS: i64 = 600_000;

/// Something that was said in a thread.
#[derive(Clone, Debug)]
pub enum Said {
    /// By somebody else.
    Message(Box<Message>),
    /// By us.
    Email(Box<Email>),
}

impl Said {
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
    pub caps: Caps,
    /// What was said in it, oldest first; empty in a list.
    pub said: Vec<Said>,
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
pub struct LeaseView {
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
pub struct LeaseRequest {
    /// The token of a lease that is to last longer.
    pub renew: Option<String>,
    /// Who asks.
    pub holder: String,
    /// How long it is to last.
    pub ttl_ms: i64,
}

pub(crate) fn missing(id: ThreadId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no thread {id}"))
}

impl Engine {
    /// A thread in an inbox that the caller may use.
    pub async fn thread(&self, caller: &Caller, id: ThreadId) -> Result<(Thread, Inbox), Problem> {
        let found = self.store.thread(caller.team.id, id).await.map_err(unavailable)?;
        let thread = found.ok_or_else(|| missing(id))?;
        let inbox = self.store.inbox(caller.team.id, thread.inbox).await.map_err(unavailable)?;
        let inbox = inbox.filter(|inbox| may_use(caller, inbox)).ok_or_else(|| missing(id))?;
        Ok((thread, inbox))
    }

    /// Threads, those with the latest news first.
    pub async fn threads(&self, caller: &Caller, query: ThreadQuery) -> Result<ThreadPage, Problem> {
        caller.need(Scope::Read)?;
        if let Some(inbox) = query.inbox {
            self.inbox(caller, inbox).await?;
        }
        let (limit, mut usable, mut asked) = (query.limit, HashMap::new(), query);
        let mut page = ThreadPage::default();
        // A key that is tied to inboxes looks past the threads of others, for a while.
        for _ in 0..LOOKS {
            let ask = ThreadQuery { limit: limit + 1, ..asked.clone() };
            let mut rows = self.store.threads(caller.team.id, ask).await.map_err(unavailable)?;
            let more = rows.len() > limit;
            rows.truncate(limit);
            page.next = rows.last().filter(|_| more).map(|thread| (thread.latest_at, thread.id));
            for thread in rows {
                let may = match usable.entry(thread.inbox) {
                    Entry::Occupied(entry) => *entry.get(),
                    Entry::Vacant(entry) => *entry.insert(self.may_read_of(caller, thread.inbox).await),
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
            page.next = page.rows.last().map(|thread| (thread.latest_at, thread.id));
        }
        Ok(page)
    }

    async fn may_read_of(&self, caller: &Caller, inbox: InboxId) -> bool {
        caller.key.about.inboxes.is_empty() || self.inbox(caller, inbox).await.is_ok()
    }

    /// A thread with what was said in it.
    pub async fn read_thread(&self, caller: &Caller, id: ThreadId) -> Result<ThreadView, Problem> {
        caller.need(Scope::Read)?;
        let (thread, inbox) = self.thread(caller, id).await?;
        let mut said = self.messages_of(&thread).await.map_err(unavailable)?;
        said.extend(self.emails_of(&thread).await.map_err(unavailable)?);
        said.sort_by_key(Said::at);
        Ok(ThreadView { thread, caps: inbox.about.caps.unwrap_or_default(), said })
    }

    async fn messages_of(&self, thread: &Thread) -> Result<Vec<Said>, StoreError> {
        let (mut place, mut found) = (MessagePlace::Before(u64::MAX), Vec::new());
        for _ in 0..PAGES {
            let query =
                MessageQuery { thread: Some(thread.id), place, limit: SHOWN - found.len(), ..MessageQuery::default() };
            let page = self.store.messages(thread.team, thread.inbox, query).await?;
            found.extend(page.rows);
            match page.next.filter(|_| found.len() < SHOWN && found.len() < thread.about.messages as usize) {
                Some(next) => place = MessagePlace::Before(next),
                None => break,
            }
        }
        self.derive_states(thread.team, &mut found).await?;
        Ok(found.into_iter().map(|message| Said::Message(Box::new(message))).collect())
    }

    /// The latest emails of a thread, in the version that stands.
    async fn emails_of(&self, thread: &Thread) -> Result<Vec<Said>, StoreError> {
        let (mut after, mut ids) = (None, Vec::new());
        for _ in 0..PAGES {
            let page = self.store.thread_emails(thread.team, thread.id, after, SHOWN).await?;
            after = page.last().copied();
            let full = page.len() == SHOWN;
            ids.extend(page);
            if !full {
                break;
            }
        }
        let mut said = Vec::new();
        let over = ids.len().saturating_sub(SHOWN);
        for id in ids.drain(over..) {
            let Some(email) = self.store.email(thread.team, id).await? else { continue };
            let later = match email.resent_as {
                Some(later) => self.store.email(thread.team, later).await?,
                None => None,
            };
            said.extend([Some(email), later].into_iter().flatten().map(|email| Said::Email(Box::new(email))));
        }
        Ok(said)
    }

    /// Changes labels, or says that nothing is left to do.
    pub async fn change_thread(&self, caller: &Caller, id: ThreadId, edit: ThreadEdit) -> Result<ThreadView, Problem> {
        caller.need(Scope::Reply)?;
        let (_, inbox) = self.thread(caller, id).await?;
        let changed = self.store.change_thread(caller.team.id, id, edit, self.now()).await.map_err(unavailable)?;
        let thread = changed.ok_or_else(|| missing(id))?;
        Ok(ThreadView { thread, caps: inbox.about.caps.unwrap_or_default(), said: Vec::new() })
    }

    /// A fresh token of a lease.
    pub(crate) fn lease_token(&self) -> String {
        let mut bytes = [0; 20];
        self.chance.fill(&mut bytes);
        format!("lt_{}", crate::hex(&bytes))
    }

    /// Takes or renews the lease of a thread.
    pub async fn lease_thread(
        &self,
        caller: &Caller,
        id: ThreadId,
        request: LeaseRequest,
        asked: Option<Asked>,
    ) -> Result<LeaseView, Problem> {
        caller.need(Scope::Reply)?;
        let (thread, _) = self.thread(caller, id).await?;
        let now = self.now();
        let token = request.renew.clone().unwrap_or_else(|| self.lease_token());
        // Whoever comes with the same key again gets this, once the lease is another's.
        let fence = thread.about.fence + u64::from(request.renew.is_none());
        let expires_at = now.plus(request.ttl_ms);
        let view = LeaseView { token: token.clone(), fence, holder: request.holder.clone(), expires_at };
        let answer = self.sealed(asked.as_ref(), &view);
        let ask = LeaseAsk {
            renew: request.renew.as_deref().map(token_hash),
            token: token_hash(&token),
            holder: request.holder,
            ttl_ms: request.ttl_ms,
        };
        let operation = operation(caller, asked.as_ref(), answer, now);
        match self.store.lease_thread(caller.team.id, id, ask, operation, now).await.map_err(unavailable)? {
            Once::Done(Leasing::Taken(thread)) => Ok(shown(token, &thread)),
            Once::Done(Leasing::Busy(thread) | Leasing::Stale(thread)) => Err(leased(&thread, now)),
            Once::Done(Leasing::Missing) => Err(missing(id)),
            Once::Repeated(answer) => {
                let first: LeaseView = self.unsealed(asked.as_ref(), &answer)?;
                let still = thread.is_latest(&token_hash(&first.token));
                Ok(if still { shown(first.token, &thread) } else { first })
            }
            Once::Mismatch(bound) => Err(taken(&bound)),
        }
    }

    /// Gives a lease back. Only one's own: another's stays.
    pub async fn release_thread(&self, caller: &Caller, id: ThreadId, token: &str) -> Result<ThreadView, Problem> {
        caller.need(Scope::Reply)?;
        let (before, inbox) = self.thread(caller, id).await?;
        let now = self.now();
        let released = self.store.release_thread(caller.team.id, id, &token_hash(token), now).await;
        let thread = released.map_err(unavailable)?.ok_or_else(|| missing(id))?;
        if thread.rev == before.rev && thread.about.lease.is_some() {
            return Err(leased(&thread, now));
        }
        self.inbound.waiters.wake(thread.inbox);
        Ok(ThreadView { thread, caps: inbox.about.caps.unwrap_or_default(), said: Vec::new() })
    }

    /// Says which unanswered messages somebody works on: those of threads that are leased.
    pub(crate) async fn derive_states(&self, team: TeamId, messages: &mut [Message]) -> Result<(), StoreError> {
        let now = self.now();
        let mut threads: HashMap<ThreadId, Option<Thread>> = HashMap::new();
        for message in messages.iter_mut().filter(|message| message.state == MessageState::Unanswered) {
            let thread = match threads.entry(message.thread) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(self.store.thread(team, message.thread).await?),
            };
            let lease = thread.as_ref().and_then(|thread| thread.lease_at(now));
            if lease.is_some_and(|lease| lease.message.is_none_or(|named| named == message.id)) {
                message.state = MessageState::Leased;
            }
        }
        Ok(())
    }
}

/// A lease as whoever holds the token sees it.
pub(crate) fn shown(token: String, thread: &Thread) -> LeaseView {
    let lease = thread.about.lease.as_ref();
    LeaseView {
        token,
        fence: thread.about.fence,
        holder: lease.map(|lease| lease.holder.clone()).unwrap_or_default(),
        expires_at: lease.map_or(Time(0), |lease| lease.expires_at),
    }
}

/// How many labels a thread may have.
pub const LABELS: usize = limits::LABELS;
