//! Reads tokens that several parsers of CSS have in common.

use cssparser::{ParseError, Parser, Token};

use super::value::ComputedValue;

/// Whether a token opens a block that the parser has not skipped yet.
pub(in crate::html) fn opens_block(token: &Token<'_>) -> bool {
    matches!(token, Token::Function(_) | Token::ParenthesisBlock | Token::SquareBracketBlock | Token::CurlyBracketBlock)
}

/// Skips the block that the last token opened.
pub(in crate::html) fn skip_block(input: &mut Parser<'_>) -> Result<(), ParseError<()>> {
    input.parse_nested_block(|input| {
        while input.next().is_ok() {}
        Ok(())
    })
}

/// Top-level parts of a value, separated by white space.
pub(in crate::html) fn components(text: &str) -> Vec<&str> {
    let mut input = Parser::new(text);
    let mut parts = Vec::new();
    input.skip_whitespace();
    let mut start = input.position();
    loop {
        let before = input.position();
        let ended = match input.next_including_whitespace() {
            Ok(Token::WhiteSpace(_)) => false,
            Ok(token) => {
                if opens_block(token) && skip_block(&mut input).is_err() {
                    return Vec::new();
                }
                continue;
            }
            Err(_) => true,
        };
        let part = input.slice(start..before).trim();
        if !part.is_empty() {
            parts.push(part);
        }
        if ended {
            return parts;
        }
        start = input.position();
    }
}

/// The rest of the input, in lower case.
pub(in crate::html) fn rest(input: &mut Parser<'_>) -> String {
    input.skip_whitespace();
    let start = input.position();
    while input.next().is_ok() {}
    input.slice_from(start).trim().to_ascii_lowercase()
}

pub(in crate::html) fn keyword(input: &mut Parser<'_>, known: &[&'static str]) -> Option<ComputedValue> {
    let word = input.expect_ident().ok()?.to_ascii_lowercase();
    known.iter().find(|known| **known == word).map(|word| ComputedValue::Keyword(word))
}
