//! The documents by which MCP clients find out how to sign in (RFC 9728, RFC 8414), and what browsers need to read them.

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use mailonce_core::access::connection::CONNECTION_SCOPES;
use serde_json::{Value, json};

use super::{oauth_authorize, oauth_clients, oauth_tokens};
use crate::http::{
    app::App,
    oauth_urls::{issuer, resource},
};

/// Request headers that a page may send to these endpoints.
const ALLOW_HEADERS: &str = "Authorization, Content-Type, Accept, Mcp-Protocol-Version";

/// The routes of the authorization server.
pub(crate) fn routes() -> Router<App> {
    let open = Router::new()
        .route("/.well-known/oauth-protected-resource", get(protected_resource).options(preflight))
        .route("/.well-known/oauth-protected-resource/mcp", get(protected_resource).options(preflight))
        .route("/.well-known/oauth-authorization-server", get(authorization_server).options(preflight))
        .route("/oauth/register", post(oauth_clients::register).options(preflight))
        .route("/oauth/token", post(oauth_tokens::issue).options(preflight))
        .route("/oauth/revoke", post(oauth_tokens::revoke).options(preflight))
        .layer(middleware::from_fn(|request, next: Next| async move { with_cors(next.run(request).await) }));
    open.route("/oauth/authorize", get(oauth_authorize::show).post(oauth_authorize::decide))
}

/// Lets pages of every site read a response.
fn with_cors(mut response: Response) -> Response {
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Retry-After"));
    response
}

/// The answer to a preflight.
async fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOW_HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

fn scopes_supported() -> Vec<&'static str> {
    CONNECTION_SCOPES.iter().map(|scope| scope.as_str()).collect()
}

async fn protected_resource(State(app): State<App>) -> Json<Value> {
    Json(json!({
        "resource": resource(&app),
        "authorization_servers": [issuer(&app)],
        "scopes_supported": scopes_supported(),
        "bearer_methods_supported": ["header"],
        "resource_name": "mailonce",
    }))
}

async fn authorization_server(State(app): State<App>) -> Json<Value> {
    let issuer = issuer(&app);
    Json(json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/oauth/authorize"),
        "token_endpoint": format!("{issuer}/oauth/token"),
        "registration_endpoint": format!("{issuer}/oauth/register"),
        "revocation_endpoint": format!("{issuer}/oauth/revoke"),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        "code_challenge_methods_supported": ["S256"],
        "scopes_supported": scopes_supported(),
        "authorization_response_iss_parameter_supported": true,
    }))
}
