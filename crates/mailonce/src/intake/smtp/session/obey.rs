//! What each command does to a session.

use mailonce_core::address::{Address, Mailbox};

use super::{Envelope, Phase, Session, Step};
use crate::intake::smtp::{
    command::Command,
    reply::{self, Reply},
    text::FIRST_ROOM,
};

impl Session {
    pub(super) fn obey(&mut self, command: Command) -> Option<Step> {
        match command {
            Command::Hello { name, extended } => self.hello(name, extended),
            Command::Mail { sender, size, utf8 } => return self.mail(&sender, size, utf8),
            Command::Rcpt { address } => return self.rcpt(address),
            Command::Data => return self.data(),
            // What follows it are no commands, and nobody can tell where they begin again.
            Command::Chunk => self.leave(reply::NOT_OFFERED),
            Command::Reset => {
                self.envelope = None;
                self.say(reply::FORGOTTEN);
            }
            Command::Nothing => self.say(reply::NOTHING),
            Command::Verify => self.say(reply::MAYBE),
            Command::Help => self.say(reply::HELP),
            Command::Quit => self.leave(reply::BYE),
            Command::Starttls => return self.starttls(),
            Command::LogIn => self.say(reply::NO_LOG_IN),
            Command::Foreign => self.say(reply::NOT_OFFERED),
        }
        None
    }

    fn hello(&mut self, name: String, extended: bool) {
        let rules = &self.rules;
        let size = format!("SIZE {}", rules.max_size);
        let mut lines = vec![rules.hostname.as_str()];
        if extended {
            lines.extend(["PIPELINING", &size, "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"]);
            lines.extend((rules.tls && !self.secure).then_some("STARTTLS"));
        }
        let last = lines.len() - 1;
        for (n, line) in lines.into_iter().enumerate() {
            let mark = if n == last { ' ' } else { '-' };
            self.output.extend_from_slice(format!("250{mark}{line}\r\n").as_bytes());
        }
        self.hello = Some(name);
        self.envelope = None;
    }

    fn mail(&mut self, sender: &str, size: usize, utf8: bool) -> Option<Step> {
        let refusal = match () {
            () if self.hello.is_none() => reply::HELLO_FIRST,
            () if self.envelope.is_some() => reply::ONE_MAIL,
            () if size > self.rules.max_size => reply::TOO_LARGE,
            () if !utf8 && !sender.is_ascii() => reply::NOT_ASCII,
            () => match written(sender) {
                Some(sender) => {
                    self.phase = Phase::Beginning(Envelope { sender, utf8, recipients: Vec::new() });
                    return Some(Step::Begin);
                }
                None => reply::BAD_SENDER,
            },
        };
        self.say(refusal);
        None
    }

    fn rcpt(&mut self, address: Option<String>) -> Option<Step> {
        let Some(envelope) = &self.envelope else {
            self.say(reply::MAIL_FIRST);
            return None;
        };
        let text = address.unwrap_or_else(|| format!("postmaster@{}", self.rules.hostname));
        let said = match Address::parse(&text) {
            _ if !envelope.utf8 && !text.is_ascii() => reply::NOT_ASCII,
            Err(_) => reply::BAD_RECIPIENT,
            Ok(address) if envelope.recipients.iter().any(|known| known == address.as_str()) => reply::RECIPIENT_OK,
            Ok(_) if envelope.recipients.len() >= self.rules.max_recipients => reply::TOO_MANY,
            Ok(address) => {
                let (sender, address) = (envelope.sender.clone(), address.as_str().to_owned());
                self.phase = Phase::Asking(address.clone());
                return Some(Step::Ask { sender, address });
            }
        };
        self.say(said);
        None
    }

    fn data(&mut self) -> Option<Step> {
        match &self.envelope {
            None => self.refuse_data(reply::MAIL_FIRST),
            Some(envelope) if envelope.recipients.is_empty() => self.refuse_data(reply::RCPT_FIRST),
            Some(_) => {
                self.phase = Phase::Opening;
                return Some(Step::Room(FIRST_ROOM));
            }
        }
        None
    }

    /// Refuses DATA. What was sent without waiting for the answer may be a mail, and is not read as commands.
    pub(super) fn refuse_data(&mut self, refusal: Reply) {
        self.say(refusal);
        if !self.input.is_empty() && !matches!(self.phase, Phase::Closed) {
            self.leave(reply::DATA_CROWDED);
        }
    }

    fn starttls(&mut self) -> Option<Step> {
        let refusal = match () {
            () if !self.rules.tls => reply::NOT_OFFERED,
            () if self.secure => reply::TLS_ALREADY,
            () if self.hello.is_none() => reply::HELLO_FIRST,
            () if self.envelope.is_some() => reply::ONE_MAIL,
            () if !self.input.is_empty() => {
                // Said by somebody in between, perhaps, to be obeyed as if it had come under TLS.
                self.leave(reply::TLS_CROWDED);
                return None;
            }
            () => {
                self.tell(reply::TLS_NOW);
                self.phase = Phase::Securing;
                return Some(Step::Secure);
            }
        };
        self.say(refusal);
        None
    }
}

/// A sender as it is kept, or `None` when it is no address. Its local part keeps its case: only its owner may fold it.
fn written(sender: &str) -> Option<String> {
    if sender.is_empty() {
        return Some(String::new());
    }
    Address::parse(sender).and_then(|_| Mailbox::parse(sender)).ok().map(|mailbox| mailbox.address)
}
