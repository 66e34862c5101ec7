//! A handoff of the ledger in a few bytes, and back.
//!
//! Fields without an effect on the next action are left out: texts, and due times, since in the model everything may be
//! due at any moment. A new field of the core does not compile here until the model handles it.

use mailonce_core::{
    handoff::{Handoff, HandoffProgress, HandoffState, envelope::Envelope},
    id::{EmailId, NodeId, TeamId},
    outbound::{
        accept::{GuardInput, NewEmail},
        accept_decision::FirstSend,
        digest::Digest,
        email::{Channel, Email, EmailHead},
    },
    time::Time,
    ttl,
};
use std::sync::Arc;
use uuid::Uuid;

use crate::model::config::{ACCOUNT, ModelConfig, tick_of, tick_start};

/// The holder of a handoff. Workers are told apart by fences only.
pub const HOLDER: NodeId = NodeId(Uuid::from_u128(1));

/// One handoff.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedHandoff {
    /// Its state.
    pub state: HandoffState,
    /// Grows with each lease.
    pub fence: u8,
    /// Number of attempts.
    pub attempts: u8,
    /// Whether a process holds a lease.
    pub is_leased: bool,
    /// Attempts with an unknown outcome, one bit each.
    pub unknown_attempts: u8,
    /// The tick of the first marker with an unknown outcome.
    pub unknown_since: Option<u8>,
    /// Whether the policy or an operator ordered a resend in spite of an unknown outcome.
    pub may_retry_unknown: bool,
    /// Whether the recipient may get it twice.
    pub may_duplicate: bool,
    /// When the running attempt was marked.
    pub marked_at: Option<u8>,
    /// Whether the attempts with unknown outcomes used the same account.
    pub same_account: bool,
    /// Whether the next hop was searched, or the attempt repeated.
    pub was_looked_up: bool,
    /// Whether only an operator can resolve it.
    pub needs_person: bool,
    /// Whether the email's policy resent it.
    pub was_resent_by_policy: bool,
    /// Consecutive leases that ended with a crash of their worker.
    pub lapsed_leases: u8,
    /// Attempts that failed because of the transport.
    pub transport_faults: u8,
}

impl PackedHandoff {
    /// A new handoff.
    pub fn new(state: HandoffState) -> Self {
        Self::pack(&Handoff::new(0, Envelope { transport: String::new(), recipients: Vec::new() }, state, None))
    }

    /// Packs a handoff of the ledger.
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
            // The model has no stops.
            parked_by: _,
        } = handoff;
        let HandoffProgress {
            first_attempt_at: _,
            marked_at,
            attempts_in_doubt: doubts,
            in_doubt_since: doubt_since,
            account,
            unknown_checks: asked,
            needs_person: puzzling,
            resent,
            retry_despite_doubt: again,
            may_duplicate,
            lost_leases: lapses,
            transport_failures: faults,
            // Every transport of the model exists.
            transport_missing_since: _,
            reason: _,
            // The model has no events.
            left_without_sent_event: _,
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

    /// The handoff for calls of the core.
    pub fn unpack(&self, number: usize) -> Handoff {
        let envelope = Envelope { transport: String::new(), recipients: Vec::new() };
        let mut handoff = Handoff::new(number as u16, envelope, self.state, None);
        (handoff.fence, handoff.attempts) = (u64::from(self.fence), u32::from(self.attempts));
        handoff.holder = self.is_leased.then_some(HOLDER);
        handoff.progress = HandoffProgress {
            first_attempt_at: None,
            marked_at: self.marked_at.map(tick_start),
            attempts_in_doubt: (1..=self.attempts)
                .filter(|n| self.unknown_attempts & attempt_bit(*n) != 0)
                .map(u32::from)
                .collect(),
            in_doubt_since: self.unknown_since.map(tick_start),
            account: self.same_account.then(|| ACCOUNT.to_owned()),
            unknown_checks: u32::from(self.was_looked_up),
            needs_person: self.needs_person,
            resent: self.was_resent_by_policy,
            retry_despite_doubt: self.may_retry_unknown,
            may_duplicate: self.may_duplicate,
            lost_leases: u32::from(self.lapsed_leases),
            transport_failures: u32::from(self.transport_faults),
            transport_missing_since: None,
            reason: None,
            left_without_sent_event: false,
        };
        handoff
    }

    /// Whether a worker leased it to repeat an attempt with an unknown outcome.
    pub fn is_repeat(&self) -> bool {
        self.unknown_attempts != 0 && !self.may_retry_unknown
    }
}

/// The bit of an attempt.
pub fn attempt_bit(attempt: u8) -> u8 {
    1 << (attempt.saturating_sub(1) & 7)
}

/// An email without handoffs. It is never `None`: its digest is well formed.
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
        policy: None,
        inbox: None,
        template: None,
        identical_place: None,
        erased: None,
    };
    let new_email = NewEmail {
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
    Some(new_email.into_email(&FirstSend::default(), Time(0)).0)
}
