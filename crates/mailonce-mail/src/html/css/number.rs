//! CSS numbers and lengths, with `calc()` and the other math functions.
//!
//! A function that is not computed here yields NaN. Every visibility check fails for NaN, so that text with such a
//! value counts as hidden.

use cssparser::{BasicParseErrorKind, ParseError, Parser, Token};

/// Width of the assumed viewport, in pixels.
pub(in crate::html) const VIEWPORT_WIDTH: f32 = 800.0;
/// Height of the assumed viewport, in pixels.
pub(in crate::html) const VIEWPORT_HEIGHT: f32 = 600.0;

/// The values that relative units refer to.
#[derive(Clone, Copy, Debug)]
pub(in crate::html) struct Units {
    /// Pixels of `1em`.
    pub(in crate::html) em: f32,
    /// Pixels of `1rem`.
    pub(in crate::html) rem: f32,
    /// Pixels of `100%`.
    pub(in crate::html) percent: f32,
    /// Whether the page is in quirks mode, where a number without a unit is a length in pixels.
    pub(in crate::html) quirks: bool,
    /// Whether percentages are numbers, such as those of `opacity`.
    pub(in crate::html) percent_is_number: bool,
}

/// A value with its dimension. Angles are in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::html) enum Quantity {
    Number(f32),
    Px(f32),
    Angle(f32),
}

type QuantityResult = Result<Quantity, ParseError<()>>;

fn failure<T>() -> Result<T, ParseError<()>> {
    Err(ParseError::from_basic_kind(BasicParseErrorKind::UnexpectedToken))
}

impl Quantity {
    /// Combines two values of the same dimension. Mixed dimensions make a declaration invalid.
    fn map(self, other: Self, combine: fn(f32, f32) -> f32) -> QuantityResult {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Ok(Self::Number(combine(a, b))),
            (Self::Angle(a), Self::Angle(b)) => Ok(Self::Angle(combine(a, b))),
            (Self::Px(a), Self::Px(b)) => Ok(Self::Px(combine(a, b))),
            (one, other) if one.number().is_nan() || other.number().is_nan() => Ok(Self::Px(f32::NAN)),
            _ => failure(),
        }
    }

    /// The number without its dimension.
    pub(in crate::html) fn number(self) -> f32 {
        match self {
            Self::Number(n) | Self::Px(n) | Self::Angle(n) => n,
        }
    }

    fn times(self, factor: f32) -> Self {
        match self {
            Self::Number(n) => Self::Number(n * factor),
            Self::Px(n) => Self::Px(n * factor),
            Self::Angle(n) => Self::Angle(n * factor),
        }
    }
}

/// Parses a number, a length, a percentage or an angle.
pub(in crate::html) fn quantity(input: &mut Parser<'_>, units: Units) -> QuantityResult {
    match input.next()?.clone() {
        Token::Number { value, .. } => Ok(Quantity::Number(value)),
        Token::Percentage { unit_value, .. } if units.percent_is_number => {
            Ok(Quantity::Number(unit_value * units.percent))
        }
        Token::Percentage { unit_value, .. } => Ok(Quantity::Px(unit_value * units.percent)),
        Token::Dimension { value, unit, .. } => dimension(value, &unit, units),
        Token::Function(name) => input.parse_nested_block(|input| function(&name, input, units)),
        Token::ParenthesisBlock => input.parse_nested_block(|input| sum(input, units)),
        _ => failure(),
    }
}

/// Parses a length in pixels. A number without a unit is a length only if it is zero, or in quirks mode.
pub(in crate::html) fn length(input: &mut Parser<'_>, units: Units) -> Option<f32> {
    match quantity(input, units).ok()? {
        Quantity::Px(px) => Some(px),
        Quantity::Number(n) if n == 0.0 || n.is_nan() || units.quirks => Some(n),
        _ => None,
    }
}

/// Parses a number without a unit, or a percentage.
pub(in crate::html) fn number_or_percentage(input: &mut Parser<'_>, units: Units) -> Result<f32, ParseError<()>> {
    match quantity(input, Units { percent_is_number: true, ..units })? {
        Quantity::Number(number) => Ok(number),
        Quantity::Px(number) if number.is_nan() => Ok(number),
        _ => failure(),
    }
}

fn dimension(value: f32, unit: &str, units: Units) -> QuantityResult {
    let px = match unit.to_ascii_lowercase().as_str() {
        "px" => 1.0,
        "pt" => 96.0 / 72.0,
        "pc" => 16.0,
        "in" => 96.0,
        "cm" => 96.0 / 2.54,
        "mm" => 96.0 / 25.4,
        "q" => 96.0 / 101.6,
        "em" | "ic" | "cap" => units.em,
        "ex" | "ch" => units.em / 2.0,
        "lh" => units.em * 1.2,
        "rem" | "ric" | "rcap" => units.rem,
        "rex" | "rch" => units.rem / 2.0,
        "rlh" => units.rem * 1.2,
        "vw" | "svw" | "lvw" | "dvw" | "vi" | "svi" | "lvi" | "dvi" | "vmax" | "svmax" | "lvmax" | "dvmax" => {
            VIEWPORT_WIDTH / 100.0
        }
        "vh" | "svh" | "lvh" | "dvh" | "vb" | "svb" | "lvb" | "dvb" | "vmin" | "svmin" | "lvmin" | "dvmin" => {
            VIEWPORT_HEIGHT / 100.0
        }
        "cqw" | "cqh" | "cqi" | "cqb" | "cqmin" | "cqmax" => f32::NAN,
        "deg" => return Ok(Quantity::Angle(value)),
        "rad" => return Ok(Quantity::Angle(value.to_degrees())),
        "grad" => return Ok(Quantity::Angle(value * 0.9)),
        "turn" => return Ok(Quantity::Angle(value * 360.0)),
        "s" => return Ok(Quantity::Number(value)),
        "ms" => return Ok(Quantity::Number(value / 1000.0)),
        _ => return failure(),
    };
    Ok(Quantity::Px(value * px))
}

fn function(name: &str, input: &mut Parser<'_>, units: Units) -> QuantityResult {
    match name.to_ascii_lowercase().as_str() {
        "calc" | "-webkit-calc" | "-moz-calc" => sum(input, units),
        "min" => all(input, units, f32::min),
        "max" => all(input, units, f32::max),
        "abs" => Ok(match sum(input, units)? {
            Quantity::Number(n) => Quantity::Number(n.abs()),
            Quantity::Px(n) => Quantity::Px(n.abs()),
            Quantity::Angle(n) => Quantity::Angle(n.abs()),
        }),
        "clamp" => {
            let values = input.parse_comma_separated(|input| sum(input, units))?;
            let [low, value, high] = values[..] else { return failure() };
            low.map(value.map(high, f32::min)?, f32::max)
        }
        "sin" | "cos" | "tan" | "asin" | "acos" | "atan" | "atan2" | "pow" | "sqrt" | "hypot" | "log" | "exp"
        | "sign" | "mod" | "rem" | "round" | "progress" | "calc-size" | "anchor" | "anchor-size" | "random"
        | "sibling-index" | "sibling-count" => {
            while input.next().is_ok() {}
            Ok(Quantity::Px(f32::NAN))
        }
        _ => failure(),
    }
}

fn all(input: &mut Parser<'_>, units: Units, combine: fn(f32, f32) -> f32) -> QuantityResult {
    let values = input.parse_comma_separated(|input| sum(input, units))?;
    let (first, others) = values.split_first().ok_or_else(ParseError::unexpected_token)?;
    others.iter().try_fold(*first, |sum, value| sum.map(*value, combine))
}

fn sum(input: &mut Parser<'_>, units: Units) -> QuantityResult {
    let mut total = product(input, units)?;
    loop {
        let sign = input.try_parse(|input| match input.next()? {
            Token::Delim('+') => Ok(1.0),
            Token::Delim('-') => Ok(-1.0),
            _ => failure(),
        });
        let Ok(sign) = sign else { return Ok(total) };
        total = total.map(product(input, units)?.times(sign), |a, b| a + b)?;
    }
}

fn product(input: &mut Parser<'_>, units: Units) -> QuantityResult {
    let mut total = term(input, units)?;
    loop {
        let divides = input.try_parse(|input| match input.next()? {
            Token::Delim('*') => Ok(false),
            Token::Delim('/') => Ok(true),
            _ => failure(),
        });
        let Ok(divides) = divides else { return Ok(total) };
        let other = term(input, units)?;
        total = match (total, other) {
            (total, Quantity::Number(n)) if divides => total.times(1.0 / n),
            (total, Quantity::Number(n)) => total.times(n),
            (Quantity::Number(n), other) if !divides => other.times(n),
            _ => return failure(),
        };
    }
}

fn term(input: &mut Parser<'_>, units: Units) -> QuantityResult {
    let constant = input.try_parse(|input| {
        let name = input.expect_ident()?.to_ascii_lowercase();
        match name.as_str() {
            "pi" => Ok(std::f32::consts::PI),
            "e" => Ok(std::f32::consts::E),
            "infinity" => Ok(f32::MAX),
            "-infinity" => Ok(f32::MIN),
            "nan" => Ok(0.0),
            _ => failure(),
        }
    });
    match constant {
        Ok(constant) => Ok(Quantity::Number(constant)),
        Err(_) => quantity(input, units),
    }
}
