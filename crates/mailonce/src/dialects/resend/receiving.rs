//! Mail that came in, in Resend's words.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::MessageId,
    inbox::message::{Message, Party},
    problem::Problem,
};
use mailonce_engine::inbox::{
    links::LinkTarget,
    messages::{MessageView, RenderedBody as MessageWords},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::{
    DialectPath, DialectQuery, OnePathParam, PageParams, Resend, ResendRequest, ResendResult,
    attachments::{download_url, file_id},
    json, list_response as listed, parse_id,
};
use crate::dialects::resend::errors::unsupported_field;
use crate::{
    api::App,
    dialects::pagination::{MAX_SHORT_LIST, PagePosition, PageRequest, PageRows},
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
struct RawDownloadBody {
    download_url: String,
    expires_at: String,
}

/// A received mail. Without its words in a list.
#[derive(Serialize)]
struct ReceivedEmailBody {
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
    words: Option<ReceivedContentBody>,
}

#[derive(Default, Serialize)]
struct ReceivedContentBody {
    object: &'static str,
    html: Option<String>,
    text: Option<String>,
    headers: BTreeMap<String, String>,
    raw: Option<RawDownloadBody>,
}

/// Somebody as mails name them.
pub(super) fn format_party(party: &Party) -> String {
    match &party.name {
        Some(name) => format!("{name} <{}>", party.address),
        None => party.address.clone(),
    }
}

pub(super) fn format_parties(parties: &[Party]) -> Vec<String> {
    parties.iter().map(format_party).collect()
}

impl From<&Message> for ReceivedEmailBody {
    fn from(message: &Message) -> Self {
        let head = &message.head;
        let file = |(number, handle): (usize, &mailonce_core::inbox::message::AttachmentInfo)| FileBody {
            id: file_id(message.id.0, number).to_string(),
            filename: handle.filename.clone(),
            size: handle.size,
            content_type: handle.content_type.clone(),
            content_id: handle.content_id.clone(),
            content_disposition: if handle.inline { "inline" } else { "attachment" },
        };
        Self {
            id: message.id.to_string(),
            to: format_parties(&head.to),
            from: head.from.as_ref().map(format_party).unwrap_or_default(),
            created_at: message.received_at.to_string(),
            subject: head.subject.clone(),
            bcc: Vec::new(),
            cc: format_parties(&head.cc),
            reply_to: format_parties(&head.reply_to),
            received_for: vec![head.recipient.clone()],
            message_id: head.message_id.clone().unwrap_or_default(),
            attachments: head.attachments.iter().enumerate().map(file).collect(),
            words: None,
        }
    }
}

/// A page of everything that came in.
async fn page(app: &App, guest: &ResendRequest, wish: PageRequest) -> Result<PageRows<Message>, Problem> {
    let before = match wish.position {
        PagePosition::First => None,
        PagePosition::After(mark) => Some(MessageId(mark)),
        PagePosition::Before(_) => {
            let all = app.engine.team_messages(&guest.caller, None, MAX_SHORT_LIST).await?;
            return Ok(wish.slice_in_order(all, |message| message.id.0));
        }
    };
    let mut rows = app.engine.team_messages(&guest.caller, before, wish.limit + 1).await?;
    let more = rows.len() > wish.limit;
    rows.truncate(wish.limit);
    Ok(PageRows { rows, has_more: more })
}

/// `GET /emails/receiving`.
pub(super) async fn list(
    State(app): State<App>,
    guest: ResendRequest,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    guest.caller.require_scope(ApiKeyScope::Read)?;
    let rows = page(&app, &guest, query.parse()?).await?;
    Ok(listed(rows, |message| ReceivedEmailBody::from(&message)))
}

#[derive(Deserialize)]
pub(super) struct FormatQuery {
    html_format: Option<String>,
}

/// `GET /emails/receiving/{id}`. HTML is shown without anything that acts or loads; the bytes as they came are behind
/// `raw`, for those who may see them.
pub(super) async fn read(
    State(app): State<App>,
    guest: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    DialectQuery(query, ..): DialectQuery<FormatQuery, Resend>,
) -> ResendResult {
    guest.caller.require_scope(ApiKeyScope::Read)?;
    let message: MessageId = parse_id(&name)?;
    if query.html_format.as_deref().is_some_and(|word| word != "data_uri" && word != "cid") {
        return Err(unsupported_field("html_format", "The `html_format` must be `data_uri` or `cid`.").into());
    }
    let secrets = guest.caller.key.has_scope(ApiKeyScope::Secrets);
    let shown = app
        .engine
        .render_message(&guest.caller, message, if secrets { MessageView::Full } else { MessageView::Plain })
        .await?;
    let mut body = ReceivedEmailBody::from(&shown.message);
    let mut words = ReceivedContentBody { object: "email", ..ReceivedContentBody::default() };
    match shown.body {
        MessageWords::Full { text, html, headers, .. } => {
            (words.text, words.html) = (text, html);
            words.headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        }
        MessageWords::Plain { text } => words.text = Some(text),
        MessageWords::Min { .. } | MessageWords::Gone => {}
    }
    if secrets {
        let (download_url, expires_at) = download_url(&app, &guest, LinkTarget::Raw(message))?;
        words.raw = Some(RawDownloadBody { download_url, expires_at });
    }
    body.words = Some(words);
    Ok(json(StatusCode::OK, &body))
}
