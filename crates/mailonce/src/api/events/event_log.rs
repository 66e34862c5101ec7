//! The event log by listing.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::event::EventCursor,
    limits,
    problem::{Code, Problem},
};
use mailonce_engine::events::{endpoints::parse_filter, event_view::EventView, tail::EventSelection};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::api::{ApiResult, App, QueryParams, door::AuthedRequest, outbound::emails::page_limit};

/// Where to read on.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// A cursor, or `0` for the very start (the default).
    after: Option<String>,
    /// 1 to 1000, 100 by default. A stream has no limit and refuses one.
    limit: Option<String>,
    /// Only these types: `email.sent,message.*`.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    types: Option<String>,
    /// Only what is about the thing with this id.
    about: Option<String>,
    /// Only what happened at the inbox with this id.
    inbox: Option<String>,
}

impl EventQuery {
    pub(crate) fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// A stream has no end, so no limit either.
    pub(crate) fn refuse_limit(&self) -> Result<(), Problem> {
        match self.limit {
            Some(_) => Err(Problem::for_field(Code::InvalidQuery, "limit", "limit is for lists; a stream has no end")),
            None => Ok(()),
        }
    }

    /// Which events are wanted.
    pub(crate) fn parse_selection(&self) -> Result<EventSelection, Problem> {
        let wrong = |field: &str| Problem::for_field(Code::InvalidQuery, field, format!("{field} is an id"));
        let types = self.types.as_deref().unwrap_or_default().split(',').filter(|word| !word.is_empty());
        let types: Vec<_> = types.take(limits::ENDPOINT_PARTS + 1).collect();
        if types.len() > limits::ENDPOINT_PARTS {
            let detail = format!("type names more than {} types", limits::ENDPOINT_PARTS);
            return Err(Problem::for_field(Code::InvalidQuery, "type", detail));
        }
        let filter =
            |word: &str| parse_filter("type", word).map_err(|problem| Problem { code: Code::InvalidQuery, ..problem });
        Ok(EventSelection {
            types: types.into_iter().map(filter).collect::<Result<_, _>>()?,
            about: self.about.as_deref().map(|id| id.parse().map_err(|_not_an_id| wrong("about"))).transpose()?,
            inbox: self.inbox.as_deref().map(|id| id.parse().map_err(|_not_an_id| wrong("inbox"))).transpose()?,
        })
    }
}

/// Reads a cursor; `None` is the very start.
pub(crate) fn parse_cursor(text: &str) -> Result<Option<EventCursor>, Problem> {
    EventCursor::parse(text)
        .ok_or_else(|| Problem::for_field(Code::InvalidQuery, "after", "after is a cursor such as 1-42, or 0"))
}

/// What an event is about.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the engine words")]
pub(crate) struct EventSubjectBody {
    kind: &'static str,
    id: String,
    rev: u32,
}

/// A fact.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the engine words")]
pub(crate) struct EventBody {
    /// From 1, without gaps.
    seq: u64,
    /// `epoch-seq`.
    cursor: String,
    id: String,
    #[schema(rename = "type")]
    kind: &'static str,
    at: String,
    about: EventSubjectBody,
    #[schema(value_type = Object)]
    data: serde_json::Value,
}

/// Events, oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventPage<'a> {
    #[schema(value_type = Vec<EventBody>)]
    data: Vec<EventView<'a>>,
    /// Pass it as `after`; null when there was nothing to look at. With a filter a page may be short, even empty, and
    /// still have more behind it.
    next_cursor: Option<String>,
}

/// Read events after a cursor, oldest first.
#[utoipa::path(get, path = "/v1/events", operation_id = "list_events", tag = "events", params(EventQuery),
    responses((status = 200, description = "Events in order", body = EventPage),
        (status = 410, description = "The cursor is from before a restore", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(State(app): State<App>, door: AuthedRequest, query: QueryParams<EventQuery>) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let after = parse_cursor(query.0.after().unwrap_or("0"))?;
    let limit = page_limit(query.0.limit.as_deref(), limits::EVENT_ROWS, 100)?;
    let (events, next) = app.engine.events.events(&door.caller, after, limit, &query.0.parse_selection()?).await?;
    // Without a cursor there is no event either.
    let epoch = next.map_or(0, |cursor| cursor.epoch);
    let data = events.iter().map(|event| EventView::new(event, epoch)).collect();
    Ok(Json(EventPage { data, next_cursor: next.map(|cursor| cursor.to_string()) }).into_response())
}
