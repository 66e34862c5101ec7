//! One handoff of the ledger in a few bytes, and back.
//!
//! What has no say in what may happen next is left out: texts, and the instants at which something is due, because
//! in a model everything that may ever be due is due at any moment. A field that the core adds does not compile
//! here until somebody decided about it.

use mailonce_core::{
    handoff::{Handoff, HandoffProgress, HandoffState},
    id::{EmailId, NodeId, TeamId},
    outbound::{
        accept::{Envelope, GuardInput, NewEmail},
        digest::Digest,
        email::{Channel, Email, EmailHead},
    },
    time::Time,
    ttl,
};
use std::sync::Arc;
use uuid::Uuid;

use crate::model::config::{ACCOUNT, ModelConfig, tick_of, tick_start};

/// Whoever holds a handoff. Which worker it is does not matter to the ledger: only fences tell them apart.
pub const HOLDER: NodeId = NodeId(Uuid::from_u128(1));

/// One handoff.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedHandoff {
    /// Where it stands.
    pub state: HandoffState,
    /// Grows with each lease.
    pub fence: u8,
    /// How often it was tried.
    pub attempts: u8,
    /// Whether a process holds it.
    pub is_leased: bool,
    /// Attempts in doubt, one bit each.
    pub unknown_attempts: u8,
    /// The tick of the first marker in doubt.
    pub unknown_since: Option<u8>,
    /// Whether the policy or a person said to try again although it is in doubt.
    pub may_retry_unknown: bool,
    /// Whether the recipient may have it twice.
    pub may_duplicate: bool,
    /// When the attempt on the wire was marked.
    pub marked_at: Option<u8>,
    /// Whether the attempts in doubt went to one account.
    pub same_account: bool,
    /// Whether the next hop was asked, or the attempt repeated.
    pub was_looked_up: bool,
    /// Whether only a person can settle it.
    pub needs_person: bool,
    /// Whether the email's own policy has sent it again.
    pub was_resent_by_policy: bool,
    /// Leases in a row that ended with their worker.
    pub lapsed_leases: u8,
    /// Attempts that failed for the transport's own fault.
    pub transport_faults: u8,
}

impl PackedHandoff {
    /// A handoff that nobody has touched.
    pub fn new(state: HandoffState) -> Self {
        Self::pack(&Handoff::new(0, Envelope { transport: String::new(), recipients: Vec::new() }, state, None))
    }

    /// A handoff as the ledger has it.
    pub fn pack(handoff: &Handoff) -> Self {
        let Handoff {
            number: _,
            transport: _,
            recipients: _,
            state,
            due_at: _,
            attempts,
            fence,
            holder,
            progress: work,
        } = handoff;
        let HandoffProgress {
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
            is_leased: holder.is_some(),
            unknown_attempts: doubts.iter().fold(0, |bits, attempt| bits | attempt_bit(*attempt as u8)),
            unknown_since: doubt_since.map(tick_of),
            may_retry_unknown: *again,
            may_duplicate: *may_duplicate,
            marked_at: marked_at.map(tick_of),
            same_account: account.is_some(),
            was_looked_up: *asked > 0,
            needs_person: *puzzling,
            was_resent_by_policy: *resent,
            lapsed_leases: *lapses as u8,
            transport_faults: *faults as u8,
        }
    }

    /// The handoff that the core is asked about.
    pub fn unpack(&self, number: usize) -> Handoff {
        let envelope = Envelope { transport: String::new(), recipients: Vec::new() };
        let mut handoff = Handoff::new(number as u16, envelope, self.state, None);
        (handoff.fence, handoff.attempts) = (u64::from(self.fence), u32::from(self.attempts));
        handoff.holder = self.is_leased.then_some(HOLDER);
        handoff.progress = HandoffProgress {
            first_try: None,
            marked_at: self.marked_at.map(tick_start),
            doubts: (1..=self.attempts)
                .filter(|n| self.unknown_attempts & attempt_bit(*n) != 0)
                .map(u32::from)
                .collect(),
            doubt_since: self.unknown_since.map(tick_start),
            account: self.same_account.then(|| ACCOUNT.to_owned()),
            asked: u32::from(self.was_looked_up),
            puzzling: self.needs_person,
            resent: self.was_resent_by_policy,
            again: self.may_retry_unknown,
            may_duplicate: self.may_duplicate,
            lapses: u32::from(self.lapsed_leases),
            faults: u32::from(self.transport_faults),
            orphaned: None,
            reason: None,
        };
        handoff
    }

    /// Whether a worker holds it only to repeat an attempt in doubt.
    pub fn is_repeat(&self) -> bool {
        self.unknown_attempts != 0 && !self.may_retry_unknown
    }
}

/// The bit of an attempt.
pub fn attempt_bit(attempt: u8) -> u8 {
    1 << (attempt.saturating_sub(1) & 7)
}

/// The email around the handoffs of a size, without any of them. `None` never happens: its digest is well formed.
pub fn empty_email(size: ModelConfig) -> Option<Email> {
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
    let wish = NewEmail {
        id: EmailId(Uuid::from_u128(1)),
        team: TeamId(Uuid::from_u128(2)),
        head,
        digest: Digest::from_bytes(&[0; 33])?,
        key: None,
        shadow_keys: Vec::new(),
        first_wins: false,
        ttl: ttl::DEFAULT,
        envelopes: Vec::new(),
        due_at: None,
        body: Arc::from([]),
        guard_input: GuardInput::default(),
    };
    Some(wish.into_email(0, None, Time(0)).0)
}
