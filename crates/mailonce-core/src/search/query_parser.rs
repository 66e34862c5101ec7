//! Parses the text of a query: words, `"phrases"`, `-excluded` and `field:value`.
//!
//! The result holds words of letters and digits only, so that no text of a caller becomes part of a store's own query
//! language.

use uuid::Uuid;

use super::{
    QUERY_BYTES, QUERY_TERMS, WORD_CHARS,
    document::{SearchFeature, scope_token},
    query::{ScopeTerm, StateFilter, TextField, TextTerm},
    words::words,
};
use crate::{
    inbox::message::MessageState, outbound::email::EmailState, problem::Problem, string_enum::string_enum, time::Time,
};

string_enum! {
    /// The fields of a query.
    QueryField {
        /// The sender.
        From = "from",
        /// The recipients.
        To = "to",
        /// The subject.
        Subject = "subject",
        /// The inbox, by id or address.
        Inbox = "inbox",
        /// The state.
        State = "state",
        /// An attachment, a code or a link.
        Has = "has",
        /// Before this day or time.
        Before = "before",
        /// From this day or time on.
        After = "after",
        /// The idempotency key.
        Key = "key",
        /// The id of the email or message.
        Id = "id",
        /// The Message-ID.
        MessageId = "message_id",
        /// The caller's own id of the call.
        Call = "call",
    }
}

/// A parsed query. Inboxes, keys and ids still have to be looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedQuery {
    /// Words and phrases.
    pub terms: Vec<TextTerm>,
    /// Exact names.
    pub scope: Vec<ScopeTerm>,
    /// The state.
    pub state: Option<StateFilter>,
    /// At or after.
    pub after: Option<Time>,
    /// Before.
    pub before: Option<Time>,
    /// The inbox, by id or address.
    pub inbox: Option<String>,
    /// The idempotency key.
    pub key: Option<String>,
    /// The id of an email or message.
    pub id: Option<Uuid>,
}

/// One term as it is written.
struct RawTerm<'a> {
    field: Option<&'a str>,
    value: &'a str,
    is_negated: bool,
    is_quoted: bool,
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::invalid_query("q", detail)
}

/// Parses a query. The problem says what is wrong, and what is allowed.
pub fn parse_query(text: &str) -> Result<ParsedQuery, Problem> {
    if text.len() > QUERY_BYTES {
        return Err(invalid(format!("q has {} bytes; at most {QUERY_BYTES} are allowed", text.len())));
    }
    let (mut query, mut rest, mut count) = (ParsedQuery::default(), text.trim_start(), 0);
    while !rest.is_empty() {
        let (term, behind) = next_term(rest)?;
        count += 1;
        if count > QUERY_TERMS {
            return Err(invalid(format!("q has more than {QUERY_TERMS} terms")));
        }
        query.add(&term)?;
        rest = behind.trim_start();
    }
    if count == 0 {
        return Err(invalid("q must have at least one term, such as a word, a \"phrase\" or from:alice@example.com"));
    }
    Ok(query)
}

/// The first term of a text, and what follows it.
fn next_term(text: &str) -> Result<(RawTerm<'_>, &str), Problem> {
    let (is_negated, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let name_end = text.find(|c: char| !c.is_ascii_alphabetic() && c != '_').unwrap_or(text.len());
    let (field, value) = match text[name_end..].strip_prefix(':') {
        Some(value) if name_end > 0 => (Some(&text[..name_end]), value),
        _ => (None, text),
    };
    if let Some(quoted) = value.strip_prefix('"') {
        let (value, rest) =
            quoted.split_once('"').ok_or_else(|| invalid("q has a quotation mark that is not closed"))?;
        return Ok((RawTerm { field, value, is_negated, is_quoted: true }, rest));
    }
    let end = value.find(char::is_whitespace).unwrap_or(value.len());
    let (value, rest) = value.split_at(end);
    Ok((RawTerm { field, value, is_negated, is_quoted: false }, rest))
}

impl ParsedQuery {
    fn add(&mut self, term: &RawTerm<'_>) -> Result<(), Problem> {
        let Some(name) = term.field else { return self.add_plain(term) };
        let field = QueryField::parse(&name.to_ascii_lowercase()).ok_or_else(|| {
            let all: Vec<String> = QueryField::ALL.iter().map(|field| format!("{}:", field.as_str())).collect();
            invalid(format!("`{name}:` is not a field; use {}, or put the text in quotation marks", all.join(" ")))
        })?;
        if term.value.is_empty() {
            return Err(invalid(format!("`{name}:` needs a value right after the colon")));
        }
        match field {
            QueryField::From => self.add_text(TextField::Sender, term),
            QueryField::To => self.add_text(TextField::Recipients, term),
            QueryField::Subject => self.add_text(TextField::Subject, term),
            QueryField::Has => self.add_feature(term),
            _ if term.is_negated => Err(invalid(format!("`{name}:` cannot be excluded with -"))),
            QueryField::State => set_once(name, &mut self.state, parse_state(term.value)?),
            QueryField::Before => set_once(name, &mut self.before, parse_time(name, term.value)?),
            QueryField::After => set_once(name, &mut self.after, parse_time(name, term.value)?),
            QueryField::Inbox => set_once(name, &mut self.inbox, term.value.to_owned()),
            QueryField::Key => set_once(name, &mut self.key, term.value.to_owned()),
            QueryField::Id => {
                let id = term.value.parse().map_err(|_not_an_id| invalid("`id:` needs the id of an email or message"));
                set_once(name, &mut self.id, id?)
            }
            QueryField::MessageId => {
                self.add_scope(scope_token::message_id(term.value));
                Ok(())
            }
            QueryField::Call => {
                self.add_scope(scope_token::call_id(term.value));
                Ok(())
            }
        }
    }

    /// A term without a field. An id or a Message-ID is recognized by its form.
    fn add_plain(&mut self, term: &RawTerm<'_>) -> Result<(), Problem> {
        let value = term.value;
        if !term.is_quoted && !term.is_negated {
            if value.len() == 36
                && let Ok(id) = value.parse()
            {
                return set_once("id", &mut self.id, id);
            }
            if value.starts_with('<') && value.ends_with('>') && value.contains('@') {
                self.add_scope(scope_token::message_id(value));
                return Ok(());
            }
        }
        self.add_text(TextField::Any, term)
    }

    fn add_text(&mut self, field: TextField, term: &RawTerm<'_>) -> Result<(), Problem> {
        let words: Vec<String> = words(term.value).collect();
        if words.is_empty() {
            return Err(invalid(format!("`{}` has no letter or digit to search for", term.value)));
        }
        if words.iter().any(String::is_empty) {
            return Err(invalid(format!(
                "q has a word of more than {WORD_CHARS} characters; such words are not indexed"
            )));
        }
        self.terms.push(TextTerm { field, words, is_negated: term.is_negated });
        Ok(())
    }

    fn add_feature(&mut self, term: &RawTerm<'_>) -> Result<(), Problem> {
        let feature = SearchFeature::parse(term.value).ok_or_else(|| {
            let all: Vec<&str> = SearchFeature::ALL.iter().map(|feature| feature.as_str()).collect();
            invalid(format!("`has:` must be one of {}", all.join(", ")))
        })?;
        self.scope.push(ScopeTerm { token: scope_token::feature(feature), is_negated: term.is_negated });
        Ok(())
    }

    fn add_scope(&mut self, token: String) {
        self.scope.push(ScopeTerm { token, is_negated: false });
    }
}

fn set_once<T>(name: &str, place: &mut Option<T>, value: T) -> Result<(), Problem> {
    if place.is_some() {
        return Err(invalid(format!("`{name}:` can be given once")));
    }
    *place = Some(value);
    Ok(())
}

fn parse_state(word: &str) -> Result<StateFilter, Problem> {
    let message = MessageState::parse(word).filter(|state| *state != MessageState::Leased).map(StateFilter::Message);
    EmailState::parse(word).map(StateFilter::Email).or(message).ok_or_else(|| {
        let emails = EmailState::ALL.iter().map(|state| state.as_str());
        let messages = MessageState::ALL.iter().filter(|state| **state != MessageState::Leased);
        let all: Vec<&str> = emails.chain(messages.map(|state| state.as_str())).collect();
        invalid(format!("`state:` must be one of {}", all.join(", ")))
    })
}

fn parse_time(name: &str, text: &str) -> Result<Time, Problem> {
    Time::parse(text).or_else(|| Time::parse(&format!("{text}T00:00:00Z"))).ok_or_else(|| {
        invalid(format!("`{name}:` must be a day such as 2026-11-17, or an RFC 3339 time such as 2026-11-17T08:30:00Z"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(field: TextField, words: &[&str], is_negated: bool) -> TextTerm {
        TextTerm { field, words: words.iter().map(|word| (*word).to_owned()).collect(), is_negated }
    }

    #[test]
    fn words_phrases_and_fields_are_parsed() {
        let query =
            parse_query(r#"Invoice "over due" -draft from:Alice@Example.com to:"Bob Smith" subject:re -has:code"#);
        let query = query.unwrap();
        assert_eq!(
            query.terms,
            [
                term(TextField::Any, &["invoice"], false),
                term(TextField::Any, &["over", "due"], false),
                term(TextField::Any, &["draft"], true),
                term(TextField::Sender, &["alice", "example", "com"], false),
                term(TextField::Recipients, &["bob", "smith"], false),
                term(TextField::Subject, &["re"], false),
            ]
        );
        assert_eq!(query.scope, [ScopeTerm { token: "hcode".into(), is_negated: true }]);
    }

    #[test]
    fn days_and_times_are_parsed() {
        let query = parse_query("after:2026-11-17 before:2026-11-18T01:00:00+01:00").unwrap();
        assert_eq!(query.after, Time::parse("2026-11-17T00:00:00Z"));
        assert_eq!(query.before, Time::parse("2026-11-18T00:00:00Z"));
    }

    #[test]
    fn ids_and_message_ids_are_recognized() {
        let id = "0193a1b2-c3d4-7e5f-8a6b-0c1d2e3f4a5b";
        assert_eq!(parse_query(id).unwrap().id, Some(id.parse().unwrap()));
        assert_eq!(parse_query(&format!("id:{id}")).unwrap().id, Some(id.parse().unwrap()));
        assert_eq!(parse_query("<a.b@c.test>").unwrap().scope, parse_query("message_id:a.b@c.test").unwrap().scope);
        assert_eq!(parse_query("key:order-4821").unwrap().key.as_deref(), Some("order-4821"));
    }

    #[test]
    fn operators_of_stores_are_only_words() {
        for text in ["a OR b* NEAR(c) {text}: d ^e", "a & !b | (c) <-> d:*A 'x' \\", "50% _ x' OR 1=1 --"] {
            let query = parse_query(text).unwrap_or_default();
            let all = query.terms.iter().flat_map(|term| &term.words);
            assert!(all.clone().all(|word| word.chars().all(char::is_alphanumeric)), "{text}");
        }
    }

    #[test]
    fn bad_queries_say_what_is_allowed() {
        for (text, expected) in [
            ("", "at least one term"),
            ("   ", "at least one term"),
            ("form:alice", "`form:` is not a field; use from: to:"),
            ("from:", "needs a value"),
            ("\"open", "not closed"),
            ("•••", "no letter or digit"),
            ("state:lost", "must be one of scheduled"),
            ("state:leased", "must be one of scheduled"),
            ("state:sent state:held", "given once"),
            ("-state:sent", "cannot be excluded"),
            ("has:wings", "attachment, code, link"),
            ("before:yesterday", "2026-11-17"),
            ("id:7", "needs the id"),
            (&"x".repeat(65), "more than 64 characters"),
            (&"ab ".repeat(17), "more than 16 terms"),
            (&"a".repeat(513), "513 bytes"),
        ] {
            let problem = parse_query(text).expect_err(text);
            assert_eq!(problem.code.as_str(), "invalid_query", "{text}");
            assert!(problem.detail.contains(expected), "{text}: {}", problem.detail);
        }
    }

    #[test]
    fn limits_are_inclusive() {
        assert_eq!(parse_query(&"ab ".repeat(16)).unwrap().terms.len(), 16);
        assert!(parse_query(&format!("{}{}", "a ".repeat(8), " ".repeat(496))).is_ok());
    }
}
