//! Likenesses: what was said between the same people of late, so that a mail that says it again is noticed.
//!
//! The row of a pair is locked before it is read, whether there is one or not: of two mails that say the same, on one
//! node or on two, the second sees the first.

use deadpool_postgres::Transaction;
use mailonce_core::{
    conversation::likeness::{LATEST, Likeness, WINDOW_MS},
    email::{Email, EmailState},
    id::{EmailId, TeamId},
    port::store::Wish,
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::postgres::{
    careful::load_more,
    ground::{Ground, Scoped},
    row::{read_json, write_json},
    trouble::Tried,
    write::{ask_all, run},
};

/// People of a team between whom mails are compared.
pub(in crate::postgres) type Pair = (TeamId, [u8; 16]);

/// A mail of late.
type Mail = (Time, EmailId, Likeness);

/// How long a pair's row is kept after the latest mail: longer than mails are compared, because clocks of nodes differ.
const KEPT_MS: i64 = 2 * WINDOW_MS;

/// Makes the rows that are missing and locks the others, in order, as keys are locked.
const HOLD: &str = "
    INSERT INTO likenesses (team, pair)
    SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS w (team, pair) ORDER BY team, pair
    ON CONFLICT (team, pair) DO UPDATE SET latest = likenesses.latest WHERE false";
const READ: &str = "
    SELECT l.team, l.pair, l.latest FROM unnest($1::uuid[], $2::uuid[]) AS w (team, pair)
      JOIN likenesses l ON l.team = w.team AND l.pair = w.pair";
const WRITE: &str = "
    UPDATE likenesses l SET latest = w.latest, kept_until = w.kept_until
      FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[]) AS w (team, pair, latest, kept_until)
     WHERE l.team = w.team AND l.pair = w.pair";

/// What was said between two, oldest first.
#[derive(Default)]
pub(in crate::postgres) struct Said {
    latest: Vec<Mail>,
    /// When something was added.
    pub added: Option<Time>,
}

/// Locks and reads what the guard of likeness compares these wishes with.
pub(in crate::postgres) async fn hold<'a>(
    tx: &Transaction<'_>,
    ground: &mut Ground,
    wishes: impl Iterator<Item = &'a Wish> + Send,
) -> Tried<()> {
    let pairs: BTreeSet<Pair> =
        wishes.filter_map(|wish| Some((wish.team, wish.care.likeness.as_ref()?.pair))).collect();
    if pairs.is_empty() {
        return Ok(());
    }
    let (teams, hashes) = columns(pairs.iter());
    let params: [&(dyn ToSql + Sync); 2] = [&teams, &hashes];
    let answers = ask_all(tx, &[(HOLD, &params), (READ, &params)]).await?;
    let mut compared: Vec<Scoped> = Vec::new();
    for row in answers.last().into_iter().flatten() {
        let pair = (TeamId(row.try_get(0)?), row.try_get::<_, Uuid>(1)?.into_bytes());
        let latest: Vec<Mail> = read_json(row.try_get(2)?, "what was said of late")?;
        compared.extend(latest.iter().map(|(_, id, _)| (pair.0, *id)));
        ground.talk.said.insert(pair, Said { latest, added: None });
    }
    load_more(tx, ground, compared.into_iter()).await
}

/// Writes what was added.
pub(super) async fn write(tx: &Transaction<'_>, said: &BTreeMap<Pair, Said>) -> Tried<()> {
    let grown = || said.iter().filter_map(|(pair, said)| Some((pair, &said.latest, said.added?)));
    let (teams, hashes) = columns(grown().map(|(pair, _, _)| pair));
    if teams.is_empty() {
        return Ok(());
    }
    let latest = grown().map(|(_, latest, _)| write_json(latest)).collect::<Tried<Vec<String>>>()?;
    let kept_until: Vec<i64> = grown().map(|(_, _, at)| at.plus(KEPT_MS).0).collect();
    run(tx, WRITE, &[&teams, &hashes, &latest, &kept_until]).await.map(drop)
}

fn columns<'a>(pairs: impl Iterator<Item = &'a Pair>) -> (Vec<Uuid>, Vec<Uuid>) {
    pairs.map(|(team, pair)| (team.0, Uuid::from_bytes(*pair))).unzip()
}

impl Ground {
    /// Whether another mail between the same people says the same and may have left, or may yet.
    pub(in crate::postgres) fn looks_duplicate(&self, wish: &Wish, now: Time) -> bool {
        let Some(likeness) = wish.compared() else { return false };
        let Some(said) = self.talk.said.get(&(wish.team, likeness.pair)) else { return false };
        let stands = |id: &EmailId| {
            let state = self.emails.get(id).map(Email::state);
            !matches!(state, None | Some(EmailState::Failed | EmailState::Cancelled))
        };
        let recent = said.latest.iter().rev().take(LATEST);
        let mut recent = recent.filter(|(at, id, _)| now.since(*at) < WINDOW_MS && stands(id));
        recent.any(|(_, _, other)| likeness.is_like(other))
    }

    /// Remembers what a mail says for those to come.
    pub(in crate::postgres) fn note_likeness(&mut self, team: TeamId, likeness: Likeness, email: EmailId, now: Time) {
        let said = self.talk.said.entry((team, likeness.pair)).or_default();
        said.latest.retain(|(at, ..)| now.since(*at) < WINDOW_MS);
        said.latest.push((now, email, likeness));
        let over = said.latest.len().saturating_sub(LATEST);
        said.latest.drain(..over);
        said.added = Some(now);
    }
}
