//! SMTP to a relay, with the final dot apart from everything before it.
//!
//! | file | what it holds |
//! |---|---|
//! | `config` | how a relay is reached, and how long each step may take |
//! | `session` | a connection up to the first `MAIL`: TCP, TLS, greeting, EHLO, log-in |
//! | `transaction` | one mail: up to the dot, and the dot; what each answer means |
//! | `pool` | connections that rest between mails |
//! | `envelope`, `body` | the commands of an envelope; the bytes of a mail |
//! | `wire`, `answer`, `offers` | bytes both ways; replies; what EHLO offers |

mod body;
mod config;
mod connection;
mod envelope;
mod extensions;
mod pool;
mod reply;
mod session;
mod transaction;

pub use config::{RelayConfig, RelayTimeouts, TlsMode};

use crate::{boot_instant::BootInstant, dial};
use async_trait::async_trait;
use mailonce_core::{
    handoff::{
        capabilities::{HandoffSplit, PayloadFormat, RecoveryMethod, TransportCapabilities},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
        transport_request::{
            ConnectionCheck, FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail,
        },
    },
    ports::transport::{PreparedHandoff, Transport},
};
use pool::{PoolPermit, RelayPool};
use rustls::ClientConfig;
use session::RelaySession;
use std::{sync::Arc, time::Duration};

/// What the engine's patience has above ours, so that our own words about a late answer are heard.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(5);

/// A relay that cannot be used as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("transport {name}: {why}")]
pub struct SmtpConfigError {
    /// The transport.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

/// A relay.
pub struct SmtpTransport {
    config: RelayConfig,
    account: String,
    tls_config: Arc<ClientConfig>,
    pool: Arc<RelayPool>,
}

impl SmtpTransport {
    /// A relay. Nothing is dialled yet.
    pub fn new(config: RelayConfig) -> Result<Self, SmtpConfigError> {
        let wrong = |why: String| SmtpConfigError { name: config.name.clone(), why };
        let is_word = |text: &str| !text.is_empty() && text.len() <= 255 && text.bytes().all(|b| b.is_ascii_graphic());
        if !is_word(&config.ehlo_name) {
            return Err(wrong("the EHLO name is not a host name".to_owned()));
        }
        if !is_word(&config.host) {
            return Err(wrong("the host is not a host name or an address".to_owned()));
        }
        let said = [&config.username, &config.password];
        if said.into_iter().flatten().any(|text| text.contains('\0')) {
            return Err(wrong("the log-in has a NUL".to_owned()));
        }
        let trust = dial::tls_client_config(&config.extra_roots).map_err(|error| wrong(error.to_string()))?;
        let pool = RelayPool::new(config.max_connections, config.timeouts.idle);
        Ok(Self { account: config.account_fingerprint(), config, tls_config: trust, pool })
    }

    async fn send_envelope(&self, parcel: &FrozenEnvelope) -> Result<PreparedSmtpHandoff, TransportReply> {
        let patience = self.config.timeouts;
        envelope::check_recipient(parcel)?;
        let needs = body::check_body(&parcel.bytes).map_err(|UnsupportedMail(why)| {
            TransportReply::new(ReplyMeaning::Refused, AttemptPhase::Data, None, &why)
        })?;
        session::check_login_allowed(&self.config)?;
        let Some(turn) = self.pool.acquire(patience.pool).await else {
            return Err(TransportReply::new(
                ReplyMeaning::Deferred,
                AttemptPhase::Connect,
                None,
                "all connections are busy",
            ));
        };
        loop {
            let mut session = match turn.take_idle().await {
                Some(session) => session,
                None => RelaySession::open(&self.config, &self.tls_config).await?,
            };
            match session.send_until_dot(parcel, needs, &patience).await {
                Ok(()) => {
                    return Ok(PreparedSmtpHandoff {
                        session,
                        permit: turn,
                        prepared_at: BootInstant::now(),
                        timeouts: patience,
                    });
                }
                // Only a connection that rested is ever stale, so that a new one ends the loop.
                Err(setback) if setback.is_stale => {}
                Err(setback) => {
                    if setback.is_reusable {
                        turn.release(session);
                    }
                    return Err(setback.reply);
                }
            }
        }
    }
}

/// A mail of which only the final dot is missing. Dropping it closes the connection without the dot.
struct PreparedSmtpHandoff {
    session: RelaySession,
    permit: PoolPermit,
    prepared_at: BootInstant,
    timeouts: RelayTimeouts,
}

#[async_trait]
impl PreparedHandoff for PreparedSmtpHandoff {
    async fn hand_over(mut self: Box<Self>) -> TransportReply {
        let settled = self.session.send_dot(self.prepared_at, &self.timeouts).await;
        let Self { session, permit, .. } = *self;
        if settled.is_reusable {
            permit.release(session);
        }
        settled.reply
    }
}

#[async_trait]
impl Transport for SmtpTransport {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn kind(&self) -> &'static str {
        "smtp"
    }

    fn account(&self) -> &str {
        &self.account
    }

    fn capabilities(&self) -> TransportCapabilities {
        let patience = (self.config.timeouts.final_reply + TIMEOUT_MARGIN).as_millis();
        TransportCapabilities {
            split: HandoffSplit::PerRecipient,
            payload_format: PayloadFormat::Mime,
            recovery: RecoveryMethod::None,
            timeout_ms: i64::try_from(patience).unwrap_or(i64::MAX),
            max_concurrency: self.config.max_connections,
        }
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        let mime = mail.mime.ok_or_else(|| UnsupportedMail("the mail was not composed".to_owned()))?;
        let mut bytes = mime.to_vec();
        // The last line may lack its end. Signatures count as if it were there.
        if !matches!(bytes.last(), None | Some(b'\r' | b'\n')) {
            bytes.extend_from_slice(b"\r\n");
        }
        body::check_body(&bytes)?;
        Ok(bytes)
    }

    async fn prepare(&self, parcel: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        Ok(Box::new(self.send_envelope(&parcel).await?))
    }

    async fn look_up(&self, _asked: LookUpRequest) -> LookUpResult {
        LookUpResult::Unavailable("SMTP cannot be asked about a mail".to_owned())
    }

    async fn check_connection(&self) -> ConnectionCheck {
        let opened = match session::check_login_allowed(&self.config) {
            Ok(()) => RelaySession::open(&self.config, &self.tls_config).await,
            Err(reply) => Err(reply),
        };
        match opened {
            Ok(session) => {
                session.quit().await;
                if self.config.username.is_some() { ConnectionCheck::LoggedIn } else { ConnectionCheck::Reached }
            }
            Err(reply) if reply.phase == AttemptPhase::Login => ConnectionCheck::LoginRefused(reply.text),
            Err(reply) => ConnectionCheck::Unreachable(reply.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::id::{EmailId, TeamId};
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
        net::TcpListener,
    };
    use uuid::Uuid;

    /// A relay that takes everything. Its task ends with the lines that it heard.
    async fn relay(listener: TcpListener) -> Vec<String> {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        stream.write_all(b"220 relay.test\r\n").await.unwrap();
        let mut heard: Vec<String> = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or_default() == 0 {
                return heard;
            }
            let answer: &[u8] = match line.split_whitespace().next() {
                Some("DATA") => b"354 go\r\n",
                Some("EHLO" | "MAIL" | "RCPT") => b"250 ok\r\n",
                _ => b"",
            };
            stream.write_all(answer).await.unwrap();
            heard.push(line);
        }
    }

    #[tokio::test]
    async fn the_dot_is_not_given_after_the_machine_was_suspended_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = tokio::spawn(relay(listener));
        let config = RelayConfig { tls: TlsMode::None, ..RelayConfig::new("relay", "127.0.0.1", port) };
        let parcel = FrozenEnvelope {
            team: TeamId(Uuid::nil()),
            email: EmailId(Uuid::nil()),
            handoff: 0,
            attempt: 1,
            return_path: "a@d.test".into(),
            envelope_id: "e".into(),
            recipients: vec!["b@d.test".into()],
            key: Uuid::nil(),
            bytes: b"Subject: x\r\n\r\nx\r\n".as_slice().into(),
        };
        let mut armed = SmtpTransport::new(config).unwrap().send_envelope(&parcel).await.unwrap();
        armed.prepared_at = crate::boot_instant::before_suspension();
        let reply = Box::new(armed).hand_over().await;
        assert_eq!(reply.meaning, ReplyMeaning::Deferred, "{}", reply.text);
        assert!(heard.await.unwrap().iter().all(|line| line != ".\r\n"), "the dot was given");
    }
}
