//! `reply_email`: an answer is named by the message it answers, so it needs no other name.

use mailonce_core::{access::team::ApiKeyScope, id::MessageId, problem::Problem};
use mailonce_engine::{conversation::reply::ReplyRequest, outbound::send_receipt::SendReceipt};
use serde::Deserialize;
use serde_json::Value;

use super::{ToolContext, ToolReply, ToolResult, invalid_argument, parse_args, parse_id, send};
use crate::api::MAX_SEEN;
use crate::mcp::tools::message_view;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyToolArgs {
    message: String,
    text: String,
    #[serde(default)]
    html: Option<String>,
    #[serde(default)]
    reply_all: Option<bool>,
    #[serde(default)]
    follow_up: Option<u32>,
    #[serde(default)]
    seen: Option<Vec<String>>,
    #[serde(default)]
    lease: Option<String>,
    #[serde(default)]
    distinct_token: Option<String>,
}

pub(super) async fn reply_email(desk: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    desk.caller.require_scope(ApiKeyScope::Reply)?;
    let args: ReplyToolArgs = parse_args(arguments)?;
    let message: MessageId = parse_id("message", &args.message)?;
    let seen = args.seen.unwrap_or_default();
    if seen.len() > MAX_SEEN {
        return Err(invalid_argument("seen", format!("holds more than {MAX_SEEN} ids")));
    }
    let request = ReplyRequest {
        text: Some(args.text),
        html: args.html,
        reply_all: args.reply_all.unwrap_or_default(),
        follow_up: args.follow_up.unwrap_or_default(),
        seen: seen.iter().map(|text| parse_id("seen", text)).collect::<Result<_, Problem>>()?,
        lease: args.lease,
        quote: false,
        key: None,
        distinct_token: args.distinct_token,
    };
    let to_all = request.reply_all;
    match desk.app.engine.reply(desk.caller, message, request).await {
        Ok(sent) => Ok(send::send_reply(desk, &sent).await?.with("reply_goes_to", recipients(desk, &sent).await)),
        Err(problem) if is_recipient_problem(&problem) => Ok(unusable_recipient(desk, problem, to_all)),
        Err(problem) => Err(problem),
    }
}

/// Whom the answer is for: the message named them, and not the model.
async fn recipients(desk: &ToolContext<'_>, sent: &SendReceipt) -> Option<Vec<String>> {
    let email = desk.app.engine.email(desk.caller, sent.id).await.ok()?;
    Some(message_view::visible_addresses(desk, &email.head.to))
}

/// Whom an answer goes to, the message said and not the model.
fn is_recipient_problem(problem: &Problem) -> bool {
    let whom = ["to", "cc", "bcc", "message"];
    problem.field.as_deref().is_some_and(|field| whom.iter().any(|name| field.starts_with(name)))
}

/// The model cannot mend what a stranger wrote, and is shown it behind the fence alone.
fn unusable_recipient(desk: &ToolContext<'_>, mut problem: Problem, to_all: bool) -> ToolReply {
    problem.detail = desk.app.engine.fence_untrusted(&[problem.detail]);
    problem.extensions.remove("recipient");
    let next = if to_all {
        "Nothing was sent: somebody whom the message names cannot be written to. Reply without reply_all, or use \
         ask_human."
    } else {
        "Nothing was sent: whom the message asks to answer cannot be written to, and no wording changes that. Use \
         ask_human if it matters."
    };
    ToolReply::from(problem).with("next", next).into_success()
}
