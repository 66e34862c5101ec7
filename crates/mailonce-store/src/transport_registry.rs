//! The transports that each node published with its heartbeat. Used by the stores whose nodes all run in one process.

use mailonce_core::{
    handoff::{Handoff, lease::TransportAccount},
    id::NodeId,
    limits,
    time::Time,
};
use std::collections::BTreeMap;

/// For each node, the transports it published last, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct TransportRegistry(BTreeMap<NodeId, (Vec<TransportAccount>, Time)>);

impl TransportRegistry {
    pub(crate) fn publish(&mut self, node: NodeId, mine: &[TransportAccount], now: Time) {
        self.0.retain(|_, (_, at)| now.since(*at) < limits::ORPHANED_AFTER_MS);
        self.0.insert(node, (mine.to_vec(), now));
    }

    fn seen_within(&self, ms: i64, now: Time) -> impl Iterator<Item = &TransportAccount> {
        self.0.values().filter(move |(_, at)| now.since(*at) < ms).flat_map(|(all, _)| all)
    }

    /// Whether a live node has a transport with this name.
    pub(crate) fn is_live(&self, name: &str, now: Time) -> bool {
        self.seen_within(limits::HEARTBEAT_TIMEOUT_MS, now).any(|one| one.name == name)
    }

    /// Whether a node that has the transports `mine` may resolve an unknown handoff of `transport` and `account`.
    ///
    /// The node must have the transport. It may not resolve a handoff of another account while a node that published
    /// that account within `ORPHANED_AFTER_MS` can do so.
    pub(crate) fn may_resolve(
        &self,
        mine: &[TransportAccount],
        (transport, account): (&str, Option<&str>),
        now: Time,
    ) -> bool {
        let Some(own) = mine.iter().find(|own| own.name == transport) else { return false };
        let theirs = |account: &str| {
            let had = |one: &TransportAccount| one.name == transport && one.account == account;
            own.account != account && self.seen_within(limits::ORPHANED_AFTER_MS, now).any(had)
        };
        !account.is_some_and(theirs)
    }

    /// The same for a loaded handoff.
    pub(crate) fn may_resolve_handoff(&self, mine: &[TransportAccount], handoff: &Handoff, now: Time) -> bool {
        self.may_resolve(mine, (&handoff.transport, handoff.progress.account.as_deref()), now)
    }
}
