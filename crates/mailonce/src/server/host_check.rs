//! Checks `Host` and `Origin`, so that a web page cannot call this server through DNS rebinding or from another site.
//!
//! Allowed hosts are the host of `http.public_url`, those of `http.hosts`, the listen address, the local address of the
//! connection, and loopback (`localhost`, 127.0.0.0/8, `::1`). Every other host gets 421. IP addresses are safe,
//! because DNS rebinding needs a name.

use axum::http::{HeaderMap, HeaderValue, Method, Uri, header, uri::Authority};
use mailonce_core::problem::{Code, Problem, shorten};
use std::net::IpAddr;

use super::cross_origin::{self, AllowedOrigin};
use crate::http::paths::{is_mcp_path, is_open_to_pages};

/// Paths that orchestrators and metrics collectors call under host names that are not configured here.
const EXEMPT_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
/// Provider webhooks are exempt: they are signed, and browsers do not call them.
const EXEMPT_PREFIX: &str = "/hooks/";
/// Unsubscribe links.
const SIGNED_LINK_PREFIX: &str = "/u/";

/// The hosts and origins that this server accepts.
#[derive(Clone, Debug)]
pub(crate) struct HostCheck {
    /// `http.public_url`.
    public: Option<Uri>,
    /// `http.hosts`.
    hosts: Vec<Host>,
    /// The address in `http.listen`.
    listen: IpAddr,
    /// `http.allowed_origins`.
    allowed_origins: Vec<AllowedOrigin>,
}

/// Facts about the connection of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionInfo {
    /// The server's address on this connection.
    pub(crate) local: IpAddr,
    pub(crate) tls: bool,
}

/// A host without its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Address(IpAddr),
    /// In lower case, without a final dot.
    Name(String),
}

impl Host {
    /// Parses the host part of a URL, with or without brackets.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Some(Self::Address(ip.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_host_char = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        (!name.is_empty() && name.bytes().all(is_host_char)).then_some(Self::Name(name))
    }

    fn of(authority: &Authority) -> Option<Self> {
        // Userinfo in a host is used only for deception.
        if authority.as_str().contains('@') { None } else { Self::parse(authority.host()) }
    }

    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::Address(ip) => ip.is_loopback(),
            Self::Name(name) => name == "localhost",
        }
    }
}

impl HostCheck {
    pub(crate) fn new(public_url: Option<&str>, hosts: Vec<Host>, listen: IpAddr) -> Self {
        let public = public_url.and_then(|url| url.parse().ok());
        Self { public, hosts, listen: listen.to_canonical(), allowed_origins: Vec::new() }
    }

    /// The same check, which also lets pages of these origins call `/mcp`.
    pub(crate) fn with_allowed_origins(self, allowed_origins: Vec<AllowedOrigin>) -> Self {
        Self { allowed_origins, ..self }
    }

    /// The origin of a request to `/mcp` whose pages may read the answer.
    pub(crate) fn cors_origin(&self, uri: &Uri, headers: &HeaderMap) -> Option<HeaderValue> {
        cross_origin::allowed_origin(&self.allowed_origins, uri, headers)
    }

    /// Rejects a request for a foreign host, or from a page of another site.
    pub(crate) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        connection: ConnectionInfo,
    ) -> Result<(), Problem> {
        if EXEMPT_PATHS.contains(&uri.path()) || uri.path().starts_with(EXEMPT_PREFIX) {
            return Ok(());
        }
        let authority = named_host(uri, headers)?;
        let host = Host::of(&authority)
            .filter(|host| self.allows(host, connection))
            .ok_or_else(|| misdirected_host(&authority))?;
        // A signed link is its own permission. Mail programs post to it from pages of their own, and browsers from a page
        // without a referrer.
        let is_signed_link = uri.path().starts_with(SIGNED_LINK_PREFIX);
        let is_allowed_page = self.cors_origin(uri, headers).is_some() || is_open_to_pages(uri.path());
        if is_guarded(method, uri, headers) && !is_signed_link && !is_allowed_page {
            self.check_origin(headers, &authority, &host, connection)
        } else {
            Ok(())
        }
    }

    fn allows(&self, host: &Host, connection: ConnectionInfo) -> bool {
        let is_own_address = |ip: &IpAddr| *ip == connection.local.to_canonical() || *ip == self.listen;
        let is_public = self.public_host().as_ref() == Some(host);
        let is_address = matches!(host, Host::Address(ip) if is_own_address(ip));
        host.is_loopback() || is_address || is_public || self.hosts.contains(host)
    }

    fn public_host(&self) -> Option<Host> {
        Host::of(self.public.as_ref()?.authority()?)
    }

    /// Allows pages of `http.public_url`, pages of the host in the request and, if that host is loopback, pages of
    /// other local programs.
    fn check_origin(
        &self,
        headers: &HeaderMap,
        request_authority: &Authority,
        host: &Host,
        connection: ConnectionInfo,
    ) -> Result<(), Problem> {
        let Some(value) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = value.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
        let is_own = |origin: &Uri| {
            let Some(authority) = origin.authority() else { return false };
            let matches_origin = |uri: &Uri| uri.scheme() == origin.scheme() && uri.authority() == Some(authority);
            if self.public.as_ref().is_some_and(matches_origin) {
                return true;
            }
            let both_local = host.is_loopback() && Host::of(authority).is_some_and(|host| host.is_loopback());
            // The scheme of the public URL is known. A page with another scheme may have been changed in transit.
            let same_host = authority == request_authority && self.public_host().as_ref() != Some(host);
            both_local || (same_host && (!connection.tls || origin.scheme_str() == Some("https")))
        };
        if origin.as_ref().is_some_and(is_own) {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(value.as_bytes());
        let detail = format!("the Origin header names another site, `{}`", shorten(&shown));
        Err(Problem::new(Code::ForeignOrigin, detail))
    }
}

/// The host of a request: `:authority` of HTTP/2 or the absolute URL, else the Host header. If both are present, they
/// must agree.
fn named_host(uri: &Uri, headers: &HeaderMap) -> Result<Authority, Problem> {
    let mut fields = headers.get_all(header::HOST).iter();
    let (field, further) = (fields.next(), fields.next());
    let rejected = |detail: &str| Problem::new(Code::MisdirectedHost, detail);
    if further.is_some() {
        return Err(rejected("the request has more than one Host header"));
    }
    let parse = |text: &str| text.parse::<Authority>().map_err(|_invalid| unreadable_host(text));
    let field = field.map(|value| parse(&String::from_utf8_lossy(value.as_bytes()))).transpose()?;
    match (uri.authority(), field) {
        (Some(authority), Some(field)) if *authority != field => {
            Err(rejected("the Host header and the URL of the request name different hosts"))
        }
        (Some(authority), _) => Ok(authority.clone()),
        (None, Some(field)) => Ok(field),
        (None, None) => Err(rejected("the request has no Host header")),
    }
}

fn unreadable_host(text: &str) -> Problem {
    Problem::new(Code::MisdirectedHost, format!("the Host header `{}` is not a valid host", shorten(text)))
}

/// The error for an unknown host. It names the setting that allows the host.
fn misdirected_host(authority: &Authority) -> Problem {
    let Some(host) = Host::of(authority) else { return unreadable_host(authority.as_str()) };
    let host = match host {
        Host::Address(ip) => ip.to_string(),
        Host::Name(name) => name,
    };
    let host = shorten(&host);
    let detail = format!(
        "this server does not answer to the host `{host}`; if callers should reach it by that name, start it with \
         MAILONCE_HTTP_HOSTS={host}, add `{host}` to http.hosts, or set http.public_url to the URL that they use"
    );
    Problem::new(Code::MisdirectedHost, detail).with_extension("host", host)
}

/// Whether a request could do harm if a page of another site sent it: it is not a plain read, has credentials, opens a
/// WebSocket, or goes to `/mcp`.
fn is_guarded(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let credential = headers.contains_key(header::AUTHORIZATION) || headers.contains_key(header::UPGRADE);
    !reads || credential || is_mcp_path(uri.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(
        check: &HostCheck,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        arrived: ConnectionInfo,
    ) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: header::HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let result = check.check(method, &path.parse().unwrap(), &map, arrived);
        result.map_or_else(|problem| problem.code.status(), |()| 200)
    }

    fn arrived(local: &str, tls: bool) -> ConnectionInfo {
        ConnectionInfo { local: local.parse().unwrap(), tls }
    }

    /// With `hosts = ["mailonce", "192.0.2.80"]`, on all addresses.
    fn check(public_url: Option<&str>) -> HostCheck {
        let hosts = ["Mailonce", "192.0.2.80"].iter().map(|host| Host::parse(host).unwrap()).collect();
        HostCheck::new(public_url, hosts, "0.0.0.0".parse().unwrap())
    }

    #[test]
    fn only_known_hosts_are_answered() {
        for (public, host, expected) in [
            (None, "127.0.0.1:6245", 200),
            (None, "localhost:6245", 200),
            (None, "LOCALHOST", 200),
            (None, "[::1]:6245", 200),
            (None, "192.168.1.7:6245", 200),
            (None, "[::ffff:192.168.1.7]:6245", 200),
            (None, "0.0.0.0:6245", 200),
            (None, "192.168.1.8:6245", 421),
            (None, "mailonce:8080", 200),
            (None, "mailonce.", 200),
            (None, "192.0.2.80", 200),
            (None, "evil.example.com", 421),
            (None, "localhost.evil.example.com:6245", 421),
            (None, "localhost@evil.example.com", 421),
            (None, "evil.example.com@localhost", 421),
            (None, "mail.example.com", 421),
            (None, "", 421),
            (None, "a b", 421),
            (Some("https://mail.example.com"), "mail.example.com", 200),
            (Some("https://mail.example.com"), "MAIL.example.com:443", 200),
            (Some("https://mail.example.com:8443/x/"), "mail.example.com", 200),
            (Some("https://mail.example.com"), "mail.example.com.evil.test", 421),
            (Some("https://mail.example.com"), "xn--mail-example.com", 421),
        ] {
            let status =
                checked(&check(public), &Method::GET, "/v1/emails", &[("host", host)], arrived("192.168.1.7", false));
            assert_eq!(status, expected, "{host} at {public:?}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let (check, connection) = (check(None), arrived("127.0.0.1", true));
        for (uri, hosts, expected) in [
            ("https://localhost/v1/emails", &[][..], 200),
            ("https://evil.example.com/v1/emails", &[], 421),
            ("https://localhost/v1/emails", &[("host", "localhost")], 200),
            ("https://localhost/v1/emails", &[("host", "evil.example.com")], 421),
            ("https://evil.example.com/v1/emails", &[("host", "localhost")], 421),
            ("/v1/emails", &[("host", "localhost"), ("host", "localhost")], 421),
            ("/v1/emails", &[], 421),
            ("/healthz", &[], 200),
            ("/readyz", &[("host", "10.1.2.3")], 200),
            ("/metrics", &[("host", "mailonce.default.svc")], 200),
            ("/hooks/src_1", &[("host", "hooks.example.com"), ("origin", "https://evil.example.com")], 200),
            ("/hooks", &[("host", "hooks.example.com")], 421),
            ("/healthz/", &[("host", "evil.example.com")], 421),
        ] {
            assert_eq!(checked(&check, &Method::GET, uri, hosts, connection), expected, "{uri} {hosts:?}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let (without_public_url, with_public_url) = (check(None), check(Some("https://mail.example.com")));
        for (check, host, origin, expected) in [
            (&without_public_url, "localhost:6245", "http://localhost:6274", 200),
            (&without_public_url, "[::1]:6245", "http://127.0.0.1:3000", 200),
            (&without_public_url, "192.168.1.7:6245", "http://192.168.1.7:6245", 200),
            (&without_public_url, "192.168.1.7:6245", "http://192.168.1.7:3000", 403),
            (&without_public_url, "192.168.1.7:6245", "http://localhost:6274", 403),
            (&without_public_url, "mailonce:8080", "http://mailonce:8080", 200),
            (&without_public_url, "localhost:6245", "http://evil.example.com", 403),
            (&without_public_url, "localhost:6245", "http://localhost.evil.example.com", 403),
            (&without_public_url, "localhost:6245", "null", 403),
            (&without_public_url, "localhost:6245", "", 403),
            (&with_public_url, "mail.example.com", "https://mail.example.com", 200),
            (&with_public_url, "127.0.0.1:6245", "https://mail.example.com", 200),
            (&with_public_url, "mail.example.com", "http://mail.example.com", 403),
            (&with_public_url, "mail.example.com", "http://localhost:6274", 403),
            (&with_public_url, "mail.example.com", "https://mail.example.com:8443", 403),
        ] {
            let headers = [("host", host), ("origin", origin)];
            let status = checked(check, &Method::POST, "/v1/emails", &headers, arrived("192.168.1.7", false));
            assert_eq!(status, expected, "{host} {origin}");
        }
        // A signed link is its own permission, wherever it is clicked.
        for origin in ["null", "https://webmail.example.com"] {
            let headers = [("host", "mail.example.com"), ("origin", origin)];
            let arrived = arrived("192.168.1.7", false);
            assert_eq!(checked(&with_public_url, &Method::POST, "/u/token", &headers, arrived), 200, "{origin}");
            let foreign = [("host", "evil.example.com"), ("origin", origin)];
            assert_eq!(checked(&with_public_url, &Method::POST, "/u/token", &foreign, arrived), 421, "{origin}");
        }
        // Clients in pages register and fetch tokens. The consent of a person is given on a page of this server alone.
        for (path, expected) in [("/oauth/token", 200), ("/oauth/register", 200), ("/oauth/authorize", 403)] {
            let headers = [("host", "mail.example.com"), ("origin", "https://evil.example.com")];
            let status = checked(&with_public_url, &Method::POST, path, &headers, arrived("192.168.1.7", false));
            assert_eq!(status, expected, "{path}");
        }
        let plain = [("host", "mailonce"), ("origin", "http://mailonce")];
        assert_eq!(
            checked(&without_public_url, &Method::POST, "/v1/emails", &plain, arrived("192.168.1.7", true)),
            403
        );
    }

    #[test]
    fn reading_what_is_public_is_no_harm() {
        let (check, connection) = (check(None), arrived("127.0.0.1", false));
        let foreign = [("host", "localhost"), ("origin", "https://evil.example.com")];
        let with = |name, value| [foreign[0], foreign[1], (name, value)];
        assert_eq!(checked(&check, &Method::GET, "/openapi.json", &foreign, connection), 200);
        assert_eq!(checked(&check, &Method::GET, "/mcp", &foreign, connection), 403);
        assert_eq!(checked(&check, &Method::DELETE, "/v1/inboxes/x", &foreign, connection), 403);
        assert_eq!(checked(&check, &Method::GET, "/v1/emails", &with("authorization", "Bearer x"), connection), 403);
        assert_eq!(checked(&check, &Method::GET, "/v0/ws", &with("upgrade", "websocket"), connection), 403);
    }

    #[test]
    fn the_refusal_says_what_to_set() {
        let check = HostCheck::new(None, Vec::new(), "0.0.0.0".parse().unwrap());
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("mailonce:8080"));
        let refused = check.check(&Method::GET, &"/v1/emails".parse().unwrap(), &headers, arrived("10.0.0.2", false));
        let refused = refused.unwrap_err();
        assert!(refused.detail.contains("MAILONCE_HTTP_HOSTS=mailonce,"), "{}", refused.detail);
        assert!(refused.detail.contains("http.hosts") && refused.detail.contains("http.public_url"));
        assert_eq!(refused.extensions["host"], "mailonce");
    }
}
