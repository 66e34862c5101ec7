//! How a relay is reached, and how long each step may take.

use crate::dial::AddressFilter;
use rustls::pki_types::CertificateDer;
use std::{fmt, net::IpAddr, time::Duration};

/// How the connection is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Not at all.
    None,
    /// By STARTTLS, which must succeed.
    #[default]
    Starttls,
    /// From the first byte.
    Tls,
}

/// How long each step may take, however slowly the bytes drip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayTimeouts {
    /// Until one of the transport's connections is free.
    pub pool: Duration,
    /// Name look-up and TCP.
    pub connect: Duration,
    /// The TLS handshake.
    pub tls: Duration,
    /// The greeting.
    pub greeting: Duration,
    /// Each command.
    pub command: Duration,
    /// The body, without the final dot.
    pub body: Duration,
    /// Between the end of the approach and the final dot. Afterwards the dot is not written any more.
    pub before_dot: Duration,
    /// The final dot and its answer.
    pub final_reply: Duration,
    /// How long an unused connection stays open.
    pub idle: Duration,
}

impl Default for RelayTimeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            pool: seconds(60),
            connect: seconds(10),
            tls: seconds(30),
            greeting: seconds(30),
            command: seconds(60),
            body: seconds(180),
            before_dot: seconds(60),
            // RFC 5321 gives a server ten minutes to answer the final dot.
            final_reply: seconds(600),
            idle: seconds(20),
        }
    }
}

/// A relay.
#[derive(Clone)]
pub struct RelayConfig {
    /// The transport's name in the configuration.
    pub name: String,
    /// Name or address of the server; with TLS, the name in its certificate.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is protected.
    pub tls: TlsMode,
    /// Log-in, when there is one.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// What we call ourselves in EHLO.
    pub ehlo_name: String,
    /// A fingerprint of the account, else made of user, host and port.
    pub account: Option<String>,
    /// Connections open at the same time.
    pub max_connections: usize,
    /// Authorities trusted beside the usual ones.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Which addresses may be dialled, else all.
    pub address_filter: Option<AddressFilter>,
    /// How long each step may take.
    pub timeouts: RelayTimeouts,
}

impl RelayConfig {
    /// A relay with the usual settings, with STARTTLS and without log-in.
    pub fn new(name: impl Into<String>, host: impl Into<String>, port: u16) -> Self {
        Self {
            name: name.into(),
            host: host.into(),
            port,
            tls: TlsMode::default(),
            username: None,
            password: None,
            ehlo_name: "localhost".to_owned(),
            account: None,
            max_connections: 16,
            extra_roots: Vec::new(),
            address_filter: None,
            timeouts: RelayTimeouts::default(),
        }
    }

    /// A server on this machine, by name or by address.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&self.host);
        host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }

    /// What survives a new password.
    pub(super) fn account_fingerprint(&self) -> String {
        let at = format!("{}:{}", self.host.to_ascii_lowercase(), self.port);
        match (&self.account, &self.username) {
            (Some(account), _) => account.clone(),
            (None, Some(user)) => format!("smtp://{user}@{at}"),
            (None, None) => format!("smtp://{at}"),
        }
    }
}

/// The password stays out of logs.
impl fmt::Debug for RelayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpConfig")
            .field("name", &self.name)
            .field("host", &self.host)
            .field("port", &self.port)
            .field("tls", &self.tls)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_survives_a_new_password_and_the_password_stays_out_of_logs() {
        let mut config = RelayConfig::new("relay", "Mail.example", 587);
        config.username = Some("me".to_owned());
        config.password = Some("hunter2".to_owned());
        assert_eq!(config.account_fingerprint(), "smtp://me@mail.example:587");
        assert!(!format!("{config:?}").contains("hunter2"));
        config.password = None;
        assert_eq!(config.account_fingerprint(), "smtp://me@mail.example:587");
        config.account = Some("acme".to_owned());
        assert_eq!(config.account_fingerprint(), "acme");
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for (host, loopback) in [
            ("127.0.0.1", true),
            ("localhost", true),
            ("::1", true),
            ("[::1]", true),
            ("127.0.0.1.example", false),
            ("10.0.0.1", false),
            ("localhost.example", false),
        ] {
            assert_eq!(RelayConfig::new("relay", host, 25).is_loopback(), loopback, "{host}");
        }
    }
}
