//! Inboxes: waiting for messages, consuming codes and links, leasing work.

use hyper::Method;
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc, time::Duration};

use crate::{
    call::{Call, Caller, Idempotency, Parts, at},
    error::Error,
    lease::HeldLease,
    messages::{Messages, taken},
    page::{Each, PageQuery},
    wire::{
        Acknowledgement, Artifact, ConsumeMatch, Inbox, InboxPage, InboxPatch, Message, MessagePage, NewInbox,
        NewWatch, NextMessages, WaitResult, Watch, WorkItem, WorkItemPage,
    },
};

/// The server waits at most a minute per call; a longer wait takes several calls.
const MAX_SERVER_WAIT_S: u32 = 50;
const DEFAULT_WAIT_S: u32 = 30;
/// Default lease of a message in seconds; it is renewed meanwhile.
const DEFAULT_TTL_S: u32 = 60;
/// Default delay in seconds before a message whose work failed is offered again.
const DEFAULT_DELAY_S: u32 = 30;

/// What to wait for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitFor {
    /// Seconds to wait; 30 by default, without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u32>,
    /// Only messages after this cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The sender: an address, or `@domain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Text that the subject contains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Only messages with a `code` or a `link`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has: Option<String>,
    /// Only messages that arrived after this watch was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<String>,
    /// As in `consume`: only new messages with a code or link that nobody else consumed.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
}

/// Filters for messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names of the query say what they are")]
pub struct MessageQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

/// Options of a work loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Name of the worker, shown to others.
    pub holder: Option<String>,
    /// Lease duration in seconds, renewed meanwhile; 60 by default.
    pub ttl_s: Option<u32>,
    /// Seconds before a message whose work failed is offered again; 30 by default.
    pub delay_s: Option<u32>,
}

/// Why a work loop ended.
#[derive(Debug)]
pub enum WorkError<E> {
    /// A call failed.
    Call(Error),
    /// The work failed, and its message was returned.
    Work(E),
}

impl<E: fmt::Display> fmt::Display for WorkError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Work(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for WorkError<E> {}

impl<E> From<Error> for WorkError<E> {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

/// Calls for inboxes, by id or address.
#[derive(Clone)]
pub struct Inboxes {
    caller: Arc<Caller>,
    messages: Messages,
}

impl Inboxes {
    pub(crate) fn new(caller: &Arc<Caller>, messages: Messages) -> Self {
        Self { caller: Arc::clone(caller), messages }
    }

    fn path(inbox: &str, verb: &str) -> Result<String, Error> {
        Ok(format!("/v1/inboxes/{}{verb}", at(inbox)?))
    }

    /// Creates an inbox, with a random address unless you choose one.
    pub fn create(&self, body: &NewInbox) -> Call<Inbox> {
        Call::new(&self.caller, Parts::post("/v1/inboxes".to_owned(), Idempotency::RandomKey).body(body))
    }

    /// Returns an inbox.
    pub fn get(&self, inbox: &str) -> Call<Inbox> {
        Call::new(&self.caller, Self::path(inbox, "").map(Parts::get))
    }

    /// A page of inboxes, newest first.
    pub fn list(&self, query: &PageQuery) -> Call<InboxPage> {
        Call::new(&self.caller, Parts::get("/v1/inboxes".to_owned()).query(query))
    }

    /// All pages of `list`, one inbox after the other.
    pub fn each(&self, query: PageQuery) -> Each<Inbox> {
        let inboxes = self.clone();
        Each::new(query.cursor.clone(), move |cursor| {
            let page = inboxes.list(&PageQuery { cursor, ..query.clone() });
            async move { page.await.map(|page| (page.data, page.next_cursor)) }
        })
    }

    /// Changes the given fields; `Some(None)` clears one.
    pub fn update(&self, inbox: &str, body: &InboxPatch) -> Call<Inbox> {
        let path = Self::path(inbox, "");
        Call::new(&self.caller, path.and_then(|path| Parts::new(Method::PATCH, path, Idempotency::Inherent).body(body)))
    }

    /// Deletes the inbox with all its messages.
    pub fn delete(&self, inbox: &str) -> Call<Inbox> {
        let path = Self::path(inbox, "");
        Call::new(&self.caller, path.map(|path| Parts::new(Method::DELETE, path, Idempotency::Inherent)))
    }

    /// A page of its messages, newest first, or oldest first with `after`.
    pub fn messages(&self, inbox: &str, query: &MessageQuery) -> Call<MessagePage> {
        let path = Self::path(inbox, "/messages");
        Call::new(&self.caller, path.and_then(|path| Parts::get(path).query(query)))
    }

    /// Waits for a message; `None` if none arrived in time.
    pub async fn wait(&self, inbox: &str, what: &WaitFor) -> Result<Option<WaitResult>, Error> {
        let mut left = what.timeout.unwrap_or(DEFAULT_WAIT_S);
        loop {
            let timeout = left.min(MAX_SERVER_WAIT_S);
            let query = WaitFor { timeout: Some(timeout), ..what.clone() };
            let parts = Self::path(inbox, "/wait").and_then(|path| Parts::get(path).query(&query));
            let call = Call::reading(&self.caller, parts, |answer| {
                if answer.status == 204 { Some(None) } else { serde_json::from_slice(&answer.body).ok().map(Some) }
            });
            let arrived: Option<WaitResult> = call.hold(Duration::from_secs(timeout.into())).await?;
            if arrived.is_some() || left <= MAX_SERVER_WAIT_S {
                return Ok(arrived);
            }
            left -= MAX_SERVER_WAIT_S;
        }
    }

    /// Consumes the newest matching code or link once, `for` one account, workflow or run. `timeout` waits for it,
    /// up to 60 s.
    pub fn consume(&self, inbox: &str, body: &ConsumeMatch) -> Call<Artifact> {
        let path = Self::path(inbox, "/consume");
        let hold = Duration::from_secs(body.timeout.unwrap_or_default());
        let parts = path.and_then(|path| Parts::post(path, Idempotency::Inherent).body(body));
        Call::reading(&self.caller, parts, taken).hold(hold)
    }

    /// Creates a watch: `wait` and `consume` with its id see only messages that arrive from now on.
    pub fn watch(&self, inbox: &str, body: &NewWatch) -> Call<Watch> {
        let path = Self::path(inbox, "/watches");
        Call::new(&self.caller, path.and_then(|path| Parts::post(path, Idempotency::RandomKey).body(body)))
    }

    /// Leases up to `limit` unanswered messages, each with its thread, that nobody else has leased.
    pub fn next(&self, inbox: &str, body: &NextMessages) -> Call<Vec<WorkItem>> {
        let path = Self::path(inbox, "/next");
        let parts = path.and_then(|path| Parts::post(path, Idempotency::RandomKey).body(body));
        let call = Call::reading(&self.caller, parts, |answer| {
            serde_json::from_slice::<WorkItemPage>(&answer.body).ok().map(|page| page.data)
        });
        call.hold(Duration::from_secs(body.wait.unwrap_or(0)))
    }

    /// Works on one message after the other. The lease is renewed while `work` runs. The message is acked when `work` returns
    /// `Ok`; an error returns the message and ends the loop. `stop` ends the loop after the current message.
    pub async fn work<E>(
        &self,
        inbox: &str,
        how: &Work,
        stop: impl Future<Output = ()>,
        mut work: impl AsyncFnMut(Message, &HeldLease) -> Result<(), E>,
    ) -> Result<(), WorkError<E>> {
        let mut stop = std::pin::pin!(stop);
        let ttl_s = how.ttl_s.unwrap_or(DEFAULT_TTL_S);
        let request = NextMessages {
            holder: how.holder.clone(),
            ttl_s: Some(ttl_s),
            limit: Some(1),
            wait: Some(MAX_SERVER_WAIT_S.into()),
        };
        loop {
            let next = self.next(inbox, &request).into_future();
            let offers = tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                offers = next => offers?,
            };
            for offer in offers {
                self.one(offer, ttl_s, how.delay_s.unwrap_or(DEFAULT_DELAY_S), &mut work).await?;
            }
        }
    }

    async fn one<E>(
        &self,
        offer: WorkItem,
        ttl_s: u32,
        delay_s: u32,
        work: &mut impl AsyncFnMut(Message, &HeldLease) -> Result<(), E>,
    ) -> Result<(), WorkError<E>> {
        let WorkItem { message, lease, .. } = offer;
        let (id, token) = (message.id.clone(), lease.token.clone());
        let held = self.held(&id, lease, ttl_s);
        if let Err(error) = work(message, &held).await {
            held.stop();
            if !held.is_lost() {
                // Report the work's own error. A message that cannot be returned is offered again when its
                // lease expires.
                let back = Acknowledgement { lease: token, delay_s: Some(delay_s), ttl_s: None };
                drop(self.messages.nack(&id, &back).await);
            }
            return Err(WorkError::Work(error));
        }
        Ok(held.release().await?)
    }

    /// The lease of a message: extended while it is held, and acked when it is released.
    fn held(&self, id: &str, lease: crate::wire::Lease, ttl_s: u32) -> HeldLease {
        let (messages, name) = (self.messages.clone(), id.to_owned());
        let (acking, acked) = (self.messages.clone(), id.to_owned());
        let settle = Acknowledgement { lease: lease.token.clone(), delay_s: None, ttl_s: None };
        let longer = Acknowledgement { ttl_s: Some(ttl_s), ..settle.clone() };
        let renew = move || {
            let call = messages.extend(&name, &longer).max_retries(crate::lease::RENEWAL_RETRIES);
            Box::pin(async move { call.await.map(|settled| settled.lease) }) as crate::lease::RenewFuture
        };
        let release = move || {
            let call = acking.ack(&acked, &settle);
            Box::pin(async move { call.await.map(drop) }) as crate::lease::ReleaseFuture
        };
        HeldLease::new(lease, Duration::from_secs(ttl_s.into()), renew, release)
    }
}
