//! The settings of a relay, and the timeout of each step.

use crate::dial::AddressFilter;
use rustls::pki_types::CertificateDer;
use std::{fmt, net::IpAddr, time::Duration};

/// The TLS mode of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// No TLS.
    None,
    /// STARTTLS, which must succeed.
    #[default]
    Starttls,
    /// Implicit TLS from the first byte.
    Tls,
}

/// The timeout of each step as a whole, however slowly bytes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayTimeouts {
    /// Waiting for a free connection of the pool.
    pub pool: Duration,
    /// Name resolution and TCP connect.
    pub connect: Duration,
    /// The TLS handshake.
    pub tls: Duration,
    /// The greeting.
    pub greeting: Duration,
    /// Each command and its reply.
    pub command: Duration,
    /// The body, without the final dot.
    pub body: Duration,
    /// Between the end of the body and the final dot. After it the dot is not sent any more.
    pub before_dot: Duration,
    /// The final dot and its reply.
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
            // RFC 5321 gives a server ten minutes to reply to the final dot.
            final_reply: seconds(600),
            idle: seconds(20),
        }
    }
}

/// The settings of a relay.
#[derive(Clone)]
pub struct RelayConfig {
    /// The transport's name in the configuration.
    pub name: String,
    /// Host name or address of the server. With TLS it must match the certificate.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The TLS mode.
    pub tls: TlsMode,
    /// The user name for AUTH. `None`: no authentication.
    pub username: Option<String>,
    /// The password for AUTH.
    pub password: Option<String>,
    /// Our host name in EHLO.
    pub ehlo_name: String,
    /// Identifies the account. Default: built from user, host and port.
    pub account: Option<String>,
    /// Maximum number of open connections.
    pub max_connections: usize,
    /// Certificate authorities trusted besides the public ones.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Decides which addresses may be dialled. `None`: all.
    pub address_filter: Option<AddressFilter>,
    /// The timeout of each step.
    pub timeouts: RelayTimeouts,
}

impl RelayConfig {
    /// The default settings: STARTTLS, no authentication.
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

    /// Whether the server is on this machine, by name or by address.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&self.host);
        host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }

    /// The account's identity. It does not depend on the password.
    pub(super) fn account_fingerprint(&self) -> String {
        let at = format!("{}:{}", self.host.to_ascii_lowercase(), self.port);
        match (&self.account, &self.username) {
            (Some(account), _) => account.clone(),
            (None, Some(user)) => format!("smtp://{user}@{at}"),
            (None, None) => format!("smtp://{at}"),
        }
    }
}

/// Hides the password from logs.
impl fmt::Debug for RelayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayConfig")
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
