//! How a session reads: lines of commands, and the text of a mail.

use super::{Envelope, Phase, Session, Step};
use crate::intake::smtp::{
    command,
    reception::Mail,
    reply::{self, Reply},
    text::{Fate, Next, Text},
};

/// Octets of a command line, its end included.
const LINE_OCTETS: usize = 2048;
/// Octets of a line that is too long before nobody waits for its end.
const SKIP_OCTETS: usize = 64 * 1024;
/// Commands that may pass without a mail that was taken.
const COMMANDS: usize = 1000;

impl Session {
    pub(super) fn next_line(&mut self) -> Option<Step> {
        self.phase = Phase::Commands;
        let Some(end) = memchr::memchr(b'\n', &self.input) else {
            if self.input.len() >= LINE_OCTETS {
                self.phase = Phase::Skipping(0);
                return None;
            }
            if self.input.is_empty() {
                // A connection that idles holds nothing.
                self.input = Vec::new();
            }
            return Some(Step::Read);
        };
        let line: Vec<u8> = self.input.drain(..=end).collect();
        self.lines += 1;
        self.commands += 1;
        if self.commands > COMMANDS {
            self.leave(reply::IDLER);
            return None;
        }
        if line.len() > LINE_OCTETS {
            self.say(reply::LONG_LINE);
            return None;
        }
        if !line.ends_with(b"\r\n") {
            self.say(reply::LINE_END);
            return None;
        }
        match command::read(&line) {
            Ok(command) => self.obey(command),
            Err(refusal) => {
                self.say(refusal);
                None
            }
        }
    }

    /// Drops bytes to the end of a line that was too long.
    pub(super) fn skip(&mut self, seen: usize) -> Option<Step> {
        let end = memchr::memchr(b'\n', &self.input);
        let seen = seen + end.unwrap_or(self.input.len());
        if seen > SKIP_OCTETS {
            self.leave(reply::LONG_LINE);
            return None;
        }
        if let Some(end) = end {
            self.input.drain(..=end);
            self.lines += 1;
            self.phase = Phase::Commands;
            self.say(reply::LONG_LINE);
            return None;
        }
        self.input = Vec::new();
        self.phase = Phase::Skipping(seen);
        Some(Step::Read)
    }

    pub(super) fn read_text(&mut self, mut text: Text) -> Option<Step> {
        let (taken, next) = text.feed(&self.input);
        if taken == self.input.len() {
            self.input = Vec::new();
        } else {
            self.input.drain(..taken);
        }
        match next {
            Next::More => {
                self.phase = Phase::Text(text);
                Some(Step::Read)
            }
            Next::Room(more) => {
                self.phase = Phase::Widening(text, more);
                Some(Step::Room(more))
            }
            Next::Spool => {
                let chunk = text.take_chunk();
                self.phase = Phase::Spooling(text, chunk.len());
                Some(Step::Spool(chunk))
            }
            Next::End => self.end_text(text),
            Next::Enough => {
                self.leave(fate(text.fate()));
                None
            }
        }
    }

    fn end_text(&mut self, text: Text) -> Option<Step> {
        self.phase = Phase::Commands;
        match (text.fate(), self.envelope.take()) {
            (Fate::Kept, Some(Envelope { sender, recipients, .. })) => {
                let spooled = text.spooled();
                let raw = text.into_bytes();
                self.phase = Phase::Taking(spooled + raw.len());
                let helo = self.hello.clone().unwrap_or_default();
                return Some(Step::Take(Mail { ip: self.ip, helo, sender, recipients, raw }));
            }
            // Whoever sends such a mail was tricked, or tries a trick. What comes after it is not to be trusted.
            (Fate::Bare, _) => self.leave(reply::BARE),
            (other, _) => self.say(fate(other)),
        }
        None
    }
}

/// The answer to a text with this fate.
fn fate(fate: Fate) -> Reply {
    match fate {
        // Only `take` earns a 250.
        Fate::Kept => reply::TROUBLE,
        Fate::TooLarge => reply::TOO_LARGE,
        Fate::NoRoom(refusal) => refusal,
        Fate::Bare => reply::BARE,
    }
}
