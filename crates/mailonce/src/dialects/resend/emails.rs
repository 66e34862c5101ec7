//! The Resend routes for sent emails: read, list, reschedule and cancel.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    access::team::ApiKeyScope,
    handoff::HandoffState,
    outbound::{
        content::EmailContent,
        email::{Email, EmailState},
        schedule::{Schedule, ScheduleError},
    },
    problem::{Code, Problem},
};
use serde::{Deserialize, Serialize};

use super::{
    DialectPath, DialectQuery, OnePathParam, PageParams, ResendRequest, ResendRequestBody, ResendResult, json,
    list_response, object_response, parse_id,
};
use crate::{
    dialects::{email_counts::is_suppressed, field_problem, pagination, resend::errors::missing_field},
    http::app::App,
};

#[derive(Serialize)]
struct TagBody {
    name: String,
    value: String,
}

/// An email. Lists omit its content.
#[derive(Serialize)]
struct EmailBody {
    object: &'static str,
    id: String,
    message_id: String,
    from: String,
    to: Vec<String>,
    cc: Option<Vec<String>>,
    bcc: Option<Vec<String>>,
    reply_to: Option<Vec<String>>,
    subject: String,
    created_at: String,
    scheduled_at: Option<String>,
    last_event: &'static str,
    #[serde(flatten)]
    words: Option<EmailContentBody>,
}

#[derive(Serialize)]
struct EmailContentBody {
    html: Option<String>,
    text: Option<String>,
    tags: Vec<TagBody>,
    topic_id: Option<String>,
}

/// The nearest Resend event. Held counts as queued and unknown as delayed, so that neither looks like a success.
pub(super) fn last_event(state: EmailState) -> &'static str {
    match state {
        EmailState::Scheduled => "scheduled",
        EmailState::Queued | EmailState::Sending | EmailState::Held => "queued",
        EmailState::Sent => "sent",
        EmailState::Delivered => "delivered",
        EmailState::Bounced => "bounced",
        EmailState::Complained => "complained",
        EmailState::Failed | EmailState::Abandoned => "failed",
        EmailState::Unknown => "delivery_delayed",
        EmailState::Cancelled => "canceled",
    }
}

/// A mailbox as `Name <address>`.
fn format_mailbox(mailbox: &mailonce_core::address::NamedAddress) -> String {
    match &mailbox.name {
        Some(name) => format!("{name} <{}>", mailbox.address),
        None => mailbox.address.clone(),
    }
}

fn non_empty(list: Vec<String>) -> Option<Vec<String>> {
    Some(list).filter(|list| !list.is_empty())
}

impl EmailBody {
    /// The body without the content, which is stored apart from the email row.
    fn of(app: &App, email: &Email) -> Self {
        let head = &email.head;
        let scheduled = email.handoffs.iter().filter(|handoff| handoff.state == HandoffState::Scheduled);
        Self {
            object: "email",
            id: email.id.to_string(),
            message_id: app.engine.ctx.message_id(email),
            from: head.from.clone(),
            to: head.to.clone(),
            cc: non_empty(head.cc.clone()),
            bcc: non_empty(head.bcc.clone()),
            reply_to: None,
            subject: head.subject.clone(),
            created_at: head.created_at.to_string(),
            scheduled_at: scheduled.filter_map(|handoff| handoff.due_at).min().map(|at| at.to_string()),
            last_event: if is_suppressed(email) { "suppressed" } else { last_event(email.state()) },
            words: None,
        }
    }

    /// Adds the content, if it is still stored.
    fn with(mut self, content: Option<EmailContent>) -> Self {
        let mut content_body = EmailContentBody { html: None, text: None, tags: Vec::new(), topic_id: None };
        if let Some(content) = content {
            let format_all =
                |list: &[mailonce_core::address::NamedAddress]| list.iter().map(format_mailbox).collect::<Vec<_>>();
            self.from = format_mailbox(&content.from);
            self.to = format_all(&content.to);
            self.cc = non_empty(format_all(&content.cc));
            self.bcc = non_empty(format_all(&content.bcc));
            self.reply_to = non_empty(format_all(&content.reply_to));
            let tag = |(name, value): (String, Option<String>)| TagBody { name, value: value.unwrap_or_default() };
            content_body.tags = content.tags.into_iter().map(tag).collect();
            (content_body.html, content_body.text) = (content.html, content.text);
        }
        self.words = Some(content_body);
        self
    }
}

/// Replaces the detail of a 404 by the message of the dialect.
fn with_dialect_message(problem: Problem) -> Problem {
    if problem.code == Code::NotFound { Problem::new(Code::NotFound, "Email not found") } else { problem }
}

/// `GET /emails/{id}`.
pub(super) async fn read(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let view = app.engine.outbound.email_view(&auth.caller, parse_id(&name)?).await.map_err(with_dialect_message)?;
    Ok(json(StatusCode::OK, &EmailBody::of(&app, &view.detail.email).with(view.content)))
}

/// `GET /emails`.
pub(super) async fn list(
    State(app): State<App>,
    auth: ResendRequest,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let rows = pagination::emails(&app.engine, &auth.caller, query.parse()?).await?;
    Ok(list_response(rows, |email| EmailBody::of(&app, &email)))
}

#[derive(Deserialize)]
struct RescheduleBody {
    #[serde(default)]
    scheduled_at: Option<String>,
}

/// `PATCH /emails/{id}`.
pub(super) async fn reschedule(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    body: ResendRequestBody,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let email = parse_id(&name)?;
    let text = body.parse::<RescheduleBody>()?.scheduled_at.ok_or_else(|| missing_field("scheduled_at"))?;
    let invalid_time =
        |error: ScheduleError| field_problem("scheduled_at", format!("The `scheduled_at` field {error}."));
    let schedule = Schedule::parse(&text).map_err(invalid_time)?;
    let email = app.engine.outbound.reschedule(&auth.caller, email, &schedule).await.map_err(with_dialect_message)?;
    Ok(object_response("email", email.id))
}

/// `POST /emails/{id}/cancel`.
pub(super) async fn cancel(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let keyed_call = auth.keyed_call("cancel", &name, b"");
    let email = app
        .engine
        .outbound
        .cancel(&auth.caller, parse_id(&name)?, keyed_call)
        .await
        .map_err(with_dialect_message)?
        .value;
    Ok(object_response("email", email.id))
}
