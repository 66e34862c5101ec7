//! Long polling: waits for a message in an inbox.

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use mailonce_core::{access::team::ApiKeyScope, limits, problem::Problem};
use mailonce_engine::inbox::wait::WaitFilter;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

use super::{
    artifacts::check_purpose,
    inboxes::{artifact_kind, find_inbox, parse_inbox_cursor},
    message_body::MessageBody,
    watches::watch_id,
};
use crate::http::{
    app::{ApiResult, App},
    extract::AuthedRequest,
    params::{PathParam, QueryParams},
};

/// Default of `timeout`, in seconds.
const DEFAULT_WAIT_S: u64 = 30;

/// What to wait for, and how long.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitQuery {
    /// How long to wait in seconds, at most 60; 30 by default.
    timeout: Option<String>,
    /// Return the first match after this cursor. When absent, the latest match that is already there is returned.
    after: Option<String>,
    /// Only from this address or `@domain`.
    from: Option<String>,
    /// Only with this text in the subject.
    subject: Option<String>,
    /// Only with an artifact of this type: `code` or `link`.
    has: Option<String>,
    /// Id of a watch: only messages after its start.
    watch: Option<String>,
    /// The account, workflow or run that waits, as in `consume`: only new messages with something that nobody else took.
    ///
    /// New is what arrived since the `watch` began, or without one since two minutes before its first call. Ignored with
    /// `after`.
    #[serde(rename = "for")]
    #[param(rename = "for")]
    purpose: Option<String>,
}

impl WaitQuery {
    fn parse(self, app: &App) -> Result<(WaitFilter, Duration), Problem> {
        let seconds = match self.timeout.as_deref() {
            None => DEFAULT_WAIT_S,
            Some(text) => text
                .parse()
                .map_err(|_not_a_number| Problem::invalid_query("timeout", "timeout must be a number of seconds"))?,
        };
        self.purpose.as_deref().map(check_purpose).transpose()?;
        let after = self.after.as_deref().map(|text| parse_inbox_cursor(app, "after", text)).transpose()?;
        let filter = WaitFilter {
            after: after.map(|seq| app.engine.ctx.cursor(seq)),
            from: self.from,
            subject: self.subject,
            has: self.has.as_deref().map(|word| artifact_kind("has", word)).transpose()?,
            watch: self.watch.as_deref().map(watch_id).transpose()?,
            purpose: self.purpose,
        };
        Ok((filter, Duration::from_secs(seconds.min(limits::MAX_WAIT_MS as u64 / 1000))))
    }
}

/// The message that was waited for.
#[derive(Serialize, ToSchema)]
pub(crate) struct WaitResultBody {
    message: MessageBody,
    /// Pass it as `after` to wait for the next message.
    cursor: String,
}

/// Wait for a message (long polling).
///
/// Returns at once when a matching message is already there.
#[utoipa::path(get, path = "/v1/inboxes/{id}/wait", operation_id = "wait_for_message", tag = "inboxes", params(("id" = String, Path), WaitQuery),
    responses((status = 200, description = "The message", body = WaitResultBody), (status = 204, description = "No matching message arrived in time"),
        (status = 410, description = "The cursor is from before a restore or database failover", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn wait(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    query: QueryParams<WaitQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &auth, &id).await?;
    let (filter, timeout) = query.0.parse(&app)?;
    // Boxed: otherwise every connection would reserve the memory of this large future.
    let waited = Box::pin(app.engine.artifacts.wait_for_message(&auth.caller, inbox.id, filter, timeout)).await?;
    let Some(arrived) = waited else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let cursor = arrived.cursor.to_string();
    let message = MessageBody::of(&app, &arrived.message);
    Ok(Json(WaitResultBody { message, cursor }).into_response())
}
