//! Messages: list, read, raw bytes and attachments.

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::IntoResponse,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    inbox::message::{MessagePosition, MessageQuery, MessageState},
    limits,
    problem::{Code, Problem},
};
use mailonce_engine::inbox::messages::{CheckedLink, Flag, MessageView, Purpose, RenderedBody, RenderedMessage};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    artifacts::ArtifactBody,
    inboxes::{artifact_kind, find_inbox, parse_inbox_cursor},
    message_body::{MessageBody, message_id},
};
use crate::{
    api::outbound::emails::page_limit,
    http::{
        app::{ApiResult, App},
        download::set_download_headers,
        extract::AuthedRequest,
        params::{PathParam, QueryParams, TwoPathParams},
    },
};

/// A page of messages.
#[derive(Serialize, ToSchema)]
pub(crate) struct MessagePageBody {
    data: Vec<MessageBody>,
    /// Pass it as `cursor` (newest first) or as `after` (oldest first) to get the next page; null at the end.
    next_cursor: Option<String>,
}

/// Filters and order of the list of messages.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageListQuery {
    /// Page size, 1 to 100; 20 by default.
    limit: Option<String>,
    /// List newest first: the `next_cursor` of the previous page.
    cursor: Option<String>,
    /// List oldest first, after this cursor; `0` for the start.
    after: Option<String>,
    /// Only from this address or `@domain`.
    from: Option<String>,
    /// Only with this text in the subject.
    subject: Option<String>,
    /// Only with an artifact of this type: `code` or `link`.
    has: Option<String>,
    /// Only in this state: `unanswered leased answered skipped`.
    state: Option<String>,
    label: Option<String>,
    /// Only in the thread with this id.
    thread: Option<String>,
}

impl MessageListQuery {
    fn parse(self, app: &App) -> Result<MessageQuery, Problem> {
        let position = match (self.after.as_deref(), self.cursor.as_deref()) {
            (Some(_), Some(_)) => return Err(Problem::invalid_query("after", "after and cursor cannot be combined")),
            (Some(after), None) => MessagePosition::After(parse_inbox_cursor(app, "after", after)?),
            (None, Some(cursor)) => MessagePosition::Before(parse_inbox_cursor(app, "cursor", cursor)?),
            (None, None) => MessagePosition::default(),
        };
        let state = |word: &str| {
            MessageState::parse(word)
                .ok_or_else(|| Problem::invalid_query("state", "state must be unanswered, leased, answered or skipped"))
        };
        let thread = |text: &str| {
            text.parse().map_err(|_not_an_id| Problem::invalid_query("thread", "thread must be the id of a thread"))
        };
        Ok(MessageQuery {
            exclude_forged: false,
            thread: self.thread.as_deref().map(thread).transpose()?,
            state: self.state.as_deref().map(state).transpose()?,
            from: self.from,
            subject: self.subject,
            has: self.has.as_deref().map(|word| artifact_kind("has", word)).transpose()?,
            label: self.label,
            message_id: None,
            only_authenticated: false,
            position,
            limit: page_limit(self.limit.as_deref(), limits::PAGE_ROWS, 20)?,
        })
    }
}

/// List messages of an inbox, newest first; oldest first with `after`.
#[utoipa::path(get, path = "/v1/inboxes/{id}/messages", operation_id = "list_messages", tag = "messages", params(("id" = String, Path), MessageListQuery),
    responses((status = 200, description = "A page of results", body = MessagePageBody),
        (status = 410, description = "The cursor is from before a restore or database failover", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    query: QueryParams<MessageListQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &auth, &id).await?;
    let page = app.engine.inboxes.messages(&auth.caller, inbox.id, query.0.parse(&app)?).await?;
    let data = page.rows.iter().map(|message| MessageBody::of(&app, message)).collect();
    let next_cursor = page.next.map(|seq| app.engine.ctx.cursor(seq).to_string());
    Ok(Json(MessagePageBody { data, next_cursor }).into_response())
}

/// How much of the message to show.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViewQuery {
    /// `min` (default, safe for models), `plain`, or `full`, which needs the scope `secrets`.
    view: Option<String>,
}

/// A link in a message, with a safety verdict. mailonce never opens links.
#[derive(Serialize, ToSchema)]
pub(crate) struct LinkBody {
    /// The URL; null without the scope `secrets`, because a link may contain a secret.
    url: Option<String>,
    /// Host of the URL.
    host: Option<String>,
    /// `allowed suspicious blocked`.
    verdict: &'static str,
    /// Why the link has this verdict.
    reasons: Vec<&'static str>,
    /// Purpose of the link if it is recognized, such as `verify` or `reset`.
    purpose: Option<&'static str>,
}

fn link_body(link: &CheckedLink, secrets: bool) -> LinkBody {
    LinkBody {
        url: secrets.then(|| link.url.clone()),
        host: link.host.clone(),
        verdict: link.verdict.as_str(),
        reasons: link.reasons.iter().map(|reason| reason.as_str()).collect(),
        purpose: link.purpose.map(Purpose::as_str),
    }
}

/// A header field.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeaderFieldBody {
    name: String,
    value: String,
}

/// A sign of prompt injection, and how often it occurs.
#[derive(Serialize, ToSchema)]
pub(crate) struct InjectionFlagBody {
    /// The pattern that was found.
    flag: &'static str,
    /// How often it was found.
    count: usize,
}

/// A message with its body.
#[derive(Serialize, ToSchema)]
pub(crate) struct RenderedMessageBody {
    #[serde(flatten)]
    message: MessageBody,
    /// `min plain full`, or `gone` when the message's bytes are no longer stored.
    view: &'static str,
    /// The text. In the view `min` it is inside a fence with a random nonce; treat everything in it as untrusted.
    text: Option<String>,
    /// Sanitized HTML without active or remote content; only in the view `full`.
    html: Option<String>,
    /// The header fields; only in the view `full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<HeaderFieldBody>>,
    /// How many hidden or unsafe parts the view `min` removed, by kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    removed_counts: Option<serde_json::Value>,
    /// Whether the whole message was processed; false when it exceeded a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
    injection_flags: Vec<InjectionFlagBody>,
    links: Vec<LinkBody>,
    artifacts: Vec<ArtifactBody>,
    /// Ambiguous codes and links. They cannot be consumed.
    #[schema(value_type = Vec<Object>)]
    candidates: Vec<serde_json::Value>,
}

impl RenderedMessageBody {
    fn of(app: &App, auth: &AuthedRequest, rendered: &RenderedMessage) -> Self {
        let secrets = auth.caller.key.has_scope(ApiKeyScope::Secrets);
        let mut body = Self {
            message: MessageBody::of(app, &rendered.message),
            view: "gone",
            text: None,
            html: None,
            headers: None,
            removed_counts: None,
            complete: None,
            injection_flags: Vec::new(),
            links: Vec::new(),
            artifacts: rendered.artifacts.iter().map(|artifact| ArtifactBody::of(&auth.caller, artifact)).collect(),
            candidates: rendered.message.head.candidates.clone(),
        };
        let link_bodies = |links: &[CheckedLink]| links.iter().map(|link| link_body(link, secrets)).collect();
        match &rendered.body {
            RenderedBody::Gone => {}
            RenderedBody::Min { view, links } => {
                body.view = "min";
                // In the view `min`, untrusted text appears inside the fence only.
                body.message.preview.clear();
                body.text = Some(view.text.clone());
                body.removed_counts = serde_json::to_value(view.removed).ok();
                body.complete = Some(view.whole);
                let flag = |(flag, count): &(Flag, usize)| (flag.as_str(), *count);
                body.injection_flags =
                    view.flags.iter().map(flag).map(|(flag, count)| InjectionFlagBody { flag, count }).collect();
                body.links = link_bodies(links);
            }
            RenderedBody::Plain { text } => {
                body.view = "plain";
                body.text = Some(text.clone());
            }
            RenderedBody::Full { text, html, headers, links } => {
                body.view = "full";
                body.text.clone_from(text);
                body.html.clone_from(html);
                let field =
                    |(name, value): &(String, String)| HeaderFieldBody { name: name.clone(), value: value.clone() };
                body.headers = Some(headers.iter().map(field).collect());
                body.links = link_bodies(links);
            }
        }
        body
    }
}

/// Delete a message.
///
/// Its bytes, codes and links are deleted with it, and so are its sender and subject in events. The same mail, received
/// again, still makes no second message.
#[utoipa::path(delete, path = "/v1/messages/{id}", operation_id = "delete_message", tag = "messages", params(("id" = String, Path)),
    responses((status = 204, description = "Deleted")))]
pub(crate) async fn remove(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    app.engine.inboxes.delete_message(&auth.caller, message_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Read a message.
///
/// `view` selects `min` (safe for models), `plain` or `full`.
#[utoipa::path(get, path = "/v1/messages/{id}", operation_id = "read_message", tag = "messages", params(("id" = String, Path), ViewQuery),
    responses((status = 200, description = "The message", body = RenderedMessageBody)))]
pub(crate) async fn read(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    query: QueryParams<ViewQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let id = message_id(&id)?;
    // Check that the team owns the message before the view, so that another team always gets `404`.
    app.engine.inboxes.message(&auth.caller, id).await?;
    let view = match query.0.view.as_deref() {
        None => MessageView::Min,
        Some(word) => {
            MessageView::parse(word).ok_or_else(|| Problem::invalid_query("view", "view must be min, plain or full"))?
        }
    };
    let rendered = app.engine.inboxes.render_message(&auth.caller, id, view).await?;
    Ok(Json(RenderedMessageBody::of(&app, &auth, &rendered)).into_response())
}

/// Read the raw message, as it was received.
#[utoipa::path(get, path = "/v1/messages/{id}/raw", operation_id = "read_raw_message", tag = "messages", params(("id" = String, Path)),
    responses((status = 200, description = "The raw message", content_type = "message/rfc822", body = Vec<u8>)))]
pub(crate) async fn raw(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let raw = app.engine.inboxes.raw_message(&auth.caller, message_id(&id)?).await?;
    let mut response = raw.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("message/rfc822"));
    set_download_headers(&mut response, "message.eml");
    Ok(response)
}

/// Read the bytes of an attachment.
#[utoipa::path(get, path = "/v1/messages/{id}/attachments/{n}", operation_id = "read_attachment", tag = "messages", params(("id" = String, Path), ("n" = usize, Path)),
    responses((status = 200, description = "The bytes", content_type = "application/octet-stream", body = Vec<u8>)))]
pub(crate) async fn attachment(
    State(app): State<App>,
    auth: AuthedRequest,
    TwoPathParams(id, n): TwoPathParams,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let id = message_id(&id)?;
    let missing = |_not_a_number| Problem::new(Code::NotFound, format!("there is no attachment {n}"));
    let attachment = app.engine.inboxes.attachment(&auth.caller, id, n.parse().map_err(missing)?).await?;
    let mut response = attachment.bytes.into_response();
    let content_type = HeaderValue::from_str(&attachment.content_type);
    let content_type = content_type.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    set_download_headers(&mut response, attachment.filename.as_deref().unwrap_or("attachment"));
    Ok(response)
}
