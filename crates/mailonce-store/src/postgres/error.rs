//! Errors: what the database reported, and whether the call may be retried or has an unknown outcome.

use deadpool_postgres::PoolError;
use mailonce_core::ports::store::StoreError;
use std::{future::Future, time::Duration};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// Why a call has no result.
#[derive(Clone, Debug)]
pub(crate) enum TxError {
    /// A serialization failure, a deadlock or another conflict with a concurrent transaction. This transaction was
    /// rolled back and can be retried.
    Conflict(String),
    /// The database rejected the statement and rolled the transaction back. The connection is still usable.
    Rejected(String),
    /// An earlier statement of the same transaction failed; the error of that statement has the cause.
    Aborted(String),
    /// An error for the caller: a retry here would not help.
    Store(StoreError),
}

/// The result of a step inside a transaction.
pub(crate) type TxResult<T> = Result<T, TxError>;

/// How often a call that was rolled back is tried before its caller gets the error.
pub(crate) const MAX_TRIES: u32 = 20;

/// How long a caller waits for a call. The database cancels a statement after 30 s. A server that is silent for
/// longer is frozen, or a proxy keeps the connection open. Without this timeout the caller could wait forever.
pub(crate) const VERB_TIMEOUT: Duration = Duration::from_secs(45);

/// Runs a call with [`VERB_TIMEOUT`]. After a timeout the outcome is unknown, because the database may still commit.
pub(crate) async fn with_timeout<T, E: From<StoreError>>(verb: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    tokio::time::timeout(VERB_TIMEOUT, verb).await.unwrap_or_else(|_late| Err(no_answer_in_time().into()))
}

/// The error after [`VERB_TIMEOUT`].
pub(crate) fn no_answer_in_time() -> StoreError {
    StoreError::CommitUnknown(format!("the database did not answer within {} s", VERB_TIMEOUT.as_secs()))
}

impl TxError {
    /// Classifies an error that happened before `COMMIT` was sent: nothing was written.
    pub(crate) fn before_commit(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(said) if is_conflict(said.code()) => Self::Conflict(server_message(error)),
            Some(said) if *said.code() == SqlState::IN_FAILED_SQL_TRANSACTION => Self::Aborted(server_message(error)),
            Some(said) if is_corruption(said.code()) => Self::Store(StoreError::Corrupt(server_message(error))),
            Some(said) if is_plain_error(said) => Self::Rejected(server_message(error)),
            _ => Self::Store(StoreError::Unreachable(server_message(error))),
        }
    }

    /// Classifies an error that happened after `COMMIT` was sent. Only severity ERROR proves that the transaction was
    /// rolled back. After a closed connection or a server shutdown the outcome is unknown.
    pub(crate) fn at_commit(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(said) if is_plain_error(said) => Self::before_commit(error),
            _ => Self::Store(StoreError::CommitUnknown(server_message(error))),
        }
    }

    /// Converts the error of a statement inside a larger transaction: `COMMIT` was never sent, so nothing was
    /// written.
    pub(crate) fn into_not_committed(self) -> Self {
        match self {
            Self::Store(StoreError::CommitUnknown(why)) => Self::Store(StoreError::Unreachable(why)),
            other => other,
        }
    }

    /// A row whose content cannot be decoded.
    pub(crate) fn corrupt(what: &str) -> Self {
        Self::Store(StoreError::Corrupt(format!("{what} cannot be read")))
    }
}

impl From<StoreError> for TxError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<tokio_postgres::Error> for TxError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::before_commit(&error)
    }
}

impl From<PoolError> for TxError {
    fn from(error: PoolError) -> Self {
        let text = match &error {
            PoolError::Backend(inner) => server_message(inner),
            PoolError::Timeout(_) => "no connection became free in time".into(),
            other => other.to_string(),
        };
        Self::Store(StoreError::Unreachable(text))
    }
}

impl From<TxError> for StoreError {
    fn from(error: TxError) -> Self {
        match error {
            TxError::Conflict(why) | TxError::Rejected(why) | TxError::Aborted(why) => Self::Unreachable(why),
            TxError::Store(error) => error,
        }
    }
}

/// The combined result of pipelined statements. If some failed, returns the error that caused the others, whatever
/// order they arrived in.
pub(crate) fn first_error<const N: usize>(all: [TxResult<()>; N]) -> TxResult<()> {
    let mut errors: Vec<TxError> = all.into_iter().filter_map(Result::err).collect();
    errors.sort_by_key(|error| matches!(error, TxError::Aborted(_)));
    errors.into_iter().next().map_or(Ok(()), Err)
}

fn is_conflict(code: &SqlState) -> bool {
    [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
}

/// SQLSTATE class XX: the server found its files corrupted or an invariant broken.
fn is_corruption(code: &SqlState) -> bool {
    code.code().starts_with("XX")
}

fn is_plain_error(said: &DbError) -> bool {
    said.parsed_severity() == Some(Severity::Error)
}

/// The server's message. The driver's own text omits it.
pub(crate) fn server_message(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// Runs a call, and retries it after conflicts such as deadlocks: at most `MAX_TRIES` tries, within `VERB_TIMEOUT`.
macro_rules! call_until_final {
    ($verb:expr) => {
        $crate::postgres::error::with_timeout(async {
        let mut tries = 1;
        loop {
            match $verb.await {
                Err($crate::postgres::error::TxError::Conflict(why)) if tries < $crate::postgres::error::MAX_TRIES => {
                    tracing::debug!(%why, tries, "a verb was undone and is tried again");
                    tokio::time::sleep(std::time::Duration::from_millis(u64::from(tries))).await;
                    tries += 1;
                }
                other => break other,
            }
        }
        })
        .await
    };
}
pub(crate) use call_until_final;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_statements_sent_together_the_one_that_failed_first_is_blamed() {
        let echo = || Err(TxError::Aborted("aborted".into()));
        assert!(first_error([Ok(()), Ok(())]).is_ok());
        let blamed = first_error([echo(), Ok(()), Err(TxError::Conflict("deadlock".into())), echo()]);
        assert!(matches!(blamed, Err(TxError::Conflict(_))), "{blamed:?}");
        assert!(matches!(first_error([Ok(()), echo()]), Err(TxError::Aborted(_))));
    }
}
