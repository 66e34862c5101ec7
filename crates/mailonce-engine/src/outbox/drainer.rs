//! The drainer of one outbox: leases rows, accepts each as an email or offers it as a claim, under its key, and marks it.
//!
//! Several drainers may work on one outbox, in one process or on several nodes. The lease keeps them apart, but
//! correctness does not depend on it: two drainers that accept the same row get the same email, and only the latest lease
//! may mark the row.

use mailonce_core::{
    access::team::Team,
    exact_json::ExactJson,
    failpoint,
    id::ClaimId,
    key::{Key, KeyError},
    outbound::{
        email::Channel,
        key_binding::{KeyBinding, KeyView},
    },
    outbox::{LeasedRow, OutboxError, RowEmail, RowKind, RowOutcome, RowRecord, replayed_row_ttl, row_ttl},
    problem::{Code, Problem},
    retry::backoff_ms,
};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet, time::Instant};
use uuid::Uuid;

use super::config::OutboxConfig;
use crate::{
    access::caller::Caller,
    claims::Claims,
    outbound::{Outbound, send_receipt::SendReceipt},
    runtime::{context::Context, problems::unavailable},
};

/// Rows that one lease takes. They are accepted at the same time, so that the ledger commits many together.
const BATCH_SIZE: usize = 200;
/// How long a row is leased. After a crash its rows wait this long. An accept that takes longer is harmless: the row is
/// accepted again and gets the same email.
const LEASE: Duration = Duration::from_secs(10);
/// How often the outbox is read without a notification: for notifications that were lost, and for rows whose pause or
/// lease has ended.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often the state of accepted emails is written back.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Rows that one round of writing back examines.
const REFRESH_BATCH: usize = 200;
/// Rows that one call copies from the table that an outbox reads.
const COLLECT_BATCH: usize = 1_000;
/// How often to look whether an outbox reads a table, while it reads none.
const NO_TABLE_INTERVAL: Duration = Duration::from_secs(30);
/// A look at a large table takes long. It is repeated after this many times its duration.
const COLLECT_IDLE_FACTOR: u32 = 10;
/// The longest pause after a failure of the database.
const MAX_FAILURE_PAUSE: Duration = Duration::from_secs(15);

/// How long a running round may take to finish when the server shuts down.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a round could not run.
pub(super) enum DrainError {
    /// The user's database.
    Database(OutboxError),
    /// The ledger, or the team is not in it.
    Ledger(Problem),
}

impl From<OutboxError> for DrainError {
    fn from(error: OutboxError) -> Self {
        Self::Database(error)
    }
}

impl fmt::Display for DrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(error) => error.fmt(f),
            Self::Ledger(problem) => f.write_str(&problem.detail),
        }
    }
}

/// What a drainer does from time to time, and when it is due.
struct Schedule {
    refresh_at: Instant,
    /// The look at accepted emails that is running, if any.
    refresh: JoinSet<Result<(), DrainError>>,
    collect_at: Instant,
    /// Why the last look at the table failed.
    collect_error: Option<OutboxError>,
    /// Whether this process reported last that the drain stopped. `None`: it reported nothing yet.
    reported_stop: Option<bool>,
}

impl Schedule {
    fn new() -> Self {
        let now = Instant::now();
        Self { refresh_at: now, refresh: JoinSet::new(), collect_at: now, collect_error: None, reported_stop: None }
    }
}

/// The drainer of one outbox.
pub struct OutboxDrainer {
    pub(super) ctx: Arc<Context>,
    outbound: Arc<Outbound>,
    claims: Arc<Claims>,
    pub(super) config: OutboxConfig,
    /// The name under which this drainer leases, for people who look at the table.
    holder: String,
    /// Why the last round failed. Logged once, and shown by the API.
    pub(super) last_error: Mutex<Option<String>>,
}

impl OutboxDrainer {
    pub(super) fn new(
        ctx: &Arc<Context>,
        outbound: &Arc<Outbound>,
        claims: &Arc<Claims>,
        config: OutboxConfig,
    ) -> Self {
        let holder = format!("mailonce-{:016x}", ctx.entropy.next_u64());
        let (ctx, outbound, claims) = (Arc::clone(ctx), Arc::clone(outbound), Arc::clone(claims));
        Self { ctx, outbound, claims, config, holder, last_error: Mutex::default() }
    }

    /// Drains until `stop` changes. Rows that are leased by then are finished first.
    pub async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let (mut failures, mut schedule) = (0, Schedule::new());
        while !*stop.borrow() {
            let round = tokio::select! {
                biased;
                round = self.run_and_report(&mut schedule) => round,
                // A database that hangs does not keep the server from stopping. What was accepted and not marked is
                // accepted again by the next drainer.
                () = stop_timeout(stop.clone()) => return,
            };
            let pause = match round {
                // More rows may be due, such as the next ones of their order keys.
                Ok(leased) if leased > 0 => {
                    failures = 0;
                    continue;
                }
                Ok(_) => {
                    failures = 0;
                    None
                }
                Err(_) => {
                    failures += 1;
                    let jitter_seed = self.ctx.entropy.next_u64();
                    Some(Duration::from_millis(500 + backoff_ms(failures + 1, jitter_seed).cast_unsigned()))
                }
            };
            tokio::select! {
                biased;
                _ = stop.changed() => return,
                () = self.wait(pause) => {}
            }
        }
    }

    async fn run_and_report(self: &Arc<Self>, schedule: &mut Schedule) -> Result<usize, DrainError> {
        let round = self.run_round(schedule).await;
        self.report(round.as_ref().err());
        schedule.reported_stop = self.report_stop(round.as_ref().err(), schedule.reported_stop).await;
        round
    }

    /// Drains a batch, and copies rows from the table and writes states back when it is time. Returns how many rows were
    /// leased.
    async fn run_round(self: &Arc<Self>, schedule: &mut Schedule) -> Result<usize, DrainError> {
        if schedule.collect_at <= Instant::now() {
            self.collect(schedule).await;
        }
        let written_back = self.refresh(schedule);
        let leased = self.drain_once().await?;
        if leased > 0 {
            return Ok(leased);
        }
        // A table that cannot be read, or a state that cannot be written, does not hold up the other rows.
        match &schedule.collect_error {
            Some(error) => Err(error.clone().into()),
            None => written_back.map(|()| leased),
        }
    }

    /// Starts to write states back when it is time. That runs beside the draining, because looking at many emails would hold
    /// up the rows that wait. Returns why the last one failed.
    fn refresh(self: &Arc<Self>, schedule: &mut Schedule) -> Result<(), DrainError> {
        let last = match schedule.refresh.try_join_next() {
            Some(Ok(written_back)) => written_back,
            Some(Err(panic)) => {
                tracing::error!(outbox = self.config.name, %panic, "writing states back failed");
                Ok(())
            }
            None => Ok(()),
        };
        if schedule.refresh.is_empty() && schedule.refresh_at <= Instant::now() {
            schedule.refresh_at = Instant::now() + REFRESH_INTERVAL;
            let drainer = Arc::clone(self);
            schedule.refresh.spawn(async move {
                drainer.write_back_states().await?;
                match drainer.report_parked_rows().await {
                    // The lease says so as well. Here it could be an answer from before the confirmation.
                    Err(DrainError::Database(OutboxError::IdentityChanged(_))) => Ok(()),
                    reported => reported,
                }
            });
        }
        last
    }

    /// Copies new rows from the table that the outbox reads.
    async fn collect(&self, schedule: &mut Schedule) {
        let start = Instant::now();
        let copied = self.config.database.collect(COLLECT_BATCH).await;
        let pause = match &copied {
            Ok(Some(COLLECT_BATCH)) => Duration::ZERO,
            Ok(Some(_)) => POLL_INTERVAL.max(start.elapsed() * COLLECT_IDLE_FACTOR),
            Ok(None) => NO_TABLE_INTERVAL,
            Err(_) => POLL_INTERVAL,
        };
        schedule.collect_at = Instant::now() + pause;
        schedule.collect_error = copied.err();
    }

    async fn wait(&self, pause: Option<Duration>) {
        match pause {
            Some(pause) => tokio::time::sleep(pause.min(MAX_FAILURE_PAUSE)).await,
            None => self.config.database.wait_for_rows(POLL_INTERVAL).await,
        }
    }

    /// Logs an error once, and again when it has changed.
    fn report(&self, error: Option<&DrainError>) {
        let outbox = self.config.name.as_str();
        let text = error.map(ToString::to_string);
        let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == text {
            return;
        }
        match error {
            Some(DrainError::Database(changed @ OutboxError::IdentityChanged(_))) => tracing::error!(
                outbox,
                "the outbox is not drained until an operator runs `mailonce outbox confirm`: {changed}"
            ),
            Some(DrainError::Database(unreadable @ OutboxError::UnreadableTable(_))) => tracing::error!(
                outbox,
                "{unreadable}. Copy the rows with a trigger; or, if they stay from now on, run `mailonce outbox confirm`"
            ),
            Some(DrainError::Database(old @ OutboxError::WrongVersion { found, expected })) if found < expected => {
                tracing::error!(
                    outbox,
                    "the outbox is not drained until an operator runs `mailonce outbox upgrade`: {old}"
                );
            }
            Some(error) => tracing::warn!(outbox, "the outbox cannot be drained: {error}"),
            None => tracing::info!(outbox, "the outbox is drained again"),
        }
        *last = text;
    }

    /// The team that sends the emails of this outbox.
    pub(super) async fn team(&self) -> Result<Team, Problem> {
        let teams = self.ctx.store.teams().await.map_err(unavailable)?;
        let found = match (&self.config.team, teams.as_slice()) {
            (Some(name), teams) => teams.iter().find(|team| team.name == *name),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        let wanted = self.config.team.as_deref().unwrap_or("which the outbox does not name");
        found.cloned().ok_or_else(|| Problem::new(Code::NotFound, format!("there is no team {wanted}")))
    }

    async fn caller(&self) -> Result<Caller, DrainError> {
        let team = self.team().await.map_err(DrainError::Ledger)?;
        Ok(Caller::of_system(team, Channel::Outbox, self.ctx.now()))
    }

    /// Leases a batch of rows, accepts them and marks them. Returns how many were leased.
    async fn drain_once(self: &Arc<Self>) -> Result<usize, DrainError> {
        let caller = self.caller().await?;
        let outbox_id = self.config.database.outbox_id().await?;
        let rows = self.config.database.lease(&self.holder, BATCH_SIZE, LEASE).await?;
        let leased = rows.len();
        if leased > 0 {
            failpoint!("outbox-leased");
        }
        let mut tasks = JoinSet::new();
        for row in rows {
            let (drainer, caller) = (Arc::clone(self), caller.clone());
            tasks.spawn(async move { drainer.process(&caller, outbox_id, row).await });
        }
        let mut outcome = Ok(leased);
        // While one group is recorded, the next outcomes gather. A slow row does not delay the marks of the others.
        while let Some(first) = tasks.join_next().await {
            let ended = std::iter::once(first).chain(std::iter::from_fn(|| tasks.try_join_next()));
            let mut records = Vec::new();
            for joined in ended {
                match joined {
                    Ok(record) => records.push(record),
                    // The row stays leased, and is offered again when its lease ends.
                    Err(panic) => tracing::error!(outbox = self.config.name, %panic, "accepting a row failed"),
                }
            }
            if let Err(error) = self.record(records).await {
                outcome = Err(error.into());
            }
        }
        outcome
    }

    /// Accepts or offers one row. Returns what to record.
    async fn process(&self, caller: &Caller, outbox_id: Uuid, row: LeasedRow) -> RowRecord {
        let taken = match row.kind {
            RowKind::Email => self
                .accept(caller, outbox_id, &row)
                .await
                .map(|receipt| RowOutcome::Done(RowEmail { id: receipt.id, state: receipt.state, rev: receipt.rev })),
            RowKind::Claim => self.offer(caller, &row).await.map(RowOutcome::Offered),
        };
        let outcome = taken
            .unwrap_or_else(|problem| RowOutcome::after_problem(&problem, row.attempts, self.ctx.entropy.next_u64()));
        failpoint!("outbox-accepted");
        RowRecord { row: row.id, fence: row.fence, outcome }
    }

    /// Records outcomes, counts them and logs dead letters.
    async fn record(&self, records: Vec<RowRecord>) -> Result<(), OutboxError> {
        if records.is_empty() {
            return Ok(());
        }
        let recorded = self.config.database.record_outcomes(&records).await?;
        failpoint!("outbox-marked");
        let outbox = self.config.name.as_str();
        for RowRecord { row, outcome, .. } in records {
            if !recorded.contains(&row) {
                tracing::debug!(outbox, %row, "another drainer has leased the row since");
                continue;
            }
            self.ctx.metrics.record_outbox_row(&outcome);
            match outcome {
                RowOutcome::Parked(failure) => {
                    tracing::warn!(outbox, %row, code = failure.code, "a row was parked: {}", failure.detail);
                }
                RowOutcome::Retry { failure, .. } => tracing::debug!(outbox, %row, code = failure.code, "a row waits"),
                RowOutcome::Done(_) | RowOutcome::Offered(_) => {}
            }
        }
        Ok(())
    }

    /// Offers the claim of a row to workers.
    async fn offer(&self, caller: &Caller, row: &LeasedRow) -> Result<ClaimId, Problem> {
        let missing = || Problem::new(Code::InvalidKey, "a row for a claim must have a key");
        let key = row.given_key().ok_or_else(missing)?.map_err(invalid_key)?;
        let invalid = |error| Problem::new(Code::InvalidJson, format!("the payload of the row is not JSON: {error}"));
        let payload = ExactJson::parse(&row.payload).map_err(invalid)?;
        self.claims.offer(caller, key, &payload).await.map(|claim| claim.id)
    }

    /// Accepts the email of a row as a call of `POST /v1/emails` with the row's key would.
    async fn accept(&self, caller: &Caller, outbox_id: Uuid, row: &LeasedRow) -> Result<SendReceipt, Problem> {
        let mut request = (self.config.parse_payload)(row.payload.as_bytes())?;
        request.key = match row.given_key() {
            Some(key) => Some(key.map_err(invalid_key)?),
            // The key is derived from the intent, as for every other call.
            None if request.intent.is_some() => None,
            None => Some(row.default_key(outbox_id).map_err(invalid_key)?),
        };
        request.ttl = Some(row_ttl(request.ttl));
        let receipt = self.outbound.send(caller, request).await?;
        if !receipt.first {
            self.remember_key(caller, &receipt).await?;
        }
        Ok(receipt)
    }

    /// Remembers the key of an earlier email for 35 days from now. Another call may have bound it for less, or the email
    /// ended long ago; a key that is forgotten before the row is marked would be free for a second email.
    async fn remember_key(&self, caller: &Caller, receipt: &SendReceipt) -> Result<(), Problem> {
        let Some(key) = receipt.key.as_deref().and_then(|key| Key::parse(key).ok()) else { return Ok(()) };
        let extended = match self.outbound.key(caller, &key).await {
            Ok(KeyView { binding: Some(KeyBinding::Email(email)), .. }) => {
                let ttl = replayed_row_ttl(email.settled_at, self.ctx.now());
                if email.ttl.0 < ttl.0 { self.outbound.extend_key(caller, &key, ttl).await.map(drop) } else { Ok(()) }
            }
            Ok(_) => Ok(()),
            Err(problem) => Err(problem),
        };
        // Forgotten in this moment: the row still belongs to the email that the receipt names.
        extended.or_else(|problem| if problem.code == Code::NotFound { Ok(()) } else { Err(problem) })
    }

    /// Writes the state of accepted emails to their rows.
    async fn write_back_states(&self) -> Result<(), DrainError> {
        let rows = self.config.database.rows_to_refresh(REFRESH_BATCH).await?;
        if rows.is_empty() {
            return Ok(());
        }
        let team = self.caller().await?.team.id;
        let mut changed = Vec::new();
        for (row, shown) in rows {
            let found = self.ctx.store.email(team, shown.id).await;
            let found = found.map_err(|error| DrainError::Ledger(unavailable(error)))?;
            if let Some(email) = found.filter(|email| email.rev > shown.rev) {
                changed.push((row, RowEmail { id: email.id, state: email.state(), rev: email.rev }));
            }
        }
        if !changed.is_empty() {
            self.config.database.write_back(&changed).await?;
        }
        Ok(())
    }
}

fn invalid_key(error: KeyError) -> Problem {
    Problem::new(Code::InvalidKey, format!("the key of the row is not valid: {error}"))
}

/// Returns some seconds after the server began to stop.
async fn stop_timeout(mut stop: watch::Receiver<bool>) {
    // A closed channel means the same.
    let _closed = stop.wait_for(|stopped| *stopped).await.is_err();
    tokio::time::sleep(STOP_TIMEOUT).await;
}
