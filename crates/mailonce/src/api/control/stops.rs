//! Stops: switches that keep email from leaving.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    control::stop::{Stop, StopMode, StopScope},
    id::StopId,
    problem::{Code, Problem},
};
use mailonce_engine::control::stops::NewStop;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{inbox::inboxes::find_inbox, pagination::created_response},
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::object,
        params::{PathParam, QueryParams},
    },
};

/// The emails that a stop covers. Set exactly one field.
#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopScopeBody {
    /// `true`: every email of every team. Needs the scope `operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    installation: Option<bool>,
    /// Every email that this transport hands on, by name. Needs the scope `operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transport: Option<String>,
    /// `true`: every email of the team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    team: Option<bool>,
    /// Emails from this inbox, by id or address. A catch-all covers every address of its domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inbox: Option<String>,
    /// Emails that were sent with this API key, by id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    api_key: Option<String>,
}

impl From<&StopScope> for StopScopeBody {
    fn from(scope: &StopScope) -> Self {
        let none = Self::default();
        match scope {
            StopScope::Installation => Self { installation: Some(true), ..none },
            StopScope::Transport(name) => Self { transport: Some(name.clone()), ..none },
            StopScope::Team(_) => Self { team: Some(true), ..none },
            StopScope::Inbox { id, .. } => Self { inbox: Some(id.to_string()), ..none },
            StopScope::ApiKey { id, .. } => Self { api_key: Some(id.to_string()), ..none },
        }
    }
}

/// A stop to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewStopBody {
    #[serde(deserialize_with = "object")]
    scope: StopScopeBody,
    /// What happens to new sends: `wait` (default) accepts and queues them, `refuse` answers `409 stopped`.
    #[serde(default)]
    mode: Option<String>,
    /// Why, for the people who see it; up to 1,000 characters.
    #[serde(default)]
    reason: Option<String>,
}

/// A stop.
#[derive(Serialize, ToSchema)]
pub(crate) struct StopBody {
    id: String,
    scope: StopScopeBody,
    mode: &'static str,
    reason: Option<String>,
    /// Name of the API key that created it, or of the command.
    by: String,
    created_at: String,
    /// `in_force`, or `releasing` while its email returns to the queue after it ended.
    state: &'static str,
    /// In lists: how many handoffs are due and wait for it, up to 100,000. Keys without the scope `operator` see only
    /// those of their team counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<u64>,
}

impl From<&Stop> for StopBody {
    fn from(stop: &Stop) -> Self {
        Self {
            id: stop.id.to_string(),
            scope: StopScopeBody::from(&stop.scope),
            mode: stop.mode.as_str(),
            reason: stop.reason.clone(),
            by: stop.by.name.clone(),
            created_at: stop.created_at.to_string(),
            state: if stop.is_in_force() { "in_force" } else { "releasing" },
            waiting: None,
        }
    }
}

/// The stops that affect the team, oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct StopList {
    data: Vec<StopBody>,
}

/// How fast stopped email is released.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseQuery {
    /// The most handoffs per second, 1 to 10,000. Without it everything is released at once.
    rate_per_s: Option<String>,
}

async fn parse_scope(app: &App, auth: &AuthedRequest, body: StopScopeBody) -> Result<StopScope, Problem> {
    let team = auth.caller.team.id;
    match (body.installation, body.transport, body.team, body.inbox, body.api_key) {
        (Some(true), None, None, None, None) => Ok(StopScope::Installation),
        (None, Some(name), None, None, None) => Ok(StopScope::Transport(name)),
        (None, None, Some(true), None, None) => Ok(StopScope::Team(team)),
        (None, None, None, Some(inbox), None) => {
            let inbox = find_inbox(app, auth, &inbox).await?;
            Ok(StopScope::Inbox { team, id: inbox.id, addresses: inbox.lookup_addresses() })
        }
        (None, None, None, None, Some(key)) => {
            let id = key
                .parse()
                .map_err(|_not_an_id| Problem::invalid_field("scope.api_key", "must be the id of an API key"))?;
            Ok(StopScope::ApiKey { team, id })
        }
        _ => Err(Problem::invalid_field(
            "scope",
            "must be one of {\"team\": true}, {\"inbox\": ID}, {\"api_key\": ID}, {\"transport\": NAME} and \
             {\"installation\": true}",
        )),
    }
}

/// Stop email.
///
/// When this call is answered, no further email of the scope leaves, on any node; an attempt that had begun is still
/// recorded. Email in the scope keeps its state and waits. Stopping the same scope again answers `200` with the stop
/// that exists; with another `mode` the new stop replaces it.
#[utoipa::path(post, path = "/v1/stops", operation_id = "create_stop", tag = "stops", request_body = NewStopBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 201, description = "Stopped", body = StopBody),
        (status = 200, description = "The scope was stopped before", body = StopBody)))]
pub(crate) async fn create(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    let NewStopBody { scope, mode, reason } = body.parse()?;
    let keyed_call = auth.keyed_call("stops", "", &body.canonical()?);
    let mode = match mode.as_deref() {
        None => StopMode::Wait,
        Some(word) => StopMode::parse(word).ok_or_else(|| Problem::invalid_field("mode", "must be wait or refuse"))?,
    };
    let scope = parse_scope(&app, &auth, scope).await?;
    let stop = app.engine.control.stops.create_stop(&auth.caller, NewStop { scope, mode, reason }, keyed_call).await?;
    Ok(created_response(stop.is_new, Json(StopBody::from(&stop.value))))
}

/// List the stops that affect the team.
///
/// Those of the installation and of transports are included.
#[utoipa::path(get, path = "/v1/stops", operation_id = "list_stops", tag = "stops",
    responses((status = 200, description = "The stops, oldest first", body = StopList)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest) -> ApiResult {
    let stops = app.engine.control.stops.list(&auth.caller).await?;
    let waiting = app.engine.control.stops.waiting(&auth.caller, &stops).await?;
    let body = |(stop, waiting): (&Stop, u64)| StopBody { waiting: Some(waiting), ..StopBody::from(stop) };
    Ok(Json(StopList { data: stops.iter().zip(waiting).map(body).collect() }).into_response())
}

/// End a stop.
///
/// Its email is released in the order in which it was due.
#[utoipa::path(delete, path = "/v1/stops/{id}", operation_id = "end_stop", tag = "stops",
    params(("id" = String, Path), ReleaseQuery),
    responses((status = 200, description = "Ended", body = StopBody)))]
pub(crate) async fn end(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    query: QueryParams<ReleaseQuery>,
) -> ApiResult {
    let id: StopId = id.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no stop {id}")))?;
    let rate = query.0.rate_per_s.as_deref().map(|text| {
        text.parse().map_err(|_not_a_number| {
            Problem::invalid_query("rate_per_s", "rate_per_s must be a number from 1 to 10,000")
        })
    });
    let stop = app.engine.control.stops.end_stop(&auth.caller, id, rate.transpose()?).await?;
    Ok(Json(StopBody::from(&stop)).into_response())
}
