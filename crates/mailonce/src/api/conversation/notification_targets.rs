//! Notification targets: where questions for people are posted.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::approval_link::TargetKind,
    problem::{Code, Problem},
};
use mailonce_engine::conversation::notification_targets::{NewTarget, TargetView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    api::pagination::{PageQuery, created_response},
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::check_required_text,
        params::{PathParam, QueryParams},
    },
};

/// A notification target to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewNotificationTargetBody {
    /// Name, unique in the team. The audit log names it when its link decides.
    name: String,
    /// `slack` for incoming webhooks of Slack, `webhook` for any other HTTPS endpoint.
    kind: String,
    /// Where to post. It is never shown again.
    url: String,
}

/// A notification target, without its URL.
#[derive(Serialize, ToSchema)]
pub(crate) struct NotificationTargetBody {
    id: String,
    name: String,
    kind: &'static str,
    created_at: String,
}

impl From<TargetView> for NotificationTargetBody {
    fn from(target: TargetView) -> Self {
        Self {
            id: target.id.to_string(),
            name: target.name,
            kind: target.kind.as_str(),
            created_at: target.created_at.to_string(),
        }
    }
}

/// A new notification target. The secret is shown only once.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedNotificationTargetBody {
    #[serde(flatten)]
    target: NotificationTargetBody,
    /// Signs the requests as Standard Webhooks describes.
    secret: String,
}

/// A page of notification targets, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct NotificationTargetPage {
    data: Vec<NotificationTargetBody>,
    next_cursor: Option<String>,
}

/// The response of a notification target to a test.
#[derive(Serialize, ToSchema)]
pub(crate) struct NotificationTargetTestBody {
    /// Whether the target accepted the message.
    ok: bool,
    /// HTTP status of the response; null without one.
    status: Option<u16>,
    /// Why there was no response.
    error: Option<String>,
}

fn target_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no notification target {text}")))
}

/// Create a notification target.
///
/// New questions for people are posted there, each with a link by which whoever opens it decides. Post only to places that
/// nobody but such people can read.
#[utoipa::path(post, path = "/v1/notification-targets", operation_id = "create_notification_target", tag = "people", request_body = NewNotificationTargetBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 201, description = "Created; the secret is shown only once", body = CreatedNotificationTargetBody),
        (status = 200, description = "Created before with this idempotency key", body = CreatedNotificationTargetBody),
        (status = 409, description = "The name is taken", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let keyed_call = auth.keyed_call("notification-targets", "", &body.canonical()?);
    let NewNotificationTargetBody { name, kind, url } = body.parse()?;
    check_required_text("name", &name)?;
    let kind = TargetKind::parse(&kind).ok_or_else(|| Problem::invalid_field("kind", "must be slack or webhook"))?;
    let created =
        app.engine.notifications.create_notification_target(&auth.caller, (name, kind, url), keyed_call).await?;
    let NewTarget { target, secret } = created.value;
    Ok(created_response(created.is_new, Json(CreatedNotificationTargetBody { target: target.into(), secret })))
}

/// List the notification targets, newest first.
#[utoipa::path(get, path = "/v1/notification-targets", operation_id = "list_notification_targets", tag = "people", params(PageQuery),
    responses((status = 200, description = "A page of results", body = NotificationTargetPage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.notifications.notification_targets(&auth.caller, before, limit).await?;
    let data = page.rows.into_iter().map(NotificationTargetBody::from).collect();
    Ok(Json(NotificationTargetPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Remove a notification target.
///
/// Links that were posted there no longer work.
#[utoipa::path(delete, path = "/v1/notification-targets/{id}", operation_id = "remove_notification_target", tag = "people", params(("id" = String, Path)),
    responses((status = 200, description = "The removed target", body = NotificationTargetBody)))]
pub(crate) async fn remove(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let target = app.engine.notifications.remove_notification_target(&auth.caller, target_id(&id)?).await?;
    Ok(Json(NotificationTargetBody::from(target)).into_response())
}

/// Post a test message to a notification target.
#[utoipa::path(post, path = "/v1/notification-targets/{id}/test", operation_id = "test_notification_target", tag = "people", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 200, description = "What the target answered", body = NotificationTargetTestBody)))]
pub(crate) async fn test(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let id = target_id(&id)?;
    let keyed_call = auth.keyed_call("notification-targets/test", &id.to_string(), b"");
    let answer = app.engine.notifications.test_notification_target(&auth.caller, id, keyed_call).await?;
    let body = match answer {
        Ok(status) => {
            NotificationTargetTestBody { ok: (200..300).contains(&status), status: Some(status), error: None }
        }
        Err(why) => NotificationTargetTestBody { ok: false, status: None, error: Some(why) },
    };
    Ok(Json(body).into_response())
}
