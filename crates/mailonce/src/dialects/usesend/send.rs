//! Sends in useSend's words, one by one and in batches.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    address::Mailbox,
    content::{Content, RawContent},
    key::Key,
    problem::{Code, Problem},
    team::Scope,
    time::Time,
    ttl::Ttl,
};
use mailonce_engine::{Caller, Engine, send::SendRequest};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};

use super::{
    Answer, Body, Guest, Usesend, json,
    refuse::{bad, refused},
};
use crate::{
    api::{
        App,
        door::parse,
        wire::{OneOrMany, Pairs},
    },
    dialects::{files::File, no_successes, of_batch, told, with_news},
};

/// Items of a batch at the most.
const BATCH_ITEMS: usize = 100;
/// Files of a mail at the most.
const FILES: usize = 10;
/// How long the contract remembers a key.
const MEMORY: Ttl = Ttl(86_400_000);

/// A mail, as the SDKs word it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SendBody {
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    to: OneOrMany,
    #[serde(default)]
    cc: OneOrMany,
    #[serde(default)]
    bcc: OneOrMany,
    #[serde(default)]
    reply_to: OneOrMany,
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default, deserialize_with = "html")]
    html: Option<String>,
    #[serde(default)]
    headers: Option<Pairs<String>>,
    #[serde(default)]
    attachments: Option<Vec<File>>,
    #[serde(default)]
    scheduled_at: Option<String>,
    #[serde(default)]
    template_id: Option<IgnoredAny>,
    #[serde(default)]
    in_reply_to_id: Option<String>,
}

/// Whatever it is, as text. The words `true` and `false` mean that there is none, as there.
fn html<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = match Value::deserialize(from)? {
        Value::Null => return Ok(None),
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(Some(text).filter(|text| text != "true" && text != "false"))
}

impl SendBody {
    /// The engine's form of it.
    async fn request(self, engine: &Engine, caller: &Caller, key: Option<Key>) -> Result<SendRequest, Problem> {
        let headers = self.headers(engine, caller).await?;
        self.check()?;
        let raw = RawContent {
            from: self.from.unwrap_or_default(),
            to: self.to.0,
            cc: self.cc.0,
            bcc: self.bcc.0,
            reply_to: self.reply_to.0,
            subject: self.subject.unwrap_or_default(),
            text: self.text,
            html: self.html,
            headers,
            attachments: self.attachments.unwrap_or_default().into_iter().filter_map(File::raw).collect(),
            tags: Vec::new(),
            metadata: Vec::new(),
            scheduled_at: self.scheduled_at,
        };
        let content = Content::check(raw)?;
        Ok(SendRequest { ttl: Some(MEMORY), ..SendRequest::plain(content, key) })
    }

    fn check(&self) -> Result<(), Problem> {
        if self.template_id.is_some() {
            return Err(bad("templateId", "templateId is not available here; send text or html"));
        }
        let from = self.from.as_deref().ok_or_else(|| bad("from", "from is required"))?;
        Mailbox::parse(from).map_err(|_wrong| bad("from", "From email is invalid"))?;
        if self.to.0.is_empty() {
            return Err(bad("to", "to is required"));
        }
        if self.subject.as_deref().unwrap_or_default().is_empty() {
            return Err(bad("subject", "Either subject or templateId is required"));
        }
        if self.text.as_deref().unwrap_or_default().is_empty() && self.html.as_deref().unwrap_or_default().is_empty() {
            return Err(bad("text", "Either text or html is required"));
        }
        if self.scheduled_at.as_deref().is_some_and(|at| Time::parse(at).is_none()) {
            return Err(bad("scheduledAt", "scheduledAt is an ISO 8601 time with an offset"));
        }
        let files = self.attachments.as_deref().unwrap_or_default();
        if files.len() > FILES {
            return Err(bad("attachments", format!("attachments holds more than {FILES} files")));
        }
        match files.iter().position(|file| file.content.is_none()) {
            Some(n) => Err(bad("attachments", format!("attachments[{n}].content is required"))),
            None => Ok(()),
        }
    }

    /// The caller's headers, without those that the dialect drops, and with those that name what is answered.
    async fn headers(&self, engine: &Engine, caller: &Caller) -> Result<Vec<(String, String)>, Problem> {
        let dropped = |(name, value): &(String, String)| {
            value.contains(['\r', '\n']) || name.eq_ignore_ascii_case("x-usesend-email-id")
        };
        let given = self.headers.iter().flat_map(|pairs| &pairs.0).filter(|pair| !dropped(pair));
        let mut headers: Vec<(String, String)> = given.cloned().collect();
        let Some(answered) = &self.in_reply_to_id else { return Ok(headers) };
        let invalid = || bad("inReplyToId", "\"inReplyTo\" is invalid");
        let id = answered.parse().map_err(|_not_an_id| invalid())?;
        let email = match engine.email(caller, id).await {
            Ok(email) => email,
            Err(problem) if problem.code == Code::NotFound => return Err(invalid()),
            Err(problem) => return Err(problem),
        };
        let message_id = engine.message_id(&email);
        headers.push(("In-Reply-To".to_owned(), message_id.clone()));
        headers.push(("References".to_owned(), message_id));
        Ok(headers)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SentBody {
    pub(super) email_id: String,
}

/// Says which domain a sender may not use, in the dialect's sentences.
fn of_sender(problem: Problem) -> Problem {
    let domain = || problem.detail.split(' ').find_map(|word| word.split_once('@')).map_or("", |(_, domain)| domain);
    match problem.code {
        Code::SenderNotVerified => {
            let detail = format!("Domain: {} of from email is wrong. Use the domain verified by useSend", domain());
            Problem::field(problem.code, "from", detail)
        }
        Code::SenderNotAllowed => {
            let detail = format!("API key does not have access to domain: {}", domain());
            Problem::field(problem.code, "from", detail)
        }
        _ => problem,
    }
}

/// `POST /emails`.
pub(super) async fn send(State(app): State<App>, guest: Guest, body: Body) -> Answer {
    guest.caller.need(Scope::Send)?;
    let read = body.parse::<SendBody>()?;
    drop(body);
    let request = read.request(&app.engine, &guest.caller, guest.key).await?;
    let sent = app.engine.send(&guest.caller, request).await.map_err(of_sender)?;
    Ok(told::<Usesend>(&sent, || json(StatusCode::OK, &SentBody { email_id: sent.id.to_string() })))
}

#[derive(Serialize)]
struct BatchBody {
    data: Vec<SentBody>,
}

/// `POST /emails/batch`. All or none: the answer never has fewer ids than there were mails.
pub(super) async fn batch(State(app): State<App>, guest: Guest, body: Body) -> Answer {
    guest.caller.need(Scope::Send)?;
    let values: Vec<&RawValue> = body.items()?;
    if values.is_empty() {
        return Err(bad("", "No emails provided for bulk send").into());
    }
    if values.len() > BATCH_ITEMS {
        return Err(bad("", format!("Array must contain at most {BATCH_ITEMS} element(s)")).into());
    }
    let mut items = Vec::with_capacity(values.len());
    for value in values {
        let item = match parse::<SendBody>(value.get().as_bytes()) {
            Ok(read) => read.request(&app.engine, &guest.caller, None).await,
            Err(problem) => Err(problem),
        };
        items.push(item);
    }
    drop(body);
    let mut answer = app.engine.send_batch(&guest.caller, guest.key, items, true).await.map_err(of_sender)?;
    if !answer.faults.is_empty() {
        return Err(answer.faults.remove(0).1.into());
    }
    let sent: Vec<_> = answer.items.iter().flatten().collect();
    if let Some(fault) = no_successes(&answer.items).into_iter().next() {
        return Ok(with_news(sent, refused(&of_batch(fault))));
    }
    let data = sent.iter().map(|one| SentBody { email_id: one.id.to_string() }).collect();
    Ok(with_news(sent, json(StatusCode::OK, &BatchBody { data })))
}
