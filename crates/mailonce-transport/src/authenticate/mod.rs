//! Sender authentication of received mail: SPF, DKIM and DMARC, through the machine's configured DNS resolvers.
//!
//! The crate `mail-auth` does the checks; only this module uses it. We are stricter in four points: we reject
//! signatures that use SHA-1, that cover only part of the body, or that do not cover `From`, and we check no mail whose
//! header has malformed lines, because parsers disagree about which fields it has. Alignment is decided here
//! with the public suffix list, so that a verdict needs few records instead of a walk up the DNS tree.

mod dkim;
mod dmarc;
mod spf;

use async_trait::async_trait;
use mail_auth::{
    AuthenticatedMessage, MessageAuthenticator,
    hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
};
use mailonce_core::{
    header_block::{HeaderShape, header_shape, header_start},
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

use crate::dns::Resolver;
use dmarc::FromDomain;

/// The limit for all DNS queries about one mail. The caller gives up after two seconds and then has no result, so we
/// stop a little earlier and return what we have.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_millis(1_900);
/// The timeout of one DNS query. It leaves time for a retry after a lost packet.
const QUERY_TIMEOUT: Duration = Duration::from_millis(600);
/// How many DNS answers are cached, and for how long at most.
const CACHE_ENTRIES: u64 = 8_192;
const CACHE_TTL: Duration = Duration::from_hours(1);
/// How long negative DNS answers are cached.
const NEGATIVE_CACHE_TTL: Duration = Duration::from_mins(1);

/// The result of one check for one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DomainCheck {
    /// The authenticated domain as A-label; empty when there is none.
    domain: String,
    result: AuthResult,
}

/// Authenticates senders with SPF, DKIM and DMARC over DNS.
pub struct DnsSenderAuthenticator {
    dns: MessageAuthenticator,
    timeout: Duration,
}

impl DnsSenderAuthenticator {
    /// Uses the same DNS servers as `resolver`.
    pub fn new(resolver: &Resolver) -> Result<Self, String> {
        let servers = resolver.servers().into_iter().map(name_server).collect();
        let config = ResolverConfig::from_name_servers(servers);
        let dns = MessageAuthenticator::new(config, resolver_options()).map_err(|error| error.to_string())?;
        Ok(Self { dns, timeout: AUTHENTICATION_TIMEOUT })
    }

    async fn check(&self, mail: UnauthenticatedMail<'_>) -> SenderAuth {
        let deadline = Instant::now() + self.timeout;
        // Skips what our mail parser skips, so that the checked `From` is the one that readers see.
        let raw = &mail.raw[header_start(mail.raw)..];
        // `mail-auth` also takes malformed lines for fields, so it could verify a `From` below the header that readers see.
        let is_reliable = header_shape(mail.raw) == HeaderShape::Complete;
        let mut message = is_reliable.then(|| AuthenticatedMessage::parse(raw)).flatten();
        let sender = message.as_ref().map_or(&[][..], |message| &message.from);
        let sender = FromDomain::from_addresses(sender, raw);
        let (spf, signatures, policy) = tokio::join!(
            spf::check_spf(&self.dns, &mail, deadline),
            dkim::check_signatures(&self.dns, message.as_mut(), deadline),
            dmarc::find_policy(&self.dns, sender.domain(), deadline),
        );
        let (dmarc, verdict) = dmarc::evaluate(&sender, &spf, &signatures, &policy);
        SenderAuth {
            spf: spf.result,
            dkim: dkim::best_result(&signatures),
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
        // A mail that makes the checks panic fails: a forger could craft it on purpose.
        let auth = catch_panic(self.check(mail)).await;
        auth.unwrap_or(SenderAuth { spf: broken, dkim: broken, dmarc: broken, verdict: AuthResult::Fail, domain: None })
    }
}

/// The output of a future, or `None` if it panics.
async fn catch_panic<T>(future: impl Future<Output = T> + Send) -> Option<T> {
    let mut future = Box::pin(future);
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Some),
        Err(_panic) => Poll::Ready(None),
    })
    .await
}

/// The output of a future, or `on_timeout` after the deadline.
async fn with_deadline<T>(deadline: Instant, future: impl Future<Output = T> + Send, on_timeout: T) -> T {
    timeout_at(deadline, future).await.unwrap_or(on_timeout)
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let with_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    NameServerConfig::new(
        address.ip(),
        true,
        vec![with_port(ConnectionConfig::udp()), with_port(ConnectionConfig::tcp())],
    )
}

fn resolver_options() -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = QUERY_TIMEOUT;
    options.attempts = 2;
    options.cache_size = CACHE_ENTRIES;
    options.positive_max_ttl = Some(CACHE_TTL);
    options.negative_max_ttl = Some(NEGATIVE_CACHE_TTL);
    // /etc/hosts is ignored: it is not what the domain publishes.
    options.use_hosts_file = ResolveHosts::Never;
    options
}
