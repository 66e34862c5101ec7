//! The event log as a list.

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

use crate::{
    api::outbound::emails::page_limit,
    http::{
        app::{ApiResult, App},
        extract::AuthedRequest,
        params::QueryParams,
    },
};

/// Start and filters for reading events.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// Read events after this cursor; `0` (default) reads from the start.
    after: Option<String>,
    /// Page size, 1 to 1000; 100 by default. Not allowed for a stream.
    limit: Option<String>,
    /// Only these event types, separated by commas, such as `email.sent,message.*`.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    types: Option<String>,
    /// Only events about the object with this id.
    about: Option<String>,
    /// Only events of the inbox with this id.
    inbox: Option<String>,
}

impl EventQuery {
    pub(crate) fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// Refuses `limit` for a stream, which has no end.
    pub(crate) fn refuse_limit(&self) -> Result<(), Problem> {
        match self.limit {
            Some(_) => Err(Problem::invalid_query("limit", "limit must be absent: a stream has no end")),
            None => Ok(()),
        }
    }

    /// Parses the filters.
    pub(crate) fn parse_selection(&self) -> Result<EventSelection, Problem> {
        let invalid = |field: &str| Problem::invalid_query(field, format!("{field} must be an id"));
        let types = self.types.as_deref().unwrap_or_default().split(',').filter(|word| !word.is_empty());
        let types: Vec<_> = types.take(limits::ENDPOINT_PARTS + 1).collect();
        if types.len() > limits::ENDPOINT_PARTS {
            let detail = format!("type must have at most {} types", limits::ENDPOINT_PARTS);
            return Err(Problem::invalid_query("type", detail));
        }
        let filter =
            |word: &str| parse_filter("type", word).map_err(|problem| Problem { code: Code::InvalidQuery, ..problem });
        Ok(EventSelection {
            types: types.into_iter().map(filter).collect::<Result<_, _>>()?,
            about: self.about.as_deref().map(|id| id.parse().map_err(|_not_an_id| invalid("about"))).transpose()?,
            inbox: self.inbox.as_deref().map(|id| id.parse().map_err(|_not_an_id| invalid("inbox"))).transpose()?,
        })
    }
}

/// Parses a cursor; `None` is the start of the log.
pub(crate) fn parse_cursor(text: &str) -> Result<Option<EventCursor>, Problem> {
    EventCursor::parse(text).ok_or_else(|| Problem::invalid_query("after", "after must be a cursor such as 1-42, or 0"))
}

/// The object that an event is about.
#[derive(ToSchema)]
#[expect(dead_code, reason = "schema of the JSON that the engine writes")]
pub(crate) struct EventSubjectBody {
    kind: &'static str,
    id: String,
    rev: u32,
}

/// An event.
#[derive(ToSchema)]
#[expect(dead_code, reason = "schema of the JSON that the engine writes")]
pub(crate) struct EventBody {
    /// Sequence number in the team, from 1 without gaps.
    seq: u64,
    /// Position of the event, `epoch-seq`; pass it as `after`.
    cursor: String,
    id: String,
    #[schema(rename = "type")]
    kind: &'static str,
    at: String,
    about: EventSubjectBody,
    #[schema(value_type = Object)]
    data: serde_json::Value,
}

/// A page of events, oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventPage<'a> {
    #[schema(value_type = Vec<EventBody>)]
    data: Vec<EventView<'a>>,
    /// Pass it as `after` to read on; null when there are no events after the cursor. With a filter, even an empty page
    /// may have a next page.
    next_cursor: Option<String>,
}

/// Read events after a cursor, oldest first.
#[utoipa::path(get, path = "/v1/events", operation_id = "list_events", tag = "events", params(EventQuery),
    responses((status = 200, description = "Events, oldest first", body = EventPage),
        (status = 410, description = "The cursor is from before a restore or database failover, or events after it were deleted", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<EventQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let after = parse_cursor(query.0.after().unwrap_or("0"))?;
    let limit = page_limit(query.0.limit.as_deref(), limits::EVENT_ROWS, 100)?;
    let (events, next) = app.engine.events.events(&auth.caller, after, limit, &query.0.parse_selection()?).await?;
    // Without a next cursor the page has no events, so the epoch is not used.
    let epoch = next.map_or(0, |cursor| cursor.epoch);
    let data = events.iter().map(|event| EventView::new(event, epoch)).collect();
    Ok(Json(EventPage { data, next_cursor: next.map(|cursor| cursor.to_string()) }).into_response())
}
