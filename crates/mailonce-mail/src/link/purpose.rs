//! What a link is for, told by its words and its address. Only links that carry a secret are for anything.

use super::purpose_words::{IGNORED_WORDS, LINK_TEXT_WORDS, PATH_WORDS};
use crate::string_enum::string_enum;

string_enum! {
    /// What a link is for.
    Purpose {
        /// Says that an address or an account is one's own.
        Confirm = "confirm",
        /// Signs in.
        SignIn = "sign_in",
        /// Sets a new password.
        Reset = "reset",
        /// Accepts an invitation.
        Invite = "invite",
    }
}

/// The purpose and how sure it is. `before` are the words before a link in plain text, `subject` is the mail's.
pub(super) fn guess_purpose(url: &str, text: Option<&str>, before: &str, subject: &str) -> Option<(Purpose, u8)> {
    let address = url.to_lowercase();
    let place = address.split_once("://").map_or(address.as_str(), |(_, place)| place);
    let path = place.find(['/', '?']).map_or("", |at| &place[at..]);
    let words = text
        .map(str::to_lowercase)
        .filter(|text| !text.trim().is_empty() && !text.contains("://"))
        .unwrap_or_else(|| preceding_sentence(before));
    if IGNORED_WORDS.iter().any(|other| words.contains(other) || path.contains(other) || place.starts_with(other)) {
        return None;
    }
    let of = |table: &[(Purpose, &[&str])], words: &str| {
        table.iter().find(|(_, list)| list.iter().any(|word| words.contains(word))).map(|(purpose, _)| *purpose)
    };
    let (told, shown) = (of(LINK_TEXT_WORDS, &words), of(PATH_WORDS, path));
    // The subject is about the mail, and only perhaps about this link.
    let meant = of(LINK_TEXT_WORDS, &subject.to_lowercase()).filter(|_| told.is_none());
    let purpose = told.or(shown).or(meant)?;
    let sum = u8::from(told.is_some()) * 45
        + u8::from(meant.is_some()) * 20
        + u8::from(shown.is_some()) * 25
        + if has_secret(url) { 30 } else { 0 };
    // Without a secret it is a door like any other.
    Some((purpose, if has_secret(url) { sum.min(98) } else { sum.min(40) }))
}

/// The sentence that leads to a link in plain text.
fn preceding_sentence(before: &str) -> String {
    let before = before.trim_end_matches(['<', '(', '[', ' ', '\n']);
    let paragraph = before.rsplit("\n\n").next().unwrap_or_default();
    let start = paragraph.rsplit("://").next().unwrap_or_default();
    start.to_lowercase()
}

/// Whether the address carries something that cannot be guessed.
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

/// Letters and digits without a meaning.
fn looks_random(piece: &str) -> bool {
    let plain = piece.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.%~+=".contains(&b));
    let digits = piece.bytes().filter(u8::is_ascii_digit).count();
    let letters = piece.bytes().filter(u8::is_ascii_alphabetic).count();
    let upper = piece.bytes().any(|b| b.is_ascii_uppercase()) && piece.bytes().any(|b| b.is_ascii_lowercase());
    plain
        && (piece.len() >= 8 && digits >= 2 && letters >= 2
            || piece.len() >= 16 && (digits >= 1 || upper) && !piece.contains('.'))
}
