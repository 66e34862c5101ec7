//! The content guard: detects near-duplicate emails by similar words and identical numbers, ids and addresses.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;

use crate::{id::TeamId, intent::Intent, string_enum::string_enum};

/// Only emails within this interval are compared, in milliseconds.
pub const COMPARE_WINDOW_MS: i64 = 600_000;
/// The longest interval in which identical emails are compared, and how long fingerprints are kept, in milliseconds.
pub const MAX_IDENTICAL_WINDOW_MS: i64 = 3_600_000;
/// The number of recent emails to compare with.
pub const MAX_COMPARED: usize = 8;
/// The number of words that are compared.
const MAX_TOKENS: usize = 400;

string_enum! {
    /// What to do with an email that looks like a duplicate.
    ContentGuardMode {
        /// Send it without comparing.
        Off = "off",
        /// Flag it and send it.
        Flag = "flag",
        /// Hold it until a person or its sender confirms it.
        Hold = "hold",
    }
}

string_enum! {
    /// What happens to an email without a key through a dialect that is identical to one just accepted.
    IdenticalMode {
        /// It is answered with the first email.
        Replay = "replay",
        /// It is held, like one that is nearly identical.
        Hold = "hold",
        /// It is sent.
        Send = "send",
    }
}

/// The fingerprint of an email's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentFingerprint {
    /// A hash of team, sender and recipients. Only emails between the same people are compared.
    #[serde(rename = "pair")]
    pub correspondents_hash: [u8; 16],
    /// Short hashes of the words, sorted, without duplicates.
    pub words: Vec<u32>,
    /// A hash over the numbers, ids and addresses in the text, sorted and without duplicates.
    #[serde(rename = "marks")]
    pub numbers_hash: [u8; 16],
}

impl ContentFingerprint {
    /// The fingerprint of an email between these people.
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
        Self { correspondents_hash: pair, words: words.into_iter().collect(), numbers_hash: marks }
    }

    /// The fingerprint of an email that is compared with identical ones alone. `meaning` is a hash of its meaning.
    pub fn of_meaning(meaning: [u8; 16]) -> Self {
        Self { correspondents_hash: meaning, words: Vec::new(), numbers_hash: [0; 16] }
    }

    /// The fingerprint of an intent for these recipients. Intents that differ in case and punctuation alone have the same,
    /// whatever their emails say.
    pub fn of_intent(intent: &Intent, to: &[String]) -> Self {
        let (folded, people) = (intent.folded(), to.iter().map(String::as_str).collect::<BTreeSet<&str>>());
        Self::of_meaning(hash_parts(["intent"].into_iter().chain(folded.iter().map(String::as_str)).chain(people)))
    }

    /// Whether two emails between the same people have nearly the same content.
    pub fn is_similar_to(&self, other: &Self) -> bool {
        if self.correspondents_hash != other.correspondents_hash || self.numbers_hash != other.numbers_hash {
            return false;
        }
        let ours: BTreeSet<u32> = self.words.iter().copied().collect();
        let theirs: BTreeSet<u32> = other.words.iter().copied().collect();
        let (both, either) = (ours.intersection(&theirs).count(), ours.union(&theirs).count());
        // At least three quarters of all words are in both.
        both * 4 >= either * 3
    }
}

/// Asks whether an email without a key repeats a recent identical one. If so, the earlier one is the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdenticalCheck {
    /// A fingerprint [of the meaning](ContentFingerprint::of_meaning).
    pub fingerprint: ContentFingerprint,
    /// How long after its acceptance an email is repeated, in milliseconds.
    pub window_ms: i64,
}

/// Which recent emails an email is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// The fingerprint of the new email.
    pub fingerprint: &'a ContentFingerprint,
    /// The age up to which emails are compared, in milliseconds.
    pub window_ms: i64,
}

impl<'a> Comparison<'a> {
    /// A comparison with similar emails.
    pub fn with_similar(fingerprint: &'a ContentFingerprint) -> Self {
        Self { fingerprint, window_ms: COMPARE_WINDOW_MS }
    }
}

impl IdenticalCheck {
    /// Makes this the check of a later identical item of a batch; the first one has no place. Items never repeat each
    /// other; each repeats the item in the same place of an earlier run.
    pub fn set_batch_place(&mut self, place: Option<u32>) {
        if let Some(place) = place {
            let meaning = self.fingerprint.correspondents_hash.map(|byte| format!("{byte:02x}")).concat();
            self.fingerprint = ContentFingerprint::of_meaning(hash_parts([meaning.as_str(), &place.to_string()]));
        }
    }

    /// The comparison with identical emails.
    pub fn comparison(&self) -> Comparison<'_> {
        Comparison { fingerprint: &self.fingerprint, window_ms: self.window_ms }
    }
}

/// The words in lower case, without surrounding punctuation. URLs and email addresses stay whole.
fn tokens(text: &str) -> impl Iterator<Item = String> {
    let inner = |c: char| c.is_alphanumeric();
    text.split_whitespace()
        .map(move |raw| raw.trim_matches(|c: char| !inner(c) && c != '#').to_lowercase())
        .filter(|token| !token.is_empty())
}

/// Whether a token identifies something: it contains a digit or is an address.
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
