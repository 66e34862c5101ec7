//! Quotes a message below a reply, and includes it in a forward. Codes and links that the caller may not see are
//! removed, so a reply or forward cannot leak them.

use crate::{
    access::caller::Caller,
    conversation::Conversations,
    inbox::{
        artifacts::may_see_value,
        messages::{AttachmentBytes, MessageView, RenderedBody, render_body},
    },
    runtime::{blocking::run_blocking, problems::unavailable},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{
    access::team::ApiKeyScope,
    inbox::message::{Message, Party},
    problem::{Code, Problem},
};
use mailonce_mail::parse;

/// Most bytes of a message that are quoted.
const MAX_QUOTED_BYTES: usize = 64 * 1024;

/// The parts of a message that a reply or forward may include.
pub(crate) struct QuotedMessage {
    /// The sender, with its display name.
    from: String,
    date: String,
    subject: String,
    to: String,
    /// Its visible text.
    text: String,
    /// Its attachments.
    pub(crate) files: Vec<AttachmentBytes>,
}

impl Conversations {
    /// Loads the parts of a message that the caller may quote. `None` when its raw bytes are no longer stored.
    pub(crate) async fn load_quoted_message(
        &self,
        caller: &Caller,
        message: &Message,
    ) -> Result<Option<QuotedMessage>, Problem> {
        let Some(raw) = self.inboxes.raw_bytes(message).await? else { return Ok(None) };
        let mut hidden = false;
        for (_, id) in &message.head.artifacts {
            let artifact = self.ctx.store.artifact(caller.team.id, *id).await.map_err(unavailable)?;
            hidden |= artifact.is_some_and(|one| !may_see_value(caller, &one));
        }
        let hidden = hidden && !caller.key.has_scope(ApiKeyScope::Secrets);
        let head = std::sync::Arc::clone(&message.head);
        let received_at = message.received_at;
        let quoted = run_blocking(move || {
            let parsed = parse::parse(&raw);
            let files = parsed.attachments.iter().map(|file| AttachmentBytes {
                filename: file.filename.clone(),
                content_type: file.content_type.clone(),
                bytes: file.decode(&raw),
            });
            let files = files.collect();
            let RenderedBody::Plain { mut text } = render_body(&raw, MessageView::Plain, hidden, Vec::new(), "") else {
                return None;
            };
            text.truncate(text.floor_char_boundary(MAX_QUOTED_BYTES));
            let name = |party: &Party| match &party.name {
                Some(name) => format!("{name} <{}>", party.address),
                None => party.address.clone(),
            };
            Some(QuotedMessage {
                from: head.from.as_ref().map(name).unwrap_or_default(),
                date: head.date.unwrap_or(received_at).to_readable(),
                subject: head.subject.clone(),
                to: head.to.iter().map(name).collect::<Vec<_>>().join(", "),
                text,
                files,
            })
        });
        quoted
            .await
            .map_err(|_panicked| Problem::new(Code::Internal, "this message cannot be quoted: parsing it failed"))
    }
}

impl QuotedMessage {
    fn attribution_line(&self) -> String {
        format!("On {}, {} wrote:", self.date, self.from)
    }

    /// The text with the original quoted below it.
    pub(crate) fn quote_below(&self, text: &str) -> String {
        let quoted: Vec<String> = self.text.trim_end().lines().map(|line| format!("> {line}")).collect();
        format!("{}\n\n{}\n{}\n", text.trim_end(), self.attribution_line(), quoted.join("\n"))
    }

    /// The HTML with the original quoted below it.
    pub(crate) fn quote_below_html(&self, html: &str) -> String {
        let text = escape_html(self.text.trim_end()).replace('\n', "<br>\n");
        format!("{html}\n<p>{}</p>\n<blockquote>{text}</blockquote>\n", escape_html(&self.attribution_line()))
    }

    /// The text with the forwarded original after it.
    pub(crate) fn forward_text(&self, text: &str) -> String {
        let Self { from, date, subject, to, text: original, .. } = self;
        let head = format!(
            "---------- Forwarded message ----------\nFrom: {from}\nDate: {date}\nSubject: {subject}\nTo: {to}"
        );
        let intro = if text.trim().is_empty() { String::new() } else { format!("{}\n\n", text.trim_end()) };
        format!("{intro}{head}\n\n{}\n", original.trim_end())
    }

    /// The HTML with the forwarded original after it.
    pub(crate) fn forward_html(&self, html: &str) -> String {
        let text = escape_html(self.forward_text("").trim_end()).replace('\n', "<br>\n");
        format!("{html}\n<blockquote>{text}</blockquote>\n")
    }

    /// The bytes of an attachment in base64, as in an API request.
    pub(crate) fn encode_file(&self, file: &AttachmentBytes) -> String {
        STANDARD.encode(&file.bytes)
    }
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original() -> QuotedMessage {
        QuotedMessage {
            from: "Ann <ann@x.test>".into(),
            date: "Sun, 15 Nov 2026 at 10:00 UTC".into(),
            subject: "Hello".into(),
            to: "agent@x.test".into(),
            text: "one\n<two>\n".into(),
            files: Vec::new(),
        }
    }

    #[test]
    fn the_original_stands_below_the_answer() {
        let below = original().quote_below("Thanks.\n");
        assert_eq!(below, "Thanks.\n\nOn Sun, 15 Nov 2026 at 10:00 UTC, Ann <ann@x.test> wrote:\n> one\n> <two>\n");
        let page = original().quote_below_html("<p>Thanks.</p>");
        assert!(page.contains("&lt;two&gt;") && !page.contains("<two>"), "{page}");
    }

    #[test]
    fn a_forward_names_its_original_sender() {
        let text = original().forward_text("See below.");
        assert!(text.starts_with("See below.\n\n---------- Forwarded message ----------\nFrom: Ann <ann@x.test>\n"));
        assert!(text.ends_with("\n\none\n<two>\n"));
        assert!(original().forward_text(" ").starts_with("----------"));
    }
}
