//! The preview of exactly what will be sent, for the person who approves it.
//!
//! The approval page, the command line, the API and the notification email all show this preview. Its digest covers
//! every field and the bytes of every attachment, so an approval cannot apply to anything else.

use crate::{
    conversation::{Escalations, reply::reply_target, word_diff::word_difference},
    runtime::{blocking::run_blocking, hex::hex},
};
use mailonce_core::{
    address::NamedAddress,
    id::EmailId,
    inbox::message::MessageHead,
    outbound::{content::EmailContent, email::Email},
    ports::store::StoreError,
};
use mailonce_mail::{
    html::{self, Anchor, HtmlPage},
    link::{LinkPolicy, Reason, check_link, registrable_or_host},
    unicode,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

/// The warning for HTML that exceeds a limit of the renderer.
const TOO_COMPLEX: &str = "The HTML part is too large or too complex to be shown completely: read its source";
/// Most words that a warning about differing parts quotes.
const MAX_QUOTED_WORDS: usize = 20;
/// Extensions of files that run when they are opened.
const EXECUTABLE_EXTENSIONS: [&str; 16] =
    ["apk", "app", "bat", "cmd", "com", "exe", "hta", "iso", "jar", "js", "lnk", "msi", "ps1", "scr", "vbs", "wsf"];

/// Exactly what will be sent.
#[derive(Clone, Debug, Serialize)]
pub struct Preview {
    /// Sender.
    pub from: String,
    /// Recipients, with their names.
    pub to: Vec<String>,
    /// Copies.
    pub cc: Vec<String>,
    /// Hidden copies.
    pub bcc: Vec<String>,
    /// The `Reply-To` addresses, if any.
    pub reply_to: Vec<String>,
    /// Subject.
    pub subject: String,
    /// Custom headers.
    pub headers: Vec<(String, String)>,
    /// The text part.
    pub text: Option<String>,
    /// The HTML part.
    pub html: Option<String>,
    /// What a reader of the HTML part sees. The digests of earlier versions cover its old name.
    #[serde(rename = "html_shows")]
    pub html_as_text: Option<String>,
    /// Characters of the HTML part that most of its readers do not see.
    pub hidden_chars: usize,
    /// The start of that hidden text. Some mail programs or screen sizes may show it.
    pub hidden_text: String,
    /// Links of the HTML part, each with its visible text.
    pub links: Vec<PreviewLink>,
    /// Attachments.
    pub attachments: Vec<PreviewFile>,
    /// What a person should notice before approving.
    pub warnings: Vec<String>,
}

/// A link of the HTML part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PreviewLink {
    /// Its visible text.
    pub text: String,
    /// Its target, as a browser resolves it.
    pub url: String,
    /// Whether the text names another host or address than the target.
    pub misleads: bool,
}

/// An attachment.
#[derive(Clone, Debug, Serialize)]
pub struct PreviewFile {
    /// Its name.
    pub filename: Option<String>,
    /// Its declared type.
    pub content_type: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
}

impl Escalations {
    /// Renders the preview of an email. Warns when a reply goes to another organization than the message's sender.
    pub(crate) async fn preview(&self, email: &Email, content: EmailContent) -> Result<Preview, StoreError> {
        let content = Arc::new(content);
        let mut preview = render_on_blocking_thread(Arc::clone(&content)).await;
        if let Some(id) = email.head.answers
            && let Some(message) = self.ctx.store.message(email.team, id).await?
        {
            preview.warnings.extend(suspicious_reply_target_warning(&message.head, &content));
        }
        Ok(preview)
    }
}

/// Renders on a blocking thread, because hostile HTML can make the renderer slow.
async fn render_on_blocking_thread(content: Arc<EmailContent>) -> Preview {
    let shared = Arc::clone(&content);
    let rendered = run_blocking(move || Preview::of(&shared)).await;
    rendered.unwrap_or_else(|_panic| Preview::of_page(&content, None))
}

impl Preview {
    fn of(content: &EmailContent) -> Self {
        Self::of_page(content, content.html.as_deref().map(HtmlPage::parse_for_approval))
    }

    /// Renders the preview. `page` is the parsed HTML part with the names of the elements that the renderer cannot
    /// show. It is `None` without an HTML part, or when the renderer panicked.
    fn of_page(content: &EmailContent, page: Option<(HtmlPage, Vec<String>)>) -> Self {
        let (page, unrendered) = page.unzip();
        let html_as_text = page.as_ref().map(html::render);
        let is_truncated = page.as_ref().map_or(content.html.is_some(), |page| page.is_truncated);
        let mut preview = Self {
            from: format_named_address(&content.from),
            to: content.to.iter().map(format_named_address).collect(),
            cc: content.cc.iter().map(format_named_address).collect(),
            bcc: content.bcc.iter().map(format_named_address).collect(),
            reply_to: content.reply_to.iter().map(format_named_address).collect(),
            subject: content.subject.clone(),
            headers: content.headers.clone(),
            text: content.text.clone(),
            html: content.html.clone(),
            html_as_text,
            hidden_chars: page.as_ref().map_or(0, |page| page.hidden.chars),
            hidden_text: page.as_ref().map_or_else(String::new, |page| page.hidden_text.clone()),
            links: page.map_or_else(Vec::new, |page| preview_links(&page.anchors)),
            attachments: content.attachments.iter().map(preview_file).collect(),
            warnings: Vec::new(),
        };
        preview.warnings = preview.warnings(content, &unrendered.unwrap_or_default());
        preview.warnings.extend(is_truncated.then(|| TOO_COMPLEX.to_owned()));
        preview
    }

    /// The digest that binds an approval to this preview of this email.
    pub fn digest(&self, email: EmailId) -> String {
        let mut hash = Sha256::new();
        hash.update(email.0.as_bytes());
        // A struct of strings and numbers always serializes.
        hash.update(serde_json::to_vec(self).unwrap_or_default());
        hex(&hash.finalize())
    }

    /// The preview as plain text. Characters that could hide or reorder text are escaped.
    pub fn to_plain_text(&self) -> String {
        let mut text = String::new();
        let lists = [("To", &self.to), ("Cc", &self.cc), ("Bcc", &self.bcc), ("Reply-To", &self.reply_to)];
        write_line(&mut text, "From", &self.from);
        for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            write_line(&mut text, name, &list.join(", "));
        }
        write_line(&mut text, "Subject", &self.subject);
        self.headers.iter().for_each(|(name, value)| write_line(&mut text, "Header", &format!("{name}: {value}")));
        self.attachments.iter().for_each(|file| write_line(&mut text, "Attached", &file.to_plain_text()));
        self.links.iter().for_each(|link| write_line(&mut text, "Link", &link.to_plain_text()));
        self.warnings.iter().for_each(|warning| write_line(&mut text, "Warning", warning));
        let parts = [("Text", &self.text), ("HTML, as its reader sees it", &self.html_as_text)];
        let hidden = (!self.hidden_text.is_empty()).then_some(&self.hidden_text);
        let parts = parts.into_iter().map(|(name, part)| (name, part.as_ref()));
        for (name, part) in parts.chain([("HTML, text that most mail programs hide", hidden)]) {
            if let Some(part) = part {
                write!(text, "\n--- {name} ---\n{}\n", escape_invisible(part, true)).ok();
            }
        }
        text
    }

    fn warnings(&self, content: &EmailContent, unrendered: &[String]) -> Vec<String> {
        let mut warnings = Vec::new();
        let elsewhere =
            |to: &&NamedAddress| registrable_or_host(to.domain()) != registrable_or_host(content.from.domain());
        let away: Vec<&str> = content.reply_to.iter().filter(elsewhere).map(NamedAddress::domain).collect();
        if !away.is_empty() {
            warnings.push(format!("Replies go to another organization: {}", away.join(", ")));
        }
        if let (Some(text), Some(html)) = (&self.text, &self.html_as_text) {
            let [html, text] = [html, text].map(|part| without_link_targets(part, &self.links));
            let (only_html, only_text) = word_difference(&html, &text);
            warnings.extend(part_difference_warning("HTML", "text", &only_html));
            warnings.extend(part_difference_warning("text", "HTML", &only_text));
        }
        if self.hidden_chars > 0 {
            warnings.push(format!("The HTML part hides {} characters, which some readers may see", self.hidden_chars));
        }
        let not_shown = |name| format!("The HTML part has {name}, which is not shown here: read its source");
        warnings.extend(unrendered.iter().map(not_shown));
        let misleading = self.links.iter().filter(|link| link.misleads);
        warnings.extend(misleading.map(|link| format!("The link \"{}\" leads to {}", link.text, link.url)));
        let programs = self.attachments.iter().filter(|file| file.is_executable());
        warnings.extend(programs.map(|file| format!("{} is a program that runs when it is opened", file.name())));
        warnings
    }
}

impl PreviewLink {
    fn to_plain_text(&self) -> String {
        let is_plain = self.text.is_empty() || self.text == self.url;
        if is_plain { self.url.clone() } else { format!("{} ({})", self.url, self.text) }
    }
}

impl PreviewFile {
    fn name(&self) -> &str {
        self.filename.as_deref().unwrap_or("a file without a name")
    }

    /// Its name, with every character escaped that is invisible or changes the display order of others.
    pub fn shown_name(&self) -> String {
        escape_invisible(self.name(), false)
    }

    /// Whether these are the bytes of the attachment.
    pub(super) fn has_bytes(&self, bytes: &[u8]) -> bool {
        self.sha256 == hex(&Sha256::digest(bytes))
    }

    fn is_executable(&self) -> bool {
        let ending = self.name().trim_end().rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        ending.is_some_and(|ending| EXECUTABLE_EXTENSIONS.contains(&ending.as_str()))
    }

    fn to_plain_text(&self) -> String {
        let kind = self.content_type.as_deref().unwrap_or("type not declared");
        format!("{} ({kind}, {} bytes)", self.name(), self.size)
    }
}

/// Warns about a reply whose recipient comes from a `Reply-To` of another organization, or from a message that failed
/// authentication.
fn suspicious_reply_target_warning(message: &MessageHead, content: &EmailContent) -> Option<String> {
    let target = reply_target(message);
    let sender = message.from.as_ref().map_or("an unknown sender", |from| from.address.as_str());
    let goes_there = |to: &NamedAddress| target.to.iter().any(|address| address.eq_ignore_ascii_case(&to.address));
    if target.flags.is_empty() || !content.to.iter().any(goes_there) {
        return None;
    }
    let to = target.to.join(", ");
    Some(if target.flags.contains(&"other_domain") {
        format!("This replies to a message from {sender}, but goes to {to}, because the message asks for replies there")
    } else {
        format!("This replies to a message that failed authentication: {sender} may not have sent it")
    })
}

/// The links of a page, without duplicates. Hidden links are included, because some mail programs show them.
fn preview_links(anchors: &[Anchor]) -> Vec<PreviewLink> {
    let mut links = Vec::new();
    for anchor in anchors {
        let (url, _, reasons) = check_link(&anchor.href, Some(&anchor.text), &LinkPolicy::default());
        let misleads = reasons.contains(&Reason::TextMismatch) || shows_other_mailbox(&url, &anchor.text);
        let link = PreviewLink { text: anchor.text.clone(), url, misleads };
        if !links.contains(&link) {
            links.push(link);
        }
    }
    links
}

fn preview_file(attachment: &mailonce_core::outbound::content::Attachment) -> PreviewFile {
    PreviewFile {
        filename: attachment.filename.clone(),
        content_type: attachment.content_type.clone(),
        size: attachment.bytes.len() as u64,
        sha256: hex(&Sha256::digest(&attachment.bytes)),
    }
}

fn format_named_address(mailbox: &NamedAddress) -> String {
    match &mailbox.name {
        // Without quotes, a name with a comma would look like two recipients.
        Some(name) if name.contains([',', ';', '<', '>', '@', '"']) => {
            format!("\"{}\" <{}>", name.replace('"', "\\\""), mailbox.address)
        }
        Some(name) => format!("{name} <{}>", mailbox.address),
        None => mailbox.address.clone(),
    }
}

/// Warns about words of one part that the other part lacks or has in another order: a reader sees only one part.
fn part_difference_warning(part: &str, other: &str, only: &[String]) -> Option<String> {
    if only.is_empty() {
        return None;
    }
    let quoted = only.iter().take(MAX_QUOTED_WORDS).cloned().collect::<Vec<_>>().join(" ");
    let more = if only.len() > MAX_QUOTED_WORDS { " …" } else { "" };
    Some(format!("The {part} part has words that the {other} part lacks or has in another order: {quoted}{more}"))
}

/// A part without the URLs of its links. A text part writes them out, and the preview lists them anyway.
fn without_link_targets(text: &str, links: &[PreviewLink]) -> String {
    let plain = |url: &str| url.trim_end_matches('/').to_owned();
    let targets: BTreeSet<String> = links
        .iter()
        .map(|link| plain(&link.url))
        .filter(|url| url.starts_with("https://") || url.starts_with("http://"))
        .collect();
    let is_target = |word: &str| {
        let address = word.trim_matches(|c: char| "<>()[]\"',".contains(c));
        [address, address.trim_end_matches('.')].iter().any(|address| targets.contains(&plain(address)))
    };
    text.split_whitespace().filter(|word| !is_target(word)).collect::<Vec<_>>().join(" ")
}

/// Whether the text of a `mailto:` link names another address than its target.
fn shows_other_mailbox(url: &str, text: &str) -> bool {
    let Some(target) = url.strip_prefix("mailto:") else { return false };
    let target = target.split('?').next().unwrap_or_default().to_lowercase();
    let words = text.split(|c: char| c.is_whitespace() || "<>()[]\"',;".contains(c));
    let mut addresses = words.filter(|word| word.contains('@')).map(|word| word.trim_matches('.').to_lowercase());
    addresses.any(|address| target.split(',').all(|known| known.trim() != address))
}

fn write_line(text: &mut String, name: &str, value: &str) {
    // Writing to a `String` cannot fail.
    writeln!(text, "{:<10}{}", format!("{name}:"), escape_invisible(value, false)).ok();
}

/// Escapes every character that is invisible or that changes the display order of others.
fn escape_invisible(text: &str, lines: bool) -> String {
    let mut clear = String::with_capacity(text.len());
    for c in text.chars() {
        let breaks_line = matches!(c, '\u{2028}' | '\u{2029}');
        let odd = c.is_control() || breaks_line || unicode::is_invisible(c) || unicode::is_bidi_control(c);
        if odd && !(lines && (c == '\n' || c == '\t')) {
            write!(clear, "\\u{{{:x}}}", u32::from(c)).ok();
        } else {
            clear.push(c);
        }
    }
    clear
}

#[cfg(test)]
mod tests;
