//! Recent content between the same sender and recipients, as the content guard compares it.

use deadpool_postgres::Transaction;
use mailonce_core::{
    id::{EmailId, TeamId},
    outbound::content_guard::{ContentFingerprint, MAX_IDENTICAL_WINDOW_MS},
    time::Time,
};
use std::collections::BTreeMap;
use uuid::Uuid;

use crate::postgres::{error::TxResult, row::write_json, statements::execute};

/// Whose emails are compared with each other: those of a sender to the same recipients, or those with one meaning.
pub(crate) type ContactPair = (TeamId, [u8; 16]);

/// A recent email between them.
pub(super) type RecentEmail = (Time, EmailId, ContentFingerprint);

/// How long a pair's row is kept after its latest email: longer than emails are compared, because nodes' clocks
/// differ.
const KEPT_MS: i64 = 2 * MAX_IDENTICAL_WINDOW_MS;

const SAVE_PAIRS: &str = "
    UPDATE likenesses l SET latest = w.latest, kept_until = w.kept_until
      FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[]) AS w (team, pair, latest, kept_until)
     WHERE l.team = w.team AND l.pair = w.pair";

/// The recent content between a pair, oldest first.
#[derive(Default)]
pub(crate) struct RecentContent {
    pub(super) latest: Vec<RecentEmail>,
    /// When content was added, if it was.
    pub added_at: Option<Time>,
}

/// Writes the added content.
pub(crate) async fn write_recent_content(
    tx: &Transaction<'_>,
    recent: &BTreeMap<ContactPair, RecentContent>,
) -> TxResult<()> {
    let grown = || recent.iter().filter_map(|(pair, content)| Some((pair, &content.latest, content.added_at?)));
    let (teams, hashes) = pair_columns(grown().map(|(pair, _, _)| pair));
    if teams.is_empty() {
        return Ok(());
    }
    let latest = grown().map(|(_, latest, _)| write_json(latest)).collect::<TxResult<Vec<String>>>()?;
    let kept_until: Vec<i64> = grown().map(|(_, _, at)| at.plus(KEPT_MS).0).collect();
    execute(tx, SAVE_PAIRS, &[&teams, &hashes, &latest, &kept_until]).await.map(drop)
}

/// Splits pairs into a column of teams and a column of hashes.
pub(super) fn pair_columns<'a>(pairs: impl Iterator<Item = &'a ContactPair>) -> (Vec<Uuid>, Vec<Uuid>) {
    pairs.map(|(team, pair)| (team.0, Uuid::from_bytes(*pair))).unzip()
}
