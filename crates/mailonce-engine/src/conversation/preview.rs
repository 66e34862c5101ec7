//! Exactly what will be sent, for the person who approves it.
//!
//! The approval page, the command line, the API and the mail that asks for a decision all show this preview. Its digest
//! covers everything in it and the bytes of every attachment, so that an approval is an approval of that and nothing
//! else.

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
use std::{collections::BTreeSet, fmt::Write as _};

use crate::{Engine, conversation::reply::reply_target, hex, inbound::worker::run_blocking};

/// Of a page that reaches a limit of the renderer.
const TOO_COMPLEX: &str = "The HTML part is too large or too complex to be shown whole: read its source";
/// What mail programs may show and the renderer does not: how it begins in the source, and its name.
const UNRENDERED: [(&str, &str); 9] = [
    ("<!--[if", "text for Outlook alone"),
    ("content:", "text in its style sheet"),
    ("<form", "a form"),
    ("<svg", "a drawing"),
    ("<select", "a list to choose from"),
    ("<object", "an embedded object"),
    ("<embed", "an embedded object"),
    ("<iframe", "another page"),
    ("<noscript", "text for programs without scripts"),
];
/// Words that a warning about differing parts quotes.
const MAX_QUOTED_WORDS: usize = 20;
/// Endings of files that run when somebody opens them.
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
    /// Where answers go, when that is not the sender.
    pub reply_to: Vec<String>,
    /// Subject.
    pub subject: String,
    /// Custom headers.
    pub headers: Vec<(String, String)>,
    /// The text part.
    pub text: Option<String>,
    /// The HTML part.
    pub html: Option<String>,
    /// What a reader of the HTML part sees.
    pub html_shows: Option<String>,
    /// Characters of the HTML part that most of its readers do not see.
    pub hidden_chars: usize,
    /// The start of them. Another mail program, or another screen, may show them.
    pub hidden_text: String,
    /// Links of the HTML part, each with the words that a reader clicks on.
    pub links: Vec<PreviewLink>,
    /// Files.
    pub attachments: Vec<PreviewFile>,
    /// What a person should notice before approving.
    pub warnings: Vec<String>,
}

/// A link of the HTML part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PreviewLink {
    /// What a reader clicks on.
    pub text: String,
    /// Where it leads, as a browser reads it.
    pub url: String,
    /// The text names another host than the one that it leads to.
    pub misleads: bool,
}

/// An attached file.
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

impl Engine {
    /// Renders what will be sent of an email, with a warning when it is a reply that goes elsewhere than its sender's.
    pub(crate) async fn preview(&self, email: &Email, content: &EmailContent) -> Result<Preview, StoreError> {
        // HTML is rendered apart from the requests, because it can be written to take long.
        let page = match content.html.clone() {
            Some(html) => run_blocking(move || HtmlPage::parse(&html)).await.ok(),
            None => None,
        };
        let mut preview = Preview::of_page(content, page);
        if let Some(id) = email.head.answers
            && let Some(message) = self.store.message(email.team, id).await?
        {
            preview.warnings.extend(reply_diversion_warning(&message.head, content));
        }
        Ok(preview)
    }
}

impl Preview {
    /// Renders what will be sent. `page` is the HTML part, or `None` when it brought the renderer down.
    fn of_page(content: &EmailContent, page: Option<HtmlPage>) -> Self {
        let html_shows = page.as_ref().map(html::render);
        let is_cut = page.as_ref().map_or(content.html.is_some(), |page| page.is_truncated);
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
            html_shows,
            hidden_chars: page.as_ref().map_or(0, |page| page.hidden.chars),
            hidden_text: page.as_ref().map_or_else(String::new, |page| page.hidden_text.clone()),
            links: page.map_or_else(Vec::new, |page| preview_links(&page.anchors)),
            attachments: content.attachments.iter().map(preview_file).collect(),
            warnings: Vec::new(),
        };
        preview.warnings = preview.warnings(content);
        preview.warnings.extend(is_cut.then(|| TOO_COMPLEX.to_owned()));
        preview
    }

    /// What an approval of this email is bound to.
    pub fn digest(&self, email: EmailId) -> String {
        let mut hash = Sha256::new();
        hash.update(email.0.as_bytes());
        // Words in a struct are always JSON.
        hash.update(serde_json::to_vec(self).unwrap_or_default());
        hex(&hash.finalize())
    }

    /// The preview as plain text, with every character that could hide or reorder words written out.
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
        let parts = [("Text", &self.text), ("HTML, as its reader sees it", &self.html_shows)];
        let hidden = (!self.hidden_text.is_empty()).then_some(&self.hidden_text);
        let parts = parts.into_iter().map(|(name, part)| (name, part.as_ref()));
        for (name, part) in parts.chain([("HTML, text that most mail programs hide", hidden)]) {
            if let Some(part) = part {
                write!(text, "\n--- {name} ---\n{}\n", escape_invisible(part, true)).ok();
            }
        }
        text
    }

    fn warnings(&self, content: &EmailContent) -> Vec<String> {
        let mut warnings = Vec::new();
        let elsewhere =
            |to: &&NamedAddress| registrable_or_host(to.domain()) != registrable_or_host(content.from.domain());
        let away: Vec<&str> = content.reply_to.iter().filter(elsewhere).map(NamedAddress::domain).collect();
        if !away.is_empty() {
            warnings.push(format!("Answers go to another organization: {}", away.join(", ")));
        }
        if let (Some(text), Some(shows)) = (&self.text, &self.html_shows) {
            warnings.extend(part_difference_warning("HTML", "text", shows, text));
            warnings.extend(part_difference_warning("text", "HTML", text, shows));
        }
        if self.hidden_chars > 0 {
            warnings.push(format!("The HTML part hides {} characters, which some readers may see", self.hidden_chars));
        }
        warnings.extend(self.html.as_deref().map(unrendered_warnings).unwrap_or_default());
        let misleading = self.links.iter().filter(|link| link.misleads);
        warnings.extend(misleading.map(|link| format!("The link \"{}\" leads to {}", link.text, link.url)));
        let programs = self.attachments.iter().filter(|file| file.is_executable());
        warnings.extend(programs.map(|file| format!("{} is a program that runs when it is opened", file.name())));
        warnings
    }
}

impl PreviewLink {
    fn to_plain_text(&self) -> String {
        if self.text == self.url { self.url.clone() } else { format!("{} ({})", self.url, self.text) }
    }
}

impl PreviewFile {
    fn name(&self) -> &str {
        self.filename.as_deref().unwrap_or("a file without a name")
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

/// Warns about a reply that goes to somebody else than the sender of the message, because the message asks for that.
fn reply_diversion_warning(message: &MessageHead, content: &EmailContent) -> Option<String> {
    let target = reply_target(message);
    let sender = message.from.as_ref().map_or("an unknown sender", |from| from.address.as_str());
    let goes_there = |to: &NamedAddress| target.to.iter().any(|address| address.eq_ignore_ascii_case(&to.address));
    if target.flags.is_empty() || !content.to.iter().any(goes_there) {
        return None;
    }
    let to = target.to.join(", ");
    Some(if target.flags.contains(&"other_domain") {
        format!("This replies to a message from {sender}, and goes to {to}, as the message asks")
    } else {
        format!("This replies to a message that failed authentication: {sender} may not have sent it")
    })
}

/// The links that a reader can click on, each once.
fn preview_links(anchors: &[Anchor]) -> Vec<PreviewLink> {
    let mut links = Vec::new();
    for anchor in anchors.iter().filter(|anchor| !anchor.is_hidden) {
        let (url, _, reasons) = check_link(&anchor.href, Some(&anchor.text), &LinkPolicy::default());
        let link = PreviewLink { text: anchor.text.clone(), url, misleads: reasons.contains(&Reason::TextMismatch) };
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

/// Warnings about parts of a page that are not rendered.
fn unrendered_warnings(html: &str) -> Vec<String> {
    let source = html.to_ascii_lowercase();
    let found: BTreeSet<&str> =
        UNRENDERED.iter().filter(|(start, _)| source.contains(start)).map(|(_, name)| *name).collect();
    found
        .into_iter()
        .map(|name| format!("The HTML part has {name}, which is not shown here: read its source"))
        .collect()
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

/// What stands in one part and not in the other: a reader sees only one of them.
fn part_difference_warning(part: &str, other: &str, here: &str, there: &str) -> Option<String> {
    let known: BTreeSet<String> = words(there).collect();
    let mut seen = BTreeSet::new();
    let only: Vec<String> = words(here).filter(|word| !known.contains(word) && seen.insert(word.clone())).collect();
    if only.is_empty() {
        return None;
    }
    let quoted = only.iter().take(MAX_QUOTED_WORDS).cloned().collect::<Vec<_>>().join(" ");
    let more = if only.len() > MAX_QUOTED_WORDS { " …" } else { "" };
    Some(format!("The {part} part says what the {other} part does not: {quoted}{more}"))
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let is_inside = |c: char| c.is_alphanumeric() || "@.:/-_?=&%+".contains(c);
    let pieces =
        text.split(move |c: char| !is_inside(c)).map(|piece| piece.trim_matches(|c: char| !c.is_alphanumeric()));
    pieces.filter(|piece| !piece.is_empty()).map(str::to_lowercase)
}

fn write_line(text: &mut String, name: &str, value: &str) {
    // Writing to a text cannot fail.
    writeln!(text, "{:<10}{}", format!("{name}:"), escape_invisible(value, false)).ok();
}

/// A text with every character written out that a person would not see, or that would change the order of others.
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
mod tests {
    use super::*;
    use mailonce_core::outbound::content::{RawAttachment, RawContent};
    use uuid::Uuid;

    impl Preview {
        fn of(content: &EmailContent) -> Self {
            Self::of_page(content, content.html.as_deref().map(HtmlPage::parse))
        }
    }

    fn content(change: impl FnOnce(&mut RawContent)) -> EmailContent {
        let mut raw = RawContent {
            from: "agent@example.com".into(),
            to: vec!["ann@example.org".into()],
            subject: "Invoice".into(),
            text: Some("Please pay 10 euros.".into()),
            ..RawContent::default()
        };
        change(&mut raw);
        EmailContent::validate(raw).unwrap()
    }

    #[test]
    fn everybody_and_everything_is_shown() {
        let preview = Preview::of(&content(|raw| {
            raw.cc = vec!["Bob <bob@example.net>".into()];
            raw.bcc = vec!["eve@evil.example".into()];
            raw.reply_to = vec!["eve@evil.example".into()];
            raw.html = Some("<p>Please pay <b>9000</b> euros.</p>".into());
            raw.attachments = vec![RawAttachment {
                filename: Some("invoice.pdf.exe".into()),
                content: "TVo=".into(),
                content_type: Some("application/pdf".into()),
                content_id: None,
            }];
        }));
        let shown = preview.to_plain_text();
        for part in
            ["bob@example.net", "Bcc:", "Reply-To:", "evil.example", "invoice.pdf.exe (application/pdf, 2 bytes)"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(shown.contains("HTML part says what the text part does not: 9000"), "{shown}");
        assert!(shown.contains("text part says what the HTML part does not: 10"), "{shown}");
        assert!(shown.contains("is a program"), "{shown}");
    }

    #[test]
    fn links_are_shown_with_where_they_lead() {
        let preview = Preview::of(&content(|raw| {
            let shop = "<a href='https://evil.example/pay'>https://shop.example</a>";
            raw.html =
                Some(format!("<p>Please pay 10 euros.</p>{shop} {shop} <a href='https://example.com/x'>here</a>"));
        }));
        let shown = preview.to_plain_text();
        for part in
            ["Link:     https://evil.example/pay (https://shop.example)", "Link:     https://example.com/x (here)"]
        {
            assert_eq!(shown.matches(part).count(), 1, "{part}: {shown}");
        }
        assert!(
            shown.contains("Warning:  The link \"https://shop.example\" leads to https://evil.example/pay"),
            "{shown}"
        );
        assert!(!shown.contains("The link \"here\""), "{shown}");
    }

    #[test]
    fn words_that_a_reader_does_not_see_are_counted() {
        let html = "<p>Please pay 10 euros.</p><p style='display:none'>secret</p>";
        let preview = Preview::of(&content(|raw| raw.html = Some(html.into())));
        assert_eq!(preview.warnings, ["The HTML part hides 6 characters, which some readers may see"]);
        assert!(
            preview.to_plain_text().contains("--- HTML, text that most mail programs hide ---\nsecret"),
            "{}",
            preview.to_plain_text()
        );
    }

    #[test]
    fn what_cannot_be_shown_is_named() {
        let hello = "<p>Please pay 10 euros.</p>";
        for (more, warning) in [
            ("<!--[if mso]>EVIL<![endif]-->", "text for Outlook alone"),
            ("<style>p::after{content:'EVIL'}</style>", "text in its style sheet"),
            ("<form action='https://evil.example'></form>", "a form"),
            ("<svg><text>EVIL</text></svg>", "a drawing"),
            ("<noscript>EVIL</noscript>", "text for programs without scripts"),
            ("<select><option>EVIL</select>", "a list to choose from"),
            (&format!("{}EVIL", "<div>".repeat(600)), "too complex"),
            (&format!("{}EVIL", "<b></b>".repeat(60_000)), "too complex"),
            (&format!("<!--{}-->EVIL", "x".repeat(800_000)), "too complex"),
            (
                "<style>@media(max-width:600px){p.x{display:block}}p.x{display:none}</style><p class=x>EVIL</p>",
                "hides 4",
            ),
        ] {
            let preview = Preview::of(&content(|raw| raw.html = Some(format!("{hello}{more}"))));
            let start: String = more.chars().take(60).collect();
            assert!(preview.warnings.iter().any(|told| told.contains(warning)), "{start}: {:?}", preview.warnings);
        }
    }

    #[test]
    fn a_name_does_not_look_like_another_recipient() {
        let preview = Preview::of(&content(|raw| raw.to = vec!["\"ann@example.org, Bob\" <eve@evil.example>".into()]));
        assert_eq!(preview.to, ["\"ann@example.org, Bob\" <eve@evil.example>"]);
    }

    #[test]
    fn parts_that_say_the_same_are_not_flagged() {
        let preview = Preview::of(&content(|raw| raw.html = Some("<p>Please <i>pay</i> 10&nbsp;euros.</p>".into())));
        assert!(preview.warnings.is_empty(), "{:?}", preview.warnings);
    }

    #[test]
    fn the_digest_covers_every_part() {
        let id = EmailId(Uuid::from_u128(1));
        let digest = |change: fn(&mut RawContent)| Preview::of(&content(change)).digest(id);
        let plain = digest(|_| {});
        let attached = |content: &str| RawAttachment {
            filename: Some("a".into()),
            content: content.into(),
            content_type: None,
            content_id: None,
        };
        let changed = [
            digest(|raw| raw.cc = vec!["bob@example.net".into()]),
            digest(|raw| raw.bcc = vec!["bob@example.net".into()]),
            digest(|raw| raw.reply_to = vec!["bob@example.net".into()]),
            digest(|raw| raw.html = Some("<p>Please pay 10 euros.</p>".into())),
            digest(|raw| raw.subject = "Other".into()),
            Preview::of(&content(|raw| raw.attachments = vec![attached("TVo=")])).digest(id),
            Preview::of(&content(|raw| raw.attachments = vec![attached("TVpa")])).digest(id),
            Preview::of(&content(|_| {})).digest(EmailId(Uuid::from_u128(2))),
        ];
        let all: BTreeSet<&String> = changed.iter().chain([&plain]).collect();
        assert_eq!(all.len(), changed.len() + 1);
    }

    #[test]
    fn hidden_and_reordering_characters_are_written_out() {
        let shown = Preview::of(&content(|raw| raw.subject = "Re\u{202e}x\u{200b}".into())).to_plain_text();
        assert!(shown.contains("Re\\u{202e}x\\u{200b}"), "{shown}");
    }
}
