//! The state machine of one SMTP session, without a socket: bytes go in, replies come out. When it needs something
//! from outside, such as the check of a recipient, it returns a step for the caller to execute.

mod commands;
mod input;
use std::{net::IpAddr, sync::Arc};

use super::reply::{self, SmtpReply};
use crate::intake::smtp::{
    data_reader::{DataReader, INITIAL_MEMORY},
    mail_receiver::{ReceivedMail, RecipientStatus},
    metrics::SmtpMetrics,
};

/// Client errors on one connection. The last one closes it.
const MAX_CLIENT_ERRORS: usize = 10;
/// Refused recipients on one connection: enough for an outdated mailing list, too few for a dictionary attack.
const MAX_REFUSED_RECIPIENTS: usize = 100;

/// Settings shared by all sessions.
#[derive(Clone, Debug)]
pub(super) struct SessionConfig {
    pub(super) hostname: String,
    pub(super) max_size: usize,
    pub(super) max_recipients: usize,
    pub(super) tls: bool,
}

/// What the session needs before it continues. The caller reports the result of each step, except `Close`, with the
/// method that the step names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SessionStep {
    /// Read more bytes: [`SmtpSession::receive`].
    Read,
    /// Check whether another mail may begin: [`SmtpSession::on_mail_rate`].
    CheckMailRate,
    /// Check this recipient: [`SmtpSession::on_recipient_status`].
    CheckRecipient { sender: String, address: String },
    /// Reserve memory for this many more octets: [`SmtpSession::on_memory_reserved`].
    ReserveMemory(usize),
    /// Append this to the spool: [`SmtpSession::on_spooled`].
    Spool(Vec<u8>),
    /// Commit this mail: [`SmtpSession::on_mail_committed`]. Its bytes follow those in the spool.
    CommitMail(ReceivedMail),
    /// Start TLS after all replies are written: [`SmtpSession::on_tls_established`].
    StartTls,
    /// Close the connection after all replies are written.
    Close,
}

/// The envelope of the current mail transaction.
#[derive(Debug)]
struct SmtpEnvelope {
    sender: String,
    utf8: bool,
    recipients: Vec<String>,
}

/// The state of the session.
#[derive(Debug)]
enum SessionPhase {
    Commands,
    /// Skips to the end of an overlong line. Holds the octets skipped so far.
    SkippingLine(usize),
    /// Waits until the mail rate is checked, before this envelope begins.
    AwaitingMailRate(SmtpEnvelope),
    /// Waits for the check of this recipient.
    AwaitingRecipient(String),
    /// Waits for memory before the data.
    AwaitingMemory,
    ReadingData(DataReader),
    /// Waits for this many more octets of memory within the data.
    AwaitingMoreMemory(DataReader, usize),
    /// Waits until this many octets of the data are in the spool.
    AwaitingSpool(DataReader, usize),
    /// Waits until a mail of this many octets is committed.
    AwaitingCommit(usize),
    AwaitingTls,
    Closed,
}

/// One SMTP session.
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
    /// Creates a session, with the greeting as its first output.
    pub(super) fn new(config: Arc<SessionConfig>, metrics: Arc<SmtpMetrics>, ip: IpAddr) -> Self {
        let output = format!("220 {} ESMTP mailonce\r\n", config.hostname).into_bytes();
        Self {
            config,
            metrics,
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

    /// Adds received bytes. Call it only after [`SessionStep::Read`], so that the input buffer stays small.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Takes the pending output.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Lines processed so far. The caller uses it to see whether a complete line arrived.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Whether the data of a mail is being received.
    pub(super) fn is_reading_data(&self) -> bool {
        self.data_reader().is_some()
    }

    fn data_reader(&self) -> Option<&DataReader> {
        match &self.phase {
            SessionPhase::ReadingData(reader)
            | SessionPhase::AwaitingMoreMemory(reader, _)
            | SessionPhase::AwaitingSpool(reader, _) => Some(reader),
            _ => None,
        }
    }

    /// Octets of memory that the data needs. Anything reserved above that can be released.
    pub(super) fn memory_octets(&self) -> usize {
        self.data_reader().map_or(0, DataReader::memory_octets)
    }

    /// Octets of the data in the spool. If 0, the spooled file is no longer needed.
    pub(super) fn spooled_octets(&self) -> usize {
        self.data_reader().map_or(0, DataReader::spooled_octets)
    }

    /// Runs until the session needs something from the caller.
    pub(super) fn step(&mut self) -> SessionStep {
        loop {
            let step = match std::mem::replace(&mut self.phase, SessionPhase::Closed) {
                SessionPhase::Commands => self.read_command(),
                SessionPhase::SkippingLine(seen) => self.skip_line(seen),
                SessionPhase::ReadingData(reader) => self.read_data(reader),
                // The caller did not report the result of the previous step.
                _ => Some(SessionStep::Close),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Reports whether another mail may begin.
    pub(super) fn on_mail_rate(&mut self, allowed: bool) {
        match std::mem::replace(&mut self.phase, SessionPhase::Commands) {
            SessionPhase::AwaitingMailRate(envelope) => {
                self.envelope = allowed.then_some(envelope);
                self.reply(if allowed { reply::SENDER_OK } else { reply::MAIL_RATE_LIMITED });
            }
            other => self.phase = other,
        }
    }

    /// Reports the check of a recipient.
    pub(super) fn on_recipient_status(&mut self, status: RecipientStatus) {
        match (std::mem::replace(&mut self.phase, SessionPhase::Commands), &mut self.envelope) {
            (SessionPhase::AwaitingRecipient(address), Some(envelope)) if status == RecipientStatus::Accepted => {
                envelope.recipients.push(address)
            }
            (SessionPhase::AwaitingRecipient(_), _) => {
                self.refused_recipients += usize::from(status != RecipientStatus::TemporaryError)
            }
            (other, _) => {
                self.phase = other;
                return;
            }
        }
        if self.refused_recipients > MAX_REFUSED_RECIPIENTS {
            return self.close_with(reply::TOO_MANY_ERRORS);
        }
        self.reply(reply::for_recipient(status));
    }

    /// Reports whether the memory was reserved.
    pub(super) fn on_memory_reserved(&mut self, result: Result<(), SmtpReply>) {
        match (std::mem::replace(&mut self.phase, SessionPhase::Commands), result) {
            (SessionPhase::AwaitingMemory, Ok(())) => {
                self.reply(reply::START_DATA);
                self.phase = SessionPhase::ReadingData(DataReader::new(self.config.max_size, INITIAL_MEMORY));
            }
            (SessionPhase::AwaitingMemory, Err(refusal)) => self.refuse_data(refusal),
            (SessionPhase::AwaitingMoreMemory(mut reader, more), result) => {
                reader.on_memory_reserved(result.map(|()| more));
                self.phase = SessionPhase::ReadingData(reader);
            }
            (other, _) => self.phase = other,
        }
    }

    /// Reports whether the octets were written to the spool.
    pub(super) fn on_spooled(&mut self, result: Result<(), SmtpReply>) {
        match std::mem::replace(&mut self.phase, SessionPhase::Commands) {
            SessionPhase::AwaitingSpool(mut reader, octets) => {
                reader.on_spooled(result.map(|()| octets));
                self.phase = SessionPhase::ReadingData(reader);
            }
            other => self.phase = other,
        }
    }

    /// Reports whether the mail was committed.
    pub(super) fn on_mail_committed(&mut self, result: Result<(), SmtpReply>) {
        match (std::mem::replace(&mut self.phase, SessionPhase::Commands), result) {
            (SessionPhase::AwaitingCommit(octets), Ok(())) => {
                self.metrics.record_accepted(octets);
                self.commands_since_mail = 0;
                self.reply(reply::ACCEPTED);
            }
            (SessionPhase::AwaitingCommit(_), Err(refusal)) => self.reply(refusal),
            (other, _) => self.phase = other,
        }
    }

    /// Reports that TLS is active. Discards all earlier input and state, because it was not protected by TLS.
    pub(super) fn on_tls_established(&mut self) {
        self.is_tls = true;
        self.helo = None;
        self.envelope = None;
        self.input = Vec::new();
        self.phase = SessionPhase::Commands;
    }

    /// Writes a last reply and closes the session.
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

    /// Writes a reply. Closes the session if the client has made too many errors.
    fn reply(&mut self, reply: SmtpReply) {
        self.client_errors += usize::from(reply.is_client_error());
        if reply.is_client_error() && self.client_errors >= MAX_CLIENT_ERRORS {
            return self.close_with(reply::TOO_MANY_ERRORS);
        }
        self.write_reply(reply);
    }
}
