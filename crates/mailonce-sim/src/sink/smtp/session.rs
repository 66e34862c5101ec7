//! One connection to the sink: how it speaks, greets, and protects itself.

use super::{
    super::oracle::mood::{LATE, Whim},
    Act, Order, Protection, Shared, Step,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{io, sync::Arc};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    sync::mpsc,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The session is over, one way or another.
pub(super) struct Over;

impl From<io::Error> for Over {
    fn from(_: io::Error) -> Self {
        Self
    }
}

pub(super) type Flow<T = ()> = Result<T, Over>;

pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) io: BufReader<Box<dyn Io>>,
    pub(super) number: usize,
    orders: mpsc::UnboundedReceiver<Order>,
    acceptor: TlsAcceptor,
    pub(super) secure: bool,
    pub(super) login: Option<String>,
    pub(super) greeted: bool,
    pub(super) sender: Option<(String, Vec<String>)>,
    pub(super) recipients: Vec<(String, Vec<String>)>,
    /// What an oracle does with the mail at hand.
    pub(super) whim: Whim,
}

impl Session {
    pub(super) async fn run(shared: Arc<Shared>, stream: TcpStream, acceptor: TlsAcceptor) {
        let (say, orders) = mpsc::unbounded_channel();
        let number = shared.change(|memory| {
            memory.sessions.push(say);
            memory.connections += 1;
            memory.open += 1;
            memory.most_open = memory.most_open.max(memory.open);
            memory.connections
        });
        let stream: Option<Box<dyn Io>> = match shared.setting.protection {
            Protection::Tls => acceptor.accept(stream).await.ok().map(|stream| Box::new(stream) as Box<dyn Io>),
            Protection::None | Protection::Starttls => Some(Box::new(stream)),
        };
        if let Some(stream) = stream {
            let secure = shared.setting.protection == Protection::Tls;
            let io = BufReader::new(stream);
            let (greeted, login, sender, recipients) = (false, None, None, Vec::new());
            let (shared, whim) = (shared.clone(), Whim::Honest);
            let session =
                Self { shared, io, number, orders, acceptor, secure, login, greeted, sender, recipients, whim };
            drop(session.serve().await);
        }
        shared.change(|memory| memory.open -= 1);
    }

    async fn serve(mut self) -> Flow {
        self.respond(Step::Greeting, "", "220 sink.test ESMTP\r\n").await?;
        loop {
            let line = self.line().await?;
            self.shared.change(|memory| memory.commands.push((self.number, line.clone())));
            let verb = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
            if !self.io.buffer().is_empty() && !self.may_run_ahead(&verb) {
                self.violation("commands before their turn");
            }
            match verb.as_str() {
                "EHLO" | "HELO" => self.hello(&line).await?,
                "STARTTLS" => self = self.starttls(&line).await?,
                "AUTH" => self.auth(&line).await?,
                "MAIL" => self.mail(&line).await?,
                "RCPT" => self.rcpt(&line).await?,
                "DATA" => self.data(&line).await?,
                "RSET" => {
                    if self.respond(Step::Reset, &line, "250 2.0.0 forgotten\r\n").await? {
                        self.forget();
                    }
                }
                "QUIT" => {
                    self.say(b"221 2.0.0 bye\r\n").await?;
                    return Err(Over);
                }
                _ => self.say(b"500 5.5.1 what\r\n").await?,
            }
        }
    }

    pub(super) fn violation(&self, what: &str) {
        self.shared.change(|memory| memory.violations.push(format!("connection {}: {what}", self.number)));
    }

    fn may_run_ahead(&self, verb: &str) -> bool {
        self.offers("PIPELINING") && matches!(verb, "MAIL" | "RCPT" | "RSET")
    }

    pub(super) fn offers(&self, name: &str) -> bool {
        self.shared.setting.offers.iter().any(|offer| offer.split(' ').next() == Some(name))
    }

    pub(super) fn forget(&mut self) {
        self.sender = None;
        self.recipients.clear();
        self.whim = Whim::Honest;
    }

    /// One line without its CRLF. Meanwhile orders are followed.
    async fn line(&mut self) -> Flow<String> {
        let mut line = Vec::new();
        loop {
            tokio::select! {
                read = self.io.read_until(b'\n', &mut line) => {
                    read?;
                    break;
                }
                Some(order) = self.orders.recv() => {
                    let Some(bytes) = order.say else {
                        self.io.shutdown().await?;
                        return Err(Over);
                    };
                    self.say(&bytes).await?;
                    drop(order.done);
                }
            }
        }
        if !line.ends_with(b"\n") {
            return Err(Over);
        }
        let Some(line) = line.strip_suffix(b"\r\n").filter(|line| !line.contains(&b'\r')) else {
            self.violation("a command without CRLF");
            return Err(Over);
        };
        Ok(String::from_utf8_lossy(line).into_owned())
    }

    pub(super) async fn say(&mut self, bytes: &[u8]) -> Flow {
        self.io.write_all(bytes).await?;
        Ok(self.io.flush().await?)
    }

    /// What to do at a step: what it was told, else what an oracle wants.
    pub(super) fn act(&self, step: Step, line: &str) -> Option<Act> {
        self.shared.change(|memory| memory.script.act(step, line)).or_else(|| whim_at(self.whim, step))
    }

    /// Answers, and tells whether what was asked is to be done.
    pub(super) async fn respond(&mut self, step: Step, line: &str, usual: &str) -> Flow<bool> {
        match self.act(step, line) {
            None => self.say(usual.as_bytes()).await.map(|()| true),
            Some(Act::Extra(more)) => self.say(&[usual.as_bytes(), &more].concat()).await.map(|()| true),
            Some(Act::Late(after)) => {
                sleep(after).await;
                self.say(usual.as_bytes()).await.map(|()| true)
            }
            Some(act) => self.misbehave(act).await.map(|()| false),
        }
    }

    pub(super) async fn misbehave(&mut self, act: Act) -> Flow {
        match act {
            Act::Say(bytes) | Act::Extra(bytes) => self.say(&bytes).await,
            Act::SayAndClose(bytes) => {
                self.say(&bytes).await?;
                self.io.shutdown().await?;
                self.read_out().await
            }
            Act::Drip(bytes, each) => {
                for byte in bytes {
                    self.say(&[byte]).await?;
                    sleep(each).await;
                }
                Ok(())
            }
            Act::Late(_) | Act::Taken(_) | Act::Cut => Err(Over),
            Act::Stall => self.read_out().await,
            Act::Freeze => std::future::pending().await,
        }
    }

    /// Reads until the other side has closed, so that nothing is lost to a reset.
    async fn read_out(&mut self) -> Flow {
        let mut rest = [0; 4096];
        while self.io.read(&mut rest).await? > 0 {}
        Err(Over)
    }

    async fn hello(&mut self, line: &str) -> Flow {
        let setting = &self.shared.setting;
        let mut lines = vec!["sink.test".to_owned()];
        if line.to_ascii_uppercase().starts_with("EHLO") {
            lines.extend(setting.offers.iter().cloned());
            lines.extend((setting.protection == Protection::Starttls && !self.secure).then(|| "STARTTLS".to_owned()));
            lines.extend(setting.login.is_some().then(|| format!("AUTH {}", setting.mechanisms.join(" "))));
        }
        let last = lines.len() - 1;
        let marks = lines.iter().enumerate().map(|(n, line)| (if n == last { ' ' } else { '-' }, line));
        let usual = marks.fold(String::new(), |said, (mark, line)| said + &format!("250{mark}{line}\r\n"));
        if self.respond(Step::Hello, line, &usual).await? {
            self.greeted = true;
            self.forget();
        }
        Ok(())
    }

    async fn starttls(mut self, line: &str) -> Flow<Self> {
        if self.shared.setting.protection != Protection::Starttls || self.secure {
            self.say(b"503 5.5.1 not now\r\n").await?;
            return Ok(self);
        }
        if !self.respond(Step::Starttls, line, "220 2.0.0 go ahead\r\n").await? {
            return Ok(self);
        }
        let stream = self.acceptor.accept(self.io.into_inner()).await?;
        let io = BufReader::new(Box::new(stream) as Box<dyn Io>);
        Ok(Self { io, secure: true, greeted: false, login: None, sender: None, recipients: Vec::new(), ..self })
    }

    async fn auth(&mut self, line: &str) -> Flow {
        let decoded = |text: &str| String::from_utf8_lossy(&STANDARD.decode(text).unwrap_or_default()).into_owned();
        let words: Vec<_> = line.split(' ').collect();
        let given = match words[..] {
            [_, "PLAIN", first] => {
                let said = decoded(first);
                let mut parts = said.split('\0').skip(1).map(ToOwned::to_owned);
                parts.next().zip(parts.next())
            }
            [_, "LOGIN"] => {
                self.say(b"334 VXNlcm5hbWU6\r\n").await?;
                let user = decoded(&self.line().await?);
                self.say(b"334 UGFzc3dvcmQ6\r\n").await?;
                Some((user, decoded(&self.line().await?)))
            }
            _ => None,
        };
        let right = given.is_some() && given == self.shared.setting.login;
        let usual = if right { "235 2.7.0 welcome\r\n" } else { "535 5.7.8 no\r\n" };
        if self.respond(Step::Login, line, usual).await? && right {
            self.login = given.map(|(user, _)| user);
        }
        Ok(())
    }
}

/// What a whim does at a step. A refusal after the mail was taken would be a lie that no sender can see through.
fn whim_at(whim: Whim, step: Step) -> Option<Act> {
    match (whim, step) {
        (Whim::Rcpt(true), Step::Rcpt) => Some(Act::say("450 4.2.1 not now")),
        (Whim::Rcpt(false), Step::Rcpt) => Some(Act::say("550 5.1.1 nobody here")),
        (Whim::Cut, Step::Body) => Some(Act::Cut),
        (Whim::Defer, Step::Dot) => Some(Act::say("451 4.3.0 not now")),
        (Whim::Refuse, Step::Dot) => Some(Act::say("554 5.7.1 never")),
        (Whim::TakeThenDrop, Step::Dot) => Some(Act::taken(Act::Cut)),
        (Whim::TakeThenBreak, Step::Dot) => Some(Act::taken(Act::say("what?"))),
        (Whim::TakeThenStall, Step::Dot) => Some(Act::taken(Act::Stall)),
        (Whim::TakeLate, Step::Dot) => Some(Act::Late(LATE)),
        _ => None,
    }
}
