//! The network beside mail: names that are looked up and the few pages that are fetched.

use async_trait::async_trait;

/// The domain name system.
#[async_trait]
pub trait DnsResolver: Send + Sync + 'static {
    /// The TXT records of a name, each in one piece. None is an answer; an error means that nobody could be asked.
    async fn lookup_txt(&self, name: &str) -> Result<Vec<String>, String>;
}

/// Pages that a provider's own protocol tells us to fetch.
#[async_trait]
pub trait HttpFetcher: Send + Sync + 'static {
    /// What is at an https address, when the answer is a plain success. No redirects, within bounds of size and time.
    async fn get(&self, url: &str) -> Result<Vec<u8>, String>;
}

/// No network: every question ends in an error.
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
