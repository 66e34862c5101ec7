//! One conversation, without a socket: bytes go in, replies come out, and between them the session says what it needs
//! to know before it goes on.

mod obey;
mod read;

use std::{net::IpAddr, sync::Arc};

use super::{
    reception::{Mail, Verdict},
    reply::{self, Reply},
    tally::Tally,
    text::{FIRST_ROOM, Text},
};

/// Mistakes that one connection may make. The last one ends it.
const MISTAKES: usize = 10;
/// Recipients that may be refused on one connection: a list with dead names, but not a dictionary.
const REFUSALS: usize = 100;

/// What is the same for every session.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) hostname: String,
    pub(super) max_size: usize,
    pub(super) max_recipients: usize,
    pub(super) tls: bool,
}

/// What the session needs before it goes on. Each but `Read` and `Close` is answered by the call it names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// More bytes: [`Session::receive`].
    Read,
    /// May another mail begin? [`Session::may_begin`].
    Begin,
    /// Is this a recipient? [`Session::recipient_is`].
    Ask { sender: String, address: String },
    /// Room in memory for so many octets more: [`Session::room_is`].
    Room(usize),
    /// Append this to the spool: [`Session::spooled_is`].
    Spool(Vec<u8>),
    /// Keep this: [`Session::mail_is`]. Its bytes are those that come after what is in the spool.
    Take(Mail),
    /// TLS, once all replies are out: [`Session::secured`].
    Secure,
    /// The end, once all replies are out.
    Close,
}

/// An envelope that is being written.
#[derive(Debug)]
struct Envelope {
    sender: String,
    utf8: bool,
    recipients: Vec<String>,
}

/// What the session is in the middle of.
#[derive(Debug)]
enum Phase {
    Commands,
    /// Reads on to the end of a line that was too long.
    Skipping(usize),
    /// Waits for an answer about this envelope.
    Beginning(Envelope),
    /// Waits for an answer about this recipient.
    Asking(String),
    /// Waits for room before the text.
    Opening,
    Text(Text),
    /// Waits for room within the text.
    Widening(Text, usize),
    /// Waits until so many octets of the text are in the spool.
    Spooling(Text, usize),
    /// Waits until so many octets are kept.
    Taking(usize),
    Securing,
    Closed,
}

/// A conversation.
#[derive(Debug)]
pub(super) struct Session {
    rules: Arc<Rules>,
    tally: Arc<Tally>,
    ip: IpAddr,
    secure: bool,
    hello: Option<String>,
    envelope: Option<Envelope>,
    phase: Phase,
    input: Vec<u8>,
    output: Vec<u8>,
    mistakes: usize,
    refusals: usize,
    commands: usize,
    lines: u64,
}

impl Session {
    /// A session that has greeted.
    pub(super) fn new(rules: Arc<Rules>, tally: Arc<Tally>, ip: IpAddr) -> Self {
        let output = format!("220 {} ESMTP mailonce\r\n", rules.hostname).into_bytes();
        Self {
            rules,
            tally,
            ip,
            secure: false,
            hello: None,
            envelope: None,
            phase: Phase::Commands,
            input: Vec::new(),
            output,
            mistakes: 0,
            refusals: 0,
            commands: 0,
            lines: 0,
        }
    }

    /// Bytes came. To be called only after [`Step::Read`], which bounds what is held of them.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// What is to be said, and is then forgotten.
    pub(super) fn say_out(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Lines that were understood or refused so far. Who waits for a line sees by it whether one came.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Whether the text of a mail is under way.
    pub(super) fn in_text(&self) -> bool {
        self.text().is_some()
    }

    fn text(&self) -> Option<&Text> {
        match &self.phase {
            Phase::Text(text) | Phase::Widening(text, _) | Phase::Spooling(text, _) => Some(text),
            _ => None,
        }
    }

    /// Octets of memory that a text has. What was granted above it may be given back.
    pub(super) fn room(&self) -> usize {
        self.text().map_or(0, Text::room)
    }

    /// Octets of a text that are in the spool. When there are none, nothing that is in the spool is needed any more.
    pub(super) fn spooled(&self) -> usize {
        self.text().map_or(0, Text::spooled)
    }

    /// Goes on until something is needed.
    pub(super) fn step(&mut self) -> Step {
        loop {
            let step = match std::mem::replace(&mut self.phase, Phase::Closed) {
                Phase::Commands => self.next_line(),
                Phase::Skipping(seen) => self.skip(seen),
                Phase::Text(text) => self.read_text(text),
                // Nothing goes on without the answer that was asked for.
                _ => Some(Step::Close),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Whether another mail may begin.
    pub(super) fn may_begin(&mut self, may: bool) {
        match std::mem::replace(&mut self.phase, Phase::Commands) {
            Phase::Beginning(envelope) => {
                self.envelope = may.then_some(envelope);
                self.say(if may { reply::SENDER_OK } else { reply::TOO_OFTEN });
            }
            other => self.phase = other,
        }
    }

    /// What is to be said to the recipient.
    pub(super) fn recipient_is(&mut self, verdict: Verdict) {
        match (std::mem::replace(&mut self.phase, Phase::Commands), &mut self.envelope) {
            (Phase::Asking(address), Some(envelope)) if verdict == Verdict::Here => envelope.recipients.push(address),
            (Phase::Asking(_), _) => self.refusals += usize::from(verdict != Verdict::Trouble),
            (other, _) => {
                self.phase = other;
                return;
            }
        }
        if self.refusals > REFUSALS {
            return self.leave(reply::ENOUGH);
        }
        self.say(reply::recipient(verdict));
    }

    /// Whether the room that was asked for is there.
    pub(super) fn room_is(&mut self, granted: Result<(), Reply>) {
        match (std::mem::replace(&mut self.phase, Phase::Commands), granted) {
            (Phase::Opening, Ok(())) => {
                self.say(reply::GO_AHEAD);
                self.phase = Phase::Text(Text::new(self.rules.max_size, FIRST_ROOM));
            }
            (Phase::Opening, Err(refusal)) => self.refuse_data(refusal),
            (Phase::Widening(mut text, more), granted) => {
                text.room_is(granted.map(|()| more));
                self.phase = Phase::Text(text);
            }
            (other, _) => self.phase = other,
        }
    }

    /// Whether the octets are in the spool.
    pub(super) fn spooled_is(&mut self, written: Result<(), Reply>) {
        match std::mem::replace(&mut self.phase, Phase::Commands) {
            Phase::Spooling(mut text, octets) => {
                text.spooled_is(written.map(|()| octets));
                self.phase = Phase::Text(text);
            }
            other => self.phase = other,
        }
    }

    /// Whether the mail is kept.
    pub(super) fn mail_is(&mut self, kept: Result<(), Reply>) {
        match (std::mem::replace(&mut self.phase, Phase::Commands), kept) {
            (Phase::Taking(octets), Ok(())) => {
                self.tally.took(octets);
                self.commands = 0;
                self.say(reply::TAKEN);
            }
            (Phase::Taking(_), Err(refusal)) => self.say(refusal),
            (other, _) => self.phase = other,
        }
    }

    /// TLS runs. All that was said before is forgotten, since anybody may have said it.
    pub(super) fn secured(&mut self) {
        self.secure = true;
        self.hello = None;
        self.envelope = None;
        self.input = Vec::new();
        self.phase = Phase::Commands;
    }

    /// Says a last word.
    pub(super) fn leave(&mut self, last: Reply) {
        self.tell(last);
        self.phase = Phase::Closed;
    }

    fn tell(&mut self, reply: Reply) {
        self.output.extend_from_slice(reply.line.as_bytes());
        self.output.extend_from_slice(b"\r\n");
        if let Some(reason) = reply.reason {
            self.tally.refuse(reason);
        }
    }

    /// Answers and goes on with commands, unless it was a mistake too many.
    fn say(&mut self, reply: Reply) {
        self.mistakes += usize::from(reply.is_mistake());
        if reply.is_mistake() && self.mistakes >= MISTAKES {
            return self.leave(reply::ENOUGH);
        }
        self.tell(reply);
    }
}
