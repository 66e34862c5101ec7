//! The AgentMail routes for domains. The id of a domain is its name.

use axum::{
    http::{HeaderValue, Method, StatusCode, header},
    response::IntoResponse as _,
};
use mailonce_core::problem::{Code, Problem};
use mailonce_engine::access::domains::{DnsCheckResult, DnsEntry, Domain, parse_domain_name};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AgentMailResult, no_route, query::page_json, request::AgentMailRequest};
use crate::dialects::{agentmail::errors::UNPROCESSABLE, json as as_json, pagination::MAX_SHORT_LIST};

/// The longest piece of a TXT record in a zone file, in bytes.
const TXT_PIECE_BYTES: usize = 255;

/// The body of a request that creates or changes a domain.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DomainBody {
    domain: Option<String>,
    feedback_enabled: Option<bool>,
    inbound_enabled: Option<bool>,
    subdomains_enabled: Option<bool>,
    tracking_enabled: Option<bool>,
    allow_conflicting_provider: Option<bool>,
}

impl DomainBody {
    /// Refuses a setting that differs from how mailonce treats every domain.
    fn check(&self) -> Result<(), Problem> {
        let fixed = [
            ("feedback_enabled", self.feedback_enabled, true, "bounces and complaints are always recorded"),
            ("inbound_enabled", self.inbound_enabled, true, "delete the inboxes of the domain to receive nothing"),
            ("subdomains_enabled", self.subdomains_enabled, false, "add each subdomain as a domain"),
            ("tracking_enabled", self.tracking_enabled, false, "mails are not tracked"),
        ];
        match fixed.into_iter().find(|(_, given, value, _)| given.is_some_and(|given| given != *value)) {
            Some((field, _, value, why)) => Err(Problem::invalid_field(field, format!("must be {value}: {why}"))),
            None => Ok(()),
        }
    }
}

pub(super) async fn route(call: &AgentMailRequest, rest: &[&str]) -> AgentMailResult {
    match (&call.method, rest) {
        (&Method::GET, []) => list(call).await,
        (&Method::POST, []) => create(call).await,
        (&Method::GET, [id]) => Ok(as_json(StatusCode::OK, &to_json(call, &find(call, id).await?))),
        (&Method::PATCH, [id]) => change(call, id).await,
        (&Method::DELETE, [id]) => {
            let domain = find(call, id).await?;
            call.engine.access.domains.remove_domain(&call.caller, domain.id).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        (&Method::POST, [id, "verify"]) => {
            let domain = find(call, id).await?;
            call.engine.access.domains.verify_domain(&call.caller, domain.id, None).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        (&Method::GET, [id, "zone-file"]) => zone_file(call, id).await,
        (&Method::GET, [id, "setup-link"]) => {
            find(call, id).await?;
            // No DNS provider is connected, so the records are published by hand.
            Ok(as_json(StatusCode::OK, &json!({ "supported": false })))
        }
        _ => Err(no_route(call).into()),
    }
}

/// Finds a domain by its name or by our id.
async fn find(call: &AgentMailRequest, text: &str) -> Result<Domain, Problem> {
    let missing = || Problem::new(Code::NotFound, format!("there is no domain {text}"));
    if let Ok(id) = text.parse() {
        return call.engine.access.domains.domain(&call.caller, id).await;
    }
    let name = parse_domain_name(text).map_err(|_not_a_name| missing())?;
    let all = call.engine.access.domains.domains(&call.caller, None, MAX_SHORT_LIST).await?.rows;
    all.into_iter().find(|domain| domain.name == name).ok_or_else(missing)
}

/// A domain as in a list.
fn item_json(call: &AgentMailRequest, domain: &Domain) -> Value {
    json!({
        "pod_id": call.pod_id(),
        "domain_id": domain.name,
        "domain": domain.name,
        "feedback_enabled": true,
        "inbound_enabled": true,
        "subdomains_enabled": false,
        "tracking_enabled": false,
        "updated_at": domain.checked_at.unwrap_or(domain.created_at).to_string(),
        "created_at": domain.created_at.to_string(),
    })
}

fn record_json(entry: &DnsEntry) -> Value {
    let status = match entry.status {
        Some(DnsCheckResult::Found) => "VALID",
        Some(DnsCheckResult::Different) => "INVALID",
        Some(DnsCheckResult::Missing | DnsCheckResult::Unknown) | None => "MISSING",
    };
    let mut body = json!({ "type": "TXT", "name": entry.name, "value": entry.value, "status": status });
    if !entry.required {
        body["reason"] = "recommended; verification does not need it".into();
    }
    body
}

fn to_json(call: &AgentMailRequest, domain: &Domain) -> Value {
    let mut body = item_json(call, domain);
    body["status"] = match (domain.verified_at, domain.checked_at) {
        (Some(_), _) => "VERIFIED",
        (None, Some(_)) => "INVALID",
        (None, None) => "NOT_STARTED",
    }
    .into();
    body["records"] = domain.records.iter().map(record_json).collect::<Vec<_>>().into();
    body
}

async fn list(call: &AgentMailRequest) -> AgentMailResult {
    let limit = call.query.limit()?;
    let mut all = call.engine.access.domains.domains(&call.caller, None, MAX_SHORT_LIST).await?.rows;
    if call.query.flag("ascending")? {
        all.reverse();
    }
    let (found, next) = call.query.paginate(all)?;
    let domains = found.iter().map(|domain| item_json(call, domain)).collect();
    Ok(as_json(StatusCode::OK, &page_json("domains", domains, limit, next)))
}

async fn create(call: &AgentMailRequest) -> AgentMailResult {
    let body: DomainBody = call.parse()?;
    body.check()?;
    let name = body.domain.ok_or_else(|| Problem::invalid_field("domain", "is missing"))?;
    let name = parse_domain_name(&name).map_err(|problem| crate::dialects::rename_field(problem, "name", "domain"))?;
    let as_unprocessable = |problem: Problem| match problem.code {
        Code::NameTaken => problem.with_extension(UNPROCESSABLE, true),
        _ => problem,
    };
    let created =
        call.engine.access.domains.create_domain(&call.caller, &name, None).await.map_err(as_unprocessable)?;
    Ok(as_json(StatusCode::OK, &to_json(call, &created.value)))
}

/// Accepts the settings that every domain has, so that nothing is ever changed.
async fn change(call: &AgentMailRequest, id: &str) -> AgentMailResult {
    let body: DomainBody = call.parse()?;
    body.check()?;
    if body.domain.is_some() || body.allow_conflicting_provider.is_some() {
        return Err(Problem::invalid_field("domain", "can only be set for a new domain").into());
    }
    Ok(as_json(StatusCode::OK, &to_json(call, &find(call, id).await?)))
}

/// One line of a zone file. A value that is too long for one string is split.
fn zone_line(entry: &DnsEntry) -> String {
    let pieces: Vec<&[u8]> = entry.value.as_bytes().chunks(TXT_PIECE_BYTES).collect();
    let quoted = pieces.iter().map(|piece| {
        let escaped = String::from_utf8_lossy(piece).replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{escaped}\"")
    });
    format!("{}. 3600 IN TXT {}\n", entry.name.trim_end_matches('.'), quoted.collect::<Vec<_>>().join(" "))
}

async fn zone_file(call: &AgentMailRequest, id: &str) -> AgentMailResult {
    let domain = find(call, id).await?;
    let text: String = domain.records.iter().map(zone_line).collect();
    let mut response = text.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/dns"));
    Ok(response)
}
