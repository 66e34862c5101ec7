//! The Resend routes for inboxes.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    access::team::ApiKeyScope,
    inbox::{
        Inbox, InboxSettings,
        message::{MessageQuery, MessageState},
    },
    limits,
    problem::{Code, Problem},
};
use mailonce_engine::inbox::inboxes::{InboxPatch, NewInbox};
use serde::{Deserialize, Serialize};

use super::{
    DialectPath, DialectQuery, OnePathParam, PageParams, ResendRequest, ResendRequestBody, ResendResult,
    deleted_response, json, list_response, object_response,
};
use crate::{
    dialects::{
        field_problem,
        pagination::{MAX_SHORT_LIST, PageRows},
        rename_field,
        resend::errors::missing_field,
    },
    http::{app::App, json::check_text},
};

/// An inbox. `unread` counts the unanswered and unread messages among the latest ones.
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
    whole: Option<InboxDetailBody>,
}

#[derive(Serialize)]
struct InboxDetailBody {
    object: &'static str,
    domain_id: String,
    receiving_address: Option<String>,
    drafts: u32,
}

/// Finds the inbox of a path, by id or by address.
pub(super) async fn find_inbox(app: &App, auth: &ResendRequest, name: &str) -> Result<Inbox, Problem> {
    match name.parse() {
        Ok(id) => app.engine.inboxes.inbox(&auth.caller, id).await,
        Err(_not_an_id) => app.engine.inboxes.inbox_by_address(&auth.caller, name).await,
    }
    .map_err(|problem| match problem.code {
        Code::NotFound => Problem::new(Code::NotFound, "Inbox not found"),
        _ => problem,
    })
}

async fn inbox_body(app: &App, auth: &ResendRequest, inbox: &Inbox) -> Result<InboxBody, Problem> {
    let query = MessageQuery { limit: limits::PAGE_ROWS, ..MessageQuery::default() };
    let latest = app.engine.inboxes.messages(&auth.caller, inbox.id, query).await?.rows;
    let unread = latest.iter().filter(|message| message.state == MessageState::Unanswered && !message.annotations.read);
    let last_received = latest.first().map(|message| message.received_at);
    let updated_at = last_received.map_or(inbox.updated_at(), |at| at.max(inbox.updated_at()));
    Ok(InboxBody {
        id: inbox.id.to_string(),
        name: inbox.settings.agent.clone(),
        email_address: inbox.address.clone(),
        from_name: inbox.settings.name.clone(),
        unread: unread.count(),
        updated_at: updated_at.to_string(),
        last_received: last_received.map(|at| at.to_string()),
        created_at: inbox.created_at.to_string(),
        whole: None,
    })
}

/// The id of the inbox's domain; empty if the team has no such domain or the key lacks the scope `admin`.
async fn domain_id(app: &App, auth: &ResendRequest, inbox: &Inbox) -> Result<String, Problem> {
    if !auth.caller.key.has_scope(ApiKeyScope::Admin) {
        return Ok(String::new());
    }
    let domains = app.engine.access.domains.domains(&auth.caller, None, MAX_SHORT_LIST).await?.rows;
    let domain = domains.iter().find(|domain| domain.name == inbox.domain());
    Ok(domain.map(|domain| domain.id.to_string()).unwrap_or_default())
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
pub(super) async fn create(State(app): State<App>, auth: ResendRequest, body: ResendRequestBody) -> ResendResult {
    let keyed_call = auth.keyed_call("inboxes", "", &body.canonical()?);
    let NewInboxBody { email_address, name, forwarding, from_name } = body.parse()?;
    if forwarding == Some(true) {
        return Err(field_problem(
            "forwarding",
            "Forwarding is not supported; mail is received at the address itself.",
        )
        .into());
    }
    for (field, text) in [("name", &name), ("from_name", &from_name)] {
        check_text(field, text.as_deref().unwrap_or_default())?;
    }
    let settings = InboxSettings { agent: name, name: from_name, ..InboxSettings::default() };
    let address = Some(email_address.ok_or_else(|| missing_field("email_address"))?);
    let new = NewInbox { address, about: settings, ..NewInbox::default() };
    let rename_address = |problem| rename_field(problem, "address", "email_address");
    let created = app.engine.inboxes.create_inbox(&auth.caller, new, keyed_call).await.map_err(rename_address)?;
    Ok(object_response("inbox", created.value.id))
}

/// `GET /inboxes`.
pub(super) async fn list(
    State(app): State<App>,
    auth: ResendRequest,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    let page = query.parse()?;
    let all = app.engine.inboxes.inboxes(&auth.caller, None, MAX_SHORT_LIST).await?.rows;
    let PageRows { rows, has_more: more } = page.slice_newest_first(all, |inbox| inbox.id.0);
    let mut bodies = Vec::with_capacity(rows.len());
    for inbox in &rows {
        bodies.push(inbox_body(&app, &auth, inbox).await?);
    }
    Ok(list_response(PageRows { rows: bodies, has_more: more }, |body| body))
}

/// `GET /inboxes/{id or address}`.
pub(super) async fn read(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let inbox = find_inbox(&app, &auth, &name).await?;
    let domain_id = domain_id(&app, &auth, &inbox).await?;
    let whole = InboxDetailBody { object: "inbox", domain_id, receiving_address: None, drafts: 0 };
    let mut body = InboxBody { whole: Some(whole), ..inbox_body(&app, &auth, &inbox).await? };
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
pub(super) async fn change(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    body: ResendRequestBody,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &auth, &name).await?;
    let InboxPatchBody { name, from_name } = body.parse()?;
    for (field, text) in [("name", &name), ("from_name", &from_name)] {
        check_text(field, text.as_deref().unwrap_or_default())?;
    }
    let patch = InboxPatch { agent: name.map(Some), name: from_name.map(Some), ..InboxPatch::default() };
    let changed = app.engine.inboxes.change_inbox(&auth.caller, inbox.id, patch, None).await?;
    Ok(object_response("inbox", changed.id))
}

/// `DELETE /inboxes/{id or address}`.
pub(super) async fn remove(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let inbox = find_inbox(&app, &auth, &name).await?;
    let removed = app.engine.inboxes.remove_inbox(&auth.caller, inbox.id).await?;
    Ok(deleted_response("inbox", removed.id))
}
