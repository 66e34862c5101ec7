//! The session of the person who signed in, and the pages of the sign-in.

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    response::{Html, IntoResponse, Response},
};
use mailonce_core::{
    id::TeamId,
    problem::{Code, Problem},
};
use mailonce_engine::access::{people::PersonView, sessions::NewSession};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{api_keys::TeamRefBody, people::PersonBody};
use crate::{
    client_address::ClientAddress,
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody, check_failures},
        html::escape_html,
        next_page::{next_page, with_next},
        params::PathParam,
        session_cookie::{CookieSafety, is_local, session_secret},
    },
};

const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The session of the person who signed in.
#[derive(Serialize, ToSchema)]
pub(crate) struct SessionBody {
    person: PersonBody,
    team: TeamRefBody,
    /// Other teams, to which `PATCH /v1/session` changes.
    other_teams: Vec<TeamRefBody>,
    /// What the person may do, as scopes of API keys.
    scopes: Vec<&'static str>,
    /// Send it in the header `Mailonce-Csrf` of every request that changes something.
    csrf_token: String,
    created_at: String,
    /// When the session ends at the latest.
    expires_at: Option<String>,
}

/// A change of the session.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionPatchBody {
    /// Id of the team to act in.
    team: String,
}

/// Read the session of the caller.
///
/// Only for people who signed in: an API key has no session.
#[utoipa::path(get, path = "/v1/session", operation_id = "read_session", tag = "people",
    responses((status = 200, description = "The session", body = SessionBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, parts: Parts) -> ApiResult {
    let (view, teams) = app.engine.people.session_person(&auth.caller).await?;
    let key = &auth.caller.key;
    let body = SessionBody {
        person: PersonBody::from(view),
        team: TeamRefBody::from(&*auth.caller.team),
        other_teams: teams.iter().map(TeamRefBody::from).collect(),
        scopes: key.details.scopes.iter().map(|scope| scope.as_str()).collect(),
        csrf_token: session_secret(&parts).map(|secret| app.engine.people.csrf_token(secret)).unwrap_or_default(),
        created_at: key.created_at.to_string(),
        expires_at: key.details.expires_at.map(|at| at.to_string()),
    };
    Ok(Json(body).into_response())
}

/// Act in another team.
///
/// The session is replaced by one in the other team, which lasts no longer.
#[utoipa::path(patch, path = "/v1/session", operation_id = "update_session", tag = "people", request_body = SessionPatchBody,
    responses((status = 204, description = "The cookie is that of the other team's session")))]
pub(crate) async fn change(State(app): State<App>, auth: AuthedRequest, parts: Parts, body: RawBody) -> ApiResult {
    app.engine.people.session_person(&auth.caller).await?;
    let SessionPatchBody { team } = body.parse()?;
    let not_found = |_not_an_id| Problem::new(Code::NotFound, format!("you have no team {team}"));
    let team: TeamId = team.parse().map_err(not_found)?;
    let session = app.engine.people.change_session_team(&auth.caller, team).await?;
    let cookie = CookieSafety::of(&parts).start(&session, app.engine.ctx.now().0)?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

/// Sign out.
///
/// To sign out everywhere, call `POST /v1/people/{id}/sign-out`.
#[utoipa::path(delete, path = "/v1/session", operation_id = "delete_session", tag = "people",
    responses((status = 204, description = "The session is over")))]
pub(crate) async fn end(State(app): State<App>, auth: AuthedRequest, parts: Parts) -> ApiResult {
    app.engine.people.session_person(&auth.caller).await?;
    app.engine.people.end_session(&auth.caller).await?;
    let cookie = CookieSafety::of(&parts).end()?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

/// The page of a sign-in link. It changes nothing: programs that check links open them.
pub(crate) async fn show_link(State(app): State<App>, PathParam(token): PathParam, parts: Parts) -> ApiResult {
    if CookieSafety::of(&parts) == CookieSafety::Unsafe {
        return Ok(needs_https());
    }
    check_failures(&app, ClientAddress::of(&parts.extensions))?;
    match app.engine.people.preview_sign_in_link(&token, is_local(&parts)).await {
        Ok(view) => Ok(page(StatusCode::OK, &sign_in_form(&view))),
        Err(problem) => failure_page(&app, &parts, problem),
    }
}

fn sign_in_form(PersonView { person, .. }: &PersonView) -> String {
    let (name, role) = (escape_html(&person.name), person.role.as_str());
    format!(
        "<h1>Sign in to mailonce</h1>\n<p>You sign in as <strong>{name}</strong> ({role}). This link works once.</p>\n\
         <form method=\"post\"><button autofocus>Sign in</button></form>"
    )
}

/// Signs in with a link.
pub(crate) async fn use_link(State(app): State<App>, PathParam(token): PathParam, request: Request) -> ApiResult {
    let (parts, _) = request.into_parts();
    if CookieSafety::of(&parts) == CookieSafety::Unsafe {
        return Ok(needs_https());
    }
    let client = ClientAddress::of(&parts.extensions);
    check_failures(&app, client)?;
    let session = match app.engine.people.redeem_sign_in_link(&token, client, is_local(&parts)).await {
        Ok(session) => session,
        Err(problem) => return failure_page(&app, &parts, problem),
    };
    end_previous_session(&app, &parts).await?;
    let next = next_page(parts.uri.query().unwrap_or_default());
    signed_in(&app, &parts, &session, next.as_deref())
}

/// Ends the session that this browser had before, which must not live on unseen.
pub(super) async fn end_previous_session(app: &App, parts: &Parts) -> Result<(), Problem> {
    if let Some(before) = session_secret(parts)
        && let Ok(caller) = app.engine.access.authenticate_session(before).await
    {
        app.engine.control.audit.set_call_origin(&caller, ClientAddress::of(&parts.extensions));
        app.engine.people.end_session(&caller).await?;
    }
    Ok(())
}

/// The response that starts a session in the browser and shows a page, else the dashboard.
pub(crate) fn signed_in(app: &App, parts: &Parts, session: &NewSession, next: Option<&str>) -> ApiResult {
    let cookie = CookieSafety::of(parts).start(session, app.engine.ctx.now().0)?;
    let not_a_header = |_invalid| Problem::new(Code::Internal, "the page after the sign-in is not a header value");
    let next = HeaderValue::from_str(next.unwrap_or("/")).map_err(not_a_header)?;
    let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, next)];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

/// The page that says how to sign in. It keeps the page to which the sign-in leads.
pub(crate) async fn show_options(State(app): State<App>, parts: Parts) -> Response {
    let next = next_page(parts.uri.query().unwrap_or_default());
    let provider = app.oidc.as_ref().map(|provider| {
        let (host, start) = (escape_html(&provider.host()), escape_html(&with_next("/sign-in/oidc", next.as_deref())));
        format!("<p><a class=\"button\" href=\"{start}\">Sign in with {host}</a></p>\n")
    });
    let back = next.as_deref().map(|page| {
        format!("\n<p>After you opened the link: <a href=\"{}\">go on to the page</a>.</p>", escape_html(page))
    });
    let content = format!(
        "<h1>Sign in to mailonce</h1>\n{}<p>Ask an admin of your team for a sign-in link, or make one on the server:</p>\n\
         <pre>mailonce login --name NAME --role viewer</pre>{}",
        provider.unwrap_or_default(),
        back.unwrap_or_default()
    );
    page(StatusCode::OK, &content)
}

pub(super) fn needs_https() -> Response {
    page(
        StatusCode::BAD_REQUEST,
        "<h1>Sign-in needs HTTPS.</h1>\n<p>Over plain HTTP everybody on the way could take over your session. Open this \
         page over HTTPS, or in a browser on the server's own machine. Settings: <code>http.tls_cert</code>, or \
         <code>http.trusted_proxies</code> for a proxy that sends <code>X-Forwarded-Proto: https</code>.</p>",
    )
}

fn failure_page(app: &App, parts: &Parts, problem: Problem) -> ApiResult {
    if problem.code != Code::LinkGone {
        return Err(problem.into());
    }
    if let Some(client) = ClientAddress::of(&parts.extensions) {
        app.auth_failures.record(client);
    }
    let detail = escape_html(&problem.detail);
    let content =
        format!("<h1>This link does not work.</h1>\n<p>{detail}.</p>\n<p><a href=\"/sign-in\">How to sign in</a></p>");
    Ok(page(StatusCode::GONE, &content))
}

pub(super) fn page(status: StatusCode, content: &str) -> Response {
    let html = include_str!("sign_in.html").replace("{{content}}", content);
    let mut response = (status, Html(html)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    // Other sites see nothing of the link. Without a referrer, browsers would hide the origin of the form from this server.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}
