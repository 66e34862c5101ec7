//! New emails as columns, and the one statement that binds their keys and inserts their rows.

use deadpool_postgres::GenericClient;
use mailonce_core::{
    events::event::{EventKind, NewEvent},
    id::EmailId,
    outbound::email::{Email, Guard},
    time::Time,
};
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::postgres::{
    error::{TxError, TxResult},
    row::write_json,
};

/// Binds keys in sorted order and inserts the rows of the emails that won. An email without a hash binds nothing and
/// always wins: it has no key, or its key is locked and written separately. Returns the emails whose key was free.
///
/// `(… IN …) IS TRUE` makes the planner probe a hashed subplan; a bare `IN` would become a nested-loop join. Large
/// columns are unnested only where they are inserted, so that the CTEs do not copy them.
const INSERT_EMAILS: &str = "
    WITH w AS MATERIALIZED (
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::text[], $6::bigint[], $7::text[])
            WITH ORDINALITY AS w (team, id, hash, bind, kind, at, data, place)
    ), bound AS (
        INSERT INTO keys (team, hash, bind, email)
        SELECT team, hash, bind, id FROM w WHERE hash IS NOT NULL ORDER BY team, hash
        ON CONFLICT DO NOTHING
        RETURNING email
    ), won AS MATERIALIZED (
        SELECT team, id, kind, at, data, place FROM w WHERE hash IS NULL OR id IN (SELECT email FROM bound)
    ), e AS (
        INSERT INTO emails (team, id, rev, bind, ttl, guard, holds, digest, head, body)
        SELECT team, id, 1, bind, ttl, guard, holds, digest, head, body
          FROM unnest($1::uuid[], $2::uuid[], $4::int[], $8::bigint[], $9::text[], $20::text[], $10::bytea[],
                      $11::text[], $12::bytea[])
            AS e (team, id, bind, ttl, guard, holds, digest, head, body)
         WHERE (id IN (SELECT id FROM won)) IS TRUE
    ), h AS (
        INSERT INTO handoffs (team, email, number, attempts, fence, due_at, state, transport, recipients)
        SELECT team, email, number, 0, 0, due_at, state, transport, recipients
          FROM unnest($13::uuid[], $14::uuid[], $15::int[], $16::bigint[], $17::text[], $18::text[], $19::text[])
            AS h (team, email, number, due_at, state, transport, recipients)
         WHERE (email IN (SELECT id FROM won)) IS TRUE
    ), p AS (
        INSERT INTO events_pending (team, at, about, rev, kind, data)
        SELECT team, array_agg(at), array_agg(id), array_agg(1), array_agg(kind), array_agg(data)
          FROM (SELECT * FROM won ORDER BY team, place) AS sorted GROUP BY team
    )
    SELECT email FROM bound";

/// A new email as columns. The caller's task serializes it, so that a worker only copies.
pub(crate) struct EmailInsert {
    pub email: Email,
    body: Arc<[u8]>,
    head: String,
    digest: Vec<u8>,
    /// The event that announces the email.
    kind: EventKind,
    at: Time,
    data: String,
    recipients: Vec<String>,
}

impl EmailInsert {
    /// Serializes an accepted email with this event.
    pub(crate) fn new(email: Email, body: Arc<[u8]>, event: &NewEvent) -> TxResult<Self> {
        Self::with_event(email, body, (event.kind, event.at, write_json(&event.data)?))
    }

    /// Serializes an accepted email with its default event.
    pub(crate) fn of_accepted(email: Email, body: Arc<[u8]>) -> TxResult<Self> {
        let event = (email.accepted_kind(), email.head.created_at, write_json(&email.accepted_data())?);
        Self::with_event(email, body, event)
    }

    fn with_event(email: Email, body: Arc<[u8]>, (kind, at, data): (EventKind, Time, String)) -> TxResult<Self> {
        let recipients =
            email.handoffs.iter().map(|handoff| write_json(&handoff.recipients)).collect::<TxResult<_>>()?;
        let (head, digest) = (write_json(&email.head)?, email.digest.to_bytes());
        Ok(Self { email, body, head, digest, kind, at, data, recipients })
    }

    /// The email and its body.
    pub(crate) fn email_and_body(&self) -> (&Email, &Arc<[u8]>) {
        (&self.email, &self.body)
    }

    /// Approximately how many bytes it adds to the insert statement.
    pub(crate) fn size(&self) -> usize {
        self.body.len() + self.head.len() + 512
    }
}

/// The parameters of [`INSERT_EMAILS`], one vector per column.
#[derive(Default)]
struct EmailInsertColumns<'a> {
    team: Vec<Uuid>,
    id: Vec<Uuid>,
    hash: Vec<Option<Uuid>>,
    head: Vec<&'a str>,
    digest: Vec<&'a [u8]>,
    bind: Vec<i32>,
    ttl: Vec<i64>,
    guard: Vec<Option<&'static str>>,
    holds: Vec<Option<String>>,
    body: Vec<&'a [u8]>,
    kind: Vec<&'static str>,
    at: Vec<i64>,
    data: Vec<&'a str>,
    handoffs: HandoffColumns<'a>,
}

/// The columns of their handoffs.
#[derive(Default)]
struct HandoffColumns<'a> {
    team: Vec<Uuid>,
    email: Vec<Uuid>,
    number: Vec<i32>,
    due_at: Vec<Option<i64>>,
    state: Vec<&'static str>,
    transport: Vec<&'a str>,
    recipients: Vec<&'a str>,
}

impl<'a> EmailInsertColumns<'a> {
    fn add(&mut self, draft: &'a EmailInsert, hash: Option<Uuid>) {
        let email = &draft.email;
        self.team.push(email.team.0);
        self.id.push(email.id.0);
        self.hash.push(hash);
        self.head.push(&draft.head);
        self.digest.push(&draft.digest);
        self.bind.push(email.bind_number as i32);
        self.ttl.push(email.ttl.0);
        self.guard.push(email.guard.map(Guard::as_str));
        self.holds.push(email.holds.to_column());
        self.body.push(&draft.body);
        self.kind.push(draft.kind.as_str());
        self.at.push(draft.at.0);
        self.data.push(&draft.data);
        for (handoff, recipients) in email.handoffs.iter().zip(&draft.recipients) {
            self.handoffs.team.push(email.team.0);
            self.handoffs.email.push(email.id.0);
            self.handoffs.number.push(i32::from(handoff.number));
            self.handoffs.due_at.push(handoff.due_at.map(|at| at.0));
            self.handoffs.state.push(handoff.state.as_str());
            self.handoffs.transport.push(&handoff.transport);
            self.handoffs.recipients.push(recipients);
        }
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 20] {
        [
            &self.team,
            &self.id,
            &self.hash,
            &self.bind,
            &self.kind,
            &self.at,
            &self.data,
            &self.ttl,
            &self.guard,
            &self.digest,
            &self.head,
            &self.body,
            &self.handoffs.team,
            &self.handoffs.email,
            &self.handoffs.number,
            &self.handoffs.due_at,
            &self.handoffs.state,
            &self.handoffs.transport,
            &self.handoffs.recipients,
            &self.holds,
        ]
    }
}

/// Inserts emails. Those with a hash are inserted only if their key is free; returns the ids of those that won.
/// Outside a transaction the statement is its own commit, so its errors are treated as errors at commit.
pub(crate) async fn insert_emails(
    client: &(impl GenericClient + ?Sized),
    drafts: impl Iterator<Item = (&EmailInsert, Option<Uuid>)>,
) -> TxResult<Vec<EmailId>> {
    let mut sheet = EmailInsertColumns::default();
    for (draft, hash) in drafts {
        sheet.add(draft, hash);
    }
    let statement = client.prepare_cached(INSERT_EMAILS).await?;
    let rows = client.query(&statement, &sheet.params()).await.map_err(|error| TxError::at_commit(&error))?;
    rows.iter().map(|row| Ok(EmailId(row.try_get(0)?))).collect()
}
