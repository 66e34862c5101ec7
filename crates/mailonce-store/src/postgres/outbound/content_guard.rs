//! The content guard: recent content between the same sender and recipients, to detect an email that repeats it.
//!
//! The row of a pair is locked before it is read, and inserted if it is missing. Of two equal emails, on one node or
//! on two, the second therefore sees the first.

use deadpool_postgres::Transaction;
use mailonce_core::{
    id::{EmailId, TeamId},
    outbound::{
        accept::NewEmail,
        content_guard::{Comparison, ContentFingerprint, MAX_COMPARED, MAX_IDENTICAL_WINDOW_MS},
        email::Email,
    },
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::postgres::{
    error::TxResult,
    locked_tx::load_more_emails,
    row::{read_json, write_json},
    unit_of_work::{EmailRef, UnitOfWork},
    write::{execute, query_pipelined},
};

/// Whose emails are compared with each other: those of a sender to the same recipients, or those with one meaning.
pub(crate) type ContactPair = (TeamId, [u8; 16]);

/// A recent email between them.
type RecentEmail = (Time, EmailId, ContentFingerprint);

/// How long a pair's row is kept after its latest email: longer than emails are compared, because nodes' clocks
/// differ.
const KEPT_MS: i64 = 2 * MAX_IDENTICAL_WINDOW_MS;

/// Inserts the missing rows and locks the others, in sorted order, as for keys.
const LOCK_PAIRS: &str = "
    INSERT INTO likenesses (team, pair)
    SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS w (team, pair) ORDER BY team, pair
    ON CONFLICT (team, pair) DO UPDATE SET latest = likenesses.latest WHERE false";
const READ_PAIRS: &str = "
    SELECT l.team, l.pair, l.latest FROM unnest($1::uuid[], $2::uuid[]) AS w (team, pair)
      JOIN likenesses l ON l.team = w.team AND l.pair = w.pair";
const SAVE_PAIRS: &str = "
    UPDATE likenesses l SET latest = w.latest, kept_until = w.kept_until
      FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[]) AS w (team, pair, latest, kept_until)
     WHERE l.team = w.team AND l.pair = w.pair";

/// The recent content between a pair, oldest first.
#[derive(Default)]
pub(crate) struct RecentContent {
    latest: Vec<RecentEmail>,
    /// When content was added, if it was.
    pub added_at: Option<Time>,
}

/// Locks and loads the recent content that these emails are compared with.
pub(crate) async fn lock_recent_content<'a>(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    new_emails: impl Iterator<Item = &'a NewEmail> + Send,
) -> TxResult<()> {
    let pairs: BTreeSet<ContactPair> = new_emails
        .flat_map(|new_email| new_email.guard_input.fingerprints().map(|one| (new_email.team, one.pair)))
        .collect();
    if pairs.is_empty() {
        return Ok(());
    }
    let (teams, hashes) = pair_columns(pairs.iter());
    let params: [&(dyn ToSql + Sync); 2] = [&teams, &hashes];
    let answers = query_pipelined(tx, &[(LOCK_PAIRS, &params), (READ_PAIRS, &params)]).await?;
    let mut compared: Vec<EmailRef> = Vec::new();
    for row in answers.last().into_iter().flatten() {
        let pair = (TeamId(row.try_get(0)?), row.try_get::<_, Uuid>(1)?.into_bytes());
        let latest: Vec<RecentEmail> = read_json(row.try_get(2)?, "what was said of late")?;
        compared.extend(latest.iter().map(|(_, id, _)| (pair.0, *id)));
        work.conversations.recent_content.insert(pair, RecentContent { latest, added_at: None });
    }
    load_more_emails(tx, work, compared.into_iter()).await
}

/// Writes the added content.
pub(crate) async fn write_recent_content(
    tx: &Transaction<'_>,
    said: &BTreeMap<ContactPair, RecentContent>,
) -> TxResult<()> {
    let grown = || said.iter().filter_map(|(pair, said)| Some((pair, &said.latest, said.added_at?)));
    let (teams, hashes) = pair_columns(grown().map(|(pair, _, _)| pair));
    if teams.is_empty() {
        return Ok(());
    }
    let latest = grown().map(|(_, latest, _)| write_json(latest)).collect::<TxResult<Vec<String>>>()?;
    let kept_until: Vec<i64> = grown().map(|(_, _, at)| at.plus(KEPT_MS).0).collect();
    execute(tx, SAVE_PAIRS, &[&teams, &hashes, &latest, &kept_until]).await.map(drop)
}

fn pair_columns<'a>(pairs: impl Iterator<Item = &'a ContactPair>) -> (Vec<Uuid>, Vec<Uuid>) {
    pairs.map(|(team, pair)| (team.0, Uuid::from_bytes(*pair))).unzip()
}

impl UnitOfWork {
    /// The latest email in the window that has similar content and was or may still be sent.
    pub(crate) fn find_similar_email(
        &self,
        team: TeamId,
        Comparison { fingerprint, window_ms }: Comparison<'_>,
        now: Time,
    ) -> Option<&Email> {
        let said = self.conversations.recent_content.get(&(team, fingerprint.pair))?;
        said.latest
            .iter()
            .rev()
            .take(MAX_COMPARED)
            .filter(|(at, _, other)| now.since(*at) < window_ms && fingerprint.is_similar_to(other))
            .filter_map(|(_, id, _)| self.emails.get(id))
            .find(|email| !email.is_surely_unsent())
    }

    /// Remembers an email's fingerprint for its sender and recipients, and drops those that are too old to compare.
    pub(crate) fn remember_fingerprint(
        &mut self,
        team: TeamId,
        fingerprint: ContentFingerprint,
        email: EmailId,
        now: Time,
    ) {
        let said = self.conversations.recent_content.entry((team, fingerprint.pair)).or_default();
        said.latest.retain(|(at, ..)| now.since(*at) < MAX_IDENTICAL_WINDOW_MS);
        said.latest.push((now, email, fingerprint));
        let over = said.latest.len().saturating_sub(MAX_COMPARED);
        said.latest.drain(..over);
        said.added_at = Some(now);
    }
}
