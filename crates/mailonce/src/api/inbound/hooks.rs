//! Provider webhooks: delivery events and received mail. The source's credential authenticates them, not an API key.

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::Uri,
    response::IntoResponse,
};
use mailonce_core::problem::{Code, Problem};
use mailonce_engine::inbound::hooks::{ProviderHookRequest, ProviderHookSummary};
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

use crate::{
    api::access::sources::source_id,
    http::{
        app::{ApiResult, App},
        extract::body_problem,
        params::PathParam,
    },
    server::min_rate::require_min_rate,
};

/// How long a provider may take to send a body with events. Providers time out after about ten seconds themselves.
const EVENT_BODY_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a provider may take to send a body that may contain mail with attachments.
const MAIL_BODY_TIMEOUT: Duration = Duration::from_mins(1);
/// Largest body of a source that delivers only events.
const MAX_EVENT_BODY: usize = 1 << 20;

/// Result of a provider's webhook request.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProviderRequestSummaryBody {
    /// Reports in the request.
    reports: usize,
    /// Reports that added new evidence about an email.
    recorded: usize,
    /// Reports that were known already.
    already_known: usize,
    /// Reports that match no email of this source's team and transport.
    unmatched: usize,
    /// Reports that are not about delivery, such as opens and clicks.
    ignored: usize,
    /// Addresses added to the suppression list.
    addresses_suppressed: usize,
    /// Deliveries of received mail that were stored, one per recipient.
    deliveries_accepted: usize,
    /// Deliveries that were duplicates.
    deliveries_duplicate: usize,
    /// Deliveries to unknown recipients, or refused by a rule or list.
    deliveries_refused: usize,
}

impl From<ProviderHookSummary> for ProviderRequestSummaryBody {
    fn from(summary: ProviderHookSummary) -> Self {
        let ProviderHookSummary {
            reports,
            recorded,
            repeated,
            unknown,
            ignored,
            suppressed,
            accepted,
            duplicate,
            refused,
        } = summary;
        Self {
            reports,
            recorded,
            already_known: repeated,
            unmatched: unknown,
            ignored,
            addresses_suppressed: suppressed,
            deliveries_accepted: accepted,
            deliveries_duplicate: duplicate,
            deliveries_refused: refused,
        }
    }
}

/// Receive a provider's events or mail.
///
/// The provider authenticates with the credential of the source, not with an API key.
#[utoipa::path(post, path = "/hooks/{source_id}", operation_id = "receive_hook", tag = "hooks", security(()), params(("source_id" = String, Path)),
    request_body(content = Object, description = "The body in the provider's own format"),
    responses((status = 200, description = "Received, including duplicates and reports that match no email", body = ProviderRequestSummaryBody),
        (status = 400, description = "Authenticated, but the body cannot be parsed", body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "The signature or secret is not valid", body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
        (status = 408, description = "The body did not arrive in time", body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Larger than 1 MB, or than 40 MB for a source that delivers mail", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn receive(State(app): State<App>, PathParam(id): PathParam, request: Request) -> ApiResult {
    // Look up the source first, so that the body of a request to an unknown source is never read.
    let hook = app.engine.inbound.find_hook(source_id(&id)?).await?;
    let (head, body) = request.into_parts();
    let headers = head.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let hook_request = ProviderHookRequest { headers, query, body: read_body(body, hook.max_body_bytes()).await? };
    mailonce_core::failpoint!("hook-received");
    let summary = Box::pin(app.engine.inbound.handle_provider_hook(&hook, &hook_request)).await?;
    mailonce_core::failpoint!("hook-before-answer");
    Ok(Json(ProviderRequestSummaryBody::from(summary)).into_response())
}

/// Answer the challenge that Nylas sends before it uses a webhook URL.
#[utoipa::path(get, path = "/hooks/{source_id}", operation_id = "answer_hook_challenge", tag = "hooks", security(()),
    params(("source_id" = String, Path), ("challenge" = String, Query, description = "Returned unchanged")),
    responses((status = 200, description = "The challenge", body = String, content_type = "text/plain"),
        (status = 404, description = "There is no such source, or its provider sends no challenge", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn challenge(State(app): State<App>, PathParam(id): PathParam, uri: Uri) -> ApiResult {
    let hook = app.engine.inbound.find_hook(source_id(&id)?).await?;
    let answer = hook.challenge(uri.query().unwrap_or_default());
    let answer =
        answer.ok_or_else(|| Problem::new(Code::NotFound, "the provider of this source sends no challenge"))?;
    Ok(answer.to_owned().into_response())
}

/// Reads the raw body within the size and time limits.
async fn read_body(body: Body, max_bytes: usize) -> Result<Vec<u8>, Problem> {
    let timeout = if max_bytes > MAX_EVENT_BODY { MAIL_BODY_TIMEOUT } else { EVENT_BODY_TIMEOUT };
    let late =
        |_elapsed| Problem::new(Code::Timeout, format!("the body did not arrive within {} s", timeout.as_secs()));
    let read =
        tokio::time::timeout(timeout, axum::body::to_bytes(require_min_rate(body), max_bytes)).await.map_err(late)?;
    // A truncated body is answered `503`, so that the provider retries.
    read.map(Vec::from).map_err(|error| body_problem(&error, max_bytes, Code::Unavailable))
}
