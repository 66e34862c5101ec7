//! Suppressions: addresses that the team does not write to.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::Address,
    problem::{Code, FieldError, Problem},
};
use mailonce_engine::control::suppressions::{SuppressionDetails, SuppressionView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{
    ApiResult, App, PathParam, QueryParams,
    door::{AuthedRequest, RawBody},
    pagination::{PageQuery, created_response},
    wire::check_text,
};

/// An address to leave in peace.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSuppressionBody {
    /// A bare address.
    address: String,
    /// `manual` by default.
    #[serde(default)]
    reason: Option<String>,
}

/// An address that is not written to.
#[derive(Serialize, ToSchema)]
pub(crate) struct SuppressionBody {
    id: String,
    address: String,
    /// `bounced`, `complained`, `manual`, or a person's words.
    reason: String,
    rev: u32,
    created_at: String,
    /// The email that led to it.
    email: Option<String>,
    /// The source that told of it.
    source: Option<String>,
    /// What the provider said.
    detail: Option<String>,
}

impl From<&SuppressionView> for SuppressionBody {
    fn from(suppression: &SuppressionView) -> Self {
        let about = &suppression.details;
        Self {
            id: suppression.id.to_string(),
            address: suppression.address.clone(),
            reason: about.reason.clone(),
            rev: suppression.rev,
            created_at: suppression.created_at.to_string(),
            email: about.email.map(|id| id.to_string()),
            source: about.source.map(|id| id.to_string()),
            detail: about.detail.clone(),
        }
    }
}

/// Suppressions, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct SuppressionPage {
    data: Vec<SuppressionBody>,
    next_cursor: Option<String>,
}

/// An address from the path. A text that is none is on no list.
fn parse_address(text: &str) -> Result<Address, Problem> {
    Address::parse(text).map_err(|_invalid| Problem::new(Code::NotFound, format!("there is no suppression {text}")))
}

/// Suppress an address.
#[utoipa::path(post, path = "/v1/suppressions", operation_id = "create_suppression", tag = "suppressions", request_body = NewSuppressionBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 201, description = "Suppressed", body = SuppressionBody), (status = 200, description = "It was already", body = SuppressionBody)))]
pub(crate) async fn create(State(app): State<App>, door: AuthedRequest, body: RawBody) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let body: NewSuppressionBody = body.parse()?;
    let fault = |message: String| Problem::from(vec![FieldError::new("address", message)]);
    let address = Address::parse(&body.address).map_err(|error| fault(error.to_string()))?;
    check_text("reason", body.reason.as_deref().unwrap_or_default())?;
    let about = SuppressionDetails::manual(body.reason.filter(|reason| !reason.trim().is_empty()));
    let asked = door.keyed_call("suppressions", "", format!("{}\n{}", address.as_str(), about.reason).as_bytes());
    let suppression = app.engine.control.suppress(&door.caller, &address, about, asked).await?;
    Ok(created_response(suppression.is_new, Json(SuppressionBody::from(&suppression.value))))
}

/// List suppressions, newest first.
#[utoipa::path(get, path = "/v1/suppressions", operation_id = "list_suppressions", tag = "suppressions", params(PageQuery),
    responses((status = 200, description = "A page", body = SuppressionPage)))]
pub(crate) async fn list(State(app): State<App>, door: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.control.suppressions(&door.caller, before, limit).await?;
    let data = page.rows.iter().map(SuppressionBody::from).collect();
    Ok(Json(SuppressionPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read why an address is suppressed.
#[utoipa::path(get, path = "/v1/suppressions/{address}", operation_id = "read_suppression", tag = "suppressions", params(("address" = String, Path)),
    responses((status = 200, description = "The suppression", body = SuppressionBody)))]
pub(crate) async fn read(State(app): State<App>, door: AuthedRequest, PathParam(address): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let suppression = app.engine.control.read_suppression(&door.caller, &parse_address(&address)?).await?;
    Ok(Json(SuppressionBody::from(&suppression)).into_response())
}

/// Write to an address again.
#[utoipa::path(delete, path = "/v1/suppressions/{address}", operation_id = "delete_suppression", tag = "suppressions", params(("address" = String, Path)),
    responses((status = 200, description = "What it was", body = SuppressionBody)))]
pub(crate) async fn remove(State(app): State<App>, door: AuthedRequest, PathParam(address): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let suppression = app.engine.control.remove_suppression(&door.caller, &parse_address(&address)?).await?;
    Ok(Json(SuppressionBody::from(&suppression)).into_response())
}
