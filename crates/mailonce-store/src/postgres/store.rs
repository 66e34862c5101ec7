//! Implements the port [`Store`] for [`Postgres`]. It only delegates to the domains.

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

use super::{Postgres, into_store_result, when_durable};
use crate::postgres::{
    access::teams,
    control::{budgets, records},
    error::{call_until_final, with_timeout},
    handoff::handoffs,
    outbound::{email_commands, email_lists, queries},
};

#[async_trait]
impl Store for Postgres {
    async fn accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        when_durable!(self, with_timeout(self.shared.accept(new_email, now)).await)
    }

    async fn simulate_accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        when_durable!(self, Box::pin(with_timeout(self.shared.simulate_accept(new_email, now))).await)
    }

    async fn accept_batch(&self, batch: NewBatch, now: Time) -> Result<BatchAcceptResult> {
        when_durable!(self, with_timeout(self.shared.accept_batch(batch, now)).await)
    }

    async fn key_binding(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyBinding>> {
        when_durable!(self, with_timeout(queries::key_binding(&self.shared, team, key, now)).await)
    }

    async fn bind_operation(&self, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>> {
        when_durable!(self, call_until_final!(email_commands::bind_operation_once(&self.shared, &operation, now)))
    }

    async fn cancel(
        &self,
        team: TeamId,
        id: EmailId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailChangeResult>> {
        when_durable!(self, call_until_final!(email_commands::cancel(&self.shared, team, id, operation.as_ref(), now)))
    }

    async fn reschedule(
        &self,
        team: TeamId,
        id: EmailId,
        new: RescheduleRequest,
        now: Time,
    ) -> Result<EmailChangeResult> {
        when_durable!(self, call_until_final!(email_commands::reschedule(&self.shared, team, id, &new, now)))
    }

    async fn resend(
        &self,
        new_email: NewEmail,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailResendResult>> {
        when_durable!(
            self,
            call_until_final!(email_commands::resend(&self.shared, &new_email, operation.as_ref(), now))
        )
    }

    async fn capture(&self, transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> Result<usize> {
        into_store_result(call_until_final!(email_commands::capture(&self.shared, transport, max, scheduled_by, now)))
    }

    async fn next_handoff_due(&self, transport: &str) -> Result<Option<Time>> {
        into_store_result(call_until_final!(email_commands::next_handoff_due(&self.shared, transport)))
    }

    async fn lease_handoffs(&self, request: LeaseRequest, now: Time) -> Result<Vec<LeasedHandoff>> {
        into_store_result(call_until_final!(handoffs::lease_handoffs(&self.shared, &request, now)))
    }

    async fn leased_handoff(&self, team: TeamId, id: EmailId, number: u16) -> Result<Option<LeasedHandoff>> {
        into_store_result(call_until_final!(handoffs::leased_handoff(&self.shared, team, id, number)))
    }

    async fn apply_action(
        &self,
        team: TeamId,
        id: EmailId,
        act: HandoffAction,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<HandoffActionResult>> {
        when_durable!(
            self,
            with_timeout(handoffs::apply_action(&self.shared, (team, id), act, operation.as_ref(), now)).await
        )
    }

    async fn due_unknown_handoffs(
        &self,
        mine: &[TransportAccount],
        max: usize,
        now: Time,
    ) -> Result<Vec<(Email, u16)>> {
        into_store_result(call_until_final!(handoffs::due_unknown_handoffs(&self.shared, mine, max, now)))
    }

    async fn publish_transports(&self, _node: NodeId, mine: &[TransportAccount], _now: Time) -> Result<()> {
        into_store_result(call_until_final!(handoffs::publish_transports(&self.shared, mine)))
    }

    async fn published_transports(&self) -> Result<Vec<String>> {
        when_durable!(self, handoffs::published_transports(&self.shared).await)
    }

    async fn orphan_backlogs(&self, known: &[String], _now: Time) -> Result<Vec<OrphanBacklog>> {
        into_store_result(call_until_final!(handoffs::orphan_backlogs(&self.shared, known)))
    }

    async fn emails_open_at_transport(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Result<Vec<(TeamId, EmailId)>> {
        into_store_result(call_until_final!(handoffs::emails_open_at_transport(&self.shared, transport, after, limit)))
    }

    async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat> {
        into_store_result(call_until_final!(handoffs::heartbeat(&self.shared, node, now)))
    }

    async fn recover_dead_nodes(&self, node: NodeId, max: usize, now: Time) -> Result<RecoveryCounts> {
        into_store_result(call_until_final!(handoffs::recover_dead_nodes(&self.shared, node, max, now)))
    }

    async fn handoff_by_remote_id(&self, team: TeamId, remote_id: &str) -> Result<Option<(EmailId, u16)>> {
        when_durable!(self, call_until_final!(handoffs::handoff_by_remote_id(&self.shared, team, remote_id)))
    }

    async fn backlog(&self) -> Result<Backlog> {
        into_store_result(call_until_final!(handoffs::backlog(&self.shared)))
    }

    async fn record_suppressed_calls(&self, calls: Vec<SuppressedCalls>, now: Time) -> Result<()> {
        into_store_result(call_until_final!(self.shared.record_suppressed_calls(&calls, now)))
    }

    async fn email(&self, team: TeamId, id: EmailId) -> Result<Option<Email>> {
        when_durable!(self, call_until_final!(queries::email(&self.shared, team, id)))
    }

    async fn email_detail(&self, team: TeamId, id: EmailId) -> Result<Option<EmailDetail>> {
        when_durable!(self, call_until_final!(queries::email_detail(&self.shared, team, id)))
    }

    async fn emails(&self, team: TeamId, query: EmailQuery) -> Result<ResultPage<Email>> {
        when_durable!(self, call_until_final!(email_lists::emails(&self.shared, team, &query)))
    }

    async fn count_emails(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<u64> {
        when_durable!(self, call_until_final!(queries::count_emails(&self.shared, team, from, to)))
    }

    async fn email_stats(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<EmailStats> {
        when_durable!(self, call_until_final!(queries::email_stats(&self.shared, team, from, to)))
    }

    async fn held_or_unknown_emails(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        when_durable!(self, call_until_final!(queries::held_or_unknown_emails(&self.shared, after, limit)))
    }

    async fn events(&self, team: TeamId, after: u64, limit: usize) -> Result<Vec<Event>> {
        when_durable!(self, call_until_final!(self.shared.events(team, after, limit)))
    }

    async fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyView>> {
        when_durable!(self, call_until_final!(queries::key_view(&self.shared, team, key, now)))
    }

    async fn extend_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> Result<KeyChangeResult> {
        when_durable!(self, call_until_final!(email_commands::extend_key(&self.shared, team, key, ttl, now)))
    }

    async fn forget_key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<KeyChangeResult> {
        when_durable!(self, call_until_final!(email_commands::forget_key(&self.shared, team, key, now)))
    }

    async fn create_team(
        &self,
        team: Team,
        key: ApiKey,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTeamResult>> {
        when_durable!(self, call_until_final!(teams::create_team(&self.shared, &team, &key, operation.as_ref())))
    }

    async fn teams(&self) -> Result<Vec<Team>> {
        when_durable!(self, call_until_final!(teams::teams(&self.shared)))
    }

    async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Option<Team>> {
        when_durable!(self, call_until_final!(teams::set_require_keys(&self.shared, team, require)))
    }

    async fn create_api_key(&self, key: ApiKey, operation: Option<KeyedOperation>) -> Result<IdempotentResult<()>> {
        when_durable!(self, call_until_final!(teams::create_api_key(&self.shared, &key, operation.as_ref())))
    }

    async fn api_keys(&self, team: TeamId) -> Result<Vec<ApiKey>> {
        when_durable!(self, call_until_final!(teams::api_keys(&self.shared, team)))
    }

    async fn api_key_by_hash(&self, hash: [u8; 32]) -> Result<Option<(ApiKey, Team)>> {
        into_store_result(call_until_final!(teams::api_key_by_hash(&self.shared, hash)))
    }

    async fn revoke_api_key(&self, team: TeamId, id: ApiKeyId, now: Time) -> Result<Option<ApiKey>> {
        when_durable!(self, call_until_final!(teams::revoke_api_key(&self.shared, team, id, now)))
    }

    async fn touch_api_keys(&self, used: Vec<(ApiKeyId, Time)>) -> Result<()> {
        into_store_result(call_until_final!(teams::touch_api_keys(&self.shared, &used)))
    }

    async fn create_record(
        &self,
        record: Record,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateRecordResult>> {
        when_durable!(self, call_until_final!(records::create_record(&self.shared, &record, operation.as_ref())))
    }

    async fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        when_durable!(self, call_until_final!(records::record(&self.shared, team, kind, id)))
    }

    async fn record_by_name(&self, team: TeamId, kind: RecordKind, name: &str) -> Result<Option<Record>> {
        when_durable!(self, call_until_final!(records::record_by_name(&self.shared, team, kind, name)))
    }

    async fn record_of_any_team(&self, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        when_durable!(self, call_until_final!(records::record_of_any_team(&self.shared, kind, id)))
    }

    async fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> Result<RecordPage> {
        when_durable!(self, call_until_final!(records::records(&self.shared, team, kind, before, limit)))
    }

    async fn change_record(
        &self,
        edit: RecordEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<RecordChangeResult>> {
        when_durable!(self, call_until_final!(records::change_record(&self.shared, &edit, operation.as_ref(), now)))
    }

    async fn remove_record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        when_durable!(self, call_until_final!(records::remove_record(&self.shared, team, kind, id)))
    }

    async fn budget_usage(&self, team: TeamId, counters: Vec<BudgetCounter>) -> Result<Vec<u64>> {
        when_durable!(self, call_until_final!(budgets::budget_usage(&self.shared, team, &counters)))
    }

    async fn installation(&self) -> Result<InstallationInfo> {
        into_store_result(call_until_final!(self.shared.installation()))
    }

    async fn has_restore_mark(&self) -> Result<bool> {
        into_store_result(call_until_final!(self.shared.has_restore_mark()))
    }

    async fn clear_restore_mark(&self) -> Result<()> {
        into_store_result(call_until_final!(self.shared.clear_restore_mark()))
    }

    async fn sweep(&self, max: usize, now: Time) -> Result<SweepCounts> {
        into_store_result(call_until_final!(self.shared.sweep(max, now)))
    }

    async fn health(&self) -> Result<Health> {
        into_store_result(call_until_final!(self.shared.health()))
    }

    fn epoch(&self) -> Option<u32> {
        Some(self.shared.connections.server.epoch())
    }

    fn fatal_error(&self) -> Option<StoreError> {
        None
    }

    fn gauges(&self) -> Gauges {
        self.shared.meter.gauges()
    }

    fn attach(&self, hooks: StoreHooks) -> HookCoverage {
        if let Some(clock) = hooks.clock {
            self.shared.time.set_clock(clock);
        }
        self.shared.event_subscribers.write().unwrap_or_else(PoisonError::into_inner).extend(hooks.events);
        // This node is not notified of emails and events that other nodes write.
        HookCoverage { emails: false, inbound: self.shared.wake_up_bus.subscribe(hooks.inbound), events: false }
    }

    async fn close(&self) {
        self.stop_workers().await;
    }
}
