//! The part of a session that is about one mail: `MAIL`, `RCPT`, `DATA`, the body and the dot.

use super::{
    super::{http::hash, oracle::journal::Line},
    Act, Protection, Recorded, Step,
    session::{Flow, Over, Session},
};
use std::time::SystemTime;
use tokio::{io::AsyncBufReadExt as _, time::sleep};

/// Octets of one body. More is nobody's mail.
const BODY_OCTETS: usize = 64 * 1024 * 1024;

impl Session {
    /// What stands in the way of mail, if anything.
    fn objection(&self) -> Option<&'static str> {
        if !self.greeted {
            return Some("503 5.5.1 say EHLO first\r\n");
        }
        if self.shared.setting.protection == Protection::Starttls && !self.secure {
            return Some("530 5.7.0 STARTTLS first\r\n");
        }
        (self.shared.setting.login.is_some() && self.login.is_none()).then_some("530 5.7.0 log in first\r\n")
    }

    pub(super) async fn mail(&mut self, line: &str) -> Flow {
        let objection = if self.sender.is_some() { Some("503 5.5.1 one at a time\r\n") } else { self.objection() };
        let parsed = path(line, "MAIL FROM:").filter(|(_, parameters)| self.offered(parameters));
        let usual = match (objection, &parsed) {
            (Some(objection), _) => objection,
            (None, None) => "555 5.5.4 not offered\r\n",
            (None, Some(_)) => "250 2.1.0 ok\r\n",
        };
        if self.respond(Step::Mail, line, usual).await? && objection.is_none() {
            self.sender = parsed;
        }
        Ok(())
    }

    pub(super) async fn rcpt(&mut self, line: &str) -> Flow {
        let parsed = path(line, "RCPT TO:").filter(|(_, parameters)| self.offered(parameters));
        let usual = match (&self.sender, &parsed) {
            (None, _) => "503 5.5.1 MAIL first\r\n",
            (Some(_), None) => "555 5.5.4 not offered\r\n",
            (Some(_), Some(_)) => "250 2.1.5 ok\r\n",
        };
        if let (Some(oracle), Some((to, _))) = (&self.shared.setting.oracle, &parsed) {
            self.whim = oracle.mood.next(to);
        }
        if self.respond(Step::Rcpt, line, usual).await? && self.sender.is_some() {
            self.recipients.extend(parsed);
        }
        Ok(())
    }

    fn offered(&self, parameters: &[String]) -> bool {
        parameters.iter().all(|parameter| match parameter.split('=').next().unwrap_or_default() {
            "SIZE" => self.offers("SIZE"),
            "BODY" => self.offers("8BITMIME"),
            "SMTPUTF8" => self.offers("SMTPUTF8"),
            "RET" | "ENVID" | "NOTIFY" | "ORCPT" => self.offers("DSN"),
            _ => false,
        })
    }

    pub(super) async fn data(&mut self, line: &str) -> Flow {
        if self.recipients.is_empty() {
            return self.respond(Step::Data, line, "554 5.5.1 no valid recipients\r\n").await.map(|_| ());
        }
        if !self.respond(Step::Data, line, "354 go on\r\n").await? {
            return Ok(());
        }
        let body = self.body().await?;
        self.shared.change(|memory| memory.dots += 1);
        let act = self.act(Step::Dot, "");
        let Some(bytes) = body else {
            self.forget();
            return self.say(b"554 5.6.0 bare CR or LF\r\n").await;
        };
        self.dot(bytes, act).await
    }

    async fn dot(&mut self, bytes: Vec<u8>, act: Option<Act>) -> Flow {
        let usual = format!("250 2.0.0 Ok: queued as S{}\r\n", self.number);
        match act {
            None => self.take(bytes),
            Some(Act::Extra(more)) => {
                self.take(bytes);
                return self.say(&[usual.as_bytes(), &more].concat()).await;
            }
            Some(Act::Late(after)) => {
                sleep(after).await;
                self.take(bytes);
            }
            Some(Act::Taken(then)) => {
                self.take(bytes);
                return self.misbehave(*then).await;
            }
            Some(act) => {
                self.note(&bytes, false);
                self.forget();
                return self.misbehave(act).await;
            }
        }
        self.say(usual.as_bytes()).await
    }

    fn take(&mut self, bytes: Vec<u8>) {
        self.note(&bytes, true);
        let (sender, sender_parameters) = self.sender.take().unwrap_or_default();
        let recipients = std::mem::take(&mut self.recipients);
        let (connection, secure, login) = (self.number, self.secure, self.login.clone());
        let at = SystemTime::now();
        let mail = Recorded { sender, sender_parameters, recipients, bytes, at, connection, secure, login };
        self.shared.change(|memory| memory.mails.push(mail));
    }

    /// Writes down what came, where an oracle wants to know.
    fn note(&self, bytes: &[u8], taken: bool) {
        let Some(oracle) = &self.shared.setting.oracle else { return };
        let field = |name: &str| header(bytes, name).unwrap_or_default();
        oracle.note(Line {
            transport: "smtp".into(),
            connection: self.number as u64,
            email: field("X-Mailonce-Id: "),
            message_id: field("Message-ID: "),
            to: self.recipients.iter().map(|(to, _)| to.clone()).collect(),
            body: hash(bytes),
            taken,
            did: self.whim.word().into(),
            ambiguous: self.whim.is_ambiguous(),
            ..Line::default()
        });
    }

    /// The body up to CRLF, dot, CRLF, and nothing else. None when it has a CR or LF that stands alone.
    async fn body(&mut self) -> Flow<Option<Vec<u8>>> {
        let (mut bytes, mut clean, mut first) = (Vec::new(), true, true);
        loop {
            let mut line = Vec::new();
            self.io.read_until(b'\n', &mut line).await?;
            if std::mem::take(&mut first) && line.ends_with(b"\n") {
                let act = self.act(Step::Body, "");
                if let Some(act) = act {
                    self.misbehave(act).await?;
                }
            }
            if line == b".\r\n" && (bytes.is_empty() || bytes.ends_with(b"\r\n")) {
                return Ok(clean.then_some(bytes));
            }
            if !line.ends_with(b"\n") || bytes.len() > BODY_OCTETS {
                return Err(Over);
            }
            if line.strip_suffix(b"\r\n").is_none_or(|line| line.contains(&b'\r')) {
                self.violation("a bare CR or LF in a body");
                clean = false;
            }
            bytes.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
        }
    }
}

/// The value of a header that is not folded.
fn header(bytes: &[u8], name: &str) -> Option<String> {
    let head = bytes.split(|byte| *byte == b'\n').take_while(|line| *line != b"\r");
    let line = head.map(String::from_utf8_lossy).find_map(|line| line.strip_prefix(name).map(str::to_owned));
    line.map(|value| value.trim().to_owned())
}

/// The address between angle brackets, and the parameters behind it.
fn path(line: &str, verb: &str) -> Option<(String, Vec<String>)> {
    let rest = line.strip_prefix(verb)?.strip_prefix('<')?;
    let (address, parameters) = rest.split_once('>')?;
    Some((address.to_owned(), parameters.split(' ').filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()))
}
