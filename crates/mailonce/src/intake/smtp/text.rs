//! The text of a mail, from the answer to `DATA` to the dot. Only CR LF `.` CR LF ends it, and a CR or LF that stands
//! alone spoils it: what a careless relay took for an end of its own never becomes a second mail here.

use bytes::Bytes;

use super::reply::Reply;

/// Room asked for at first; it doubles from there, so that nobody holds much more than was sent.
pub(super) const FIRST_ROOM: usize = 16 * 1024;
/// Octets of a mail that are kept in memory. A larger mail goes to the spool, so that slow senders do not hold memory.
pub(super) const SPOOL_ABOVE: usize = 256 * 1024;
/// Octets that are collected in memory for each further write to the spool.
const SPOOL_CHUNK: usize = 64 * 1024;
/// Octets of a line that are copied at once. Must be less than any room that a text has.
const RUN: usize = 8 * 1024;

/// What is known of the line so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Right after CR LF, or at the very start.
    LineStart,
    /// After a dot at the start of a line.
    Dot,
    /// After a dot at the start of a line, and a CR.
    DotCr,
    Inside,
    /// After a CR that is not yet known to begin a line end.
    Cr,
}

/// What became of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is kept so far.
    Kept,
    /// It is larger than a mail may be.
    TooLarge,
    /// There was no room for it, as this reply says.
    NoRoom(Reply),
    /// A line ended wrongly.
    Bare,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// More bytes.
    More,
    /// More room, by so many octets.
    Room(usize),
    /// What is in memory goes to the spool: [`Text::take_chunk`].
    Spool,
    /// It ended.
    End,
    /// It is refused, and too much of it came since to wait for its end.
    Enough,
}

/// A text that comes in.
#[derive(Debug)]
pub(super) struct Text {
    place: Place,
    /// What is in memory: all of it, or what came since the last chunk went to the spool.
    body: Vec<u8>,
    room: usize,
    /// Octets that went to the spool.
    spooled: usize,
    most: usize,
    seen: usize,
    fate: Fate,
}

impl Text {
    /// An empty text that may become `most` octets, with room for the first of them.
    pub(super) fn new(most: usize, room: usize) -> Self {
        Self { place: Place::LineStart, body: Vec::new(), room, spooled: 0, most, seen: 0, fate: Fate::Kept }
    }

    /// What became of it so far.
    pub(super) fn fate(&self) -> Fate {
        self.fate
    }

    /// Octets it has room for.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Octets of it that are in the spool.
    pub(super) fn spooled(&self) -> usize {
        self.spooled
    }

    /// The bytes that are not in the spool.
    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from(self.body)
    }

    /// The room that was asked for is there, or is not.
    pub(super) fn room_is(&mut self, more: Result<usize, Reply>) {
        match more {
            Ok(more) => self.room += more,
            Err(refusal) => self.spoil(Fate::NoRoom(refusal)),
        }
    }

    /// What is to go to the spool.
    pub(super) fn take_chunk(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.body)
    }

    /// So many octets are in the spool, or there was no room for them.
    pub(super) fn spooled_is(&mut self, more: Result<usize, Reply>) {
        match more {
            Ok(more) => {
                self.spooled += more;
                self.room = SPOOL_CHUNK;
            }
            Err(refusal) => self.spoil(Fate::NoRoom(refusal)),
        }
    }

    /// Takes bytes up to the end of the text, or until there is no more room. Tells how many it took.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> (usize, Next) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let run = match self.place {
                Place::Inside => memchr::memchr2(b'\r', b'\n', &bytes[at..]).unwrap_or(bytes.len() - at).min(RUN),
                _ => 0,
            };
            // A run of letters, or one byte and a CR LF that was held back.
            if let Some(next) = self.need(run.max(2)) {
                return (at, next);
            }
            if run > 0 {
                self.push(&bytes[at..at + run]);
                (at, self.seen) = (at + run, self.seen + run);
                continue;
            }
            (at, self.seen) = (at + 1, self.seen + 1);
            if self.one(byte) {
                return (at, Next::End);
            }
        }
        let enough = self.fate != Fate::Kept && self.seen > self.most + self.most.max(FIRST_ROOM);
        (at, if enough { Next::Enough } else { Next::More })
    }

    /// What has to happen before so many octets can be added.
    fn need(&mut self, octets: usize) -> Option<Next> {
        if self.fate != Fate::Kept || self.body.len() + octets <= self.room {
            return None;
        }
        // The last two may be the CR LF before the dot, or the dot itself.
        if self.spooled + self.body.len() + octets > self.most + 2 {
            self.spoil(Fate::TooLarge);
            return None;
        }
        match SPOOL_ABOVE.min(self.most + 2).saturating_sub(self.room) {
            left if left > 0 && self.spooled == 0 => Some(Next::Room(self.room.max(octets).min(left))),
            _ => Some(Next::Spool),
        }
    }

    /// One byte. Tells whether it was the last.
    fn one(&mut self, byte: u8) -> bool {
        match (self.place, byte) {
            (Place::DotCr, b'\n') => return true,
            (Place::Cr, b'\n') => {
                self.push(b"\r\n");
                self.place = Place::LineStart;
            }
            (Place::LineStart, b'.') => self.place = Place::Dot,
            (Place::Dot, b'\r') => self.place = Place::DotCr,
            (Place::LineStart | Place::Inside, b'\r') => self.place = Place::Cr,
            (Place::Cr | Place::DotCr, b'\r') => {
                self.spoil(Fate::Bare);
                self.place = Place::Cr;
            }
            (Place::Cr | Place::DotCr, _) | (_, b'\n') => {
                self.spoil(Fate::Bare);
                self.place = Place::Inside;
            }
            (Place::LineStart | Place::Dot | Place::Inside, letter) => {
                self.push(&[letter]);
                self.place = Place::Inside;
            }
        }
        false
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.fate != Fate::Kept {
            return;
        }
        if self.spooled + self.body.len() + bytes.len() > self.most {
            return self.spoil(Fate::TooLarge);
        }
        if self.body.capacity() < self.body.len() + bytes.len() {
            self.body.reserve_exact(self.room - self.body.len());
        }
        self.body.extend_from_slice(bytes);
    }

    /// From now on nothing is kept. A wrong line end outweighs every other fate.
    fn spoil(&mut self, fate: Fate) {
        if self.fate == Fate::Kept || fate == Fate::Bare {
            self.fate = fate;
        }
        self.body = Vec::new();
        (self.room, self.spooled) = (0, 0);
    }
}
