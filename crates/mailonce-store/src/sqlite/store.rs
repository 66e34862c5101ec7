//! Implements the port [`Store`] for [`Sqlite`]. It only delegates to the domains.

use async_trait::async_trait;
use mailonce_core::{
    access::team::{ApiKey, CreateTeamResult, Team},
    control::budget::BudgetCounter,
    events::event::Event,
    handoff::{
        action::HandoffAction,
        lease::{Backlog, HandoffActionResult, LeaseRequest, LeasedHandoff, OrphanBacklog, TransportAccount},
    },
    id::{ApiKeyId, EmailId, NodeId, TeamId},
    installation::{Gauges, Health, Heartbeat, InstallationInfo, RecoveryCounts, SweepCounts},
    key::KeyHash,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        email::Email,
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
        email_query::{EmailDetail, EmailQuery, EmailStats, ResultPage},
        key_binding::{KeyBinding, KeyChangeResult, KeyView},
        suppressed_call::SuppressedCalls,
    },
    ports::store::{HookCoverage, Result, Store, StoreError, StoreHooks},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordEdit, RecordKind, RecordPage},
    time::Time,
    ttl::Ttl,
};
use rusqlite::Connection;
use std::sync::{Arc, PoisonError};
use uuid::Uuid;

use crate::sqlite::{
    Sqlite,
    access::teams,
    control::{
        budgets,
        records::{self, RecordScope},
    },
    events::event_log,
    handoff::handoffs,
    outbound::{accept, email_commands, key_bindings, queries},
    rows, upkeep,
};

#[async_trait]
impl Store for Sqlite {
    async fn accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        self.run_accept(new_email, now).await
    }

    async fn simulate_accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        self.run_simulated_accept(new_email, now).await
    }

    async fn accept_batch(&self, batch: NewBatch, now: Time) -> Result<BatchAcceptResult> {
        self.run_accept_batch(batch, now).await
    }

    async fn key_binding(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyBinding>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        let (fresh, expiry_cutoff) = (Arc::clone(&self.fresh_keys), self.time.expiry_cutoff(now));
        self.run_query(move |conn| key_bindings::read_key_binding(conn, &fresh, (team, number), key, expiry_cutoff))
            .await
    }

    async fn bind_operation(&self, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>> {
        self.run_write(move |ledger| key_bindings::bind_operation_once(ledger, &operation, now)).await
    }

    async fn cancel(
        &self,
        team: TeamId,
        id: EmailId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailChangeResult>> {
        self.run_write(move |ledger| email_commands::cancel(ledger, team, id, operation.as_ref(), now)).await
    }

    async fn reschedule(
        &self,
        team: TeamId,
        id: EmailId,
        new: RescheduleRequest,
        now: Time,
    ) -> Result<EmailChangeResult> {
        self.run_write(move |ledger| email_commands::reschedule(ledger, team, id, &new, now)).await
    }

    async fn resend(
        &self,
        new_email: NewEmail,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailResendResult>> {
        self.run_write(move |ledger| accept::resend(ledger, new_email, operation.as_ref(), now)).await
    }

    async fn capture(&self, transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> Result<usize> {
        let transport = transport.to_owned();
        self.run_write(move |ledger| email_commands::capture(ledger, &transport, max, scheduled_by, now)).await
    }

    async fn next_handoff_due(&self, transport: &str) -> Result<Option<Time>> {
        let transport = transport.to_owned();
        self.run_query(move |conn| email_commands::next_handoff_due(conn, &transport)).await
    }

    async fn lease_handoffs(&self, request: LeaseRequest, now: Time) -> Result<Vec<LeasedHandoff>> {
        self.run_lease(request, now).await
    }

    async fn leased_handoff(&self, team: TeamId, id: EmailId, number: u16) -> Result<Option<LeasedHandoff>> {
        let Some(row) = self.team_number(team) else { return Ok(None) };
        let look = move |conn: &Connection| match rows::email_by_id(conn, team, row, id)? {
            Some(email) => handoffs::with_bytes(conn, email, number).map(Some),
            None => Ok(None),
        };
        self.run_query(look).await
    }

    async fn apply_action(
        &self,
        team: TeamId,
        id: EmailId,
        act: HandoffAction,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<HandoffActionResult>> {
        self.run_write(move |ledger| handoffs::apply_action(ledger, (team, id), &act, operation.as_ref(), now)).await
    }

    async fn due_unknown_handoffs(
        &self,
        mine: &[TransportAccount],
        max: usize,
        now: Time,
    ) -> Result<Vec<(Email, u16)>> {
        let teams = Arc::clone(&self.teams);
        let team_id = move |number| teams.read().unwrap_or_else(PoisonError::into_inner).id(number);
        let (published, mine) = (self.transport_registry(), mine.to_vec());
        let may_decide = move |place: (&str, Option<&str>)| published.may_resolve(&mine, place, now);
        self.run_query(move |conn| handoffs::due_unknown(conn, team_id, may_decide, (max, now))).await
    }

    async fn publish_transports(&self, node: NodeId, mine: &[TransportAccount], now: Time) -> Result<()> {
        self.transport_registry.lock().unwrap_or_else(PoisonError::into_inner).publish(node, mine, now);
        Ok(())
    }

    async fn orphan_backlogs(&self, known: &[String], now: Time) -> Result<Vec<OrphanBacklog>> {
        let (published, known) = (self.transport_registry(), known.to_vec());
        let claimed = move |name: &str| known.iter().any(|known| known == name) || published.is_live(name, now);
        self.run_query(move |conn| handoffs::orphan_backlogs(conn, claimed)).await
    }

    async fn emails_open_at_transport(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Result<Vec<(TeamId, EmailId)>> {
        let transport = transport.to_owned();
        self.run_query(move |conn| handoffs::emails_open_at_transport(conn, &transport, after, limit)).await
    }

    async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat> {
        self.record_heartbeat(node, now).await
    }

    async fn recover_dead_nodes(&self, node: NodeId, max: usize, now: Time) -> Result<RecoveryCounts> {
        self.run_recovery(node, max, now).await
    }

    async fn handoff_by_remote_id(&self, team: TeamId, remote_id: &str) -> Result<Option<(EmailId, u16)>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        let remote_id = remote_id.to_owned();
        self.run_query(move |conn| handoffs::handoff_by_remote_id(conn, number, &remote_id)).await
    }

    async fn backlog(&self) -> Result<Backlog> {
        self.run_query(handoffs::backlog).await
    }

    async fn record_suppressed_calls(&self, calls: Vec<SuppressedCalls>, now: Time) -> Result<()> {
        self.run_write(move |ledger| email_commands::record_suppressed_calls(ledger, calls, now)).await
    }

    async fn email(&self, team: TeamId, id: EmailId) -> Result<Option<Email>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| rows::email_by_id(conn, team, number, id)).await
    }

    async fn email_detail(&self, team: TeamId, id: EmailId) -> Result<Option<EmailDetail>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| queries::detail(conn, team, number, id)).await
    }

    async fn emails(&self, team: TeamId, query: EmailQuery) -> Result<ResultPage<Email>> {
        let Some(number) = self.team_number(team) else { return Ok(ResultPage { rows: Vec::new(), next: None }) };
        let fresh = Arc::clone(&self.fresh_keys);
        self.run_query(move |conn| queries::list_emails(conn, &fresh, (team, number), &query)).await
    }

    async fn count_emails(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<u64> {
        let Some(number) = self.team_number(team) else { return Ok(0) };
        self.run_query(move |conn| queries::count_emails(conn, number, from, to)).await
    }

    async fn email_stats(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<EmailStats> {
        let Some(number) = self.team_number(team) else { return Ok(EmailStats::default()) };
        self.run_query(move |conn| queries::email_stats(conn, number, from, to)).await
    }

    async fn held_or_unknown_emails(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        self.run_query(move |conn| queries::held_or_unknown_emails(conn, after, limit)).await
    }

    async fn events(&self, team: TeamId, after: u64, limit: usize) -> Result<Vec<Event>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| event_log::events_after(conn, number, after, limit)).await
    }

    async fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyView>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        let (fresh, forget_by) = (Arc::clone(&self.fresh_keys), self.time.expiry_cutoff(now));
        self.run_query(move |conn| queries::key_view(conn, &fresh, (team, number), key, forget_by)).await
    }

    async fn extend_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> Result<KeyChangeResult> {
        self.run_write(move |ledger| email_commands::extend_key(ledger, team, key, ttl, now)).await
    }

    async fn forget_key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<KeyChangeResult> {
        self.run_write(move |ledger| email_commands::forget_key(ledger, team, key, now)).await
    }

    async fn create_team(
        &self,
        team: Team,
        key: ApiKey,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTeamResult>> {
        self.run_create_team(team, key, operation).await
    }

    async fn teams(&self) -> Result<Vec<Team>> {
        self.run_query(teams::teams).await
    }

    async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Option<Team>> {
        self.run_write(move |ledger| teams::set_require_keys(ledger, team, require)).await
    }

    async fn create_api_key(&self, key: ApiKey, operation: Option<KeyedOperation>) -> Result<IdempotentResult<()>> {
        self.run_write(move |ledger| teams::create_api_key(ledger, &key, operation.as_ref())).await
    }

    async fn api_keys(&self, team: TeamId) -> Result<Vec<ApiKey>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| teams::api_keys(conn, team, number)).await
    }

    async fn api_key_by_hash(&self, hash: [u8; 32]) -> Result<Option<(ApiKey, Team)>> {
        self.run_query(move |conn| teams::api_key_by_hash(conn, hash)).await
    }

    async fn revoke_api_key(&self, team: TeamId, id: ApiKeyId, now: Time) -> Result<Option<ApiKey>> {
        self.run_write(move |ledger| teams::revoke_api_key(ledger, team, id, now)).await
    }

    async fn touch_api_keys(&self, used: Vec<(ApiKeyId, Time)>) -> Result<()> {
        self.run_write(move |ledger| teams::touch_api_keys(ledger, &used)).await
    }

    async fn create_record(
        &self,
        record: Record,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateRecordResult>> {
        self.run_write(move |ledger| records::create(ledger, &record, operation.as_ref())).await
    }

    async fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| RecordScope { team, number, kind }.by_id(conn, id)).await
    }

    async fn record_by_name(&self, team: TeamId, kind: RecordKind, name: &str) -> Result<Option<Record>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        let name = name.to_owned();
        self.run_query(move |conn| RecordScope { team, number, kind }.by_name(conn, &name)).await
    }

    async fn record_of_any_team(&self, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        self.run_query(move |conn| records::by_id_any_team(conn, kind, id)).await
    }

    async fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> Result<RecordPage> {
        let Some(number) = self.team_number(team) else { return Ok(RecordPage { rows: Vec::new(), next: None }) };
        self.run_query(move |conn| RecordScope { team, number, kind }.list(conn, before, limit)).await
    }

    async fn change_record(
        &self,
        edit: RecordEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<RecordChangeResult>> {
        self.run_write(move |ledger| records::change(ledger, edit, operation.as_ref(), now)).await
    }

    async fn remove_record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        self.run_write(move |ledger| records::remove(ledger, team, kind, id)).await
    }

    async fn budget_usage(&self, team: TeamId, counters: Vec<BudgetCounter>) -> Result<Vec<u64>> {
        let Some(number) = self.team_number(team) else { return Ok(vec![0; counters.len()]) };
        self.run_query(move |conn| counters.iter().map(|counter| budgets::used(conn, number, *counter)).collect()).await
    }

    async fn installation(&self) -> Result<InstallationInfo> {
        let secret = self.secret.clone();
        self.run_query(|conn| upkeep::installation(conn, secret)).await
    }

    async fn sweep(&self, max: usize, now: Time) -> Result<SweepCounts> {
        self.run_sweep(max, now).await
    }

    async fn health(&self) -> Result<Health> {
        self.run_write(|_| Ok(())).await?;
        Ok(Health { engine: "sqlite", degraded: false, notes: vec!["journal_mode=wal synchronous=full".into()] })
    }

    fn fatal_error(&self) -> Option<StoreError> {
        self.writer.failure()
    }

    fn gauges(&self) -> Gauges {
        Gauges { keys: self.fresh_keys.count(), ..self.writer.gauges() }
    }

    fn attach(&self, hooks: StoreHooks) -> HookCoverage {
        if let Some(clock) = hooks.clock {
            self.time.set_clock(clock);
        }
        self.subscribers.emails.write().unwrap_or_else(PoisonError::into_inner).extend(hooks.emails);
        self.subscribers.inbound.write().unwrap_or_else(PoisonError::into_inner).extend(hooks.inbound);
        self.subscribers.events.write().unwrap_or_else(PoisonError::into_inner).extend(hooks.events);
        HookCoverage { emails: true, inbound: true, events: true }
    }

    async fn close(&self) {
        self.stop_threads().await;
    }
}
