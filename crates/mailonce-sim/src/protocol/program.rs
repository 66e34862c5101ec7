//! What callers do, one op at a time, and what each op does to a world of one key and one mail.

/// One op of a protocol. Between two of them anything may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Set a lock unless it is there. When it is there, say so and stop.
    Lock,
    /// Read the stored result. When there is one, answer with it and stop.
    ReadResult,
    /// Hand the mail over.
    Send,
    /// Store the result.
    WriteResult,
    /// Delete the lock, whoever set it.
    Unlock,
    /// Begin a transaction and insert the key. When a committed one is there, answer with it and stop.
    InsertInTransaction,
    /// Insert the key as `claimed` unless it is there, and commit. When it is `confirmed`, answer and stop.
    ClaimRow,
    /// Begin a transaction and lock the pending row. When it is `sent` or locked, stop.
    TakeRow,
    /// Note in the open transaction that it was sent.
    NoteSent,
    /// Commit.
    Commit,
    /// Set the row to `confirmed` and commit.
    ConfirmRow,
    /// Answer the other side, which then never calls again.
    Acknowledge,
    /// Note that the message was processed unless that is noted already. When it is, acknowledge and stop.
    MarkProcessed,
    /// Look whether the mailbox has an answer. When it has, stop.
    LookAtThread,
    /// Insert the delivery unless it is there, and commit. When it is there, acknowledge and stop.
    InsertDelivery,
    /// Put the work into a queue.
    Enqueue,
    /// Bind the key unless it is bound. When the mail is under way, call its outcome unknown and stop; when it is
    /// settled, answer with that and stop.
    BindKey,
    /// Commit `sending`, only from `queued`.
    Marker,
    /// Commit `sent`.
    Settle,
}

impl Op {
    /// What a caller does, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Lock => "sets the lock if it is not set",
            Self::ReadResult => "reads the stored result",
            Self::Send => "hands the mail over",
            Self::WriteResult => "stores the result",
            Self::Unlock => "deletes the lock",
            Self::InsertInTransaction => "begins a transaction and inserts the key",
            Self::ClaimRow => "reads the row, or inserts it as claimed and commits",
            Self::TakeRow => "begins a transaction and locks the pending row",
            Self::NoteSent => "notes in the transaction that it was sent",
            Self::Commit => "commits",
            Self::ConfirmRow => "sets the row to confirmed and commits",
            Self::Acknowledge => "answers 200",
            Self::MarkProcessed => "marks the message as processed if it is not",
            Self::LookAtThread => "looks whether the thread has an answer",
            Self::InsertDelivery => "inserts the delivery if it is not there",
            Self::Enqueue => "puts the work into the queue",
            Self::BindKey => "binds the key and commits, or reads what it is bound to",
            Self::Marker => "commits the marker `sending`",
            Self::Settle => "commits `sent`",
        }
    }
}

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Row {
    /// There is none.
    None,
    /// Written by a transaction that is still open.
    Open(u8),
    /// There, and nothing is known to have left: `claimed`, `pending` or `queued`.
    Claimed,
    /// `sending`.
    Sending,
    /// `unknown`: a person is told.
    Unknown,
    /// Done.
    Done,
}

/// One caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The op it comes to next; `None` when it does not run.
    pub at: Option<u8>,
    /// Whether it was answered, so that it never calls again.
    pub answered: bool,
    /// How often it may still call.
    pub calls: u8,
}

/// A world of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// Those who call.
    pub callers: Vec<Caller>,
    /// Who set the lock.
    pub lock: Option<u8>,
    /// Whether a result is stored, or the message is marked as processed.
    pub result: bool,
    /// The row.
    pub row: Row,
    /// Who locked the row, and whether it noted that it sent.
    pub taken: Option<(u8, bool)>,
    /// Mails at the next hop, or jobs in the queue.
    pub mails: u8,
}

/// How a caller goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// To the next op.
    On,
    /// Answered.
    Stop,
    /// Not yet: somebody else is in the way.
    Wait,
}

/// The name of a caller.
pub fn name(caller: u8) -> char {
    char::from(b'A' + caller)
}

impl World {
    /// A world in which everybody is about to call.
    pub fn new(callers: u8, calls: u8, row: Row) -> Self {
        let caller = Caller { at: Some(0), answered: false, calls: calls - 1 };
        Self { callers: vec![caller; usize::from(callers)], lock: None, result: false, row, taken: None, mails: 0 }
    }

    /// Does one op for a caller.
    pub fn run(&mut self, who: u8, op: Op) -> Then {
        match op {
            Op::Lock if self.lock.is_some() => return Then::Stop,
            Op::Lock => self.lock = Some(who),
            Op::ReadResult if self.result => return Then::Stop,
            Op::Send | Op::Enqueue => self.mails += 1,
            Op::WriteResult => self.result = true,
            Op::Unlock => self.lock = None,
            Op::MarkProcessed | Op::InsertDelivery if self.result => return Then::Stop,
            Op::MarkProcessed | Op::InsertDelivery => self.result = true,
            Op::LookAtThread if self.mails > 0 => return Then::Stop,
            Op::Acknowledge => self.callers.iter_mut().for_each(|caller| caller.answered = true),
            Op::ReadResult | Op::LookAtThread => {}
            _ => return self.run_row(who, op),
        }
        Then::On
    }

    fn run_row(&mut self, who: u8, op: Op) -> Then {
        match (op, self.row) {
            (Op::InsertInTransaction, Row::None) => self.row = Row::Open(who),
            (Op::InsertInTransaction, Row::Open(_)) => return Then::Wait,
            (Op::InsertInTransaction | Op::ClaimRow | Op::BindKey, Row::Done) => return Then::Stop,
            (Op::Commit, Row::Open(_)) => self.row = Row::Done,
            (Op::ClaimRow | Op::BindKey, Row::None) => self.row = Row::Claimed,
            (Op::ConfirmRow | Op::Settle, _) => self.row = Row::Done,
            (Op::TakeRow, Row::Done) => return Then::Stop,
            (Op::TakeRow, _) if self.taken.is_some() => return Then::Stop,
            (Op::TakeRow, _) => self.taken = Some((who, false)),
            (Op::NoteSent, _) => self.taken = Some((who, true)),
            (Op::Commit, _) => (self.taken, self.row) = (None, Row::Done),
            (Op::BindKey | Op::Marker, Row::Sending | Row::Unknown) => {
                self.row = Row::Unknown;
                return Then::Stop;
            }
            (Op::Marker, Row::Claimed) => self.row = Row::Sending,
            (Op::Marker, _) => return Then::Stop,
            _ => {}
        }
        Then::On
    }

    /// What is lost when a caller dies: its open transaction.
    pub fn roll_back(&mut self, who: u8) {
        if self.row == Row::Open(who) {
            self.row = Row::None;
        }
        if self.taken.is_some_and(|(holder, _)| holder == who) {
            self.taken = None;
        }
    }

    /// What the world has, in words.
    pub fn words(&self) -> String {
        let mut words = String::new();
        let mut say = |text: &str| {
            if !words.is_empty() {
                words.push_str(", ");
            }
            words.push_str(text);
        };
        if let Some(who) = self.lock {
            say(&format!("lock of {}", name(who)));
        }
        if self.result {
            say("a note that it is done");
        }
        match self.row {
            Row::None => {}
            Row::Open(who) => say(&format!("a row in {}'s open transaction", name(who))),
            Row::Claimed => say("a row that is not done"),
            Row::Sending => say("a row in `sending`"),
            Row::Unknown => say("a row in `unknown`"),
            Row::Done => say("a row that is done"),
        }
        if let Some((who, noted)) = self.taken {
            say(&format!("a row locked by {}{}", name(who), if noted { ", noted as sent" } else { "" }));
        }
        if self.mails > 0 {
            say(&format!("**{} mail{}**", self.mails, if self.mails == 1 { "" } else { "s" }));
        }
        if words.is_empty() { "nothing".into() } else { words }
    }
}
