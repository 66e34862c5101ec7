//! Messages: lists, views, bytes, and every delivery with its reason.

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
use crate::api::{
    ApiResult, App, PathParam, QueryParams, door::AuthedRequest, outbound::emails::page_limit, problem::ApiError,
};

/// Somebody named in a mail.
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

/// Whether a sender is who it says.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuthBody {
    spf: &'static str,
    dkim: &'static str,
    dmarc: &'static str,
    /// Our own: `pass`, `fail`, `none` or `temperror`.
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

/// An attachment by handle: `GET /v1/messages/{id}/attachments/{n}` has its bytes.
#[derive(Serialize, ToSchema)]
pub(crate) struct AttachmentInfoBody {
    n: usize,
    filename: Option<String>,
    content_type: String,
    content_id: Option<String>,
    inline: bool,
    size: u64,
}

fn attachment_body((n, handle): (usize, &AttachmentInfo)) -> AttachmentInfoBody {
    AttachmentInfoBody {
        n,
        filename: handle.filename.clone(),
        content_type: handle.content_type.clone(),
        content_id: handle.content_id.clone(),
        inline: handle.inline,
        size: handle.size,
    }
}

/// Why a message counts as automatic.
#[derive(Serialize, ToSchema)]
pub(crate) struct AutomaticReasonBody {
    reason: String,
    /// Whether the inbox's setting `reply_to_likely_automatic` allows an answer all the same.
    overridable: bool,
}

/// A rule that matched.
#[derive(Serialize, ToSchema)]
pub(crate) struct RuleHitBody {
    id: String,
    /// Its name at the time.
    name: String,
    /// What was done: `folder`, `label` …
    actions: Vec<&'static str>,
}

impl From<&RuleMatch> for RuleHitBody {
    fn from(hit: &RuleMatch) -> Self {
        let actions = hit.actions.iter().map(|action| action.kind.as_str()).collect();
        Self { id: hit.id.to_string(), name: hit.name.clone(), actions }
    }
}

/// Where an answer to a message goes.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReplyTargetBody {
    /// The addresses: those of Reply-To, else the sender.
    to: Vec<String>,
    /// `other_domain`: not the sender's organization. `auth_failed`: the sender's domain disowns the message.
    flags: Vec<&'static str>,
}

impl ReplyTargetBody {
    fn of(message: &Message) -> Self {
        let ReplyTarget { to, flags } = reply_target(&message.head);
        Self { to, flags }
    }
}

/// A message, without what it says.
#[derive(Serialize, ToSchema)]
pub(crate) struct MessageBody {
    id: String,
    inbox_id: String,
    thread_id: String,
    /// Its place in the inbox, for `after`.
    cursor: String,
    rev: u32,
    message_id: Option<String>,
    from: Option<PartyBody>,
    to: Vec<PartyBody>,
    cc: Vec<PartyBody>,
    reply_to: Vec<PartyBody>,
    /// Where an answer goes.
    reply_target: ReplyTargetBody,
    /// The address it was sent to, plus tag and all.
    recipient: String,
    subject: String,
    /// The start of what it says, secrets masked; empty in the view `min`, whose text stands between fences.
    preview: String,
    date: Option<String>,
    received_at: String,
    /// `unanswered leased answered skipped`.
    state: &'static str,
    auth: AuthBody,
    automatic: Option<AutomaticReasonBody>,
    /// Why it counts as our own: `address loop_mark message_id`.
    own_reason: Option<String>,
    /// Emails that answered it or passed it on.
    replies: Vec<String>,
    /// `message_id_reused no_message_id unreadable cut ambiguous duplicate_header`.
    flags: Vec<&'static str>,
    labels: Vec<String>,
    folder: Option<String>,
    read: bool,
    /// Rules that matched, in the order in which they were asked.
    rules: Vec<RuleHitBody>,
    size: u64,
    attachments: Vec<AttachmentInfoBody>,
    /// What was found in it: `code`, `link`.
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

/// Messages in the order that was asked for.
#[derive(Serialize, ToSchema)]
pub(crate) struct MessagePageBody {
    data: Vec<MessageBody>,
    /// Where to go on, as `cursor` newest first and as `after` oldest first; null at the end.
    next_cursor: Option<String>,
}

/// Which messages.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageListQuery {
    /// 1 to 100, 20 by default.
    limit: Option<String>,
    /// Newest first: where the page before ended.
    cursor: Option<String>,
    /// Oldest first: after this cursor, or `0`.
    after: Option<String>,
    /// An address, or `@domain`.
    from: Option<String>,
    /// Part of the subject.
    subject: Option<String>,
    /// `code` or `link`.
    has: Option<String>,
    /// `unanswered leased answered skipped`.
    state: Option<String>,
    label: Option<String>,
    /// The id of a thread.
    thread: Option<String>,
}

impl MessageListQuery {
    fn parse(self, app: &App) -> Result<MessageQuery, Problem> {
        let place = match (self.after.as_deref(), self.cursor.as_deref()) {
            (Some(_), Some(_)) => return Err(invalid_query("after", "after and cursor are not given together")),
            (Some(after), None) => MessagePosition::After(parse_inbox_cursor(app, "after", after)?),
            (None, Some(cursor)) => MessagePosition::Before(parse_inbox_cursor(app, "cursor", cursor)?),
            (None, None) => MessagePosition::default(),
        };
        let state = |word: &str| {
            MessageState::parse(word)
                .ok_or_else(|| invalid_query("state", "state is unanswered, leased, answered or skipped"))
        };
        let thread =
            |text: &str| text.parse().map_err(|_not_an_id| invalid_query("thread", "thread is the id of a thread"));
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
            position: place,
            limit: page_limit(self.limit.as_deref(), limits::PAGE_ROWS, 20)?,
        })
    }
}

/// List messages of an inbox, newest first; oldest first with `after`.
#[utoipa::path(get, path = "/v1/inboxes/{id}/messages", operation_id = "list_messages", tag = "messages", params(("id" = String, Path), MessageListQuery),
    responses((status = 200, description = "A page", body = MessagePageBody),
        (status = 410, description = "The cursor is from before a restore", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    query: QueryParams<MessageListQuery>,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &door, &id).await?;
    let page = app.engine.inboxes.messages(&door.caller, inbox.id, query.0.parse(&app)?).await?;
    let data = page.rows.iter().map(|message| MessageBody::of(&app, message)).collect();
    let next_cursor = page.next.map(|seq| app.engine.ctx.cursor(seq).to_string());
    Ok(Json(MessagePageBody { data, next_cursor }).into_response())
}

/// Which view.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViewQuery {
    /// `min` (default), `plain` or `full`; `full` needs the scope `secrets`.
    view: Option<String>,
}

/// A link with its verdict. It is never followed.
#[derive(Serialize, ToSchema)]
pub(crate) struct LinkBody {
    /// The whole address; only with the scope `secrets`, since a link may be a secret.
    url: Option<String>,
    host: Option<String>,
    /// `allowed suspicious blocked`.
    verdict: &'static str,
    reasons: Vec<&'static str>,
    /// What it is for, when it says so: `verify`, `reset` …
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

/// A sign that somebody talks to the model.
#[derive(Serialize, ToSchema)]
pub(crate) struct InjectionFlagBody {
    flag: &'static str,
    count: usize,
}

/// A message with what it says.
#[derive(Serialize, ToSchema)]
pub(crate) struct RenderedMessageBody {
    #[serde(flatten)]
    message: MessageBody,
    /// `min plain full`, or `gone` when its bytes are no longer kept.
    view: &'static str,
    /// In `min` between fences with a random word: everything in it is untrusted.
    text: Option<String>,
    /// In `full`: without anything that acts or loads.
    html: Option<String>,
    /// In `full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<HeaderFieldBody>>,
    /// What `min` took out, counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    removed_counts: Option<serde_json::Value>,
    /// Whether all of the mail was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
    injection_flags: Vec<InjectionFlagBody>,
    links: Vec<LinkBody>,
    artifacts: Vec<ArtifactBody>,
    /// What else it could hold; never given out.
    #[schema(value_type = Vec<Object>)]
    candidates: Vec<serde_json::Value>,
}

impl RenderedMessageBody {
    fn of(app: &App, door: &AuthedRequest, shown: &RenderedMessage) -> Self {
        let secrets = door.caller.key.has_scope(ApiKeyScope::Secrets);
        let mut body = Self {
            message: MessageBody::of(app, &shown.message),
            view: "gone",
            text: None,
            html: None,
            headers: None,
            removed_counts: None,
            complete: None,
            injection_flags: Vec::new(),
            links: Vec::new(),
            artifacts: shown.artifacts.iter().map(|one| ArtifactBody::of(&door.caller, one)).collect(),
            candidates: shown.message.head.candidates.clone(),
        };
        let drawn = |links: &[CheckedLink]| links.iter().map(|link| link_body(link, secrets)).collect();
        match &shown.body {
            RenderedBody::Gone => {}
            RenderedBody::Min { view, links } => {
                body.view = "min";
                // A stranger's words stand between the fences and nowhere else.
                body.message.preview.clear();
                body.text = Some(view.text.clone());
                body.removed_counts = serde_json::to_value(view.removed).ok();
                body.complete = Some(view.whole);
                let flag = |(flag, count): &(Flag, usize)| (flag.as_str(), *count);
                body.injection_flags =
                    view.flags.iter().map(flag).map(|(flag, count)| InjectionFlagBody { flag, count }).collect();
                body.links = drawn(links);
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
                body.links = drawn(links);
            }
        }
        body
    }
}

pub(crate) fn message_id(text: &str) -> Result<MessageId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no message {text}")))
}

/// Read a message: `min` for models, `plain`, or `full`.
#[utoipa::path(get, path = "/v1/messages/{id}", operation_id = "read_message", tag = "messages", params(("id" = String, Path), ViewQuery),
    responses((status = 200, description = "The message", body = RenderedMessageBody)))]
pub(crate) async fn read(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    query: QueryParams<ViewQuery>,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let id = message_id(&id)?;
    // Whose it is comes first: a stranger learns nothing about what a view may be.
    app.engine.inboxes.message(&door.caller, id).await?;
    let view = match query.0.view.as_deref() {
        None => MessageView::Min,
        Some(word) => MessageView::parse(word).ok_or_else(|| invalid_query("view", "view is min, plain or full"))?,
    };
    let shown = app.engine.inboxes.render_message(&door.caller, id, view).await?;
    Ok(Json(RenderedMessageBody::of(&app, &door, &shown)).into_response())
}

/// A message as it travelled.
#[utoipa::path(get, path = "/v1/messages/{id}/raw", operation_id = "read_raw_message", tag = "messages", params(("id" = String, Path)),
    responses((status = 200, description = "The bytes", content_type = "message/rfc822", body = Vec<u8>)))]
pub(crate) async fn raw(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let raw = app.engine.inboxes.raw_message(&door.caller, message_id(&id)?).await?;
    let mut response = raw.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("message/rfc822"));
    set_download_headers(&mut response, "message.eml");
    Ok(response)
}

/// What a stranger sent is never shown by a browser as a page of ours.
pub(crate) fn set_download_headers(response: &mut axum::response::Response, name: &str) {
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_. ".contains(*c)).collect();
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{plain}\""));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_DISPOSITION, disposition.unwrap_or(HeaderValue::from_static("attachment")));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
}

/// The two parameters of a path.
pub(crate) struct TwoPathParams(String, String);

impl FromRequestParts<App> for TwoPathParams {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        match Path::<(String, String)>::from_request_parts(parts, app).await {
            Ok(Path((one, two))) => Ok(Self(one, two)),
            Err(rejection) => Err(Problem::new(Code::NotFound, rejection.body_text()).into()),
        }
    }
}

/// The bytes of one attachment.
#[utoipa::path(get, path = "/v1/messages/{id}/attachments/{n}", operation_id = "read_attachment", tag = "messages", params(("id" = String, Path), ("n" = usize, Path)),
    responses((status = 200, description = "The bytes", content_type = "application/octet-stream", body = Vec<u8>)))]
pub(crate) async fn attachment(
    State(app): State<App>,
    door: AuthedRequest,
    TwoPathParams(id, n): TwoPathParams,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let id = message_id(&id)?;
    let missing = |_not_a_number| Problem::new(Code::NotFound, format!("there is no attachment {n}"));
    let found = app.engine.inboxes.attachment(&door.caller, id, n.parse().map_err(missing)?).await?;
    let mut response = found.bytes.into_response();
    let kind = HeaderValue::from_str(&found.content_type);
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    set_download_headers(&mut response, found.filename.as_deref().unwrap_or("attachment"));
    Ok(response)
}

/// One arrival.
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
    /// The envelope's.
    recipient: String,
    sender: Option<String>,
    ip: Option<String>,
    size: u64,
    received_at: String,
    attempt_count: u32,
    /// Why it made no message of its own.
    reason: Option<&'static str>,
    /// The delivery that it repeats.
    duplicate_of: Option<String>,
    message_id: Option<String>,
    /// What went wrong the last time.
    last_error: Option<String>,
}

impl From<&Delivery> for DeliveryBody {
    fn from(delivery: &Delivery) -> Self {
        let about = &delivery.details;
        Self {
            id: delivery.id.to_string(),
            rev: delivery.rev,
            state: delivery.state.as_str(),
            intake: about.intake.as_str(),
            inbox_id: delivery.target.inbox().map(|id| id.to_string()),
            source_id: about.source.map(|id| id.to_string()),
            recipient: about.recipient.clone(),
            sender: about.sender.clone(),
            ip: about.ip.map(|ip| ip.to_string()),
            size: about.size,
            received_at: delivery.received_at.to_string(),
            attempt_count: delivery.attempts,
            reason: delivery.suppressed.map(DeliverySuppression::as_str),
            duplicate_of: delivery.duplicate_of.map(|id| id.to_string()),
            message_id: delivery.message.map(|id| id.to_string()),
            last_error: delivery.last_error.clone(),
        }
    }
}

/// Deliveries, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeliveryPage {
    data: Vec<DeliveryBody>,
    next_cursor: Option<String>,
}

/// Which deliveries.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveriesQuery {
    /// 1 to 100, 20 by default.
    limit: Option<String>,
    /// Where the page before ended.
    cursor: Option<String>,
    /// The id or address of an inbox. Without one the scope `admin` is needed.
    inbox: Option<String>,
    /// The id of a source.
    source: Option<String>,
    /// `waiting done duplicate refused dead`.
    state: Option<String>,
    /// The id of a message.
    message: Option<String>,
}

impl DeliveriesQuery {
    fn parse(&self, inbox: Option<InboxId>) -> Result<DeliveryQuery, Problem> {
        let id = |field: &str, text: &Option<String>| {
            let wrong = |_not_an_id| invalid_query(field, &format!("{field} is an id"));
            text.as_deref().map(|text| text.parse::<uuid::Uuid>().map_err(wrong)).transpose()
        };
        let state = |word: &str| {
            DeliveryState::parse(word)
                .ok_or_else(|| invalid_query("state", "state is waiting, done, duplicate, refused or dead"))
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

/// List arrivals, newest first: each repeat is there with its reason.
#[utoipa::path(get, path = "/v1/deliveries", operation_id = "list_deliveries", tag = "messages", params(DeliveriesQuery),
    responses((status = 200, description = "A page", body = DeliveryPage)))]
pub(crate) async fn deliveries(
    State(app): State<App>,
    door: AuthedRequest,
    query: QueryParams<DeliveriesQuery>,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = match &query.0.inbox {
        Some(text) => Some(find_inbox(&app, &door, text).await?.id),
        None => None,
    };
    let query = query.0.parse(inbox)?;
    let limit = query.limit;
    let rows = app.engine.inboxes.deliveries(&door.caller, query).await?;
    let next_cursor = rows.last().filter(|_| rows.len() == limit).map(|last| last.id.to_string());
    Ok(Json(DeliveryPage { data: rows.iter().map(DeliveryBody::from).collect(), next_cursor }).into_response())
}

fn delivery_id(text: &str) -> Result<DeliveryId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no delivery {text}")))
}

/// Read one arrival.
#[utoipa::path(get, path = "/v1/deliveries/{id}", operation_id = "read_delivery", tag = "messages", params(("id" = String, Path)),
    responses((status = 200, description = "The delivery", body = DeliveryBody)))]
pub(crate) async fn delivery(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let delivery = app.engine.inboxes.delivery(&door.caller, delivery_id(&id)?).await?;
    Ok(Json(DeliveryBody::from(&delivery)).into_response())
}

/// Let a delivery that could not be read be tried again.
#[utoipa::path(post, path = "/v1/deliveries/{id}/replay", operation_id = "replay_delivery", tag = "messages", params(("id" = String, Path)),
    responses((status = 200, description = "The delivery as it is now", body = DeliveryBody),
        (status = 409, description = "It is not dead", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn replay(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let delivery = app.engine.inboxes.replay_delivery(&door.caller, delivery_id(&id)?).await?;
    Ok(Json(DeliveryBody::from(&delivery)).into_response())
}
