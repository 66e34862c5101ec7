//! Reads command lines and the data of a mail from the input of a session.

use super::{SessionPhase, SessionStep, SmtpEnvelope, SmtpSession};
use crate::intake::smtp::{
    command,
    data_reader::{DataReader, DataStatus, DataStep},
    mail_receiver::ReceivedMail,
    reply::{self, SmtpReply},
};

/// Maximum octets of a command line, including its line ending.
const MAX_LINE_OCTETS: usize = 2048;
/// Octets of an overlong line after which the session closes instead of waiting for its end.
const MAX_SKIPPED_OCTETS: usize = 64 * 1024;
/// Commands allowed without an accepted mail.
const MAX_COMMANDS_WITHOUT_MAIL: usize = 1000;

impl SmtpSession {
    pub(super) fn read_command(&mut self) -> Option<SessionStep> {
        self.phase = SessionPhase::Commands;
        // A client that begins with TLS waits for a handshake, so the record may contain no line ending.
        if self.lines == 0 && command::is_tls_handshake(&self.input) {
            self.close_with(reply::TLS_HANDSHAKE);
            return None;
        }
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
                // Frees the buffer, so that an idle connection holds no memory.
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

    /// Discards bytes up to the end of an overlong line.
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

    pub(super) fn read_data(&mut self, mut reader: DataReader) -> Option<SessionStep> {
        let (consumed, next) = reader.feed(&self.input);
        if consumed == self.input.len() {
            self.input = Vec::new();
        } else {
            self.input.drain(..consumed);
        }
        match next {
            DataStep::NeedInput => {
                self.phase = SessionPhase::ReadingData(reader);
                Some(SessionStep::Read)
            }
            DataStep::ReserveMemory(more) => {
                self.phase = SessionPhase::AwaitingMoreMemory(reader, more);
                Some(SessionStep::ReserveMemory(more))
            }
            DataStep::Spool => {
                let chunk = reader.take_chunk();
                self.phase = SessionPhase::AwaitingSpool(reader, chunk.len());
                Some(SessionStep::Spool(chunk))
            }
            DataStep::Complete => self.finish_data(reader),
            DataStep::GiveUp => {
                self.close_with(reply_for_data(reader.status()));
                None
            }
        }
    }

    fn finish_data(&mut self, reader: DataReader) -> Option<SessionStep> {
        self.phase = SessionPhase::Commands;
        match (reader.status(), self.envelope.take()) {
            (DataStatus::Intact, Some(SmtpEnvelope { sender, recipients, .. })) => {
                let spooled = reader.spooled_octets();
                let raw = reader.into_bytes();
                self.phase = SessionPhase::AwaitingCommit(spooled + raw.len());
                let helo = self.helo.clone().unwrap_or_default();
                return Some(SessionStep::CommitMail(ReceivedMail { ip: self.ip, helo, sender, recipients, raw }));
            }
            // A bare line ending may be an attempt at SMTP smuggling, so the following input is not trusted.
            (DataStatus::BareLineEnding, _) => self.close_with(reply::BARE_LINE_ENDING),
            (other, _) => self.reply(reply_for_data(other)),
        }
        None
    }
}

/// The reply to data with this status.
fn reply_for_data(status: DataStatus) -> SmtpReply {
    match status {
        // Only a committed mail gets a 250.
        DataStatus::Intact => reply::TEMPORARY_FAILURE,
        DataStatus::TooLarge => reply::TOO_LARGE,
        DataStatus::Refused(refusal) => refusal,
        DataStatus::BareLineEnding => reply::BARE_LINE_ENDING,
    }
}
