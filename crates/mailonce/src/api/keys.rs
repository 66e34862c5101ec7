//! The key inspector: what a name is bound to, for how long, and who came again.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    email::Email,
    key::Key,
    port::store::{Bound, KeyView},
    problem::{Code, Problem},
    team::Scope,
    time::show_span,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Answer, App, PathOf,
    door::{Door, RawBody},
    wire::{SuppressedBody, TtlBody},
};

/// A key as it is now.
#[derive(Serialize, ToSchema)]
pub(super) struct KeyBody {
    key: String,
    /// `email`, `operation` or `forgotten`.
    bound_to: &'static str,
    /// The email it is bound to.
    email: Option<String>,
    state: Option<&'static str>,
    /// How it came about: `intent` or `header`.
    derivation: Option<&'static str>,
    #[schema(value_type = Option<super::wire::IntentBody>)]
    intent: Option<serde_json::Value>,
    /// The versioned hash of the email's meaning.
    digest: Option<String>,
    /// How often it was bound.
    bind: u32,
    ttl: Option<String>,
    /// When it is forgotten; null until the email is settled.
    expires_at: Option<String>,
    forgotten_at: Option<String>,
    /// Calls answered with the email instead of making another.
    hits: u64,
    /// The latest 20, newest first.
    calls: Vec<SuppressedBody>,
}

fn key(text: &str) -> Result<Key, Problem> {
    Key::parse(text).map_err(|error| Problem::field(Code::InvalidKey, "key", error.to_string()))
}

impl KeyBody {
    fn of(key: &Key, view: &KeyView) -> Self {
        let email = match &view.bound {
            Some(Bound::Email(email)) => Some(email),
            Some(Bound::Operation { .. }) | None => None,
        };
        let bound_to = match &view.bound {
            Some(Bound::Email(_)) => "email",
            Some(Bound::Operation { .. }) => "operation",
            None => "forgotten",
        };
        let derivation = |email: &Email| if email.head.is_named_by_intent() { "intent" } else { "header" };
        Self {
            key: key.to_string(),
            bound_to,
            email: email.map(|email| email.id.to_string()),
            state: email.map(|email| email.state().word()),
            derivation: email.map(derivation),
            intent: email.and_then(|email| email.head.intent.as_ref()).map(|intent| serde_json::json!(intent)),
            digest: email.map(|email| email.digest.to_string()),
            bind: view.bind,
            ttl: email.map(|email| show_span(email.ttl.0)),
            expires_at: view.expires_at.map(|at| at.to_string()),
            forgotten_at: view.forgotten_at.map(|at| at.to_string()),
            hits: email.map_or(0, |email| email.suppressed),
            calls: view.suppressed.iter().map(SuppressedBody::from).collect(),
        }
    }
}

/// Inspect a key.
#[utoipa::path(get, path = "/v1/keys/{key}", tag = "keys", params(("key" = String, Path)),
    responses((status = 200, description = "The key", body = KeyBody)))]
pub(super) async fn inspect(State(app): State<App>, door: Door, PathOf(text): PathOf) -> Answer {
    door.caller.need(Scope::Read)?;
    let key = key(&text)?;
    let view = app.engine.key(&door.caller, &key).await?;
    Ok(Json(KeyBody::of(&key, &view)).into_response())
}

/// Another memory for a key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExtendBody {
    ttl: TtlBody,
}

/// Give a key another memory.
#[utoipa::path(patch, path = "/v1/keys/{key}", tag = "keys", params(("key" = String, Path)), request_body = ExtendBody,
    responses((status = 200, description = "The key", body = KeyBody)))]
pub(super) async fn extend(State(app): State<App>, door: Door, PathOf(text): PathOf, body: RawBody) -> Answer {
    door.caller.need(Scope::Admin)?;
    let key = key(&text)?;
    let ttl = body.parse::<ExtendBody>()?.ttl.read().map_err(|fault| Problem::from(vec![fault]))?;
    app.engine.extend_key(&door.caller, &key, ttl).await?;
    let view = app.engine.key(&door.caller, &key).await?;
    Ok(Json(KeyBody::of(&key, &view)).into_response())
}

/// Forget a key. The next call with it is a new wish.
#[utoipa::path(delete, path = "/v1/keys/{key}", tag = "keys", params(("key" = String, Path)),
    responses((status = 200, description = "The key", body = KeyBody), (status = 409, description = "Its email is not finished", body = super::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn forget(State(app): State<App>, door: Door, PathOf(text): PathOf) -> Answer {
    door.caller.need(Scope::Admin)?;
    let key = key(&text)?;
    app.engine.forget_key(&door.caller, &key).await?;
    let view = app.engine.key(&door.caller, &key).await?;
    Ok(Json(KeyBody::of(&key, &view)).into_response())
}
