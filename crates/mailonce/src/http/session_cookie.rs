//! The cookie with the session of a person.

use axum::http::{HeaderMap, HeaderValue, Method, header, request::Parts};
use mailonce_core::problem::{Code, Problem};
use mailonce_engine::{
    Caller,
    access::{api_keys::CredentialKind, sessions::NewSession},
};
use std::net::IpAddr;
use subtle::ConstantTimeEq as _;

use super::{
    app::App,
    extract::check_failures,
    next_page::{encode, next_page},
};
use crate::{client_address::ClientAddress, server::host_check::Host};

/// Browsers accept this prefix only over HTTPS, for this host alone.
const SECURE_NAME: &str = "__Host-mailonce";
/// The name over plain HTTP on the machine itself.
const LOOPBACK_NAME: &str = "mailonce";
/// The header with the token that another site cannot read.
const CSRF_HEADER: &str = "mailonce-csrf";
/// The header in which a trusted proxy reports the scheme of the client.
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// Whether a request came over HTTPS, as far as this server or a trusted proxy knows. An extension of every request that
/// came through the HTTP listener.
#[derive(Clone, Copy, Debug)]
pub struct IsHttps(pub bool);

impl IsHttps {
    /// `peer_is_trusted`: the peer is a proxy in `http.trusted_proxies`.
    pub(crate) fn of(tls: bool, peer_is_trusted: bool, headers: &HeaderMap) -> Self {
        let forwarded = || headers.get(FORWARDED_PROTO).is_some_and(|value| value.as_bytes() == b"https");
        Self(tls || (peer_is_trusted && forwarded()))
    }
}

/// Whether a proxy on this machine forwards the request of somebody elsewhere: it says so, or the request is for another
/// host than this machine.
fn is_forwarded(parts: &Parts) -> bool {
    let has_header = ["x-forwarded-for", "forwarded", "x-real-ip"].iter().any(|name| parts.headers.contains_key(*name));
    let host = parts.headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let authority = parts.uri.authority().cloned().or_else(|| host?.parse().ok());
    has_header
        || authority.is_some_and(|authority| !Host::parse(authority.host()).is_some_and(|host| host.is_loopback()))
}

/// Whether the request comes from a browser on this machine.
pub(crate) fn is_local(parts: &Parts) -> bool {
    ClientAddress::of(&parts.extensions).is_some_and(|ip| ip.is_loopback()) && !is_forwarded(parts)
}

/// Whether a cookie can be set, and under which name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CookieSafety {
    Https,
    Loopback,
    /// Everybody on the way could read the cookie.
    Unsafe,
}

impl CookieSafety {
    pub(crate) fn of(parts: &Parts) -> Self {
        let is_https = parts.extensions.get::<IsHttps>().is_some_and(|https| https.0);
        // Requests that tests pass to the router directly have no address.
        let is_loopback = ClientAddress::of(&parts.extensions).is_none_or(|ip: IpAddr| ip.is_loopback());
        match (is_https, is_loopback && !is_forwarded(parts)) {
            (true, _) => Self::Https,
            (false, true) => Self::Loopback,
            (false, false) => Self::Unsafe,
        }
    }

    fn name(self) -> &'static str {
        if self == Self::Https { SECURE_NAME } else { LOOPBACK_NAME }
    }

    /// The name of the cookie of a sign-in that is on its way to the identity provider and back.
    fn flow_name(self) -> &'static str {
        if self == Self::Https { "__Host-mailonce-oidc" } else { "mailonce-oidc" }
    }

    /// The name of the cookie with the page to which that sign-in leads.
    fn next_name(self) -> &'static str {
        if self == Self::Https { "__Host-mailonce-next" } else { "mailonce-next" }
    }

    fn header(self, name: &str, value: &str, max_age_s: i64) -> Result<HeaderValue, Problem> {
        let secure = if self == Self::Https { "; Secure" } else { "" };
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={max_age_s}{secure}");
        text.parse().map_err(|_bytes| Problem::new(Code::Internal, "the session cookie cannot be written"))
    }

    /// The header that starts a session.
    pub(crate) fn start(self, session: &NewSession, now_ms: i64) -> Result<HeaderValue, Problem> {
        self.header(self.name(), &session.secret, (session.expires_at.0 - now_ms) / 1000)
    }

    /// The header that removes the session.
    pub(crate) fn end(self) -> Result<HeaderValue, Problem> {
        self.header(self.name(), "", 0)
    }
}

impl CookieSafety {
    /// The header that ties a sign-in to this browser.
    pub(crate) fn start_flow(self, value: &str, max_age_s: i64) -> Result<HeaderValue, Problem> {
        self.header(self.flow_name(), value, max_age_s)
    }

    /// The header that removes the sign-in from this browser.
    pub(crate) fn end_flow(self) -> Result<HeaderValue, Problem> {
        self.header(self.flow_name(), "", 0)
    }

    /// The sign-in that this browser began.
    pub(crate) fn flow_cookie(self, parts: &Parts) -> Option<&str> {
        cookie(parts, self.flow_name())
    }

    /// The header that keeps the page to which a sign-in leads, or removes that of an earlier one. `None` when this browser
    /// keeps none.
    pub(crate) fn keep_next_page(
        self,
        parts: &Parts,
        page: Option<&str>,
        max_age_s: i64,
    ) -> Result<Option<HeaderValue>, Problem> {
        match page {
            Some(page) => self.header(self.next_name(), &encode(page), max_age_s).map(Some),
            None if cookie(parts, self.next_name()).is_some() => self.header(self.next_name(), "", 0).map(Some),
            None => Ok(None),
        }
    }

    /// The page to which the sign-in of this browser leads. It is checked again: anything may have written the cookie.
    pub(crate) fn next_page(self, parts: &Parts) -> Option<String> {
        next_page(&format!("next={}", cookie(parts, self.next_name())?))
    }
}

/// The secret in the session cookie.
pub(crate) fn session_secret(parts: &Parts) -> Option<&str> {
    cookie(parts, CookieSafety::of(parts).name())
}

fn cookie<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    let cookies = parts.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(own, value)| *own == name && !value.is_empty()).map(|(_, value)| value)
}

/// Authenticates the person of a session. A request that changes something must prove that a page of this server sent
/// it.
pub(crate) async fn authenticate_session(app: &App, parts: &Parts, secret: &str) -> Result<Caller, Problem> {
    let caller = authenticate_cookie(app, parts, secret).await?;
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        check_csrf(app, &parts.headers, secret)?;
    }
    Ok(caller)
}

/// Authenticates the person of a session. For forms, which must check the token that is in the form.
pub(crate) async fn authenticate_cookie(app: &App, parts: &Parts, secret: &str) -> Result<Caller, Problem> {
    let client = ClientAddress::of(&parts.extensions);
    if !app.engine.access.is_credential_cached(CredentialKind::Session, secret) {
        check_failures(app, client)?;
    }
    let result = app.engine.access.authenticate_session(secret).await;
    if let (Some(client), Err(problem)) = (client, &result)
        && problem.code == Code::Unauthorized
    {
        app.auth_failures.record(client);
    }
    let caller = result?;
    app.engine.control.audit.set_call_origin(&caller, client);
    Ok(caller)
}

/// Whether a token is that of a session.
pub(crate) fn is_csrf_token(app: &App, token: &[u8], secret: &str) -> bool {
    token.ct_eq(app.engine.people.csrf_token(secret).as_bytes()).into()
}

fn check_csrf(app: &App, headers: &HeaderMap, secret: &str) -> Result<(), Problem> {
    let failed = |detail: &str| Problem::new(Code::CsrfFailed, detail);
    let token = headers.get(CSRF_HEADER).ok_or_else(|| failed("the header Mailonce-Csrf is missing"))?;
    if is_csrf_token(app, token.as_bytes(), secret) {
        Ok(())
    } else {
        Err(failed("the header Mailonce-Csrf is not the token of this session"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use mailonce_core::time::Time;

    fn parts(client: &str, https: bool, cookie: &str) -> Parts {
        let mut request = Request::builder().header(header::COOKIE, cookie).body(()).unwrap();
        request.extensions_mut().insert(ClientAddress(client.parse().unwrap()));
        request.extensions_mut().insert(IsHttps(https));
        request.into_parts().0
    }

    #[test]
    fn the_cookie_is_read_under_the_name_of_the_connection() {
        let cookies = "theme=dark; mailonce=plain; __Host-mailonce=secure";
        assert_eq!(session_secret(&parts("127.0.0.1", false, cookies)), Some("plain"));
        assert_eq!(session_secret(&parts("192.0.2.1", true, cookies)), Some("secure"));
        assert_eq!(session_secret(&parts("192.0.2.1", true, "mailonce=plain")), None);
        assert_eq!(session_secret(&parts("127.0.0.1", false, "mailonce=")), None);
    }

    #[test]
    fn a_cookie_is_never_set_where_others_can_read_it() {
        assert_eq!(CookieSafety::of(&parts("192.0.2.1", false, "")), CookieSafety::Unsafe);
        let session = NewSession { secret: "s".into(), expires_at: Time(61_000) };
        let secure = CookieSafety::Https.start(&session, 1_000).unwrap();
        assert_eq!(secure, "__Host-mailonce=s; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure");
        assert_eq!(CookieSafety::Loopback.end().unwrap(), "mailonce=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0");
    }

    #[test]
    fn a_request_that_a_proxy_on_this_machine_forwards_is_not_local() {
        let with = |name: &'static str, value: &'static str| {
            let mut parts = parts("127.0.0.1", false, "");
            parts.headers.insert(name, HeaderValue::from_static(value));
            (CookieSafety::of(&parts), is_local(&parts))
        };
        for host in ["localhost:6245", "127.0.0.1", "[::1]:80"] {
            assert_eq!(with("host", host), (CookieSafety::Loopback, true), "{host}");
        }
        for (name, value) in [("host", "mail.example.com"), ("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=_x")] {
            assert_eq!(with(name, value), (CookieSafety::Unsafe, false), "{name}");
        }
    }

    #[test]
    fn only_a_trusted_proxy_vouches_for_https() {
        let mut headers = HeaderMap::new();
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
        assert!(IsHttps::of(false, true, &headers).0 && !IsHttps::of(false, false, &headers).0);
        assert!(IsHttps::of(true, false, &HeaderMap::new()).0 && !IsHttps::of(false, true, &HeaderMap::new()).0);
    }
}
