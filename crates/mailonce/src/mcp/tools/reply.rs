//! `reply_email`: the message identifies its reply, so a reply needs no idempotency key.

use mailonce_core::{access::team::ApiKeyScope, id::MessageId, problem::Problem};
use mailonce_engine::{conversation::reply::ReplyRequest, outbound::send_receipt::SendReceipt};
use serde::Deserialize;
use serde_json::Value;

use super::{ToolContext, ToolReply, ToolResult, invalid_argument, parse_args, parse_id, send};
use crate::api::MAX_SEEN;
use crate::mcp::tools::{message_view, template_arg::TemplateArg};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyToolArgs {
    message: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    html: Option<String>,
    #[serde(default)]
    template: Option<TemplateArg>,
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

pub(super) async fn reply_email(ctx: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    ctx.caller.require_scope(ApiKeyScope::Reply)?;
    let args: ReplyToolArgs = parse_args(arguments)?;
    let message: MessageId = parse_id("message", &args.message)?;
    let seen = args.seen.unwrap_or_default();
    if seen.len() > MAX_SEEN {
        return Err(invalid_argument("seen", format!("must have at most {MAX_SEEN} ids")));
    }
    let template = args.template.map(TemplateArg::parse).transpose()?;
    if args.text.is_none() && template.is_none() {
        return Err(invalid_argument("text", "is required, unless `template` names stored wording"));
    }
    let request = ReplyRequest {
        text: args.text,
        html: args.html,
        template,
        reply_all: args.reply_all.unwrap_or_default(),
        follow_up: args.follow_up.unwrap_or_default(),
        seen: seen.iter().map(|text| parse_id("seen", text)).collect::<Result<_, Problem>>()?,
        lease: args.lease,
        quote: false,
        key: None,
        distinct_token: args.distinct_token,
        wants_policy: false,
    };
    let to_all = request.reply_all;
    match ctx.app.engine.conversations.reply(ctx.caller, message, request).await {
        Ok(sent) => Ok(send::send_reply(ctx, &sent).await?.with("reply_goes_to", recipients(ctx, &sent).await)),
        Err(problem) if is_recipient_problem(&problem) => Ok(unusable_recipient(ctx, problem, to_all)),
        Err(problem) => Err(problem),
    }
}

/// The recipients of the reply. The message determines them, not the model.
async fn recipients(ctx: &ToolContext<'_>, sent: &SendReceipt) -> Option<Vec<String>> {
    let email = ctx.app.engine.outbound.email(ctx.caller, sent.id).await.ok()?;
    Some(message_view::visible_addresses(ctx, &email.head.to))
}

/// Whether a problem is about the recipients, which the message determines and the model cannot change.
fn is_recipient_problem(problem: &Problem) -> bool {
    let fields = ["to", "cc", "bcc", "message"];
    problem.field.as_deref().is_some_and(|field| fields.iter().any(|name| field.starts_with(name)))
}

/// The result when the message asks for a reply to an unusable address. A stranger wrote the address, so it is fenced.
fn unusable_recipient(ctx: &ToolContext<'_>, mut problem: Problem, to_all: bool) -> ToolReply {
    problem.detail = ctx.app.engine.inboxes.fence_untrusted(&[problem.detail]);
    problem.extensions.remove("recipient");
    let next = if to_all {
        "Nothing was sent: one of the message's addresses cannot receive mail. Reply without reply_all, or use \
         ask_human."
    } else {
        "Nothing was sent: the reply address of the message cannot receive mail, and rewording does not change that. \
         Use ask_human if it matters."
    };
    ToolReply::from(problem).with("next", next).into_success()
}
