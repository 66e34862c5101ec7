//! Unknown outcomes: automatic recovery, and the decisions that a person can make.
//!
//! [`mailonce_core::handoff::unknown::next_recovery_action`] decides what to do. This file carries it out and records
//! the result.

use crate::{
    access::caller::Caller,
    handoff::{Handoffs, transport_selector::OutboundRoute},
    runtime::{
        keyed_call::{KeyedCall, operation},
        panics::catch_panic,
        problems::{email_not_found, key_mismatch, refusal_problem, unavailable},
    },
};
use mailonce_core::{
    handoff::{
        Evidence, EvidenceFinding, EvidenceSource,
        action::{HandoffAction, HandoffActionStatus, Resolution},
        capabilities::RecoveryMethod,
        lease::HandoffActionResult,
        transport_request::{LookUpRequest as LookUp, LookUpResult},
        unknown::{self, RecoveryAction},
    },
    id::{EmailId, NodeId, TeamId},
    operation::IdempotentResult,
    outbound::email::{Email, EmailState},
    problem::Problem,
    time::Time,
};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// Unknown outcomes read per round.
const BATCH_SIZE: usize = 64;
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a retry waits for a transport whose breaker is open or that has no free slot, in milliseconds.
const TRANSPORT_BUSY_DELAY_MS: i64 = 2_000;
/// How long a handoff waits after its recovery panicked, in milliseconds.
const PANIC_DELAY_MS: i64 = 60_000;

/// Handoffs that a task of this process is recovering.
#[derive(Default)]
pub(crate) struct UnknownsInProgress(Mutex<HashSet<(EmailId, u16)>>);

impl UnknownsInProgress {
    fn try_begin(&self, id: EmailId, number: u16) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((id, number))
    }

    fn end(&self, id: EmailId, number: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(id, number));
    }
}

impl Handoffs {
    /// Recovers unknown outcomes until `stop` changes.
    pub(crate) async fn run_unknown_worker(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            match self.ctx.store.due_unknown_handoffs(&self.ctx.transports.accounts(), BATCH_SIZE, self.ctx.now()).await
            {
                Ok(due) => {
                    for (email, number) in due {
                        if self.unknowns_in_progress.try_begin(email.id, number) {
                            let handoffs = Arc::clone(&self);
                            tokio::spawn(async move {
                                let id = email.id;
                                handoffs.recover_or_postpone(email, number).await;
                                handoffs.unknowns_in_progress.end(id, number);
                            });
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "cannot read due unknown outcomes"),
            }
            tokio::select! {
                biased;
                () = self.ctx.unknown_wakeup.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = stop.changed() => {}
            }
            // A new unknown outcome is due a moment later. The pause also limits the rate of rounds.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Recovers one handoff. If that panics, it is tried again later.
    async fn recover_or_postpone(self: &Arc<Self>, email: Email, number: u16) {
        let worker = Box::pin(Arc::clone(self).recover_unknown(email.clone(), number));
        if let Err(why) = catch_panic(worker).await {
            tracing::error!(why, email = %email.id, handoff = number, "the recovery of an unknown outcome panicked");
            self.ctx.metrics.record_panic("unknown_outcome");
            self.postpone_unknown(&email, number, None, Some(self.ctx.now().plus(PANIC_DELAY_MS))).await;
        }
    }

    async fn recover_unknown(self: Arc<Self>, email: Email, number: u16) {
        let Some(handoff) = email.handoffs.get(usize::from(number)) else { return };
        // A process without the transport decides nothing, because it can't know what the next hop remembers.
        let Some(route) = self.ctx.transports.get(&handoff.transport).cloned() else { return };
        match unknown::next_recovery_action(
            handoff,
            email.head.on_unknown,
            self.recovery_context(&route),
            self.ctx.now(),
        ) {
            RecoveryAction::RetryInWindow => self.repeat_idempotently(&route, &email, number).await,
            RecoveryAction::LookUp => {
                self.look_up_outcome(&route, &email, number).await;
            }
            RecoveryAction::Resend => {
                // The next hop may know the email by now, so look it up once more before sending it again.
                let can_look_up = matches!(route.capability().recovery, RecoveryMethod::LookUp { .. });
                if can_look_up && self.look_up_outcome(&route, &email, number).await {
                    return;
                }
                let resend = HandoffAction::ResendByPolicy { number };
                // Under a stop it is tried again later, and evidence may have settled the outcome meanwhile.
                if let Some((HandoffActionStatus::Done, _)) = self.apply_until_final(email.team, email.id, resend).await
                {
                    self.ctx.metrics.record_resolved("policy");
                    self.ctx.transports.wake_all();
                }
            }
            RecoveryAction::Wait(next) => self.postpone_unknown(&email, number, None, next).await,
        }
    }

    async fn postpone_unknown(&self, email: &Email, number: u16, evidence: Option<Evidence>, next: Option<Time>) {
        self.call_until_final(
            email.team,
            email.id,
            HandoffAction::CheckLater { number, evidence, next_check_at: next },
        )
        .await;
    }

    /// Repeats an attempt with the same bytes, key and account, while the provider's idempotency window is surely
    /// open.
    async fn repeat_idempotently(self: &Arc<Self>, route: &Arc<OutboundRoute>, email: &Email, number: u16) {
        if route.free_slots(self.ctx.deps.handoff.max_in_flight, self.ctx.time.boot_clock_ms()) == 0 {
            let next = self.ctx.now().plus(TRANSPORT_BUSY_DELAY_MS);
            return self.postpone_unknown(email, number, None, Some(next)).await;
        }
        let in_flight = route.begin_attempt(None);
        let account = route.transport.account().to_owned();
        let Some(identity) = self.ctx.ensure_heartbeat().await else { return };
        let action = HandoffAction::RetryInWindow { number, holder: identity.id, account };
        let leased_email = match self.ctx.store.apply_action(email.team, email.id, action, None, self.ctx.now()).await {
            Ok(IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, leased_email))) => {
                leased_email
            }
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(%error, email = %email.id, handoff = number, "cannot start an idempotent retry");
                return self.ctx.replace_identity_if_lease_lost(&error, &identity);
            }
        };
        crate::failpoint!("repeat");
        let fence = |email: &Email| email.handoffs.get(usize::from(number)).map(|handoff| handoff.fence);
        match self.ctx.store.leased_handoff(email.team, email.id, number).await {
            // Another worker took the handoff over.
            Ok(Some(leased)) if fence(&leased.email) != fence(&leased_email) => {}
            Ok(Some(leased)) => {
                let handoffs = Arc::clone(self);
                Box::pin(handoffs.attempt_or_requeue(Arc::clone(route), leased, in_flight, identity.id)).await;
            }
            // Without this release, no worker could try again until this process ends.
            Ok(None) => self.release_handoff(email, number, identity.id).await,
            Err(error) => {
                tracing::warn!(%error, email = %email.id, handoff = number, "an idempotent retry is postponed");
                self.release_handoff(email, number, identity.id).await;
            }
        }
    }

    async fn release_handoff(&self, email: &Email, number: u16, holder: NodeId) {
        let action = HandoffAction::Crash { number, holder };
        self.call_until_final(email.team, email.id, action).await;
    }

    /// Looks the email up at the next hop and records the answer. Returns true when the next hop has it.
    async fn look_up_outcome(&self, route: &OutboundRoute, email: &Email, number: u16) -> bool {
        let Some(handoff) = email.handoffs.get(usize::from(number)) else { return false };
        let now = self.ctx.now();
        let request = LookUp {
            email: email.id,
            handoff: number,
            recipients: handoff.recipients.clone(),
            message_id: self.ctx.message_id(email),
            key: self.ctx.downstream_key(email, number),
            in_doubt_since: handoff.progress.in_doubt_since.unwrap_or(now),
            now,
        };
        let evidence_of = |says: EvidenceFinding, detail: String| Evidence {
            handoff: number,
            attempt: None,
            at: now,
            source: EvidenceSource::LookUp,
            finding: says,
            detail,
            dedup_key: None,
        };
        let next = Some(unknown::next_look_up_at(handoff, email.head.on_unknown, now));
        crate::failpoint!("before-look-up");
        let found = route.transport.look_up(request).await;
        crate::failpoint!("after-look-up");
        match found {
            LookUpResult::Found { remote_id, text } => {
                let id_suffix = remote_id.map(|id| format!(" ({id})")).unwrap_or_default();
                self.call_until_final(
                    email.team,
                    email.id,
                    HandoffAction::AddEvidence(evidence_of(EvidenceFinding::Accepted, format!("{text}{id_suffix}"))),
                )
                .await;
                self.ctx.metrics.record_resolved("look_up");
                return true;
            }
            LookUpResult::NotFound => {
                let evidence = evidence_of(
                    EvidenceFinding::NotFound,
                    "the next hop does not know the email, which proves nothing".into(),
                );
                self.postpone_unknown(email, number, Some(evidence), next).await;
            }
            LookUpResult::Unavailable(why) => {
                self.postpone_unknown(email, number, Some(evidence_of(EvidenceFinding::Silent, why)), next).await
            }
        }
        false
    }

    /// Applies a person's decision about an email whose outcome is unknown.
    pub async fn resolve(
        &self,
        caller: &Caller,
        id: EmailId,
        request: ResolveRequest,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Email, Problem> {
        caller.require_decider()?;
        self.access.check_email_visible(caller, id).await?;
        let now = self.ctx.now();
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
        let action = HandoffAction::Resolve {
            resolution: request.choice,
            rev: request.rev,
            handoff: request.handoff,
            reason: request.reason.unwrap_or_else(|| "no reason given".into()),
        };
        match self.ctx.store.apply_action(caller.team.id, id, action, operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Refused(refusal), email)) => {
                Err(refusal_problem(refusal, &email))
            }
            IdempotentResult::Done(HandoffActionResult::Applied(_, email)) => {
                self.ctx.metrics.record_resolved("person");
                self.ctx.transports.wake_all();
                Ok(email)
            }
            IdempotentResult::Done(HandoffActionResult::Missing) => Err(email_not_found(id)),
            IdempotentResult::Replayed(_) => self.access.visible_email(caller, id).await,
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Adds external evidence to a handoff of a team. Returns false when the team has no such email.
    pub async fn record_evidence(&self, team: TeamId, id: EmailId, evidence: Evidence) -> Result<bool, Problem> {
        match self
            .ctx
            .store
            .apply_action(team, id, HandoffAction::AddEvidence(evidence), None, self.ctx.now())
            .await
            .map_err(unavailable)?
        {
            IdempotentResult::Done(HandoffActionResult::Applied(_, _)) => Ok(true),
            _ => Ok(false),
        }
    }

    /// Waits until the email is finished, unknown or held, or until the timeout. Returns the email as it is then.
    pub async fn wait_until_settled(
        &self,
        caller: &Caller,
        id: EmailId,
        timeout: Duration,
    ) -> Result<Option<Email>, Problem> {
        let key_revocation = self.access.subscribe_key_revocation(caller);
        let deadline = tokio::time::Instant::now() + timeout;
        let mut delay = Duration::from_millis(5);
        loop {
            key_revocation.check_valid()?;
            let email = self.ctx.store.email(caller.team.id, id).await.map_err(unavailable)?;
            let is_settled = |email: &Email| {
                email.state().is_terminal() || matches!(email.state(), EmailState::Unknown | EmailState::Held)
            };
            if email.as_ref().is_none_or(is_settled) || tokio::time::Instant::now() + delay > deadline {
                return Ok(email);
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(Duration::from_millis(100));
        }
    }
}

/// A person's decision about an unknown outcome.
#[derive(Clone, Debug)]
pub struct ResolveRequest {
    /// The decision.
    pub choice: Resolution,
    /// The rev that the person saw.
    pub rev: u32,
    /// Which handoff; all unknown ones when `None`.
    pub handoff: Option<u16>,
    /// Why the person decided so.
    pub reason: Option<String>,
}
