//! Custom properties and the functions that insert their values.

use std::{collections::BTreeMap, rc::Rc};

use cssparser::{ParseError, Parser, Token};

use super::selector::WorkBudget;

/// Bytes of a value after everything was inserted.
const MAX_VALUE_BYTES: usize = 4 * 1024;
/// How deep custom properties may refer to each other.
const MAX_DEPTH: usize = 8;

/// Custom properties of an element, by their names with dashes. Elements that set none share the map of their parent.
pub(in crate::html) type CustomProperties = Rc<BTreeMap<Rc<str>, Rc<str>>>;

/// Why a value could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::html) enum SubstitutionError {
    /// A custom property is not there: the property takes its inherited or initial value.
    Unset,
    /// Browsers may compute it, we do not.
    Unknown,
}

/// Inserts `var()` and `env()` into a value.
pub(in crate::html) fn substitute(
    text: &str,
    custom: &CustomProperties,
    budget: &WorkBudget,
) -> Result<String, SubstitutionError> {
    let mut out = String::new();
    insert(text, Source { custom, budget }, &mut out, 0)?;
    Ok(out)
}

/// Where inserted values come from, and what inserting them may cost: a short value can insert another many times.
#[derive(Clone, Copy)]
struct Source<'a> {
    custom: &'a CustomProperties,
    budget: &'a WorkBudget,
}

fn insert(text: &str, source: Source<'_>, out: &mut String, depth: usize) -> Result<(), SubstitutionError> {
    if depth > MAX_DEPTH {
        return Err(SubstitutionError::Unknown);
    }
    source.budget.spend_on_text(text);
    let mut input = Parser::new(text);
    copy(&mut input, source, out, depth)
}

/// Copies tokens, and replaces functions by what they stand for.
fn copy(input: &mut Parser<'_>, source: Source<'_>, out: &mut String, depth: usize) -> Result<(), SubstitutionError> {
    loop {
        let start = input.position();
        let Ok(token) = input.next_including_whitespace() else { return Ok(()) };
        let token = token.clone();
        if out.len() > MAX_VALUE_BYTES {
            return Err(SubstitutionError::Unknown);
        }
        let closing = match &token {
            Token::Function(name) => match name.to_ascii_lowercase().as_str() {
                "var" | "env" => {
                    nested(input, |input| function(input, source, out, depth))?;
                    continue;
                }
                "attr" | "if" | "inherit" => return Err(SubstitutionError::Unknown),
                name if name.starts_with("--") => return Err(SubstitutionError::Unknown),
                _ => ")",
            },
            Token::ParenthesisBlock => ")",
            Token::SquareBracketBlock => "]",
            Token::CurlyBracketBlock => "}",
            _ => {
                out.push_str(input.slice_from(start));
                // A comment keeps two tokens apart that would otherwise become one.
                out.push_str("/**/");
                continue;
            }
        };
        out.push_str(input.slice_from(start));
        nested(input, |input| copy(input, source, out, depth))?;
        out.push_str(closing);
    }
}

/// Runs a step inside of a block, and keeps the reason why it failed.
fn nested(
    input: &mut Parser<'_>,
    mut step: impl FnMut(&mut Parser<'_>) -> Result<(), SubstitutionError>,
) -> Result<(), SubstitutionError> {
    let mut result = Err(SubstitutionError::Unknown);
    let entered = input.parse_nested_block(|input| {
        result = step(input);
        while input.next().is_ok() {}
        Ok::<_, ParseError<()>>(())
    });
    if entered.is_err() { Err(SubstitutionError::Unknown) } else { result }
}

/// The mark of a custom property that `@property` registers.
pub(in crate::html) fn registered_marker(name: &str) -> Rc<str> {
    format!("@{name}").into()
}

/// `var(--name, fallback)`. No environment variable is set in a mail.
fn function(
    input: &mut Parser<'_>,
    source: Source<'_>,
    out: &mut String,
    depth: usize,
) -> Result<(), SubstitutionError> {
    let Ok(name) = input.expect_ident_cloned() else { return Err(SubstitutionError::Unset) };
    if source.custom.contains_key(&registered_marker(&name)) {
        return Err(SubstitutionError::Unknown);
    }
    let known = source.custom.get(&*name).filter(|value| !value.trim().eq_ignore_ascii_case("initial"));
    let length = out.len();
    let inserted = known.map(|value| insert(value, source, out, depth + 1));
    match inserted {
        Some(Ok(())) => return Ok(()),
        Some(Err(SubstitutionError::Unknown)) => return Err(SubstitutionError::Unknown),
        Some(Err(SubstitutionError::Unset)) | None => {}
    }
    out.truncate(length);
    if input.try_parse(Parser::expect_comma).is_err() {
        return Err(SubstitutionError::Unset);
    }
    input.skip_whitespace();
    let start = input.position();
    while input.next().is_ok() {}
    insert(input.slice_from(start), source, out, depth + 1)
}
