//! Policy: what each check decided about an email, and what would happen to a send.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::access::team::ApiKeyScope;
use mailonce_engine::outbound::simulate::{SimulatedOutcome, Simulation};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::outbound::{
        email_bodies::SendBody,
        policy_steps::{PolicyStepBody, policy_body},
    },
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        problem::ProblemBody,
    },
};

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
