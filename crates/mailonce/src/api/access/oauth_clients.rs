//! Dynamic client registration (RFC 7591): everybody may register a client, and nothing that it says is trusted.

use axum::{
    Json,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use mailonce_core::access::{
    display_name::is_deceptive,
    oauth_client::{OauthClient, OauthClientDetails},
};
use serde::Deserialize;
use serde_json::json;
use url::{Host, Url};

use super::{oauth_error::OauthError, oauth_tokens::MAX_BODY_BYTES};
use crate::{
    client_address::{ClientAddress, network_of},
    http::{
        app::App,
        extract::{check_media_type, read_body},
        json_body::parse,
    },
};

/// Redirect URIs of a client.
const MAX_REDIRECT_URIS: usize = 5;
/// The longest redirect URI, in bytes.
const MAX_URI_BYTES: usize = 2000;
/// The longest name of a client, in characters.
const MAX_NAME_CHARS: usize = 100;

/// What a client says about itself. Fields that are not here have no effect.
#[derive(Deserialize)]
struct RegistrationBody {
    #[serde(default)]
    client_name: Option<String>,
    redirect_uris: Vec<String>,
}

/// Registers a client.
pub(crate) async fn register(State(app): State<App>, request: Request) -> Result<Response, OauthError> {
    let network = ClientAddress::of(request.extensions()).map(network_of);
    check_media_type(request.headers())?;
    let body = read_body(request.into_body(), MAX_BODY_BYTES).await?;
    let invalid = |problem: mailonce_core::problem::Problem| OauthError::new("invalid_client_metadata", problem.detail);
    let body: RegistrationBody = parse(&body).map_err(invalid)?;
    let details = check_details(body)?;
    let client = app.engine.connections.register_oauth_client(details, network).await?;
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(registration(&client))).into_response())
}

fn registration(client: &OauthClient) -> serde_json::Value {
    json!({
        "client_id": client.id.to_string(),
        "client_id_issued_at": client.created_at.0 / 1000,
        "client_name": client.details.name,
        "redirect_uris": client.details.redirect_uris,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    })
}

fn check_details(body: RegistrationBody) -> Result<OauthClientDetails, OauthError> {
    let invalid_uri = |why: String| OauthError::new("invalid_redirect_uri", why);
    if body.redirect_uris.is_empty() || body.redirect_uris.len() > MAX_REDIRECT_URIS {
        return Err(invalid_uri(format!("redirect_uris must have 1 to {MAX_REDIRECT_URIS} URIs")));
    }
    for uri in &body.redirect_uris {
        RedirectUri::parse(uri).map_err(invalid_uri)?;
    }
    let name = body.client_name.unwrap_or_default();
    let name = name.trim();
    if name.chars().count() > MAX_NAME_CHARS || name.chars().any(is_deceptive) {
        let why = format!("client_name must be at most {MAX_NAME_CHARS} characters without control characters");
        return Err(OauthError::new("invalid_client_metadata", why));
    }
    let name = if name.is_empty() { "A client without a name" } else { name };
    Ok(OauthClientDetails { name: name.to_owned(), redirect_uris: body.redirect_uris })
}

/// Where a browser is sent after a person decided.
#[derive(Clone, Debug)]
pub(crate) struct RedirectUri(Url);

impl RedirectUri {
    /// Parses a redirect URI: https, or http on the person's own computer.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let refused = |why: &str| Err(format!("redirect URI `{}` {why}", mailonce_core::problem::shorten(text)));
        if text.len() > MAX_URI_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return refused("must be at most 2,000 printable ASCII characters");
        }
        let Ok(url) = Url::parse(text) else { return refused("is not a URL") };
        if url.fragment().is_some() || !url.username().is_empty() || url.password().is_some() {
            return refused("must have no fragment, user name or password");
        }
        match url.scheme() {
            "https" if url.host().is_some() => Ok(Self(url)),
            "http" if is_loopback(&url) => Ok(Self(url)),
            _ => refused("must be https, or http on 127.0.0.1, [::1] or localhost"),
        }
    }

    /// Whether a client that registered `registered` may be sent to this URI. On the person's own computer the port does
    /// not count, because a program gets another one each time (RFC 8252).
    fn is_registered_as(&self, registered: &Self) -> bool {
        if self.0.scheme() != "http" {
            return self.0 == registered.0;
        }
        let without_port = |url: &Url| {
            let mut url = url.clone();
            url.set_port(None).map(|()| url)
        };
        without_port(&self.0) == without_port(&registered.0) && registered.0.scheme() == "http"
    }

    /// The URI with parameters.
    pub(crate) fn with_params(&self, params: &[(&str, &str)]) -> String {
        let mut url = self.0.clone();
        url.query_pairs_mut().extend_pairs(params);
        url.into()
    }

    /// The host, as a person should see it.
    pub(crate) fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// Whether it is on the person's own computer.
    pub(crate) fn is_loopback(&self) -> bool {
        is_loopback(&self.0)
    }

    /// The origin for a content security policy, in which an IPv6 address cannot be written.
    pub(crate) fn policy_source(&self) -> String {
        match self.0.host() {
            Some(Host::Ipv6(_)) => format!("{}:", self.0.scheme()),
            _ => self.0.origin().ascii_serialization(),
        }
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// The redirect URI of a request, if the client registered it.
pub(crate) fn find_redirect_uri(client: &OauthClient, requested: Option<&str>) -> Option<RedirectUri> {
    let registered = client.details.redirect_uris.iter().filter_map(|uri| RedirectUri::parse(uri).ok());
    let Some(requested) = requested else {
        // Only a client with a single one may leave it out.
        let mut registered = registered;
        return registered.next().filter(|_| client.details.redirect_uris.len() == 1);
    };
    let requested_uri = RedirectUri::parse(requested).ok()?;
    let is_exact = client.details.redirect_uris.iter().any(|uri| uri == requested);
    let mut registered = registered.filter(|_| is_exact || requested_uri.0.scheme() == "http");
    registered.any(|uri| requested_uri.is_registered_as(&uri)).then_some(requested_uri)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::{id::OauthClientId, time::Time};

    fn client(uris: &[&str]) -> OauthClient {
        OauthClient {
            id: OauthClientId(uuid::Uuid::nil()),
            registered_from: [0; 32],
            details: OauthClientDetails {
                name: "Robot".into(),
                redirect_uris: uris.iter().map(ToString::to_string).collect(),
            },
            created_at: Time(0),
            connected_at: None,
        }
    }

    #[test]
    fn a_redirect_uri_is_https_or_on_the_own_computer() {
        for good in [
            "https://robot.test/cb",
            "https://robot.test:8443/cb?x=1",
            "http://127.0.0.1/cb",
            "http://[::1]:9/",
            "http://localhost:33418/",
        ] {
            assert!(RedirectUri::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/cb",
            "robot.test/cb",
            "http://robot.test/cb",
            "http://localhost.robot.test/",
            "http://127.0.0.1.robot.test/",
            "https://robot.test/cb#x",
            "https://user@robot.test/",
            "https://u:p@robot.test/",
            "javascript:alert(1)",
            "data:text/html,x",
            "robot://cb",
            "https://",
            "https://robot.test/a b",
            "https://robot.test/\r\nx",
            "https://robot.test/é",
        ] {
            assert!(RedirectUri::parse(bad).is_err(), "{bad}");
        }
        assert!(RedirectUri::parse(&format!("https://robot.test/{}", "x".repeat(MAX_URI_BYTES))).is_err());
    }

    #[test]
    fn a_browser_is_sent_only_to_what_the_client_registered() {
        let robot = client(&["https://robot.test/cb", "http://127.0.0.1/cb"]);
        let found = |uri: &str| find_redirect_uri(&robot, Some(uri)).is_some();
        for good in ["https://robot.test/cb", "http://127.0.0.1/cb", "http://127.0.0.1:51004/cb"] {
            assert!(found(good), "{good}");
        }
        for bad in [
            "https://robot.test/cb/",
            "https://robot.test/cb?x",
            "https://robot.test:8443/cb",
            "https://robot.test/CB",
            "https://robot.test/./cb",
            "https://ROBOT.test/cb",
            "https://evil.test/cb",
            "https://robot.test.evil.test/cb",
            "https://robot.test@evil.test/cb",
            "http://127.0.0.1:1/other",
            "http://localhost/cb",
            "http://127.0.0.2/cb",
            "http://robot.test/cb",
            "https://127.0.0.1/cb",
            "https://robot.test\\@evil.test/cb",
            "//robot.test/cb",
            "",
        ] {
            assert!(!found(bad), "{bad}");
        }
        assert!(find_redirect_uri(&robot, None).is_none());
        assert!(find_redirect_uri(&client(&["https://robot.test/cb"]), None).is_some());
    }

    #[test]
    fn a_name_cannot_pretend_to_be_something_else() {
        let named = |name: &str| {
            check_details(RegistrationBody {
                client_name: Some(name.to_owned()),
                redirect_uris: vec!["https://robot.test/cb".into()],
            })
        };
        assert_eq!(named(" Robot ").unwrap().name, "Robot");
        assert_eq!(named("").unwrap().name, "A client without a name");
        for bad in ["a\nb", "a\u{202e}b", "a\u{200b}b", &"x".repeat(MAX_NAME_CHARS + 1)] {
            assert!(named(bad).is_err(), "{bad:?}");
        }
    }
}
