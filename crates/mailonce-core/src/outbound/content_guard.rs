//! When two mails say the same: near-equal words, and the same numbers, ids and addresses in them.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;

use crate::{id::TeamId, string_enum::string_enum};

/// Mails are compared within this, in milliseconds.
pub const COMPARE_WINDOW_MS: i64 = 600_000;
/// With so many of the latest.
pub const MAX_COMPARED: usize = 8;
/// Words of a mail that are compared.
const MAX_TOKENS: usize = 400;

string_enum! {
    /// What to do about a mail that looks like another.
    ContentGuardMode {
        /// Nothing.
        Off = "off",
        /// Say so.
        Flag = "flag",
        /// Keep it until a person or its sender says that it is meant.
        Hold = "hold",
    }
}

/// What of a mail is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentFingerprint {
    /// Sender and recipients, as a hash: only mails between the same people are compared.
    pub pair: [u8; 16],
    /// Short hashes of its words, sorted, each once.
    pub words: Vec<u32>,
    /// A hash over its numbers, ids and addresses, sorted, each once.
    pub marks: [u8; 16],
}

impl ContentFingerprint {
    /// What is compared of a mail between these people.
    pub fn from_email(team: TeamId, from: &str, to: &[String], subject: &str, text: &str) -> Self {
        let people: BTreeSet<&str> = to.iter().map(String::as_str).collect();
        let pair = hash_parts([team.to_string().as_str(), from].into_iter().chain(people));
        let (mut words, mut marks) = (BTreeSet::new(), BTreeSet::new());
        for token in tokens(subject).chain(tokens(text)).take(MAX_TOKENS) {
            if is_identifier(&token) {
                marks.insert(token);
            } else {
                words.insert(short_hash(&token));
            }
        }
        let marks = hash_parts(marks.iter().map(String::as_str));
        Self { pair, words: words.into_iter().collect(), marks }
    }

    /// Whether two mails between the same people say the same.
    pub fn is_similar_to(&self, other: &Self) -> bool {
        if self.pair != other.pair || self.marks != other.marks {
            return false;
        }
        let ours: BTreeSet<u32> = self.words.iter().copied().collect();
        let theirs: BTreeSet<u32> = other.words.iter().copied().collect();
        let (both, either) = (ours.intersection(&theirs).count(), ours.union(&theirs).count());
        // At least three quarters of all the words are in both.
        both * 4 >= either * 3
    }
}

/// Words in lower case without what surrounds them. Addresses of pages and people stay whole.
fn tokens(text: &str) -> impl Iterator<Item = String> {
    let inner = |c: char| c.is_alphanumeric();
    text.split_whitespace()
        .map(move |raw| raw.trim_matches(|c: char| !inner(c) && c != '#').to_lowercase())
        .filter(|token| !token.is_empty())
}

/// Whether a token names something: it has a digit, or is an address.
fn is_identifier(token: &str) -> bool {
    token.chars().any(char::is_numeric) || token.contains('@') || token.contains("://")
}

fn short_hash(token: &str) -> u32 {
    let [a, b, c, d, ..] = hash_parts([token]);
    u32::from_be_bytes([a, b, c, d])
}

fn hash_parts<'a>(parts: impl IntoIterator<Item = &'a str>) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut half = [0; 16];
    half.copy_from_slice(&hash.finalize()[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn likeness(subject: &str, text: &str) -> ContentFingerprint {
        let to = ["ann@example.com".to_owned()];
        ContentFingerprint::from_email(TeamId(Uuid::from_u128(1)), "bot@example.org", &to, subject, text)
    }

    #[test]
    fn other_words_for_the_same_are_the_same() {
        let one = likeness("Your order 4821 has shipped", "Hello Ann, your order 4821 has shipped and arrives soon.");
        let two = likeness("Your order 4821 has shipped!", "Hi Ann, your order 4821 has shipped and arrives soon.");
        assert!(one.is_similar_to(&two) && two.is_similar_to(&one));
    }

    #[test]
    fn another_number_is_another_mail() {
        let text = |n: u32| format!("Build {n} failed on main. See https://ci.example.com/{n} for the log.");
        assert!(!likeness("Build 41 failed", &text(41)).is_similar_to(&likeness("Build 42 failed", &text(42))));
        assert!(likeness("Build 41 failed", &text(41)).is_similar_to(&likeness("Build 41 failed", &text(41))));
    }

    #[test]
    fn other_words_are_another_mail() {
        let one = likeness("Lunch", "Shall we have lunch on the terrace tomorrow with the whole team?");
        let two = likeness("Contract", "Please find the signed contract attached and send it back to us.");
        assert!(!one.is_similar_to(&two));
    }

    #[test]
    fn other_people_are_never_compared() {
        let to = ["bob@example.com".to_owned()];
        let one = likeness("Hello", "The same words.");
        let two = ContentFingerprint::from_email(
            TeamId(Uuid::from_u128(1)),
            "bot@example.org",
            &to,
            "Hello",
            "The same words.",
        );
        assert!(!one.is_similar_to(&two));
        let team = ContentFingerprint::from_email(
            TeamId(Uuid::from_u128(2)),
            "bot@example.org",
            &["ann@example.com".to_owned()],
            "Hello",
            "The same words.",
        );
        assert!(!one.is_similar_to(&team));
    }
}
