//! The audit log: who changed what, from where and when.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    control::audit::{AuditEntry, MAX_PAGE, chain::ChainLink},
    hex::format_hash,
    problem::Problem,
};
use mailonce_engine::control::audit::{AuditListing, AuditSelection, ListedEntry};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::outbound::emails::page_limit,
    http::{
        app::{ApiResult, App},
        extract::AuthedRequest,
        params::QueryParams,
    },
};

/// Who did it.
#[derive(Serialize, ToSchema)]
pub(crate) struct ActorBody {
    /// `api_key`, `person` or `system`.
    kind: String,
    /// Id of the API key or the person. For the system: `server` or `cli`.
    id: String,
}

/// An entry of the audit log.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuditEntryBody {
    /// Number of the entry within its team: from 1, without gaps.
    seq: u64,
    at: String,
    actor: ActorBody,
    /// Where the call came from: `server`, `cli`, or an id that stands for an IP address.
    from: String,
    /// What was done, such as `rule.changed`.
    action: String,
    /// What was changed, as `kind/id`.
    about: String,
    /// Values before the change, where they differ. Secrets, content and addresses are left out.
    #[schema(value_type = Option<Object>)]
    before: Option<Value>,
    /// Values after the change, where they differ. `changed` names further fields whose values are left out.
    #[schema(value_type = Option<Object>)]
    after: Option<Value>,
    /// Hash of the entry before this one.
    prev: String,
    /// Hash of this entry: it covers all fields above and the team.
    hash: String,
    /// Names of ids in this entry, as far as they are known. The hash does not cover them.
    names: BTreeMap<String, String>,
    /// What is wrong with the entry, if it does not match its hash. Fields that cannot be read are empty.
    fault: Option<&'static str>,
}

/// A place in the chain.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChainLinkBody {
    seq: u64,
    hash: String,
}

impl From<ChainLink> for ChainLinkBody {
    fn from(link: ChainLink) -> Self {
        Self { seq: link.seq, hash: format_hash(&link.hash) }
    }
}

/// A page of the audit log, oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuditPageBody {
    data: Vec<AuditEntryBody>,
    /// Pass it as `after` for the next page; null at the end.
    next_cursor: Option<String>,
    /// Id of the team, which the hashes cover.
    team: String,
    /// The entry before the first one that is kept. Number 0 with a hash of zeros, unless older entries expired.
    start: ChainLinkBody,
    /// The latest entry.
    head: ChainLinkBody,
}

impl AuditEntryBody {
    fn new(listed: &ListedEntry, names: &HashMap<String, String>) -> Self {
        let fault = listed.fault.as_ref().map(|fault| fault.kind.as_str());
        let (seq, hash) = (listed.row.seq, format_hash(&listed.row.hash));
        let Some(AuditEntry { content, prev, .. }) = listed.entry.clone() else {
            let (none, actor) = (String::new, ActorBody { kind: String::new(), id: String::new() });
            let (at, from, action, about, prev) = (none(), none(), none(), none(), none());
            let names = BTreeMap::new();
            return Self { seq, at, actor, from, action, about, before: None, after: None, prev, hash, names, fault };
        };
        let known = |id: &String| Some((id.clone(), names.get(id)?.clone()));
        let json = |text: Option<String>| text.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
        Self {
            seq,
            at: content.at.to_string(),
            names: [&content.actor.id, &content.from, &content.about].into_iter().filter_map(known).collect(),
            actor: ActorBody { kind: content.actor.kind.as_str().to_owned(), id: content.actor.id },
            from: content.from,
            action: content.action,
            about: content.about,
            before: json(content.before),
            after: json(content.after),
            prev: format_hash(&prev),
            hash,
            fault,
        }
    }
}

/// Which entries to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Entries after this number, or the `next_cursor` of the previous page.
    after: Option<String>,
    /// Entries of this actor, by id.
    actor: Option<String>,
    /// Entries with this action, such as `rule.changed`, or `rule.*` for all actions on rules.
    action: Option<String>,
    /// Entries about this resource, as `kind/id` or by id.
    about: Option<String>,
    /// Page size, 1 to 1,000; 100 by default.
    limit: Option<String>,
}

/// List the audit log.
///
/// Every administrative act and every decision of a person is an entry, in the order in which they were committed. Needs
/// the scope `admin` and an API key that is not restricted to inboxes.
#[utoipa::path(get, path = "/v1/audit", operation_id = "list_audit_entries", tag = "audit", params(AuditQuery),
    responses((status = 200, description = "The entries, oldest first", body = AuditPageBody)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<AuditQuery>) -> ApiResult {
    let AuditQuery { after, actor, action, about, limit } = query.0;
    let limit = page_limit(limit.as_deref(), MAX_PAGE, 100)?;
    let after = match after.as_deref() {
        None => 0,
        Some(text) => text.parse().map_err(|_not_a_number| {
            Problem::invalid_query("after", "after must be the number of an entry, such as 42, or a next_cursor")
        })?,
    };
    let selection = AuditSelection { actor, action, about };
    let AuditListing { entries, names, next, ends } =
        app.engine.control.audit.list(&auth.caller, after, limit, &selection).await?;
    let body = AuditPageBody {
        data: entries.iter().map(|listed| AuditEntryBody::new(listed, &names)).collect(),
        next_cursor: next.map(|seq| seq.to_string()),
        team: auth.caller.team.id.to_string(),
        start: ends.start.into(),
        head: ends.head.into(),
    };
    Ok(Json(body).into_response())
}
