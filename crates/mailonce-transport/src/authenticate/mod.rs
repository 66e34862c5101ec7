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
use mailonce_core::port::authenticate::{Arrived, Auth, AuthResult, Authenticator};
use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Poll,
    time::Duration,
};
use tokio::time::{Instant, timeout_at};

use crate::names::Resolver;
use dmarc::Sender;

/// For everything that is asked about one mail. Who waits for us gives up after two seconds and knows nothing then, so
/// that we end a little earlier and tell what we have.
const PATIENCE: Duration = Duration::from_millis(1_900);
/// For one question to one server, so that a lost packet leaves time for another.
const QUESTION: Duration = Duration::from_millis(600);
/// Octets of all headers together; a mail with more is not looked at.
const HEAD_BYTES: usize = 256 * 1024;
/// Header fields of a mail that is looked at.
const FIELDS: usize = 2_000;
/// Answers that are remembered, and for how long at the most.
const REMEMBERED: u64 = 8_192;
const REMEMBERED_FOR: Duration = Duration::from_hours(1);
/// How long it is remembered that there was nothing.
const NOTHING_FOR: Duration = Duration::from_mins(1);

/// What one check said about one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Checked {
    /// The domain that is spoken for, as A-label; empty when there is none.
    domain: String,
    result: AuthResult,
}

/// Asks the domain name system.
pub struct SenderCheck {
    dns: MessageAuthenticator,
    patience: Duration,
}

impl SenderCheck {
    /// Asks the servers that this resolver asks.
    pub fn new(resolver: &Resolver) -> Result<Self, String> {
        let servers = resolver.servers().into_iter().map(server).collect();
        let config = ResolverConfig::from_name_servers(servers);
        let dns = MessageAuthenticator::new(config, options()).map_err(|error| error.to_string())?;
        Ok(Self { dns, patience: PATIENCE })
    }

    async fn ask(&self, mail: Arrived<'_>) -> Auth {
        let until = Instant::now() + self.patience;
        let mut message = readable(mail.raw).then(|| AuthenticatedMessage::parse(mail.raw)).flatten();
        let sender = message.as_ref().map_or(&[][..], |message| &message.from);
        let sender = Sender::of(sender, mail.raw);
        let (spf, signed, policy) = tokio::join!(
            spf::check(&self.dns, &mail, until),
            dkim::check(&self.dns, message.as_mut(), until),
            dmarc::policy(&self.dns, sender.domain(), until),
        );
        let (dmarc, verdict) = dmarc::judge(&sender, &spf, &signed, &policy);
        Auth { spf: spf.result, dkim: dkim::best(&signed), dmarc, verdict, domain: sender.domain().map(str::to_owned) }
    }
}

#[async_trait]
impl Authenticator for SenderCheck {
    async fn authenticate(&self, mail: Arrived<'_>) -> Auth {
        let broken = AuthResult::PermError;
        // A mail that brings the checks down fails: whoever forges a sender could write it.
        let auth = unharmed(self.ask(mail)).await;
        auth.unwrap_or(Auth { spf: broken, dkim: broken, dmarc: broken, verdict: AuthResult::Fail, domain: None })
    }
}

/// What comes of a future, or nothing when it panics.
async fn unharmed<T>(future: impl Future<Output = T> + Send) -> Option<T> {
    let mut future = Box::pin(future);
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Some),
        Err(_panic) => Poll::Ready(None),
    })
    .await
}

/// What an answer is, when it comes in time.
async fn by<T>(until: Instant, asked: impl Future<Output = T> + Send, late: T) -> T {
    timeout_at(until, asked).await.unwrap_or(late)
}

/// Whether a mail's headers end, and are not so many that looking at them is work for an attacker.
fn readable(raw: &[u8]) -> bool {
    let head = &raw[..raw.len().min(HEAD_BYTES)];
    let mut fields = 0;
    for line in head.split_inclusive(|&b| b == b'\n') {
        match line {
            b"\n" | b"\r\n" => return true,
            [.., b'\n'] => fields += 1,
            _ => return false,
        }
        if fields > FIELDS {
            return false;
        }
    }
    false
}

fn server(at: SocketAddr) -> NameServerConfig {
    let with_port = |mut connection: ConnectionConfig| {
        connection.port = at.port();
        connection
    };
    NameServerConfig::new(at.ip(), true, vec![with_port(ConnectionConfig::udp()), with_port(ConnectionConfig::tcp())])
}

fn options() -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = QUESTION;
    options.attempts = 2;
    options.cache_size = REMEMBERED;
    options.positive_max_ttl = Some(REMEMBERED_FOR);
    options.negative_max_ttl = Some(NOTHING_FOR);
    // What this machine calls its neighbours is nothing that a domain says of itself.
    options.use_hosts_file = ResolveHosts::Never;
    options
}
