//! Connections: the clients that people let call `/mcp`.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    id::ConnectionId,
    problem::{Code, Problem},
};
use mailonce_engine::access::connections::ConnectionView;
use serde::Serialize;
use utoipa::ToSchema;

use super::oauth_clients::RedirectUri;
use crate::{
    api::pagination::PageQuery,
    http::{
        app::{ApiResult, App},
        extract::AuthedRequest,
        params::{PathParam, QueryParams},
    },
};

/// The person of a connection.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConnectionPersonBody {
    id: String,
    name: String,
}

/// The client of a connection.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConnectionClientBody {
    id: String,
    /// What the client calls itself. Nobody checked it.
    name: String,
    /// The host to which the browser was sent.
    redirect_host: String,
}

/// A client that a person let call `/mcp`.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConnectionBody {
    id: String,
    person: ConnectionPersonBody,
    client: ConnectionClientBody,
    /// What the person allowed. The role of the person may allow less by now.
    scopes: Vec<&'static str>,
    /// Ids of the inboxes that the person allowed; null for all.
    inboxes: Option<Vec<String>>,
    created_at: String,
    /// To the minute.
    last_used_at: Option<String>,
    /// When the connection ends if the client does not use it.
    expires_at: Option<String>,
}

impl From<ConnectionView> for ConnectionBody {
    fn from(view: ConnectionView) -> Self {
        let ConnectionView { id, person, created_at, last_used_at, connection } = view;
        let host = RedirectUri::parse(&connection.redirect_uri).map(|uri| uri.host().to_owned());
        let inboxes: Vec<String> = connection.inboxes.iter().map(ToString::to_string).collect();
        Self {
            id: id.to_string(),
            person: ConnectionPersonBody { id: person.id.to_string(), name: person.person.name },
            client: ConnectionClientBody {
                id: connection.client.to_string(),
                name: connection.client_name,
                redirect_host: host.unwrap_or_default(),
            },
            scopes: connection.scopes.iter().map(|scope| scope.as_str()).collect(),
            inboxes: (!inboxes.is_empty()).then_some(inboxes),
            created_at: created_at.to_string(),
            last_used_at: last_used_at.map(|at| at.to_string()),
            expires_at: connection.refresh_token.map(|token| token.expires_at.to_string()),
        }
    }
}

/// A page of connections.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConnectionPage {
    data: Vec<ConnectionBody>,
    next_cursor: Option<String>,
}

/// List the clients that are connected, newest first.
///
/// People see their own connections; with the scope `admin`, those of the team.
#[utoipa::path(get, path = "/v1/connections", operation_id = "list_connections", tag = "people", params(PageQuery),
    responses((status = 200, description = "A page of results", body = ConnectionPage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    let (before, limit) = query.0.parse()?;
    let page = app.engine.connections.connections(&auth.caller, before, limit).await?;
    let data = page.rows.into_iter().map(ConnectionBody::from).collect();
    Ok(Json(ConnectionPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// End a connection.
///
/// The tokens of the client stop working within a second. People end their own connections; with the scope `admin`, those
/// of the team.
#[utoipa::path(delete, path = "/v1/connections/{id}", operation_id = "end_connection", tag = "people", params(("id" = String, Path)),
    responses((status = 200, description = "The connection, which is over", body = ConnectionBody)))]
pub(crate) async fn end(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    let not_found = |_not_an_id| Problem::new(Code::NotFound, format!("there is no connection {id}"));
    let id: ConnectionId = id.parse().map_err(not_found)?;
    let ended = app.engine.connections.end_connection(&auth.caller, id).await?;
    Ok(Json(ConnectionBody::from(ended)).into_response())
}
