//! The AgentMail routes for webhooks: endpoints that receive events in AgentMail's format, with Svix signatures.

use axum::{
    http::{Method, StatusCode},
    response::IntoResponse as _,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::endpoint::{Dialect, Endpoint, EndpointState},
    id::{EndpointId, InboxId},
    key::EmailKey,
    limits,
    outbound::digest,
    problem::{Code, Problem},
};
use mailonce_engine::{KeyedCall, events::endpoints::NewEndpoint};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

use super::{AgentMailResult, NAME, no_route, query::page_json};
use crate::{
    dialects::{
        agentmail::{event_format, request::AgentMailRequest},
        json as as_json,
    },
    http::json::check_text,
};

/// Maximum inboxes of one webhook.
const MAX_IDS: usize = 10;

/// The body of a request that creates a webhook.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewWebhookBody {
    url: String,
    #[serde(default)]
    event_types: Option<Vec<String>>,
    #[serde(default)]
    inbox_ids: Option<Vec<String>>,
    #[serde(default)]
    pod_ids: Option<Vec<String>>,
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default)]
    headers: Option<BTreeMap<String, String>>,
}

/// The body of a request that changes a webhook.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WebhookPatchBody {
    event_types: Option<Vec<String>>,
    enabled: Option<bool>,
    add_inbox_ids: Vec<String>,
    remove_inbox_ids: Vec<String>,
    add_pod_ids: Vec<String>,
    remove_pod_ids: Vec<String>,
}

/// The body of a request that changes the custom headers of a webhook.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WebhookHeadersBody {
    headers: BTreeMap<String, String>,
    remove_headers: Vec<String>,
}

pub(super) async fn route(call: &AgentMailRequest, inbox: Option<&str>, rest: &[&str]) -> AgentMailResult {
    let inbox = match inbox {
        Some(name) => Some(call.inbox(name).await?.id),
        None => None,
    };
    match (&call.method, rest) {
        (&Method::GET, []) => list(call, inbox).await,
        (&Method::POST, []) => create(call, inbox).await,
        (_, ["polling", ..]) => Err(no_route(call).into()),
        (&Method::GET, [id]) => {
            let endpoint = find(call, inbox, id).await?;
            Ok(as_json(StatusCode::OK, &to_json(call, &endpoint).await?))
        }
        (&Method::PATCH, [id]) => change(call, inbox, id).await,
        (&Method::DELETE, [id]) => {
            let endpoint = find(call, inbox, id).await?;
            call.engine.events.remove_endpoint(&call.caller, endpoint.id).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        (&Method::GET, [id, "headers"]) => Ok(header_names_response(&find(call, inbox, id).await?)),
        (&Method::PATCH, [id, "headers"]) => change_headers(call, inbox, id).await,
        _ => Err(no_route(call).into()),
    }
}

/// Whether an endpoint belongs to this dialect and, if given, to this inbox.
fn is_in_scope(endpoint: &Endpoint, inbox: Option<InboxId>) -> bool {
    let dialect = endpoint.config.dialect.as_ref().filter(|dialect| dialect.dialect == NAME);
    dialect.is_some_and(|dialect| inbox.is_none_or(|inbox| dialect.inboxes == [inbox]))
}

async fn find(call: &AgentMailRequest, inbox: Option<InboxId>, text: &str) -> Result<Endpoint, Problem> {
    let missing = || Problem::new(Code::NotFound, format!("there is no webhook {text}"));
    let id = Uuid::try_parse(text.strip_prefix("ep_").unwrap_or(text)).map_err(|_not_an_id| missing())?;
    let endpoint = call.engine.events.endpoint(&call.caller, EndpointId(id)).await;
    let endpoint = endpoint.map_err(|problem| if problem.code == Code::NotFound { missing() } else { problem })?;
    if is_in_scope(&endpoint, inbox) { Ok(endpoint) } else { Err(missing()) }
}

/// A webhook in AgentMail's format. Its secret is included only if the key has the scope `admin`.
async fn to_json(call: &AgentMailRequest, endpoint: &Endpoint) -> Result<Value, Problem> {
    let secret = match call.caller.require_scope(ApiKeyScope::Admin) {
        Ok(()) => call.engine.events.endpoint_secret(&call.caller, endpoint.id).await?,
        Err(_hidden) => None,
    };
    let dialect = endpoint.config.dialect.clone().unwrap_or_default();
    let mut inboxes = Vec::new();
    for id in &dialect.inboxes {
        // Deleted inboxes are omitted.
        if let Ok(inbox) = call.engine.inboxes.inbox(&call.caller, *id).await {
            inboxes.push(inbox.address);
        }
    }
    let mut body = json!({
        "webhook_id": format!("ep_{}", endpoint.id.0.simple()),
        "url": endpoint.config.url,
        "event_types": dialect.types,
        "secret": secret.unwrap_or_default(),
        "enabled": endpoint.state == EndpointState::Enabled,
        "updated_at": endpoint.config.changed_at.map_or(endpoint.state_since, |at| at.max(endpoint.state_since)).to_string(),
        "created_at": endpoint.created_at.to_string(),
    });
    if !inboxes.is_empty() {
        body["inbox_ids"] = inboxes.into();
    }
    if let Some(client_id) = dialect.client_id {
        body["client_id"] = client_id.into();
    }
    Ok(body)
}

/// The ids of the inboxes with these addresses.
async fn inbox_ids(call: &AgentMailRequest, names: &[String]) -> Result<Vec<InboxId>, Problem> {
    if names.len() > MAX_IDS {
        return Err(Problem::invalid_field("inbox_ids", "must name at most 10 inboxes"));
    }
    let mut ids = Vec::new();
    for name in names {
        let missing = |problem: Problem| match problem.code {
            Code::NotFound => Problem::invalid_field("inbox_ids", format!("names {name}, but there is no such inbox")),
            _ => problem,
        };
        let id = call.inbox(name).await.map_err(missing)?.id;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// Refuses unknown pods. A team has one pod, with the id of the team.
fn check_pods(call: &AgentMailRequest, pods: &[String]) -> Result<(), Problem> {
    match pods.iter().find(|pod| **pod != call.pod_id()) {
        Some(pod) => Err(Problem::invalid_field("pod_ids", format!("names {pod}, but there is no such pod"))),
        None => Ok(()),
    }
}

async fn create(call: &AgentMailRequest, inbox: Option<InboxId>) -> AgentMailResult {
    let NewWebhookBody { url, event_types, inbox_ids: names, pod_ids, client_id, headers } = call.parse()?;
    check_text("client_id", client_id.as_deref().unwrap_or_default())?;
    check_pods(call, &pod_ids.unwrap_or_default())?;
    if inbox.is_some() && names.is_some() {
        return Err(Problem::invalid_field("inbox_ids", "is not allowed here: the path names the inbox").into());
    }
    let inboxes = match inbox {
        Some(inbox) => vec![inbox],
        None => inbox_ids(call, &names.unwrap_or_default()).await?,
    };
    if let Some(existing) = find_by_client_id(call, client_id.as_deref()).await? {
        return Ok(as_json(StatusCode::OK, &to_json(call, &existing).await?));
    }
    let types = event_types.unwrap_or_default();
    let events = Some(event_format::native_types(&types)?);
    let dialect = Dialect { dialect: NAME.to_owned(), types, inboxes, client_id: client_id.clone() };
    let new_endpoint =
        NewEndpoint { url: Some(url), events, headers, dialect: Some(dialect), ..NewEndpoint::default() };
    let keyed_call = client_id.map(|client_id| creation_call(call, &client_id)).transpose()?;
    let created = call.engine.events.create_endpoint(&call.caller, new_endpoint, (None, None), keyed_call).await?;
    Ok(as_json(StatusCode::OK, &to_json(call, &created.endpoint).await?))
}

/// Finds the webhook that was created with a `client_id`.
async fn find_by_client_id(call: &AgentMailRequest, client_id: Option<&str>) -> Result<Option<Endpoint>, Problem> {
    let Some(client_id) = client_id else { return Ok(None) };
    let (rows, _) = call.engine.events.endpoints(&call.caller, None, limits::ENDPOINTS).await?;
    let has_client_id = |endpoint: &Endpoint| {
        let dialect = endpoint.config.dialect.as_ref();
        dialect.is_some_and(|dialect| dialect.dialect == NAME && dialect.client_id.as_deref() == Some(client_id))
    };
    Ok(rows.into_iter().find(has_client_id))
}

/// The idempotency key for a `client_id`, so that only one of two concurrent requests creates a webhook.
fn creation_call(call: &AgentMailRequest, client_id: &str) -> Result<KeyedCall, Problem> {
    let digest = digest::operation_digest("agentmail webhooks", client_id, b"");
    let half = digest.first_chunk::<16>().copied().unwrap_or_default();
    let key = call.engine.ctx.derived_key(&call.caller, "webhook", Uuid::from_bytes(half), 0)?;
    Ok(KeyedCall { key: EmailKey::Given(key), digest })
}

async fn list(call: &AgentMailRequest, inbox: Option<InboxId>) -> AgentMailResult {
    call.caller.require_scope(ApiKeyScope::Read)?;
    let limit = call.query.limit()?;
    // A team has few webhooks, so all are read at once.
    let (mut all, _) = call.engine.events.endpoints(&call.caller, None, limits::ENDPOINTS).await?;
    all.retain(|endpoint| is_in_scope(endpoint, inbox));
    let (found, next) = if call.query.flag("ascending")? {
        call.query.paginate_oldest_first(all, false)?
    } else {
        call.query.paginate(all)?
    };
    let mut webhooks = Vec::new();
    for endpoint in &found {
        webhooks.push(to_json(call, endpoint).await?);
    }
    Ok(as_json(StatusCode::OK, &page_json("webhooks", webhooks, limit, next)))
}

async fn change(call: &AgentMailRequest, inbox: Option<InboxId>, id: &str) -> AgentMailResult {
    let endpoint = find(call, inbox, id).await?;
    let body: WebhookPatchBody = call.parse()?;
    check_pods(call, &[body.add_pod_ids, body.remove_pod_ids].concat())?;
    let mut dialect = endpoint.config.dialect.clone().unwrap_or_default();
    let (added, removed) =
        (inbox_ids(call, &body.add_inbox_ids).await?, inbox_ids(call, &body.remove_inbox_ids).await?);
    if inbox.is_some() && !(added.is_empty() && removed.is_empty()) {
        return Err(
            Problem::invalid_field("add_inbox_ids", "is not allowed here: the webhook belongs to one inbox").into()
        );
    }
    // A webhook without an inbox filter already receives the events of every inbox.
    if !dialect.inboxes.is_empty() {
        dialect.inboxes.retain(|id| !removed.contains(id));
        dialect.inboxes.extend(added);
        dialect.inboxes.dedup();
        if dialect.inboxes.is_empty() || dialect.inboxes.len() > MAX_IDS {
            return Err(Problem::invalid_field("remove_inbox_ids", "must leave 1 to 10 inboxes").into());
        }
    }
    let mut events = None;
    if let Some(types) = body.event_types.filter(|types| !types.is_empty()) {
        events = Some(event_format::native_types(&types)?);
        dialect.types = types;
    }
    let patch = NewEndpoint { events, dialect: Some(dialect), ..NewEndpoint::default() };
    let mut endpoint = call.engine.events.change_endpoint(&call.caller, endpoint.id, patch, Some(endpoint.rev)).await?;
    if let Some(enabled) = body.enabled {
        let state = if enabled { EndpointState::Enabled } else { EndpointState::Paused };
        endpoint = call.engine.events.set_endpoint_state(&call.caller, endpoint.id, state, None).await?;
    }
    Ok(as_json(StatusCode::OK, &to_json(call, &endpoint).await?))
}

fn header_names_response(endpoint: &Endpoint) -> axum::response::Response {
    let names: Vec<&String> = endpoint.config.headers.keys().collect();
    as_json(StatusCode::OK, &json!({ "header_names": names }))
}

async fn change_headers(call: &AgentMailRequest, inbox: Option<InboxId>, id: &str) -> AgentMailResult {
    let endpoint = find(call, inbox, id).await?;
    let WebhookHeadersBody { headers, remove_headers } = call.parse()?;
    if headers.is_empty() && remove_headers.is_empty() {
        return Err(Problem::invalid_field(
            "headers",
            "is missing, and so is remove_headers: give at least one of them",
        )
        .into());
    }
    if remove_headers.iter().any(|removed| headers.keys().any(|name| name.eq_ignore_ascii_case(removed))) {
        return Err(Problem::invalid_field("remove_headers", "names a header that the same request sets").into());
    }
    call.engine.events.merge_endpoint_headers(&call.caller, endpoint.id, headers, &remove_headers).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
