//! A connection that is ready for `MAIL`: TCP, TLS, greeting, EHLO and AUTH are done.
//!
//! A failure here is a fault of the transport, not of the mail, because no mail was mentioned yet.

use super::config::{RelayConfig, TlsMode};
use crate::{
    dial,
    smtp::{
        connection::{RelayConnection, RelayConnectionError},
        extensions::EhloExtensions,
        reply::RelayReply,
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::handoff::reply::{AttemptPhase, ReplyMeaning, TransportReply};
use rustls::ClientConfig;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// A connection that is ready for `MAIL`.
pub(super) struct RelaySession {
    pub(super) connection: RelayConnection,
    pub(super) extensions: EhloExtensions,
    /// How many mails were started on it.
    pub(super) mails_started: u32,
}

/// A reply that blames the transport.
pub(super) fn transport_fault(phase: AttemptPhase, text: &str) -> TransportReply {
    TransportReply::new(ReplyMeaning::Fault, phase, None, text)
}

fn fault_from_reply(phase: AttemptPhase, reply: &RelayReply) -> TransportReply {
    TransportReply::new(ReplyMeaning::Fault, phase, Some(reply.code), &reply.text())
}

fn fault_from_error(phase: AttemptPhase) -> impl Fn(RelayConnectionError) -> TransportReply {
    move |error| transport_fault(phase, &error.to_string())
}

/// Rejects AUTH over an unencrypted network connection. Called before anything is dialled.
pub(super) fn check_login_allowed(config: &RelayConfig) -> Result<(), TransportReply> {
    if config.username.is_some() && config.tls == TlsMode::None && !config.is_loopback() {
        return Err(transport_fault(
            AttemptPhase::Login,
            "credentials are sent without TLS only to this machine: set tls to starttls or tls",
        ));
    }
    Ok(())
}

impl RelaySession {
    /// Connects, up to the point before the first `MAIL`.
    pub(super) async fn open(config: &RelayConfig, tls_config: &Arc<ClientConfig>) -> Result<Self, TransportReply> {
        let timeouts = &config.timeouts;
        let stream = dial::open_tcp(&config.host, config.port, timeouts.connect, config.address_filter.as_ref())
            .await
            .map_err(|error| transport_fault(AttemptPhase::Connect, &error.to_string()))?;
        let peer = stream.peer_addr().map_err(|error| transport_fault(AttemptPhase::Connect, &error.to_string()))?;
        if config.username.is_some() && config.tls == TlsMode::None && !peer.ip().is_loopback() {
            return Err(transport_fault(
                AttemptPhase::Login,
                "localhost does not resolve to a loopback address: credentials are not sent without TLS",
            ));
        }
        let connection = match config.tls {
            TlsMode::Tls => open_tls_connection(stream, config, tls_config).await?,
            TlsMode::None | TlsMode::Starttls => RelayConnection::new(stream),
        };
        let mut session = Self { connection, extensions: EhloExtensions::default(), mails_started: 0 };
        session.read_greeting(timeouts.greeting).await?;
        session.send_ehlo(config).await?;
        if config.tls == TlsMode::Starttls {
            session = session.starttls(config, tls_config).await?;
        }
        if let Some(username) = &config.username {
            session.log_in(username, config.password.as_deref().unwrap_or_default(), timeouts.command).await?;
        }
        Ok(session)
    }

    async fn read_greeting(&mut self, timeout: Duration) -> Result<(), TransportReply> {
        let greeting = self
            .connection
            .read_reply(Instant::now() + timeout)
            .await
            .map_err(fault_from_error(AttemptPhase::Greet))?;
        if greeting.code == 220 { Ok(()) } else { Err(fault_from_reply(AttemptPhase::Greet, &greeting)) }
    }

    async fn send_ehlo(&mut self, config: &RelayConfig) -> Result<(), TransportReply> {
        let ehlo = self
            .send_command(AttemptPhase::Greet, &format!("EHLO {}", config.ehlo_name), config.timeouts.command)
            .await?;
        if ehlo.class() == 2 {
            self.extensions = EhloExtensions::parse(&ehlo);
            return Ok(());
        }
        // Old servers know only HELO, which offers neither STARTTLS nor AUTH.
        if !matches!(ehlo.code, 500 | 501 | 502 | 504) || config.tls == TlsMode::Starttls || config.username.is_some() {
            return Err(fault_from_reply(AttemptPhase::Greet, &ehlo));
        }
        let helo = self
            .send_command(AttemptPhase::Greet, &format!("HELO {}", config.ehlo_name), config.timeouts.command)
            .await?;
        if helo.class() == 2 { Ok(()) } else { Err(fault_from_reply(AttemptPhase::Greet, &helo)) }
    }

    async fn starttls(mut self, config: &RelayConfig, tls_config: &Arc<ClientConfig>) -> Result<Self, TransportReply> {
        if !self.extensions.starttls {
            return Err(transport_fault(AttemptPhase::Tls, "the server does not offer STARTTLS"));
        }
        let reply = self.send_command(AttemptPhase::Tls, "STARTTLS", config.timeouts.command).await?;
        if reply.code != 220 {
            return Err(fault_from_reply(AttemptPhase::Tls, &reply));
        }
        // Plaintext that was injected before the handshake must not count under TLS (STARTTLS injection).
        if !self.connection.is_in_sync() {
            return Err(transport_fault(AttemptPhase::Tls, "the server sent data after its reply to STARTTLS"));
        }
        let connection = open_tls_connection(self.connection.into_stream(), config, tls_config).await?;
        let mut session = Self { connection, extensions: EhloExtensions::default(), mails_started: 0 };
        session.send_ehlo(config).await?;
        Ok(session)
    }

    async fn log_in(&mut self, username: &str, password: &str, timeout: Duration) -> Result<(), TransportReply> {
        let plain_credentials = STANDARD.encode(format!("\0{username}\0{password}"));
        self.connection.redact(vec![password.to_owned(), STANDARD.encode(password), plain_credentials.clone()]);
        let steps = if self.extensions.auth_plain {
            vec![format!("AUTH PLAIN {plain_credentials}")]
        } else if self.extensions.auth_login {
            vec!["AUTH LOGIN".to_owned(), STANDARD.encode(username), STANDARD.encode(password)]
        } else {
            return Err(transport_fault(AttemptPhase::Login, "the server offers neither AUTH PLAIN nor AUTH LOGIN"));
        };
        let (last, before) = steps
            .split_last()
            .ok_or_else(|| transport_fault(AttemptPhase::Login, "there is no AUTH command to send"))?;
        for step in before {
            let reply = self.send_command(AttemptPhase::Login, step, timeout).await?;
            if reply.code != 334 {
                return Err(fault_from_reply(AttemptPhase::Login, &reply));
            }
        }
        let reply = self.send_command(AttemptPhase::Login, last, timeout).await?;
        if reply.class() == 2 { Ok(()) } else { Err(fault_from_reply(AttemptPhase::Login, &reply)) }
    }

    /// Sends one command and reads its reply. An unsolicited reply ends the session.
    async fn send_command(
        &mut self,
        phase: AttemptPhase,
        line: &str,
        timeout: Duration,
    ) -> Result<RelayReply, TransportReply> {
        if !self.connection.is_in_sync() {
            return Err(transport_fault(phase, "the server sent an unexpected reply"));
        }
        let deadline = Instant::now() + timeout;
        self.connection.write(format!("{line}\r\n").as_bytes(), deadline).await.map_err(fault_from_error(phase))?;
        self.connection.read_reply(deadline).await.map_err(fault_from_error(phase))
    }

    /// Sends QUIT without waiting for the reply.
    pub(super) async fn quit(mut self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        // The error is ignored: the connection is closed either way.
        drop(self.connection.write(b"QUIT\r\n", deadline).await);
    }
}

async fn open_tls_connection(
    stream: impl crate::smtp::connection::RelayStream + 'static,
    config: &RelayConfig,
    tls_config: &Arc<ClientConfig>,
) -> Result<RelayConnection, TransportReply> {
    let secured = dial::open_tls(stream, &config.host, tls_config, config.timeouts.tls).await;
    secured.map(RelayConnection::new).map_err(|error| transport_fault(AttemptPhase::Tls, &error.to_string()))
}
