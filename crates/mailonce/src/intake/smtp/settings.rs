//! What an operator can say about the listener, and what holds when nothing is said.

use mailonce_core::limits;
use std::{sync::Arc, time::Duration};

use super::tally::Tally;
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
    /// For room in memory.
    pub room: Duration,
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
}

impl PerIp {
    /// For networks that nothing is known of.
    pub const STRANGERS: Self =
        Self { connections: Some(50), connections_per_minute: Some(300), mails_per_minute: Some(1200) };
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
    /// Octets of all mails that are under way together.
    pub max_memory: usize,
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
            max_memory: 256 * 1024 * 1024,
            per_ip: PerIp::STRANGERS,
            per_ip_loopback: PerIp::default(),
            patience: Patience::default(),
            tls: None,
            tally: Arc::default(),
        }
    }
}
