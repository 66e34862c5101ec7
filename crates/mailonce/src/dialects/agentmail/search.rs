//! Search as AgentMail documents it. In senders, recipients and subjects a term matches any substring; in the body it
//! matches whole words. Every term must match. Emails with more terms in sender, recipients or subject come first.

use mailonce_core::problem::Problem;
use serde_json::{Value, json};

use super::query::AgentMailQuery;
use crate::dialects::agentmail::message_view::AgentMailMessage;

/// Characters shown on each side of a matched term.
const CONTEXT_CHARS: usize = 40;

/// The search terms, in lower case.
#[derive(Debug)]
pub(super) struct SearchTerms(Vec<String>);

/// Which terms of a search matched, and where.
#[derive(Debug, Default)]
pub(super) struct SearchHit {
    /// For each term, whether it matched anywhere.
    found_terms: Vec<bool>,
    /// For each term, whether it matched in sender, recipients or subject.
    header_terms: Vec<bool>,
}

impl SearchTerms {
    /// Parses the terms of the parameter `q`.
    pub(super) fn parse(query: &AgentMailQuery) -> Result<Self, Problem> {
        let terms = Self::from_text(query.last("q").unwrap_or_default());
        if terms.0.is_empty() { Err(Problem::invalid_field("q", "is missing")) } else { Ok(terms) }
    }

    fn from_text(text: &str) -> Self {
        Self(text.to_lowercase().split_whitespace().map(str::to_owned).collect())
    }

    /// Matches the terms against an email and, if available, its body text. Adds the matches to `hit`.
    pub(super) fn match_message(&self, mail: &AgentMailMessage, text: Option<&str>, hit: &mut SearchHit) {
        let recipients = mail.recipients().concat().join(", ");
        self.match_fields([&mail.from(), &recipients, mail.subject()], text, hit);
    }

    fn match_fields(&self, fields: [&str; 3], text: Option<&str>, hit: &mut SearchHit) {
        let fields = fields.map(str::to_lowercase);
        let body = text.map(str::to_lowercase).unwrap_or_default();
        hit.found_terms.resize(self.0.len(), false);
        hit.header_terms.resize(self.0.len(), false);
        for ((term, found), in_header) in self.0.iter().zip(&mut hit.found_terms).zip(&mut hit.header_terms) {
            *in_header |= fields.iter().any(|field| field.contains(term.as_str()));
            *found |= *in_header || find_word(&body, term).is_some();
        }
    }

    /// The matched fragments of each field, with the terms between `**`.
    pub(super) fn highlights(&self, mail: &AgentMailMessage, text: Option<&str>) -> Value {
        let mut body = json!({});
        let recipients = mail.recipients().concat().join(", ");
        let fields = [("from", mail.from()), ("recipients", recipients), ("subject", mail.subject().to_owned())];
        for (name, field) in fields {
            let lower = field.to_lowercase();
            let found = self.0.iter().filter_map(|term| Some(fragment(&field, lower.find(term.as_str())?, term.len())));
            add_highlight(&mut body, name, found.collect());
        }
        if let Some(text) = text {
            let lower = text.to_lowercase();
            let found =
                self.0.iter().filter_map(|term| find_word(&lower, term).map(|at| fragment(text, at, term.len())));
            add_highlight(&mut body, "text", found.collect());
        }
        body
    }
}

impl SearchHit {
    /// Whether every term matched.
    pub(super) fn has_all_terms(&self) -> bool {
        self.found_terms.iter().all(|found| *found)
    }

    /// The number of terms that matched in sender, recipients or subject; higher ranks first.
    pub(super) fn score(&self) -> usize {
        self.header_terms.iter().filter(|found| **found).count()
    }
}

fn add_highlight(body: &mut Value, name: &str, found: Vec<String>) {
    if !found.is_empty() {
        body[name] = found.into();
    }
}

/// The position of a whole word in a text; a part of a longer word does not count.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let is_inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let (first, last) = (word.chars().next(), word.chars().next_back());
    text.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = text.get(..*at).and_then(|part| part.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|part| part.chars().next());
        !(is_inside(first) && is_inside(before) || is_inside(last) && is_inside(after))
    })
}

/// The part of a text around a match. Lowercasing may shift byte offsets; then the beginning of the text is returned.
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
