//! Suppressions: addresses that the team does not send to.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::Address,
    problem::{Code, Problem},
};
use mailonce_engine::control::suppressions::{SuppressionDetails, SuppressionView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::pagination::{PageQuery, created_response},
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::check_text,
        params::{PathParam, QueryParams},
    },
};

/// An address to suppress.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSuppressionBody {
    /// The address, without a display name.
    address: String,
    /// Why the address is suppressed; `manual` by default.
    #[serde(default)]
    reason: Option<String>,
}

/// A suppressed address. Sends to it are refused.
#[derive(Serialize, ToSchema)]
pub(crate) struct SuppressionBody {
    id: String,
    address: String,
    /// `all`: every send is refused. `unsubscribable`: sends with one of the team's unsubscribe tags are refused.
    scope: &'static str,
    /// `bounced`, `complained`, `unsubscribed`, `manual`, or a text entered by a person.
    reason: String,
    rev: u32,
    created_at: String,
    /// Id of the email that bounced or drew the complaint.
    email: Option<String>,
    /// Id of the source that reported it.
    source: Option<String>,
    /// The provider's own text.
    detail: Option<String>,
}

impl From<&SuppressionView> for SuppressionBody {
    fn from(suppression: &SuppressionView) -> Self {
        let details = &suppression.details;
        Self {
            id: suppression.id.to_string(),
            address: suppression.address.clone(),
            scope: details.scope.as_str(),
            reason: details.reason.clone(),
            rev: suppression.rev,
            created_at: suppression.created_at.to_string(),
            email: details.email.map(|id| id.to_string()),
            source: details.source.map(|id| id.to_string()),
            detail: details.detail.clone(),
        }
    }
}

/// A page of suppressions, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct SuppressionPage {
    data: Vec<SuppressionBody>,
    next_cursor: Option<String>,
}

/// Parses the address in a path. A malformed address is answered `404`.
fn parse_address(text: &str) -> Result<Address, Problem> {
    Address::parse(text).map_err(|_invalid| Problem::new(Code::NotFound, format!("there is no suppression {text}")))
}

/// Suppress an address.
#[utoipa::path(post, path = "/v1/suppressions", operation_id = "create_suppression", tag = "suppressions", request_body = NewSuppressionBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 201, description = "Suppressed", body = SuppressionBody), (status = 200, description = "The address was suppressed already", body = SuppressionBody)))]
pub(crate) async fn create(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let body: NewSuppressionBody = body.parse()?;
    let fault = |message: String| Problem::invalid_field("address", message);
    let address = Address::parse(&body.address).map_err(|error| fault(error.to_string()))?;
    check_text("reason", body.reason.as_deref().unwrap_or_default())?;
    let details = SuppressionDetails::manual(body.reason.filter(|reason| !reason.trim().is_empty()));
    let keyed_call =
        auth.keyed_call("suppressions", "", format!("{}\n{}", address.as_str(), details.reason).as_bytes());
    let suppression = app.engine.control.suppress(&auth.caller, &address, details, keyed_call).await?;
    Ok(created_response(suppression.is_new, Json(SuppressionBody::from(&suppression.value))))
}

/// List suppressions, newest first.
#[utoipa::path(get, path = "/v1/suppressions", operation_id = "list_suppressions", tag = "suppressions", params(PageQuery),
    responses((status = 200, description = "A page of results", body = SuppressionPage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.control.suppressions(&auth.caller, before, limit).await?;
    let data = page.rows.iter().map(SuppressionBody::from).collect();
    Ok(Json(SuppressionPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read the suppression of an address.
#[utoipa::path(get, path = "/v1/suppressions/{address}", operation_id = "read_suppression", tag = "suppressions", params(("address" = String, Path)),
    responses((status = 200, description = "The suppression", body = SuppressionBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(address): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let suppression = app.engine.control.read_suppression(&auth.caller, &parse_address(&address)?).await?;
    Ok(Json(SuppressionBody::from(&suppression)).into_response())
}

/// Remove a suppression, so that the team can send to the address again.
#[utoipa::path(delete, path = "/v1/suppressions/{address}", operation_id = "delete_suppression", tag = "suppressions", params(("address" = String, Path)),
    responses((status = 200, description = "The removed object", body = SuppressionBody)))]
pub(crate) async fn remove(State(app): State<App>, auth: AuthedRequest, PathParam(address): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let suppression = app.engine.control.remove_suppression(&auth.caller, &parse_address(&address)?).await?;
    Ok(Json(SuppressionBody::from(&suppression)).into_response())
}
