//! The guard of every address that a tenant can name: webhooks, certificates of SNS, a source's own API.
//!
//! It resolves a name, looks at every address that came back, and gives these addresses to whoever dials: there is no
//! second look-up in between, and each attempt begins anew. One forbidden address among several refuses them all.

mod address_class;
mod target_url;
#[cfg(test)]
mod tests;

pub use address_class::{AddressClass, is_public};
pub use mailonce_core::cidr::{Cidr, CidrError};
pub use target_url::TargetUrl;

use async_trait::async_trait;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};

use crate::dial::{self, DialError};

/// Where the addresses of a name come from.
#[async_trait]
pub trait AddressLookup: Send + Sync + 'static {
    /// Every address of a name.
    async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, String>;
}

/// The machine's own way to look names up.
#[derive(Clone, Copy, Debug)]
pub struct SystemAddressLookup;

#[async_trait]
impl AddressLookup for SystemAddressLookup {
    async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        let found = tokio::net::lookup_host((host, 0)).await.map_err(|error| error.to_string())?;
        Ok(found.map(|at| at.ip()).collect())
    }
}

/// What tenants may have dialled.
#[derive(Clone)]
pub struct EgressPolicy {
    allowed_blocks: Vec<Cidr>,
    is_dev: bool,
    lookup: Arc<dyn AddressLookup>,
}

impl std::fmt::Debug for EgressPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reach").field("allow", &self.allowed_blocks).field("dev", &self.is_dev).finish_non_exhaustive()
    }
}

impl EgressPolicy {
    /// The open Internet by https, and what the operator allows. In `dev` also plain http, and this machine.
    pub fn new(allow: Vec<Cidr>, dev: bool) -> Self {
        Self { allowed_blocks: allow, is_dev: dev, lookup: Arc::new(SystemAddressLookup) }
    }

    /// The same, with names looked up elsewhere.
    #[must_use]
    pub fn with_lookup(mut self, addresses: Arc<dyn AddressLookup>) -> Self {
        self.lookup = addresses;
        self
    }

    /// Reads an address and refuses what can be refused without asking anybody. Dialling asks again.
    pub fn check_url(&self, url: &str) -> Result<TargetUrl, String> {
        let place = TargetUrl::parse(url)?;
        if let Some(ip) = place.ip_literal {
            self.check_address(&place, ip)?;
        } else if place.is_internal() && !self.may_be_internal(&place) {
            return Err("names a host of an inner network".into());
        }
        if !place.is_https && !self.is_dev && self.allowed_blocks.is_empty() {
            return Err("begins with http://; receivers are reached by https://".into());
        }
        Ok(place)
    }

    /// Whether an address may be dialled at all, for those who look names up themselves and dial what they found.
    pub fn allows(&self, ip: IpAddr) -> bool {
        let range = AddressClass::of(ip);
        self.allowed_blocks.iter().any(|block| block.contains_ip(ip))
            || range == AddressClass::Public
            || (self.is_dev && range == AddressClass::Loopback)
    }

    /// Connects to a place, to an address that was just found good.
    pub async fn open_tcp(&self, place: &TargetUrl, patience: Duration) -> Result<TcpStream, DialError> {
        let end = Instant::now() + patience;
        let late = |_elapsed| DialError::TimedOut(format!("{}:{}", place.host, place.port));
        let found = timeout_at(end, self.resolve(place)).await.map_err(late)??;
        dial::connect_first(&found, &place.host, end).await
    }

    /// The addresses of a place, every one of them good.
    async fn resolve(&self, place: &TargetUrl) -> Result<Vec<SocketAddr>, DialError> {
        let nowhere = |why: String| DialError::Unresolved { host: place.host.clone(), why };
        let found = match place.ip_literal {
            Some(ip) => vec![ip],
            None => self.lookup.lookup(&place.host).await.map_err(nowhere)?,
        };
        if found.is_empty() {
            return Err(nowhere("none was found".into()));
        }
        for ip in &found {
            self.check_address(place, *ip)
                .map_err(|why| DialError::Forbidden(format!("{}, which {why},", place.host)))?;
        }
        Ok(found.into_iter().take(dial::MAX_ADDRESSES).map(|ip| SocketAddr::new(ip, place.port)).collect())
    }

    /// Whether an address may be dialled for a place.
    fn check_address(&self, place: &TargetUrl, ip: IpAddr) -> Result<(), String> {
        let range = AddressClass::of(ip);
        if !self.allows(ip) {
            return Err(format!("leads to an address that is {}", range.as_str()));
        }
        if range != AddressClass::Public || self.allowed_blocks.iter().any(|block| block.contains_ip(ip)) {
            return Ok(());
        }
        if place.ip_literal.is_some() {
            return Err("is an address and not a name".into());
        }
        if place.is_internal() {
            return Err("is a name of an inner network".into());
        }
        if !place.is_https && !self.is_dev {
            return Err("is to be reached without TLS".into());
        }
        Ok(())
    }

    /// Whether a name of an inner network may turn out to be allowed.
    fn may_be_internal(&self, place: &TargetUrl) -> bool {
        let here = place.host == "localhost" || place.host.ends_with(".localhost");
        !self.allowed_blocks.is_empty() || (self.is_dev && here)
    }
}
