//! A connection up to the point where mail can begin: TCP, TLS, greeting, EHLO, log-in.
//!
//! Whatever fails here is the transport's fault and not the mail's: nothing was said about a mail yet.

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

/// A connection on which mail can begin.
pub(super) struct RelaySession {
    pub(super) connection: RelayConnection,
    pub(super) extensions: EhloExtensions,
    /// Mails that were begun on it.
    pub(super) mails_started: u32,
}

/// The transport is at fault.
pub(super) fn transport_fault(phase: AttemptPhase, text: &str) -> TransportReply {
    TransportReply::new(ReplyMeaning::Fault, phase, None, text)
}

fn fault_from_reply(phase: AttemptPhase, answer: &RelayReply) -> TransportReply {
    TransportReply::new(ReplyMeaning::Fault, phase, Some(answer.code), &answer.text())
}

fn fault_from_error(phase: AttemptPhase) -> impl Fn(RelayConnectionError) -> TransportReply {
    move |lost| transport_fault(phase, &lost.to_string())
}

/// Refuses to log in where anybody could listen. Asked before anything is dialled.
pub(super) fn check_login_allowed(config: &RelayConfig) -> Result<(), TransportReply> {
    if config.username.is_some() && config.tls == TlsMode::None && !config.is_loopback() {
        return Err(transport_fault(
            AttemptPhase::Login,
            "a log-in without TLS is only made to this machine: set tls to starttls or tls",
        ));
    }
    Ok(())
}

impl RelaySession {
    /// Connects as far as the first `MAIL`.
    pub(super) async fn open(config: &RelayConfig, trust: &Arc<ClientConfig>) -> Result<Self, TransportReply> {
        let patience = &config.timeouts;
        let stream = dial::open_tcp(&config.host, config.port, patience.connect, config.address_filter.as_ref())
            .await
            .map_err(|error| transport_fault(AttemptPhase::Connect, &error.to_string()))?;
        let peer = stream.peer_addr().map_err(|error| transport_fault(AttemptPhase::Connect, &error.to_string()))?;
        if config.username.is_some() && config.tls == TlsMode::None && !peer.ip().is_loopback() {
            return Err(transport_fault(
                AttemptPhase::Login,
                "localhost is not on this machine: no log-in without TLS",
            ));
        }
        let wire = match config.tls {
            TlsMode::Tls => open_tls_connection(stream, config, trust).await?,
            TlsMode::None | TlsMode::Starttls => RelayConnection::new(stream),
        };
        let mut session = Self { connection: wire, extensions: EhloExtensions::default(), mails_started: 0 };
        session.read_greeting(patience.greeting).await?;
        session.send_ehlo(config).await?;
        if config.tls == TlsMode::Starttls {
            session = session.starttls(config, trust).await?;
        }
        if let Some(username) = &config.username {
            session.log_in(username, config.password.as_deref().unwrap_or_default(), patience.command).await?;
        }
        Ok(session)
    }

    async fn read_greeting(&mut self, patience: Duration) -> Result<(), TransportReply> {
        let greeting = self
            .connection
            .read_reply(Instant::now() + patience)
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
        // Servers of old know only HELO. They can neither do TLS nor log-in.
        if !matches!(ehlo.code, 500 | 501 | 502 | 504) || config.tls == TlsMode::Starttls || config.username.is_some() {
            return Err(fault_from_reply(AttemptPhase::Greet, &ehlo));
        }
        let helo = self
            .send_command(AttemptPhase::Greet, &format!("HELO {}", config.ehlo_name), config.timeouts.command)
            .await?;
        if helo.class() == 2 { Ok(()) } else { Err(fault_from_reply(AttemptPhase::Greet, &helo)) }
    }

    async fn starttls(mut self, config: &RelayConfig, trust: &Arc<ClientConfig>) -> Result<Self, TransportReply> {
        if !self.extensions.starttls {
            return Err(transport_fault(AttemptPhase::Tls, "the server does not offer STARTTLS"));
        }
        let answer = self.send_command(AttemptPhase::Tls, "STARTTLS", config.timeouts.command).await?;
        if answer.code != 220 {
            return Err(fault_from_reply(AttemptPhase::Tls, &answer));
        }
        // What was said in the clear before the handshake could be anybody's: it may not count under TLS.
        if !self.connection.is_in_sync() {
            return Err(transport_fault(AttemptPhase::Tls, "the server spoke past its answer to STARTTLS"));
        }
        let wire = open_tls_connection(self.connection.into_stream(), config, trust).await?;
        let mut session = Self { connection: wire, extensions: EhloExtensions::default(), mails_started: 0 };
        session.send_ehlo(config).await?;
        Ok(session)
    }

    async fn log_in(&mut self, username: &str, password: &str, patience: Duration) -> Result<(), TransportReply> {
        let both = STANDARD.encode(format!("\0{username}\0{password}"));
        self.connection.redact(vec![password.to_owned(), STANDARD.encode(password), both.clone()]);
        let steps = if self.extensions.auth_plain {
            vec![format!("AUTH PLAIN {both}")]
        } else if self.extensions.auth_login {
            vec!["AUTH LOGIN".to_owned(), STANDARD.encode(username), STANDARD.encode(password)]
        } else {
            return Err(transport_fault(AttemptPhase::Login, "the server offers neither AUTH PLAIN nor AUTH LOGIN"));
        };
        let (last, before) =
            steps.split_last().ok_or_else(|| transport_fault(AttemptPhase::Login, "nothing to say"))?;
        for step in before {
            let answer = self.send_command(AttemptPhase::Login, step, patience).await?;
            if answer.code != 334 {
                return Err(fault_from_reply(AttemptPhase::Login, &answer));
            }
        }
        let answer = self.send_command(AttemptPhase::Login, last, patience).await?;
        if answer.class() == 2 { Ok(()) } else { Err(fault_from_reply(AttemptPhase::Login, &answer)) }
    }

    /// One command and its answer. An answer that nobody asked for ends the session.
    async fn send_command(
        &mut self,
        phase: AttemptPhase,
        line: &str,
        patience: Duration,
    ) -> Result<RelayReply, TransportReply> {
        if !self.connection.is_in_sync() {
            return Err(transport_fault(phase, "the server spoke out of turn"));
        }
        let end = Instant::now() + patience;
        self.connection.write(format!("{line}\r\n").as_bytes(), end).await.map_err(fault_from_error(phase))?;
        self.connection.read_reply(end).await.map_err(fault_from_error(phase))
    }

    /// Says good-bye without waiting for an answer.
    pub(super) async fn quit(mut self) {
        let end = Instant::now() + Duration::from_secs(1);
        // Courtesy only: the connection is closed either way.
        drop(self.connection.write(b"QUIT\r\n", end).await);
    }
}

async fn open_tls_connection(
    stream: impl crate::smtp::connection::RelayStream + 'static,
    config: &RelayConfig,
    trust: &Arc<ClientConfig>,
) -> Result<RelayConnection, TransportReply> {
    let secured = dial::open_tls(stream, &config.host, trust, config.timeouts.tls).await;
    secured.map(RelayConnection::new).map_err(|error| transport_fault(AttemptPhase::Tls, &error.to_string()))
}
