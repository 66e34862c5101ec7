//! Where providers post what became of mail, and mail. No API key: a source's secret is the proof.

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

use crate::api::{ApiResult, App, PathParam, access::sources::source_id, door::body_problem};
use crate::http::min_rate::MinRateBody;

/// How long a body may take. Providers give up after some ten seconds themselves.
const EVENT_BODY_TIMEOUT: Duration = Duration::from_secs(15);
/// The same for a body that may hold a mail with its files.
const MAIL_BODY_TIMEOUT: Duration = Duration::from_mins(1);
/// Up to here a body is one of events.
const MAX_EVENT_BODY: usize = 1 << 20;

/// What came of a request's reports.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProviderRequestSummaryBody {
    /// Reports in it.
    reports: usize,
    /// New facts about emails.
    recorded: usize,
    /// Facts that were known already.
    already_known: usize,
    /// About no email of this source's team and transport.
    unmatched: usize,
    /// Opens, clicks and other things that say nothing about a mail's fate.
    ignored: usize,
    /// Addresses that are not written to from now on.
    addresses_suppressed: usize,
    /// Deliveries of mail that were kept, one for each recipient here.
    deliveries_accepted: usize,
    /// Deliveries of mail that came before.
    deliveries_duplicate: usize,
    /// Deliveries of mail for nobody here, or for somebody who does not want it.
    deliveries_refused: usize,
}

impl From<ProviderHookSummary> for ProviderRequestSummaryBody {
    fn from(received: ProviderHookSummary) -> Self {
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
        } = received;
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

/// Take in a provider's events or mail.
#[utoipa::path(post, path = "/hooks/{source_id}", operation_id = "receive_hook", tag = "hooks", security(()), params(("source_id" = String, Path)),
    request_body(content = Object, description = "As the provider sends it"),
    responses((status = 200, description = "Taken in, repeats and strangers included", body = ProviderRequestSummaryBody),
        (status = 400, description = "Proven, but not readable", body = crate::api::problem::ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "Not proven", body = crate::api::problem::ProblemBody, content_type = "application/problem+json"),
        (status = 408, description = "Too slow", body = crate::api::problem::ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Larger than 1 MB, or than 40 MB where the source brings mail", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn receive(State(app): State<App>, PathParam(id): PathParam, request: Request) -> ApiResult {
    // The source first: nothing is read for an address that does not exist.
    let hook = app.engine.inbound.find_hook(source_id(&id)?).await?;
    let (head, body) = request.into_parts();
    let headers = head.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let posted = ProviderHookRequest { headers, query, body: read_body(body, hook.max_body_bytes()).await? };
    mailonce_core::failpoint!("hook-received");
    let received = Box::pin(app.engine.inbound.handle_provider_hook(&hook, &posted)).await?;
    mailonce_core::failpoint!("hook-before-answer");
    Ok(Json(ProviderRequestSummaryBody::from(received)).into_response())
}

/// Answer what Nylas asks an address before it posts there.
#[utoipa::path(get, path = "/hooks/{source_id}", operation_id = "answer_hook_challenge", tag = "hooks", security(()),
    params(("source_id" = String, Path), ("challenge" = String, Query, description = "Said again as it came")),
    responses((status = 200, description = "The challenge", body = String, content_type = "text/plain"),
        (status = 404, description = "No such source, or one that is not asked", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn challenge(State(app): State<App>, PathParam(id): PathParam, uri: Uri) -> ApiResult {
    let hook = app.engine.inbound.find_hook(source_id(&id)?).await?;
    let answer = hook.challenge(uri.query().unwrap_or_default());
    let answer = answer.ok_or_else(|| Problem::new(Code::NotFound, "this source is not asked anything"))?;
    Ok(answer.to_owned().into_response())
}

/// The raw body within its bounds.
async fn read_body(body: Body, most: usize) -> Result<Vec<u8>, Problem> {
    let time = if most > MAX_EVENT_BODY { MAIL_BODY_TIMEOUT } else { EVENT_BODY_TIMEOUT };
    let late = |_elapsed| Problem::new(Code::Timeout, format!("the body did not arrive within {} s", time.as_secs()));
    let read = tokio::time::timeout(time, axum::body::to_bytes(Body::new(MinRateBody::new(body)), most))
        .await
        .map_err(late)?;
    // A provider that was cut off must come again.
    read.map(Vec::from).map_err(|error| body_problem(&error, most, Code::Unavailable))
}
