//! Work for agents: messages with the lease of their thread, and what an agent says about them.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{conversation::turn::Settling, limits, problem::Problem, team::Scope};
use mailonce_engine::{
    next::{AT_ONCE, NextRequest, Taken},
    threads::{LEASE_MS, LeaseView},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

use super::{
    Answer, App, PathOf,
    door::{Door, RawBody},
    inboxes::{fault, inbox_id},
    messages::{MessageBody, message_id},
    wire::named_words,
};

/// How long a lease lasts when nobody says, in seconds.
const LEASE_S: u32 = 30;
/// How long a message may be put off, in seconds.
const DELAY_S: u32 = 86_400;

/// A lease.
#[derive(Serialize, ToSchema)]
pub(super) struct LeaseBody {
    /// Show it as `lease` when you answer.
    token: String,
    /// Grows with each lease of the thread.
    fence: u64,
    holder: String,
    expires_at: String,
}

impl From<LeaseView> for LeaseBody {
    fn from(lease: LeaseView) -> Self {
        let LeaseView { token, fence, holder, expires_at } = lease;
        Self { token, fence, holder, expires_at: expires_at.to_string() }
    }
}

/// How long a lease is to last, in milliseconds.
pub(super) fn lease_ms(ttl_s: Option<u32>) -> Result<i64, Problem> {
    let ms = i64::from(ttl_s.unwrap_or(LEASE_S)) * 1000;
    if (1_000..=LEASE_MS).contains(&ms) { Ok(ms) } else { Err(fault("ttl_s", "is 1 to 600")) }
}

/// Who holds a lease, as people call it.
pub(super) fn holder(door: &Door, given: Option<String>) -> Result<String, Problem> {
    given.as_deref().map_or(Ok(()), |holder| named_words("holder", holder))?;
    Ok(given.unwrap_or_else(|| door.caller.key.about.name.clone()))
}

/// A wish for work.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NextBody {
    /// At most so many messages, 1 to 10; 1 by default.
    #[serde(default)]
    limit: Option<usize>,
    /// How long each lease lasts, 1 to 600 seconds; 30 by default.
    #[serde(default)]
    ttl_s: Option<u32>,
    /// How long to wait for a message, up to 60 seconds; 0 by default.
    #[serde(default)]
    wait: Option<u64>,
    /// Who asks, as people call it; the name of the API key by default.
    #[serde(default)]
    holder: Option<String>,
}

/// A message to work on.
#[derive(Serialize, ToSchema)]
pub(super) struct OfferBody {
    message: MessageBody,
    lease: LeaseBody,
    /// What people wrote in the thread since. Read it, and name it in `seen` when you answer.
    newer: Vec<String>,
}

impl OfferBody {
    fn of(app: &App, taken: Taken) -> Self {
        let newer = taken.newer.iter().map(ToString::to_string).collect();
        Self { message: MessageBody::of(app, &taken.message), lease: LeaseBody::from(taken.lease), newer }
    }
}

/// Messages to work on.
#[derive(Serialize, ToSchema)]
pub(super) struct TakenPage {
    data: Vec<OfferBody>,
}

/// Take the oldest messages that nobody works on, each with the lease of its thread.
#[utoipa::path(post, path = "/v1/inboxes/{id}/next", tag = "conversations", request_body = Option<NextBody>,
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 200, description = "What there was, perhaps nothing", body = TakenPage)))]
pub(super) async fn next(State(app): State<App>, door: Door, PathOf(id): PathOf, body: RawBody) -> Answer {
    door.caller.need(Scope::Reply)?;
    let asked = door.asked("next", &id, &body.canonical()?);
    let NextBody { limit, ttl_s, wait, holder: given } = body.parse_or_empty()?;
    let inbox = if id.contains('@') { app.engine.inbox_named(&door.caller, &id).await?.id } else { inbox_id(&id)? };
    let limit = limit.unwrap_or(1);
    if !(1..=AT_ONCE).contains(&limit) {
        return Err(fault("limit", format!("is 1 to {AT_ONCE}")).into());
    }
    let wait = Duration::from_secs(wait.unwrap_or(0).min(limits::WAIT_MS as u64 / 1000));
    let request = NextRequest { limit, ttl_ms: lease_ms(ttl_s)?, wait, holder: holder(&door, given)? };
    // On the heap: many workers wait at a time.
    let taken = Box::pin(app.engine.next(&door.caller, inbox, request, asked)).await?;
    let data = taken.into_iter().map(|taken| OfferBody::of(&app, taken)).collect();
    Ok(Json(TakenPage { data }).into_response())
}

/// What an agent says about a message that it holds.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettleBody {
    /// The token of the lease.
    lease: String,
    /// For `nack`: others may try after so many seconds; 0 by default.
    #[serde(default)]
    delay_s: Option<u32>,
    /// For `extend`: how long from now, 1 to 600 seconds; 30 by default.
    #[serde(default)]
    ttl_s: Option<u32>,
}

/// A message as it stands.
#[derive(Serialize, ToSchema)]
pub(super) struct SettledBody {
    message: MessageBody,
    /// After `extend`.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseBody>,
}

async fn settle(
    (app, door): (App, Door),
    id: &str,
    body: &RawBody,
    how: impl FnOnce(&SettleBody) -> Result<Settling, Problem>,
) -> Answer {
    door.caller.need(Scope::Reply)?;
    let id = message_id(id)?;
    let body: SettleBody = body.parse()?;
    let how = how(&body)?;
    let taken = app.engine.settle_message(&door.caller, id, &body.lease, how).await?;
    let OfferBody { message, lease, .. } = OfferBody::of(&app, taken);
    let lease = matches!(how, Settling::Extend { .. }).then_some(lease);
    Ok(Json(SettledBody { message, lease }).into_response())
}

/// Say that you are done with a message, answered or not.
#[utoipa::path(post, path = "/v1/messages/{id}/ack", tag = "conversations", params(("id" = String, Path)), request_body = SettleBody,
    responses((status = 200, description = "The message", body = SettledBody),
        (status = 409, description = "The lease was lost", body = super::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn ack(State(app): State<App>, door: Door, PathOf(id): PathOf, body: RawBody) -> Answer {
    settle((app, door), &id, &body, |_| Ok(Settling::Ack)).await
}

/// Give a message back, so that others may try.
#[utoipa::path(post, path = "/v1/messages/{id}/nack", tag = "conversations", params(("id" = String, Path)), request_body = SettleBody,
    responses((status = 200, description = "The message", body = SettledBody),
        (status = 409, description = "The lease was lost", body = super::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn nack(State(app): State<App>, door: Door, PathOf(id): PathOf, body: RawBody) -> Answer {
    let delayed = |body: &SettleBody| match body.delay_s.unwrap_or(0) {
        seconds if seconds <= DELAY_S => Ok(Settling::Nack { delay_ms: i64::from(seconds) * 1000 }),
        _ => Err(fault("delay_s", format!("is at most {DELAY_S}"))),
    };
    settle((app, door), &id, &body, delayed).await
}

/// Keep a message longer.
#[utoipa::path(post, path = "/v1/messages/{id}/extend", tag = "conversations", params(("id" = String, Path)), request_body = SettleBody,
    responses((status = 200, description = "The message and its lease", body = SettledBody),
        (status = 409, description = "The lease was lost", body = super::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn extend(State(app): State<App>, door: Door, PathOf(id): PathOf, body: RawBody) -> Answer {
    settle((app, door), &id, &body, |body| Ok(Settling::Extend { ttl_ms: lease_ms(body.ttl_s)? })).await
}
