//! What lists of domains, suppressions and sources have in common.

use axum::{
    http::{HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use mailonce_core::{
    limits,
    problem::{Code, Problem},
};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::api::outbound::emails::page_limit;

/// Which page of a list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    /// 1 to 100, 20 by default.
    limit: Option<String>,
    /// Where the page before ended.
    cursor: Option<String>,
}

impl PageQuery {
    /// Where to go on, and how many rows.
    pub(crate) fn parse(&self) -> Result<(Option<Uuid>, usize), Problem> {
        let wrong =
            |_not_an_id| Problem::for_field(Code::InvalidQuery, "cursor", "cursor is the next_cursor of another page");
        let before = self.cursor.as_deref().map(|cursor| cursor.parse().map_err(wrong)).transpose()?;
        Ok((before, page_limit(self.limit.as_deref(), limits::PAGE_ROWS, 20)?))
    }
}

/// `201` for what was made, `200` and a header for what was there.
pub(crate) fn created_response(first: bool, body: impl IntoResponse) -> Response {
    if first {
        return (StatusCode::CREATED, body).into_response();
    }
    let mut response = body.into_response();
    let header = (HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));
    response.headers_mut().insert(header.0, header.1);
    response
}
