//! The store as one process of a node sees it: the memory store behind errors, lost replies and crashes.

mod audit;
mod claims;
mod control;
pub(crate) mod conversation;
mod erasure;
pub(crate) mod events;
pub(crate) mod inbound;
mod oauth_clients;
mod search;
mod templates;

use super::plan::FaultKind;
use crate::world::{mutants::ports, node_process::NodeProcess};
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
    installation::{DatabaseClock, Gauges, Health, Heartbeat, InstallationInfo, RecoveryCounts, SweepCounts},
    key::KeyHash,
    mutant,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        accept_decision::FirstSend,
        email::Email,
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
        email_query::{EmailDetail, EmailQuery, EmailStats, ResultPage},
        key_binding::{KeyBinding, KeyChangeResult, KeyView},
        suppressed_call::SuppressedCalls,
    },
    ports::store::{HookCoverage, Result, SharedLedgerClock, Store, StoreError, StoreHooks},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordEdit, RecordKind, RecordPage},
    time::Time,
    ttl::Ttl,
};
use mailonce_store::memory::Memory;
use std::{
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};
use uuid::Uuid;

/// Percentage of calls that take a moment, so that others can interleave.
const SLOW_CALL_PERCENT: u64 = 25;

/// The store of one process.
pub(super) struct FaultyStore {
    pub(super) inner: Arc<Memory>,
    pub(super) process: Arc<NodeProcess>,
    /// Whether no other node uses the ledger.
    pub(super) is_single_node: bool,
    /// The source of this process's commit times.
    pub(super) clock: OnceLock<SharedLedgerClock>,
}

impl FaultyStore {
    /// Runs a store call with the faults of the network in both directions.
    pub(super) async fn call_with_faults<T>(
        &self,
        name: &'static str,
        writes: bool,
        verb: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let shared = &self.process.shared;
        self.process.wait_while_paused().await;
        if shared.below(100) < SLOW_CALL_PERCENT {
            tokio::time::sleep(Duration::from_millis(shared.between(1, 4))).await;
            self.process.wait_while_paused().await;
        }
        shared.trace(|| format!("{} {name}", self.process.name));
        if shared.draw_fault(FaultKind::StoreDown) {
            shared.record_fault(FaultKind::StoreDown, vec!["nobody".into()]);
            return Err(StoreError::Unreachable("nobody answers".into()));
        }
        // The memory store serves every process, so each call brings the clock of its process.
        self.inner.attach(StoreHooks { clock: self.clock.get().cloned(), ..StoreHooks::default() });
        let answer = verb.await;
        if shared.below(100) < SLOW_CALL_PERCENT {
            tokio::time::sleep(Duration::from_millis(shared.between(1, 4))).await;
        }
        self.process.wait_while_paused().await;
        if writes && shared.draw_fault(FaultKind::LostCommit) {
            shared.record_fault(FaultKind::LostCommit, vec!["nobody".into()]);
            return Err(ports::lost_commit_error("the answer to the commit was lost".into()));
        }
        answer
    }
}

impl FaultyStore {
    /// A ledger of several nodes is a database on another host, whose clock is right.
    fn database_clock(&self) -> Option<DatabaseClock> {
        let clock = DatabaseClock { now: Time(self.process.shared.now()), is_on_other_host: true };
        (!self.is_single_node).then_some(clock)
    }
}

/// Mutants of the store.
impl FaultyStore {
    /// Acknowledges an email before its commit.
    async fn ack_before_commit(&self, request: NewEmail, now: Time) -> Result<AcceptResult> {
        self.process.wait_while_paused().await;
        if let Some(bound) = self.key_binding(request.team, request.key.unwrap_or(KeyHash([0; 16])), now).await? {
            return Ok(AcceptResult::KeyBound(bound));
        }
        let (inner, body, later) = (Arc::clone(&self.inner), Arc::clone(&self.process), request.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            body.wait_while_paused().await;
            inner.accept(later, now).await.map(drop)
        });
        let first = FirstSend::of_free_key(&request);
        Ok(AcceptResult::First(request.into_email(&first, now).0))
    }

    /// Acknowledges a recorded outcome and writes nothing.
    async fn ack_without_writing(
        &self,
        team: TeamId,
        id: EmailId,
        act: &HandoffAction,
        now: Time,
    ) -> Result<IdempotentResult<HandoffActionResult>> {
        let Some(mut email) = self.email(team, id).await? else {
            return Ok(IdempotentResult::Done(HandoffActionResult::Missing));
        };
        let verdict = email.apply_action(act, now).status;
        Ok(IdempotentResult::Done(HandoffActionResult::Applied(verdict, email)))
    }
}

/// Implements the port: each method goes through the faulty network.
macro_rules! ledger {
    (
        writes { $(fn $write:ident($($warg:ident: $wtype:ty),*) -> $wout:ty;)* }
        reads { $(fn $read:ident($($rarg:ident: $rtype:ty),*) -> $rout:ty;)* }
        wrong { $($wrong:item)* }
    ) => {
        #[async_trait]
        impl Store for FaultyStore {
            $(async fn $write(&self, $($warg: $wtype),*) -> Result<$wout> {
                self.call_with_faults(stringify!($write), true, self.inner.$write($($warg),*)).await
            })*
            $(async fn $read(&self, $($rarg: $rtype),*) -> Result<$rout> {
                self.call_with_faults(stringify!($read), false, self.inner.$read($($rarg),*)).await
            })*
            $($wrong)*

            async fn installation(&self) -> Result<InstallationInfo> {
                Ok(InstallationInfo { database_clock: self.database_clock(), ..self.inner.installation().await? })
            }

            fn epoch(&self) -> Option<u32> {
                self.inner.epoch()
            }

            fn fatal_error(&self) -> Option<StoreError> {
                None
            }

            fn gauges(&self) -> Gauges {
                self.inner.gauges()
            }

            fn attach(&self, mut hooks: StoreHooks) -> HookCoverage {
                if let Some(clock) = hooks.clock.take()
                    && !mutant::is_on("commit-dated-by-its-caller")
                {
                    self.clock.set(clock).ok();
                }
                if self.is_single_node { self.inner.attach(hooks) } else { HookCoverage::default() }
            }

            async fn close(&self) {}
        }
    };
}

ledger! {
    writes {
        fn bind_operation(operation: KeyedOperation, now: Time) -> IdempotentResult<()>;
        fn cancel(team: TeamId, id: EmailId, operation: Option<KeyedOperation>, now: Time) -> IdempotentResult<EmailChangeResult>;
        fn reschedule(team: TeamId, id: EmailId, new: RescheduleRequest, now: Time) -> EmailChangeResult;
        fn resend(request: NewEmail, operation: Option<KeyedOperation>, now: Time) -> IdempotentResult<EmailResendResult>;
        fn capture(transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> usize;
        fn record_suppressed_calls(calls: Vec<SuppressedCalls>, now: Time) -> ();
        fn recover_dead_nodes(node: NodeId, max: usize, now: Time) -> RecoveryCounts;
        fn publish_transports(node: NodeId, mine: &[TransportAccount], now: Time) -> ();
        fn extend_key(team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> KeyChangeResult;
        fn forget_key(team: TeamId, key: KeyHash, now: Time) -> KeyChangeResult;
        fn create_team(team: Team, key: ApiKey, operation: Option<KeyedOperation>) -> IdempotentResult<CreateTeamResult>;
        fn set_require_keys(team: TeamId, require: bool) -> Option<Team>;
        fn create_api_key(key: ApiKey, operation: Option<KeyedOperation>) -> IdempotentResult<()>;
        fn revoke_api_key(team: TeamId, id: ApiKeyId, now: Time) -> Option<ApiKey>;
        fn touch_api_keys(used: Vec<(ApiKeyId, Time)>) -> ();
        fn create_record(record: Record, operation: Option<KeyedOperation>) -> IdempotentResult<CreateRecordResult>;
        fn change_record(edit: RecordEdit, operation: Option<KeyedOperation>, now: Time) -> IdempotentResult<RecordChangeResult>;
        fn remove_record(team: TeamId, kind: RecordKind, id: Uuid) -> Option<Record>;
        fn sweep(max: usize, now: Time) -> SweepCounts;
    }
    reads {
        fn key_binding(team: TeamId, key: KeyHash, now: Time) -> Option<KeyBinding>;
        fn next_handoff_due(transport: &str) -> Option<Time>;
        fn leased_handoff(team: TeamId, id: EmailId, number: u16) -> Option<LeasedHandoff>;
        fn orphan_backlogs(known: &[String], now: Time) -> Vec<OrphanBacklog>;
        fn emails_open_at_transport(transport: &str, after: Option<(TeamId, EmailId)>, limit: usize) -> Vec<(TeamId, EmailId)>;
        fn handoff_by_remote_id(team: TeamId, remote_id: &str) -> Option<(EmailId, u16)>;
        fn backlog() -> Backlog;
        fn email(team: TeamId, id: EmailId) -> Option<Email>;
        fn email_detail(team: TeamId, id: EmailId) -> Option<EmailDetail>;
        fn emails(team: TeamId, query: EmailQuery) -> ResultPage<Email>;
        fn count_emails(team: TeamId, from: EmailId, to: EmailId) -> u64;
        fn email_stats(team: TeamId, from: EmailId, to: EmailId) -> EmailStats;
        fn held_or_unknown_emails(after: Option<(TeamId, EmailId)>, limit: usize) -> Vec<Email>;
        fn events(team: TeamId, after: u64, limit: usize) -> Vec<Event>;
        fn key(team: TeamId, key: KeyHash, now: Time) -> Option<KeyView>;
        fn teams() -> Vec<Team>;
        fn api_keys(team: TeamId) -> Vec<ApiKey>;
        fn api_key_by_hash(hash: [u8; 32]) -> Option<(ApiKey, Team)>;
        fn record(team: TeamId, kind: RecordKind, id: Uuid) -> Option<Record>;
        fn budget_usage(team: TeamId, counters: Vec<BudgetCounter>) -> Vec<u64>;
        fn record_by_name(team: TeamId, kind: RecordKind, name: &str) -> Option<Record>;
        fn record_of_any_team(kind: RecordKind, id: Uuid) -> Option<Record>;
        fn records(team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> RecordPage;
        fn health() -> Health;
    }
    wrong {
        async fn accept(&self, mut request: NewEmail, now: Time) -> Result<AcceptResult> {
            self.process.shared.record_node_time(now);
            ports::alter_new_email(&mut request);
            if mutant::is_on("answered-before-commit") {
                return self.ack_before_commit(request, now).await;
            }
            let noted = async {
                let accept = self.inner.accept(request, now).await?;
                self.process.shared.record_keyless_accept(&accept, now);
                Ok(accept)
            };
            self.call_with_faults("accept", true, noted).await
        }

        async fn simulate_accept(&self, request: NewEmail, now: Time) -> Result<AcceptResult> {
            self.call_with_faults("simulate_accept", false, self.inner.simulate_accept(request, now)).await
        }

        async fn accept_batch(&self, mut batch: NewBatch, now: Time) -> Result<BatchAcceptResult> {
            batch.items.iter_mut().for_each(ports::alter_new_email);
            self.call_with_faults("accept_batch", true, self.inner.accept_batch(batch, now)).await
        }

        async fn due_unknown_handoffs(&self, mine: &[TransportAccount], max: usize, now: Time) -> Result<Vec<(Email, u16)>> {
            let read = self.inner.due_unknown_handoffs(mine, max, now);
            let mut due = self.call_with_faults("due_unknown_handoffs", false, read).await?;
            ports::alter_due_unknowns(&mut due);
            Ok(due)
        }

        async fn lease_handoffs(&self, request: LeaseRequest, now: Time) -> Result<Vec<LeasedHandoff>> {
            self.process.record_node_id(request.node);
            self.call_with_faults("lease", true, self.inner.lease_handoffs(request, now)).await
        }

        async fn apply_action(
            &self,
            team: TeamId,
            id: EmailId,
            act: HandoffAction,
            operation: Option<KeyedOperation>,
            now: Time,
        ) -> Result<IdempotentResult<HandoffActionResult>> {
            if mutant::is_on("marker-forgotten") && matches!(act, HandoffAction::Mark { .. }) {
                return self.ack_without_writing(team, id, &act, now).await;
            }
            let write = self.inner.apply_action(team, id, act.clone(), operation, now);
            let result = self.call_with_faults(act_name(&act), true, write).await;
            let email = if result.is_err() { self.inner.email(team, id).await? } else { None };
            ports::alter_action_result(&act, result, email)
        }

        async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat> {
            self.process.record_node_id(node);
            self.process.shared.record_node_time(now);
            let heard = async {
                let heard = self.inner.heartbeat(node, now).await?;
                Ok(Heartbeat { database_clock: self.database_clock(), ..heard })
            };
            self.call_with_faults("heartbeat", true, heard).await
        }
    }
}

fn act_name(act: &HandoffAction) -> &'static str {
    match act {
        HandoffAction::Mark { .. } => "mark",
        HandoffAction::ReturnLease { .. } => "return lease",
        HandoffAction::RecordOutcome { .. } => "record outcome",
        HandoffAction::Crash { .. } => "crash",
        HandoffAction::RetryInWindow { .. } => "retry in window",
        HandoffAction::CheckLater { .. } => "check later",
        HandoffAction::ResendByPolicy { .. } => "resend by policy",
        HandoffAction::AddEvidence(_) => "add evidence",
        HandoffAction::Resolve { .. } => "resolve",
        HandoffAction::FailOverHandoff { .. } => "fail over handoff",
        HandoffAction::FailOverEmail { .. } => "fail over email",
        HandoffAction::ReportOrphan { .. } => "report orphan",
        HandoffAction::GiveUpOrphan { .. } => "give up orphan",
        HandoffAction::RerouteByOperator { .. } => "reroute by operator",
        HandoffAction::Release(_) => "release",
    }
}
