//! Makes documents of emails and messages.
//!
//! A code in a received mail is masked before its text becomes searchable, for every caller: a search that finds the
//! mail by its code would confirm a guess of the code. Sealed bodies are not indexed, because the index is not sealed.

use mailonce_core::{
    outbound::content::EmailContent,
    search::{
        SearchSource,
        document::{SearchBody, SearchDocument},
    },
};
use mailonce_mail::{
    artifact,
    html::HtmlPage,
    link::{self, LinkPolicy},
    minimise::{self, sanitize_line},
    parse,
};

use crate::search::Search;

impl Search {
    /// The document of a mail. If its body cannot be processed, only addresses and subject are searchable.
    pub(super) async fn document(&self, source: SearchSource) -> SearchDocument {
        match source {
            SearchSource::Email { email, body } => {
                let content = body.filter(|body| !self.is_sealed(body)).and_then(|body| self.ctx.packer.unpack(&body));
                let body = match content {
                    Some(content) => self.process_body(move || email_body(&content)).await,
                    None => SearchBody::default(),
                };
                SearchDocument::of_email(&email, &self.ctx.message_id(&email), &body)
            }
            SearchSource::Message { message, raw } => {
                let raw = raw.filter(|raw| !self.is_sealed(raw)).and_then(|raw| self.ctx.packer.unpack_raw(&raw));
                let body = match raw {
                    Some(raw) => {
                        // Which links count as artifacts depends on the inbox, and codes in them are masked.
                        let inbox = self.ctx.store.inbox(message.team, message.inbox).await.ok().flatten();
                        let domains = inbox.map(|inbox| inbox.settings.allowed_link_domains).unwrap_or_default();
                        self.process_body(move || message_body(&raw, domains)).await
                    }
                    None => SearchBody::default(),
                };
                SearchDocument::of_message(&message, &body)
            }
        }
    }

    /// Whether a stored body must not be indexed: it is sealed, or new bodies are.
    fn is_sealed(&self, stored: &[u8]) -> bool {
        self.ctx.packer.is_sealing() || self.ctx.packer.is_sealed(stored)
    }

    /// Processes a body on a thread that may block. A panic leaves the body out.
    async fn process_body(&self, process: impl FnOnce() -> SearchBody + Send + 'static) -> SearchBody {
        tokio::task::spawn_blocking(process).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a mail cannot be indexed; only its addresses and subject are searchable");
            self.ctx.metrics.record_panic("search");
            SearchBody::default()
        })
    }
}

fn email_body(content: &EmailContent) -> SearchBody {
    let mut text = match (&content.text, &content.html) {
        (Some(text), _) => text.clone(),
        (None, Some(html)) => HtmlPage::parse(html).text,
        (None, None) => String::new(),
    };
    for name in content.attachments.iter().filter_map(|attachment| attachment.filename.as_deref()) {
        text.push('\n');
        text.push_str(name);
    }
    let recipients = content.to.iter().chain(&content.cc).chain(&content.bcc);
    SearchBody {
        sender_name: content.from.name.clone().unwrap_or_default(),
        recipient_names: recipients.filter_map(|recipient| recipient.name.clone()).collect(),
        text: sanitize_lines(&text),
        has_attachment: !content.attachments.is_empty(),
    }
}

fn message_body(raw: &[u8], allowed_domains: Vec<String>) -> SearchBody {
    let parsed = parse::parse(raw);
    let page = parsed.html.as_deref().map(HtmlPage::parse);
    let sender_domain = parsed.from.first().map(|from| from.to_address().domain().to_owned());
    let links = link::check_links(&parsed, page.as_ref(), &LinkPolicy { allowed_domains, sender_domain });
    let artifacts = artifact::extract(&parsed, page.as_ref(), &links);
    let mut text = minimise::visible_text(&parsed, page.as_ref());
    for name in parsed.attachments.iter().filter_map(|attachment| attachment.filename.as_deref()) {
        text.push('\n');
        text.push_str(name);
    }
    SearchBody { text: sanitize_lines(&artifact::redact_text(&text, &artifacts)), ..SearchBody::default() }
}

/// Text on one line without invisible characters, so that a word with such a character in it is still found.
fn sanitize_lines(text: &str) -> String {
    text.split(char::is_whitespace).filter(|part| !part.is_empty()).map(sanitize_line).collect::<Vec<_>>().join(" ")
}
