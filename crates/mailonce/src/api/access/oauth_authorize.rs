//! The authorization endpoint: a client sends a person here, the person decides, and the browser goes back with a code.
//!
//! The browser is sent only to a URI that the client registered, and only after the person pressed a button or followed a
//! link: everybody can register a client, so a redirect without them would lend the name of this server to anybody
//! (RFC 9700, section 4.11.2).

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use mailonce_core::{
    access::{connection::CONNECTION_SCOPES, oauth_client::OauthClient, team::ApiKeyScope},
    id::InboxId,
    limits,
    problem::{Code, Problem},
};
use mailonce_engine::{
    Caller,
    access::connections::{ConnectionApproval, offered_scopes},
};

use super::{
    oauth_clients::{RedirectUri, find_redirect_uri},
    oauth_consent_page::{ConsentPage, fault_page, request_fault_page, sign_in_page, unsafe_page},
    oauth_tokens::{OauthParams, read_form},
};
use crate::http::{
    app::{ApiResult, App},
    oauth_urls::issuer,
    session_cookie::{CookieSafety, authenticate_cookie, is_csrf_token, session_secret},
};

/// The parameters that the form of the consent page repeats.
pub(super) const PARAMS: [&str; 8] = [
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "code_challenge",
    "code_challenge_method",
    "resource",
];
/// The length of a challenge: SHA-256 in base64url.
const CHALLENGE_CHARS: usize = 43;

/// A request of a client that may be shown to a person.
pub(super) struct AuthorizationRequest {
    pub(super) client: OauthClient,
    pub(super) redirect_uri: RedirectUri,
    /// The redirect URI as the client wrote it.
    redirect_text: String,
    /// What the client asks for; all scopes when it asks for none that exist here.
    pub(super) scopes: Vec<ApiKeyScope>,
    state: Option<String>,
    resource: String,
    challenge: String,
}

/// Shows what a client asks for.
pub(crate) async fn show(State(app): State<App>, request: Request) -> ApiResult {
    let (parts, _) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let params = match OauthParams::parse(query.as_bytes()) {
        Ok(params) => params,
        Err(error) => return Ok(fault_page(StatusCode::BAD_REQUEST, error.description())),
    };
    let authorization = match parse_request(&app, &params).await? {
        Ok(authorization) => authorization,
        Err(refusal) => return Ok(refusal),
    };
    let (_, caller) = match signed_in(&app, &parts, &authorization, &query).await? {
        Ok(found) => found,
        Err(page) => return Ok(page),
    };
    consent(&app, &parts, &caller, (&authorization, &params), None).await
}

/// Decides: connects the client, or sends the browser back without a code.
pub(crate) async fn decide(State(app): State<App>, request: Request) -> ApiResult {
    let (parts, body) = request.into_parts();
    let form = match read_form(Request::from_parts(parts.clone(), body)).await {
        Ok(form) => form,
        Err(error) => return Ok(error.into_response()),
    };
    let params = match OauthParams::parse(&form) {
        Ok(params) => params,
        Err(error) => return Ok(fault_page(StatusCode::BAD_REQUEST, error.description())),
    };
    let authorization = match parse_request(&app, &params).await? {
        Ok(authorization) => authorization,
        Err(refusal) => return Ok(refusal),
    };
    let query = request_query(&params);
    let (secret, caller) = match signed_in(&app, &parts, &authorization, &query).await? {
        Ok(found) => found,
        Err(page) => return Ok(page),
    };
    // Without it, another site could make the browser of a person agree.
    if !is_csrf_token(&app, params.get("csrf").unwrap_or_default().as_bytes(), &secret) {
        let detail = "The form is not one of your session. Go back to the client and connect again.";
        return Ok(fault_page(StatusCode::FORBIDDEN, detail));
    }
    if params.get("decision") != Some("allow") {
        return Ok(authorization.back(&app, &[("error", "access_denied"), ("error_description", "the person said no")]));
    }
    match approve(&app, &caller, &authorization, &params, &form).await {
        Ok(code) => Ok(authorization.back(&app, &[("code", &code)])),
        Err(problem) if problem.code == Code::InvalidField => {
            consent(&app, &parts, &caller, (&authorization, &params), Some(&problem.detail)).await
        }
        Err(problem) => Err(problem.into()),
    }
}

/// The query of the request that a form repeats.
fn request_query(params: &OauthParams) -> String {
    let pairs = PARAMS.iter().filter_map(|name| Some((*name, params.get(name)?)));
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// Stores what the person chose in the form.
async fn approve(
    app: &App,
    caller: &Caller,
    authorization: &AuthorizationRequest,
    params: &OauthParams,
    form: &[u8],
) -> Result<String, Problem> {
    let chosen = |name: &'static str| {
        url::form_urlencoded::parse(form).filter(move |(own, _)| own == name).map(|(_, value)| value.into_owned())
    };
    let granted: Vec<String> = chosen("grant").collect();
    let is_granted = |scope: &ApiKeyScope| granted.iter().any(|word| word == scope.as_str());
    let scopes = authorization.scopes.iter().copied().filter(is_granted).collect();
    let mut inboxes = Vec::new();
    if params.get("inboxes") != Some("all") {
        let invalid = |_not_an_id| Problem::invalid_field("inbox", "choose inboxes of the list");
        inboxes = chosen("inbox").map(|id| id.parse().map_err(invalid)).collect::<Result<Vec<InboxId>, _>>()?;
        if inboxes.is_empty() {
            return Err(Problem::invalid_field("inbox", "choose all inboxes, or at least one"));
        }
    }
    let approval = ConnectionApproval {
        client: authorization.client.clone(),
        redirect_uri: authorization.redirect_text.clone(),
        scopes,
        inboxes,
        resource: authorization.resource.clone(),
        challenge: authorization.challenge.clone(),
    };
    app.engine.connections.approve_connection(caller, approval).await
}

/// The person who signed in with the secret of the session, else the page that says how to.
async fn signed_in(
    app: &App,
    parts: &Parts,
    authorization: &AuthorizationRequest,
    query: &str,
) -> Result<Result<(String, Caller), Response>, Problem> {
    if CookieSafety::of(parts) == CookieSafety::Unsafe {
        return Ok(Err(unsafe_page()));
    }
    let Some(secret) = session_secret(parts) else { return Ok(Err(sign_in_page(authorization, query))) };
    match authenticate_cookie(app, parts, secret).await {
        Ok(caller) => Ok(Ok((secret.to_owned(), caller))),
        Err(problem) if problem.code.status() == 401 => Ok(Err(sign_in_page(authorization, query))),
        Err(problem) => Err(problem),
    }
}

/// The page on which the person decides.
async fn consent(
    app: &App,
    parts: &Parts,
    caller: &Caller,
    (authorization, params): (&AuthorizationRequest, &OauthParams),
    fault: Option<&str>,
) -> ApiResult {
    let (person, _) = app.engine.people.session_person(caller).await?;
    let offered = offered_scopes(&caller.key.details.scopes);
    let scopes: Vec<ApiKeyScope> =
        authorization.scopes.iter().copied().filter(|scope| offered.contains(scope)).collect();
    if scopes.is_empty() {
        let role = person.person.role.as_str();
        let detail = format!("Your role, {role}, does not allow what the client asks for. Ask an admin of your team.");
        return Ok(fault_page(StatusCode::FORBIDDEN, &detail));
    }
    let inboxes = app.engine.inboxes.inboxes(caller, None, limits::PAGE_ROWS).await?;
    let csrf = session_secret(parts).map(|secret| app.engine.people.csrf_token(secret)).unwrap_or_default();
    let page = ConsentPage {
        authorization,
        params,
        person: &person.person,
        team: &caller.team.name,
        scopes: &scopes,
        inboxes: &inboxes.rows,
        has_more_inboxes: inboxes.next.is_some(),
        csrf: &csrf,
        fault,
    };
    Ok(page.render())
}

/// Parses a request. The inner error is the response to a request that cannot be shown to a person.
async fn parse_request(app: &App, params: &OauthParams) -> Result<Result<AuthorizationRequest, Response>, Problem> {
    let client = match params.get("client_id").and_then(|id| id.parse().ok()) {
        Some(id) => app.engine.connections.oauth_client(id).await?,
        None => None,
    };
    let Some(client) = client else {
        let detail = "The client is not registered here. Remove the connection in the client and add it again.";
        return Ok(Err(fault_page(StatusCode::BAD_REQUEST, detail)));
    };
    let Some(redirect_uri) = find_redirect_uri(&client, params.get("redirect_uri")) else {
        let detail = "The client wants your browser to go to an address that it did not register.";
        return Ok(Err(fault_page(StatusCode::BAD_REQUEST, detail)));
    };
    let only = client.details.redirect_uris.first().map(String::as_str).unwrap_or_default();
    let mut authorization = AuthorizationRequest {
        redirect_text: params.get("redirect_uri").unwrap_or(only).to_owned(),
        client,
        redirect_uri,
        scopes: requested_scopes(params.get("scope").unwrap_or_default()),
        state: params.get("state").map(str::to_owned),
        resource: String::new(),
        challenge: params.get("code_challenge").unwrap_or_default().to_owned(),
    };
    let fault = match params.resource(app) {
        Ok(resource) => {
            authorization.resource = resource;
            authorization.find_fault(params).map(|(error, why)| (error, why.to_owned()))
        }
        Err(error) => Some(("invalid_target", error.description().to_owned())),
    };
    Ok(match fault {
        None => Ok(authorization),
        Some((error, why)) => {
            let back = authorization.back_url(app, &[("error", error), ("error_description", &why)]);
            Err(request_fault_page(&authorization, &why, &back))
        }
    })
}

/// The scopes that a client asks for. Those of other servers are ignored: the person sees what is left, and so does the
/// client.
fn requested_scopes(text: &str) -> Vec<ApiKeyScope> {
    let is_requested = |scope: &ApiKeyScope| text.split(' ').any(|word| word == scope.as_str());
    let requested: Vec<ApiKeyScope> = CONNECTION_SCOPES.into_iter().filter(is_requested).collect();
    if requested.is_empty() { CONNECTION_SCOPES.to_vec() } else { requested }
}

impl AuthorizationRequest {
    /// What is wrong with a request whose client and redirect URI are right.
    fn find_fault(&self, params: &OauthParams) -> Option<(&'static str, &'static str)> {
        if params.get("response_type") != Some("code") {
            return Some(("unsupported_response_type", "response_type must be code"));
        }
        if params.get("code_challenge_method") != Some("S256") {
            return Some(("invalid_request", "code_challenge_method must be S256"));
        }
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if self.challenge.len() != CHALLENGE_CHARS || !self.challenge.bytes().all(is_letter) {
            return Some(("invalid_request", "code_challenge must be SHA-256 in base64url"));
        }
        None
    }

    /// The URL that brings a result to the client.
    fn back_url(&self, app: &App, result: &[(&str, &str)]) -> String {
        let state = self.state.iter().map(|state| ("state", state.as_str()));
        // RFC 9207: the client sees which server answered.
        let params: Vec<(&str, &str)> = result.iter().copied().chain(state).chain([("iss", issuer(app))]).collect();
        self.redirect_uri.with_params(&params)
    }

    /// Sends the browser back to the client.
    fn back(&self, app: &App, result: &[(&str, &str)]) -> Response {
        let Ok(location) = HeaderValue::try_from(self.back_url(app, result)) else {
            let detail = "The client wants your browser to go to an address that is not valid.";
            return fault_page(StatusCode::BAD_REQUEST, detail);
        };
        let headers = [(header::LOCATION, location), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
        (StatusCode::SEE_OTHER, headers).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_of_other_servers_are_ignored() {
        assert_eq!(requested_scopes("read offline_access"), [ApiKeyScope::Read]);
        assert_eq!(requested_scopes("admin read send"), [ApiKeyScope::Send, ApiKeyScope::Read]);
        for text in ["", "openid", "admin"] {
            assert_eq!(requested_scopes(text), CONNECTION_SCOPES, "{text}");
        }
    }
}
