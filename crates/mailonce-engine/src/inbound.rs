//! What this process knows about mail that comes in: the domains that are ours, who waits for messages, and the short
//! way from an arrival to its reader.

use mailonce_core::{
    delivery::{Delivery, NewDelivery, Received},
    id::InboxId,
    port::{
        arrivals::Hint,
        authenticate::{Authenticator, Unasked},
    },
    time::Time,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError, RwLock, Weak},
};
use tokio::sync::{Notify, mpsc};

/// Mails that go from their arrival to their reader without a way through the ledger.
const SHORT_WAY: usize = 512;
/// The largest of them, in octets. Larger ones are read from the ledger, so that memory stays bounded.
const SHORT_WAY_BYTES: usize = 256 * 1024;

/// A mail on the short way.
pub(crate) struct Fresh {
    pub(crate) delivery: Delivery,
    pub(crate) raw: Arc<Vec<u8>>,
}

/// Room on the short way for the mails of one arrival.
pub(crate) type Permits = Vec<mpsc::OwnedPermit<Fresh>>;

/// Mail that comes in, as this process sees it.
pub(crate) struct Inbound {
    /// Domains whose inboxes anybody of this installation may make.
    pub(crate) domains: Vec<String>,
    /// Those, and the others at which there are inboxes.
    pub(crate) inbox_domains: Arc<InboxDomains>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    way_in: mpsc::Sender<Fresh>,
    /// Whoever reads takes it.
    pub(crate) way_out: tokio::sync::Mutex<mpsc::Receiver<Fresh>>,
    /// Wakes readers when the ledger has something for them.
    pub(crate) waiting: Notify,
    pub(crate) waiters: Waiters,
    /// Whether the store tells of every message, so that waiting needs no polling.
    pub(crate) told: std::sync::atomic::AtomicBool,
}

impl Inbound {
    pub(crate) fn new(domains: Vec<String>, authenticator: Option<Arc<dyn Authenticator>>) -> Self {
        let (way_in, way_out) = mpsc::channel(SHORT_WAY);
        Self {
            inbox_domains: Arc::new(InboxDomains(RwLock::new(domains.iter().cloned().collect()))),
            domains,
            authenticator: authenticator.unwrap_or_else(|| Arc::new(Unasked)),
            way_in,
            way_out: tokio::sync::Mutex::new(way_out),
            waiting: Notify::new(),
            waiters: Waiters::default(),
            told: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Room on the short way for every parcel, or `None`: then the ledger is read.
    pub(crate) fn room_for(&self, parcels: &[NewDelivery], bytes: usize) -> Option<Permits> {
        if bytes > SHORT_WAY_BYTES {
            return None;
        }
        parcels.iter().map(|_| self.way_in.clone().try_reserve_owned().ok()).collect()
    }

    /// Sends what was kept to its reader.
    pub(crate) fn hand_on(
        &self,
        permits: Option<Permits>,
        parcels: Vec<NewDelivery>,
        received: &[Received],
        raw: &Arc<Vec<u8>>,
        now: Time,
    ) {
        for ((permit, parcel), received) in permits.into_iter().flatten().zip(parcels).zip(received) {
            if let Received::Kept(_) = received {
                permit.send(Fresh { delivery: Delivery::new(parcel, true, now), raw: Arc::clone(raw) });
            }
        }
    }

    /// Passes on what the store tells.
    pub(crate) fn hear(&self, hint: Hint) {
        match hint {
            Hint::Filed(inbox) => self.waiters.wake(inbox),
            Hint::Waiting => self.waiting.notify_one(),
        }
    }
}

/// Domains at which there may be inboxes, as far as this process knows.
#[derive(Default)]
pub(crate) struct InboxDomains(RwLock<HashSet<String>>);

impl InboxDomains {
    /// Notes that there are inboxes at a domain.
    pub(crate) fn learn(&self, domain: &str) {
        if !self.has(domain) {
            self.0.write().unwrap_or_else(PoisonError::into_inner).insert(domain.to_owned());
        }
    }

    /// Whether there may be inboxes at a domain.
    pub(crate) fn has(&self, domain: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(domain)
    }
}

/// Those who wait for messages, by inbox.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<HashMap<InboxId, Weak<Notify>>>);

impl Waiters {
    /// What wakes a waiter at this inbox. Kept only as long as somebody waits.
    pub(crate) fn at(&self, inbox: InboxId) -> Waiting<'_> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&inbox).and_then(Weak::upgrade);
        let notify = known.unwrap_or_else(|| {
            let fresh = Arc::new(Notify::new());
            all.insert(inbox, Arc::downgrade(&fresh));
            fresh
        });
        Waiting { waiters: self, inbox, notify }
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
pub(crate) struct Waiting<'a> {
    waiters: &'a Waiters,
    inbox: InboxId,
    pub(crate) notify: Arc<Notify>,
}

impl Drop for Waiting<'_> {
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
        let waiters = Waiters::default();
        let inbox = InboxId(Uuid::from_u128(1));
        let (one, two) = (waiters.at(inbox), waiters.at(inbox));
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
