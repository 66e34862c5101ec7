//! Detection of dead nodes without a wall clock.
//!
//! A node updates its row in `nodes` with each heartbeat. This node considers another dead when its row has not
//! changed for [`limits::HEARTBEAT_TIMEOUT_MS`] of this node's monotonic clock. The clocks of the database and of
//! other nodes do not matter. So a promoted standby with a fast clock does not turn every handoff `unknown`.

use mailonce_core::{id::NodeId, limits};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// The heartbeat value in a row. Only its change matters, so the database's clock may be wrong.
macro_rules! beat {
    () => {
        "(extract(epoch FROM peer.seen_at) * 1000000)::bigint"
    };
}
/// A lease holder is dead when it has no row, or when its row still shows the heartbeat that timed out ($2, $3).
macro_rules! holder_is_gone {
    ($row:literal) => {
        concat!(
            "(NOT EXISTS (SELECT FROM nodes peer WHERE peer.id = ",
            $row,
            ".holder) OR EXISTS (SELECT FROM nodes peer JOIN unnest($2::uuid[], $3::bigint[]) AS s (id, beat)
                                   ON s.id = peer.id AND s.beat = ",
            beat!(),
            " WHERE peer.id = ",
            $row,
            ".holder))"
        )
    };
}
pub(crate) use {beat, holder_is_gone};

/// How long a peer may go without a heartbeat.
const MAX_SILENCE: Duration = Duration::from_millis(limits::HEARTBEAT_TIMEOUT_MS as u64);
/// The longest gap between two observations. After a longer gap, peers may have been unable to reach the database
/// too, so all timeouts start again.
const MAX_OBSERVATION_GAP: Duration = Duration::from_millis(limits::HEARTBEAT_TIMEOUT_MS as u64 / 2);
/// How long the row of a dead node is kept.
const ROW_KEPT: Duration = Duration::from_mins(10);

/// The peers as last observed.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// The heartbeat in a peer's row, and when this node first saw that value.
    heartbeats: HashMap<NodeId, (i64, Instant)>,
    last_observed: Option<Instant>,
}

/// Dead nodes. Each counts as dead only while its row still shows this heartbeat.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SilentPeers {
    pub nodes: Vec<Uuid>,
    pub beats: Vec<i64>,
    /// Rows that can be deleted.
    pub expired: Vec<Uuid>,
}

impl Peers {
    /// Records the rows that were read at `at`, and returns the peers whose heartbeat timed out.
    pub(crate) fn observe(&mut self, rows: &[(NodeId, i64)], at: Instant) -> SilentPeers {
        let pause = self.last_observed.replace(at).map(|before| at.saturating_duration_since(before));
        if pause.is_none_or(|pause| pause > MAX_OBSERVATION_GAP) {
            self.heartbeats.clear();
        }
        let before = std::mem::take(&mut self.heartbeats);
        let mut silent = SilentPeers::default();
        for (node, beat) in rows {
            let known = before.get(node).filter(|(seen, _)| seen == beat);
            let since = known.map_or(at, |(_, since)| *since);
            self.heartbeats.insert(*node, (*beat, since));
            let silence = at.saturating_duration_since(since);
            if silence >= MAX_SILENCE {
                silent.nodes.push(node.0);
                silent.beats.push(*beat);
            }
            if silence >= ROW_KEPT {
                silent.expired.push(node.0);
            }
        }
        silent
    }
}

#[cfg(test)]
impl Peers {
    /// Makes all heartbeats older by this much, as if they had been observed continuously since.
    pub(crate) fn age(&mut self, by: Duration) {
        for (_, since) in self.heartbeats.values_mut() {
            *since -= by;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: NodeId = NodeId(Uuid::from_u128(1));

    /// Observes every 3 s for a while. Returns the peers that are silent at the end.
    fn observe_every_3_s(peers: &mut Peers, from: Instant, seconds: u64, beat: impl Fn(u64) -> i64) -> SilentPeers {
        let looks = (0..=seconds).step_by(3).map(|s| peers.observe(&[(PEER, beat(s))], from + Duration::from_secs(s)));
        looks.last().unwrap_or_default()
    }

    #[test]
    fn a_peer_is_gone_after_fifteen_seconds_without_a_heartbeat() {
        let (start, mut peers) = (Instant::now(), Peers::default());
        assert_eq!(observe_every_3_s(&mut peers, start, 12, |_| 7), SilentPeers::default());
        let gone = observe_every_3_s(&mut peers, start + Duration::from_secs(15), 0, |_| 7);
        assert_eq!((gone.nodes, gone.beats, gone.expired), (vec![PEER.0], vec![7], vec![]));
    }

    #[test]
    fn any_change_is_a_sign_of_life_whatever_clock_wrote_it() {
        let (start, mut peers) = (Instant::now(), Peers::default());
        // The database's clock runs backwards, then a day ahead.
        assert_eq!(observe_every_3_s(&mut peers, start, 60, |s| 1_000 - s as i64), SilentPeers::default());
        let later = start + Duration::from_secs(63);
        assert_eq!(observe_every_3_s(&mut peers, later, 60, |s| 86_400_000_000 + s as i64), SilentPeers::default());
    }

    #[test]
    fn silence_is_counted_anew_after_a_pause() {
        let (start, mut peers) = (Instant::now(), Peers::default());
        observe_every_3_s(&mut peers, start, 12, |_| 7);
        // The database was unreachable, so no peer could send a heartbeat.
        assert_eq!(observe_every_3_s(&mut peers, start + Duration::from_secs(40), 12, |_| 7), SilentPeers::default());
    }

    #[test]
    fn rows_of_processes_that_are_gone_are_dropped_later() {
        let (start, mut peers) = (Instant::now(), Peers::default());
        assert_eq!(observe_every_3_s(&mut peers, start, 597, |_| 7).expired, Vec::<Uuid>::new());
        assert_eq!(observe_every_3_s(&mut peers, start + Duration::from_mins(10), 0, |_| 7).expired, [PEER.0]);
    }
}
