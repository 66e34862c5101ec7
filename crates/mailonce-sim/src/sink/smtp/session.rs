//! One connection to the sink: reading, replies, EHLO, STARTTLS and AUTH.

use super::{SessionCommand, SinkTls, SmtpAction, SmtpSinkState, SmtpStep};
use crate::sink::oracle::behavior::{LATE_ACCEPT_DELAY, SinkAction};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{io, sync::Arc};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    sync::mpsc,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

pub(super) trait SinkStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> SinkStream for T {}

/// The session has ended.
pub(super) struct SessionClosed;

impl From<io::Error> for SessionClosed {
    fn from(_: io::Error) -> Self {
        Self
    }
}

pub(super) type SessionResult<T = ()> = Result<T, SessionClosed>;

pub(super) struct SinkSession {
    pub(super) shared: Arc<SmtpSinkState>,
    pub(super) io: BufReader<Box<dyn SinkStream>>,
    pub(super) number: usize,
    commands: mpsc::UnboundedReceiver<SessionCommand>,
    acceptor: TlsAcceptor,
    pub(super) secure: bool,
    pub(super) login: Option<String>,
    pub(super) greeted: bool,
    pub(super) sender: Option<(String, Vec<String>)>,
    pub(super) recipients: Vec<(String, Vec<String>)>,
    /// The oracle's action for the current mail.
    pub(super) planned_action: SinkAction,
}

impl SinkSession {
    pub(super) async fn run(shared: Arc<SmtpSinkState>, stream: TcpStream, acceptor: TlsAcceptor) {
        let (say, orders) = mpsc::unbounded_channel();
        let number = shared.update(|memory| {
            memory.sessions.push(say);
            memory.connections += 1;
            memory.open += 1;
            memory.max_open = memory.max_open.max(memory.open);
            memory.connections
        });
        let stream: Option<Box<dyn SinkStream>> = match shared.config.protection {
            SinkTls::Implicit => {
                acceptor.accept(stream).await.ok().map(|stream| Box::new(stream) as Box<dyn SinkStream>)
            }
            SinkTls::Plaintext | SinkTls::Starttls => Some(Box::new(stream)),
        };
        if let Some(stream) = stream {
            let secure = shared.config.protection == SinkTls::Implicit;
            let io = BufReader::new(stream);
            let (greeted, login, sender, recipients) = (false, None, None, Vec::new());
            let (shared, action) = (shared.clone(), SinkAction::Normal);
            let session = Self {
                shared,
                io,
                number,
                commands: orders,
                acceptor,
                secure,
                login,
                greeted,
                sender,
                recipients,
                planned_action: action,
            };
            drop(session.serve().await);
        }
        shared.update(|memory| memory.open -= 1);
    }

    async fn serve(mut self) -> SessionResult {
        self.respond(SmtpStep::Greeting, "", "220 sink.test ESMTP\r\n").await?;
        loop {
            let line = self.read_line().await?;
            self.shared.update(|memory| memory.commands.push((self.number, line.clone())));
            let verb = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
            if !self.io.buffer().is_empty() && !self.may_pipeline(&verb) {
                self.record_violation("commands before their turn");
            }
            match verb.as_str() {
                "EHLO" | "HELO" => self.handle_hello(&line).await?,
                "STARTTLS" => self = self.handle_starttls(&line).await?,
                "AUTH" => self.handle_auth(&line).await?,
                "MAIL" => self.handle_mail(&line).await?,
                "RCPT" => self.handle_rcpt(&line).await?,
                "DATA" => self.handle_data(&line).await?,
                "RSET" => {
                    if self.respond(SmtpStep::Reset, &line, "250 2.0.0 forgotten\r\n").await? {
                        self.reset_transaction();
                    }
                }
                "QUIT" => {
                    self.write_reply(b"221 2.0.0 bye\r\n").await?;
                    return Err(SessionClosed);
                }
                _ => self.write_reply(b"500 5.5.1 what\r\n").await?,
            }
        }
    }

    pub(super) fn record_violation(&self, what: &str) {
        self.shared.update(|memory| memory.violations.push(format!("connection {}: {what}", self.number)));
    }

    fn may_pipeline(&self, verb: &str) -> bool {
        self.offers_extension("PIPELINING") && matches!(verb, "MAIL" | "RCPT" | "RSET")
    }

    pub(super) fn offers_extension(&self, name: &str) -> bool {
        self.shared.config.extensions.iter().any(|offer| offer.split(' ').next() == Some(name))
    }

    pub(super) fn reset_transaction(&mut self) {
        self.sender = None;
        self.recipients.clear();
        self.planned_action = SinkAction::Normal;
    }

    /// Reads one line without its CRLF, and follows orders meanwhile.
    async fn read_line(&mut self) -> SessionResult<String> {
        let mut line = Vec::new();
        loop {
            tokio::select! {
                read = self.io.read_until(b'\n', &mut line) => {
                    read?;
                    break;
                }
                Some(order) = self.commands.recv() => {
                    let Some(bytes) = order.bytes else {
                        self.io.shutdown().await?;
                        return Err(SessionClosed);
                    };
                    self.write_reply(&bytes).await?;
                    drop(order.done);
                }
            }
        }
        if !line.ends_with(b"\n") {
            return Err(SessionClosed);
        }
        let Some(line) = line.strip_suffix(b"\r\n").filter(|line| !line.contains(&b'\r')) else {
            self.record_violation("a command without CRLF");
            return Err(SessionClosed);
        };
        Ok(String::from_utf8_lossy(line).into_owned())
    }

    pub(super) async fn write_reply(&mut self, bytes: &[u8]) -> SessionResult {
        self.io.write_all(bytes).await?;
        Ok(self.io.flush().await?)
    }

    /// The action for a step: from the script, else from the oracle.
    pub(super) fn action_at(&self, step: SmtpStep, line: &str) -> Option<SmtpAction> {
        self.shared
            .update(|memory| memory.script.action_for(step, line))
            .or_else(|| action_at_step(self.planned_action, step))
    }

    /// Replies, and returns whether the command takes effect.
    pub(super) async fn respond(&mut self, step: SmtpStep, line: &str, usual: &str) -> SessionResult<bool> {
        match self.action_at(step, line) {
            None => self.write_reply(usual.as_bytes()).await.map(|()| true),
            Some(SmtpAction::ReplyWithExtra(more)) => {
                self.write_reply(&[usual.as_bytes(), &more].concat()).await.map(|()| true)
            }
            Some(SmtpAction::Late(after)) => {
                sleep(after).await;
                self.write_reply(usual.as_bytes()).await.map(|()| true)
            }
            Some(act) => self.run_action(act).await.map(|()| false),
        }
    }

    /// Runs the scripted action in place of the usual reply.
    pub(super) async fn run_action(&mut self, act: SmtpAction) -> SessionResult {
        match act {
            SmtpAction::Reply(bytes) | SmtpAction::ReplyWithExtra(bytes) => self.write_reply(&bytes).await,
            SmtpAction::ReplyAndClose(bytes) => {
                self.write_reply(&bytes).await?;
                self.io.shutdown().await?;
                self.read_to_end().await
            }
            SmtpAction::Drip(bytes, each) => {
                for byte in bytes {
                    self.write_reply(&[byte]).await?;
                    sleep(each).await;
                }
                Ok(())
            }
            SmtpAction::Late(_) | SmtpAction::AcceptThen(_) | SmtpAction::Close => Err(SessionClosed),
            SmtpAction::Stall => self.read_to_end().await,
            SmtpAction::Freeze => std::future::pending().await,
        }
    }

    /// Reads until the client has closed, so that a reset loses nothing.
    async fn read_to_end(&mut self) -> SessionResult {
        let mut rest = [0; 4096];
        while self.io.read(&mut rest).await? > 0 {}
        Err(SessionClosed)
    }

    async fn handle_hello(&mut self, line: &str) -> SessionResult {
        let setting = &self.shared.config;
        let mut lines = vec!["sink.test".to_owned()];
        if line.to_ascii_uppercase().starts_with("EHLO") {
            lines.extend(setting.extensions.iter().cloned());
            lines.extend((setting.protection == SinkTls::Starttls && !self.secure).then(|| "STARTTLS".to_owned()));
            lines.extend(setting.login.is_some().then(|| format!("AUTH {}", setting.mechanisms.join(" "))));
        }
        let last = lines.len() - 1;
        let marks = lines.iter().enumerate().map(|(n, line)| (if n == last { ' ' } else { '-' }, line));
        let usual = marks.fold(String::new(), |text, (mark, line)| text + &format!("250{mark}{line}\r\n"));
        if self.respond(SmtpStep::Hello, line, &usual).await? {
            self.greeted = true;
            self.reset_transaction();
        }
        Ok(())
    }

    async fn handle_starttls(mut self, line: &str) -> SessionResult<Self> {
        if self.shared.config.protection != SinkTls::Starttls || self.secure {
            self.write_reply(b"503 5.5.1 not now\r\n").await?;
            return Ok(self);
        }
        if !self.respond(SmtpStep::Starttls, line, "220 2.0.0 go ahead\r\n").await? {
            return Ok(self);
        }
        let stream = self.acceptor.accept(self.io.into_inner()).await?;
        let io = BufReader::new(Box::new(stream) as Box<dyn SinkStream>);
        Ok(Self { io, secure: true, greeted: false, login: None, sender: None, recipients: Vec::new(), ..self })
    }

    async fn handle_auth(&mut self, line: &str) -> SessionResult {
        let decoded = |text: &str| String::from_utf8_lossy(&STANDARD.decode(text).unwrap_or_default()).into_owned();
        let words: Vec<_> = line.split(' ').collect();
        let given = match words[..] {
            [_, "PLAIN", first] => {
                let text = decoded(first);
                let mut parts = text.split('\0').skip(1).map(ToOwned::to_owned);
                parts.next().zip(parts.next())
            }
            [_, "LOGIN"] => {
                self.write_reply(b"334 VXNlcm5hbWU6\r\n").await?;
                let user = decoded(&self.read_line().await?);
                self.write_reply(b"334 UGFzc3dvcmQ6\r\n").await?;
                Some((user, decoded(&self.read_line().await?)))
            }
            _ => None,
        };
        let right = given.is_some() && given == self.shared.config.login;
        let usual = if right { "235 2.7.0 welcome\r\n" } else { "535 5.7.8 no\r\n" };
        if self.respond(SmtpStep::Login, line, usual).await? && right {
            self.login = given.map(|(user, _)| user);
        }
        Ok(())
    }
}

/// The SMTP action of an oracle's action. A refusal after acceptance would be a lie that no sender can detect.
fn action_at_step(action: SinkAction, step: SmtpStep) -> Option<SmtpAction> {
    match (action, step) {
        (SinkAction::RejectRecipient(true), SmtpStep::Rcpt) => Some(SmtpAction::reply_line("450 4.2.1 not now")),
        (SinkAction::RejectRecipient(false), SmtpStep::Rcpt) => Some(SmtpAction::reply_line("550 5.1.1 nobody here")),
        (SinkAction::Drop, SmtpStep::Body) => Some(SmtpAction::Close),
        (SinkAction::Defer, SmtpStep::Dot) => Some(SmtpAction::reply_line("451 4.3.0 not now")),
        (SinkAction::Refuse, SmtpStep::Dot) => Some(SmtpAction::reply_line("554 5.7.1 never")),
        (SinkAction::AcceptThenDrop, SmtpStep::Dot) => Some(SmtpAction::accept_then(SmtpAction::Close)),
        (SinkAction::AcceptThenServerError, SmtpStep::Dot) => {
            Some(SmtpAction::accept_then(SmtpAction::reply_line("what?")))
        }
        (SinkAction::AcceptThenStall, SmtpStep::Dot) => Some(SmtpAction::accept_then(SmtpAction::Stall)),
        (SinkAction::AcceptLate, SmtpStep::Dot) => Some(SmtpAction::Late(LATE_ACCEPT_DELAY)),
        _ => None,
    }
}
