//! The Resend routes that reply to a received message or forward it. Each happens once.

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
use serde::{Deserialize, Serialize};

use super::{
    DialectError, DialectPath, ResendDialect, ResendRequest, ResendRequestBody, ResendResult, json, parse_id,
    threads::{EntryPath, find_entry},
};
use crate::{
    dialects::{
        MessageAction, field_problem, reject_different_payload, resend::errors::missing_field, respond_to_send,
    },
    http::{
        app::App,
        json::{OneOrMany, UnsupportedField},
    },
};

/// Finds the message to reply to or to forward. If the request has an idempotency key, the message may be deleted: the
/// engine then decides whether the request is a replay.
async fn find_message(
    app: &App,
    auth: &ResendRequest,
    path: &EntryPath,
) -> Result<MessageId, DialectError<ResendDialect>> {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let message: MessageId = parse_id(&path.email)?;
    let found = match find_entry(app, auth, path).await {
        Err(error) if auth.key.is_none() || error.status() != StatusCode::NOT_FOUND => return Err(error),
        found => found,
    };
    match found {
        Ok(ThreadEntry::Email(_)) => {
            Err(field_problem("email_id", "Only a received email can be answered or forwarded.").into())
        }
        Ok(ThreadEntry::Message(_)) => Ok(message),
        Err(error) => match app.engine.inboxes.message(&auth.caller, message).await {
            // The message exists, but not in the inbox and thread of the path.
            Ok(_) => Err(error),
            Err(_gone) => Ok(message),
        },
    }
}

/// Replaces the detail of a 404 by the message of the dialect.
fn with_dialect_message(problem: Problem) -> Problem {
    if problem.code == Code::NotFound { Problem::new(Code::NotFound, "Email not found") } else { problem }
}

/// Fields of Resend that replies and forwards do not support. Absent and null are both accepted.
#[derive(Deserialize)]
struct UnsupportedFields {
    #[serde(default)]
    bcc: UnsupportedField,
    #[serde(default)]
    subject: UnsupportedField,
    #[serde(default)]
    attachments: UnsupportedField,
    #[serde(default)]
    headers: UnsupportedField,
}

impl UnsupportedFields {
    fn check(&self) -> Result<(), Problem> {
        let present = [
            ("bcc", self.bcc.is_given()),
            ("subject", self.subject.is_given()),
            ("attachments", self.attachments.is_given()),
            ("headers", self.headers.is_given()),
        ];
        match present.into_iter().find(|(_, present)| *present) {
            Some((field, _)) => {
                Err(field_problem(field, format!("`{field}` is not supported in replies and forwards; leave it out.")))
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
    cc: UnsupportedField,
    #[serde(flatten)]
    extras: UnsupportedFields,
}

#[derive(Serialize)]
struct SendReceiptBody {
    id: String,
}

/// A message is answered once: the same content again returns the id of the first reply, other content is a conflict.
fn send_response(sent: SendReceipt, action: MessageAction) -> ResendResult {
    let sent = reject_different_payload(sent, action)?;
    Ok(respond_to_send::<ResendDialect>(&sent, || json(StatusCode::OK, &SendReceiptBody { id: sent.id.to_string() })))
}

/// `POST …/emails/{email}/reply`.
pub(super) async fn reply(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(path, ..): DialectPath<EntryPath, ResendDialect>,
    body: ResendRequestBody,
) -> ResendResult {
    let message = find_message(&app, &auth, &path).await?;
    let ReplyBody { text, html, reply_all, cc, extras } = body.parse()?;
    extras.check()?;
    if cc.is_given() {
        return Err(field_problem("cc", "`cc` is not supported in replies; use `reply_all`, or leave it out.").into());
    }
    if text.is_none() && html.is_none() {
        return Err(missing_field("html` or `text").into());
    }
    let request =
        ReplyRequest { text, html, reply_all: reply_all.unwrap_or(false), key: auth.key, ..ReplyRequest::default() };
    send_response(
        app.engine.conversations.reply(&auth.caller, message, request).await.map_err(with_dialect_message)?,
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
    html: UnsupportedField,
    #[serde(flatten)]
    extras: UnsupportedFields,
}

/// `POST …/emails/{email}/forward`.
pub(super) async fn forward(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(path, ..): DialectPath<EntryPath, ResendDialect>,
    body: ResendRequestBody,
) -> ResendResult {
    let message = find_message(&app, &auth, &path).await?;
    let ForwardBody { to, cc, text, html, extras } = body.parse()?;
    extras.check()?;
    if html.is_given() {
        return Err(field_problem(
            "html",
            "`html` is not supported in forwards; use `text` for a note above the forwarded email.",
        )
        .into());
    }
    if to.0.is_empty() {
        return Err(missing_field("to").into());
    }
    let request = ForwardRequest { to: to.0, cc: cc.0, text, key: auth.key, ..ForwardRequest::default() };
    send_response(
        app.engine.conversations.forward(&auth.caller, message, request).await.map_err(with_dialect_message)?,
        MessageAction::Forwarded,
    )
}
