//! Search in mail as AgentMail documents it; Resend's search uses the same rules. In senders, recipients and subjects a term matches any substring; in the body it
//! matches whole words. Every term must match. Emails with more terms in sender, recipients or subject come first.

/// Characters shown on each side of a matched term.
const CONTEXT_CHARS: usize = 40;

/// The search terms, in lower case.
#[derive(Debug)]
pub(super) struct SearchTerms(Vec<String>);

/// Which terms of a search matched, and where.
#[derive(Debug, Default)]
pub(super) struct TermMatch {
    /// For each term, whether it matched anywhere.
    found_terms: Vec<bool>,
    /// For each term, whether it matched in sender, recipients or subject.
    header_terms: Vec<bool>,
}

impl SearchTerms {
    /// Parses the terms of a query, which are separated by white space.
    pub(super) fn parse(text: &str) -> Self {
        Self(text.to_lowercase().split_whitespace().map(str::to_owned).collect())
    }

    /// Whether the query has no term.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Matches the terms against sender, recipients and subject of a mail and, if available, its body text. Adds the
    /// matches to `hit`.
    pub(super) fn match_fields(&self, fields: [&str; 3], text: Option<&str>, hit: &mut TermMatch) {
        let fields = fields.map(str::to_lowercase);
        let body = text.map(str::to_lowercase).unwrap_or_default();
        hit.found_terms.resize(self.0.len(), false);
        hit.header_terms.resize(self.0.len(), false);
        for ((term, found), in_header) in self.0.iter().zip(&mut hit.found_terms).zip(&mut hit.header_terms) {
            *in_header |= fields.iter().any(|field| field.contains(term.as_str()));
            *found |= *in_header || find_word(&body, term).is_some();
        }
    }

    /// The fragments of a header field in which a term matched, with the term between `**`.
    pub(super) fn highlight_field(&self, field: &str) -> Vec<String> {
        let lower = field.to_lowercase();
        let found = self.0.iter().filter_map(|term| Some(fragment(field, lower.find(term.as_str())?, term.len())));
        found.collect()
    }

    /// The fragments of a body text in which a term matched, with the term between `**`.
    pub(super) fn highlight_text(&self, text: &str) -> Vec<String> {
        let lower = text.to_lowercase();
        self.0.iter().filter_map(|term| find_word(&lower, term).map(|at| fragment(text, at, term.len()))).collect()
    }
}

impl TermMatch {
    /// Whether every term matched.
    pub(super) fn has_all_terms(&self) -> bool {
        self.found_terms.iter().all(|found| *found)
    }

    /// The number of terms that matched in sender, recipients or subject; higher ranks first.
    pub(super) fn score(&self) -> usize {
        self.header_terms.iter().filter(|found| **found).count()
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
        let mut hit = TermMatch::default();
        SearchTerms::parse(query).match_fields(
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
    fn matches_are_highlighted() {
        assert_eq!(fragment("It was paid.", 7, 4), "It was **paid**.");
        assert_eq!(fragment("ß", 1, 1), "ß");
    }
}
