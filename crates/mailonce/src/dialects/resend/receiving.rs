//! Mail that came in, in Resend's words.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    id::MessageId,
    message::{Message, Party},
    problem::Problem,
    team::Scope,
};
use mailonce_engine::{
    links::Linked,
    messages::{Body as MessageWords, View},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::{
    Answer, Guest, Named, One, Page, Queried, Resend,
    attachments::{file_id, url},
    id, json, list as listed,
    refuse::unfit,
};
use crate::{
    api::App,
    dialects::pages::{FEW, Place, Rows, Wish},
};

#[derive(Serialize)]
struct FileBody {
    id: String,
    filename: Option<String>,
    size: u64,
    content_type: String,
    content_id: Option<String>,
    content_disposition: &'static str,
}

#[derive(Serialize)]
struct RawBody {
    download_url: String,
    expires_at: String,
}

/// A received mail. Without its words in a list.
#[derive(Serialize)]
struct ReceivedBody {
    id: String,
    to: Vec<String>,
    from: String,
    created_at: String,
    subject: String,
    bcc: Vec<String>,
    cc: Vec<String>,
    reply_to: Vec<String>,
    received_for: Vec<String>,
    message_id: String,
    attachments: Vec<FileBody>,
    #[serde(flatten)]
    words: Option<Words>,
}

#[derive(Default, Serialize)]
struct Words {
    object: &'static str,
    html: Option<String>,
    text: Option<String>,
    headers: BTreeMap<String, String>,
    raw: Option<RawBody>,
}

/// Somebody as mails name them.
pub(super) fn written(party: &Party) -> String {
    match &party.name {
        Some(name) => format!("{name} <{}>", party.address),
        None => party.address.clone(),
    }
}

pub(super) fn all_written(parties: &[Party]) -> Vec<String> {
    parties.iter().map(written).collect()
}

impl From<&Message> for ReceivedBody {
    fn from(message: &Message) -> Self {
        let head = &message.head;
        let file = |(number, handle): (usize, &mailonce_core::message::Handle)| FileBody {
            id: file_id(message.id.0, number).to_string(),
            filename: handle.filename.clone(),
            size: handle.size,
            content_type: handle.content_type.clone(),
            content_id: handle.content_id.clone(),
            content_disposition: if handle.inline { "inline" } else { "attachment" },
        };
        Self {
            id: message.id.to_string(),
            to: all_written(&head.to),
            from: head.from.as_ref().map(written).unwrap_or_default(),
            created_at: message.received_at.to_string(),
            subject: head.subject.clone(),
            bcc: Vec::new(),
            cc: all_written(&head.cc),
            reply_to: all_written(&head.reply_to),
            received_for: vec![head.recipient.clone()],
            message_id: head.message_id.clone().unwrap_or_default(),
            attachments: head.attachments.iter().enumerate().map(file).collect(),
            words: None,
        }
    }
}

/// A page of everything that came in.
async fn page(app: &App, guest: &Guest, wish: Wish) -> Result<Rows<Message>, Problem> {
    let before = match wish.place {
        Place::First => None,
        Place::After(mark) => Some(MessageId(mark)),
        Place::Before(_) => {
            let all = app.engine.received(&guest.caller, None, FEW).await?;
            return Ok(wish.along(all, |message| message.id.0));
        }
    };
    let mut rows = app.engine.received(&guest.caller, before, wish.limit + 1).await?;
    let more = rows.len() > wish.limit;
    rows.truncate(wish.limit);
    Ok(Rows { rows, more })
}

/// `GET /emails/receiving`.
pub(super) async fn list(State(app): State<App>, guest: Guest, Queried(query, ..): Page) -> Answer {
    guest.caller.need(Scope::Read)?;
    let rows = page(&app, &guest, query.read()?).await?;
    Ok(listed(rows, |message| ReceivedBody::from(&message)))
}

#[derive(Deserialize)]
pub(super) struct FormatQuery {
    html_format: Option<String>,
}

/// `GET /emails/receiving/{id}`. HTML is shown without anything that acts or loads; the bytes as they came are behind
/// `raw`, for those who may see them.
pub(super) async fn read(
    State(app): State<App>,
    guest: Guest,
    Named(name, ..): One,
    Queried(query, ..): Queried<FormatQuery, Resend>,
) -> Answer {
    guest.caller.need(Scope::Read)?;
    let message: MessageId = id(&name)?;
    if query.html_format.as_deref().is_some_and(|word| word != "data_uri" && word != "cid") {
        return Err(unfit("html_format", "The `html_format` must be `data_uri` or `cid`.").into());
    }
    let secrets = guest.caller.key.may(Scope::Secrets);
    let shown = app.engine.show(&guest.caller, message, if secrets { View::Full } else { View::Plain }).await?;
    let mut body = ReceivedBody::from(&shown.message);
    let mut words = Words { object: "email", ..Words::default() };
    match shown.body {
        MessageWords::Full { text, html, headers, .. } => {
            (words.text, words.html) = (text, html);
            words.headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        }
        MessageWords::Plain { text } => words.text = Some(text),
        MessageWords::Min { .. } | MessageWords::Gone => {}
    }
    if secrets {
        let (download_url, expires_at) = url(&app, &guest, Linked::Raw(message))?;
        words.raw = Some(RawBody { download_url, expires_at });
    }
    body.words = Some(words);
    Ok(json(StatusCode::OK, &body))
}
