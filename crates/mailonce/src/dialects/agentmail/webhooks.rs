//! Webhooks: endpoints that are told in AgentMail's words, signed as Svix does.

use axum::{
    http::{Method, StatusCode},
    response::IntoResponse as _,
};
use mailonce_core::{
    digest,
    endpoint::{Endpoint, EndpointState, Tongue},
    id::{EndpointId, InboxId},
    key::KeyName,
    limits,
    problem::{Code, FieldError, Problem},
    team::Scope,
};
use mailonce_engine::{Asked, endpoints::EndpointWish};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

use super::{Answer, NAME, door::Call, events, no_route, query::listed};
use crate::{api::wire::words, dialects::json as as_json};

/// Inboxes and pods that one webhook names.
const MOST: usize = 10;

/// A webhook to make.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewBody {
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

/// A change of a webhook.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PatchBody {
    event_types: Option<Vec<String>>,
    enabled: Option<bool>,
    add_inbox_ids: Vec<String>,
    remove_inbox_ids: Vec<String>,
    add_pod_ids: Vec<String>,
    remove_pod_ids: Vec<String>,
}

/// A change of the headers that every request carries.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HeadersBody {
    headers: BTreeMap<String, String>,
    remove_headers: Vec<String>,
}

pub(super) async fn route(call: &Call, inbox: Option<&str>, rest: &[&str]) -> Answer {
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
            Ok(as_json(StatusCode::OK, &shown(call, &endpoint).await?))
        }
        (&Method::PATCH, [id]) => change(call, inbox, id).await,
        (&Method::DELETE, [id]) => {
            let endpoint = find(call, inbox, id).await?;
            call.engine.remove_endpoint(&call.caller, endpoint.id).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        (&Method::GET, [id, "headers"]) => Ok(names(&find(call, inbox, id).await?)),
        (&Method::PATCH, [id, "headers"]) => change_headers(call, inbox, id).await,
        _ => Err(no_route(call).into()),
    }
}

fn fault(path: &str, text: &str) -> Problem {
    Problem::from(vec![FieldError::new(path, text)])
}

/// Whether an endpoint is one of this dialect's, and of this inbox when one is named.
fn is_here(endpoint: &Endpoint, inbox: Option<InboxId>) -> bool {
    let tongue = endpoint.about.tongue.as_ref().filter(|tongue| tongue.dialect == NAME);
    tongue.is_some_and(|tongue| inbox.is_none_or(|inbox| tongue.inboxes == [inbox]))
}

async fn find(call: &Call, inbox: Option<InboxId>, text: &str) -> Result<Endpoint, Problem> {
    let missing = || Problem::new(Code::NotFound, format!("there is no webhook {text}"));
    let id = Uuid::try_parse(text.strip_prefix("ep_").unwrap_or(text)).map_err(|_not_an_id| missing())?;
    let endpoint = call.engine.endpoint(&call.caller, EndpointId(id)).await;
    let endpoint = endpoint.map_err(|problem| if problem.code == Code::NotFound { missing() } else { problem })?;
    if is_here(&endpoint, inbox) { Ok(endpoint) } else { Err(missing()) }
}

/// A webhook as AgentMail shows it. Its secret is shown to those who manage the team.
async fn shown(call: &Call, endpoint: &Endpoint) -> Result<Value, Problem> {
    let secret = match call.caller.need(Scope::Admin) {
        Ok(()) => call.engine.endpoint_secret(&call.caller, endpoint.id).await?,
        Err(_hidden) => None,
    };
    let tongue = endpoint.about.tongue.clone().unwrap_or_default();
    let mut inboxes = Vec::new();
    for id in &tongue.inboxes {
        // An inbox that is gone is no longer listened to.
        if let Ok(inbox) = call.engine.inbox(&call.caller, *id).await {
            inboxes.push(inbox.address);
        }
    }
    let mut body = json!({
        "webhook_id": format!("ep_{}", endpoint.id.0.simple()),
        "url": endpoint.about.url,
        "event_types": tongue.types,
        "secret": secret.unwrap_or_default(),
        "enabled": endpoint.state == EndpointState::Enabled,
        "updated_at": endpoint.about.changed_at.map_or(endpoint.since, |at| at.max(endpoint.since)).to_string(),
        "created_at": endpoint.created_at.to_string(),
    });
    if !inboxes.is_empty() {
        body["inbox_ids"] = inboxes.into();
    }
    if let Some(client_id) = tongue.client_id {
        body["client_id"] = client_id.into();
    }
    Ok(body)
}

/// The inboxes that a webhook is about.
async fn inbox_ids(call: &Call, names: &[String]) -> Result<Vec<InboxId>, Problem> {
    if names.len() > MOST {
        return Err(fault("inbox_ids", "names more than 10 inboxes"));
    }
    let mut ids = Vec::new();
    for name in names {
        let missing = |problem: Problem| match problem.code {
            Code::NotFound => fault("inbox_ids", &format!("names {name}, and there is no such inbox")),
            _ => problem,
        };
        let id = call.inbox(name).await.map_err(missing)?.id;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// A team has one pod, which is the team.
fn check_pods(call: &Call, pods: &[String]) -> Result<(), Problem> {
    match pods.iter().find(|pod| **pod != call.pod()) {
        Some(pod) => Err(fault("pod_ids", &format!("names {pod}, and there is no such pod"))),
        None => Ok(()),
    }
}

async fn create(call: &Call, inbox: Option<InboxId>) -> Answer {
    let NewBody { url, event_types, inbox_ids: names, pod_ids, client_id, headers } = call.parse()?;
    words("client_id", client_id.as_deref().unwrap_or_default())?;
    check_pods(call, &pod_ids.unwrap_or_default())?;
    if inbox.is_some() && names.is_some() {
        return Err(fault("inbox_ids", "has no place here: the inbox follows from the path").into());
    }
    let inboxes = match inbox {
        Some(inbox) => vec![inbox],
        None => inbox_ids(call, &names.unwrap_or_default()).await?,
    };
    if let Some(known) = known(call, client_id.as_deref()).await? {
        return Ok(as_json(StatusCode::OK, &shown(call, &known).await?));
    }
    let types = event_types.unwrap_or_default();
    let events = Some(events::kinds(&types)?);
    let tongue = Tongue { dialect: NAME.to_owned(), types, inboxes, client_id: client_id.clone() };
    let wish = EndpointWish { url: Some(url), events, headers, tongue: Some(tongue), ..EndpointWish::default() };
    let asked = client_id.map(|client_id| once(call, &client_id)).transpose()?;
    let made = call.engine.create_endpoint(&call.caller, wish, (None, None), asked).await?;
    Ok(as_json(StatusCode::OK, &shown(call, &made.endpoint).await?))
}

/// The webhook that was made before under a `client_id`.
async fn known(call: &Call, client_id: Option<&str>) -> Result<Option<Endpoint>, Problem> {
    let Some(client_id) = client_id else { return Ok(None) };
    let (rows, _) = call.engine.endpoints(&call.caller, None, limits::ENDPOINTS).await?;
    let named = |endpoint: &Endpoint| {
        let tongue = endpoint.about.tongue.as_ref();
        tongue.is_some_and(|tongue| tongue.dialect == NAME && tongue.client_id.as_deref() == Some(client_id))
    };
    Ok(rows.into_iter().find(named))
}

/// Lets of two that come at once with the same `client_id` only one make a webhook.
fn once(call: &Call, client_id: &str) -> Result<Asked, Problem> {
    let digest = digest::of_operation("agentmail webhooks", client_id, b"");
    let half = digest.first_chunk::<16>().copied().unwrap_or_default();
    let key = call.engine.own_key(&call.caller, "webhook", Uuid::from_bytes(half), 0)?;
    Ok(Asked { name: KeyName::Given(key), digest })
}

async fn list(call: &Call, inbox: Option<InboxId>) -> Answer {
    call.caller.need(Scope::Read)?;
    let limit = call.query.limit()?;
    // A team has few of them.
    let (mut all, _) = call.engine.endpoints(&call.caller, None, limits::ENDPOINTS).await?;
    all.retain(|endpoint| is_here(endpoint, inbox));
    let (found, next) =
        if call.query.flag("ascending")? { call.query.turned(all, false)? } else { call.query.page_of(all)? };
    let mut webhooks = Vec::new();
    for endpoint in &found {
        webhooks.push(shown(call, endpoint).await?);
    }
    Ok(as_json(StatusCode::OK, &listed("webhooks", webhooks, limit, next)))
}

async fn change(call: &Call, inbox: Option<InboxId>, id: &str) -> Answer {
    let endpoint = find(call, inbox, id).await?;
    let body: PatchBody = call.parse()?;
    check_pods(call, &[body.add_pod_ids, body.remove_pod_ids].concat())?;
    let mut tongue = endpoint.about.tongue.clone().unwrap_or_default();
    let (added, removed) =
        (inbox_ids(call, &body.add_inbox_ids).await?, inbox_ids(call, &body.remove_inbox_ids).await?);
    if inbox.is_some() && !(added.is_empty() && removed.is_empty()) {
        return Err(fault("add_inbox_ids", "has no place here: the webhook is fixed to its inbox").into());
    }
    // One that hears of every inbox hears of these already.
    if !tongue.inboxes.is_empty() {
        tongue.inboxes.retain(|id| !removed.contains(id));
        tongue.inboxes.extend(added);
        tongue.inboxes.dedup();
        if tongue.inboxes.is_empty() || tongue.inboxes.len() > MOST {
            return Err(fault("remove_inbox_ids", "leaves no inbox, or more than 10").into());
        }
    }
    let mut events = None;
    if let Some(types) = body.event_types.filter(|types| !types.is_empty()) {
        events = Some(events::kinds(&types)?);
        tongue.types = types;
    }
    let wish = EndpointWish { events, tongue: Some(tongue), ..EndpointWish::default() };
    let mut endpoint = call.engine.change_endpoint(&call.caller, endpoint.id, wish, Some(endpoint.rev)).await?;
    if let Some(enabled) = body.enabled {
        let state = if enabled { EndpointState::Enabled } else { EndpointState::Paused };
        endpoint = call.engine.set_endpoint_state(&call.caller, endpoint.id, state, None).await?;
    }
    Ok(as_json(StatusCode::OK, &shown(call, &endpoint).await?))
}

fn names(endpoint: &Endpoint) -> axum::response::Response {
    let names: Vec<&String> = endpoint.about.headers.keys().collect();
    as_json(StatusCode::OK, &json!({ "header_names": names }))
}

async fn change_headers(call: &Call, inbox: Option<InboxId>, id: &str) -> Answer {
    let endpoint = find(call, inbox, id).await?;
    let HeadersBody { headers, remove_headers } = call.parse()?;
    if headers.is_empty() && remove_headers.is_empty() {
        return Err(fault("headers", "is missing, and so is remove_headers").into());
    }
    if remove_headers.iter().any(|gone| headers.keys().any(|name| name.eq_ignore_ascii_case(gone))) {
        return Err(fault("remove_headers", "names a header that is set by the same call").into());
    }
    call.engine.merge_endpoint_headers(&call.caller, endpoint.id, headers, &remove_headers).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
