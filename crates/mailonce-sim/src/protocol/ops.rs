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
    pub fn description(self) -> &'static str {
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
pub enum ProtocolRow {
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
pub struct ProtocolCaller {
    /// The op it comes to next; `None` when it does not run.
    pub next_op: Option<u8>,
    /// Whether it was answered, so that it never calls again.
    pub answered: bool,
    /// How often it may still call.
    pub calls_left: u8,
}

/// A world of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProtocolState {
    /// Those who call.
    pub callers: Vec<ProtocolCaller>,
    /// Who set the lock.
    pub lock: Option<u8>,
    /// Whether a result is stored, or the message is marked as processed.
    pub result: bool,
    /// The row.
    pub row: ProtocolRow,
    /// Who locked the row, and whether it noted that it sent.
    pub row_lock: Option<(u8, bool)>,
    /// Mails at the next hop, or jobs in the queue.
    pub mails: u8,
}

/// How a caller goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// To the next op.
    Continue,
    /// Answered.
    Stop,
    /// Not yet: somebody else is in the way.
    Wait,
}

/// The name of a caller.
pub fn caller_name(caller: u8) -> char {
    char::from(b'A' + caller)
}

impl ProtocolState {
    /// A world in which everybody is about to call.
    pub fn new(callers: u8, calls: u8, row: ProtocolRow) -> Self {
        let caller = ProtocolCaller { next_op: Some(0), answered: false, calls_left: calls - 1 };
        Self { callers: vec![caller; usize::from(callers)], lock: None, result: false, row, row_lock: None, mails: 0 }
    }

    /// Does one op for a caller.
    pub fn run_op(&mut self, who: u8, op: Op) -> NextStep {
        match op {
            Op::Lock if self.lock.is_some() => return NextStep::Stop,
            Op::Lock => self.lock = Some(who),
            Op::ReadResult if self.result => return NextStep::Stop,
            Op::Send | Op::Enqueue => self.mails += 1,
            Op::WriteResult => self.result = true,
            Op::Unlock => self.lock = None,
            Op::MarkProcessed | Op::InsertDelivery if self.result => return NextStep::Stop,
            Op::MarkProcessed | Op::InsertDelivery => self.result = true,
            Op::LookAtThread if self.mails > 0 => return NextStep::Stop,
            Op::Acknowledge => self.callers.iter_mut().for_each(|caller| caller.answered = true),
            Op::ReadResult | Op::LookAtThread => {}
            _ => return self.run_row_op(who, op),
        }
        NextStep::Continue
    }

    fn run_row_op(&mut self, who: u8, op: Op) -> NextStep {
        match (op, self.row) {
            (Op::InsertInTransaction, ProtocolRow::None) => self.row = ProtocolRow::Open(who),
            (Op::InsertInTransaction, ProtocolRow::Open(_)) => return NextStep::Wait,
            (Op::InsertInTransaction | Op::ClaimRow | Op::BindKey, ProtocolRow::Done) => return NextStep::Stop,
            (Op::Commit, ProtocolRow::Open(_)) => self.row = ProtocolRow::Done,
            (Op::ClaimRow | Op::BindKey, ProtocolRow::None) => self.row = ProtocolRow::Claimed,
            (Op::ConfirmRow | Op::Settle, _) => self.row = ProtocolRow::Done,
            (Op::TakeRow, ProtocolRow::Done) => return NextStep::Stop,
            (Op::TakeRow, _) if self.row_lock.is_some() => return NextStep::Stop,
            (Op::TakeRow, _) => self.row_lock = Some((who, false)),
            (Op::NoteSent, _) => self.row_lock = Some((who, true)),
            (Op::Commit, _) => (self.row_lock, self.row) = (None, ProtocolRow::Done),
            (Op::BindKey | Op::Marker, ProtocolRow::Sending | ProtocolRow::Unknown) => {
                self.row = ProtocolRow::Unknown;
                return NextStep::Stop;
            }
            (Op::Marker, ProtocolRow::Claimed) => self.row = ProtocolRow::Sending,
            (Op::Marker, _) => return NextStep::Stop,
            _ => {}
        }
        NextStep::Continue
    }

    /// What is lost when a caller dies: its open transaction.
    pub fn roll_back(&mut self, who: u8) {
        if self.row == ProtocolRow::Open(who) {
            self.row = ProtocolRow::None;
        }
        if self.row_lock.is_some_and(|(holder, _)| holder == who) {
            self.row_lock = None;
        }
    }

    /// What the world has, in words.
    pub fn describe(&self) -> String {
        let mut words = String::new();
        let mut say = |text: &str| {
            if !words.is_empty() {
                words.push_str(", ");
            }
            words.push_str(text);
        };
        if let Some(who) = self.lock {
            say(&format!("lock of {}", caller_name(who)));
        }
        if self.result {
            say("a note that it is done");
        }
        match self.row {
            ProtocolRow::None => {}
            ProtocolRow::Open(who) => say(&format!("a row in {}'s open transaction", caller_name(who))),
            ProtocolRow::Claimed => say("a row that is not done"),
            ProtocolRow::Sending => say("a row in `sending`"),
            ProtocolRow::Unknown => say("a row in `unknown`"),
            ProtocolRow::Done => say("a row that is done"),
        }
        if let Some((who, noted)) = self.row_lock {
            say(&format!("a row locked by {}{}", caller_name(who), if noted { ", noted as sent" } else { "" }));
        }
        if self.mails > 0 {
            say(&format!("**{} mail{}**", self.mails, if self.mails == 1 { "" } else { "s" }));
        }
        if words.is_empty() { "nothing".into() } else { words }
    }
}
