//! The types of the API, generated from openapi.json by sdks/generate. Do not edit.

#![expect(missing_docs, reason = "not every property has a description in openapi.json")]

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Distinguishes `null`, which clears a field, from an absent field, which stays unchanged.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// Acknowledgement of a leased message, for `ack`, `nack` and `extend`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Acknowledgement {
    /// For `nack`: seconds until the message is offered again, at most 86400; 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<u32>,
    /// Token of the lease.
    pub lease: String,
    /// For `extend`: new duration of the lease from now in seconds, 1 to 600; 30 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u32>,
}

/// The message after an acknowledgement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AcknowledgementResult {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    pub message: Message,
}

/// One address or a list of addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Addresses {
    Text(String),
    List(Vec<String>),
}

/// The consumer that reports the use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArtifactApplied {
    /// The `for` that consumed the artifact.
    #[serde(rename = "for")]
    pub for_: String,
}

/// An artifact: a code or link found in a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Artifact {
    /// When its use was reported; null before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<String>,
    /// Confidence of the extraction, 0 to 100.
    #[serde(default)]
    pub confidence: u32,
    /// When it was consumed; null before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumed_at: Option<String>,
    /// The `for` of the call that consumed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumed_for: Option<String>,
    /// When it was extracted from the message.
    pub found_at: String,
    /// Id of the artifact.
    pub id: String,
    /// Id of the inbox.
    pub inbox_id: String,
    /// The code or link with its secret part masked.
    pub masked: String,
    /// Id of the message.
    pub message: String,
    /// Reasons for the confidence.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// Revision; grows with every change.
    #[serde(default)]
    pub rev: u32,
    /// Address of the sender of the message.
    pub sender: String,
    /// Whether the sender of the message was authenticated.
    #[serde(default)]
    pub sender_authenticated: bool,
    /// `code` or `link`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code or link; null unless you consumed it or your API key has the scope `secrets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Id of the watch that it was consumed under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<String>,
}

/// The artifacts of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ArtifactPage {
    /// Ambiguous finds. They cannot be consumed.
    #[serde(default)]
    pub candidates: Vec<BTreeMap<String, serde_json::Value>>,
    /// The artifacts, best first.
    #[serde(default)]
    pub data: Vec<Artifact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// An attachment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    /// The file's bytes in Base64.
    pub content: String,
    /// Content-ID, for inline images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
    /// MIME type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// File name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
}

/// An attachment, without its bytes. `GET /v1/messages/{id}/attachments/{n}` returns the bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttachmentInfo {
    /// Content-ID, if the HTML refers to the attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
    /// Declared content type; do not trust it.
    pub content_type: String,
    /// Declared file name; do not trust it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// Whether it is displayed inside the text.
    #[serde(default)]
    pub inline: bool,
    /// Number of the attachment, for `GET /v1/messages/{id}/attachments/{n}`.
    #[serde(default)]
    pub n: u64,
    /// Size in bytes.
    #[serde(default)]
    pub size: u64,
}

/// One attempt to send a handoff.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// When the `sending` marker was committed; the start of the attempt if it never got that far.
    pub at: String,
    /// SMTP or HTTP status code of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
    /// When the outcome was recorded; null while the attempt is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Whether an earlier attempt may have succeeded, so that the recipient may get the email twice.
    #[serde(default)]
    pub may_duplicate: bool,
    /// Number of the attempt within its handoff, from 1.
    #[serde(default)]
    pub number: u32,
    /// `accepted deferred refused unknown`; null while the attempt is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The last phase that was reached: `connect tls greet login mail rcpt data final`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The next hop's own id for the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<String>,
    /// Text of the next hop's reply.
    pub reply: String,
    /// Name of the transport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
}

/// Results of the sender authentication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Auth {
    /// Result of DKIM.
    pub dkim: String,
    /// Result of DMARC.
    pub dmarc: String,
    /// Domain of the From header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Result of SPF.
    pub spf: String,
    /// Overall verdict of mailonce: `pass`, `fail`, `none` or `temperror`.
    pub verdict: String,
}

/// Why a message counts as automatic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AutomaticReason {
    /// Whether the inbox setting `reply_to_likely_automatic` can allow a reply anyway.
    #[serde(default)]
    pub overridable: bool,
    /// What marks the message as automatic, such as a header.
    pub reason: String,
}

/// Why one item of a batch was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchItemError {
    /// Error code, as in a problem.
    pub code: String,
    /// The invalid field, if the error is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Position of the item in the batch, from 0.
    #[serde(default)]
    pub index: u64,
    /// What is wrong.
    pub message: String,
    /// With `Prefer: policy-trace`, if a check refused the item: what each check decided, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Vec<PolicyStep>>,
}

/// The response to a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchReceipt {
    /// One entry per item, in order; null for an item that has an entry in `errors`.
    #[serde(default)]
    pub data: Vec<Option<SendReceipt>>,
    #[serde(default)]
    pub errors: Vec<BatchItemError>,
}

/// How much room a budget has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BudgetRoom {
    pub id: String,
    #[serde(default)]
    pub limit: u64,
    pub name: String,
    #[serde(default)]
    pub remaining: u64,
    /// When the period ends.
    pub resets_at: String,
}

/// The caller's own ids of a call. They are stored for correlation only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallTrace {
    /// From the `Mailonce-Call-Id` header, or from `_meta` of an MCP call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// From `traceparent` (W3C Trace Context).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Limits on the number of replies. A reply beyond a limit is held. Absent fields keep their value. The defaults are 3 in 300 seconds and 20 a day in a thread, and 20 a day to one recipient.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Caps {
    /// Replies to one recipient per day, over all threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_recipient_per_day: Option<u32>,
    /// Replies in a thread per day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_thread_per_day: Option<u32>,
    /// Replies in a thread in total; `null` removes the limit. No limit by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_thread_total: Option<u32>,
    /// Replies in a thread within `window_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_window: Option<u32>,
    /// Length of the window in seconds, 1 to 86400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_s: Option<u32>,
}

/// The consumer of an artifact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Consume {
    /// The account, workflow or run that consumes the artifact. The same one gets the same response again; another is refused.
    #[serde(rename = "for")]
    pub for_: String,
    /// Id of the watch that the call belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<String>,
}

/// Which artifact of an inbox to consume, and for whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConsumeMatch {
    /// Cursor of an inbox: the latest match after it, however old. When absent, only new ones count. Not with `watch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Who takes it: an account, workflow or run. The same value gets the same artifact again.
    #[serde(rename = "for")]
    pub for_: String,
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub match_: Option<MessageMatch>,
    /// How long to wait for a new one in seconds, at most 60 and until the watch ends; 0 by default. Not with `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// `code` or `link`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Id of a watch: only messages that arrived after its start count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<String>,
}

/// A consumed artifact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConsumedArtifact {
    pub artifact: Artifact,
}

/// What the idempotency key of a send did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Dedupe {
    /// When the idempotency key expires; null until the email reaches a final state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The idempotency key, from the header or derived from the intent; null without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `first` for a new email, `replayed` for a duplicate call.
    pub outcome: String,
    /// Whether the content of this call differs from that of the first call.
    #[serde(default)]
    pub payload_differs: bool,
    /// Number of duplicate calls that were answered with this email.
    #[serde(default)]
    pub suppressed: u64,
}

/// An email, without its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Email {
    /// Bcc addresses.
    #[serde(default)]
    pub bcc: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallTrace>,
    /// Cc addresses.
    #[serde(default)]
    pub cc: Vec<String>,
    /// Number of handoffs in each state.
    #[serde(default)]
    pub counts: BTreeMap<String, u32>,
    /// When the email was accepted.
    pub created_at: String,
    /// When the idempotency key expires; null until the email reaches a final state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Sender.
    pub from: String,
    /// The most important guard in `holds`, or the one that held or flagged the email.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// The guards that hold the email. It leaves when none is left.
    #[serde(default)]
    pub holds: Vec<String>,
    /// Id of the email.
    pub id: String,
    /// Idempotency key; null without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The Message-ID header, with angle brackets.
    pub message_id: String,
    /// Id of the message that this email replies to or forwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_message: Option<String>,
    /// Id of the email that this one resends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resend_of: Option<String>,
    /// Id of the next version, if the email was resent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resent_as: Option<String>,
    /// Revision; grows with every change.
    #[serde(default)]
    pub rev: u32,
    /// When the email is due, while it is scheduled or held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<String>,
    /// When the email reached a final state; null before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<String>,
    /// `scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`
    pub state: String,
    /// Id of the stop that keeps the email from leaving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// Subject.
    pub subject: String,
    /// Number of duplicate calls that were answered with this email.
    #[serde(default)]
    pub suppressed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateRef>,
    /// Id of the thread that the email is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// To addresses.
    #[serde(default)]
    pub to: Vec<String>,
    /// Version of the email, from 1. Each resend is one more.
    #[serde(default)]
    pub version: u32,
}

/// An email with its content, handoffs, evidence and timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EmailDetail {
    /// Bcc addresses.
    #[serde(default)]
    pub bcc: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallTrace>,
    /// Cc addresses.
    #[serde(default)]
    pub cc: Vec<String>,
    /// Number of handoffs in each state.
    #[serde(default)]
    pub counts: BTreeMap<String, u32>,
    /// When the email was accepted.
    pub created_at: String,
    /// When the idempotency key expires; null until the email reaches a final state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Sender.
    pub from: String,
    /// The most important guard in `holds`, or the one that held or flagged the email.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// The guards that hold the email. It leaves when none is left.
    #[serde(default)]
    pub holds: Vec<String>,
    /// Id of the email.
    pub id: String,
    /// Idempotency key; null without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The Message-ID header, with angle brackets.
    pub message_id: String,
    /// Id of the message that this email replies to or forwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_message: Option<String>,
    /// Id of the email that this one resends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resend_of: Option<String>,
    /// Id of the next version, if the email was resent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resent_as: Option<String>,
    /// Revision; grows with every change.
    #[serde(default)]
    pub rev: u32,
    /// When the email is due, while it is scheduled or held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<String>,
    /// When the email reached a final state; null before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<String>,
    /// `scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`
    pub state: String,
    /// Id of the stop that keeps the email from leaving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// Subject.
    pub subject: String,
    /// Number of duplicate calls that were answered with this email.
    #[serde(default)]
    pub suppressed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateRef>,
    /// Id of the thread that the email is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// To addresses.
    #[serde(default)]
    pub to: Vec<String>,
    /// Version of the email, from 1. Each resend is one more.
    #[serde(default)]
    pub version: u32,
    #[serde(default)]
    pub attachments: Vec<SentAttachment>,
    /// Oldest first.
    #[serde(default)]
    pub evidence: Vec<Evidence>,
    #[serde(default)]
    pub handoffs: Vec<Handoff>,
    /// Your additional headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// HTML body; null without one, or when the retention period is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// Your own data.
    #[serde(default)]
    pub metadata: BTreeMap<String, serde_json::Value>,
    /// What happens when the outcome is unknown: `hold` waits for evidence or a person; `resend` sends once more.
    pub on_unknown: String,
    /// What each check decided when the email was accepted, in order.
    #[serde(default)]
    pub policy: Vec<PolicyStep>,
    /// Reply-To addresses.
    #[serde(default)]
    pub reply_to: Vec<String>,
    /// The latest 20 suppressed duplicate calls, newest first.
    #[serde(default)]
    pub suppressed_calls: Vec<SuppressedCall>,
    /// Your tags, by name.
    #[serde(default)]
    pub tags: BTreeMap<String, serde_json::Value>,
    /// Plain text body. When the retention period of the content is over, this and `html` are null, and the other parts of the content are empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default)]
    pub timeline: Vec<TimelineEntry>,
}

/// A page of emails, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EmailPage {
    #[serde(default)]
    pub data: Vec<Email>,
    /// Pass it as `cursor` to get the next page; null at the end. A page with few results may still have a next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// An empty object; the body may be left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Empty {}

/// A webhook endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Endpoint {
    pub created_at: String,
    /// Cursor of the last event that was processed for this endpoint.
    pub cursor: String,
    pub description: String,
    /// Payload and signature format; null for mailonce's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    #[serde(default)]
    pub events: Vec<String>,
    /// When the first failure since the last success happened; null while requests succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// Names of the custom headers.
    #[serde(default)]
    pub headers: Vec<String>,
    pub id: String,
    #[serde(default)]
    pub inboxes: Vec<String>,
    /// Whether `message.received` includes the text of the message.
    #[serde(default)]
    pub include_text: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u32>,
    /// Why the endpoint is not enabled: `asked` (by a call), `gone` (it answered 410) or `failing` (for 14 days).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default)]
    pub rev: u32,
    /// Signing secret `whsec_…`; only in the response that created or rotated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Number of secrets that sign requests at the moment.
    #[serde(default)]
    pub secret_count: u64,
    /// `enabled`, `paused` or `disabled`.
    pub state: String,
    /// When the state last changed.
    pub state_since: String,
    pub url: String,
    /// API version that the endpoint was created with.
    pub version: String,
}

/// A page of endpoints, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EndpointPage {
    #[serde(default)]
    pub data: Vec<Endpoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Settings of an endpoint to change. Absent fields keep their value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndpointPatch {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub description: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub events: Option<Option<Vec<String>>>,
    /// Replaces all custom headers.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub headers: Option<Option<BTreeMap<String, String>>>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub inboxes: Option<Option<Vec<String>>>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub include_text: Option<Option<bool>>,
    /// Rate limit in requests per second; `null` removes it.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<Option<u32>>,
    /// The `rev` that you read. If it is set, the call is refused when the endpoint has changed since.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub rev: Option<Option<u32>>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub url: Option<Option<String>>,
}

/// Result of a test request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EndpointTest {
    /// Whether the endpoint answered 2xx.
    #[serde(default)]
    pub delivered: bool,
    /// Why there was no response: `blocked name connect tls timeout broken`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The `webhook-id` of the test request.
    pub id: String,
    #[serde(default)]
    pub latency_ms: u32,
    /// Start of the response body, or the error message.
    pub response: String,
    /// HTTP status of the response, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u32>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    pub about: EventSubject,
    pub at: String,
    /// Position of the event, `epoch-seq`; pass it as `after`.
    pub cursor: String,
    #[serde(default)]
    pub data: BTreeMap<String, serde_json::Value>,
    pub id: String,
    /// Sequence number in the team, from 1 without gaps.
    #[serde(default)]
    pub seq: u64,
    #[serde(rename = "type")]
    pub kind: String,
}

/// A page of events, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventPage {
    #[serde(default)]
    pub data: Vec<Event>,
    /// Pass it as `after` to read on; null when there are no events after the cursor. With a filter, even an empty page may have a next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventSubject {
    pub id: String,
    pub kind: String,
    #[serde(default)]
    pub rev: u32,
}

/// Evidence: a fact about what the next hop did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evidence {
    /// When the evidence was recorded.
    pub at: String,
    /// Number of the attempt that the evidence is about; null if it is about the handoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What was observed, such as the reply of the provider.
    pub detail: String,
    /// Number of the handoff that the evidence is about.
    #[serde(default)]
    pub handoff: u32,
    /// What the evidence states: `accepted not_found silent not_accepted delivered delayed bounced complained again abandoned lost`. `silent`: the next hop could not be asked; `again`: the email is sent again; `lost`: the outcome is unknown.
    pub says: String,
    /// Where the evidence comes from: `late_reply look_up provider_event bounce person policy window crash`
    pub source: String,
}

/// Recipients and text of a forwarded message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forward {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cc: Option<Addresses>,
    /// One-time token of a held email that looks like an earlier one: releases the held email.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_token: Option<String>,
    /// Token of the lease that you hold on the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Text above the forwarded message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    pub to: Addresses,
}

/// One handoff: an envelope for one transport.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Handoff {
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// When the next attempt is due, or the next check while the outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// Whether some attempt may have succeeded although its outcome is unknown.
    #[serde(default)]
    pub in_doubt: bool,
    /// Whether the recipient may get the email twice.
    #[serde(default)]
    pub may_duplicate: bool,
    /// Number of the handoff within its email.
    #[serde(default)]
    pub number: u32,
    /// Why the handoff waits, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Envelope recipients of this handoff.
    #[serde(default)]
    pub recipients: Vec<String>,
    /// `scheduled queued leased sending sent delivered bounced complained failed unknown abandoned held cancelled`
    pub state: String,
    /// Name of the transport.
    pub transport: String,
}

/// A header field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeaderField {
    pub name: String,
    pub value: String,
}

/// An inbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Inbox {
    /// Address of the inbox.
    pub address: String,
    /// Name of the agent that uses the inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Registrable domains whose links are allowed. When empty, links are judged by the sender's domain.
    #[serde(default)]
    pub allowed_link_domains: Vec<String>,
    pub caps: Caps,
    /// Whether the inbox receives mail for every address of its domain without an inbox.
    #[serde(default)]
    pub catch_all: bool,
    /// Your own id of the inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// When the inbox was created.
    pub created_at: String,
    /// Cursor of the latest message; pass it as `after`.
    pub cursor: String,
    /// When the inbox stops receiving mail; its messages stay readable. Null for a permanent inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Id of the inbox.
    pub id: String,
    /// Whether replies have the header `Auto-Submitted`.
    #[serde(default)]
    pub mark_auto_submitted: bool,
    /// Number of messages that were received.
    #[serde(default)]
    pub message_count: u64,
    /// Your own values.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Display name for mail from this inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether agents may reply to mail that is likely, but not certainly, automatic.
    #[serde(default)]
    pub reply_to_likely_automatic: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<InboxRetention>,
    /// Revision; grows with every change.
    #[serde(default)]
    pub rev: u32,
}

/// A page of inboxes, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InboxPage {
    #[serde(default)]
    pub data: Vec<Inbox>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Fields of an inbox to change. Absent fields keep their value; `null` removes a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InboxPatch {
    /// Name of the agent that uses the inbox; `null` removes it.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub agent: Option<Option<String>>,
    /// Registrable domains whose links are allowed, at most 50; replaces the list.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub allowed_link_domains: Option<Option<Vec<String>>>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub caps: Option<Option<Caps>>,
    /// Whether the inbox receives mail for every address of its domain without an inbox; needs the scope `admin`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub catch_all: Option<Option<bool>>,
    /// Whether replies have the header `Auto-Submitted`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub mark_auto_submitted: Option<Option<bool>>,
    /// Your own values; replaces all of them.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Option<BTreeMap<String, String>>>,
    /// Display name for mail from this inbox; `null` removes it.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub name: Option<Option<String>>,
    /// Whether agents may reply to mail that is likely, but not certainly, automatic.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub reply_to_likely_automatic: Option<Option<bool>>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub retention: Option<Option<InboxRetention>>,
    /// The `rev` that you read. If it is set, the call is refused when the inbox has changed since.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub rev: Option<Option<u32>>,
    /// New lifetime from now, such as `30m` or `24h`. `0s` expires the inbox now; `null` makes it permanent.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Option<String>>,
}

/// How long an inbox keeps mail. It can be shorter than the team's `retention`, and never longer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InboxRetention {
    /// Received mail, with its text and attachments: a duration from 1 hour to 3,650 days; null means as long as the team keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
}

/// A sign of prompt injection, and how often it occurs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InjectionFlag {
    /// How often it was found.
    #[serde(default)]
    pub count: u64,
    /// The pattern that was found.
    pub flag: String,
}

/// What an email is about. The idempotency key is derived from the intent and `to`, so that every retry has the same key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// What the email is about, such as `order_4821`.
    pub entity: String,
    /// The day, week or run of a recurring email.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// Type of the email, such as `order.confirmation`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Increase it to send about the same entity again on purpose; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}

/// An idempotency key and what it is bound to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Key {
    /// How often the key was bound: 1, plus 1 for each time it was used again after it had expired.
    #[serde(default)]
    pub bind_number: u32,
    /// `email`, `operation` (another call) or `forgotten`.
    pub bound_to: String,
    /// Where the key comes from: `intent` or `header`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derivation: Option<String>,
    /// Versioned hash of the canonical email; a retry with another digest is a mismatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Id of the email that the key is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// When the key expires; null until the email reaches a final state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten_at: Option<String>,
    /// Number of duplicate calls that were answered with the same email.
    #[serde(default)]
    pub hits: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The latest 20 duplicate calls, newest first.
    #[serde(default)]
    pub suppressed_calls: Vec<SuppressedCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
}

/// A page of idempotency keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyPage {
    #[serde(default)]
    pub data: Vec<Key>,
    /// Pass it as `cursor` to get the next page; null on the last page. A page may have fewer keys than `limit`, or none, and still have a next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// New lifetime of an idempotency key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyPatch {
    pub ttl: Ttl,
}

/// A lease of a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// When the lease expires unless it is extended.
    pub expires_at: String,
    /// Fencing token: grows with each lease of the thread.
    #[serde(default)]
    pub fence: u64,
    /// Name of the worker that holds the lease.
    pub holder: String,
    /// Pass it as `lease` when you reply, acknowledge or extend.
    pub token: String,
}

/// The current lease of a thread, without its token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeaseHolder {
    /// When the lease expires unless it is extended.
    pub expires_at: String,
    /// Name of the worker that holds the lease.
    pub holder: String,
    /// Id of the message that the lease was taken with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A link in a message, with a safety verdict. mailonce never opens links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Link {
    /// Host of the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Purpose of the link if it is recognized, such as `verify` or `reset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// Why the link has this verdict.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// The URL; null without the scope `secrets`, because a link may contain a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// `allowed suspicious blocked`.
    pub verdict: String,
}

/// A message, without its body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Message {
    #[serde(default)]
    pub attachments: Vec<AttachmentInfo>,
    pub auth: Auth,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automatic: Option<AutomaticReason>,
    #[serde(default)]
    pub cc: Vec<Party>,
    /// Position in the inbox; pass it as `after`.
    pub cursor: String,
    /// The Date header, which the sender chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// `message_id_reused no_message_id unreadable cut ambiguous duplicate_header`.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Folder that the message was moved to; null if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Party>,
    /// Types of the artifacts in the message: `code`, `link`.
    #[serde(default)]
    pub has: Vec<String>,
    /// Id of the message.
    pub id: String,
    /// Id of the inbox that received it.
    pub inbox_id: String,
    /// Labels of the message.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The Message-ID header; null without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Rules in the mode `observe` that matched. Their actions were not carried out.
    #[serde(default)]
    pub observed_rules: Vec<RuleHit>,
    /// Why the message counts as sent by the team itself: `address loop_mark message_id`; null if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_reason: Option<String>,
    /// Start of the text, with codes and links masked. Empty in the view `min`, where all text is inside the fence.
    pub preview: String,
    /// Whether the message is marked as read.
    #[serde(default)]
    pub read: bool,
    /// When the message arrived.
    pub received_at: String,
    /// Envelope recipient, including a `+tag`.
    pub recipient: String,
    /// Ids of the emails that replied to or forwarded the message.
    #[serde(default)]
    pub replies: Vec<String>,
    /// Where a reply goes.
    pub reply_target: ReplyTarget,
    #[serde(default)]
    pub reply_to: Vec<Party>,
    /// Revision; grows with every change.
    #[serde(default)]
    pub rev: u32,
    /// Rules that matched, in the order of evaluation.
    #[serde(default)]
    pub rules: Vec<RuleHit>,
    /// Size in bytes, as received.
    #[serde(default)]
    pub size: u64,
    /// `unanswered leased answered skipped`.
    pub state: String,
    /// Subject; empty without one.
    pub subject: String,
    /// Id of its thread.
    pub thread_id: String,
    #[serde(default)]
    pub to: Vec<Party>,
}

/// Conditions on the message of the artifact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageMatch {
    /// An address, or `@domain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Part of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

/// A page of messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MessagePage {
    #[serde(default)]
    pub data: Vec<Message>,
    /// Pass it as `cursor` (newest first) or as `after` (oldest first) to get the next page; null at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A webhook endpoint to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewEndpoint {
    /// Where to start: an event cursor, or `0` for all stored events. When absent, with the next event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Payload and signature format: `resend` or `usesend`; mailonce's own format when absent. Events that the dialect does not have are not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    /// Event types to send: types such as `email.sent`, prefixes such as `email.*`, or `["*"]` for all (default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<String>>,
    /// Custom headers of every webhook request. The values are not shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Send only events of these inboxes, by id; all inboxes when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inboxes: Option<Vec<String>>,
    /// Whether `message.received` includes the visible text of the message, with codes masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_text: Option<bool>,
    /// Rate limit in requests per second; no limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u32>,
    /// Signing secret to use: `whsec_` and Base64 of 24 to 64 bytes. Generated when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Webhook URL: `https://…`. In `dev` mode also `http://` and loopback addresses.
    pub url: String,
}

/// An inbox to create. Set `address`, or `username` and `domain`, or neither for a random address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewInbox {
    /// Whole address; a random one by default. Not with `username` or `domain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Name of the agent that uses the inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Registrable domains whose links are allowed, at most 50. When empty, links are judged by the sender's domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_link_domains: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<Caps>,
    /// Whether the inbox receives mail for every address of its domain without an inbox; needs the scope `admin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_all: Option<bool>,
    /// Your own id of the inbox. Another call with the same `client_id` returns the same inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Domain of the address; the first domain of this installation by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Whether replies have the header `Auto-Submitted`, which marks them as written by a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_auto_submitted: Option<bool>,
    /// Your own values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Display name for mail from this inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether agents may reply to mail that is likely, but not certainly, automatic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_likely_automatic: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<InboxRetention>,
    /// Lifetime of the inbox, such as `30m`, `24h` or `7d`; permanent when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// Part of the address before the @; random by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
}

/// A request for the lease of a thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewLease {
    /// Name of the agent, shown to others; the name of the API key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Token of your current lease, to renew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Duration of the lease in seconds, 1 to 600; 30 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u32>,
}

/// A watch to start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewWatch {
    /// How often the agent may request that the email is sent again, at most 100; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u32>,
    /// When the watch ends: an RFC 3339 time, or a duration from now such as `5m`. 10 minutes by default, at most 7 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// `true`: only messages with an authenticated sender count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_auth: Option<bool>,
}

/// A request for messages to work on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NextMessages {
    /// Name of the agent, shown to others; the name of the API key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Maximum number of messages, 1 to 10; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Duration of each lease in seconds, 1 to 600; 30 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u32>,
    /// How long to wait for a message in seconds, up to 60; 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
}

/// An attempt to send a notice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NoticeAttempt {
    pub at: String,
    /// Why the attempt failed: `blocked name connect tls timeout broken status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default)]
    pub latency_ms: u32,
    #[serde(default)]
    pub number: u32,
    /// Start of the response body, or the error message.
    pub response: String,
    /// HTTP status of the response, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u32>,
}

/// A notice: one event to be sent to one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Notice {
    /// Id of the object that the event is about.
    pub about: String,
    /// Number of attempts that were started.
    #[serde(default)]
    pub attempt_count: u32,
    /// The latest finished attempts, oldest first.
    #[serde(default)]
    pub attempts: Vec<NoticeAttempt>,
    pub created_at: String,
    pub endpoint: String,
    /// Cursor of the event.
    pub event: String,
    /// Id of the notice; the `webhook-id` header of every attempt.
    pub id: String,
    /// When the next attempt is due; null while an earlier notice about the same object is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<String>,
    #[serde(default)]
    pub rev: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<String>,
    /// `pending delivered dead dropped`.
    pub state: String,
    #[serde(rename = "type")]
    pub kind: String,
}

/// A page of notices, latest events first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NoticePage {
    #[serde(default)]
    pub data: Vec<Notice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A sender or recipient of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Party {
    /// Address.
    pub address: String,
    /// Display name; null without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What one check decided about an email.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PolicyStep {
    /// Id of the rule or budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `request sender stop suppression list rule budget guard`
    pub kind: String,
    /// Name of the rule or budget, or of the check: `request sender stops suppressions lists overlaps looks_duplicate cap`.
    pub name: String,
    /// `pass hold refuse flag observe`; `observe`: the rule only records what it would have done.
    pub verdict: String,
    /// Reason, in words.
    pub why: String,
}

/// An error response (RFC 9457): what went wrong and what to do next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Problem {
    /// Error code. Branch on this value; later versions may have codes that are not listed.
    pub code: String,
    /// What went wrong in this call.
    pub detail: String,
    /// Path of the invalid field, or name of the invalid parameter or header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do next, in a sentence that a model can act on.
    pub next: String,
    /// Whether to retry: `never`, `same` (the same call with the same idempotency key) or `later` (after a pause).
    pub retry: String,
    /// The HTTP status.
    #[serde(default)]
    pub status: u32,
    /// Short title for people.
    pub title: String,
    /// Link to the documentation page of this error code.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Which notices to send again. Set either `since` or `after`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recover {
    /// Events after this cursor; `0` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// `failed` (default): dead notices, and notices that wait for a retry. `all`: also those that were delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include: Option<String>,
    /// Events at or after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// Result of a recovery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Recovery {
    /// Events after this cursor are sent again. Null when the call is a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Number of failed notices that are due now. At 5000 there may be more: call again with a new idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued: Option<u64>,
}

/// The lease to release: your own by its token, or anybody's by force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReleaseLease {
    /// End the lease of another agent, to take over. Needs the scope `approve` or `admin` instead of `reply`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// Token of the lease. Only its holder knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// A message with its body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RenderedMessage {
    #[serde(default)]
    pub attachments: Vec<AttachmentInfo>,
    pub auth: Auth,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automatic: Option<AutomaticReason>,
    #[serde(default)]
    pub cc: Vec<Party>,
    /// Position in the inbox; pass it as `after`.
    pub cursor: String,
    /// The Date header, which the sender chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// `message_id_reused no_message_id unreadable cut ambiguous duplicate_header`.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Folder that the message was moved to; null if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Party>,
    /// Types of the artifacts in the message: `code`, `link`.
    #[serde(default)]
    pub has: Vec<String>,
    /// Id of the message.
    pub id: String,
    /// Id of the inbox that received it.
    pub inbox_id: String,
    /// Labels of the message.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The Message-ID header; null without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Rules in the mode `observe` that matched. Their actions were not carried out.
    #[serde(default)]
    pub observed_rules: Vec<RuleHit>,
    /// Why the message counts as sent by the team itself: `address loop_mark message_id`; null if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_reason: Option<String>,
    /// Start of the text, with codes and links masked. Empty in the view `min`, where all text is inside the fence.
    pub preview: String,
    /// Whether the message is marked as read.
    #[serde(default)]
    pub read: bool,
    /// When the message arrived.
    pub received_at: String,
    /// Envelope recipient, including a `+tag`.
    pub recipient: String,
    /// Ids of the emails that replied to or forwarded the message.
    #[serde(default)]
    pub replies: Vec<String>,
    /// Where a reply goes.
    pub reply_target: ReplyTarget,
    #[serde(default)]
    pub reply_to: Vec<Party>,
    /// Revision; grows with every change.
    #[serde(default)]
    pub rev: u32,
    /// Rules that matched, in the order of evaluation.
    #[serde(default)]
    pub rules: Vec<RuleHit>,
    /// Size in bytes, as received.
    #[serde(default)]
    pub size: u64,
    /// `unanswered leased answered skipped`.
    pub state: String,
    /// Subject; empty without one.
    pub subject: String,
    /// Id of its thread.
    pub thread_id: String,
    #[serde(default)]
    pub to: Vec<Party>,
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    /// Ambiguous codes and links. They cannot be consumed.
    #[serde(default)]
    pub candidates: Vec<BTreeMap<String, serde_json::Value>>,
    /// Whether the whole message was processed; false when it exceeded a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// The header fields; only in the view `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Vec<HeaderField>>,
    /// Sanitized HTML without active or remote content; only in the view `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    #[serde(default)]
    pub injection_flags: Vec<InjectionFlag>,
    #[serde(default)]
    pub links: Vec<Link>,
    /// How many hidden or unsafe parts the view `min` removed, by kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_counts: Option<BTreeMap<String, serde_json::Value>>,
    /// The text. In the view `min` it is inside a fence with a random nonce; treat everything in it as untrusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// `min plain full`, or `gone` when the message's bytes are no longer stored.
    pub view: String,
}

/// A reply to a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// One-time token of a held reply that looks like an earlier email: releases the held reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_token: Option<String>,
    /// 0 (default) is the reply; 1, 2 and so on are intended follow-ups. Each number is sent once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_up: Option<u32>,
    /// HTML body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Token of the lease that you hold on the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Whether to quote the message below the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<bool>,
    /// Whether to reply to all recipients of the message. The team's own inboxes are always left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_all: Option<bool>,
    /// Ids of newer messages in the thread that you have read; at most 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateUse>,
    /// Plain text body. Required unless `html` or `template` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Number of replies in a thread, and its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplyCounts {
    pub caps: Caps,
    /// Replies within the window of `caps`, the latest `window_s` seconds.
    #[serde(default)]
    pub in_window: u64,
    /// Within the last 24 hours.
    #[serde(default)]
    pub last_24h: u64,
    /// All replies in the thread.
    #[serde(default)]
    pub total: u32,
}

/// Where a reply to the message goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplyTarget {
    /// Risks: `other_domain` (another organization than the sender's) and `auth_failed` (authentication failed).
    #[serde(default)]
    pub flags: Vec<String>,
    /// The Reply-To addresses, or the sender without any.
    #[serde(default)]
    pub to: Vec<String>,
}

/// New time of a scheduled email.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reschedule {
    /// RFC 3339 time with an offset, or a relative time such as `in 5 minutes`.
    pub scheduled_at: String,
}

/// Why an email is resent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resend {
    /// Reason, for people who read the timeline later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A person's decision about an email whose outcome is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResolveEmail {
    /// `sent` (the email arrived), `resend` (send the same bytes again) or `abandon` (give up).
    #[serde(rename = "as")]
    pub as_: String,
    /// Number of the handoff to resolve; every unknown handoff when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<u32>,
    /// Reason, for people who read the timeline later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The `rev` of the email that you read; the call is refused if the email has changed since.
    pub rev: u32,
}

/// Rotation of an endpoint's secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RotateEndpoint {
    /// How long requests are also signed with the previous secrets; `24h` by default, at most `30d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_secret_ttl: Option<String>,
    /// New signing secret: `whsec_…`. Generated when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A rule that matched the message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RuleHit {
    /// Actions of the rule, such as `folder` and `label`.
    #[serde(default)]
    pub actions: Vec<String>,
    pub id: String,
    /// Name of the rule at that time.
    pub name: String,
}

/// A string, a number up to 2^53-1 or a boolean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    Text(String),
    Number(f64),
    Truth(bool),
}

/// An email to send once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mail {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Vec<Attachment>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bcc: Option<Addresses>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cc: Option<Addresses>,
    /// One-time token of a held email that looks like an earlier one: confirms that it is a different email.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_token: Option<String>,
    /// Sender: `agent@example.com` or `Name <agent@example.com>`.
    pub from: String,
    /// Custom headers, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// HTML body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Your own data: strings, numbers up to 2^53-1 and booleans, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, Scalar>>,
    /// What to do when the key was used for a different email. `reject` answers 422; `first_wins` answers with the first email. The default is `reject` for header keys and `first_wins` for intents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_mismatch: Option<String>,
    /// What to do when the outcome is unknown. `hold` (default) waits for evidence or a person; `resend` sends once more, so the recipient may get it twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_unknown: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Addresses>,
    /// When to send: RFC 3339 time with an offset, or a relative time such as `in 5 minutes`. At once when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<String>,
    /// Subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Tag>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateUse>,
    /// Plain text body. Required unless `html` or `template` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    pub to: Addresses,
    /// Name of the transport to use; chosen by the server when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
}

/// The response to a send. A retry gets the same email with its current state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SendReceipt {
    /// When the email was accepted.
    pub created_at: String,
    pub dedupe: Dedupe,
    /// One-time token of a held email that looks like an earlier one. If it is a different email, send the same call again with this token: the held email is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_token: Option<String>,
    /// The fence of that thread's latest lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The most important guard in `holds`, or the one that held or flagged the email, or found a duplicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// The guards that hold the email. It leaves when none is left.
    #[serde(default)]
    pub holds: Vec<String>,
    /// Id of the email.
    pub id: String,
    /// The Message-ID header, with angle brackets.
    pub message_id: String,
    /// What this response means and what to do next, in a sentence.
    pub next: String,
    /// With `Prefer: policy-trace`: what each check decided about the email when it was accepted, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Vec<PolicyStep>>,
    /// Id of the next version, if the email was resent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resent_as: Option<String>,
    /// Revision; grows with every change.
    #[serde(default)]
    pub rev: u32,
    /// `scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`
    pub state: String,
    /// The thread of a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tightest_budget: Option<BudgetRoom>,
}

/// An attachment, without its bytes. `GET /v1/emails/{id}/attachments/{n}` returns the bytes; the first is number 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SentAttachment {
    /// Content-ID, if the HTML refers to the attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
    /// Declared content type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// File name as sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// Size in bytes.
    #[serde(default)]
    pub size: u64,
}

/// A duplicate call that was answered with an earlier email.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SuppressedCall {
    /// When the duplicate call came.
    pub at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallTrace>,
    /// Id of the API key of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// How the call came.
    pub channel: String,
    /// `key_replay payload_differs mismatch already_answered`
    pub reason: String,
}

/// A tag: a name, or a name with a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Tag {
    /// Only a name.
    Text(String),
    /// A name and a value.
    Object(TagPair),
}

/// A tag with a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TagPair {
    /// Name of the tag.
    pub name: String,
    /// Value of the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A template and its version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TemplateRef {
    pub name: String,
    #[serde(default)]
    pub version: u32,
}

/// The template that writes an email.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TemplateUse {
    /// Name of the template.
    pub name: String,
    /// Values, by variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<BTreeMap<String, serde_json::Value>>,
    /// The version; the newest by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}

/// A thread: messages and emails that reply to each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Thread {
    /// When the thread began.
    pub created_at: String,
    /// Number of sent emails.
    #[serde(default)]
    pub email_count: u32,
    /// The latest 100 messages and 100 emails, oldest first; only when a single thread is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<ThreadEntry>>,
    /// Fence of the latest lease; grows with each lease.
    #[serde(default)]
    pub fence: u64,
    /// When the thread was marked as handled; null if it is not. A new message clears the mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_at: Option<String>,
    /// Id of the thread.
    pub id: String,
    /// Id of the inbox.
    pub inbox_id: String,
    /// Labels of the thread.
    #[serde(default)]
    pub labels: Vec<String>,
    /// When the last message or email was added.
    pub last_activity_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseHolder>,
    /// Number of received messages.
    #[serde(default)]
    pub message_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replies: Option<ReplyCounts>,
    /// Revision; grows with every change.
    #[serde(default)]
    pub rev: u32,
    /// Subject of the first message.
    pub subject: String,
}

/// An entry of a thread: a received message or a sent email.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ThreadEntry {
    /// The message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    #[serde(rename = "type")]
    pub kind: String,
    /// The email.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<Email>,
}

/// A page of threads, latest activity first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ThreadPage {
    #[serde(default)]
    pub data: Vec<Thread>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Fields of a thread to change. Absent fields keep their value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadPatch {
    /// Whether the thread is handled: nothing is left to do.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub handled: Option<Option<bool>>,
    /// Replaces all labels.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub labels: Option<Option<Vec<String>>>,
}

/// An entry in the timeline of an email.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TimelineEntry {
    /// When it happened.
    pub at: String,
    /// What happened, in a sentence.
    pub description: String,
}

/// How long an idempotency key is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Ttl {
    /// `transactional` (7 d), `notification` (24 h), or a duration from `1s` to `400d`.
    Text(String),
    /// Twice the interval of a recurring email.
    Object(TtlClass),
}

/// Key lifetime for a recurring email: twice its interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TtlClass {
    /// Always `scheduled`.
    pub class: String,
    /// How often the email recurs, such as `7d`.
    pub interval: String,
}

/// The message that was waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitResult {
    /// Pass it as `after` to wait for the next message.
    pub cursor: String,
    pub message: Message,
}

/// A watch: one run of an agent that waits for mail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Watch {
    /// How often the agent may ask for the mail again.
    #[serde(default)]
    pub budget: u32,
    /// Only messages after this cursor count.
    pub cursor: String,
    /// When the watch ends.
    pub deadline: String,
    /// Id of the watch.
    pub id: String,
    /// Id of the inbox.
    pub inbox_id: String,
    /// Whether only messages with an authenticated sender count.
    #[serde(default)]
    pub require_auth: bool,
    /// How often the agent asked for the mail again.
    #[serde(default)]
    pub resends_used: u32,
    /// Revision; grows with every change.
    #[serde(default)]
    pub rev: u32,
    /// When the watch started.
    pub started_at: String,
}

/// A message to work on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkItem {
    pub lease: Lease,
    pub message: Message,
    /// Ids of newer messages from people in the thread. Read them, and list them in `seen` when you reply.
    #[serde(default)]
    pub newer_messages: Vec<String>,
}

/// Messages to work on, each with a lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkItemPage {
    #[serde(default)]
    pub data: Vec<WorkItem>,
}
