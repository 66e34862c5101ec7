//! Who may come in, and how often: limits for each network, so that one cannot keep out the others.

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
/// Networks that are remembered at a time. More than that in a minute is a flood, and waits.
const MAX_NETWORKS: usize = 65_536;

/// Counts of one network.
#[derive(Debug)]
struct NetworkUsage {
    open: u32,
    connections: MinuteBucket,
    mails: MinuteBucket,
    shares: ByteShares,
}

/// The octets that a network may hold. None: as many as there are.
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

    /// Whether a connection or a mail still refers to them. A mail that is being committed may outlive its connection.
    fn is_used(&self) -> bool {
        [&self.memory, &self.spool].into_iter().flatten().any(|share| Arc::strong_count(share) > 1)
    }
}

/// What may still be done, refilled over a minute.
#[derive(Clone, Copy, Debug)]
struct MinuteBucket {
    spent: f64,
    at: Instant,
}

impl MinuteBucket {
    fn new(now: Instant) -> Self {
        Self { spent: 0.0, at: now }
    }

    fn take(&mut self, most: Option<u32>, now: Instant) -> bool {
        let Some(most) = most.map(f64::from) else { return true };
        let refilled = (now - self.at).as_secs_f64() / MINUTE.as_secs_f64() * most;
        let spent = (self.spent - refilled).max(0.0);
        if spent + 1.0 > most {
            return false;
        }
        *self = Self { spent: spent + 1.0, at: now };
        true
    }
}

/// The limits, and who is inside.
#[derive(Debug)]
pub(super) struct NetworkLimiter {
    remote_limits: NetworkLimits,
    loopback_limits: NetworkLimits,
    networks: Mutex<HashMap<IpAddr, NetworkUsage>>,
}

impl NetworkLimiter {
    pub(super) fn new(strangers: NetworkLimits, loopback: NetworkLimits) -> Arc<Self> {
        Arc::new(Self { remote_limits: strangers, loopback_limits: loopback, networks: Mutex::default() })
    }

    /// Lets a connection in, until the visit is dropped.
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

    /// Counts a connection that may come in.
    fn count_connection(&self, network: IpAddr, limits: NetworkLimits) -> Option<ByteShares> {
        let now = Instant::now();
        let mut guests = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        if guests.len() >= MAX_NETWORKS && !guests.contains_key(&network) {
            guests.retain(|_, guest| {
                let recent = now - guest.connections.at.max(guest.mails.at) < MINUTE;
                guest.open > 0 || recent || guest.shares.is_used()
            });
            if guests.len() >= MAX_NETWORKS {
                return None;
            }
        }
        let fresh = || NetworkUsage {
            open: 0,
            connections: MinuteBucket::new(now),
            mails: MinuteBucket::new(now),
            shares: ByteShares::new(limits),
        };
        let guest = guests.entry(network).or_insert_with(fresh);
        let may = limits.connections.is_none_or(|most| guest.open < most)
            && guest.connections.take(limits.connections_per_minute, now);
        guest.open += u32::from(may);
        may.then(|| guest.shares.clone())
    }
}

/// One connection that was let in.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    limiter: Arc<NetworkLimiter>,
    network: IpAddr,
    limits: NetworkLimits,
    shares: ByteShares,
}

impl ConnectionPermit {
    /// The octets that its network may hold.
    pub(super) fn shares(&self) -> &ByteShares {
        &self.shares
    }

    /// Whether its network may begin another mail.
    pub(super) fn may_begin_mail(&self) -> bool {
        if self.limits.mails_per_minute.is_none() {
            return true;
        }
        let mut guests = self.limiter.networks.lock().unwrap_or_else(PoisonError::into_inner);
        guests.get_mut(&self.network).is_none_or(|guest| guest.mails.take(self.limits.mails_per_minute, Instant::now()))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if self.limits == NetworkLimits::default() {
            return;
        }
        let mut guests = self.limiter.networks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(guest) = guests.get_mut(&self.network) {
            guest.open = guest.open.saturating_sub(1);
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
        let gate = NetworkLimiter::new(limits, NetworkLimits::default());
        let first = gate.admit(ip("192.0.2.1")).unwrap();
        let second = gate.admit(ip("192.0.2.1"));
        assert!(second.is_some() && gate.admit(ip("192.0.2.1")).is_none(), "two at a time");
        assert!(gate.admit(ip("192.0.2.2")).is_some() && gate.admit(ip("::ffff:192.0.2.1")).is_none());
        drop(second);
        let third = gate.admit(ip("192.0.2.1"));
        assert!(third.is_some());
        drop(third);
        assert!(gate.admit(ip("192.0.2.1")).is_none(), "three in a minute");
        tokio::time::advance(Duration::from_secs(21)).await;
        assert!(gate.admit(ip("192.0.2.1")).is_some(), "one more after a third of it");
        assert!(first.may_begin_mail() && !first.may_begin_mail());
        tokio::time::advance(MINUTE).await;
        assert!(first.may_begin_mail());
    }

    #[tokio::test]
    async fn this_machine_is_free_unless_it_is_told_otherwise() {
        let one = NetworkLimits { connections: Some(1), ..NetworkLimits::default() };
        let gate = NetworkLimiter::new(one, NetworkLimits::default());
        let visits: Vec<_> = ["127.0.0.1", "127.0.0.1", "::1", "::1"].map(|text| gate.admit(ip(text))).into();
        assert!(visits.iter().all(Option::is_some));
        let gate = NetworkLimiter::new(NetworkLimits::default(), one);
        let visit = gate.admit(ip("::1"));
        assert!(visit.is_some() && gate.admit(ip("::1")).is_none());
    }

    #[tokio::test]
    async fn half_an_ipv6_address_is_one_network() {
        let gate = NetworkLimiter::new(
            NetworkLimits { connections: Some(1), ..NetworkLimits::default() },
            NetworkLimits::default(),
        );
        let visit = gate.admit(ip("2001:db8:1:2::1"));
        assert!(visit.is_some() && gate.admit(ip("2001:db8:1:2:ffff::9")).is_none());
        assert!(gate.admit(ip("2001:db8:1:3::1")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_belongs_to_a_network_and_is_remembered_while_it_is_used() {
        let gate = NetworkLimiter::new(NetworkLimits::REMOTE, NetworkLimits::default());
        let share = |text: &str| gate.admit(ip(text)).unwrap().shares().memory.clone().unwrap();
        let held = share("192.0.2.1").acquire_many_owned(1000).await.unwrap();
        let left = share("192.0.2.1").available_permits();
        assert_eq!(share("192.0.2.2").available_permits(), left + 1000);
        tokio::time::advance(MINUTE * 2).await;
        for n in 0..MAX_NETWORKS as u32 {
            drop(gate.admit(IpAddr::from((0x0b00_0000 + n).to_be_bytes())));
        }
        assert_eq!(share("192.0.2.1").available_permits(), left, "forgotten although a mail still holds some of it");
        drop(held);
        assert!(gate.admit(ip("127.0.0.1")).unwrap().shares().memory.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_left_is_forgotten_and_a_flood_of_networks_waits() {
        let gate = NetworkLimiter::new(NetworkLimits::REMOTE, NetworkLimits::default());
        for n in 0..MAX_NETWORKS as u32 {
            assert!(gate.admit(IpAddr::from((0x0b00_0000 + n).to_be_bytes())).is_some());
        }
        assert!(gate.admit(ip("192.0.2.1")).is_none(), "more networks in a minute than are remembered");
        assert!(gate.admit(ip("11.0.0.1")).is_some(), "a known one comes in");
        tokio::time::advance(MINUTE * 2).await;
        assert!(gate.admit(ip("192.0.2.1")).is_some());
        assert_eq!(gate.networks.lock().unwrap().len(), 1);
    }
}
