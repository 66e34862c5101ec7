//! The in-memory state of receiving: the domains of our inboxes, the calls that wait for messages, and the fast path
//! that passes a received mail to the inbound worker without reading it from the store.

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

/// How many mails the fast path to the worker holds.
const FAST_PATH_CAPACITY: usize = 512;
/// The largest mail on the fast path. The worker reads larger ones from the store, so that memory stays bounded.
const FAST_PATH_MAX_BYTES: usize = 256 * 1024;

/// A mail on the fast path.
pub(crate) struct FastPathMail {
    pub(crate) delivery: Delivery,
    pub(crate) raw: Arc<Vec<u8>>,
}

/// Reserved capacity on the fast path, one permit for each delivery of a mail.
pub(crate) type FastPathPermits = Vec<mpsc::OwnedPermit<FastPathMail>>;

/// The state that receiving shares within this process.
pub(crate) struct InboundRuntime {
    /// The installation's own domains, where every team may create inboxes.
    pub(crate) local_domains: Vec<String>,
    /// The local domains and all other domains that have inboxes.
    pub(crate) inbox_domains: Arc<InboxDomains>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    fast_path_tx: mpsc::Sender<FastPathMail>,
    /// Locked by the worker while it runs.
    pub(crate) fast_path_rx: tokio::sync::Mutex<mpsc::Receiver<FastPathMail>>,
    /// Wakes the worker when the store has a waiting delivery.
    pub(crate) work_available: Notify,
    pub(crate) waiters: InboxWaiters,
    pub(crate) fetch_limiter: FetchLimiter,
    /// How many leases of deliveries failed in this process. Each may have been committed.
    pub(crate) unconfirmed_leases: std::sync::atomic::AtomicU32,
    /// Whether the store pushes a wake-up for every message. Otherwise waiting calls poll.
    pub(crate) has_push_wake_ups: std::sync::atomic::AtomicBool,
}

impl InboundRuntime {
    pub(crate) fn new(domains: Vec<String>, authenticator: Option<Arc<dyn Authenticator>>) -> Self {
        let (sender, receiver) = mpsc::channel(FAST_PATH_CAPACITY);
        Self {
            inbox_domains: Arc::new(InboxDomains(RwLock::new(domains.iter().cloned().collect()))),
            local_domains: domains,
            authenticator: authenticator.unwrap_or_else(|| Arc::new(NoSenderCheck)),
            fast_path_tx: sender,
            fast_path_rx: tokio::sync::Mutex::new(receiver),
            work_available: Notify::new(),
            waiters: InboxWaiters::default(),
            fetch_limiter: FetchLimiter::default(),
            unconfirmed_leases: std::sync::atomic::AtomicU32::new(0),
            has_push_wake_ups: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Reserves fast-path capacity for all deliveries of a mail. `None` when there is not enough: then the worker reads
    /// them from the store.
    pub(crate) fn reserve_fast_path(&self, deliveries: &[NewDelivery], bytes: usize) -> Option<FastPathPermits> {
        if bytes > FAST_PATH_MAX_BYTES {
            return None;
        }
        deliveries.iter().map(|_| self.fast_path_tx.clone().try_reserve_owned().ok()).collect()
    }

    /// Passes the stored deliveries to the worker.
    pub(crate) fn send_to_worker(
        &self,
        permits: Option<FastPathPermits>,
        deliveries: Vec<NewDelivery>,
        received: &[ReceiveResult],
        raw: &Arc<Vec<u8>>,
        now: Time,
    ) {
        for ((permit, delivery), received) in permits.into_iter().flatten().zip(deliveries).zip(received) {
            if let ReceiveResult::Stored(_) = received {
                permit.send(FastPathMail { delivery: Delivery::new(delivery, true, now), raw: Arc::clone(raw) });
            }
        }
    }

    /// Wakes the waiting calls or the worker that a wake-up of the store concerns.
    pub(crate) fn on_wake_up(&self, wake_up: InboundWakeUp) {
        match wake_up {
            InboundWakeUp::MessageFiled(inbox) => self.waiters.wake(inbox),
            InboundWakeUp::DeliveryWaiting => self.work_available.notify_one(),
        }
    }
}

/// The domains that may have inboxes, as far as this process knows.
#[derive(Default)]
pub(crate) struct InboxDomains(RwLock<HashSet<String>>);

impl InboxDomains {
    /// Adds a domain that has inboxes.
    pub(crate) fn add(&self, domain: &str) {
        if !self.contains(domain) {
            self.0.write().unwrap_or_else(PoisonError::into_inner).insert(domain.to_owned());
        }
    }

    /// Whether a domain may have inboxes.
    pub(crate) fn contains(&self, domain: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(domain)
    }
}

/// The calls that wait for messages, by inbox.
#[derive(Default)]
pub(crate) struct InboxWaiters(Mutex<HashMap<InboxId, Weak<Notify>>>);

impl InboxWaiters {
    /// Registers a call that waits for messages of an inbox, until the returned guard is dropped.
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

/// The registration of one waiting call.
pub(crate) struct InboxWaiter<'a> {
    waiters: &'a InboxWaiters,
    inbox: InboxId,
    pub(crate) notify: Arc<Notify>,
}

impl Drop for InboxWaiter<'_> {
    fn drop(&mut self) {
        let mut all = self.waiters.0.lock().unwrap_or_else(PoisonError::into_inner);
        // If ours is the last strong reference, nobody waits any more: no other call can register while we hold the lock.
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
