//! The shapes of the wire, from openapi.json by sdks/generate. Do not edit.

#![expect(missing_docs, reason = "what has no sentence in the document says what it is by its name")]

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Tells `null`, which takes away, from what is absent and stays.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// What an agent says about a message that it holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Acknowledgement {
    /// For `nack`: others may try after so many seconds; 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<u32>,
    /// The token of the lease.
    pub lease: String,
    /// For `extend`: how long from now, 1 to 600 seconds; 30 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u32>,
}

/// A message as it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AcknowledgementResult {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    pub message: Message,
}

/// One address or a list of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Addresses {
    Text(String),
    List(Vec<String>),
}

/// For whom it was taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArtifactApplied {
    #[serde(rename = "for")]
    pub for_: String,
}

/// A code or link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Artifact {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<String>,
    /// 0 to 100.
    #[serde(default)]
    pub confidence: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumed_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumed_for: Option<String>,
    pub found_at: String,
    pub id: String,
    pub inbox_id: String,
    pub masked: String,
    /// Our id of the message.
    pub message: String,
    #[serde(default)]
    pub reasons: Vec<String>,
    #[serde(default)]
    pub rev: u32,
    pub sender: String,
    #[serde(default)]
    pub sender_authenticated: bool,
    /// `code` or `link`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Only for whoever took it, and with the scope `secrets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<String>,
}

/// What was found in a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ArtifactPage {
    /// What else it could be; never given out.
    #[serde(default)]
    pub candidates: Vec<BTreeMap<String, serde_json::Value>>,
    /// Decided ones, best first.
    #[serde(default)]
    pub data: Vec<Artifact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A file that goes with the mail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    /// Base64.
    pub content: String,
    /// For inline images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
    /// MIME type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// File name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
}

/// An attachment by handle: `GET /v1/messages/{id}/attachments/{n}` has its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttachmentInfo {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
    pub content_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    #[serde(default)]
    pub inline: bool,
    #[serde(default)]
    pub n: u64,
    #[serde(default)]
    pub size: u64,
}

/// One try at an envelope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// When it was marked, or began when it never came so far.
    pub at: String,
    /// The SMTP or HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
    /// When its answer was written down; null while it is on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Whether an earlier attempt may have succeeded already.
    #[serde(default)]
    pub may_duplicate: bool,
    #[serde(default)]
    pub number: u32,
    /// `accepted deferred refused unknown`; null while it is on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// How far it came: `connect tls greet login mail rcpt data final`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The next hop's own name for the mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<String>,
    /// What the next hop said.
    pub reply: String,
    /// The way out it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
}

/// Whether a sender is who it says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Auth {
    pub dkim: String,
    pub dmarc: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    pub spf: String,
    /// Our own: `pass`, `fail`, `none` or `temperror`.
    pub verdict: String,
}

/// Why a message counts as automatic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AutomaticReason {
    /// Whether the inbox's setting `reply_to_likely_automatic` allows an answer all the same.
    #[serde(default)]
    pub overridable: bool,
    pub reason: String,
}

/// What was wrong with one item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchItemError {
    pub code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    #[serde(default)]
    pub index: u64,
    pub message: String,
}

/// The answer to a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchReceipt {
    /// In order; null where `errors` has a row.
    #[serde(default)]
    pub data: Vec<Option<SendReceipt>>,
    #[serde(default)]
    pub errors: Vec<BatchItemError>,
}

/// What a caller calls its own call: for correlation, it decides nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallTrace {
    /// From `Mailonce-Call-Id`, or the `_meta` of a model's call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// From `traceparent` (W3C Trace Context).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// How many answers are too many. What is absent stays; a new inbox begins with 3 in 300 s and 20 a day in a thread, and 20 a day to a person.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Caps {
    /// Answers to one person within a day, over all threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_recipient_per_day: Option<u32>,
    /// Answers in a thread within a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_thread_per_day: Option<u32>,
    /// Answers in a thread in all; any number without it, and again after `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_thread_total: Option<u32>,
    /// Answers in a thread within the window; the next is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_window: Option<u32>,
    /// Seconds, at most a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_s: Option<u32>,
}

/// For whom an artifact is taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Consume {
    /// The account, workflow or run it is for. The same again gets the same answer; another is refused.
    #[serde(rename = "for")]
    pub for_: String,
    /// The id of the watch it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<String>,
}

/// Which artifact of an inbox is taken, and for whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConsumeMatch {
    #[serde(rename = "for")]
    pub for_: String,
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub match_: Option<MessageMatch>,
    /// `code` or `link`.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<String>,
}

/// An artifact that was taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConsumedArtifact {
    pub artifact: Artifact,
}

/// What the key of a send did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Dedupe {
    /// When the key is forgotten; null until the email is settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The key, given or derived; null without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `first` or `replayed`.
    pub outcome: String,
    /// Whether this call said something else than the first one.
    #[serde(default)]
    pub payload_differs: bool,
    /// Calls that were answered with this email instead of making another.
    #[serde(default)]
    pub suppressed: u64,
}

/// One email in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Email {
    #[serde(default)]
    pub bcc: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallTrace>,
    #[serde(default)]
    pub cc: Vec<String>,
    /// How many envelopes are in which state.
    #[serde(default)]
    pub counts: BTreeMap<String, u32>,
    pub created_at: String,
    /// When the key is forgotten; null until the email is settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    pub from: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub message_id: String,
    /// The message it answers or passes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resend_of: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resent_as: Option<String>,
    #[serde(default)]
    pub rev: u32,
    /// When it is due, while it is scheduled, or held for a person and wished for later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<String>,
    pub state: String,
    pub subject: String,
    #[serde(default)]
    pub suppressed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    #[serde(default)]
    pub to: Vec<String>,
    #[serde(default)]
    pub version: u32,
}

/// Everything about one email.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EmailDetail {
    #[serde(default)]
    pub bcc: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallTrace>,
    #[serde(default)]
    pub cc: Vec<String>,
    /// How many envelopes are in which state.
    #[serde(default)]
    pub counts: BTreeMap<String, u32>,
    pub created_at: String,
    /// When the key is forgotten; null until the email is settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    pub from: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub message_id: String,
    /// The message it answers or passes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resend_of: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resent_as: Option<String>,
    #[serde(default)]
    pub rev: u32,
    /// When it is due, while it is scheduled, or held for a person and wished for later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<String>,
    pub state: String,
    pub subject: String,
    #[serde(default)]
    pub suppressed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    #[serde(default)]
    pub to: Vec<String>,
    #[serde(default)]
    pub version: u32,
    #[serde(default)]
    pub attachments: Vec<SentAttachment>,
    /// In the order it was learnt.
    #[serde(default)]
    pub evidence: Vec<Evidence>,
    #[serde(default)]
    pub handoffs: Vec<Handoff>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    #[serde(default)]
    pub metadata: BTreeMap<String, serde_json::Value>,
    pub on_unknown: String,
    #[serde(default)]
    pub reply_to: Vec<String>,
    /// The latest 20, newest first.
    #[serde(default)]
    pub suppressed_calls: Vec<SuppressedCall>,
    #[serde(default)]
    pub tags: BTreeMap<String, serde_json::Value>,
    /// Null, like the other parts of the content, once the body was dropped.
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
    /// Pass it as `cursor`; null at the end. A page may be short and still have more behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// No words are needed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Empty {}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Endpoint {
    pub created_at: String,
    /// The last event that was looked at for it.
    pub cursor: String,
    pub description: String,
    /// In whose words it is told, when not in ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    #[serde(default)]
    pub events: Vec<String>,
    /// When it failed first since it last succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// The names of its custom headers.
    #[serde(default)]
    pub headers: Vec<String>,
    pub id: String,
    #[serde(default)]
    pub inboxes: Vec<String>,
    /// Whether `message.received` carries the text of the message.
    #[serde(default)]
    pub include_text: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u32>,
    /// Why it is not enabled: `asked`, `gone` (it answered 410) or `failing` (nothing reached it for 14 days).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default)]
    pub rev: u32,
    /// `whsec_…`, when it was just made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// How many secrets sign at the moment.
    #[serde(default)]
    pub secret_count: u64,
    /// `enabled`, `paused` or `disabled`.
    pub state: String,
    /// Since when its state is what it is.
    pub state_since: String,
    pub url: String,
    /// The wire format that it was made with.
    pub version: String,
}

/// Endpoints, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EndpointPage {
    #[serde(default)]
    pub data: Vec<Endpoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// What to change. What is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndpointPatch {
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub description: Option<Option<String>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub events: Option<Option<Vec<String>>>,
    /// All of them: what is not named goes.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub headers: Option<Option<BTreeMap<String, String>>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub inboxes: Option<Option<Vec<String>>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub include_text: Option<Option<bool>>,
    /// `null` for no limit.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<Option<u32>>,
    /// The rev that was seen, if it must still be that.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub rev: Option<Option<u32>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub url: Option<Option<String>>,
}

/// How a test went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EndpointTest {
    /// Whether the answer was 2xx.
    #[serde(default)]
    pub delivered: bool,
    /// Else why not: `blocked name connect tls timeout broken`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The `webhook-id` of the test.
    pub id: String,
    #[serde(default)]
    pub latency_ms: u32,
    /// The beginning of the answer, or what went wrong.
    pub response: String,
    /// The status of the answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u32>,
}

/// A fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    pub about: EventSubject,
    pub at: String,
    /// `epoch-seq`.
    pub cursor: String,
    #[serde(default)]
    pub data: BTreeMap<String, serde_json::Value>,
    pub id: String,
    /// From 1, without gaps.
    #[serde(default)]
    pub seq: u64,
    #[serde(rename = "type")]
    pub kind: String,
}

/// Events, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventPage {
    #[serde(default)]
    pub data: Vec<Event>,
    /// Pass it as `after`; null when there was nothing to look at. With a filter a page may be short, even empty, and still have more behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventSubject {
    pub id: String,
    pub kind: String,
    #[serde(default)]
    pub rev: u32,
}

/// A fact about what the next hop did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evidence {
    pub at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    pub detail: String,
    #[serde(default)]
    pub handoff: u32,
    /// `accepted not_found silent not_accepted delivered delayed bounced complained again abandoned lost`
    pub says: String,
    /// `late_reply look_up provider_event bounce person policy window crash`
    pub source: String,
}

/// A message to be passed on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forward {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cc: Option<Addresses>,
    /// The one-use token of a held look-alike: that email goes, and never another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_token: Option<String>,
    /// The token of the lease that you hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Words before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    pub to: Addresses,
}

/// One envelope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Handoff {
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// When it is tried next, or looked at again while it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// Whether some attempt may have succeeded without our knowing.
    #[serde(default)]
    pub in_doubt: bool,
    /// Whether the recipient may have it twice.
    #[serde(default)]
    pub may_duplicate: bool,
    #[serde(default)]
    pub number: u32,
    /// Why it waits or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default)]
    pub recipients: Vec<String>,
    /// `scheduled queued leased sending sent delivered bounced complained failed unknown abandoned held cancelled`
    pub state: String,
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
    pub address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default)]
    pub allowed_link_domains: Vec<String>,
    pub caps: Caps,
    #[serde(default)]
    pub catch_all: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    pub created_at: String,
    /// The place after its latest message, for `after`.
    pub cursor: String,
    /// From then on it refuses mail; its history stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    pub id: String,
    #[serde(default)]
    pub mark_auto_submitted: bool,
    /// Messages that arrived.
    #[serde(default)]
    pub message_count: u64,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default)]
    pub reply_to_likely_automatic: bool,
    #[serde(default)]
    pub rev: u32,
}

/// Inboxes, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InboxPage {
    #[serde(default)]
    pub data: Vec<Inbox>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// What to change. Absent members stay; `null` takes away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InboxPatch {
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub agent: Option<Option<String>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub allowed_link_domains: Option<Option<Vec<String>>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub caps: Option<Option<Caps>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub catch_all: Option<Option<bool>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub mark_auto_submitted: Option<Option<bool>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Option<BTreeMap<String, String>>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub name: Option<Option<String>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub reply_to_likely_automatic: Option<Option<bool>>,
    /// The rev that was seen; a stale one is refused.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub rev: Option<Option<u32>>,
    /// From now on: `30m`, `24h`; `0s` expires it now, `null` makes it permanent.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Option<String>>,
}

/// A sign that somebody talks to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InjectionFlag {
    #[serde(default)]
    pub count: u64,
    pub flag: String,
}

/// What a mail is about. Its key follows from this and from `to`, so that every retry has the same key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// What it is about: `order_4821`.
    pub entity: String,
    /// The day, week or run it belongs to, when it recurs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// What kind of mail it is: `order.confirmation`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Rises when the same thing is told again on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}

/// A key as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Key {
    /// How often it was bound.
    #[serde(default)]
    pub bind_number: u32,
    /// `email`, `operation` or `forgotten`.
    pub bound_to: String,
    /// How it came about: `intent` or `header`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derivation: Option<String>,
    /// The versioned hash of the email's meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The email it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// When it is forgotten; null until the email is settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten_at: Option<String>,
    /// Calls answered with the email instead of making another.
    #[serde(default)]
    pub hits: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The latest 20, newest first.
    #[serde(default)]
    pub suppressed_calls: Vec<SuppressedCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
}

/// Another memory for a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyPatch {
    pub ttl: Ttl,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    pub expires_at: String,
    /// Grows with each lease of the thread.
    #[serde(default)]
    pub fence: u64,
    pub holder: String,
    /// Show it as `lease` when you answer.
    pub token: String,
}

/// Who works on a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeaseHolder {
    pub expires_at: String,
    pub holder: String,
    /// The message it was offered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A link with its verdict. It is never followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Link {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What it is for, when it says so: `verify`, `reset` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    #[serde(default)]
    pub reasons: Vec<String>,
    /// The whole address; only with the scope `secrets`, since a link may be a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// `allowed suspicious blocked`.
    pub verdict: String,
}

/// A message, without what it says.
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
    /// Its place in the inbox, for `after`.
    pub cursor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// `message_id_reused no_message_id unreadable cut ambiguous duplicate_header`.
    #[serde(default)]
    pub flags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Party>,
    /// What was found in it: `code`, `link`.
    #[serde(default)]
    pub has: Vec<String>,
    pub id: String,
    pub inbox_id: String,
    #[serde(default)]
    pub labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Why it counts as our own: `address loop_mark message_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_reason: Option<String>,
    /// The start of what it says, secrets masked; empty in the view `min`, whose text stands between fences.
    pub preview: String,
    #[serde(default)]
    pub read: bool,
    pub received_at: String,
    /// The address it was sent to, plus tag and all.
    pub recipient: String,
    /// Emails that answered it or passed it on.
    #[serde(default)]
    pub replies: Vec<String>,
    /// Where an answer goes.
    pub reply_target: ReplyTarget,
    #[serde(default)]
    pub reply_to: Vec<Party>,
    #[serde(default)]
    pub rev: u32,
    /// Rules that matched, in the order in which they were asked.
    #[serde(default)]
    pub rules: Vec<RuleHit>,
    #[serde(default)]
    pub size: u64,
    /// `unanswered leased answered skipped`.
    pub state: String,
    pub subject: String,
    pub thread_id: String,
    #[serde(default)]
    pub to: Vec<Party>,
}

/// What its message must be like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageMatch {
    /// An address, or `@domain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Part of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

/// Messages in the order that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MessagePage {
    #[serde(default)]
    pub data: Vec<Message>,
    /// Where to go on, as `cursor` newest first and as `after` oldest first; null at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// An endpoint to make.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewEndpoint {
    /// Where to begin: a cursor, or `0` for every event there ever was. Left out, with the next event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// In whose words it is told and signed: `resend` or `usesend`. Left out, in ours. Events that the dialect has no word for are not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    /// Types such as `email.sent`, families such as `email.*`, or `["*"]`, which is what absence means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<String>>,
    /// Headers that every request carries. Their values are not shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Only what happens at these inboxes, by id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inboxes: Option<Vec<String>>,
    /// Whether `message.received` carries the visible text of the message, its codes hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_text: Option<bool>,
    /// Requests a second at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u32>,
    /// A secret that you already have: `whsec_` and base64 of 24 to 64 bytes. Left out, one is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Where notices go: `https://…`. In `dev` also `http://` and this machine.
    pub url: String,
}

/// An inbox to make: a whole `address`, or `username` and `domain`, or neither for a random one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewInbox {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The agent it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Registrable domains whose links are allowed; without any, links are judged by their sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_link_domains: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<Caps>,
    /// Whether it takes mail for every address of its domain that has no inbox; needs `admin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_all: Option<bool>,
    /// The same `client_id` again answers with the same inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The first domain of this installation by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Whether its answers say that a machine wrote them (`Auto-Submitted`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_auto_submitted: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// The name beside its address in mail that it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether mail that only looks automatic may be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_likely_automatic: Option<bool>,
    /// How long it takes mail: `30m`, `24h`, `7d`. Without one it is permanent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
}

/// A wish for a lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewLease {
    /// Who asks, as people call it; the name of the API key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The token of your lease, to renew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// 1 to 600; 30 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u32>,
}

/// A watch to begin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewWatch {
    /// How often its agent may ask for the mail to be sent again; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u32>,
    /// When it ends: an instant, or a time from now such as `5m`; 10 minutes by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// `true`: only mail whose sender is authenticated counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_auth: Option<bool>,
}

/// A wish for work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NextMessages {
    /// Who asks, as people call it; the name of the API key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// At most so many messages, 1 to 10; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// How long each lease lasts, 1 to 600 seconds; 30 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u32>,
    /// How long to wait for a message, up to 60 seconds; 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
}

/// An attempt to tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NoticeAttempt {
    pub at: String,
    /// What went wrong: `blocked name connect tls timeout broken status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default)]
    pub latency_ms: u32,
    #[serde(default)]
    pub number: u32,
    /// The beginning of the answer, or what went wrong.
    pub response: String,
    /// The status of the answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u32>,
}

/// One event owed to one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Notice {
    /// The id of what the event is about.
    pub about: String,
    /// Attempts that were begun.
    #[serde(default)]
    pub attempt_count: u32,
    /// The latest attempts that ended, oldest first.
    #[serde(default)]
    pub attempts: Vec<NoticeAttempt>,
    pub created_at: String,
    pub endpoint: String,
    /// The cursor of its event.
    pub event: String,
    /// Its `webhook-id`, the same at every attempt.
    pub id: String,
    /// When it is due. Null while it stands behind an earlier one about the same thing.
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

/// Notices, those of the latest events first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NoticePage {
    #[serde(default)]
    pub data: Vec<Notice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Somebody named in a mail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Party {
    pub address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Why a call did not do what it asked, and what to do next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Problem {
    /// The word to branch on.
    pub code: String,
    /// What happened this time.
    pub detail: String,
    /// The field or parameter at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// One sentence that a model can act on.
    pub next: String,
    /// Whether the same call may be sent again: `never`, `same` (unchanged, with the same key) or `later`.
    pub retry: String,
    /// The HTTP status.
    #[serde(default)]
    pub status: u32,
    /// A short name for people.
    pub title: String,
    /// A link to the page of this code.
    #[serde(rename = "type")]
    pub kind: String,
}

/// From where to tell again: one of `since` and `after`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recover {
    /// Events after this cursor; `0` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// `failed` (default): what was given up or waits for its next try. `all`: everything, also what was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include: Option<String>,
    /// Events at or after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// What is told again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Recovery {
    /// The cursor behind which events are told again. Null when this was asked before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Failed notices that are due now. At 5000 there may be more: ask again under another key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued: Option<u64>,
}

/// Which lease to give back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReleaseLease {
    /// Its token: only your own is given back.
    pub token: String,
}

/// A message with what it says.
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
    /// Its place in the inbox, for `after`.
    pub cursor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// `message_id_reused no_message_id unreadable cut ambiguous duplicate_header`.
    #[serde(default)]
    pub flags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Party>,
    /// What was found in it: `code`, `link`.
    #[serde(default)]
    pub has: Vec<String>,
    pub id: String,
    pub inbox_id: String,
    #[serde(default)]
    pub labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Why it counts as our own: `address loop_mark message_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_reason: Option<String>,
    /// The start of what it says, secrets masked; empty in the view `min`, whose text stands between fences.
    pub preview: String,
    #[serde(default)]
    pub read: bool,
    pub received_at: String,
    /// The address it was sent to, plus tag and all.
    pub recipient: String,
    /// Emails that answered it or passed it on.
    #[serde(default)]
    pub replies: Vec<String>,
    /// Where an answer goes.
    pub reply_target: ReplyTarget,
    #[serde(default)]
    pub reply_to: Vec<Party>,
    #[serde(default)]
    pub rev: u32,
    /// Rules that matched, in the order in which they were asked.
    #[serde(default)]
    pub rules: Vec<RuleHit>,
    #[serde(default)]
    pub size: u64,
    /// `unanswered leased answered skipped`.
    pub state: String,
    pub subject: String,
    pub thread_id: String,
    #[serde(default)]
    pub to: Vec<Party>,
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    /// What else it could hold; never given out.
    #[serde(default)]
    pub candidates: Vec<BTreeMap<String, serde_json::Value>>,
    /// Whether all of the mail was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// In `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Vec<HeaderField>>,
    /// In `full`: without anything that acts or loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    #[serde(default)]
    pub injection_flags: Vec<InjectionFlag>,
    #[serde(default)]
    pub links: Vec<Link>,
    /// What `min` took out, counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_counts: Option<BTreeMap<String, serde_json::Value>>,
    /// In `min` between fences with a random word: everything in it is untrusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// `min plain full`, or `gone` when its bytes are no longer kept.
    pub view: String,
}

/// An answer to a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The one-use token of a held look-alike: that answer goes, and never another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_token: Option<String>,
    /// 0 is the answer, higher numbers are wanted follow-ups; each is sent once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_up: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// The token of the lease that you hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Whether the message follows below your words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<bool>,
    /// Whether everybody who got the message gets the answer; our own addresses never do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_all: Option<bool>,
    /// Ids of newer messages in the thread that you have read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Vec<String>>,
    /// Plain text. This or `html`, or both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// How often a thread was answered, and how often it may be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplyCounts {
    pub caps: Caps,
    #[serde(default)]
    pub in_window: u64,
    /// Within the last 24 hours.
    #[serde(default)]
    pub last_24h: u64,
    #[serde(default)]
    pub total: u32,
}

/// Where an answer to a message goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplyTarget {
    /// `other_domain`: not the sender's organization. `auth_failed`: the sender's domain disowns the message.
    #[serde(default)]
    pub flags: Vec<String>,
    /// The addresses: those of Reply-To, else the sender.
    #[serde(default)]
    pub to: Vec<String>,
}

/// Another time for a scheduled email.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reschedule {
    /// RFC 3339 with an offset, or `in 5 minutes`.
    pub scheduled_at: String,
}

/// Why an email is sent again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resend {
    /// For whoever reads the timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of an email whose outcome is unknown, as a person decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResolveEmail {
    /// `sent` (it arrived), `resend` (send the same bytes again), `abandon` (give it up).
    #[serde(rename = "as")]
    pub as_: String,
    /// Only this handoff; every unknown one when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<u32>,
    /// For whoever reads the timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The email's `rev` as you saw it.
    pub rev: u32,
}

/// Another secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RotateEndpoint {
    /// How long the secrets before still sign beside it, `24h` by default, at most `30d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_secret_ttl: Option<String>,
    /// A secret that you already have. Left out, one is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A rule that matched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RuleHit {
    /// What was done: `folder`, `label` …
    #[serde(default)]
    pub actions: Vec<String>,
    pub id: String,
    /// Its name at the time.
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
    /// The one-use token of a held look-alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_token: Option<String>,
    /// `agent@example.com` or `Name <agent@example.com>`.
    pub from: String,
    /// Custom headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Strings, numbers up to 2^53-1 and booleans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, Scalar>>,
    /// `reject` or `first_wins`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_mismatch: Option<String>,
    /// `hold` or `resend`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_unknown: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Addresses>,
    /// RFC 3339 with an offset, or `in 5 minutes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Tag>>,
    /// Plain text body. This or `html`, or both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    pub to: Addresses,
    /// The name of a configured transport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
}

/// The answer to a send, the first time and every time after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SendReceipt {
    pub created_at: String,
    pub dedupe: Dedupe,
    /// Post the mail again with it if this held look-alike is meant; it goes, and never another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_token: Option<String>,
    /// The fence of that thread's latest lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The guard that spoke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    pub id: String,
    /// With angle brackets.
    pub message_id: String,
    /// What this answer means, in a sentence.
    pub next: String,
    /// The version that followed it, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resent_as: Option<String>,
    #[serde(default)]
    pub rev: u32,
    /// `scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`
    pub state: String,
    /// The thread that an answer belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

/// An attachment, without its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SentAttachment {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    #[serde(default)]
    pub size: u64,
}

/// A call that was answered with an earlier email.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SuppressedCall {
    pub at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallTrace>,
    /// The id of the API key it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
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
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Messages and emails that answer each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Thread {
    pub created_at: String,
    #[serde(default)]
    pub email_count: u32,
    /// What was said, oldest first, the latest 100 of each direction; only when one thread is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<ThreadEntry>>,
    /// The fence of its latest lease.
    #[serde(default)]
    pub fence: u64,
    /// When somebody said that nothing is left to do; a new message takes that back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_at: Option<String>,
    pub id: String,
    pub inbox_id: String,
    #[serde(default)]
    pub labels: Vec<String>,
    /// When something was last added to it.
    pub last_activity_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseHolder>,
    #[serde(default)]
    pub message_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replies: Option<ReplyCounts>,
    #[serde(default)]
    pub rev: u32,
    pub subject: String,
}

/// Something that was said.
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

/// Threads, those with the latest news first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ThreadPage {
    #[serde(default)]
    pub data: Vec<Thread>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// What to change. Absent members stay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadPatch {
    /// Whether nothing is left to do.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub handled: Option<Option<bool>>,
    /// All labels from now on.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub labels: Option<Option<Vec<String>>>,
}

/// Something that happened to an email.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TimelineEntry {
    pub at: String,
    pub description: String,
}

/// How long a key is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Ttl {
    /// `transactional` (7 d), `notification` (24 h), or a duration from `1s` to `400d`.
    Text(String),
    /// Twice the interval of a mail that recurs.
    Object(TtlClass),
}

/// The memory of a mail that recurs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TtlClass {
    /// `scheduled`.
    pub class: String,
    /// How often it recurs: `7d`.
    pub interval: String,
}

/// A message that arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitResult {
    /// Pass it as `after` to go on.
    pub cursor: String,
    pub message: Message,
}

/// A watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Watch {
    #[serde(default)]
    pub budget: u32,
    /// Only mail after this place counts.
    pub cursor: String,
    pub deadline: String,
    pub id: String,
    pub inbox_id: String,
    /// Whether only mail whose sender is authenticated counts.
    #[serde(default)]
    pub require_auth: bool,
    #[serde(default)]
    pub resends_used: u32,
    #[serde(default)]
    pub rev: u32,
    pub started_at: String,
}

/// A message to work on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkItem {
    pub lease: Lease,
    pub message: Message,
    /// What people wrote in the thread since. Read it, and name it in `seen` when you answer.
    #[serde(default)]
    pub newer_messages: Vec<String>,
}

/// Messages to work on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkItemPage {
    #[serde(default)]
    pub data: Vec<WorkItem>,
}
