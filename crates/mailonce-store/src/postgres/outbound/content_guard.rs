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
use std::collections::BTreeSet;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::postgres::{
    error::TxResult,
    locked_tx::load_more_emails,
    outbound::recent_content::{ContactPair, RecentContent, RecentEmail, pair_columns},
    row::read_json,
    statements::query_pipelined,
    unit_of_work::{EmailRef, UnitOfWork},
};

/// Inserts the missing rows and locks the others, in sorted order, as for keys.
const LOCK_PAIRS: &str = "
    INSERT INTO likenesses (team, pair)
    SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS w (team, pair) ORDER BY team, pair
    ON CONFLICT (team, pair) DO UPDATE SET latest = likenesses.latest WHERE false";
const READ_PAIRS: &str = "
    SELECT l.team, l.pair, l.latest FROM unnest($1::uuid[], $2::uuid[]) AS w (team, pair)
      JOIN likenesses l ON l.team = w.team AND l.pair = w.pair";

/// Locks and loads the recent content that these emails are compared with.
pub(crate) async fn lock_recent_content<'a>(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    new_emails: impl Iterator<Item = &'a NewEmail> + Send,
) -> TxResult<()> {
    let pairs: BTreeSet<ContactPair> = new_emails
        .flat_map(|new_email| new_email.guard_input.fingerprints().map(|one| (new_email.team, one.correspondents_hash)))
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
        let latest: Vec<RecentEmail> = read_json(row.try_get(2)?, "recent content")?;
        compared.extend(latest.iter().map(|(_, id, _)| (pair.0, *id)));
        work.conversations.recent_content.insert(pair, RecentContent { latest, added_at: None });
    }
    load_more_emails(tx, work, compared.into_iter()).await
}

impl UnitOfWork {
    /// The latest email in the window that has similar content and was or may still be sent.
    pub(crate) fn find_similar_email(
        &self,
        team: TeamId,
        Comparison { fingerprint, window_ms }: Comparison<'_>,
        now: Time,
    ) -> Option<&Email> {
        let recent = self.conversations.recent_content.get(&(team, fingerprint.correspondents_hash))?;
        recent
            .latest
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
        let recent = self.conversations.recent_content.entry((team, fingerprint.correspondents_hash)).or_default();
        recent.latest.retain(|(at, ..)| now.since(*at) < MAX_IDENTICAL_WINDOW_MS);
        recent.latest.push((now, email, fingerprint));
        let over = recent.latest.len().saturating_sub(MAX_COMPARED);
        recent.latest.drain(..over);
        recent.added_at = Some(now);
    }
}
