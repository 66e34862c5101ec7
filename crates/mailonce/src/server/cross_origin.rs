//! CORS for `/mcp`: lets web pages of the origins in `http.allowed_origins` call the tools and read the answers.
//!
//! No other path has CORS, and no origin is allowed unless the configuration names it.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};

use crate::http::paths::is_mcp_path;

/// Request headers that a page may send.
const ALLOW_HEADERS: &str = "Authorization, Content-Type, Accept, Last-Event-ID, Mcp-Session-Id, \
    Mcp-Protocol-Version, Mcp-Method, Mcp-Name, Mailonce-Call-Id, Traceparent";
/// Response headers that a page may read.
const EXPOSE_HEADERS: &str = "Mcp-Session-Id, Mcp-Protocol-Version, Retry-After, WWW-Authenticate";
/// How long a browser may remember the answer to a preflight, in seconds.
const MAX_AGE: &str = "600";

/// An origin that may call `/mcp`: scheme, host and port, written as browsers write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllowedOrigin(String);

impl AllowedOrigin {
    /// Parses an origin such as `https://app.example.com`. A final slash and the scheme's own port may be written.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
        let is_origin = matches!(scheme, "http" | "https") && uri.path() == "/" && uri.query().is_none();
        if !is_origin || text.contains(['@', '#', '*']) {
            return None;
        }
        let host = authority.host().to_ascii_lowercase();
        let port = match (scheme, authority.port_u16()) {
            (_, None) | ("http", Some(80)) | ("https", Some(443)) => String::new(),
            (_, Some(port)) => format!(":{port}"),
        };
        Some(Self(format!("{scheme}://{host}{port}")))
    }
}

/// The origin of a request to `/mcp`, if it is an allowed one.
pub(super) fn allowed_origin(allowed: &[AllowedOrigin], uri: &Uri, headers: &HeaderMap) -> Option<HeaderValue> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let origin = origins.next().filter(|_| origins.next().is_none() && is_mcp_path(uri.path()))?;
    allowed.iter().any(|allowed| allowed.0.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

/// The answer to a preflight: the request with which a browser asks whether a page may make a call.
pub(super) fn preflight_response<B>(request: &Request<B>) -> Option<Response> {
    let asks =
        request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOW_HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, MAX_AGE),
    ];
    asks.then(|| (StatusCode::NO_CONTENT, headers, Body::empty()).into_response())
}

/// Lets pages of an origin read a response.
pub(super) fn add_cors_headers(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSE_HEADERS));
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_a_scheme_and_a_host() {
        for (text, expected) in [
            ("https://app.example.com", Some("https://app.example.com")),
            ("https://APP.example.com/", Some("https://app.example.com")),
            ("https://app.example.com:443", Some("https://app.example.com")),
            ("http://localhost:6274", Some("http://localhost:6274")),
            ("*", None),
            ("https://*.example.com", None),
            ("app.example.com", None),
            ("https://app.example.com/page", None),
            ("https://user@app.example.com", None),
            ("ftp://app.example.com", None),
            ("null", None),
            ("", None),
        ] {
            assert_eq!(AllowedOrigin::parse(text), expected.map(|text| AllowedOrigin(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn only_an_allowed_origin_at_mcp_is_answered() {
        let allowed = [AllowedOrigin::parse("https://app.example.com").unwrap()];
        for (path, origins, expected) in [
            ("/mcp", &["https://app.example.com"][..], true),
            ("/mcp/", &["https://app.example.com"], true),
            ("/v1/emails", &["https://app.example.com"], false),
            ("/mcp", &["https://app.example.com:8443"], false),
            ("/mcp", &["http://app.example.com"], false),
            ("/mcp", &["https://app.example.com.evil.test"], false),
            ("/mcp", &["https://app.example.com", "https://evil.test"], false),
            ("/mcp", &["null"], false),
            ("/mcp", &[], false),
        ] {
            let mut headers = HeaderMap::new();
            for origin in origins {
                headers.append(header::ORIGIN, HeaderValue::from_static(origin));
            }
            let found = allowed_origin(&allowed, &path.parse().unwrap(), &headers).is_some();
            assert_eq!(found, expected, "{path} {origins:?}");
        }
    }
}
