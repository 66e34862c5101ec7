//! Errors: what the database said, and what that means for the fate of a verb.

use deadpool_postgres::PoolError;
use mailonce_core::ports::store::StoreError;
use std::{future::Future, time::Duration};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// Why a verb did not come to an answer.
#[derive(Clone, Debug)]
pub(crate) enum TxError {
    /// Two transactions got in each other's way and this one was undone: try again.
    Conflict(String),
    /// The database refused the statement and undid the transaction. The connection is well.
    Rejected(String),
    /// Another statement of the same transaction failed before; its own trouble says why.
    Aborted(String),
    /// Nothing to be done here.
    Store(StoreError),
}

/// What a step of a verb comes to.
pub(crate) type TxResult<T> = Result<T, TxError>;

/// How often a verb that was undone is tried before its caller hears of it.
pub(crate) const MAX_TRIES: u32 = 20;

/// How long a caller waits for a verb. The database itself ends a statement after 30 s; one that does not say a word
/// for longer is frozen, or cut off by something that keeps its connections, and the system would wait for good.
pub(crate) const VERB_TIMEOUT: Duration = Duration::from_secs(45);

/// What a verb comes to, or that nobody can tell: it may still be done when the database wakes up.
pub(crate) async fn with_timeout<T, E: From<StoreError>>(verb: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    match tokio::time::timeout(VERB_TIMEOUT, verb).await {
        Ok(answer) => answer,
        Err(_late) => {
            let why = format!("the database did not answer within {} s", VERB_TIMEOUT.as_secs());
            Err(StoreError::CommitUnknown(why).into())
        }
    }
}

impl TxError {
    /// An error before the commit was asked for: nothing was written, whatever happened.
    pub(crate) fn before_commit(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(said) if is_conflict(said.code()) => Self::Conflict(server_message(error)),
            Some(said) if *said.code() == SqlState::IN_FAILED_SQL_TRANSACTION => Self::Aborted(server_message(error)),
            Some(said) if is_corruption(said.code()) => Self::Store(StoreError::Corrupt(server_message(error))),
            Some(said) if is_plain_error(said) => Self::Rejected(server_message(error)),
            _ => Self::Store(StoreError::Unreachable(server_message(error))),
        }
    }

    /// An error after the commit was asked for. Only a plain ERROR says that the transaction was undone; a closed
    /// connection or a server that ends says nothing.
    pub(crate) fn at_commit(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(said) if is_plain_error(said) => Self::before_commit(error),
            _ => Self::Store(StoreError::CommitUnknown(server_message(error))),
        }
    }

    /// The same trouble in a statement that was part of a larger transaction: the commit was never asked for.
    pub(crate) fn into_not_committed(self) -> Self {
        match self {
            Self::Store(StoreError::CommitUnknown(why)) => Self::Store(StoreError::Unreachable(why)),
            other => other,
        }
    }

    /// A row that cannot be read back.
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
    fn from(trouble: TxError) -> Self {
        match trouble {
            TxError::Conflict(why) | TxError::Rejected(why) | TxError::Aborted(why) => Self::Unreachable(why),
            TxError::Store(error) => error,
        }
    }
}

/// Whether all went well with statements that were sent together. When not, the trouble that began it, whichever of
/// them was heard of first.
pub(crate) fn first_error<const N: usize>(all: [TxResult<()>; N]) -> TxResult<()> {
    let mut troubles: Vec<TxError> = all.into_iter().filter_map(Result::err).collect();
    troubles.sort_by_key(|trouble| matches!(trouble, TxError::Aborted(_)));
    troubles.into_iter().next().map_or(Ok(()), Err)
}

fn is_conflict(code: &SqlState) -> bool {
    [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
}

/// Class XX: the server found its own files or invariants broken.
fn is_corruption(code: &SqlState) -> bool {
    code.code().starts_with("XX")
}

fn is_plain_error(said: &DbError) -> bool {
    said.parsed_severity() == Some(Severity::Error)
}

/// The driver's own text hides what the server said.
pub(crate) fn server_message(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// Runs a verb until no other transaction is in its way, and no longer than patience lasts.
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
