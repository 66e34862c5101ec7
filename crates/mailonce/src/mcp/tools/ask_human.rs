//! `ask_human`: a question is asked once, and the same call reads the answer. Agents ask; people decide.

use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::escalation::{DecisionRecord, EscalationState},
    problem::Problem,
};
use mailonce_engine::conversation::escalations::NewEscalation;
use serde::Deserialize;
use serde_json::Value;

use super::{ToolContext, ToolReply, ToolResult, invalid_argument, parse_args, parse_id, send::EDGE_SPACE_ERROR};
use crate::api::{MAX_QUESTION_CHARS, check_required_text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskHumanArgs {
    entity: String,
    question: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    thread: Option<String>,
    #[serde(default)]
    email: Option<String>,
}

pub(super) async fn ask_human(desk: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    desk.caller.require_scope(ApiKeyScope::Reply)?;
    let AskHumanArgs { entity, question, message, thread, email } = parse_args(arguments)?;
    if question.trim().is_empty() || question.chars().count() > MAX_QUESTION_CHARS {
        return Err(invalid_argument("question", format!("is 1 to {MAX_QUESTION_CHARS} characters")));
    }
    check_required_text("entity", &entity)?;
    if entity.trim() != entity {
        return Err(invalid_argument("entity", EDGE_SPACE_ERROR));
    }
    let new = NewEscalation {
        question,
        message: parse_optional_id("message", message)?,
        thread: parse_optional_id("thread", thread)?,
        email: parse_optional_id("email", email)?,
        entity: Some(entity),
    };
    let asked = desk.app.engine.ask_person(desk.caller, new).await?;
    let escalation = &asked.value.escalation;
    let next = match (escalation.state, asked.is_new) {
        (EscalationState::Open, true) => {
            "Asked. Go on with other work; call again with the same entity and question to read the answer, never to \
             press. Another question is asked on its own."
        }
        (EscalationState::Open, false) => {
            "Asked before and not answered yet. Go on with other work and look again later."
        }
        (EscalationState::Resolved, _) => "A person answered this very question: follow `decision` and `answer`.",
        (EscalationState::Expired | EscalationState::Moot, _) => "Nobody answered, and it is closed. Do not act on it.",
    };
    let decided = escalation.decided.as_ref();
    Ok(ToolReply::new(escalation.state.as_str(), next)
        .with("escalation", asked.value.id.to_string())
        .with_approval_page(Some(format!("{}/approve/{}", desk.app.public_url, asked.value.id)), asked.is_new)
        .with("decision", decided.map(|decided: &DecisionRecord| decided.decision.as_str()))
        .with("answer", decided.and_then(|decided| decided.reason.as_ref())))
}

fn parse_optional_id<T: std::str::FromStr>(field: &str, text: Option<String>) -> Result<Option<T>, Problem> {
    text.as_deref().map(|text| parse_id(field, text)).transpose()
}
