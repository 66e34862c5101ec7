//! The `tsvector` of a document and the `tsquery` of a query, as PostgreSQL reads them. Words are letters and digits, and
//! each is quoted, so that no text of a caller is read as an operator.

use mailonce_core::{
    id::TeamId,
    search::{
        document::SearchDocument,
        query::{SearchQuery, TextField, TextTerm},
        words::words,
    },
};
use std::collections::BTreeMap;

/// The highest position that a `tsvector` holds.
const MAX_POSITION: usize = 16_383;

fn quoted(lexeme: &str) -> String {
    format!("'{}'", lexeme.replace('\\', "\\\\").replace('\'', "''"))
}

/// An exact name. No word begins like this.
fn name(token: &str) -> String {
    quoted(&format!("#{token}"))
}

fn team_name(team: TeamId) -> String {
    name(&format!("t{}", team.0.simple()))
}

/// The words of a document with their places. A phrase never spans two fields, because their places are apart.
pub(super) fn tsvector(team: TeamId, document: &SearchDocument) -> String {
    let SearchDocument { sender, recipients, subject, text, scope, .. } = document;
    let mut places: BTreeMap<String, Vec<(usize, char)>> = BTreeMap::new();
    let mut place = 1;
    for (field, weight) in [(sender, 'A'), (recipients, 'B'), (subject, 'C'), (text, 'D')] {
        for word in words(field) {
            place += 1;
            if !word.is_empty() {
                places.entry(quoted(&word)).or_default().push((place.min(MAX_POSITION), weight));
            }
        }
        place += 1;
    }
    let mut lexemes = vec![format!("{}:1A", team_name(team))];
    lexemes.extend(scope.iter().map(|token| format!("{}:1A", name(token))));
    for (word, places) in places {
        let places: Vec<String> = places.iter().map(|(place, weight)| format!("{place}{weight}")).collect();
        lexemes.push(format!("{word}:{}", places.join(",")));
    }
    lexemes.join(" ")
}

/// The condition of a query for the documents of a team.
pub(super) fn tsquery(team: TeamId, query: &SearchQuery) -> String {
    let sign = |is_negated| if is_negated { "!" } else { "" };
    let mut all = vec![team_name(team)];
    all.extend(query.terms.iter().map(|term| format!("{}{}", sign(term.is_negated), phrase(term))));
    all.extend(query.scope.iter().map(|term| format!("{}{}", sign(term.is_negated), name(&term.token))));
    for filter in &query.mailboxes {
        let any: Vec<String> = filter.tokens().iter().map(|token| name(token)).collect();
        all.push(format!("({})", any.join(" | ")));
    }
    all.join(" & ")
}

fn phrase(term: &TextTerm) -> String {
    let weight = match term.field {
        TextField::Any => "",
        TextField::Sender => ":A",
        TextField::Recipients => ":B",
        TextField::Subject => ":C",
    };
    let words: Vec<String> = term.words.iter().map(|word| format!("{}{weight}", quoted(word))).collect();
    format!("({})", words.join(" <-> "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::{
        search::{SearchKind, SearchRef, query_parser::parse_query},
        time::Time,
    };
    use uuid::Uuid;

    const TEAM: TeamId = TeamId(Uuid::from_u128(7));
    const NAME: &str = "'#t00000000000000000000000000000007'";

    #[test]
    fn a_query_becomes_quoted_words() {
        let parsed = parse_query(r#"a OR from:b@c -"x y" -has:code"#).unwrap();
        let query = SearchQuery { terms: parsed.terms, scope: parsed.scope, ..SearchQuery::default() };
        let expected = format!("{NAME} & ('a') & ('or') & ('b':A <-> 'c':A) & !('x' <-> 'y') & !'#hcode'");
        assert_eq!(tsquery(TEAM, &query), expected);
    }

    #[test]
    fn the_words_of_fields_are_apart() {
        let document = SearchDocument {
            mail: SearchRef { kind: SearchKind::Email, id: Uuid::nil() },
            at: Time(0),
            scope: vec!["kemail".into()],
            sender: "a b".into(),
            recipients: String::new(),
            subject: "b".into(),
            text: "it's".into(),
        };
        let expected = format!("{NAME}:1A '#kemail':1A 'a':2A 'b':3A,6C 'it':8D 's':9D");
        assert_eq!(tsvector(TEAM, &document), expected);
    }
}
