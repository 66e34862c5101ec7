//! Sources of provider events and of mail.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    id::SourceId,
    problem::{Code, FieldError, Problem},
    team::Scope,
    time::{parse_span, show_span},
};
use mailonce_engine::{
    collect::Collecting,
    sources::{NewSource, Proof, Rotation, Source, Takes},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Answer, App, PathOf, QueryOf,
    door::{Door, RawBody},
    records::{PageQuery, made},
    wire::words,
};

/// User and password of HTTP basic.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BasicBody {
    user: String,
    password: String,
}

/// A name and a secret value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedSecretBody {
    name: String,
    value: String,
}

/// A source to make. How it proves itself depends on its kind: `secret` for mailgun, sendgrid, resend, usesend, nylas and
/// standard, one of `basic`, `bearer`, `header` and `query` for postmark and brevo (and for sendgrid when it brings only
/// mail), `topics` for ses.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSourceBody {
    name: String,
    /// `postmark mailgun sendgrid ses resend usesend brevo nylas standard`.
    kind: String,
    /// The transport it speaks for. Its events count for handoffs of this one only; a source that brings only mail
    /// needs none.
    #[serde(default)]
    transport: Option<String>,
    /// What it may bring: `events`, `inbound` or both. Left out: events, or mail where the provider has no events.
    #[serde(default)]
    takes: Option<Vec<String>>,
    /// The signing key: Mailgun's, SendGrid's public one, or `whsec_…`.
    #[serde(default)]
    secret: Option<String>,
    #[serde(default)]
    basic: Option<BasicBody>,
    /// A bearer token.
    #[serde(default)]
    bearer: Option<String>,
    #[serde(default)]
    header: Option<NamedSecretBody>,
    /// A parameter of the address. A last resort: addresses end up in logs.
    #[serde(default)]
    query: Option<NamedSecretBody>,
    /// ARNs of SNS topics.
    #[serde(default)]
    topics: Option<Vec<String>>,
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
    poll: Option<String>,
}

/// Another secret for a source, in the form of its kind, or another way to collect its mail. What is left out stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RotateBody {
    #[serde(default)]
    secret: Option<String>,
    #[serde(default)]
    basic: Option<BasicBody>,
    #[serde(default)]
    bearer: Option<String>,
    #[serde(default)]
    header: Option<NamedSecretBody>,
    #[serde(default)]
    query: Option<NamedSecretBody>,
    #[serde(default)]
    topics: Option<Vec<String>>,
    #[serde(default)]
    allow_sha1: Option<bool>,
    /// Whether the secret before stays live beside the new one; true by default.
    #[serde(default)]
    keep_old: Option<bool>,
    /// Another API key of the provider.
    #[serde(default)]
    api_key: Option<String>,
    /// Another place for its API, with the key for it.
    #[serde(default)]
    base_url: Option<String>,
    /// How often it is asked which mails came.
    #[serde(default)]
    poll: Option<String>,
}

/// Every way to prove oneself; a call names one.
struct Proofs {
    secret: Option<String>,
    basic: Option<BasicBody>,
    bearer: Option<String>,
    header: Option<NamedSecretBody>,
    query: Option<NamedSecretBody>,
    topics: Option<Vec<String>>,
    allow_sha1: Option<bool>,
}

impl Proofs {
    /// The one that is given.
    fn read(self) -> Result<Proof, Problem> {
        let missing = "is missing; postmark and brevo take basic, bearer, header or query instead, ses takes topics";
        self.maybe()?.ok_or_else(|| Problem::from(vec![FieldError::new("secret", missing)]))
    }

    /// The one that is given, if one is.
    fn maybe(self) -> Result<Option<Proof>, Problem> {
        let allow_sha1 = self.allow_sha1.unwrap_or(false);
        let all = [
            self.secret.map(Proof::Key),
            self.basic.map(|BasicBody { user, password }| Proof::Basic { user, password }),
            self.bearer.map(Proof::Bearer),
            self.header.map(|NamedSecretBody { name, value }| Proof::Header { name, value }),
            self.query.map(|NamedSecretBody { name, value }| Proof::Query { name, value }),
            self.topics.map(|topics| Proof::Topics { topics, allow_sha1 }),
        ];
        let mut given = all.into_iter().flatten();
        let fault = |message: &str| Problem::from(vec![FieldError::new("secret", message)]);
        let Some(proof) = given.next() else { return Ok(None) };
        if given.next().is_some() {
            return Err(fault("and the like: one of secret, basic, bearer, header, query and topics is given"));
        }
        texts(&proof).into_iter().try_for_each(|text| words("secret", text))?;
        Ok(Some(proof))
    }
}

/// How mail is collected, read from a body.
fn collecting(api_key: Option<String>, base_url: Option<String>, poll: Option<String>) -> Result<Collecting, Problem> {
    let given = [("api_key", &api_key), ("base_url", &base_url), ("poll", &poll)];
    given.into_iter().try_for_each(|(at, text)| text.as_ref().map_or(Ok(()), |text| words(at, text)))?;
    let span = |text: &str| {
        let span = parse_span(text);
        span.ok_or_else(|| Problem::from(vec![FieldError::new("poll", "is a span such as 30s or 5m")]))
    };
    let poll_ms = poll.as_deref().map(span).transpose()?;
    Ok(Collecting { api_key, base_url, poll_ms })
}

/// Every text in a proof, to be bounded.
fn texts(proof: &Proof) -> Vec<&str> {
    match proof {
        Proof::Key(text) | Proof::Bearer(text) => vec![text],
        Proof::Basic { user, password } => vec![user, password],
        Proof::Header { name, value } | Proof::Query { name, value } => vec![name, value],
        Proof::Topics { topics, .. } => topics.iter().take(101).map(String::as_str).collect(),
    }
}

/// A source, without its secrets.
#[derive(Serialize, ToSchema)]
pub(super) struct SourceBody {
    id: String,
    name: String,
    kind: &'static str,
    transport: Option<String>,
    /// What it may bring.
    takes: Vec<&'static str>,
    rev: u32,
    created_at: String,
    /// Where the provider posts to, behind this server's own address.
    path: String,
    has_secret: bool,
    /// How many secrets, or topics, are live.
    secrets: usize,
    rotated_at: Option<String>,
    /// Whether mail that it only tells of can be fetched.
    has_api_key: bool,
    /// Where it is fetched, when that is not the provider's usual place.
    base_url: Option<String>,
    /// How often the provider is asked which mails came.
    poll: Option<String>,
    /// When it was asked last, to the end of its list.
    last_polled_at: Option<String>,
    /// What has gone wrong with that since.
    last_error: Option<String>,
}

impl From<&Source> for SourceBody {
    fn from(source: &Source) -> Self {
        Self {
            id: source.id.to_string(),
            name: source.name.clone(),
            kind: source.kind,
            transport: source.transport.clone(),
            takes: source.takes.words(),
            rev: source.rev,
            created_at: source.created_at.to_string(),
            path: format!("/hooks/{}", source.id),
            has_secret: source.secrets > 0,
            secrets: source.secrets,
            rotated_at: source.rotated_at.map(|at| at.to_string()),
            has_api_key: source.fetches,
            base_url: source.base_url.clone(),
            poll: source.poll_ms.map(show_span),
            last_polled_at: source.polled.at.map(|at| at.to_string()),
            last_error: source.polled.error.clone(),
        }
    }
}

/// Sources, newest first.
#[derive(Serialize, ToSchema)]
pub(super) struct SourcePage {
    data: Vec<SourceBody>,
    next_cursor: Option<String>,
}

/// A source's id from a path.
pub(super) fn source_id(text: &str) -> Result<SourceId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no source {text}")))
}

/// What is said of collecting, as a call means it. `None` when nothing is.
fn meant(collecting: &Collecting) -> Option<serde_json::Value> {
    let Collecting { api_key, base_url, poll_ms } = collecting;
    let said = *collecting != Collecting::default();
    said.then(|| serde_json::json!({ "api_key": api_key, "base_url": base_url, "poll": poll_ms }))
}

/// Add a source of provider events.
#[utoipa::path(post, path = "/v1/sources", tag = "sources", request_body = NewSourceBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 201, description = "Added; `path` is where the provider posts to", body = SourceBody),
        (status = 200, description = "Added before under this key", body = SourceBody),
        (status = 409, description = "The name is taken", body = super::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn create(State(app): State<App>, door: Door, body: RawBody) -> Answer {
    door.caller.need(Scope::Admin)?;
    let NewSourceBody {
        name,
        kind,
        transport,
        takes,
        secret,
        basic,
        bearer,
        header,
        query,
        topics,
        allow_sha1,
        api_key,
        base_url,
        poll,
    } = body.parse()?;
    if name.trim().is_empty() {
        return Err(Problem::from(vec![FieldError::new("name", "is empty")]).into());
    }
    let transport_named = transport.as_ref().map(|text| ("transport", text));
    [("name", &name), ("kind", &kind)].into_iter().chain(transport_named).try_for_each(|(at, text)| words(at, text))?;
    let proof = Proofs { secret, basic, bearer, header, query, topics, allow_sha1 }.read()?;
    let takes = takes.as_deref().map(Takes::parse).transpose()?;
    let collecting = collecting(api_key, base_url, poll)?;
    let new = NewSource { name, kind, transport, takes, proof, collecting };
    let mut meaning = serde_json::json!([new.name, new.kind, new.transport, new.proof]);
    // A call without it means what it meant before there was such a field.
    if let (Some(meaning), Some(takes)) = (meaning.as_array_mut(), new.takes) {
        meaning.push(serde_json::json!(takes.words()));
    }
    if let (Some(meaning), Some(collecting)) = (meaning.as_array_mut(), meant(&new.collecting)) {
        meaning.push(collecting);
    }
    let asked = door.asked("sources", "", &app.engine.blind(meaning.to_string().as_bytes()));
    let source = app.engine.create_source(&door.caller, new, asked).await?;
    Ok(made(source.first, Json(SourceBody::from(&source.thing))))
}

/// List sources, newest first.
#[utoipa::path(get, path = "/v1/sources", tag = "sources", params(PageQuery),
    responses((status = 200, description = "A page", body = SourcePage)))]
pub(super) async fn list(State(app): State<App>, door: Door, query: QueryOf<PageQuery>) -> Answer {
    door.caller.need(Scope::Admin)?;
    let (before, limit) = query.0.read()?;
    let page = app.engine.sources(&door.caller, before, limit).await?;
    let data = page.rows.iter().map(SourceBody::from).collect();
    Ok(Json(SourcePage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read one source.
#[utoipa::path(get, path = "/v1/sources/{id}", tag = "sources", params(("id" = String, Path)),
    responses((status = 200, description = "The source", body = SourceBody)))]
pub(super) async fn read(State(app): State<App>, door: Door, PathOf(id): PathOf) -> Answer {
    door.caller.need(Scope::Admin)?;
    let source = app.engine.source(&door.caller, source_id(&id)?).await?;
    Ok(Json(SourceBody::from(&source)).into_response())
}

/// Remove a source. What comes to its address afterwards is not found.
#[utoipa::path(delete, path = "/v1/sources/{id}", tag = "sources", params(("id" = String, Path)),
    responses((status = 200, description = "What it was", body = SourceBody)))]
pub(super) async fn remove(State(app): State<App>, door: Door, PathOf(id): PathOf) -> Answer {
    door.caller.need(Scope::Admin)?;
    let source = app.engine.remove_source(&door.caller, source_id(&id)?).await?;
    Ok(Json(SourceBody::from(&source)).into_response())
}

/// Give a source another secret, or another key to collect mail with. The secret before stays live until the next
/// rotation.
#[utoipa::path(post, path = "/v1/sources/{id}/rotate", tag = "sources", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")), request_body = RotateBody,
    responses((status = 200, description = "The source", body = SourceBody),
        (status = 409, description = "It changed meanwhile", body = super::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn rotate(State(app): State<App>, door: Door, PathOf(id): PathOf, body: RawBody) -> Answer {
    door.caller.need(Scope::Admin)?;
    let id = source_id(&id)?;
    // Whose it is comes first: a stranger learns nothing about what a body should be.
    app.engine.source(&door.caller, id).await?;
    let body: RotateBody = body.parse()?;
    let RotateBody { secret, basic, bearer, header, query, topics, allow_sha1, keep_old, .. } = body;
    let collecting = collecting(body.api_key, body.base_url, body.poll)?;
    let proofs = Proofs { secret, basic, bearer, header, query, topics, allow_sha1 };
    let said = meant(&collecting);
    let proof = if said.is_some() { proofs.maybe()? } else { Some(proofs.read()?) };
    let keep = keep_old.unwrap_or(true);
    let meaning = match said {
        None => serde_json::json!([proof, keep]),
        Some(said) => serde_json::json!([proof, keep, said]),
    };
    let meaning = app.engine.blind(meaning.to_string().as_bytes());
    let rotation = Rotation { proof, keep, collecting };
    let asked = door.asked("sources/rotate", &id.to_string(), &meaning);
    let source = app.engine.rotate_source(&door.caller, id, rotation, asked).await?;
    Ok(Json(SourceBody::from(&source)).into_response())
}
