//! The text that is searched for codes: characters folded to ASCII, and links and addresses replaced by a placeholder,
//! since digits in them are not codes.

use crate::{link, unicode};

/// Maximum characters that are searched.
const MAX_CHARS: usize = 50_000;
/// The placeholder for a link or an address.
const PLACEHOLDER: char = '\u{1}';

/// A text as written and in lower case. An index is valid in both.
pub(super) struct SearchText {
    pub(super) chars: Vec<char>,
    pub(super) lower: Vec<char>,
}

impl SearchText {
    pub(super) fn new(text: &str) -> Self {
        let text = replace_links(text);
        let folded = text.chars().filter(|c| !unicode::is_invisible(*c)).map(unicode::fold_to_ascii).take(MAX_CHARS);
        let mut chars: Vec<char> = folded.map(|c| if c == '\t' || c == '\r' { ' ' } else { c }).collect();
        replace_addresses(&mut chars);
        let lower = chars.iter().map(|c| c.to_lowercase().next().unwrap_or(*c)).collect();
        Self { chars, lower }
    }

    pub(super) fn char_at(&self, index: usize) -> Option<char> {
        self.chars.get(index).copied()
    }

    /// The character before `index`.
    pub(super) fn char_before(&self, index: usize) -> Option<char> {
        index.checked_sub(1).and_then(|index| self.char_at(index))
    }

    pub(super) fn slice(&self, from: usize, to: usize) -> &[char] {
        self.chars.get(from..to.min(self.chars.len())).unwrap_or_default()
    }

    /// Start and end of the line that contains `index`.
    pub(super) fn line_bounds(&self, index: usize) -> (usize, usize) {
        let index = index.min(self.chars.len());
        let start = self.chars[..index].iter().rposition(|c| *c == '\n').map_or(0, |at| at + 1);
        let end = self.chars[index..].iter().position(|c| *c == '\n').map_or(self.chars.len(), |at| index + at);
        (start, end)
    }

    /// The lower-case text after `index`: at most `max` characters, up to the end of the line.
    pub(super) fn text_after(&self, index: usize, max: usize) -> String {
        let line = self.lower.get(index..).unwrap_or_default().iter().take(max).take_while(|c| **c != '\n');
        line.collect()
    }
}

fn replace_links(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (start, end) in link::link_spans(text) {
        out.push_str(&text[from..start]);
        out.push(PLACEHOLDER);
        from = end;
    }
    out.push_str(&text[from..]);
    out
}

fn replace_addresses(chars: &mut [char]) {
    let is_local = |c: char| c.is_alphanumeric() || "._%+-".contains(c);
    let is_host = |c: char| c.is_alphanumeric() || ".-".contains(c);
    for at in 0..chars.len() {
        if chars[at] != '@' {
            continue;
        }
        let left = chars[..at].iter().rev().take(64).take_while(|c| is_local(**c)).count();
        let right = chars[at + 1..].iter().take(255).take_while(|c| is_host(**c)).count();
        if left > 0 && right > 0 {
            chars[at - left..=at + right].fill(PLACEHOLDER);
        }
    }
}
