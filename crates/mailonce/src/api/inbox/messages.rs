//! Messages: list, read, raw bytes, attachments and deliveries.

use axum::{
    Json,
    extract::{FromRequestParts, Path, State},
    http::{HeaderValue, header, request::Parts},
    response::IntoResponse,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    control::rule::RuleMatch,
    id::{DeliveryId, InboxId, MessageId},
    inbound::{
        delivery::{Delivery, DeliveryQuery, DeliveryState, DeliverySuppression},
        sender_auth::SenderAuth,
    },
    inbox::message::{AttachmentInfo, Message, MessagePosition, MessageQuery, MessageState, Party},
    limits,
    problem::{Code, Problem},
};
use mailonce_engine::{
    conversation::reply::{ReplyTarget, reply_target},
    inbox::messages::{CheckedLink, Flag, MessageView, Purpose, RenderedBody, RenderedMessage},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    artifacts::ArtifactBody,
    inboxes::{artifact_kind, find_inbox, invalid_query, parse_inbox_cursor},
};
use crate::{
    api::outbound::emails::page_limit,
    http::{
        app::{ApiResult, App},
        extract::AuthedRequest,
        params::{PathParam, QueryParams},
        problem::ApiError,
    },
};

/// A sender or recipient of a message.
#[derive(Serialize, ToSchema)]
pub(crate) struct PartyBody {
    name: Option<String>,
    address: String,
}

impl From<&Party> for PartyBody {
    fn from(party: &Party) -> Self {
        Self { name: party.name.clone(), address: party.address.clone() }
    }
}

/// Results of the sender authentication.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuthBody {
    spf: &'static str,
    dkim: &'static str,
    dmarc: &'static str,
    /// Overall verdict of mailonce: `pass`, `fail`, `none` or `temperror`.
    verdict: &'static str,
    domain: Option<String>,
}

impl From<&SenderAuth> for AuthBody {
    fn from(auth: &SenderAuth) -> Self {
        Self {
            spf: auth.spf.as_str(),
            dkim: auth.dkim.as_str(),
            dmarc: auth.dmarc.as_str(),
            verdict: auth.verdict.as_str(),
            domain: auth.domain.clone(),
        }
    }
}

/// An attachment, without its bytes. `GET /v1/messages/{id}/attachments/{n}` returns the bytes.
#[derive(Serialize, ToSchema)]
pub(crate) struct AttachmentInfoBody {
    n: usize,
    filename: Option<String>,
    content_type: String,
    content_id: Option<String>,
    inline: bool,
    size: u64,
}

fn attachment_body((n, attachment): (usize, &AttachmentInfo)) -> AttachmentInfoBody {
    AttachmentInfoBody {
        n,
        filename: attachment.filename.clone(),
        content_type: attachment.content_type.clone(),
        content_id: attachment.content_id.clone(),
        inline: attachment.inline,
        size: attachment.size,
    }
}

/// Why a message counts as automatic.
#[derive(Serialize, ToSchema)]
pub(crate) struct AutomaticReasonBody {
    reason: String,
    /// Whether the inbox setting `reply_to_likely_automatic` can allow a reply anyway.
    overridable: bool,
}

/// A rule that matched the message.
#[derive(Serialize, ToSchema)]
pub(crate) struct RuleHitBody {
    id: String,
    /// Name of the rule at that time.
    name: String,
    /// Actions of the rule, such as `folder` and `label`.
    actions: Vec<&'static str>,
}

impl From<&RuleMatch> for RuleHitBody {
    fn from(hit: &RuleMatch) -> Self {
        let actions = hit.actions.iter().map(|action| action.kind.as_str()).collect();
        Self { id: hit.id.to_string(), name: hit.name.clone(), actions }
    }
}

/// Where a reply to the message goes.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReplyTargetBody {
    /// The Reply-To addresses, or the sender without any.
    to: Vec<String>,
    /// Risks: `other_domain` (another organization than the sender's) and `auth_failed` (authentication failed).
    flags: Vec<&'static str>,
}

impl ReplyTargetBody {
    fn of(message: &Message) -> Self {
        let ReplyTarget { to, flags } = reply_target(&message.head);
        Self { to, flags }
    }
}

/// A message, without its body.
#[derive(Serialize, ToSchema)]
pub(crate) struct MessageBody {
    id: String,
    inbox_id: String,
    thread_id: String,
    /// Position in the inbox; pass it as `after`.
    cursor: String,
    rev: u32,
    message_id: Option<String>,
    from: Option<PartyBody>,
    to: Vec<PartyBody>,
    cc: Vec<PartyBody>,
    reply_to: Vec<PartyBody>,
    /// Where a reply goes.
    reply_target: ReplyTargetBody,
    /// Envelope recipient, including a `+tag`.
    recipient: String,
    subject: String,
    /// Start of the text, with codes and links masked. Empty in the view `min`, where all text is inside the fence.
    preview: String,
    date: Option<String>,
    received_at: String,
    /// `unanswered leased answered skipped`.
    state: &'static str,
    auth: AuthBody,
    automatic: Option<AutomaticReasonBody>,
    /// Why the message counts as sent by the team itself: `address loop_mark message_id`; null if it does not.
    own_reason: Option<String>,
    /// Ids of the emails that replied to or forwarded the message.
    replies: Vec<String>,
    /// `message_id_reused no_message_id unreadable cut ambiguous duplicate_header`.
    flags: Vec<&'static str>,
    labels: Vec<String>,
    folder: Option<String>,
    read: bool,
    /// Rules that matched, in the order of evaluation.
    rules: Vec<RuleHitBody>,
    size: u64,
    attachments: Vec<AttachmentInfoBody>,
    /// Types of the artifacts in the message: `code`, `link`.
    has: Vec<&'static str>,
}

impl MessageBody {
    pub(crate) fn of(app: &App, message: &Message) -> Self {
        let head = &message.head;
        let parties = |all: &[Party]| all.iter().map(PartyBody::from).collect();
        Self {
            id: message.id.to_string(),
            inbox_id: message.inbox.to_string(),
            thread_id: message.thread.to_string(),
            cursor: app.engine.ctx.cursor(message.seq).to_string(),
            rev: message.rev,
            message_id: head.message_id.clone(),
            from: head.from.as_ref().map(PartyBody::from),
            to: parties(&head.to),
            cc: parties(&head.cc),
            reply_to: parties(&head.reply_to),
            reply_target: ReplyTargetBody::of(message),
            recipient: head.recipient.clone(),
            subject: head.subject.clone(),
            preview: head.preview.clone(),
            date: head.date.map(|at| at.to_string()),
            received_at: message.received_at.to_string(),
            state: message.state.as_str(),
            auth: AuthBody::from(&head.auth),
            automatic: head.automatic.clone().map(|(reason, hard)| AutomaticReasonBody { reason, overridable: !hard }),
            own_reason: head.own.clone(),
            replies: message.annotations.turn.answers.iter().map(|(_, email)| email.to_string()).collect(),
            flags: head.flags.iter().map(|flag| flag.as_str()).collect(),
            labels: message.annotations.labels.clone(),
            folder: message.annotations.folder.clone(),
            read: message.annotations.read,
            rules: head.rules.iter().flat_map(|rules| &rules.matched).map(RuleHitBody::from).collect(),
            size: head.size,
            attachments: head.attachments.iter().enumerate().map(attachment_body).collect(),
            has: head.artifacts.iter().map(|(kind, _)| kind.as_str()).collect(),
        }
    }
}

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
            (Some(_), Some(_)) => return Err(invalid_query("after", "after and cursor cannot be combined")),
            (Some(after), None) => MessagePosition::After(parse_inbox_cursor(app, "after", after)?),
            (None, Some(cursor)) => MessagePosition::Before(parse_inbox_cursor(app, "cursor", cursor)?),
            (None, None) => MessagePosition::default(),
        };
        let state = |word: &str| {
            MessageState::parse(word)
                .ok_or_else(|| invalid_query("state", "state must be unanswered, leased, answered or skipped"))
        };
        let thread = |text: &str| {
            text.parse().map_err(|_not_an_id| invalid_query("thread", "thread must be the id of a thread"))
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
    host: Option<String>,
    /// `allowed suspicious blocked`.
    verdict: &'static str,
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
    flag: &'static str,
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

pub(crate) fn message_id(text: &str) -> Result<MessageId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no message {text}")))
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
            MessageView::parse(word).ok_or_else(|| invalid_query("view", "view must be min, plain or full"))?
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

/// Makes browsers download the response instead of rendering untrusted content on this origin.
pub(crate) fn set_download_headers(response: &mut axum::response::Response, name: &str) {
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_. ".contains(*c)).collect();
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{plain}\""));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_DISPOSITION, disposition.unwrap_or(HeaderValue::from_static("attachment")));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
}

/// The parameters of a path that has exactly two.
pub(crate) struct TwoPathParams(String, String);

impl FromRequestParts<App> for TwoPathParams {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        match Path::<(String, String)>::from_request_parts(parts, app).await {
            Ok(Path((first, second))) => Ok(Self(first, second)),
            Err(rejection) => Err(Problem::new(Code::NotFound, rejection.body_text()).into()),
        }
    }
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

/// A delivery: one arrival of mail for a recipient.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeliveryBody {
    id: String,
    rev: u32,
    /// `waiting done duplicate refused dead`.
    state: &'static str,
    /// `smtp hook poll local simulated`.
    intake: &'static str,
    inbox_id: Option<String>,
    source_id: Option<String>,
    /// Envelope recipient.
    recipient: String,
    sender: Option<String>,
    ip: Option<String>,
    size: u64,
    received_at: String,
    attempt_count: u32,
    /// Why the delivery created no message; null if it did.
    reason: Option<&'static str>,
    /// Id of the earlier delivery that this one duplicates.
    duplicate_of: Option<String>,
    message_id: Option<String>,
    /// Error of the last attempt to process the delivery.
    last_error: Option<String>,
}

impl From<&Delivery> for DeliveryBody {
    fn from(delivery: &Delivery) -> Self {
        let details = &delivery.details;
        Self {
            id: delivery.id.to_string(),
            rev: delivery.rev,
            state: delivery.state.as_str(),
            intake: details.intake.as_str(),
            inbox_id: delivery.target.inbox().map(|id| id.to_string()),
            source_id: details.source.map(|id| id.to_string()),
            recipient: details.recipient.clone(),
            sender: details.sender.clone(),
            ip: details.ip.map(|ip| ip.to_string()),
            size: details.size,
            received_at: delivery.received_at.to_string(),
            attempt_count: delivery.attempts,
            reason: delivery.suppressed.map(DeliverySuppression::as_str),
            duplicate_of: delivery.duplicate_of.map(|id| id.to_string()),
            message_id: delivery.message.map(|id| id.to_string()),
            last_error: delivery.last_error.clone(),
        }
    }
}

/// A page of deliveries, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeliveryPage {
    data: Vec<DeliveryBody>,
    next_cursor: Option<String>,
}

/// Filters for the list of deliveries.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveriesQuery {
    /// Page size, 1 to 100; 20 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Only to this inbox, by id or address. Needs the scope `admin` when absent.
    inbox: Option<String>,
    /// Only from the source with this id.
    source: Option<String>,
    /// Only in this state: `waiting done duplicate refused dead`.
    state: Option<String>,
    /// Only for the message with this id.
    message: Option<String>,
}

impl DeliveriesQuery {
    fn parse(&self, inbox: Option<InboxId>) -> Result<DeliveryQuery, Problem> {
        let id = |field: &str, text: &Option<String>| {
            let invalid = |_not_an_id| invalid_query(field, &format!("{field} must be an id"));
            text.as_deref().map(|text| text.parse::<uuid::Uuid>().map_err(invalid)).transpose()
        };
        let state = |word: &str| {
            DeliveryState::parse(word)
                .ok_or_else(|| invalid_query("state", "state must be waiting, done, duplicate, refused or dead"))
        };
        Ok(DeliveryQuery {
            inbox,
            source: id("source", &self.source)?.map(mailonce_core::id::SourceId),
            state: self.state.as_deref().map(state).transpose()?,
            message: id("message", &self.message)?.map(MessageId),
            before: id("cursor", &self.cursor)?.map(DeliveryId),
            limit: page_limit(self.limit.as_deref(), limits::PAGE_ROWS, 20)?,
        })
    }
}

/// List deliveries, newest first.
///
/// The list includes duplicate and refused deliveries, with the reason.
#[utoipa::path(get, path = "/v1/deliveries", operation_id = "list_deliveries", tag = "messages", params(DeliveriesQuery),
    responses((status = 200, description = "A page of results", body = DeliveryPage)))]
pub(crate) async fn deliveries(
    State(app): State<App>,
    auth: AuthedRequest,
    query: QueryParams<DeliveriesQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = match &query.0.inbox {
        Some(text) => Some(find_inbox(&app, &auth, text).await?.id),
        None => None,
    };
    let query = query.0.parse(inbox)?;
    let limit = query.limit;
    let rows = app.engine.inboxes.deliveries(&auth.caller, query).await?;
    let next_cursor = rows.last().filter(|_| rows.len() == limit).map(|last| last.id.to_string());
    Ok(Json(DeliveryPage { data: rows.iter().map(DeliveryBody::from).collect(), next_cursor }).into_response())
}

fn delivery_id(text: &str) -> Result<DeliveryId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no delivery {text}")))
}

/// Read one delivery.
#[utoipa::path(get, path = "/v1/deliveries/{id}", operation_id = "read_delivery", tag = "messages", params(("id" = String, Path)),
    responses((status = 200, description = "The delivery", body = DeliveryBody)))]
pub(crate) async fn delivery(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let delivery = app.engine.inboxes.delivery(&auth.caller, delivery_id(&id)?).await?;
    Ok(Json(DeliveryBody::from(&delivery)).into_response())
}

/// Replay a dead delivery: process it again.
#[utoipa::path(post, path = "/v1/deliveries/{id}/replay", operation_id = "replay_delivery", tag = "messages", params(("id" = String, Path)),
    responses((status = 200, description = "The updated delivery", body = DeliveryBody),
        (status = 409, description = "The delivery is not dead", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn replay(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let delivery = app.engine.inboxes.replay_delivery(&auth.caller, delivery_id(&id)?).await?;
    Ok(Json(DeliveryBody::from(&delivery)).into_response())
}
