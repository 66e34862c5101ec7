//! One conversation, without a socket: bytes go in, replies come out, and between them the session says what it needs
//! to know before it goes on.

mod commands;
mod input;
use std::{net::IpAddr, sync::Arc};

use super::reply::{self, SmtpReply};
use crate::intake::smtp::{
    data_reader::{DataReader, INITIAL_MEMORY},
    mail_receiver::{ReceivedMail, RecipientStatus},
    metrics::SmtpMetrics,
};

/// Mistakes that one connection may make. The last one ends it.
const MAX_CLIENT_ERRORS: usize = 10;
/// Recipients that may be refused on one connection: a list with dead names, but not a dictionary.
const MAX_REFUSED_RECIPIENTS: usize = 100;

/// What is the same for every session.
#[derive(Clone, Debug)]
pub(super) struct SessionConfig {
    pub(super) hostname: String,
    pub(super) max_size: usize,
    pub(super) max_recipients: usize,
    pub(super) tls: bool,
}

/// What the session needs before it goes on. Each but `Read` and `Close` is answered by the call it names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SessionStep {
    /// More bytes: [`Session::receive`].
    Read,
    /// May another mail begin? [`Session::may_begin`].
    CheckMailRate,
    /// Is this a recipient? [`Session::recipient_is`].
    CheckRecipient { sender: String, address: String },
    /// Room in memory for so many octets more: [`Session::room_is`].
    ReserveMemory(usize),
    /// Append this to the spool: [`Session::spooled_is`].
    Spool(Vec<u8>),
    /// Keep this: [`Session::mail_is`]. Its bytes are those that come after what is in the spool.
    CommitMail(ReceivedMail),
    /// TLS, once all replies are out: [`Session::secured`].
    StartTls,
    /// The end, once all replies are out.
    Close,
}

/// An envelope that is being written.
#[derive(Debug)]
struct SmtpEnvelope {
    sender: String,
    utf8: bool,
    recipients: Vec<String>,
}

/// What the session is in the middle of.
#[derive(Debug)]
enum SessionPhase {
    Commands,
    /// Reads on to the end of a line that was too long.
    SkippingLine(usize),
    /// Waits for an answer about this envelope.
    AwaitingMailRate(SmtpEnvelope),
    /// Waits for an answer about this recipient.
    AwaitingRecipient(String),
    /// Waits for room before the text.
    AwaitingMemory,
    ReadingData(DataReader),
    /// Waits for room within the text.
    AwaitingMoreMemory(DataReader, usize),
    /// Waits until so many octets of the text are in the spool.
    AwaitingSpool(DataReader, usize),
    /// Waits until so many octets are kept.
    AwaitingCommit(usize),
    AwaitingTls,
    Closed,
}

/// A conversation.
#[derive(Debug)]
pub(super) struct SmtpSession {
    config: Arc<SessionConfig>,
    metrics: Arc<SmtpMetrics>,
    ip: IpAddr,
    is_tls: bool,
    helo: Option<String>,
    envelope: Option<SmtpEnvelope>,
    phase: SessionPhase,
    input: Vec<u8>,
    output: Vec<u8>,
    client_errors: usize,
    refused_recipients: usize,
    commands_since_mail: usize,
    lines: u64,
}

impl SmtpSession {
    /// A session that has greeted.
    pub(super) fn new(rules: Arc<SessionConfig>, tally: Arc<SmtpMetrics>, ip: IpAddr) -> Self {
        let output = format!("220 {} ESMTP mailonce\r\n", rules.hostname).into_bytes();
        Self {
            config: rules,
            metrics: tally,
            ip,
            is_tls: false,
            helo: None,
            envelope: None,
            phase: SessionPhase::Commands,
            input: Vec::new(),
            output,
            client_errors: 0,
            refused_recipients: 0,
            commands_since_mail: 0,
            lines: 0,
        }
    }

    /// Bytes came. To be called only after [`Step::Read`], which bounds what is held of them.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// What is to be said, and is then forgotten.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Lines that were understood or refused so far. Who waits for a line sees by it whether one came.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Whether the text of a mail is under way.
    pub(super) fn is_reading_data(&self) -> bool {
        self.data_reader().is_some()
    }

    fn data_reader(&self) -> Option<&DataReader> {
        match &self.phase {
            SessionPhase::ReadingData(text)
            | SessionPhase::AwaitingMoreMemory(text, _)
            | SessionPhase::AwaitingSpool(text, _) => Some(text),
            _ => None,
        }
    }

    /// Octets of memory that a text has. What was granted above it may be given back.
    pub(super) fn memory_octets(&self) -> usize {
        self.data_reader().map_or(0, DataReader::memory_octets)
    }

    /// Octets of a text that are in the spool. When there are none, nothing that is in the spool is needed any more.
    pub(super) fn spooled_octets(&self) -> usize {
        self.data_reader().map_or(0, DataReader::spooled_octets)
    }

    /// Goes on until something is needed.
    pub(super) fn step(&mut self) -> SessionStep {
        loop {
            let step = match std::mem::replace(&mut self.phase, SessionPhase::Closed) {
                SessionPhase::Commands => self.read_command(),
                SessionPhase::SkippingLine(seen) => self.skip_line(seen),
                SessionPhase::ReadingData(text) => self.read_data(text),
                // Nothing goes on without the answer that was asked for.
                _ => Some(SessionStep::Close),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Whether another mail may begin.
    pub(super) fn on_mail_rate(&mut self, may: bool) {
        match std::mem::replace(&mut self.phase, SessionPhase::Commands) {
            SessionPhase::AwaitingMailRate(envelope) => {
                self.envelope = may.then_some(envelope);
                self.reply(if may { reply::SENDER_OK } else { reply::MAIL_RATE_LIMITED });
            }
            other => self.phase = other,
        }
    }

    /// What is to be said to the recipient.
    pub(super) fn on_recipient_status(&mut self, verdict: RecipientStatus) {
        match (std::mem::replace(&mut self.phase, SessionPhase::Commands), &mut self.envelope) {
            (SessionPhase::AwaitingRecipient(address), Some(envelope)) if verdict == RecipientStatus::Accepted => {
                envelope.recipients.push(address)
            }
            (SessionPhase::AwaitingRecipient(_), _) => {
                self.refused_recipients += usize::from(verdict != RecipientStatus::TemporaryError)
            }
            (other, _) => {
                self.phase = other;
                return;
            }
        }
        if self.refused_recipients > MAX_REFUSED_RECIPIENTS {
            return self.close_with(reply::TOO_MANY_ERRORS);
        }
        self.reply(reply::for_recipient(verdict));
    }

    /// Whether the room that was asked for is there.
    pub(super) fn on_memory_reserved(&mut self, granted: Result<(), SmtpReply>) {
        match (std::mem::replace(&mut self.phase, SessionPhase::Commands), granted) {
            (SessionPhase::AwaitingMemory, Ok(())) => {
                self.reply(reply::START_DATA);
                self.phase = SessionPhase::ReadingData(DataReader::new(self.config.max_size, INITIAL_MEMORY));
            }
            (SessionPhase::AwaitingMemory, Err(refusal)) => self.refuse_data(refusal),
            (SessionPhase::AwaitingMoreMemory(mut text, more), granted) => {
                text.on_memory_reserved(granted.map(|()| more));
                self.phase = SessionPhase::ReadingData(text);
            }
            (other, _) => self.phase = other,
        }
    }

    /// Whether the octets are in the spool.
    pub(super) fn on_spooled(&mut self, written: Result<(), SmtpReply>) {
        match std::mem::replace(&mut self.phase, SessionPhase::Commands) {
            SessionPhase::AwaitingSpool(mut text, octets) => {
                text.on_spooled(written.map(|()| octets));
                self.phase = SessionPhase::ReadingData(text);
            }
            other => self.phase = other,
        }
    }

    /// Whether the mail is kept.
    pub(super) fn on_mail_committed(&mut self, kept: Result<(), SmtpReply>) {
        match (std::mem::replace(&mut self.phase, SessionPhase::Commands), kept) {
            (SessionPhase::AwaitingCommit(octets), Ok(())) => {
                self.metrics.record_accepted(octets);
                self.commands_since_mail = 0;
                self.reply(reply::ACCEPTED);
            }
            (SessionPhase::AwaitingCommit(_), Err(refusal)) => self.reply(refusal),
            (other, _) => self.phase = other,
        }
    }

    /// TLS runs. All that was said before is forgotten, since anybody may have said it.
    pub(super) fn on_tls_established(&mut self) {
        self.is_tls = true;
        self.helo = None;
        self.envelope = None;
        self.input = Vec::new();
        self.phase = SessionPhase::Commands;
    }

    /// Says a last word.
    pub(super) fn close_with(&mut self, last: SmtpReply) {
        self.write_reply(last);
        self.phase = SessionPhase::Closed;
    }

    fn write_reply(&mut self, reply: SmtpReply) {
        self.output.extend_from_slice(reply.line.as_bytes());
        self.output.extend_from_slice(b"\r\n");
        if let Some(reason) = reply.reason {
            self.metrics.record_refusal(reason);
        }
    }

    /// Answers and goes on with commands, unless it was a mistake too many.
    fn reply(&mut self, reply: SmtpReply) {
        self.client_errors += usize::from(reply.is_client_error());
        if reply.is_client_error() && self.client_errors >= MAX_CLIENT_ERRORS {
            return self.close_with(reply::TOO_MANY_ERRORS);
        }
        self.write_reply(reply);
    }
}
