//! Search as AgentMail documents it: in senders, recipients and subjects a word may stand anywhere, in what a mail says
//! it is a word of its own. Every word must be found; what says more of them in its head comes first.

use mailonce_core::problem::{FieldError, Problem};
use serde_json::{Value, json};

use super::query::AgentMailQuery;
use crate::dialects::agentmail::message_view::AgentMailMessage;

/// Characters around a word that was found.
const CONTEXT_CHARS: usize = 40;

/// The words that are looked for, in lower case.
#[derive(Debug)]
pub(super) struct SearchTerms(Vec<String>);

/// Where the words of a search were found.
#[derive(Debug, Default)]
pub(super) struct SearchHit {
    /// Words that were found, by their place.
    found_terms: Vec<bool>,
    /// Those of them that stand in the head of a mail.
    header_terms: Vec<bool>,
}

impl SearchTerms {
    /// What the query asks for.
    pub(super) fn parse(query: &AgentMailQuery) -> Result<Self, Problem> {
        let words = Self::from_text(query.last("q").unwrap_or_default());
        if words.0.is_empty() { Err(Problem::from(vec![FieldError::new("q", "is missing")])) } else { Ok(words) }
    }

    fn from_text(text: &str) -> Self {
        Self(text.to_lowercase().split_whitespace().map(str::to_owned).collect())
    }

    /// Looks through a mail, and what it says where that is at hand.
    pub(super) fn match_message(&self, mail: &AgentMailMessage, text: Option<&str>, hit: &mut SearchHit) {
        let people = mail.recipients().concat().join(", ");
        self.match_fields([&mail.from(), &people, mail.subject()], text, hit);
    }

    fn match_fields(&self, heads: [&str; 3], text: Option<&str>, hit: &mut SearchHit) {
        let heads = heads.map(str::to_lowercase);
        let said = text.map(str::to_lowercase).unwrap_or_default();
        hit.found_terms.resize(self.0.len(), false);
        hit.header_terms.resize(self.0.len(), false);
        for ((word, found), in_head) in self.0.iter().zip(&mut hit.found_terms).zip(&mut hit.header_terms) {
            *in_head |= heads.iter().any(|head| head.contains(word.as_str()));
            *found |= *in_head || find_word(&said, word).is_some();
        }
    }

    /// What matched, with the words that were looked for between stars.
    pub(super) fn highlights(&self, mail: &AgentMailMessage, text: Option<&str>) -> Value {
        let mut body = json!({});
        let people = mail.recipients().concat().join(", ");
        let heads = [("from", mail.from()), ("recipients", people), ("subject", mail.subject().to_owned())];
        for (name, field) in heads {
            let lower = field.to_lowercase();
            let found = self.0.iter().filter_map(|word| Some(fragment(&field, lower.find(word.as_str())?, word.len())));
            add_highlight(&mut body, name, found.collect());
        }
        if let Some(text) = text {
            let lower = text.to_lowercase();
            let found =
                self.0.iter().filter_map(|word| find_word(&lower, word).map(|at| fragment(text, at, word.len())));
            add_highlight(&mut body, "text", found.collect());
        }
        body
    }
}

impl SearchHit {
    /// Whether every word was found.
    pub(super) fn has_all_terms(&self) -> bool {
        self.found_terms.iter().all(|found| *found)
    }

    /// How many words were found in heads: the more, the better.
    pub(super) fn score(&self) -> usize {
        self.header_terms.iter().filter(|found| **found).count()
    }
}

fn add_highlight(body: &mut Value, name: &str, found: Vec<String>) {
    if !found.is_empty() {
        body[name] = found.into();
    }
}

/// Where a text says a word: not as a part of another one.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let is_inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let (first, last) = (word.chars().next(), word.chars().next_back());
    text.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = text.get(..*at).and_then(|part| part.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|part| part.chars().next());
        !(is_inside(first) && is_inside(before) || is_inside(last) && is_inside(after))
    })
}

/// A part of a text around a word. Folding the case may have moved things; then the beginning is shown as it is.
fn fragment(text: &str, at: usize, length: usize) -> String {
    match (text.get(..at), text.get(at..at + length), text.get(at + length..)) {
        (Some(front), Some(hit), Some(back)) => {
            let front: String = front.chars().rev().take(CONTEXT_CHARS).collect::<Vec<_>>().into_iter().rev().collect();
            format!("{front}**{hit}**{}", back.chars().take(CONTEXT_CHARS).collect::<String>())
        }
        _ => text.chars().take(2 * CONTEXT_CHARS).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(query: &str, text: &str) -> Option<usize> {
        let mut hit = SearchHit::default();
        SearchTerms::from_text(query).match_fields(
            ["Ann Lee <ann@shop.test>", "agent@x.test", "Your invoice 42"],
            Some(text),
            &mut hit,
        );
        hit.has_all_terms().then(|| hit.score())
    }

    #[test]
    fn every_word_must_be_found() {
        assert_eq!(finds("invoice 42", ""), Some(2));
        assert_eq!(finds("42 INVOICE", ""), Some(2));
        assert_eq!(finds("voice ann", ""), Some(2));
        assert_eq!(finds("invoice paid", "It was paid, thanks."), Some(1));
        assert_eq!(finds("invoice unpaid", "It was paid, thanks."), None);
        assert_eq!(finds("shop.test thanks", "It was paid, thanks."), Some(1));
    }

    #[test]
    fn what_a_mail_says_is_looked_through_word_by_word() {
        assert_eq!(finds("aid", "It was paid."), None);
        assert_eq!(finds("pai", "It was paid."), None);
        assert_eq!(finds("paid", "prepaid, and paid"), Some(0));
        assert_eq!(finds("no-show", "It was a no-show."), Some(0));
        assert_eq!(finds("größe", "Die GRÖSSE ist egal, die Größe nicht."), Some(0));
    }

    #[test]
    fn what_was_found_is_lit() {
        assert_eq!(fragment("It was paid.", 7, 4), "It was **paid**.");
        assert_eq!(fragment("ß", 1, 1), "ß");
    }
}
