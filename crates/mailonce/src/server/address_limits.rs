//! Limits per client address: open connections and failed authentications. An address is an IPv4 address or an IPv6
//! /64. Loopback and trusted proxies are exempt, because many clients share them.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

use crate::client_address::{TrustedProxies, network_of};

/// Invalid API keys that an address may try per minute.
pub(crate) const MAX_FAILURES: u32 = 20;
const WINDOW: Duration = Duration::from_mins(1);
/// Addresses whose failures are counted. Beyond that, new addresses are not counted until older windows expire.
const MAX_FAILING_ADDRESSES: usize = 65_536;
/// Refused connections are logged at most this often.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts open connections per address.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    /// None: no limit.
    max: Option<u32>,
    exempt: TrustedProxies,
    state: Mutex<ConnectionCounts>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    open: HashMap<IpAddr, u32>,
    last_logged: Option<Instant>,
}

impl ConnectionLimit {
    pub(super) fn new(max: Option<u32>, exempt: TrustedProxies) -> Arc<Self> {
        Arc::new(Self { max, exempt, state: Mutex::default() })
    }

    /// Counts a connection until the returned guard is dropped. None: the address has reached its limit.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<OpenConnection> {
        let Some(max) = self.max.filter(|_| !is_exempt(peer, &self.exempt)) else {
            return Some(OpenConnection { counted: None });
        };
        let address = network_of(peer);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let open = state.open.entry(address).or_default();
        if *open < max {
            *open += 1;
            return Some(OpenConnection { counted: Some((Arc::clone(self), address)) });
        }
        let now = Instant::now();
        if state.last_logged.is_none_or(|at| now - at >= LOG_INTERVAL) {
            state.last_logged = Some(now);
            tracing::warn!(%address, max, "refused a connection: http.connections_per_address is reached");
        }
        None
    }
}

/// A guard that counts one connection until it is dropped.
#[derive(Debug)]
pub(super) struct OpenConnection {
    counted: Option<(Arc<ConnectionLimit>, IpAddr)>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let Some((limit, address)) = &self.counted else { return };
        let mut state = limit.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = state.open.get_mut(address) {
            *open = open.saturating_sub(1);
            if *open == 0 {
                state.open.remove(address);
            }
        }
    }
}

/// Counts invalid API keys per address, in windows of one minute.
#[derive(Debug, Default)]
pub struct FailureLimit {
    exempt: TrustedProxies,
    failures: Mutex<HashMap<IpAddr, FailureWindow>>,
}

#[derive(Debug)]
struct FailureWindow {
    since: Instant,
    count: u32,
}

impl FailureLimit {
    /// Creates a limit that does not apply to these proxies.
    pub fn new(exempt: TrustedProxies) -> Self {
        Self { exempt, failures: Mutex::default() }
    }

    /// The seconds until the address may try again. None: it is below the limit.
    pub(crate) fn retry_after(&self, client: IpAddr) -> Option<i64> {
        if is_exempt(client, &self.exempt) {
            return None;
        }
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let window = failures.get(&network_of(client)).filter(|window| window.count >= MAX_FAILURES)?;
        let left = (window.since + WINDOW).checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        Some(left.as_secs() as i64 + 1)
    }

    /// Counts an invalid API key.
    pub(crate) fn record(&self, client: IpAddr) {
        if is_exempt(client, &self.exempt) {
            return;
        }
        let (address, now) = (network_of(client), Instant::now());
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MAX_FAILING_ADDRESSES && !failures.contains_key(&address) {
            failures.retain(|_, window| now - window.since < WINDOW);
            if failures.len() >= MAX_FAILING_ADDRESSES {
                return;
            }
        }
        let window = failures.entry(address).or_insert(FailureWindow { since: now, count: 0 });
        if now - window.since >= WINDOW {
            *window = FailureWindow { since: now, count: 0 };
        }
        window.count += 1;
    }
}

pub(super) fn is_exempt(ip: IpAddr, proxies: &TrustedProxies) -> bool {
    ip.to_canonical().is_loopback() || proxies.contains(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn proxies() -> TrustedProxies {
        TrustedProxies::parse(&["10.0.0.0/8".to_owned()]).unwrap()
    }

    #[tokio::test]
    async fn an_address_has_so_many_connections_and_others_do_not_notice() {
        let limit = ConnectionLimit::new(Some(2), proxies());
        let first = limit.enter(ip("192.0.2.1"));
        let second = limit.enter(ip("::ffff:192.0.2.1"));
        assert!(first.is_some() && second.is_some() && limit.enter(ip("192.0.2.1")).is_none());
        assert!(limit.enter(ip("192.0.2.2")).is_some());
        let exempt: Vec<_> =
            ["10.1.1.1", "127.0.0.1", "::1"].iter().map(|text| [(); 5].map(|()| limit.enter(ip(text)))).collect();
        assert!(exempt.iter().flatten().all(Option::is_some));
        drop(second);
        assert!(limit.enter(ip("192.0.2.1")).is_some());
        drop((first, exempt));
        assert!(limit.state.lock().unwrap().open.is_empty(), "closed connections are no longer counted");
        let unlimited = ConnectionLimit::new(None, TrustedProxies::default());
        let open: Vec<_> = (0..1_000).map(|_| unlimited.enter(ip("192.0.2.1"))).collect();
        assert!(open.iter().all(Option::is_some));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_fails_too_often_waits_for_the_rest_of_the_minute() {
        let limit = FailureLimit::new(proxies());
        let fail = |text: &str, times: u32| (0..times).for_each(|_| limit.record(ip(text)));
        fail("192.0.2.1", MAX_FAILURES - 1);
        assert_eq!(limit.retry_after(ip("192.0.2.1")), None);
        tokio::time::advance(Duration::from_secs(20)).await;
        fail("192.0.2.1", 1);
        assert_eq!(limit.retry_after(ip("192.0.2.1")), Some(41));
        assert_eq!(limit.retry_after(ip("192.0.2.2")), None);
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(limit.retry_after(ip("192.0.2.1")), None);
        fail("192.0.2.1", 1);
        assert_eq!(limit.retry_after(ip("192.0.2.1")), None, "a new minute");
        fail("2001:db8::1", MAX_FAILURES);
        assert!(limit.retry_after(ip("2001:db8::2")).is_some() && limit.retry_after(ip("2001:db8:0:1::1")).is_none());
        fail("127.0.0.1", 100);
        fail("10.0.0.1", 100);
        assert_eq!((limit.retry_after(ip("127.0.0.1")), limit.retry_after(ip("10.0.0.1"))), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let limit = FailureLimit::default();
        for n in 0..MAX_FAILING_ADDRESSES as u32 + 5 {
            limit.record(IpAddr::from((0x0b00_0000 + n).to_be_bytes()));
        }
        assert_eq!(limit.failures.lock().unwrap().len(), MAX_FAILING_ADDRESSES);
        tokio::time::advance(WINDOW).await;
        limit.record(ip("192.0.2.1"));
        assert_eq!(limit.failures.lock().unwrap().len(), 1);
    }
}
