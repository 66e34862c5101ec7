//! Replying to messages and forwarding them.

use axum::extract::State;
use mailonce_core::{access::team::ApiKeyScope, id::MessageId, problem::Problem};
use mailonce_engine::conversation::reply::{ForwardRequest, ReplyRequest};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    api::{
        inbox::message_body::message_id,
        outbound::{
            email_bodies::{SendReceiptBody, TemplateUseBody},
            emails::{SendPreferences, respond_when_settled},
        },
    },
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::{OneOrMany, StrictObject},
        params::PathParam,
    },
};

/// Maximum number of ids in `seen`.
pub(crate) const MAX_SEEN: usize = 100;

/// A reply to a message.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplyBody {
    /// Plain text body. Required unless `html` or `template` is set.
    #[serde(default)]
    text: Option<String>,
    /// HTML body.
    #[serde(default)]
    html: Option<String>,
    /// The template that writes the reply, in the place of `text` and `html`. The subject stays that of the thread.
    #[serde(default)]
    #[schema(value_type = Option<TemplateUseBody>)]
    template: Option<StrictObject<TemplateUseBody>>,
    /// Whether to reply to all recipients of the message. The team's own inboxes are always left out.
    #[serde(default)]
    reply_all: bool,
    /// 0 (default) is the reply; 1, 2 and so on are intended follow-ups. Each number is sent once.
    #[serde(default)]
    follow_up: u32,
    /// Ids of newer messages in the thread that you have read; at most 100.
    #[serde(default)]
    seen: Vec<String>,
    /// Token of the lease that you hold on the thread.
    #[serde(default)]
    lease: Option<String>,
    /// Whether to quote the message below the reply.
    #[serde(default)]
    quote: bool,
    /// One-time token of a held reply that looks like an earlier email: releases the held reply.
    #[serde(default)]
    distinct_token: Option<String>,
}

impl ReplyBody {
    fn parse_seen(&self) -> Result<Vec<MessageId>, Problem> {
        if self.seen.len() > MAX_SEEN {
            return Err(Problem::invalid_field("seen", format!("must have at most {MAX_SEEN} ids")));
        }
        let id = |text: &String| {
            text.parse().map_err(|_not_an_id| Problem::invalid_field("seen", "must be a list of message ids"))
        };
        self.seen.iter().map(id).collect()
    }
}

/// Reply to a message, once.
///
/// A second reply to the same message is a duplicate, whatever its text: the response is `200` with the first reply.
#[utoipa::path(post, path = "/v1/messages/{id}/reply", operation_id = "reply_to_message", tag = "conversations", request_body = ReplyBody,
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call"),
        ("Mailonce-Call-Id" = Option<String>, Header, description = "Your own id of this call, percent-encoded; stored for correlation"),
        ("Prefer" = Option<String>, Header, description = "`wait=10`: wait up to 10 seconds for the final state before responding (at most 60). `policy-trace`: show in `policy` what each check decided")),
    responses((status = 202, description = "Accepted; a guard may hold it", body = SendReceiptBody), (status = 200, description = "Replayed: the message was answered before", body = SendReceiptBody),
        (status = 409, description = "Another agent holds the thread, or the thread has a newer message", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn reply(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    prefer: SendPreferences,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let (id, max_wait) = (message_id(&id)?, prefer.wait()?);
    let body: ReplyBody = body.parse()?;
    if body.quote && body.template.is_some() {
        let detail = "cannot be combined with template: leave it out, or send text and html";
        return Err(Problem::invalid_field("quote", detail).into());
    }
    let request = ReplyRequest {
        seen: body.parse_seen()?,
        text: body.text,
        html: body.html,
        template: body.template.map(|StrictObject(template)| template.into()),
        reply_all: body.reply_all,
        follow_up: body.follow_up,
        lease: body.lease,
        quote: body.quote,
        key: auth.key.clone(),
        distinct_token: body.distinct_token,
        wants_policy: prefer.wants_policy,
    };
    let receipt = app.engine.conversations.reply(&auth.caller, id, request).await?;
    respond_when_settled(&app, &auth.caller, receipt, max_wait, prefer.wants_policy).await
}

/// Recipients and text of a forwarded message.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForwardBody {
    to: OneOrMany,
    #[serde(default)]
    cc: OneOrMany,
    /// Text above the forwarded message.
    #[serde(default)]
    text: Option<String>,
    /// Token of the lease that you hold on the thread.
    #[serde(default)]
    lease: Option<String>,
    /// One-time token of a held email that looks like an earlier one: releases the held email.
    #[serde(default)]
    distinct_token: Option<String>,
}

/// Forward a message with its attachments.
///
/// A message is forwarded once to the same recipients; a repeated call returns the first email.
#[utoipa::path(post, path = "/v1/messages/{id}/forward", operation_id = "forward_message", tag = "conversations", request_body = ForwardBody,
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 202, description = "Accepted; a guard may hold it", body = SendReceiptBody), (status = 200, description = "Replayed: the message was forwarded to these recipients before", body = SendReceiptBody),
        (status = 409, description = "Another agent holds the thread", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn forward(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let id = message_id(&id)?;
    let ForwardBody { to, cc, text, lease, distinct_token } = body.parse()?;
    let request = ForwardRequest { to: to.0, cc: cc.0, text, lease, key: auth.key.clone(), distinct_token };
    let receipt = app.engine.conversations.forward(&auth.caller, id, request).await?;
    respond_when_settled(&app, &auth.caller, receipt, None, false).await
}
