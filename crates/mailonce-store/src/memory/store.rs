//! Implements the port [`Store`] for [`Memory`]. It only delegates to the tables.

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
use std::sync::PoisonError;
use uuid::Uuid;

use crate::memory::Memory;

#[async_trait]
impl Store for Memory {
    async fn accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        Ok(self.accept_email(new_email, now))
    }

    async fn simulate_accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        Ok(self.lock_tables().simulate_accept(new_email, now))
    }

    async fn accept_batch(&self, batch: NewBatch, now: Time) -> Result<BatchAcceptResult> {
        Ok(self.accept_emails(batch, now))
    }

    async fn key_binding(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyBinding>> {
        Ok(self.lock_tables().outbound.key_binding(team, key, now))
    }

    async fn bind_operation(&self, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>> {
        Ok(self.lock_tables().outbound.bind_operation_once(&operation, now))
    }

    async fn cancel(
        &self,
        team: TeamId,
        id: EmailId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailChangeResult>> {
        Ok(self.cancel_email(team, id, operation, now))
    }

    async fn reschedule(
        &self,
        team: TeamId,
        id: EmailId,
        new: RescheduleRequest,
        now: Time,
    ) -> Result<EmailChangeResult> {
        Ok(self.reschedule_email(team, id, new, now))
    }

    async fn resend(
        &self,
        new_email: NewEmail,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailResendResult>> {
        Ok(self.resend_email(new_email, operation, now))
    }

    async fn capture(&self, transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> Result<usize> {
        Ok(self.capture_due(transport, max, scheduled_by, now))
    }

    async fn next_handoff_due(&self, transport: &str) -> Result<Option<Time>> {
        Ok(self
            .lock_tables()
            .outbound
            .due_handoffs(transport, 1, Some(Time(i64::MAX)), Time(i64::MAX))
            .first()
            .map(|(at, _, _)| *at))
    }

    async fn lease_handoffs(&self, request: LeaseRequest, now: Time) -> Result<Vec<LeasedHandoff>> {
        // Notify under the lock, so that subscribers see changes in commit order.
        let mut tables = self.lock_tables();
        let leased = tables.lease_handoffs(&request, now);
        leased.iter().for_each(|leased| self.notify_email_changed(&leased.email));
        Ok(leased)
    }

    async fn leased_handoff(&self, team: TeamId, id: EmailId, number: u16) -> Result<Option<LeasedHandoff>> {
        let tables = self.lock_tables();
        Ok(tables.outbound.email_of_team(team, id).map(|email| tables.with_bytes(email, number)))
    }

    async fn apply_action(
        &self,
        team: TeamId,
        id: EmailId,
        act: HandoffAction,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<HandoffActionResult>> {
        let mut tables = self.lock_tables();
        let before = tables.outbound.email_of_team(team, id);
        let acted = tables.apply_action(team, id, &act, operation.as_ref(), self.time.commit_time(now));
        if let Some(email) = tables.outbound.email_of_team(team, id).filter(|email| before.as_ref() != Some(email)) {
            self.notify_email_changed(&email);
        }
        Ok(acted)
    }

    async fn due_unknown_handoffs(
        &self,
        mine: &[TransportAccount],
        max: usize,
        now: Time,
    ) -> Result<Vec<(Email, u16)>> {
        Ok(self.lock_tables().due_unknown_handoffs(mine, max, now))
    }

    async fn publish_transports(&self, node: NodeId, mine: &[TransportAccount], now: Time) -> Result<()> {
        self.lock_tables().handoffs.transport_registry.publish(node, mine, now);
        Ok(())
    }

    async fn orphan_backlogs(&self, known: &[String], now: Time) -> Result<Vec<OrphanBacklog>> {
        Ok(self.lock_tables().orphan_backlogs(known, now))
    }

    async fn emails_open_at_transport(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Result<Vec<(TeamId, EmailId)>> {
        Ok(self.lock_tables().outbound.emails_open_at_transport(transport, after, limit))
    }

    async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat> {
        let mut tables = self.lock_tables();
        tables.handoffs.nodes.insert(node, now);
        Ok(Heartbeat {
            latest_time: tables.handoffs.nodes.values().max().copied().unwrap_or(now),
            database_clock: None,
        })
    }

    async fn recover_dead_nodes(&self, node: NodeId, max: usize, now: Time) -> Result<RecoveryCounts> {
        let mut tables = self.lock_tables();
        let (recovered, changed) = tables.recover_dead_nodes(node, max, now);
        changed.iter().for_each(|email| self.notify_email_changed(email));
        Ok(recovered)
    }

    async fn handoff_by_remote_id(&self, team: TeamId, remote_id: &str) -> Result<Option<(EmailId, u16)>> {
        Ok(self.lock_tables().handoff_by_remote_id(team, remote_id))
    }

    async fn backlog(&self) -> Result<Backlog> {
        Ok(self.lock_tables().outbound.backlog())
    }

    async fn record_suppressed_calls(&self, calls: Vec<SuppressedCalls>, now: Time) -> Result<()> {
        self.count_suppressed_calls(calls, now);
        Ok(())
    }

    async fn email(&self, team: TeamId, id: EmailId) -> Result<Option<Email>> {
        Ok(self.lock_tables().outbound.email_of_team(team, id))
    }

    async fn email_detail(&self, team: TeamId, id: EmailId) -> Result<Option<EmailDetail>> {
        Ok(self.lock_tables().email_detail(team, id))
    }

    async fn emails(&self, team: TeamId, query: EmailQuery) -> Result<ResultPage<Email>> {
        Ok(self.lock_tables().outbound.list_emails(team, &query))
    }

    async fn count_emails(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<u64> {
        Ok(self.lock_tables().outbound.count_emails(team, from, to))
    }

    async fn email_stats(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<EmailStats> {
        Ok(self.lock_tables().outbound.email_stats(team, from, to))
    }

    async fn held_or_unknown_emails(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        Ok(self.lock_tables().outbound.held_or_unknown_emails(after, limit))
    }

    async fn events(&self, team: TeamId, after: u64, limit: usize) -> Result<Vec<Event>> {
        Ok(self.lock_tables().events.page_after(team, after, limit))
    }

    async fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyView>> {
        Ok(self.lock_tables().outbound.key_view(team, key, now))
    }

    async fn extend_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> Result<KeyChangeResult> {
        Ok(self.extend_email_key(team, key, ttl, now))
    }

    async fn forget_key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<KeyChangeResult> {
        Ok(self.forget_email_key(team, key, now))
    }

    async fn create_team(
        &self,
        team: Team,
        key: ApiKey,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTeamResult>> {
        Ok(self.lock_tables().create_team(team, key, operation.as_ref()))
    }

    async fn teams(&self) -> Result<Vec<Team>> {
        Ok(self.lock_tables().access.teams.values().cloned().collect())
    }

    async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Option<Team>> {
        Ok(self.lock_tables().set_require_keys(team, require, self.time.commit_time(Time(0))))
    }

    async fn create_api_key(&self, key: ApiKey, operation: Option<KeyedOperation>) -> Result<IdempotentResult<()>> {
        Ok(self.lock_tables().create_api_key(key, operation.as_ref()))
    }

    async fn api_keys(&self, team: TeamId) -> Result<Vec<ApiKey>> {
        Ok(self.lock_tables().access.api_keys(team))
    }

    async fn api_key_by_hash(&self, hash: [u8; 32]) -> Result<Option<(ApiKey, Team)>> {
        Ok(self.lock_tables().access.api_key_by_hash(hash))
    }

    async fn revoke_api_key(&self, team: TeamId, id: ApiKeyId, now: Time) -> Result<Option<ApiKey>> {
        Ok(self.lock_tables().revoke_api_key(team, id, now))
    }

    async fn touch_api_keys(&self, used: Vec<(ApiKeyId, Time)>) -> Result<()> {
        self.lock_tables().access.touch_api_keys(&used);
        Ok(())
    }

    async fn create_record(
        &self,
        record: Record,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateRecordResult>> {
        Ok(self.lock_tables().create_record(record, operation.as_ref()))
    }

    async fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        Ok(self.lock_tables().control.record(team, kind, id))
    }

    async fn record_by_name(&self, team: TeamId, kind: RecordKind, name: &str) -> Result<Option<Record>> {
        Ok(self.lock_tables().control.record_by_name(team, kind, name))
    }

    async fn record_of_any_team(&self, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        Ok(self.lock_tables().control.records.get(&id).filter(|record| record.kind == kind).cloned())
    }

    async fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> Result<RecordPage> {
        Ok(self.lock_tables().control.records(team, kind, before, limit))
    }

    async fn change_record(
        &self,
        edit: RecordEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<RecordChangeResult>> {
        Ok(self.lock_tables().change_record(edit, operation.as_ref(), now))
    }

    async fn remove_record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        Ok(self.lock_tables().remove_record(team, kind, id, self.time.commit_time(Time(0))))
    }

    async fn budget_usage(&self, team: TeamId, counters: Vec<BudgetCounter>) -> Result<Vec<u64>> {
        let tables = self.lock_tables();
        Ok(counters.into_iter().map(|counter| tables.control.budget_used(team, counter)).collect())
    }

    async fn installation(&self) -> Result<InstallationInfo> {
        let tables = self.lock_tables();
        let seen_at = tables.handoffs.nodes.values().max().copied();
        Ok(InstallationInfo {
            secret: self.secret.clone(),
            epoch: 1,
            last_id: tables.highest_id,
            last_heartbeat_at: seen_at,
            database_clock: None,
        })
    }

    async fn sweep(&self, max: usize, now: Time) -> Result<SweepCounts> {
        Ok(self.lock_tables().sweep(max, now))
    }

    async fn health(&self) -> Result<Health> {
        Ok(Health { engine: "memory", degraded: true, notes: vec!["nothing is durable".into()] })
    }

    fn fatal_error(&self) -> Option<StoreError> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges { keys: self.lock_tables().outbound.keys.len() as u64, ..Gauges::default() }
    }

    fn attach(&self, hooks: StoreHooks) -> HookCoverage {
        if let Some(clock) = hooks.clock {
            self.time.set_clock(clock);
        }
        self.email_subscribers.lock().unwrap_or_else(PoisonError::into_inner).extend(hooks.emails);
        self.inbound_subscribers.lock().unwrap_or_else(PoisonError::into_inner).extend(hooks.inbound);
        // The tables call nobody when they append an event.
        HookCoverage { emails: true, inbound: true, events: false }
    }

    async fn close(&self) {}
}
