//! API keys in Resend's words.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    id::{ApiKeyId, DomainId},
    problem::{Code, Problem},
    team::{ApiKey, Scope},
};
use serde::{Deserialize, Serialize};

use super::{
    Answer, Body, Guest, Named, One, Page, Queried, gone, id, json, list as listed,
    refuse::{missing, unfit},
};
use crate::{
    api::{App, wire::words},
    serve::about,
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
struct MadeBody {
    id: String,
    token: String,
}

/// `POST /api-keys`.
pub(super) async fn create(State(app): State<App>, guest: Guest, body: Body) -> Answer {
    guest.caller.need(Scope::Admin)?;
    let asked = guest.asked("api-keys", "", &body.canonical()?);
    let NewApiKeyBody { name, permission, domain_id } = body.parse()?;
    let name = name.ok_or_else(|| missing("name"))?;
    words("name", &name)?;
    let scopes = match permission.as_deref() {
        None | Some("full_access") => vec![Scope::Send, Scope::Read, Scope::Reply, Scope::Secrets, Scope::Admin],
        Some("sending_access") => vec![Scope::Send],
        Some(_) => {
            return Err(unfit("permission", "The `permission` must be `full_access` or `sending_access`.").into());
        }
    };
    let mut about = about(&name, scopes);
    if let Some(domain) = domain_id {
        let domain: DomainId = id(&domain)?;
        about.senders = vec![format!("@{}", app.engine.domain(&guest.caller, domain).await.map_err(no_domain)?.name)];
    }
    let made = app.engine.create_api_key(&guest.caller, about, asked).await?;
    Ok(json(StatusCode::CREATED, &MadeBody { id: made.thing.id.to_string(), token: made.thing.secret }))
}

fn no_domain(problem: Problem) -> Problem {
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
            name: key.about.name.clone(),
            created_at: key.created_at.to_string(),
            last_used_at: key.last_used_at.map(|at| at.to_string()),
        }
    }
}

/// `GET /api-keys`: those that still open something.
pub(super) async fn list(State(app): State<App>, guest: Guest, Queried(query, ..): Page) -> Answer {
    guest.caller.need(Scope::Admin)?;
    let wish = query.read()?;
    let mut all = app.engine.api_keys(&guest.caller).await?;
    all.retain(|key| key.is_live(app.engine.now()));
    Ok(listed(wish.of(all, |key| key.id.0), |key| ApiKeyBody::from(&key)))
}

/// `DELETE /api-keys/{id}`.
pub(super) async fn remove(State(app): State<App>, guest: Guest, Named(name, ..): One) -> Answer {
    guest.caller.need(Scope::Admin)?;
    let key: ApiKeyId = id(&name)?;
    let in_words = |problem: Problem| match problem.code {
        Code::NotFound => Problem::new(Code::NotFound, "API key not found"),
        _ => problem,
    };
    let removed = app.engine.revoke_api_key(&guest.caller, key).await.map_err(in_words)?;
    Ok(gone("api_key", removed.id))
}
