//! Writing: emails, keys and events go to the database as sets, however many they are.

use deadpool_postgres::{GenericClient, Transaction};
use mailonce_core::{
    email::Email,
    event::NewEvent,
    id::{EmailId, TeamId},
    time::Time,
};
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{
    ground::{Ground, Scoped},
    row::{Target, hash_column, scope_columns, write_json},
    trouble::{Tried, Trouble},
};

/// Binds keys in sorted order and writes what the winners became. A row without a hash binds nothing and always wins:
/// it has no key, or its key is locked and written apart. Gives back the emails whose key was free.
const NEW: &str = "
    WITH w AS MATERIALIZED (
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bytea[], $6::int[], $7::bigint[],
                             $8::text[], $9::bytea[], $10::text[], $11::bigint[], $12::text[])
            AS w (team, id, hash, head, digest, bind, ttl, guard, body, kind, at, data)
    ), bound AS (
        INSERT INTO keys (team, hash, bind, email)
        SELECT team, hash, bind, id FROM w WHERE hash IS NOT NULL ORDER BY team, hash
        ON CONFLICT DO NOTHING
        RETURNING email
    ), won AS MATERIALIZED (
        SELECT * FROM w WHERE hash IS NULL OR id IN (SELECT email FROM bound)
    ), e AS (
        INSERT INTO emails (team, id, rev, bind, ttl, guard, digest, head)
        SELECT team, id, 1, bind, ttl, guard, digest, head FROM won
    ), b AS (
        INSERT INTO bodies (team, email, body) SELECT team, id, body FROM won
    ), h AS (
        INSERT INTO handoffs (team, email, number, attempts, fence, due_at, state, transport, recipients)
        SELECT team, email, number, 0, 0, due_at, state, transport, recipients
          FROM unnest($13::uuid[], $14::uuid[], $15::int[], $16::bigint[], $17::text[], $18::text[], $19::text[])
            AS h (team, email, number, due_at, state, transport, recipients)
         WHERE email IN (SELECT id FROM won)
    ), p AS (
        INSERT INTO events_pending (team, at, about, rev, kind, data) SELECT team, at, id, 1, kind, data FROM won
    )
    SELECT email FROM bound";

const CHANGE_EMAILS: &str = "
    UPDATE emails e
       SET rev = w.rev, ttl = w.ttl, settled_at = w.settled_at, sweep_at = w.sweep_at, resent_as = w.resent_as,
           guard = w.guard
      FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::bigint[], $5::bigint[], $6::bigint[], $7::uuid[], $8::text[])
        AS w (team, id, rev, ttl, settled_at, sweep_at, resent_as, guard)
     WHERE e.team = w.team AND e.id = w.id";

const CHANGE_HANDOFFS: &str = "
    UPDATE handoffs h SET state = w.state, due_at = w.due_at, attempts = w.attempts, fence = w.fence
      FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::bigint[], $6::int[], $7::bigint[])
        AS w (team, email, number, state, due_at, attempts, fence)
     WHERE h.team = w.team AND h.email = w.email AND h.number = w.number
       AND (h.state, h.due_at, h.attempts, h.fence) IS DISTINCT FROM (w.state, w.due_at, w.attempts, w.fence)";

const CHANGE_KEYS: &str = "
    UPDATE keys k
       SET bind = w.bind, email = w.email, digest = w.digest, answer = w.answer, expires_at = w.expires_at,
           slot = w.slot, forgotten_at = w.forgotten_at
      FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::uuid[], $5::bytea[], $6::bytea[], $7::bigint[], $8::uuid[],
                  $9::bigint[])
        AS w (team, hash, bind, email, digest, answer, expires_at, slot, forgotten_at)
     WHERE k.team = w.team AND k.hash = w.hash";

const REMOVE_KEYS: &str = "
    DELETE FROM keys k USING unnest($1::uuid[], $2::uuid[]) AS w (team, hash)
     WHERE k.team = w.team AND k.hash = w.hash";

const NEW_EVENTS: &str = "
    INSERT INTO events_pending (team, at, about, rev, kind, data)
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::int[], $5::text[], $6::text[])";

const NEW_ATTEMPTS: &str = "
    INSERT INTO attempts (team, email, handoff, number, at, outcome, reply)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::text[], $7::text[])";

/// Runs a statement that is prepared once per session.
pub(super) async fn run(
    client: &(impl GenericClient + ?Sized),
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Tried<u64> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.execute(&statement, params).await?)
}

/// Asks with a statement that is prepared once per session.
pub(super) async fn ask(
    client: &(impl GenericClient + ?Sized),
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Tried<Vec<tokio_postgres::Row>> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query(&statement, params).await?)
}

/// A new email as its columns. Made in the caller's task, so that a lane only copies.
pub(super) struct Draft {
    pub email: Email,
    body: Arc<[u8]>,
    head: String,
    digest: Vec<u8>,
    event: NewEvent,
    data: String,
    recipients: Vec<String>,
}

impl Draft {
    /// Writes down what a wish became.
    pub(super) fn new(email: Email, body: Arc<[u8]>, event: NewEvent) -> Tried<Self> {
        let recipients = email.handoffs.iter().map(|handoff| write_json(&handoff.recipients)).collect::<Tried<_>>()?;
        Ok(Self {
            body,
            head: write_json(&email.head)?,
            digest: email.digest.to_bytes(),
            data: write_json(&event.data)?,
            event,
            recipients,
            email,
        })
    }

    /// About how many bytes it is on the wire.
    pub(super) fn size(&self) -> usize {
        self.body.len() + self.head.len() + 512
    }
}

/// Drafts as the columns of [`NEW`].
#[derive(Default)]
struct Sheet<'a> {
    team: Vec<Uuid>,
    id: Vec<Uuid>,
    hash: Vec<Option<Uuid>>,
    head: Vec<&'a str>,
    digest: Vec<&'a [u8]>,
    bind: Vec<i32>,
    ttl: Vec<i64>,
    guard: Vec<Option<&'static str>>,
    body: Vec<&'a [u8]>,
    kind: Vec<&'static str>,
    at: Vec<i64>,
    data: Vec<&'a str>,
    handoff: (Vec<Uuid>, Vec<Uuid>, Vec<i32>),
    due_at: Vec<Option<i64>>,
    state: Vec<&'static str>,
    transport: Vec<&'a str>,
    recipients: Vec<&'a str>,
}

impl<'a> Sheet<'a> {
    fn add(&mut self, draft: &'a Draft, hash: Option<Uuid>) {
        let email = &draft.email;
        self.team.push(email.team.0);
        self.id.push(email.id.0);
        self.hash.push(hash);
        self.head.push(&draft.head);
        self.digest.push(&draft.digest);
        self.bind.push(email.bind as i32);
        self.ttl.push(email.ttl.0);
        self.guard.push(email.guard.map(mailonce_core::email::Guard::word));
        self.body.push(&draft.body);
        self.kind.push(draft.event.kind.word());
        self.at.push(draft.event.at.0);
        self.data.push(&draft.data);
        for (handoff, recipients) in email.handoffs.iter().zip(&draft.recipients) {
            self.handoff.0.push(email.team.0);
            self.handoff.1.push(email.id.0);
            self.handoff.2.push(i32::from(handoff.number));
            self.due_at.push(handoff.due_at.map(|at| at.0));
            self.state.push(handoff.state.word());
            self.transport.push(&handoff.transport);
            self.recipients.push(recipients);
        }
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 19] {
        let (team, email, number) = (&self.handoff.0, &self.handoff.1, &self.handoff.2);
        [
            &self.team, &self.id, &self.hash, &self.head, &self.digest, &self.bind, &self.ttl, &self.guard, &self.body,
            &self.kind, &self.at, &self.data, team, email, number, &self.due_at, &self.state, &self.transport,
            &self.recipients,
        ]
    }
}

/// Inserts drafts. Those with a hash only if their key is free; gives back the ids of these that were first.
/// Outside of a transaction the statement is its own commit, and its errors are those of a commit.
pub(super) async fn insert(
    client: &(impl GenericClient + ?Sized),
    drafts: impl Iterator<Item = (&Draft, Option<Uuid>)>,
) -> Tried<Vec<EmailId>> {
    let mut sheet = Sheet::default();
    for (draft, hash) in drafts {
        sheet.add(draft, hash);
    }
    let statement = client.prepare_cached(NEW).await?;
    let rows = client.query(&statement, &sheet.params()).await.map_err(|error| Trouble::at_commit(&error))?;
    rows.iter().map(|row| Ok(EmailId(row.try_get(0)?))).collect()
}

/// Writes everything that was decided. The commit is the caller's.
pub(super) async fn write(tx: &Transaction<'_>, ground: &Ground) -> Tried<()> {
    write_fresh(tx, ground).await?;
    write_keys(tx, ground).await?;
    write_changed(tx, ground).await?;
    write_attempts(tx, ground).await?;
    write_events(tx, &ground.events).await
}

async fn write_fresh(tx: &Transaction<'_>, ground: &Ground) -> Tried<()> {
    let draft = |(id, body, event): &(EmailId, Arc<[u8]>, NewEvent)| {
        let email = ground.emails.get(id).ok_or_else(|| Trouble::unreadable("an email that was just made"))?;
        Draft::new(email.clone(), body.clone(), event.clone())
    };
    let drafts = ground.fresh.iter().map(draft).collect::<Tried<Vec<Draft>>>()?;
    // A batch may be large; the database takes it in pieces of the same transaction.
    for piece in drafts.chunks(256) {
        insert(tx, piece.iter().map(|draft| (draft, None))).await.map_err(Trouble::undone)?;
    }
    Ok(())
}

async fn write_keys(tx: &Transaction<'_>, ground: &Ground) -> Tried<()> {
    let changed = || ground.keys.iter().filter(|(scope, row)| !row.is_empty() && ground.read.get(scope) != Some(row));
    let (teams, hashes) = scope_columns(changed().map(|(scope, _)| scope));
    if !teams.is_empty() {
        let (mut email, mut digest, mut answer, mut expires_at) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (_, row) in changed() {
            let (id, operation) = match &row.target {
                Some(Target::Email(id)) => (Some(id.0), None),
                Some(Target::Operation { digest, answer, expires_at }) => (None, Some((digest, answer, expires_at.0))),
                None => (None, None),
            };
            email.push(id);
            digest.push(operation.map(|(digest, _, _)| digest.as_slice()));
            answer.push(operation.map(|(_, answer, _)| answer.as_slice()));
            expires_at.push(operation.map(|(_, _, at)| at).or(row.tombstone_until.map(|at| at.0)));
        }
        let bind: Vec<i32> = changed().map(|(_, row)| row.bind as i32).collect();
        let slot: Vec<Option<Uuid>> = changed().map(|(_, row)| row.slot.map(|id| id.0)).collect();
        let forgotten_at: Vec<Option<i64>> = changed().map(|(_, row)| row.forgotten_at.map(|at| at.0)).collect();
        let params: [&(dyn ToSql + Sync); 9] =
            [&teams, &hashes, &bind, &email, &digest, &answer, &expires_at, &slot, &forgotten_at];
        run(tx, CHANGE_KEYS, &params).await?;
    }
    // Rows that were made only to be locked, and rows that say nothing any more.
    let (teams, hashes) = scope_columns(ground.keys.iter().filter(|(_, row)| row.is_empty()).map(|(scope, _)| scope));
    if !teams.is_empty() {
        run(tx, REMOVE_KEYS, &[&teams, &hashes]).await?;
    }
    Ok(())
}

async fn write_changed(tx: &Transaction<'_>, ground: &Ground) -> Tried<()> {
    let changed: Vec<(&Email, Time)> =
        ground.changed.iter().filter_map(|(id, swept)| Some((ground.emails.get(id)?, *swept))).collect();
    if changed.is_empty() {
        return Ok(());
    }
    let (team, id) = email_columns_of(changed.iter().map(|(email, _)| (email.team, email.id)));
    let rev: Vec<i32> = changed.iter().map(|(email, _)| email.rev as i32).collect();
    let ttl: Vec<i64> = changed.iter().map(|(email, _)| email.ttl.0).collect();
    let settled_at: Vec<Option<i64>> = changed.iter().map(|(email, _)| email.settled_at.map(|at| at.0)).collect();
    let sweep_at: Vec<Option<i64>> = changed.iter().map(|(email, swept)| email.next_sweep(*swept).map(|at| at.0)).collect();
    let resent_as: Vec<Option<Uuid>> = changed.iter().map(|(email, _)| email.resent_as.map(|id| id.0)).collect();
    let guard: Vec<_> = changed.iter().map(|(email, _)| email.guard.map(mailonce_core::email::Guard::word)).collect();
    run(tx, CHANGE_EMAILS, &[&team, &id, &rev, &ttl, &settled_at, &sweep_at, &resent_as, &guard]).await?;

    let handoffs = || changed.iter().flat_map(|(email, _)| email.handoffs.iter().map(move |h| (*email, h)));
    let (team, id) = email_columns_of(handoffs().map(|(email, _)| (email.team, email.id)));
    let number: Vec<i32> = handoffs().map(|(_, handoff)| i32::from(handoff.number)).collect();
    let state: Vec<_> = handoffs().map(|(_, handoff)| handoff.state.word()).collect();
    let due_at: Vec<Option<i64>> = handoffs().map(|(_, handoff)| handoff.due_at.map(|at| at.0)).collect();
    let attempts: Vec<i32> = handoffs().map(|(_, handoff)| handoff.attempts as i32).collect();
    let fence: Vec<i64> = handoffs().map(|(_, handoff)| handoff.fence as i64).collect();
    run(tx, CHANGE_HANDOFFS, &[&team, &id, &number, &state, &due_at, &attempts, &fence]).await?;
    Ok(())
}

async fn write_attempts(tx: &Transaction<'_>, ground: &Ground) -> Tried<()> {
    let all = &ground.attempts;
    if all.is_empty() {
        return Ok(());
    }
    let (team, email) = email_columns_of(all.iter().map(|(team, email, _)| (*team, *email)));
    let handoff: Vec<i32> = all.iter().map(|(_, _, attempt)| i32::from(attempt.handoff)).collect();
    let number: Vec<i32> = all.iter().map(|(_, _, attempt)| attempt.number as i32).collect();
    let at: Vec<i64> = all.iter().map(|(_, _, attempt)| attempt.at.0).collect();
    let outcome: Vec<_> = all.iter().map(|(_, _, a)| a.outcome.map(mailonce_core::handoff::Outcome::word)).collect();
    let reply: Vec<&str> = all.iter().map(|(_, _, attempt)| attempt.reply.as_str()).collect();
    run(tx, NEW_ATTEMPTS, &[&team, &email, &handoff, &number, &at, &outcome, &reply]).await?;
    Ok(())
}

/// Leaves events to the sequencer, in order.
pub(super) async fn write_events(tx: &Transaction<'_>, events: &[(TeamId, NewEvent)]) -> Tried<()> {
    if events.is_empty() {
        return Ok(());
    }
    let team: Vec<Uuid> = events.iter().map(|(team, _)| team.0).collect();
    let at: Vec<i64> = events.iter().map(|(_, event)| event.at.0).collect();
    let about: Vec<Uuid> = events.iter().map(|(_, event)| event.about).collect();
    let rev: Vec<i32> = events.iter().map(|(_, event)| event.rev as i32).collect();
    let kind: Vec<&str> = events.iter().map(|(_, event)| event.kind.word()).collect();
    let data = events.iter().map(|(_, event)| write_json(&event.data)).collect::<Tried<Vec<String>>>()?;
    run(tx, NEW_EVENTS, &[&team, &at, &about, &rev, &kind, &data]).await?;
    Ok(())
}

/// Emails as two columns.
pub(super) fn email_columns_of(emails: impl Iterator<Item = Scoped>) -> (Vec<Uuid>, Vec<Uuid>) {
    emails.map(|(team, id)| (team.0, id.0)).unzip()
}

/// The column of a wish's key.
pub(super) fn key_column(key: Option<mailonce_core::key::KeyHash>) -> Option<Uuid> {
    key.map(hash_column)
}
