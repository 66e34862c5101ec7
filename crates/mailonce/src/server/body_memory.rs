//! Memory for request bodies: one budget for all requests, and a share of it for each address, so that one client with
//! many large requests cannot use up the memory of the others.
//!
//! A body counts from its first bytes until its request is answered, because handlers keep the whole body in memory. If
//! the budget or the share is used up, reading the body fails with [`BodyMemoryExhausted`]. The client gets
//! `503 unavailable` and retries.

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
};
use std::{
    collections::HashMap,
    error::Error,
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::sync::Semaphore;

use super::{
    address_limits::is_exempt,
    checked_body::{BodyCheck, check_body},
};
use crate::{
    byte_budget::{self, ByteBudget, ByteLease, Shortage},
    client_address::{TrustedProxies, network_of},
};

/// Bodies with a declared size up to this are not counted. The connection limit bounds their memory.
const UNCOUNTED_MAX_BYTES: u64 = 16 * 1024;
/// The default budget for all request bodies, in bytes. One address may hold a quarter of it.
pub(super) const DEFAULT_BODY_MEMORY: usize = 512 * 1024 * 1024;
/// Entries in the table of shares before those without a running request are removed.
const MAX_SHARES: usize = 1_024;

/// Limits of body memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyLimits {
    /// For all requests together.
    pub(crate) total: usize,
    /// For one address. None: no limit per address.
    pub(crate) per_address: Option<usize>,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { total: DEFAULT_BODY_MEMORY, per_address: Some(DEFAULT_BODY_MEMORY / 4) }
    }
}

/// The memory for request bodies.
#[derive(Debug)]
pub(super) struct BodyMemory {
    total: Arc<Semaphore>,
    per_address: Option<usize>,
    exempt: TrustedProxies,
    shares: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

impl BodyMemory {
    /// `exempt` proxies have no share of their own, because many clients share them.
    pub(super) fn new(limits: BodyLimits, exempt: TrustedProxies) -> Self {
        let total = byte_budget::semaphore_for(limits.total);
        Self { total, per_address: limits.per_address, exempt, shares: Mutex::default() }
    }

    /// Counts a body until both the body and the returned lease are dropped.
    pub(super) fn meter<B>(&self, client: IpAddr, body: B) -> (Body, Option<SharedLease>)
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.size_hint().upper().is_some_and(|bytes| bytes <= UNCOUNTED_MAX_BYTES) {
            return (Body::new(body), None);
        }
        let budget = ByteBudget { total: Arc::clone(&self.total), share: self.share_of(client) };
        let lease = Arc::new(Mutex::new(ByteLease::new(budget)));
        (check_body(Body::new(body), BodyMeter(Arc::clone(&lease))), Some(lease))
    }

    fn share_of(&self, client: IpAddr) -> Option<Arc<Semaphore>> {
        let limit = self.per_address.filter(|_| !is_exempt(client, &self.exempt))?;
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if shares.len() >= MAX_SHARES {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        let slot = shares.entry(network_of(client)).or_default();
        let share = slot.upgrade().unwrap_or_else(|| byte_budget::semaphore_for(limit));
        *slot = Arc::downgrade(&share);
        Some(share)
    }
}

/// The memory of one request: held while its body is read and until its handler has answered.
pub(super) type SharedLease = Arc<Mutex<ByteLease>>;

struct BodyMeter(SharedLease);

impl BodyCheck for BodyMeter {
    fn on_received(&mut self, bytes: usize) -> Result<(), BoxError> {
        let grown = self.0.lock().unwrap_or_else(PoisonError::into_inner).try_grow(bytes);
        grown.map_err(|shortage| BodyMemoryExhausted(shortage).into())
    }
}

/// There is no memory left for a body.
#[derive(Debug)]
pub(crate) struct BodyMemoryExhausted(Shortage);

impl fmt::Display for BodyMemoryExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Shortage::Share => "the request bodies of this address use up its share of memory",
            Shortage::Total => "the memory for request bodies is used up",
        })
    }
}

impl Error for BodyMemoryExhausted {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::checked_body::has_cause;
    use axum::body::to_bytes;

    const MIB: usize = 1024 * 1024;
    const ATTACKER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn memory() -> BodyMemory {
        let limits = BodyLimits { total: 10 * MIB, per_address: Some(4 * MIB) };
        BodyMemory::new(limits, TrustedProxies::default())
    }

    /// Reads a body of this size and returns its lease.
    async fn read(memory: &BodyMemory, client: IpAddr, octets: usize) -> Result<Option<SharedLease>, bool> {
        let (body, lease) = memory.meter(client, Body::from(vec![0; octets]));
        let read = to_bytes(body, usize::MAX).await;
        read.map(|_| lease).map_err(|error| has_cause::<BodyMemoryExhausted>(&error))
    }

    #[tokio::test]
    async fn an_address_holds_its_share_until_its_requests_are_answered() {
        let memory = memory();
        let first = read(&memory, ATTACKER, 3 * MIB).await.unwrap();
        assert!(first.is_some());
        assert!(read(&memory, ATTACKER, 2 * MIB).await.unwrap_err(), "3 of 4 MiB are held");
        let _second = read(&memory, OTHER, 4 * MIB).await.unwrap();
        drop(first);
        let _third = read(&memory, ATTACKER, 4 * MIB).await.unwrap();
        let localhost = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
        assert!(read(&memory, localhost, 3 * MIB).await.unwrap_err(), "8 of 10 MiB are held in all");
        let _fourth = read(&memory, localhost, 2 * MIB).await.unwrap();
    }

    #[tokio::test]
    async fn small_bodies_are_not_counted() {
        let memory = memory();
        let _held = read(&memory, ATTACKER, 4 * MIB).await.unwrap();
        assert!(read(&memory, ATTACKER, UNCOUNTED_MAX_BYTES as usize).await.unwrap().is_none());
        assert!(read(&memory, ATTACKER, UNCOUNTED_MAX_BYTES as usize + 1).await.unwrap_err());
    }

    #[tokio::test]
    async fn shares_of_addresses_without_requests_are_forgotten() {
        let memory = memory();
        for n in 0..3_000_u32 {
            let client = IpAddr::V4(std::net::Ipv4Addr::from(0xc633_6400 + n));
            read(&memory, client, UNCOUNTED_MAX_BYTES as usize + 1).await.unwrap();
        }
        assert!(memory.shares.lock().unwrap().len() <= MAX_SHARES);
    }
}
