//! Sends in Resend's words, one by one and in batches.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
};
use mailonce_core::{
    content::{Content, RawContent},
    key::Key,
    problem::Problem,
    team::Scope,
    ttl::Ttl,
};
use mailonce_engine::send::SendRequest;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{
    Answer, Body, Guest, Resend, json,
    refuse::{self, FILE, message, missing, unfit},
};
use crate::{
    api::{
        App,
        door::parse,
        wire::{OneOrMany, Pairs},
    },
    dialects::{files::File, no_success, no_successes, of_batch, told, with_news},
};

/// Items of a batch at the most.
const BATCH_ITEMS: usize = 100;
/// Tags of a mail at the most.
const TAGS: usize = 75;
/// Characters of a tag's name, and of its value.
const TAG_CHARS: usize = 256;
/// How long the contract remembers a key.
const MEMORY: Ttl = Ttl(86_400_000);

#[derive(Deserialize)]
struct Tag {
    name: String,
    value: String,
}

impl Tag {
    fn is_fit(&self) -> bool {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !self.name.is_empty() && [&self.name, &self.value].iter().all(|text| text.chars().all(fits))
    }

    fn is_long(&self) -> bool {
        self.name.len() > TAG_CHARS || self.value.len() > TAG_CHARS
    }
}

/// A mail, as the SDKs word it.
#[derive(Deserialize)]
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
    #[serde(default)]
    html: Option<String>,
    #[serde(default)]
    headers: Option<Pairs<String>>,
    #[serde(default)]
    attachments: Option<Vec<File>>,
    #[serde(default)]
    tags: Option<Vec<Tag>>,
    #[serde(default)]
    scheduled_at: Option<String>,
    #[serde(default)]
    template: Option<IgnoredAny>,
    #[serde(default)]
    topic_id: Option<IgnoredAny>,
}

impl SendBody {
    /// The engine's form of it.
    fn request(self, key: Option<Key>) -> Result<SendRequest, Problem> {
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
            headers: self.headers.unwrap_or_default().0,
            attachments: self.attachments.unwrap_or_default().into_iter().filter_map(File::raw).collect(),
            tags: self.tags.unwrap_or_default().into_iter().map(|tag| (tag.name, Some(tag.value))).collect(),
            metadata: Vec::new(),
            scheduled_at: self.scheduled_at,
        };
        let content = Content::check(raw).map_err(Problem::from).map_err(at_file)?;
        Ok(SendRequest { ttl: Some(MEMORY), ..SendRequest::plain(content, key) })
    }

    /// What must be there, and what is not to be had here.
    fn check(&self) -> Result<(), Problem> {
        if self.template.is_some() {
            return Err(unfit("template", "Templates are not available here; send `html` or `text`."));
        }
        if self.topic_id.is_some() {
            return Err(unfit("topic_id", "Topics are not available here; leave `topic_id` out."));
        }
        let absent = [("from", self.from.is_none()), ("to", self.to.0.is_empty()), ("subject", self.subject.is_none())];
        if let Some((field, _)) = absent.into_iter().find(|(_, absent)| *absent) {
            return Err(missing(field));
        }
        if self.text.is_none() && self.html.is_none() {
            return Err(missing("html` or `text"));
        }
        self.check_tags()?;
        let files = self.attachments.iter().flatten();
        match files.enumerate().find(|(_, file)| file.content.is_none()) {
            Some((n, file)) if file.path.is_some() => Err(at_file(unfit(
                &format!("attachments[{n}].path"),
                "Attachments are not fetched from a `path` here; send their `content`.",
            ))),
            Some((n, _)) => {
                Err(at_file(unfit(&format!("attachments[{n}]"), "Attachment must have either a `content` or `path`.")))
            }
            None => Ok(()),
        }
    }

    /// Tags have the letters that the contract allows, said in its sentence.
    fn check_tags(&self) -> Result<(), Problem> {
        let tags = self.tags.as_deref().unwrap_or_default();
        if tags.len() > TAGS {
            return Err(unfit("tags", format!("An email can have at most {TAGS} tags.")));
        }
        if !tags.iter().all(Tag::is_fit) {
            let text = "Tags should only contain ASCII letters, numbers, underscores, or dashes.";
            return Err(unfit("tags", text));
        }
        if tags.iter().any(Tag::is_long) {
            return Err(unfit("tags", format!("Tags can contain no more than {TAG_CHARS} characters.")));
        }
        Ok(())
    }
}

/// Says of a problem with a file that it is one.
fn at_file(problem: Problem) -> Problem {
    let of_file = problem.field.as_deref().is_some_and(|field| field.starts_with("attachments"));
    if of_file { problem.with(FILE, true) } else { problem }
}

#[derive(Serialize)]
struct SentBody {
    id: String,
}

/// `POST /emails`.
pub(super) async fn send(State(app): State<App>, guest: Guest, body: Body) -> Answer {
    guest.caller.need(Scope::Send)?;
    let request = body.parse::<SendBody>()?.request(guest.key)?;
    drop(body);
    let sent = app.engine.send(&guest.caller, request).await?;
    Ok(told::<Resend>(&sent, || json(StatusCode::OK, &SentBody { id: sent.id.to_string() })))
}

#[derive(Serialize)]
struct BatchError {
    index: usize,
    message: String,
}

#[derive(Serialize)]
struct BatchBody {
    data: Vec<SentBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<BatchError>>,
}

/// `POST /emails/batch`.
pub(super) async fn batch(State(app): State<App>, guest: Guest, headers: HeaderMap, body: Body) -> Answer {
    guest.caller.need(Scope::Send)?;
    let strict = is_strict(&headers)?;
    let values = body.items()?;
    if values.is_empty() || values.len() > BATCH_ITEMS {
        let message = format!("A batch holds 1 to {BATCH_ITEMS} emails, this one {}.", values.len());
        return Err(unfit("", message).into());
    }
    let item = |value: &&serde_json::value::RawValue| parse::<SendBody>(value.get().as_bytes())?.request(None);
    let items = values.iter().map(item).collect();
    drop(body);
    let mut answer = app.engine.send_batch(&guest.caller, guest.key, items, strict).await?;
    let sent: Vec<_> = answer.items.iter().flatten().collect();
    // What does not go is no success: an item's fault where those are told, else the batch's.
    answer.faults.extend(no_successes(&answer.items));
    answer.faults.sort_by_key(|(index, _)| *index);
    if let Some(fault) = answer.faults.first().filter(|_| strict) {
        return Ok(with_news(sent, refuse::refused(&of_batch(fault.clone()))));
    }
    let sure = sent.iter().filter(|one| no_success(one).is_none());
    let data = sure.map(|one| SentBody { id: one.id.to_string() }).collect();
    let told = |(index, problem): &(usize, Problem)| BatchError { index: *index, message: message(problem) };
    let errors = (!strict).then(|| answer.faults.iter().map(told).collect());
    Ok(with_news(sent, json(StatusCode::OK, &BatchBody { data, errors })))
}

fn is_strict(headers: &HeaderMap) -> Result<bool, Problem> {
    match headers.get("x-batch-validation").map(|value| value.to_str().unwrap_or_default()) {
        None | Some("strict") => Ok(true),
        Some("permissive") => Ok(false),
        Some(_) => {
            Err(refuse::unfit("x-batch-validation", "The `x-batch-validation` must be `strict` or `permissive`."))
        }
    }
}
