//! HTML as a stream of tokens, in one pass and in linear time, as browsers cut it (WHATWG HTML §13.2.5, the states
//! that decide what is text and what is not).

use super::{ATTRIBUTES, HTML_BYTES, VALUE_BYTES, entity};

/// A piece of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token {
    Text(String),
    Open {
        name: String,
        attributes: Vec<(String, String)>,
    },
    Close(String),
    /// With what stands in it.
    Comment(String),
    /// The content of a `style` element.
    Style(String),
}

/// Reads tokens one by one.
pub(super) struct Tokens<'a> {
    rest: &'a str,
    /// The element whose content is not HTML.
    raw: Option<&'static str>,
    pub(super) cut: bool,
}

/// Elements whose content is no HTML and not shown.
const RAW: &[&str] = &["script", "style", "title", "iframe", "noembed", "noframes", "template"];

impl<'a> Tokens<'a> {
    pub(super) fn new(html: &'a str) -> Self {
        let end = html.floor_char_boundary(HTML_BYTES);
        Self { rest: &html[..end], raw: None, cut: end < html.len() }
    }

    fn raw_text(&mut self, name: &str) -> Option<Token> {
        let end = find_close(self.rest, name).unwrap_or(self.rest.len());
        let (content, rest) = self.rest.split_at(end);
        self.rest = rest;
        (name == "style").then(|| Token::Style(content[..content.floor_char_boundary(64 * 1024)].to_owned()))
    }

    fn markup(&mut self) -> Option<Token> {
        let rest = self.rest;
        if let Some(comment) = rest.strip_prefix("<!--") {
            // `<!-->` and `<!--->` are whole comments.
            let short = comment.strip_prefix("->").or_else(|| comment.strip_prefix('>'));
            let (content, behind) = match short {
                Some(behind) => ("", behind),
                None => split_comment(comment),
            };
            self.rest = behind;
            return Some(Token::Comment(content.to_owned()));
        }
        if rest.starts_with("<!") || rest.starts_with("<?") {
            let (content, behind) = rest[2..].split_once('>').unwrap_or((&rest[2..], ""));
            self.rest = behind;
            let doctype = content.get(..7).is_some_and(|word| word.eq_ignore_ascii_case("doctype"));
            return (!doctype).then(|| Token::Comment(content.to_owned()));
        }
        let close = rest.starts_with("</");
        let start = if close { 2 } else { 1 };
        if !rest[start..].starts_with(|c: char| c.is_ascii_alphabetic()) {
            if close {
                self.rest = rest.split_once('>').map_or("", |(_, behind)| behind);
                return None;
            }
            self.rest = &rest[1..];
            return Some(Token::Text("<".to_owned()));
        }
        let end = rest[start..]
            .find(|c: char| c.is_ascii_whitespace() || c == '/' || c == '>')
            .map_or(rest.len(), |n| start + n);
        let name = rest[start..rest.floor_char_boundary(end.min(start + 32))].to_ascii_lowercase();
        let (attributes, behind) = attributes(&rest[end..]);
        self.rest = behind;
        if close {
            return Some(Token::Close(name));
        }
        self.raw = RAW.iter().find(|raw| **raw == name).copied();
        Some(Token::Open { name, attributes })
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        while !self.rest.is_empty() {
            if let Some(name) = self.raw.take() {
                match self.raw_text(name) {
                    Some(token) => return Some(token),
                    None => continue,
                }
            }
            if self.rest.starts_with('<') {
                match self.markup() {
                    Some(token) => return Some(token),
                    None => continue,
                }
            }
            let end = self.rest.find('<').unwrap_or(self.rest.len());
            let (text, rest) = self.rest.split_at(end);
            self.rest = rest;
            return Some(Token::Text(entity::decode(text)));
        }
        None
    }
}

/// Up to `-->` or `--!>`; a comment without an end hides the rest.
fn split_comment(comment: &str) -> (&str, &str) {
    let mut from = 0;
    while let Some(at) = comment[from..].find("--") {
        let at = from + at;
        let behind = &comment[at + 2..];
        if let Some(behind) = behind.strip_prefix('>').or_else(|| behind.strip_prefix("!>")) {
            return (&comment[..at], behind);
        }
        from = at + 1;
    }
    (comment, "")
}

/// Where `</name` stands, in any case.
fn find_close(text: &str, name: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].find("</") {
        let at = from + at;
        let behind = &text.as_bytes()[at + 2..];
        let (word, after) = (behind.get(..name.len()), behind.get(name.len()));
        let ends = after.is_none_or(|b| b.is_ascii_whitespace() || *b == b'/' || *b == b'>');
        if ends && word.is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes())) {
            return Some(at);
        }
        from = at + 2;
    }
    None
}

/// The attributes of a tag, and what stands behind it. The first of a name counts.
fn attributes(text: &str) -> (Vec<(String, String)>, &str) {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        if rest.is_empty() {
            return (found, "");
        }
        if let Some(behind) = rest.strip_prefix('>') {
            return (found, behind);
        }
        // A `=` at the start belongs to the name.
        let end = rest
            .char_indices()
            .skip(1)
            .find(|(_, c)| c.is_ascii_whitespace() || "/>=".contains(*c))
            .map_or(rest.len(), |(n, _)| n);
        let (name, behind) = rest.split_at(end);
        rest = behind.trim_start_matches(|c: char| c.is_ascii_whitespace());
        let mut value = "";
        if let Some(behind) = rest.strip_prefix('=') {
            (value, rest) = self::value(behind.trim_start_matches(|c: char| c.is_ascii_whitespace()));
        }
        if found.len() < ATTRIBUTES
            && name.len() <= 64
            && !found.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
        {
            let value = &value[..value.floor_char_boundary(VALUE_BYTES)];
            found.push((name.to_ascii_lowercase(), entity::decode(value)));
        }
    }
}

fn value(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote) {
            return rest.split_once(quote).unwrap_or((rest, ""));
        }
    }
    let end = text.find(|c: char| c.is_ascii_whitespace() || c == '>').unwrap_or(text.len());
    text.split_at(end)
}
