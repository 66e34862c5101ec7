//! `ask_human`: asks a person a question once; the same call later returns the answer. Only people can decide.

use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::escalation::{DecisionRecord, EscalationState},
    problem::Problem,
};
use mailonce_engine::conversation::escalations::NewEscalation;
use serde::Deserialize;
use serde_json::Value;

use super::{ToolContext, ToolReply, ToolResult, approval_page_url, invalid_argument, parse_args, parse_id};
use crate::{api::MAX_QUESTION_CHARS, http::json::check_required_text};

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

pub(super) async fn ask_human(ctx: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    ctx.caller.require_scope(ApiKeyScope::Reply)?;
    let AskHumanArgs { entity, question, message, thread, email } = parse_args(arguments)?;
    if question.trim().is_empty() || question.chars().count() > MAX_QUESTION_CHARS {
        return Err(invalid_argument("question", format!("must have 1 to {MAX_QUESTION_CHARS} characters")));
    }
    check_required_text("entity", &entity)?;
    let new = NewEscalation {
        question,
        message: parse_optional_id("message", message)?,
        thread: parse_optional_id("thread", thread)?,
        email: parse_optional_id("email", email)?,
        // As in an intent, a space that a model adds makes no other question.
        entity: Some(entity.trim().to_owned()),
    };
    let opened = ctx.app.engine.escalations.ask_person(ctx.caller, new).await?;
    let escalation = &opened.value.escalation;
    let next = match (escalation.state, opened.is_new) {
        (EscalationState::Open, true) => {
            "Asked. Continue with other work. Call again with the same entity and question only to read the answer, \
             not to urge the person. A different question is asked separately."
        }
        (EscalationState::Open, false) => {
            "Asked before and not answered yet. Continue with other work and call again later."
        }
        (EscalationState::Resolved, _) => "A person answered this question: follow `decision` and `answer`.",
        (EscalationState::Expired | EscalationState::Moot, _) => {
            "The question was closed without an answer. Do not act on it."
        }
    };
    let decided = escalation.decision.as_ref();
    Ok(ToolReply::new(escalation.state.as_str(), next)
        .with("escalation", opened.value.id.to_string())
        .with_approval_page(Some(approval_page_url(ctx, opened.value.id)), opened.is_new)
        .with("decision", decided.map(|decided: &DecisionRecord| decided.decision.as_str()))
        .with("answer", decided.and_then(|decided| decided.reason.as_ref())))
}

fn parse_optional_id<T: std::str::FromStr>(field: &str, text: Option<String>) -> Result<Option<T>, Problem> {
    text.as_deref().map(|text| parse_id(field, text)).transpose()
}
