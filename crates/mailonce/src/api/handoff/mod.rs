//! Hand-off: resolving unknown outcomes, transports, and the operator's controls.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    control::stop::{StopMode, StopScope},
    handoff::action::Resolution,
    problem::{Code, Problem},
};
use mailonce_engine::{
    control::stops::NewStop,
    handoff::{reroute::RerouteSummary, unknown::ResolveRequest},
    unavailable,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::outbound::{
        email_bodies::{EmailBody, SendBody, SendReceiptBody},
        emails::{EmptyBody, email_id, respond_when_settled},
    },
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::check_text,
        json_body,
        params::PathParam,
    },
};

/// A person's decision about an email whose outcome is unknown.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveEmailBody {
    /// `sent` (the email arrived), `resend` (send the same bytes again) or `abandon` (give up).
    r#as: String,
    /// The `rev` of the email that you read; the call is refused if the email has changed since.
    rev: u32,
    /// Number of the handoff to resolve; every unknown handoff when absent.
    #[serde(default)]
    handoff: Option<u16>,
    /// Reason, for people who read the timeline later.
    #[serde(default)]
    reason: Option<String>,
}

/// Resolve an email whose outcome is unknown.
#[utoipa::path(post, path = "/v1/emails/{id}/resolve", operation_id = "resolve_email", tag = "emails", params(("id" = String, Path)), request_body = ResolveEmailBody,
    responses((status = 200, description = "The email", body = EmailBody),
        (status = 409, description = "The email changed since you read it, or no outcome is unknown", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn resolve(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_decider()?;
    let id = email_id(&id)?;
    let resolution = body.parse::<ResolveEmailBody>()?;
    check_text("reason", resolution.reason.as_deref().unwrap_or_default())?;
    let fault = || Problem::invalid_field("as", "must be `sent`, `resend` or `abandon`");
    let choice = Resolution::parse(&resolution.r#as).ok_or_else(fault)?;
    let keyed_call = auth.keyed_call("resolve", &id.to_string(), &body.0);
    let ResolveEmailBody { rev, handoff, reason, .. } = resolution;
    let request = ResolveRequest { choice, rev, handoff, reason };
    mailonce_core::failpoint!("api-before-resolve");
    let email = app.engine.handoffs.resolve(&auth.caller, id, request, keyed_call).await?;
    mailonce_core::failpoint!("api-after-resolve");
    Ok(Json(EmailBody::of(&email, app.engine.ctx.message_id(&email))).into_response())
}

/// A transport: an SMTP relay or provider that emails are sent through.
#[derive(Serialize, ToSchema)]
pub(super) struct TransportBody {
    name: String,
    /// `sandbox smtp resend postmark mailgun sendgrid ses usesend brevo http`
    kind: &'static str,
    /// The provider account. An unknown outcome is only retried with the same account.
    account: String,
    /// How an unknown outcome is recovered: `key` (idempotent retry), `look_up` (search at the provider) or `none`.
    unknown_recovery: &'static str,
    /// Circuit breaker: `closed` (working), `open` (paused after failures) or `half_open` (one trial attempt).
    breaker: &'static str,
    /// Why the circuit breaker is open.
    breaker_reason: Option<String>,
    /// Number of running attempts.
    in_flight: usize,
}

/// A missing transport: handoffs wait for it, but no node has it configured.
#[derive(Serialize, ToSchema)]
pub(super) struct OrphanedTransportBody {
    /// Name of the missing transport.
    name: String,
    /// Number of waiting handoffs.
    waiting: u64,
    /// Number of handoffs whose outcome is unknown.
    unknown: u64,
}

/// All transports.
#[derive(Serialize, ToSchema)]
pub(super) struct TransportPage {
    data: Vec<TransportBody>,
    /// Missing transports that handoffs wait for. `POST /v1/transports/{name}/reroute` moves the handoffs.
    orphaned: Vec<OrphanedTransportBody>,
    /// Always null: the list has one page.
    next_cursor: Option<String>,
}

/// List the transports, with their circuit breakers.
#[utoipa::path(get, path = "/v1/transports", operation_id = "list_transports", tag = "handoff", responses((status = 200, description = "The transports", body = TransportPage)))]
pub(super) async fn transports(State(app): State<App>, auth: AuthedRequest) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    auth.caller.require_unrestricted_key()?;
    let body = |transport: mailonce_engine::handoff::transport_selector::TransportStatus| TransportBody {
        name: transport.name,
        kind: transport.kind,
        account: transport.account,
        unknown_recovery: transport.recovery,
        breaker: transport.breaker,
        breaker_reason: transport.breaker_reason,
        in_flight: transport.in_flight,
    };
    let data = app.engine.ctx.transport_statuses().into_iter().map(body).collect();
    let orphan = |orphan: mailonce_engine::handoff::transport_selector::OrphanedTransport| OrphanedTransportBody {
        name: orphan.name,
        waiting: orphan.waiting,
        unknown: orphan.unknown,
    };
    let orphaned = app.engine.handoffs.orphaned_transports().into_iter().map(orphan).collect();
    Ok(Json(TransportPage { data, orphaned, next_cursor: None }).into_response())
}

/// The email that tests a transport.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TransportTestBody {
    /// Sender, an address that your API key may send from.
    from: String,
    /// Recipient.
    to: String,
}

/// Send a test email through one transport.
///
/// An ordinary email that leaves by this transport only. Read it to see what the transport answered.
#[utoipa::path(post, path = "/v1/transports/{name}/test", operation_id = "test_transport", tag = "handoff", params(("name" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")), request_body = TransportTestBody,
    responses((status = 202, description = "Accepted", body = SendReceiptBody), (status = 200, description = "Replayed: the email was accepted before", body = SendReceiptBody),
        (status = 409, description = "A stop refuses new email (`stopped`)", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn test_transport(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(name): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Operator)?;
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let TransportTestBody { from, to } = body.parse()?;
    let email = serde_json::json!({
        "from": from,
        "to": to,
        "subject": format!("Test of the transport {name}"),
        "text": format!("This email tests the mailonce transport {name}. No answer is needed.\n"),
        "transport": name,
    });
    let request = json_body::parse::<SendBody>(email.to_string().as_bytes())?.into_request(auth.key)?;
    // The name is the path of this call, so a name that no transport has is no fault of the body.
    let unknown_transport = |problem: Problem| match problem.field.as_deref() {
        Some("transport") => Problem::new(Code::NotFound, problem.detail),
        _ => problem,
    };
    let receipt = app.engine.outbound.send(&auth.caller, request).await.map_err(unknown_transport)?;
    respond_when_settled(&app, &auth.caller, receipt, None, false).await
}

/// The new transport for waiting handoffs.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RerouteBody {
    /// Name of a transport that is configured on this node.
    to: String,
}

/// Result of a reroute.
#[derive(Serialize, ToSchema)]
pub(super) struct RerouteResultBody {
    /// The previous transport.
    from: String,
    /// The new transport.
    to: String,
    /// Number of handoffs that were moved.
    moved: u64,
    /// Number of handoffs that were not moved: being sent, unknown, in doubt, or with recipients that the new transport
    /// cannot send to separately.
    not_moved: u64,
    /// Whether handoffs remain: one call moves about 5,000. Call again with a new idempotency key.
    has_more: bool,
}

/// Move waiting handoffs to another transport.
///
/// Affects every team. Handoffs that may already have been sent are not moved.
#[utoipa::path(post, path = "/v1/transports/{name}/reroute", operation_id = "reroute_transport", tag = "handoff", params(("name" = String, Path)), request_body = RerouteBody,
    responses((status = 200, description = "The result", body = RerouteResultBody),
        (status = 422, description = "`to` is not another transport of this node", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn reroute(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(name): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Operator)?;
    let keyed_call = auth.keyed_call("reroute", &name, &body.0);
    let RerouteBody { to } = body.parse()?;
    let RerouteSummary { from, to, moved, left, more } =
        app.engine.handoffs.reroute(&auth.caller, &name, &to, keyed_call).await?;
    Ok(Json(RerouteResultBody { from, to, moved, not_moved: left, has_more: more }).into_response())
}

/// State of the hand-off and of the clock.
#[derive(Serialize, ToSchema)]
pub(super) struct HandoffStatusBody {
    /// `running` or `paused`.
    state: &'static str,
    ledger_time: String,
    /// False after a clock jump: keys do not expire, scheduled emails wait, and no provider's deduplication window
    /// counts as open.
    clock_trusted: bool,
}

impl HandoffStatusBody {
    async fn read(app: &App) -> Result<Json<Self>, Problem> {
        let is_stopped = app.engine.control.stops.is_installation_stopped().await.map_err(unavailable)?;
        Ok(Json(Self {
            state: if is_stopped { "paused" } else { "running" },
            ledger_time: app.engine.ctx.now().to_string(),
            clock_trusted: app.engine.ctx.is_time_trusted(),
        }))
    }
}

/// Pause the hand-off: stop the whole installation.
///
/// The same as a stop with the scope `{"installation": true}`. Emails are still accepted and wait in the queue.
#[utoipa::path(post, path = "/v1/handoff/pause", operation_id = "pause_handoff", tag = "handoff", request_body = Option<EmptyBody>, responses((status = 200, description = "Paused", body = HandoffStatusBody)))]
pub(super) async fn pause(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Operator)?;
    let EmptyBody {} = body.parse_or_empty()?;
    let stop = NewStop { scope: StopScope::Installation, mode: StopMode::Wait, reason: None };
    app.engine.control.stops.create_stop(&auth.caller, stop, None).await?;
    Ok(HandoffStatusBody::read(&app).await?.into_response())
}

/// How fast the email of the installation is released.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResumeBody {
    /// The most handoffs per second, 1 to 10,000. Without it everything is released at once.
    #[serde(default)]
    rate_per_s: Option<u32>,
}

/// Resume the hand-off: end the stop of the whole installation.
#[utoipa::path(post, path = "/v1/handoff/resume", operation_id = "resume_handoff", tag = "handoff", request_body = Option<ResumeBody>, responses((status = 200, description = "Running", body = HandoffStatusBody)))]
pub(super) async fn resume(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Operator)?;
    let ResumeBody { rate_per_s } = body.parse_or_empty()?;
    app.engine.control.stops.resume_installation(&auth.caller, rate_per_s).await?;
    Ok(HandoffStatusBody::read(&app).await?.into_response())
}

/// Confirm that the server's clock is right, after a clock jump.
#[utoipa::path(post, path = "/v1/clock/confirm", operation_id = "confirm_clock", tag = "handoff", request_body = Option<EmptyBody>, responses((status = 200, description = "Confirmed", body = HandoffStatusBody)))]
pub(super) async fn confirm_clock(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Operator)?;
    let EmptyBody {} = body.parse_or_empty()?;
    app.engine.control.audit.record_clock_confirmation().await?;
    app.engine.ctx.confirm_time();
    Ok(HandoffStatusBody::read(&app).await?.into_response())
}
