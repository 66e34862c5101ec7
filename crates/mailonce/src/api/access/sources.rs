//! Sources: the providers that post delivery events and received mail to `/hooks/{id}`.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::SourceId,
    problem::{Code, Problem},
    time::{format_span, parse_span},
};
use mailonce_engine::access::{
    collection_config::CollectionConfig,
    sources::{NewSource, SourceCredential, SourceRotation, SourceScope, SourceView},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::pagination::{PageQuery, created_response},
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::check_text,
        params::{PathParam, QueryParams},
    },
};

/// User name and password for HTTP basic authentication.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BasicAuthBody {
    username: String,
    password: String,
}

/// Name of a header or query parameter, and its secret value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedSecretBody {
    name: String,
    value: String,
}

/// A source to create.
///
/// Its kind decides how it authenticates: `secret` for mailgun, sendgrid, resend, usesend, nylas and standard;
/// one of `basic_auth`, `bearer_token`, `auth_header` and `auth_query` for postmark and brevo, and for sendgrid when it
/// delivers only mail; `sns_topics` for ses.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSourceBody {
    name: String,
    /// The provider: `postmark mailgun sendgrid ses resend usesend brevo nylas standard`.
    kind: String,
    /// The transport that the source reports on. Its events apply only to handoffs of this transport. Not needed for a
    /// source that delivers only mail.
    #[serde(default)]
    transport: Option<String>,
    /// What the source may deliver: `events`, `inbound` (mail) or both. The default is `events`, or `inbound` for a
    /// provider without events.
    #[serde(default)]
    accepts: Option<Vec<String>>,
    /// The signing key: Mailgun's signing key, SendGrid's public key, or a `whsec_…` secret.
    #[serde(default)]
    secret: Option<String>,
    #[serde(default)]
    basic_auth: Option<BasicAuthBody>,
    /// Token that the provider sends as `Authorization: Bearer`.
    #[serde(default)]
    bearer_token: Option<String>,
    #[serde(default)]
    auth_header: Option<NamedSecretBody>,
    /// Secret query parameter of the webhook URL. Use it as a last resort: URLs end up in logs.
    #[serde(default)]
    auth_query: Option<NamedSecretBody>,
    /// ARNs of the SNS topics that may post.
    #[serde(default)]
    sns_topics: Option<Vec<String>>,
    /// Whether SHA-1 signatures are accepted; only for old SNS topics.
    #[serde(default)]
    allow_sha1: Option<bool>,
    /// The provider's API key. It fetches mail that the webhook only announces: resend, postmark (server token), nylas.
    #[serde(default)]
    api_key: Option<String>,
    /// Base URL of the provider's API, if it differs from the default, for example for another region.
    #[serde(default)]
    base_url: Option<String>,
    /// How often to poll the provider for mail whose webhook was lost, such as `5m`; `10s` to `1d`. Only for resend and
    /// postmark; no polling when absent.
    #[serde(default)]
    poll_interval: Option<String>,
}

/// New credentials of a source.
///
/// Give a new secret in the form of the source's kind, or new settings for fetching mail. Absent fields keep their
/// value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateSourceBody {
    #[serde(default)]
    secret: Option<String>,
    #[serde(default)]
    basic_auth: Option<BasicAuthBody>,
    #[serde(default)]
    bearer_token: Option<String>,
    #[serde(default)]
    auth_header: Option<NamedSecretBody>,
    #[serde(default)]
    auth_query: Option<NamedSecretBody>,
    #[serde(default)]
    sns_topics: Option<Vec<String>>,
    #[serde(default)]
    allow_sha1: Option<bool>,
    /// Whether the previous secret stays valid until the next rotation; true by default.
    #[serde(default)]
    keep_previous: Option<bool>,
    /// New API key of the provider.
    #[serde(default)]
    api_key: Option<String>,
    /// New base URL of the provider's API; needs `api_key` as well.
    #[serde(default)]
    base_url: Option<String>,
    /// How often to poll the provider for lost mail.
    #[serde(default)]
    poll_interval: Option<String>,
}

/// The credential fields of a request; exactly one may be set.
struct SourceCredentialFields {
    secret: Option<String>,
    basic_auth: Option<BasicAuthBody>,
    bearer_token: Option<String>,
    auth_header: Option<NamedSecretBody>,
    auth_query: Option<NamedSecretBody>,
    sns_topics: Option<Vec<String>>,
    allow_sha1: Option<bool>,
}

impl SourceCredentialFields {
    /// The credential of the request; an error when there is none.
    fn require_one(self) -> Result<SourceCredential, Problem> {
        let missing = "is missing; postmark and brevo take basic_auth, bearer_token, auth_header or auth_query instead, ses takes sns_topics";
        self.find_one()?.ok_or_else(|| Problem::invalid_field("secret", missing))
    }

    /// The credential of the request, if there is one.
    fn find_one(self) -> Result<Option<SourceCredential>, Problem> {
        let allow_sha1 = self.allow_sha1.unwrap_or(false);
        let all = [
            self.secret.map(SourceCredential::Key),
            self.basic_auth
                .map(|BasicAuthBody { username, password }| SourceCredential::Basic { user: username, password }),
            self.bearer_token.map(SourceCredential::Bearer),
            self.auth_header.map(|NamedSecretBody { name, value }| SourceCredential::Header { name, value }),
            self.auth_query.map(|NamedSecretBody { name, value }| SourceCredential::Query { name, value }),
            self.sns_topics.map(|topics| SourceCredential::Topics { topics, allow_sha1 }),
        ];
        let mut credentials = all.into_iter().flatten();
        let fault = |message: &str| Problem::invalid_field("secret", message);
        let Some(credential) = credentials.next() else { return Ok(None) };
        if credentials.next().is_some() {
            return Err(fault(
                "must be the only credential: give one of secret, basic_auth, bearer_token, auth_header, auth_query and sns_topics",
            ));
        }
        credential_texts(&credential).into_iter().try_for_each(|text| check_text("secret", text))?;
        Ok(Some(credential))
    }
}

/// Validates the settings for fetching mail from the provider.
fn parse_collecting(
    api_key: Option<String>,
    base_url: Option<String>,
    poll_interval: Option<String>,
) -> Result<CollectionConfig, Problem> {
    let texts = [("api_key", &api_key), ("base_url", &base_url), ("poll_interval", &poll_interval)];
    texts.into_iter().try_for_each(|(at, text)| text.as_ref().map_or(Ok(()), |text| check_text(at, text)))?;
    let span = |text: &str| {
        let span = parse_span(text);
        span.ok_or_else(|| Problem::invalid_field("poll_interval", "must be a duration such as 30s or 5m"))
    };
    let poll_ms = poll_interval.as_deref().map(span).transpose()?;
    Ok(CollectionConfig { api_key, base_url, poll_ms })
}

/// The texts of a credential whose length must be checked.
fn credential_texts(credential: &SourceCredential) -> Vec<&str> {
    match credential {
        SourceCredential::Key(text) | SourceCredential::Bearer(text) => vec![text],
        SourceCredential::Basic { user, password } => vec![user, password],
        SourceCredential::Header { name, value } | SourceCredential::Query { name, value } => vec![name, value],
        SourceCredential::Topics { topics, .. } => topics.iter().take(101).map(String::as_str).collect(),
    }
}

/// A source, without its secrets.
#[derive(Serialize, ToSchema)]
pub(crate) struct SourceBody {
    id: String,
    name: String,
    kind: &'static str,
    transport: Option<String>,
    /// What the source may deliver: `events`, `inbound` or both.
    accepts: Vec<&'static str>,
    rev: u32,
    created_at: String,
    /// Path of the webhook URL on this server, for the provider to post to.
    hook_path: String,
    has_secret: bool,
    /// Number of valid secrets, or of SNS topics.
    secret_count: usize,
    rotated_at: Option<String>,
    /// Whether the source has an API key to fetch mail that the webhook only announces.
    has_api_key: bool,
    /// Base URL of the provider's API, if it differs from the default.
    base_url: Option<String>,
    /// How often the provider is polled for lost mail; null when it is not.
    poll_interval: Option<String>,
    /// When a poll last read the provider's list to the end.
    last_polled_at: Option<String>,
    /// Error of the polls since then.
    last_error: Option<String>,
}

impl From<&SourceView> for SourceBody {
    fn from(source: &SourceView) -> Self {
        Self {
            id: source.id.to_string(),
            name: source.name.clone(),
            kind: source.kind,
            transport: source.transport.clone(),
            accepts: source.scope.names(),
            rev: source.rev,
            created_at: source.created_at.to_string(),
            hook_path: format!("/hooks/{}", source.id),
            has_secret: source.live_credentials > 0,
            secret_count: source.live_credentials,
            rotated_at: source.rotated_at.map(|at| at.to_string()),
            has_api_key: source.can_fetch,
            base_url: source.base_url.clone(),
            poll_interval: source.poll_ms.map(format_span),
            last_polled_at: source.poll_status.at.map(|at| at.to_string()),
            last_error: source.poll_status.error.clone(),
        }
    }
}

/// A page of sources, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct SourcePage {
    data: Vec<SourceBody>,
    next_cursor: Option<String>,
}

/// Parses the source id in a path.
pub(crate) fn source_id(text: &str) -> Result<SourceId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no source {text}")))
}

/// The fetch settings as input of the call's digest; `None` when the request has none.
fn collecting_digest_input(collecting: &CollectionConfig) -> Option<serde_json::Value> {
    let CollectionConfig { api_key, base_url, poll_ms } = collecting;
    let is_set = *collecting != CollectionConfig::default();
    is_set.then(|| serde_json::json!({ "api_key": api_key, "base_url": base_url, "poll": poll_ms }))
}

/// Create a source of provider events or mail.
#[utoipa::path(post, path = "/v1/sources", operation_id = "create_source", tag = "sources", request_body = NewSourceBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 201, description = "Created; configure the provider to post to `hook_path`", body = SourceBody),
        (status = 200, description = "Created before with this idempotency key", body = SourceBody),
        (status = 409, description = "The name is taken", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let NewSourceBody {
        name,
        kind,
        transport,
        accepts,
        secret,
        basic_auth,
        bearer_token,
        auth_header,
        auth_query,
        sns_topics,
        allow_sha1,
        api_key,
        base_url,
        poll_interval,
    } = body.parse()?;
    if name.trim().is_empty() {
        return Err(Problem::invalid_field("name", "must not be empty").into());
    }
    let transport_field = transport.as_ref().map(|text| ("transport", text));
    [("name", &name), ("kind", &kind)]
        .into_iter()
        .chain(transport_field)
        .try_for_each(|(at, text)| check_text(at, text))?;
    let credential =
        SourceCredentialFields { secret, basic_auth, bearer_token, auth_header, auth_query, sns_topics, allow_sha1 }
            .require_one()?;
    let accepts = accepts.as_deref().map(SourceScope::parse).transpose()?;
    let collecting = parse_collecting(api_key, base_url, poll_interval)?;
    let new = NewSource { name, kind, transport, scope: accepts, credential, collection: collecting };
    let mut digest_input = serde_json::json!([new.name, new.kind, new.transport, new.credential]);
    // Optional fields are added only when they are set. So a call keeps the digest from before the field existed.
    if let (Some(members), Some(scope)) = (digest_input.as_array_mut(), new.scope) {
        members.push(serde_json::json!(scope.names()));
    }
    if let (Some(members), Some(collecting)) = (digest_input.as_array_mut(), collecting_digest_input(&new.collection)) {
        members.push(collecting);
    }
    let keyed_call =
        auth.keyed_call("sources", "", &app.engine.access.call_digest(digest_input.to_string().as_bytes()));
    let source = app.engine.sources.create_source(&auth.caller, new, keyed_call).await?;
    Ok(created_response(source.is_new, Json(SourceBody::from(&source.value))))
}

/// List sources, newest first.
#[utoipa::path(get, path = "/v1/sources", operation_id = "list_sources", tag = "sources", params(PageQuery),
    responses((status = 200, description = "A page of results", body = SourcePage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.sources.sources(&auth.caller, before, limit).await?;
    let data = page.rows.iter().map(SourceBody::from).collect();
    Ok(Json(SourcePage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read one source.
#[utoipa::path(get, path = "/v1/sources/{id}", operation_id = "read_source", tag = "sources", params(("id" = String, Path)),
    responses((status = 200, description = "The source", body = SourceBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let source = app.engine.sources.source(&auth.caller, source_id(&id)?).await?;
    Ok(Json(SourceBody::from(&source)).into_response())
}

/// Remove a source.
///
/// Later requests to its `hook_path` are answered `404`.
#[utoipa::path(delete, path = "/v1/sources/{id}", operation_id = "delete_source", tag = "sources", params(("id" = String, Path)),
    responses((status = 200, description = "The removed object", body = SourceBody)))]
pub(crate) async fn remove(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let source = app.engine.sources.remove_source(&auth.caller, source_id(&id)?).await?;
    Ok(Json(SourceBody::from(&source)).into_response())
}

/// Rotate the credentials of a source.
///
/// Sets a new secret, or a new API key to fetch mail with. The previous secret stays valid until the next rotation,
/// unless `keep_previous` is false.
#[utoipa::path(post, path = "/v1/sources/{id}/rotate", operation_id = "rotate_source_credentials", tag = "sources", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")), request_body = RotateSourceBody,
    responses((status = 200, description = "The source", body = SourceBody),
        (status = 409, description = "The object changed during the call; retry", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn rotate(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let id = source_id(&id)?;
    // Check that the team owns the source before the body, so that another team gets `404` for any body.
    app.engine.sources.source(&auth.caller, id).await?;
    let body: RotateSourceBody = body.parse()?;
    let RotateSourceBody {
        secret,
        basic_auth,
        bearer_token,
        auth_header,
        auth_query,
        sns_topics,
        allow_sha1,
        keep_previous,
        ..
    } = body;
    let collecting = parse_collecting(body.api_key, body.base_url, body.poll_interval)?;
    let credentials =
        SourceCredentialFields { secret, basic_auth, bearer_token, auth_header, auth_query, sns_topics, allow_sha1 };
    let collecting_input = collecting_digest_input(&collecting);
    let credential =
        if collecting_input.is_some() { credentials.find_one()? } else { Some(credentials.require_one()?) };
    let keep = keep_previous.unwrap_or(true);
    let digest_input = match collecting_input {
        None => serde_json::json!([credential, keep]),
        Some(collecting_input) => serde_json::json!([credential, keep, collecting_input]),
    };
    let digest = app.engine.access.call_digest(digest_input.to_string().as_bytes());
    let rotation = SourceRotation { credential, keep, collection: collecting };
    let keyed_call = auth.keyed_call("sources/rotate", &id.to_string(), &digest);
    let source = app.engine.sources.rotate_source(&auth.caller, id, rotation, keyed_call).await?;
    Ok(Json(SourceBody::from(&source)).into_response())
}
