//! The pages of the authorization endpoint. They work without scripts. What a client says about itself is escaped, and
//! the host to which the browser will go is always shown.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use mailonce_core::{
    access::{person::Person, team::ApiKeyScope},
    inbox::Inbox,
};
use std::fmt::Write as _;

use super::{
    oauth_authorize::{AuthorizationRequest, PARAMS},
    oauth_clients::RedirectUri,
    oauth_tokens::OauthParams,
};
use crate::http::{html::escape_html, next_page::with_next};

/// What the consent page shows.
pub(super) struct ConsentPage<'a> {
    pub(super) authorization: &'a AuthorizationRequest,
    pub(super) params: &'a OauthParams,
    pub(super) person: &'a Person,
    pub(super) team: &'a str,
    pub(super) scopes: &'a [ApiKeyScope],
    pub(super) inboxes: &'a [Inbox],
    pub(super) has_more_inboxes: bool,
    pub(super) csrf: &'a str,
    /// What is wrong with the form that was sent.
    pub(super) fault: Option<&'a str>,
}

/// What a scope allows, for a person.
fn scope_text(scope: ApiKeyScope) -> &'static str {
    match scope {
        ApiKeyScope::Send => "send email",
        ApiKeyScope::Read => "read email and messages, and take codes out of them",
        ApiKeyScope::Reply => "reply to messages, and ask people questions",
        ApiKeyScope::Secrets => "see secrets found in mail",
        ApiKeyScope::Approve => "decide what waits for a person",
        ApiKeyScope::Admin => "manage the team",
        ApiKeyScope::Operator => "manage the installation",
    }
}

impl ConsentPage<'_> {
    pub(super) fn render(&self) -> Response {
        let mut content = String::new();
        // Writing into a string cannot fail.
        self.write(&mut content).unwrap_or_default();
        let status = if self.fault.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
        page(status, &content, Some(&self.authorization.redirect_uri))
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let client = escape_html(&self.authorization.client.details.name);
        let (person, team) = (escape_html(&self.person.name), escape_html(self.team));
        writeln!(out, "<h1>Connect “{client}”?</h1>")?;
        if let Some(fault) = self.fault {
            writeln!(out, "<p class=\"fault\" role=\"alert\">{}</p>", escape_html(fault))?;
        }
        writeln!(
            out,
            "<p>It will act as <strong>{person}</strong> ({}) in the team <strong>{team}</strong>. The client chose its \
             name itself. {} Agree only if you started this.</p>",
            self.person.role.as_str(),
            destination(&self.authorization.redirect_uri),
        )?;
        writeln!(out, "<form method=\"post\" action=\"/oauth/authorize\">")?;
        for name in PARAMS {
            if let Some(value) = self.params.get(name) {
                writeln!(out, "<input type=\"hidden\" name=\"{name}\" value=\"{}\">", escape_html(value))?;
            }
        }
        writeln!(out, "<input type=\"hidden\" name=\"csrf\" value=\"{}\">", escape_html(self.csrf))?;
        self.write_scopes(out)?;
        self.write_inboxes(out)?;
        writeln!(
            out,
            "<p><button name=\"decision\" value=\"allow\">Connect</button> \
             <button class=\"deny\" name=\"decision\" value=\"deny\">Cancel</button></p>\n</form>\n\
             <p>You can end the connection at any time. It ends by itself after 30 days without use.</p>"
        )
    }

    fn write_scopes(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "<fieldset><legend>It may</legend>")?;
        for scope in self.scopes {
            let (word, text) = (scope.as_str(), scope_text(*scope));
            writeln!(
                out,
                "<label><input type=\"checkbox\" name=\"grant\" value=\"{word}\" checked> {text} (<code>{word}</code>)</label>"
            )?;
        }
        writeln!(out, "</fieldset>")
    }

    fn write_inboxes(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "<fieldset><legend>In</legend>\n\
             <label><input type=\"radio\" name=\"inboxes\" value=\"all\" checked> all inboxes of the team, also later ones</label>"
        )?;
        if !self.inboxes.is_empty() {
            writeln!(
                out,
                "<label><input type=\"radio\" name=\"inboxes\" value=\"some\"> only these:</label>\n<div class=\"some\">"
            )?;
            for inbox in self.inboxes {
                let address = escape_html(&inbox.address);
                writeln!(
                    out,
                    "<label><input type=\"checkbox\" name=\"inbox\" value=\"{}\"> {address}</label>",
                    inbox.id
                )?;
            }
            writeln!(out, "</div>")?;
        }
        if self.has_more_inboxes {
            writeln!(out, "<p>These are the newest 100 inboxes.</p>")?;
        }
        writeln!(out, "</fieldset>")
    }
}

/// Where the browser will go.
fn destination(uri: &RedirectUri) -> String {
    let host = escape_html(uri.host());
    if uri.is_loopback() {
        format!("Afterwards your browser goes to a program on your own computer (<strong>{host}</strong>).")
    } else {
        format!("Afterwards your browser goes to <strong>{host}</strong>.")
    }
}

/// The page for a person who is not signed in.
pub(super) fn sign_in_page(authorization: &AuthorizationRequest, query: &str) -> Response {
    let client = escape_html(&authorization.client.details.name);
    let back = format!("/oauth/authorize?{query}");
    let (sign_in, back) = (escape_html(&with_next("/sign-in", Some(&back))), escape_html(&back));
    let content = format!(
        "<h1>Sign in to connect “{client}”</h1>\n<p>You are not signed in to mailonce in this browser. \
         Sign in, then come back to this page.</p>\n\
         <p><a class=\"button\" href=\"{sign_in}\">Sign in</a> <a href=\"{back}\">I have signed in</a></p>"
    );
    page(StatusCode::UNAUTHORIZED, &content, None)
}

/// The page for a request over plain HTTP from another machine.
pub(super) fn unsafe_page() -> Response {
    fault_page(StatusCode::BAD_REQUEST, "Connecting a client needs HTTPS, because it needs you to be signed in.")
}

/// A page that says what is wrong.
pub(super) fn fault_page(status: StatusCode, detail: &str) -> Response {
    page(status, &format!("<h1>This does not work.</h1>\n<p>{}</p>", escape_html(detail)), None)
}

/// The page for a request that cannot be granted. The person may bring the error to the client.
pub(super) fn request_fault_page(authorization: &AuthorizationRequest, why: &str, back: &str) -> Response {
    let (client, why) = (escape_html(&authorization.client.details.name), escape_html(why));
    let (host, back) = (escape_html(authorization.redirect_uri.host()), escape_html(back));
    let content = format!(
        "<h1>“{client}” cannot be connected.</h1>\n<p>Its request is not valid: {why}. That is a fault of the client.</p>\n\
         <p><a class=\"button\" rel=\"noreferrer\" href=\"{back}\">Return to {host}</a></p>"
    );
    page(StatusCode::BAD_REQUEST, &content, None)
}

/// A page. Browsers apply the policy for forms also to where the form leads, so the client's address must be in it.
fn page(status: StatusCode, content: &str, redirect: Option<&RedirectUri>) -> Response {
    let client = redirect.map(|uri| format!(" {}", uri.policy_source())).unwrap_or_default();
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'{client}; frame-ancestors 'none'; base-uri 'none'"
    );
    let html = include_str!("consent.html").replace("{{content}}", content);
    let mut response = (status, Html(html)).into_response();
    let headers = response.headers_mut();
    let fallback = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::try_from(policy).unwrap_or(fallback));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Without a referrer, browsers would hide the origin of the form from this server.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}
