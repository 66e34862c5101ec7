//! useSend's analytics, counted from the sent emails. Nothing is tracked, so opens and clicks are 0.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{access::team::ApiKeyScope, outbound::email::Email, problem::Problem, time::Time};
use serde::{Deserialize, Serialize};

use super::{DialectQuery, UseSend, UseSendRequest, UseSendResult, domains::find_by_number, json};
use crate::{
    dialects::{
        email_counts::{DAY_MS, EmailCounts, emails_to_count, range_query, rate},
        field_problem,
    },
    http::app::App,
};

/// The days of a time series without `days`, and of the reputation.
const DEFAULT_DAYS: i64 = 30;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AnalyticsQuery {
    days: Option<String>,
    domain_id: Option<String>,
}

#[derive(Serialize)]
struct CountsBody {
    sent: u64,
    delivered: u64,
    opened: u64,
    clicked: u64,
    bounced: u64,
    complained: u64,
}

impl From<EmailCounts> for CountsBody {
    fn from(counts: EmailCounts) -> Self {
        let EmailCounts { sent, delivered, bounced, complained, .. } = counts;
        Self { sent, delivered, opened: 0, clicked: 0, bounced, complained }
    }
}

#[derive(Serialize)]
struct DayBody {
    date: String,
    #[serde(flatten)]
    counts: CountsBody,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TimeSeriesBody {
    result: Vec<DayBody>,
    total_counts: CountsBody,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReputationBody {
    delivered: u64,
    hard_bounced: u64,
    complained: u64,
    bounce_rate: f64,
    complaint_rate: f64,
}

/// The emails of the last days, and the number of the first of these days since 1970, in UTC.
async fn latest_emails(
    app: &App,
    auth: &UseSendRequest,
    query: &AnalyticsQuery,
    days: i64,
) -> Result<(Vec<Email>, i64), Problem> {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let now = app.engine.ctx.now();
    let first_day = now.0.div_euclid(DAY_MS) - days + 1;
    let range = range_query(Time(first_day * DAY_MS), now.plus(1));
    let mut emails = emails_to_count(&app.engine, &auth.caller, range).await?;
    if let Some(id) = &query.domain_id {
        let domain = format!("@{}", find_by_number(app, auth, id).await?.name);
        emails.retain(|email| email.head.from.ends_with(&domain));
    }
    Ok((emails, first_day))
}

/// `GET /analytics/email-time-series`. An email counts on the day on which it was accepted, in UTC.
pub(super) async fn time_series(
    State(app): State<App>,
    auth: UseSendRequest,
    DialectQuery(query, ..): DialectQuery<AnalyticsQuery, UseSend>,
) -> UseSendResult {
    let days = match query.days.as_deref() {
        None | Some("30") => DEFAULT_DAYS,
        Some("7") => 7,
        Some(_) => return Err(field_problem("days", "days must be 7 or 30").into()),
    };
    let (emails, first_day) = latest_emails(&app, &auth, &query, days).await?;
    let day_body = |day: i64| {
        let of_day = emails.iter().filter(|email| email.head.created_at.0.div_euclid(DAY_MS) == day);
        let date = Time(day * DAY_MS).to_string().chars().take(10).collect();
        DayBody { date, counts: EmailCounts::of(of_day).into() }
    };
    let result = (first_day..first_day + days).map(day_body).collect();
    let total_counts = EmailCounts::of(&emails).into();
    Ok(json(StatusCode::OK, &TimeSeriesBody { result, total_counts }))
}

/// `GET /analytics/reputation-metrics`, of the last 30 days. Rates are percentages of the emails that were sent.
pub(super) async fn reputation(
    State(app): State<App>,
    auth: UseSendRequest,
    DialectQuery(query, ..): DialectQuery<AnalyticsQuery, UseSend>,
) -> UseSendResult {
    let (emails, _) = latest_emails(&app, &auth, &query, DEFAULT_DAYS).await?;
    let counts = EmailCounts::of(&emails);
    let body = ReputationBody {
        delivered: counts.delivered,
        hard_bounced: counts.bounced,
        complained: counts.complained,
        bounce_rate: 100.0 * rate(counts.bounced, counts.sent),
        complaint_rate: 100.0 * rate(counts.complained, counts.sent),
    };
    Ok(json(StatusCode::OK, &body))
}
