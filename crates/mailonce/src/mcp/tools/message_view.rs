//! Messages as a model sees them: facts of ours as members, words of strangers between fences and nowhere else.

use mailonce_core::inbox::message::{Message, Party};
use mailonce_engine::{
    conversation::reply::reply_target,
    inbox::messages::{CheckedLink, Purpose, RenderedBody, RenderedMessage},
};
use serde_json::{Map, Value, json};

use super::ToolContext;

/// Links that are listed.
const MAX_LINKS: usize = 20;
/// Characters of a subject, a name or a file name that are shown.
const MAX_LINE_CHARS: usize = 300;

/// Whether an address has the letters that addresses usually have. Others could say anything, and stand behind the fence.
fn is_plain_address(address: &str) -> bool {
    let usual = |c: char| c.is_ascii_alphanumeric() || "._+-=@".contains(c);
    address.len() <= 254 && address.chars().all(usual)
}

fn plain_address(party: Option<&Party>) -> Option<&str> {
    party.map(|party| party.address.as_str()).filter(|address| is_plain_address(address))
}

/// Whom a mail of ours is for. Where an answer goes, its addressee said.
pub(super) fn visible_addresses(desk: &ToolContext<'_>, all: &[String]) -> Vec<String> {
    let shown = |address: &String| {
        if is_plain_address(address) {
            address.clone()
        } else {
            desk.app.engine.fence_untrusted(std::slice::from_ref(address))
        }
    };
    all.iter().map(shown).collect()
}

fn truncate_line(text: &str) -> String {
    text.chars().take(MAX_LINE_CHARS).collect()
}

/// Who wrote a message and what about, in the writer's own words.
fn headline(message: &Message) -> Vec<String> {
    let head = &message.head;
    let from = head.from.as_ref();
    let odd = from.filter(|_| plain_address(from).is_none()).map(|party| party.address.as_str());
    let name = from.and_then(|party| party.name.as_deref());
    let who = name.into_iter().chain(odd).map(truncate_line).collect::<Vec<_>>().join(" ");
    let files = head.attachments.iter().enumerate().filter_map(|(n, handle)| {
        let name = handle.filename.as_deref()?;
        Some(format!("Attachment {n}: {}", truncate_line(name)))
    });
    let who = (!who.is_empty()).then(|| format!("From: {who}"));
    who.into_iter().chain([format!("Subject: {}", truncate_line(&head.subject))]).chain(files).collect()
}

/// A message without its text.
pub(super) fn summary(desk: &ToolContext<'_>, message: &Message, preview: bool) -> Map<String, Value> {
    let head = &message.head;
    let mut lines = headline(message);
    if preview && !head.preview.is_empty() {
        lines.push(head.preview.clone());
    }
    let target = reply_target(head);
    let warned = !target.flags.is_empty();
    let answers: Vec<String> = message.annotations.turn.answers.iter().map(|(_, email)| email.to_string()).collect();
    let facts = json!({
        "message": message.id.to_string(),
        "thread": message.thread.to_string(),
        "from": plain_address(head.from.as_ref()),
        "auth": head.auth.verdict.as_str(),
        "reply_goes_to": visible_addresses(desk, &target.to),
        "reply_flags": warned.then_some(target.flags),
        "received_at": message.received_at.to_string(),
        "state": message.state.as_str(),
        "has": head.artifacts.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(),
        "automatic": head.automatic.is_some().then_some(true),
        "answered_by": answers.last(),
        "attachment_count": (!head.attachments.is_empty()).then_some(head.attachments.len()),
        "headline": desk.app.engine.fence_untrusted(&lines),
    });
    without_nulls(facts)
}

/// A message with what it says.
pub(super) fn full_message(desk: &ToolContext<'_>, shown: &RenderedMessage, max_chars: usize) -> Map<String, Value> {
    let mut told = summary(desk, &shown.message, false);
    let (text, links, flags, removed) = match &shown.body {
        RenderedBody::Min { view, links } => {
            let flags = view.flags.iter().map(|(flag, _)| flag.as_str()).collect::<Vec<_>>();
            (
                Some(truncate_fenced(desk, &view.text, max_chars)),
                links.as_slice(),
                flags,
                serde_json::to_value(view.removed).ok(),
            )
        }
        // No other view is asked for, and bytes that are gone say nothing.
        RenderedBody::Gone | RenderedBody::Plain { .. } | RenderedBody::Full { .. } => {
            (None, [].as_slice(), Vec::new(), None)
        }
    };
    let artifacts = shown.artifacts.iter().map(|artifact| {
        json!({
            "artifact": artifact.id.to_string(),
            "type": artifact.kind.as_str(),
            "confidence": artifact.extracted.confidence,
            "taken": artifact.consumption.is_some(),
            "yours": artifact.consumption.as_ref().is_some_and(|taken| taken.by == desk.caller.key.id),
        })
    });
    let files = shown.message.head.attachments.iter().enumerate().map(|(n, handle)| {
        let path = format!("/v1/messages/{}/attachments/{n}", shown.message.id);
        json!({ "n": n, "handle": path, "size": handle.size })
    });
    told.extend(without_nulls(json!({
        "text": text,
        "artifacts": artifacts.collect::<Vec<_>>(),
        "links": links.iter().take(MAX_LINKS).map(link_json).collect::<Vec<_>>(),
        "injection_flags": flags,
        "removed": removed.map(nonzero_counts),
        "attachments": files.collect::<Vec<_>>(),
    })));
    told
}

/// What was taken out, as far as anything was.
fn nonzero_counts(removed: Value) -> Value {
    let Value::Object(removed) = removed else { return Value::Null };
    let some: Map<String, Value> = removed.into_iter().filter(|(_, count)| count.as_u64() != Some(0)).collect();
    if some.is_empty() { Value::Null } else { Value::Object(some) }
}

fn link_json(link: &CheckedLink) -> Value {
    let usual = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    json!({
        "host": link.host.as_deref().filter(|host| host.len() <= 253 && host.chars().all(usual)),
        "verdict": link.verdict.as_str(),
        "reasons": link.reasons.iter().map(|reason| reason.as_str()).collect::<Vec<_>>(),
        "purpose": link.purpose.map(Purpose::as_str),
    })
}

/// A shorter text behind a fence of its own.
fn truncate_fenced(desk: &ToolContext<'_>, fenced: &str, max_chars: usize) -> String {
    let lines: Vec<&str> = fenced.lines().collect();
    let [_, inner @ .., _] = lines.as_slice() else { return fenced.to_owned() };
    let inner = inner.join("\n");
    if inner.chars().count() <= max_chars {
        return fenced.to_owned();
    }
    let kept: String = inner.chars().take(max_chars).collect();
    desk.app
        .engine
        .fence_untrusted(&kept.lines().map(str::to_owned).chain(["[cut here]".to_owned()]).collect::<Vec<_>>())
}

/// Without what is not there.
pub(super) fn without_nulls(facts: Value) -> Map<String, Value> {
    let Value::Object(facts) = facts else { return Map::new() };
    facts.into_iter().filter(|(_, value)| !value.is_null()).collect()
}
