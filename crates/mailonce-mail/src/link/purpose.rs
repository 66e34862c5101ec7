//! Guesses the purpose of a link from its text and its URL. Only links that carry a secret can get a high confidence.

use super::purpose_words::{IGNORED_WORDS, LINK_TEXT_WORDS, PATH_WORDS};
use crate::string_enum::string_enum;

string_enum! {
    /// The purpose of a link.
    Purpose {
        /// Confirms an email address or an account.
        Confirm = "confirm",
        /// Signs in.
        SignIn = "sign_in",
        /// Sets a new password.
        Reset = "reset",
        /// Accepts an invitation.
        Invite = "invite",
    }
}

/// The purpose and its confidence. `before` is the text before a link in plain text, `subject` is the mail's.
pub(super) fn guess_purpose(url: &str, text: Option<&str>, before: &str, subject: &str) -> Option<(Purpose, u8)> {
    let lower_url = url.to_lowercase();
    let rest = lower_url.split_once("://").map_or(lower_url.as_str(), |(_, rest)| rest);
    let path = rest.find(['/', '?']).map_or("", |at| &rest[at..]);
    let words = text
        .map(str::to_lowercase)
        .filter(|text| !text.trim().is_empty() && !text.contains("://"))
        .unwrap_or_else(|| preceding_sentence(before));
    if IGNORED_WORDS.iter().any(|word| words.contains(word) || path.contains(word) || rest.starts_with(word)) {
        return None;
    }
    let find_purpose = |table: &[(Purpose, &[&str])], words: &str| {
        table.iter().find(|(_, list)| list.iter().any(|word| words.contains(word))).map(|(purpose, _)| *purpose)
    };
    let (from_text, from_path) = (find_purpose(LINK_TEXT_WORDS, &words), find_purpose(PATH_WORDS, path));
    // The subject describes the mail, and may not refer to this link.
    let from_subject = find_purpose(LINK_TEXT_WORDS, &subject.to_lowercase()).filter(|_| from_text.is_none());
    let purpose = from_text.or(from_path).or(from_subject)?;
    let sum = u8::from(from_text.is_some()) * 45
        + u8::from(from_subject.is_some()) * 20
        + u8::from(from_path.is_some()) * 25
        + if has_secret(url) { 30 } else { 0 };
    // A link without a secret is an ordinary page, so its confidence stays low.
    Some((purpose, if has_secret(url) { sum.min(98) } else { sum.min(40) }))
}

/// The text that introduces a link in plain text.
fn preceding_sentence(before: &str) -> String {
    let before = before.trim_end_matches(['<', '(', '[', ' ', '\n']);
    let paragraph = before.rsplit("\n\n").next().unwrap_or_default();
    let start = paragraph.rsplit("://").next().unwrap_or_default();
    start.to_lowercase()
}

/// Whether the URL carries a value that cannot be guessed.
pub(crate) fn has_secret(url: &str) -> bool {
    const NAMES: &[&str] = &[
        "token",
        "code",
        "key",
        "otp",
        "ticket",
        "signature",
        "sig",
        "hash",
        "t",
        "k",
        "oobcode",
        "confirmation_token",
        "secret",
        "nonce",
        "jwt",
    ];
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let Some(at) = rest.find(['/', '?', '#']) else { return false };
    rest[at..].split(['/', '?', '&', '#', ';']).any(|piece| match piece.split_once('=') {
        Some((name, value)) => {
            value.len() >= 6 && NAMES.contains(&name.to_ascii_lowercase().as_str()) || looks_random(value)
        }
        None => looks_random(piece),
    })
}

/// Whether a string looks like a random token.
fn looks_random(piece: &str) -> bool {
    let plain = piece.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.%~+=".contains(&b));
    let digits = piece.bytes().filter(u8::is_ascii_digit).count();
    let letters = piece.bytes().filter(u8::is_ascii_alphabetic).count();
    let upper = piece.bytes().any(|b| b.is_ascii_uppercase()) && piece.bytes().any(|b| b.is_ascii_lowercase());
    plain
        && (piece.len() >= 8 && digits >= 2 && letters >= 2
            || piece.len() >= 16 && (digits >= 1 || upper) && !piece.contains('.'))
}
