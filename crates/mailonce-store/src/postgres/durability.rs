//! Durability barrier: no answer shows a row whose commit is not proven durable.
//!
//! With synchronous replication, cancelling the wait for the standby makes a commit visible to all nodes although a
//! failover would lose it. So a call that shows rows and ends without a confirmed commit of its own waits. It
//! returns once the standby has flushed everything that was visible when the call ended.
//!
//! A confirmed commit proves everything before it in the WAL, so calls that commit do not wait. Without a synchronous
//! standby no call waits.
//!
//! Waiting calls share one query for the flush positions of the primary and its standbys. All our visible commits lie
//! below the primary's position, because our sessions flush before they commit.

use mailonce_core::ports::store::{Result, StoreError};
use std::{
    cell::Cell,
    future::Future,
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, oneshot, watch},
    task::JoinHandle,
};
use tokio_postgres::{Client, Row, Statement, types::PgLsn};

use super::SharedState;
use crate::postgres::error::{TxError, TxResult, VERB_TIMEOUT, no_answer_in_time};

/// How long an answer waits for its proof. After that the caller gets 503 and retries.
const PROOF_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of one position query. After it, the prover opens another session.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The minimum and maximum pause between two position queries while a standby catches up.
const CATCH_UP_MIN_PAUSE: Duration = Duration::from_millis(1);
const CATCH_UP_MAX_PAUSE: Duration = Duration::from_millis(20);
/// The pause after a failed position query.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The run of the server, its flush position, the configured standbys, and the flush position of each standby that
/// counts. Only roles with `pg_read_all_stats` can see the standbys' positions.
const POSITIONS: &str = "
    SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, pg_current_wal_flush_lsn(),
           current_setting('synchronous_standby_names'), pg_has_role('pg_read_all_stats', 'USAGE'),
           ARRAY(SELECT flush_lsn FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum') AND flush_lsn IS NOT NULL)";
/// A commit that writes only its own WAL record. Once confirmed, it proves everything before it.
const EMPTY_COMMIT: &str = "SELECT FROM pg_logical_emit_message(true, 'mailonce', '')";
const COMMIT_TIMEOUT: &str = "SET statement_timeout = '4s'";

tokio::task_local! {
    /// Whether the last step of the running call was a confirmed commit.
    static PROVEN: Cell<bool>;
}

/// Records that the running call takes a session: what it reads there is not proven durable yet.
pub(crate) fn mark_unproven() {
    // Outside `observe` there is no flag to set.
    PROVEN.try_with(|proven| proven.set(false)).ok();
}

/// Records that the commit of the running call, or of its batch, was confirmed.
pub(crate) fn mark_proven() {
    PROVEN.try_with(|proven| proven.set(true)).ok();
}

/// Runs a call. Returns its result and whether it ended with a confirmed commit.
pub(crate) async fn observe<T>(verb: impl Future<Output = T>) -> (T, bool) {
    let observed = async {
        let answer = verb.await;
        (answer, PROVEN.with(Cell::get))
    };
    PROVEN.scope(Cell::new(false), observed).await
}

/// The calls that wait for a proof.
#[derive(Default)]
pub(crate) struct DurabilityBarrier {
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
    arrived: Notify,
}

impl DurabilityBarrier {
    /// Waits until everything that is visible now has been flushed by the synchronous standbys.
    async fn wait(&self) -> Result<()> {
        let (proven, proof) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(proven);
        self.arrived.notify_one();
        match tokio::time::timeout(PROOF_TIMEOUT, proof).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_closed)) => Err(StoreError::Unreachable("the store is closed".into())),
            Err(_late) => Err(StoreError::Unreachable(format!(
                "no synchronous standby confirmed within {} s what would have been answered",
                PROOF_TIMEOUT.as_secs()
            ))),
        }
    }

    fn take_waiting(&self) -> Vec<oneshot::Sender<()>> {
        mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SharedState {
    /// Runs a call whose result shows rows, and returns the result once those rows are proven durable.
    pub(crate) async fn when_durable<T, E>(&self, verb: impl Future<Output = std::result::Result<T, E>>) -> Result<T>
    where
        StoreError: From<E>,
    {
        let changes = self.connections.server.change_count();
        // Most calls have this timeout themselves. A read without one would wait for a silent server forever.
        let Ok((answer, proven)) = tokio::time::timeout(VERB_TIMEOUT, observe(verb)).await else {
            return Err(no_answer_in_time());
        };
        let answer = answer?;
        if proven || !self.connections.server.has_standby() {
            return Ok(answer);
        }
        self.barrier.wait().await?;
        // The proof holds only for the server that the node knows now.
        if self.connections.server.change_count() != changes {
            return Err(StoreError::Unreachable("the database failed over during the call".into()));
        }
        Ok(answer)
    }
}

/// A waiting call, with the WAL position that must be confirmed, once that is known.
struct Waiter {
    position: Option<u64>,
    proven: oneshot::Sender<()>,
}

/// Releases each waiting call once the standbys have confirmed its WAL position, until the store closes.
pub(crate) async fn run_prover(ledger: Arc<SharedState>, mut closing: watch::Receiver<bool>) {
    let mut prover = DurabilityProver::default();
    let (mut waiters, mut pause): (Vec<Waiter>, _) = (Vec::new(), CATCH_UP_MIN_PAUSE);
    loop {
        if waiters.is_empty() {
            pause = CATCH_UP_MIN_PAUSE;
            tokio::select! {
                () = ledger.barrier.arrived.notified() => {}
                _ = closing.wait_for(|closing| *closing) => break,
            }
        } else {
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(CATCH_UP_MAX_PAUSE);
        }
        waiters.extend(ledger.barrier.take_waiting().into_iter().map(|proven| Waiter { position: None, proven }));
        waiters.retain(|waiter| !waiter.proven.is_closed());
        if waiters.is_empty() {
            continue;
        }
        match prover.check(&ledger).await {
            Ok(Some(reached)) => waiters = release_confirmed(waiters, reached),
            // Another server answered than the one that the pools are on. Reconnect.
            Ok(None) => prover.session = None,
            Err(error) => {
                tracing::debug!("the standby's position is not known: {error:?}");
                prover.session = None;
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
        }
    }
    drop(ledger.barrier.take_waiting());
}

/// The WAL position that the primary has flushed, and the one that the standbys confirmed.
#[derive(Clone, Copy, Debug)]
struct WalPositions {
    flushed: u64,
    confirmed: Option<u64>,
}

/// Releases the calls whose position is confirmed, and returns the others.
fn release_confirmed(waiters: Vec<Waiter>, reached: WalPositions) -> Vec<Waiter> {
    let mut left = Vec::new();
    for mut waiter in waiters {
        let position = *waiter.position.get_or_insert(reached.flushed);
        if reached.confirmed.is_some_and(|confirmed| confirmed >= position) {
            // The caller may have timed out meanwhile.
            waiter.proven.send(()).ok();
        } else {
            left.push(waiter);
        }
    }
    left
}

/// Queries positions on its own session, so that it never waits behind the calls that it releases.
#[derive(Default)]
struct DurabilityProver {
    session: Option<ProverSession>,
    warnings: Arc<AtomicU64>,
}

struct ProverSession {
    client: Client,
    positions: Statement,
    _driver: JoinHandle<()>,
}

impl DurabilityProver {
    /// Reads the WAL positions that the primary has flushed and the standbys have confirmed. `None` when this session is
    /// on another server than the pools, whose positions prove nothing.
    async fn check(&mut self, ledger: &SharedState) -> TxResult<Option<WalPositions>> {
        let checked = tokio::time::timeout(CHECK_TIMEOUT, self.query_positions(ledger)).await;
        checked.unwrap_or_else(|_late| {
            let why = "the database did not answer in time".to_owned();
            Err(TxError::Store(StoreError::Unreachable(why)))
        })
    }

    async fn query_positions(&mut self, ledger: &SharedState) -> TxResult<Option<WalPositions>> {
        if self.session.as_ref().is_none_or(|session| session.client.is_closed()) {
            let (client, driver) = ledger.connections.open_separate_session(&self.warnings).await?;
            client.batch_execute(COMMIT_TIMEOUT).await?;
            let positions = client.prepare(POSITIONS).await?;
            self.session = Some(ProverSession { client, positions, _driver: driver });
        }
        let Some(ProverSession { client, positions, .. }) = &self.session else { return Ok(None) };
        let row = client.query_one(positions, &[]).await?;
        if !ledger.connections.server.is_current(row.try_get(0)?) {
            return Ok(None);
        }
        let (flushed, rule) = (row.try_get::<_, PgLsn>(1)?.into(), StandbyRule::parse(row.try_get(2)?));
        let confirmed = match rule {
            // No standby has to confirm any more.
            None => Some(flushed),
            Some(rule) if row.try_get(3)? => rule.confirmed(read_positions(&row)?),
            Some(_) => {
                let warnings = self.warnings.load(Ordering::SeqCst);
                client.query(EMPTY_COMMIT, &[]).await?;
                (self.warnings.load(Ordering::SeqCst) == warnings).then_some(flushed)
            }
        };
        Ok(Some(WalPositions { flushed, confirmed }))
    }
}

fn read_positions(row: &Row) -> TxResult<Vec<u64>> {
    Ok(row.try_get::<_, Vec<PgLsn>>(4)?.into_iter().map(u64::from).collect())
}

/// The requirement in `synchronous_standby_names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StandbyRule {
    /// All of this many standbys, which the server chooses by priority and marks `sync`.
    First(usize),
    /// Any this many of the standbys that the server marks `quorum`.
    Any(usize),
}

impl StandbyRule {
    /// Parses the setting. `None` when there is no synchronous standby.
    fn parse(names: &str) -> Option<Self> {
        let names = names.trim();
        if names.is_empty() {
            return None;
        }
        let count = |text: &str| text.split_once('(').and_then(|(count, _)| count.trim().parse().ok());
        let word = |word: &str| {
            let head = names.get(..word.len()).filter(|head| head.eq_ignore_ascii_case(word));
            head.and_then(|head| count(names.strip_prefix(head)?))
        };
        let any = word("ANY").map(Self::Any);
        Some(any.unwrap_or_else(|| Self::First(word("FIRST").or_else(|| count(names)).unwrap_or(1))))
    }

    /// The position up to which enough standbys have flushed.
    fn confirmed(self, mut flushed: Vec<u64>) -> Option<u64> {
        flushed.sort_unstable_by(|a, b| b.cmp(a));
        match self {
            Self::First(count) => flushed.last().copied().filter(|_| flushed.len() >= count),
            Self::Any(count) => flushed.get(count.checked_sub(1)?).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_of_the_server_is_understood() {
        for (names, rule) in [
            ("", None),
            ("  ", None),
            ("*", Some(StandbyRule::First(1))),
            ("a, b", Some(StandbyRule::First(1))),
            ("anyone", Some(StandbyRule::First(1))),
            ("2 (a, b)", Some(StandbyRule::First(2))),
            ("FIRST 2 (a, b, c)", Some(StandbyRule::First(2))),
            ("any 2(\"x\", b, c)", Some(StandbyRule::Any(2))),
            ("ANY 1 (*)", Some(StandbyRule::Any(1))),
        ] {
            assert_eq!(StandbyRule::parse(names), rule, "{names}");
        }
    }

    #[test]
    fn enough_standbys_must_have_flushed() {
        assert_eq!(StandbyRule::First(1).confirmed(vec![]), None);
        assert_eq!(StandbyRule::First(2).confirmed(vec![7]), None);
        assert_eq!(StandbyRule::First(2).confirmed(vec![7, 9]), Some(7));
        assert_eq!(StandbyRule::Any(1).confirmed(vec![7, 9]), Some(9));
        assert_eq!(StandbyRule::Any(2).confirmed(vec![7, 9, 8]), Some(8));
        assert_eq!(StandbyRule::Any(2).confirmed(vec![7]), None);
    }

    #[test]
    fn a_position_is_fixed_by_the_first_question() {
        let (proven, mut proof) = oneshot::channel();
        let left = release_confirmed(
            vec![Waiter { position: None, proven }],
            WalPositions { flushed: 10, confirmed: Some(9) },
        );
        assert!(proof.try_recv().is_err());
        // The WAL grows, but the position of this call stays.
        assert!(release_confirmed(left, WalPositions { flushed: 50, confirmed: Some(10) }).is_empty());
        assert!(proof.try_recv().is_ok());
    }
}
