//! The text of a mail, from the answer to `DATA` to the dot. Only CR LF `.` CR LF ends it, and a CR or LF that stands
//! alone spoils it: what a careless relay took for an end of its own never becomes a second mail here.

use bytes::Bytes;

use super::reply::SmtpReply;

/// Room asked for at first; it doubles from there, so that nobody holds much more than was sent.
pub(super) const INITIAL_MEMORY: usize = 16 * 1024;
/// Octets of a mail that are kept in memory. A larger mail goes to the spool, so that slow senders do not hold memory.
pub(super) const SPOOL_ABOVE: usize = 256 * 1024;
/// Octets that are collected in memory for each further write to the spool.
const SPOOL_CHUNK: usize = 64 * 1024;
/// Octets of a line that are copied at once. Must be less than any room that a text has.
const MAX_COPY_OCTETS: usize = 8 * 1024;

/// What is known of the line so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    /// Right after CR LF, or at the very start.
    LineStart,
    /// After a dot at the start of a line.
    Dot,
    /// After a dot at the start of a line, and a CR.
    DotCr,
    InLine,
    /// After a CR that is not yet known to begin a line end.
    Cr,
}

/// What became of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataStatus {
    /// It is kept so far.
    Intact,
    /// It is larger than a mail may be.
    TooLarge,
    /// There was no room for it, as this reply says.
    Refused(SmtpReply),
    /// A line ended wrongly.
    BareLineEnding,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataStep {
    /// More bytes.
    NeedInput,
    /// More room, by so many octets.
    ReserveMemory(usize),
    /// What is in memory goes to the spool: [`Text::take_chunk`].
    Spool,
    /// It ended.
    Complete,
    /// It is refused, and too much of it came since to wait for its end.
    GiveUp,
}

/// A text that comes in.
#[derive(Debug)]
pub(super) struct DataReader {
    line_state: LineState,
    /// What is in memory: all of it, or what came since the last chunk went to the spool.
    buffer: Vec<u8>,
    memory_octets: usize,
    /// Octets that went to the spool.
    spooled_octets: usize,
    max_octets: usize,
    seen_octets: usize,
    status: DataStatus,
}

impl DataReader {
    /// An empty text that may become `most` octets, with room for the first of them.
    pub(super) fn new(most: usize, room: usize) -> Self {
        Self {
            line_state: LineState::LineStart,
            buffer: Vec::new(),
            memory_octets: room,
            spooled_octets: 0,
            max_octets: most,
            seen_octets: 0,
            status: DataStatus::Intact,
        }
    }

    /// What became of it so far.
    pub(super) fn status(&self) -> DataStatus {
        self.status
    }

    /// Octets it has room for.
    pub(super) fn memory_octets(&self) -> usize {
        self.memory_octets
    }

    /// Octets of it that are in the spool.
    pub(super) fn spooled_octets(&self) -> usize {
        self.spooled_octets
    }

    /// The bytes that are not in the spool.
    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from(self.buffer)
    }

    /// The room that was asked for is there, or is not.
    pub(super) fn on_memory_reserved(&mut self, more: Result<usize, SmtpReply>) {
        match more {
            Ok(more) => self.memory_octets += more,
            Err(refusal) => self.discard(DataStatus::Refused(refusal)),
        }
    }

    /// What is to go to the spool.
    pub(super) fn take_chunk(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// So many octets are in the spool, or there was no room for them.
    pub(super) fn on_spooled(&mut self, more: Result<usize, SmtpReply>) {
        match more {
            Ok(more) => {
                self.spooled_octets += more;
                self.memory_octets = SPOOL_CHUNK;
            }
            Err(refusal) => self.discard(DataStatus::Refused(refusal)),
        }
    }

    /// Takes bytes up to the end of the text, or until there is no more room. Tells how many it took.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> (usize, DataStep) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let run = match self.line_state {
                LineState::InLine => {
                    memchr::memchr2(b'\r', b'\n', &bytes[at..]).unwrap_or(bytes.len() - at).min(MAX_COPY_OCTETS)
                }
                _ => 0,
            };
            // A run of letters, or one byte and a CR LF that was held back.
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
        let enough = self.status != DataStatus::Intact
            && self.seen_octets > self.max_octets + self.max_octets.max(INITIAL_MEMORY);
        (at, if enough { DataStep::GiveUp } else { DataStep::NeedInput })
    }

    /// What has to happen before so many octets can be added.
    fn required_step(&mut self, octets: usize) -> Option<DataStep> {
        if self.status != DataStatus::Intact || self.buffer.len() + octets <= self.memory_octets {
            return None;
        }
        // The last two may be the CR LF before the dot, or the dot itself.
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

    /// One byte. Tells whether it was the last.
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
            (LineState::LineStart | LineState::Dot | LineState::InLine, letter) => {
                self.push(&[letter]);
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

    /// From now on nothing is kept. A wrong line end outweighs every other fate.
    fn discard(&mut self, fate: DataStatus) {
        if self.status == DataStatus::Intact || fate == DataStatus::BareLineEnding {
            self.status = fate;
        }
        self.buffer = Vec::new();
        (self.memory_octets, self.spooled_octets) = (0, 0);
    }
}
