//! Reads the data of a mail, from the reply to `DATA` to the final dot. Only CR LF `.` CR LF ends it, and a bare CR or
//! LF makes it invalid. This prevents SMTP smuggling through relays that accept other line endings.

use bytes::Bytes;

use super::reply::SmtpReply;

/// Memory reserved at first. It doubles from there, so that a client holds little more than it sent.
pub(super) const INITIAL_MEMORY: usize = 16 * 1024;
/// Octets of a mail kept in memory. A larger mail goes to the spool, so that slow senders do not hold memory.
pub(super) const SPOOL_ABOVE: usize = 256 * 1024;
/// Octets collected in memory for each further write to the spool.
const SPOOL_CHUNK: usize = 64 * 1024;
/// Octets of a line copied at once. Must be less than any memory reservation of a mail.
const MAX_COPY_OCTETS: usize = 8 * 1024;

/// The position in the current line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    /// Right after CR LF, or at the very start.
    LineStart,
    /// After a dot at the start of a line.
    Dot,
    /// After a dot at the start of a line, and a CR.
    DotCr,
    InLine,
    /// After a CR that may begin a line ending.
    Cr,
}

/// The status of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataStatus {
    /// Valid so far.
    Intact,
    /// Larger than the maximum size of a mail.
    TooLarge,
    /// Memory or disk space was not available; the reply says which.
    Refused(SmtpReply),
    /// Contains a bare CR or LF.
    BareLineEnding,
}

/// What the caller must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataStep {
    /// Feed more bytes.
    NeedInput,
    /// Reserve this many more octets of memory.
    ReserveMemory(usize),
    /// Write the buffer to the spool: [`DataReader::take_chunk`].
    Spool,
    /// The final dot was read.
    Complete,
    /// Close the connection: the mail is refused, and too much data followed to wait for its end.
    GiveUp,
}

/// Reads the data of one mail.
#[derive(Debug)]
pub(super) struct DataReader {
    line_state: LineState,
    /// The data in memory: everything, or what followed the last chunk that went to the spool.
    buffer: Vec<u8>,
    memory_octets: usize,
    /// Octets written to the spool.
    spooled_octets: usize,
    max_octets: usize,
    seen_octets: usize,
    status: DataStatus,
}

impl DataReader {
    /// Creates a reader for at most `max_octets`, with `memory_octets` already reserved.
    pub(super) fn new(max_octets: usize, memory_octets: usize) -> Self {
        Self {
            line_state: LineState::LineStart,
            buffer: Vec::new(),
            memory_octets,
            spooled_octets: 0,
            max_octets,
            seen_octets: 0,
            status: DataStatus::Intact,
        }
    }

    /// The status so far.
    pub(super) fn status(&self) -> DataStatus {
        self.status
    }

    /// Octets of reserved memory.
    pub(super) fn memory_octets(&self) -> usize {
        self.memory_octets
    }

    /// Octets in the spool.
    pub(super) fn spooled_octets(&self) -> usize {
        self.spooled_octets
    }

    /// The bytes that are not in the spool.
    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from(self.buffer)
    }

    /// Reports the result of [`DataStep::ReserveMemory`].
    pub(super) fn on_memory_reserved(&mut self, more: Result<usize, SmtpReply>) {
        match more {
            Ok(more) => self.memory_octets += more,
            Err(refusal) => self.discard(DataStatus::Refused(refusal)),
        }
    }

    /// Takes the buffer, to write it to the spool.
    pub(super) fn take_chunk(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Reports the result of [`DataStep::Spool`].
    pub(super) fn on_spooled(&mut self, more: Result<usize, SmtpReply>) {
        match more {
            Ok(more) => {
                self.spooled_octets += more;
                self.memory_octets = SPOOL_CHUNK;
            }
            Err(refusal) => self.discard(DataStatus::Refused(refusal)),
        }
    }

    /// Consumes bytes up to the final dot, or until memory must be reserved. Returns how many it consumed.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> (usize, DataStep) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let run = match self.line_state {
                LineState::InLine => {
                    memchr::memchr2(b'\r', b'\n', &bytes[at..]).unwrap_or(bytes.len() - at).min(MAX_COPY_OCTETS)
                }
                _ => 0,
            };
            // Either a run of ordinary bytes, or one byte after a CR that was held back.
            if let Some(next) = self.required_step(run.max(2)) {
                return (at, next);
            }
            if run > 0 {
                self.push(&bytes[at..at + run]);
                (at, self.seen_octets) = (at + run, self.seen_octets + run);
                continue;
            }
            (at, self.seen_octets) = (at + 1, self.seen_octets + 1);
            if self.push_byte(byte) {
                return (at, DataStep::Complete);
            }
        }
        let give_up = self.status != DataStatus::Intact
            && self.seen_octets > self.max_octets + self.max_octets.max(INITIAL_MEMORY);
        (at, if give_up { DataStep::GiveUp } else { DataStep::NeedInput })
    }

    /// The step that is needed before this many octets can be added.
    fn required_step(&mut self, octets: usize) -> Option<DataStep> {
        if self.status != DataStatus::Intact || self.buffer.len() + octets <= self.memory_octets {
            return None;
        }
        // Up to two of these octets may belong to the CR LF before the dot, or be the dot itself.
        if self.spooled_octets + self.buffer.len() + octets > self.max_octets + 2 {
            self.discard(DataStatus::TooLarge);
            return None;
        }
        match SPOOL_ABOVE.min(self.max_octets + 2).saturating_sub(self.memory_octets) {
            left if left > 0 && self.spooled_octets == 0 => {
                Some(DataStep::ReserveMemory(self.memory_octets.max(octets).min(left)))
            }
            _ => Some(DataStep::Spool),
        }
    }

    /// Processes one byte. Returns whether it ended the data.
    fn push_byte(&mut self, byte: u8) -> bool {
        match (self.line_state, byte) {
            (LineState::DotCr, b'\n') => return true,
            (LineState::Cr, b'\n') => {
                self.push(b"\r\n");
                self.line_state = LineState::LineStart;
            }
            (LineState::LineStart, b'.') => self.line_state = LineState::Dot,
            (LineState::Dot, b'\r') => self.line_state = LineState::DotCr,
            (LineState::LineStart | LineState::InLine, b'\r') => self.line_state = LineState::Cr,
            (LineState::Cr | LineState::DotCr, b'\r') => {
                self.discard(DataStatus::BareLineEnding);
                self.line_state = LineState::Cr;
            }
            (LineState::Cr | LineState::DotCr, _) | (_, b'\n') => {
                self.discard(DataStatus::BareLineEnding);
                self.line_state = LineState::InLine;
            }
            (LineState::LineStart | LineState::Dot | LineState::InLine, other) => {
                self.push(&[other]);
                self.line_state = LineState::InLine;
            }
        }
        false
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.status != DataStatus::Intact {
            return;
        }
        if self.spooled_octets + self.buffer.len() + bytes.len() > self.max_octets {
            return self.discard(DataStatus::TooLarge);
        }
        if self.buffer.capacity() < self.buffer.len() + bytes.len() {
            self.buffer.reserve_exact(self.memory_octets - self.buffer.len());
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Discards the data. A bare line ending overrides any other status.
    fn discard(&mut self, status: DataStatus) {
        if self.status == DataStatus::Intact || status == DataStatus::BareLineEnding {
            self.status = status;
        }
        self.buffer = Vec::new();
        (self.memory_octets, self.spooled_octets) = (0, 0);
    }
}
