//! Sending domains: create, verify and remove.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::DomainId,
    problem::{Code, Problem},
};
use mailonce_engine::access::domains::{DnsCheckResult, DnsEntry, Domain, parse_domain_name};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        outbound::emails::EmptyBody,
        pagination::{PageQuery, created_response},
    },
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        params::{PathParam, QueryParams},
    },
};

/// A domain to send from.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDomainBody {
    /// The domain name, such as `example.com`.
    name: String,
}

/// A DNS record to publish.
#[derive(Serialize, ToSchema)]
pub(crate) struct DnsRecordBody {
    /// Always `TXT`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// What the record is for: `ownership`, `dkim`, `spf` or `dmarc`.
    purpose: &'static str,
    name: String,
    /// The whole value. Some zone files need it split into strings of at most 255 characters.
    value: String,
    /// Whether verification needs this record. The others are recommendations; adapt them to your relay.
    required: bool,
    /// Result of the last check: `found`, `missing`, `different` or `unknown`; null before the first check.
    status: Option<&'static str>,
}

impl From<&DnsEntry> for DnsRecordBody {
    fn from(entry: &DnsEntry) -> Self {
        Self {
            kind: "TXT",
            purpose: entry.purpose,
            name: entry.name.clone(),
            value: entry.value.clone(),
            required: entry.required,
            status: entry.status.map(DnsCheckResult::as_str),
        }
    }
}

/// A sending domain.
#[derive(Serialize, ToSchema)]
pub(crate) struct DomainBody {
    id: String,
    name: String,
    rev: u32,
    /// `pending` before the first check, `verified`, or `failed` when the last check did not find a required record.
    state: &'static str,
    created_at: String,
    verified_at: Option<String>,
    checked_at: Option<String>,
    /// The DNS records to publish.
    records: Vec<DnsRecordBody>,
}

impl From<&Domain> for DomainBody {
    fn from(domain: &Domain) -> Self {
        Self {
            id: domain.id.to_string(),
            name: domain.name.clone(),
            rev: domain.rev,
            state: match (domain.verified_at, domain.checked_at) {
                (Some(_), _) => "verified",
                (None, Some(_)) => "failed",
                (None, None) => "pending",
            },
            created_at: domain.created_at.to_string(),
            verified_at: domain.verified_at.map(|at| at.to_string()),
            checked_at: domain.checked_at.map(|at| at.to_string()),
            records: domain.records.iter().map(DnsRecordBody::from).collect(),
        }
    }
}

/// A page of sending domains, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct DomainPage {
    data: Vec<DomainBody>,
    next_cursor: Option<String>,
}

fn domain_id(text: &str) -> Result<DomainId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no domain {text}")))
}

/// Add a sending domain.
///
/// Generates its DKIM keys and returns the DNS records to publish.
#[utoipa::path(post, path = "/v1/domains", operation_id = "create_domain", tag = "domains", request_body = NewDomainBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 201, description = "Added", body = DomainBody), (status = 200, description = "The domain already existed", body = DomainBody)))]
pub(crate) async fn create(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let name = parse_domain_name(&body.parse::<NewDomainBody>()?.name)?;
    let keyed_call = auth.keyed_call("domains", "", name.as_bytes());
    let domain = app.engine.access.domains.create_domain(&auth.caller, &name, keyed_call).await?;
    Ok(created_response(domain.is_new, Json(DomainBody::from(&domain.value))))
}

/// List sending domains, newest first.
#[utoipa::path(get, path = "/v1/domains", operation_id = "list_domains", tag = "domains", params(PageQuery),
    responses((status = 200, description = "A page of results", body = DomainPage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.access.domains.domains(&auth.caller, before, limit).await?;
    let data = page.rows.iter().map(DomainBody::from).collect();
    Ok(Json(DomainPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read one sending domain.
#[utoipa::path(get, path = "/v1/domains/{id}", operation_id = "read_domain", tag = "domains", params(("id" = String, Path)),
    responses((status = 200, description = "The domain", body = DomainBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let domain = app.engine.access.domains.domain(&auth.caller, domain_id(&id)?).await?;
    Ok(Json(DomainBody::from(&domain)).into_response())
}

/// Remove a sending domain and its DKIM keys.
#[utoipa::path(delete, path = "/v1/domains/{id}", operation_id = "delete_domain", tag = "domains", params(("id" = String, Path)),
    responses((status = 200, description = "The removed object", body = DomainBody)))]
pub(crate) async fn remove(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let domain = app.engine.access.domains.remove_domain(&auth.caller, domain_id(&id)?).await?;
    Ok(Json(DomainBody::from(&domain)).into_response())
}

/// Check the domain's DNS records now.
#[utoipa::path(post, path = "/v1/domains/{id}/verify", operation_id = "verify_domain", tag = "domains", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")), request_body = Option<EmptyBody>,
    responses((status = 200, description = "The domain with the result of the check", body = DomainBody),
        (status = 409, description = "The object changed during the call; retry", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn verify(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let id = domain_id(&id)?;
    let EmptyBody {} = body.parse_or_empty()?;
    let keyed_call = auth.keyed_call("domains/verify", &id.to_string(), b"");
    let domain = app.engine.access.domains.verify_domain(&auth.caller, id, keyed_call).await?;
    Ok(Json(DomainBody::from(&domain)).into_response())
}
