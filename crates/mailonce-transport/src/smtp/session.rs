//! A connection up to the point where mail can begin: TCP, TLS, greeting, EHLO, log-in.
//!
//! Whatever fails here is the transport's fault and not the mail's: nothing was said about a mail yet.

use super::{
    answer::Answer,
    config::{Security, SmtpConfig},
    offers::Offers,
    wire::{Lost, Wire},
};
use crate::dial;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::port::transport::{Meaning, Phase, Reply};
use rustls::ClientConfig;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// A connection on which mail can begin.
pub(super) struct Session {
    pub(super) wire: Wire,
    pub(super) offers: Offers,
    /// Mails that were begun on it.
    pub(super) mails: u32,
}

/// The transport is at fault.
pub(super) fn fault(phase: Phase, text: &str) -> Reply {
    Reply::new(Meaning::Fault, phase, None, text)
}

fn refused(phase: Phase, answer: &Answer) -> Reply {
    Reply::new(Meaning::Fault, phase, Some(answer.code), &answer.text())
}

fn lost(phase: Phase) -> impl Fn(Lost) -> Reply {
    move |lost| fault(phase, &lost.to_string())
}

/// Refuses to log in where anybody could listen. Asked before anything is dialled.
pub(super) fn may_log_in(config: &SmtpConfig) -> Result<(), Reply> {
    if config.username.is_some() && config.tls == Security::None && !config.is_loopback() {
        return Err(fault(
            Phase::Login,
            "a log-in without TLS is only made to this machine: set tls to starttls or tls",
        ));
    }
    Ok(())
}

impl Session {
    /// Connects as far as the first `MAIL`.
    pub(super) async fn open(config: &SmtpConfig, trust: &Arc<ClientConfig>) -> Result<Self, Reply> {
        let patience = &config.patience;
        let stream = dial::open(&config.host, config.port, patience.connect, config.guard.as_ref())
            .await
            .map_err(|error| fault(Phase::Connect, &error.to_string()))?;
        let peer = stream.peer_addr().map_err(|error| fault(Phase::Connect, &error.to_string()))?;
        if config.username.is_some() && config.tls == Security::None && !peer.ip().is_loopback() {
            return Err(fault(Phase::Login, "localhost is not on this machine: no log-in without TLS"));
        }
        let wire = match config.tls {
            Security::Tls => secured(stream, config, trust).await?,
            Security::None | Security::Starttls => Wire::new(stream),
        };
        let mut session = Self { wire, offers: Offers::default(), mails: 0 };
        session.greet(patience.greeting).await?;
        session.hello(config).await?;
        if config.tls == Security::Starttls {
            session = session.starttls(config, trust).await?;
        }
        if let Some(username) = &config.username {
            session.log_in(username, config.password.as_deref().unwrap_or_default(), patience.command).await?;
        }
        Ok(session)
    }

    async fn greet(&mut self, patience: Duration) -> Result<(), Reply> {
        let greeting = self.wire.answer(Instant::now() + patience).await.map_err(lost(Phase::Greet))?;
        if greeting.code == 220 { Ok(()) } else { Err(refused(Phase::Greet, &greeting)) }
    }

    async fn hello(&mut self, config: &SmtpConfig) -> Result<(), Reply> {
        let ehlo = self.ask(Phase::Greet, &format!("EHLO {}", config.hello), config.patience.command).await?;
        if ehlo.class() == 2 {
            self.offers = Offers::read(&ehlo);
            return Ok(());
        }
        // Servers of old know only HELO. They can neither do TLS nor log-in.
        if !matches!(ehlo.code, 500 | 501 | 502 | 504) || config.tls == Security::Starttls || config.username.is_some()
        {
            return Err(refused(Phase::Greet, &ehlo));
        }
        let helo = self.ask(Phase::Greet, &format!("HELO {}", config.hello), config.patience.command).await?;
        if helo.class() == 2 { Ok(()) } else { Err(refused(Phase::Greet, &helo)) }
    }

    async fn starttls(mut self, config: &SmtpConfig, trust: &Arc<ClientConfig>) -> Result<Self, Reply> {
        if !self.offers.starttls {
            return Err(fault(Phase::Tls, "the server does not offer STARTTLS"));
        }
        let answer = self.ask(Phase::Tls, "STARTTLS", config.patience.command).await?;
        if answer.code != 220 {
            return Err(refused(Phase::Tls, &answer));
        }
        // What was said in the clear before the handshake could be anybody's: it may not count under TLS.
        if !self.wire.in_step() {
            return Err(fault(Phase::Tls, "the server spoke past its answer to STARTTLS"));
        }
        let wire = secured(self.wire.into_stream(), config, trust).await?;
        let mut session = Self { wire, offers: Offers::default(), mails: 0 };
        session.hello(config).await?;
        Ok(session)
    }

    async fn log_in(&mut self, username: &str, password: &str, patience: Duration) -> Result<(), Reply> {
        let both = STANDARD.encode(format!("\0{username}\0{password}"));
        self.wire.keep_secret(vec![password.to_owned(), STANDARD.encode(password), both.clone()]);
        let steps = if self.offers.plain {
            vec![format!("AUTH PLAIN {both}")]
        } else if self.offers.login {
            vec!["AUTH LOGIN".to_owned(), STANDARD.encode(username), STANDARD.encode(password)]
        } else {
            return Err(fault(Phase::Login, "the server offers neither AUTH PLAIN nor AUTH LOGIN"));
        };
        let (last, before) = steps.split_last().ok_or_else(|| fault(Phase::Login, "nothing to say"))?;
        for step in before {
            let answer = self.ask(Phase::Login, step, patience).await?;
            if answer.code != 334 {
                return Err(refused(Phase::Login, &answer));
            }
        }
        let answer = self.ask(Phase::Login, last, patience).await?;
        if answer.class() == 2 { Ok(()) } else { Err(refused(Phase::Login, &answer)) }
    }

    /// One command and its answer. An answer that nobody asked for ends the session.
    async fn ask(&mut self, phase: Phase, line: &str, patience: Duration) -> Result<Answer, Reply> {
        if !self.wire.in_step() {
            return Err(fault(phase, "the server spoke out of turn"));
        }
        let end = Instant::now() + patience;
        self.wire.write(format!("{line}\r\n").as_bytes(), end).await.map_err(lost(phase))?;
        self.wire.answer(end).await.map_err(lost(phase))
    }

    /// Says good-bye without waiting for an answer.
    pub(super) async fn quit(mut self) {
        let end = Instant::now() + Duration::from_secs(1);
        // Courtesy only: the connection is closed either way.
        drop(self.wire.write(b"QUIT\r\n", end).await);
    }
}

async fn secured(
    stream: impl super::wire::Stream + 'static,
    config: &SmtpConfig,
    trust: &Arc<ClientConfig>,
) -> Result<Wire, Reply> {
    let secured = dial::secure(stream, &config.host, trust, config.patience.tls).await;
    secured.map(Wire::new).map_err(|error| fault(Phase::Tls, &error.to_string()))
}
