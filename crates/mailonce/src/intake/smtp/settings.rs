//! The settings of the SMTP listener, and their defaults.

use mailonce_core::limits;
use std::{sync::Arc, time::Duration};

use super::spool::{SpoolDir, SpoolFiles};
use crate::intake::smtp::metrics::SmtpMetrics;
use crate::tls::Tls;

/// Timeouts of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmtpTimeouts {
    /// For a whole command line, however slowly its bytes arrive, and for writing a reply.
    pub command: Duration,
    /// For the next bytes of a mail.
    pub data: Duration,
    /// For the whole connection.
    pub session: Duration,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// For the check of a recipient.
    pub recipient_check: Duration,
    /// For the commit of a mail. A later commit still counts: the sender's retry is a duplicate of the same delivery.
    pub commit: Duration,
    /// For memory or disk space, while a mail is being received.
    pub buffer_space: Duration,
    /// For the memory to load a complete large mail from the spool.
    pub spool_load: Duration,
    /// How long a mail may fall behind the minimum rate.
    pub slow_grace: Duration,
    /// For mails that are being received when the server shuts down.
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

/// Limits of one network: an IPv4 address, or an IPv6 /64. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkLimits {
    /// Open connections.
    pub connections: Option<u32>,
    /// New connections per minute.
    pub connections_per_minute: Option<u32>,
    /// New mails per minute.
    pub mails_per_minute: Option<u32>,
    /// Octets of its mails in memory.
    pub memory: Option<usize>,
    /// Octets of its mails in the spool.
    pub spool: Option<usize>,
}

/// The default of `max_memory`.
const DEFAULT_MAX_MEMORY: usize = 256 * 1024 * 1024;
/// The default of `max_spool`: 29 mails of the largest size.
const DEFAULT_MAX_SPOOL: usize = 1024 * 1024 * 1024;
/// One network may hold this fraction of memory and spool: one part in four.
pub(super) const NETWORK_SHARE_DIVISOR: usize = 4;

impl NetworkLimits {
    /// The default limits of remote networks.
    pub const REMOTE: Self = Self {
        connections: Some(50),
        connections_per_minute: Some(300),
        mails_per_minute: Some(1200),
        memory: Some(DEFAULT_MAX_MEMORY / NETWORK_SHARE_DIVISOR),
        spool: Some(DEFAULT_MAX_SPOOL / NETWORK_SHARE_DIVISOR),
    };
}

/// The settings of the SMTP listener.
#[derive(Clone, Debug)]
pub struct SmtpSettings {
    /// The name in the greeting and in the reply to EHLO.
    pub hostname: String,
    /// Maximum octets of one mail.
    pub max_size: usize,
    /// Maximum recipients of one mail.
    pub max_recipients: usize,
    /// Maximum open connections.
    pub max_connections: usize,
    /// Maximum octets in memory of all mails. A small mail counts until it is committed. A large one is spooled: one
    /// chunk counts while it is received, and all of it while it is committed.
    pub max_memory: usize,
    /// Maximum octets in the spool of all mails that are being received.
    pub max_spool: usize,
    /// Creates the spool files.
    pub spool: Arc<dyn SpoolFiles>,
    /// Limits of a remote network.
    pub per_ip: NetworkLimits,
    /// Limits of loopback.
    pub per_ip_loopback: NetworkLimits,
    /// Timeouts.
    pub timeouts: SmtpTimeouts,
    /// The certificate, if STARTTLS is offered.
    pub tls: Option<Arc<Tls>>,
    /// The counters of the listener.
    pub metrics: Arc<SmtpMetrics>,
}

impl SmtpSettings {
    /// The default settings.
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
