//! How a session reads: lines of commands, and the text of a mail.

use super::{SessionPhase, SessionStep, SmtpEnvelope, SmtpSession};
use crate::intake::smtp::{
    command,
    data_reader::{DataReader, DataStatus, DataStep},
    mail_receiver::ReceivedMail,
    reply::{self, SmtpReply},
};

/// Octets of a command line, its end included.
const MAX_LINE_OCTETS: usize = 2048;
/// Octets of a line that is too long before nobody waits for its end.
const MAX_SKIPPED_OCTETS: usize = 64 * 1024;
/// Commands that may pass without a mail that was taken.
const MAX_COMMANDS_WITHOUT_MAIL: usize = 1000;

impl SmtpSession {
    pub(super) fn read_command(&mut self) -> Option<SessionStep> {
        self.phase = SessionPhase::Commands;
        let Some(end) = memchr::memchr(b'\n', &self.input) else {
            if self.input.len() >= MAX_LINE_OCTETS {
                if command::is_http_request(&self.input) {
                    self.close_with(reply::HTTP_REQUEST);
                    return None;
                }
                self.phase = SessionPhase::SkippingLine(0);
                return None;
            }
            if self.input.is_empty() {
                // A connection that idles holds nothing.
                self.input = Vec::new();
            }
            return Some(SessionStep::Read);
        };
        let line: Vec<u8> = self.input.drain(..=end).collect();
        self.lines += 1;
        self.commands_since_mail += 1;
        if self.commands_since_mail > MAX_COMMANDS_WITHOUT_MAIL {
            self.close_with(reply::TOO_MANY_COMMANDS);
            return None;
        }
        if command::is_http_request(&line) {
            self.close_with(reply::HTTP_REQUEST);
            return None;
        }
        if line.len() > MAX_LINE_OCTETS {
            self.reply(reply::LINE_TOO_LONG);
            return None;
        }
        if !line.ends_with(b"\r\n") {
            self.reply(reply::BAD_LINE_END);
            return None;
        }
        match command::parse(&line) {
            Ok(command) => self.execute(command),
            Err(refusal) => {
                self.reply(refusal);
                None
            }
        }
    }

    /// Drops bytes to the end of a line that was too long.
    pub(super) fn skip_line(&mut self, seen: usize) -> Option<SessionStep> {
        let end = memchr::memchr(b'\n', &self.input);
        let seen = seen + end.unwrap_or(self.input.len());
        if seen > MAX_SKIPPED_OCTETS {
            self.close_with(reply::LINE_TOO_LONG);
            return None;
        }
        if let Some(end) = end {
            self.input.drain(..=end);
            self.lines += 1;
            self.phase = SessionPhase::Commands;
            self.reply(reply::LINE_TOO_LONG);
            return None;
        }
        self.input = Vec::new();
        self.phase = SessionPhase::SkippingLine(seen);
        Some(SessionStep::Read)
    }

    pub(super) fn read_data(&mut self, mut text: DataReader) -> Option<SessionStep> {
        let (taken, next) = text.feed(&self.input);
        if taken == self.input.len() {
            self.input = Vec::new();
        } else {
            self.input.drain(..taken);
        }
        match next {
            DataStep::NeedInput => {
                self.phase = SessionPhase::ReadingData(text);
                Some(SessionStep::Read)
            }
            DataStep::ReserveMemory(more) => {
                self.phase = SessionPhase::AwaitingMoreMemory(text, more);
                Some(SessionStep::ReserveMemory(more))
            }
            DataStep::Spool => {
                let chunk = text.take_chunk();
                self.phase = SessionPhase::AwaitingSpool(text, chunk.len());
                Some(SessionStep::Spool(chunk))
            }
            DataStep::Complete => self.finish_data(text),
            DataStep::GiveUp => {
                self.close_with(reply_for_data(text.status()));
                None
            }
        }
    }

    fn finish_data(&mut self, text: DataReader) -> Option<SessionStep> {
        self.phase = SessionPhase::Commands;
        match (text.status(), self.envelope.take()) {
            (DataStatus::Intact, Some(SmtpEnvelope { sender, recipients, .. })) => {
                let spooled = text.spooled_octets();
                let raw = text.into_bytes();
                self.phase = SessionPhase::AwaitingCommit(spooled + raw.len());
                let helo = self.helo.clone().unwrap_or_default();
                return Some(SessionStep::CommitMail(ReceivedMail { ip: self.ip, helo, sender, recipients, raw }));
            }
            // Whoever sends such a mail was tricked, or tries a trick. What comes after it is not to be trusted.
            (DataStatus::BareLineEnding, _) => self.close_with(reply::BARE_LINE_ENDING),
            (other, _) => self.reply(reply_for_data(other)),
        }
        None
    }
}

/// The answer to a text with this fate.
fn reply_for_data(fate: DataStatus) -> SmtpReply {
    match fate {
        // Only `take` earns a 250.
        DataStatus::Intact => reply::TEMPORARY_FAILURE,
        DataStatus::TooLarge => reply::TOO_LARGE,
        DataStatus::Refused(refusal) => refusal,
        DataStatus::BareLineEnding => reply::BARE_LINE_ENDING,
    }
}
