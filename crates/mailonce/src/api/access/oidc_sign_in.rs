//! Sign-in by an identity provider: the way there, and the way back.

use axum::{
    extract::State,
    http::{HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use mailonce_core::problem::{Code, Problem};
use mailonce_engine::access::external_sign_in::{ExternalFlow, FLOW_MS};
use std::sync::Arc;
use subtle::ConstantTimeEq as _;

use super::sessions::{end_previous_session, needs_https, page, signed_in};
use crate::{
    client_address::ClientAddress,
    http::{
        app::{ApiResult, App},
        extract::check_failures,
        html::escape_html,
        next_page::{next_page, with_next},
        params::QueryParams,
        session_cookie::CookieSafety,
    },
    oidc::{CallbackQuery, OidcProvider, RedeemError},
};

/// Where the provider sends the browser back to.
const CALLBACK_PATH: &str = "/sign-in/oidc/callback";

fn provider(app: &App) -> Result<&Arc<OidcProvider>, Problem> {
    let missing =
        || Problem::new(Code::NotFound, "this server has no identity provider: its configuration has no [oidc]");
    app.oidc.as_ref().ok_or_else(missing)
}

fn redirect_uri(app: &App) -> String {
    format!("{}{CALLBACK_PATH}", app.public_url)
}

/// Sends the browser to the identity provider. The browser keeps the page to which the sign-in leads.
pub(crate) async fn start(State(app): State<App>, parts: Parts) -> ApiResult {
    let safety = CookieSafety::of(&parts);
    if safety == CookieSafety::Unsafe {
        return Ok(needs_https());
    }
    let provider = provider(&app)?;
    check_failures(&app, ClientAddress::of(&parts.extensions))?;
    let flow = app.engine.people.new_external_flow();
    let next = next_page(parts.uri.query().unwrap_or_default());
    let url = match provider.authorization_url(&flow, &redirect_uri(&app), app.engine.ctx.now()).await {
        Ok(url) => url,
        Err(why) => return Ok(failure(StatusCode::BAD_GATEWAY, &why, next.as_deref())),
    };
    let cookie = safety.start_flow(&flow.cookie, FLOW_MS / 1000)?;
    let url = HeaderValue::try_from(url)
        .map_err(|_bytes| Problem::new(Code::Internal, "the address of the identity provider cannot be written"))?;
    let kept = safety.keep_next_page(&parts, next.as_deref(), FLOW_MS / 1000)?;
    let mut response = (StatusCode::SEE_OTHER, [(header::SET_COOKIE, cookie), (header::LOCATION, url)]).into_response();
    if let Some(cookie) = kept {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Signs in whom the identity provider vouches for.
pub(crate) async fn finish(State(app): State<App>, query: QueryParams<CallbackQuery>, parts: Parts) -> ApiResult {
    let safety = CookieSafety::of(&parts);
    if safety == CookieSafety::Unsafe {
        return Ok(needs_https());
    }
    let client = ClientAddress::of(&parts.extensions);
    check_failures(&app, client)?;
    let provider = provider(&app)?;
    let mut response = match sign_in(&app, provider, &query.0, &parts).await {
        Ok(response) => response,
        Err(SignInFailure { status, why, may_be_forged }) => {
            tracing::warn!(%why, "a sign-in by the identity provider failed");
            client.iter().filter(|_| may_be_forged).for_each(|client| app.auth_failures.record(*client));
            failure(status, &why, safety.next_page(&parts).as_deref())
        }
    };
    // Whatever happened, the next attempt begins anew.
    response.headers_mut().append(header::SET_COOKIE, safety.end_flow()?);
    if let Some(cookie) = safety.keep_next_page(&parts, None, 0)? {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Why nobody was signed in.
struct SignInFailure {
    status: StatusCode,
    why: String,
    /// Whether the state, the code or the token was wrong. Only that counts as a failed authentication: neither a person
    /// who cancels nor a provider that is down must lock out an address.
    may_be_forged: bool,
}

impl SignInFailure {
    /// A state, code or token that the provider did not issue for this flow. Counts as a failed authentication.
    fn suspicious(why: String) -> Self {
        Self { status: StatusCode::FORBIDDEN, why, may_be_forged: true }
    }

    /// Any other failure. Does not count as a failed authentication.
    fn benign(status: StatusCode, why: String) -> Self {
        Self { status, why, may_be_forged: false }
    }

    /// An account that may not sign in, or a failure of this server.
    fn of_problem(problem: Problem) -> Self {
        let status = match problem.code {
            Code::LinkGone => StatusCode::FORBIDDEN,
            code => StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        Self::benign(status, problem.detail)
    }
}

impl From<RedeemError> for SignInFailure {
    fn from(error: RedeemError) -> Self {
        match error {
            RedeemError::Refused(why) => Self::suspicious(why),
            RedeemError::Provider(why) => Self::benign(StatusCode::BAD_GATEWAY, why),
        }
    }
}

async fn sign_in(
    app: &App,
    provider: &OidcProvider,
    query: &CallbackQuery,
    parts: &Parts,
) -> Result<Response, SignInFailure> {
    let flow = flow_of_browser(app, query, parts).map_err(SignInFailure::suspicious)?;
    if let Some(error) = &query.error {
        let error: String = error.chars().take(100).collect();
        let why = format!("the identity provider answered {error}");
        return Err(SignInFailure::benign(StatusCode::FORBIDDEN, why));
    }
    let now = app.engine.ctx.now();
    let identity = provider.redeem(query, &flow, &redirect_uri(app), now).await?;
    let client = ClientAddress::of(&parts.extensions);
    let session = app.engine.people.sign_in_external(&flow, &identity, client).await;
    let session = session.map_err(SignInFailure::of_problem)?;
    end_previous_session(app, parts).await.map_err(SignInFailure::of_problem)?;
    let next = CookieSafety::of(parts).next_page(parts);
    signed_in(app, parts, &session, next.as_deref()).map_err(|error| SignInFailure::of_problem(error.0))
}

/// The flow that this browser began. Another site cannot make a browser finish a flow that it did not begin.
fn flow_of_browser(app: &App, query: &CallbackQuery, parts: &Parts) -> Result<ExternalFlow, String> {
    let cookie = CookieSafety::of(parts).flow_cookie(parts).unwrap_or_default();
    let flow = app.engine.people.external_flow(cookie).map_err(|problem| problem.detail)?;
    let state = query.state.as_deref().unwrap_or_default();
    let is_right: bool = state.as_bytes().ct_eq(flow.state.as_bytes()).into();
    is_right.then_some(flow).ok_or_else(|| "the answer does not belong to a sign-in that this browser began".into())
}

fn failure(status: StatusCode, why: &str, next: Option<&str>) -> Response {
    let content = format!(
        "<h1>The sign-in failed.</h1>\n<p>{}.</p>\n<p><a href=\"{}\">Try again</a></p>",
        escape_html(why.trim_end_matches('.')),
        escape_html(&with_next("/sign-in", next))
    );
    page(status, &content)
}
