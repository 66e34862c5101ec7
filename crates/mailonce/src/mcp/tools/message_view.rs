//! Messages as a model sees them. Our own facts are JSON members; text of strangers appears only inside fences.

use mailonce_core::inbox::message::{Message, Party};
use mailonce_engine::{
    conversation::reply::reply_target,
    inbox::messages::{CheckedLink, Purpose, RenderedBody, RenderedMessage},
};
use serde_json::{Map, Value, json};

use super::ToolContext;

/// Links listed per message.
const MAX_LINKS: usize = 20;
/// Characters shown of a subject, a display name or a file name.
const MAX_LINE_CHARS: usize = 300;

/// Whether an address has only the usual characters. Any other address could carry an instruction, so it is fenced.
fn is_plain_address(address: &str) -> bool {
    let is_usual_char = |c: char| c.is_ascii_alphanumeric() || "._+-=@".contains(c);
    address.len() <= 254 && address.chars().all(is_usual_char)
}

fn plain_address(party: Option<&Party>) -> Option<&str> {
    party.map(|party| party.address.as_str()).filter(|address| is_plain_address(address))
}

/// Recipients of an email. Unusual addresses are fenced, because a stranger chose the recipient of a reply.
pub(super) fn visible_addresses(ctx: &ToolContext<'_>, addresses: &[String]) -> Vec<String> {
    let visible = |address: &String| {
        if is_plain_address(address) {
            address.clone()
        } else {
            ctx.app.engine.inboxes.fence_untrusted(std::slice::from_ref(address))
        }
    };
    addresses.iter().map(visible).collect()
}

fn truncate_line(text: &str) -> String {
    text.chars().take(MAX_LINE_CHARS).collect()
}

/// Sender name, subject and file names of a message: untrusted text, for a fence.
fn headline(message: &Message) -> Vec<String> {
    let head = &message.head;
    let from = head.from.as_ref();
    let unusual_address = from.filter(|_| plain_address(from).is_none()).map(|party| party.address.as_str());
    let name = from.and_then(|party| party.name.as_deref());
    let sender = name.into_iter().chain(unusual_address).map(truncate_line).collect::<Vec<_>>().join(" ");
    let files = head.attachments.iter().enumerate().filter_map(|(n, handle)| {
        let name = handle.filename.as_deref()?;
        Some(format!("Attachment {n}: {}", truncate_line(name)))
    });
    let sender = (!sender.is_empty()).then(|| format!("From: {sender}"));
    sender.into_iter().chain([format!("Subject: {}", truncate_line(&head.subject))]).chain(files).collect()
}

/// A message without its body.
pub(super) fn summary(ctx: &ToolContext<'_>, message: &Message, preview: bool) -> Map<String, Value> {
    let head = &message.head;
    let mut lines = headline(message);
    if preview && !head.preview.is_empty() {
        lines.push(head.preview.clone());
    }
    let target = reply_target(head);
    let has_flags = !target.flags.is_empty();
    let answers: Vec<String> =
        message.annotations.progress.answers.iter().map(|(_, email)| email.to_string()).collect();
    let facts = json!({
        "message": message.id.to_string(),
        "thread": message.thread.to_string(),
        "from": plain_address(head.from.as_ref()),
        "auth": head.auth.verdict.as_str(),
        "reply_goes_to": visible_addresses(ctx, &target.to),
        "reply_flags": has_flags.then_some(target.flags),
        "received_at": message.received_at.to_string(),
        "state": message.state.as_str(),
        "has": head.artifacts.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(),
        "automatic": head.automatic.is_some().then_some(true),
        "answered_by": answers.last(),
        "attachment_count": (!head.attachments.is_empty()).then_some(head.attachments.len()),
        "headline": ctx.app.engine.inboxes.fence_untrusted(&lines),
    });
    without_nulls(facts)
}

/// A message with its body, artifacts, links and attachments.
pub(super) fn full_message(ctx: &ToolContext<'_>, rendered: &RenderedMessage, max_chars: usize) -> Map<String, Value> {
    let mut members = summary(ctx, &rendered.message, false);
    let (text, links, flags, removed) = match &rendered.body {
        RenderedBody::Min { view, links } => {
            let flags = view.flags.iter().map(|(flag, _)| flag.as_str()).collect::<Vec<_>>();
            (
                Some(truncate_fenced(ctx, &view.text, max_chars)),
                links.as_slice(),
                flags,
                serde_json::to_value(view.removed).ok(),
            )
        }
        // The tools request only the minimized view, and deleted raw bytes have no text.
        RenderedBody::Gone | RenderedBody::Plain { .. } | RenderedBody::Full { .. } => {
            (None, [].as_slice(), Vec::new(), None)
        }
    };
    let artifacts = rendered.artifacts.iter().map(|artifact| {
        json!({
            "artifact": artifact.id.to_string(),
            "type": artifact.kind.as_str(),
            "confidence": artifact.extracted.confidence,
            "taken": artifact.consumption.is_some(),
            "yours": artifact.consumption.as_ref().is_some_and(|consumption| consumption.by == ctx.caller.key.id),
        })
    });
    let files = rendered.message.head.attachments.iter().enumerate().map(|(n, handle)| {
        let path = format!("/v1/messages/{}/attachments/{n}", rendered.message.id);
        json!({ "n": n, "handle": path, "size": handle.size })
    });
    members.extend(without_nulls(json!({
        "text": text,
        "artifacts": artifacts.collect::<Vec<_>>(),
        "links": links.iter().take(MAX_LINKS).map(link_json).collect::<Vec<_>>(),
        "injection_flags": flags,
        "removed": removed.map(nonzero_counts),
        "attachments": files.collect::<Vec<_>>(),
    })));
    members
}

/// The counts of removed content that are not zero.
fn nonzero_counts(removed: Value) -> Value {
    let Value::Object(removed) = removed else { return Value::Null };
    let nonzero: Map<String, Value> = removed.into_iter().filter(|(_, count)| count.as_u64() != Some(0)).collect();
    if nonzero.is_empty() { Value::Null } else { Value::Object(nonzero) }
}

fn link_json(link: &CheckedLink) -> Value {
    let is_usual_char = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    json!({
        "host": link.host.as_deref().filter(|host| host.len() <= 253 && host.chars().all(is_usual_char)),
        "verdict": link.verdict.as_str(),
        "reasons": link.reasons.iter().map(|reason| reason.as_str()).collect::<Vec<_>>(),
        "purpose": link.purpose.map(Purpose::as_str),
    })
}

/// Shortens a fenced text and fences the rest again.
fn truncate_fenced(ctx: &ToolContext<'_>, fenced: &str, max_chars: usize) -> String {
    let lines: Vec<&str> = fenced.lines().collect();
    let [_, inner @ .., _] = lines.as_slice() else { return fenced.to_owned() };
    let inner = inner.join("\n");
    if inner.chars().count() <= max_chars {
        return fenced.to_owned();
    }
    let shortened: String = inner.chars().take(max_chars).collect();
    ctx.app
        .engine
        .inboxes
        .fence_untrusted(&shortened.lines().map(str::to_owned).chain(["[cut here]".to_owned()]).collect::<Vec<_>>())
}

/// Removes null members, because the output schemas do not allow null.
pub(super) fn without_nulls(facts: Value) -> Map<String, Value> {
    let Value::Object(facts) = facts else { return Map::new() };
    facts.into_iter().filter(|(_, value)| !value.is_null()).collect()
}
