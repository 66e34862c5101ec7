//! What this process knows about mail that comes in: the domains that are ours, who waits for messages, and the short
//! way from an arrival to its reader.

use crate::runtime::fetch_limiter::FetchLimiter;
use mailonce_core::{
    id::InboxId,
    inbound::{
        delivery::{Delivery, NewDelivery, ReceiveResult},
        wake_up::InboundWakeUp,
    },
    ports::authenticator::{Authenticator, NoSenderCheck},
    time::Time,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError, RwLock, Weak},
};
use tokio::sync::{Notify, mpsc};

/// Mails that go from their arrival to their reader without a way through the ledger.
const FAST_PATH_CAPACITY: usize = 512;
/// The largest of them, in octets. Larger ones are read from the ledger, so that memory stays bounded.
const FAST_PATH_MAX_BYTES: usize = 256 * 1024;

/// A mail on the short way.
pub(crate) struct FastPathMail {
    pub(crate) delivery: Delivery,
    pub(crate) raw: Arc<Vec<u8>>,
}

/// Room on the short way for the mails of one arrival.
pub(crate) type FastPathPermits = Vec<mpsc::OwnedPermit<FastPathMail>>;

/// Mail that comes in, as this process sees it.
pub(crate) struct InboundRuntime {
    /// Domains whose inboxes anybody of this installation may make.
    pub(crate) local_domains: Vec<String>,
    /// Those, and the others at which there are inboxes.
    pub(crate) inbox_domains: Arc<InboxDomains>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    fast_path_tx: mpsc::Sender<FastPathMail>,
    /// Whoever reads takes it.
    pub(crate) fast_path_rx: tokio::sync::Mutex<mpsc::Receiver<FastPathMail>>,
    /// Wakes readers when the ledger has something for them.
    pub(crate) work_available: Notify,
    pub(crate) waiters: InboxWaiters,
    pub(crate) fetch_limiter: FetchLimiter,
    /// Whether the store tells of every message, so that waiting needs no polling.
    pub(crate) has_push_wake_ups: std::sync::atomic::AtomicBool,
}

impl InboundRuntime {
    pub(crate) fn new(domains: Vec<String>, authenticator: Option<Arc<dyn Authenticator>>) -> Self {
        let (way_in, way_out) = mpsc::channel(FAST_PATH_CAPACITY);
        Self {
            inbox_domains: Arc::new(InboxDomains(RwLock::new(domains.iter().cloned().collect()))),
            local_domains: domains,
            authenticator: authenticator.unwrap_or_else(|| Arc::new(NoSenderCheck)),
            fast_path_tx: way_in,
            fast_path_rx: tokio::sync::Mutex::new(way_out),
            work_available: Notify::new(),
            waiters: InboxWaiters::default(),
            fetch_limiter: FetchLimiter::default(),
            has_push_wake_ups: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Room on the short way for every parcel, or `None`: then the ledger is read.
    pub(crate) fn reserve_fast_path(&self, parcels: &[NewDelivery], bytes: usize) -> Option<FastPathPermits> {
        if bytes > FAST_PATH_MAX_BYTES {
            return None;
        }
        parcels.iter().map(|_| self.fast_path_tx.clone().try_reserve_owned().ok()).collect()
    }

    /// Sends what was kept to its reader.
    pub(crate) fn send_to_worker(
        &self,
        permits: Option<FastPathPermits>,
        parcels: Vec<NewDelivery>,
        received: &[ReceiveResult],
        raw: &Arc<Vec<u8>>,
        now: Time,
    ) {
        for ((permit, parcel), received) in permits.into_iter().flatten().zip(parcels).zip(received) {
            if let ReceiveResult::Stored(_) = received {
                permit.send(FastPathMail { delivery: Delivery::new(parcel, true, now), raw: Arc::clone(raw) });
            }
        }
    }

    /// Passes on what the store tells.
    pub(crate) fn on_wake_up(&self, hint: InboundWakeUp) {
        match hint {
            InboundWakeUp::MessageFiled(inbox) => self.waiters.wake(inbox),
            InboundWakeUp::DeliveryWaiting => self.work_available.notify_one(),
        }
    }
}

/// Domains at which there may be inboxes, as far as this process knows.
#[derive(Default)]
pub(crate) struct InboxDomains(RwLock<HashSet<String>>);

impl InboxDomains {
    /// Notes that there are inboxes at a domain.
    pub(crate) fn add(&self, domain: &str) {
        if !self.contains(domain) {
            self.0.write().unwrap_or_else(PoisonError::into_inner).insert(domain.to_owned());
        }
    }

    /// Whether there may be inboxes at a domain.
    pub(crate) fn contains(&self, domain: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(domain)
    }
}

/// Those who wait for messages, by inbox.
#[derive(Default)]
pub(crate) struct InboxWaiters(Mutex<HashMap<InboxId, Weak<Notify>>>);

impl InboxWaiters {
    /// What wakes a waiter at this inbox. Kept only as long as somebody waits.
    pub(crate) fn register(&self, inbox: InboxId) -> InboxWaiter<'_> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&inbox).and_then(Weak::upgrade);
        let notify = known.unwrap_or_else(|| {
            let fresh = Arc::new(Notify::new());
            all.insert(inbox, Arc::downgrade(&fresh));
            fresh
        });
        InboxWaiter { waiters: self, inbox, notify }
    }

    pub(crate) fn wake(&self, inbox: InboxId) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notify) = all.get(&inbox).and_then(Weak::upgrade) {
            notify.notify_waiters();
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// One who waits at an inbox.
pub(crate) struct InboxWaiter<'a> {
    waiters: &'a InboxWaiters,
    inbox: InboxId,
    pub(crate) notify: Arc<Notify>,
}

impl Drop for InboxWaiter<'_> {
    fn drop(&mut self) {
        let mut all = self.waiters.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Ours is the last but the map's weak one: nobody else can come in while we hold the lock.
        if Arc::strong_count(&self.notify) == 1 {
            all.remove(&self.inbox);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[tokio::test]
    async fn waiters_of_an_inbox_are_woken_and_forgotten_when_they_leave() {
        let waiters = InboxWaiters::default();
        let inbox = InboxId(Uuid::from_u128(1));
        let (one, two) = (waiters.register(inbox), waiters.register(inbox));
        {
            let (first, second) = (one.notify.notified(), two.notify.notified());
            tokio::pin!(first, second);
            assert!(!first.as_mut().enable() && !second.as_mut().enable());
            waiters.wake(InboxId(Uuid::from_u128(2)));
            assert!(!first.as_mut().enable());
            waiters.wake(inbox);
            first.await;
            second.await;
        }
        drop(one);
        assert_eq!(waiters.len(), 1);
        drop(two);
        assert_eq!(waiters.len(), 0);
    }
}
