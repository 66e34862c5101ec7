//! The hand-off: what a person decides about an unknown outcome, the ways out, and the operator's switches.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    handoff::action::Resolution,
    problem::{FieldError, Problem},
};
use mailonce_engine::handoff::{reroute::RerouteSummary, unknown::ResolveRequest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    ApiResult, App, PathParam,
    door::{AuthedRequest, RawBody},
    wire::{EmailBody, check_text},
};
use crate::api::outbound::emails::{EmptyBody, email_id};

/// What became of an email whose outcome is unknown, as a person decides.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveEmailBody {
    /// `sent` (it arrived), `resend` (send the same bytes again), `abandon` (give it up).
    r#as: String,
    /// The email's `rev` as you saw it.
    rev: u32,
    /// Only this handoff; every unknown one when it is left out.
    #[serde(default)]
    handoff: Option<u16>,
    /// For whoever reads the timeline.
    #[serde(default)]
    reason: Option<String>,
}

/// Decide what became of an email whose outcome is unknown.
#[utoipa::path(post, path = "/v1/emails/{id}/resolve", operation_id = "resolve_email", tag = "emails", params(("id" = String, Path)), request_body = ResolveEmailBody,
    responses((status = 200, description = "The email", body = EmailBody),
        (status = 409, description = "It changed, or nothing is unknown", body = super::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn resolve(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let id = email_id(&id)?;
    let wish = body.parse::<ResolveEmailBody>()?;
    check_text("reason", wish.reason.as_deref().unwrap_or_default())?;
    let fault = || Problem::from(vec![FieldError::new("as", "is `sent`, `resend` or `abandon`")]);
    let choice = Resolution::parse(&wish.r#as).ok_or_else(fault)?;
    let asked = door.keyed_call("resolve", &id.to_string(), &body.0);
    let wish = ResolveRequest { choice, rev: wish.rev, handoff: wish.handoff, reason: wish.reason };
    mailonce_core::failpoint!("api-before-resolve");
    let email = app.engine.handoffs.resolve(&door.caller, id, wish, asked).await?;
    mailonce_core::failpoint!("api-after-resolve");
    Ok(Json(EmailBody::of(&email, app.engine.ctx.message_id(&email))).into_response())
}

/// A way out.
#[derive(Serialize, ToSchema)]
pub(super) struct TransportBody {
    name: String,
    /// `sandbox smtp resend postmark mailgun sendgrid ses usesend brevo http`
    kind: &'static str,
    /// The account behind it: retries of an unknown outcome go to the same one only.
    account: String,
    /// What can be done about an unknown outcome: `key`, `look_up` or `none`.
    unknown_recovery: &'static str,
    /// `closed` works, `open` rests, `half_open` tries one.
    breaker: &'static str,
    /// Why the breaker is open.
    breaker_reason: Option<String>,
    /// Hand-overs under way.
    in_flight: usize,
}

/// A transport that mail waits for although no node has it.
#[derive(Serialize, ToSchema)]
pub(super) struct OrphanedTransportBody {
    /// The name that the mail waits for.
    name: String,
    /// Handoffs that wait.
    waiting: u64,
    /// Handoffs whose outcome is unknown.
    unknown: u64,
}

/// Every way out.
#[derive(Serialize, ToSchema)]
pub(super) struct TransportPage {
    data: Vec<TransportBody>,
    /// Transports that mail waits for although no node has them. `POST /v1/transports/{name}/reroute` moves it.
    orphaned: Vec<OrphanedTransportBody>,
    /// Always null: there are few.
    next_cursor: Option<String>,
}

/// List the ways out, with their breakers.
#[utoipa::path(get, path = "/v1/transports", operation_id = "list_transports", tag = "handoff", responses((status = 200, description = "The ways out", body = TransportPage)))]
pub(super) async fn transports(State(app): State<App>, door: AuthedRequest) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    door.caller.require_unrestricted_key()?;
    let body = |way: mailonce_engine::handoff::transport_selector::TransportStatus| TransportBody {
        name: way.name,
        kind: way.kind,
        account: way.account,
        unknown_recovery: way.recovery,
        breaker: way.breaker,
        breaker_reason: way.why,
        in_flight: way.in_flight,
    };
    let data = app.engine.ctx.transport_statuses().into_iter().map(body).collect();
    let orphan = |one: mailonce_engine::handoff::transport_selector::OrphanedTransport| OrphanedTransportBody {
        name: one.name,
        waiting: one.waiting,
        unknown: one.unknown,
    };
    let orphaned = app.engine.handoffs.orphaned_transports().into_iter().map(orphan).collect();
    Ok(Json(TransportPage { data, orphaned, next_cursor: None }).into_response())
}

/// Where waiting mail is to go instead.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RerouteBody {
    /// The name of a transport of the node that is called.
    to: String,
}

/// What was moved to another transport.
#[derive(Serialize, ToSchema)]
pub(super) struct RerouteResultBody {
    /// The transport that was left.
    from: String,
    /// The transport that has it now.
    to: String,
    /// Handoffs that were moved.
    moved: u64,
    /// Handoffs that stay: under way, unknown, in doubt, or with recipients that the other transport cannot take alone.
    not_moved: u64,
    /// Whether to call again, with another key: one call moves about 5,000 handoffs.
    has_more: bool,
}

/// Move what waits for a transport to another one, of every team. What is in doubt stays.
#[utoipa::path(post, path = "/v1/transports/{name}/reroute", operation_id = "reroute_transport", tag = "handoff", params(("name" = String, Path)), request_body = RerouteBody,
    responses((status = 200, description = "What was moved", body = RerouteResultBody),
        (status = 422, description = "`to` is no other transport of this node", body = super::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn reroute(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(name): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Operator)?;
    let asked = door.keyed_call("reroute", &name, &body.0);
    let RerouteBody { to } = body.parse()?;
    let RerouteSummary { from, to, moved, left, more } =
        app.engine.handoffs.reroute(&door.caller, &name, &to, asked).await?;
    Ok(Json(RerouteResultBody { from, to, moved, not_moved: left, has_more: more }).into_response())
}

/// Whether mail is handed on, and whether time can be trusted.
#[derive(Serialize, ToSchema)]
pub(super) struct HandoffStatusBody {
    /// `running` or `paused`.
    state: &'static str,
    ledger_time: String,
    /// False after the clock jumped: nothing is forgotten, nothing scheduled is sent, no provider's window is open.
    clock_trusted: bool,
}

impl HandoffStatusBody {
    fn of(app: &App) -> Json<Self> {
        Json(Self {
            state: if app.engine.ctx.is_handoff_paused() { "paused" } else { "running" },
            ledger_time: app.engine.ctx.now().to_string(),
            clock_trusted: app.engine.ctx.is_time_trusted(),
        })
    }
}

/// Let all hand-off of this process rest. What is under way ends; mail is accepted and waits.
#[utoipa::path(post, path = "/v1/handoff/pause", operation_id = "pause_handoff", tag = "handoff", request_body = Option<EmptyBody>, responses((status = 200, description = "Resting", body = HandoffStatusBody)))]
pub(super) async fn pause(State(app): State<App>, door: AuthedRequest, body: RawBody) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Operator)?;
    let EmptyBody {} = body.parse_or_empty()?;
    app.engine.ctx.set_handoff_paused(true);
    Ok(HandoffStatusBody::of(&app).into_response())
}

/// Let hand-off go on.
#[utoipa::path(post, path = "/v1/handoff/resume", operation_id = "resume_handoff", tag = "handoff", request_body = Option<EmptyBody>, responses((status = 200, description = "Going on", body = HandoffStatusBody)))]
pub(super) async fn resume(State(app): State<App>, door: AuthedRequest, body: RawBody) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Operator)?;
    let EmptyBody {} = body.parse_or_empty()?;
    app.engine.ctx.set_handoff_paused(false);
    Ok(HandoffStatusBody::of(&app).into_response())
}

/// Say that the machine's clock is right, after it jumped.
#[utoipa::path(post, path = "/v1/clock/confirm", operation_id = "confirm_clock", tag = "handoff", request_body = Option<EmptyBody>, responses((status = 200, description = "Believed", body = HandoffStatusBody)))]
pub(super) async fn confirm_clock(State(app): State<App>, door: AuthedRequest, body: RawBody) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Operator)?;
    let EmptyBody {} = body.parse_or_empty()?;
    app.engine.ctx.confirm_time();
    Ok(HandoffStatusBody::of(&app).into_response())
}
