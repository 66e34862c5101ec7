//! A message in a response, without its text.

use mailonce_core::{
    control::rule::RuleMatch,
    id::MessageId,
    inbound::sender_auth::SenderAuth,
    inbox::message::{AttachmentInfo, Message, Party},
    problem::{Code, Problem},
};
use mailonce_engine::conversation::reply::{ReplyTarget, reply_target};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::app::App;

/// Parses the message id in a path.
pub(crate) fn message_id(text: &str) -> Result<MessageId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no message {text}")))
}

/// A sender or recipient of a message.
#[derive(Serialize, ToSchema)]
pub(crate) struct PartyBody {
    /// Display name; null without one.
    name: Option<String>,
    /// Address.
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
    /// Result of SPF.
    spf: &'static str,
    /// Result of DKIM.
    dkim: &'static str,
    /// Result of DMARC.
    dmarc: &'static str,
    /// Overall verdict of mailonce: `pass`, `fail`, `none` or `temperror`.
    verdict: &'static str,
    /// Domain of the From header.
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
    /// Number of the attachment, for `GET /v1/messages/{id}/attachments/{n}`.
    n: usize,
    /// Declared file name; do not trust it.
    filename: Option<String>,
    /// Declared content type; do not trust it.
    content_type: String,
    /// Content-ID, if the HTML refers to the attachment.
    content_id: Option<String>,
    /// Whether it is displayed inside the text.
    inline: bool,
    /// Size in bytes.
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
    /// What marks the message as automatic, such as a header.
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
    /// Id of the message.
    id: String,
    /// Id of the inbox that received it.
    inbox_id: String,
    /// Id of its thread.
    thread_id: String,
    /// Position in the inbox; pass it as `after`.
    cursor: String,
    /// Revision; grows with every change.
    rev: u32,
    /// The Message-ID header; null without one.
    message_id: Option<String>,
    from: Option<PartyBody>,
    to: Vec<PartyBody>,
    cc: Vec<PartyBody>,
    reply_to: Vec<PartyBody>,
    /// Where a reply goes.
    reply_target: ReplyTargetBody,
    /// Envelope recipient, including a `+tag`.
    recipient: String,
    /// Subject; empty without one.
    subject: String,
    /// Start of the text, with codes and links masked. Empty in the view `min`, where all text is inside the fence.
    pub(super) preview: String,
    /// The Date header, which the sender chose.
    date: Option<String>,
    /// When the message arrived.
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
    /// Labels of the message.
    labels: Vec<String>,
    /// Folder that the message was moved to; null if it was not.
    folder: Option<String>,
    /// Whether the message is marked as read.
    read: bool,
    /// Rules that matched, in the order of evaluation.
    rules: Vec<RuleHitBody>,
    /// Rules in the mode `observe` that matched. Their actions were not carried out.
    observed_rules: Vec<RuleHitBody>,
    /// Size in bytes, as received.
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
            replies: message.annotations.progress.answers.iter().map(|(_, email)| email.to_string()).collect(),
            flags: head.flags.iter().map(|flag| flag.as_str()).collect(),
            labels: message.annotations.labels.clone(),
            folder: message.annotations.folder.clone(),
            read: message.annotations.read,
            rules: head.rules.iter().flat_map(|rules| &rules.matched).map(RuleHitBody::from).collect(),
            observed_rules: head.rules.iter().flat_map(|rules| &rules.observed).map(RuleHitBody::from).collect(),
            size: head.size,
            attachments: head.attachments.iter().enumerate().map(attachment_body).collect(),
            has: head.artifacts.iter().map(|(kind, _)| kind.as_str()).collect(),
        }
    }
}
