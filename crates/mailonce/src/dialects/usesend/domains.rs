//! The useSend routes for sending domains. useSend ids are numbers, so they are derived from our ids.

use axum::{extract::State, http::StatusCode};
use mailonce_core::problem::{Code, Problem};
use mailonce_engine::access::domains::{DnsCheckResult, DnsEntry, Domain, parse_domain_name};
use serde::{Deserialize, Serialize};

use super::{DialectPath, OnePathParam, UseSendRequest, UseSendRequestBody, UseSendResult, json, numeric_id};
use crate::{
    dialects::{field_problem, pagination::MAX_SHORT_LIST},
    http::app::App,
};

#[derive(Serialize)]
struct DomainRecordBody {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    value: String,
    ttl: &'static str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    recommended: Option<bool>,
}

impl From<&DnsEntry> for DomainRecordBody {
    fn from(entry: &DnsEntry) -> Self {
        Self {
            kind: "TXT",
            name: entry.name.clone(),
            value: entry.value.clone(),
            ttl: "Auto",
            status: match entry.status {
                Some(DnsCheckResult::Found) => "SUCCESS",
                Some(DnsCheckResult::Missing | DnsCheckResult::Different) => "FAILED",
                Some(DnsCheckResult::Unknown) => "TEMPORARY_FAILURE",
                None => "NOT_STARTED",
            },
            recommended: (!entry.required).then_some(true),
        }
    }
}

#[expect(clippy::struct_excessive_bools, reason = "useSend's response has these fields")]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DomainBody {
    id: i64,
    name: String,
    team_id: i64,
    status: &'static str,
    region: &'static str,
    click_tracking: bool,
    open_tracking: bool,
    public_key: String,
    dkim_status: Option<&'static str>,
    spf_details: Option<String>,
    created_at: String,
    updated_at: String,
    dmarc_added: bool,
    is_verifying: bool,
    error_message: Option<String>,
    subdomain: Option<String>,
    verification_error: Option<String>,
    last_checked_time: Option<String>,
    dns_records: Vec<DomainRecordBody>,
}

impl DomainBody {
    fn of(auth: &UseSendRequest, domain: &Domain) -> Self {
        let dkim_record = domain.records.iter().find(|entry| entry.purpose == "dkim");
        let public_key = dkim_record.and_then(|entry| entry.value.split("p=").nth(1)).unwrap_or_default();
        Self {
            id: numeric_id(domain.id.0),
            name: domain.name.clone(),
            team_id: numeric_id(auth.caller.team.id.0),
            status: match (domain.verified_at, domain.checked_at) {
                (Some(_), _) => "SUCCESS",
                (None, Some(_)) => "FAILED",
                (None, None) => "NOT_STARTED",
            },
            region: "local",
            click_tracking: false,
            open_tracking: false,
            public_key: public_key.to_owned(),
            dkim_status: dkim_record.map(|entry| DomainRecordBody::from(entry).status),
            spf_details: None,
            created_at: domain.created_at.to_string(),
            updated_at: domain.checked_at.unwrap_or(domain.created_at).to_string(),
            dmarc_added: false,
            is_verifying: false,
            error_message: None,
            subdomain: None,
            verification_error: None,
            last_checked_time: domain.checked_at.map(|at| at.to_string()),
            dns_records: domain.records.iter().map(DomainRecordBody::from).collect(),
        }
    }
}

/// Finds the domain with a numeric id.
pub(super) async fn find_by_number(app: &App, auth: &UseSendRequest, text: &str) -> Result<Domain, Problem> {
    let missing = || Problem::new(Code::NotFound, "Domain not found");
    let wanted: i64 = text.parse().map_err(|_not_a_number| missing())?;
    let all = app.engine.access.domains.domains(&auth.caller, None, MAX_SHORT_LIST).await?.rows;
    all.into_iter().find(|domain| numeric_id(domain.id.0) == wanted).ok_or_else(missing)
}

/// `GET /domains`.
pub(super) async fn list(State(app): State<App>, auth: UseSendRequest) -> UseSendResult {
    let all = app.engine.access.domains.domains(&auth.caller, None, MAX_SHORT_LIST).await?.rows;
    let bodies: Vec<DomainBody> = all.iter().map(|domain| DomainBody::of(&auth, domain)).collect();
    Ok(json(StatusCode::OK, &bodies))
}

#[derive(Deserialize)]
struct NewDomainBody {
    #[serde(default)]
    name: Option<String>,
}

/// `POST /domains`. The region is ignored: mailonce has only one.
pub(super) async fn create(State(app): State<App>, auth: UseSendRequest, body: UseSendRequestBody) -> UseSendResult {
    let name = body.parse::<NewDomainBody>()?.name.ok_or_else(|| field_problem("name", "name is required"))?;
    let name = parse_domain_name(&name)?;
    let keyed_call = auth.keyed_call("domains", "", name.as_bytes());
    let created = app.engine.access.domains.create_domain(&auth.caller, &name, keyed_call).await?;
    Ok(json(StatusCode::OK, &DomainBody::of(&auth, &created.value)))
}

/// `GET /domains/{id}`.
pub(super) async fn read(
    State(app): State<App>,
    auth: UseSendRequest,
    DialectPath(name, ..): OnePathParam,
) -> UseSendResult {
    let domain = find_by_number(&app, &auth, &name).await?;
    Ok(json(StatusCode::OK, &DomainBody::of(&auth, &domain)))
}

#[derive(Serialize)]
struct VerificationStartedBody {
    message: &'static str,
}

/// `PUT /domains/{id}/verify`. The DNS check is finished when this returns; its result is stored with the domain.
pub(super) async fn verify(
    State(app): State<App>,
    auth: UseSendRequest,
    DialectPath(name, ..): OnePathParam,
) -> UseSendResult {
    let domain = find_by_number(&app, &auth, &name).await?;
    app.engine.access.domains.verify_domain(&auth.caller, domain.id, None).await?;
    Ok(json(StatusCode::OK, &VerificationStartedBody { message: "Domain verification started" }))
}

#[derive(Serialize)]
struct DomainDeletedBody {
    id: i64,
    success: bool,
    message: &'static str,
}

/// `DELETE /domains/{id}`.
pub(super) async fn remove(
    State(app): State<App>,
    auth: UseSendRequest,
    DialectPath(name, ..): OnePathParam,
) -> UseSendResult {
    let domain = find_by_number(&app, &auth, &name).await?;
    app.engine.access.domains.remove_domain(&auth.caller, domain.id).await?;
    Ok(json(
        StatusCode::OK,
        &DomainDeletedBody { id: numeric_id(domain.id.0), success: true, message: "Domain deleted successfully" },
    ))
}
