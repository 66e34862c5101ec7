//! One mail of a session: `MAIL`, `RCPT`, `DATA`, the body and the dot.

use super::{
    super::http::sha256_hex,
    AcceptedSmtpMail, SinkTls, SmtpAction, SmtpStep,
    session::{SessionClosed, SessionResult, SinkSession},
};
use crate::sink::oracle::sink_log::SinkLogLine;
use std::time::SystemTime;
use tokio::{io::AsyncBufReadExt as _, time::sleep};

/// Maximum size of a body.
const BODY_OCTETS: usize = 64 * 1024 * 1024;

impl SinkSession {
    /// Why mail is not allowed now, if so.
    fn mail_refusal(&self) -> Option<&'static str> {
        if !self.greeted {
            return Some("503 5.5.1 say EHLO first\r\n");
        }
        if self.shared.config.protection == SinkTls::Starttls && !self.secure {
            return Some("530 5.7.0 STARTTLS first\r\n");
        }
        (self.shared.config.login.is_some() && self.login.is_none()).then_some("530 5.7.0 log in first\r\n")
    }

    pub(super) async fn handle_mail(&mut self, line: &str) -> SessionResult {
        let objection = if self.sender.is_some() { Some("503 5.5.1 one at a time\r\n") } else { self.mail_refusal() };
        let parsed = parse_path(line, "MAIL FROM:").filter(|(_, parameters)| self.are_parameters_offered(parameters));
        let usual = match (objection, &parsed) {
            (Some(objection), _) => objection,
            (None, None) => "555 5.5.4 not offered\r\n",
            (None, Some(_)) => "250 2.1.0 ok\r\n",
        };
        if self.respond(SmtpStep::Mail, line, usual).await? && objection.is_none() {
            self.sender = parsed;
        }
        Ok(())
    }

    pub(super) async fn handle_rcpt(&mut self, line: &str) -> SessionResult {
        let parsed = parse_path(line, "RCPT TO:").filter(|(_, parameters)| self.are_parameters_offered(parameters));
        let usual = match (&self.sender, &parsed) {
            (None, _) => "503 5.5.1 MAIL first\r\n",
            (Some(_), None) => "555 5.5.4 not offered\r\n",
            (Some(_), Some(_)) => "250 2.1.5 ok\r\n",
        };
        if let (Some(oracle), Some((to, _))) = (&self.shared.config.oracle, &parsed) {
            self.planned_action = oracle.behavior.next_action(to);
        }
        if self.respond(SmtpStep::Rcpt, line, usual).await? && self.sender.is_some() {
            self.recipients.extend(parsed);
        }
        Ok(())
    }

    fn are_parameters_offered(&self, parameters: &[String]) -> bool {
        parameters.iter().all(|parameter| match parameter.split('=').next().unwrap_or_default() {
            "SIZE" => self.offers_extension("SIZE"),
            "BODY" => self.offers_extension("8BITMIME"),
            "SMTPUTF8" => self.offers_extension("SMTPUTF8"),
            "RET" | "ENVID" | "NOTIFY" | "ORCPT" => self.offers_extension("DSN"),
            _ => false,
        })
    }

    pub(super) async fn handle_data(&mut self, line: &str) -> SessionResult {
        if self.recipients.is_empty() {
            return self.respond(SmtpStep::Data, line, "554 5.5.1 no valid recipients\r\n").await.map(|_| ());
        }
        if !self.respond(SmtpStep::Data, line, "354 go on\r\n").await? {
            return Ok(());
        }
        let body = self.read_body().await?;
        self.shared.update(|memory| memory.final_dots += 1);
        let act = self.action_at(SmtpStep::Dot, "");
        let Some(bytes) = body else {
            self.reset_transaction();
            return self.write_reply(b"554 5.6.0 bare CR or LF\r\n").await;
        };
        self.handle_final_dot(bytes, act).await
    }

    async fn handle_final_dot(&mut self, bytes: Vec<u8>, act: Option<SmtpAction>) -> SessionResult {
        let usual = format!("250 2.0.0 Ok: queued as S{}\r\n", self.number);
        match act {
            None => self.accept_mail(bytes),
            Some(SmtpAction::ReplyWithExtra(more)) => {
                self.accept_mail(bytes);
                return self.write_reply(&[usual.as_bytes(), &more].concat()).await;
            }
            Some(SmtpAction::Late(after)) => {
                sleep(after).await;
                self.accept_mail(bytes);
            }
            Some(SmtpAction::AcceptThen(then)) => {
                self.accept_mail(bytes);
                return self.run_action(*then).await;
            }
            Some(act) => {
                self.log_mail(&bytes, false);
                self.reset_transaction();
                return self.run_action(act).await;
            }
        }
        self.write_reply(usual.as_bytes()).await
    }

    fn accept_mail(&mut self, bytes: Vec<u8>) {
        self.log_mail(&bytes, true);
        let (sender, sender_parameters) = self.sender.take().unwrap_or_default();
        let recipients = std::mem::take(&mut self.recipients);
        let (connection, secure, login) = (self.number, self.secure, self.login.clone());
        let at = SystemTime::now();
        let mail =
            AcceptedSmtpMail { sender, sender_parameters, recipients, bytes, at, connection, is_tls: secure, login };
        self.shared.update(|memory| memory.mails.push(mail));
    }

    /// Logs the mail, if there is an oracle.
    fn log_mail(&self, bytes: &[u8], taken: bool) {
        let Some(oracle) = &self.shared.config.oracle else { return };
        let field = |name: &str| header(bytes, name).unwrap_or_default();
        oracle.log_arrival(SinkLogLine {
            transport: "smtp".into(),
            connection: self.number as u64,
            email: field("X-Mailonce-Id: "),
            message_id: field("Message-ID: "),
            to: self.recipients.iter().map(|(to, _)| to.clone()).collect(),
            body: sha256_hex(bytes),
            taken,
            action: self.planned_action.as_str().into(),
            ambiguous: self.planned_action.is_ambiguous(),
            ..SinkLogLine::default()
        });
    }

    /// Logs that the connection closes in the body. A sender that notices this only after its marker cannot know the
    /// outcome. The email's id has not been read yet.
    fn log_cut_body(&self, act: &SmtpAction) {
        if let (SmtpAction::Close, Some(oracle)) = (act, &self.shared.config.oracle) {
            oracle.log_arrival(SinkLogLine {
                transport: "smtp".into(),
                connection: self.number as u64,
                to: self.recipients.iter().map(|(to, _)| to.clone()).collect(),
                action: self.planned_action.as_str().into(),
                ambiguous: true,
                ..SinkLogLine::default()
            });
        }
    }

    /// Reads the body up to CRLF, dot, CRLF. None if it contains a bare CR or LF.
    async fn read_body(&mut self) -> SessionResult<Option<Vec<u8>>> {
        let (mut bytes, mut clean, mut first) = (Vec::new(), true, true);
        loop {
            let mut line = Vec::new();
            self.io.read_until(b'\n', &mut line).await?;
            if std::mem::take(&mut first) && line.ends_with(b"\n") {
                let act = self.action_at(SmtpStep::Body, "");
                if let Some(act) = act {
                    self.log_cut_body(&act);
                    self.run_action(act).await?;
                }
            }
            if line == b".\r\n" && (bytes.is_empty() || bytes.ends_with(b"\r\n")) {
                return Ok(clean.then_some(bytes));
            }
            if !line.ends_with(b"\n") || bytes.len() > BODY_OCTETS {
                return Err(SessionClosed);
            }
            if line.strip_suffix(b"\r\n").is_none_or(|line| line.contains(&b'\r')) {
                self.record_violation("a bare CR or LF in a body");
                clean = false;
            }
            bytes.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
        }
    }
}

/// The value of a header without folding.
fn header(bytes: &[u8], name: &str) -> Option<String> {
    let head = bytes.split(|byte| *byte == b'\n').take_while(|line| *line != b"\r");
    let line = head.map(String::from_utf8_lossy).find_map(|line| line.strip_prefix(name).map(str::to_owned));
    line.map(|value| value.trim().to_owned())
}

/// The address in angle brackets, and the parameters after it.
fn parse_path(line: &str, verb: &str) -> Option<(String, Vec<String>)> {
    let rest = line.strip_prefix(verb)?.strip_prefix('<')?;
    let (address, parameters) = rest.split_once('>')?;
    Some((address.to_owned(), parameters.split(' ').filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()))
}
