//! Artifacts: codes and links, each taken once.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::{ArtifactId, WatchId},
    inbox::artifact::{Artifact, ArtifactKind},
    limits,
    problem::{Code, FieldError, Problem},
};
use mailonce_engine::{
    Caller,
    inbox::artifacts::{ArtifactQuery, may_see_value},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{inboxes::find_inbox, messages::message_id};
use crate::api::{
    ApiResult, App, PathParam,
    door::{AuthedRequest, RawBody},
    wire::{check_text, object_or_null},
};

/// A code or link.
#[derive(Serialize, ToSchema)]
pub(crate) struct ArtifactBody {
    id: String,
    /// `code` or `link`.
    #[serde(rename = "type")]
    kind: &'static str,
    rev: u32,
    /// Only for whoever took it, and with the scope `secrets`.
    value: Option<String>,
    masked: String,
    /// 0 to 100.
    confidence: u8,
    reasons: Vec<String>,
    /// Our id of the message.
    message: String,
    inbox_id: String,
    sender: String,
    found_at: String,
    sender_authenticated: bool,
    consumed_at: Option<String>,
    consumed_for: Option<String>,
    watch: Option<String>,
    applied_at: Option<String>,
}

impl ArtifactBody {
    /// As a caller may see it.
    pub(crate) fn of(caller: &Caller, artifact: &Artifact) -> Self {
        Self::with_value_visible(artifact, may_see_value(caller, artifact))
    }

    fn with_value_visible(artifact: &Artifact, value: bool) -> Self {
        let consumed = artifact.consumption.as_ref();
        Self {
            id: artifact.id.to_string(),
            kind: artifact.kind.as_str(),
            rev: artifact.rev,
            value: value.then(|| artifact.extracted.value.clone()),
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

/// What was found in a message.
#[derive(Serialize, ToSchema)]
pub(crate) struct ArtifactPage {
    /// Decided ones, best first.
    data: Vec<ArtifactBody>,
    /// What else it could be; never given out.
    #[schema(value_type = Vec<Object>)]
    candidates: Vec<serde_json::Value>,
    next_cursor: Option<String>,
}

/// An artifact that was taken.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConsumedArtifactBody {
    artifact: ArtifactBody,
}

/// For whom an artifact is taken.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsumeBody {
    /// The account, workflow or run it is for. The same again gets the same answer; another is refused.
    #[serde(rename = "for")]
    purpose: String,
    /// The id of the watch it belongs to.
    #[serde(default)]
    watch: Option<String>,
}

/// What its message must be like.
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

/// Which artifact of an inbox is taken, and for whom.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsumeMatchBody {
    /// `code` or `link`.
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "for")]
    purpose: String,
    #[serde(default, rename = "match", deserialize_with = "object_or_null")]
    matching: Option<MessageMatchBody>,
    #[serde(default)]
    watch: Option<String>,
}

/// For whom it was taken.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArtifactAppliedBody {
    #[serde(rename = "for")]
    purpose: String,
}

fn invalid_field(path: &str, message: impl Into<String>) -> Problem {
    Problem::from(vec![FieldError::new(path, message)])
}

fn check_purpose(purpose: &str) -> Result<(), Problem> {
    check_text("for", purpose)?;
    if purpose.trim().is_empty() || purpose.chars().count() > limits::CONSUME_FOR_CHARS {
        return Err(invalid_field(
            "for",
            format!("names an account, workflow or run in 1 to {} characters", limits::CONSUME_FOR_CHARS),
        ));
    }
    Ok(())
}

fn watch_id(text: Option<&String>) -> Result<Option<WatchId>, Problem> {
    let wrong = |_not_an_id| invalid_field("watch", "is the id of a watch");
    text.map(|text| text.parse().map(WatchId).map_err(wrong)).transpose()
}

fn artifact_id(text: &str) -> Result<ArtifactId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no artifact {text}")))
}

/// List what was found in a message, best first.
#[utoipa::path(get, path = "/v1/messages/{id}/artifacts", operation_id = "list_artifacts", tag = "artifacts", params(("id" = String, Path)),
    responses((status = 200, description = "Codes and links", body = ArtifactPage)))]
pub(crate) async fn list(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let id = message_id(&id)?;
    let message = app.engine.inboxes.message(&door.caller, id).await?;
    let found = app.engine.inboxes.artifacts_of(&door.caller, id).await?;
    let data = found.iter().map(|artifact| ArtifactBody::of(&door.caller, artifact)).collect();
    Ok(Json(ArtifactPage { data, candidates: message.head.candidates.clone(), next_cursor: None }).into_response())
}

/// Read one artifact.
#[utoipa::path(get, path = "/v1/artifacts/{id}", operation_id = "read_artifact", tag = "artifacts", params(("id" = String, Path)),
    responses((status = 200, description = "The artifact", body = ArtifactBody)))]
pub(crate) async fn read(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let artifact = app.engine.inboxes.artifact(&door.caller, artifact_id(&id)?).await?;
    Ok(Json(ArtifactBody::of(&door.caller, &artifact)).into_response())
}

/// Take a code or link, once.
#[utoipa::path(post, path = "/v1/artifacts/{id}/consume", operation_id = "consume_artifact", tag = "artifacts", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")), request_body = ConsumeBody,
    responses((status = 200, description = "It is yours", body = ConsumedArtifactBody),
        (status = 409, description = "It was taken for something else", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn consume(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let id = artifact_id(&id)?;
    app.engine.inboxes.artifact(&door.caller, id).await?;
    let ConsumeBody { purpose, watch } = body.parse()?;
    let asked = door.keyed_call("consume", &id.to_string(), &body.canonical()?);
    check_purpose(&purpose)?;
    let watch = watch_id(watch.as_ref())?;
    let artifact = app.engine.inboxes.consume(&door.caller, id, purpose, watch, asked).await?;
    Ok(Json(ConsumedArtifactBody { artifact: ArtifactBody::with_value_visible(&artifact, true) }).into_response())
}

/// Take the latest code or link of an inbox that matches, once. Consumed or not: an older one is never given out.
#[utoipa::path(post, path = "/v1/inboxes/{id}/consume", operation_id = "consume_matching_artifact", tag = "artifacts", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")), request_body = ConsumeMatchBody,
    responses((status = 200, description = "It is yours", body = ConsumedArtifactBody),
        (status = 409, description = "It was taken for something else", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn consume_match(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &door, &id).await?;
    let ConsumeMatchBody { kind, purpose, matching, watch } = body.parse()?;
    let asked = door.keyed_call("inboxes/consume", &inbox.id.to_string(), &body.canonical()?);
    check_purpose(&purpose)?;
    let kind = ArtifactKind::parse(&kind).ok_or_else(|| invalid_field("type", "is code or link"))?;
    let MessageMatchBody { from, subject } = matching.unwrap_or_default();
    [("match.from", &from), ("match.subject", &subject)]
        .into_iter()
        .try_for_each(|(at, text)| text.as_ref().map_or(Ok(()), |text| check_text(at, text)))?;
    let watch = watch_id(watch.as_ref())?;
    let wanted = ArtifactQuery { kind, from, subject };
    let artifact =
        app.engine.inboxes.consume_latest_match(&door.caller, inbox.id, &wanted, (purpose, watch), asked).await?;
    Ok(Json(ConsumedArtifactBody { artifact: ArtifactBody::with_value_visible(&artifact, true) }).into_response())
}

/// Report that what was taken has been used.
#[utoipa::path(post, path = "/v1/artifacts/{id}/applied", operation_id = "mark_artifact_applied", tag = "artifacts", params(("id" = String, Path)), request_body = ArtifactAppliedBody,
    responses((status = 200, description = "Noted", body = ConsumedArtifactBody),
        (status = 409, description = "Nobody has it, or somebody else", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn applied(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let id = artifact_id(&id)?;
    app.engine.inboxes.artifact(&door.caller, id).await?;
    let ArtifactAppliedBody { purpose } = body.parse()?;
    check_purpose(&purpose)?;
    let artifact = app.engine.inboxes.mark_applied(&door.caller, id, &purpose).await?;
    Ok(Json(ConsumedArtifactBody { artifact: ArtifactBody::of(&door.caller, &artifact) }).into_response())
}
