//! People: who may see and decide, and the links that sign them in.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::{
        person::{Person, Role},
        team::ApiKeyScope,
    },
    id::PersonId,
    problem::{Code, Problem},
};
use mailonce_engine::access::people::{PersonChange, PersonView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::pagination::{PageQuery, created_response},
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::{check_required_text, check_text, given},
        params::{PathParam, QueryParams},
    },
};

/// A person to add.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPersonBody {
    /// Display name. Each name can be added once; names that are changed later, or that an identity provider sends, may
    /// be those of others too.
    name: String,
    /// Address to which notices go.
    #[serde(default)]
    address: Option<String>,
    /// `viewer` sees everything but secrets, `approver` also decides what waits for a person, `admin` manages the team.
    role: String,
}

/// A change of a person. Absent fields stay as they are.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PersonPatchBody {
    /// The `rev` that you read; the call is refused if the object has changed since.
    rev: u32,
    #[serde(default)]
    name: Option<String>,
    /// Null removes the address.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    address: Option<Option<String>>,
    #[serde(default)]
    role: Option<String>,
}

/// A person of the team.
#[derive(Serialize, ToSchema)]
pub(crate) struct PersonBody {
    pub(super) id: String,
    rev: u32,
    created_at: String,
    pub(super) name: String,
    pub(super) address: Option<String>,
    pub(super) role: &'static str,
    /// Whether the person may also manage the installation.
    operator: bool,
    /// When the person last signed out everywhere. Sessions, connections and links from before are over.
    signed_out_at: Option<String>,
}

impl From<PersonView> for PersonBody {
    fn from(view: PersonView) -> Self {
        let Person { name, address, role, operator, signed_out_at, sign_outs: _ } = view.person;
        Self {
            id: view.id.to_string(),
            rev: view.rev,
            created_at: view.created_at.to_string(),
            name,
            address,
            role: role.as_str(),
            operator,
            signed_out_at: signed_out_at.map(|at| at.to_string()),
        }
    }
}

/// A page of people, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct PersonPage {
    data: Vec<PersonBody>,
    next_cursor: Option<String>,
}

/// A new sign-in link. It is shown only once.
#[derive(Serialize, ToSchema)]
pub(crate) struct SignInLinkBody {
    /// The link. It works once.
    url: String,
    expires_at: String,
    person: PersonBody,
}

pub(crate) fn parse_role(word: &str) -> Result<Role, Problem> {
    Role::parse(word).ok_or_else(|| Problem::invalid_field("role", "must be viewer, approver or admin"))
}

pub(crate) fn person_id(text: &str) -> Result<PersonId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no person {text}")))
}

/// The URL of a sign-in link.
pub(crate) fn sign_in_url(public_url: &str, token: &str) -> String {
    format!("{public_url}/sign-in/{token}")
}

/// Add a person to the team.
///
/// The person signs in with a link (`POST /v1/people/{id}/sign-in-links`) or, where it is configured, through OpenID
/// Connect.
#[utoipa::path(post, path = "/v1/people", operation_id = "create_person", tag = "people", request_body = NewPersonBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 201, description = "Added", body = PersonBody),
        (status = 200, description = "Added before with this idempotency key", body = PersonBody),
        (status = 409, description = "A person was added under this name before; the problem names its `id`", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let NewPersonBody { name, address, role } = body.parse()?;
    let keyed_call = auth.keyed_call("people", "", &body.canonical()?);
    check_required_text("name", &name)?;
    let person = Person { name, address, role: parse_role(&role)?, operator: false, signed_out_at: None, sign_outs: 0 };
    let created = app.engine.people.create_person(&auth.caller, person, keyed_call).await?;
    Ok(created_response(created.is_new, Json(PersonBody::from(created.value))))
}

/// List the people of the team, newest first.
#[utoipa::path(get, path = "/v1/people", operation_id = "list_people", tag = "people", params(PageQuery),
    responses((status = 200, description = "A page of results", body = PersonPage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.people.people(&auth.caller, before, limit).await?;
    let data = page.rows.into_iter().map(PersonBody::from).collect();
    Ok(Json(PersonPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read one person.
#[utoipa::path(get, path = "/v1/people/{id}", operation_id = "read_person", tag = "people", params(("id" = String, Path)),
    responses((status = 200, description = "The person", body = PersonBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let person = app.engine.people.person(&auth.caller, person_id(&id)?).await?;
    Ok(Json(PersonBody::from(person)).into_response())
}

/// Change the name, address or role of a person.
///
/// A new role counts within a second, also for open sessions.
#[utoipa::path(patch, path = "/v1/people/{id}", operation_id = "update_person", tag = "people", params(("id" = String, Path)), request_body = PersonPatchBody,
    responses((status = 200, description = "The updated person", body = PersonBody),
        (status = 409, description = "The object changed since you read it", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn change(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let PersonPatchBody { rev, name, address, role } = body.parse()?;
    check_text("name", name.as_deref().unwrap_or_default())?;
    let change = PersonChange { name, address, role: role.as_deref().map(parse_role).transpose()? };
    let person = app.engine.people.change_person(&auth.caller, (person_id(&id)?, rev), change).await?;
    Ok(Json(PersonBody::from(person)).into_response())
}

/// Remove a person.
///
/// All sessions and connections of the person end within a second.
#[utoipa::path(delete, path = "/v1/people/{id}", operation_id = "remove_person", tag = "people", params(("id" = String, Path)),
    responses((status = 200, description = "The removed person", body = PersonBody)))]
pub(crate) async fn remove(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let person = app.engine.people.remove_person(&auth.caller, person_id(&id)?).await?;
    Ok(Json(PersonBody::from(person)).into_response())
}

/// Sign a person out everywhere.
///
/// A person may do this for themselves, an admin for everybody in the team. Sessions, connections and approval links end.
#[utoipa::path(post, path = "/v1/people/{id}/sign-out", operation_id = "sign_out_person", tag = "people", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 200, description = "The person; all sessions and connections are over", body = PersonBody)))]
pub(crate) async fn sign_out(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    let id = person_id(&id)?;
    let keyed_call = auth.keyed_call("people/sign-out", &id.to_string(), b"");
    let person = app.engine.people.sign_out_everywhere(&auth.caller, id, keyed_call).await?;
    Ok(Json(PersonBody::from(person)).into_response())
}

/// Make a sign-in link for a person.
///
/// It works once, for ten minutes. Whoever has it can sign in as the person.
#[utoipa::path(post, path = "/v1/people/{id}/sign-in-links", operation_id = "create_sign_in_link", tag = "people", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 201, description = "The link; it is shown only once", body = SignInLinkBody),
        (status = 200, description = "Made before with this idempotency key", body = SignInLinkBody)))]
pub(crate) async fn create_link(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let id = person_id(&id)?;
    let keyed_call = auth.keyed_call("people/sign-in-links", &id.to_string(), b"");
    let created = app.engine.people.create_sign_in_link(&auth.caller, id, keyed_call).await?;
    let link = created.value;
    let body = SignInLinkBody {
        url: sign_in_url(&app.public_url, &link.token),
        expires_at: link.expires_at.to_string(),
        person: link.person.into(),
    };
    Ok(created_response(created.is_new, Json(body)))
}
