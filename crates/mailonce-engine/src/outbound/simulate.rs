//! Simulated sends: what would happen to an email, without sending or writing anything.

use crate::{
    access::caller::Caller,
    control::{policy_trace::decided_steps, stops::delayed_step},
    outbound::{
        Outbound,
        keyed_send::{KeyedSend, SendRequest, differences, identify_send},
        replay_cache::CachedEmail,
        send::{email_of_binding, payload_mismatch},
    },
    runtime::problems::unavailable,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::EmailId,
    key::InstallSecret,
    outbound::{
        accept::AcceptResult,
        email::Email,
        policy_trace::{PolicyKind, PolicyStep, PolicyTrace},
    },
    problem::{Code, Problem},
};

/// What would happen to a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedOutcome {
    /// It would be accepted and leave, unless a step of the trace says that a stop makes it wait.
    Accept,
    /// It would be answered with the email that its key has.
    Replay,
    /// It would be accepted and held.
    Hold,
    /// It would be refused.
    Refuse,
}

/// The answer to a simulated send.
#[derive(Debug)]
pub struct Simulation {
    /// What would happen.
    pub outcome: SimulatedOutcome,
    /// What each check decided, in order. For a replay: what was decided about the first email.
    pub policy: Vec<PolicyStep>,
    /// The email that a replay would be answered with.
    pub email: Option<EmailId>,
    /// Why it would be refused.
    pub problem: Option<Problem>,
}

impl Simulation {
    fn refused(problem: Problem, policy: Vec<PolicyStep>) -> Self {
        Self { outcome: SimulatedOutcome::Refuse, policy, email: None, problem: Some(problem) }
    }
}

impl Outbound {
    /// Says what a send would do. The key is looked up and never bound, and nothing is written.
    pub async fn simulate_send(&self, caller: &Caller, request: SendRequest) -> Result<Simulation, Problem> {
        caller.require_scope(ApiKeyScope::Send)?;
        if request.distinct_token.is_some() {
            return Err(Problem::invalid_field("distinct_token", "releases a held email, which cannot be simulated"));
        }
        let now = self.ctx.now();
        let mut keyed = identify_send(caller, request, None);
        let bound = match self.bound_email_of_key(caller, &keyed, now).await {
            Err(problem) if problem.code == Code::KeyMismatch => {
                return Ok(Simulation::refused(problem, Vec::new()));
            }
            bound => bound?,
        };
        if let Some(email) = bound {
            return Ok(simulated_replay(caller, &keyed, &email, &self.ctx.secret));
        }
        let (mut trace, shows_rules) = (PolicyTrace::default(), caller.may_see_rules());
        let new_email = match self.guarded_email(caller, &mut keyed, now, &mut trace).await {
            Ok(new_email) => new_email,
            Err(problem) if problem.code.status() >= 500 => return Err(problem),
            Err(problem) => return Ok(Simulation::refused(problem, trace.complete(shows_rules))),
        };
        match self.ctx.store.simulate_accept(*new_email, now).await.map_err(unavailable)? {
            AcceptResult::First(email) => {
                let outcome = if email.holds.is_empty() { SimulatedOutcome::Accept } else { SimulatedOutcome::Hold };
                let mut policy = decided_steps(caller, &email);
                // The transport was selected after the stops were checked.
                let stops = self.control.stops.stops_affecting(caller.team.id).await?;
                if let Some(stop) = stops.stop_of(&email)
                    && let Some(step) = policy.iter_mut().find(|step| step.kind == PolicyKind::Stop)
                {
                    *step = delayed_step(stop);
                }
                Ok(Simulation { outcome, policy, email: None, problem: None })
            }
            // Another call bound the key in the meantime.
            AcceptResult::KeyBound(bound) => Ok(match email_of_binding(&keyed, bound) {
                Ok(email) => simulated_replay(caller, &keyed, &email, &self.ctx.secret),
                Err(problem) => Simulation::refused(problem, Vec::new()),
            }),
            AcceptResult::Identical(email) => Ok(Simulation {
                outcome: SimulatedOutcome::Replay,
                policy: decided_steps(caller, &email),
                email: Some(email.id),
                problem: None,
            }),
            AcceptResult::OverBudget(exceeded) => {
                trace.record_budget(exceeded.policy_step());
                let problem = self.budgets.quota_exceeded(caller.team.id, &exceeded).await;
                Ok(Simulation::refused(problem, trace.complete(shows_rules)))
            }
        }
    }
}

/// What a send with a bound key would be answered with.
fn simulated_replay(caller: &Caller, keyed: &KeyedSend, email: &Email, secret: &InstallSecret) -> Simulation {
    if !caller.may_see_sender(&email.head.from) {
        let detail = "this idempotency key belongs to an email of an inbox that the API key may not use";
        return Simulation::refused(Problem::new(Code::SenderNotAllowed, detail), Vec::new());
    }
    let cached = CachedEmail::from(email);
    let fields = differences(keyed, &cached, secret);
    if !fields.is_empty() && !keyed.tolerates_difference(&fields) {
        let problem = payload_mismatch(keyed.email_key.as_ref(), &cached, &fields);
        return Simulation::refused(problem, Vec::new());
    }
    let (outcome, policy) = (SimulatedOutcome::Replay, decided_steps(caller, email));
    Simulation { outcome, policy, email: Some(email.id), problem: None }
}
