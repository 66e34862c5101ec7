//! AgentMail's metrics, of the team or of one inbox, counted from the mails themselves.

use axum::http::{Method, StatusCode};
use mailonce_core::{
    access::team::ApiKeyScope,
    inbound::sender_auth::AuthResult,
    inbox::{
        Inbox,
        message::{Message, MessagePosition, MessageQuery},
    },
    limits,
    outbound::email_query::EmailQuery,
    problem::Problem,
    time::Time,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use super::{AgentMailResult, no_route, request::AgentMailRequest};
use crate::dialects::{
    email_counts::{DAY_MS, EmailCounts, emails_to_count, range_query},
    json as as_json, may_list_domains,
    pagination::MAX_SHORT_LIST,
};

/// The default range ends now and begins this long before, in milliseconds.
const DEFAULT_RANGE_MS: i64 = 7 * DAY_MS;
/// The default length of a bucket in seconds.
const DEFAULT_PERIOD_S: i64 = 86_400;
/// Maximum number of buckets.
const MAX_BUCKETS: i64 = 1_000;
/// The event types that mailonce counts.
const EVENT_TYPES: [&str; 7] = [
    "message.received",
    "message.received.unauthenticated",
    "message.sent",
    "message.delivered",
    "message.bounced",
    "message.complained",
    "message.rejected",
];
/// The event types of AgentMail that never happen here.
const OTHER_TYPES: [&str; 3] = ["message.received.spam", "message.received.blocked", "domain.verified"];
/// The usage that mailonce counts.
const USAGE_TYPES: [&str; 3] = ["inbox_count", "domain_count", "pod_count"];
/// The usage of AgentMail that mailonce does not count.
const OTHER_USAGE: [&str; 3] = ["storage_bytes", "message_count", "thread_count"];

/// The range of a request, and how it is divided.
struct MetricsRange {
    start: Time,
    end: Time,
    period_ms: i64,
    limit: usize,
    descending: bool,
}

impl MetricsRange {
    fn parse(call: &AgentMailRequest) -> Result<Self, Problem> {
        let end = call.query.time("end")?.unwrap_or_else(|| call.engine.ctx.now());
        let start = call.query.time("start")?.unwrap_or_else(|| end.plus(-DEFAULT_RANGE_MS));
        let number = |name: &str, default: i64| match call.query.last(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .ok()
                .filter(|number| *number > 0)
                .ok_or_else(|| Problem::invalid_query(name, format!("{name} must be a number of at least 1"))),
        };
        let period_ms = number("period", DEFAULT_PERIOD_S)?.saturating_mul(1_000);
        if start > end || end.since(start) / period_ms >= MAX_BUCKETS {
            let text = format!("start must be before end, with at most {MAX_BUCKETS} periods between them");
            return Err(Problem::invalid_query("start", text));
        }
        let limit = usize::try_from(number("limit", MAX_BUCKETS)?).unwrap_or(usize::MAX);
        Ok(Self { start, end, period_ms, limit, descending: call.query.flag("descending")? })
    }

    /// The first instant of the bucket that holds an instant.
    fn bucket(&self, at: Time) -> Time {
        Time(at.0.div_euclid(self.period_ms) * self.period_ms)
    }

    /// The buckets with a count, in order.
    fn to_json(&self, counts: &BTreeMap<Time, u64>) -> Value {
        let row = |(at, count): (&Time, &u64)| json!({ "timestamp": at.to_string(), "count": count });
        let mut rows: Vec<Value> = counts.iter().filter(|(_, count)| **count > 0).map(row).collect();
        if self.descending {
            rows.reverse();
        }
        rows.truncate(self.limit);
        rows.into()
    }
}

pub(super) async fn route(call: &AgentMailRequest, inbox: Option<&str>, rest: &[&str]) -> AgentMailResult {
    call.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = match inbox {
        Some(name) => Some(call.inbox(name).await?),
        None => None,
    };
    match (&call.method, rest) {
        (&Method::GET, ["events"]) => events(call, inbox.as_ref()).await,
        (&Method::GET, ["usage"]) => usage(call, inbox.as_ref()).await,
        _ => Err(no_route(call).into()),
    }
}

/// The requested types; all that mailonce counts if the request names none.
fn requested(call: &AgentMailRequest, name: &str, known: &[&str], others: &[&str]) -> Result<Vec<String>, Problem> {
    let types = call.query.list(name)?;
    let is_known = |wanted: &&String| known.contains(&wanted.as_str()) || others.contains(&wanted.as_str());
    if let Some(unknown) = types.iter().find(|wanted| !is_known(wanted)) {
        return Err(Problem::invalid_query(name, format!("{name} names {unknown}; use {}", known.join(", "))));
    }
    Ok(if types.is_empty() { known.iter().map(ToString::to_string).collect() } else { types })
}

/// The counts of each event type by bucket. A mail counts when it was accepted or received.
async fn events(call: &AgentMailRequest, inbox: Option<&Inbox>) -> AgentMailResult {
    let range = MetricsRange::parse(call)?;
    let types = requested(call, "event_types", &EVENT_TYPES, &OTHER_TYPES)?;
    let mut counts: BTreeMap<&str, BTreeMap<Time, u64>> = BTreeMap::new();
    let from = inbox.map(|inbox| vec![inbox.address.clone()]);
    let query = EmailQuery { from, ..range_query(range.start, range.end) };
    for email in &emails_to_count(&call.engine, &call.caller, query).await? {
        let of_email = EmailCounts::of([email]);
        let found = [
            ("message.sent", of_email.sent),
            ("message.delivered", of_email.delivered),
            ("message.bounced", of_email.bounced),
            ("message.complained", of_email.complained),
            ("message.rejected", of_email.failed),
        ];
        for (name, count) in found {
            *counts.entry(name).or_default().entry(range.bucket(email.head.created_at)).or_default() += count;
        }
    }
    for message in received(call, inbox, &range).await? {
        let unauthenticated = message.head.auth.verdict == AuthResult::Fail;
        let name = if unauthenticated { "message.received.unauthenticated" } else { "message.received" };
        *counts.entry(name).or_default().entry(range.bucket(message.received_at)).or_default() += 1;
    }
    let none = BTreeMap::new();
    let bucket_list = |name: String| {
        let buckets = range.to_json(counts.get(name.as_str()).unwrap_or(&none));
        (name, buckets)
    };
    let body: Map<String, Value> = types.into_iter().map(bucket_list).collect();
    Ok(as_json(StatusCode::OK, &body))
}

/// The messages that were received in a range.
async fn received(
    call: &AgentMailRequest,
    inbox: Option<&Inbox>,
    range: &MetricsRange,
) -> Result<Vec<Message>, Problem> {
    let inboxes = match inbox {
        Some(inbox) => vec![inbox.clone()],
        None => call.engine.inboxes.inboxes(&call.caller, None, MAX_SHORT_LIST).await?.rows,
    };
    let mut found = Vec::new();
    for inbox in inboxes {
        let mut position = MessagePosition::Before(u64::MAX);
        loop {
            let query = MessageQuery { position, limit: limits::PAGE_ROWS, ..MessageQuery::default() };
            let page = call.engine.inboxes.messages(&call.caller, inbox.id, query).await?;
            let is_before = page.rows.last().is_some_and(|message| message.received_at < range.start);
            let in_range = |message: &Message| (range.start..range.end).contains(&message.received_at);
            found.extend(page.rows.into_iter().filter(in_range));
            match page.next {
                Some(next) if !is_before => position = MessagePosition::Before(next),
                _ => break,
            }
            if found.len() > limits::SCAN_ROWS {
                let text = format!("more than {} mails are in this range; ask for a shorter one", limits::SCAN_ROWS);
                return Err(Problem::invalid_query("start", text));
            }
        }
    }
    Ok(found)
}

/// What the team has now, as one point in time.
async fn usage(call: &AgentMailRequest, inbox: Option<&Inbox>) -> AgentMailResult {
    let types = requested(call, "usage_types", &USAGE_TYPES, &OTHER_USAGE)?;
    let now = call.engine.ctx.now().to_string();
    let mut body = Map::new();
    for name in types {
        let value = match (name.as_str(), inbox) {
            ("inbox_count", Some(_)) | ("pod_count", None) => 1,
            ("inbox_count", None) => inbox_count(call).await?,
            ("domain_count", None) if may_list_domains(&call.caller) => domain_count(call).await?,
            _ => continue,
        };
        body.insert(name, json!([{ "timestamp": now, "value": value }]));
    }
    Ok(as_json(StatusCode::OK, &body))
}

pub(super) async fn inbox_count(call: &AgentMailRequest) -> Result<usize, Problem> {
    Ok(call.engine.inboxes.inboxes(&call.caller, None, MAX_SHORT_LIST).await?.rows.len())
}

pub(super) async fn domain_count(call: &AgentMailRequest) -> Result<usize, Problem> {
    Ok(call.engine.access.domains.domains(&call.caller, None, MAX_SHORT_LIST).await?.rows.len())
}
