//! Errands: what random senders, workers and agents do with mail that comes in. Few addresses, few keys, few names, so
//! that they often meet.

use mailonce_core::{
    inbound::delivery::{DeliveryOutcome, DeliverySuppression},
    inbox::artifact::ArtifactKind,
    time::Time,
};

use super::{
    DAY, HOUR, MINUTE, SECOND,
    turn::{KeyChoice, OperationSpec, SplitMix64},
};

const ADDRESSES: u8 = 6;
const NODES: u8 = 3;

/// What is done. Things are named by their place, counted from the latest.
#[derive(Clone, Debug)]
pub(super) enum InboundCommand {
    Make { address: u8, client: Option<u8>, catch_all: bool, call: Option<OperationSpec> },
    Change { inbox: u8, address: Option<u8>, catch_all: bool, seen: bool, call: Option<OperationSpec> },
    Remove(u8),
    Find(u8, bool),
    Receive { parcels: Vec<DeliverySpec>, reader: Option<u8>, again: bool },
    Read { node: u8, max: usize },
    File(u8, MessageSpec),
    Settle(u8, u8),
    Replay(u8),
    AttachFetched(u8),
    Consume { artifact: u8, purpose: u8, call: Option<OperationSpec> },
    Apply(u8, u8),
    Watch { inbox: u8, budget: u8, call: Option<OperationSpec> },
    Spend(u8, Option<OperationSpec>),
}

/// A parcel in short.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeliverySpec {
    pub(super) inbox: u8,
    pub(super) key: u8,
    pub(super) known_ms: i64,
    pub(super) refused: Option<DeliverySuppression>,
    pub(super) notice: bool,
}

/// A letter in short.
#[derive(Clone, Debug)]
pub(super) struct MessageSpec {
    pub(super) message_id: Option<u8>,
    pub(super) content: u8,
    pub(super) ancestors: Vec<u8>,
    pub(super) values: Vec<(ArtifactKind, u8)>,
    pub(super) is_authenticated: bool,
    pub(super) has_other_sender: bool,
    /// Who wrote it: one of our own, a machine, or a person.
    pub(super) author: u8,
    pub(super) skipped: bool,
    /// The email of ours that it answers.
    pub(super) email: Option<u8>,
}

/// An address by its number: three names at two domains.
pub(super) fn test_address(n: u8) -> String {
    format!("{}@{}.test", ["a", "b", "c"][usize::from(n % 3)], ["d", "e"][usize::from(n / 3 % 2)])
}

pub(super) fn random_settle(n: u8, now: Time) -> DeliveryOutcome {
    match n % 5 {
        0 => DeliveryOutcome::Done,
        1 => DeliveryOutcome::Refused(DeliverySuppression::Blocked),
        2 => DeliveryOutcome::Retry(now.plus(MINUTE), "busy".into()),
        _ => DeliveryOutcome::Dead("broken".into()),
    }
}

impl InboundCommand {
    pub(super) fn random(chance: &mut SplitMix64) -> Self {
        let call = |chance: &mut SplitMix64| {
            chance.maybe_one_in(4, |chance| OperationSpec(KeyChoice::for_operation(chance), chance.below(2)))
        };
        match chance.below(42) {
            0..=3 => Self::Make {
                address: chance.below(ADDRESSES),
                client: chance.maybe_one_in(3, |chance| chance.below(3)),
                catch_all: chance.one_in(4),
                call: call(chance),
            },
            4..=5 => Self::Change {
                inbox: chance.below(4),
                address: chance.maybe_one_in(2, |chance| chance.below(ADDRESSES)),
                catch_all: chance.one_in(2),
                seen: !chance.one_in(5),
                call: call(chance),
            },
            6 => Self::Remove(chance.below(4)),
            7 => Self::Find(chance.below(ADDRESSES), chance.one_in(2)),
            8..=16 => Self::Receive {
                parcels: (0..=chance.below(3)).map(|_| DeliverySpec::random(chance)).collect(),
                reader: chance.maybe_one_in(2, |chance| chance.below(NODES)),
                again: chance.one_in(12),
            },
            17..=19 => Self::Read { node: chance.below(NODES), max: chance.pick(&[1, 2, 100]) },
            20..=29 => Self::File(chance.below(6), MessageSpec::random(chance)),
            30..=31 => Self::Settle(chance.below(6), chance.below(5)),
            32 => Self::Replay(chance.below(6)),
            33..=35 => Self::Consume { artifact: chance.below(4), purpose: chance.below(2), call: call(chance) },
            36 => Self::Apply(chance.below(4), chance.below(2)),
            37 => Self::Watch { inbox: chance.below(4), budget: chance.below(3), call: call(chance) },
            38..=39 => Self::AttachFetched(chance.below(6)),
            _ => Self::Spend(chance.below(3), call(chance)),
        }
    }
}

impl DeliverySpec {
    fn random(chance: &mut SplitMix64) -> Self {
        Self {
            inbox: chance.below(4),
            key: chance.below(8),
            known_ms: chance.pick(&[SECOND, HOUR, 7 * DAY]),
            refused: chance.maybe_one_in(6, |chance| {
                chance.pick(&[DeliverySuppression::Blocked, DeliverySuppression::ExpiredInbox])
            }),
            notice: chance.one_in(4),
        }
    }
}

impl MessageSpec {
    fn random(chance: &mut SplitMix64) -> Self {
        let value = |chance: &mut SplitMix64| (chance.pick(ArtifactKind::ALL), chance.below(3));
        Self {
            message_id: if chance.one_in(4) { None } else { Some(chance.below(4)) },
            content: chance.below(3),
            ancestors: (0..chance.below(3)).map(|_| chance.below(6)).collect(),
            values: (0..chance.below(3)).map(|_| value(chance)).collect(),
            is_authenticated: chance.one_in(2),
            has_other_sender: chance.one_in(4),
            author: chance.below(10),
            skipped: chance.one_in(6),
            email: chance.maybe_one_in(4, |chance| chance.below(3)),
        }
    }
}
