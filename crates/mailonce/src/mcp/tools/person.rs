//! `ask_human`: a question is asked once, and the same call reads the answer. Agents ask; people decide.

use mailonce_core::{
    conversation::escalation::{Decided, EscalationState},
    problem::Problem,
    team::Scope,
};
use mailonce_engine::escalations::NewQuestion;
use serde::Deserialize;
use serde_json::Value;

use super::{Desk, Said, Told, fault, id, read, send::LOOSE_EDGE};
use crate::api::{QUESTION_CHARS, named_words};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskArgs {
    entity: String,
    question: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    thread: Option<String>,
    #[serde(default)]
    email: Option<String>,
}

pub(super) async fn ask_human(desk: &Desk<'_>, arguments: &Value) -> Told {
    desk.caller.need(Scope::Reply)?;
    let AskArgs { entity, question, message, thread, email } = read(arguments)?;
    if question.trim().is_empty() || question.chars().count() > QUESTION_CHARS {
        return Err(fault("question", format!("is 1 to {QUESTION_CHARS} characters")));
    }
    named_words("entity", &entity)?;
    if entity.trim() != entity {
        return Err(fault("entity", LOOSE_EDGE));
    }
    let new = NewQuestion {
        question,
        message: optional("message", message)?,
        thread: optional("thread", thread)?,
        email: optional("email", email)?,
        entity: Some(entity),
    };
    let asked = desk.app.engine.ask_person(desk.caller, new).await?;
    let escalation = &asked.thing.escalation;
    let next = match (escalation.state, asked.first) {
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
    Ok(Said::new(escalation.state.word(), next)
        .with("escalation", asked.thing.id.to_string())
        .for_a_person(Some(format!("{}/approve/{}", desk.app.url, asked.thing.id)), asked.first)
        .with("decision", decided.map(|decided: &Decided| decided.decision.word()))
        .with("answer", decided.and_then(|decided| decided.reason.as_ref())))
}

fn optional<T: std::str::FromStr>(field: &str, text: Option<String>) -> Result<Option<T>, Problem> {
    text.as_deref().map(|text| id(field, text)).transpose()
}
