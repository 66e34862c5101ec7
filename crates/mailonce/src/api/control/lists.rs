//! Allow and block lists of addresses and domains, for the whole team or for one inbox.

use axum::{
    Json,
    extract::{FromRequestParts, Path, State},
    http::request::Parts,
    response::IntoResponse,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    control::list::{ListDirection, ListEntry, ListName, ListType},
    problem::{Code, Problem},
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{inbox::inboxes::find_inbox, pagination::created_response},
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        params::QueryParams,
        problem::ApiError,
    },
};

/// A list, and an entry of it, as named in the path.
pub(crate) struct ListPath {
    direction: ListDirection,
    kind: ListType,
    entry: String,
}

impl FromRequestParts<App> for ListPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let missing = |detail: String| Problem::new(Code::NotFound, detail);
        let Path(mut segments) = Path::<HashMap<String, String>>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| missing(rejection.body_text()))?;
        let mut segment = |name: &str| segments.remove(name).unwrap_or_default();
        let (direction, kind, entry) = (segment("direction"), segment("type"), segment("entry"));
        let list = ListDirection::parse(&direction).zip(ListType::parse(&kind));
        let (direction, kind) = list.ok_or_else(|| {
            missing(format!("there is no list {direction}/{kind}; use send, receive or reply, and allow or block"))
        })?;
        Ok(Self { direction, kind, entry })
    }
}

impl ListPath {
    async fn resolve_list(&self, app: &App, auth: &AuthedRequest, query: &ListScopeQuery) -> Result<ListName, Problem> {
        let inbox = match &query.inbox {
            Some(text) => Some(find_inbox(app, auth, text).await?),
            None => None,
        };
        let inbox = inbox.map(|inbox| (inbox.id, inbox.address));
        Ok(ListName { inbox, direction: self.direction, kind: self.kind })
    }
}

/// The owner of a list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListScopeQuery {
    /// Id or address of an inbox, for the list of that inbox; the list of the team when absent.
    inbox: Option<String>,
}

/// An entry to add to a list.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewListEntryBody {
    /// An address or a domain.
    entry: String,
    /// Reason, for people.
    #[serde(default)]
    reason: Option<String>,
    /// For the allow lists `receive` and `reply`: the entry allows only mail with an authenticated sender.
    #[serde(default)]
    require_auth: Option<bool>,
}

/// An entry of a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct ListEntryBody {
    /// An address or a domain.
    entry: String,
    /// `send`, `receive` or `reply`.
    direction: &'static str,
    /// `allow` or `block`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Address of the inbox that the list belongs to; null for a list of the team.
    inbox: Option<String>,
    reason: Option<String>,
    created_at: String,
    /// Whether the entry allows only mail with an authenticated sender.
    require_auth: bool,
}

impl From<ListEntry> for ListEntryBody {
    fn from(entry: ListEntry) -> Self {
        Self {
            direction: entry.list.direction.as_str(),
            kind: entry.list.kind.as_str(),
            inbox: entry.list.inbox.map(|(_, address)| address),
            entry: entry.entry,
            reason: entry.reason,
            created_at: entry.created_at.to_string(),
            require_auth: entry.require_auth,
        }
    }
}

/// All entries of a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct ListEntryPage {
    data: Vec<ListEntryBody>,
}

/// Add an entry to a list.
///
/// An entry that is on the list already is returned unchanged.
#[utoipa::path(post, path = "/v1/lists/{direction}/{type}", operation_id = "add_list_entry", tag = "rules", request_body = NewListEntryBody,
    params(("direction" = String, Path), ("type" = String, Path), ListScopeQuery),
    responses((status = 201, description = "Added", body = ListEntryBody),
        (status = 200, description = "The entry was on the list already", body = ListEntryBody)))]
pub(crate) async fn add(
    State(app): State<App>,
    auth: AuthedRequest,
    path: ListPath,
    query: QueryParams<ListScopeQuery>,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let NewListEntryBody { entry, reason, require_auth } = body.parse()?;
    let list = path.resolve_list(&app, &auth, &query.0).await?;
    let added =
        app.engine.control.add_to_list(&auth.caller, list, &entry, (reason, require_auth.unwrap_or(false))).await?;
    Ok(created_response(added.is_new, Json(ListEntryBody::from(added.value))))
}

/// List the entries of a list, sorted by address or domain.
#[utoipa::path(get, path = "/v1/lists/{direction}/{type}", operation_id = "list_list_entries", tag = "rules",
    params(("direction" = String, Path), ("type" = String, Path), ListScopeQuery),
    responses((status = 200, description = "The entries", body = ListEntryPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    auth: AuthedRequest,
    path: ListPath,
    query: QueryParams<ListScopeQuery>,
) -> ApiResult {
    let list = path.resolve_list(&app, &auth, &query.0).await?;
    let entries = app.engine.control.list_entries(&auth.caller, &list).await?;
    Ok(Json(ListEntryPage { data: entries.into_iter().map(ListEntryBody::from).collect() }).into_response())
}

/// Remove an entry from a list.
#[utoipa::path(delete, path = "/v1/lists/{direction}/{type}/{entry}", operation_id = "remove_list_entry", tag = "rules",
    params(("direction" = String, Path), ("type" = String, Path), ("entry" = String, Path), ListScopeQuery),
    responses((status = 200, description = "The removed entry", body = ListEntryBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    auth: AuthedRequest,
    path: ListPath,
    query: QueryParams<ListScopeQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let list = path.resolve_list(&app, &auth, &query.0).await?;
    let removed = app.engine.control.remove_from_list(&auth.caller, &list, &path.entry).await?;
    Ok(Json(ListEntryBody::from(removed)).into_response())
}
