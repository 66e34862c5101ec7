//! The FTS5 expression of a query. Words are letters and digits, and each phrase is quoted, so that no text of a caller
//! is read as an operator.

use mailonce_core::search::query::{SearchQuery, TextField, TextTerm};

/// The expression for the documents of a team, by its number.
pub(super) fn match_expression(team: i64, query: &SearchQuery) -> String {
    let mut wanted = vec![scope(&format!("t{team}"))];
    let mut unwanted = Vec::new();
    for term in &query.terms {
        if term.is_negated { unwanted.push(text(term)) } else { wanted.push(text(term)) }
    }
    for term in &query.scope {
        if term.is_negated { unwanted.push(scope(&term.token)) } else { wanted.push(scope(&term.token)) }
    }
    for filter in &query.mailboxes {
        let any: Vec<String> = filter.tokens().iter().map(|token| scope(token)).collect();
        wanted.push(format!("({})", any.join(" OR ")));
    }
    let wanted = wanted.join(" AND ");
    if unwanted.is_empty() { wanted } else { format!("({wanted}) NOT ({})", unwanted.join(" OR ")) }
}

fn scope(token: &str) -> String {
    format!("(scope : {})", quoted(token))
}

fn text(term: &TextTerm) -> String {
    let columns = match term.field {
        TextField::Any => "{sender recipients subject text}",
        TextField::Sender => "sender",
        TextField::Recipients => "recipients",
        TextField::Subject => "subject",
    };
    format!("({columns} : {})", quoted(&term.words.join(" ")))
}

fn quoted(phrase: &str) -> String {
    format!("\"{}\"", phrase.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::search::query_parser::parse_query;

    #[test]
    fn a_query_becomes_quoted_phrases() {
        let parsed = parse_query(r#"a OR from:b@c -"x y" has:code"#).unwrap();
        let query = SearchQuery { terms: parsed.terms, scope: parsed.scope, ..SearchQuery::default() };
        let any = "{sender recipients subject text}";
        assert_eq!(
            match_expression(7, &query),
            format!(
                r#"((scope : "t7") AND ({any} : "a") AND ({any} : "or") AND (sender : "b c") AND (scope : "hcode")) NOT (({any} : "x y"))"#
            )
        );
    }
}
