//! Network access other than mail: DNS queries and the few pages that a provider's protocol requires.

use async_trait::async_trait;

/// A DNS resolver.
#[async_trait]
pub trait DnsResolver: Send + Sync + 'static {
    /// The TXT records of a name, each joined into one string. Empty when there is none; an error means that DNS did
    /// not answer.
    async fn lookup_txt(&self, name: &str) -> Result<Vec<String>, String>;
}

/// Fetches pages that a provider's protocol requires, such as signing certificates.
#[async_trait]
pub trait HttpFetcher: Send + Sync + 'static {
    /// The body at an https address, when the status is a plain success. Follows no redirect, and limits size and time.
    async fn get(&self, url: &str) -> Result<Vec<u8>, String>;
}

/// No network: every query and every fetch fails.
#[derive(Clone, Copy, Debug)]
pub struct NoNetwork;

#[async_trait]
impl DnsResolver for NoNetwork {
    async fn lookup_txt(&self, _: &str) -> Result<Vec<String>, String> {
        Err("no resolver is wired".into())
    }
}

#[async_trait]
impl HttpFetcher for NoNetwork {
    async fn get(&self, _: &str) -> Result<Vec<u8>, String> {
        Err("nothing may be fetched here".into())
    }
}
