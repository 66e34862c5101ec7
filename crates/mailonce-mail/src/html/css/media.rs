//! Conditions of `@media`, evaluated for a screen of 800 by 600 pixels with light colours.

use cssparser::{Parser, Token};

use super::number::{Units, VIEWPORT_HEIGHT, VIEWPORT_WIDTH, length};

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::html) enum TriState {
    Yes,
    No,
    /// A browser may decide either way.
    Unknown,
}

impl TriState {
    fn of(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
        }
    }

    pub(in crate::html) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::Unknown,
        }
    }

    pub(in crate::html) fn or(self, other: Self) -> Self {
        self.not().and(other.not()).not()
    }
}

/// Whether a list of media queries matches. An empty list matches.
pub(in crate::html) fn matches(text: &str) -> TriState {
    if text.trim().is_empty() {
        return TriState::Yes;
    }
    let mut input = Parser::new(text);
    let queries = input.parse_comma_separated(|input| {
        let truth = query(input);
        // Unparsed input after a query means that a browser may decide either way.
        let rest = input.next().is_ok();
        while input.next().is_ok() {}
        Ok::<_, cssparser::ParseError<()>>(if rest { TriState::Unknown } else { truth })
    });
    queries.map_or(TriState::Unknown, |queries| queries.into_iter().fold(TriState::No, TriState::or))
}

fn query(input: &mut Parser<'_>) -> TriState {
    let word = input.try_parse(Parser::expect_ident_cloned).ok().map(|word| word.to_ascii_lowercase());
    let (negated, kind) = match word.as_deref() {
        Some("not") => (true, input.try_parse(Parser::expect_ident_cloned).ok()),
        Some("only") => (false, input.try_parse(Parser::expect_ident_cloned).ok()),
        Some(kind) => (false, Some(kind.to_owned().into())),
        None => (false, None),
    };
    let device = match kind.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None => None,
        Some("all" | "screen") => Some(TriState::Yes),
        Some(_) => Some(TriState::No),
    };
    let truth = match device {
        None => conditions(input),
        Some(device) => {
            if input.try_parse(|input| input.expect_ident_matching("and")).is_ok() {
                device.and(conditions(input))
            } else {
                device
            }
        }
    };
    if negated { truth.not() } else { truth }
}

/// Features in parentheses, joined by `and` or `or`.
fn conditions(input: &mut Parser<'_>) -> TriState {
    let mut truth = condition(input);
    loop {
        if input.try_parse(|input| input.expect_ident_matching("and")).is_ok() {
            truth = truth.and(condition(input));
        } else if input.try_parse(|input| input.expect_ident_matching("or")).is_ok() {
            truth = truth.or(condition(input));
        } else {
            return truth;
        }
    }
}

/// A feature or conditions in parentheses, after any number of `not`. A loop counts them, because a style sheet may
/// have more of them than the stack has room for. The parser limits how deep parentheses nest.
fn condition(input: &mut Parser<'_>) -> TriState {
    let mut is_negated = false;
    while input.try_parse(|input| input.expect_ident_matching("not")).is_ok() {
        is_negated = !is_negated;
    }
    let truth = parenthesised(input);
    if is_negated { truth.not() } else { truth }
}

fn parenthesised(input: &mut Parser<'_>) -> TriState {
    if input.expect_parenthesis_block().is_err() {
        return TriState::Unknown;
    }
    let inside = input.parse_nested_block(|input| {
        let start = input.state();
        let nested = matches!(input.next(), Ok(Token::ParenthesisBlock));
        input.reset(&start);
        let truth = if nested { conditions(input) } else { feature(input) };
        let rest = input.next().is_ok();
        while input.next().is_ok() {}
        Ok::<_, cssparser::ParseError<()>>(if rest { TriState::Unknown } else { truth })
    });
    inside.unwrap_or(TriState::Unknown)
}

/// `min-width: 600px`, `orientation: landscape`, `width > 600px`.
fn feature(input: &mut Parser<'_>) -> TriState {
    let Ok(name) = input.expect_ident_cloned() else { return TriState::Unknown };
    let name = name.to_ascii_lowercase();
    let Ok(separator) = input.next().cloned() else { return has_feature(&name) };
    let size = match name.trim_start_matches("min-").trim_start_matches("max-") {
        "width" | "device-width" => VIEWPORT_WIDTH,
        "height" | "device-height" => VIEWPORT_HEIGHT,
        _ if separator == Token::Colon => return keyword(&name, input),
        _ => return TriState::Unknown,
    };
    if name.contains("device-") {
        return TriState::Unknown;
    }
    let or_equal = separator != Token::Colon && input.try_parse(|input| input.expect_delim('=')).is_ok();
    let Some(value) =
        length(input, Units { em: 16.0, rem: 16.0, percent: f32::NAN, quirks: false, percent_is_number: false })
    else {
        return TriState::Unknown;
    };
    match separator {
        Token::Colon if name.starts_with("min-") => TriState::of(size >= value),
        Token::Colon if name.starts_with("max-") => TriState::of(size <= value),
        Token::Colon | Token::Delim('=') => TriState::of((size - value).abs() < 0.5),
        Token::Delim('<') => TriState::of(size < value || or_equal && size <= value),
        Token::Delim('>') => TriState::of(size > value || or_equal && size >= value),
        _ => TriState::Unknown,
    }
}

/// A feature without a value.
fn has_feature(name: &str) -> TriState {
    match name {
        "width" | "height" | "color" | "orientation" | "prefers-color-scheme" | "aspect-ratio" | "resolution" => {
            TriState::Yes
        }
        "monochrome" | "grid" | "prefers-reduced-motion" | "prefers-contrast" | "color-index" | "inverted-colors" => {
            TriState::No
        }
        _ => TriState::Unknown,
    }
}

fn keyword(name: &str, input: &mut Parser<'_>) -> TriState {
    let value = input.try_parse(Parser::expect_ident_cloned).map(|word| word.to_ascii_lowercase());
    let Ok(value) = value else {
        while input.next().is_ok() {}
        return TriState::Unknown;
    };
    match (name, value.as_str()) {
        ("orientation", value) => TriState::of(value == "landscape"),
        ("prefers-color-scheme", value) => TriState::of(value == "light"),
        ("prefers-reduced-motion" | "prefers-contrast" | "prefers-reduced-transparency", value) => {
            TriState::of(value == "no-preference")
        }
        ("forced-colors", value) => TriState::of(value == "none"),
        ("display-mode", value) => TriState::of(value == "browser"),
        ("scripting", value) => TriState::of(value == "enabled"),
        _ => TriState::Unknown,
    }
}
