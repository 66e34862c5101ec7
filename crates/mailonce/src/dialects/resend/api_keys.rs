//! The Resend routes for API keys.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    access::team::{ApiKey, ApiKeyDetails, ApiKeyScope},
    id::{ApiKeyId, DomainId},
    problem::{Code, Problem},
};
use serde::{Deserialize, Serialize};

use super::{
    DialectPath, DialectQuery, OnePathParam, PageParams, ResendRequest, ResendRequestBody, ResendResult,
    deleted_response, json, list_response, object_response, parse_id,
};
use crate::{
    dialects::{field_problem, resend::errors::missing_field},
    http::{app::App, json::check_text},
};

#[derive(Deserialize)]
struct NewApiKeyBody {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    permission: Option<String>,
    #[serde(default)]
    domain_id: Option<String>,
}

#[derive(Serialize)]
struct ResendApiKeyCreatedBody {
    id: String,
    token: String,
}

/// `POST /api-keys`.
pub(super) async fn create(State(app): State<App>, auth: ResendRequest, body: ResendRequestBody) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let keyed_call = auth.keyed_call("api-keys", "", &body.canonical()?);
    let NewApiKeyBody { name, permission, domain_id } = body.parse()?;
    let name = name.ok_or_else(|| missing_field("name"))?;
    check_text("name", &name)?;
    let scopes = match permission.as_deref() {
        None | Some("full_access") => {
            vec![ApiKeyScope::Send, ApiKeyScope::Read, ApiKeyScope::Reply, ApiKeyScope::Secrets, ApiKeyScope::Admin]
        }
        Some("sending_access") => vec![ApiKeyScope::Send],
        Some(_) => {
            return Err(
                field_problem("permission", "The `permission` must be `full_access` or `sending_access`.").into()
            );
        }
    };
    let mut details = ApiKeyDetails::unrestricted(&name, scopes);
    if let Some(domain) = domain_id {
        let domain: DomainId = parse_id(&domain)?;
        details.senders = vec![format!(
            "@{}",
            app.engine.access.domains.domain(&auth.caller, domain).await.map_err(domain_not_found)?.name
        )];
    }
    let created = app.engine.access.create_api_key(&auth.caller, details, keyed_call).await?;
    Ok(json(
        StatusCode::CREATED,
        &ResendApiKeyCreatedBody { id: created.value.id.to_string(), token: created.value.secret },
    ))
}

fn domain_not_found(problem: Problem) -> Problem {
    if problem.code == Code::NotFound { Problem::new(Code::NotFound, "Domain not found") } else { problem }
}

#[derive(Serialize)]
struct ApiKeyBody {
    id: String,
    name: String,
    created_at: String,
    last_used_at: Option<String>,
}

impl From<&ApiKey> for ApiKeyBody {
    fn from(key: &ApiKey) -> Self {
        Self {
            id: key.id.to_string(),
            name: key.details.name.clone(),
            created_at: key.created_at.to_string(),
            last_used_at: key.last_used_at.map(|at| at.to_string()),
        }
    }
}

/// `GET /api-keys`: the active keys.
pub(super) async fn list(
    State(app): State<App>,
    auth: ResendRequest,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let page = query.parse()?;
    let mut all = app.engine.access.api_keys(&auth.caller).await?;
    all.retain(|key| key.is_active(app.engine.ctx.now()));
    Ok(list_response(page.slice_newest_first(all, |key| key.id.0), |key| ApiKeyBody::from(&key)))
}

fn reword_not_found(problem: Problem) -> Problem {
    if problem.code == Code::NotFound { Problem::new(Code::NotFound, "API key not found") } else { problem }
}

#[derive(Deserialize)]
struct ApiKeyPatchBody {
    #[serde(default)]
    name: Option<String>,
}

/// `PATCH /api-keys/{id}`. Only the name can change.
pub(super) async fn rename(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(id, ..): OnePathParam,
    body: ResendRequestBody,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let id: ApiKeyId = parse_id(&id)?;
    let name = body.parse::<ApiKeyPatchBody>()?.name.ok_or_else(|| missing_field("name"))?;
    check_text("name", &name)?;
    let key = app.engine.access.rename_api_key(&auth.caller, id, &name).await.map_err(reword_not_found)?;
    Ok(object_response("api_key", key.id))
}

/// `DELETE /api-keys/{id}`.
pub(super) async fn remove(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let key: ApiKeyId = parse_id(&name)?;
    let removed = app.engine.access.revoke_api_key(&auth.caller, key).await.map_err(reword_not_found)?;
    Ok(deleted_response("api_key", removed.id))
}
