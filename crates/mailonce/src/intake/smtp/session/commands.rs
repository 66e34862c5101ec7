//! Executes commands in a session.

use mailonce_core::address::{Address, NamedAddress};

use super::{SessionPhase, SessionStep, SmtpEnvelope, SmtpSession};
use crate::intake::smtp::{
    command::SmtpCommand,
    data_reader::INITIAL_MEMORY,
    reply::{self, SmtpReply},
};

impl SmtpSession {
    pub(super) fn execute(&mut self, command: SmtpCommand) -> Option<SessionStep> {
        match command {
            SmtpCommand::Hello { name, extended } => self.hello(name, extended),
            SmtpCommand::Mail { sender, size, utf8 } => return self.mail(&sender, size, utf8),
            SmtpCommand::Rcpt { address } => return self.rcpt(address),
            SmtpCommand::Data => return self.data(),
            // Data follows a BDAT command, and the end of that data is not known, so the session cannot continue.
            SmtpCommand::Bdat => self.close_with(reply::NOT_OFFERED),
            SmtpCommand::Reset => {
                self.envelope = None;
                self.reply(reply::RESET_OK);
            }
            SmtpCommand::Noop => self.reply(reply::NOOP_OK),
            SmtpCommand::Vrfy => self.reply(reply::CANNOT_VERIFY),
            SmtpCommand::Help => self.reply(reply::HELP),
            SmtpCommand::Quit => self.close_with(reply::CLOSING),
            SmtpCommand::Starttls => return self.starttls(),
            SmtpCommand::Auth => self.reply(reply::AUTH_NOT_OFFERED),
            SmtpCommand::Unsupported => self.reply(reply::NOT_OFFERED),
        }
        None
    }

    fn hello(&mut self, name: String, extended: bool) {
        let config = &self.config;
        let size = format!("SIZE {}", config.max_size);
        let mut lines = vec![config.hostname.as_str()];
        if extended {
            lines.extend(["PIPELINING", &size, "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"]);
            lines.extend((config.tls && !self.is_tls).then_some("STARTTLS"));
        }
        let last = lines.len() - 1;
        for (n, line) in lines.into_iter().enumerate() {
            let separator = if n == last { ' ' } else { '-' };
            self.output.extend_from_slice(format!("250{separator}{line}\r\n").as_bytes());
        }
        self.helo = Some(name);
        self.envelope = None;
    }

    fn mail(&mut self, sender: &str, size: usize, utf8: bool) -> Option<SessionStep> {
        let refusal = match () {
            () if self.helo.is_none() => reply::HELLO_FIRST,
            () if self.envelope.is_some() => reply::NESTED_MAIL,
            () if size > self.config.max_size => reply::TOO_LARGE,
            () if !utf8 && !sender.is_ascii() => reply::SMTPUTF8_REQUIRED,
            () => match normalize_sender(sender) {
                Some(sender) => {
                    self.phase = SessionPhase::AwaitingMailRate(SmtpEnvelope { sender, utf8, recipients: Vec::new() });
                    return Some(SessionStep::CheckMailRate);
                }
                None => reply::BAD_SENDER,
            },
        };
        self.reply(refusal);
        None
    }

    fn rcpt(&mut self, address: Option<String>) -> Option<SessionStep> {
        let Some(envelope) = &self.envelope else {
            self.reply(reply::MAIL_FIRST);
            return None;
        };
        let text = address.unwrap_or_else(|| format!("postmaster@{}", self.config.hostname));
        let answer = match Address::parse(&text) {
            _ if !envelope.utf8 && !text.is_ascii() => reply::SMTPUTF8_REQUIRED,
            Err(_) => reply::BAD_RECIPIENT,
            Ok(address) if envelope.recipients.iter().any(|known| known == address.as_str()) => reply::RECIPIENT_OK,
            Ok(_) if envelope.recipients.len() >= self.config.max_recipients => reply::TOO_MANY_RECIPIENTS,
            Ok(address) => {
                let (sender, address) = (envelope.sender.clone(), address.as_str().to_owned());
                self.phase = SessionPhase::AwaitingRecipient(address.clone());
                return Some(SessionStep::CheckRecipient { sender, address });
            }
        };
        self.reply(answer);
        None
    }

    fn data(&mut self) -> Option<SessionStep> {
        match &self.envelope {
            None => self.refuse_data(reply::MAIL_FIRST),
            Some(envelope) if envelope.recipients.is_empty() => self.refuse_data(reply::RCPT_FIRST),
            Some(_) => {
                self.phase = SessionPhase::AwaitingMemory;
                return Some(SessionStep::ReserveMemory(INITIAL_MEMORY));
            }
        }
        None
    }

    /// Refuses DATA. Bytes sent before the reply may be the data of a mail, so they must not be read as commands.
    pub(super) fn refuse_data(&mut self, refusal: SmtpReply) {
        self.reply(refusal);
        if !self.input.is_empty() && !matches!(self.phase, SessionPhase::Closed) {
            self.close_with(reply::INPUT_AFTER_DATA);
        }
    }

    fn starttls(&mut self) -> Option<SessionStep> {
        let refusal = match () {
            () if !self.config.tls => reply::NOT_OFFERED,
            () if self.is_tls => reply::TLS_ALREADY_ACTIVE,
            () if self.helo.is_none() => reply::HELLO_FIRST,
            () if self.envelope.is_some() => reply::NESTED_MAIL,
            () if !self.input.is_empty() => {
                // A man in the middle may have injected these bytes, to be executed as if they came over TLS.
                self.close_with(reply::INPUT_AFTER_STARTTLS);
                return None;
            }
            () => {
                self.write_reply(reply::READY_FOR_TLS);
                self.phase = SessionPhase::AwaitingTls;
                return Some(SessionStep::StartTls);
            }
        };
        self.reply(refusal);
        None
    }
}

/// The sender in canonical form, or `None` if it is not a valid address. The local part keeps its case, because only
/// the sender's own host may ignore case.
fn normalize_sender(sender: &str) -> Option<String> {
    if sender.is_empty() {
        return Some(String::new());
    }
    Address::parse(sender).and_then(|_| NamedAddress::parse(sender)).ok().map(|mailbox| mailbox.address)
}
