//! SMTP to a relay. The final dot is a separate step: only after it may the relay have accepted the mail.
//!
//! | file | what it holds |
//! |---|---|
//! | `config` | settings of a relay, and the timeout of each step |
//! | `session` | a connection up to the first `MAIL`: TCP, TLS, greeting, EHLO, AUTH |
//! | `transaction` | one mail: up to the final dot, then the dot; the meaning of each reply |
//! | `pool` | idle connections between mails |
//! | `envelope`, `body` | the commands of an envelope; checks and dot-stuffing of the body |
//! | `connection`, `reply`, `extensions` | reads and writes; the reply parser; EHLO extensions |

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

/// Margin between the engine's timeout and ours, so that our more precise timeout error is the one that is recorded.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(5);

/// An invalid relay configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("transport {name}: {why}")]
pub struct SmtpConfigError {
    /// The name of the transport.
    pub name: String,
    /// What is wrong.
    pub why: String,
}

/// A transport to one SMTP relay.
pub struct SmtpTransport {
    config: RelayConfig,
    account: String,
    tls_config: Arc<ClientConfig>,
    pool: Arc<RelayPool>,
}

impl SmtpTransport {
    /// Checks the configuration. No connection is opened yet.
    pub fn new(config: RelayConfig) -> Result<Self, SmtpConfigError> {
        let config_error = |why: String| SmtpConfigError { name: config.name.clone(), why };
        let is_word = |text: &str| !text.is_empty() && text.len() <= 255 && text.bytes().all(|b| b.is_ascii_graphic());
        if !is_word(&config.ehlo_name) {
            return Err(config_error("the EHLO name is not a host name".to_owned()));
        }
        if !is_word(&config.host) {
            return Err(config_error("the host is not a host name or an address".to_owned()));
        }
        let credentials = [&config.username, &config.password];
        if credentials.into_iter().flatten().any(|text| text.contains('\0')) {
            return Err(config_error("username and password must not contain a NUL".to_owned()));
        }
        let tls_config =
            dial::tls_client_config(&config.extra_roots).map_err(|error| config_error(error.to_string()))?;
        let pool = RelayPool::new(config.max_connections, config.timeouts.idle);
        Ok(Self { account: config.account_fingerprint(), config, tls_config, pool })
    }

    async fn send_envelope(&self, envelope: &FrozenEnvelope) -> Result<PreparedSmtpHandoff, TransportReply> {
        let timeouts = self.config.timeouts;
        envelope::check_recipient(envelope)?;
        let needs = body::check_body(&envelope.bytes).map_err(|UnsupportedMail(why)| {
            TransportReply::new(ReplyMeaning::Refused, AttemptPhase::Data, None, &why)
        })?;
        session::check_login_allowed(&self.config)?;
        let Some(permit) = self.pool.acquire(timeouts.pool).await else {
            return Err(TransportReply::new(
                ReplyMeaning::Deferred,
                AttemptPhase::Connect,
                None,
                "all connections to the relay are busy",
            ));
        };
        loop {
            let mut session = match permit.take_idle().await {
                Some(session) => session,
                None => RelaySession::open(&self.config, &self.tls_config).await?,
            };
            match session.send_until_dot(envelope, needs, &timeouts).await {
                Ok(()) => {
                    return Ok(PreparedSmtpHandoff { session, permit, prepared_at: BootInstant::now(), timeouts });
                }
                // Only a pooled connection can be stale, so a new connection ends the loop.
                Err(error) if error.is_stale => {}
                Err(error) => {
                    if error.is_reusable {
                        permit.release(session);
                    }
                    return Err(error.reply);
                }
            }
        }
    }
}

/// A mail that is sent except for the final dot. Dropping it closes the connection without the dot.
struct PreparedSmtpHandoff {
    session: RelaySession,
    permit: PoolPermit,
    prepared_at: BootInstant,
    timeouts: RelayTimeouts,
}

#[async_trait]
impl PreparedHandoff for PreparedSmtpHandoff {
    async fn hand_over(mut self: Box<Self>) -> TransportReply {
        let outcome = self.session.send_dot(self.prepared_at, &self.timeouts).await;
        let Self { session, permit, .. } = *self;
        if outcome.is_reusable {
            permit.release(session);
        }
        outcome.reply
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
        let timeout = (self.config.timeouts.final_reply + TIMEOUT_MARGIN).as_millis();
        TransportCapabilities {
            split: HandoffSplit::PerRecipient,
            payload_format: PayloadFormat::Mime,
            recovery: RecoveryMethod::None,
            timeout_ms: i64::try_from(timeout).unwrap_or(i64::MAX),
            max_concurrency: self.config.max_connections,
        }
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        let mime = mail.mime.ok_or_else(|| UnsupportedMail("the mail was not composed".to_owned()))?;
        let mut bytes = mime.to_vec();
        // Adds a missing line end. DKIM signatures are computed as if it were there.
        if !matches!(bytes.last(), None | Some(b'\r' | b'\n')) {
            bytes.extend_from_slice(b"\r\n");
        }
        body::check_body(&bytes)?;
        Ok(bytes)
    }

    async fn prepare(&self, envelope: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        Ok(Box::new(self.send_envelope(&envelope).await?))
    }

    async fn look_up(&self, _wanted: LookUpRequest) -> LookUpResult {
        LookUpResult::Unavailable("SMTP has no lookup".to_owned())
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

    /// A relay that accepts everything. Returns the lines that it received.
    async fn relay(listener: TcpListener) -> Vec<String> {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        stream.write_all(b"220 relay.test\r\n").await.unwrap();
        let mut received: Vec<String> = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or_default() == 0 {
                return received;
            }
            let reply: &[u8] = match line.split_whitespace().next() {
                Some("DATA") => b"354 go\r\n",
                Some("EHLO" | "MAIL" | "RCPT") => b"250 ok\r\n",
                _ => b"",
            };
            stream.write_all(reply).await.unwrap();
            received.push(line);
        }
    }

    #[tokio::test]
    async fn the_final_dot_is_not_sent_after_a_long_suspension() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = tokio::spawn(relay(listener));
        let config = RelayConfig { tls: TlsMode::None, ..RelayConfig::new("relay", "127.0.0.1", port) };
        let envelope = FrozenEnvelope {
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
        let mut prepared = SmtpTransport::new(config).unwrap().send_envelope(&envelope).await.unwrap();
        prepared.prepared_at = crate::boot_instant::before_suspension();
        let reply = Box::new(prepared).hand_over().await;
        assert_eq!(reply.meaning, ReplyMeaning::Deferred, "{}", reply.text);
        assert!(received.await.unwrap().iter().all(|line| line != ".\r\n"), "the dot was sent");
    }
}
