//! Handoffs: leases, actions, and recovery of handoffs that dead nodes held.

use mailonce_core::{
    control::{audit::act::Act, stop::Stops},
    handoff::{
        Attempt, AttemptDetails, Evidence, Outcome,
        action::{ActionLimits, Effects, HandoffAction, HandoffActionStatus},
        lease::{Backlog, HandoffActionResult, LeaseRequest, LeasedHandoff, OrphanBacklog},
    },
    id::{EmailId, NodeId, TeamId, ordered_bits},
    installation::RecoveryCounts,
    operation::{IdempotentResult, KeyedOperation},
    outbound::email::Email,
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::sync::Arc;

use crate::sqlite::{
    Sqlite,
    control::{audit, budgets, contacts, stops},
    conversation::message_progress::update_message_progress,
    outbound::{
        accept_statements::INSERT_HANDOFF,
        email_rows::{HandoffRef, save_email, save_handoff},
        key_bindings,
    },
    rows,
    schema::store_error,
    write_session::WriteSession,
};

const DUE: &str = "SELECT team, email, number, state, recipients, due_at FROM handoffs \
     WHERE state IN ('queued', 'scheduled') AND parked_by IS NULL AND due_at <= ?1 AND transport = ?2 \
     ORDER BY due_at, email, number";
const DUE_UNKNOWN: &str = "SELECT team, email, number, transport, json_extract(work, '$.account') FROM handoffs \
     WHERE state = 'unknown' AND due_at <= ?1 ORDER BY due_at, email, number";
// Each half uses its own index, because the table also holds all sent handoffs.
const UNCLAIMED: &str = "SELECT t.id, h.transport, SUM(h.waits), COUNT(*) - SUM(h.waits) FROM ( \
     SELECT team, transport, 1 AS waits FROM handoffs INDEXED BY handoffs_due \
        WHERE state IN ('queued', 'scheduled') AND parked_by IS NULL \
     UNION ALL SELECT team, transport, 1 FROM handoffs INDEXED BY handoffs_parked WHERE parked_by IS NOT NULL \
     UNION ALL SELECT team, transport, 0 FROM handoffs INDEXED BY handoffs_doubt WHERE state = 'unknown') h \
     JOIN teams t ON t.number = h.team GROUP BY t.id, h.transport ORDER BY t.id, h.transport";
const OPEN_AT: &str = "SELECT DISTINCT t.id, e.email, e.tail FROM ( \
     SELECT team, email, transport FROM handoffs INDEXED BY handoffs_due \
        WHERE state IN ('queued', 'scheduled') AND parked_by IS NULL \
     UNION ALL SELECT team, email, transport FROM handoffs INDEXED BY handoffs_parked WHERE parked_by IS NOT NULL \
     UNION ALL SELECT team, email, transport FROM handoffs INDEXED BY handoffs_open \
        WHERE state IN ('leased', 'sending') \
     UNION ALL SELECT team, email, transport FROM handoffs INDEXED BY handoffs_doubt WHERE state = 'unknown') h \
     JOIN teams t ON t.number = h.team JOIN emails e ON e.email = h.email \
     WHERE h.transport = ?1 AND (t.id, e.email) > (?2, ?3) ORDER BY t.id, e.email LIMIT ?4";
const LEASED_OR_SENDING: &str = "SELECT team, email, number, holder FROM handoffs WHERE state IN ('leased', 'sending') \
     ORDER BY email, number";
const SELECT_WIRE: &str = "SELECT bytes FROM wires WHERE email = ?1 AND transport = ?2";
const SAVE_WIRE: &str = "INSERT OR IGNORE INTO wires (email, transport, bytes) VALUES (?1, ?2, ?3)";
const EVIDENCE_EXISTS: &str = "SELECT 1 FROM evidence WHERE email = ?1 AND once = ?2";
const SAVE_EVIDENCE: &str = "INSERT INTO evidence (email, number, once, fact) \
     VALUES (?1, (SELECT COALESCE(MAX(number), 0) + 1 FROM evidence WHERE email = ?1), ?2, ?3)";
const SAVE_ATTEMPT: &str = "INSERT INTO attempts (email, handoff, number, at, outcome, reply, ended_at, remote_id, about) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO UPDATE \
     SET at = ?4, outcome = ?5, reply = ?6, ended_at = ?7, remote_id = ?8, about = ?9";
const BY_REMOTE_ID: &str = "SELECT a.email, a.handoff, e.tail FROM attempts a JOIN emails e ON e.email = a.email \
     WHERE a.remote_id = ?2 AND e.team = ?1 ORDER BY a.email, a.handoff, a.number LIMIT 1";
const COUNT_WAITING: &str = "SELECT transport, COUNT(*), MIN(due_at) FROM ( \
     SELECT transport, due_at FROM handoffs INDEXED BY handoffs_due \
        WHERE state IN ('queued', 'scheduled') AND parked_by IS NULL \
     UNION ALL SELECT transport, due_at FROM handoffs INDEXED BY handoffs_parked WHERE parked_by IS NOT NULL) \
     GROUP BY transport ORDER BY transport";

/// Due handoffs that match a lease request, in order. Runs on a reader, so [`lease`] checks each one again.
pub(crate) fn due_candidates(conn: &Connection, request: &LeaseRequest, now: Time) -> Result<Vec<HandoffRef>> {
    let busy: Vec<String> = request.excluded_domains.iter().map(|domain| format!("@{domain}\"")).collect();
    let mut statement = conn.prepare_cached(DUE).map_err(store_error)?;
    let mut rows = statement.query(params![now.0, request.transport]).map_err(store_error)?;
    let mut found = Vec::new();
    while found.len() < request.max
        && let Some(row) = rows.next().map_err(store_error)?
    {
        let state: String = row.get(3).map_err(store_error)?;
        let recipients: String = row.get(4).map_err(store_error)?;
        let due_at: i64 = row.get(5).map_err(store_error)?;
        let early = state == "scheduled" && request.schedule_cutoff.is_none_or(|by| due_at > by.0);
        if !early && !busy.iter().any(|domain| recipients.contains(domain.as_str())) {
            found.push((
                row.get(0).map_err(store_error)?,
                row.get(1).map_err(store_error)?,
                row.get(2).map_err(store_error)?,
            ));
        }
    }
    Ok(found)
}

/// The result of one round of leasing.
pub(crate) struct LeaseRound {
    leased: Vec<LeasedHandoff>,
    /// The number of handoffs that were parked because they are stopped.
    parked: usize,
}

/// Leases handoffs to a worker, if they still match the request. Those that are stopped are parked.
fn lease(
    ledger: &mut WriteSession<'_>,
    places: &[HandoffRef],
    request: &LeaseRequest,
    now: Time,
) -> Result<LeaseRound> {
    let stops = stops::load(ledger.conn)?;
    let mut round = LeaseRound { leased: Vec::with_capacity(places.len()), parked: 0 };
    for (team, bits, number) in places {
        let id = ledger.team_id(*team)?;
        let Some(before) = rows::email_by_bits(ledger.conn, id, *team, *bits)? else { continue };
        let mut email = before.clone();
        if !before.handoffs.get(usize::from(*number)).is_some_and(|h| request.may_lease(h, now)) {
            continue;
        }
        let is_parked = email.park_if_stopped(*number, &stops);
        if !is_parked && !email.lease_handoff(*number, request.node, now) {
            continue;
        }
        save(ledger, *team, &before, &email)?;
        ledger.queue_changed_email(email.clone());
        if is_parked {
            round.parked += 1;
        } else {
            round.leased.push(with_bytes(ledger.conn, email, *number)?);
        }
    }
    Ok(round)
}

/// Adds to a handoff what a worker needs to send it: the body, and the frozen bytes if there are any.
pub(crate) fn with_bytes(conn: &Connection, email: Email, number: u16) -> Result<LeasedHandoff> {
    let bits = ordered_bits(email.id.0);
    let transport = email.handoffs.get(usize::from(number)).map(|handoff| handoff.transport.as_str());
    let wire =
        conn.prepare_cached(SELECT_WIRE).and_then(|mut s| s.query_row(params![bits, transport], |row| row.get(0)));
    Ok(LeasedHandoff {
        body: rows::body(conn, bits)?,
        frozen_bytes: wire.optional().map_err(store_error)?,
        email,
        handoff: number,
    })
}

/// Saves an email, and those of its handoffs that changed.
fn save(ledger: &WriteSession<'_>, team: i64, before: &Email, email: &Email) -> Result<()> {
    save_email(ledger, team, email)?;
    let bits = ordered_bits(email.id.0);
    for (old, new) in before.handoffs.iter().zip(&email.handoffs) {
        if old != new {
            save_handoff(ledger, team, bits, new)?;
        }
    }
    Ok(())
}

/// Applies an action to a handoff, and saves its effects.
pub(crate) fn apply_action(
    ledger: &mut WriteSession<'_>,
    (team, id): (TeamId, EmailId),
    act: &HandoffAction,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<HandoffActionResult>> {
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let acted = apply_unless_duplicate(ledger, team, id, act, now)?;
    if let (Some(operation), HandoffActionResult::Applied(HandoffActionStatus::Done, _)) = (operation, &acted) {
        key_bindings::bind_operation(ledger, operation)?;
    }
    if let HandoffActionResult::Applied(HandoffActionStatus::Done, _) = &acted {
        audit::record_act(ledger, Act::of_email_action(team, id, act), ledger.time.commit_time(now))?;
    }
    Ok(IdempotentResult::Done(acted))
}

/// Applies an action, unless it adds evidence that is already recorded.
fn apply_unless_duplicate(
    ledger: &mut WriteSession<'_>,
    team: TeamId,
    id: EmailId,
    act: &HandoffAction,
    now: Time,
) -> Result<HandoffActionResult> {
    let Some(number) = ledger.team_number(team) else { return Ok(HandoffActionResult::Missing) };
    let Some(before) = rows::email_by_id(ledger.conn, team, number, id)? else {
        return Ok(HandoffActionResult::Missing);
    };
    let bits = ordered_bits(id.0);
    if let Some(once) = act.dedup_key() {
        let known = ledger
            .conn
            .prepare_cached(EVIDENCE_EXISTS)
            .and_then(|mut s| s.exists(params![bits, once]))
            .map_err(store_error)?;
        if known {
            return Ok(HandoffActionResult::Applied(HandoffActionStatus::Unchanged, before));
        }
    }
    let mut email = before.clone();
    let now = ledger.time.commit_time(now);
    let stops = if act.is_stoppable() { stops::load(ledger.conn)? } else { Stops::default() };
    let usage = budgets::usage(ledger, number, act.charges())?;
    let effects = email.apply_limited_action(act, &ActionLimits { stops: &stops, usage: &usage }, now);
    if let (HandoffAction::Mark { lease: hold, frozen_bytes, contacts }, HandoffActionStatus::Done) =
        (act, effects.status)
    {
        if let Some(wire) = frozen_bytes {
            ledger.execute(SAVE_WIRE, params![bits, hold.transport, wire.as_ref()])?;
        }
        contacts::remember(ledger, number, contacts)?;
    }
    write_effects(ledger, number, bits, &effects)?;
    if effects.changed {
        save(ledger, number, &before, &email)?;
        ledger.queue_changed_email(email.clone());
        budgets::charge(ledger, number, &email, &effects.charges)?;
        budgets::refund_if_unsent(ledger, number, &before, &email)?;
        update_message_progress(ledger, number, &before, &email, now)?;
    }
    Ok(HandoffActionResult::Applied(effects.status, email))
}

fn write_effects(ledger: &mut WriteSession<'_>, team: i64, bits: i64, effects: &Effects) -> Result<()> {
    for attempt in &effects.attempts {
        save_attempt(ledger, bits, attempt)?;
    }
    for fact in &effects.evidence {
        let json = serde_json::to_string(fact).unwrap_or_default();
        ledger.execute(SAVE_EVIDENCE, params![bits, fact.dedup_key, json])?;
    }
    for handoff in &effects.new_handoffs {
        let recipients = serde_json::to_string(&handoff.recipients).unwrap_or_default();
        let (state, due) = (handoff.state.as_str(), handoff.due_at.map(|at| at.0));
        ledger
            .execute(INSERT_HANDOFF, params![team, bits, handoff.number, handoff.transport, recipients, state, due])?;
    }
    effects.events.iter().for_each(|event| ledger.emit(team, event));
    Ok(())
}

/// Inserts or updates an attempt.
pub(crate) fn save_attempt(ledger: &WriteSession<'_>, bits: i64, attempt: &Attempt) -> Result<()> {
    let Attempt { handoff, number, at, ended_at, outcome, reply, details: about } = attempt;
    let about_json = (*about != AttemptDetails::default()).then(|| serde_json::to_string(about).unwrap_or_default());
    let outcome = outcome.map(Outcome::as_str);
    let ended = ended_at.map(|at| at.0);
    let row = params![bits, handoff, number, at.0, outcome, reply, ended, about.remote_id, about_json];
    ledger.execute(SAVE_ATTEMPT, row).map(drop)
}

/// Unknown handoffs that are due to be resolved, and that this node may resolve.
pub(crate) fn due_unknown(
    conn: &Connection,
    team_id: impl Fn(i64) -> Option<TeamId>,
    may_decide: impl Fn((&str, Option<&str>)) -> bool,
    (max, now): (usize, Time),
) -> Result<Vec<(Email, u16)>> {
    let mut statement = conn.prepare_cached(DUE_UNKNOWN).map_err(store_error)?;
    let mut rows = statement.query(params![now.0]).map_err(store_error)?;
    let mut places: Vec<HandoffRef> = Vec::new();
    while places.len() < max
        && let Some(row) = rows.next().map_err(store_error)?
    {
        let (transport, account): (String, Option<String>) =
            (row.get(3).map_err(store_error)?, row.get(4).map_err(store_error)?);
        if may_decide((&transport, account.as_deref())) {
            places.push((
                row.get(0).map_err(store_error)?,
                row.get(1).map_err(store_error)?,
                row.get(2).map_err(store_error)?,
            ));
        }
    }
    let mut found = Vec::with_capacity(places.len());
    for (team, bits, number) in places {
        let Some(id) = team_id(team) else { continue };
        if let Some(email) = rows::email_by_bits(conn, id, team, bits)? {
            found.push((email, number));
        }
    }
    Ok(found)
}

/// Waiting and unknown handoffs of transports that no node claims, counted per team and transport.
pub(crate) fn orphan_backlogs(conn: &Connection, claimed: impl Fn(&str) -> bool) -> Result<Vec<OrphanBacklog>> {
    let mut statement = conn.prepare_cached(UNCLAIMED).map_err(store_error)?;
    let rows = statement.query_map([], |row| {
        let team = TeamId(uuid::Uuid::from_bytes(row.get(0)?));
        let (waiting, unknown) = (row.get::<_, i64>(2)? as u64, row.get::<_, i64>(3)? as u64);
        Ok(OrphanBacklog { team, transport: row.get(1)?, waiting, unknown })
    });
    let all: Vec<OrphanBacklog> = rows.and_then(Iterator::collect).map_err(store_error)?;
    Ok(all.into_iter().filter(|orphans| !claimed(&orphans.transport)).collect())
}

/// Emails with an open handoff at a transport.
pub(crate) fn emails_open_at_transport(
    conn: &Connection,
    transport: &str,
    after: Option<(TeamId, EmailId)>,
    limit: usize,
) -> Result<Vec<(TeamId, EmailId)>> {
    let team = after.as_ref().map_or(&[][..], |(team, _)| team.0.as_bytes());
    let bits = after.map_or(i64::MIN, |(_, id)| ordered_bits(id.0));
    let mut statement = conn.prepare_cached(OPEN_AT).map_err(store_error)?;
    let rows = statement.query_map(params![transport, team, bits, limit as i64], |row| {
        let id = EmailId(mailonce_core::id::from_bits(row.get(1)?, row.get(2)?));
        Ok((TeamId(uuid::Uuid::from_bytes(row.get(0)?)), id))
    });
    rows.and_then(Iterator::collect).map_err(store_error)
}

/// Recovers handoffs whose lease holder is no longer alive.
pub(crate) fn recover_dead_nodes(
    ledger: &mut WriteSession<'_>,
    alive: impl Fn(NodeId) -> bool,
    max: usize,
    now: Time,
) -> Result<RecoveryCounts> {
    let left: Vec<(i64, i64, u16, [u8; 16])> = {
        let mut statement = ledger.conn.prepare_cached(LEASED_OR_SENDING).map_err(store_error)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
        rows.and_then(Iterator::collect).map_err(store_error)?
    };
    let mut recovered = RecoveryCounts::default();
    let dead = |(_, _, _, holder): &(i64, i64, u16, [u8; 16])| !alive(NodeId(uuid::Uuid::from_bytes(*holder)));
    for (team, bits, number, holder) in left.into_iter().filter(dead).take(max) {
        let id = ledger.team_id(team)?;
        let Some(email) = rows::email_by_bits(ledger.conn, id, team, bits)? else { continue };
        let act = HandoffAction::Crash { number, holder: NodeId(uuid::Uuid::from_bytes(holder)) };
        if let HandoffActionResult::Applied(HandoffActionStatus::Done, email) =
            apply_unless_duplicate(ledger, id, email.id, &act, now)?
        {
            recovered.count_handoff(&email, number);
        }
    }
    Ok(recovered)
}

/// The handoff to which the next hop assigned this remote id.
pub(crate) fn handoff_by_remote_id(conn: &Connection, team: i64, remote_id: &str) -> Result<Option<(EmailId, u16)>> {
    let mut statement = conn.prepare_cached(BY_REMOTE_ID).map_err(store_error)?;
    let row = statement.query_row(params![team, remote_id], |row| {
        Ok((EmailId(mailonce_core::id::from_bits(row.get(0)?, row.get(2)?)), row.get(1)?))
    });
    row.optional().map_err(store_error)
}

/// The number of waiting handoffs per transport, the oldest due time, and the number of unknown handoffs.
pub(crate) fn backlog(conn: &Connection) -> Result<Backlog> {
    let mut statement = conn.prepare_cached(COUNT_WAITING).map_err(store_error)?;
    let rows = statement
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, Option<i64>>(2)?)));
    let rows: Vec<(String, i64, Option<i64>)> = rows.and_then(Iterator::collect).map_err(store_error)?;
    let unknown: i64 = conn
        .query_row("SELECT COUNT(*) FROM handoffs WHERE state = 'unknown'", [], |row| row.get(0))
        .map_err(store_error)?;
    Ok(Backlog {
        oldest_due_at: rows.iter().filter_map(|(_, _, oldest)| *oldest).min().map(Time),
        waiting: rows.into_iter().map(|(transport, count, _)| (transport, count as u64)).collect(),
        unknown: unknown as u64,
    })
}

/// The evidence about an email, in the order in which it was recorded.
pub(crate) fn evidence(conn: &Connection, bits: i64) -> Result<Vec<Evidence>> {
    let mut statement =
        conn.prepare_cached("SELECT fact FROM evidence WHERE email = ?1 ORDER BY number").map_err(store_error)?;
    let rows = statement.query_map([bits], |row| row.get::<_, String>(0));
    let facts: Vec<String> = rows.and_then(Iterator::collect).map_err(store_error)?;
    facts.iter().map(|fact| serde_json::from_str(fact).map_err(|_json| rows::corrupt_row("evidence"))).collect()
}

impl Sqlite {
    /// Leases due handoffs: finds them on a reader connection, then leases those that are still due.
    pub(crate) async fn run_lease(&self, request: LeaseRequest, now: Time) -> Result<Vec<LeasedHandoff>> {
        let request = Arc::new(request);
        // Stopped handoffs are parked and leave the queue, so another round finds others.
        loop {
            let wanted = Arc::clone(&request);
            let places = self.run_query(move |conn| due_candidates(conn, &wanted, now)).await?;
            if places.is_empty() {
                return Ok(Vec::new());
            }
            let wanted = Arc::clone(&request);
            let round = self.run_write(move |ledger| lease(ledger, &places, &wanted, now)).await?;
            if round.parked == 0 || !round.leased.is_empty() {
                return Ok(round.leased);
            }
        }
    }
}
