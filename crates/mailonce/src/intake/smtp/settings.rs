//! What an operator can say about the listener, and what holds when nothing is said.

use mailonce_core::limits;
use std::{sync::Arc, time::Duration};

use super::spool::{SpoolDir, SpoolFiles};
use crate::intake::smtp::metrics::SmtpMetrics;
use crate::tls::Tls;

/// How long each side of a conversation may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmtpTimeouts {
    /// For a whole command line, however slowly it trickles in, and for reading one of our replies.
    pub command: Duration,
    /// For the next bytes of a mail.
    pub data: Duration,
    /// For everything on one connection.
    pub session: Duration,
    /// For the handshake of TLS.
    pub handshake: Duration,
    /// For the verdict on a recipient.
    pub recipient_check: Duration,
    /// For the commit of a mail. One that comes later still counts: the other side's retry is the same delivery.
    pub commit: Duration,
    /// For room in memory or on disk, while a mail comes in.
    pub buffer_space: Duration,
    /// For room in memory, when all of a large mail is there.
    pub spool_load: Duration,
    /// For pauses of a mail, beyond what its rate pays for.
    pub slow_grace: Duration,
    /// For mails that are under way when we stop.
    pub drain: Duration,
}

impl Default for SmtpTimeouts {
    fn default() -> Self {
        Self {
            command: Duration::from_mins(5),
            data: Duration::from_mins(3),
            session: Duration::from_mins(30),
            handshake: Duration::from_mins(1),
            recipient_check: Duration::from_secs(10),
            commit: Duration::from_mins(1),
            buffer_space: Duration::from_secs(10),
            spool_load: Duration::from_secs(30),
            slow_grace: Duration::from_mins(1),
            drain: Duration::from_secs(10),
        }
    }
}

/// What one network may do: an IPv4 address, or 64 bits of IPv6. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkLimits {
    /// Connections at a time.
    pub connections: Option<u32>,
    /// New connections in a minute.
    pub connections_per_minute: Option<u32>,
    /// Mails begun in a minute.
    pub mails_per_minute: Option<u32>,
    /// Octets of its mails that are in memory.
    pub memory: Option<usize>,
    /// Octets of its mails that are in the spool.
    pub spool: Option<usize>,
}

/// All octets in memory, unless the configuration says otherwise.
const DEFAULT_MAX_MEMORY: usize = 256 * 1024 * 1024;
/// All octets in the spool, unless the configuration says otherwise: 29 mails of the largest size.
const DEFAULT_MAX_SPOOL: usize = 1024 * 1024 * 1024;
/// One network may hold one part in so many.
pub(super) const NETWORK_SHARE_DIVISOR: usize = 4;

impl NetworkLimits {
    /// For networks that nothing is known of.
    pub const REMOTE: Self = Self {
        connections: Some(50),
        connections_per_minute: Some(300),
        mails_per_minute: Some(1200),
        memory: Some(DEFAULT_MAX_MEMORY / NETWORK_SHARE_DIVISOR),
        spool: Some(DEFAULT_MAX_SPOOL / NETWORK_SHARE_DIVISOR),
    };
}

/// How the listener behaves.
#[derive(Clone, Debug)]
pub struct SmtpSettings {
    /// The name in the greeting and in the answer to EHLO.
    pub hostname: String,
    /// Octets of one mail.
    pub max_size: usize,
    /// Recipients of one mail.
    pub max_recipients: usize,
    /// Connections at a time.
    pub max_connections: usize,
    /// Octets of all mails under way that are in memory: small ones while they come in, and large ones while they are
    /// committed.
    pub max_memory: usize,
    /// Octets of all mails under way that are in the spool.
    pub max_spool: usize,
    /// Where the spool is.
    pub spool: Arc<dyn SpoolFiles>,
    /// What a network may do.
    pub per_ip: NetworkLimits,
    /// What this machine may do.
    pub per_ip_loopback: NetworkLimits,
    /// How long things may take.
    pub timeouts: SmtpTimeouts,
    /// The certificate, when STARTTLS is offered.
    pub tls: Option<Arc<Tls>>,
    /// Where it is counted.
    pub metrics: Arc<SmtpMetrics>,
}

impl SmtpSettings {
    /// What holds when nothing is said.
    pub fn new(hostname: &str) -> Self {
        Self {
            hostname: hostname.to_owned(),
            max_size: limits::INBOUND_MAIL_BYTES,
            max_recipients: limits::INBOUND_RECIPIENTS,
            max_connections: 10_000,
            max_memory: DEFAULT_MAX_MEMORY,
            max_spool: DEFAULT_MAX_SPOOL,
            spool: Arc::new(SpoolDir(std::env::temp_dir())),
            per_ip: NetworkLimits::REMOTE,
            per_ip_loopback: NetworkLimits::default(),
            timeouts: SmtpTimeouts::default(),
            tls: None,
            metrics: Arc::default(),
        }
    }
}
