//! Allow and block lists, of the team or of one inbox.

use axum::{
    http::{Method, StatusCode},
    response::IntoResponse as _,
};
use mailonce_core::{
    list::{ListDirection, ListEntry, ListName, ListType},
    problem::{Code, Problem},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, door::Call, no_route, query::listed};
use crate::dialects::json as as_json;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewBody {
    entry: String,
    #[serde(default)]
    reason: Option<String>,
}

pub(super) async fn route(call: &Call, inbox: Option<&str>, rest: &[&str]) -> Answer {
    let [direction, kind, rest @ ..] = rest else { return Err(no_route(call).into()) };
    let (Some(direction), Some(kind)) = (ListDirection::parse(direction), ListType::parse(kind)) else {
        let detail = "a list must be of send, receive or reply, and of allow or block";
        return Err(Problem::field(Code::InvalidQuery, "direction", detail).into());
    };
    let inbox = match inbox {
        Some(name) => Some(call.inbox(name).await?).map(|inbox| (inbox.id, inbox.address)),
        None => None,
    };
    let list = ListName { inbox, direction, kind };
    match (&call.method, rest) {
        (&Method::GET, []) => entries(call, &list).await,
        (&Method::POST, []) => {
            let NewBody { entry, reason } = call.parse()?;
            let made = call.engine.add_to_list(&call.caller, list, &entry, (reason, false)).await?;
            Ok(as_json(StatusCode::OK, &shown(call, &made.thing)))
        }
        (&Method::GET, [entry]) => {
            let entry = call.engine.list_entry(&call.caller, &list, entry).await?;
            Ok(as_json(StatusCode::OK, &shown(call, &entry)))
        }
        (&Method::DELETE, [entry]) => {
            call.engine.remove_from_list(&call.caller, &list, entry).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Err(no_route(call).into()),
    }
}

fn shown(call: &Call, entry: &ListEntry) -> Value {
    let mut body = json!({
        "entry": entry.entry,
        "organization_id": call.pod(),
        "pod_id": call.pod(),
        "direction": entry.list.direction.word(),
        "list_type": entry.list.kind.word(),
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

async fn entries(call: &Call, list: &ListName) -> Answer {
    let limit = call.query.limit()?;
    let all = call.engine.list_entries(&call.caller, list).await?;
    let (found, next) = call.query.page_of(all)?;
    let entries = found.iter().map(|entry| shown(call, entry)).collect();
    Ok(as_json(StatusCode::OK, &listed("entries", entries, limit, next)))
}
