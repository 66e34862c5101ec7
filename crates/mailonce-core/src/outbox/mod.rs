//! The SQL outbox: rows in the user's own PostgreSQL, each an email that mailonce accepts once, or a claim that it offers
//! to workers once.
//!
//! The user's transaction inserts a row next to its business rows, so both commit or neither does. A drainer leases
//! rows, accepts each one under its key, and marks it. A crash between the accept and the mark is harmless: the row is
//! offered again, and the same key gets the same email.

pub mod reports;

use uuid::Uuid;

use crate::{
    id::{ClaimId, EmailId},
    key::{Key, KeyError},
    outbound::email::EmailState,
    problem::Problem,
    retry::{RetryAdvice, backoff_ms},
    string_enum::string_enum,
    time::Time,
    ttl::{self, Ttl},
};

/// The oldest row that is accepted, in milliseconds: one day less than the shortest memory of its key. The day covers
/// the difference between the clocks of the two databases.
pub const MAX_ROW_AGE_MS: i64 = ttl::DEFAULT.0 - 86_400_000;

/// The longest pause before a row is tried again, in milliseconds.
const MAX_PAUSE_MS: i64 = 60_000;

/// How long the key of a row is remembered: never less than 35 days. Rows older than that are parked, so a key is never
/// forgotten before its row is marked.
pub fn row_ttl(requested: Option<Ttl>) -> Ttl {
    requested.filter(|requested| requested.0 > ttl::DEFAULT.0).unwrap_or(ttl::DEFAULT)
}

/// How long a key must be remembered after the end of its email when a row gets that email now: until 35 days from now.
/// The row may be offered again for nearly as long, if its drainer dies before the mark.
pub fn replayed_row_ttl(settled_at: Option<Time>, now: Time) -> Ttl {
    Ttl(ttl::DEFAULT.0 + settled_at.map_or(0, |at| now.since(at).max(0)))
}

string_enum! {
    /// What a row becomes in the ledger.
    RowKind {
        /// An email, from `send`.
        Email = "email",
        /// A claim that waits for a worker, from `claim`.
        Claim = "claim",
    }
}

/// A row that a drainer has leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedRow {
    /// Its id, which `send` or `claim` returned.
    pub id: Uuid,
    /// What it becomes.
    pub kind: RowKind,
    /// The number of this lease. Only the latest lease may mark the row.
    pub fence: i64,
    /// The body of `POST /v1/emails`; or any JSON for the worker of a claim.
    pub payload: String,
    /// The idempotency key that the caller gave.
    pub key: Option<String>,
    /// How often the row was leased, this lease included.
    pub attempts: u32,
}

impl LeasedRow {
    /// The key that the caller gave.
    pub fn given_key(&self) -> Option<Result<Key, KeyError>> {
        self.key.as_deref().map(Key::parse)
    }

    /// The key of a row without one: the id of the outbox and the id of the row. A copy of the database has both, so a
    /// row that was copied is not sent twice.
    pub fn default_key(&self, outbox: Uuid) -> Result<Key, KeyError> {
        Key::parse(&format!("outbox-{outbox}-{}", self.id))
    }
}

/// The state of a row's email, as written back to the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowEmail {
    /// The email.
    pub id: EmailId,
    /// Its state.
    pub state: EmailState,
    /// Its revision. A row never goes back to an earlier one.
    pub rev: u32,
}

impl RowEmail {
    /// Whether the state can still change, so that the drainer looks at the email again. A sent email may still be
    /// delivered or bounce.
    pub fn may_change(&self) -> bool {
        !self.state.is_terminal() || self.state == EmailState::Sent
    }
}

/// Why a row could not be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFailure {
    /// The code of the problem.
    pub code: String,
    /// What was wrong, in a sentence.
    pub detail: String,
}

impl From<&Problem> for RowFailure {
    fn from(problem: &Problem) -> Self {
        Self { code: problem.code.as_str().to_owned(), detail: problem.detail.clone() }
    }
}

/// What the drainer does with a leased row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowOutcome {
    /// The email was accepted, now or before.
    Done(RowEmail),
    /// The claim was offered, now or before.
    Offered(ClaimId),
    /// The row is a dead letter until a person replays it.
    Parked(RowFailure),
    /// The row is offered again after this pause.
    Retry {
        /// The pause in milliseconds.
        pause_ms: i64,
        /// Why it could not be accepted now.
        failure: RowFailure,
    },
}

impl RowOutcome {
    /// What to do after a problem: retry what may succeed later, park everything else. `chance` is uniformly random.
    pub fn after_problem(problem: &Problem, attempts: u32, chance: u64) -> Self {
        let failure = RowFailure::from(problem);
        if problem.code.retry() == RetryAdvice::Never {
            return Self::Parked(failure);
        }
        let asked = problem.extensions.get("retry_after").and_then(serde_json::Value::as_i64).unwrap_or(0);
        let pause_ms = backoff_ms(attempts.saturating_add(1), chance).max(asked.saturating_mul(1_000));
        Self::Retry { pause_ms: pause_ms.clamp(50, MAX_PAUSE_MS), failure }
    }
}

/// The outcome of a leased row, to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRecord {
    /// The row.
    pub row: Uuid,
    /// The number of the lease. Only the latest one may record an outcome.
    pub fence: i64,
    /// The outcome.
    pub outcome: RowOutcome,
}

/// A row that is a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedRow {
    /// Its id.
    pub id: Uuid,
    /// What it would become.
    pub kind: RowKind,
    /// The position in the list, for the next page.
    pub seq: i64,
    /// The idempotency key that the caller gave.
    pub key: Option<String>,
    /// Rows with the same order key are accepted one after the other.
    pub order_key: Option<String>,
    /// Why it was parked.
    pub failure: RowFailure,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was inserted.
    pub created_at: Time,
    /// When it was parked.
    pub parked_at: Time,
}

/// A table of the Debezium outbox router that an outbox reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTable {
    /// Its name, with its schema.
    pub table: String,
    /// The values of its column `type` whose rows are emails.
    pub types: Vec<String>,
    /// Why its rows cannot be read.
    pub problem: Option<String>,
}

/// What an outbox contains, and whether it may be drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxStatus {
    /// The random id from the installation.
    pub outbox_id: Uuid,
    /// The version of its schema.
    pub schema_version: u32,
    /// The server on which an operator installed or confirmed it.
    pub confirmed_identity: String,
    /// The server that it is on now.
    pub current_identity: String,
    /// Rows that wait or are leased.
    pub pending: u64,
    /// Dead letters.
    pub parked: u64,
    /// How long the oldest pending row has waited, in seconds.
    pub oldest_pending_s: Option<i64>,
    /// The table that it reads besides.
    pub source: Option<SourceTable>,
}

impl OutboxStatus {
    /// Whether the database is still the one that an operator confirmed.
    pub fn is_confirmed(&self) -> bool {
        self.confirmed_identity == self.current_identity
    }
}

/// Why an outbox cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboxError {
    /// The schema does not exist or is not an outbox.
    #[error("there is no outbox in the schema {0}")]
    NotInstalled(String),
    /// The schema has another version than this binary.
    #[error("the outbox has schema version {found}, and this mailonce needs {expected}")]
    WrongVersion {
        /// The version of the schema.
        found: u32,
        /// The version of this binary.
        expected: u32,
    },
    /// The database was restored, cloned or failed over.
    #[error("the database was restored, cloned or failed over: {0}")]
    IdentityChanged(String),
    /// The rows of the table that the outbox reads are gone before they can be read, or it has another shape.
    #[error("the table cannot be read: {0}")]
    UnreadableTable(String),
    /// The database did not answer, or refused.
    #[error("the database cannot be used: {0}")]
    Unreachable(String),
}

impl OutboxError {
    /// Whether it stays until an operator acts. A newer schema does not count: the servers are being upgraded.
    pub fn needs_operator(&self) -> bool {
        match self {
            Self::NotInstalled(_) | Self::IdentityChanged(_) | Self::UnreadableTable(_) => true,
            Self::WrongVersion { found, expected } => found < expected,
            Self::Unreachable(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Code;

    fn row(key: Option<&str>) -> LeasedRow {
        LeasedRow {
            id: Uuid::from_u128(2),
            kind: RowKind::Email,
            fence: 1,
            payload: "{}".into(),
            key: key.map(str::to_owned),
            attempts: 1,
        }
    }

    #[test]
    fn a_row_without_a_key_has_one_of_its_outbox() {
        let key = row(None).default_key(Uuid::from_u128(1)).unwrap();
        assert_eq!(key.as_str(), "outbox-00000000-0000-0000-0000-000000000001-00000000-0000-0000-0000-000000000002");
        assert!(row(None).given_key().is_none());
        assert_eq!(row(Some("order-1")).given_key().unwrap().unwrap().as_str(), "order-1");
        assert!(row(Some("é")).given_key().unwrap().is_err());
    }

    #[test]
    fn a_key_is_remembered_longer_than_its_row_is_offered() {
        assert_eq!(row_ttl(None), ttl::DEFAULT);
        assert_eq!(row_ttl(Some(Ttl(1_000))), ttl::DEFAULT);
        assert_eq!(row_ttl(Some(Ttl(ttl::MAX_MS))), Ttl(ttl::MAX_MS));
        assert!(MAX_ROW_AGE_MS < row_ttl(Some(Ttl(ttl::MIN_MS))).0);
    }

    #[test]
    fn the_key_of_an_old_email_is_remembered_from_the_row_on() {
        let now = Time(1_000 * ttl::DEFAULT.0);
        assert_eq!(replayed_row_ttl(None, now), ttl::DEFAULT, "the email has not ended, so the time has not begun");
        let settled = now.plus(-7);
        assert_eq!(replayed_row_ttl(Some(settled), now).expires_at(Some(settled)), Some(now.plus(ttl::DEFAULT.0)));
        assert_eq!(replayed_row_ttl(Some(now.plus(5)), now), ttl::DEFAULT, "the clocks of two nodes differ");
    }

    #[test]
    fn what_may_succeed_later_is_retried_and_everything_else_is_parked() {
        for code in Code::ALL {
            let outcome = RowOutcome::after_problem(&Problem::new(*code, "x"), 1, 7);
            let parked = matches!(outcome, RowOutcome::Parked(_));
            assert_eq!(parked, code.retry() == RetryAdvice::Never, "{}", code.as_str());
        }
        for code in [Code::Unavailable, Code::Internal, Code::Stopped, Code::QuotaExceeded] {
            assert_ne!(code.retry(), RetryAdvice::Never, "{}", code.as_str());
        }
        for code in [Code::KeyMismatch, Code::InvalidField, Code::SenderNotVerified, Code::RecipientSuppressed] {
            assert_eq!(code.retry(), RetryAdvice::Never, "{}", code.as_str());
        }
    }

    #[test]
    fn a_pause_follows_the_problem_and_has_a_limit() {
        let pause = |after: i64| {
            let problem = Problem::new(Code::QuotaExceeded, "x").with_extension("retry_after", after);
            match RowOutcome::after_problem(&problem, 1, 0) {
                RowOutcome::Retry { pause_ms, .. } => pause_ms,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((pause(0), pause(7), pause(86_400)), (50, 7_000, MAX_PAUSE_MS));
    }
}
