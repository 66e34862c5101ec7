//! The useSend routes for sent emails: read, list, reschedule and cancel.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    access::team::ApiKeyScope,
    handoff::{EvidenceFinding, HandoffState, Outcome},
    id::EmailId,
    outbound::{
        content::EmailContent,
        email::{Email, EmailState},
        email_query::EmailQuery,
        schedule::Schedule,
    },
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::outbound::queries::EmailView;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{
    DialectPath, DialectQuery, OnePathParam, UseSend, UseSendRequest, UseSendRequestBody, UseSendResult, json,
    numeric_id, send::SendReceiptBody,
};
use crate::{dialects::field_problem, http::app::App};

/// Maximum and default number of rows per page.
const PAGE_ROWS: usize = 50;
/// Maximum number of emails that may be skipped to reach a page.
const MAX_OFFSET: usize = 10_000;

/// The nearest useSend status. Held counts as queued and unknown as delayed, so that neither looks like a success.
fn status(state: EmailState) -> &'static str {
    match state {
        EmailState::Scheduled => "SCHEDULED",
        EmailState::Queued | EmailState::Sending | EmailState::Held => "QUEUED",
        EmailState::Sent => "SENT",
        EmailState::Delivered => "DELIVERED",
        EmailState::Bounced => "BOUNCED",
        EmailState::Complained => "COMPLAINED",
        EmailState::Failed | EmailState::Abandoned => "FAILED",
        EmailState::Unknown => "DELIVERY_DELAYED",
        EmailState::Cancelled => "CANCELLED",
    }
}

/// The useSend status for the outcome of an attempt.
fn attempt_status(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Accepted => "SENT",
        Outcome::Deferred | Outcome::Unknown => "DELIVERY_DELAYED",
        Outcome::Refused => "FAILED",
    }
}

/// The useSend status for evidence that says more than the reply to an attempt.
fn evidence_status(finding: EvidenceFinding) -> Option<&'static str> {
    match finding {
        EvidenceFinding::Delivered => Some("DELIVERED"),
        EvidenceFinding::Delayed => Some("DELIVERY_DELAYED"),
        EvidenceFinding::Bounced => Some("BOUNCED"),
        EvidenceFinding::Complained => Some("COMPLAINED"),
        _ => None,
    }
}

/// When a status began, and the useSend status.
type StatusChange = (Time, &'static str);

/// The history of an email as useSend events, oldest first.
fn email_events(view: &EmailView) -> Vec<EmailEventBody> {
    let email = &view.detail.email;
    let was_scheduled = view.content.as_ref().is_some_and(|content| content.scheduled_at.is_some());
    let mut changes = vec![(email.head.created_at, if was_scheduled { "SCHEDULED" } else { "QUEUED" })];
    for attempt in &view.detail.attempts {
        changes
            .extend(attempt.outcome.map(|outcome| (attempt.ended_at.unwrap_or(attempt.at), attempt_status(outcome))));
    }
    for evidence in &view.detail.evidence {
        changes.extend(evidence_status(evidence.finding).map(|status| (evidence.at, status)));
    }
    let event = |(at, status): StatusChange| EmailEventBody {
        email_id: email.id.to_string(),
        status,
        created_at: at.to_string(),
        data: None,
    };
    order_status_changes(changes, email.state(), email.settled_at).into_iter().map(event).collect()
}

/// Sorts the status changes of all handoffs. A handoff that succeeded must not make the whole email look successful:
/// its status is never last while the email has another state, and is hidden while the email is held or unknown.
fn order_status_changes(
    mut changes: Vec<StatusChange>,
    state: EmailState,
    settled_at: Option<Time>,
) -> Vec<StatusChange> {
    let is_success = |status_text: &str| matches!(status_text, "SENT" | "DELIVERED");
    if matches!(state, EmailState::Unknown | EmailState::Held) {
        changes.retain(|(_, status_text)| !is_success(status_text));
    }
    let current = status(state);
    if let Some(at) = settled_at.filter(|_| changes.iter().all(|(_, status_text)| *status_text != current)) {
        changes.push((at, current));
    }
    changes.sort_by_key(|(at, _)| *at);
    if let Some((at, _)) =
        changes.last().copied().filter(|(_, status_text)| *status_text != current && is_success(status_text))
    {
        changes.push((at, current));
    }
    changes
}

/// Parses an email id. A malformed id gets a 404, like the id of an unknown email.
fn email_id(text: &str) -> Result<EmailId, Problem> {
    text.parse().map_err(|_not_an_id| missing_email())
}

fn missing_email() -> Problem {
    Problem::new(Code::NotFound, "Email not found")
}

/// Replaces the detail of a 404 by the message of the dialect.
fn with_dialect_message(problem: Problem) -> Problem {
    if problem.code == Code::NotFound { missing_email() } else { problem }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EmailEventBody {
    email_id: String,
    status: &'static str,
    created_at: String,
    data: Option<()>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EmailBody {
    id: String,
    team_id: i64,
    to: Vec<String>,
    reply_to: Vec<String>,
    cc: Vec<String>,
    bcc: Vec<String>,
    from: String,
    subject: String,
    html: Option<String>,
    text: Option<String>,
    created_at: String,
    updated_at: String,
    latest_status: &'static str,
    scheduled_at: Option<String>,
    domain_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email_events: Option<Vec<EmailEventBody>>,
}

impl EmailBody {
    fn of(email: &Email, content: Option<EmailContent>) -> Self {
        let head = &email.head;
        let scheduled = email.handoffs.iter().filter(|handoff| handoff.state == HandoffState::Scheduled);
        let mut body = Self {
            id: email.id.to_string(),
            team_id: numeric_id(email.team.0),
            to: head.to.clone(),
            reply_to: Vec::new(),
            cc: head.cc.clone(),
            bcc: head.bcc.clone(),
            from: head.from.clone(),
            subject: head.subject.clone(),
            html: None,
            text: None,
            created_at: head.created_at.to_string(),
            updated_at: email.settled_at.unwrap_or(head.created_at).to_string(),
            latest_status: status(email.state()),
            scheduled_at: scheduled.filter_map(|handoff| handoff.due_at).min().map(|at| at.to_string()),
            domain_id: None,
            email_events: None,
        };
        if let Some(content) = content {
            body.reply_to = content.reply_to.iter().map(|mailbox| mailbox.address.clone()).collect();
            (body.html, body.text) = (content.html, content.text);
        }
        body
    }
}

/// `GET /emails/{id}`.
pub(super) async fn read(
    State(app): State<App>,
    auth: UseSendRequest,
    DialectPath(name, ..): OnePathParam,
) -> UseSendResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let view = app.engine.outbound.email_view(&auth.caller, email_id(&name)?).await.map_err(with_dialect_message)?;
    let events = email_events(&view);
    let mut body = EmailBody::of(&view.detail.email, view.content);
    if let Some(latest) = events.last() {
        body.updated_at.clone_from(&latest.created_at);
    }
    body.email_events = Some(events);
    Ok(json(StatusCode::OK, &body))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UseSendEmailListQuery {
    page: Option<String>,
    limit: Option<String>,
    start_date: Option<String>,
    end_date: Option<String>,
    domain_id: Option<IgnoredAny>,
}

impl UseSendEmailListQuery {
    fn parse(&self) -> Result<(EmailQuery, usize), Problem> {
        if self.domain_id.is_some() {
            return Err(field_problem("domainId", "domainId is not supported; leave it out"));
        }
        let count = |field: &str, text: Option<&str>, max: usize, default: usize| match text {
            None => Ok(default),
            Some(text) => {
                let count = text.parse().ok().filter(|count| (1..=max).contains(count));
                count.ok_or_else(|| field_problem(field, format!("{field} must be a number from 1 to {max}")))
            }
        };
        let limit = count("limit", self.limit.as_deref(), PAGE_ROWS, PAGE_ROWS)?;
        let page = match self.page.as_deref().map(str::parse) {
            None => 1,
            Some(Ok(page)) if page > 0 => page,
            Some(_) => return Err(field_problem("page", "page must be a number of at least 1")),
        };
        let time = |field: &str, text: Option<&str>| {
            let parsed = text.map(|text| {
                Time::parse(text).ok_or_else(|| field_problem(field, format!("{field} must be an ISO 8601 time")))
            });
            parsed.transpose()
        };
        let since = time("startDate", self.start_date.as_deref())?;
        let until = time("endDate", self.end_date.as_deref())?;
        Ok((EmailQuery { since, until, limit, ..EmailQuery::default() }, page))
    }
}

#[derive(Serialize)]
struct ListBody {
    data: Vec<EmailBody>,
    count: u64,
}

/// `GET /emails`. The client asks for a page number, so earlier pages are skipped; `count` covers all pages.
pub(super) async fn list(
    State(app): State<App>,
    auth: UseSendRequest,
    DialectQuery(query, ..): DialectQuery<UseSendEmailListQuery, UseSend>,
) -> UseSendResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let (query, page) = query.parse()?;
    let count = app.engine.outbound.count_emails(&auth.caller, query.since, query.until).await?;
    let offset = (page - 1).saturating_mul(query.limit);
    let mut data = Vec::new();
    // A page after the last one is empty, not an error.
    if offset as u64 >= count {
        return Ok(json(StatusCode::OK, &ListBody { data, count }));
    }
    if offset > MAX_OFFSET {
        let text = format!("page is more than {MAX_OFFSET} emails deep; use endDate to list older emails");
        return Err(field_problem("page", text).into());
    }
    for email in load_page(&app, &auth, query, page).await? {
        let content = app.engine.outbound.email_view(&auth.caller, email.id).await?.content;
        data.push(EmailBody::of(&email, content));
    }
    Ok(json(StatusCode::OK, &ListBody { data, count }))
}

/// The rows of a page. The engine may return a short page although more rows follow, so this reads on.
async fn load_page(
    app: &App,
    auth: &UseSendRequest,
    mut query: EmailQuery,
    page: usize,
) -> Result<Vec<Email>, Problem> {
    let (limit, mut offset) = (query.limit, (page - 1) * query.limit);
    let mut found = Vec::new();
    loop {
        let rows = app.engine.outbound.emails(&auth.caller, query.clone()).await?;
        let skipped = offset.min(rows.rows.len());
        offset -= skipped;
        found.extend(rows.rows.into_iter().skip(skipped));
        found.truncate(limit);
        query.before = rows.next;
        if query.before.is_none() || found.len() == limit {
            return Ok(found);
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RescheduleBody {
    #[serde(default)]
    scheduled_at: Option<String>,
}

/// `PATCH /emails/{id}`.
pub(super) async fn reschedule(
    State(app): State<App>,
    auth: UseSendRequest,
    DialectPath(name, ..): OnePathParam,
    body: UseSendRequestBody,
) -> UseSendResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let id = email_id(&name)?;
    let text = body
        .parse::<RescheduleBody>()?
        .scheduled_at
        .ok_or_else(|| field_problem("scheduledAt", "scheduledAt is required"))?;
    let at = Time::parse(&text).ok_or_else(|| field_problem("scheduledAt", "scheduledAt must be an ISO 8601 time"))?;
    let email =
        app.engine.outbound.reschedule(&auth.caller, id, &Schedule::At(at)).await.map_err(with_dialect_message)?;
    Ok(json(StatusCode::OK, &SendReceiptBody { email_id: email.id.to_string() }))
}

/// `POST /emails/{id}/cancel`.
pub(super) async fn cancel(
    State(app): State<App>,
    auth: UseSendRequest,
    DialectPath(name, ..): OnePathParam,
) -> UseSendResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let keyed_call = auth.keyed_call("cancel", &name, b"");
    let email = app
        .engine
        .outbound
        .cancel(&auth.caller, email_id(&name)?, keyed_call)
        .await
        .map_err(with_dialect_message)?
        .value;
    Ok(json(StatusCode::OK, &SendReceiptBody { email_id: email.id.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_status_is_that_of_the_whole_email() {
        let ordered = |statuses: &[&'static str], state, settled: Option<i64>| -> Vec<&'static str> {
            let changes = statuses.iter().zip(1..).map(|(status, at)| (Time(at), *status)).collect();
            order_status_changes(changes, state, settled.map(Time)).into_iter().map(|(_, status)| status).collect()
        };
        assert_eq!(ordered(&["QUEUED", "SENT"], EmailState::Sent, Some(2)), ["QUEUED", "SENT"]);
        assert_eq!(ordered(&["QUEUED"], EmailState::Cancelled, Some(2)), ["QUEUED", "CANCELLED"]);
        assert_eq!(ordered(&["QUEUED", "DELIVERY_DELAYED"], EmailState::Queued, None), ["QUEUED", "DELIVERY_DELAYED"]);
        // The other handoffs are queued, sent but not delivered, bounced, unknown or held.
        assert_eq!(ordered(&["QUEUED", "SENT"], EmailState::Queued, None), ["QUEUED", "SENT", "QUEUED"]);
        assert_eq!(
            ordered(&["QUEUED", "SENT", "SENT", "DELIVERED"], EmailState::Sent, Some(3)),
            ["QUEUED", "SENT", "SENT", "DELIVERED", "SENT"]
        );
        assert_eq!(
            ordered(&["QUEUED", "BOUNCED", "SENT"], EmailState::Bounced, Some(3)),
            ["QUEUED", "BOUNCED", "SENT", "BOUNCED"]
        );
        assert_eq!(
            ordered(&["QUEUED", "DELIVERY_DELAYED", "SENT"], EmailState::Unknown, Some(3)),
            ["QUEUED", "DELIVERY_DELAYED"]
        );
        assert_eq!(ordered(&["QUEUED", "SENT"], EmailState::Held, None), ["QUEUED"]);
    }
}
