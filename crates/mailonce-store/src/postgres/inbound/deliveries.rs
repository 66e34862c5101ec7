//! Deliveries: leasing those that wait, recording their outcome, reclaiming leases, and listing.

use deadpool_postgres::Transaction;
use mailonce_core::{
    events::event::NewEvent,
    id::{DeliveryId, EmailId, NodeId, TeamId},
    inbound::{
        delivery::{
            Delivery, DeliveryOutcome, DeliveryQuery, DeliveryState, DeliverySuppression, FetchedContent,
            LeasedDelivery,
        },
        wake_up::InboundWakeUp,
    },
    limits,
    time::Time,
};
use std::collections::BTreeMap;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{
    row::{DELIVERY_COLUMNS, delivery_columns, read_delivery, read_first},
    sweep::RESWEEP_INBOXES,
};
use crate::postgres::{
    SharedState,
    error::{TxError, TxResult},
    events::pending_events::write_events,
    inbound::wake_ups::NOTIFY,
    peers::{SilentPeers, beat, holder_is_gone},
    row::write_json,
    statements::{BoundStatement, execute, query_pipelined, query_rows},
};

const BY_ID: &str = concat!("SELECT ", delivery_columns!(), " FROM deliveries d WHERE d.team = $1 AND d.id = $2");
const BY_ID_LOCKED: &str =
    concat!("SELECT ", delivery_columns!(), ", d.raw FROM deliveries d WHERE d.team = $1 AND d.id = $2 FOR UPDATE");
/// Due deliveries in order with their raw bytes, skipping rows that other workers have locked.
const DUE: &str = concat!(
    "SELECT ",
    delivery_columns!(),
    ", (SELECT r.bytes FROM raws r WHERE r.id = d.raw) FROM deliveries d
     WHERE d.state = 'waiting' AND d.due <= $1 ORDER BY d.due, d.id LIMIT $2 FOR UPDATE SKIP LOCKED"
);
/// Unexpired leases of dead nodes. An expired lease needs no recovery: its delivery is due for every worker.
const LEASED_BY_GONE_NODES: &str = concat!(
    "SELECT ",
    delivery_columns!(),
    " FROM deliveries d
     WHERE d.state = 'waiting' AND d.due > $5 AND d.holder IS NOT NULL AND d.holder <> $1 AND ",
    holder_is_gone!("d"),
    " ORDER BY d.due, d.id LIMIT $4 FOR UPDATE SKIP LOCKED"
);
const UPDATE: &str = "
    UPDATE deliveries d
       SET rev = w.rev, state = w.state, attempts = w.attempts, due = w.due, holder = w.holder, message = w.message,
           suppressed = w.suppressed, trouble = w.trouble, raw = CASE WHEN w.keeps THEN d.raw END
      FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::int[], $6::bigint[], $7::uuid[], $8::uuid[],
                  $9::text[], $10::text[], $11::boolean[])
        AS w (team, id, rev, state, attempts, due, holder, message, suppressed, trouble, keeps)
     WHERE d.team = w.team AND d.id = w.id";
/// Keeps the lease of the worker that reads it.
const ATTACH_FETCHED_CONTENT: &str =
    "UPDATE deliveries SET rev = $3, attempts = $4, raw = $5, about = $6 WHERE team = $1 AND id = $2";
const INSERT_FETCHED_RAW: &str = "INSERT INTO raws (id, users, bytes) VALUES ($1, 1, $2)";
const RELEASE_RAWS: &str = "
    UPDATE raws r SET users = r.users - w.count
      FROM (SELECT r.id, w.count FROM unnest($1::uuid[], $2::int[]) AS w (id, count) JOIN raws r ON r.id = w.id
             ORDER BY r.id FOR UPDATE OF r) AS w
     WHERE r.id = w.id";
const DROP_RAWS: &str = "DELETE FROM raws r USING unnest($1::uuid[]) AS w (id) WHERE r.id = w.id AND r.users <= 0";

/// The newest deliveries of a team that match. At most `$7` rows are scanned.
const NEWEST: &str = concat!(
    "SELECT ",
    delivery_columns!(),
    " FROM (SELECT * FROM deliveries WHERE team = $1 AND id < $2 ORDER BY id DESC LIMIT $7) d
     WHERE ($3::uuid IS NULL OR d.source = $3) AND ($4::text IS NULL OR d.state = $4)
       AND ($5::uuid IS NULL OR d.message = $5)
     ORDER BY d.id DESC LIMIT $6"
);
/// The same for one inbox.
const NEWEST_OF_INBOX: &str = concat!(
    "SELECT ",
    delivery_columns!(),
    " FROM (SELECT * FROM deliveries WHERE team = $1 AND inbox = $8 AND id < $2 ORDER BY id DESC LIMIT $7) d
     WHERE ($3::uuid IS NULL OR d.source = $3) AND ($4::text IS NULL OR d.state = $4)
       AND ($5::uuid IS NULL OR d.message = $5)
     ORDER BY d.id DESC LIMIT $6"
);

/// Deliveries to update, each with the node that leases it.
#[derive(Default)]
pub(crate) struct DeliveryUpdates<'a> {
    updates: Vec<(&'a Delivery, Option<NodeId>)>,
}

impl<'a> DeliveryUpdates<'a> {
    /// Adds a delivery.
    pub(crate) fn add(&mut self, delivery: &'a Delivery, holder: Option<NodeId>) {
        self.updates.push((delivery, holder));
    }

    /// Writes all updates.
    pub(crate) async fn write(&self, tx: &Transaction<'_>) -> TxResult<()> {
        if self.updates.is_empty() {
            return Ok(());
        }
        let all = || self.updates.iter().map(|(delivery, _)| *delivery);
        let team: Vec<Uuid> = all().map(|d| d.team.0).collect();
        let id: Vec<Uuid> = all().map(|d| d.id.0).collect();
        let rev: Vec<i32> = all().map(|d| d.rev as i32).collect();
        let state: Vec<&str> = all().map(|d| d.state.as_str()).collect();
        let attempts: Vec<i32> = all().map(|d| d.attempts as i32).collect();
        let due: Vec<Option<i64>> = all().map(|d| d.due_at.map(|at| at.0)).collect();
        let holder: Vec<Option<Uuid>> = self.updates.iter().map(|(_, holder)| holder.map(|node| node.0)).collect();
        let message: Vec<Option<Uuid>> = all().map(|d| d.message.map(|id| id.0)).collect();
        let suppressed: Vec<Option<&str>> = all().map(|d| d.suppressed.map(DeliverySuppression::as_str)).collect();
        let trouble = all().map(|d| d.last_error.as_ref().map(write_json).transpose()).collect::<TxResult<Vec<_>>>()?;
        let keeps: Vec<bool> = all().map(Delivery::needs_raw_bytes).collect();
        let params: [&(dyn ToSql + Sync); 11] =
            [&team, &id, &rev, &state, &attempts, &due, &holder, &message, &suppressed, &trouble, &keeps];
        execute(tx, UPDATE, &params).await.map(drop)
    }
}

/// Releases the raw bytes of deliveries. Bytes without any user are deleted.
pub(crate) async fn release_raws(tx: &Transaction<'_>, raws: impl Iterator<Item = Uuid>) -> TxResult<()> {
    let mut counts: BTreeMap<Uuid, i32> = BTreeMap::new();
    for raw in raws {
        *counts.entry(raw).or_default() += 1;
    }
    if counts.is_empty() {
        return Ok(());
    }
    let (ids, counts): (Vec<Uuid>, Vec<i32>) = counts.into_iter().unzip();
    let asked: [BoundStatement<'_>; 2] = [(RELEASE_RAWS, &[&ids, &counts]), (DROP_RAWS, &[&ids])];
    query_pipelined(tx, &asked).await.map(drop)
}

/// Leases due deliveries to a worker, the longest due first.
pub(crate) async fn lease_deliveries(
    shared: &SharedState,
    node: NodeId,
    max: usize,
    now: Time,
) -> TxResult<Vec<LeasedDelivery>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let mut readings = Vec::new();
    for row in query_rows(&tx, DUE, &[&now.0, &(max as i64)]).await? {
        let mut delivery = read_delivery(&row)?;
        if delivery.lease(now) {
            let raw: Option<Vec<u8>> = row.try_get(DELIVERY_COLUMNS)?;
            let raw = raw.ok_or_else(|| TxError::corrupt("the bytes of a delivery"))?;
            readings.push(LeasedDelivery { delivery, raw });
        }
    }
    if readings.is_empty() {
        tx.rollback().await?;
        return Ok(readings);
    }
    let mut changed = DeliveryUpdates::default();
    for reading in &readings {
        changed.add(&reading.delivery, Some(node));
    }
    changed.write(&tx).await?;
    shared.commit(tx, 1).await?;
    Ok(readings)
}

/// Attaches a fetched mail to a waiting delivery that holds only a reference to it.
pub(crate) async fn attach_fetched_content(
    shared: &SharedState,
    team: TeamId,
    id: DeliveryId,
    brought: &FetchedContent,
) -> TxResult<Option<Delivery>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let rows = query_rows(&tx, BY_ID_LOCKED, &[&team.0, &id.0]).await?;
    let notice: Option<Uuid> = rows.first().map_or(Ok(None), |row| row.try_get(DELIVERY_COLUMNS))?;
    let mut found = read_first(&rows, read_delivery)?;
    let brings = found.as_mut().is_some_and(|delivery| delivery.attach_fetched_content(brought));
    let Some(delivery) = found.as_ref().filter(|_| brings) else {
        tx.rollback().await?;
        return Ok(found);
    };
    let place = brought.storage_id.0;
    execute(&tx, INSERT_FETCHED_RAW, &[&place, &brought.raw.as_ref()]).await?;
    let (rev, attempts, about) = (delivery.rev as i32, delivery.attempts as i32, write_json(&*delivery.details)?);
    execute(&tx, ATTACH_FETCHED_CONTENT, &[&team.0, &id.0, &rev, &attempts, &place, &about]).await?;
    release_raws(&tx, notice.into_iter()).await?;
    shared.commit(tx, 1).await?;
    Ok(found)
}

/// Finishes or postpones a waiting delivery without filing a message.
pub(crate) async fn record_delivery_outcome(
    shared: &SharedState,
    team: TeamId,
    id: DeliveryId,
    settle: &DeliveryOutcome,
    now: Time,
) -> TxResult<Option<Delivery>> {
    change_delivery(shared, (team, id), now, &[], |delivery, _raw| delivery.record_outcome(settle.clone())).await
}

/// Makes a dead delivery due again.
pub(crate) async fn replay_delivery(
    shared: &SharedState,
    team: TeamId,
    id: DeliveryId,
    now: Time,
) -> TxResult<Option<Delivery>> {
    let replay = |delivery: &mut Delivery, raw: Option<Uuid>| raw.is_some() && delivery.replay(now);
    change_delivery(shared, (team, id), now, &[InboundWakeUp::DeliveryWaiting], replay).await
}

/// Changes one delivery by a rule, which gets the id of its bytes and returns whether it changed anything. The lease
/// ends, and `hints` wake up other nodes.
async fn change_delivery(
    shared: &SharedState,
    (team, id): (TeamId, DeliveryId),
    now: Time,
    hints: &[InboundWakeUp],
    rule: impl FnOnce(&mut Delivery, Option<Uuid>) -> bool + Send,
) -> TxResult<Option<Delivery>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let rows = query_rows(&tx, BY_ID_LOCKED, &[&team.0, &id.0]).await?;
    let raw: Option<Uuid> = rows.first().map_or(Ok(None), |row| row.try_get(DELIVERY_COLUMNS))?;
    let mut found = read_first(&rows, read_delivery)?;
    let Some(delivery) = found.as_mut() else {
        tx.rollback().await?;
        return Ok(None);
    };
    if !rule(delivery, raw) {
        tx.rollback().await?;
        return Ok(found);
    }
    let mut changed = DeliveryUpdates::default();
    changed.add(delivery, None);
    changed.write(&tx).await?;
    if let Some(inbox) = delivery.target.inbox() {
        execute(&tx, RESWEEP_INBOXES, &[&[team.0].as_slice(), &[inbox.0].as_slice(), &now.0]).await?;
    }
    release_raws(&tx, raw.filter(|_| !delivery.needs_raw_bytes()).into_iter()).await?;
    let events: Vec<(TeamId, NewEvent)> = delivery.to_event(now).map(|event| (team, event)).into_iter().collect();
    write_events(&tx, &events).await?;
    if !hints.is_empty() {
        execute(&tx, NOTIFY, &[&shared.wake_up_bus.encode(hints)]).await?;
    }
    let committed = shared.commit(tx, 1).await;
    shared.wake_up_bus.notify_local(hints);
    committed.map(|()| found)
}

/// Makes deliveries due that dead nodes had leased. Returns how many.
pub(crate) async fn reclaim_deliveries(
    tx: &Transaction<'_>,
    node: NodeId,
    gone: &SilentPeers,
    max: usize,
    now: Time,
) -> TxResult<usize> {
    let mut given_back = Vec::new();
    for row in query_rows(tx, LEASED_BY_GONE_NODES, &[&node.0, &gone.nodes, &gone.beats, &(max as i64), &now.0]).await?
    {
        let mut delivery = read_delivery(&row)?;
        if delivery.reclaim_lease(now) {
            given_back.push(delivery);
        }
    }
    let mut changed = DeliveryUpdates::default();
    for delivery in &given_back {
        changed.add(delivery, None);
    }
    changed.write(tx).await?;
    Ok(given_back.len())
}

/// The team that owns an email. Needs one index lookup per team, but only bounces use it.
pub(crate) async fn team_of_email(shared: &SharedState, email: EmailId) -> TxResult<Option<TeamId>> {
    let sql = "SELECT t.id FROM teams t WHERE EXISTS (SELECT 1 FROM emails e WHERE e.team = t.id AND e.id = $1)";
    let rows = query_rows(&shared.connections.client().await?, sql, &[&email.0]).await?;
    rows.first().map(|row| Ok(TeamId(row.try_get(0)?))).transpose()
}

/// One delivery.
pub(crate) async fn delivery(shared: &SharedState, team: TeamId, id: DeliveryId) -> TxResult<Option<Delivery>> {
    read_first(&query_rows(&shared.connections.client().await?, BY_ID, &[&team.0, &id.0]).await?, read_delivery)
}

/// Deliveries, newest first.
pub(crate) async fn deliveries(shared: &SharedState, team: TeamId, query: &DeliveryQuery) -> TxResult<Vec<Delivery>> {
    let before = query.before.map_or(Uuid::max(), |id| id.0);
    let source = query.source.map(|id| id.0);
    let state = query.state.map(DeliveryState::as_str);
    let message = query.message.map(|id| id.0);
    let (limit, looked) = (i64::try_from(query.limit).unwrap_or(i64::MAX), limits::SCAN_ROWS as i64);
    let client = shared.connections.client().await?;
    let rows = match query.inbox {
        None => query_rows(&client, NEWEST, &[&team.0, &before, &source, &state, &message, &limit, &looked]).await?,
        Some(inbox) => {
            let params: [&(dyn ToSql + Sync); 8] =
                [&team.0, &before, &source, &state, &message, &limit, &looked, &inbox.0];
            query_rows(&client, NEWEST_OF_INBOX, &params).await?
        }
    };
    rows.iter().map(read_delivery).collect()
}
