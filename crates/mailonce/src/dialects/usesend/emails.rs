//! Emails that were sent, in useSend's words: read, list, move, take back.

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
    DialectPath, DialectQuery, OnePathParam, Usesend, UsesendRequest, UsesendRequestBody, UsesendResult, json,
    numeric_id, send::SendReceiptBody,
};
use crate::{api::App, dialects::usesend::errors::invalid_field};

/// Rows of a page at the most, and when nobody says.
const PAGE_ROWS: usize = 50;
/// Emails that are passed over to come to a page.
const MAX_OFFSET: usize = 10_000;

/// The nearest word for a state. What is held waits, what is unknown is late: neither is told as a success.
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

/// The dialect's word for how an attempt ended.
fn attempt_status(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Accepted => "SENT",
        Outcome::Deferred | Outcome::Unknown => "DELIVERY_DELAYED",
        Outcome::Refused => "FAILED",
    }
}

/// The dialect's word for what a fact says, where it is more than the answer to an attempt.
fn evidence_status(says: EvidenceFinding) -> Option<&'static str> {
    match says {
        EvidenceFinding::Delivered => Some("DELIVERED"),
        EvidenceFinding::Delayed => Some("DELIVERY_DELAYED"),
        EvidenceFinding::Bounced => Some("BOUNCED"),
        EvidenceFinding::Complained => Some("COMPLAINED"),
        _ => None,
    }
}

/// When something happened, and the dialect's word for it.
type StatusChange = (Time, &'static str);

/// What happened to an email, in order and in the dialect's words.
fn email_events(view: &EmailView) -> Vec<EmailEventBody> {
    let email = &view.detail.email;
    let was_scheduled = view.content.as_ref().is_some_and(|content| content.scheduled_at.is_some());
    let mut facts = vec![(email.head.created_at, if was_scheduled { "SCHEDULED" } else { "QUEUED" })];
    for attempt in &view.detail.attempts {
        facts.extend(attempt.outcome.map(|outcome| (attempt.ended_at.unwrap_or(attempt.at), attempt_status(outcome))));
    }
    for fact in &view.detail.evidence {
        facts.extend(evidence_status(fact.says).map(|word| (fact.at, word)));
    }
    let told = |(at, status): StatusChange| EmailEventBody {
        email_id: email.id.to_string(),
        status,
        created_at: at.to_string(),
        data: None,
    };
    order_status_changes(facts, email.state(), email.settled_at).into_iter().map(told).collect()
}

/// What is told of all copies together, sorted. A copy that went well never has the last word about an email that did not
/// or not yet, and is not told at all while others are held or in doubt: either would read as a success of all.
fn order_status_changes(
    mut facts: Vec<StatusChange>,
    state: EmailState,
    settled_at: Option<Time>,
) -> Vec<StatusChange> {
    let went_well = |word: &str| matches!(word, "SENT" | "DELIVERED");
    if matches!(state, EmailState::Unknown | EmailState::Held) {
        facts.retain(|(_, word)| !went_well(word));
    }
    let end = status(state);
    if let Some(at) = settled_at.filter(|_| facts.iter().all(|(_, word)| *word != end)) {
        facts.push((at, end));
    }
    facts.sort_by_key(|(at, _)| *at);
    if let Some((at, _)) = facts.last().copied().filter(|(_, word)| *word != end && went_well(word)) {
        facts.push((at, end));
    }
    facts
}

/// A text that names no email of the team is not found, whatever it looks like.
fn email_id(text: &str) -> Result<EmailId, Problem> {
    text.parse().map_err(|_not_an_id| missing_email())
}

fn missing_email() -> Problem {
    Problem::new(Code::NotFound, "Email not found")
}

/// The dialect's sentence for an email that is not there.
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
    guest: UsesendRequest,
    DialectPath(name, ..): OnePathParam,
) -> UsesendResult {
    guest.caller.require_scope(ApiKeyScope::Read)?;
    let view = app.engine.email_view(&guest.caller, email_id(&name)?).await.map_err(with_dialect_message)?;
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
pub(super) struct UsesendEmailListQuery {
    page: Option<String>,
    limit: Option<String>,
    start_date: Option<String>,
    end_date: Option<String>,
    domain_id: Option<IgnoredAny>,
}

impl UsesendEmailListQuery {
    fn parse(&self) -> Result<(EmailQuery, usize), Problem> {
        if self.domain_id.is_some() {
            return Err(invalid_field("domainId", "domainId is not available here; leave it out"));
        }
        let count = |field: &str, text: Option<&str>, most: usize, usual: usize| match text {
            None => Ok(usual),
            Some(text) => {
                let count = text.parse().ok().filter(|count| (1..=most).contains(count));
                count.ok_or_else(|| invalid_field(field, format!("{field} is a number from 1 to {most}")))
            }
        };
        let limit = count("limit", self.limit.as_deref(), PAGE_ROWS, PAGE_ROWS)?;
        let page = match self.page.as_deref().map(str::parse) {
            None => 1,
            Some(Ok(page)) if page > 0 => page,
            Some(_) => return Err(invalid_field("page", "page is a number, counted from 1")),
        };
        let time = |field: &str, text: Option<&str>| {
            let read = text.map(|text| {
                Time::parse(text).ok_or_else(|| invalid_field(field, format!("{field} is an ISO 8601 time")))
            });
            read.transpose()
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

/// `GET /emails`. Pages are counted, so those before are passed over; `count` is of every page.
pub(super) async fn list(
    State(app): State<App>,
    guest: UsesendRequest,
    DialectQuery(query, ..): DialectQuery<UsesendEmailListQuery, Usesend>,
) -> UsesendResult {
    guest.caller.require_scope(ApiKeyScope::Read)?;
    let (query, page) = query.parse()?;
    let count = app.engine.count_emails(&guest.caller, query.since, query.until).await?;
    let passed = (page - 1).saturating_mul(query.limit);
    let mut data = Vec::new();
    // Behind the last page there is nothing, and that is no fault.
    if passed as u64 >= count {
        return Ok(json(StatusCode::OK, &ListBody { data, count }));
    }
    if passed > MAX_OFFSET {
        let text = format!("page is more than {MAX_OFFSET} emails deep; ask from there by endDate");
        return Err(invalid_field("page", text).into());
    }
    for email in load_page(&app, &guest, query, page).await? {
        let content = app.engine.email_view(&guest.caller, email.id).await?.content;
        data.push(EmailBody::of(&email, content));
    }
    Ok(json(StatusCode::OK, &ListBody { data, count }))
}

/// The rows of a page. What the ledger gives at a time may be short and have more behind it.
async fn load_page(
    app: &App,
    guest: &UsesendRequest,
    mut query: EmailQuery,
    page: usize,
) -> Result<Vec<Email>, Problem> {
    let (limit, mut passed) = (query.limit, (page - 1) * query.limit);
    let mut found = Vec::new();
    loop {
        let rows = app.engine.emails(&guest.caller, query.clone()).await?;
        let skipped = passed.min(rows.rows.len());
        passed -= skipped;
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
    guest: UsesendRequest,
    DialectPath(name, ..): OnePathParam,
    body: UsesendRequestBody,
) -> UsesendResult {
    guest.caller.require_scope(ApiKeyScope::Send)?;
    let id = email_id(&name)?;
    let text = body
        .parse::<RescheduleBody>()?
        .scheduled_at
        .ok_or_else(|| invalid_field("scheduledAt", "scheduledAt is required"))?;
    let at = Time::parse(&text).ok_or_else(|| invalid_field("scheduledAt", "scheduledAt is an ISO 8601 time"))?;
    let email = app.engine.reschedule(&guest.caller, id, &Schedule::At(at)).await.map_err(with_dialect_message)?;
    Ok(json(StatusCode::OK, &SendReceiptBody { email_id: email.id.to_string() }))
}

/// `POST /emails/{id}/cancel`.
pub(super) async fn cancel(
    State(app): State<App>,
    guest: UsesendRequest,
    DialectPath(name, ..): OnePathParam,
) -> UsesendResult {
    guest.caller.require_scope(ApiKeyScope::Send)?;
    let asked = guest.keyed_call("cancel", &name, b"");
    let email = app.engine.cancel(&guest.caller, email_id(&name)?, asked).await.map_err(with_dialect_message)?.value;
    Ok(json(StatusCode::OK, &SendReceiptBody { email_id: email.id.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_went_well_has_no_last_word_about_the_others() {
        let told = |words: &[&'static str], state, settled: Option<i64>| -> Vec<&'static str> {
            let facts = words.iter().zip(1..).map(|(word, at)| (Time(at), *word)).collect();
            order_status_changes(facts, state, settled.map(Time)).into_iter().map(|(_, word)| word).collect()
        };
        assert_eq!(told(&["QUEUED", "SENT"], EmailState::Sent, Some(2)), ["QUEUED", "SENT"]);
        assert_eq!(told(&["QUEUED"], EmailState::Cancelled, Some(2)), ["QUEUED", "CANCELLED"]);
        assert_eq!(told(&["QUEUED", "DELIVERY_DELAYED"], EmailState::Queued, None), ["QUEUED", "DELIVERY_DELAYED"]);
        // Others wait, are on their way to a mailbox, came back, are in doubt, are held.
        assert_eq!(told(&["QUEUED", "SENT"], EmailState::Queued, None), ["QUEUED", "SENT", "QUEUED"]);
        assert_eq!(
            told(&["QUEUED", "SENT", "SENT", "DELIVERED"], EmailState::Sent, Some(3)),
            ["QUEUED", "SENT", "SENT", "DELIVERED", "SENT"]
        );
        assert_eq!(
            told(&["QUEUED", "BOUNCED", "SENT"], EmailState::Bounced, Some(3)),
            ["QUEUED", "BOUNCED", "SENT", "BOUNCED"]
        );
        assert_eq!(
            told(&["QUEUED", "DELIVERY_DELAYED", "SENT"], EmailState::Unknown, Some(3)),
            ["QUEUED", "DELIVERY_DELAYED"]
        );
        assert_eq!(told(&["QUEUED", "SENT"], EmailState::Held, None), ["QUEUED"]);
    }
}
