//! Sending, answering and passing on: each becomes one email, and a repeat gets the first one's answer.

use axum::{
    http::{Method, StatusCode},
    response::Response,
};
use mailonce_core::{
    content::{Content, RawAttachment, RawContent},
    conversation::turn::Slot,
    digest::Field,
    email::{Email, EmailState},
    inbox::Inbox,
    key::Key,
    problem::{Code, FieldError, Problem},
    team::Scope,
    ttl::Ttl,
};
use mailonce_engine::{
    reply::{AnswerMore, ForwardRequest, ReplyRequest, sender_name},
    send::SendRequest,
    threads::Said,
    view::Sent,
};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::{
    Answer,
    door::Call,
    faults,
    labels::check_labels,
    mail::{self, Mail},
};
use crate::{
    api::wire::{OneOrMany, Pairs},
    dialects::{Deed, json as as_json, stands, with_news},
};

/// How long AgentMail remembers a key after a send is done.
const MEMORY: Ttl = Ttl(86_400_000);

/// A file that goes with a mail.
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
    /// The file with its content. Nothing is ever fetched from an address.
    pub(super) fn raw(self, index: usize) -> Result<RawAttachment, Problem> {
        let path = format!("attachments[{index}]");
        let fault = |member: &str, text: &str| Problem::from(vec![FieldError::new(&format!("{path}.{member}"), text)]);
        if self.url.is_some() {
            return Err(fault("url", "is not fetched by mailonce; give the content as base64"));
        }
        if self.content_disposition.as_deref().is_some_and(|word| !["inline", "attachment"].contains(&word)) {
            return Err(fault("content_disposition", "must be inline or attachment"));
        }
        let content = self.content.ok_or_else(|| fault("content", "is missing"))?;
        let Self { filename, content_type, content_id, .. } = self;
        Ok(RawAttachment { filename, content, content_type, content_id })
    }
}

/// Files with their contents.
pub(super) fn files(bodies: Option<Vec<FileBody>>) -> Result<Vec<RawAttachment>, Problem> {
    bodies.unwrap_or_default().into_iter().enumerate().map(|(index, file)| file.raw(index)).collect()
}

/// A mail to send, an answer, or words before a mail that is passed on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MailBody {
    labels: OneOrMany,
    reply_to: OneOrMany,
    to: OneOrMany,
    cc: OneOrMany,
    bcc: OneOrMany,
    subject: Option<String>,
    text: Option<String>,
    html: Option<String>,
    attachments: Option<Vec<FileBody>>,
    headers: Option<Pairs<String>>,
    track_opens: Option<bool>,
    reply_all: Option<bool>,
}

fn fault(path: &str, text: &str) -> Problem {
    Problem::from(vec![FieldError::new(path, text)])
}

impl MailBody {
    fn read(call: &Call) -> Result<Self, Problem> {
        let body: Self = call.parse()?;
        if body.track_opens == Some(true) {
            return Err(fault("track_opens", "cannot be true: mailonce does not track who opens a mail"));
        }
        check_labels(&body.labels.0, "labels")?;
        Ok(body)
    }

    /// Refuses what a route has no place for.
    fn without(&self, names: &[&str]) -> Result<(), Problem> {
        let given = [
            ("to", !self.to.0.is_empty()),
            ("cc", !self.cc.0.is_empty()),
            ("bcc", !self.bcc.0.is_empty()),
            ("subject", self.subject.is_some()),
            ("reply_all", self.reply_all.is_some()),
        ];
        match given.iter().find(|(name, given)| *given && names.contains(name)) {
            Some((name, _)) => Err(fault(name, "has no place here: it follows from the message")),
            None => Ok(()),
        }
    }

    fn more(&mut self) -> Result<AnswerMore, Problem> {
        Ok(AnswerMore {
            to: std::mem::take(&mut self.to.0),
            cc: std::mem::take(&mut self.cc.0),
            bcc: std::mem::take(&mut self.bcc.0),
            reply_to: std::mem::take(&mut self.reply_to.0),
            subject: None,
            html: None,
            headers: self.headers.take().unwrap_or_default().0,
            attachments: files(self.attachments.take())?,
            scheduled_at: None,
            ttl: Some(MEMORY),
            stopped: None,
        })
    }
}

/// A mail of an inbox under a key, remembered as AgentMail does.
pub(super) fn request(call: &Call, inbox: &Inbox, raw: RawContent, key: Option<Key>) -> Result<SendRequest, Problem> {
    let content = Content::check(RawContent { from: inbox.address.clone(), ..raw })?;
    let (sender_name, stopped) = (sender_name(inbox), stopped(call, inbox));
    Ok(SendRequest { ttl: Some(MEMORY), sender_name, stopped, ..SendRequest::plain(content, key) })
}

/// Why an inbox says nothing new: it rests.
pub(super) fn stopped(call: &Call, inbox: &Inbox) -> Option<Problem> {
    let rests = !inbox.is_open(call.engine.now());
    rests.then(|| Problem::new(Code::BlockedByRule, format!("the inbox {} is paused", inbox.address)))
}

/// `POST …/messages/send`.
pub(super) async fn send(call: &Call, inbox: &Inbox) -> Answer {
    call.caller.need(Scope::Send)?;
    let (raw, labels) = mail_to_send(call)?;
    let sent = call.engine.send(&call.caller, request(call, inbox, raw, call.key.clone())?).await?;
    answered(call, &sent, &labels).await
}

/// The mail of a call, and the labels that it is to have.
fn mail_to_send(call: &Call) -> Result<(RawContent, Vec<String>), Problem> {
    let body = MailBody::read(call)?;
    body.without(&["reply_all"])?;
    let raw = RawContent {
        to: body.to.0,
        cc: body.cc.0,
        bcc: body.bcc.0,
        reply_to: body.reply_to.0,
        subject: body.subject.unwrap_or_default(),
        text: body.text,
        html: body.html,
        headers: body.headers.unwrap_or_default().0,
        attachments: files(body.attachments)?,
        ..RawContent::default()
    };
    Ok((raw, body.labels.0))
}

/// What an inbox that is gone is asked to say. Only what it said before under the key is told again.
pub(super) async fn from_gone(call: &Call, address: &str, rest: &[&str], missing: Problem) -> Answer {
    if missing.code != Code::NotFound || call.key.is_none() || !call.is(&Method::POST) {
        return Err(missing.into());
    }
    let from = address.to_ascii_lowercase();
    if let ["send"] = rest {
        call.caller.need(Scope::Send)?;
        let (raw, _) = mail_to_send(call)?;
        let content = Content::check(RawContent { from, ..raw }).map_err(|_faults| missing.clone())?;
        let request = SendRequest { stopped: Some(missing), ..SendRequest::plain(content, call.key.clone()) };
        return answered(call, &call.engine.send(&call.caller, request).await?, &[]).await;
    }
    let fields: &[Field] = match rest.last() {
        Some(&("reply" | "reply-all")) => &[Field::From, Field::Text, Field::Html],
        Some(&"forward") => &[Field::From, Field::To, Field::Cc],
        _ => return Err(missing.into()),
    };
    call.caller.need(Scope::Reply)?;
    let body = MailBody::read(call)?;
    let words =
        RawContent { from, to: body.to.0, cc: body.cc.0, text: body.text, html: body.html, ..Default::default() };
    let sent = call.engine.kept(&call.caller, (words, call.key.clone()), (None, fields), missing).await?;
    answered(call, &sent, &[]).await
}

/// What the caller of a send is told. What does not go is never told as a success.
pub(super) async fn answered(call: &Call, sent: &Sent, labels: &[String]) -> Answer {
    call.engine.note_message_id(call.caller.team.id, &sent.message_id, sent.id);
    if !labels.is_empty() {
        call.engine.relabel(&call.caller, sent.id.0, labels, &[]).await?;
    }
    let thread = sent.thread.map_or(sent.id.0, |thread| thread.0);
    Ok(with_news([sent], told((&sent.message_id, thread), sent.state)))
}

fn told((message_id, thread): (&str, Uuid), state: EmailState) -> Response {
    let thread = thread.to_string();
    faults::rejected((message_id, &thread), state)
        .unwrap_or_else(|| as_json(StatusCode::OK, &json!({ "message_id": message_id, "thread_id": thread })))
}

/// What whoever sends a draft is told that became an email before.
pub(super) fn became(call: &Call, email: &Email) -> Response {
    let thread = email.head.thread.map_or(email.id.0, |thread| thread.0);
    told((&call.engine.known_message_id(email), thread), email.state())
}

/// `POST …/messages/{id}/reply` and `…/reply-all`.
pub(super) async fn reply(call: &Call, inbox: &Inbox, name: &str, all: bool) -> Answer {
    call.caller.need(Scope::Reply)?;
    let mut body = MailBody::read(call)?;
    body.without(if all { &["to", "cc", "bcc", "subject", "reply_all"] } else { &["subject"] })?;
    let all = all || body.reply_all == Some(true);
    if all {
        body.without(&["to", "cc", "bcc"])?;
    }
    let answer = ReplyRequest {
        text: body.text.take(),
        html: body.html.take(),
        reply_all: all,
        key: call.key.clone(),
        ..ReplyRequest::default()
    };
    let more = AnswerMore { stopped: stopped(call, inbox), ..body.more()? };
    let sent = reply_to(call, inbox, &mail::find(call, inbox, name).await?, answer, more).await?;
    answered(call, &sent, &body.labels.0).await
}

/// Answers a mail. What answers a mail of ours is the next thing said to the same people.
pub(super) async fn reply_to(
    call: &Call,
    inbox: &Inbox,
    mail: &Mail,
    mut answer: ReplyRequest,
    more: AnswerMore,
) -> Result<Sent, Problem> {
    let email = match &mail.said {
        Said::Message(message) => {
            return stands(call.engine.reply_with(&call.caller, message.id, answer, more).await?, Deed::Answered);
        }
        Said::Email(email) => email,
    };
    if let Some((message, number)) = slot_of(call, email).await? {
        answer.follow_up = number + 1;
        return stands(call.engine.reply_with(&call.caller, message, answer, more).await?, Deed::Answered);
    }
    let [to, cc, _] = mail.people();
    let message_id = call.engine.known_message_id(email);
    let threading = [("In-Reply-To", message_id.clone()), ("References", message_id)];
    let key = match answer.key {
        Some(key) => key,
        // An answer is named by what it answers, so that a repeat is known without a key.
        None => call.engine.own_key(&call.caller, "follow", email.id.0, 0)?,
    };
    let raw = RawContent {
        to: if more.to.is_empty() { to } else { more.to },
        cc: if answer.reply_all { cc } else { more.cc },
        bcc: more.bcc,
        reply_to: more.reply_to,
        subject: more.subject.unwrap_or_else(|| mailonce_engine::reply::subject_of_answer(&email.head.subject)),
        text: answer.text,
        html: answer.html,
        headers: more.headers.into_iter().chain(threading.map(|(name, id)| (name.to_owned(), id))).collect(),
        attachments: more.attachments,
        scheduled_at: more.scheduled_at,
        ..RawContent::default()
    };
    call.engine.send(&call.caller, request(call, inbox, raw, Some(key))?).await
}

/// The message that an email answers, and which answer to it the email is.
async fn slot_of(call: &Call, email: &Email) -> Result<Option<(mailonce_core::id::MessageId, u32)>, Problem> {
    let Some(id) = email.head.answers else { return Ok(None) };
    let message = call.engine.message(&call.caller, id).await?;
    let slot = message.marks.turn.answers.iter().find(|(_, answer)| *answer == email.id);
    Ok(match slot {
        Some((Slot::Reply(number), _)) => Some((id, *number)),
        _ => None,
    })
}

/// `POST …/messages/{id}/forward`.
pub(super) async fn forward(call: &Call, inbox: &Inbox, name: &str) -> Answer {
    call.caller.need(Scope::Reply)?;
    let mut body = MailBody::read(call)?;
    body.without(&["reply_all"])?;
    let request = ForwardRequest { text: body.text.take(), key: call.key.clone(), ..ForwardRequest::default() };
    let (subject, html, stopped) = (body.subject.take(), body.html.take(), stopped(call, inbox));
    let more = AnswerMore { subject, html, stopped, ..body.more()? };
    let sent = pass_on(call, &mail::find(call, inbox, name).await?, request, more).await?;
    answered(call, &sent, &body.labels.0).await
}

/// Passes a received mail on.
pub(super) async fn pass_on(
    call: &Call,
    mail: &Mail,
    request: ForwardRequest,
    more: AnswerMore,
) -> Result<Sent, Problem> {
    let Said::Message(message) = &mail.said else {
        return Err(fault("message_id", "names a mail of your own; only received mails are passed on"));
    };
    let request = ForwardRequest { to: more.to.clone(), cc: more.cc.clone(), ..request };
    stands(call.engine.forward_with(&call.caller, message.id, request, more).await?, Deed::Forwarded)
}
