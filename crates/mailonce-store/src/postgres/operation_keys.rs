//! Idempotency keys of operations other than sends.

use deadpool_postgres::Transaction;
use mailonce_core::{
    commit_clock::CommitClock,
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use std::{collections::BTreeSet, sync::Arc};

use super::{
    error::TxResult,
    locked_tx::{load_unit_of_work, lock_scopes},
    row::TeamKey,
    write::write_unit_of_work,
};

/// Binds the key of an operation. Returns the replay if it was performed before, or a mismatch if the key is taken.
pub(crate) async fn bind_or_replay<T>(
    tx: &Transaction<'_>,
    time: &Arc<CommitClock>,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<Option<IdempotentResult<T>>> {
    let Some(operation) = operation else { return Ok(None) };
    let scopes: BTreeSet<TeamKey> = BTreeSet::from([(operation.team, operation.key)]);
    lock_scopes(tx, &scopes).await?;
    let mut work = load_unit_of_work(tx, time, &scopes, &[]).await?;
    if let Some(answer) = work.find_replay(operation, now) {
        return Ok(Some(answer));
    }
    work.bind_operation(operation);
    write_unit_of_work(tx, &work).await?;
    Ok(None)
}
