//! Rows: how emails and keys are stored in tables and read back.

use mailonce_core::{
    handoff::{Handoff, HandoffProgress, HandoffState},
    id::{EmailId, NodeId, StopId, TeamId},
    key::KeyHash,
    outbound::{
        digest::Digest,
        email::{Email, Guard},
        holds::Holds,
        suppressed_call::SuppressedCall,
    },
    time::Time,
    ttl::Ttl,
};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::postgres::error::{TxError, TxResult};

/// The columns of an email: its row `e`, its handoffs `h`, and the count `s` of suppressed calls. One statement reads
/// all three, so that they come from one snapshot.
macro_rules! email_columns {
    () => {
        "e.team, e.id, e.head, e.digest, e.bind, e.ttl, e.rev, e.settled_at, e.guard, e.holds, e.resent_as, s.count,
         h.number, h.transport, h.recipients, h.state, h.due_at, h.attempts, h.fence, h.holder, h.work, h.parked_by"
    };
}
/// The joins for [`email_columns`]. They also return emails without handoffs.
macro_rules! email_joins {
    () => {
        "LEFT JOIN suppressed s ON s.team = e.team AND s.email = e.id
         LEFT JOIN handoffs h ON h.team = e.team AND h.email = e.id"
    };
}
/// The columns of a key: its row `k`.
macro_rules! key_columns {
    () => {
        "k.team, k.hash, k.bind, k.email, k.digest, k.answer, k.expires_at, k.slot, k.forgotten_at"
    };
}
pub(crate) use {email_columns, email_joins, key_columns};

/// How many columns [`key_columns`] has.
pub(crate) const KEY_COLUMNS: usize = 9;

/// The unit of locking for accepts: one key of one team.
pub(crate) type TeamKey = (TeamId, KeyHash);

/// The content of a key's row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyRow {
    /// How often the key was bound.
    pub bind_number: u32,
    pub target: Option<KeyTarget>,
    /// The email to several recipients that occupies this single-recipient key as a shadow key.
    pub slot: Option<EmailId>,
    pub forgotten_at: Option<Time>,
    /// When the tombstone of an operation is deleted. The tombstone of an email is deleted with the email.
    pub tombstone_until: Option<Time>,
}

/// What a key is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyTarget {
    Email(EmailId),
    Operation { digest: [u8; 32], answer: Vec<u8>, expires_at: Time },
}

impl KeyRow {
    /// Whether the row holds nothing: it was inserted only to be locked.
    pub(crate) fn is_empty(&self) -> bool {
        self.bind_number == 0 && self.slot.is_none()
    }
}

/// A key hash as the table stores it.
pub(crate) fn hash_column(key: KeyHash) -> Uuid {
    Uuid::from_bytes(key.0)
}

/// Splits scopes into a column of teams and a column of key hashes.
pub(crate) fn scope_columns<'a>(scopes: impl IntoIterator<Item = &'a TeamKey>) -> (Vec<Uuid>, Vec<Uuid>) {
    scopes.into_iter().map(|(team, key)| (team.0, hash_column(*key))).unzip()
}

/// Reads [`key_columns`].
pub(crate) fn read_key(row: &Row) -> TxResult<(TeamKey, KeyRow)> {
    let scope = (TeamId(row.try_get(0)?), KeyHash(row.try_get::<_, Uuid>(1)?.into_bytes()));
    let email: Option<Uuid> = row.try_get(3)?;
    let digest: Option<&[u8]> = row.try_get(4)?;
    let target = match (email, digest) {
        (Some(id), _) => Some(KeyTarget::Email(EmailId(id))),
        (None, Some(digest)) => Some(KeyTarget::Operation {
            digest: digest.try_into().map_err(|_short| TxError::corrupt("the digest of an operation"))?,
            answer: row.try_get::<_, Option<Vec<u8>>>(5)?.unwrap_or_default(),
            expires_at: Time(row.try_get::<_, Option<i64>>(6)?.unwrap_or_default()),
        }),
        (None, None) => None,
    };
    let until: Option<i64> = row.try_get(6)?;
    let tombstone_until = until.filter(|_| target.is_none()).map(Time);
    let key = KeyRow {
        bind_number: row.try_get::<_, i32>(2)? as u32,
        target,
        slot: row.try_get::<_, Option<Uuid>>(7)?.map(EmailId),
        forgotten_at: row.try_get::<_, Option<i64>>(8)?.map(Time),
        tombstone_until,
    };
    Ok((scope, key))
}

/// Reads [`email_columns`] that begin at column `at`. The rows of one email must be adjacent and ordered by handoff.
pub(crate) fn read_emails(rows: &[Row], at: usize) -> TxResult<Vec<Email>> {
    let mut emails: Vec<Email> = Vec::new();
    for row in rows {
        let Some(id) = row.try_get::<_, Option<Uuid>>(at + 1)? else {
            continue;
        };
        if emails.last().is_none_or(|last| last.id.0 != id) {
            emails.push(read_email(row, at)?);
        }
        if let (Some(email), Some(handoff)) = (emails.last_mut(), read_handoff(row, at + 12)?) {
            // A node of an earlier release writes the guard alone.
            if handoff.state == HandoffState::Held && email.holds.is_empty() {
                email.holds = email.guard.into();
            }
            email.handoffs.push(handoff);
        }
    }
    Ok(emails)
}

fn read_email(row: &Row, at: usize) -> TxResult<Email> {
    let head: &str = row.try_get(at + 2)?;
    let guard: Option<&str> = row.try_get(at + 8)?;
    Ok(Email {
        team: TeamId(row.try_get(at)?),
        id: EmailId(row.try_get(at + 1)?),
        head: serde_json::from_str(head).map_err(|why| TxError::corrupt(&format!("the head of an email ({why})")))?,
        digest: Digest::from_bytes(row.try_get(at + 3)?).ok_or_else(|| TxError::corrupt("a digest"))?,
        bind_number: row.try_get::<_, i32>(at + 4)? as u32,
        ttl: Ttl(row.try_get(at + 5)?),
        rev: row.try_get::<_, i32>(at + 6)? as u32,
        settled_at: row.try_get::<_, Option<i64>>(at + 7)?.map(Time),
        guard: guard.map(|word| Guard::parse(word).ok_or_else(|| TxError::corrupt("a guard"))).transpose()?,
        holds: Holds::from_column(row.try_get(at + 9)?).ok_or_else(|| TxError::corrupt("the holds of an email"))?,
        resent_as: row.try_get::<_, Option<Uuid>>(at + 10)?.map(EmailId),
        handoffs: Vec::new(),
        suppressed: row.try_get::<_, Option<i64>>(at + 11)?.unwrap_or_default() as u64,
    })
}

fn read_handoff(row: &Row, at: usize) -> TxResult<Option<Handoff>> {
    let Some(number) = row.try_get::<_, Option<i32>>(at)? else {
        return Ok(None);
    };
    let recipients: &str = row.try_get(at + 2)?;
    let state: &str = row.try_get(at + 3)?;
    Ok(Some(Handoff {
        number: number as u16,
        transport: row.try_get(at + 1)?,
        recipients: read_json(recipients, "the recipients of a handoff")?,
        state: HandoffState::parse(state).ok_or_else(|| TxError::corrupt("the state of a handoff"))?,
        due_at: row.try_get::<_, Option<i64>>(at + 4)?.map(Time),
        attempts: row.try_get::<_, i32>(at + 5)? as u32,
        fence: row.try_get::<_, i64>(at + 6)? as u64,
        holder: row.try_get::<_, Option<Uuid>>(at + 7)?.map(NodeId),
        progress: match row.try_get::<_, Option<&str>>(at + 8)? {
            Some(work) => read_json(work, "what happened to a handoff")?,
            None => HandoffProgress::default(),
        },
        parked_by: row.try_get::<_, Option<Uuid>>(at + 9)?.map(StopId),
    }))
}

/// Reads suppressed calls, oldest first.
pub(crate) fn read_suppressed_calls(latest: Option<&str>) -> TxResult<Vec<SuppressedCall>> {
    latest.map_or(Ok(Vec::new()), |text| read_json(text, "the suppressed calls of an email"))
}

/// Reads JSON that this store wrote.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(text: &str, what: &str) -> TxResult<T> {
    serde_json::from_str(text).map_err(|why| TxError::corrupt(&format!("{what} ({why})")))
}

/// Writes JSON.
pub(crate) fn write_json(value: &impl serde::Serialize) -> TxResult<String> {
    serde_json::to_string(value).map_err(|why| TxError::Rejected(format!("cannot be written as JSON: {why}")))
}
