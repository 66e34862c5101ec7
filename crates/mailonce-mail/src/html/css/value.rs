//! Values of the properties that decide whether text is visible.
//!
//! A declaration that browsers would drop must be dropped here, too. Otherwise a later, invalid declaration could
//! reveal text that an earlier one hides. A value that is valid but not computed becomes a value that hides.

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "an uncomputed value is NaN and must count as hidden")]

use std::rc::Rc;

use cssparser::{ParseError, Parser, Token};

use super::{
    colour::Colour,
    declaration::{opens_block, skip_block},
    number::{Quantity, Units, VIEWPORT_HEIGHT, VIEWPORT_WIDTH, length, number_or_percentage, quantity},
    paint,
    property::{Property, Shorthand},
    transform,
    transform::Transform,
};

/// A computed value.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::html) enum CssValue {
    /// A keyword, in lower case.
    Keyword(&'static str),
    /// A number, or a length in pixels.
    Number(f32),
    Colour(Colour),
    /// `currentcolor`.
    Current,
    /// The possible appearance of an image behind text.
    Image(Rc<ImageLayer>),
    Transform(Transform),
    Shadow(ShadowEffect),
    Names(Rc<[String]>),
}

/// The colours of gradients, and whether embedded images are painted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::html) struct ImageLayer {
    pub(in crate::html) colours: Vec<Colour>,
    /// Whether an image is in the mail itself, so that it is painted even if the reader blocks remote images.
    pub(in crate::html) is_embedded: bool,
}

/// The area that a box shadow covers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::html) struct ShadowEffect {
    /// The colour of an inset shadow, which lies behind the text of the box.
    pub(in crate::html) inset_colour: Option<Colour>,
    /// Whether an outer shadow reaches far enough to lie behind other text.
    pub(in crate::html) is_wide: bool,
}

/// The values that relative units refer to.
#[derive(Clone, Copy, Debug)]
pub(in crate::html) struct RelativeBase {
    pub(in crate::html) em: f32,
    pub(in crate::html) rem: f32,
    pub(in crate::html) parent_em: f32,
    pub(in crate::html) quirks: bool,
}

impl Default for RelativeBase {
    fn default() -> Self {
        Self { em: 16.0, rem: 16.0, parent_em: 16.0, quirks: false }
    }
}

impl RelativeBase {
    fn units(self, percent: f32) -> Units {
        Units { em: self.em, rem: self.rem, percent, quirks: self.quirks, percent_is_number: false }
    }
}

/// Keywords of `display`, mapped to the kind of layout.
const DISPLAY: &[(&str, &str)] = &[
    ("none", "none"),
    ("contents", "contents"),
    ("inline", "inline"),
    ("ruby", "inline"),
    ("math", "inline"),
    ("inline-block", "atomic"),
    ("inline-flex", "atomic"),
    ("inline-grid", "atomic"),
    ("inline-table", "atomic"),
    ("-webkit-inline-box", "atomic"),
    ("-webkit-inline-flex", "atomic"),
    ("flex", "flex"),
    ("-webkit-flex", "flex"),
    ("-webkit-box", "flex"),
    ("grid", "grid"),
    ("table", "table"),
    ("table-row", "table-part"),
    ("table-cell", "cell"),
    ("table-caption", "block"),
    ("table-column", "none"),
    ("table-column-group", "none"),
    ("table-row-group", "table-part"),
    ("table-header-group", "table-part"),
    ("table-footer-group", "table-part"),
    ("block", "block"),
    ("flow-root", "block"),
    ("list-item", "block"),
    ("flow", "block"),
    ("ruby-text", "inline"),
];

/// Parses a value. `None` if browsers would drop the declaration.
pub(in crate::html) fn parse(
    property: Property,
    shorthand: Option<Shorthand>,
    text: &str,
    base: RelativeBase,
) -> Option<CssValue> {
    let mut input = Parser::new(text);
    match shorthand {
        None => {
            let value = longhand(property, &mut input, base)?;
            input.is_exhausted().then_some(value)
        }
        Some(shorthand) => paint_or_split(shorthand, property, text, base),
    }
}

fn paint_or_split(shorthand: Shorthand, property: Property, text: &str, base: RelativeBase) -> Option<CssValue> {
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
        Shorthand::Grid if property == Property::GridColumns => Some(far(&mut Parser::new(text))),
        Shorthand::Grid => Some(grid_rows(&mut Parser::new(text))),
        Shorthand::Border => Some(far(&mut Parser::new(text))),
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

fn longhand(property: Property, input: &mut Parser<'_>, base: RelativeBase) -> Option<CssValue> {
    use Property as P;
    let wide = base.units(VIEWPORT_WIDTH);
    let high = base.units(VIEWPORT_HEIGHT);
    match property {
        P::Display => display(input),
        P::Visibility => keyword(input, &["visible", "hidden", "collapse"]),
        P::Opacity => number_or_percentage(input, base.units(1.0)).ok().map(CssValue::Number),
        P::FontSize => font_size(input, base),
        P::Color | P::BackgroundColor | P::TextFill | P::StrokeColor => colour(input, base),
        P::BackgroundImage => paint::image(input),
        P::BackgroundClip => Some(paint::background_clip(input)),
        P::OverflowX | P::OverflowY => overflow(input),
        P::Width | P::MinWidth | P::FlexBasis => size(input, wide, "auto"),
        P::Height | P::MinHeight => size(input, high, "auto"),
        P::MaxWidth => size(input, wide, "none"),
        P::MaxHeight => size(input, high, "none"),
        P::Position => keyword(input, &["static", "relative", "absolute", "fixed", "sticky", "-webkit-sticky"]),
        P::Left | P::Right | P::MarginTop | P::MarginBottom | P::MarginLeft | P::MarginRight => {
            length_or(input, wide, &["auto"])
        }
        P::Top | P::Bottom => length_or(input, high, &["auto"]),
        P::PaddingTop | P::PaddingBottom | P::PaddingLeft | P::PaddingRight => {
            length_or(input, wide, &[]).filter(|value| !matches!(value, CssValue::Number(n) if *n < 0.0))
        }
        P::TextIndent => text_indent(input, wide),
        P::Transform => transform::functions(input, base.units(f32::NAN)).map(CssValue::Transform),
        P::Scale => transform::scale(input, base.units(1.0)).map(CssValue::Transform),
        P::Rotate => transform::rotate(input, base.units(1.0)).map(CssValue::Transform),
        P::Translate => transform::translate(input, base.units(f32::NAN)).map(CssValue::Transform),
        P::Clip => Some(paint::none_or_hides(input, &["auto"])),
        P::ClipPath => Some(paint::clip_path(input, wide)),
        P::Filter => paint::filter(input, base.units(1.0)).map(CssValue::Number),
        P::Zoom => zoom(input, base),
        P::LetterSpacing | P::WordSpacing => length_or(input, base.units(base.em), &["normal"]),
        P::LineHeight => line_height(input, base),
        P::ContentVisibility => keyword(input, &["visible", "auto", "hidden"]),
        P::ZIndex => number_or(input, wide, &["auto"]),
        P::Mask | P::MaskBox => Some(paint::none_or_hides(input, &["none"])),
        P::BlendMode => Some(paint::none_or_hides(input, &["normal"])),
        P::TextSecurity => keyword(input, &["none", "disc", "circle", "square"]),
        P::MsoHide => keyword(input, &["all", "none", "screen"]),
        P::Contain => contain(input),
        P::ContainerType => keyword(input, &["normal", "size", "inline-size", "scroll-state"]),
        P::OutlineStyle => line_style(input),
        P::OutlineOffset | P::StrokeWidth => length_or(input, wide, &[]),
        P::BoxShadow => paint::shadow(input, wide),
        P::DecorationLine => decoration_line(input),
        P::DecorationThickness => length_or(input, base.units(base.em), &["auto", "from-font"]),
        P::Content => Some(paint::content(input)),
        P::AnimationName | P::FontFamily => names(input),
        P::AnimationDuration | P::AnimationDelay => times(input),
        P::AnimationPlay => Some(CssValue::Keyword(if rest(input).contains("paused") { "paused" } else { "running" })),
        P::WhiteSpace => white_space(input),
        P::LineClamp => number_or(input, wide, &["none", "auto"]),
        P::GridRows => Some(grid_rows(input)),
        P::GridColumns | P::Gap | P::BorderLeft | P::BorderTop => Some(far(input)),
        P::OffsetPath | P::FontSizeAdjust => Some(paint::none_or_hides(input, &["none"])),
        P::VerticalAlign => vertical_align(input, base.units(base.em)),
        P::TextAlign => text_align(input),
        P::ColorScheme => Some(color_scheme(input)),
        P::GridArea => Some(paint::none_or_hides(input, &["auto"])),
        P::FlexGrow => number(input, wide),
        P::BoxSizing => keyword(input, &["content-box", "border-box"]),
        P::Float => keyword(input, &["none", "left", "right", "inline-start", "inline-end"]),
    }
}

/// Top-level parts of a value, separated by white space.
pub(in crate::html) fn components(text: &str) -> Vec<&str> {
    let mut input = Parser::new(text);
    let mut parts = Vec::new();
    input.skip_whitespace();
    let mut start = input.position();
    loop {
        let before = input.position();
        let ended = match input.next_including_whitespace() {
            Ok(Token::WhiteSpace(_)) => false,
            Ok(token) => {
                if opens_block(token) && skip_block(&mut input).is_err() {
                    return Vec::new();
                }
                continue;
            }
            Err(_) => true,
        };
        let part = input.slice(start..before).trim();
        if !part.is_empty() {
            parts.push(part);
        }
        if ended {
            return parts;
        }
        start = input.position();
    }
}

/// The rest of the input, in lower case.
pub(in crate::html) fn rest(input: &mut Parser<'_>) -> String {
    input.skip_whitespace();
    let start = input.position();
    while input.next().is_ok() {}
    input.slice_from(start).trim().to_ascii_lowercase()
}

pub(in crate::html) fn keyword(input: &mut Parser<'_>, known: &[&'static str]) -> Option<CssValue> {
    let word = input.expect_ident().ok()?.to_ascii_lowercase();
    known.iter().find(|known| **known == word).map(|word| CssValue::Keyword(word))
}

fn display(input: &mut Parser<'_>) -> Option<CssValue> {
    let words: Vec<String> =
        std::iter::from_fn(|| input.expect_ident().ok().map(|word| word.to_ascii_lowercase())).collect();
    let kind = |word: &String| DISPLAY.iter().find(|(name, _)| name == word).map(|(_, kind)| *kind);
    let kinds: Vec<&str> = words.iter().map(kind).collect::<Option<_>>()?;
    match kinds[..] {
        [kind] => Some(CssValue::Keyword(kind)),
        // Two-word values such as `inline flow-root`. Neither word can be `none` or `contents`.
        [first, second] if !matches!((first, second), ("none" | "contents", _) | (_, "none" | "contents")) => {
            Some(CssValue::Keyword(if first == "inline" { "atomic" } else { second }))
        }
        _ => None,
    }
}

fn number(input: &mut Parser<'_>, units: Units) -> Option<CssValue> {
    number_or_percentage(input, units).ok().map(CssValue::Number)
}

fn number_or(input: &mut Parser<'_>, units: Units, known: &[&'static str]) -> Option<CssValue> {
    let word = input.try_parse(|input| keyword(input, known).ok_or(()));
    word.ok().or_else(|| number(input, units))
}

fn length_or(input: &mut Parser<'_>, units: Units, known: &[&'static str]) -> Option<CssValue> {
    let word = input.try_parse(|input| keyword(input, known).ok_or(()));
    word.ok().or_else(|| length(input, units).map(CssValue::Number))
}

/// Parses a size. `free` is the keyword for "no limit".
fn size(input: &mut Parser<'_>, units: Units, free: &'static str) -> Option<CssValue> {
    let words = &[
        free,
        "min-content",
        "max-content",
        "fit-content",
        "stretch",
        "intrinsic",
        "content",
        "-webkit-fill-available",
        "-webkit-fit-content",
        "-webkit-max-content",
        "-webkit-min-content",
    ];
    if input.try_parse(|input| keyword(input, words).ok_or(())).is_ok() {
        return Some(CssValue::Keyword(free));
    }
    if input.try_parse(|input| input.expect_function_matching("fit-content")).is_ok() {
        let inner =
            input.parse_nested_block(|input| length(input, units).ok_or_else(ParseError::<()>::unexpected_token));
        return inner.ok().map(CssValue::Number);
    }
    let value = length(input, units)?;
    (value >= 0.0 || value.is_nan()).then_some(CssValue::Number(value))
}

fn font_size(input: &mut Parser<'_>, base: RelativeBase) -> Option<CssValue> {
    let parent = base.parent_em;
    let word = input.try_parse(|input| {
        let word = input.expect_ident()?.to_ascii_lowercase();
        Ok::<_, ParseError<()>>(match word.as_str() {
            "xx-small" => 9.0,
            "x-small" => 10.0,
            "small" => 13.0,
            "medium" | "math" => 16.0,
            "large" => 18.0,
            "x-large" => 24.0,
            "xx-large" => 32.0,
            "xxx-large" | "-webkit-xxx-large" => 48.0,
            "larger" => parent * 1.2,
            "smaller" => parent / 1.2,
            _ => return Err(ParseError::unexpected_token()),
        })
    });
    if let Ok(size) = word {
        return Some(CssValue::Number(size));
    }
    let size = length(input, RelativeBase { em: parent, ..base }.units(parent))?;
    (size >= 0.0 || size.is_nan()).then_some(CssValue::Number(size))
}

fn colour(input: &mut Parser<'_>, base: RelativeBase) -> Option<CssValue> {
    let start = input.state();
    if base.quirks
        && let digits = rest(input)
        && matches!(digits.len(), 3 | 6)
        && let Ok((red, green, blue, _)) = cssparser::color::parse_hash_color(digits.as_bytes())
    {
        return Some(CssValue::Colour(Colour::from_bytes(red, green, blue)));
    }
    input.reset(&start);
    if input.try_parse(|input| input.expect_ident_matching("currentcolor")).is_ok() {
        return Some(CssValue::Current);
    }
    Colour::parse(input, Colour::UNKNOWN).ok().map(CssValue::Colour)
}

fn overflow(input: &mut Parser<'_>) -> Option<CssValue> {
    let word = keyword(input, &["visible", "hidden", "clip", "scroll", "auto", "overlay", "-webkit-paged-x"])?;
    Some(CssValue::Keyword(if word == CssValue::Keyword("visible") { "visible" } else { "hidden" }))
}

fn text_indent(input: &mut Parser<'_>, units: Units) -> Option<CssValue> {
    let value = length(input, units)?;
    while input.try_parse(|input| keyword(input, &["hanging", "each-line"]).ok_or(())).is_ok() {}
    Some(CssValue::Number(value))
}

fn zoom(input: &mut Parser<'_>, base: RelativeBase) -> Option<CssValue> {
    if input.try_parse(|input| keyword(input, &["normal", "reset"]).ok_or(())).is_ok() {
        return Some(CssValue::Number(1.0));
    }
    let value = number_or_percentage(input, base.units(1.0)).ok()?;
    // Browsers ignore a zoom of zero.
    (value >= 0.0 || value.is_nan()).then_some(CssValue::Number(if value == 0.0 { 1.0 } else { value }))
}

fn line_height(input: &mut Parser<'_>, base: RelativeBase) -> Option<CssValue> {
    if input.try_parse(|input| input.expect_ident_matching("normal")).is_ok() {
        return Some(CssValue::Keyword("normal"));
    }
    match quantity(input, base.units(base.em)).ok()? {
        Quantity::Number(n) if n >= 0.0 => Some(CssValue::Number(n * base.em)),
        Quantity::Px(n) if n >= 0.0 || n.is_nan() => Some(CssValue::Number(n)),
        _ => None,
    }
}

fn contain(input: &mut Parser<'_>) -> Option<CssValue> {
    let words = rest(input);
    let has = |word: &str| words.split_ascii_whitespace().any(|part| part == word);
    let known = ["none", "strict", "content", "size", "inline-size", "layout", "style", "paint"];
    if words.is_empty() || !words.split_ascii_whitespace().all(|word| known.contains(&word)) {
        return None;
    }
    Some(CssValue::Keyword(match () {
        () if has("strict") || has("size") && has("paint") => "strict",
        () if has("size") => "size",
        () if has("paint") || has("content") => "paint",
        () => "none",
    }))
}

fn line_style(input: &mut Parser<'_>) -> Option<CssValue> {
    let styles =
        &["none", "hidden", "auto", "dotted", "dashed", "solid", "double", "groove", "ridge", "inset", "outset"];
    let style = keyword(input, styles)?;
    Some(CssValue::Keyword(if matches!(style, CssValue::Keyword("none" | "hidden")) { "none" } else { "solid" }))
}

fn decoration_line(input: &mut Parser<'_>) -> Option<CssValue> {
    let words = rest(input);
    let known = ["none", "underline", "overline", "line-through", "blink"];
    let valid = !words.is_empty() && words.split_ascii_whitespace().all(|word| known.contains(&word));
    valid.then(|| CssValue::Keyword(if words.contains("line-through") { "line-through" } else { "none" }))
}

fn white_space(input: &mut Parser<'_>) -> Option<CssValue> {
    let words = rest(input);
    let known = [
        "normal",
        "nowrap",
        "pre",
        "pre-wrap",
        "pre-line",
        "break-spaces",
        "wrap",
        "collapse",
        "preserve",
        "balance",
        "pretty",
        "stable",
        "preserve-breaks",
        "auto",
    ];
    let valid = !words.is_empty() && words.split_ascii_whitespace().all(|word| known.contains(&word));
    let has = |wanted: &[&str]| words.split_ascii_whitespace().any(|word| wanted.contains(&word));
    let kind = match () {
        () if has(&["pre", "pre-wrap", "break-spaces", "pre-line", "preserve", "preserve-breaks"]) => "pre",
        () if has(&["nowrap"]) => "nowrap",
        () => "normal",
    };
    valid.then_some(CssValue::Keyword(kind))
}

/// Parses a list of names of animations or fonts, in lower case.
fn names(input: &mut Parser<'_>) -> Option<CssValue> {
    let mut names = Vec::new();
    let list = input.parse_comma_separated(|input| {
        let mut name = String::new();
        while let Ok(word) = input.try_parse(|input| input.expect_ident_or_string().cloned()) {
            if !name.is_empty() {
                name.push(' ');
            }
            name.push_str(&word.to_ascii_lowercase());
        }
        names.push(name);
        Ok::<_, ParseError<()>>(())
    });
    list.ok()?;
    (!names.iter().any(String::is_empty)).then(|| CssValue::Names(names.into()))
}

/// The longest of a list of times, in seconds.
fn times(input: &mut Parser<'_>) -> Option<CssValue> {
    let units = RelativeBase::default().units(f32::NAN);
    let list = input.parse_comma_separated(|input| {
        input
            .try_parse(|input| input.expect_ident_matching("auto").map(|()| 0.0))
            .or_else(|_| quantity(input, units).map(Quantity::number))
    });
    list.ok().map(|times| CssValue::Number(times.into_iter().fold(0.0, |max: f32, time| max.max(time.abs()))))
}

/// "far" for values with a length that can push text out of the viewport.
fn far(input: &mut Parser<'_>) -> CssValue {
    let text = rest(input);
    let units = RelativeBase::default().units(VIEWPORT_WIDTH);
    let reaches = |part: &str| length(&mut Parser::new(part), units).is_some_and(|size| !(size < 300.0));
    let far = text.contains("calc") || text.split([' ', ',', '(', ')', '/']).any(reaches);
    CssValue::Keyword(if far { "far" } else { "none" })
}

fn vertical_align(input: &mut Parser<'_>, units: Units) -> Option<CssValue> {
    let words =
        &["baseline", "sub", "super", "top", "bottom", "middle", "text-top", "text-bottom", "-webkit-baseline-middle"];
    length_or(input, units, words)
}

fn text_align(input: &mut Parser<'_>) -> Option<CssValue> {
    let words = &[
        "left",
        "start",
        "right",
        "end",
        "center",
        "justify",
        "match-parent",
        "-webkit-left",
        "-webkit-right",
        "-webkit-center",
        "-internal-center",
    ];
    let word = keyword(input, words)?;
    let left = matches!(word, CssValue::Keyword("left" | "start" | "justify" | "-webkit-left"));
    Some(CssValue::Keyword(if left { "left" } else { "right" }))
}

/// "hides" if a dark scheme changes the default colours.
fn color_scheme(input: &mut Parser<'_>) -> CssValue {
    let words = rest(input);
    CssValue::Keyword(if words.contains("dark") && !words.contains("light") { "hides" } else { "none" })
}

/// Rows of a grid: "zero" if one of them can have no height.
fn grid_rows(input: &mut Parser<'_>) -> CssValue {
    let rows = rest(input);
    let zero =
        rows.split(['/', ' ', '(', ')', ',']).any(|row| matches!(row, "0" | "0fr" | "0px" | "0em" | "0%" | "0.0"));
    CssValue::Keyword(if zero { "zero" } else { "none" })
}

fn font(property: Property, text: &str, base: RelativeBase) -> Option<CssValue> {
    let system = ["caption", "icon", "menu", "message-box", "small-caption", "status-bar"];
    if system.contains(&text.trim().to_ascii_lowercase().as_str()) {
        return match property {
            Property::FontSize => Some(CssValue::Number(13.0)),
            Property::FontFamily => Some(CssValue::Names(Rc::new([]))),
            _ => Some(CssValue::Keyword("normal")),
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
    let mut line = CssValue::Keyword("normal");
    if input.try_parse(|input| input.expect_delim('/')).is_ok() {
        let CssValue::Number(em) = size else { return None };
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

fn animation(property: Property, text: &str) -> CssValue {
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
        Property::AnimationName => CssValue::Names(names.into()),
        Property::AnimationPlay => CssValue::Keyword(if paused { "paused" } else { "running" }),
        Property::AnimationDuration => CssValue::Number(longest),
        _ => CssValue::Number(0.0),
    }
}

fn flex(property: Property, text: &str, base: RelativeBase) -> Option<CssValue> {
    let parts = components(text);
    let word = |word: &str| parts.len() == 1 && parts[0].eq_ignore_ascii_case(word);
    let (grow, basis) = match () {
        () if word("none") => (0.0, CssValue::Keyword("auto")),
        () if word("auto") => (1.0, CssValue::Keyword("auto")),
        () if word("initial") => (0.0, CssValue::Keyword("auto")),
        () => {
            let grow = parts.iter().find_map(|part| part.parse::<f32>().ok());
            let last = parts.iter().rev().find(|part| part.parse::<f32>().is_err());
            let basis = last.map_or(Some(CssValue::Number(0.0)), |last| parse(Property::FlexBasis, None, last, base));
            let third = parts.get(2).is_some_and(|part| *part == "0");
            (grow.unwrap_or(1.0), if third { CssValue::Number(0.0) } else { basis? })
        }
    };
    Some(if property == Property::FlexGrow { CssValue::Number(grow) } else { basis })
}

fn outline(text: &str, base: RelativeBase) -> Option<CssValue> {
    let mut style = CssValue::Keyword("none");
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

fn decoration(property: Property, text: &str, base: RelativeBase) -> Option<CssValue> {
    let (mut line, mut thickness) = (CssValue::Keyword("none"), CssValue::Keyword("auto"));
    for part in components(text) {
        let lower = part.to_ascii_lowercase();
        match lower.as_str() {
            "line-through" => line = CssValue::Keyword("line-through"),
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

fn stroke(property: Property, text: &str, base: RelativeBase) -> Option<CssValue> {
    let (mut width, mut line) = (CssValue::Number(0.0), CssValue::Current);
    for part in components(text) {
        match part {
            "thin" => width = CssValue::Number(1.0),
            "medium" => width = CssValue::Number(3.0),
            "thick" => width = CssValue::Number(5.0),
            _ => match parse(Property::OutlineOffset, None, part, base) {
                Some(value) => width = value,
                None => line = parse(Property::Color, None, part, base)?,
            },
        }
    }
    Some(if property == Property::StrokeWidth { width } else { line })
}
