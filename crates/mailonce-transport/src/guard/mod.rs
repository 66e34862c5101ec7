//! The guard of every address that a tenant can name: webhooks, certificates of SNS, a source's own API.
//!
//! It resolves a name, looks at every address that came back, and gives these addresses to whoever dials: there is no
//! second look-up in between, and each attempt begins anew. One forbidden address among several refuses them all.

mod place;
mod range;
#[cfg(test)]
mod tests;

pub use mailonce_core::cidr::{Cidr, NotCidr};
pub use place::Place;
pub use range::{Range, is_public};

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
pub trait Addresses: Send + Sync + 'static {
    /// Every address of a name.
    async fn of(&self, host: &str) -> Result<Vec<IpAddr>, String>;
}

/// The machine's own way to look names up.
#[derive(Clone, Copy, Debug)]
pub struct SystemAddresses;

#[async_trait]
impl Addresses for SystemAddresses {
    async fn of(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        let found = tokio::net::lookup_host((host, 0)).await.map_err(|error| error.to_string())?;
        Ok(found.map(|at| at.ip()).collect())
    }
}

/// What tenants may have dialled.
#[derive(Clone)]
pub struct Reach {
    allow: Vec<Cidr>,
    dev: bool,
    addresses: Arc<dyn Addresses>,
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reach").field("allow", &self.allow).field("dev", &self.dev).finish_non_exhaustive()
    }
}

impl Reach {
    /// The open Internet by https, and what the operator allows. In `dev` also plain http, and this machine.
    pub fn new(allow: Vec<Cidr>, dev: bool) -> Self {
        Self { allow, dev, addresses: Arc::new(SystemAddresses) }
    }

    /// The same, with names looked up elsewhere.
    #[must_use]
    pub fn with_addresses(mut self, addresses: Arc<dyn Addresses>) -> Self {
        self.addresses = addresses;
        self
    }

    /// Reads an address and refuses what can be refused without asking anybody. Dialling asks again.
    pub fn place(&self, url: &str) -> Result<Place, String> {
        let place = Place::parse(url)?;
        if let Some(ip) = place.literal {
            self.judge(&place, ip)?;
        } else if place.is_internal() && !self.may_be_inside(&place) {
            return Err("names a host of an inner network".into());
        }
        if !place.https && !self.dev && self.allow.is_empty() {
            return Err("begins with http://; receivers are reached by https://".into());
        }
        Ok(place)
    }

    /// Whether an address may be dialled at all, for those who look names up themselves and dial what they found.
    pub fn allows(&self, ip: IpAddr) -> bool {
        let range = Range::of(ip);
        self.allow.iter().any(|block| block.has(ip)) || range == Range::Public || (self.dev && range == Range::Loopback)
    }

    /// Connects to a place, to an address that was just found good.
    pub async fn open(&self, place: &Place, patience: Duration) -> Result<TcpStream, DialError> {
        let end = Instant::now() + patience;
        let late = |_elapsed| DialError::Late(format!("{}:{}", place.host, place.port));
        let found = timeout_at(end, self.look_up(place)).await.map_err(late)??;
        dial::reach(&found, &place.host, end).await
    }

    /// The addresses of a place, every one of them good.
    async fn look_up(&self, place: &Place) -> Result<Vec<SocketAddr>, DialError> {
        let nowhere = |why: String| DialError::Name { host: place.host.clone(), why };
        let found = match place.literal {
            Some(ip) => vec![ip],
            None => self.addresses.of(&place.host).await.map_err(nowhere)?,
        };
        if found.is_empty() {
            return Err(nowhere("none was found".into()));
        }
        for ip in &found {
            self.judge(place, *ip).map_err(|why| DialError::Forbidden(format!("{}, which {why},", place.host)))?;
        }
        Ok(found.into_iter().take(dial::ADDRESSES).map(|ip| SocketAddr::new(ip, place.port)).collect())
    }

    /// Whether an address may be dialled for a place.
    fn judge(&self, place: &Place, ip: IpAddr) -> Result<(), String> {
        let range = Range::of(ip);
        if !self.allows(ip) {
            return Err(format!("leads to an address that is {}", range.word()));
        }
        if range != Range::Public || self.allow.iter().any(|block| block.has(ip)) {
            return Ok(());
        }
        if place.literal.is_some() {
            return Err("is an address and not a name".into());
        }
        if place.is_internal() {
            return Err("is a name of an inner network".into());
        }
        if !place.https && !self.dev {
            return Err("is to be reached without TLS".into());
        }
        Ok(())
    }

    /// Whether a name of an inner network may turn out to be allowed.
    fn may_be_inside(&self, place: &Place) -> bool {
        let here = place.host == "localhost" || place.host.ends_with(".localhost");
        !self.allow.is_empty() || (self.dev && here)
    }
}
