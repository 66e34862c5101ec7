//! Values of properties, set directly or through a shorthand such as `font`.

use std::rc::Rc;

use cssparser::{Parser, Token};

use super::{
    longhand::{font_size, grid_rows, line_height, line_style, longhand, names, out_of_viewport},
    paint,
    property::{Property, Shorthand},
    token::{components, keyword},
    value::{ComputedValue, RelativeBase},
};

/// Parses a value. `None` if browsers would drop the declaration.
pub(in crate::html) fn parse(
    property: Property,
    shorthand: Option<Shorthand>,
    text: &str,
    base: RelativeBase,
) -> Option<ComputedValue> {
    let mut input = Parser::new(text);
    match shorthand {
        None => {
            let value = longhand(property, &mut input, base)?;
            input.is_exhausted().then_some(value)
        }
        Some(shorthand) => parse_shorthand(shorthand, property, text, base),
    }
}

fn parse_shorthand(shorthand: Shorthand, property: Property, text: &str, base: RelativeBase) -> Option<ComputedValue> {
    match shorthand {
        Shorthand::Background => paint::background(property, text),
        Shorthand::Sides(sides) => {
            let parts = components(text);
            let side = sides.iter().position(|side| *side == property)?;
            let at = match (parts.len(), side) {
                (1, _) => 0,
                (2, side) => side % 2,
                (3, 3) => 1,
                (3 | 4, side) => side,
                _ => return None,
            };
            parse_all(&parts, property, base)?;
            parse(property, None, parts[at], base)
        }
        Shorthand::Pair(pair) => {
            let parts = components(text);
            let at = usize::from(parts.len() == 2 && pair[1] == property);
            parse_all(&parts, property, base)?;
            (1..=2).contains(&parts.len()).then(|| parse(property, None, parts[at], base))?
        }
        Shorthand::Font => font(property, text, base),
        Shorthand::Animation => Some(animation(property, text)),
        Shorthand::Flex => flex(property, text, base),
        Shorthand::Grid if property == Property::GridColumns => Some(out_of_viewport(&mut Parser::new(text))),
        Shorthand::Grid => Some(grid_rows(&mut Parser::new(text))),
        Shorthand::Border => Some(out_of_viewport(&mut Parser::new(text))),
        Shorthand::Outline => outline(text, base),
        Shorthand::Decoration => decoration(property, text, base),
        Shorthand::Stroke => stroke(property, text, base),
        // Only CSS-wide keywords are valid here, and they are handled before.
        Shorthand::All => None,
    }
}

fn parse_all(parts: &[&str], property: Property, base: RelativeBase) -> Option<()> {
    parts.iter().all(|part| parse(property, None, part, base).is_some()).then_some(())
}

fn font(property: Property, text: &str, base: RelativeBase) -> Option<ComputedValue> {
    let system = ["caption", "icon", "menu", "message-box", "small-caption", "status-bar"];
    if system.contains(&text.trim().to_ascii_lowercase().as_str()) {
        return match property {
            Property::FontSize => Some(ComputedValue::Number(13.0)),
            Property::FontFamily => Some(ComputedValue::Names(Rc::new([]))),
            _ => Some(ComputedValue::Keyword("normal")),
        };
    }
    let mut input = Parser::new(text);
    let before = [
        "normal",
        "italic",
        "oblique",
        "bold",
        "bolder",
        "lighter",
        "small-caps",
        "ultra-condensed",
        "extra-condensed",
        "condensed",
        "semi-condensed",
        "semi-expanded",
        "expanded",
        "extra-expanded",
        "ultra-expanded",
    ];
    loop {
        let style = input.try_parse(|input| keyword(input, &before).ok_or(()));
        let weight = |input: &mut Parser<'_>| match input.next() {
            Ok(Token::Number { value, .. }) if (1.0..=1000.0).contains(value) => Ok(()),
            _ => Err(()),
        };
        if style.is_err() && input.try_parse(weight).is_err() {
            break;
        }
    }
    let size = font_size(&mut input, base)?;
    let mut line = ComputedValue::Keyword("normal");
    if input.try_parse(|input| input.expect_delim('/')).is_ok() {
        let ComputedValue::Number(em) = size else { return None };
        line = line_height(&mut input, RelativeBase { em, ..base })?;
    }
    let family = names(&mut input)?;
    if !input.is_exhausted() {
        return None;
    }
    Some(match property {
        Property::FontSize => size,
        Property::LineHeight => line,
        _ => family,
    })
}

fn animation(property: Property, text: &str) -> ComputedValue {
    let mut input = Parser::new(text);
    let mut names = Vec::new();
    let (mut longest, mut paused) = (0.0_f32, false);
    while let Ok(token) = input.next() {
        match token {
            Token::Ident(word) if word.eq_ignore_ascii_case("paused") => paused = true,
            Token::Ident(word) | Token::QuotedString(word) => names.push(word.to_ascii_lowercase()),
            Token::Dimension { value, unit, .. } if unit.eq_ignore_ascii_case("s") => {
                longest = longest.max(value.abs())
            }
            Token::Dimension { value, unit, .. } if unit.eq_ignore_ascii_case("ms") => {
                longest = longest.max(value.abs() / 1000.0);
            }
            _ => {}
        }
    }
    match property {
        Property::AnimationName => ComputedValue::Names(names.into()),
        Property::AnimationPlay => ComputedValue::Keyword(if paused { "paused" } else { "running" }),
        Property::AnimationDuration => ComputedValue::Number(longest),
        _ => ComputedValue::Number(0.0),
    }
}

fn flex(property: Property, text: &str, base: RelativeBase) -> Option<ComputedValue> {
    let parts = components(text);
    let word = |word: &str| parts.len() == 1 && parts[0].eq_ignore_ascii_case(word);
    let (grow, basis) = match () {
        () if word("none") => (0.0, ComputedValue::Keyword("auto")),
        () if word("auto") => (1.0, ComputedValue::Keyword("auto")),
        () if word("initial") => (0.0, ComputedValue::Keyword("auto")),
        () => {
            let grow = parts.iter().find_map(|part| part.parse::<f32>().ok());
            let last = parts.iter().rev().find(|part| part.parse::<f32>().is_err());
            let basis =
                last.map_or(Some(ComputedValue::Number(0.0)), |last| parse(Property::FlexBasis, None, last, base));
            let third = parts.get(2).is_some_and(|part| *part == "0");
            (grow.unwrap_or(1.0), if third { ComputedValue::Number(0.0) } else { basis? })
        }
    };
    Some(if property == Property::FlexGrow { ComputedValue::Number(grow) } else { basis })
}

fn outline(text: &str, base: RelativeBase) -> Option<ComputedValue> {
    let mut style = ComputedValue::Keyword("none");
    for part in components(text) {
        let mut input = Parser::new(part);
        if let Some(line) = line_style(&mut input) {
            style = line;
        } else if parse(Property::Color, None, part, base).is_none()
            && parse(Property::LetterSpacing, None, part, base).is_none()
            && !["thin", "medium", "thick", "invert"].contains(&part)
        {
            return None;
        }
    }
    Some(style)
}

fn decoration(property: Property, text: &str, base: RelativeBase) -> Option<ComputedValue> {
    let (mut line, mut thickness) = (ComputedValue::Keyword("none"), ComputedValue::Keyword("auto"));
    for part in components(text) {
        let lower = part.to_ascii_lowercase();
        match lower.as_str() {
            "line-through" => line = ComputedValue::Keyword("line-through"),
            "none" | "underline" | "overline" | "blink" | "solid" | "double" | "dotted" | "dashed" | "wavy"
            | "auto" | "from-font" => {}
            _ => match parse(Property::DecorationThickness, None, part, base) {
                Some(value) => thickness = value,
                None => drop(parse(Property::Color, None, part, base)?),
            },
        }
    }
    Some(if property == Property::DecorationLine { line } else { thickness })
}

fn stroke(property: Property, text: &str, base: RelativeBase) -> Option<ComputedValue> {
    let (mut width, mut line) = (ComputedValue::Number(0.0), ComputedValue::Current);
    for part in components(text) {
        match part {
            "thin" => width = ComputedValue::Number(1.0),
            "medium" => width = ComputedValue::Number(3.0),
            "thick" => width = ComputedValue::Number(5.0),
            _ => match parse(Property::OutlineOffset, None, part, base) {
                Some(value) => width = value,
                None => line = parse(Property::Color, None, part, base)?,
            },
        }
    }
    Some(if property == Property::StrokeWidth { width } else { line })
}
