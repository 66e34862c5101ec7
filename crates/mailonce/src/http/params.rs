//! Path and query parameters of a request.

use crate::http::{app::App, problem::ApiError};
use axum::{
    extract::{FromRequestParts, Path, Query},
    http::request::Parts,
};
use mailonce_core::problem::{Code, Problem, nearest_name, shorten};
use serde::de::DeserializeOwned;
/// The parameter of a path that has exactly one.
pub(crate) struct PathParam(pub(crate) String);

impl FromRequestParts<App> for PathParam {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        match Path::<String>::from_request_parts(parts, app).await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(rejection) => Err(Problem::new(Code::NotFound, rejection.body_text()).into()),
        }
    }
}

/// Query parameters. `T` denies unknown fields, so unknown parameters are refused.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        let Query(query) =
            Query::try_from_uri(&parts.uri).map_err(|rejection| invalid_query(&rejection.body_text()))?;
        Ok(Self(query))
    }
}

/// The problem for an invalid query string. An unknown parameter is named, with the most similar known one.
fn invalid_query(text: &str) -> Problem {
    let names: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    match names.split_first().filter(|_| text.contains("unknown field")) {
        Some((unknown, known)) => {
            let hint = nearest_name(unknown, known.iter().copied())
                .map(|nearest| format!("; did you mean `{nearest}`?"))
                .unwrap_or_default();
            let unknown = shorten(unknown);
            let detail = format!("there is no parameter `{unknown}`{hint}");
            Problem::for_field(Code::InvalidQuery, unknown.as_ref(), detail)
        }
        None => Problem::for_field(Code::InvalidQuery, "", shorten(text)),
    }
}
