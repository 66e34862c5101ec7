//! Inboxes in Resend's words.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    inbox::{AboutInbox, Inbox},
    limits,
    message::{MessageQuery, MessageState},
    problem::{Code, Problem},
    team::Scope,
};
use mailonce_engine::inboxes::{InboxPatch, NewInbox};
use serde::{Deserialize, Serialize};

use super::{
    Answer, Body, Guest, Named, One, Page, Queried, gone, json, list as listed,
    refuse::{missing, unfit},
    thing,
};
use crate::{
    api::{App, wire::words},
    dialects::{
        pages::{FEW, Rows},
        renamed,
    },
};

/// An inbox. Unread is what nobody answered or put aside, as far as the latest messages tell.
#[derive(Serialize)]
struct InboxBody {
    id: String,
    name: Option<String>,
    email_address: String,
    from_name: Option<String>,
    unread: usize,
    last_received: Option<String>,
    created_at: String,
    updated_at: String,
    #[serde(flatten)]
    whole: Option<Whole>,
}

#[derive(Serialize)]
struct Whole {
    object: &'static str,
    domain_id: String,
    receiving_address: Option<String>,
    drafts: u32,
}

/// The inbox of a path: its id or its address.
pub(super) async fn named(app: &App, guest: &Guest, name: &str) -> Result<Inbox, Problem> {
    match name.parse() {
        Ok(id) => app.engine.inbox(&guest.caller, id).await,
        Err(_not_an_id) => app.engine.inbox_named(&guest.caller, name).await,
    }
    .map_err(|problem| match problem.code {
        Code::NotFound => Problem::new(Code::NotFound, "Inbox not found"),
        _ => problem,
    })
}

async fn shown(app: &App, guest: &Guest, inbox: &Inbox) -> Result<InboxBody, Problem> {
    let query = MessageQuery { limit: limits::PAGE_ROWS, ..MessageQuery::default() };
    let latest = app.engine.messages(&guest.caller, inbox.id, query).await?.rows;
    let open = latest.iter().filter(|message| message.state == MessageState::Unanswered && !message.marks.read);
    let last = latest.first().map(|message| message.received_at);
    let updated_at = last.map_or(inbox.updated_at(), |at| at.max(inbox.updated_at()));
    Ok(InboxBody {
        id: inbox.id.to_string(),
        name: inbox.about.agent.clone(),
        email_address: inbox.address.clone(),
        from_name: inbox.about.name.clone(),
        unread: open.count(),
        updated_at: updated_at.to_string(),
        last_received: last.map(|at| at.to_string()),
        created_at: inbox.created_at.to_string(),
        whole: None,
    })
}

/// The id of the inbox's domain; empty where the team has none of that name, or the caller may not know.
async fn domain_id(app: &App, guest: &Guest, inbox: &Inbox) -> Result<String, Problem> {
    if !guest.caller.key.may(Scope::Admin) {
        return Ok(String::new());
    }
    let domains = app.engine.domains(&guest.caller, None, FEW).await?.rows;
    let own = domains.iter().find(|domain| domain.name == inbox.domain());
    Ok(own.map(|domain| domain.id.to_string()).unwrap_or_default())
}

#[derive(Deserialize)]
struct NewInboxBody {
    #[serde(default)]
    email_address: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    forwarding: Option<bool>,
    #[serde(default)]
    from_name: Option<String>,
}

/// `POST /inboxes`.
pub(super) async fn create(State(app): State<App>, guest: Guest, body: Body) -> Answer {
    let asked = guest.asked("inboxes", "", &body.canonical()?);
    let NewInboxBody { email_address, name, forwarding, from_name } = body.parse()?;
    if forwarding == Some(true) {
        return Err(unfit("forwarding", "Forwarding is not available here; mail comes to the address itself.").into());
    }
    for (field, text) in [("name", &name), ("from_name", &from_name)] {
        words(field, text.as_deref().unwrap_or_default())?;
    }
    let about = AboutInbox { agent: name, name: from_name, ..AboutInbox::default() };
    let address = Some(email_address.ok_or_else(|| missing("email_address"))?);
    let new = NewInbox { address, about, ..NewInbox::default() };
    let in_words = |problem| renamed(problem, ("address", "email_address"));
    let made = app.engine.create_inbox(&guest.caller, new, asked).await.map_err(in_words)?;
    Ok(thing("inbox", made.thing.id))
}

/// `GET /inboxes`.
pub(super) async fn list(State(app): State<App>, guest: Guest, Queried(query, ..): Page) -> Answer {
    let wish = query.read()?;
    let all = app.engine.inboxes(&guest.caller, None, FEW).await?.rows;
    let Rows { rows, more } = wish.of(all, |inbox| inbox.id.0);
    let mut bodies = Vec::with_capacity(rows.len());
    for inbox in &rows {
        bodies.push(shown(&app, &guest, inbox).await?);
    }
    Ok(listed(Rows { rows: bodies, more }, |body| body))
}

/// `GET /inboxes/{id or address}`.
pub(super) async fn read(State(app): State<App>, guest: Guest, Named(name, ..): One) -> Answer {
    let inbox = named(&app, &guest, &name).await?;
    let domain_id = domain_id(&app, &guest, &inbox).await?;
    let whole = Whole { object: "inbox", domain_id, receiving_address: None, drafts: 0 };
    let mut body = InboxBody { whole: Some(whole), ..shown(&app, &guest, &inbox).await? };
    body.name.get_or_insert_default();
    Ok(json(StatusCode::OK, &body))
}

#[derive(Deserialize)]
struct InboxPatchBody {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    from_name: Option<String>,
}

/// `PATCH /inboxes/{id or address}`.
pub(super) async fn change(State(app): State<App>, guest: Guest, Named(name, ..): One, body: Body) -> Answer {
    guest.caller.need(Scope::Read)?;
    let inbox = named(&app, &guest, &name).await?;
    let InboxPatchBody { name, from_name } = body.parse()?;
    for (field, text) in [("name", &name), ("from_name", &from_name)] {
        words(field, text.as_deref().unwrap_or_default())?;
    }
    let patch = InboxPatch { agent: name.map(Some), name: from_name.map(Some), ..InboxPatch::default() };
    let changed = app.engine.change_inbox(&guest.caller, inbox.id, patch, None).await?;
    Ok(thing("inbox", changed.id))
}

/// `DELETE /inboxes/{id or address}`.
pub(super) async fn remove(State(app): State<App>, guest: Guest, Named(name, ..): One) -> Answer {
    let inbox = named(&app, &guest, &name).await?;
    let removed = app.engine.remove_inbox(&guest.caller, inbox.id).await?;
    Ok(gone("inbox", removed.id))
}
