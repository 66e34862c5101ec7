//! Handoffs: leases, actions, and recovery of the leases of dead nodes. The email's row lock covers its handoffs.

use deadpool_postgres::{GenericClient, Transaction};
use mailonce_core::{
    control::{
        audit::act::Act,
        budget::{BudgetUsage, must_refund_charges},
        stop::Stops,
    },
    handoff::{
        action::{ActionLimits, HandoffAction, HandoffActionStatus},
        lease::{Backlog, HandoffActionResult, LeaseRequest, LeasedHandoff, OrphanBacklog, TransportAccount},
    },
    id::{EmailId, NodeId, TeamId},
    installation::{Heartbeat, RecoveryCounts},
    limits,
    operation::{IdempotentResult, KeyedOperation},
    outbound::email::Email,
    time::Time,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
    time::Instant,
};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::postgres::{
    SharedState,
    call_batcher::{BatchedCall, CallBatcher},
    control::{budgets, stops},
    conversation::{is_current_reply, update_message_progress},
    error::{TxError, TxResult, call_until_final},
    events::notices::reclaim_notices,
    handoff::handoff_rows::{load_locked_emails, read_handoff_ref},
    inbound::deliveries,
    locked_tx::{load_unit_of_work, lock_available_emails, lock_emails, lock_scopes, read_email_rows},
    outbound::queries,
    peers::{SilentPeers, beat, holder_is_gone},
    row::{TeamKey, read_emails},
    statements::{execute, query_rows},
    unit_of_work::{EmailRef, UnitOfWork},
    upkeep::database_clock,
    write::email_ref_columns,
};

/// Due handoffs in order, skipping emails that other workers have locked. The emails are read again under the lock,
/// because this statement may have read older versions.
const DUE: &str = "
    SELECT h.team, h.email, h.number
      FROM handoffs h JOIN emails e ON e.team = h.team AND e.id = h.email
     WHERE h.transport = $1 AND h.state IN ('queued', 'scheduled') AND h.due_at IS NOT NULL AND h.due_at <= $2
       AND h.parked_by IS NULL AND (h.state = 'queued' OR h.due_at <= $5::bigint)
       AND NOT EXISTS (SELECT FROM unnest($4::text[]) AS busy (domain) WHERE strpos(h.recipients, busy.domain) > 0)
     ORDER BY h.due_at, h.email, h.number LIMIT $3
       FOR UPDATE OF e SKIP LOCKED";
/// Due unknown handoffs at the transports of the calling node. An attempt made with another account under the same
/// transport name is left to a node that published that account recently.
const DUE_UNKNOWN: &str = "
    SELECT h.team, h.email, h.number
      FROM unnest($3::text[], $4::text[]) AS mine (name, account)
      JOIN handoffs h ON h.transport = mine.name
     WHERE h.state = 'unknown' AND h.due_at <= $1
       AND NOT EXISTS (SELECT FROM transports t
            WHERE t.name = h.transport AND t.account <> mine.account AND t.account = h.work::json ->> 'account'
              AND t.seen_at > now() - $5 * interval '1 millisecond')
     ORDER BY h.due_at, h.email, h.number LIMIT $2";
const PUBLISH_TRANSPORTS: &str = "
    INSERT INTO transports (name, account, seen_at)
    SELECT name, account, now() FROM unnest($1::text[], $2::text[]) AS mine (name, account) ORDER BY name, account
        ON CONFLICT (name, account) DO UPDATE SET seen_at = now()";
const FORGET_TRANSPORTS: &str = "DELETE FROM transports WHERE seen_at < now() - interval '1 day'";
/// Finds the transports with a backlog by skipping along the index, so that a long queue costs nothing extra.
const UNCLAIMED: &str = "
    WITH RECURSIVE waiting (name) AS (
        (SELECT min(transport) FROM handoffs
          WHERE state IN ('queued', 'scheduled') AND due_at IS NOT NULL AND parked_by IS NULL)
        UNION ALL
        SELECT (SELECT min(transport) FROM handoffs
                 WHERE state IN ('queued', 'scheduled') AND due_at IS NOT NULL AND parked_by IS NULL
                   AND transport > name)
          FROM waiting WHERE name IS NOT NULL),
    parked (name) AS (SELECT DISTINCT transport FROM handoffs WHERE parked_by IS NOT NULL),
    doubted (name) AS (
        (SELECT min(transport) FROM handoffs WHERE state = 'unknown')
        UNION ALL
        SELECT (SELECT min(transport) FROM handoffs WHERE state = 'unknown' AND transport > name)
          FROM doubted WHERE name IS NOT NULL),
    unclaimed AS (
        SELECT name FROM waiting UNION SELECT name FROM parked UNION SELECT name FROM doubted
        EXCEPT SELECT unnest($1::text[])
        EXCEPT SELECT name FROM transports WHERE seen_at > now() - $2 * interval '1 millisecond')
    SELECT h.team, h.transport, count(*) FILTER (WHERE h.state <> 'unknown'), count(*) FILTER (WHERE h.state = 'unknown')
      FROM unclaimed u JOIN handoffs h ON h.transport = u.name
       AND (h.state IN ('queued', 'scheduled') AND h.due_at IS NOT NULL OR h.state = 'unknown')
     GROUP BY h.team, h.transport ORDER BY h.team, h.transport COLLATE \"C\"";
const OPEN_AT: &str = "
    SELECT DISTINCT team, email FROM (
        SELECT team, email FROM handoffs
         WHERE state IN ('queued', 'scheduled') AND due_at IS NOT NULL AND parked_by IS NULL AND transport = $1
        UNION ALL SELECT team, email FROM handoffs WHERE parked_by IS NOT NULL AND transport = $1
        UNION ALL SELECT team, email FROM handoffs WHERE state IN ('leased', 'sending') AND transport = $1
        UNION ALL SELECT team, email FROM handoffs WHERE state = 'unknown' AND transport = $1) open
     WHERE (team, email) > ($2, $3) ORDER BY team, email LIMIT $4";
const NODES: &str = concat!("SELECT peer.id, ", beat!(), " FROM nodes peer");
/// Handoffs leased by dead nodes.
const LEASED_BY_GONE_NODES: &str = concat!(
    "
    SELECT h.team, h.email, h.number, h.holder FROM handoffs h JOIN emails e ON e.team = h.team AND e.id = h.email
     WHERE h.state IN ('leased', 'sending') AND h.holder IS NOT NULL AND h.holder <> $1 AND ",
    holder_is_gone!("h"),
    " ORDER BY h.email, h.number LIMIT $4
       FOR UPDATE OF e SKIP LOCKED"
);
const HEARTBEAT: &str = "
    INSERT INTO nodes (id, seen_at) VALUES ($1, now()) ON CONFLICT (id) DO UPDATE SET seen_at = now()";
const SAVE_SEEN_AT: &str =
    "UPDATE install SET seen_at = $1::bigint WHERE seen_at IS NULL OR seen_at < $1::bigint - 60000";
const READ_SEEN_AT: &str = concat!("SELECT i.seen_at, ", database_clock!(), " FROM install i");
const FORGET_NODES: &str = "DELETE FROM nodes WHERE id = ANY($1)";
/// The bodies of emails, and their frozen bytes for these transports.
const SELECT_BYTES: &str = "
    SELECT e.id, e.body, x.bytes FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS w (team, id, transport)
      JOIN emails e ON e.team = w.team AND e.id = w.id
      LEFT JOIN wires x ON x.team = w.team AND x.email = w.id AND x.transport = w.transport";
const EVIDENCE_EXISTS: &str = "SELECT FROM evidence WHERE team = $1 AND email = $2 AND once = $3";
const BY_REMOTE_ID: &str = "
    SELECT email, handoff FROM attempts WHERE team = $1 AND remote_id = $2
     ORDER BY email, handoff, number LIMIT 1";
const COUNT_WAITING: &str = "
    SELECT transport, count(*), min(due_at) FROM (
        SELECT transport, due_at FROM handoffs
         WHERE state IN ('queued', 'scheduled') AND due_at IS NOT NULL AND parked_by IS NULL
        UNION ALL SELECT transport, due_at FROM handoffs WHERE parked_by IS NOT NULL) waiting
     GROUP BY transport ORDER BY transport";
const COUNT_UNKNOWN: &str = "SELECT count(*) FROM handoffs WHERE state = 'unknown'";

/// Leases due handoffs to a worker. Stopped handoffs are parked and leave the queue, so another round finds others.
pub(crate) async fn lease_handoffs(
    shared: &SharedState,
    request: &LeaseRequest,
    now: Time,
) -> TxResult<Vec<LeasedHandoff>> {
    loop {
        let (leased, parked) = lease_or_park(shared, request, now).await?;
        if parked == 0 || !leased.is_empty() {
            return Ok(leased);
        }
    }
}

/// One round of leasing, in one commit. Also returns how many handoffs were parked.
async fn lease_or_park(
    shared: &SharedState,
    request: &LeaseRequest,
    now: Time,
) -> TxResult<(Vec<LeasedHandoff>, usize)> {
    let busy: Vec<String> = request.excluded_domains.iter().map(|domain| format!("@{domain}\"")).collect();
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    stops::lock_shared(&tx).await?;
    let rows = query_rows(
        &tx,
        DUE,
        &[&request.transport, &now.0, &(request.max as i64), &busy, &request.schedule_cutoff.map(|at| at.0)],
    )
    .await?;
    let due = rows.iter().map(read_handoff_ref).collect::<TxResult<Vec<_>>>()?;
    let held: BTreeSet<EmailRef> = due.iter().map(|(scoped, _)| *scoped).collect();
    let mut work = load_locked_emails(&tx, &held).await?;
    let stops = stops::load(&tx, &held).await?;
    let (mut leased, mut parked) = (Vec::new(), 0);
    for ((team, id), number) in due {
        let Some(mut email) = work.email_of_team(team, id) else { continue };
        if !email.handoffs.get(usize::from(number)).is_some_and(|h| request.may_lease(h, now)) {
            continue;
        }
        if email.park_if_stopped(number, &stops) {
            parked += 1;
        } else if email.lease_handoff(number, request.node, now) {
            leased.push((email.clone(), number));
        } else {
            continue;
        }
        work.changed_emails.insert(id, Time(i64::MIN));
        work.emails.insert(id, email);
    }
    let leased = with_bytes(&tx, leased).await?;
    shared.write_and_commit(tx, &work, 1).await?;
    Ok((leased, parked))
}

/// A handoff with the bytes that a worker needs to send it.
pub(crate) async fn leased_handoff(
    shared: &SharedState,
    team: TeamId,
    id: EmailId,
    number: u16,
) -> TxResult<Option<LeasedHandoff>> {
    let Some(email) = queries::email(shared, team, id).await? else { return Ok(None) };
    let client = shared.connections.client().await?;
    Ok(with_bytes(&client, vec![(email, number)]).await?.pop())
}

/// Records an action on a handoff and its effects. An action that needs only its own email shares a transaction
/// with others, unless that email is locked.
pub(crate) async fn apply_action(
    shared: &SharedState,
    scoped: EmailRef,
    act: HandoffAction,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<HandoffActionResult>> {
    // The batch runs in another task, which has no origin for the audit log.
    let is_audited = Act::of_email_action(scoped.0, scoped.1, &act).is_some();
    if operation.is_none() && act.dedup_key().is_none() && !is_audited {
        let together = shared.action_batcher.submit(ActionCall { scoped, act: act.clone(), now }).await?;
        if let Some(acted) = together {
            return Ok(IdempotentResult::Done(acted));
        }
    }
    // Boxed to keep this future small: few actions run alone.
    Box::pin(async { call_until_final!(apply_action_alone(shared, scoped, &act, operation, now)) }).await
}

/// Applies actions to several emails in one commit. `None` for those that must run alone. One reason is a
/// missing or locked email, for which the others must not wait. The other is a reply, whose message changes too.
async fn apply_action_batch(shared: &SharedState, all: &[ActionCall]) -> TxResult<Vec<Option<HandoffActionResult>>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let emails: BTreeSet<EmailRef> = all.iter().map(|one| one.scoped).collect();
    let stops = stops::load_for(&tx, all.iter().map(|one| &one.act), &emails).await?;
    let free = lock_available_emails(&tx, &emails).await?;
    let mut work = load_locked_emails(&tx, &free).await?;
    let mut changed = Vec::new();
    let answers = all.iter().map(|one| {
        let email = work.email_of_team(one.scoped.0, one.scoped.1)?;
        if email.head.answers.is_some() || matches!(one.act, HandoffAction::Release(_)) {
            return None;
        }
        let (now, usage) = (shared.time.commit_time(one.now), BudgetUsage::default());
        let limits = ActionLimits { stops: &stops, usage: &usage };
        let answer = apply_loaded_action(&mut work, one.scoped, (&one.act, false), &limits, None, now);
        changed.push((email, one.scoped));
        match answer {
            IdempotentResult::Done(acted) => Some(acted),
            IdempotentResult::Replayed(_) | IdempotentResult::KeyMismatch(_) => None,
        }
    });
    let answers = answers.collect();
    let unsent = changed.iter().filter_map(|(before, (team, id))| Some((before, work.email_of_team(*team, *id)?)));
    let unsent: Vec<_> =
        unsent.filter(|(before, after)| must_refund_charges(before, after)).map(|(_, email)| email).collect();
    budgets::refund_charges(&tx, &mut work, &unsent).await?;
    shared.write_and_commit(tx, &work, all.len()).await?;
    Ok(answers)
}

async fn apply_action_alone(
    shared: &SharedState,
    scoped: EmailRef,
    act: &HandoffAction,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<HandoffActionResult>> {
    let scopes: BTreeSet<TeamKey> = operation.iter().map(|operation| (operation.team, operation.key)).collect();
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let stops = stops::load_for(&tx, std::iter::once(act), &BTreeSet::from([scoped])).await?;
    lock_scopes(&tx, &scopes).await?;
    lock_emails(&tx, &BTreeSet::from([scoped])).await?;
    let mut work = load_unit_of_work(&tx, &shared.time, &scopes, &[scoped]).await?;
    let known = match act.dedup_key() {
        Some(once) => !query_rows(&tx, EVIDENCE_EXISTS, &[&scoped.0.0, &scoped.1.0, &once]).await?.is_empty(),
        None => false,
    };
    let (before, now) = (work.email_of_team(scoped.0, scoped.1), shared.time.commit_time(now));
    let usage = lock_usage(&tx, &mut work, before.as_ref(), act).await?;
    let limits = ActionLimits { stops: &stops, usage: &usage };
    let answer = apply_loaded_action(&mut work, scoped, (act, known), &limits, operation, now);
    if let (Some(before), IdempotentResult::Done(HandoffActionResult::Applied(_, email))) = (&before, &answer) {
        update_message_progress(&tx, &mut work, (before, email), now).await?;
        budgets::refund_if_unsent(&tx, &mut work, before, email).await?;
    }
    if let IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, _)) = &answer {
        work.acts.extend(Act::of_email_action(scoped.0, scoped.1, act).map(|act| (act, now)));
    }
    shared.write_and_commit(tx, &work, 1).await?;
    Ok(answer)
}

/// Unknown handoffs that are due for resolution.
pub(crate) async fn due_unknown_handoffs(
    shared: &SharedState,
    mine: &[TransportAccount],
    max: usize,
    now: Time,
) -> TxResult<Vec<(Email, u16)>> {
    let (names, accounts) = account_columns(mine);
    let recent = limits::ORPHANED_AFTER_MS as f64;
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let rows = query_rows(&tx, DUE_UNKNOWN, &[&now.0, &(max as i64), &names, &accounts, &recent]).await?;
    let due = rows.iter().map(read_handoff_ref).collect::<TxResult<Vec<_>>>()?;
    let emails = read_emails(&read_email_rows(&tx, &due.iter().map(|(scoped, _)| *scoped).collect()).await?, 0)?;
    tx.rollback().await?;
    let emails: BTreeMap<EmailId, Email> = emails.into_iter().map(|email| (email.id, email)).collect();
    Ok(due.into_iter().filter_map(|((_, id), number)| Some((emails.get(&id)?.clone(), number))).collect())
}

/// Publishes the transports that a live node has.
pub(crate) async fn publish_transports(shared: &SharedState, mine: &[TransportAccount]) -> TxResult<()> {
    let (names, accounts) = account_columns(mine);
    execute(&shared.connections.client().await?, PUBLISH_TRANSPORTS, &[&names, &accounts]).await?;
    Ok(())
}

/// The names of transports that nodes published.
pub(crate) async fn published_transports(shared: &SharedState) -> TxResult<Vec<String>> {
    let client = shared.connections.client().await?;
    let rows = query_rows(&client, "SELECT DISTINCT name FROM transports ORDER BY name", &[]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Handoffs that wait for transports that no live node has, counted per team and transport.
pub(crate) async fn orphan_backlogs(shared: &SharedState, known: &[String]) -> TxResult<Vec<OrphanBacklog>> {
    let alive = limits::HEARTBEAT_TIMEOUT_MS as f64;
    let mut found = Vec::new();
    for row in query_rows(&shared.connections.client().await?, UNCLAIMED, &[&known, &alive]).await? {
        let (waiting, unknown) = (row.try_get::<_, i64>(2)? as u64, row.try_get::<_, i64>(3)? as u64);
        found.push(OrphanBacklog { team: TeamId(row.try_get(0)?), transport: row.try_get(1)?, waiting, unknown });
    }
    Ok(found)
}

/// Emails with open handoffs at a transport.
pub(crate) async fn emails_open_at_transport(
    shared: &SharedState,
    transport: &str,
    after: Option<(TeamId, EmailId)>,
    limit: usize,
) -> TxResult<Vec<(TeamId, EmailId)>> {
    let (team, id) = after.map_or((Uuid::nil(), Uuid::nil()), |(team, id)| (team.0, id.0));
    let rows =
        query_rows(&shared.connections.client().await?, OPEN_AT, &[&transport, &team, &id, &(limit as i64)]).await?;
    rows.iter().map(|row| Ok((TeamId(row.try_get(0)?), EmailId(row.try_get(1)?)))).collect()
}

/// Records a node's heartbeat, and reads the database's clock.
pub(crate) async fn heartbeat(shared: &SharedState, node: NodeId, now: Time) -> TxResult<Heartbeat> {
    let client = shared.connections.client().await?;
    execute(&client, HEARTBEAT, &[&node.0]).await?;
    execute(&client, SAVE_SEEN_AT, &[&now.0]).await?;
    let rows = query_rows(&client, READ_SEEN_AT, &[]).await?;
    let row = rows.first().ok_or_else(|| TxError::corrupt("the installation"))?;
    let latest: Option<i64> = row.try_get(0)?;
    Ok(Heartbeat {
        latest_time: now.max(Time(latest.unwrap_or(now.0))),
        database_clock: Some(shared.read_clock(row, 1)?),
    })
}

/// The nodes whose heartbeat stopped.
async fn silent_peers(shared: &SharedState, tx: &Transaction<'_>) -> TxResult<SilentPeers> {
    let rows = query_rows(tx, NODES, &[]).await?;
    let read = |row: &Row| Ok((NodeId(row.try_get(0)?), row.try_get(1)?));
    let beats = rows.iter().map(read).collect::<TxResult<Vec<_>>>()?;
    Ok(shared.peers.lock().unwrap_or_else(PoisonError::into_inner).observe(&beats, Instant::now()))
}

/// Reclaims handoffs, deliveries and notices that dead nodes had leased.
pub(crate) async fn recover_dead_nodes(
    shared: &SharedState,
    node: NodeId,
    max: usize,
    now: Time,
) -> TxResult<RecoveryCounts> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let gone = silent_peers(shared, &tx).await?;
    let mut left = Vec::new();
    for row in query_rows(&tx, LEASED_BY_GONE_NODES, &[&node.0, &gone.nodes, &gone.beats, &(max as i64)]).await? {
        left.push((read_handoff_ref(&row)?, NodeId(row.try_get::<_, Uuid>(3)?)));
    }
    let deliveries = deliveries::reclaim_deliveries(&tx, node, &gone, max, now).await?;
    let notices = reclaim_notices(&tx, node, &gone, max, now).await?;
    let mut recovered = RecoveryCounts { deliveries, notices, ..RecoveryCounts::default() };
    if left.is_empty() {
        execute(&tx, FORGET_NODES, &[&gone.expired]).await?;
        execute(&tx, FORGET_TRANSPORTS, &[]).await?;
        shared.commit(tx, 1).await?;
        return Ok(recovered);
    }
    let mut work = load_locked_emails(&tx, &left.iter().map(|((scoped, _), _)| *scoped).collect()).await?;
    let mut unsent = Vec::new();
    for ((scoped, number), holder) in left {
        let act = HandoffAction::Crash { number, holder };
        let before = work.email_of_team(scoped.0, scoped.1);
        let limits = ActionLimits { stops: &Stops::default(), usage: &BudgetUsage::default() };
        let answer = apply_loaded_action(&mut work, scoped, (&act, false), &limits, None, now);
        if let (Some(before), IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, email))) =
            (before, answer)
        {
            update_message_progress(&tx, &mut work, (&before, &email), now).await?;
            recovered.count_handoff(&email, number);
            unsent.extend(Some(email).filter(|email| must_refund_charges(&before, email)));
        }
    }
    // After the loop, because a thread is locked before the counters.
    budgets::refund_charges(&tx, &mut work, &unsent).await?;
    shared.write_and_commit(tx, &work, 1).await?;
    Ok(recovered)
}

/// The handoff that the next hop knows under this id.
pub(crate) async fn handoff_by_remote_id(
    shared: &SharedState,
    team: TeamId,
    remote_id: &str,
) -> TxResult<Option<(EmailId, u16)>> {
    let rows = query_rows(&shared.connections.client().await?, BY_REMOTE_ID, &[&team.0, &remote_id]).await?;
    let read = |row: &Row| TxResult::Ok((EmailId(row.try_get(0)?), row.try_get::<_, i32>(1)? as u16));
    rows.first().map(read).transpose()
}

/// Counts waiting and unknown handoffs.
pub(crate) async fn backlog(shared: &SharedState) -> TxResult<Backlog> {
    let client = shared.connections.client().await?;
    let mut backlog = Backlog::default();
    for row in query_rows(&client, COUNT_WAITING, &[]).await? {
        backlog.waiting.push((row.try_get(0)?, row.try_get::<_, i64>(1)? as u64));
        let oldest = row.try_get::<_, Option<i64>>(2)?.map(Time);
        backlog.oldest_due_at = [backlog.oldest_due_at, oldest].into_iter().flatten().min();
    }
    if let Some(row) = query_rows(&client, COUNT_UNKNOWN, &[]).await?.first() {
        backlog.unknown = row.try_get::<_, i64>(0)? as u64;
    }
    Ok(backlog)
}

/// Splits transports into a column of names and a column of accounts.
fn account_columns(mine: &[TransportAccount]) -> (Vec<&str>, Vec<&str>) {
    mine.iter().map(|one| (one.name.as_str(), one.account.as_str())).unzip()
}

/// Adds to handoffs the bytes that a worker needs to send them.
async fn with_bytes(client: &(impl GenericClient + ?Sized), leased: Vec<(Email, u16)>) -> TxResult<Vec<LeasedHandoff>> {
    let (teams, ids) = email_ref_columns(leased.iter().map(|(email, _)| (email.team, email.id)));
    let way = |(email, number): &(Email, u16)| email.handoffs.get(usize::from(*number)).map(|h| h.transport.clone());
    let ways: Vec<Option<String>> = leased.iter().map(way).collect();
    // Two handoffs of one email give two rows with the same bytes.
    let mut bytes: BTreeMap<EmailId, (Option<Vec<u8>>, Option<Vec<u8>>)> = BTreeMap::new();
    for row in query_rows(client, SELECT_BYTES, &[&teams, &ids, &ways]).await? {
        bytes.insert(EmailId(row.try_get(0)?), (row.try_get(1)?, row.try_get(2)?));
    }
    let all = leased.into_iter().map(|(email, number)| {
        let (body, wire) = bytes.get(&email.id).cloned().unwrap_or_default();
        LeasedHandoff { email, handoff: number, body, frozen_bytes: wire }
    });
    Ok(all.collect())
}

/// A queued action on a handoff.
pub(crate) struct ActionCall {
    scoped: EmailRef,
    act: HandoffAction,
    now: Time,
}

impl BatchedCall for ActionCall {
    type Answer = Option<HandoffActionResult>;

    fn size(&self) -> usize {
        let frozen = match &self.act {
            HandoffAction::Mark { frozen_bytes: Some(wire), .. } => wire.len(),
            _ => 0,
        };
        frozen + 1024
    }

    fn batcher(ledger: &SharedState) -> &CallBatcher<Self> {
        &ledger.action_batcher
    }

    async fn run_batch(ledger: &SharedState, together: &[Self]) -> TxResult<Vec<Self::Answer>> {
        apply_action_batch(ledger, together).await
    }
}

/// Locks and loads the usage of the budgets that an action charges. The thread of a reply is locked first, as when a
/// reply is accepted.
async fn lock_usage(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    email: Option<&Email>,
    act: &HandoffAction,
) -> TxResult<BudgetUsage> {
    let Some(email) = email.filter(|_| !act.charges().is_empty()) else { return Ok(BudgetUsage::default()) };
    is_current_reply(tx, work, email).await?;
    budgets::lock_charges(tx, work, email.team, act.charges()).await
}

/// Applies an action to a locked email. A known action changes nothing, because its evidence was recorded before.
fn apply_loaded_action(
    work: &mut UnitOfWork,
    (team, id): EmailRef,
    (act, is_known): (&HandoffAction, bool),
    limits: &ActionLimits<'_>,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> IdempotentResult<HandoffActionResult> {
    if let Some(answer) = operation.and_then(|operation| work.find_replay(operation, now)) {
        return answer;
    }
    let Some(mut email) = work.email_of_team(team, id) else {
        return IdempotentResult::Done(HandoffActionResult::Missing);
    };
    if is_known {
        return IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Unchanged, email));
    }
    let effects = email.apply_limited_action(act, limits, now);
    if let (HandoffAction::Mark { lease: hold, frozen_bytes, contacts }, HandoffActionStatus::Done) =
        (act, effects.status)
    {
        work.wires.extend(frozen_bytes.iter().map(|wire| ((team, id), hold.transport.clone(), Arc::clone(wire))));
        work.contacts.remember(team, contacts);
    }
    work.attempts.extend(effects.attempts.into_iter().map(|attempt| (team, id, attempt)));
    work.evidence.extend(effects.evidence.into_iter().map(|fact| (team, id, fact)));
    work.new_handoffs.extend(effects.new_handoffs.into_iter().map(|handoff| ((team, id), handoff)));
    work.events.extend(effects.events.into_iter().map(|event| (team, event)));
    work.budgets.charge(team, id, &effects.charges);
    if effects.changed {
        work.changed_emails.insert(id, Time(i64::MIN));
        work.emails.insert(id, email.clone());
    }
    if let (Some(operation), HandoffActionStatus::Done) = (operation, effects.status) {
        work.bind_operation(operation);
    }
    IdempotentResult::Done(HandoffActionResult::Applied(effects.status, email))
}
