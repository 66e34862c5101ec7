//! Deliveries: each arrival of mail for a recipient, with what became of it.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::{DeliveryId, InboxId, MessageId, SourceId},
    inbound::delivery::{Delivery, DeliveryQuery, DeliveryState, DeliverySuppression},
    limits,
    problem::{Code, Problem},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{inbox::inboxes::find_inbox, outbound::emails::page_limit},
    http::{
        app::{ApiResult, App},
        extract::AuthedRequest,
        params::{PathParam, QueryParams},
    },
};

/// A delivery: one arrival of mail for a recipient.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeliveryBody {
    /// Id of the delivery.
    id: String,
    /// Revision; grows with every change.
    rev: u32,
    /// `waiting done duplicate refused dead`.
    state: &'static str,
    /// `smtp hook poll local simulated`.
    intake: &'static str,
    /// Id of the inbox; null if no inbox has the address.
    inbox_id: Option<String>,
    /// Id of the source that delivered it, if one did.
    source_id: Option<String>,
    /// Envelope recipient.
    recipient: String,
    /// Envelope sender; empty for a bounce, null when it is not known.
    sender: Option<String>,
    /// IP address of the client.
    ip: Option<String>,
    /// Size in bytes.
    size: u64,
    /// When it arrived.
    received_at: String,
    /// How often processing was tried.
    attempt_count: u32,
    /// Why the delivery created no message; null if it did.
    reason: Option<&'static str>,
    /// Id of the earlier delivery that this one duplicates.
    duplicate_of: Option<String>,
    /// Id of the message that it created.
    message_id: Option<String>,
    /// Error of the last attempt to process the delivery.
    last_error: Option<String>,
}

impl From<&Delivery> for DeliveryBody {
    fn from(delivery: &Delivery) -> Self {
        let details = &delivery.details;
        Self {
            id: delivery.id.to_string(),
            rev: delivery.rev,
            state: delivery.state.as_str(),
            intake: details.intake.as_str(),
            inbox_id: delivery.target.inbox().map(|id| id.to_string()),
            source_id: details.source.map(|id| id.to_string()),
            recipient: details.recipient.clone(),
            sender: details.sender.clone(),
            ip: details.ip.map(|ip| ip.to_string()),
            size: details.size,
            received_at: delivery.received_at.to_string(),
            attempt_count: delivery.attempts,
            reason: delivery.suppressed.map(DeliverySuppression::as_str),
            duplicate_of: delivery.duplicate_of.map(|id| id.to_string()),
            message_id: delivery.message.map(|id| id.to_string()),
            last_error: delivery.last_error.clone(),
        }
    }
}

/// A page of deliveries, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeliveryPage {
    data: Vec<DeliveryBody>,
    next_cursor: Option<String>,
}

/// Filters for the list of deliveries.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveriesQuery {
    /// Page size, 1 to 100; 20 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Only to this inbox, by id or address. Needs the scope `admin` when absent.
    inbox: Option<String>,
    /// Only from the source with this id.
    source: Option<String>,
    /// Only in this state: `waiting done duplicate refused dead`.
    state: Option<String>,
    /// Only for the message with this id.
    message: Option<String>,
}

impl DeliveriesQuery {
    fn parse(&self, inbox: Option<InboxId>) -> Result<DeliveryQuery, Problem> {
        let id = |field: &str, text: &Option<String>| {
            let invalid = |_not_an_id| Problem::invalid_query(field, format!("{field} must be an id"));
            text.as_deref().map(|text| text.parse::<uuid::Uuid>().map_err(invalid)).transpose()
        };
        let state = |word: &str| {
            DeliveryState::parse(word).ok_or_else(|| {
                Problem::invalid_query("state", "state must be waiting, done, duplicate, refused or dead")
            })
        };
        Ok(DeliveryQuery {
            inbox,
            source: id("source", &self.source)?.map(SourceId),
            state: self.state.as_deref().map(state).transpose()?,
            message: id("message", &self.message)?.map(MessageId),
            before: id("cursor", &self.cursor)?.map(DeliveryId),
            limit: page_limit(self.limit.as_deref(), limits::PAGE_ROWS, 20)?,
        })
    }
}

/// List deliveries, newest first.
///
/// The list includes duplicate and refused deliveries, with the reason.
#[utoipa::path(get, path = "/v1/deliveries", operation_id = "list_deliveries", tag = "messages", params(DeliveriesQuery),
    responses((status = 200, description = "A page of results", body = DeliveryPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    auth: AuthedRequest,
    query: QueryParams<DeliveriesQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = match &query.0.inbox {
        Some(text) => Some(find_inbox(&app, &auth, text).await?.id),
        None => None,
    };
    let query = query.0.parse(inbox)?;
    let limit = query.limit;
    let rows = app.engine.inboxes.deliveries(&auth.caller, query).await?;
    let next_cursor = rows.last().filter(|_| rows.len() == limit).map(|last| last.id.to_string());
    Ok(Json(DeliveryPage { data: rows.iter().map(DeliveryBody::from).collect(), next_cursor }).into_response())
}

fn delivery_id(text: &str) -> Result<DeliveryId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no delivery {text}")))
}

/// Read one delivery.
#[utoipa::path(get, path = "/v1/deliveries/{id}", operation_id = "read_delivery", tag = "messages", params(("id" = String, Path)),
    responses((status = 200, description = "The delivery", body = DeliveryBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let delivery = app.engine.inboxes.delivery(&auth.caller, delivery_id(&id)?).await?;
    Ok(Json(DeliveryBody::from(&delivery)).into_response())
}

/// Replay a dead delivery: process it again.
#[utoipa::path(post, path = "/v1/deliveries/{id}/replay", operation_id = "replay_delivery", tag = "messages", params(("id" = String, Path)),
    responses((status = 200, description = "The updated delivery", body = DeliveryBody),
        (status = 409, description = "The delivery is not dead", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn replay(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let delivery = app.engine.inboxes.replay_delivery(&auth.caller, delivery_id(&id)?).await?;
    Ok(Json(DeliveryBody::from(&delivery)).into_response())
}
