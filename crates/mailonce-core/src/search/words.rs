//! Splits text into words: runs of letters and digits, in lower case. An ideograph is a word by itself, because nothing
//! separates the words of a Chinese or Japanese text.
//!
//! SQLite splits the stored text itself. [`separate_ideographs`] prepares the text so that it finds the same words.

use super::WORD_CHARS;

/// Separates ideographs in stored text. Invisible, and removed again before text is shown.
pub const SEPARATOR: char = '\u{200b}';

fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c), 0x2e80..=0x2fdf | 0x3040..=0x30ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff
        | 0x2_0000..=0x3_ffff)
}

/// Puts a separator on both sides of every ideograph.
pub fn separate_ideographs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut after_ideograph = false;
    for c in text.chars() {
        let ideograph = is_ideograph(c);
        if (ideograph || after_ideograph) && !out.is_empty() {
            out.push(SEPARATOR);
        }
        out.push(c);
        after_ideograph = ideograph;
    }
    out
}

/// The words of a text, in order. Words that are too long are empty: they keep their place and match nothing.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    word_ranges(text).map(|(start, end)| fold(&text[start..end]))
}

/// A word in the form in which words are compared.
fn fold(word: &str) -> String {
    if word.chars().nth(WORD_CHARS).is_some() {
        return String::new();
    }
    word.chars().flat_map(char::to_lowercase).collect()
}

/// Where the words of a text are, in bytes.
pub fn word_ranges(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (start, first) = rest.find(|(_, c)| c.is_alphanumeric())?;
        let mut end = start + first.len_utf8();
        if is_ideograph(first) {
            return Some((start, end));
        }
        while let Some((at, c)) = rest.next_if(|(_, c)| c.is_alphanumeric() && !is_ideograph(*c)) {
            end = at + c.len_utf8();
        }
        Some((start, end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_these_words() {
        for (text, expected) in [
            ("Order #4821, confirmed!", &["order", "4821", "confirmed"][..]),
            ("Alice <alice@example.com>", &["alice", "alice", "example", "com"]),
            ("Größe ÉTÉ", &["größe", "été"]),
            ("請求書 A5", &["請", "求", "書", "a5"]),
            ("v2漢字x", &["v2", "漢", "字", "x"]),
            ("…", &[]),
            ("", &[]),
        ] {
            assert_eq!(words(text).collect::<Vec<_>>(), expected, "{text}");
            assert_eq!(words(&separate_ideographs(text)).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn a_word_that_is_too_long_matches_nothing() {
        let long = "x".repeat(WORD_CHARS + 1);
        assert_eq!(words(&format!("a {long} b")).collect::<Vec<_>>(), ["a", "", "b"]);
    }
}
