//! One round of background work over the teams: what fails for one team does not keep the others waiting.

use mailonce_core::{id::TeamId, ports::store::StoreError};
use std::collections::BTreeSet;

/// After this many teams in a row for which the ledger could not be reached, a round ends. Each of the others would only
/// wait for the same timeout, and so would a server that shuts down.
const MAX_UNREACHABLE: u32 = 3;

/// The errors of a round. They are reported after the other teams had their turn.
#[derive(Default)]
pub(crate) struct TeamRound {
    failed: BTreeSet<TeamId>,
    unreachable_in_a_row: u32,
    last_error: Option<StoreError>,
}

impl TeamRound {
    /// Takes the result of the work for a team. `None` if it failed.
    pub(crate) fn record<T>(&mut self, team: TeamId, result: Result<T, StoreError>) -> Option<T> {
        match result {
            Ok(value) => {
                self.unreachable_in_a_row = 0;
                Some(value)
            }
            Err(error) => {
                tracing::warn!(%team, %error, "the work for a team failed; the other teams are next");
                let is_unreachable = matches!(error, StoreError::Unreachable(_) | StoreError::CommitUnknown(_));
                self.unreachable_in_a_row = if is_unreachable { self.unreachable_in_a_row + 1 } else { 0 };
                self.failed.insert(team);
                self.last_error = Some(error);
                None
            }
        }
    }

    /// Whether the work for this team failed in this round.
    pub(crate) fn has_failed(&self, team: TeamId) -> bool {
        self.failed.contains(&team)
    }

    /// Whether the round must end, because the ledger cannot be reached for any team.
    pub(crate) fn must_end(&self) -> bool {
        self.unreachable_in_a_row >= MAX_UNREACHABLE
    }

    /// The result of the whole round: the last error, if there was one.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, StoreError> {
        self.last_error.map_or(Ok(value), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn team(n: u128) -> TeamId {
        TeamId(Uuid::from_u128(n))
    }

    #[test]
    fn a_round_reports_its_error_after_the_other_teams() {
        let mut round = TeamRound::default();
        for n in 1..=9 {
            let _failed = round.record::<()>(team(n), Err(StoreError::Corrupt("a row".into())));
        }
        assert_eq!(round.record(team(10), Ok(1)), Some(1));
        assert!(!round.must_end() && round.has_failed(team(1)) && !round.has_failed(team(10)));
        assert!(round.finish(()).is_err());
        assert!(TeamRound::default().finish(()).is_ok());
    }

    #[test]
    fn a_round_ends_when_the_ledger_cannot_be_reached() {
        let mut round = TeamRound::default();
        let unreachable = || Err::<(), _>(StoreError::Unreachable("timeout".into()));
        let results = [unreachable(), unreachable(), Ok(()), unreachable(), unreachable(), unreachable()];
        let ends = results.map(|result| {
            let _done = round.record(team(1), result);
            round.must_end()
        });
        assert_eq!(ends, [false, false, false, false, false, true]);
    }
}
