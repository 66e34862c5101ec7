//! Hexadecimal text.

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The length from which a run of hexadecimal digits may be a part of a token.
const TOKEN_DIGITS: usize = 32;

/// A text of somebody else in which everything that may be a token is masked.
pub(crate) fn mask_tokens(text: &str) -> String {
    let (mut masked, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, from) = rest.split_at(start);
        let (run, after) = from.split_at(from.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(from.len()));
        masked.push_str(before);
        masked.push_str(if run.len() < TOKEN_DIGITS { run } else { "…" });
        rest = after;
    }
    masked + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_masked_and_codes_of_a_reply_are_not() {
        let token = "0123456789abcdef".repeat(4);
        let reply = format!("550 5.7.1 ä queued as 4F3A9C: https://own.test/a/{}-{token}\" refused", &token[..32]);
        assert_eq!(mask_tokens(&reply), "550 5.7.1 ä queued as 4F3A9C: https://own.test/a/…-…\" refused");
        assert_eq!(mask_tokens(&token.to_uppercase()), "…");
        assert_eq!(mask_tokens(&token[..31]), &token[..31]);
    }
}
