//! Search parameters and highlights in AgentMail's format.

use mailonce_core::problem::Problem;
use serde_json::{Value, json};

use super::{message_view::AgentMailMessage, query::AgentMailQuery};
use crate::dialects::search_terms::{SearchTerms, TermMatch};

/// Parses the terms of the parameter `q`.
pub(super) fn parse_terms(query: &AgentMailQuery) -> Result<SearchTerms, Problem> {
    let terms = SearchTerms::parse(query.last("q").unwrap_or_default());
    if terms.is_empty() { Err(Problem::invalid_field("q", "is missing")) } else { Ok(terms) }
}

/// Matches the terms against an email and, if available, its body text. Adds the matches to `hit`.
pub(super) fn match_message(terms: &SearchTerms, mail: &AgentMailMessage, text: Option<&str>, hit: &mut TermMatch) {
    let recipients = mail.recipients().concat().join(", ");
    terms.match_fields([&mail.from(), &recipients, mail.subject()], text, hit);
}

/// The matched fragments of each field, with the terms between `**`.
pub(super) fn highlights(terms: &SearchTerms, mail: &AgentMailMessage, text: Option<&str>) -> Value {
    let recipients = mail.recipients().concat().join(", ");
    let fields = [("from", mail.from()), ("recipients", recipients), ("subject", mail.subject().to_owned())];
    let mut found: Vec<_> = fields.iter().map(|(name, field)| (*name, terms.highlight_field(field))).collect();
    found.extend(text.map(|text| ("text", terms.highlight_text(text))));
    let mut body = json!({});
    for (name, fragments) in found.into_iter().filter(|(_, fragments)| !fragments.is_empty()) {
        body[name] = fragments.into();
    }
    body
}
