//! `get_outcome`: what became of a mail. What the next hop said stays out of it: those are a stranger's words.

use mailonce_core::{
    address::Address,
    email::{Email, EmailState, Guard},
    handoff::{Attempt, Handoff, Outcome},
    id::EmailId,
    intent::Intent,
    key::{Key, KeyName},
    port::store::Bound,
    problem::{Code, Problem},
    team::Scope,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Desk, Said, Told, fault, id, read,
    said::{ALIKE, REJECTED, meaning, standing},
    send::{approval_url, intent},
    shown::{addresses, filled},
};

/// Attempts that are told one by one, the latest.
const TOLD: usize = 10;

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

pub(super) async fn get_outcome(desk: &Desk<'_>, arguments: &Value) -> Told {
    desk.caller.need(Scope::Read)?;
    let args: OutcomeArgs = read(arguments)?;
    if let Some(email) = &args.email {
        return of_email(desk, id("email", email)?).await;
    }
    let (Some(kind), Some(entity), Some(to)) = (args.kind, args.entity, args.to) else {
        return Err(fault("email", "is needed, or type, entity and to"));
    };
    let intent = intent(kind, entity, args.version, args.period)?;
    let none = || Said::new("not_accepted", "No such mail was accepted. If it is wanted, use send_email.");
    Ok(of_intent(desk, &intent, &to).await?.unwrap_or_else(none))
}

/// What became of the mail that an intent names; `None` when there is none.
pub(super) async fn of_intent(desk: &Desk<'_>, intent: &Intent, to: &str) -> Result<Option<Said>, Problem> {
    let to = Address::parse(to).map_err(|error| fault("to", error))?;
    let key = Key::parse(&intent.key(&[to])).map_err(|error| fault("entity", error))?;
    match desk.app.engine.key(desk.caller, &key).await {
        Ok(view) => match view.bound {
            Some(Bound::Email(email)) => of_email(desk, email.id).await.map(Some),
            Some(Bound::Operation { .. }) | None => Ok(None),
        },
        Err(problem) if problem.code == Code::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

async fn of_email(desk: &Desk<'_>, id: EmailId) -> Told {
    let detail = desk.app.engine.email_view(desk.caller, id).await?.detail;
    let email = &detail.email;
    let status = standing(false, email.state(), email.guard);
    let stuck = !email.state().is_terminal();
    let page = if stuck { approval_url(desk, email.id).await? } else { None };
    let attempts: Vec<_> = detail.attempts.iter().rev().take(TOLD).rev().map(attempt).collect();
    Ok(Said::new(status, next(email, status, page.is_some()))
        .with("email", email.id.to_string())
        .with("state", email.state().word())
        .with("guard", email.guard.map(Guard::word))
        .with("to", addresses(desk, &email.head.to))
        .with("recipients", email.handoffs.iter().map(|handoff| recipient(desk, handoff)).collect::<Vec<_>>())
        .with("attempts", attempts)
        .with("accepted_at", email.head.created_at.to_string())
        .with("settled_at", email.settled_at.map(|at| at.to_string()))
        .with("resent_as", email.resent_as.map(|id| id.to_string()))
        .with("approval_url", page)
        .with("key", email.head.key.as_ref().map(KeyName::shown))
        .with("suppressed", email.suppressed))
}

fn next(email: &Email, status: &str, asked: bool) -> &'static str {
    match email.state() {
        _ if email.resent_as.is_some() => "It was sent again as the email in `resent_as`; look at that one.",
        EmailState::Queued | EmailState::Sending | EmailState::Scheduled => {
            "It is on its way and will be sent once. Do not send it again."
        }
        EmailState::Held if email.may_be_meant() => ALIKE,
        EmailState::Held if email.guard == Some(Guard::LooksDuplicate) => meaning("held", asked),
        EmailState::Cancelled if email.guard.is_some() => REJECTED,
        EmailState::Failed => "The next hop refused it; `attempts` has its code. If that is mended, use resend_email.",
        _ => meaning(status, asked),
    }
}

fn recipient(desk: &Desk<'_>, handoff: &Handoff) -> Value {
    json!({
        "to": addresses(desk, &handoff.recipients),
        "state": handoff.state.word(),
        "attempts": handoff.attempts,
    })
}

fn attempt(attempt: &Attempt) -> Map<String, Value> {
    filled(json!({
        "at": attempt.at.to_string(),
        "outcome": attempt.outcome.map_or("on the wire", Outcome::word),
        "code": attempt.about.code,
        // What the sandbox captures goes no way.
        "transport": Some(&attempt.about.transport).filter(|name| !name.is_empty()),
    }))
}
