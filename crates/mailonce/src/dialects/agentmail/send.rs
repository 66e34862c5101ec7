//! The AgentMail routes that send, reply and forward. Each creates one email, and a retry gets the first response.

use axum::{
    http::{Method, StatusCode},
    response::Response,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    inbox::{Inbox, progress::ReplySlot},
    key::Key,
    outbound::{
        content::{EmailContent, RawAttachment, RawContent},
        digest::DigestField,
        email::{Email, EmailState},
    },
    problem::{Code, Problem},
    ttl::Ttl,
};
use mailonce_engine::{
    conversation::{
        reply::{ForwardRequest, ReplyOverrides, ReplyRequest, sender_name},
        threads::ThreadEntry,
    },
    outbound::{
        keyed_send::{ReplayComparison, SendRequest},
        send_receipt::SendReceipt,
    },
};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::{AgentMailResult, labels::check_labels};
use crate::{
    dialects::{
        MessageAction,
        agentmail::{
            errors,
            message_view::{self, AgentMailMessage},
            request::AgentMailRequest,
        },
        json as as_json, reject_different_payload, with_state_headers,
    },
    http::json::{OneOrMany, OrderedMap},
};

/// How long AgentMail remembers an idempotency key after a send.
const KEY_TTL: Ttl = Ttl(86_400_000);

/// An attachment of a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileBody {
    #[serde(default)]
    pub(super) filename: Option<String>,
    #[serde(default)]
    pub(super) content_type: Option<String>,
    #[serde(default)]
    content_disposition: Option<String>,
    #[serde(default)]
    pub(super) content_id: Option<String>,
    /// Base64.
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    url: Option<String>,
}

impl FileBody {
    /// Converts the attachment. mailonce never fetches content from a URL.
    pub(super) fn decode(self, index: usize) -> Result<RawAttachment, Problem> {
        let path = format!("attachments[{index}]");
        let invalid = |member: &str, text: &str| Problem::invalid_field(format!("{path}.{member}"), text);
        if self.url.is_some() {
            return Err(invalid("url", "is not fetched by mailonce; send the content as base64"));
        }
        if self
            .content_disposition
            .as_deref()
            .is_some_and(|disposition| !["inline", "attachment"].contains(&disposition))
        {
            return Err(invalid("content_disposition", "must be inline or attachment"));
        }
        let content = self.content.ok_or_else(|| invalid("content", "is missing"))?;
        let Self { filename, content_type, content_id, .. } = self;
        Ok(RawAttachment { filename, content, content_type, content_id })
    }
}

/// Converts all attachments of a request.
pub(super) fn decode_files(bodies: Option<Vec<FileBody>>) -> Result<Vec<RawAttachment>, Problem> {
    bodies.unwrap_or_default().into_iter().enumerate().map(|(index, file)| file.decode(index)).collect()
}

/// The body of a send, reply or forward.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SendMessageBody {
    labels: OneOrMany,
    reply_to: OneOrMany,
    to: OneOrMany,
    cc: OneOrMany,
    bcc: OneOrMany,
    subject: Option<String>,
    text: Option<String>,
    html: Option<String>,
    attachments: Option<Vec<FileBody>>,
    headers: Option<OrderedMap<String>>,
    track_opens: Option<bool>,
    reply_all: Option<bool>,
}

impl SendMessageBody {
    fn parse(call: &AgentMailRequest) -> Result<Self, Problem> {
        let mut body: Self = call.parse()?;
        // Typed clients send an empty text for a field that they do not use.
        for list in [&mut body.labels, &mut body.reply_to, &mut body.to, &mut body.cc, &mut body.bcc] {
            list.drop_empty();
        }
        body.subject = body.subject.filter(|subject| !subject.is_empty());
        if body.track_opens == Some(true) {
            return Err(Problem::invalid_field(
                "track_opens",
                "cannot be true: mailonce does not track who opens a mail",
            ));
        }
        check_labels(&body.labels.0, "labels")?;
        Ok(body)
    }

    /// Refuses fields that a route does not allow.
    fn reject_fields(&self, names: &[&str]) -> Result<(), Problem> {
        let present = [
            ("to", !self.to.0.is_empty()),
            ("cc", !self.cc.0.is_empty()),
            ("bcc", !self.bcc.0.is_empty()),
            ("subject", self.subject.is_some()),
            ("reply_all", self.reply_all.is_some()),
        ];
        match present.iter().find(|(name, present)| *present && names.contains(name)) {
            Some((name, _)) => Err(Problem::invalid_field(name, "is not allowed here: it is derived from the message")),
            None => Ok(()),
        }
    }

    fn take_reply_extras(&mut self) -> Result<ReplyOverrides, Problem> {
        Ok(ReplyOverrides {
            to: std::mem::take(&mut self.to.0),
            cc: std::mem::take(&mut self.cc.0),
            bcc: std::mem::take(&mut self.bcc.0),
            reply_to: std::mem::take(&mut self.reply_to.0),
            subject: None,
            html: None,
            headers: self.headers.take().unwrap_or_default().0,
            attachments: decode_files(self.attachments.take())?,
            scheduled_at: None,
            ttl: Some(KEY_TTL),
            refusal: None,
        })
    }
}

/// A send request from an inbox, with AgentMail's retention of the idempotency key.
pub(super) fn send_request(
    call: &AgentMailRequest,
    inbox: &Inbox,
    raw: RawContent,
    key: Option<Key>,
) -> Result<SendRequest, Problem> {
    let content = EmailContent::validate(RawContent { from: inbox.address.clone(), ..raw })?;
    let (sender_name, refusal) = (sender_name(inbox), paused_problem(call, inbox));
    Ok(SendRequest { ttl: Some(KEY_TTL), sender_name, refusal, ..SendRequest::new(content, key) })
}

/// The problem of a paused inbox, which may not send new emails; `None` if it is active.
pub(super) fn paused_problem(call: &AgentMailRequest, inbox: &Inbox) -> Option<Problem> {
    let paused = !inbox.is_open(call.engine.ctx.now());
    paused.then(|| Problem::new(Code::BlockedByRule, format!("the inbox {} is paused", inbox.address)))
}

/// `POST …/messages/send`.
pub(super) async fn send(call: &AgentMailRequest, inbox: &Inbox) -> AgentMailResult {
    call.caller.require_scope(ApiKeyScope::Send)?;
    let (raw, labels) = parse_send(call)?;
    let sent = call.engine.outbound.send(&call.caller, send_request(call, inbox, raw, call.key.clone())?).await?;
    respond(call, &sent, &labels).await
}

/// The email of a send request, and its labels.
fn parse_send(call: &AgentMailRequest) -> Result<(RawContent, Vec<String>), Problem> {
    let body = SendMessageBody::parse(call)?;
    body.reject_fields(&["reply_all"])?;
    let raw = RawContent {
        to: body.to.0,
        cc: body.cc.0,
        bcc: body.bcc.0,
        reply_to: body.reply_to.0,
        subject: body.subject.unwrap_or_default(),
        text: body.text,
        html: body.html,
        headers: body.headers.unwrap_or_default().0,
        attachments: decode_files(body.attachments)?,
        ..RawContent::default()
    };
    Ok((raw, body.labels.0))
}

/// Handles a send, reply or forward from a deleted inbox: only a replay of an earlier idempotency key succeeds.
pub(super) async fn replay_for_deleted_inbox(
    call: &AgentMailRequest,
    address: &str,
    rest: &[&str],
    missing: Problem,
) -> AgentMailResult {
    if missing.code != Code::NotFound || call.key.is_none() || !call.is_method(&Method::POST) {
        return Err(missing.into());
    }
    let from = address.to_ascii_lowercase();
    if let ["send"] = rest {
        call.caller.require_scope(ApiKeyScope::Send)?;
        let (raw, _) = parse_send(call)?;
        let content = EmailContent::validate(RawContent { from, ..raw }).map_err(|_faults| missing.clone())?;
        let request = SendRequest { refusal: Some(missing), ..SendRequest::new(content, call.key.clone()) };
        return respond(call, &call.engine.outbound.send(&call.caller, request).await?, &[]).await;
    }
    let fields: &[DigestField] = match rest.last() {
        Some(&("reply" | "reply-all")) => &[DigestField::From, DigestField::Text, DigestField::Html],
        Some(&"forward") => &[DigestField::From, DigestField::To, DigestField::Cc],
        _ => return Err(missing.into()),
    };
    call.caller.require_scope(ApiKeyScope::Reply)?;
    let body = SendMessageBody::parse(call)?;
    let content =
        RawContent { from, to: body.to.0, cc: body.cc.0, text: body.text, html: body.html, ..Default::default() };
    let sent = call
        .engine
        .conversations
        .replay_without_message(
            &call.caller,
            content,
            call.key.clone(),
            ReplayComparison { answers: None, fields },
            missing,
        )
        .await?;
    respond(call, &sent, &[]).await
}

/// The response to a send. An email that is held, unknown, failed or cancelled is never reported as a success; one that waits is.
pub(super) async fn respond(call: &AgentMailRequest, sent: &SendReceipt, labels: &[String]) -> AgentMailResult {
    call.engine.outbound.remember_message_id(call.caller.team.id, &sent.message_id, sent.id);
    if !labels.is_empty() {
        call.engine.inboxes.change_labels(&call.caller, sent.id.0, labels, &[]).await?;
    }
    let thread = sent.thread.map_or(sent.id.0, |thread| thread.0);
    Ok(with_state_headers([sent], sent_response(&sent.message_id, thread, sent.state)))
}

fn sent_response(message_id: &str, thread: Uuid, state: EmailState) -> Response {
    let thread = thread.to_string();
    errors::send_failure_response(message_id, &thread, state)
        .unwrap_or_else(|| as_json(StatusCode::OK, &json!({ "message_id": message_id, "thread_id": thread })))
}

/// The response to sending a draft that is already an email.
pub(super) fn draft_sent_response(call: &AgentMailRequest, email: &Email) -> Response {
    let thread = email.head.thread.map_or(email.id.0, |thread| thread.0);
    sent_response(&call.engine.outbound.cache_message_id(email), thread, email.state())
}

/// `POST …/messages/{id}/reply` and `…/reply-all`.
pub(super) async fn reply(call: &AgentMailRequest, inbox: &Inbox, name: &str, all: bool) -> AgentMailResult {
    call.caller.require_scope(ApiKeyScope::Reply)?;
    let mut body = SendMessageBody::parse(call)?;
    body.reject_fields(if all { &["to", "cc", "bcc", "subject", "reply_all"] } else { &["subject"] })?;
    let all = all || body.reply_all == Some(true);
    if all {
        body.reject_fields(&["to", "cc", "bcc"])?;
    }
    let request = ReplyRequest {
        text: body.text.take(),
        html: body.html.take(),
        reply_all: all,
        key: call.key.clone(),
        ..ReplyRequest::default()
    };
    let overrides = ReplyOverrides { refusal: paused_problem(call, inbox), ..body.take_reply_extras()? };
    let sent = reply_to(call, inbox, &message_view::find(call, inbox, name).await?, request, overrides).await?;
    respond(call, &sent, &body.labels.0).await
}

/// Replies to an email. A reply to a sent email is a follow-up to the same recipients.
pub(super) async fn reply_to(
    call: &AgentMailRequest,
    inbox: &Inbox,
    mail: &AgentMailMessage,
    mut request: ReplyRequest,
    overrides: ReplyOverrides,
) -> Result<SendReceipt, Problem> {
    let email = match &mail.entry {
        ThreadEntry::Message(message) => {
            return reject_different_payload(
                call.engine.conversations.reply_with(&call.caller, message.id, request, overrides).await?,
                MessageAction::Answered,
            );
        }
        ThreadEntry::Email(email) => email,
    };
    if let Some((message, number)) = reply_slot(call, email).await? {
        request.follow_up = number + 1;
        return reject_different_payload(
            call.engine.conversations.reply_with(&call.caller, message, request, overrides).await?,
            MessageAction::Answered,
        );
    }
    let [to, cc, _] = mail.recipients();
    let message_id = call.engine.outbound.cache_message_id(email);
    let threading = [("In-Reply-To", message_id.clone()), ("References", message_id)];
    let key = match request.key {
        Some(key) => key,
        // The key is derived from the email, so that a retry without a key is recognized.
        None => call.engine.ctx.derived_key(&call.caller, "follow", email.id.0, 0)?,
    };
    let raw = RawContent {
        to: if overrides.to.is_empty() { to } else { overrides.to },
        cc: if request.reply_all { cc } else { overrides.cc },
        bcc: overrides.bcc,
        reply_to: overrides.reply_to,
        subject: overrides
            .subject
            .unwrap_or_else(|| mailonce_engine::conversation::reply::default_reply_subject(&email.head.subject)),
        text: request.text,
        html: request.html,
        headers: overrides.headers.into_iter().chain(threading.map(|(name, id)| (name.to_owned(), id))).collect(),
        attachments: overrides.attachments,
        scheduled_at: overrides.scheduled_at,
        ..RawContent::default()
    };
    call.engine.outbound.send(&call.caller, send_request(call, inbox, raw, Some(key))?).await
}

/// The message that an email replies to, and the number of that reply.
async fn reply_slot(
    call: &AgentMailRequest,
    email: &Email,
) -> Result<Option<(mailonce_core::id::MessageId, u32)>, Problem> {
    let Some(id) = email.head.answers else { return Ok(None) };
    let message = call.engine.inboxes.message(&call.caller, id).await?;
    let slot = message.annotations.progress.answers.iter().find(|(_, answer)| *answer == email.id);
    Ok(match slot {
        Some((ReplySlot::Reply(number), _)) => Some((id, *number)),
        _ => None,
    })
}

/// `POST …/messages/{id}/forward`.
pub(super) async fn forward(call: &AgentMailRequest, inbox: &Inbox, name: &str) -> AgentMailResult {
    call.caller.require_scope(ApiKeyScope::Reply)?;
    let mut body = SendMessageBody::parse(call)?;
    body.reject_fields(&["reply_all"])?;
    let request = ForwardRequest { text: body.text.take(), key: call.key.clone(), ..ForwardRequest::default() };
    let (subject, html, refusal) = (body.subject.take(), body.html.take(), paused_problem(call, inbox));
    let overrides = ReplyOverrides { subject, html, refusal, ..body.take_reply_extras()? };
    let sent = forward_message(call, &message_view::find(call, inbox, name).await?, request, overrides).await?;
    respond(call, &sent, &body.labels.0).await
}

/// Forwards a received message.
pub(super) async fn forward_message(
    call: &AgentMailRequest,
    mail: &AgentMailMessage,
    request: ForwardRequest,
    overrides: ReplyOverrides,
) -> Result<SendReceipt, Problem> {
    let ThreadEntry::Message(message) = &mail.entry else {
        return Err(Problem::invalid_field("message_id", "names a sent email; only received emails can be forwarded"));
    };
    let request = ForwardRequest { to: overrides.to.clone(), cc: overrides.cc.clone(), ..request };
    reject_different_payload(
        call.engine.conversations.forward_with(&call.caller, message.id, request, overrides).await?,
        MessageAction::Forwarded,
    )
}
