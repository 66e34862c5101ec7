//! Links in text and HTML.

use super::MAX_LINKS;
use crate::{html::HtmlPage, parse::ParsedMail, unicode};

/// A link as written in the mail.
pub(super) struct RawLink {
    pub(super) href: String,
    pub(super) text: Option<String>,
    /// The text before it, if the link is in plain text.
    pub(super) preceding_text: String,
    pub(super) is_hidden: bool,
}

pub(super) fn find_links(mail: &ParsedMail, page: Option<&HtmlPage>) -> Vec<RawLink> {
    let mut found: Vec<RawLink> = Vec::new();
    if let Some(page) = page {
        for anchor in &page.anchors {
            let skip = anchor.href.is_empty() || anchor.href.starts_with('#') || is_contact(&anchor.href);
            if !skip {
                let text = Some(anchor.text.clone());
                found.push(RawLink {
                    href: anchor.href.clone(),
                    text,
                    preceding_text: String::new(),
                    is_hidden: anchor.is_hidden,
                });
            }
        }
        // Mail clients turn URLs in visible text into links.
        found.extend(links_in_text(&page.text));
    }
    found.extend(links_in_text(mail.text.as_deref().unwrap_or_default()));
    found.truncate(MAX_LINKS * 4);
    found
}

/// Whether a link opens a mail client or phone app, or refers to an embedded part, instead of a web page.
fn is_contact(href: &str) -> bool {
    ["mailto:", "tel:", "sms:", "cid:"]
        .iter()
        .any(|scheme| href.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme)))
}

/// The byte ranges of links in a text.
pub(crate) fn link_spans(text: &str) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("://") {
        let at = from + at;
        let scheme = text[from..at]
            .bytes()
            .rev()
            .take(20)
            .take_while(|b| b.is_ascii_alphanumeric() || b"+.-".contains(b))
            .count();
        from = at + 3;
        if scheme == 0 {
            continue;
        }
        let end = text[at + 3..].find(ends_link).map_or(text.len(), |n| at + 3 + n);
        let end = at + 3 + trimmed_len(&text[at + 3..end]);
        if end > at + 3 {
            spans.push((at - scheme, end));
        }
        from = end.max(from);
        if spans.len() >= MAX_LINKS * 4 {
            break;
        }
    }
    spans
}

fn ends_link(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(
            c,
            '<' | '>'
                | '"'
                | '“'
                | '”'
                | '«'
                | '»'
                | '、'
                | '。'
                | '，'
                | '（'
                | '）'
                | '「'
                | '」'
                | '】'
                | '【'
                | '؛'
                | '،'
        )
}

/// The length of a link without trailing punctuation of the sentence around it.
fn trimmed_len(text: &str) -> usize {
    let mut end = text.len();
    while let Some(last) = text[..end].chars().next_back() {
        let count = |c: char| text[..end].matches(c).count();
        let closes = |open: char, close: char| last == close && count(close) > count(open);
        if matches!(last, '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '*' | '_')
            || closes('(', ')')
            || closes('[', ']')
            || closes('{', '}')
        {
            end -= last.len_utf8();
        } else {
            break;
        }
    }
    end
}

fn links_in_text(text: &str) -> Vec<RawLink> {
    let to_link = |(start, end): (usize, usize)| {
        let head = text.floor_char_boundary(start.saturating_sub(200));
        let preceding_text: String = text[head..start].chars().filter(|c| !unicode::is_invisible(*c)).collect();
        RawLink { href: text[start..end].to_owned(), text: None, preceding_text, is_hidden: false }
    };
    link_spans(text).into_iter().map(to_link).collect()
}
