//! `get_outcome`: the state of an email. Reply texts of the next hop are left out, because a stranger wrote them.

use mailonce_core::{
    access::team::ApiKeyScope,
    address::Address,
    handoff::{Attempt, Handoff, Outcome},
    id::EmailId,
    intent::Intent,
    key::{EmailKey, Key},
    outbound::{
        email::{Email, EmailState, Guard},
        key_binding::KeyBinding,
    },
    problem::{Code, Problem},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ToolContext, ToolReply, ToolResult, approval_url, invalid_argument, parse_args, parse_id, parse_intent};
use crate::mcp::tools::{
    message_view::{visible_addresses, without_nulls},
    tool_reply::{LOOKS_DUPLICATE_NEXT_STEP, REJECTED_NEXT_STEP, send_status, status_next_step},
};

/// Attempts listed individually: the latest ones.
const MAX_SHOWN_ATTEMPTS: usize = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeArgs {
    #[serde(default)]
    email: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    entity: Option<String>,
    #[serde(default)]
    to: Option<String>,
    #[serde(default)]
    version: Option<u32>,
    #[serde(default)]
    period: Option<String>,
}

pub(super) async fn get_outcome(ctx: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    ctx.caller.require_scope(ApiKeyScope::Read)?;
    let args: OutcomeArgs = parse_args(arguments)?;
    if let Some(email) = &args.email {
        return outcome_of_email(ctx, parse_id("email", email)?).await;
    }
    let (Some(kind), Some(entity), Some(to)) = (args.kind, args.entity, args.to) else {
        return Err(invalid_argument("email", "is required, or `type`, `entity` and `to`"));
    };
    let intent = parse_intent(kind, entity, args.version, args.period)?;
    let none = || ToolReply::new("not_accepted", "No such email was accepted. To send it, use send_email.");
    Ok(outcome_of_intent(ctx, &intent, &to).await?.unwrap_or_else(none))
}

/// The outcome of the email with this intent and recipient; `None` if none was accepted.
pub(super) async fn outcome_of_intent(
    ctx: &ToolContext<'_>,
    intent: &Intent,
    to: &str,
) -> Result<Option<ToolReply>, Problem> {
    let to = Address::parse(to).map_err(|error| invalid_argument("to", error))?;
    let key = Key::parse(&intent.derive_key(&[to])).map_err(|error| invalid_argument("entity", error))?;
    match ctx.app.engine.outbound.key(ctx.caller, &key).await {
        Ok(view) => match view.binding {
            Some(KeyBinding::Email(email)) => outcome_of_email(ctx, email.id).await.map(Some),
            Some(KeyBinding::Operation { .. }) | None => Ok(None),
        },
        Err(problem) if problem.code == Code::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

async fn outcome_of_email(ctx: &ToolContext<'_>, id: EmailId) -> ToolResult {
    let detail = ctx.app.engine.outbound.email_view(ctx.caller, id).await?.detail;
    let email = &detail.email;
    let status = send_status(false, email.state(), email.guard);
    let unfinished = !email.state().is_terminal();
    let page = if unfinished { approval_url(ctx, email.id).await? } else { None };
    let attempts: Vec<_> = detail.attempts.iter().rev().take(MAX_SHOWN_ATTEMPTS).rev().map(attempt_json).collect();
    Ok(ToolReply::new(status, next_step(email, status, page.is_some()))
        .with("email", email.id.to_string())
        .with("state", email.state().as_str())
        .with("guard", email.guard.map(Guard::as_str))
        .with("holds", Some(email.holds).filter(|holds| !holds.is_empty()))
        .with("to", visible_addresses(ctx, &email.head.to))
        .with("recipients", email.handoffs.iter().map(|handoff| recipient_json(ctx, handoff)).collect::<Vec<_>>())
        .with("attempts", attempts)
        .with("accepted_at", email.head.created_at.to_string())
        .with("settled_at", email.settled_at.map(|at| at.to_string()))
        .with("resent_as", email.resent_as.map(|id| id.to_string()))
        .with("approval_url", page)
        .with("key", email.head.key.as_ref().map(EmailKey::display_name))
        .with("suppressed", email.suppressed))
}

fn next_step(email: &Email, status: &str, has_approval_page: bool) -> &'static str {
    match email.state() {
        _ if email.resent_as.is_some() => "It was resent as the email in `resent_as`; call get_outcome for that one.",
        EmailState::Queued | EmailState::Sending | EmailState::Scheduled => {
            "It is on its way and will be sent once. Do not send it again."
        }
        EmailState::Held if email.is_held_as_look_alike_only() && email.may_sender_confirm() => {
            LOOKS_DUPLICATE_NEXT_STEP
        }
        EmailState::Held if email.guard == Some(Guard::LooksDuplicate) => status_next_step("held", has_approval_page),
        EmailState::Cancelled if email.guard.is_some() => REJECTED_NEXT_STEP,
        EmailState::Failed => {
            "The next hop refused it; `attempts` has its code. Once the cause is fixed, use resend_email."
        }
        _ => status_next_step(status, has_approval_page),
    }
}

fn recipient_json(ctx: &ToolContext<'_>, handoff: &Handoff) -> Value {
    json!({
        "to": visible_addresses(ctx, &handoff.recipients),
        "state": handoff.state.as_str(),
        "attempts": handoff.attempts,
    })
}

fn attempt_json(attempt: &Attempt) -> Map<String, Value> {
    without_nulls(json!({
        "at": attempt.at.to_string(),
        "outcome": attempt.outcome.map_or("on the wire", Outcome::as_str),
        "code": attempt.details.code,
        // An email that the sandbox captures has no transport.
        "transport": Some(&attempt.details.transport).filter(|name| !name.is_empty()),
    }))
}
