//! The token endpoint and the revocation of tokens (RFC 6749, 7009), for public clients with PKCE.

use axum::{
    Json,
    body::Bytes,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use mailonce_core::id::OauthClientId;
use mailonce_engine::access::oauth_tokens::{CodeGrant, GrantError};
use serde_json::json;
use std::{collections::HashMap, net::IpAddr};

use super::oauth_error::OauthError;
use crate::{
    client_address::ClientAddress,
    http::{
        app::App,
        extract::{check_failures, read_body},
        oauth_urls::resource,
    },
};

/// The largest body of an OAuth request.
pub(crate) const MAX_BODY_BYTES: usize = 16 * 1024;
/// The lengths that RFC 7636 allows for a verifier.
const VERIFIER_CHARS: std::ops::RangeInclusive<usize> = 43..=128;

/// The parameters of a request. Each may be given once.
pub(crate) struct OauthParams(HashMap<String, String>);

impl OauthParams {
    /// Parses a query or a form.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, OauthError> {
        let mut params = HashMap::new();
        for (name, value) in url::form_urlencoded::parse(text) {
            // Checkboxes repeat their name.
            if name == "inbox" || name == "grant" {
                continue;
            }
            if params.insert(name.to_string(), value.into_owned()).is_some() {
                return Err(OauthError::new("invalid_request", format!("`{name}` is given more than once")));
            }
        }
        Ok(Self(params))
    }

    /// A parameter that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn require(&self, name: &str) -> Result<&str, OauthError> {
        self.get(name).ok_or_else(|| OauthError::new("invalid_request", format!("`{name}` is missing")))
    }

    fn client(&self) -> Result<OauthClientId, OauthError> {
        let unknown = |_not_an_id| OauthError::new("invalid_client", "`client_id` is not one of this server");
        self.require("client_id")?.parse().map_err(unknown)
    }

    /// The resource of the request, which must be `/mcp` of this server (RFC 8707). Without one it is that.
    pub(crate) fn resource(&self, app: &App) -> Result<String, OauthError> {
        let own = resource(app);
        match self.get("resource") {
            Some(other) if other.trim_end_matches('/') != own => {
                Err(OauthError::new("invalid_target", format!("`resource` must be {own}")))
            }
            _ => Ok(own),
        }
    }
}

/// Reads a form of at most 16 KiB.
pub(crate) async fn read_form(request: Request) -> Result<Bytes, OauthError> {
    check_form(request.headers())?;
    Ok(read_body(request.into_body(), MAX_BODY_BYTES).await?)
}

fn check_form(headers: &HeaderMap) -> Result<(), OauthError> {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Ok(());
    }
    Err(OauthError::new("invalid_request", "Content-Type must be application/x-www-form-urlencoded"))
}

/// Counts a code or token that this server never made, so that guessing is blocked.
fn count_guess(app: &App, client: Option<IpAddr>, error: &GrantError) {
    if let (Some(client), GrantError::Unknown) = (client, error) {
        app.auth_failures.record(client);
    }
}

/// Exchanges a code or a refresh token for new tokens.
pub(crate) async fn issue(State(app): State<App>, request: Request) -> Result<Response, OauthError> {
    let address = ClientAddress::of(request.extensions());
    check_failures(&app, address)?;
    let params = OauthParams::parse(&read_form(request).await?)?;
    let (client, resource) = (params.client(), params.resource(&app)?);
    app.engine.control.audit.set_anonymous_origin(address);
    let connections = &app.engine.connections;
    let tokens = match params.require("grant_type")? {
        "authorization_code" => {
            let verifier = params.require("code_verifier")?;
            if !VERIFIER_CHARS.contains(&verifier.len()) {
                return Err(OauthError::new("invalid_request", "`code_verifier` must have 43 to 128 characters"));
            }
            let (code, redirect_uri) = (params.require("code")?, params.get("redirect_uri"));
            let grant = CodeGrant { code, client: client?, redirect_uri, verifier, resource: &resource };
            connections.exchange_code(grant).await
        }
        "refresh_token" => connections.refresh_tokens(params.require("refresh_token")?, client?, &resource).await,
        _ => {
            let detail = "grant_type must be authorization_code or refresh_token";
            return Err(OauthError::new("unsupported_grant_type", detail));
        }
    };
    let tokens = tokens.inspect_err(|error| count_guess(&app, address, error))?;
    let scope: Vec<&str> = tokens.scopes.iter().map(|scope| scope.as_str()).collect();
    let body = json!({
        "access_token": tokens.access_token, "token_type": "Bearer", "expires_in": tokens.expires_in,
        "refresh_token": tokens.refresh_token, "scope": scope.join(" "),
    });
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(body)).into_response())
}

/// Revokes a token. An unknown token is no error.
pub(crate) async fn revoke(State(app): State<App>, request: Request) -> Result<Response, OauthError> {
    let address = ClientAddress::of(request.extensions());
    check_failures(&app, address)?;
    let params = OauthParams::parse(&read_form(request).await?)?;
    let (token, client) = (params.require("token")?, params.client()?);
    app.engine.control.audit.set_anonymous_origin(address);
    app.engine.connections.revoke_token(token, client).await?;
    Ok(StatusCode::OK.into_response())
}
