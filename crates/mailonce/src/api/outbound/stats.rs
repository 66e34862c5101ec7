//! What the charts of the dashboard show: accepted emails, duplicates and states over time, and what waits for a person.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    conversation::escalation::EscalationState, limits, outbound::email_query::EmailStats, problem::Problem, time::Time,
};
use mailonce_engine::conversation::escalations::EscalationQuery;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

use crate::http::{
    app::{ApiResult, App},
    extract::AuthedRequest,
    params::QueryParams,
};

/// The longest span, in hours.
pub(crate) const MAX_HOURS: i64 = 24 * 31;
/// The aim for the number of buckets. A bar chart with more is hard to read.
const MAX_BUCKETS: i64 = 31;
const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// Sizes of buckets. The first that makes at most `MAX_BUCKETS` is used.
const BUCKETS_MS: [i64; 5] = [2 * MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS];

/// The span of the statistics.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatsQuery {
    /// Length of the span in hours, up to now: 1 to 744; 24 by default. With 0 no email is counted, which makes the
    /// call cheap for a client that needs `needs_you` alone.
    hours: Option<String>,
}

/// Statistics of a team's emails. An email counts at the time when it was accepted.
#[derive(Serialize, ToSchema)]
pub(crate) struct StatsBody {
    since: String,
    until: String,
    /// Length of a bucket in seconds.
    bucket_s: i64,
    #[serde(flatten)]
    total: StatsCountsBody,
    /// Open escalations by reason: what waits for a person now. At most 1,000 are counted.
    needs_you: BTreeMap<&'static str, u64>,
    /// The same numbers for each part of the span, oldest first.
    buckets: Vec<StatsBucketBody>,
}

/// Emails that were accepted in a span of time.
#[derive(Serialize, ToSchema)]
pub(crate) struct StatsCountsBody {
    /// Number of accepted emails.
    accepted: u64,
    /// Number of repeated calls: they got one of these emails back, or were refused because they asked for a different email.
    duplicates: u64,
    /// Number of handoffs by their current state. An email to several recipients may have several.
    states: BTreeMap<&'static str, u64>,
}

/// A part of the span.
#[derive(Serialize, ToSchema)]
pub(crate) struct StatsBucketBody {
    /// Its beginning.
    at: String,
    #[serde(flatten)]
    counts: StatsCountsBody,
}

impl From<&EmailStats> for StatsCountsBody {
    fn from(stats: &EmailStats) -> Self {
        let states = stats.handoffs.iter().map(|(state, count)| (state.as_str(), *count)).collect();
        Self { accepted: stats.accepted, duplicates: stats.duplicates, states }
    }
}

/// Bounds of the buckets that end with the one that contains `now`, and their length in milliseconds. Zero hours have one
/// bound and no bucket.
fn bucket_bounds(hours: i64, now: Time) -> (Vec<Time>, i64) {
    let span = hours * HOUR_MS;
    let length = BUCKETS_MS.into_iter().find(|length| span / length <= MAX_BUCKETS).unwrap_or(24 * HOUR_MS);
    let end = (now.0 / length + 1) * length;
    let count = span / length;
    ((0..=count).map(|n| Time(end - (count - n) * length)).collect(), length)
}

/// Read statistics: accepted emails, duplicates, states, and what waits for a person.
#[utoipa::path(get, path = "/v1/stats", operation_id = "read_stats", tag = "emails", params(StatsQuery),
    responses((status = 200, description = "The statistics", body = StatsBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, query: QueryParams<StatsQuery>) -> ApiResult {
    let hours = query.0.hours.as_deref().map_or(Some(24), |text| text.parse().ok());
    let hours = hours.filter(|hours| (0..=MAX_HOURS).contains(hours));
    let hours = hours.ok_or_else(|| Problem::invalid_query("hours", format!("hours must be 0 to {MAX_HOURS}")))?;
    let (bounds, length) = bucket_bounds(hours, app.engine.ctx.now());
    let spans = app.engine.outbound.email_stats(&auth.caller, &bounds).await?;
    let mut total = EmailStats::default();
    spans.iter().for_each(|span| total.add(span));
    let bucket = |(at, stats): (&Time, &EmailStats)| StatsBucketBody { at: at.to_string(), counts: stats.into() };
    let time = |at: Option<&Time>| at.map(Time::to_string).unwrap_or_default();
    Ok(Json(StatsBody {
        since: time(bounds.first()),
        until: time(bounds.last()),
        bucket_s: length / 1000,
        total: (&total).into(),
        needs_you: open_escalations(&app, &auth).await?,
        buckets: bounds.iter().zip(&spans).map(bucket).collect(),
    })
    .into_response())
}

/// Open escalations by reason.
async fn open_escalations(app: &App, auth: &AuthedRequest) -> Result<BTreeMap<&'static str, u64>, Problem> {
    let (mut counts, mut before) = (BTreeMap::new(), None);
    for _ in 0..10 {
        let query = EscalationQuery { state: Some(EscalationState::Open), reason: None };
        let page = app.engine.escalations.escalations(&auth.caller, query, before, limits::PAGE_ROWS).await?;
        page.rows.iter().for_each(|row| *counts.entry(row.escalation.reason.as_str()).or_default() += 1);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_the_span_up_to_now() {
        let now = Time(1_763_500_123_456);
        for (hours, length, count) in [(1, 2, 30), (2, 10, 12), (24, 60, 24), (168, 360, 28), (744, 1440, 31)] {
            let (bounds, length_ms) = bucket_bounds(hours, now);
            assert_eq!((length_ms, bounds.len()), (length * MINUTE_MS, count + 1), "{hours}");
            assert!(bounds.windows(2).all(|pair| pair[1].0 - pair[0].0 == length_ms));
            assert!(bounds[count - 1] <= now && now < bounds[count]);
        }
        assert_eq!(bucket_bounds(0, now).0.len(), 1);
    }
}
