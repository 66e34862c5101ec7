//! `get_outcome`: what became of a mail. What the next hop said stays out of it: those are a stranger's words.

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

use super::{
    ToolContext, ToolReply, ToolResult, invalid_argument, parse_args, parse_id,
    send::{approval_url, parse_intent},
};
use crate::mcp::tools::{
    message_view::{visible_addresses, without_nulls},
    tool_reply::{LOOKS_DUPLICATE_NEXT_STEP, REJECTED_NEXT_STEP, send_status, status_next_step},
};

/// Attempts that are told one by one, the latest.
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

pub(super) async fn get_outcome(desk: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    desk.caller.require_scope(ApiKeyScope::Read)?;
    let args: OutcomeArgs = parse_args(arguments)?;
    if let Some(email) = &args.email {
        return outcome_of_email(desk, parse_id("email", email)?).await;
    }
    let (Some(kind), Some(entity), Some(to)) = (args.kind, args.entity, args.to) else {
        return Err(invalid_argument("email", "is needed, or type, entity and to"));
    };
    let intent = parse_intent(kind, entity, args.version, args.period)?;
    let none = || ToolReply::new("not_accepted", "No such mail was accepted. If it is wanted, use send_email.");
    Ok(outcome_of_intent(desk, &intent, &to).await?.unwrap_or_else(none))
}

/// What became of the mail that an intent names; `None` when there is none.
pub(super) async fn outcome_of_intent(
    desk: &ToolContext<'_>,
    intent: &Intent,
    to: &str,
) -> Result<Option<ToolReply>, Problem> {
    let to = Address::parse(to).map_err(|error| invalid_argument("to", error))?;
    let key = Key::parse(&intent.derive_key(&[to])).map_err(|error| invalid_argument("entity", error))?;
    match desk.app.engine.key(desk.caller, &key).await {
        Ok(view) => match view.binding {
            Some(KeyBinding::Email(email)) => outcome_of_email(desk, email.id).await.map(Some),
            Some(KeyBinding::Operation { .. }) | None => Ok(None),
        },
        Err(problem) if problem.code == Code::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

async fn outcome_of_email(desk: &ToolContext<'_>, id: EmailId) -> ToolResult {
    let detail = desk.app.engine.email_view(desk.caller, id).await?.detail;
    let email = &detail.email;
    let status = send_status(false, email.state(), email.guard);
    let stuck = !email.state().is_terminal();
    let page = if stuck { approval_url(desk, email.id).await? } else { None };
    let attempts: Vec<_> = detail.attempts.iter().rev().take(MAX_SHOWN_ATTEMPTS).rev().map(attempt_json).collect();
    Ok(ToolReply::new(status, next_step(email, status, page.is_some()))
        .with("email", email.id.to_string())
        .with("state", email.state().as_str())
        .with("guard", email.guard.map(Guard::as_str))
        .with("to", visible_addresses(desk, &email.head.to))
        .with("recipients", email.handoffs.iter().map(|handoff| recipient_json(desk, handoff)).collect::<Vec<_>>())
        .with("attempts", attempts)
        .with("accepted_at", email.head.created_at.to_string())
        .with("settled_at", email.settled_at.map(|at| at.to_string()))
        .with("resent_as", email.resent_as.map(|id| id.to_string()))
        .with("approval_url", page)
        .with("key", email.head.key.as_ref().map(EmailKey::display_name))
        .with("suppressed", email.suppressed))
}

fn next_step(email: &Email, status: &str, asked: bool) -> &'static str {
    match email.state() {
        _ if email.resent_as.is_some() => "It was sent again as the email in `resent_as`; look at that one.",
        EmailState::Queued | EmailState::Sending | EmailState::Scheduled => {
            "It is on its way and will be sent once. Do not send it again."
        }
        EmailState::Held if email.may_sender_confirm() => LOOKS_DUPLICATE_NEXT_STEP,
        EmailState::Held if email.guard == Some(Guard::LooksDuplicate) => status_next_step("held", asked),
        EmailState::Cancelled if email.guard.is_some() => REJECTED_NEXT_STEP,
        EmailState::Failed => "The next hop refused it; `attempts` has its code. If that is mended, use resend_email.",
        _ => status_next_step(status, asked),
    }
}

fn recipient_json(desk: &ToolContext<'_>, handoff: &Handoff) -> Value {
    json!({
        "to": visible_addresses(desk, &handoff.recipients),
        "state": handoff.state.as_str(),
        "attempts": handoff.attempts,
    })
}

fn attempt_json(attempt: &Attempt) -> Map<String, Value> {
    without_nulls(json!({
        "at": attempt.at.to_string(),
        "outcome": attempt.outcome.map_or("on the wire", Outcome::as_str),
        "code": attempt.details.code,
        // What the sandbox captures goes no way.
        "transport": Some(&attempt.details.transport).filter(|name| !name.is_empty()),
    }))
}
