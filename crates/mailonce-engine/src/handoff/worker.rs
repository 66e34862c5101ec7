//! The hand-off worker: leases due handoffs of one transport, sends them, and records what happened.
//!
//! Each transport has one loop that leases handoffs and spawns attempts. [`Engine::attempt_handoff`] makes one
//! attempt.
//!
//! Invariant: the marker is durable before the first irrevocable byte leaves. Any outcome after that is recorded, with
//! retries for as long as the process lives.

use crate::{
    access::sending_domains::FreezeError,
    handoff::{
        Handoffs,
        transport_selector::{InFlightGuard, OutboundRoute, SANDBOX_FAULTS},
    },
    runtime::lease_identity::LeaseIdentity,
};
use mailonce_core::{
    handoff::{
        Evidence, EvidenceFinding, EvidenceSource, Handoff,
        action::{HandoffAction, HandoffActionStatus, LeaseRef},
        capabilities::HandoffSplit,
        lease::{HandoffActionResult, LeaseRequest, LeasedHandoff},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
        transport_request::FrozenEnvelope,
        unknown,
    },
    id::{EmailId, NodeId},
    mutant,
    operation::IdempotentResult,
    outbound::email::Email,
    time::Time,
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};

/// Handoffs leased in one commit.
const LEASE_BATCH: usize = 64;
/// The longest sleep of a loop. Wake-ups shorten it; a lost wake-up delays work by no more than this.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long running attempts may take to finish at shutdown. The next start treats the others as unknown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest delay between two tries to record an outcome.
const RECORD_RETRY_MAX_DELAY: Duration = Duration::from_secs(2);
/// How long a requeued handoff waits, in milliseconds.
const REQUEUE_DELAY_MS: i64 = 1_000;

impl Handoffs {
    /// Sends by one transport until `stop` changes, then waits for the running attempts.
    pub(crate) async fn run_handoff_worker(self: Arc<Self>, way: Arc<OutboundRoute>, mut stop: watch::Receiver<bool>) {
        let mut under_way = JoinSet::new();
        while !*stop.borrow() {
            let taken = self.lease_and_spawn(&way, &mut under_way).await;
            while under_way.try_join_next().is_some() {}
            if taken {
                continue;
            }
            tokio::select! {
                biased;
                () = way.wake.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = stop.changed() => {}
            }
        }
        let ended = async { while under_way.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, ended).await.is_err() {
            tracing::warn!(transport = way.transport.name(), "some hand-overs did not end in time");
        }
    }

    /// Leases as many due handoffs as there are free slots and spawns a task for each. Returns true when more may be
    /// due.
    async fn lease_and_spawn(self: &Arc<Self>, way: &Arc<OutboundRoute>, under_way: &mut JoinSet<()>) -> bool {
        if self.ctx.is_handoff_paused() {
            return false;
        }
        if !way.is_available(self.ctx.time.boot_clock_ms()) {
            return self.fail_over_waiting(way).await;
        }
        let room = way.free_slots(self.ctx.deps.max_in_flight, self.ctx.time.boot_clock_ms()).min(LEASE_BATCH);
        if room == 0 {
            return false;
        }
        let Some(name) = self.ctx.ensure_heartbeat().await else { return false };
        let wish = self.lease_request(way, name.id, room);
        let room = wish.max;
        crate::failpoint!("before-lease");
        let leased = self.lease_handoffs(wish, &name).await;
        if !leased.is_empty() {
            crate::failpoint!("after-lease");
        }
        let more = leased.len() == room;
        for leased in leased {
            let guard = way.begin_attempt(self.throttled_domain(way, &leased));
            let (handoffs, way, name) = (Arc::clone(self), Arc::clone(way), Arc::clone(&name));
            under_way.spawn(async move {
                handoffs.attempt_or_requeue(way, leased, guard, name.id).await;
                drop(name);
            });
        }
        more
    }

    /// Leases due handoffs. When the commit is unconfirmed, the store may hold leases that this process doesn't know
    /// of. The process then continues under a new node id, so that the leases of the old one are recovered.
    async fn lease_handoffs(&self, wish: LeaseRequest, name: &Arc<LeaseIdentity>) -> Vec<LeasedHandoff> {
        self.ctx.store.lease_handoffs(wish, self.ctx.now()).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "leasing");
            self.ctx.replace_identity_if_lease_lost(&error, name);
            Vec::new()
        })
    }

    /// A lease request that can't exceed the limit of any recipient domain, whatever is due.
    fn lease_request(&self, way: &OutboundRoute, node: NodeId, max: usize) -> LeaseRequest {
        let throttled =
            self.ctx.deps.max_in_flight_per_domain.filter(|_| way.capability().split == HandoffSplit::PerRecipient);
        let (but, most) = throttled.map_or((Vec::new(), max), |most| way.domain_limits(most));
        LeaseRequest {
            transport: way.transport.name().to_owned(),
            node,
            max: max.min(most),
            excluded_domains: but,
            schedule_cutoff: self.ctx.time.earlier_time(),
        }
    }

    /// Fails over the waiting handoffs of a transport whose breaker is open, if another one is available. Returns true
    /// when more may wait.
    async fn fail_over_waiting(&self, way: &Arc<OutboundRoute>) -> bool {
        if !self.ctx.transports.has_alternative(way.transport.name(), self.ctx.time.boot_clock_ms()) {
            return false;
        }
        let Some(name) = self.ctx.ensure_heartbeat().await else { return false };
        let leased = self.lease_handoffs(self.lease_request(way, name.id, LEASE_BATCH), &name).await;
        let mut moved = false;
        for leased in &leased {
            let Some(handoff) = leased.email.handoffs.get(usize::from(leased.handoff)) else { continue };
            let hold = LeaseRef {
                number: handoff.number,
                fence: handoff.fence,
                transport: handoff.transport.clone(),
                account: way.transport.account().to_owned(),
            };
            let due = handoff.due_at.unwrap_or_else(|| self.ctx.now());
            let park = HandoffAction::ReturnLease {
                lease: hold,
                due_at: due,
                reason: format!("{} rests", way.transport.name()),
            };
            if let Some(email) = self.call_until_final(leased.email.team, leased.email.id, park).await {
                moved |= self.fail_over(way, &email, leased.handoff).await;
            }
        }
        moved && leased.len() == LEASE_BATCH
    }

    fn throttled_domain(&self, way: &OutboundRoute, leased: &LeasedHandoff) -> Option<String> {
        self.ctx.deps.max_in_flight_per_domain.filter(|_| way.capability().split == HandoffSplit::PerRecipient)?;
        let handoff = leased.email.handoffs.get(usize::from(leased.handoff))?;
        handoff.recipients.first()?.rsplit_once('@').map(|(_, domain)| domain.to_owned())
    }

    /// One attempt, from its lease to its recorded outcome.
    pub(crate) async fn attempt_handoff(
        self: Arc<Self>,
        way: Arc<OutboundRoute>,
        leased: LeasedHandoff,
        _under_way: InFlightGuard,
    ) {
        let Some(handoff) = leased.email.handoffs.get(usize::from(leased.handoff)).cloned() else { return };
        let hold = LeaseRef {
            number: handoff.number,
            fence: handoff.fence,
            transport: handoff.transport.clone(),
            account: way.transport.account().to_owned(),
        };
        let try_ = AttemptContext { email: leased.email.clone(), handoff, lease_ref: hold, started_at: self.ctx.now() };
        let (bytes, fresh) = match self.load_or_freeze(&way, &leased).await {
            Ok(frozen) => frozen,
            Err(FreezeError::Temporary(why)) => return self.requeue(&try_, &why).await,
            Err(FreezeError::Permanent(why)) => {
                let reply = TransportReply::new(ReplyMeaning::Refused, AttemptPhase::Connect, None, &why);
                return self.record_outcome(&way, &try_, None, try_.started_at, reply).await;
            }
        };
        let parcel = self.frozen_envelope(&try_, &bytes);
        crate::failpoint!("approach");
        let ready = match way.transport.prepare(parcel).await {
            Ok(ready) => ready,
            Err(reply) => return self.record_outcome(&way, &try_, None, try_.started_at, reply).await,
        };
        if try_.handoff.is_in_window_retry() && !self.is_window_open(&way, &try_.handoff) {
            drop(ready);
            return self.requeue(&try_, "the provider's window closed").await;
        }
        crate::failpoint!("before-marker");
        // The machine may have been suspended since the lease. A store that rejects the heartbeat won't confirm the
        // marker either, so the result is ignored.
        drop(self.ctx.ensure_heartbeat().await);
        let marked_at = self.ctx.now();
        let wire = fresh.then(|| self.ctx.packer.pack_frozen(&bytes));
        let marked = self.ctx.store.apply_action(
            try_.email.team,
            try_.email.id,
            HandoffAction::Mark { lease: try_.lease_ref.clone(), frozen_bytes: wire },
            None,
            marked_at,
        );
        match marked.await {
            Ok(IdempotentResult::Done(HandoffActionResult::Applied(verdict, email)))
                if verdict == HandoffActionStatus::Done || mutant!("stale-worker-goes-on") =>
            {
                crate::failpoint!("after-marker");
                let attempt = email.handoffs.get(usize::from(leased.handoff)).map(|handoff| handoff.attempts);
                let patience = Duration::from_millis(way.capability().timeout_ms.max(1) as u64);
                let patience = if mutant!("waits-for-ever") { Duration::from_hours(9_999) } else { patience };
                let reply = tokio::time::timeout(patience, ready.hand_over()).await.unwrap_or_else(|_late| {
                    TransportReply::new(ReplyMeaning::Unknown, AttemptPhase::Final, None, "no answer in time")
                });
                crate::failpoint!("after-answer");
                self.record_outcome(&way, &try_, attempt, marked_at, reply).await;
            }
            Ok(_) => {
                // Cancelled, or taken over by a peer. Nothing was sent.
                drop(ready);
                self.ctx.metrics.record_stale_marker();
            }
            Err(error) => {
                // The marker may be durable or not. Nothing was sent in either case, and that is recorded.
                if mutant!("unconfirmed-marker-goes-on") {
                    let reply = ready.hand_over().await;
                    return self.record_outcome(&way, &try_, None, marked_at, reply).await;
                }
                drop(ready);
                tracing::warn!(%error, "the marker could not be confirmed");
                let text = "the ledger did not confirm the marker; nothing was handed over";
                let reply = TransportReply::new(ReplyMeaning::Deferred, AttemptPhase::Data, None, text);
                self.record_outcome(&way, &try_, None, marked_at, reply).await;
            }
        }
    }

    fn is_window_open(&self, way: &OutboundRoute, handoff: &Handoff) -> bool {
        unknown::is_key_window_open(handoff, self.recovery_context(way), self.ctx.now())
    }

    pub(crate) fn recovery_context<'a>(&self, way: &'a OutboundRoute) -> unknown::RecoveryContext<'a> {
        let capability = way.capability();
        unknown::RecoveryContext {
            recovery: capability.recovery,
            timeout_ms: capability.timeout_ms,
            account: way.transport.account(),
            earlier_clock: self.ctx.time.earlier_time(),
            later_clock: self.ctx.time.later_time(),
            ages_reliable_since: self.ctx.time.measured_since(),
        }
    }

    fn frozen_envelope(&self, try_: &AttemptContext, bytes: &Arc<[u8]>) -> FrozenEnvelope {
        let attempt = try_.handoff.attempts + 1;
        let (return_path, envelope_id) = self.ctx.return_path(&try_.email, try_.handoff.number, attempt);
        FrozenEnvelope {
            team: try_.email.team,
            email: try_.email.id,
            handoff: try_.handoff.number,
            attempt,
            return_path,
            envelope_id,
            recipients: try_.handoff.recipients.clone(),
            key: self.ctx.downstream_key(&try_.email, try_.handoff.number),
            bytes: Arc::clone(bytes),
        }
    }

    /// Records a reply, however long it takes. If the reply to an accepted email were lost, its outcome would be
    /// unknown.
    async fn record_outcome(
        &self,
        way: &OutboundRoute,
        try_: &AttemptContext,
        attempt: Option<u32>,
        began: Time,
        reply: TransportReply,
    ) {
        let news = way.record_reply(&reply, self.ctx.time.boot_clock_ms());
        self.ctx.metrics.record_handoff_attempt(way.transport.name(), reply.meaning);
        let accepted = matches!(reply.meaning, ReplyMeaning::Accepted | ReplyMeaning::Repeated);
        if accepted && try_.handoff.is_in_window_retry() {
            self.ctx.metrics.record_resolved("idempotent_retry");
            self.ctx.metrics.record_provider_deduplicated();
        }
        let act = HandoffAction::RecordOutcome {
            lease: try_.lease_ref.clone(),
            attempt,
            started_at: began,
            reply,
            retry_policy: self.ctx.deps.retry_policy(self.ctx.entropy.next_u64()),
        };
        let settled = self.call_until_final(try_.email.team, try_.email.id, act).await;
        crate::failpoint!("after-settle");
        if accepted && way.transport.name() == SANDBOX_FAULTS {
            self.simulate_sandbox_event(try_).await;
        }
        if let Some(email) = settled {
            self.fail_over(way, &email, try_.handoff.number).await;
        }
        self.ctx.unknown_wakeup.notify_one();
        if news {
            self.publish_breaker_state(way).await;
        }
    }

    async fn requeue(&self, try_: &AttemptContext, why: &str) {
        let due = self.ctx.now().plus(REQUEUE_DELAY_MS);
        let act = HandoffAction::ReturnLease { lease: try_.lease_ref.clone(), due_at: due, reason: why.to_owned() };
        self.call_until_final(try_.email.team, try_.email.id, act).await;
    }

    /// Applies an action, with retries for as long as the process lives. `None` when the email is gone or the store
    /// has failed.
    pub(crate) async fn call_until_final(
        &self,
        team: mailonce_core::id::TeamId,
        id: EmailId,
        act: HandoffAction,
    ) -> Option<Email> {
        let mut pause = Duration::from_millis(20);
        loop {
            match self.ctx.store.apply_action(team, id, act.clone(), None, self.ctx.now()).await {
                Ok(IdempotentResult::Done(HandoffActionResult::Applied(_, email))) => return Some(email),
                Ok(_) => return None,
                Err(error) => {
                    tracing::warn!(%error, "writing down what happened to a handoff");
                    if self.ctx.store.fatal_error().is_some() || mutant!("written-down-once") {
                        return None;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RECORD_RETRY_MAX_DELAY);
        }
    }

    /// Fails over a handoff that was never attempted or was definitely deferred, while this transport's breaker is
    /// open.
    async fn fail_over(&self, way: &OutboundRoute, email: &Email, number: u16) -> bool {
        let Some(handoff) = email.handoffs.get(usize::from(number)) else { return false };
        let waits = handoff.state == mailonce_core::handoff::HandoffState::Queued && !handoff.is_in_doubt();
        let waits = waits || mutant!("doubt-rerouted");
        // A transport that the caller named is never replaced.
        if !waits || email.head.transport.is_some() || way.is_available(self.ctx.time.boot_clock_ms()) {
            return false;
        }
        let leased = match self.ctx.store.leased_handoff(email.team, email.id, number).await {
            Ok(Some(leased)) => leased,
            Ok(None) => return false,
            Err(error) => {
                // The handoff stays queued, and its transport's loop tries again while the breaker is open.
                tracing::warn!(%error, email = %email.id, handoff = number, "a failover was put off");
                return false;
            }
        };
        let Some(content) = leased.body.as_deref().and_then(|body| self.ctx.packer.unpack(body)) else { return false };
        let Some(to) =
            self.ctx.transports.select_alternative(way.transport.name(), &content, self.ctx.time.boot_clock_ms())
        else {
            return false;
        };
        let from = way.transport.name().to_owned();
        let act = if to.capability().split == way.capability().split {
            HandoffAction::FailOverHandoff { number, from, to: to.transport.name().to_owned() }
        } else {
            HandoffAction::FailOverEmail {
                from,
                envelopes: self.ctx.transports.envelopes(to.transport.name(), &content),
            }
        };
        self.call_until_final(email.team, email.id, act).await;
        self.ctx.transports.wake_all();
        true
    }

    /// Simulates what the sandbox's fault addresses do after they accepted an email.
    async fn simulate_sandbox_event(&self, try_: &AttemptContext) {
        let local = try_.handoff.recipients.first().and_then(|to| to.split('@').next()).unwrap_or_default();
        let says = match local.to_ascii_lowercase().as_str() {
            "bounce" => EvidenceFinding::Bounced,
            "complain" => EvidenceFinding::Complained,
            _ => return,
        };
        let fact = Evidence {
            handoff: try_.handoff.number,
            attempt: None,
            at: self.ctx.now(),
            source: EvidenceSource::ProviderEvent,
            says,
            detail: "as this address of the sandbox always does".into(),
            once: Some(format!("sandbox-{}", try_.handoff.number)),
        };
        self.call_until_final(try_.email.team, try_.email.id, HandoffAction::AddEvidence(fact)).await;
    }
}

/// The handoff of one attempt, and its lease.
struct AttemptContext {
    email: Email,
    handoff: Handoff,
    lease_ref: LeaseRef,
    started_at: Time,
}
