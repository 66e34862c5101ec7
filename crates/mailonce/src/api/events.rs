//! The event log by listing.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    event::Cursor,
    limits,
    problem::{Code, Problem},
    team::Scope,
};
use mailonce_engine::{endpoints::filter, tail::EventWish, told::EventView};
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
    pub(super) fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// A stream has no end, so no limit either.
    pub(super) fn refuse_limit(&self) -> Result<(), Problem> {
        match self.limit {
            Some(_) => Err(Problem::field(Code::InvalidQuery, "limit", "limit is for lists; a stream has no end")),
            None => Ok(()),
        }
    }

    /// Which events are wanted.
    pub(super) fn wish(&self) -> Result<EventWish, Problem> {
        let wrong = |field: &str| Problem::field(Code::InvalidQuery, field, format!("{field} is an id"));
        let types = self.types.as_deref().unwrap_or_default().split(',').filter(|word| !word.is_empty());
        let types: Vec<_> = types.take(limits::ENDPOINT_PARTS + 1).collect();
        if types.len() > limits::ENDPOINT_PARTS {
            let detail = format!("type names more than {} types", limits::ENDPOINT_PARTS);
            return Err(Problem::field(Code::InvalidQuery, "type", detail));
        }
        let filter =
            |word: &str| filter("type", word).map_err(|problem| Problem { code: Code::InvalidQuery, ..problem });
        Ok(EventWish {
            types: types.into_iter().map(filter).collect::<Result<_, _>>()?,
            about: self.about.as_deref().map(|id| id.parse().map_err(|_not_an_id| wrong("about"))).transpose()?,
            inbox: self.inbox.as_deref().map(|id| id.parse().map_err(|_not_an_id| wrong("inbox"))).transpose()?,
        })
    }
}

/// Reads a cursor; `None` is the very start.
pub(super) fn after_of(text: &str) -> Result<Option<Cursor>, Problem> {
    Cursor::parse(text)
        .ok_or_else(|| Problem::field(Code::InvalidQuery, "after", "after is a cursor such as 1-42, or 0"))
}

/// What an event is about.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the engine words")]
pub(super) struct AboutBody {
    kind: &'static str,
    id: String,
    rev: u32,
}

/// A fact.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the engine words")]
pub(super) struct EventBody {
    /// From 1, without gaps.
    seq: u64,
    /// `epoch-seq`.
    cursor: String,
    id: String,
    #[schema(rename = "type")]
    kind: &'static str,
    at: String,
    about: AboutBody,
    #[schema(value_type = Object)]
    data: serde_json::Value,
}

/// Events, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct EventPage<'a> {
    #[schema(value_type = Vec<EventBody>)]
    data: Vec<EventView<'a>>,
    /// Pass it as `after`; null when there was nothing to look at. With a filter a page may be short, even empty, and
    /// still have more behind it.
    next_cursor: Option<String>,
}

/// Read events after a cursor, oldest first.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(EventQuery),
    responses((status = 200, description = "Events in order", body = EventPage),
        (status = 410, description = "The cursor is from before a restore", body = super::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn list(State(app): State<App>, door: Door, query: QueryOf<EventQuery>) -> Answer {
    door.caller.need(Scope::Read)?;
    let after = after_of(query.0.after().unwrap_or("0"))?;
    let limit = page_limit(query.0.limit.as_deref(), limits::EVENT_ROWS, 100)?;
    let (events, next) = app.engine.events(&door.caller, after, limit, &query.0.wish()?).await?;
    // Without a cursor there is no event either.
    let epoch = next.map_or(0, |cursor| cursor.epoch);
    let data = events.iter().map(|event| EventView::of(event, epoch)).collect();
    Ok(Json(EventPage { data, next_cursor: next.map(|cursor| cursor.to_string()) }).into_response())
}
