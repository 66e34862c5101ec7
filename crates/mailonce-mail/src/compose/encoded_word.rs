//! Encoded words (RFC 2047): UTF-8 text as ASCII words that never split a character.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::hex;

/// Maximum length of an encoded word.
const MAX_WORD_OCTETS: usize = 75;
/// Length of `=?utf-8?Q?` and `?=` around the payload.
const WRAPPER_OCTETS: usize = 12;

/// Encodes text as encoded words. The first has at most `room` octets; `room` is at least 40.
pub(super) fn encode(text: &str, room: usize) -> Vec<String> {
    let quoted: usize = text.chars().map(q_encoded_len).sum();
    let base64 = text.len().div_ceil(3) * 4;
    let (letter, cost, write): (_, fn(char) -> usize, fn(&str) -> String) = if quoted <= base64 {
        ('Q', q_encoded_len, q_encode)
    } else {
        ('B', char::len_utf8, |piece| STANDARD.encode(piece))
    };
    let capacity = |room: usize| {
        let payload = room.min(MAX_WORD_OCTETS) - WRAPPER_OCTETS;
        if letter == 'Q' { payload } else { payload / 4 * 3 }
    };
    split_by_cost(text, capacity(room), capacity(MAX_WORD_OCTETS), cost)
        .into_iter()
        .map(|p| format!("=?utf-8?{letter}?{}?=", write(p)))
        .collect()
}

/// Splits text between characters so that the first piece costs at most `first` and the others at most `rest`.
fn split_by_cost(text: &str, first: usize, rest: usize, cost: fn(char) -> usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut used, mut limit) = (0, 0, first);
    for (index, c) in text.char_indices() {
        if used + cost(c) > limit {
            pieces.push(&text[start..index]);
            (start, used, limit) = (index, 0, rest);
        }
        used += cost(c);
    }
    pieces.push(&text[start..]);
    pieces
}

/// Whether a byte needs no encoding anywhere, not even in a phrase (RFC 2047 §5).
fn is_literal(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!*+-/".contains(&b)
}

fn q_encoded_len(c: char) -> usize {
    if c == ' ' || u8::try_from(c).is_ok_and(is_literal) { 1 } else { c.len_utf8() * 3 }
}

fn q_encode(piece: &str) -> String {
    let mut out = String::with_capacity(piece.len() * 3);
    for b in piece.bytes() {
        match b {
            b' ' => out.push('_'),
            b if is_literal(b) => out.push(char::from(b)),
            b => out.extend(['=', hex::high(b), hex::low(b)]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_short_and_split_no_character() {
        for text in ["ä".repeat(200), "日本語".repeat(100), "🎉".repeat(90), "a b=?".repeat(99)] {
            let words = encode(&text, 40);
            assert!(words.len() > 1);
            assert!(words[0].len() <= 40);
            assert!(words.iter().all(|word| word.len() <= 75 && word.is_ascii()), "{words:?}");
        }
    }

    #[test]
    fn the_shorter_encoding_is_chosen() {
        assert_eq!(encode("Jürgen", 75), ["=?utf-8?Q?J=C3=BCrgen?="]);
        assert_eq!(encode("日本", 75), ["=?utf-8?B?5pel5pys?="]);
    }
}
