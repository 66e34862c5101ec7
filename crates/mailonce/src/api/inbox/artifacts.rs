//! Artifacts: codes and links found in messages, each consumed once.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::event::EventCursor,
    id::{ArtifactId, WatchId},
    inbox::artifact::{Artifact, ArtifactKind},
    limits,
    problem::{Code, Problem},
};
use mailonce_engine::{
    Caller,
    inbox::{
        artifacts::{ArtifactQuery, may_see_value},
        take::TakeRequest,
    },
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

use super::{
    inboxes::{find_inbox, parse_inbox_cursor},
    message_body::message_id,
};
use crate::http::{
    app::{ApiResult, App},
    extract::{AuthedRequest, RawBody},
    json::{check_text, object_or_null},
    params::PathParam,
};

/// An artifact: a code or link found in a message.
#[derive(Serialize, ToSchema)]
pub(crate) struct ArtifactBody {
    /// Id of the artifact.
    id: String,
    /// `code` or `link`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Revision; grows with every change.
    rev: u32,
    /// The code or link; null unless you consumed it or your API key has the scope `secrets`.
    value: Option<String>,
    /// The code or link with its secret part masked.
    masked: String,
    /// Confidence of the extraction, 0 to 100.
    confidence: u8,
    /// Reasons for the confidence.
    reasons: Vec<String>,
    /// Id of the message.
    message: String,
    /// Id of the inbox.
    inbox_id: String,
    /// Address of the sender of the message.
    sender: String,
    /// When it was extracted from the message.
    found_at: String,
    /// Whether the sender of the message was authenticated.
    sender_authenticated: bool,
    /// When it was consumed; null before that.
    consumed_at: Option<String>,
    /// The `for` of the call that consumed it.
    consumed_for: Option<String>,
    /// Id of the watch that it was consumed under.
    watch: Option<String>,
    /// When its use was reported; null before that.
    applied_at: Option<String>,
}

impl ArtifactBody {
    /// The artifact as the caller may see it. Without permission `value` is absent and only `masked` is shown.
    pub(crate) fn of(caller: &Caller, artifact: &Artifact) -> Self {
        Self::with_value_visible(artifact, may_see_value(caller, artifact))
    }

    fn with_value_visible(artifact: &Artifact, visible: bool) -> Self {
        let consumed = artifact.consumption.as_ref();
        Self {
            id: artifact.id.to_string(),
            kind: artifact.kind.as_str(),
            rev: artifact.rev,
            value: visible.then(|| artifact.extracted.value.clone()),
            masked: artifact.extracted.masked.clone(),
            confidence: artifact.extracted.confidence,
            reasons: artifact.extracted.reasons.clone(),
            message: artifact.message.to_string(),
            inbox_id: artifact.inbox.to_string(),
            sender: artifact.sender.clone(),
            found_at: artifact.found_at.to_string(),
            sender_authenticated: artifact.authenticated,
            consumed_at: consumed.map(|consumed| consumed.at.to_string()),
            consumed_for: consumed.map(|consumed| consumed.purpose.clone()),
            watch: consumed.and_then(|consumed| consumed.watch).map(|id| id.to_string()),
            applied_at: artifact.applied_at.map(|at| at.to_string()),
        }
    }
}

/// The artifacts of a message.
#[derive(Serialize, ToSchema)]
pub(crate) struct ArtifactPage {
    /// The artifacts, best first.
    data: Vec<ArtifactBody>,
    /// Ambiguous finds. They cannot be consumed.
    #[schema(value_type = Vec<Object>)]
    candidates: Vec<serde_json::Value>,
    next_cursor: Option<String>,
}

/// A consumed artifact.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConsumedArtifactBody {
    artifact: ArtifactBody,
}

/// The consumer of an artifact.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsumeBody {
    /// The account, workflow or run that consumes the artifact. The same one gets the same response again; another is
    /// refused.
    #[serde(rename = "for")]
    purpose: String,
    /// Id of the watch that the call belongs to.
    #[serde(default)]
    watch: Option<String>,
}

/// Conditions on the message of the artifact.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageMatchBody {
    /// An address, or `@domain`.
    #[serde(default)]
    from: Option<String>,
    /// Part of the subject.
    #[serde(default)]
    subject: Option<String>,
}

/// Which artifact of an inbox to consume, and for whom.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsumeMatchBody {
    /// `code` or `link`.
    #[serde(rename = "type")]
    kind: String,
    /// Who takes it: an account, workflow or run. The same value gets the same artifact again.
    #[serde(rename = "for")]
    purpose: String,
    #[serde(default, rename = "match", deserialize_with = "object_or_null")]
    matching: Option<MessageMatchBody>,
    /// Id of a watch: only messages that arrived after its start count.
    #[serde(default)]
    watch: Option<String>,
    /// Cursor of an inbox: the latest match after it, however old. When absent, only new ones count. Not with `watch`.
    #[serde(default)]
    after: Option<String>,
    /// How long to wait for a new one in seconds, at most 60 and until the watch ends; 0 by default. Not with `after`.
    #[serde(default)]
    timeout: Option<u64>,
}

impl ConsumeMatchBody {
    /// The cursor after which the latest match counts, however old. `None`: new artifacts, for which the call may wait.
    fn after(&self, app: &App) -> Result<Option<EventCursor>, Problem> {
        let Some(text) = &self.after else { return Ok(None) };
        if self.watch.is_some() {
            return Err(Problem::invalid_field("after", "cannot be combined with watch"));
        }
        if self.timeout.is_some_and(|seconds| seconds > 0) {
            return Err(Problem::invalid_field("timeout", "cannot be combined with after; use wait"));
        }
        Ok(Some(app.engine.ctx.cursor(parse_inbox_cursor(app, "after", text)?)))
    }

    /// How long to wait.
    fn wait(&self) -> Result<Duration, Problem> {
        let (seconds, longest) = (self.timeout.unwrap_or_default(), limits::MAX_WAIT_MS as u64 / 1000);
        if seconds > longest {
            let detail = format!("must be at most {longest} seconds; repeat the call to wait longer");
            return Err(Problem::invalid_field("timeout", detail));
        }
        Ok(Duration::from_secs(seconds))
    }
}

/// The consumer that reports the use.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArtifactAppliedBody {
    /// The `for` that consumed the artifact.
    #[serde(rename = "for")]
    purpose: String,
}

pub(crate) fn check_purpose(purpose: &str) -> Result<(), Problem> {
    check_text("for", purpose)?;
    if purpose.trim().is_empty() || purpose.chars().count() > limits::CONSUME_FOR_CHARS {
        return Err(Problem::invalid_field(
            "for",
            format!("must name an account, workflow or run in 1 to {} characters", limits::CONSUME_FOR_CHARS),
        ));
    }
    Ok(())
}

fn watch_id(text: Option<&String>) -> Result<Option<WatchId>, Problem> {
    let invalid = |_not_an_id| Problem::invalid_field("watch", "must be the id of a watch");
    text.map(|text| text.parse().map(WatchId).map_err(invalid)).transpose()
}

fn artifact_id(text: &str) -> Result<ArtifactId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no artifact {text}")))
}

/// List the artifacts of a message, best first.
#[utoipa::path(get, path = "/v1/messages/{id}/artifacts", operation_id = "list_artifacts", tag = "artifacts", params(("id" = String, Path)),
    responses((status = 200, description = "Codes and links", body = ArtifactPage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let id = message_id(&id)?;
    let message = app.engine.inboxes.message(&auth.caller, id).await?;
    let found = app.engine.inboxes.artifacts_of(&auth.caller, id).await?;
    let data = found.iter().map(|artifact| ArtifactBody::of(&auth.caller, artifact)).collect();
    Ok(Json(ArtifactPage { data, candidates: message.head.candidates.clone(), next_cursor: None }).into_response())
}

/// Read one artifact.
#[utoipa::path(get, path = "/v1/artifacts/{id}", operation_id = "read_artifact", tag = "artifacts", params(("id" = String, Path)),
    responses((status = 200, description = "The artifact", body = ArtifactBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let artifact = app.engine.artifacts.artifact(&auth.caller, artifact_id(&id)?).await?;
    Ok(Json(ArtifactBody::of(&auth.caller, &artifact)).into_response())
}

/// Consume a code or link, once.
///
/// The same `for` gets the same response again; another one is refused.
#[utoipa::path(post, path = "/v1/artifacts/{id}/consume", operation_id = "consume_artifact", tag = "artifacts", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")), request_body = ConsumeBody,
    responses((status = 200, description = "Consumed; `value` is shown", body = ConsumedArtifactBody),
        (status = 409, description = "Already consumed with another `for`", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn consume(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let id = artifact_id(&id)?;
    app.engine.artifacts.artifact(&auth.caller, id).await?;
    let ConsumeBody { purpose, watch } = body.parse()?;
    let keyed_call = auth.keyed_call("consume", &id.to_string(), &body.canonical()?);
    check_purpose(&purpose)?;
    let watch = watch_id(watch.as_ref())?;
    let artifact = app.engine.artifacts.consume(&auth.caller, id, purpose, watch, keyed_call).await?;
    Ok(Json(ConsumedArtifactBody { artifact: ArtifactBody::with_value_visible(&artifact, true) }).into_response())
}

/// Consume the newest matching code or link of an inbox, once.
///
/// Only new ones count: those that arrived since the `watch` began, or without one since two minutes before the first call
/// with this `for`. One that another `for` consumed is passed over, and a repeat gets its own again; in a `watch`, a newer
/// one comes first. With `after` the latest match counts; if it was consumed already, an older one is not returned instead.
#[utoipa::path(post, path = "/v1/inboxes/{id}/consume", operation_id = "consume_matching_artifact", tag = "artifacts", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")), request_body = ConsumeMatchBody,
    responses((status = 200, description = "Consumed; `value` is shown", body = ConsumedArtifactBody),
        (status = 409, description = "Already consumed with another `for`", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn consume_match(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &auth, &id).await?;
    let parsed: ConsumeMatchBody = body.parse()?;
    let (after, watch, timeout) = (parsed.after(&app)?, watch_id(parsed.watch.as_ref())?, parsed.wait()?);
    let ConsumeMatchBody { kind, purpose, matching, .. } = parsed;
    let keyed_call = auth.keyed_call("inboxes/consume", &inbox.id.to_string(), &body.canonical()?);
    check_purpose(&purpose)?;
    let kind = ArtifactKind::parse(&kind).ok_or_else(|| Problem::invalid_field("type", "must be code or link"))?;
    let MessageMatchBody { from, subject } = matching.unwrap_or_default();
    [("match.from", &from), ("match.subject", &subject)]
        .into_iter()
        .try_for_each(|(at, text)| text.as_ref().map_or(Ok(()), |text| check_text(at, text)))?;
    let query = ArtifactQuery { kind, from, subject };
    let artifacts = &app.engine.artifacts;
    let artifact = if let Some(after) = after {
        artifacts.consume_latest_match(&auth.caller, inbox.id, &query, (purpose, after), keyed_call).await?
    } else {
        let request = TakeRequest { query, purpose, watch, timeout };
        // Boxed: otherwise every connection would reserve the memory of this large future.
        Box::pin(artifacts.take_artifact(&auth.caller, inbox.id, &request, keyed_call)).await?
    };
    Ok(Json(ConsumedArtifactBody { artifact: ArtifactBody::with_value_visible(&artifact, true) }).into_response())
}

/// Report that a consumed code or link was used.
#[utoipa::path(post, path = "/v1/artifacts/{id}/applied", operation_id = "mark_artifact_applied", tag = "artifacts", params(("id" = String, Path)), request_body = ArtifactAppliedBody,
    responses((status = 200, description = "Recorded", body = ConsumedArtifactBody),
        (status = 409, description = "Not consumed yet, or consumed with another `for`", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn applied(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let id = artifact_id(&id)?;
    app.engine.artifacts.artifact(&auth.caller, id).await?;
    let ArtifactAppliedBody { purpose } = body.parse()?;
    check_purpose(&purpose)?;
    let artifact = app.engine.artifacts.mark_applied(&auth.caller, id, &purpose).await?;
    Ok(Json(ConsumedArtifactBody { artifact: ArtifactBody::of(&auth.caller, &artifact) }).into_response())
}
