//! The excerpt that a result shows: plain text on one line around the first hit. Hits are not marked.

use super::{
    query::{SearchQuery, TextField},
    words::{SEPARATOR, word_ranges, words},
};

/// Characters of a snippet, without the ellipses.
const SNIPPET_CHARS: usize = 160;
/// Characters before the hit.
const LEADING_CHARS: usize = 60;

/// The excerpt of a mail for a query: around the first hit in the text, else the subject, else the beginning of the
/// text.
pub fn snippet(query: &SearchQuery, subject: &str, text: &str) -> String {
    match first_hit(query, text) {
        Some(at) => excerpt(text, at),
        None if subject.is_empty() => excerpt(text, 0),
        None => excerpt(subject, first_hit(query, subject).unwrap_or(0)),
    }
}

/// The first place of a word or phrase of the query, in bytes.
fn first_hit(query: &SearchQuery, text: &str) -> Option<usize> {
    let wanted = query.terms.iter().filter(|term| !term.is_negated && term.field == TextField::Any);
    let wanted: Vec<&Vec<String>> = wanted.map(|term| &term.words).collect();
    if wanted.is_empty() {
        return None;
    }
    let (all, starts): (Vec<String>, Vec<usize>) = words(text).zip(word_ranges(text).map(|(start, _)| start)).collect();
    let found = wanted.iter().filter_map(|phrase| all.windows(phrase.len()).position(|window| window == **phrase));
    found.min().and_then(|at| starts.get(at).copied())
}

/// The text from somewhat before a place, cut between words, with an ellipsis where something is left out.
fn excerpt(text: &str, at: usize) -> String {
    let leading = text[..at].char_indices().rev().take(LEADING_CHARS).last().map_or(at, |(start, _)| start);
    let start = if leading == 0 { 0 } else { text[leading..at].find(' ').map_or(leading, |space| leading + space + 1) };
    let visible = text[start..].chars().filter(|c| *c != SEPARATOR);
    let mut out: String = visible.clone().take(SNIPPET_CHARS).collect();
    if visible.clone().nth(SNIPPET_CHARS).is_some() {
        if let Some(space) = out.rfind(' ').filter(|space| *space > SNIPPET_CHARS / 2) {
            out.truncate(space);
        }
        out.push('…');
    }
    if start > 0 {
        out.insert(0, '…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::query_parser::parse_query;

    fn snippet_of(query: &str, subject: &str, text: &str) -> String {
        let query = SearchQuery { terms: parse_query(query).unwrap().terms, ..SearchQuery::default() };
        snippet(&query, subject, text)
    }

    #[test]
    fn a_snippet_is_around_the_first_hit() {
        let text = format!("{} the invoice 4821 is over due {}", "before ".repeat(20), "after ".repeat(40));
        let found = snippet_of("\"invoice 4821\"", "Hello", &text);
        assert!(
            found.starts_with('…') && found.ends_with('…') && found.contains("the invoice 4821 is over due"),
            "{found}"
        );
        assert!(found.chars().count() <= SNIPPET_CHARS + 2, "{found}");
    }

    #[test]
    fn without_a_hit_in_the_text_it_is_the_subject() {
        assert_eq!(snippet_of("hello", "Hello you", "something else"), "Hello you");
        assert_eq!(snippet_of("from:hello", "", "something else"), "something else");
        assert_eq!(snippet_of("x", "", ""), "");
    }

    #[test]
    fn separators_are_not_shown() {
        assert_eq!(snippet_of("求", "", "請\u{200b}求\u{200b}書"), "請求書");
    }

    #[test]
    fn any_text_and_place_gives_a_snippet() {
        for text in ["é".repeat(500), "漢".repeat(500), " ".repeat(500), "a é 漢 ".repeat(200)] {
            for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
                assert!(excerpt(&text, at).chars().count() <= SNIPPET_CHARS + 2);
            }
        }
    }
}
