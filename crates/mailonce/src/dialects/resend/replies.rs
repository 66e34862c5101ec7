//! Answers in Resend's words: replying to what came in and passing it on, once.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    id::MessageId,
    problem::{Code, Problem},
    team::Scope,
};
use mailonce_engine::{
    reply::{ForwardRequest, ReplyRequest},
    threads::Said,
    view::Sent,
};
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{
    Answer, Body, Guest, Named, Refusal, Resend, Three, id, json,
    refuse::{missing, unfit},
    threads::own_said,
};
use crate::{
    api::{App, wire::OneOrMany},
    dialects::{Deed, stands, told},
};

/// The message that is to be answered or passed on. Under a key it may be gone: then the engine knows whether this is a
/// repeat.
async fn answerable(app: &App, guest: &Guest, path: (&str, &str, &str)) -> Result<MessageId, Refusal<Resend>> {
    guest.caller.need(Scope::Reply)?;
    let message: MessageId = id(path.2)?;
    let found = match own_said(app, guest, path).await {
        Err(refusal) if guest.key.is_none() || refusal.status() != StatusCode::NOT_FOUND => return Err(refusal),
        found => found,
    };
    match found {
        Ok(Said::Email(_)) => {
            Err(unfit("email_id", "Only an email that was received can be answered or forwarded.").into())
        }
        Ok(Said::Message(_)) => Ok(message),
        Err(refusal) => match app.engine.message(&guest.caller, message).await {
            // It is there, and not where the path says.
            Ok(_) => Err(refusal),
            Err(_gone) => Ok(message),
        },
    }
}

/// The dialect's sentence for what is not there.
fn in_words(problem: Problem) -> Problem {
    if problem.code == Code::NotFound { Problem::new(Code::NotFound, "Email not found") } else { problem }
}

/// Wishes that an answer here cannot carry. What is left out or null wishes nothing.
#[derive(Deserialize)]
struct Extras {
    #[serde(default)]
    bcc: Option<IgnoredAny>,
    #[serde(default)]
    subject: Option<IgnoredAny>,
    #[serde(default)]
    attachments: Option<IgnoredAny>,
    #[serde(default)]
    headers: Option<IgnoredAny>,
}

impl Extras {
    fn check(&self) -> Result<(), Problem> {
        let given = [
            ("bcc", self.bcc.is_some()),
            ("subject", self.subject.is_some()),
            ("attachments", self.attachments.is_some()),
            ("headers", self.headers.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((field, _)) => Err(unfit(field, format!("An answer cannot have `{field}` here; leave it out."))),
            None => Ok(()),
        }
    }
}

#[derive(Deserialize)]
struct ReplyBody {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    html: Option<String>,
    #[serde(default)]
    reply_all: Option<bool>,
    #[serde(default)]
    cc: Option<IgnoredAny>,
    #[serde(flatten)]
    extras: Extras,
}

#[derive(Serialize)]
struct SentBody {
    id: String,
}

/// A message is answered once: the same words again get the id of the first answer, others are a conflict.
fn sent(sent: Sent, deed: Deed) -> Answer {
    let sent = stands(sent, deed)?;
    Ok(told::<Resend>(&sent, || json(StatusCode::OK, &SentBody { id: sent.id.to_string() })))
}

/// `POST …/emails/{email}/reply`.
pub(super) async fn reply(
    State(app): State<App>,
    guest: Guest,
    Named((inbox, thread, email), ..): Three,
    body: Body,
) -> Answer {
    let message = answerable(&app, &guest, (&inbox, &thread, &email)).await?;
    let ReplyBody { text, html, reply_all, cc, extras } = body.parse()?;
    extras.check()?;
    if cc.is_some() {
        return Err(unfit("cc", "An answer cannot have `cc` here; use `reply_all`, or leave it out.").into());
    }
    if text.is_none() && html.is_none() {
        return Err(missing("html` or `text").into());
    }
    let request =
        ReplyRequest { text, html, reply_all: reply_all.unwrap_or(false), key: guest.key, ..ReplyRequest::default() };
    sent(app.engine.reply(&guest.caller, message, request).await.map_err(in_words)?, Deed::Answered)
}

#[derive(Deserialize)]
struct ForwardBody {
    #[serde(default)]
    to: OneOrMany,
    #[serde(default)]
    cc: OneOrMany,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    html: Option<IgnoredAny>,
    #[serde(flatten)]
    extras: Extras,
}

/// `POST …/emails/{email}/forward`.
pub(super) async fn forward(
    State(app): State<App>,
    guest: Guest,
    Named((inbox, thread, email), ..): Three,
    body: Body,
) -> Answer {
    let message = answerable(&app, &guest, (&inbox, &thread, &email)).await?;
    let ForwardBody { to, cc, text, html, extras } = body.parse()?;
    extras.check()?;
    if html.is_some() {
        return Err(unfit("html", "Words before a forwarded email are `text` here.").into());
    }
    if to.0.is_empty() {
        return Err(missing("to").into());
    }
    let request = ForwardRequest { to: to.0, cc: cc.0, text, key: guest.key, ..ForwardRequest::default() };
    sent(app.engine.forward(&guest.caller, message, request).await.map_err(in_words)?, Deed::Forwarded)
}
