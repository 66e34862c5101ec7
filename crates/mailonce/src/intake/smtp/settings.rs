//! What an operator can say about the listener, and what holds when nothing is said.

use mailonce_core::limits;
use std::{sync::Arc, time::Duration};

use super::{
    spool::{SpoolDir, SpoolFiles},
    tally::Tally,
};
use crate::tls::Tls;

/// How long each side of a conversation may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a whole command line, however slowly it trickles in, and for reading one of our replies.
    pub command: Duration,
    /// For the next bytes of a mail.
    pub data: Duration,
    /// For everything on one connection.
    pub session: Duration,
    /// For the handshake of TLS.
    pub handshake: Duration,
    /// For the verdict on a recipient.
    pub verdict: Duration,
    /// For the commit of a mail. One that comes later still counts: the other side's retry is the same delivery.
    pub taking: Duration,
    /// For room in memory or on disk, while a mail comes in.
    pub room: Duration,
    /// For room in memory, when all of a large mail is there.
    pub load: Duration,
    /// For pauses of a mail, beyond what its rate pays for.
    pub slow: Duration,
    /// For mails that are under way when we stop.
    pub farewell: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            command: Duration::from_mins(5),
            data: Duration::from_mins(3),
            session: Duration::from_mins(30),
            handshake: Duration::from_mins(1),
            verdict: Duration::from_secs(10),
            taking: Duration::from_mins(1),
            room: Duration::from_secs(10),
            load: Duration::from_secs(30),
            slow: Duration::from_mins(1),
            farewell: Duration::from_secs(10),
        }
    }
}

/// What one network may do: an IPv4 address, or 64 bits of IPv6. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerIp {
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
const MAX_MEMORY: usize = 256 * 1024 * 1024;
/// All octets in the spool, unless the configuration says otherwise: 29 mails of the largest size.
const MAX_SPOOL: usize = 1024 * 1024 * 1024;
/// One network may hold one part in so many.
pub(super) const SHARE: usize = 4;

impl PerIp {
    /// For networks that nothing is known of.
    pub const STRANGERS: Self = Self {
        connections: Some(50),
        connections_per_minute: Some(300),
        mails_per_minute: Some(1200),
        memory: Some(MAX_MEMORY / SHARE),
        spool: Some(MAX_SPOOL / SHARE),
    };
}

/// How the listener behaves.
#[derive(Clone, Debug)]
pub struct Settings {
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
    pub per_ip: PerIp,
    /// What this machine may do.
    pub per_ip_loopback: PerIp,
    /// How long things may take.
    pub patience: Patience,
    /// The certificate, when STARTTLS is offered.
    pub tls: Option<Arc<Tls>>,
    /// Where it is counted.
    pub tally: Arc<Tally>,
}

impl Settings {
    /// What holds when nothing is said.
    pub fn new(hostname: &str) -> Self {
        Self {
            hostname: hostname.to_owned(),
            max_size: limits::MAIL_BYTES,
            max_recipients: limits::ENVELOPE_RECIPIENTS,
            max_connections: 10_000,
            max_memory: MAX_MEMORY,
            max_spool: MAX_SPOOL,
            spool: Arc::new(SpoolDir(std::env::temp_dir())),
            per_ip: PerIp::STRANGERS,
            per_ip_loopback: PerIp::default(),
            patience: Patience::default(),
            tls: None,
            tally: Arc::default(),
        }
    }
}
