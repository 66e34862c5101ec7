//! Lists of emails, newest first: all of them, those in a rare state, those to one address, or the one under a key.

use deadpool_postgres::GenericClient;
use mailonce_core::{
    id::{EmailId, TeamId},
    key::KeyHash,
    limits,
    outbound::{
        email::{Email, EmailState},
        email_query::{EmailQuery, ResultPage},
    },
};
use uuid::Uuid;

use super::queries::load_key;
use crate::postgres::{
    SharedState,
    error::TxResult,
    row::{email_columns, email_joins, read_emails, write_json},
    statements::query_rows,
};

/// How many emails a list reads at a time.
const EMAILS_PER_READ: usize = 1000;

/// Excludes the email `$2` itself.
const OLDER_EMAILS: &str = concat!(
    "SELECT ",
    email_columns!(),
    " FROM (SELECT * FROM emails WHERE team = $1 AND id < $2 ORDER BY id DESC LIMIT $3) e ",
    email_joins!(),
    " ORDER BY e.id DESC, h.number"
);
/// Emails with a handoff in the state `$4`. Repeats the condition of the partial index `handoffs_rare`, so that
/// PostgreSQL can use the index for any parameter.
const OLDER_EMAILS_IN_RARE_STATE: &str = concat!(
    "SELECT ",
    email_columns!(),
    " FROM (SELECT DISTINCT email FROM handoffs WHERE team = $1 AND email < $2 AND state = $4
             AND state IN ('held', 'unknown', 'failed', 'bounced', 'complained', 'abandoned', 'cancelled')
             ORDER BY email DESC LIMIT $3) rare
       JOIN emails e ON e.team = $1 AND e.id = rare.email ",
    email_joins!(),
    " ORDER BY e.id DESC, h.number"
);
/// The id of the email `$3` places behind the first one that is older than `$2`.
const OLDER_EMAIL_AT: &str = "SELECT id FROM emails WHERE team = $1 AND id < $2 ORDER BY id DESC OFFSET $3 LIMIT 1";
/// Emails from `$3` on that are older than `$2`, and whose head may name an address: its JSON `$4` is part of that of the
/// head.
const OLDER_EMAILS_NAMING: &str = concat!(
    "SELECT ",
    email_columns!(),
    " FROM emails e ",
    email_joins!(),
    " WHERE e.team = $1 AND e.id < $2 AND e.id >= $3 AND position($4 IN e.head) > 0 ORDER BY e.id DESC, h.number"
);

/// Emails, newest first.
pub(crate) async fn emails(shared: &SharedState, team: TeamId, query: &EmailQuery) -> TxResult<ResultPage<Email>> {
    if let Some(key) = query.key {
        return emails_by_key(shared, team, key, query).await;
    }
    let client = shared.connections.client().await?;
    if let (Some(to), None) = (&query.to, query.rare_state()) {
        return emails_to(&client, team, to, query).await;
    }
    let mut page = ResultPage { rows: Vec::new(), next: None };
    let (mut before, mut looked) = (query.before, 0);
    loop {
        // The first read takes one more than fits, to see whether more exist. Later reads are larger because few
        // rows match.
        let chunk = if looked == 0 { query.limit.saturating_add(1).min(EMAILS_PER_READ) } else { EMAILS_PER_READ };
        let emails = older_emails(&client, team, before, chunk, query.rare_state()).await?;
        let ended = emails.len() < chunk;
        for email in emails {
            if page.rows.len() == query.limit || looked == limits::SCAN_ROWS {
                return Ok(page);
            }
            looked += 1;
            page.next = Some(email.id);
            if query.matches(&email) {
                page.rows.push(email);
            }
        }
        if ended {
            page.next = None;
            return Ok(page);
        }
        before = page.next;
    }
}

/// Emails to one address, newest first. PostgreSQL compares the heads, because most emails are to somebody else.
async fn emails_to(
    client: &impl GenericClient,
    team: TeamId,
    to: &str,
    query: &EmailQuery,
) -> TxResult<ResultPage<Email>> {
    let address = write_json(&to)?;
    let mut page = ResultPage { rows: Vec::new(), next: query.before };
    // The first reads are small, because a frequent address fills its page soon.
    let first = query.limit.saturating_add(1).min(EMAILS_PER_READ);
    for places in [first, EMAILS_PER_READ, limits::SCAN_ROWS - EMAILS_PER_READ - first] {
        let before = page.next.map_or(Uuid::max(), |id| id.0);
        let last = query_rows(client, OLDER_EMAIL_AT, &[&team.0, &before, &(places as i64 - 1)]).await?;
        let last: Option<Uuid> = last.first().map(|row| row.try_get(0)).transpose()?;
        let from = last.unwrap_or_default();
        let rows = query_rows(client, OLDER_EMAILS_NAMING, &[&team.0, &before, &from, &address]).await?;
        for email in read_emails(&rows, 0)? {
            if page.rows.len() == query.limit {
                return Ok(page);
            }
            page.next = Some(email.id);
            if query.matches(&email) {
                page.rows.push(email);
            }
        }
        page.next = last.map(EmailId);
        if page.next.is_none() || page.rows.len() == query.limit {
            break;
        }
    }
    Ok(page)
}

/// At most `limit` emails before a position, newest first. With a rare state, only emails with a handoff in that state:
/// the email's own state may differ, because it combines all its handoffs.
async fn older_emails(
    client: &impl GenericClient,
    team: TeamId,
    before: Option<EmailId>,
    limit: usize,
    rare_state: Option<EmailState>,
) -> TxResult<Vec<Email>> {
    // Without a cursor, start at the newest email.
    let (before, limit) = (before.map_or(Uuid::max(), |id| id.0), limit as i64);
    let rows = match rare_state.map(EmailState::as_str) {
        Some(state) => query_rows(client, OLDER_EMAILS_IN_RARE_STATE, &[&team.0, &before, &limit, &state]).await?,
        None => query_rows(client, OLDER_EMAILS, &[&team.0, &before, &limit]).await?,
    };
    read_emails(&rows, 0)
}

/// A key refers to at most one email: the one it is bound to, or was last bound to until that is swept.
async fn emails_by_key(
    shared: &SharedState,
    team: TeamId,
    key: KeyHash,
    query: &EmailQuery,
) -> TxResult<ResultPage<Email>> {
    let email = load_key(shared, team, key).await?.remove(&(team, key)).and_then(|(_, email)| email);
    let wanted = |email: &Email| query.matches(email) && query.before.is_none_or(|before| email.id < before);
    Ok(ResultPage { rows: email.filter(wanted).into_iter().collect(), next: None })
}

#[cfg(test)]
mod tests {
    use super::OLDER_EMAILS_IN_RARE_STATE;
    use crate::postgres::tests::TestDatabase;

    /// Every hundredth handoff of a large ledger failed.
    const HANDOFFS: &str = "
        INSERT INTO handoffs (team, email, number, attempts, fence, state, transport, recipients)
        SELECT '00000000-0000-0000-0000-000000000001', gen_random_uuid(), 0, 1, 1,
               CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'sent' END, 'relay', '[]'
          FROM generate_series(1, 20000) n;
        ANALYZE handoffs";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn rare_states_are_found_by_their_index() {
        let fresh = TestDatabase::create().await;
        drop(fresh.node().await);
        let session = fresh.session().await;
        session.batch_execute(HANDOFFS).await.unwrap();
        // The plan that a prepared statement keeps, whatever its parameters are.
        session.batch_execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off").await.unwrap();
        let prepare = format!("PREPARE page (uuid, uuid, bigint, text) AS {OLDER_EMAILS_IN_RARE_STATE}");
        session.batch_execute(&prepare).await.unwrap();

        let explain = "EXPLAIN EXECUTE page ('00000000-0000-0000-0000-000000000001',
                       'ffffffff-ffff-ffff-ffff-ffffffffffff', 51, 'failed')";
        let rows = session.query(explain, &[]).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert!(plan.iter().any(|step| step.contains("handoffs_rare")), "{plan:#?}");
    }
}
