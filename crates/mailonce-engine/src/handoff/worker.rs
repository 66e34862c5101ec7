//! The hand-off worker: leases due handoffs of one transport, sends them, and records what happened.
//!
//! Each transport has one loop that leases handoffs and spawns attempts. [`Handoffs::attempt_handoff`] makes one
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
    control::contact::ContactHash,
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
    outbound::{email::Email, test_recipient::TestRecipient},
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
/// How long a handoff waits after an attempt that was given up before its marker, in milliseconds.
const REQUEUE_DELAY_MS: i64 = 1_000;

impl Handoffs {
    /// Sends by one transport until `stop` changes, then waits for the running attempts.
    pub(crate) async fn run_handoff_worker(
        self: Arc<Self>,
        route: Arc<OutboundRoute>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut attempts = JoinSet::new();
        while !*stop.borrow() {
            let more_may_be_due = self.lease_and_spawn(&route, &mut attempts).await;
            while attempts.try_join_next().is_some() {}
            if more_may_be_due {
                continue;
            }
            tokio::select! {
                biased;
                () = route.wake.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = stop.changed() => {}
            }
        }
        let drained = async { while attempts.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            tracing::warn!(
                transport = route.transport.name(),
                "some attempts did not finish before the shutdown timeout"
            );
        }
    }

    /// Leases as many due handoffs as there are free slots and spawns a task for each. Returns true when more may be
    /// due.
    async fn lease_and_spawn(self: &Arc<Self>, route: &Arc<OutboundRoute>, attempts: &mut JoinSet<()>) -> bool {
        if self.control.stops.is_transport_stopped(route.transport.name()).await {
            return false;
        }
        if !route.is_available(self.ctx.time.boot_clock_ms()) {
            return self.fail_over_waiting(route).await;
        }
        let room =
            route.free_slots(self.ctx.deps.handoff.max_in_flight, self.ctx.time.boot_clock_ms()).min(LEASE_BATCH);
        if room == 0 {
            return false;
        }
        let Some(identity) = self.ctx.ensure_heartbeat().await else { return false };
        let request = self.lease_request(route, identity.id, room);
        let room = request.max;
        crate::failpoint!("before-lease");
        let leased = self.lease_handoffs(request, &identity).await;
        if !leased.is_empty() {
            crate::failpoint!("after-lease");
        }
        let more = leased.len() == room;
        for leased in leased {
            let guard = route.begin_attempt(self.throttled_domain(route, &leased));
            let (handoffs, route, identity) = (Arc::clone(self), Arc::clone(route), Arc::clone(&identity));
            attempts.spawn(async move {
                handoffs.attempt_or_requeue(route, leased, guard, identity.id).await;
                drop(identity);
            });
        }
        more
    }

    /// Leases due handoffs. When the commit is unconfirmed, the store may hold leases that this process doesn't know
    /// of. The process then continues under a new node id, so that the leases of the old one are recovered.
    async fn lease_handoffs(&self, request: LeaseRequest, identity: &Arc<LeaseIdentity>) -> Vec<LeasedHandoff> {
        self.ctx.store.lease_handoffs(request, self.ctx.now()).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot lease handoffs");
            self.ctx.replace_identity_if_lease_lost(&error, identity);
            Vec::new()
        })
    }

    /// A lease request that can't exceed the limit of any recipient domain, whatever is due.
    fn lease_request(&self, route: &OutboundRoute, node: NodeId, max: usize) -> LeaseRequest {
        let throttled = self
            .ctx
            .deps
            .handoff
            .max_in_flight_per_domain
            .filter(|_| route.capability().split == HandoffSplit::PerRecipient);
        let (excluded_domains, limit) = throttled.map_or((Vec::new(), max), |limit| route.domain_limits(limit));
        LeaseRequest {
            transport: route.transport.name().to_owned(),
            node,
            max: max.min(limit),
            excluded_domains,
            schedule_cutoff: self.ctx.time.earlier_time(),
        }
    }

    /// Fails over the waiting handoffs of a transport whose breaker is open, if another one is available. Returns true
    /// when more may wait.
    async fn fail_over_waiting(&self, route: &Arc<OutboundRoute>) -> bool {
        if !self.ctx.transports.has_alternative(route.transport.name(), self.ctx.time.boot_clock_ms()) {
            return false;
        }
        let Some(identity) = self.ctx.ensure_heartbeat().await else { return false };
        let leased = self.lease_handoffs(self.lease_request(route, identity.id, LEASE_BATCH), &identity).await;
        let mut moved = false;
        for leased in &leased {
            let Some(handoff) = leased.email.handoffs.get(usize::from(leased.handoff)) else { continue };
            let lease = LeaseRef {
                number: handoff.number,
                fence: handoff.fence,
                transport: handoff.transport.clone(),
                account: route.transport.account().to_owned(),
            };
            let due = handoff.due_at.unwrap_or_else(|| self.ctx.now());
            let release = HandoffAction::ReturnLease {
                lease,
                due_at: due,
                reason: format!("the circuit breaker of {} is open", route.transport.name()),
            };
            if let Some(email) = self.call_until_final(leased.email.team, leased.email.id, release).await {
                moved |= self.fail_over(route, &email, leased.handoff).await;
            }
        }
        moved && leased.len() == LEASE_BATCH
    }

    fn throttled_domain(&self, route: &OutboundRoute, leased: &LeasedHandoff) -> Option<String> {
        self.ctx
            .deps
            .handoff
            .max_in_flight_per_domain
            .filter(|_| route.capability().split == HandoffSplit::PerRecipient)?;
        let handoff = leased.email.handoffs.get(usize::from(leased.handoff))?;
        handoff.recipients.first()?.rsplit_once('@').map(|(_, domain)| domain.to_owned())
    }

    /// One attempt, from its lease to its recorded outcome.
    pub(crate) async fn attempt_handoff(
        self: Arc<Self>,
        route: Arc<OutboundRoute>,
        leased: LeasedHandoff,
        _in_flight: InFlightGuard,
    ) {
        let Some(handoff) = leased.email.handoffs.get(usize::from(leased.handoff)).cloned() else { return };
        let lease_ref = LeaseRef {
            number: handoff.number,
            fence: handoff.fence,
            transport: handoff.transport.clone(),
            account: route.transport.account().to_owned(),
        };
        let context = AttemptContext { email: leased.email.clone(), handoff, lease_ref, started_at: self.ctx.now() };
        let (bytes, is_new) = match self.load_or_freeze(&route, &leased).await {
            Ok(frozen) => frozen,
            Err(FreezeError::Temporary(why)) => return self.requeue(&context, &why).await,
            Err(FreezeError::Permanent(why)) => {
                let reply = TransportReply::new(ReplyMeaning::Refused, AttemptPhase::Connect, None, &why);
                // The transport was not asked, so this says nothing about it.
                return self.record_attempt_outcome(&route, &context, None, context.started_at, reply).await;
            }
        };
        let envelope = self.frozen_envelope(&context, &bytes);
        crate::failpoint!("approach");
        let ready = match route.transport.prepare(envelope).await {
            Ok(ready) => ready,
            Err(reply) => return self.record_outcome(&route, &context, None, context.started_at, reply).await,
        };
        if context.handoff.is_in_window_retry() && !self.is_window_open(&route, &context.handoff) {
            drop(ready);
            return self.requeue(&context, "the provider's idempotency window has closed").await;
        }
        crate::failpoint!("before-marker");
        // The machine may have been suspended since the lease. A store that rejects the heartbeat won't confirm the
        // marker either, so the result is ignored.
        drop(self.ctx.ensure_heartbeat().await);
        let marked_at = self.ctx.now();
        let frozen_bytes = is_new.then(|| self.ctx.packer.seal_frozen(&bytes));
        let contact = |to: &String| ContactHash::of(&self.ctx.secret, context.email.team, to);
        let contacts = context.handoff.recipients.iter().map(contact).collect();
        let marked = self.ctx.store.apply_action(
            context.email.team,
            context.email.id,
            HandoffAction::Mark { lease: context.lease_ref.clone(), frozen_bytes, contacts },
            None,
            marked_at,
        );
        match marked.await {
            Ok(IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, email))) => {
                crate::failpoint!("after-marker");
                let attempt = email.handoffs.get(usize::from(leased.handoff)).map(|handoff| handoff.attempts);
                let timeout = Duration::from_millis(route.capability().timeout_ms.max(1) as u64);
                let reply = tokio::time::timeout(timeout, ready.hand_over()).await.unwrap_or_else(|_late| {
                    TransportReply::new(ReplyMeaning::Unknown, AttemptPhase::Final, None, "no reply within the timeout")
                });
                crate::failpoint!("after-answer");
                self.record_outcome(&route, &context, attempt, marked_at, reply).await;
            }
            Ok(_) => {
                // Cancelled, stopped, or taken over by a peer. Nothing was sent.
                drop(ready);
                self.ctx.metrics.record_stale_marker();
            }
            Err(error) => {
                // The marker may be durable or not. Nothing was sent in either case, and that is recorded.
                drop(ready);
                tracing::warn!(%error, "the store did not confirm the marker; the attempt is abandoned before sending");
                let text = "the store did not confirm the marker; nothing was sent";
                let reply = TransportReply::new(ReplyMeaning::Deferred, AttemptPhase::Data, None, text);
                self.record_outcome(&route, &context, None, marked_at, reply).await;
            }
        }
    }

    fn is_window_open(&self, route: &OutboundRoute, handoff: &Handoff) -> bool {
        unknown::is_key_window_open(handoff, self.recovery_context(route), self.ctx.now())
    }

    pub(crate) fn recovery_context<'a>(&self, route: &'a OutboundRoute) -> unknown::RecoveryContext<'a> {
        let capability = route.capability();
        unknown::RecoveryContext {
            recovery: capability.recovery,
            timeout_ms: capability.timeout_ms,
            account: route.transport.account(),
            earlier_clock: self.ctx.time.earlier_time(),
            later_clock: self.ctx.time.later_time(),
            ages_reliable_since: self.ctx.time.measured_since(),
        }
    }

    fn frozen_envelope(&self, context: &AttemptContext, bytes: &Arc<[u8]>) -> FrozenEnvelope {
        let attempt = context.handoff.attempts + 1;
        let (return_path, envelope_id) = self.ctx.return_path(&context.email, context.handoff.number, attempt);
        FrozenEnvelope {
            team: context.email.team,
            email: context.email.id,
            handoff: context.handoff.number,
            attempt,
            return_path,
            envelope_id,
            recipients: context.handoff.recipients.clone(),
            key: self.ctx.downstream_key(&context.email, context.handoff.number),
            bytes: Arc::clone(bytes),
        }
    }

    /// Records a reply, however long it takes. If the reply to an accepted email were lost, its outcome would be
    /// unknown.
    async fn record_outcome(
        &self,
        route: &OutboundRoute,
        context: &AttemptContext,
        attempt: Option<u32>,
        started_at: Time,
        reply: TransportReply,
    ) {
        let breaker_changed = route.record_reply(&reply, self.ctx.time.boot_clock_ms());
        self.ctx.metrics.record_handoff_attempt(route.transport.name(), reply.meaning);
        let accepted = matches!(reply.meaning, ReplyMeaning::Accepted | ReplyMeaning::Repeated);
        if accepted && context.handoff.is_in_window_retry() {
            self.ctx.metrics.record_resolved("idempotent_retry");
            self.ctx.metrics.record_provider_deduplicated();
        }
        self.record_attempt_outcome(route, context, attempt, started_at, reply).await;
        if accepted && route.transport.name() == SANDBOX_FAULTS {
            self.simulate_sandbox_event(context).await;
        }
        if breaker_changed {
            self.publish_breaker_state(route).await;
        }
    }

    /// Records the outcome of an attempt in the ledger, and fails over if the email needs it.
    async fn record_attempt_outcome(
        &self,
        route: &OutboundRoute,
        context: &AttemptContext,
        attempt: Option<u32>,
        started_at: Time,
        reply: TransportReply,
    ) {
        let action = HandoffAction::RecordOutcome {
            lease: context.lease_ref.clone(),
            attempt,
            started_at,
            reply,
            retry_policy: self.ctx.deps.retry_policy(self.ctx.entropy.next_u64()),
        };
        let recorded = self.call_until_final(context.email.team, context.email.id, action).await;
        crate::failpoint!("after-settle");
        if let Some(email) = recorded {
            self.fail_over(route, &email, context.handoff.number).await;
        }
        self.ctx.unknown_wakeup.notify_one();
    }

    async fn requeue(&self, context: &AttemptContext, why: &str) {
        let due = self.ctx.now().plus(REQUEUE_DELAY_MS);
        let action =
            HandoffAction::ReturnLease { lease: context.lease_ref.clone(), due_at: due, reason: why.to_owned() };
        self.call_until_final(context.email.team, context.email.id, action).await;
    }

    /// Applies an action, and returns the email that it leaves behind. See [`Self::apply_until_final`].
    pub(crate) async fn call_until_final(
        &self,
        team: mailonce_core::id::TeamId,
        id: EmailId,
        action: HandoffAction,
    ) -> Option<Email> {
        self.apply_until_final(team, id, action).await.map(|(_, email)| email)
    }

    /// Applies an action, with retries for as long as the process lives, and returns what came of it. `None` when the
    /// email is gone or the store has failed.
    pub(crate) async fn apply_until_final(
        &self,
        team: mailonce_core::id::TeamId,
        id: EmailId,
        action: HandoffAction,
    ) -> Option<(HandoffActionStatus, Email)> {
        let mut delay = Duration::from_millis(20);
        loop {
            match self.ctx.store.apply_action(team, id, action.clone(), None, self.ctx.now()).await {
                Ok(IdempotentResult::Done(HandoffActionResult::Applied(status, email))) => {
                    return Some((status, email));
                }
                Ok(_) => return None,
                Err(error) => {
                    tracing::warn!(%error, "cannot record the outcome of a handoff; retrying");
                    if self.ctx.store.fatal_error().is_some() {
                        return None;
                    }
                }
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(RECORD_RETRY_MAX_DELAY);
        }
    }

    /// Fails over a handoff that was never attempted or was definitely deferred, while this transport's breaker is
    /// open.
    async fn fail_over(&self, route: &OutboundRoute, email: &Email, number: u16) -> bool {
        let Some(handoff) = email.handoffs.get(usize::from(number)) else { return false };
        let may_move = handoff.state == mailonce_core::handoff::HandoffState::Queued && !handoff.is_in_doubt();
        let may_move = may_move || mutant!("doubt-rerouted");
        // A transport that the caller named is never replaced.
        if !may_move || email.head.transport.is_some() || route.is_available(self.ctx.time.boot_clock_ms()) {
            return false;
        }
        let leased = match self.ctx.store.leased_handoff(email.team, email.id, number).await {
            Ok(Some(leased)) => leased,
            Ok(None) => return false,
            Err(error) => {
                // The handoff stays queued, and its transport's loop tries again while the breaker is open.
                tracing::warn!(%error, email = %email.id, handoff = number, "a failover is postponed");
                return false;
            }
        };
        let Some(content) = leased.body.as_deref().and_then(|body| self.ctx.packer.unpack(body)) else { return false };
        let Some(to) =
            self.ctx.transports.select_alternative(route.transport.name(), &content, self.ctx.time.boot_clock_ms())
        else {
            return false;
        };
        if self.control.stops.is_transport_stopped(to.transport.name()).await {
            return false;
        }
        let from = route.transport.name().to_owned();
        let action = if to.capability().split == route.capability().split {
            HandoffAction::FailOverHandoff { number, from, to: to.transport.name().to_owned() }
        } else {
            HandoffAction::FailOverEmail {
                from,
                envelopes: self.ctx.transports.envelopes(to.transport.name(), &content),
            }
        };
        self.call_until_final(email.team, email.id, action).await;
        self.ctx.transports.wake_all();
        true
    }

    /// Simulates what the sandbox's fault addresses do after they accepted an email.
    async fn simulate_sandbox_event(&self, context: &AttemptContext) {
        let to = context.handoff.recipients.first().map(String::as_str).unwrap_or_default();
        let local = to.split('@').next().unwrap_or_default();
        let says = match (TestRecipient::parse(to), local.to_ascii_lowercase().as_str()) {
            (Some(TestRecipient::Delivered), _) => EvidenceFinding::Delivered,
            (Some(TestRecipient::Bounced), _) | (None, "bounce") => EvidenceFinding::Bounced,
            (Some(TestRecipient::Complained), _) | (None, "complain") => EvidenceFinding::Complained,
            _ => return,
        };
        let evidence = Evidence {
            handoff: context.handoff.number,
            attempt: None,
            at: self.ctx.now(),
            source: EvidenceSource::ProviderEvent,
            finding: says,
            detail: "simulated by this sandbox address".into(),
            dedup_key: Some(format!("sandbox-{}", context.handoff.number)),
        };
        self.call_until_final(context.email.team, context.email.id, HandoffAction::AddEvidence(evidence)).await;
    }
}

/// The handoff of one attempt, and its lease.
struct AttemptContext {
    email: Email,
    handoff: Handoff,
    lease_ref: LeaseRef,
    started_at: Time,
}
