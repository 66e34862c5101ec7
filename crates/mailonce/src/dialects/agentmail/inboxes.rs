//! The AgentMail routes for inboxes. The id of an inbox is its address.

use axum::http::{Method, StatusCode};
use mailonce_core::{
    inbox::{Inbox, InboxSettings},
    limits,
    problem::{Code, Problem},
};
use mailonce_engine::inbox::inboxes::{InboxPatch, NewInbox};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

use super::{
    AgentMailResult, no_route,
    query::{encode_page_token, page_json},
};
use crate::{
    dialects::{
        agentmail::{errors::UNPROCESSABLE, request::AgentMailRequest},
        json as as_json,
    },
    http::json::{check_text, given},
};

/// Maximum inboxes read for a search or for an ascending list.
const MAX_SEARCHED: usize = 1_000;

/// The body of a request that creates an inbox.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewInboxBody {
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    domain: Option<String>,
    #[serde(default)]
    display_name: Option<String>,
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

/// The body of a request that changes an inbox.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InboxPatchBody {
    #[serde(default)]
    display_name: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default, deserialize_with = "given")]
    metadata: Option<Option<Map<String, Value>>>,
}

pub(super) async fn route(call: &AgentMailRequest, rest: &[&str]) -> AgentMailResult {
    match (&call.method, rest) {
        (&Method::GET, []) => list(call).await,
        (&Method::POST, []) => create(call).await,
        (&Method::GET, ["search"]) => search(call).await,
        (&Method::GET, [id]) => Ok(as_json(StatusCode::OK, &to_json(call, &call.inbox(id).await?))),
        (&Method::PATCH, [id]) => change(call, id).await,
        (&Method::DELETE, [id]) => remove(call, id).await,
        _ => Err(no_route(call).into()),
    }
}

/// An inbox in AgentMail's format.
pub(super) fn to_json(call: &AgentMailRequest, inbox: &Inbox) -> Value {
    let at = inbox.created_at.to_string();
    let mut body = json!({
        "pod_id": call.pod_id(),
        "inbox_id": inbox.address,
        "email": inbox.address,
        "updated_at": inbox.updated_at().to_string(),
        "created_at": at,
    });
    for (name, text) in [("display_name", &inbox.settings.name), ("client_id", &inbox.client_id)] {
        if let Some(text) = text {
            body[name] = text.as_str().into();
        }
    }
    if !inbox.is_open(call.engine.ctx.now()) {
        body["status"] = "paused".into();
    }
    if !inbox.settings.metadata.is_empty() {
        let members = inbox.settings.metadata.iter().map(|(name, text)| (name.clone(), decode_metadata_value(text)));
        body["metadata"] = Value::Object(members.collect());
    }
    body
}

/// Encodes a metadata value as text. A string that would parse as JSON is stored as a JSON string, with quotes.
fn encode_metadata_value(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if serde_json::from_str::<Value>(text).is_err() => Some(text.clone()),
        Value::String(_) | Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

fn decode_metadata_value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_plain| text.into())
}

fn parse_metadata(members: &Map<String, Value>) -> Result<BTreeMap<String, String>, Problem> {
    let wrong_type =
        |name: &str| Problem::invalid_field(format!("metadata.{name}"), "must be a string, a number or a boolean");
    let parse_entry = |(name, value): (&String, &Value)| {
        let text = encode_metadata_value(value).ok_or_else(|| wrong_type(name))?;
        check_text("metadata", name)?;
        check_text("metadata", &text)?;
        Ok((name.clone(), text))
    };
    let all: BTreeMap<String, String> = members.iter().map(parse_entry).collect::<Result<_, Problem>>()?;
    if all.len() > limits::METADATA {
        return Err(Problem::invalid_field("metadata", format!("must have at most {} entries", limits::METADATA)));
    }
    Ok(all)
}

/// Whether the status asks for a paused inbox.
fn parse_paused(status: Option<&str>) -> Result<Option<bool>, Problem> {
    match status {
        None => Ok(None),
        Some("paused") => Ok(Some(true)),
        Some("active") => Ok(Some(false)),
        Some(_) => Err(Problem::invalid_field("status", "must be active or paused")),
    }
}

async fn create(call: &AgentMailRequest) -> AgentMailResult {
    let NewInboxBody { username, domain, display_name, client_id, status, metadata: members } = call.parse()?;
    for (path, text) in
        [("username", &username), ("domain", &domain), ("display_name", &display_name), ("client_id", &client_id)]
    {
        check_text(path, text.as_deref().unwrap_or_default())?;
    }
    let paused = parse_paused(status.as_deref())? == Some(true);
    let settings = InboxSettings {
        name: display_name,
        metadata: members.as_ref().map(parse_metadata).transpose()?.unwrap_or_default(),
        expires_at: paused.then(|| call.engine.ctx.now()),
        ..InboxSettings::default()
    };
    let new = NewInbox { username, domain, client_id, about: settings, ..NewInbox::default() };
    let as_unprocessable = |problem: Problem| match problem.code {
        Code::NameTaken => problem.with_extension(UNPROCESSABLE, true),
        _ => problem,
    };
    let created = call.engine.inboxes.create_inbox(&call.caller, new, None).await.map_err(as_unprocessable)?;
    Ok(as_json(StatusCode::OK, &to_json(call, &created.value)))
}

async fn list(call: &AgentMailRequest) -> AgentMailResult {
    let limit = call.query.limit()?;
    let (found, next) = if call.query.flag("ascending")? {
        let (all, rest) = latest(call).await?;
        call.query.paginate_oldest_first(all, rest)?
    } else {
        let before = call.query.page_token::<1>()?.map(|[id]| Uuid::from_u128(id));
        let page = call.engine.inboxes.inboxes(&call.caller, before, limit).await?;
        (page.rows, page.next.map(|next| encode_page_token(&[next.as_u128()])))
    };
    let inboxes = found.iter().map(|inbox| to_json(call, inbox)).collect();
    Ok(as_json(StatusCode::OK, &page_json("inboxes", inboxes, limit, next)))
}

/// The latest inboxes, newest first, and whether there are more.
async fn latest(call: &AgentMailRequest) -> Result<(Vec<Inbox>, bool), Problem> {
    let (mut found, mut before) = (Vec::new(), None);
    while found.len() < MAX_SEARCHED {
        let page = call.engine.inboxes.inboxes(&call.caller, before, limits::PAGE_ROWS).await?;
        found.extend(page.rows);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    Ok((found, before.is_some()))
}

/// Whether every word of the query is a prefix of a word in the address or the name.
fn matches(inbox: &Inbox, query: &str) -> bool {
    let text = format!("{} {}", inbox.address, inbox.settings.name.as_deref().unwrap_or_default()).to_lowercase();
    let is_separator = |c: char| !c.is_alphanumeric();
    let words: Vec<&str> = text.split(is_separator).collect();
    let query = query.to_lowercase();
    let mut prefixes = query.split(is_separator).filter(|prefix| !prefix.is_empty());
    prefixes.all(|prefix| words.iter().any(|candidate| candidate.starts_with(prefix)))
}

async fn search(call: &AgentMailRequest) -> AgentMailResult {
    let limit = call.query.limit()?;
    let Some(query) = call.query.last("q").filter(|query| !query.trim().is_empty()) else {
        return Err(Problem::invalid_field("q", "is missing").into());
    };
    let (mut found, _) = latest(call).await?;
    found.retain(|inbox| matches(inbox, query));
    // An exact address match comes first; the others stay newest first.
    found.sort_by_key(|inbox| !inbox.address.eq_ignore_ascii_case(query.trim()));
    found.truncate(limit);
    let inboxes = found.iter().map(|inbox| to_json(call, inbox)).collect();
    Ok(as_json(StatusCode::OK, &page_json("inboxes", inboxes, limit, None)))
}

async fn change(call: &AgentMailRequest, id: &str) -> AgentMailResult {
    let inbox = call.inbox(id).await?;
    let InboxPatchBody { display_name, status, metadata: members } = call.parse()?;
    check_text("display_name", display_name.as_deref().unwrap_or_default())?;
    let paused = parse_paused(status.as_deref())?;
    if display_name.is_none() && paused.is_none() && members.is_none() {
        return Err(Problem::invalid_field(
            "display_name",
            "is missing, and so are status and metadata: give at least one of them",
        )
        .into());
    }
    let patch = InboxPatch {
        name: display_name.map(Some),
        expires_at: paused.map(|paused| paused.then(|| call.engine.ctx.now())),
        metadata: members.map(|members| merge_metadata(&inbox, members)).transpose()?,
        ..InboxPatch::default()
    };
    let inbox = call.engine.inboxes.change_inbox(&call.caller, inbox.id, patch, None).await?;
    Ok(as_json(StatusCode::OK, &to_json(call, &inbox)))
}

/// Merges new metadata into that of the inbox. A null value removes an entry; null metadata removes all.
fn merge_metadata(inbox: &Inbox, members: Option<Map<String, Value>>) -> Result<BTreeMap<String, String>, Problem> {
    let Some(members) = members else { return Ok(BTreeMap::new()) };
    if members.is_empty() {
        return Err(Problem::invalid_field("metadata", "is empty; use null to clear it"));
    }
    let mut all = inbox.settings.metadata.clone();
    all.retain(|name, _| !members.contains_key(name));
    let set: Map<String, Value> = members.into_iter().filter(|(_, value)| !value.is_null()).collect();
    all.extend(parse_metadata(&set)?);
    Ok(all)
}

async fn remove(call: &AgentMailRequest, id: &str) -> AgentMailResult {
    let inbox = call.inbox(id).await?;
    call.engine.inboxes.remove_inbox(&call.caller, inbox.id).await?;
    Ok(axum::response::IntoResponse::into_response(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_comes_back_as_it_was_given() {
        for value in
            [json!("plain"), json!("5"), json!("true"), json!("\"x\""), json!(5), json!(1.5), json!(false), json!("")]
        {
            assert_eq!(decode_metadata_value(&encode_metadata_value(&value).unwrap()), value, "{value}");
        }
        assert_eq!(encode_metadata_value(&json!("plain")).as_deref(), Some("plain"));
        assert_eq!(encode_metadata_value(&json!([1])), None);
    }
}
