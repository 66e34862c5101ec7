//! Emails that were sent, in Resend's words: read, list, move, take back.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    content::Content,
    email::{Email, EmailState},
    handoff::State as HandoffState,
    problem::{Code, Problem},
    schedule::{Schedule, ScheduleError},
    team::Scope,
};
use serde::{Deserialize, Serialize};

use super::{
    Answer, Body, Guest, Named, One, Page, Queried, id, json, list as listed,
    refuse::{missing, unfit},
    thing,
};
use crate::{
    api::App,
    dialects::{must, pages},
};

#[derive(Serialize)]
struct TagBody {
    name: String,
    value: String,
}

/// An email. Without its words in a list.
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
    words: Option<Words>,
}

#[derive(Serialize)]
struct Words {
    html: Option<String>,
    text: Option<String>,
    tags: Vec<TagBody>,
    topic_id: Option<String>,
}

/// The nearest word for a state. What is held waits, what is unknown is late: neither is told as a success.
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

/// Somebody as mails name them.
fn written(mailbox: &mailonce_core::address::Mailbox) -> String {
    match &mailbox.name {
        Some(name) => format!("{name} <{}>", mailbox.address),
        None => mailbox.address.clone(),
    }
}

fn some(list: Vec<String>) -> Option<Vec<String>> {
    Some(list).filter(|list| !list.is_empty())
}

impl EmailBody {
    /// As far as the ledger's row tells.
    fn of(app: &App, email: &Email) -> Self {
        let head = &email.head;
        let scheduled = email.handoffs.iter().filter(|handoff| handoff.state == HandoffState::Scheduled);
        Self {
            object: "email",
            id: email.id.to_string(),
            message_id: app.engine.message_id(email),
            from: head.from.clone(),
            to: head.to.clone(),
            cc: some(head.cc.clone()),
            bcc: some(head.bcc.clone()),
            reply_to: None,
            subject: head.subject.clone(),
            created_at: head.created_at.to_string(),
            scheduled_at: scheduled.filter_map(|handoff| handoff.due_at).min().map(|at| at.to_string()),
            last_event: last_event(email.state()),
            words: None,
        }
    }

    /// With its words, while they are kept.
    fn with(mut self, content: Option<Content>) -> Self {
        let mut words = Words { html: None, text: None, tags: Vec::new(), topic_id: None };
        if let Some(content) = content {
            let all = |list: &[mailonce_core::address::Mailbox]| list.iter().map(written).collect::<Vec<_>>();
            self.from = written(&content.from);
            self.to = all(&content.to);
            self.cc = some(all(&content.cc));
            self.bcc = some(all(&content.bcc));
            self.reply_to = some(all(&content.reply_to));
            let tag = |(name, value): (String, Option<String>)| TagBody { name, value: value.unwrap_or_default() };
            words.tags = content.tags.into_iter().map(tag).collect();
            (words.html, words.text) = (content.html, content.text);
        }
        self.words = Some(words);
        self
    }
}

/// The dialect's sentence for an email that is not there.
fn in_words(problem: Problem) -> Problem {
    if problem.code == Code::NotFound { Problem::new(Code::NotFound, "Email not found") } else { problem }
}

/// `GET /emails/{id}`.
pub(super) async fn read(State(app): State<App>, guest: Guest, Named(name, ..): One) -> Answer {
    guest.caller.need(Scope::Read)?;
    let view = app.engine.email_view(&guest.caller, id(&name)?).await.map_err(in_words)?;
    Ok(json(StatusCode::OK, &EmailBody::of(&app, &view.detail.email).with(view.content)))
}

/// `GET /emails`.
pub(super) async fn list(State(app): State<App>, guest: Guest, Queried(query, ..): Page) -> Answer {
    guest.caller.need(Scope::Read)?;
    let rows = pages::emails(&app.engine, &guest.caller, query.read()?).await?;
    Ok(listed(rows, |email| EmailBody::of(&app, &email)))
}

#[derive(Deserialize)]
struct RescheduleBody {
    #[serde(default)]
    scheduled_at: Option<String>,
}

/// `PATCH /emails/{id}`.
pub(super) async fn reschedule(State(app): State<App>, guest: Guest, Named(name, ..): One, body: Body) -> Answer {
    guest.caller.need(Scope::Send)?;
    let email = id(&name)?;
    let text = body.parse::<RescheduleBody>()?.scheduled_at.ok_or_else(|| missing("scheduled_at"))?;
    let wrong =
        |error: ScheduleError| unfit("scheduled_at", format!("The `scheduled_at` field {}.", must(&error.to_string())));
    let schedule = Schedule::parse(&text).map_err(wrong)?;
    let email = app.engine.reschedule(&guest.caller, email, &schedule).await.map_err(in_words)?;
    Ok(thing("email", email.id))
}

/// `POST /emails/{id}/cancel`.
pub(super) async fn cancel(State(app): State<App>, guest: Guest, Named(name, ..): One) -> Answer {
    guest.caller.need(Scope::Send)?;
    let asked = guest.asked("cancel", &name, b"");
    let email = app.engine.cancel(&guest.caller, id(&name)?, asked).await.map_err(in_words)?.thing;
    Ok(thing("email", email.id))
}
