//! Threads, and leases on them.

use hyper::Method;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

use crate::{
    call::{Call, Caller, Idempotency, Parts, at},
    error::Error,
    lease::HeldLease,
    page::Each,
    wire::{Lease, NewLease, ReleaseLease, Thread, ThreadPage, ThreadPatch},
};

/// Default lease duration in seconds; the lease is renewed meanwhile.
const DEFAULT_TTL_S: u32 = 60;

/// Filters for threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names of the query say what they are")]
pub struct ThreadQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handled: Option<bool>,
}

/// Calls for threads.
#[derive(Clone)]
pub struct Threads {
    caller: Arc<Caller>,
}

impl Threads {
    pub(crate) fn new(caller: &Arc<Caller>) -> Self {
        Self { caller: Arc::clone(caller) }
    }

    /// Returns a thread with its messages and emails.
    pub fn get(&self, id: &str) -> Call<Thread> {
        Call::new(&self.caller, at(id).map(|id| Parts::get(format!("/v1/threads/{id}"))))
    }

    /// A page of threads, the most recently active first.
    pub fn list(&self, query: &ThreadQuery) -> Call<ThreadPage> {
        Call::new(&self.caller, Parts::get("/v1/threads".to_owned()).query(query))
    }

    /// All pages of `list`, one thread after the other.
    pub fn each(&self, query: ThreadQuery) -> Each<Thread> {
        let threads = self.clone();
        Each::new(query.cursor.clone(), move |cursor| {
            let page = threads.list(&ThreadQuery { cursor, ..query.clone() });
            async move { page.await.map(|page| (page.data, page.next_cursor)) }
        })
    }

    /// Changes the given fields.
    pub fn update(&self, id: &str, body: &ThreadPatch) -> Call<Thread> {
        let parts = at(id)
            .and_then(|id| Parts::new(Method::PATCH, format!("/v1/threads/{id}"), Idempotency::Inherent).body(body));
        Call::new(&self.caller, parts)
    }

    /// Leases a thread and renews the lease until `release`. Fails with `leased` while another worker holds it.
    pub async fn lease(&self, id: &str, body: NewLease) -> Result<HeldLease, Error> {
        let path = format!("/v1/threads/{}/lease", at(id)?);
        let ttl_s = body.ttl_s.unwrap_or(DEFAULT_TTL_S);
        let request = NewLease { ttl_s: Some(ttl_s), token: None, ..body };
        let lease = self.request_lease(&path, &request).await?;
        let token = lease.token.clone();
        let (threads, again) = (self.clone(), NewLease { token: Some(token.clone()), ..request });
        let (caller, back) = (Arc::clone(&self.caller), path.clone());
        let renew = move || {
            let call = threads.request_lease(&path, &again).max_retries(crate::lease::RENEWAL_RETRIES);
            Box::pin(async move { call.await.map(Some) }) as crate::lease::RenewFuture
        };
        let release = move || {
            let parts = Parts::new(Method::DELETE, back, Idempotency::Inherent)
                .body(&ReleaseLease { token: Some(token), force: None });
            let call = Call::reading(&caller, parts, |_| Some(()));
            Box::pin(async move { call.await }) as crate::lease::ReleaseFuture
        };
        Ok(HeldLease::new(lease, Duration::from_secs(ttl_s.into()), renew, release))
    }

    fn request_lease(&self, path: &str, body: &NewLease) -> Call<Lease> {
        Call::new(&self.caller, Parts::post(path.to_owned(), Idempotency::RandomKey).body(body))
    }

    /// Runs `work` while holding the lease of a thread, then releases it. An error of `work` is returned even if the release
    /// fails too; the lease then expires.
    pub async fn with_lease<T, E: From<Error>>(
        &self,
        id: &str,
        body: NewLease,
        work: impl AsyncFnOnce(&HeldLease) -> Result<T, E>,
    ) -> Result<T, E> {
        let lease = self.lease(id, body).await?;
        let done = work(&lease).await;
        let released = lease.release().await;
        let done = done?;
        released?;
        Ok(done)
    }
}
