//! Policy: what each check decided about an email, and what would happen to a send.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{access::team::ApiKeyScope, control::policy::PolicyStep};
use mailonce_engine::outbound::simulate::{SimulatedOutcome, Simulation};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::outbound::email_bodies::SendBody,
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        problem::ProblemBody,
    },
};

/// What one check decided about an email.
#[derive(Serialize, ToSchema)]
pub(crate) struct PolicyStepBody {
    /// Name of the rule or budget, or of the check: `request sender stops suppressions lists overlaps looks_duplicate
    /// cap`.
    name: String,
    /// `request sender stop suppression list rule budget guard`
    kind: &'static str,
    /// `pass hold refuse flag observe`; `observe`: the rule only records what it would have done.
    verdict: &'static str,
    /// Reason, in words.
    why: String,
    /// Id of the rule or budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

impl From<PolicyStep> for PolicyStepBody {
    fn from(step: PolicyStep) -> Self {
        Self {
            name: step.name,
            kind: step.kind.as_str(),
            verdict: step.verdict.as_str(),
            why: step.why,
            id: step.id.map(|id| id.to_string()),
        }
    }
}

/// The wire form of a trace.
pub(crate) fn policy_body(steps: Vec<PolicyStep>) -> Vec<PolicyStepBody> {
    steps.into_iter().map(PolicyStepBody::from).collect()
}

/// What would happen to a send.
#[derive(Serialize, ToSchema)]
pub(crate) struct SimulationBody {
    /// `accept replay hold refuse`
    would: &'static str,
    /// What each check decided, in order. For `replay`: what was decided about the first email.
    policy: Vec<PolicyStepBody>,
    /// For `replay`: the email that the idempotency key belongs to.
    email: Option<String>,
    /// For `refuse`: the problem that the send would be answered with.
    problem: Option<ProblemBody>,
}

impl From<Simulation> for SimulationBody {
    fn from(simulation: Simulation) -> Self {
        Self {
            would: match simulation.outcome {
                SimulatedOutcome::Accept => "accept",
                SimulatedOutcome::Replay => "replay",
                SimulatedOutcome::Hold => "hold",
                SimulatedOutcome::Refuse => "refuse",
            },
            policy: policy_body(simulation.policy),
            email: simulation.email.map(|id| id.to_string()),
            problem: simulation.problem.map(ProblemBody::from),
        }
    }
}

/// Try a send without sending.
///
/// Says whether the email would be accepted, held or refused, and what each check decided. Nothing is written: an
/// idempotency key is looked up and never bound. The answer is true at that moment; a budget may have no room a second
/// later.
#[utoipa::path(post, path = "/v1/policy/simulate", operation_id = "simulate_send", tag = "emails", request_body = SendBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key to look up; it stays free")),
    responses((status = 200, description = "What would happen", body = SimulationBody)))]
pub(crate) async fn simulate(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let request = body.parse::<SendBody>()?.into_request(auth.key)?;
    let simulation = app.engine.outbound.simulate_send(&auth.caller, request).await?;
    Ok(Json(SimulationBody::from(simulation)).into_response())
}
