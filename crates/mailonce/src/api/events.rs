//! The event log by listing.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    event::{Cursor, Event},
    limits,
    problem::{Code, Problem},
    team::Scope,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Answer, App, QueryOf, door::Door, emails::page_limit};

/// Where to read on.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EventQuery {
    /// A cursor, or `0` for the very start (the default).
    after: Option<String>,
    /// 1 to 1000, 100 by default.
    limit: Option<String>,
}

/// What an event is about.
#[derive(Serialize, ToSchema)]
pub(super) struct AboutBody {
    kind: &'static str,
    id: String,
    rev: u32,
}

/// A fact.
#[derive(Serialize, ToSchema)]
pub(super) struct EventBody {
    /// From 1, without gaps.
    seq: u64,
    /// `epoch-seq`.
    cursor: String,
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    at: String,
    about: AboutBody,
    #[schema(value_type = Object)]
    data: serde_json::Value,
}

/// Events, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct EventPage {
    data: Vec<EventBody>,
    /// Pass it as `after`; null when nothing came back.
    next_cursor: Option<String>,
}

fn event_body((cursor, event): (Cursor, Event)) -> EventBody {
    EventBody {
        seq: event.seq,
        cursor: cursor.to_string(),
        id: event.id().to_string(),
        kind: event.event.kind.word(),
        at: event.event.at.to_string(),
        about: AboutBody { kind: event.event.kind.about(), id: event.event.about.to_string(), rev: event.event.rev },
        data: event.event.data,
    }
}

/// Read events after a cursor, oldest first.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(EventQuery),
    responses((status = 200, description = "Events in order", body = EventPage),
        (status = 410, description = "The cursor is from before a restore", body = super::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn list(State(app): State<App>, door: Door, query: QueryOf<EventQuery>) -> Answer {
    door.caller.need(Scope::Read)?;
    let after = query.0.after.as_deref().unwrap_or("0");
    let after = Cursor::parse(after)
        .ok_or_else(|| Problem::field(Code::InvalidQuery, "after", "after is a cursor such as 1-42, or 0"))?;
    let limit = page_limit(query.0.limit.as_deref(), limits::EVENT_ROWS, 100)?;
    let events = app.engine.events(&door.caller, after, limit).await?;
    let data: Vec<EventBody> = events.into_iter().map(event_body).collect();
    let next_cursor = data.last().map(|event| event.cursor.clone());
    Ok(Json(EventPage { data, next_cursor }).into_response())
}
