//! Masks values, so that only the caller who consumes them can read them.

use super::{ExtractedArtifact, ExtractedArtifacts, Kind};
use crate::{
    link::{self, has_secret},
    unicode,
};

/// Characters that may separate two characters of a code.
const CODE_SEPARATORS: &str = " -\u{a0}·.\n|";

/// The masked value, safe to show to others.
pub fn masked_value(artifact: &ExtractedArtifact) -> String {
    match artifact.kind {
        Kind::Code => "•".repeat(artifact.value.chars().count()),
        Kind::Link => origin_only(&artifact.value),
    }
}

/// The link up to its host.
fn origin_only(url: &str) -> String {
    let from = url.find("://").map_or(0, |at| at + 3);
    let end = url[from..].find(['/', '?', '#']).map_or(url.len(), |at| from + at);
    format!("{}/…", &url[..end])
}

/// Masks all codes that were found, decided or not, and the secrets of links.
pub fn redact_text(text: &str, artifacts: &ExtractedArtifacts) -> String {
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
    let codes = artifacts.decided.iter().chain(&artifacts.candidates).filter(|artifact| artifact.kind == Kind::Code);
    for code in codes {
        mask_code(&mut chars, &code.value);
    }
    chars.into_iter().collect()
}

fn mask_code(chars: &mut [char], code: &str) {
    let code: Vec<char> = code.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let positions = code_positions(chars, at, &code);
        at = positions.last().map_or(at + 1, |last| last + 1);
        for position in positions {
            chars[position] = '•';
        }
    }
}

/// The positions of the code's characters from `at` on. Empty if the code is not there.
fn code_positions(chars: &[char], at: usize, code: &[char]) -> Vec<usize> {
    let mut positions = Vec::with_capacity(code.len());
    let mut next = at;
    for expected in code {
        let skip = if positions.is_empty() {
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
            Some(c) if unicode::fold_to_ascii(*c) == *expected => positions.push(next),
            _ => return Vec::new(),
        }
        next += 1;
    }
    positions
}
