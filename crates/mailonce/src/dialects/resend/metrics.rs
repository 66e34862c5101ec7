//! Resend's metrics of sent emails, counted from the emails themselves.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    access::team::ApiKeyScope,
    outbound::email::Email,
    problem::{Code, Problem},
    time::Time,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use super::{DialectQuery, ResendDialect, ResendRequest, ResendResult, thread_search::parse_date, threads::split_list};
use crate::{
    dialects::{
        email_counts::{DAY_MS, EmailCounts, emails_to_count, range_query, rate},
        json as as_json, may_list_domains,
        pagination::MAX_SHORT_LIST,
    },
    http::app::App,
};

/// The default range ends now and begins this long before, in milliseconds.
const DEFAULT_RANGE_MS: i64 = 6 * DAY_MS;
/// The metrics that mailonce knows.
const METRICS: [&str; 11] = [
    "delivered",
    "complained",
    "suppressed",
    "bounced",
    "bounced_permanent",
    "delivery_delayed",
    "failed",
    "sent",
    "delivery_rate",
    "bounce_rate",
    "complaint_rate",
];
const DIMENSIONS: [&str; 3] = ["period", "domain", "email"];
const GRANULARITIES: [&str; 4] = ["hourly", "daily", "weekly", "monthly"];

#[derive(Deserialize)]
pub(super) struct MetricsQuery {
    start_date: Option<String>,
    end_date: Option<String>,
    timezone: Option<String>,
    granularity: Option<String>,
    metrics: Option<String>,
    dimensions: Option<String>,
    domain_id: Option<String>,
    email_id: Option<String>,
    broadcast_id: Option<String>,
}

/// A parsed request for metrics.
struct MetricsRequest {
    start: Time,
    end: Time,
    granularity: String,
    metrics: Vec<String>,
    dimensions: Vec<String>,
    domains: Vec<String>,
    emails: Vec<String>,
}

impl MetricsQuery {
    fn parse(&self, now: Time) -> Result<MetricsRequest, Problem> {
        if self.timezone.as_deref().is_some_and(|zone| zone != "UTC") {
            return Err(Problem::invalid_query("timezone", "Periods are counted in `UTC`; leave `timezone` out."));
        }
        if self.broadcast_id.is_some() {
            return Err(Problem::invalid_query("broadcast_id", "Broadcasts are not available; leave it out."));
        }
        let end = parse_date("end_date", self.end_date.as_deref())?.unwrap_or(now);
        let start =
            parse_date("start_date", self.start_date.as_deref())?.unwrap_or_else(|| end.plus(-DEFAULT_RANGE_MS));
        if start > end {
            return Err(Problem::invalid_query("start_date", "The `start_date` must not be after the `end_date`."));
        }
        let mut metrics = parse_choices("metrics", self.metrics.as_deref(), &METRICS)?;
        if metrics.is_empty() {
            metrics = METRICS.map(str::to_owned).into();
        }
        let granularity = parse_choices("granularity", self.granularity.as_deref(), &GRANULARITIES)?;
        Ok(MetricsRequest {
            start,
            end,
            granularity: granularity.first().map_or_else(|| "daily".to_owned(), Clone::clone),
            metrics,
            dimensions: parse_choices("dimensions", self.dimensions.as_deref(), &DIMENSIONS)?,
            domains: split_list(self.domain_id.as_deref()),
            emails: split_list(self.email_id.as_deref()),
        })
    }
}

fn parse_choices(field: &str, text: Option<&str>, choices: &[&str]) -> Result<Vec<String>, Problem> {
    let chosen = split_list(text);
    if chosen.iter().all(|one| choices.contains(&one.as_str())) {
        return Ok(chosen);
    }
    Err(Problem::invalid_query(field, format!("The `{field}` must be among `{}`.", choices.join("`, `"))))
}

/// The first instant of the period that holds an instant, in UTC.
fn period_of(at: Time, granularity: &str) -> String {
    let text = at.to_string();
    let part = |length: usize| text.get(..length).unwrap_or_default().to_owned();
    match granularity {
        "hourly" => format!("{}:00:00.000Z", part(13)),
        "monthly" => format!("{}-01T00:00:00.000Z", part(7)),
        "weekly" => {
            // 1970-01-01 was a Thursday, and weeks begin on Mondays.
            let day = at.0.div_euclid(DAY_MS);
            Time((day - (day + 3).rem_euclid(7)) * DAY_MS).to_string()
        }
        _ => format!("{}T00:00:00.000Z", part(10)),
    }
}

fn domain_of(email: &Email) -> &str {
    email.head.from.rsplit_once('@').map_or("", |(_, domain)| domain)
}

/// The requested metrics of some emails.
fn metrics_json(counts: EmailCounts, metrics: &[String]) -> Map<String, Value> {
    let value = |name: &str| match name {
        "delivered" => json!(counts.delivered),
        "complained" => json!(counts.complained),
        "suppressed" => json!(counts.suppressed),
        // Only permanent bounces are recorded as bounces.
        "bounced" | "bounced_permanent" => json!(counts.bounced),
        "delivery_delayed" => json!(counts.delayed),
        "failed" => json!(counts.failed),
        "delivery_rate" => json!(rate(counts.delivered, counts.sent)),
        "bounce_rate" => json!(rate(counts.bounced, counts.sent)),
        "complaint_rate" => json!(rate(counts.complained, counts.sent)),
        _ => json!(counts.sent),
    };
    metrics.iter().map(|name| (name.clone(), value(name))).collect()
}

/// The ids of the team's domains by name. Empty for a caller who may not see them.
async fn domain_ids(app: &App, auth: &ResendRequest) -> Result<BTreeMap<String, String>, Problem> {
    if !may_list_domains(&auth.caller) {
        return Ok(BTreeMap::new());
    }
    let domains = app.engine.access.domains.domains(&auth.caller, None, MAX_SHORT_LIST).await?.rows;
    Ok(domains.into_iter().map(|domain| (domain.name, domain.id.to_string())).collect())
}

/// One row for each combination of the dimensions.
fn rows(request: &MetricsRequest, emails: &[Email], domain_ids: &BTreeMap<String, String>) -> Vec<Value> {
    let mut groups: BTreeMap<Vec<String>, Vec<&Email>> = BTreeMap::new();
    for email in emails {
        let value = |dimension: &String| match dimension.as_str() {
            "period" => period_of(email.head.created_at, &request.granularity),
            "domain" => domain_of(email).to_owned(),
            _ => email.id.to_string(),
        };
        groups.entry(request.dimensions.iter().map(value).collect()).or_default().push(email);
    }
    let row = |(key, group): (Vec<String>, Vec<&Email>)| {
        let mut row = metrics_json(EmailCounts::of(group), &request.metrics);
        for (dimension, value) in request.dimensions.iter().zip(key) {
            match dimension.as_str() {
                "period" => drop(row.insert("period".to_owned(), value.into())),
                "domain" => {
                    row.insert("domain_id".to_owned(), json!(domain_ids.get(&value)));
                    row.insert("domain_name".to_owned(), value.into());
                }
                _ => drop(row.insert("email_id".to_owned(), value.into())),
            }
        }
        Value::Object(row)
    };
    groups.into_iter().map(row).collect()
}

/// `GET /emails/metrics`. An email counts in the period in which it was accepted.
pub(super) async fn read(
    State(app): State<App>,
    auth: ResendRequest,
    DialectQuery(query, ..): DialectQuery<MetricsQuery, ResendDialect>,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let request = query.parse(app.engine.ctx.now())?;
    let domain_ids = domain_ids(&app, &auth).await?;
    if request.domains.iter().any(|id| !domain_ids.values().any(|known| known == id)) {
        return Err(Problem::new(Code::NotFound, "Domain not found").into());
    }
    let mut emails = emails_to_count(&app.engine, &auth.caller, range_query(request.start, request.end)).await?;
    let is_wanted = |list: &[String], id: &str| list.is_empty() || list.iter().any(|one| one == id);
    emails.retain(|email| {
        let domain = domain_ids.get(domain_of(email)).map(String::as_str).unwrap_or_default();
        is_wanted(&request.emails, &email.id.to_string()) && is_wanted(&request.domains, domain)
    });
    let mut body = json!({
        "object": "metrics",
        "start_date": request.start.to_string(),
        "end_date": request.end.to_string(),
        "metrics": request.metrics,
        "dimensions": request.dimensions,
        "granularity": request.granularity,
        "totals": metrics_json(EmailCounts::of(&emails), &request.metrics),
    });
    if !request.dimensions.is_empty() {
        body["data"] = rows(&request, &emails, &domain_ids).into();
    }
    Ok(as_json(StatusCode::OK, &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_begin_at_their_first_instant() {
        let at = Time::parse("2026-11-18T14:35:07.123Z").unwrap_or_default();
        for (granularity, first) in [
            ("hourly", "2026-11-18T14:00:00.000Z"),
            ("daily", "2026-11-18T00:00:00.000Z"),
            ("weekly", "2026-11-16T00:00:00.000Z"),
            ("monthly", "2026-11-01T00:00:00.000Z"),
        ] {
            assert_eq!(period_of(at, granularity), first);
        }
    }
}
