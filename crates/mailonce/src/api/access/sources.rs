//! Sources of provider events and of mail.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::SourceId,
    problem::{Code, FieldError, Problem},
    time::{format_span, parse_span},
};
use mailonce_engine::access::{
    collection_config::CollectionConfig,
    sources::{NewSource, SourceCredential, SourceRotation, SourceScope, SourceView},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{
    ApiResult, App, PathParam, QueryParams,
    door::{AuthedRequest, RawBody},
    pagination::{PageQuery, created_response},
    wire::check_text,
};

/// User and password of HTTP basic.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BasicAuthBody {
    username: String,
    password: String,
}

/// A name and a secret value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedSecretBody {
    name: String,
    value: String,
}

/// A source to make. How it proves itself depends on its kind: `secret` for mailgun, sendgrid, resend, usesend, nylas and
/// standard, one of `basic_auth`, `bearer_token`, `auth_header` and `auth_query` for postmark and brevo (and for sendgrid when it brings only
/// mail), `sns_topics` for ses.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSourceBody {
    name: String,
    /// `postmark mailgun sendgrid ses resend usesend brevo nylas standard`.
    kind: String,
    /// The transport it speaks for. Its events count for handoffs of this one only; a source that brings only mail
    /// needs none.
    #[serde(default)]
    transport: Option<String>,
    /// What it may bring: `events`, `inbound` or both. Left out: events, or mail where the provider has no events.
    #[serde(default)]
    accepts: Option<Vec<String>>,
    /// The signing key: Mailgun's, SendGrid's public one, or `whsec_…`.
    #[serde(default)]
    secret: Option<String>,
    #[serde(default)]
    basic_auth: Option<BasicAuthBody>,
    /// A bearer token.
    #[serde(default)]
    bearer_token: Option<String>,
    #[serde(default)]
    auth_header: Option<NamedSecretBody>,
    /// A parameter of the address. A last resort: addresses end up in logs.
    #[serde(default)]
    auth_query: Option<NamedSecretBody>,
    /// ARNs of SNS topics.
    #[serde(default)]
    sns_topics: Option<Vec<String>>,
    /// Whether signatures with SHA-1 are believed; only for old SNS topics.
    #[serde(default)]
    allow_sha1: Option<bool>,
    /// The provider's API key, by which mail that it only tells of is fetched: resend, postmark (the server's token),
    /// nylas.
    #[serde(default)]
    api_key: Option<String>,
    /// Where the provider's API begins, when it is not the usual place: another region, say.
    #[serde(default)]
    base_url: Option<String>,
    /// How often the provider is asked which mails came, for hooks that were lost: `5m`, between 10s and 1d; resend and
    /// postmark. Never without.
    #[serde(default)]
    poll_interval: Option<String>,
}

/// Another secret for a source, in the form of its kind, or another way to collect its mail. What is left out stays.
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
    /// Whether the secret before stays live beside the new one; true by default.
    #[serde(default)]
    keep_previous: Option<bool>,
    /// Another API key of the provider.
    #[serde(default)]
    api_key: Option<String>,
    /// Another place for its API, with the key for it.
    #[serde(default)]
    base_url: Option<String>,
    /// How often it is asked which mails came.
    #[serde(default)]
    poll_interval: Option<String>,
}

/// Every way to prove oneself; a call names one.
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
    /// The one that is given.
    fn require_one(self) -> Result<SourceCredential, Problem> {
        let missing = "is missing; postmark and brevo take basic_auth, bearer_token, auth_header or auth_query instead, ses takes sns_topics";
        self.find_one()?.ok_or_else(|| Problem::from(vec![FieldError::new("secret", missing)]))
    }

    /// The one that is given, if one is.
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
        let mut given = all.into_iter().flatten();
        let fault = |message: &str| Problem::from(vec![FieldError::new("secret", message)]);
        let Some(proof) = given.next() else { return Ok(None) };
        if given.next().is_some() {
            return Err(fault(
                "and the like: one of secret, basic_auth, bearer_token, auth_header, auth_query and sns_topics is given",
            ));
        }
        credential_texts(&proof).into_iter().try_for_each(|text| check_text("secret", text))?;
        Ok(Some(proof))
    }
}

/// How mail is collected, read from a body.
fn parse_collecting(
    api_key: Option<String>,
    base_url: Option<String>,
    poll_interval: Option<String>,
) -> Result<CollectionConfig, Problem> {
    let given = [("api_key", &api_key), ("base_url", &base_url), ("poll_interval", &poll_interval)];
    given.into_iter().try_for_each(|(at, text)| text.as_ref().map_or(Ok(()), |text| check_text(at, text)))?;
    let span = |text: &str| {
        let span = parse_span(text);
        span.ok_or_else(|| Problem::from(vec![FieldError::new("poll_interval", "is a span such as 30s or 5m")]))
    };
    let poll_ms = poll_interval.as_deref().map(span).transpose()?;
    Ok(CollectionConfig { api_key, base_url, poll_ms })
}

/// Every text in a proof, to be bounded.
fn credential_texts(proof: &SourceCredential) -> Vec<&str> {
    match proof {
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
    /// What it may bring.
    accepts: Vec<&'static str>,
    rev: u32,
    created_at: String,
    /// Where the provider posts to, behind this server's own address.
    hook_path: String,
    has_secret: bool,
    /// How many secrets, or topics, are live.
    secret_count: usize,
    rotated_at: Option<String>,
    /// Whether mail that it only tells of can be fetched.
    has_api_key: bool,
    /// Where it is fetched, when that is not the provider's usual place.
    base_url: Option<String>,
    /// How often the provider is asked which mails came.
    poll_interval: Option<String>,
    /// When it was asked last, to the end of its list.
    last_polled_at: Option<String>,
    /// What has gone wrong with that since.
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

/// Sources, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct SourcePage {
    data: Vec<SourceBody>,
    next_cursor: Option<String>,
}

/// A source's id from a path.
pub(crate) fn source_id(text: &str) -> Result<SourceId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no source {text}")))
}

/// What is said of collecting, as a call means it. `None` when nothing is.
fn collecting_digest_input(collecting: &CollectionConfig) -> Option<serde_json::Value> {
    let CollectionConfig { api_key, base_url, poll_ms } = collecting;
    let said = *collecting != CollectionConfig::default();
    said.then(|| serde_json::json!({ "api_key": api_key, "base_url": base_url, "poll": poll_ms }))
}

/// Add a source of provider events.
#[utoipa::path(post, path = "/v1/sources", operation_id = "create_source", tag = "sources", request_body = NewSourceBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 201, description = "Added; `hook_path` is where the provider posts to", body = SourceBody),
        (status = 200, description = "Added before under this key", body = SourceBody),
        (status = 409, description = "The name is taken", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, door: AuthedRequest, body: RawBody) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
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
        return Err(Problem::from(vec![FieldError::new("name", "is empty")]).into());
    }
    let transport_named = transport.as_ref().map(|text| ("transport", text));
    [("name", &name), ("kind", &kind)]
        .into_iter()
        .chain(transport_named)
        .try_for_each(|(at, text)| check_text(at, text))?;
    let proof =
        SourceCredentialFields { secret, basic_auth, bearer_token, auth_header, auth_query, sns_topics, allow_sha1 }
            .require_one()?;
    let accepts = accepts.as_deref().map(SourceScope::parse).transpose()?;
    let collecting = parse_collecting(api_key, base_url, poll_interval)?;
    let new = NewSource { name, kind, transport, scope: accepts, credential: proof, collection: collecting };
    let mut meaning = serde_json::json!([new.name, new.kind, new.transport, new.credential]);
    // A call without it means what it meant before there was such a field.
    if let (Some(meaning), Some(scope)) = (meaning.as_array_mut(), new.scope) {
        meaning.push(serde_json::json!(scope.names()));
    }
    if let (Some(meaning), Some(collecting)) = (meaning.as_array_mut(), collecting_digest_input(&new.collection)) {
        meaning.push(collecting);
    }
    let asked = door.keyed_call("sources", "", &app.engine.access.keyed_digest(meaning.to_string().as_bytes()));
    let source = app.engine.access.create_source(&door.caller, new, asked).await?;
    Ok(created_response(source.is_new, Json(SourceBody::from(&source.value))))
}

/// List sources, newest first.
#[utoipa::path(get, path = "/v1/sources", operation_id = "list_sources", tag = "sources", params(PageQuery),
    responses((status = 200, description = "A page", body = SourcePage)))]
pub(crate) async fn list(State(app): State<App>, door: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.access.sources(&door.caller, before, limit).await?;
    let data = page.rows.iter().map(SourceBody::from).collect();
    Ok(Json(SourcePage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read one source.
#[utoipa::path(get, path = "/v1/sources/{id}", operation_id = "read_source", tag = "sources", params(("id" = String, Path)),
    responses((status = 200, description = "The source", body = SourceBody)))]
pub(crate) async fn read(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let source = app.engine.access.source(&door.caller, source_id(&id)?).await?;
    Ok(Json(SourceBody::from(&source)).into_response())
}

/// Remove a source. What comes to its address afterwards is not found.
#[utoipa::path(delete, path = "/v1/sources/{id}", operation_id = "delete_source", tag = "sources", params(("id" = String, Path)),
    responses((status = 200, description = "What it was", body = SourceBody)))]
pub(crate) async fn remove(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let source = app.engine.access.remove_source(&door.caller, source_id(&id)?).await?;
    Ok(Json(SourceBody::from(&source)).into_response())
}

/// Give a source another secret, or another key to collect mail with. The secret before stays live until the next
/// rotation.
#[utoipa::path(post, path = "/v1/sources/{id}/rotate", operation_id = "rotate_source_credentials", tag = "sources", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")), request_body = RotateSourceBody,
    responses((status = 200, description = "The source", body = SourceBody),
        (status = 409, description = "It changed meanwhile", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn rotate(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let id = source_id(&id)?;
    // Whose it is comes first: a stranger learns nothing about what a body should be.
    app.engine.access.source(&door.caller, id).await?;
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
    let proofs =
        SourceCredentialFields { secret, basic_auth, bearer_token, auth_header, auth_query, sns_topics, allow_sha1 };
    let said = collecting_digest_input(&collecting);
    let proof = if said.is_some() { proofs.find_one()? } else { Some(proofs.require_one()?) };
    let keep = keep_previous.unwrap_or(true);
    let meaning = match said {
        None => serde_json::json!([proof, keep]),
        Some(said) => serde_json::json!([proof, keep, said]),
    };
    let meaning = app.engine.access.keyed_digest(meaning.to_string().as_bytes());
    let rotation = SourceRotation { credential: proof, keep, collection: collecting };
    let asked = door.keyed_call("sources/rotate", &id.to_string(), &meaning);
    let source = app.engine.access.rotate_source(&door.caller, id, rotation, asked).await?;
    Ok(Json(SourceBody::from(&source)).into_response())
}
