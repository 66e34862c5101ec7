//! The Resend routes for sending domains.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    id::DomainId,
    problem::{Code, Problem},
};
use mailonce_engine::access::domains::{DnsCheckResult, DnsEntry, Domain, parse_domain_name};
use serde::{Deserialize, Serialize};

use super::{
    DialectError, DialectPath, DialectQuery, OnePathParam, PageParams, ResendDialect, ResendRequest, ResendRequestBody,
    ResendResult, deleted_response, json, list_response, object_response, parse_id,
};
use crate::{
    dialects::{field_problem, pagination::MAX_SHORT_LIST, resend::errors::missing_field},
    http::app::App,
};

/// The regions of Resend. mailonce sends from where it runs and always reports the first region.
const REGIONS: [&str; 4] = ["us-east-1", "eu-west-1", "sa-east-1", "ap-northeast-1"];

#[derive(Serialize)]
struct DomainRecordBody {
    record: &'static str,
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    ttl: &'static str,
    status: &'static str,
    value: String,
}

impl From<&DnsEntry> for DomainRecordBody {
    fn from(entry: &DnsEntry) -> Self {
        Self {
            // Resend allows only certain record names: required records are reported as DKIM, recommended ones as SPF.
            record: if entry.required { "DKIM" } else { "SPF" },
            name: entry.name.clone(),
            kind: "TXT",
            ttl: "Auto",
            status: match entry.status {
                Some(DnsCheckResult::Found) => "verified",
                Some(DnsCheckResult::Missing | DnsCheckResult::Different) => "failed",
                Some(DnsCheckResult::Unknown) => "temporary_failure",
                None => "not_started",
            },
            value: entry.value.clone(),
        }
    }
}

#[derive(Serialize)]
struct Capabilities {
    sending: &'static str,
    receiving: &'static str,
}

/// A domain. There is no open or click tracking, and only one region.
#[derive(Serialize)]
struct DomainBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'static str>,
    id: String,
    name: String,
    status: &'static str,
    created_at: String,
    region: &'static str,
    open_tracking: bool,
    click_tracking: bool,
    tracking_subdomain: Option<String>,
    capabilities: Capabilities,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<Vec<DomainRecordBody>>,
}

impl From<&Domain> for DomainBody {
    fn from(domain: &Domain) -> Self {
        Self {
            object: None,
            id: domain.id.to_string(),
            name: domain.name.clone(),
            status: match (domain.verified_at, domain.checked_at) {
                (Some(_), _) => "verified",
                (None, Some(_)) => "failed",
                (None, None) => "not_started",
            },
            created_at: domain.created_at.to_string(),
            region: REGIONS[0],
            open_tracking: false,
            click_tracking: false,
            tracking_subdomain: None,
            capabilities: Capabilities { sending: "enabled", receiving: "enabled" },
            records: None,
        }
    }
}

fn with_records(domain: &Domain) -> DomainBody {
    DomainBody {
        records: Some(domain.records.iter().map(DomainRecordBody::from).collect()),
        ..DomainBody::from(domain)
    }
}

fn with_dialect_message(problem: Problem) -> Problem {
    match problem.code {
        Code::NotFound => Problem::new(Code::NotFound, "Domain not found"),
        _ => problem,
    }
}

async fn find_domain(app: &App, auth: &ResendRequest, name: &str) -> Result<Domain, DialectError<ResendDialect>> {
    let domain: DomainId = parse_id(name)?;
    Ok(app.engine.access.domains.domain(&auth.caller, domain).await.map_err(with_dialect_message)?)
}

#[derive(Deserialize)]
struct NewDomainBody {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    region: Option<String>,
}

/// `POST /domains`.
pub(super) async fn create(State(app): State<App>, auth: ResendRequest, body: ResendRequestBody) -> ResendResult {
    let NewDomainBody { name, region } = body.parse()?;
    let name = parse_domain_name(&name.ok_or_else(|| missing_field("name"))?)?;
    if region.is_some_and(|region| !REGIONS.contains(&region.as_str())) {
        return Err(field_problem("region", format!("The `region` must be one of `{}`.", REGIONS.join("`, `"))).into());
    }
    let keyed_call = auth.keyed_call("domains", "", name.as_bytes());
    let created = app.engine.access.domains.create_domain(&auth.caller, &name, keyed_call).await?;
    Ok(json(StatusCode::CREATED, &with_records(&created.value)))
}

/// `GET /domains`.
pub(super) async fn list(
    State(app): State<App>,
    auth: ResendRequest,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    let page = query.parse()?;
    let all = app.engine.access.domains.domains(&auth.caller, None, MAX_SHORT_LIST).await?.rows;
    Ok(list_response(page.slice_newest_first(all, |domain| domain.id.0), |domain| DomainBody::from(&domain)))
}

/// `GET /domains/{id}`.
pub(super) async fn read(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let domain = find_domain(&app, &auth, &name).await?;
    Ok(json(StatusCode::OK, &DomainBody { object: Some("domain"), ..with_records(&domain) }))
}

/// `POST /domains/{id}/verify`. The DNS check is finished when this returns; its result is stored with the domain.
pub(super) async fn verify(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let domain = find_domain(&app, &auth, &name).await?;
    let keyed_call = auth.keyed_call("domains/verify", &name, b"");
    let verified = app.engine.access.domains.verify_domain(&auth.caller, domain.id, keyed_call).await?;
    Ok(object_response("domain", verified.id))
}

/// The settings of a domain that Resend lets clients change.
#[derive(Deserialize)]
struct DomainPatchBody {
    #[serde(default)]
    click_tracking: Option<bool>,
    #[serde(default)]
    open_tracking: Option<bool>,
    #[serde(default)]
    tracking_subdomain: Option<String>,
    #[serde(default)]
    tls: Option<String>,
    #[serde(default)]
    capabilities: Option<CapabilitiesPatch>,
}

#[derive(Deserialize)]
struct CapabilitiesPatch {
    #[serde(default)]
    sending: Option<String>,
    #[serde(default)]
    receiving: Option<String>,
}

impl DomainPatchBody {
    /// Refuses a setting that differs from how mailonce treats every domain.
    fn check(&self) -> Result<(), Problem> {
        for (field, on) in [("click_tracking", self.click_tracking), ("open_tracking", self.open_tracking)] {
            if on == Some(true) {
                return Err(field_problem(field, "Tracking is not available: mailonce does not change mails."));
            }
        }
        if self.tracking_subdomain.is_some() {
            return Err(field_problem("tracking_subdomain", "Tracking is not available; leave it out."));
        }
        if self.tls.as_deref().is_some_and(|tls| tls != "opportunistic") {
            let text = "The `tls` must be `opportunistic`: TLS is enforced in the configuration of a transport.";
            return Err(field_problem("tls", text));
        }
        let capabilities = self.capabilities.iter().flat_map(|patch| [&patch.sending, &patch.receiving]);
        if capabilities.flatten().any(|state| state != "enabled") {
            let text = "The `capabilities` must be `enabled`: remove the domain to stop sending from it.";
            return Err(field_problem("capabilities", text));
        }
        Ok(())
    }
}

/// `PATCH /domains/{id}`. Accepts the settings that every domain has, so that nothing is ever changed.
pub(super) async fn change(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    body: ResendRequestBody,
) -> ResendResult {
    let domain = find_domain(&app, &auth, &name).await?;
    body.parse::<DomainPatchBody>()?.check()?;
    Ok(object_response("domain", domain.id))
}

/// `DELETE /domains/{id}`.
pub(super) async fn remove(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let domain = find_domain(&app, &auth, &name).await?;
    let removed = app.engine.access.domains.remove_domain(&auth.caller, domain.id).await?;
    Ok(deleted_response("domain", removed.id))
}
