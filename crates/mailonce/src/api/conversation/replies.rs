//! Answering messages and passing them on.

use axum::extract::State;
use mailonce_core::{access::team::ApiKeyScope, id::MessageId, problem::Problem};
use mailonce_engine::conversation::reply::{ForwardRequest, ReplyRequest};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api::{
    ApiResult, App, PathParam,
    door::{AuthedRequest, RawBody},
    inbox::{inboxes::invalid_field, messages::message_id},
    outbound::emails::{PreferredWait, respond_when_settled},
    wire::{OneOrMany, SendReceiptBody},
};

/// Messages that one call may name as seen.
pub(crate) const MAX_SEEN: usize = 100;

/// An answer to a message.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplyBody {
    /// Plain text. This or `html`, or both.
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    html: Option<String>,
    /// Whether everybody who got the message gets the answer; our own addresses never do.
    #[serde(default)]
    reply_all: bool,
    /// 0 is the answer, higher numbers are wanted follow-ups; each is sent once.
    #[serde(default)]
    follow_up: u32,
    /// Ids of newer messages in the thread that you have read.
    #[serde(default)]
    seen: Vec<String>,
    /// The token of the lease that you hold.
    #[serde(default)]
    lease: Option<String>,
    /// Whether the message follows below your words.
    #[serde(default)]
    quote: bool,
    /// The one-use token of a held look-alike: that answer goes, and never another.
    #[serde(default)]
    distinct_token: Option<String>,
}

impl ReplyBody {
    fn parse_seen(&self) -> Result<Vec<MessageId>, Problem> {
        if self.seen.len() > MAX_SEEN {
            return Err(invalid_field("seen", format!("holds more than {MAX_SEEN} ids")));
        }
        let id = |text: &String| text.parse().map_err(|_not_an_id| invalid_field("seen", "holds ids of messages"));
        self.seen.iter().map(id).collect()
    }
}

/// Answer a message, once.
///
/// A second answer to the same message is a duplicate, whatever its text: it is answered `200` with the first.
#[utoipa::path(post, path = "/v1/messages/{id}/reply", operation_id = "reply_to_message", tag = "conversations", request_body = ReplyBody,
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry"),
        ("Mailonce-Call-Id" = Option<String>, Header, description = "What you call this call, percent-encoded; kept for correlation"),
        ("Prefer" = Option<String>, Header, description = "`wait=10`: answer with the settled state")),
    responses((status = 202, description = "Accepted, perhaps held", body = SendReceiptBody), (status = 200, description = "Answered before", body = SendReceiptBody),
        (status = 409, description = "Another agent has the thread, or a newer message is in it", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn reply(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    PreferredWait(wait): PreferredWait,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Reply)?;
    let (id, patience) = (message_id(&id)?, wait?);
    let body: ReplyBody = body.parse()?;
    let request = ReplyRequest {
        seen: body.parse_seen()?,
        text: body.text,
        html: body.html,
        reply_all: body.reply_all,
        follow_up: body.follow_up,
        lease: body.lease,
        quote: body.quote,
        key: door.key.clone(),
        distinct_token: body.distinct_token,
    };
    let answer = app.engine.conversations.reply(&door.caller, id, request).await?;
    respond_when_settled(&app, &door.caller, answer, patience).await
}

/// A message to be passed on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForwardBody {
    to: OneOrMany,
    #[serde(default)]
    cc: OneOrMany,
    /// Words before it.
    #[serde(default)]
    text: Option<String>,
    /// The token of the lease that you hold.
    #[serde(default)]
    lease: Option<String>,
    /// The one-use token of a held look-alike: that email goes, and never another.
    #[serde(default)]
    distinct_token: Option<String>,
}

/// Pass a message on with its attachments, once to the same people.
#[utoipa::path(post, path = "/v1/messages/{id}/forward", operation_id = "forward_message", tag = "conversations", request_body = ForwardBody,
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 202, description = "Accepted, perhaps held", body = SendReceiptBody), (status = 200, description = "Passed on before", body = SendReceiptBody),
        (status = 409, description = "Another agent has the thread", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn forward(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Reply)?;
    let id = message_id(&id)?;
    let ForwardBody { to, cc, text, lease, distinct_token } = body.parse()?;
    let request = ForwardRequest { to: to.0, cc: cc.0, text, lease, key: door.key.clone(), distinct_token };
    let answer = app.engine.conversations.forward(&door.caller, id, request).await?;
    respond_when_settled(&app, &door.caller, answer, None).await
}
