//! Threads, and the right to be the one who works on them.

use hyper::Method;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

use crate::{
    call::{Call, Caller, Naming, Parts, at},
    error::Error,
    lease::HeldLease,
    page::Each,
    wire::{Lease, NewLease, ReleaseLease, Thread, ThreadPage, ThreadPatch},
};

/// Seconds that a lease lasts between two renewals, unless its caller says so.
const USUAL_TTL_S: u32 = 60;

/// Which threads.
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

/// Threads of the server.
#[derive(Clone)]
pub struct Threads {
    caller: Arc<Caller>,
}

impl Threads {
    pub(crate) fn new(caller: &Arc<Caller>) -> Self {
        Self { caller: Arc::clone(caller) }
    }

    /// One thread with what was said in it.
    pub fn get(&self, id: &str) -> Call<Thread> {
        Call::new(&self.caller, at(id).map(|id| Parts::get(format!("/v1/threads/{id}"))))
    }

    /// A page of threads, those with the latest news first.
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

    /// Changes what is given.
    pub fn update(&self, id: &str, body: &ThreadPatch) -> Call<Thread> {
        let parts =
            at(id).and_then(|id| Parts::new(Method::PATCH, format!("/v1/threads/{id}"), Naming::Nature).body(body));
        Call::new(&self.caller, parts)
    }

    /// Takes a thread and keeps it until `release`: the lease is renewed by itself. `leased` while another has it.
    pub async fn lease(&self, id: &str, body: NewLease) -> Result<HeldLease, Error> {
        let path = format!("/v1/threads/{}/lease", at(id)?);
        let ttl_s = body.ttl_s.unwrap_or(USUAL_TTL_S);
        let asked = NewLease { ttl_s: Some(ttl_s), token: None, ..body };
        let lease = self.ask(&path, &asked).await?;
        let token = lease.token.clone();
        let (threads, again) = (self.clone(), NewLease { token: Some(token.clone()), ..asked });
        let (caller, back) = (Arc::clone(&self.caller), path.clone());
        let renew = move || {
            let call = threads.ask(&path, &again).max_retries(crate::lease::RENEWAL_RETRIES);
            Box::pin(async move { call.await.map(Some) }) as crate::lease::Renewal
        };
        let release = move || {
            let parts = Parts::new(Method::DELETE, back, Naming::Nature)
                .body(&ReleaseLease { token: Some(token), force: None });
            let call = Call::reading(&caller, parts, |_| Some(()));
            Box::pin(async move { call.await }) as crate::lease::GivingBack
        };
        Ok(HeldLease::new(lease, Duration::from_secs(ttl_s.into()), renew, release))
    }

    fn ask(&self, path: &str, body: &NewLease) -> Call<Lease> {
        Call::new(&self.caller, Parts::post(path.to_owned(), Naming::Mint).body(body))
    }

    /// Works on a thread as the only one, and gives it back however the work ends. The work's own error is the one that is
    /// told; a lease that could not be given back after it lapses by itself.
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
