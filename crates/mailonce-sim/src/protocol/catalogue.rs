//! The protocols. The words about them are our own; what they do is what five published guides recommend.

use crate::protocol::ops::{Op, ProtocolRow};

/// What may go wrong while a protocol is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProtocolFaults {
    /// A caller may die between two ops.
    pub crashes: bool,
    /// The next hop takes the mail and the caller gets an error.
    pub lost_replies: bool,
    /// The lock may run out at any time.
    pub lock_expires: bool,
}

/// What a protocol breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolFailure {
    /// There is a second mail.
    Duplicate,
    /// There is no mail, everybody was told that all is well, and nobody will call again.
    LostMail,
    /// Nothing.
    None,
}

/// A protocol.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Its name.
    pub name: &'static str,
    /// Where it is recommended, and why it looks right.
    pub about: &'static str,
    /// What every caller does.
    pub program: &'static [Op],
    /// What it does when the hand-over fails.
    pub on_error: Option<Op>,
    /// How many call at the same time.
    pub callers: u8,
    /// How often each calls until it is answered.
    pub max_calls: u8,
    /// The row at the beginning.
    pub initial_row: ProtocolRow,
    /// What may go wrong.
    pub faults: ProtocolFaults,
    /// What it breaks.
    pub breaks: ProtocolFailure,
    /// What is to be learnt.
    pub lesson: &'static str,
}

const NO_FAULTS: ProtocolFaults = ProtocolFaults { crashes: false, lost_replies: false, lock_expires: false };

/// Everything that fails.
pub const PROTOCOLS: &[Protocol] = &[
    Protocol {
        name: "A claim that is deleted on error",
        about: "A guide to sending once with Redis: set a claim unless it is there, send, store the result, and delete \
                the claim when sending throws, so that a retry may try again.",
        program: &[Op::Lock, Op::Send, Op::WriteResult],
        on_error: Some(Op::Unlock),
        callers: 1,
        max_calls: 2,
        initial_row: ProtocolRow::None,
        faults: ProtocolFaults { lost_replies: true, ..NO_FAULTS },
        breaks: ProtocolFailure::Duplicate,
        lesson: "An error after the bytes went says nothing about the mail. mailonce settles only on an answer that \
                 decides; anything else is `unknown`.",
    },
    Protocol {
        name: "A lock with a time to live",
        about: "A plan for an API with idempotency keys: a result that is kept for a day, and a lock of a minute around \
                the send. Here it is even made better than it was written: the result is read again under the lock.",
        program: &[Op::ReadResult, Op::Lock, Op::ReadResult, Op::Send, Op::WriteResult, Op::Unlock],
        on_error: None,
        callers: 2,
        max_calls: 1,
        initial_row: ProtocolRow::None,
        faults: ProtocolFaults { lock_expires: true, ..NO_FAULTS },
        breaks: ProtocolFailure::Duplicate,
        lesson: "A worker that is slow is not dead, and the next hop does not know our lock. In mailonce a lease only says \
                 who works; what was marked is never dispatched again by itself.",
    },
    Protocol {
        name: "A lock without a second look",
        about: "The same plan as it was written. Nobody dies, nothing is lost, and the lock never runs out.",
        program: &[Op::ReadResult, Op::Lock, Op::Send, Op::WriteResult, Op::Unlock],
        on_error: None,
        callers: 2,
        max_calls: 1,
        initial_row: ProtocolRow::None,
        faults: NO_FAULTS,
        breaks: ProtocolFailure::Duplicate,
        lesson: "What was read before the lock is old by the time the lock is held. mailonce binds the key and reads what it \
                 is bound to in one transaction.",
    },
    Protocol {
        name: "Insert and send in one transaction",
        about: "The first of several patterns for agents: a table with a unique key, and the insert, the send and the \
                result in one transaction.",
        program: &[Op::InsertInTransaction, Op::Send, Op::Commit],
        on_error: None,
        callers: 1,
        max_calls: 2,
        initial_row: ProtocolRow::None,
        faults: ProtocolFaults { crashes: true, ..NO_FAULTS },
        breaks: ProtocolFailure::Duplicate,
        lesson: "A transaction takes back what the database did, not what the next hop did. mailonce commits a marker \
                 before the bytes go.",
    },
    Protocol {
        name: "Claimed means try again",
        about: "The second pattern: states `claimed` and `confirmed`. Whoever finds `claimed` sends.",
        program: &[Op::ClaimRow, Op::Send, Op::ConfirmRow],
        on_error: None,
        callers: 1,
        max_calls: 2,
        initial_row: ProtocolRow::None,
        faults: ProtocolFaults { crashes: true, ..NO_FAULTS },
        breaks: ProtocolFailure::Duplicate,
        lesson: "One state for \"died before\" and \"died after\" cannot tell them apart. mailonce has two: `leased` goes back \
                 to the queue, `sending` becomes `unknown`.",
    },
    Protocol {
        name: "An outbox that is drained in one transaction",
        about: "The third pattern: rows are locked with SKIP LOCKED, sent, noted as sent, and the transaction is committed \
                at the end of the batch.",
        program: &[Op::TakeRow, Op::Send, Op::NoteSent, Op::Commit],
        on_error: None,
        callers: 2,
        max_calls: 2,
        initial_row: ProtocolRow::Claimed,
        faults: ProtocolFaults { crashes: true, ..NO_FAULTS },
        breaks: ProtocolFailure::Duplicate,
        lesson: "A lock that ends with its connection forgets everything that was done under it. mailonce commits once \
                 before each hand-over and once after it.",
    },
    Protocol {
        name: "Acknowledge, then work",
        about: "A guide against answering twice: the webhook is answered at once, and the work begins afterwards.",
        program: &[Op::Acknowledge, Op::MarkProcessed, Op::Send],
        on_error: None,
        callers: 1,
        max_calls: 2,
        initial_row: ProtocolRow::None,
        faults: ProtocolFaults { crashes: true, ..NO_FAULTS },
        breaks: ProtocolFailure::LostMail,
        lesson: "Whoever was told 200 does not come again. mailonce answers after the commit.",
    },
    Protocol {
        name: "Mark, then work",
        about: "The same guide with the answer at the end: the message is marked as processed first, so that a second \
                delivery does nothing.",
        program: &[Op::MarkProcessed, Op::Send, Op::Acknowledge],
        on_error: None,
        callers: 1,
        max_calls: 2,
        initial_row: ProtocolRow::None,
        faults: ProtocolFaults { crashes: true, ..NO_FAULTS },
        breaks: ProtocolFailure::LostMail,
        lesson: "A flag cannot say \"begun\". What was begun and not finished must be found again by somebody: mailonce has \
                 states, and a start that looks for them.",
    },
    Protocol {
        name: "A lock on the thread, and a look at it",
        about: "The same guide once more: a lock of 30 seconds on the thread, and under it a look whether the last message \
                is ours. A model needs longer than that to write an answer now and then.",
        program: &[Op::Lock, Op::LookAtThread, Op::Send, Op::Unlock],
        on_error: None,
        callers: 2,
        max_calls: 1,
        initial_row: ProtocolRow::None,
        faults: ProtocolFaults { lock_expires: true, ..NO_FAULTS },
        breaks: ProtocolFailure::Duplicate,
        lesson: "The look is as old as the pause after it. The fence of a lease is checked in the transaction that accepts the \
                 mail, or it is not checked at all.",
    },
    Protocol {
        name: "Insert, then enqueue",
        about: "A layout for inbound mail: the delivery is inserted under a unique key, and whoever inserted it puts the work \
                into a queue.",
        program: &[Op::InsertDelivery, Op::Enqueue, Op::Acknowledge],
        on_error: None,
        callers: 1,
        max_calls: 2,
        initial_row: ProtocolRow::None,
        faults: ProtocolFaults { crashes: true, ..NO_FAULTS },
        breaks: ProtocolFailure::LostMail,
        lesson: "Two systems cannot commit together. In mailonce the row is the work.",
    },
];

/// What holds: a marker before the bytes, under every fault there is.
pub const MARKER_PROTOCOL: Protocol = Protocol {
    name: "A marker before the bytes",
    about: "Bind the key, commit a marker, hand the mail over, settle. Whoever finds the marker of somebody else calls the \
            outcome unknown, and a person is told.",
    program: &[Op::BindKey, Op::Marker, Op::Send, Op::Settle],
    on_error: None,
    callers: 2,
    max_calls: 3,
    initial_row: ProtocolRow::None,
    faults: ProtocolFaults { crashes: true, lost_replies: true, lock_expires: true },
    breaks: ProtocolFailure::None,
    lesson: "",
};
