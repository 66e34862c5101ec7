//! Path and query parameters of a request.

use super::{app::App, problem::ApiError};
use crate::typed_errors::{JsonTree, ShapeError};
use axum::{
    extract::{FromRequestParts, Path},
    http::{Uri, request::Parts},
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

/// The parameters of a path that has exactly two.
pub(crate) struct TwoPathParams(pub(crate) String, pub(crate) String);

impl FromRequestParts<App> for TwoPathParams {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        match Path::<(String, String)>::from_request_parts(parts, app).await {
            Ok(Path((first, second))) => Ok(Self(first, second)),
            Err(rejection) => Err(Problem::new(Code::NotFound, rejection.body_text()).into()),
        }
    }
}

/// Query parameters. `T` denies unknown fields, so unknown parameters are refused.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        Ok(Self(parse_query(&parts.uri)?))
    }
}

/// Parses the query string. An unknown parameter is named, with the most similar known one.
fn parse_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let pairs = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let query = JsonTree::Object(pairs.map(|(name, value)| (name.into_owned(), JsonTree::Text(value))).collect());
    T::deserialize(query).map_err(|error| match error {
        ShapeError::UnknownField { name, known } => {
            let hint = nearest_name(&name, known.iter().copied())
                .map(|nearest| format!("; did you mean `{nearest}`?"))
                .unwrap_or_default();
            let unknown = shorten(&name);
            Problem::invalid_query(unknown.as_ref(), format!("there is no parameter `{unknown}`{hint}"))
        }
        other => Problem::invalid_query("", shorten(&format!("Failed to deserialize query string: {other}"))),
    })
}
