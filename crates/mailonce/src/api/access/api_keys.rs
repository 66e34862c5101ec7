//! API keys and teams.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::{ApiKey, ApiKeyDetails, ApiKeyScope, Team},
    address::Address,
    cidr::Cidr,
    id::ApiKeyId,
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::access::api_keys::NewApiKey;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::pagination,
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::check_text,
        params::PathParam,
    },
};

/// An API key to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewApiKeyBody {
    /// Label for people.
    name: String,
    /// Any of `send`, `read`, `reply`, `secrets`, `approve`, `admin` and `operator`; `send` and `read` by default.
    #[serde(default)]
    scopes: Option<Vec<String>>,
    /// Addresses, or domains such as `@example.com`, that the key may send from; any when absent. At most 100.
    #[serde(default)]
    allowed_senders: Option<Vec<String>>,
    /// Ids or addresses of the inboxes that the key is restricted to; all when absent.
    #[serde(default)]
    inboxes: Option<Vec<String>>,
    /// Rate limit in calls per second; no limit when absent.
    #[serde(default)]
    rate_per_s: Option<u32>,
    /// When the key expires, as an RFC 3339 time; never when absent.
    #[serde(default)]
    expires_at: Option<String>,
    /// IP addresses or CIDR blocks such as `10.0.0.0/8` that may use the key; any when absent. At most 100.
    #[serde(default)]
    allow_ips: Option<Vec<String>>,
}

/// Maximum number of `allowed_senders`, and of `allow_ips`, of one API key.
const MAX_RESTRICTIONS: usize = 100;

fn parse_allow_ips(blocks: &[String]) -> Result<Vec<Cidr>, Problem> {
    let fault = |at: usize, message: String| Problem::invalid_field(format!("allow_ips[{at}]"), message);
    if blocks.len() > MAX_RESTRICTIONS {
        return Err(fault(MAX_RESTRICTIONS, format!("is one too many: an API key has at most {MAX_RESTRICTIONS}")));
    }
    let block = |(at, text): (usize, &String)| {
        let block = text.trim().parse::<Cidr>();
        block.map_err(|_not| fault(at, "must be an address or a block such as 10.0.0.0/8 or 2001:db8::/32".into()))
    };
    blocks.iter().enumerate().map(block).collect()
}

impl NewApiKeyBody {
    pub(crate) fn validate(self) -> Result<ApiKeyDetails, Problem> {
        check_text("name", &self.name)?;
        let fault = |path: &str, message: &str| Problem::invalid_field(path, message);
        let scopes = self.scopes.unwrap_or_else(|| vec!["send".into(), "read".into()]);
        let scope = |word: &String| {
            ApiKeyScope::parse(word)
                .ok_or_else(|| fault("scopes", "must be among send, read, reply, secrets, approve, admin and operator"))
        };
        let sender = |rule: String| match rule.strip_prefix('@') {
            Some(domain) => Address::parse(&format!("x@{domain}")).map(|address| format!("@{}", address.domain())),
            None => Address::parse(&rule).map(|address| address.as_str().to_owned()),
        };
        let senders = self.allowed_senders.unwrap_or_default();
        if senders.len() > MAX_RESTRICTIONS {
            return Err(fault("allowed_senders", "must be at most 100 addresses or domains"));
        }
        let senders = senders.into_iter().map(sender).collect::<Result<_, _>>();
        let expires_at = self.expires_at.map(|text| {
            Time::parse(&text).ok_or_else(|| fault("expires_at", "must be an RFC 3339 time with an offset"))
        });
        if self.rate_per_s == Some(0) {
            return Err(fault("rate_per_s", "must be at least 1"));
        }
        let inboxes = self.inboxes.unwrap_or_default();
        inboxes.iter().try_for_each(|inbox| check_text("inboxes", inbox))?;
        Ok(ApiKeyDetails {
            name: self.name,
            hint: String::new(),
            scopes: scopes.iter().map(scope).collect::<Result<_, _>>()?,
            senders: senders.map_err(|error| fault("allowed_senders", &format!("holds an address that {error}")))?,
            inboxes,
            rate_per_s: self.rate_per_s,
            expires_at: expires_at.transpose()?,
            allow_ips: parse_allow_ips(&self.allow_ips.unwrap_or_default())?,
            on_behalf_of: None,
        })
    }
}

/// An API key, without its secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct ApiKeyBody {
    id: String,
    name: String,
    /// The first characters of the secret.
    secret_prefix: String,
    scopes: Vec<&'static str>,
    allowed_senders: Vec<String>,
    inboxes: Vec<String>,
    rate_per_s: Option<u32>,
    created_at: String,
    expires_at: Option<String>,
    /// IP addresses and CIDR blocks that may use the key; any when empty.
    allow_ips: Vec<String>,
    revoked_at: Option<String>,
    /// When the key was last used, to the minute.
    last_used_at: Option<String>,
}

impl From<&ApiKey> for ApiKeyBody {
    fn from(key: &ApiKey) -> Self {
        Self {
            id: key.id.to_string(),
            name: key.details.name.clone(),
            secret_prefix: key.details.hint.clone(),
            scopes: key.details.scopes.iter().map(|scope| scope.as_str()).collect(),
            allowed_senders: key.details.senders.clone(),
            inboxes: key.details.inboxes.clone(),
            rate_per_s: key.details.rate_per_s,
            created_at: key.created_at.to_string(),
            expires_at: key.details.expires_at.map(|at| at.to_string()),
            allow_ips: key.details.allow_ips.iter().map(ToString::to_string).collect(),
            revoked_at: key.revoked_at.map(|at| at.to_string()),
            last_used_at: key.last_used_at.map(|at| at.to_string()),
        }
    }
}

/// A new API key. The secret is shown only once.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedApiKeyBody {
    id: String,
    api_key: String,
    created_at: String,
}

/// The API keys of the team, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct ApiKeyPage {
    data: Vec<ApiKeyBody>,
    /// Always null: the list has one page.
    next_cursor: Option<String>,
}

/// Create an API key.
///
/// The response shows the secret once; store it right away.
#[utoipa::path(post, path = "/v1/api-keys", operation_id = "create_api_key", tag = "access", request_body = NewApiKeyBody,
    responses((status = 201, description = "Created; the secret is shown only once", body = CreatedApiKeyBody),
        (status = 200, description = "Created before with this idempotency key", body = CreatedApiKeyBody)))]
pub(crate) async fn create_api_key(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let details = body.parse::<NewApiKeyBody>()?.validate()?;
    let keyed_call = auth.keyed_call("api-keys", "", &serde_json::to_vec(&details).unwrap_or_default());
    let created = app.engine.access.create_api_key(&auth.caller, details, keyed_call).await?;
    let NewApiKey { id, secret, created_at, .. } = created.value;
    let body = CreatedApiKeyBody { id: id.to_string(), api_key: secret, created_at: created_at.to_string() };
    Ok(pagination::created_response(created.is_new, Json(body)))
}

/// List API keys.
#[utoipa::path(get, path = "/v1/api-keys", operation_id = "list_api_keys", tag = "access", responses((status = 200, description = "The API keys", body = ApiKeyPage)))]
pub(crate) async fn list_api_keys(State(app): State<App>, auth: AuthedRequest) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let keys = app.engine.access.api_keys(&auth.caller).await?;
    Ok(Json(ApiKeyPage { data: keys.iter().map(ApiKeyBody::from).collect(), next_cursor: None }).into_response())
}

/// Revoke an API key.
#[utoipa::path(delete, path = "/v1/api-keys/{id}", operation_id = "revoke_api_key", tag = "access", params(("id" = String, Path)),
    responses((status = 200, description = "The revoked API key", body = ApiKeyBody)))]
pub(crate) async fn revoke_api_key(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let id: ApiKeyId =
        id.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no API key {id}")))?;
    let key = app.engine.access.revoke_api_key(&auth.caller, id).await?;
    Ok(Json(ApiKeyBody::from(&key)).into_response())
}

/// A team to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTeamBody {
    name: String,
}

/// A new team with its first API key, which is shown only once.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedTeamBody {
    id: String,
    name: String,
    api_key: String,
}

/// A team.
#[derive(Serialize, ToSchema)]
pub(crate) struct TeamBody {
    id: String,
    name: String,
    created_at: String,
    /// Whether sends must have an idempotency key or an intent.
    require_keys: bool,
}

impl From<&Team> for TeamBody {
    fn from(team: &Team) -> Self {
        Self {
            id: team.id.to_string(),
            name: team.name.clone(),
            created_at: team.created_at.to_string(),
            require_keys: team.require_keys,
        }
    }
}

/// The name of a team.
#[derive(Serialize, ToSchema)]
pub(crate) struct TeamRefBody {
    id: String,
    name: String,
}

impl From<&Team> for TeamRefBody {
    fn from(team: &Team) -> Self {
        Self { id: team.id.to_string(), name: team.name.clone() }
    }
}

/// All teams.
#[derive(Serialize, ToSchema)]
pub(crate) struct TeamPage {
    data: Vec<TeamBody>,
    /// Always null: the list has one page.
    next_cursor: Option<String>,
}

/// Create a team with its first API key.
#[utoipa::path(post, path = "/v1/teams", operation_id = "create_team", tag = "access", request_body = NewTeamBody,
    responses((status = 201, description = "Created; the API key is shown only once", body = CreatedTeamBody),
        (status = 200, description = "Created before with this idempotency key", body = CreatedTeamBody),
        (status = 409, description = "A team with this name already exists", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create_team(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Operator)?;
    let name = body.parse::<NewTeamBody>()?.name;
    check_text("name", &name)?;
    let keyed_call = auth.keyed_call("teams", "", name.as_bytes());
    let scopes =
        vec![ApiKeyScope::Send, ApiKeyScope::Read, ApiKeyScope::Reply, ApiKeyScope::Secrets, ApiKeyScope::Admin];
    let created = app
        .engine
        .access
        .create_team(&auth.caller, &name, ApiKeyDetails::unrestricted("first key", scopes), keyed_call)
        .await?;
    let body = CreatedTeamBody { id: created.value.team.to_string(), name, api_key: created.value.secret };
    Ok(pagination::created_response(created.is_new, Json(body)))
}

/// List teams.
#[utoipa::path(get, path = "/v1/teams", operation_id = "list_teams", tag = "access", responses((status = 200, description = "The teams", body = TeamPage)))]
pub(crate) async fn list_teams(State(app): State<App>, auth: AuthedRequest) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Operator)?;
    let teams = app.engine.access.teams().await?;
    Ok(Json(TeamPage { data: teams.iter().map(TeamBody::from).collect(), next_cursor: None }).into_response())
}

/// Settings of a team to change.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TeamPatchBody {
    /// Whether sends must have an idempotency key or an intent.
    require_keys: bool,
}

/// Change a team.
#[utoipa::path(patch, path = "/v1/teams/{id}", operation_id = "update_team", tag = "access", params(("id" = String, Path)), request_body = TeamPatchBody,
    responses((status = 200, description = "The team", body = TeamBody)))]
pub(crate) async fn change_team(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Operator)?;
    let id = id.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no team {id}")))?;
    let require_keys = body.parse::<TeamPatchBody>()?.require_keys;
    let team = app.engine.access.set_require_keys(id, require_keys).await?;
    Ok(Json(TeamBody::from(&team)).into_response())
}
