//! Random steps of senders, workers and agents with received mail. There are few addresses, keys and Message-IDs, so
//! that steps often collide.

use mailonce_core::{
    inbound::delivery::{DeliveryOutcome, DeliverySuppression},
    inbox::artifact::ArtifactKind,
    time::Time,
};

use crate::conformance::{
    DAY, HOUR, MINUTE, SECOND,
    random::step::{KeyChoice, OperationSpec, SplitMix64},
};

const ADDRESSES: u8 = 6;
const NODES: u8 = 3;

/// What is done. Everything is named by its recency; 0 is the latest.
#[derive(Clone, Debug)]
pub(super) enum InboundCommand {
    Create { address: u8, client: Option<u8>, catch_all: bool, call: Option<OperationSpec> },
    Change { inbox: u8, address: Option<u8>, catch_all: bool, is_current_rev: bool, call: Option<OperationSpec> },
    Remove(u8),
    Find(u8, bool),
    Receive { deliveries: Vec<DeliverySpec>, leased_to: Option<u8>, repeat: bool },
    Lease { node: u8, max: usize },
    File(u8, MessageSpec),
    RecordOutcome(u8, u8),
    Replay(u8),
    AttachFetched(u8),
    Consume { artifact: u8, purpose: u8, only_after: Option<u64>, call: Option<OperationSpec> },
    MarkApplied(u8, u8),
    Watch { inbox: u8, budget: u8, call: Option<OperationSpec> },
    SpendResend(u8, Option<OperationSpec>),
}

/// A random delivery.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeliverySpec {
    pub(super) inbox: u8,
    pub(super) key: u8,
    pub(super) dedup_ms: i64,
    pub(super) suppression: Option<DeliverySuppression>,
    pub(super) is_notice: bool,
}

/// A random message.
#[derive(Clone, Debug)]
pub(super) struct MessageSpec {
    pub(super) message_id: Option<u8>,
    pub(super) content: u8,
    pub(super) ancestors: Vec<u8>,
    pub(super) values: Vec<(ArtifactKind, u8)>,
    pub(super) is_authenticated: bool,
    pub(super) has_other_sender: bool,
    /// 0 is our own address, 1 and 2 are automatic mail, everything else is a person.
    pub(super) author: u8,
    pub(super) skipped: bool,
    /// The email of ours that it replies to.
    pub(super) email: Option<u8>,
}

/// An address by its number: three local parts at two domains.
pub(super) fn test_address(n: u8) -> String {
    format!("{}@{}.test", ["a", "b", "c"][usize::from(n % 3)], ["d", "e"][usize::from(n / 3 % 2)])
}

pub(super) fn random_outcome(n: u8, now: Time) -> DeliveryOutcome {
    match n % 5 {
        0 => DeliveryOutcome::Done,
        1 => DeliveryOutcome::Refused(DeliverySuppression::Blocked),
        2 => DeliveryOutcome::Retry(now.plus(MINUTE), "busy".into()),
        _ => DeliveryOutcome::Dead("broken".into()),
    }
}

impl InboundCommand {
    pub(super) fn random(rng: &mut SplitMix64) -> Self {
        let call = |rng: &mut SplitMix64| {
            rng.maybe_one_in(4, |rng| OperationSpec(KeyChoice::for_operation(rng), rng.below(2)))
        };
        match rng.below(42) {
            0..=3 => Self::Create {
                address: rng.below(ADDRESSES),
                client: rng.maybe_one_in(3, |rng| rng.below(3)),
                catch_all: rng.one_in(4),
                call: call(rng),
            },
            4..=5 => Self::Change {
                inbox: rng.below(4),
                address: rng.maybe_one_in(2, |rng| rng.below(ADDRESSES)),
                catch_all: rng.one_in(2),
                is_current_rev: !rng.one_in(5),
                call: call(rng),
            },
            6 => Self::Remove(rng.below(4)),
            7 => Self::Find(rng.below(ADDRESSES), rng.one_in(2)),
            8..=16 => Self::Receive {
                deliveries: (0..=rng.below(3)).map(|_| DeliverySpec::random(rng)).collect(),
                leased_to: rng.maybe_one_in(2, |rng| rng.below(NODES)),
                repeat: rng.one_in(12),
            },
            17..=19 => Self::Lease { node: rng.below(NODES), max: rng.pick(&[1, 2, 100]) },
            20..=29 => Self::File(rng.below(6), MessageSpec::random(rng)),
            30..=31 => Self::RecordOutcome(rng.below(6), rng.below(5)),
            32 => Self::Replay(rng.below(6)),
            33..=35 => Self::Consume {
                artifact: rng.below(4),
                purpose: rng.below(2),
                only_after: rng.maybe_one_in(2, |rng| rng.pick(&[0, 1, 2])),
                call: call(rng),
            },
            36 => Self::MarkApplied(rng.below(4), rng.below(2)),
            37 => Self::Watch { inbox: rng.below(4), budget: rng.below(3), call: call(rng) },
            38..=39 => Self::AttachFetched(rng.below(6)),
            _ => Self::SpendResend(rng.below(3), call(rng)),
        }
    }
}

impl DeliverySpec {
    fn random(rng: &mut SplitMix64) -> Self {
        Self {
            inbox: rng.below(4),
            key: rng.below(8),
            dedup_ms: rng.pick(&[SECOND, HOUR, 7 * DAY]),
            suppression: rng
                .maybe_one_in(6, |rng| rng.pick(&[DeliverySuppression::Blocked, DeliverySuppression::ExpiredInbox])),
            is_notice: rng.one_in(4),
        }
    }
}

impl MessageSpec {
    fn random(rng: &mut SplitMix64) -> Self {
        let value = |rng: &mut SplitMix64| (rng.pick(ArtifactKind::ALL), rng.below(3));
        Self {
            message_id: if rng.one_in(4) { None } else { Some(rng.below(4)) },
            content: rng.below(3),
            ancestors: (0..rng.below(3)).map(|_| rng.below(6)).collect(),
            values: (0..rng.below(3)).map(|_| value(rng)).collect(),
            is_authenticated: rng.one_in(2),
            has_other_sender: rng.one_in(4),
            author: rng.below(10),
            skipped: rng.one_in(6),
            email: rng.maybe_one_in(4, |rng| rng.below(3)),
        }
    }
}
