//! One handoff of the ledger in a few bytes, and back.
//!
//! What has no say in what may happen next is left out: texts, and the instants at which something is due, because
//! in a model everything that may ever be due is due at any moment. A field that the core adds does not compile
//! here until somebody decided about it.

use mailonce_core::{
    digest::Digest,
    email::{Channel, Email, EmailHead},
    handoff::{Handoff, State, Work},
    id::{EmailId, NodeId, TeamId},
    port::store::{Care, Envelope, Wish},
    time::Time,
    ttl,
};
use std::sync::Arc;
use uuid::Uuid;

use super::size::{ACCOUNT, Size, at, tick};

/// Whoever holds a handoff. Which worker it is does not matter to the ledger: only fences tell them apart.
pub const HOLDER: NodeId = NodeId(Uuid::from_u128(1));

/// One handoff.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Where it stands.
    pub state: State,
    /// Grows with each lease.
    pub fence: u8,
    /// How often it was tried.
    pub attempts: u8,
    /// Whether a process holds it.
    pub held: bool,
    /// Attempts in doubt, one bit each.
    pub doubts: u8,
    /// The tick of the first marker in doubt.
    pub doubt_since: Option<u8>,
    /// Whether the policy or a person said to try again although it is in doubt.
    pub again: bool,
    /// Whether the recipient may have it twice.
    pub may_duplicate: bool,
    /// When the attempt on the wire was marked.
    pub marked_at: Option<u8>,
    /// Whether the attempts in doubt went to one account.
    pub account: bool,
    /// Whether the next hop was asked, or the attempt repeated.
    pub asked: bool,
    /// Whether only a person can settle it.
    pub puzzling: bool,
    /// Whether the email's own policy has sent it again.
    pub resent: bool,
    /// Leases in a row that ended with their worker.
    pub lapses: u8,
    /// Attempts that failed for the transport's own fault.
    pub faults: u8,
}

impl Row {
    /// A handoff that nobody has touched.
    pub fn fresh(state: State) -> Self {
        Self::pack(&Handoff::new(0, Envelope { transport: String::new(), recipients: Vec::new() }, state, None))
    }

    /// A handoff as the ledger has it.
    pub fn pack(handoff: &Handoff) -> Self {
        let Handoff { number: _, transport: _, recipients: _, state, due_at: _, attempts, fence, holder, work } =
            handoff;
        let Work {
            first_try: _,
            marked_at,
            doubts,
            doubt_since,
            account,
            asked,
            puzzling,
            resent,
            again,
            may_duplicate,
            lapses,
            faults,
            // Every transport of the model is there.
            orphaned: _,
            reason: _,
        } = work;
        Self {
            state: *state,
            fence: *fence as u8,
            attempts: *attempts as u8,
            held: holder.is_some(),
            doubts: doubts.iter().fold(0, |bits, attempt| bits | bit(*attempt as u8)),
            doubt_since: doubt_since.map(tick),
            again: *again,
            may_duplicate: *may_duplicate,
            marked_at: marked_at.map(tick),
            account: account.is_some(),
            asked: *asked > 0,
            puzzling: *puzzling,
            resent: *resent,
            lapses: *lapses as u8,
            faults: *faults as u8,
        }
    }

    /// The handoff that the core is asked about.
    pub fn unpack(&self, number: usize) -> Handoff {
        let envelope = Envelope { transport: String::new(), recipients: Vec::new() };
        let mut handoff = Handoff::new(number as u16, envelope, self.state, None);
        (handoff.fence, handoff.attempts) = (u64::from(self.fence), u32::from(self.attempts));
        handoff.holder = self.held.then_some(HOLDER);
        handoff.work = Work {
            first_try: None,
            marked_at: self.marked_at.map(at),
            doubts: (1..=self.attempts).filter(|n| self.doubts & bit(*n) != 0).map(u32::from).collect(),
            doubt_since: self.doubt_since.map(at),
            account: self.account.then(|| ACCOUNT.to_owned()),
            asked: u32::from(self.asked),
            puzzling: self.puzzling,
            resent: self.resent,
            again: self.again,
            may_duplicate: self.may_duplicate,
            lapses: u32::from(self.lapses),
            faults: u32::from(self.faults),
            orphaned: None,
            reason: None,
        };
        handoff
    }

    /// Whether a worker holds it only to repeat an attempt in doubt.
    pub fn is_repeat(&self) -> bool {
        self.doubts != 0 && !self.again
    }
}

/// The bit of an attempt.
pub fn bit(attempt: u8) -> u8 {
    1 << (attempt.saturating_sub(1) & 7)
}

/// The email around the handoffs of a size, without any of them. `None` never happens: its digest is well formed.
pub fn email(size: Size) -> Option<Email> {
    let head = EmailHead {
        from: "agent@example.com".into(),
        to: Vec::new(),
        cc: Vec::new(),
        bcc: Vec::new(),
        subject: String::new(),
        key: None,
        intent: None,
        created_at: Time(0),
        on_unknown: size.on_unknown,
        caller: None,
        channel: Channel::Http,
        version: 1,
        transport: None,
        resend_of: None,
        reason: None,
        answers: None,
        thread: None,
        call: None,
        held_by: None,
    };
    let wish = Wish {
        id: EmailId(Uuid::from_u128(1)),
        team: TeamId(Uuid::from_u128(2)),
        head,
        digest: Digest::from_bytes(&[0; 33])?,
        key: None,
        slots: Vec::new(),
        first_wins: false,
        ttl: ttl::DEFAULT,
        envelopes: Vec::new(),
        due: None,
        body: Arc::from([]),
        care: Care::default(),
    };
    Some(wish.become_email(0, None, Time(0)).0)
}
