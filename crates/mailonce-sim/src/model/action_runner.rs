//! The effect of an action. The core makes all decisions of the ledger.

use mailonce_core::{
    handoff::{
        Evidence, EvidenceFinding, EvidenceSource, HandoffState, Transition,
        action::{self, HandoffAction, HandoffActionStatus, HandoffRetryPolicy, Resolution},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
        unknown,
    },
    outbound::email::Email,
};
use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use crate::model::{
    actions::ModelAction,
    config::{ACCOUNT, ModelConfig, ModelHopClass, SLACK_TICKS, SeededBug, tick_start},
    packed_handoff::{HOLDER, PackedHandoff, attempt_bit, empty_email},
    route_coverage::{Route, RouteCoverage},
    state::{BrokenRule, ModelLease, ModelState, ModelWorker, is_sent_state},
};

/// How long a handoff is retried: twice, so that the last attempt is reachable.
const RETRY_PLAN: HandoffRetryPolicy = HandoffRetryPolicy { max_attempts: 2, max_age_ms: i64::MAX, jitter_seed: 0 };

/// Applies actions to states.
#[derive(Debug)]
pub struct ActionRunner {
    /// The configuration.
    pub config: ModelConfig,
    /// Routes that were taken.
    pub coverage: RouteCoverage,
    template: Email,
    legal_steps: LegalStepCache,
}

/// Which transitions are legal, as the core answered the first time.
#[derive(Debug, Default)]
struct LegalStepCache(RwLock<HashMap<(&'static [Transition], HandoffState, HandoffState), bool>>);

impl LegalStepCache {
    fn allows(&self, steps: &'static [Transition], from: HandoffState, to: HandoffState) -> bool {
        let key = (steps, from, to);
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return *known;
        }
        let allowed = from.can_reach(to, steps);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, allowed);
        allowed
    }
}

impl ActionRunner {
    /// A runner for a configuration.
    pub fn new(size: ModelConfig) -> Option<Self> {
        Some(Self {
            config: size,
            coverage: RouteCoverage::new(),
            template: empty_email(size)?,
            legal_steps: LegalStepCache::default(),
        })
    }

    /// The state after an action.
    pub fn apply(&self, before: &ModelState, what: ModelAction) -> ModelState {
        let mut world = before.clone();
        match what {
            ModelAction::Lease(number) => self.lease(&mut world, number),
            ModelAction::Connect(worker) => self.connect(&mut world, worker),
            ModelAction::RejectBeforeMarker(worker, meaning) => self.reject_before_marker(&mut world, worker, meaning),
            ModelAction::Mark(worker) => self.mark(&mut world, worker),
            ModelAction::MarkUnconfirmed(worker, durable) => self.mark_unconfirmed(&mut world, worker, durable),
            ModelAction::SendBytes(worker) => self.send_bytes(&mut world, worker),
            ModelAction::HopReply(number, attempt, meaning) => {
                self.apply_hop_reply(&mut world, number, attempt, meaning)
            }
            ModelAction::LoseReply(worker) => lose_reply(&mut world, worker),
            ModelAction::RecordOutcome(worker, again) => self.record_outcome(&mut world, worker, again),
            ModelAction::Crash(worker) => world.workers[usize::from(worker)] = ModelWorker::Idle,
            ModelAction::Recover(number) => self.recover(&mut world, number),
            ModelAction::Cancel => self.cancel(&mut world),
            ModelAction::Repeat(number) => self.repeat(&mut world, number),
            ModelAction::LookUp(number, found) => self.look_up(&mut world, number, found),
            ModelAction::ResendByPolicy(number) => self.resend_by_policy(&mut world, number),
            ModelAction::ProviderEvent(number, says) => self.provider_event(&mut world, number, says),
            ModelAction::Resolve(number, choice) => self.resolve(&mut world, number, choice),
            ModelAction::Tick => world.advance_tick(),
            ModelAction::LoseMarker(number) => lose_marker(&mut world, number),
        }
        world.sort_workers();
        world
    }

    fn email_of(&self, world: &ModelState) -> Email {
        let handoffs = world.rows.iter().enumerate().map(|(number, row)| row.unpack(number)).collect();
        Email { handoffs, ..self.template.clone() }
    }

    /// Stores the email and checks that its transitions were legal.
    fn save_email(&self, world: &mut ModelState, email: &Email, steps: &'static [Transition]) {
        for (row, handoff) in world.rows.iter_mut().zip(&email.handoffs) {
            let after = PackedHandoff::pack(handoff);
            let leased = u8::from(after.fence != row.fence && after.state == HandoffState::Leased);
            if row.state != after.state && !self.legal_steps.allows(steps, row.state, after.state) {
                world.broken = Some(BrokenRule::Step);
            }
            if after.fence != row.fence + leased {
                world.broken = Some(BrokenRule::Fence);
            }
            *row = after;
        }
    }

    fn run_act(&self, world: &mut ModelState, act: &HandoffAction) -> HandoffActionStatus {
        let mut email = self.email_of(world);
        let effects = email.apply_action(act, tick_start(world.now));
        self.save_email(world, &email, act.allowed_transitions());
        effects.status
    }

    fn lease(&self, world: &mut ModelState, number: u8) {
        let mut email = self.email_of(world);
        if email.lease_handoff(u16::from(number), HOLDER, tick_start(world.now)) {
            self.save_email(world, &email, &[Transition::Due, Transition::Lease]);
            give_to_idle_worker(world, number);
        }
    }

    fn repeat(&self, world: &mut ModelState, number: u8) {
        let act = HandoffAction::RetryInWindow { number: number.into(), holder: HOLDER, account: ACCOUNT.into() };
        if self.run_act(world, &act) == HandoffActionStatus::Done {
            give_to_idle_worker(world, number);
        }
    }

    fn connect(&self, world: &mut ModelState, number: u8) {
        let worker = &mut world.workers[usize::from(number)];
        let ModelWorker::Leased { hold, repeats } = *worker else { return };
        if let Some(since) = repeats {
            let mut seen = world.rows[usize::from(hold.handoff)];
            seen.unknown_since = Some(since);
            let seen = seen.unpack(usize::from(hold.handoff));
            if !unknown::is_key_window_open(&seen, self.config.recovery_input(), tick_start(world.now)) {
                *worker = ModelWorker::Idle;
                self.coverage.count(Route::WindowClosed);
                let due = tick_start(world.now);
                self.run_act(
                    world,
                    &HandoffAction::ReturnLease { lease: to_lease_ref(hold), due_at: due, reason: String::new() },
                );
                return;
            }
        }
        *worker = ModelWorker::Ready { hold, since: world.now, wired: false };
    }

    fn reject_before_marker(&self, world: &mut ModelState, number: u8, meaning: ReplyMeaning) {
        let worker = &mut world.workers[usize::from(number)];
        if let ModelWorker::Leased { hold, .. } = *worker {
            *worker = ModelWorker::KnowsOutcome { hold, attempt: None, meaning };
        }
    }

    fn mark(&self, world: &mut ModelState, number: u8) {
        let ModelWorker::Ready { hold, since, wired } = world.workers[usize::from(number)] else { return };
        let hold = ModelLease { began: world.now, ..hold };
        let verdict = self.run_act(
            world,
            &HandoffAction::Mark { lease: to_lease_ref(hold), frozen_bytes: None, contacts: Vec::new() },
        );
        let row = world.rows[usize::from(hold.handoff)];
        let attempt = row.attempts;
        world.workers[usize::from(number)] = match verdict {
            HandoffActionStatus::Done if wired => ModelWorker::Waiting { hold, attempt },
            HandoffActionStatus::Done => ModelWorker::Marked { hold, since, attempt },
            _ => {
                let cancelled = row.state == HandoffState::Cancelled;
                self.coverage.count(if cancelled { Route::MarkerAfterCancel } else { Route::MarkerAfterTakeOver });
                ModelWorker::Idle
            }
        };
    }

    fn mark_unconfirmed(&self, world: &mut ModelState, number: u8, durable: bool) {
        let ModelWorker::Ready { hold, .. } = world.workers[usize::from(number)] else { return };
        if durable {
            self.run_act(
                world,
                &HandoffAction::Mark { lease: to_lease_ref(hold), frozen_bytes: None, contacts: Vec::new() },
            );
        }
        world.workers[usize::from(number)] =
            ModelWorker::KnowsOutcome { hold, attempt: None, meaning: ReplyMeaning::Deferred };
    }

    fn send_bytes(&self, world: &mut ModelState, number: u8) {
        let now = world.now;
        match world.workers[usize::from(number)] {
            ModelWorker::Ready { hold, since, .. } => {
                let index = usize::from(hold.handoff);
                world.truth[index].send_bytes(world.rows[index].attempts + 1, since);
                world.workers[usize::from(number)] = ModelWorker::Ready { hold, since, wired: true };
            }
            ModelWorker::Marked { hold, since, attempt } => {
                let careless = self.config.flaw == Some(SeededBug::OldConnection);
                let old = now - since > SLACK_TICKS && !careless;
                world.workers[usize::from(number)] = if old {
                    self.coverage.count(Route::OldConnection);
                    ModelWorker::KnowsOutcome { hold, attempt: Some(attempt), meaning: ReplyMeaning::Deferred }
                } else {
                    let since = if careless { now } else { since };
                    world.truth[usize::from(hold.handoff)].send_bytes(attempt, since);
                    ModelWorker::Waiting { hold, attempt }
                };
            }
            _ => {}
        }
    }

    fn apply_hop_reply(&self, world: &mut ModelState, number: u8, attempt: u8, meaning: ReplyMeaning) {
        let truth = &mut world.truth[usize::from(number)];
        truth.undecided_attempts[usize::from(attempt - 1)] = None;
        if meaning == ReplyMeaning::Accepted {
            truth.accept_mail(self.config.class == ModelHopClass::Keyed, world.now);
        }
        for worker in &mut world.workers {
            match *worker {
                ModelWorker::Waiting { hold, attempt: its } if hold.handoff == number && its == attempt => {
                    *worker = ModelWorker::KnowsOutcome { hold, attempt: Some(attempt), meaning };
                }
                _ => {}
            }
        }
    }

    fn record_outcome(&self, world: &mut ModelState, number: u8, again: bool) {
        let ModelWorker::KnowsOutcome { hold, attempt, meaning } = world.workers[usize::from(number)] else { return };
        let index = usize::from(hold.handoff);
        let before = world.rows[index];
        let mut hold_now = to_lease_ref(hold);
        if self.config.flaw == Some(SeededBug::FenceOfNow) {
            hold_now.fence = before.fence.into();
        }
        let act = HandoffAction::RecordOutcome {
            lease: hold_now,
            attempt: attempt.map(u32::from),
            started_at: tick_start(hold.began),
            reply: TransportReply::new(meaning, AttemptPhase::Final, None, ""),
            retry_policy: RETRY_PLAN,
        };
        let verdict = self.run_act(world, &act);
        let after = world.rows[index];
        let settles_all =
            self.config.flaw == Some(SeededBug::RefusalSettlesAll) && verdict == HandoffActionStatus::Done;
        if settles_all && meaning == ReplyMeaning::Refused && before.is_repeat() {
            world.rows[index] = PackedHandoff { state: HandoffState::Failed, unknown_attempts: 0, ..after };
        }
        self.count_outcome_route(before, after, attempt.is_some(), meaning, verdict);
        if again {
            self.coverage.count(Route::SettledTwice);
        } else {
            world.workers[usize::from(number)] = ModelWorker::Idle;
        }
    }

    /// Counts the route of a recorded outcome.
    fn count_outcome_route(
        &self,
        before: PackedHandoff,
        after: PackedHandoff,
        marked: bool,
        meaning: ReplyMeaning,
        verdict: HandoffActionStatus,
    ) {
        let stale = verdict == HandoffActionStatus::Stale;
        let route = match (meaning, after.state) {
            (ReplyMeaning::Accepted, HandoffState::Sent) if stale && before.state != HandoffState::Sent => {
                Route::LateAcceptance
            }
            (ReplyMeaning::Accepted, HandoffState::Sent) if before.is_repeat() => Route::RepeatSettles,
            (ReplyMeaning::Refused | ReplyMeaning::Deferred, HandoffState::Queued)
                if stale && before.state == HandoffState::Unknown =>
            {
                Route::LateRefusal
            }
            _ if stale => return,
            (ReplyMeaning::Refused, HandoffState::Unknown) if before.is_repeat() => Route::RepeatRefused,
            (ReplyMeaning::Refused, HandoffState::Failed) if marked => Route::RefusedAfter,
            (ReplyMeaning::Refused, HandoffState::Failed) => Route::RefusedBefore,
            (ReplyMeaning::Deferred, HandoffState::Queued) if marked => Route::Deferred,
            (ReplyMeaning::Deferred, HandoffState::Queued) if before.state == HandoffState::Sending => {
                Route::MarkerUnsure
            }
            (ReplyMeaning::Deferred, HandoffState::Queued) => Route::MarkerNever,
            (ReplyMeaning::Deferred, HandoffState::Failed) => Route::GivenUp,
            (ReplyMeaning::Concurrent, HandoffState::Unknown) => Route::Concurrent,
            (ReplyMeaning::Mismatch, HandoffState::Unknown) => Route::Puzzle,
            _ => return,
        };
        self.coverage.count(route);
    }

    fn recover(&self, world: &mut ModelState, number: u8) {
        let index = usize::from(number);
        let before = world.rows[index];
        if self.config.flaw == Some(SeededBug::SendingIsRetried) && before.state == HandoffState::Sending {
            world.rows[index] = PackedHandoff { state: HandoffState::Queued, is_leased: false, ..before };
            return;
        }
        self.run_act(world, &HandoffAction::Crash { number: number.into(), holder: HOLDER });
        self.coverage.count(match (before.state, world.rows[index].state) {
            (HandoffState::Leased, HandoffState::Queued) => Route::LeaseLapsed,
            (HandoffState::Leased, HandoffState::Unknown) => Route::RepeatLapses,
            (HandoffState::Leased, _) => Route::PutAside,
            _ => Route::CrashAfterMarker,
        });
    }

    fn cancel(&self, world: &mut ModelState) {
        let mut email = self.email_of(world);
        if email.cancel(tick_start(world.now)).is_ok() {
            self.save_email(world, &email, &[Transition::Cancel]);
            self.coverage.count(Route::Cancelled);
        } else {
            self.coverage.count(Route::CancelTooLate);
        }
    }

    fn look_up(&self, world: &mut ModelState, number: u8, found: bool) {
        let index = usize::from(number);
        if found {
            self.coverage.count(Route::LookUpFinds);
            self.run_act(
                world,
                &HandoffAction::AddEvidence(evidence(number, EvidenceSource::LookUp, EvidenceFinding::Accepted)),
            );
        } else if self.config.flaw == Some(SeededBug::NegativeIsProof) {
            world.rows[index] = PackedHandoff {
                state: HandoffState::Queued,
                unknown_attempts: 0,
                unknown_since: None,
                ..world.rows[index]
            };
        } else {
            if world.truth[index].accepted_mails > 0 {
                self.coverage.count(Route::LookUpMisses);
            }
            let evidence = Some(evidence(number, EvidenceSource::LookUp, EvidenceFinding::NotFound));
            self.run_act(world, &HandoffAction::CheckLater { number: number.into(), evidence, next_check_at: None });
        }
    }

    fn resend_by_policy(&self, world: &mut ModelState, number: u8) {
        if self.run_act(world, &HandoffAction::ResendByPolicy { number: number.into() }) == HandoffActionStatus::Done {
            world.truth[usize::from(number)].resends += 1;
            self.coverage.count(Route::PolicyResends);
        }
    }

    fn provider_event(&self, world: &mut ModelState, number: u8, says: EvidenceFinding) {
        let index = usize::from(number);
        let before = world.rows[index].state;
        self.run_act(world, &HandoffAction::AddEvidence(evidence(number, EvidenceSource::ProviderEvent, says)));
        match before {
            HandoffState::Unknown => self.coverage.count(Route::EventSettles),
            HandoffState::Sending => self.coverage.count(Route::EventOvertakes),
            HandoffState::Abandoned => self.coverage.count(Route::EventCorrects),
            _ => {}
        }
        if !is_sent_state(world.rows[index].state) {
            world.broken = Some(BrokenRule::Step);
        }
    }

    fn resolve(&self, world: &mut ModelState, number: u8, choice: Resolution) {
        let act = HandoffAction::Resolve {
            resolution: choice,
            rev: self.template.rev,
            handoff: Some(number.into()),
            reason: String::new(),
        };
        if self.run_act(world, &act) != HandoffActionStatus::Done {
            return;
        }
        let truth = &mut world.truth[usize::from(number)];
        match choice {
            Resolution::Sent => truth.person_confirmed = true,
            Resolution::Resend => truth.resends += 1,
            Resolution::Abandon => {}
        }
        self.coverage.count(match choice {
            Resolution::Sent => Route::PersonSent,
            Resolution::Resend => Route::PersonResends,
            Resolution::Abandon => Route::PersonAbandons,
        });
    }
}

/// Gives an idle worker the lease of a handoff.
fn give_to_idle_worker(world: &mut ModelState, number: u8) {
    let row = world.rows[usize::from(number)];
    let hold = ModelLease { handoff: number, fence: row.fence, began: world.now };
    let repeats = if row.is_repeat() { row.unknown_since } else { None };
    if let Some(idle) = world.workers.iter_mut().find(|worker| **worker == ModelWorker::Idle) {
        *idle = ModelWorker::Leased { hold, repeats };
    }
}

fn lose_reply(world: &mut ModelState, number: u8) {
    let worker = &mut world.workers[usize::from(number)];
    if let ModelWorker::Waiting { hold, attempt } = *worker {
        *worker = ModelWorker::KnowsOutcome { hold, attempt: Some(attempt), meaning: ReplyMeaning::Unknown };
    }
}

fn lose_marker(world: &mut ModelState, number: u8) {
    let row = &mut world.rows[usize::from(number)];
    *row = PackedHandoff {
        state: HandoffState::Leased,
        attempts: row.attempts - 1,
        unknown_attempts: row.unknown_attempts & !attempt_bit(row.attempts),
        ..*row
    };
}

fn to_lease_ref(hold: ModelLease) -> action::LeaseRef {
    action::LeaseRef {
        number: hold.handoff.into(),
        fence: hold.fence.into(),
        transport: String::new(),
        account: ACCOUNT.into(),
    }
}

fn evidence(number: u8, source: EvidenceSource, says: EvidenceFinding) -> Evidence {
    Evidence {
        handoff: number.into(),
        attempt: None,
        at: tick_start(0),
        source,
        finding: says,
        detail: String::new(),
        dedup_key: None,
    }
}
