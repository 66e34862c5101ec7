//! The AgentMail routes for API keys, of the team or of one inbox. A pod's keys are the team's.

use axum::{
    http::{Method, StatusCode},
    response::IntoResponse as _,
};
use mailonce_core::{
    access::team::{ApiKey, ApiKeyDetails, ApiKeyScope},
    id::ApiKeyId,
    inbox::Inbox,
    problem::{Code, Problem},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AgentMailResult, no_route, permissions, query::page_json, request::AgentMailRequest};
use crate::{
    dialects::json as as_json,
    http::json::{check_required_text, check_text},
};

/// The name of a key that was created without one.
const DEFAULT_NAME: &str = "API key";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiKeyBody {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    permissions: Option<serde_json::Map<String, Value>>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

pub(super) async fn route(call: &AgentMailRequest, inbox: Option<&str>, rest: &[&str]) -> AgentMailResult {
    call.caller.require_scope(ApiKeyScope::Admin)?;
    let inbox = match inbox {
        Some(name) => Some(call.inbox(name).await?),
        None => None,
    };
    match (&call.method, rest) {
        (&Method::GET, []) => list(call, inbox.as_ref()).await,
        (&Method::POST, []) => create(call, inbox.as_ref()).await,
        (&Method::GET, [id]) => Ok(as_json(StatusCode::OK, &to_json(call, &find(call, inbox.as_ref(), id).await?))),
        (&Method::PATCH, [id]) => rename(call, inbox.as_ref(), id).await,
        (&Method::DELETE, [id]) => {
            let key = find(call, inbox.as_ref(), id).await?;
            call.engine.access.revoke_api_key(&call.caller, key.id).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Err(no_route(call).into()),
    }
}

/// The active keys, newest first. Below an inbox, those that may use only this inbox.
async fn active_keys(call: &AgentMailRequest, inbox: Option<&Inbox>) -> Result<Vec<ApiKey>, Problem> {
    let now = call.engine.ctx.now();
    let mut keys = call.engine.access.api_keys(&call.caller).await?;
    keys.retain(|key| key.is_active(now) && inbox.is_none_or(|inbox| is_tied_to(key, inbox)));
    Ok(keys)
}

fn is_tied_to(key: &ApiKey, inbox: &Inbox) -> bool {
    let [only] = key.details.inboxes.as_slice() else { return false };
    *only == inbox.address || *only == inbox.id.to_string()
}

async fn find(call: &AgentMailRequest, inbox: Option<&Inbox>, text: &str) -> Result<ApiKey, Problem> {
    let missing = || Problem::new(Code::NotFound, format!("there is no API key {text}"));
    let id: ApiKeyId = text.parse().map_err(|_not_an_id| missing())?;
    active_keys(call, inbox).await?.into_iter().find(|key| key.id == id).ok_or_else(missing)
}

/// A key in AgentMail's format, without its secret.
fn to_json(call: &AgentMailRequest, key: &ApiKey) -> Value {
    let (details, created_at) = (&key.details, key.created_at.to_string());
    let mut body = json!({
        "type": "bearer",
        "api_key_id": key.id.to_string(),
        "prefix": details.hint,
        "name": details.name,
        "pod_id": call.pod_id(),
        "created_at": created_at,
        "updated_at": created_at,
    });
    if let [inbox] = details.inboxes.as_slice() {
        body["inbox_id"] = inbox.as_str().into();
    }
    for (name, at) in [("used_at", key.last_used_at), ("expires_at", details.expires_at)] {
        if let Some(at) = at {
            body[name] = at.to_string().into();
        }
    }
    if let Some(permissions) = permissions::to_json(&details.scopes) {
        body["permissions"] = permissions;
    }
    body
}

async fn list(call: &AgentMailRequest, inbox: Option<&Inbox>) -> AgentMailResult {
    let limit = call.query.limit()?;
    let mut keys = active_keys(call, inbox).await?;
    if call.query.flag("ascending")? {
        keys.reverse();
    }
    let (found, next) = call.query.paginate(keys)?;
    let rows = found.iter().map(|key| to_json(call, key)).collect();
    Ok(as_json(StatusCode::OK, &page_json("api_keys", rows, limit, next)))
}

async fn create(call: &AgentMailRequest, inbox: Option<&Inbox>) -> AgentMailResult {
    let ApiKeyBody { name, permissions, kind } = call.parse()?;
    if kind.as_deref().is_some_and(|kind| kind != "bearer") {
        return Err(Problem::invalid_field("type", "must be bearer: mailonce has no public keys").into());
    }
    let name = name.unwrap_or_else(|| DEFAULT_NAME.to_owned());
    check_text("name", &name)?;
    let scopes = match &permissions {
        Some(permissions) => permissions::to_scopes(permissions)?,
        // Without permissions a key may do what its creator may.
        None => call.caller.key.details.scopes.clone(),
    };
    let mut details = ApiKeyDetails::unrestricted(&name, scopes);
    details.inboxes = inbox.map(|inbox| inbox.address.clone()).into_iter().collect();
    let keyed_call = call.keyed_call("agentmail api-keys")?;
    let created = call.engine.access.create_api_key(&call.caller, details, keyed_call).await?.value;
    let key = find(call, inbox, &created.id.to_string()).await?;
    let mut body = to_json(call, &key);
    body["api_key"] = created.secret.into();
    Ok(as_json(StatusCode::OK, &body))
}

/// Only the name of a key can change.
async fn rename(call: &AgentMailRequest, inbox: Option<&Inbox>, id: &str) -> AgentMailResult {
    let ApiKeyBody { name, permissions, .. } = call.parse()?;
    if permissions.is_some() {
        let text = "cannot be changed; create another key with the new permissions and delete this one";
        return Err(Problem::invalid_field("permissions", text).into());
    }
    let name = name.ok_or_else(|| Problem::invalid_field("name", "is missing"))?;
    check_required_text("name", &name)?;
    let key = find(call, inbox, id).await?;
    let renamed = call.engine.access.rename_api_key(&call.caller, key.id, &name).await?;
    Ok(as_json(StatusCode::OK, &to_json(call, &renamed)))
}
