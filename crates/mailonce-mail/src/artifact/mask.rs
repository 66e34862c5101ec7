//! Values made unreadable, for everybody but the one who consumes them.

use super::{ExtractedArtifact, ExtractedArtifacts, Kind};
use crate::{
    link::{self, has_secret},
    unicode,
};

/// What may stand between two characters of a code.
const CODE_SEPARATORS: &str = " -\u{a0}·.\n|";

/// A value as others may see it.
pub fn masked_value(artifact: &ExtractedArtifact) -> String {
    match artifact.kind {
        Kind::Code => "•".repeat(artifact.value.chars().count()),
        Kind::Link => origin_only(&artifact.value),
    }
}

/// The link without what is behind its host.
fn origin_only(url: &str) -> String {
    let from = url.find("://").map_or(0, |at| at + 3);
    let end = url[from..].find(['/', '?', '#']).map_or(url.len(), |at| from + at);
    format!("{}/…", &url[..end])
}

/// A text in which no code that was found, decided or not, and no secret of a link can be read.
pub fn redact_text(text: &str, found: &ExtractedArtifacts) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (start, end) in link::link_spans(text) {
        out.push_str(&text[from..start]);
        let url = &text[start..end];
        if has_secret(url) {
            out.push_str(&origin_only(url))
        } else {
            out.push_str(url)
        }
        from = end;
    }
    out.push_str(&text[from..]);
    let mut chars: Vec<char> = out.chars().collect();
    let codes = found.decided.iter().chain(&found.candidates).filter(|artifact| artifact.kind == Kind::Code);
    for code in codes {
        mask_code(&mut chars, &code.value);
    }
    chars.into_iter().collect()
}

fn mask_code(chars: &mut [char], code: &str) {
    let code: Vec<char> = code.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let places = code_positions(chars, at, &code);
        at = places.last().map_or(at + 1, |last| last + 1);
        for place in places {
            chars[place] = '•';
        }
    }
}

/// Where the code's characters stand from `at` on; empty when it is not there.
fn code_positions(chars: &[char], at: usize, code: &[char]) -> Vec<usize> {
    let mut places = Vec::with_capacity(code.len());
    let mut next = at;
    for wanted in code {
        let skip = if places.is_empty() {
            0
        } else {
            chars[next.min(chars.len())..]
                .iter()
                .take(4)
                .take_while(|c| CODE_SEPARATORS.contains(**c) || unicode::is_invisible(**c))
                .count()
        };
        next += skip;
        match chars.get(next) {
            Some(c) if unicode::fold_to_ascii(*c) == *wanted => places.push(next),
            _ => return Vec::new(),
        }
        next += 1;
    }
    places
}
