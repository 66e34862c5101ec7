//! Inboxes: an inbox's id is its address.

use axum::http::{Method, StatusCode};
use mailonce_core::{
    inbox::{AboutInbox, Inbox},
    limits,
    problem::{Code, FieldError, Problem},
};
use mailonce_engine::inboxes::{InboxPatch, NewInbox};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

use super::{
    Answer,
    door::Call,
    faults::UNPROCESSABLE,
    no_route,
    query::{listed, token},
};
use crate::{
    api::wire::{given, words},
    dialects::json as as_json,
};

/// Inboxes that are looked through in a search.
const SEARCHED: usize = 1_000;

/// An inbox to make.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewBody {
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

/// A change of an inbox.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchBody {
    #[serde(default)]
    display_name: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default, deserialize_with = "given")]
    metadata: Option<Option<Map<String, Value>>>,
}

pub(super) async fn route(call: &Call, rest: &[&str]) -> Answer {
    match (&call.method, rest) {
        (&Method::GET, []) => list(call).await,
        (&Method::POST, []) => create(call).await,
        (&Method::GET, ["search"]) => search(call).await,
        (&Method::GET, [id]) => Ok(as_json(StatusCode::OK, &shown(call, &call.inbox(id).await?))),
        (&Method::PATCH, [id]) => change(call, id).await,
        (&Method::DELETE, [id]) => remove(call, id).await,
        _ => Err(no_route(call).into()),
    }
}

fn fault(path: &str, text: &str) -> Problem {
    Problem::from(vec![FieldError::new(path, text)])
}

/// An inbox as AgentMail shows it.
pub(super) fn shown(call: &Call, inbox: &Inbox) -> Value {
    let at = inbox.created_at.to_string();
    let mut body = json!({
        "pod_id": call.pod(),
        "inbox_id": inbox.address,
        "email": inbox.address,
        "updated_at": inbox.updated_at().to_string(),
        "created_at": at,
    });
    for (name, text) in [("display_name", &inbox.about.name), ("client_id", &inbox.client_id)] {
        if let Some(text) = text {
            body[name] = text.as_str().into();
        }
    }
    if !inbox.is_open(call.engine.now()) {
        body["status"] = "paused".into();
    }
    if !inbox.about.metadata.is_empty() {
        let members = inbox.about.metadata.iter().map(|(name, text)| (name.clone(), opened(text)));
        body["metadata"] = Value::Object(members.collect());
    }
    body
}

/// A value of metadata as text: one that could be taken for something else stands in quotes.
fn closed(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if serde_json::from_str::<Value>(text).is_err() => Some(text.clone()),
        Value::String(_) | Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

fn opened(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_plain| text.into())
}

fn metadata(members: &Map<String, Value>) -> Result<BTreeMap<String, String>, Problem> {
    let wrong = |name: &str| fault(&format!("metadata.{name}"), "is a string, a number or a boolean");
    let one = |(name, value): (&String, &Value)| {
        let text = closed(value).ok_or_else(|| wrong(name))?;
        words("metadata", name)?;
        words("metadata", &text)?;
        Ok((name.clone(), text))
    };
    let all: BTreeMap<String, String> = members.iter().map(one).collect::<Result<_, Problem>>()?;
    if all.len() > limits::METADATA {
        return Err(fault("metadata", "has too many entries"));
    }
    Ok(all)
}

/// Whether an inbox is to rest.
fn paused(status: Option<&str>) -> Result<Option<bool>, Problem> {
    match status {
        None => Ok(None),
        Some("paused") => Ok(Some(true)),
        Some("active") => Ok(Some(false)),
        Some(_) => Err(fault("status", "must be active or paused")),
    }
}

async fn create(call: &Call) -> Answer {
    let NewBody { username, domain, display_name, client_id, status, metadata: members } = call.parse()?;
    for (path, text) in
        [("username", &username), ("domain", &domain), ("display_name", &display_name), ("client_id", &client_id)]
    {
        words(path, text.as_deref().unwrap_or_default())?;
    }
    let rests = paused(status.as_deref())? == Some(true);
    let about = AboutInbox {
        name: display_name,
        metadata: members.as_ref().map(metadata).transpose()?.unwrap_or_default(),
        expires_at: rests.then(|| call.engine.now()),
        ..AboutInbox::default()
    };
    let new = NewInbox { username, domain, client_id, about, ..NewInbox::default() };
    let taken = |problem: Problem| match problem.code {
        Code::NameTaken => problem.with(UNPROCESSABLE, true),
        _ => problem,
    };
    let made = call.engine.create_inbox(&call.caller, new, None).await.map_err(taken)?;
    Ok(as_json(StatusCode::OK, &shown(call, &made.thing)))
}

async fn list(call: &Call) -> Answer {
    let limit = call.query.limit()?;
    let (found, next) = if call.query.flag("ascending")? {
        let (all, rest) = latest(call).await?;
        call.query.turned(all, rest)?
    } else {
        let before = call.query.page::<1>()?.map(|[id]| Uuid::from_u128(id));
        let page = call.engine.inboxes(&call.caller, before, limit).await?;
        (page.rows, page.next.map(|next| token(&[next.as_u128()])))
    };
    let inboxes = found.iter().map(|inbox| shown(call, inbox)).collect();
    Ok(as_json(StatusCode::OK, &listed("inboxes", inboxes, limit, next)))
}

/// The latest inboxes, newest first, and whether there are more.
async fn latest(call: &Call) -> Result<(Vec<Inbox>, bool), Problem> {
    let (mut found, mut before) = (Vec::new(), None);
    while found.len() < SEARCHED {
        let page = call.engine.inboxes(&call.caller, before, limits::PAGE_ROWS).await?;
        found.extend(page.rows);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    Ok((found, before.is_some()))
}

/// Whether every word of a query begins a word of an address or a name.
fn matches(inbox: &Inbox, query: &str) -> bool {
    let text = format!("{} {}", inbox.address, inbox.about.name.as_deref().unwrap_or_default()).to_lowercase();
    let split = |c: char| !c.is_alphanumeric();
    let known: Vec<&str> = text.split(split).collect();
    let query = query.to_lowercase();
    let mut wanted = query.split(split).filter(|word| !word.is_empty());
    wanted.all(|word| known.iter().any(|one| one.starts_with(word)))
}

async fn search(call: &Call) -> Answer {
    let limit = call.query.limit()?;
    let Some(query) = call.query.one("q").filter(|query| !query.trim().is_empty()) else {
        return Err(fault("q", "is missing").into());
    };
    let (mut found, _) = latest(call).await?;
    found.retain(|inbox| matches(inbox, query));
    // The very address comes first; the others stay newest first.
    found.sort_by_key(|inbox| !inbox.address.eq_ignore_ascii_case(query.trim()));
    found.truncate(limit);
    let inboxes = found.iter().map(|inbox| shown(call, inbox)).collect();
    Ok(as_json(StatusCode::OK, &listed("inboxes", inboxes, limit, None)))
}

async fn change(call: &Call, id: &str) -> Answer {
    let inbox = call.inbox(id).await?;
    let PatchBody { display_name, status, metadata: members } = call.parse()?;
    words("display_name", display_name.as_deref().unwrap_or_default())?;
    let rests = paused(status.as_deref())?;
    if display_name.is_none() && rests.is_none() && members.is_none() {
        return Err(fault("display_name", "is missing, and so are status and metadata: nothing is to change").into());
    }
    let patch = InboxPatch {
        name: display_name.map(Some),
        expires_at: rests.map(|rests| rests.then(|| call.engine.now())),
        metadata: members.map(|members| merged(&inbox, members)).transpose()?,
        ..InboxPatch::default()
    };
    let inbox = call.engine.change_inbox(&call.caller, inbox.id, patch, None).await?;
    Ok(as_json(StatusCode::OK, &shown(call, &inbox)))
}

/// Metadata with what was given merged into it; a null takes an entry away, or all.
fn merged(inbox: &Inbox, members: Option<Map<String, Value>>) -> Result<BTreeMap<String, String>, Problem> {
    let Some(members) = members else { return Ok(BTreeMap::new()) };
    if members.is_empty() {
        return Err(fault("metadata", "is empty; null clears it"));
    }
    let mut all = inbox.about.metadata.clone();
    all.retain(|name, _| !members.contains_key(name));
    let set: Map<String, Value> = members.into_iter().filter(|(_, value)| !value.is_null()).collect();
    all.extend(metadata(&set)?);
    Ok(all)
}

async fn remove(call: &Call, id: &str) -> Answer {
    let inbox = call.inbox(id).await?;
    call.engine.remove_inbox(&call.caller, inbox.id).await?;
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
            assert_eq!(opened(&closed(&value).unwrap()), value, "{value}");
        }
        assert_eq!(closed(&json!("plain")).as_deref(), Some("plain"));
        assert_eq!(closed(&json!([1])), None);
    }
}
