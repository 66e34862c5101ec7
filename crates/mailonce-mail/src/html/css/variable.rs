//! Custom properties, and the functions that substitute their values.

use std::{collections::BTreeMap, rc::Rc};

use cssparser::{ParseError, Parser, Token};

use super::work_budget::WorkBudget;

/// Maximum bytes of a value after substitution.
const MAX_VALUE_BYTES: usize = 4 * 1024;
/// Maximum depth of references between custom properties.
const MAX_DEPTH: usize = 8;

/// Steps that a reference costs: its name is copied and looked up twice, and a parser is made for its value.
const REFERENCE_STEPS: usize = 100;

/// Custom properties of an element, keyed by name including the dashes. An element that sets none shares its parent's
/// map.
pub(in crate::html) type CustomProperties = Rc<BTreeMap<Rc<str>, Rc<str>>>;

/// Why a substitution failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::html) enum SubstitutionError {
    /// A custom property is not set: the property takes its inherited or initial value.
    Unset,
    /// Browsers may compute the value, but this code does not.
    Unknown,
}

/// Substitutes `var()` and `env()` in a value.
pub(in crate::html) fn substitute(
    text: &str,
    custom: &CustomProperties,
    budget: &WorkBudget,
) -> Result<String, SubstitutionError> {
    let mut out = String::new();
    insert(text, Source { custom, budget }, &mut out, 0)?;
    Ok(out)
}

/// The custom properties, and the budget for substituting them: a short value can reference another one many times.
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

/// Copies tokens and substitutes functions.
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
                // The comment separates two tokens that would otherwise merge into one.
                out.push_str("/**/");
                continue;
            }
        };
        out.push_str(input.slice_from(start));
        nested(input, |input| copy(input, source, out, depth))?;
        out.push_str(closing);
    }
}

/// Runs a step inside a block and keeps its error.
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

/// The map key that marks a custom property as registered by `@property`.
pub(in crate::html) fn registered_marker(name: &str) -> Rc<str> {
    format!("@{name}").into()
}

/// Substitutes `var(--name, fallback)`. No environment variable is set in a mail, so `env()` takes its fallback.
fn function(
    input: &mut Parser<'_>,
    source: Source<'_>,
    out: &mut String,
    depth: usize,
) -> Result<(), SubstitutionError> {
    source.budget.spend(REFERENCE_STEPS);
    let Ok(name) = input.expect_ident_cloned() else { return Err(SubstitutionError::Unset) };
    if source.custom.contains_key(&registered_marker(&name)) {
        return Err(SubstitutionError::Unknown);
    }
    let set_value = source.custom.get(&*name).filter(|value| !value.trim().eq_ignore_ascii_case("initial"));
    let length = out.len();
    let result = set_value.map(|value| insert(value, source, out, depth + 1));
    match result {
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
