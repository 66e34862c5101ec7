//! Allow and block lists: whom mail may come from and go to, for the whole team or for one inbox.

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

use crate::api::{
    ApiResult, App, QueryParams,
    door::{AuthedRequest, RawBody},
    inbox::inboxes::find_inbox,
    pagination::created_response,
    problem::ApiError,
};

/// Which list, and who on it.
pub(crate) struct ListPath {
    direction: ListDirection,
    kind: ListType,
    entry: String,
}

impl FromRequestParts<App> for ListPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let missing = |detail: String| Problem::new(Code::NotFound, detail);
        let Path(mut words) = Path::<HashMap<String, String>>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| missing(rejection.body_text()))?;
        let mut word = |name: &str| words.remove(name).unwrap_or_default();
        let (direction, kind, entry) = (word("direction"), word("type"), word("entry"));
        let list = ListDirection::parse(&direction).zip(ListType::parse(&kind));
        let (direction, kind) = list.ok_or_else(|| {
            missing(format!("there is no list {direction}/{kind}; it is send, receive or reply, and allow or block"))
        })?;
        Ok(Self { direction, kind, entry })
    }
}

impl ListPath {
    async fn resolve_list(&self, app: &App, door: &AuthedRequest, query: &ListScopeQuery) -> Result<ListName, Problem> {
        let inbox = match &query.inbox {
            Some(text) => Some(find_inbox(app, door, text).await?),
            None => None,
        };
        let inbox = inbox.map(|inbox| (inbox.id, inbox.address));
        Ok(ListName { inbox, direction: self.direction, kind: self.kind })
    }
}

/// Whose list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListScopeQuery {
    /// An inbox by id or address; the list of the whole team without one.
    inbox: Option<String>,
}

/// Somebody to put on a list.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewListEntryBody {
    /// An address or a domain.
    entry: String,
    /// Why, for people.
    #[serde(default)]
    reason: Option<String>,
    /// For the allow lists `receive` and `reply`: only mail whose sender is authenticated passes by this entry.
    #[serde(default)]
    require_auth: Option<bool>,
}

/// Somebody on a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct ListEntryBody {
    /// An address or a domain.
    entry: String,
    /// `send`, `receive` or `reply`.
    direction: &'static str,
    /// `allow` or `block`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The address of the inbox whose list it is; null for the team's.
    inbox: Option<String>,
    reason: Option<String>,
    created_at: String,
    /// Whether only authenticated mail passes by this entry.
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

/// Everybody on a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct ListEntryPage {
    data: Vec<ListEntryBody>,
}

/// Put somebody on a list. Whoever is on it already stays.
#[utoipa::path(post, path = "/v1/lists/{direction}/{type}", operation_id = "add_list_entry", tag = "rules", request_body = NewListEntryBody,
    params(("direction" = String, Path), ("type" = String, Path), ListScopeQuery),
    responses((status = 201, description = "Put on the list", body = ListEntryBody),
        (status = 200, description = "Was on it", body = ListEntryBody)))]
pub(crate) async fn add(
    State(app): State<App>,
    door: AuthedRequest,
    path: ListPath,
    query: QueryParams<ListScopeQuery>,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let NewListEntryBody { entry, reason, require_auth } = body.parse()?;
    let list = path.resolve_list(&app, &door, &query.0).await?;
    let put =
        app.engine.control.add_to_list(&door.caller, list, &entry, (reason, require_auth.unwrap_or(false))).await?;
    Ok(created_response(put.is_new, Json(ListEntryBody::from(put.value))))
}

/// Everybody on a list, in the order of their names.
#[utoipa::path(get, path = "/v1/lists/{direction}/{type}", operation_id = "list_list_entries", tag = "rules",
    params(("direction" = String, Path), ("type" = String, Path), ListScopeQuery),
    responses((status = 200, description = "Everybody on it", body = ListEntryPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    door: AuthedRequest,
    path: ListPath,
    query: QueryParams<ListScopeQuery>,
) -> ApiResult {
    let list = path.resolve_list(&app, &door, &query.0).await?;
    let entries = app.engine.control.list_entries(&door.caller, &list).await?;
    Ok(Json(ListEntryPage { data: entries.into_iter().map(ListEntryBody::from).collect() }).into_response())
}

/// Take somebody off a list.
#[utoipa::path(delete, path = "/v1/lists/{direction}/{type}/{entry}", operation_id = "remove_list_entry", tag = "rules",
    params(("direction" = String, Path), ("type" = String, Path), ("entry" = String, Path), ListScopeQuery),
    responses((status = 200, description = "Taken off", body = ListEntryBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    door: AuthedRequest,
    path: ListPath,
    query: QueryParams<ListScopeQuery>,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let list = path.resolve_list(&app, &door, &query.0).await?;
    let gone = app.engine.control.remove_from_list(&door.caller, &list, &path.entry).await?;
    Ok(Json(ListEntryBody::from(gone)).into_response())
}
