//! Rate and connection limits per network, so that one network cannot shut out the others.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{
    sync::Semaphore,
    time::{Duration, Instant},
};

use super::settings::NetworkLimits;
use crate::{byte_budget, client_address::network_of};

const MINUTE: Duration = Duration::from_mins(1);
/// Networks in the table. If more connect within a minute, it is a flood, and further networks are rejected.
const MAX_NETWORKS: usize = 65_536;

/// The usage of one network.
#[derive(Debug)]
struct NetworkUsage {
    open: u32,
    connections: MinuteBucket,
    mails: MinuteBucket,
    shares: ByteShares,
}

/// The octets that a network may hold. None: no limit per network.
#[derive(Clone, Debug, Default)]
pub(super) struct ByteShares {
    pub(super) memory: Option<Arc<Semaphore>>,
    pub(super) spool: Option<Arc<Semaphore>>,
}

impl ByteShares {
    fn new(limits: NetworkLimits) -> Self {
        Self {
            memory: limits.memory.map(byte_budget::semaphore_for),
            spool: limits.spool.map(byte_budget::semaphore_for),
        }
    }

    /// Whether a connection or a mail still uses them. A mail that is being committed may outlive its connection.
    fn is_used(&self) -> bool {
        [&self.memory, &self.spool].into_iter().flatten().any(|share| Arc::strong_count(share) > 1)
    }
}

/// A token bucket that refills over a minute.
#[derive(Clone, Copy, Debug)]
struct MinuteBucket {
    spent: f64,
    at: Instant,
}

impl MinuteBucket {
    fn new(now: Instant) -> Self {
        Self { spent: 0.0, at: now }
    }

    fn take(&mut self, limit: Option<u32>, now: Instant) -> bool {
        let Some(limit) = limit.map(f64::from) else { return true };
        let refilled = (now - self.at).as_secs_f64() / MINUTE.as_secs_f64() * limit;
        let spent = (self.spent - refilled).max(0.0);
        if spent + 1.0 > limit {
            return false;
        }
        *self = Self { spent: spent + 1.0, at: now };
        true
    }
}

/// The limits, and the usage of each network.
#[derive(Debug)]
pub(super) struct NetworkLimiter {
    remote_limits: NetworkLimits,
    loopback_limits: NetworkLimits,
    networks: Mutex<HashMap<IpAddr, NetworkUsage>>,
}

impl NetworkLimiter {
    pub(super) fn new(remote_limits: NetworkLimits, loopback_limits: NetworkLimits) -> Arc<Self> {
        Arc::new(Self { remote_limits, loopback_limits, networks: Mutex::default() })
    }

    /// Admits a connection and counts it until the permit is dropped. None: a limit is reached.
    pub(super) fn admit(self: &Arc<Self>, ip: IpAddr) -> Option<ConnectionPermit> {
        let network = network_of(ip);
        let limits = if network.is_loopback() { self.loopback_limits } else { self.remote_limits };
        let shares = if limits == NetworkLimits::default() {
            ByteShares::default()
        } else {
            self.count_connection(network, limits)?
        };
        Some(ConnectionPermit { limiter: Arc::clone(self), network, limits, shares })
    }

    /// Counts a connection, if the limits of its network allow it.
    fn count_connection(&self, network: IpAddr, limits: NetworkLimits) -> Option<ByteShares> {
        let now = Instant::now();
        let mut networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        if networks.len() >= MAX_NETWORKS && !networks.contains_key(&network) {
            networks.retain(|_, usage| {
                let recent = now - usage.connections.at.max(usage.mails.at) < MINUTE;
                usage.open > 0 || recent || usage.shares.is_used()
            });
            if networks.len() >= MAX_NETWORKS {
                return None;
            }
        }
        let new_usage = || NetworkUsage {
            open: 0,
            connections: MinuteBucket::new(now),
            mails: MinuteBucket::new(now),
            shares: ByteShares::new(limits),
        };
        let usage = networks.entry(network).or_insert_with(new_usage);
        let admitted = limits.connections.is_none_or(|limit| usage.open < limit)
            && usage.connections.take(limits.connections_per_minute, now);
        usage.open += u32::from(admitted);
        admitted.then(|| usage.shares.clone())
    }
}

/// The permit of one admitted connection.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    limiter: Arc<NetworkLimiter>,
    network: IpAddr,
    limits: NetworkLimits,
    shares: ByteShares,
}

impl ConnectionPermit {
    /// The byte shares of its network.
    pub(super) fn shares(&self) -> &ByteShares {
        &self.shares
    }

    /// Counts a new mail. False if the network has reached its rate of mails.
    pub(super) fn may_begin_mail(&self) -> bool {
        if self.limits.mails_per_minute.is_none() {
            return true;
        }
        let mut networks = self.limiter.networks.lock().unwrap_or_else(PoisonError::into_inner);
        networks
            .get_mut(&self.network)
            .is_none_or(|usage| usage.mails.take(self.limits.mails_per_minute, Instant::now()))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if self.limits == NetworkLimits::default() {
            return;
        }
        let mut networks = self.limiter.networks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(usage) = networks.get_mut(&self.network) {
            usage.open = usage.open.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_may_come_so_often_and_others_do_not_notice() {
        let limits = NetworkLimits {
            connections: Some(2),
            connections_per_minute: Some(3),
            mails_per_minute: Some(1),
            ..NetworkLimits::default()
        };
        let limiter = NetworkLimiter::new(limits, NetworkLimits::default());
        let first = limiter.admit(ip("192.0.2.1")).unwrap();
        let second = limiter.admit(ip("192.0.2.1"));
        assert!(second.is_some() && limiter.admit(ip("192.0.2.1")).is_none(), "two at a time");
        assert!(limiter.admit(ip("192.0.2.2")).is_some() && limiter.admit(ip("::ffff:192.0.2.1")).is_none());
        drop(second);
        let third = limiter.admit(ip("192.0.2.1"));
        assert!(third.is_some());
        drop(third);
        assert!(limiter.admit(ip("192.0.2.1")).is_none(), "three in a minute");
        tokio::time::advance(Duration::from_secs(21)).await;
        assert!(limiter.admit(ip("192.0.2.1")).is_some(), "one more after a third of it");
        assert!(first.may_begin_mail() && !first.may_begin_mail());
        tokio::time::advance(MINUTE).await;
        assert!(first.may_begin_mail());
    }

    #[tokio::test]
    async fn this_machine_is_free_unless_it_is_told_otherwise() {
        let one = NetworkLimits { connections: Some(1), ..NetworkLimits::default() };
        let limiter = NetworkLimiter::new(one, NetworkLimits::default());
        let permits: Vec<_> = ["127.0.0.1", "127.0.0.1", "::1", "::1"].map(|text| limiter.admit(ip(text))).into();
        assert!(permits.iter().all(Option::is_some));
        let limiter = NetworkLimiter::new(NetworkLimits::default(), one);
        let permit = limiter.admit(ip("::1"));
        assert!(permit.is_some() && limiter.admit(ip("::1")).is_none());
    }

    #[tokio::test]
    async fn half_an_ipv6_address_is_one_network() {
        let limiter = NetworkLimiter::new(
            NetworkLimits { connections: Some(1), ..NetworkLimits::default() },
            NetworkLimits::default(),
        );
        let permit = limiter.admit(ip("2001:db8:1:2::1"));
        assert!(permit.is_some() && limiter.admit(ip("2001:db8:1:2:ffff::9")).is_none());
        assert!(limiter.admit(ip("2001:db8:1:3::1")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_belongs_to_a_network_and_is_remembered_while_it_is_used() {
        let limiter = NetworkLimiter::new(NetworkLimits::REMOTE, NetworkLimits::default());
        let share = |text: &str| limiter.admit(ip(text)).unwrap().shares().memory.clone().unwrap();
        let held = share("192.0.2.1").acquire_many_owned(1000).await.unwrap();
        let left = share("192.0.2.1").available_permits();
        assert_eq!(share("192.0.2.2").available_permits(), left + 1000);
        tokio::time::advance(MINUTE * 2).await;
        for n in 0..MAX_NETWORKS as u32 {
            drop(limiter.admit(IpAddr::from((0x0b00_0000 + n).to_be_bytes())));
        }
        assert_eq!(share("192.0.2.1").available_permits(), left, "forgotten although a mail still holds some of it");
        drop(held);
        assert!(limiter.admit(ip("127.0.0.1")).unwrap().shares().memory.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_left_is_forgotten_and_a_flood_of_networks_waits() {
        let limiter = NetworkLimiter::new(NetworkLimits::REMOTE, NetworkLimits::default());
        for n in 0..MAX_NETWORKS as u32 {
            assert!(limiter.admit(IpAddr::from((0x0b00_0000 + n).to_be_bytes())).is_some());
        }
        assert!(limiter.admit(ip("192.0.2.1")).is_none(), "more networks in a minute than are remembered");
        assert!(limiter.admit(ip("11.0.0.1")).is_some(), "a known network is admitted");
        tokio::time::advance(MINUTE * 2).await;
        assert!(limiter.admit(ip("192.0.2.1")).is_some());
        assert_eq!(limiter.networks.lock().unwrap().len(), 1);
    }
}
