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

mod answer;
mod body;
mod config;
mod envelope;
mod offers;
mod pool;
mod session;
mod transaction;
mod wire;

pub use config::{Patience, Security, SmtpConfig};

use crate::{age::Since, dial};
use async_trait::async_trait;
use mailonce_core::port::transport::{
    Asked, Capability, Found, Mail, Meaning, Parcel, Phase, Ready, Recovery, Reply, Shape, Transport, Unfit, Visit,
    Wire,
};
use pool::{Pool, Turn};
use rustls::ClientConfig;
use session::Session;
use std::{sync::Arc, time::Duration};

/// What the engine's patience has above ours, so that our own words about a late answer are heard.
const MARGIN: Duration = Duration::from_secs(5);

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
pub struct Smtp {
    config: SmtpConfig,
    account: String,
    trust: Arc<ClientConfig>,
    pool: Arc<Pool>,
}

impl Smtp {
    /// A relay. Nothing is dialled yet.
    pub fn new(config: SmtpConfig) -> Result<Self, SmtpConfigError> {
        let wrong = |why: String| SmtpConfigError { name: config.name.clone(), why };
        let is_word = |text: &str| !text.is_empty() && text.len() <= 255 && text.bytes().all(|b| b.is_ascii_graphic());
        if !is_word(&config.hello) {
            return Err(wrong("the EHLO name is not a host name".to_owned()));
        }
        if !is_word(&config.host) {
            return Err(wrong("the host is not a host name or an address".to_owned()));
        }
        let said = [&config.username, &config.password];
        if said.into_iter().flatten().any(|text| text.contains('\0')) {
            return Err(wrong("the log-in has a NUL".to_owned()));
        }
        let trust = dial::trust(&config.extra_roots).map_err(|error| wrong(error.to_string()))?;
        let pool = Pool::new(config.connections, config.patience.idle);
        Ok(Self { account: config.fingerprint(), config, trust, pool })
    }

    async fn begin(&self, parcel: &Parcel) -> Result<Armed, Reply> {
        let patience = self.config.patience;
        envelope::recipient(parcel)?;
        let needs =
            body::check(&parcel.bytes).map_err(|Unfit(why)| Reply::new(Meaning::Refused, Phase::Data, None, &why))?;
        session::may_log_in(&self.config)?;
        let Some(turn) = self.pool.turn(patience.turn).await else {
            return Err(Reply::new(Meaning::Deferred, Phase::Connect, None, "all connections are busy"));
        };
        loop {
            let mut session = match turn.rested().await {
                Some(session) => session,
                None => Session::open(&self.config, &self.trust).await?,
            };
            match session.begin(parcel, needs, &patience).await {
                Ok(()) => return Ok(Armed { session, turn, since: Since::now(), patience }),
                // Only a connection that rested is ever stale, so that a new one ends the loop.
                Err(setback) if setback.stale => {}
                Err(setback) => {
                    if setback.reusable {
                        turn.give_back(session);
                    }
                    return Err(setback.reply);
                }
            }
        }
    }
}

/// A mail of which only the final dot is missing. Dropping it closes the connection without the dot.
struct Armed {
    session: Session,
    turn: Turn,
    since: Since,
    patience: Patience,
}

#[async_trait]
impl Ready for Armed {
    async fn hand_over(mut self: Box<Self>) -> Reply {
        let settled = self.session.finish(self.since, &self.patience).await;
        let Self { session, turn, .. } = *self;
        if settled.reusable {
            turn.give_back(session);
        }
        settled.reply
    }
}

#[async_trait]
impl Transport for Smtp {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn kind(&self) -> &'static str {
        "smtp"
    }

    fn account(&self) -> &str {
        &self.account
    }

    fn capability(&self) -> Capability {
        let patience = (self.config.patience.answer + MARGIN).as_millis();
        Capability {
            shape: Shape::PerRecipient,
            wire: Wire::Mime,
            recovery: Recovery::None,
            patience_ms: i64::try_from(patience).unwrap_or(i64::MAX),
            at_once: self.config.connections,
        }
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        let mime = mail.mime.ok_or_else(|| Unfit("the mail was not composed".to_owned()))?;
        let mut bytes = mime.to_vec();
        // The last line may lack its end. Signatures count as if it were there.
        if !matches!(bytes.last(), None | Some(b'\r' | b'\n')) {
            bytes.extend_from_slice(b"\r\n");
        }
        body::check(&bytes)?;
        Ok(bytes)
    }

    async fn approach(&self, parcel: Parcel) -> Result<Box<dyn Ready>, Reply> {
        Ok(Box::new(self.begin(&parcel).await?))
    }

    async fn look_up(&self, _asked: Asked) -> Found {
        Found::Silent("SMTP cannot be asked about a mail".to_owned())
    }

    async fn visit(&self) -> Visit {
        let opened = match session::may_log_in(&self.config) {
            Ok(()) => Session::open(&self.config, &self.trust).await,
            Err(reply) => Err(reply),
        };
        match opened {
            Ok(session) => {
                session.quit().await;
                if self.config.username.is_some() { Visit::LoggedIn } else { Visit::Reached }
            }
            Err(reply) if reply.phase == Phase::Login => Visit::Refused(reply.text),
            Err(reply) => Visit::Unreachable(reply.text),
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
        let config = SmtpConfig { tls: Security::None, ..SmtpConfig::new("relay", "127.0.0.1", port) };
        let parcel = Parcel {
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
        let mut armed = Smtp::new(config).unwrap().begin(&parcel).await.unwrap();
        armed.since = crate::age::before_suspension();
        let reply = Box::new(armed).hand_over().await;
        assert_eq!(reply.meaning, Meaning::Deferred, "{}", reply.text);
        assert!(heard.await.unwrap().iter().all(|line| line != ".\r\n"), "the dot was given");
    }
}
