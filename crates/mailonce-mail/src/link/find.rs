//! Links in text and HTML.

use super::LINKS;
use crate::{glyph, html::Page, parse::Parsed};

/// A link as it stands in the mail.
pub(super) struct Found {
    pub(super) href: String,
    pub(super) text: Option<String>,
    /// The words before it, when it stands in plain text.
    pub(super) before: String,
    pub(super) hidden: bool,
}

pub(super) fn all(mail: &Parsed, page: Option<&Page>) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    if let Some(page) = page {
        for anchor in &page.anchors {
            let skip = anchor.href.is_empty() || anchor.href.starts_with('#') || is_contact(&anchor.href);
            if !skip {
                let text = Some(anchor.text.clone());
                found.push(Found { href: anchor.href.clone(), text, before: String::new(), hidden: anchor.hidden });
            }
        }
        // Mail programs make links of what looks like one.
        found.extend(in_text(&page.text));
    }
    found.extend(in_text(mail.text.as_deref().unwrap_or_default()));
    found.truncate(LINKS * 4);
    found
}

/// Links that open a letter or a telephone lead nowhere.
fn is_contact(href: &str) -> bool {
    ["mailto:", "tel:", "sms:", "cid:"]
        .iter()
        .any(|scheme| href.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme)))
}

/// Where links stand in a text, as byte ranges.
pub(crate) fn spans(text: &str) -> Vec<(usize, usize)> {
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
        let end = text[at + 3..].find(ends).map_or(text.len(), |n| at + 3 + n);
        let end = at + 3 + trimmed(&text[at + 3..end]);
        if end > at + 3 {
            spans.push((at - scheme, end));
        }
        from = end.max(from);
        if spans.len() >= LINKS * 4 {
            break;
        }
    }
    spans
}

fn ends(c: char) -> bool {
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

/// Without the sentence that goes on behind it.
fn trimmed(text: &str) -> usize {
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

fn in_text(text: &str) -> Vec<Found> {
    let found = |(start, end): (usize, usize)| {
        let head = text.floor_char_boundary(start.saturating_sub(200));
        let before: String = text[head..start].chars().filter(|c| !glyph::is_invisible(*c)).collect();
        Found { href: text[start..end].to_owned(), text: None, before, hidden: false }
    };
    spans(text).into_iter().map(found).collect()
}
