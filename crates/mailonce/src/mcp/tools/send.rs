//! `send_email` and `resend_email`.

use mailonce_core::{
    access::team::ApiKeyScope,
    id::EmailId,
    inbox::Inbox,
    outbound::{
        content::{EmailContent, RawContent},
        email::Guard,
    },
};
use mailonce_engine::{
    conversation::reply::sender_name,
    outbound::{email_commands::ResendRequest, keyed_send::SendRequest, send_receipt::SendReceipt},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ToolContext, ToolReply, ToolResult, approval_url, find_inbox_where, invalid_argument, outcome, parse_args,
    parse_id, parse_intent,
};
use crate::{
    api::outbound::email_bodies::BudgetRoomBody,
    http::json::check_text,
    mcp::tools::{
        template_arg::TemplateArg,
        tool_reply::{REJECTED_NEXT_STEP, send_status, status_next_step},
    },
};

/// Arguments of `send_email`. The intent is flat, because models fill in flat schemas most reliably.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendToolArgs {
    to: String,
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    html: Option<String>,
    #[serde(default)]
    template: Option<TemplateArg>,
    #[serde(rename = "type")]
    kind: String,
    entity: String,
    #[serde(default)]
    version: Option<u32>,
    #[serde(default)]
    period: Option<String>,
    #[serde(default)]
    inbox: Option<String>,
    #[serde(default)]
    distinct_token: Option<String>,
}

pub(super) async fn send_email(ctx: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    ctx.caller.require_scope(ApiKeyScope::Send)?;
    let args: SendToolArgs = parse_args(arguments)?;
    let template = args.template.map(TemplateArg::parse).transpose()?;
    for (field, value) in [("subject", &args.subject), ("text", &args.text)] {
        if value.is_none() && template.is_none() {
            return Err(invalid_argument(field, "is required, unless `template` names stored wording"));
        }
    }
    let intent = parse_intent(args.kind, args.entity, args.version, args.period)?;
    let may_send = |inbox: &Inbox| ctx.caller.key.may_send_from(&inbox.address);
    let inbox = match find_inbox_where(ctx, args.inbox.as_deref(), may_send).await {
        Ok(inbox) => inbox,
        // A retry of an accepted email must succeed, even if the inbox can no longer be determined.
        Err(problem) => return outcome::outcome_of_intent(ctx, &intent, &args.to).await?.ok_or(problem),
    };
    let content = EmailContent::validate(RawContent {
        from: inbox.address.clone(),
        to: vec![args.to],
        subject: args.subject.unwrap_or_default(),
        text: args.text,
        html: args.html,
        template,
        ..RawContent::default()
    })?;
    let request = SendRequest {
        intent: Some(intent),
        distinct_token: args.distinct_token,
        sender_name: sender_name(&inbox),
        ..SendRequest::new(content, None)
    };
    let sent = ctx.app.engine.outbound.send(ctx.caller, request).await?;
    send_reply(ctx, &sent).await
}

/// `next` for a replayed `resend_email`.
const COPY_SENT: &str =
    "That copy was already sent, as this email. Do not resend again; if it did not arrive, use ask_human.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResendArgs {
    email: String,
    reason: String,
}

pub(super) async fn resend_email(ctx: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    ctx.caller.require_scope(ApiKeyScope::Send)?;
    let ResendArgs { email, reason } = parse_args(arguments)?;
    let email: EmailId = parse_id("email", &email)?;
    if reason.trim().is_empty() {
        return Err(invalid_argument("reason", "must say why it is sent again"));
    }
    check_text("reason", &reason)?;
    let request = ResendRequest { reason: Some(reason), ..ResendRequest::default() };
    let sent = ctx.app.engine.outbound.resend(ctx.caller, email, request, None).await?;
    let reply = send_reply(ctx, &sent).await?;
    // The usual text for `already_sent` recommends resend_email, which is the tool that was just called.
    Ok(match reply.text_member("status") {
        Some("already_sent") => reply.with("next", COPY_SENT),
        _ => reply,
    })
}

/// The result of a send, a reply or a resend.
pub(super) async fn send_reply(ctx: &ToolContext<'_>, sent: &SendReceipt) -> ToolResult {
    let status = send_status(sent.first, sent.state, sent.guard);
    let differs = sent.payload_differs && status != "already_answered";
    let page = if sent.state.is_terminal() { None } else { approval_url(ctx, sent.id).await? };
    let next = match status {
        "cancelled" | "failed" if sent.resent_as.is_some() => {
            "It was resent as the email in resent_as: check that one with get_outcome, and do not send it again."
        }
        _ if differs => {
            "It was accepted before with different content, which is kept; nothing else is sent. Do not send it again."
        }
        "cancelled" if sent.guard.is_some() => REJECTED_NEXT_STEP,
        // Without a distinct_token this caller may not release the held email: it is a resend, or another caller's reply.
        // So a person decides, as about any held email.
        "looks_duplicate" if sent.distinct_token.is_none() => status_next_step("held", page.is_some()),
        _ => status_next_step(status, page.is_some()),
    };
    // If the sender can release it alone, with the distinct_token, no person needs to be asked.
    let is_look_alike_only = sent.distinct_token.is_some() && sent.holds == Guard::LooksDuplicate.into();
    let new = sent.first && !is_look_alike_only;
    Ok(ToolReply::new(status, next)
        .with("email", sent.id.to_string())
        .with("state", sent.state.as_str())
        .with("guard", sent.guard.map(Guard::as_str))
        .with("holds", Some(sent.holds).filter(|holds| !holds.is_empty()))
        .with("distinct_token", &sent.distinct_token)
        .with("resent_as", sent.resent_as.map(|id| id.to_string()))
        .with("tightest_budget", sent.tightest_budget.clone().map(BudgetRoomBody::from))
        .with_approval_page(page, new)
        .with("thread", sent.thread.map(|id| id.to_string()))
        .with(
            "dedupe",
            json!({
                "outcome": if sent.first { "first" } else { "replayed" },
                "key": sent.key,
                "first_at": sent.created_at.to_string(),
                "suppressed": sent.suppressed,
                "payload_differs": sent.payload_differs,
            }),
        ))
}
