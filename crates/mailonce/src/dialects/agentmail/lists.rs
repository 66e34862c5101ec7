//! The AgentMail routes for allow and block lists, of the team or of one inbox.

use axum::{
    http::{Method, StatusCode},
    response::IntoResponse as _,
};
use mailonce_core::{
    control::list::{ListDirection, ListEntry, ListName, ListType},
    problem::Problem,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AgentMailResult, no_route, query::page_json};
use crate::dialects::agentmail::request::AgentMailRequest;
use crate::dialects::json as as_json;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewListEntryBody {
    entry: String,
    #[serde(default)]
    reason: Option<String>,
}

pub(super) async fn route(call: &AgentMailRequest, inbox: Option<&str>, rest: &[&str]) -> AgentMailResult {
    let [direction, kind, rest @ ..] = rest else { return Err(no_route(call).into()) };
    let (Some(direction), Some(kind)) = (ListDirection::parse(direction), ListType::parse(kind)) else {
        let detail = "the path must name a direction (send, receive or reply) and a list type (allow or block)";
        return Err(Problem::invalid_query("direction", detail).into());
    };
    let inbox = match inbox {
        Some(name) => Some(call.inbox(name).await?).map(|inbox| (inbox.id, inbox.address)),
        None => None,
    };
    let list = ListName { inbox, direction, kind };
    match (&call.method, rest) {
        (&Method::GET, []) => list_entries(call, &list).await,
        (&Method::POST, []) => {
            let NewListEntryBody { entry, reason } = call.parse()?;
            let created = call.engine.control.add_to_list(&call.caller, list, &entry, (reason, false)).await?;
            Ok(as_json(StatusCode::OK, &to_json(call, &created.value)))
        }
        (&Method::GET, [entry]) => {
            let entry = call.engine.control.list_entry(&call.caller, &list, entry).await?;
            Ok(as_json(StatusCode::OK, &to_json(call, &entry)))
        }
        (&Method::DELETE, [entry]) => {
            call.engine.control.remove_from_list(&call.caller, &list, entry).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Err(no_route(call).into()),
    }
}

fn to_json(call: &AgentMailRequest, entry: &ListEntry) -> Value {
    let mut body = json!({
        "entry": entry.entry,
        "organization_id": call.pod_id(),
        "pod_id": call.pod_id(),
        "direction": entry.list.direction.as_str(),
        "list_type": entry.list.kind.as_str(),
        "entry_type": if entry.is_address() { "email" } else { "domain" },
        "created_at": entry.created_at.to_string(),
    });
    if let Some(reason) = &entry.reason {
        body["reason"] = reason.as_str().into();
    }
    if let Some((_, address)) = &entry.list.inbox {
        body["inbox_id"] = address.as_str().into();
    }
    body
}

async fn list_entries(call: &AgentMailRequest, list: &ListName) -> AgentMailResult {
    let limit = call.query.limit()?;
    let all = call.engine.control.list_entries(&call.caller, list).await?;
    let (found, next) = call.query.paginate(all)?;
    let entries = found.iter().map(|entry| to_json(call, entry)).collect();
    Ok(as_json(StatusCode::OK, &page_json("entries", entries, limit, next)))
}
