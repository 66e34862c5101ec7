//! Addresses that OAuth clients of `/mcp` see, which the listener and the handlers share.

use axum::http::HeaderValue;

use super::app::App;

/// The address of this authorization server.
pub(crate) fn issuer(app: &App) -> &str {
    app.public_url.trim_end_matches('/')
}

/// The resource for which tokens are.
pub(crate) fn resource(app: &App) -> String {
    format!("{}/mcp", issuer(app))
}

/// The value of `WWW-Authenticate` for a call of `/mcp` without a valid credential.
pub(crate) fn challenge(app: &App, has_credential: bool) -> Option<HeaderValue> {
    let error = if has_credential { "error=\"invalid_token\", " } else { "" };
    let url = format!("{}/.well-known/oauth-protected-resource/mcp", issuer(app));
    format!("Bearer {error}resource_metadata=\"{url}\"").parse().ok()
}
