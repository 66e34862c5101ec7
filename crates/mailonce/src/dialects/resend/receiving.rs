//! The Resend routes for received emails.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::MessageId,
    inbox::message::{Message, Party},
    problem::Problem,
};
use mailonce_engine::{
    conversation::links::LinkTarget,
    inbox::messages::{MessageView, RenderedBody},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::{
    DialectPath, DialectQuery, OnePathParam, PageParams, ResendDialect, ResendRequest, ResendResult,
    attachments::{download_url, file_id},
    json, list_response, parse_id,
};
use crate::{
    dialects::{
        field_problem,
        pagination::{MAX_SHORT_LIST, PagePosition, PageRequest, PageRows},
    },
    http::app::App,
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

/// A received email. Lists omit its content.
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

/// A sender or recipient as `Name <address>`.
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
        let file = |(number, info): (usize, &mailonce_core::inbox::message::AttachmentInfo)| FileBody {
            id: file_id(message.id.0, number).to_string(),
            filename: info.filename.clone(),
            size: info.size,
            content_type: info.content_type.clone(),
            content_id: info.content_id.clone(),
            content_disposition: if info.inline { "inline" } else { "attachment" },
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

/// A page of all messages that the team received.
async fn page(app: &App, auth: &ResendRequest, request: PageRequest) -> Result<PageRows<Message>, Problem> {
    let before = match request.position {
        PagePosition::First => None,
        PagePosition::After(cursor) => Some(MessageId(cursor)),
        PagePosition::Before(_) => {
            let all = app.engine.inboxes.team_messages(&auth.caller, None, MAX_SHORT_LIST).await?;
            return Ok(request.slice_in_order(all, |message| message.id.0));
        }
    };
    let mut rows = app.engine.inboxes.team_messages(&auth.caller, before, request.limit + 1).await?;
    let more = rows.len() > request.limit;
    rows.truncate(request.limit);
    Ok(PageRows { rows, has_more: more })
}

/// `GET /emails/receiving`.
pub(super) async fn list(
    State(app): State<App>,
    auth: ResendRequest,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let rows = page(&app, &auth, query.parse()?).await?;
    Ok(list_response(rows, |message| ReceivedEmailBody::from(&message)))
}

#[derive(Deserialize)]
pub(super) struct FormatQuery {
    html_format: Option<String>,
}

/// `GET /emails/receiving/{id}`. The HTML is sanitized: no scripts and no remote content. `raw` links to the original
/// bytes, and is present only if the key has the scope `secrets`.
pub(super) async fn read(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    DialectQuery(query, ..): DialectQuery<FormatQuery, ResendDialect>,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let message: MessageId = parse_id(&name)?;
    if query.html_format.as_deref().is_some_and(|format| format != "data_uri" && format != "cid") {
        return Err(field_problem("html_format", "The `html_format` must be `data_uri` or `cid`.").into());
    }
    let may_read_secrets = auth.caller.key.has_scope(ApiKeyScope::Secrets);
    let rendered = app
        .engine
        .inboxes
        .render_message(&auth.caller, message, if may_read_secrets { MessageView::Full } else { MessageView::Plain })
        .await?;
    let mut body = ReceivedEmailBody::from(&rendered.message);
    let mut content = ReceivedContentBody { object: "email", ..ReceivedContentBody::default() };
    match rendered.body {
        RenderedBody::Full { text, html, headers, .. } => {
            (content.text, content.html) = (text, html);
            content.headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        }
        RenderedBody::Plain { text } => content.text = Some(text),
        RenderedBody::Min { .. } | RenderedBody::Gone => {}
    }
    if may_read_secrets {
        let (download_url, expires_at) = download_url(&app, &auth, LinkTarget::Raw(message))?;
        content.raw = Some(RawDownloadBody { download_url, expires_at });
    }
    body.words = Some(content);
    Ok(json(StatusCode::OK, &body))
}
