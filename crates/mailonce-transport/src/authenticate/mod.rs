//! Whether a mail's sender is who it says: SPF, DKIM and DMARC, asked of the machine's own resolvers.
//!
//! `mail-auth` does the checks, and nothing else of the house knows it. What it lets pass and we do not: a signature by
//! SHA-1, over a part of the body, or without the sender's own line. What counts as aligned is decided here, by the
//! public suffix list, so that a verdict needs one record of the domain and not a walk up its names.

mod dkim;
mod dmarc;
mod spf;

use async_trait::async_trait;
use mail_auth::{
    AuthenticatedMessage, MessageAuthenticator,
    hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
};
use mailonce_core::{
    header_block::header_start,
    inbound::sender_auth::{AuthResult, SenderAuth, UnauthenticatedMail},
    ports::authenticator::Authenticator,
};
use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Poll,
    time::Duration,
};
use tokio::time::{Instant, timeout_at};

use crate::names::Resolver;
use dmarc::FromDomain;

/// For everything that is asked about one mail. Who waits for us gives up after two seconds and knows nothing then, so
/// that we end a little earlier and tell what we have.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_millis(1_900);
/// For one question to one server, so that a lost packet leaves time for another.
const QUERY_TIMEOUT: Duration = Duration::from_millis(600);
/// Octets of all headers together; a mail with more is not looked at.
const MAX_HEADER_BYTES: usize = 256 * 1024;
/// Header fields of a mail that is looked at.
const MAX_HEADER_FIELDS: usize = 2_000;
/// Answers that are remembered, and for how long at the most.
const CACHE_ENTRIES: u64 = 8_192;
const CACHE_TTL: Duration = Duration::from_hours(1);
/// How long it is remembered that there was nothing.
const NEGATIVE_CACHE_TTL: Duration = Duration::from_mins(1);

/// What one check said about one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DomainCheck {
    /// The domain that is spoken for, as A-label; empty when there is none.
    domain: String,
    result: AuthResult,
}

/// Asks the domain name system.
pub struct DnsSenderAuthenticator {
    dns: MessageAuthenticator,
    timeout: Duration,
}

impl DnsSenderAuthenticator {
    /// Asks the servers that this resolver asks.
    pub fn new(resolver: &Resolver) -> Result<Self, String> {
        let servers = resolver.servers().into_iter().map(name_server).collect();
        let config = ResolverConfig::from_name_servers(servers);
        let dns = MessageAuthenticator::new(config, resolver_options()).map_err(|error| error.to_string())?;
        Ok(Self { dns, timeout: AUTHENTICATION_TIMEOUT })
    }

    async fn check(&self, mail: UnauthenticatedMail<'_>) -> SenderAuth {
        let until = Instant::now() + self.timeout;
        // What the parser skips is skipped here, so that the sender that people see is the one that is checked.
        let raw = &mail.raw[header_start(mail.raw)..];
        let mut message = is_readable(raw).then(|| AuthenticatedMessage::parse(raw)).flatten();
        let sender = message.as_ref().map_or(&[][..], |message| &message.from);
        let sender = FromDomain::from_addresses(sender, raw);
        let (spf, signed, policy) = tokio::join!(
            spf::check_spf(&self.dns, &mail, until),
            dkim::check_signatures(&self.dns, message.as_mut(), until),
            dmarc::find_policy(&self.dns, sender.domain(), until),
        );
        let (dmarc, verdict) = dmarc::evaluate(&sender, &spf, &signed, &policy);
        SenderAuth {
            spf: spf.result,
            dkim: dkim::best_result(&signed),
            dmarc,
            verdict,
            domain: sender.domain().map(str::to_owned),
        }
    }
}

#[async_trait]
impl Authenticator for DnsSenderAuthenticator {
    async fn authenticate(&self, mail: UnauthenticatedMail<'_>) -> SenderAuth {
        let broken = AuthResult::PermError;
        // A mail that brings the checks down fails: whoever forges a sender could write it.
        let auth = catch_panic(self.check(mail)).await;
        auth.unwrap_or(SenderAuth { spf: broken, dkim: broken, dmarc: broken, verdict: AuthResult::Fail, domain: None })
    }
}

/// What comes of a future, or nothing when it panics.
async fn catch_panic<T>(future: impl Future<Output = T> + Send) -> Option<T> {
    let mut future = Box::pin(future);
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Some),
        Err(_panic) => Poll::Ready(None),
    })
    .await
}

/// What an answer is, when it comes in time.
async fn with_deadline<T>(until: Instant, asked: impl Future<Output = T> + Send, late: T) -> T {
    timeout_at(until, asked).await.unwrap_or(late)
}

/// Whether a mail's headers end, and are not so many that looking at them is work for an attacker.
fn is_readable(raw: &[u8]) -> bool {
    let head = &raw[..raw.len().min(MAX_HEADER_BYTES)];
    let mut fields = 0;
    for line in head.split_inclusive(|&b| b == b'\n') {
        match line {
            b"\n" | b"\r\n" => return true,
            [.., b'\n'] => fields += 1,
            _ => return false,
        }
        if fields > MAX_HEADER_FIELDS {
            return false;
        }
    }
    false
}

fn name_server(at: SocketAddr) -> NameServerConfig {
    let with_port = |mut connection: ConnectionConfig| {
        connection.port = at.port();
        connection
    };
    NameServerConfig::new(at.ip(), true, vec![with_port(ConnectionConfig::udp()), with_port(ConnectionConfig::tcp())])
}

fn resolver_options() -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = QUERY_TIMEOUT;
    options.attempts = 2;
    options.cache_size = CACHE_ENTRIES;
    options.positive_max_ttl = Some(CACHE_TTL);
    options.negative_max_ttl = Some(NEGATIVE_CACHE_TTL);
    // What this machine calls its neighbours is nothing that a domain says of itself.
    options.use_hosts_file = ResolveHosts::Never;
    options
}
