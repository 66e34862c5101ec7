//! The egress policy: which URLs a tenant may make us call (webhooks, SNS certificates, the API of a mail source).
//!
//! The policy resolves a name, checks every address, and connects to exactly these addresses. No second lookup happens
//! in between, which prevents DNS rebinding. Each attempt resolves again. One forbidden address rejects the whole name.

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

/// Names the setting that permits internal addresses.
const ALLOW_HINT: &str = "; the operator of the server can permit its network with the setting `webhooks.allow`";

/// Resolves host names to addresses.
#[async_trait]
pub trait AddressLookup: Send + Sync + 'static {
    /// Every address of a name.
    async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, String>;
}

/// The operating system's resolver.
#[derive(Clone, Copy, Debug)]
pub struct SystemAddressLookup;

#[async_trait]
impl AddressLookup for SystemAddressLookup {
    async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        let found = tokio::net::lookup_host((host, 0)).await.map_err(|error| error.to_string())?;
        Ok(found.map(|at| at.ip()).collect())
    }
}

/// Which hosts and addresses tenants may have dialled.
#[derive(Clone)]
pub struct EgressPolicy {
    allowed_blocks: Vec<Cidr>,
    is_dev: bool,
    lookup: Arc<dyn AddressLookup>,
}

impl std::fmt::Debug for EgressPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EgressPolicy")
            .field("allow", &self.allowed_blocks)
            .field("dev", &self.is_dev)
            .finish_non_exhaustive()
    }
}

impl EgressPolicy {
    /// Allows the public Internet over https, and the operator's `allowed_blocks`. `is_dev` adds http and loopback.
    pub fn new(allowed_blocks: Vec<Cidr>, is_dev: bool) -> Self {
        Self { allowed_blocks, is_dev, lookup: Arc::new(SystemAddressLookup) }
    }

    /// The same policy with another resolver.
    #[must_use]
    pub fn with_lookup(mut self, lookup: Arc<dyn AddressLookup>) -> Self {
        self.lookup = lookup;
        self
    }

    /// Parses a URL and rejects what can be rejected without DNS. `open_tcp` checks again.
    pub fn check_url(&self, url: &str) -> Result<TargetUrl, String> {
        let target = TargetUrl::parse(url)?;
        if let Some(ip) = target.ip_literal {
            self.check_address(&target, ip)?;
        } else if target.is_internal() && !self.may_be_internal(&target) {
            return Err(format!("names an internal host{ALLOW_HINT}"));
        }
        if !target.is_https && !self.is_dev && self.allowed_blocks.is_empty() {
            return Err("begins with http://; use https://".into());
        }
        Ok(target)
    }

    /// Whether an address may be dialled at all. For callers that resolve names and connect themselves.
    pub fn allows(&self, ip: IpAddr) -> bool {
        let class = AddressClass::of(ip);
        self.allowed_blocks.iter().any(|block| block.contains_ip(ip))
            || class == AddressClass::Public
            || (self.is_dev && class == AddressClass::Loopback)
    }

    /// Resolves the target, checks every address, and connects to one of the checked addresses.
    pub async fn open_tcp(&self, target: &TargetUrl, timeout: Duration) -> Result<TcpStream, DialError> {
        let deadline = Instant::now() + timeout;
        let timed_out = |_elapsed| DialError::TimedOut(format!("{}:{}", target.host, target.port));
        let addresses = timeout_at(deadline, self.resolve(target)).await.map_err(timed_out)??;
        dial::connect_first(&addresses, &target.host, deadline).await
    }

    /// The addresses of a target. Fails if any of them is forbidden.
    async fn resolve(&self, target: &TargetUrl) -> Result<Vec<SocketAddr>, DialError> {
        let unresolved = |why: String| DialError::Unresolved { host: target.host.clone(), why };
        let addresses = match target.ip_literal {
            Some(ip) => vec![ip],
            None => self.lookup.lookup(&target.host).await.map_err(unresolved)?,
        };
        if addresses.is_empty() {
            return Err(unresolved("the lookup returned none".into()));
        }
        for ip in &addresses {
            self.check_address(target, *ip)
                .map_err(|why| DialError::Forbidden(format!("{}, which {why},", target.host)))?;
        }
        Ok(addresses.into_iter().take(dial::MAX_ADDRESSES).map(|ip| SocketAddr::new(ip, target.port)).collect())
    }

    /// Whether an address may be dialled for this target.
    fn check_address(&self, target: &TargetUrl, ip: IpAddr) -> Result<(), String> {
        let class = AddressClass::of(ip);
        if !self.allows(ip) {
            return Err(format!("resolves to an address that is {}{ALLOW_HINT}", class.as_str()));
        }
        if class != AddressClass::Public || self.allowed_blocks.iter().any(|block| block.contains_ip(ip)) {
            return Ok(());
        }
        if target.ip_literal.is_some() {
            return Err("is an IP address; use a host name".into());
        }
        if target.is_internal() {
            return Err("is an internal host name".into());
        }
        if !target.is_https && !self.is_dev {
            return Err("does not use TLS".into());
        }
        Ok(())
    }

    /// Whether an internal name could resolve to an allowed address.
    fn may_be_internal(&self, target: &TargetUrl) -> bool {
        let is_localhost = target.host == "localhost" || target.host.ends_with(".localhost");
        !self.allowed_blocks.is_empty() || (self.is_dev && is_localhost)
    }
}
