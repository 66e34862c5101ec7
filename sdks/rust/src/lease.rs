//! A lease that is renewed while it is held.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    error::{Error, Retry},
    wire::Lease,
};

/// Retries of one renewal. Few, because the loop renews again and must notice a lost lease in time.
pub(crate) const RENEWAL_RETRIES: u32 = 2;

pub(crate) type RenewFuture = Pin<Box<dyn Future<Output = Result<Option<Lease>, Error>> + Send>>;
pub(crate) type ReleaseFuture = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A lease that is renewed until it is released or dropped. Stop working when it is [lost](Self::lost): another agent may
/// have the thread. Dropping it without a release lets it expire.
pub struct HeldLease {
    /// Pass it as `lease` when you reply.
    pub token: String,
    /// Fencing number; grows with each lease of the thread.
    pub fence: u64,
    /// Name of the worker that holds the lease.
    pub holder: String,
    latest: Arc<Mutex<Lease>>,
    lost: watch::Receiver<bool>,
    renewing: JoinHandle<()>,
    release: Option<Box<dyn FnOnce() -> ReleaseFuture + Send + Sync>>,
}

impl std::fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (fence, holder) = (&self.fence, &self.holder);
        f.debug_struct("HeldLease").field("fence", fence).field("holder", holder).finish_non_exhaustive()
    }
}

impl HeldLease {
    pub(crate) fn new(
        lease: Lease,
        ttl: Duration,
        renew: impl Fn() -> RenewFuture + Send + Sync + 'static,
        release: impl FnOnce() -> ReleaseFuture + Send + Sync + 'static,
    ) -> Self {
        let (say, lost) = watch::channel(false);
        let (token, fence, holder) = (lease.token.clone(), lease.fence, lease.holder.clone());
        let latest = Arc::new(Mutex::new(lease));
        let renewing = tokio::spawn(renewed(ttl, renew, Arc::clone(&latest), say));
        Self { token, fence, holder, latest, lost, renewing, release: Some(Box::new(release)) }
    }

    /// When the lease expires, as of its last renewal.
    pub fn expires_at(&self) -> String {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).expires_at.clone()
    }

    /// Whether the lease is lost.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Completes when the lease is lost; for a `select!` with the work.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        if lost.wait_for(|lost| *lost).await.is_err() {
            // Renewing has stopped, so a loss is not noticed any more.
            std::future::pending::<()>().await;
        }
    }

    /// Stops renewing and releases the lease. Releasing a lost lease does nothing.
    pub async fn release(mut self) -> Result<(), Error> {
        self.renewing.abort();
        match self.release.take() {
            Some(release) if !self.is_lost() => release().await,
            _ => Ok(()),
        }
    }

    /// Stops renewing and lets the lease expire.
    pub(crate) fn stop(&self) {
        self.renewing.abort();
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

async fn renewed(
    ttl: Duration,
    renew: impl Fn() -> RenewFuture + Send + Sync,
    latest: Arc<Mutex<Lease>>,
    say: watch::Sender<bool>,
) {
    let mut until = Instant::now() + ttl;
    loop {
        sleep((ttl / 3).min(until.saturating_duration_since(Instant::now()))).await;
        let asked = Instant::now();
        match renew().await {
            Ok(lease) => {
                until = asked + ttl;
                if let Some(lease) = lease {
                    *latest.lock().unwrap_or_else(PoisonError::into_inner) = lease;
                }
            }
            // Without a response the lease still holds until it expires.
            Err(error) if error.retry == Retry::Same && Instant::now() < until => {}
            Err(_) => {
                say.send_replace(true);
                // Keep the sender until the lease is dropped, so that later callers see the loss too.
                return std::future::pending().await;
            }
        }
    }
}
