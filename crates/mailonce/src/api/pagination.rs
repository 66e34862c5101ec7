//! Shared parts of the list and create handlers: the page query, and `201` or `200` for created objects.

use axum::{
    http::{HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use mailonce_core::{limits, problem::Problem};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::api::outbound::emails::page_limit;

/// Page of a list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    /// Page size, 1 to 100; 20 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl PageQuery {
    /// The id to continue after, and the page size.
    pub(crate) fn parse(&self) -> Result<(Option<Uuid>, usize), Problem> {
        let invalid =
            |_not_an_id| Problem::invalid_query("cursor", "cursor must be the next_cursor of a previous page");
        let before = self.cursor.as_deref().map(|cursor| cursor.parse().map_err(invalid)).transpose()?;
        Ok((before, page_limit(self.limit.as_deref(), limits::PAGE_ROWS, 20)?))
    }
}

/// `201` for a new object; `200` with `Idempotent-Replayed: true` when it already existed.
pub(crate) fn created_response(is_new: bool, body: impl IntoResponse) -> Response {
    if is_new {
        return (StatusCode::CREATED, body).into_response();
    }
    let mut response = body.into_response();
    let header = (HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));
    response.headers_mut().insert(header.0, header.1);
    response
}
