//! The Resend routes for attachments of sent and received emails. Download links work without a credential.

use axum::{
    extract::{Path, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::{EmailId, MessageId},
    inbox::message::AttachmentInfo,
    outbound::content::Attachment,
    problem::{Code, Problem},
};
use mailonce_engine::conversation::links::{LinkTarget, attachment_media_type};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{
    DialectError, DialectPath, DialectQuery, OnePathParam, PageParams, ResendDialect, ResendRequest, ResendResult,
    TwoPathSegments, json, list_response, parse_id,
};
use crate::http::{app::App, download::set_download_headers};

/// An attachment with its download link.
#[derive(Serialize)]
struct AttachmentBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'static str>,
    id: String,
    filename: Option<String>,
    size: u64,
    content_type: String,
    content_disposition: &'static str,
    content_id: Option<String>,
    download_url: String,
    expires_at: String,
}

/// The id of an attachment, derived from the id of its email and its position there.
pub(super) fn file_id(email_id: Uuid, index: usize) -> Uuid {
    let hash = Sha256::new().chain_update(email_id).chain_update((index as u64).to_be_bytes()).finalize();
    let bytes = std::array::from_fn(|n| hash.get(n).copied().unwrap_or_default());
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// An absolute download link and its expiry time. The link needs no credential.
pub(super) fn download_url(app: &App, auth: &ResendRequest, target: LinkTarget) -> Result<(String, String), Problem> {
    let (token, expires_at) = app.engine.conversations.create_link(&auth.caller, target)?;
    let base = app.public_url.trim_end_matches('/');
    Ok((format!("{base}/compat/resend/files/{token}"), expires_at.to_string()))
}

/// One attachment of a sent or received email.
struct MailAttachment {
    id: Uuid,
    linked: LinkTarget,
    filename: Option<String>,
    size: u64,
    content_type: String,
    content_id: Option<String>,
    inline: bool,
}

impl MailAttachment {
    fn from_sent(email: EmailId, (number, file): (usize, &Attachment)) -> Self {
        Self {
            id: file_id(email.0, number),
            linked: LinkTarget::SentFile(email, number),
            filename: file.filename.clone(),
            size: file.bytes.len() as u64,
            content_type: attachment_media_type(file.content_type.as_deref(), file.filename.as_deref()),
            content_id: file.content_id.clone(),
            inline: file.content_id.is_some(),
        }
    }

    fn from_received(message: MessageId, (number, info): (usize, &AttachmentInfo)) -> Self {
        Self {
            id: file_id(message.0, number),
            linked: LinkTarget::File(message, number),
            filename: info.filename.clone(),
            size: info.size,
            content_type: info.content_type.clone(),
            content_id: info.content_id.clone(),
            inline: info.inline,
        }
    }

    fn body(&self, app: &App, auth: &ResendRequest) -> Result<AttachmentBody, Problem> {
        let (download_url, expires_at) = download_url(app, auth, self.linked)?;
        Ok(AttachmentBody {
            object: None,
            id: self.id.to_string(),
            filename: self.filename.clone(),
            size: self.size,
            content_type: self.content_type.clone(),
            content_disposition: if self.inline { "inline" } else { "attachment" },
            content_id: self.content_id.clone(),
            download_url,
            expires_at,
        })
    }
}

async fn attachments_of_email(
    app: &App,
    auth: &ResendRequest,
    name: &str,
) -> Result<Vec<MailAttachment>, DialectError<ResendDialect>> {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let email: EmailId = parse_id(name)?;
    let content = app.engine.outbound.email_view(&auth.caller, email).await?.content;
    let files = content.map(|content| content.attachments).unwrap_or_default();
    Ok(files.iter().enumerate().map(|file| MailAttachment::from_sent(email, file)).collect())
}

async fn attachments_of_message(
    app: &App,
    auth: &ResendRequest,
    name: &str,
) -> Result<Vec<MailAttachment>, DialectError<ResendDialect>> {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let message: MessageId = parse_id(name)?;
    let head = app.engine.inboxes.message(&auth.caller, message).await?.head;
    Ok(head.attachments.iter().enumerate().map(|info| MailAttachment::from_received(message, info)).collect())
}

fn attachment_bodies(
    app: &App,
    auth: &ResendRequest,
    files: &[MailAttachment],
) -> Result<Vec<(Uuid, AttachmentBody)>, Problem> {
    files.iter().map(|file| Ok((file.id, file.body(app, auth)?))).collect()
}

fn respond_with_one(app: &App, auth: &ResendRequest, files: &[MailAttachment], name: &str) -> ResendResult {
    let wanted: Uuid = parse_id(name)?;
    let file = files.iter().find(|file| file.id == wanted);
    let file = file.ok_or_else(|| Problem::new(Code::NotFound, "Attachment not found"))?;
    let body = AttachmentBody { object: Some("attachment"), ..file.body(app, auth)? };
    Ok(json(StatusCode::OK, &body))
}

/// `GET /emails/{id}/attachments`.
pub(super) async fn list_sent(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    let files = attachments_of_email(&app, &auth, &name).await?;
    Ok(list_response(query.parse()?.slice_in_order(attachment_bodies(&app, &auth, &files)?, |row| row.0), |row| row.1))
}

/// `GET /emails/{id}/attachments/{aid}`.
pub(super) async fn read_sent(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((name, file), ..): TwoPathSegments,
) -> ResendResult {
    let files = attachments_of_email(&app, &auth, &name).await?;
    respond_with_one(&app, &auth, &files, &file)
}

/// `GET /emails/receiving/{id}/attachments`.
pub(super) async fn list_received(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    let files = attachments_of_message(&app, &auth, &name).await?;
    Ok(list_response(query.parse()?.slice_in_order(attachment_bodies(&app, &auth, &files)?, |row| row.0), |row| row.1))
}

/// `GET /emails/receiving/{id}/attachments/{aid}`.
pub(super) async fn read_received(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((name, file), ..): TwoPathSegments,
) -> ResendResult {
    let files = attachments_of_message(&app, &auth, &name).await?;
    respond_with_one(&app, &auth, &files, &file)
}

/// Downloads the content of a link. Everyone who has the link may do so until it expires.
pub(super) async fn download(State(app): State<App>, Path(token): Path<String>) -> ResendResult {
    let file = app.engine.conversations.open_link(&token).await?;
    let mut response: Response = file.bytes.into_response();
    let content_type = HeaderValue::from_str(&file.content_type);
    let content_type = content_type.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    set_download_headers(&mut response, file.filename.as_deref().unwrap_or("attachment"));
    Ok(response)
}
