//! The detail view of one email: content, handoffs, attempts, evidence and timeline.

use mailonce_core::{
    address::NamedAddress,
    call_trace::CallTrace,
    handoff::{Attempt, Evidence, EvidenceFinding, EvidenceSource, Handoff, Outcome, reply::AttemptPhase},
    id::StopId,
    outbound::{
        email::Email,
        policy_trace::{PolicyStep, PolicyVerdict},
        suppressed_call::SuppressedReason,
    },
    time::Time,
};
use mailonce_engine::{Caller, control::policy_trace::decided_steps, outbound::queries::EmailView};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::api::outbound::{
    email_bodies::{EmailBody, SuppressedCallBody},
    policy_steps::{PolicyStepBody, policy_body},
};

/// One attempt to send a handoff.
#[derive(Serialize, ToSchema)]
pub(crate) struct AttemptBody {
    /// Number of the attempt within its handoff, from 1.
    number: u32,
    /// When the `sending` marker was committed; the start of the attempt if it never got that far.
    at: String,
    /// When the outcome was recorded; null while the attempt is running.
    ended_at: Option<String>,
    /// `accepted deferred refused unknown`; null while the attempt is running.
    outcome: Option<&'static str>,
    /// Name of the transport.
    transport: Option<String>,
    /// The last phase that was reached: `connect tls greet login mail rcpt data final`.
    phase: Option<&'static str>,
    /// SMTP or HTTP status code of the reply.
    code: Option<u16>,
    /// Text of the next hop's reply.
    reply: String,
    /// The next hop's own id for the message.
    remote_id: Option<String>,
    /// Whether an earlier attempt may have succeeded, so that the recipient may get the email twice.
    may_duplicate: bool,
}

impl AttemptBody {
    fn of(attempt: &Attempt) -> Self {
        let details = &attempt.details;
        Self {
            number: attempt.number,
            at: attempt.at.to_string(),
            ended_at: attempt.ended_at.map(|at| at.to_string()),
            outcome: attempt.outcome.map(Outcome::as_str),
            transport: Some(details.transport.clone()).filter(|name| !name.is_empty()),
            phase: details.phase.map(mailonce_core::handoff::reply::AttemptPhase::as_str),
            code: details.code,
            reply: attempt.reply.clone(),
            remote_id: details.remote_id.clone(),
            may_duplicate: details.may_duplicate,
        }
    }
}

/// One handoff: an envelope for one transport.
#[derive(Serialize, ToSchema)]
pub(crate) struct HandoffBody {
    /// Number of the handoff within its email.
    number: u16,
    /// Name of the transport.
    transport: String,
    /// Envelope recipients of this handoff.
    recipients: Vec<String>,
    /// `scheduled queued leased sending sent delivered bounced complained failed unknown abandoned held cancelled`
    state: &'static str,
    /// When the next attempt is due, or the next check while the outcome is unknown.
    due_at: Option<String>,
    /// Why the handoff waits, or why it failed.
    reason: Option<String>,
    /// Whether some attempt may have succeeded although its outcome is unknown.
    in_doubt: bool,
    /// Whether the recipient may get the email twice.
    may_duplicate: bool,
    attempts: Vec<AttemptBody>,
}

/// Evidence: a fact about what the next hop did.
#[derive(Serialize, ToSchema)]
pub(crate) struct EvidenceBody {
    /// When the evidence was recorded.
    at: String,
    /// Number of the handoff that the evidence is about.
    handoff: u16,
    /// Number of the attempt that the evidence is about; null if it is about the handoff.
    attempt: Option<u32>,
    /// Where the evidence comes from: `late_reply look_up provider_event bounce person policy window crash`
    source: &'static str,
    /// What the evidence states: `accepted not_found silent not_accepted delivered delayed bounced complained again abandoned
    /// lost`. `silent`: the next hop could not be asked; `again`: the email is sent again; `lost`: the outcome is unknown.
    says: &'static str,
    /// What was observed, such as the reply of the provider.
    detail: String,
}

impl EvidenceBody {
    fn of(fact: &Evidence) -> Self {
        Self {
            at: fact.at.to_string(),
            handoff: fact.handoff,
            attempt: fact.attempt,
            source: fact.source.as_str(),
            says: fact.finding.as_str(),
            detail: fact.detail.clone(),
        }
    }
}

/// An entry in the timeline of an email.
#[derive(Serialize, ToSchema)]
pub(crate) struct TimelineEntryBody {
    /// When it happened.
    at: String,
    /// What happened, in a sentence.
    description: String,
}

/// An attachment, without its bytes. `GET /v1/emails/{id}/attachments/{n}` returns the bytes; the first is number 0.
#[derive(Serialize, ToSchema)]
pub(crate) struct SentAttachmentBody {
    /// File name as sent.
    filename: Option<String>,
    /// Declared content type.
    content_type: Option<String>,
    /// Content-ID, if the HTML refers to the attachment.
    content_id: Option<String>,
    /// Size in bytes.
    size: usize,
}

/// An email with its content, handoffs, evidence and timeline.
#[derive(Serialize, ToSchema)]
pub(crate) struct EmailDetailBody {
    #[serde(flatten)]
    email: EmailBody,
    /// Plain text body. When the retention period of the content is over, this and `html` are null, and the other parts
    /// of the content are empty.
    text: Option<String>,
    /// HTML body; null without one, or when the retention period is over.
    html: Option<String>,
    /// Reply-To addresses.
    reply_to: Vec<String>,
    /// Your additional headers.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    headers: Map<String, Value>,
    attachments: Vec<SentAttachmentBody>,
    /// Your tags, by name.
    #[schema(value_type = Object)]
    tags: Value,
    /// Your own data.
    #[schema(value_type = Object)]
    metadata: Value,
    #[schema(value_type = Option<crate::api::outbound::email_bodies::IntentBody>)]
    intent: Option<Value>,
    /// What happens when the outcome is unknown: `hold` waits for evidence or a person; `resend` sends once more.
    on_unknown: &'static str,
    handoffs: Vec<HandoffBody>,
    /// Oldest first.
    evidence: Vec<EvidenceBody>,
    timeline: Vec<TimelineEntryBody>,
    /// What each check decided when the email was accepted, in order.
    policy: Vec<PolicyStepBody>,
    /// The latest 20 suppressed duplicate calls, newest first.
    suppressed_calls: Vec<SuppressedCallBody>,
}

impl EmailDetailBody {
    pub(crate) fn of(caller: &Caller, view: &EmailView, message_id: String, stop: Option<StopId>) -> Self {
        let email = &view.detail.email;
        let content = view.content.as_ref();
        let display = |mailbox: &NamedAddress| match &mailbox.name {
            Some(name) => format!("{name} <{}>", mailbox.address),
            None => mailbox.address.clone(),
        };
        let files = content.map(|c| c.attachments.as_slice()).unwrap_or_default();
        Self {
            email: EmailBody::of(email, message_id).with_stop(stop),
            text: content.and_then(|c| c.text.clone()),
            html: content.and_then(|c| c.html.clone()),
            reply_to: content.map(|c| c.reply_to.iter().map(display).collect()).unwrap_or_default(),
            headers: content
                .map(|c| c.headers.iter().map(|(n, v)| (n.clone(), v.clone().into())).collect())
                .unwrap_or_default(),
            attachments: files.iter().map(attachment_view).collect(),
            tags: content.map_or_else(|| json!({}), |c| json!(c.tags)),
            metadata: content.map_or_else(|| json!({}), |c| json!(c.metadata)),
            intent: email.head.intent.as_ref().map(|intent| json!(intent)),
            on_unknown: email.head.on_unknown.as_str(),
            handoffs: handoffs(view),
            evidence: view.detail.evidence.iter().map(EvidenceBody::of).collect(),
            timeline: timeline(view),
            policy: policy_body(decided_steps(caller, email)),
            suppressed_calls: view.detail.suppressed_calls.iter().map(SuppressedCallBody::from).collect(),
        }
    }
}

fn attachment_view(file: &mailonce_core::outbound::content::Attachment) -> SentAttachmentBody {
    SentAttachmentBody {
        filename: file.filename.clone(),
        content_type: file.content_type.clone(),
        content_id: file.content_id.clone(),
        size: file.bytes.len(),
    }
}

fn handoffs(view: &EmailView) -> Vec<HandoffBody> {
    let attempts = |number: u16| {
        let of_handoff = view.detail.attempts.iter().filter(move |attempt| attempt.handoff == number);
        of_handoff.map(AttemptBody::of).collect()
    };
    let body = |handoff: &Handoff| HandoffBody {
        number: handoff.number,
        transport: handoff.transport.clone(),
        recipients: handoff.recipients.clone(),
        state: handoff.state.as_str(),
        due_at: handoff.due_at.map(|at| at.to_string()),
        reason: handoff.progress.reason.clone(),
        in_doubt: handoff.is_in_doubt(),
        may_duplicate: handoff.progress.may_duplicate,
        attempts: attempts(handoff.number),
    };
    view.detail.email.handoffs.iter().map(body).collect()
}

/// The timeline of an email, oldest first. It is derived from other rows, so it needs no table of its own.
fn timeline(view: &EmailView) -> Vec<TimelineEntryBody> {
    let email = &view.detail.email;
    let mut facts = vec![(email.head.created_at, format!("accepted{}", call_suffix(email.head.call.as_ref())))];
    if let Some(guard) = email.guard {
        let holds = email.holds.to_column().map_or_else(|| guard.as_str().to_owned(), |holds| holds.replace(',', ", "));
        let verb = if was_held(email) { "held for a decision" } else { "flagged" };
        facts.push((email.head.created_at, format!("{verb} (guard {holds})")));
    }
    view.detail.attempts.iter().for_each(|attempt| push_attempt_entries(attempt, &mut facts));
    for fact in &view.detail.evidence {
        facts.push((fact.at, describe_evidence(fact)));
    }
    for call in &view.detail.suppressed_calls {
        let (channel, why, suffix) =
            (call.channel.as_str(), describe_duplicate(call.reason), call_suffix(call.call.as_ref()));
        facts.push((call.at, format!("duplicate call via {channel} stopped: {why}{suffix}")));
    }
    if let Some(at) = email.settled_at {
        facts.push((at, format!("final state: {}", email.state().as_str())));
    }
    facts.sort_by_key(|(at, _)| *at);
    facts.into_iter().map(|(at, description)| TimelineEntryBody { at: at.to_string(), description }).collect()
}

/// What a stopped call has in common with this email.
fn describe_duplicate(reason: SuppressedReason) -> &'static str {
    match reason {
        SuppressedReason::KeyReplay => "same key, same email",
        SuppressedReason::PayloadDiffers => "same key, other wording",
        SuppressedReason::Mismatch => "same key, different email",
        SuppressedReason::AlreadyAnswered => "the message already has its reply",
        SuppressedReason::Identical => "no key, same email",
    }
}

/// Whether a guard held the email, and did not only flag it.
fn was_held(email: &Email) -> bool {
    let is_held = |step: PolicyStep| step.verdict == PolicyVerdict::Hold;
    // Emails of older releases have no trace.
    let Some(trace) = &email.head.policy else { return true };
    !email.holds.is_empty() || trace.complete(true).into_iter().any(is_held)
}

/// `, call ID` for a call with a caller's id; empty without one.
fn call_suffix(call: Option<&CallTrace>) -> String {
    call.and_then(|call| call.id.as_ref()).map(|id| format!(", call {id}")).unwrap_or_default()
}

/// An attempt is two entries: it started under a lease, and it ended.
fn push_attempt_entries(attempt: &Attempt, facts: &mut Vec<(Time, String)>) {
    let details = &attempt.details;
    let name = format!("handoff {}, attempt {}", attempt.handoff, attempt.number);
    let outcome = match attempt.outcome {
        None => "still running",
        Some(Outcome::Accepted) => "accepted by the next hop",
        Some(Outcome::Deferred) => "not accepted yet, a retry may succeed",
        Some(Outcome::Refused) => "refused by the next hop",
        Some(Outcome::Unknown) => "outcome unknown",
    };
    let Some(phase) = details.phase else { return facts.push((attempt.at, format!("{name}: {outcome}"))) };
    facts.push((attempt.at, format!("{name}: started (transport {}, fence {})", details.transport, details.fence)));
    let code = details.code.map(|code| format!("{code} ")).unwrap_or_default();
    let reply = quoted(&format!("{code}{}", attempt.reply));
    let step = if phase == AttemptPhase::Final { String::new() } else { format!(" at step {}", phase.as_str()) };
    facts.push((attempt.ended_at.unwrap_or(attempt.at), format!("{name}: {outcome}{step}{reply}")));
}

/// The timeline text for a piece of evidence.
fn describe_evidence(fact: &Evidence) -> String {
    use {EvidenceFinding as Finding, EvidenceSource as Source};
    let detail = quoted(&fact.detail);
    let description = match (fact.source, fact.finding) {
        (Source::Person, Finding::Again) => format!("resent by an operator{detail}"),
        (Source::Person, Finding::Accepted) => format!("marked as sent by an operator{detail}"),
        (Source::Person, Finding::Abandoned) => format!("abandoned by an operator{detail}"),
        (Source::Policy, Finding::Again) => format!("resent, as the email's on_unknown asks{detail}"),
        (Source::Window, Finding::Again) => "retried with the same key, which the next hop still remembers".to_owned(),
        (Source::Crash, Finding::NotAccepted) => "the worker crashed before anything was sent".to_owned(),
        (Source::Crash, _) => "the worker crashed while sending, so the outcome is unknown".to_owned(),
        (Source::LookUp, Finding::Accepted) => format!("found at the provider{detail}"),
        (Source::LookUp, Finding::NotFound) => format!("not found at the provider, which proves nothing{detail}"),
        (Source::LookUp, Finding::Silent) => format!("the provider could not be asked{detail}"),
        (Source::LateReply, says) => format!("late reply of the next hop: {}{detail}", says.as_str()),
        (Source::ProviderEvent, says) => format!("the provider reports: {}{detail}", says.as_str()),
        (Source::Bounce, says) => format!("bounce message received: {}{detail}", says.as_str()),
        (source, says) => format!("{}: {}{detail}", source.as_str(), says.as_str()),
    };
    format!("handoff {}: {description}", fact.handoff)
}

/// ` ("text")`, or empty for an empty text.
fn quoted(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!(" (\"{text}\")") }
}
