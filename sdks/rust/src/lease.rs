//! A lease that is renewed by itself while it is held.

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

/// Retries of one renewal. The loop renews again anyway, and must notice in time that the lease is lost.
pub(crate) const RENEWAL_RETRIES: u32 = 2;

pub(crate) type Renewal = Pin<Box<dyn Future<Output = Result<Option<Lease>, Error>> + Send>>;
pub(crate) type GivingBack = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A lease in hand, renewed until it is released or dropped. Stop working when it is [lost](Self::lost): another agent may
/// have the thread. Dropping it without a release lets it lapse by itself.
pub struct HeldLease {
    /// Show it as `lease` when you answer.
    pub token: String,
    /// Grows with each lease of the thread.
    pub fence: u64,
    /// Who has it.
    pub holder: String,
    latest: Arc<Mutex<Lease>>,
    lost: watch::Receiver<bool>,
    renewing: JoinHandle<()>,
    release: Option<Box<dyn FnOnce() -> GivingBack + Send + Sync>>,
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
        renew: impl Fn() -> Renewal + Send + Sync + 'static,
        release: impl FnOnce() -> GivingBack + Send + Sync + 'static,
    ) -> Self {
        let (say, lost) = watch::channel(false);
        let (token, fence, holder) = (lease.token.clone(), lease.fence, lease.holder.clone());
        let latest = Arc::new(Mutex::new(lease));
        let renewing = tokio::spawn(renewed(ttl, renew, Arc::clone(&latest), say));
        Self { token, fence, holder, latest, lost, renewing, release: Some(Box::new(release)) }
    }

    /// Until when it is granted, as far as is known.
    pub fn expires_at(&self) -> String {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).expires_at.clone()
    }

    /// Whether it is lost.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Comes when it is lost; for a `select!` beside the work.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        if lost.wait_for(|lost| *lost).await.is_err() {
            // Nobody renews it any more, so nobody can lose it.
            std::future::pending::<()>().await;
        }
    }

    /// Stops renewing and gives it back. Giving back what was lost does nothing.
    pub async fn release(mut self) -> Result<(), Error> {
        self.renewing.abort();
        match self.release.take() {
            Some(release) if !self.is_lost() => release().await,
            _ => Ok(()),
        }
    }

    /// Stops renewing, and leaves it to lapse.
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
    renew: impl Fn() -> Renewal + Send + Sync,
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
            // No answer is no loss while the time that was granted lasts.
            Err(error) if error.retry == Retry::Same && Instant::now() < until => {}
            Err(_) => {
                say.send_replace(true);
                // Kept until the lease is dropped, so that whoever asks later learns it too.
                return std::future::pending().await;
            }
        }
    }
}
