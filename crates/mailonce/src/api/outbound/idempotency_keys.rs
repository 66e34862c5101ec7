//! The inspector of idempotency keys: what a key is bound to, when it expires, and which duplicate calls it suppressed.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    key::Key,
    limits,
    outbound::{
        email::Email,
        email_query::EmailQuery,
        key_binding::{KeyBinding, KeyView},
    },
    problem::{Code, Problem},
    time::format_span,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::outbound::{
        email_bodies::{SuppressedCallBody, TtlBody},
        emails::{bool_param, email_cursor, page_limit},
    },
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        params::PathParam,
    },
};

/// An idempotency key and what it is bound to.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeyBody {
    key: String,
    /// `email`, `operation` (another call) or `forgotten`.
    bound_to: &'static str,
    /// Id of the email that the key is bound to.
    email: Option<String>,
    state: Option<&'static str>,
    /// Where the key comes from: `intent` or `header`.
    derivation: Option<&'static str>,
    #[schema(value_type = Option<crate::api::outbound::email_bodies::IntentBody>)]
    intent: Option<serde_json::Value>,
    /// Versioned hash of the canonical email; a retry with another digest is a mismatch.
    digest: Option<String>,
    /// How often the key was bound: 1, plus 1 for each time it was used again after it had expired.
    bind_number: u32,
    ttl: Option<String>,
    /// When the key expires; null until the email reaches a final state.
    expires_at: Option<String>,
    forgotten_at: Option<String>,
    /// Number of duplicate calls that were answered with the same email.
    hits: u64,
    /// The latest 20 duplicate calls, newest first.
    suppressed_calls: Vec<SuppressedCallBody>,
}

fn parse_key(text: &str) -> Result<Key, Problem> {
    Key::parse(text).map_err(|error| Problem::for_field(Code::InvalidKey, "key", error.to_string()))
}

impl KeyBody {
    fn of(key: &Key, view: &KeyView) -> Self {
        let email = match &view.binding {
            Some(KeyBinding::Email(email)) => Some(email),
            Some(KeyBinding::Operation { .. }) | None => None,
        };
        let bound_to = match &view.binding {
            Some(KeyBinding::Email(_)) => "email",
            Some(KeyBinding::Operation { .. }) => "operation",
            None => "forgotten",
        };
        let derivation = |email: &Email| if email.head.has_intent_key() { "intent" } else { "header" };
        Self {
            key: key.to_string(),
            bound_to,
            email: email.map(|email| email.id.to_string()),
            state: email.map(|email| email.state().as_str()),
            derivation: email.map(derivation),
            intent: email.and_then(|email| email.head.intent.as_ref()).map(|intent| serde_json::json!(intent)),
            digest: email.map(|email| email.digest.to_string()),
            bind_number: view.bind_number,
            ttl: email.map(|email| format_span(email.ttl.0)),
            expires_at: view.expires_at.map(|at| at.to_string()),
            forgotten_at: view.forgotten_at.map(|at| at.to_string()),
            hits: email.map_or(0, |email| email.suppressed),
            suppressed_calls: view.suppressed_calls.iter().map(SuppressedCallBody::from).collect(),
        }
    }
}

/// Inspect an idempotency key.
#[utoipa::path(get, path = "/v1/keys/{key}", operation_id = "read_key", tag = "keys", params(("key" = String, Path)),
    responses((status = 200, description = "The key", body = KeyBody)))]
pub(crate) async fn inspect(State(app): State<App>, auth: AuthedRequest, PathParam(text): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let key = parse_key(&text)?;
    let view = app.engine.outbound.key(&auth.caller, &key).await?;
    Ok(Json(KeyBody::of(&key, &view)).into_response())
}

/// Filters for the list of idempotency keys.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyListQuery {
    /// Only keys that start with this.
    prefix: Option<String>,
    /// `true`: only keys with duplicate calls.
    duplicates: Option<String>,
    /// Page size, 1 to 100; 20 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A page of idempotency keys.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeyPage {
    data: Vec<KeyBody>,
    /// Pass it as `cursor` to get the next page; null on the last page. A page may have fewer keys than `limit`, or none, and still have a next page.
    next_cursor: Option<String>,
}

/// List idempotency keys of emails, newest email first.
///
/// Keys of other calls are stored as hashes only and are not listed; `GET /v1/keys/{key}` finds them.
#[utoipa::path(get, path = "/v1/keys", operation_id = "list_keys", tag = "keys", params(KeyListQuery),
    responses((status = 200, description = "A page of results", body = KeyPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    auth: AuthedRequest,
    query: crate::http::params::QueryParams<KeyListQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let KeyListQuery { prefix, duplicates, limit, cursor } = query.0;
    let query = EmailQuery {
        key_prefix: Some(prefix.unwrap_or_default()),
        has_duplicates: bool_param("duplicates", duplicates.as_deref())?,
        before: email_cursor(cursor.as_deref())?,
        limit: page_limit(limit.as_deref(), limits::PAGE_ROWS, 20)?,
        ..EmailQuery::default()
    };
    let page = app.engine.outbound.emails(&auth.caller, query).await?;
    let mut data = Vec::with_capacity(page.rows.len());
    for key in page.rows.iter().filter_map(|email| email.head.given_key()).filter_map(|key| Key::parse(key).ok()) {
        match app.engine.outbound.key(&auth.caller, &key).await {
            Ok(view) => data.push(KeyBody::of(&key, &view)),
            // It was swept since the page was read.
            Err(problem) if problem.code == Code::NotFound => {}
            Err(problem) => return Err(problem.into()),
        }
    }
    Ok(Json(KeyPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// New lifetime of an idempotency key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyPatchBody {
    ttl: TtlBody,
}

/// Change how long an idempotency key is remembered.
#[utoipa::path(patch, path = "/v1/keys/{key}", operation_id = "update_key", tag = "keys", params(("key" = String, Path)), request_body = KeyPatchBody,
    responses((status = 200, description = "The key", body = KeyBody)))]
pub(crate) async fn extend(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(text): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let key = parse_key(&text)?;
    let ttl = body.parse::<KeyPatchBody>()?.ttl.parse().map_err(|error| Problem::from(vec![error]))?;
    app.engine.outbound.extend_key(&auth.caller, &key, ttl).await?;
    let view = app.engine.outbound.key(&auth.caller, &key).await?;
    Ok(Json(KeyBody::of(&key, &view)).into_response())
}

/// Forget an idempotency key.
///
/// The next send with this key creates a new email.
#[utoipa::path(delete, path = "/v1/keys/{key}", operation_id = "forget_key", tag = "keys", params(("key" = String, Path)),
    responses((status = 200, description = "The key", body = KeyBody), (status = 409, description = "Its email has not reached a final state", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn forget(State(app): State<App>, auth: AuthedRequest, PathParam(text): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let key = parse_key(&text)?;
    app.engine.outbound.forget_key(&auth.caller, &key).await?;
    let view = app.engine.outbound.key(&auth.caller, &key).await?;
    Ok(Json(KeyBody::of(&key, &view)).into_response())
}
