//! `send_email` and `resend_email`.

use mailonce_core::{
    access::team::ApiKeyScope,
    id::EmailId,
    inbox::Inbox,
    intent::Intent,
    outbound::{
        content::{EmailContent, RawContent},
        email::Guard,
    },
    problem::Problem,
};
use mailonce_engine::{
    conversation::reply::sender_name,
    outbound::{send::SendRequest, send_receipt::SendReceipt},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ToolContext, ToolReply, ToolResult, find_inbox_where, invalid_argument, outcome, parse_args, parse_id};
use crate::api::check_text;
use crate::mcp::tools::tool_reply::{REJECTED_NEXT_STEP, send_status, status_next_step};

/// Why spaces around a name are not taken.
pub(super) const EDGE_SPACE_ERROR: &str =
    "begins or ends with a space, and without it would name another matter: leave the space out";

/// What a mail is about. Flat, because models fill flat forms best.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendToolArgs {
    to: String,
    subject: String,
    text: String,
    #[serde(default)]
    html: Option<String>,
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

/// The intent that a model names, checked.
pub(super) fn parse_intent(
    kind: String,
    entity: String,
    version: Option<u32>,
    period: Option<String>,
) -> Result<Intent, Problem> {
    let intent = Intent { kind, entity, version: version.unwrap_or(1), period };
    intent.validate().map_err(|error| invalid_argument(error.field, error.rule))?;
    match intent.untrimmed_field() {
        Some(field) => Err(invalid_argument(field, EDGE_SPACE_ERROR)),
        None => Ok(intent),
    }
}

pub(super) async fn send_email(desk: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    desk.caller.require_scope(ApiKeyScope::Send)?;
    let args: SendToolArgs = parse_args(arguments)?;
    let intent = parse_intent(args.kind, args.entity, args.version, args.period)?;
    let may_send = |inbox: &Inbox| desk.caller.key.may_send_from(&inbox.address);
    let inbox = match find_inbox_where(desk, args.inbox.as_deref(), may_send).await {
        Ok(inbox) => inbox,
        // A retry of what was accepted is never asked anything.
        Err(problem) => return outcome::outcome_of_intent(desk, &intent, &args.to).await?.ok_or(problem),
    };
    let content = EmailContent::validate(RawContent {
        from: inbox.address.clone(),
        to: vec![args.to],
        subject: args.subject,
        text: Some(args.text),
        html: args.html,
        ..RawContent::default()
    })?;
    let request = SendRequest {
        intent: Some(intent),
        distinct_token: args.distinct_token,
        sender_name: sender_name(&inbox),
        ..SendRequest::new(content, None)
    };
    let sent = desk.app.engine.send(desk.caller, request).await?;
    send_reply(desk, &sent).await
}

/// What a repeated wish for another copy means.
const COPY_SENT: &str =
    "That further copy was sent before, as this email. Do not ask again; if it did not arrive, use ask_human.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResendArgs {
    email: String,
    reason: String,
}

pub(super) async fn resend_email(desk: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    desk.caller.require_scope(ApiKeyScope::Send)?;
    let ResendArgs { email, reason } = parse_args(arguments)?;
    let email: EmailId = parse_id("email", &email)?;
    if reason.trim().is_empty() {
        return Err(invalid_argument("reason", "says why it is sent again"));
    }
    check_text("reason", &reason)?;
    let sent = desk.app.engine.resend(desk.caller, email, Some(reason), None).await?;
    let said = send_reply(desk, &sent).await?;
    // Whoever asked for another copy must not be sent to ask for another copy.
    Ok(match said.text_member("status") {
        Some("already_sent") => said.with("next", COPY_SENT),
        _ => said,
    })
}

/// Where a person decides about an email, when one must.
pub(super) async fn approval_url(desk: &ToolContext<'_>, email: EmailId) -> Result<Option<String>, Problem> {
    let question = desk.app.engine.escalation_of_email(desk.caller, email).await?;
    Ok(question.map(|id| format!("{}/approve/{id}", desk.app.public_url)))
}

/// How a send went.
pub(super) async fn send_reply(desk: &ToolContext<'_>, sent: &SendReceipt) -> ToolResult {
    let status = send_status(sent.first, sent.state, sent.guard);
    let differs = sent.payload_differs && status != "already_answered";
    let page = if sent.state.is_terminal() { None } else { approval_url(desk, sent.id).await? };
    let next = match status {
        "cancelled" | "failed" if sent.resent_as.is_some() => {
            "It was made anew as the email in resent_as: look at that with get_outcome, and do not send it again."
        }
        _ if differs => {
            "You asked for this before in other words; those stand, and nothing else is sent. Do not send it again."
        }
        "cancelled" if sent.guard.is_some() => REJECTED_NEXT_STEP,
        // Only its own sender can say that a look-alike is meant, and only of the first version.
        "looks_duplicate" if sent.distinct_token.is_none() => status_next_step("held", page.is_some()),
        _ => status_next_step(status, page.is_some()),
    };
    // What its sender can let go by a token needs nobody else.
    let new = sent.first && sent.distinct_token.is_none();
    Ok(ToolReply::new(status, next)
        .with("email", sent.id.to_string())
        .with("state", sent.state.as_str())
        .with("guard", sent.guard.map(Guard::as_str))
        .with("distinct_token", &sent.distinct_token)
        .with("resent_as", sent.resent_as.map(|id| id.to_string()))
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
