//! Answers in Resend's words: replying to what came in and passing it on, once.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::MessageId,
    problem::{Code, Problem},
};
use mailonce_engine::{
    conversation::{
        reply::{ForwardRequest, ReplyRequest},
        threads::ThreadEntry,
    },
    outbound::send_receipt::SendReceipt,
};
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{
    DialectError, DialectPath, Resend, ResendRequest, ResendRequestBody, ResendResult, ThreePathSegments, json,
    parse_id, threads::find_entry,
};
use crate::dialects::resend::errors::{missing_field, unsupported_field};
use crate::{
    api::{App, wire::OneOrMany},
    dialects::{MessageAction, reject_different_payload, respond_to_send},
};

/// The message that is to be answered or passed on. Under a key it may be gone: then the engine knows whether this is a
/// repeat.
async fn find_message(
    app: &App,
    guest: &ResendRequest,
    path: (&str, &str, &str),
) -> Result<MessageId, DialectError<Resend>> {
    guest.caller.require_scope(ApiKeyScope::Reply)?;
    let message: MessageId = parse_id(path.2)?;
    let found = match find_entry(app, guest, path).await {
        Err(refusal) if guest.key.is_none() || refusal.status() != StatusCode::NOT_FOUND => return Err(refusal),
        found => found,
    };
    match found {
        Ok(ThreadEntry::Email(_)) => {
            Err(unsupported_field("email_id", "Only an email that was received can be answered or forwarded.").into())
        }
        Ok(ThreadEntry::Message(_)) => Ok(message),
        Err(refusal) => match app.engine.message(&guest.caller, message).await {
            // It is there, and not where the path says.
            Ok(_) => Err(refusal),
            Err(_gone) => Ok(message),
        },
    }
}

/// The dialect's sentence for what is not there.
fn with_dialect_message(problem: Problem) -> Problem {
    if problem.code == Code::NotFound { Problem::new(Code::NotFound, "Email not found") } else { problem }
}

/// Wishes that an answer here cannot carry. What is left out or null wishes nothing.
#[derive(Deserialize)]
struct UnsupportedFields {
    #[serde(default)]
    bcc: Option<IgnoredAny>,
    #[serde(default)]
    subject: Option<IgnoredAny>,
    #[serde(default)]
    attachments: Option<IgnoredAny>,
    #[serde(default)]
    headers: Option<IgnoredAny>,
}

impl UnsupportedFields {
    fn check(&self) -> Result<(), Problem> {
        let given = [
            ("bcc", self.bcc.is_some()),
            ("subject", self.subject.is_some()),
            ("attachments", self.attachments.is_some()),
            ("headers", self.headers.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((field, _)) => {
                Err(unsupported_field(field, format!("An answer cannot have `{field}` here; leave it out.")))
            }
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
    extras: UnsupportedFields,
}

#[derive(Serialize)]
struct SendReceiptBody {
    id: String,
}

/// A message is answered once: the same words again get the id of the first answer, others are a conflict.
fn send_response(sent: SendReceipt, deed: MessageAction) -> ResendResult {
    let sent = reject_different_payload(sent, deed)?;
    Ok(respond_to_send::<Resend>(&sent, || json(StatusCode::OK, &SendReceiptBody { id: sent.id.to_string() })))
}

/// `POST …/emails/{email}/reply`.
pub(super) async fn reply(
    State(app): State<App>,
    guest: ResendRequest,
    DialectPath((inbox, thread, email), ..): ThreePathSegments,
    body: ResendRequestBody,
) -> ResendResult {
    let message = find_message(&app, &guest, (&inbox, &thread, &email)).await?;
    let ReplyBody { text, html, reply_all, cc, extras } = body.parse()?;
    extras.check()?;
    if cc.is_some() {
        return Err(
            unsupported_field("cc", "An answer cannot have `cc` here; use `reply_all`, or leave it out.").into()
        );
    }
    if text.is_none() && html.is_none() {
        return Err(missing_field("html` or `text").into());
    }
    let request =
        ReplyRequest { text, html, reply_all: reply_all.unwrap_or(false), key: guest.key, ..ReplyRequest::default() };
    send_response(
        app.engine.reply(&guest.caller, message, request).await.map_err(with_dialect_message)?,
        MessageAction::Answered,
    )
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
    extras: UnsupportedFields,
}

/// `POST …/emails/{email}/forward`.
pub(super) async fn forward(
    State(app): State<App>,
    guest: ResendRequest,
    DialectPath((inbox, thread, email), ..): ThreePathSegments,
    body: ResendRequestBody,
) -> ResendResult {
    let message = find_message(&app, &guest, (&inbox, &thread, &email)).await?;
    let ForwardBody { to, cc, text, html, extras } = body.parse()?;
    extras.check()?;
    if html.is_some() {
        return Err(unsupported_field("html", "Words before a forwarded email are `text` here.").into());
    }
    if to.0.is_empty() {
        return Err(missing_field("to").into());
    }
    let request = ForwardRequest { to: to.0, cc: cc.0, text, key: guest.key, ..ForwardRequest::default() };
    send_response(
        app.engine.forward(&guest.caller, message, request).await.map_err(with_dialect_message)?,
        MessageAction::Forwarded,
    )
}
