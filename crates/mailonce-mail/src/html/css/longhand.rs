//! Values of single properties.
//!
//! A declaration that browsers would drop must be dropped here, too. Otherwise a later, invalid declaration could
//! reveal text that an earlier one hides. A value that is valid but not computed becomes a value that hides.

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "an uncomputed value is NaN and must count as hidden")]

use cssparser::{ParseError, Parser};

use super::{
    colour::Colour,
    number::{Quantity, Units, VIEWPORT_HEIGHT, VIEWPORT_WIDTH, length, number_or_percentage, quantity},
    paint,
    property::Property,
    token::{keyword, rest},
    transform,
    value::{ComputedValue, RelativeBase},
};

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

/// Parses the value of one property. `None` if browsers would drop the declaration.
pub(super) fn longhand(property: Property, input: &mut Parser<'_>, base: RelativeBase) -> Option<ComputedValue> {
    use Property as P;
    let wide = base.units(VIEWPORT_WIDTH);
    let high = base.units(VIEWPORT_HEIGHT);
    match property {
        P::Display => display(input),
        P::Visibility => keyword(input, &["visible", "hidden", "collapse"]),
        P::Opacity => number_or_percentage(input, base.units(1.0)).ok().map(ComputedValue::Number),
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
            length_or(input, wide, &[]).filter(|value| !matches!(value, ComputedValue::Number(n) if *n < 0.0))
        }
        P::TextIndent => text_indent(input, wide),
        P::Transform => transform::functions(input, base.units(f32::NAN)).map(ComputedValue::Transform),
        P::Scale => transform::scale(input, base.units(1.0)).map(ComputedValue::Transform),
        P::Rotate => transform::rotate(input, base.units(1.0)).map(ComputedValue::Transform),
        P::Translate => transform::translate(input, base.units(f32::NAN)).map(ComputedValue::Transform),
        P::Clip => Some(paint::none_or_hides(input, &["auto"])),
        P::ClipPath => Some(paint::clip_path(input, wide)),
        P::Filter => paint::filter(input, base.units(1.0)).map(ComputedValue::Number),
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
        P::AnimationPlay => {
            Some(ComputedValue::Keyword(if rest(input).contains("paused") { "paused" } else { "running" }))
        }
        P::WhiteSpace => white_space(input),
        P::LineClamp => number_or(input, wide, &["none", "auto"]),
        P::GridRows => Some(grid_rows(input)),
        P::GridColumns | P::Gap | P::BorderLeft | P::BorderTop => Some(out_of_viewport(input)),
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

fn display(input: &mut Parser<'_>) -> Option<ComputedValue> {
    let words: Vec<String> =
        std::iter::from_fn(|| input.expect_ident().ok().map(|word| word.to_ascii_lowercase())).collect();
    let kind = |word: &String| DISPLAY.iter().find(|(name, _)| name == word).map(|(_, kind)| *kind);
    let kinds: Vec<&str> = words.iter().map(kind).collect::<Option<_>>()?;
    match kinds[..] {
        [kind] => Some(ComputedValue::Keyword(kind)),
        // Two-word values such as `inline flow-root`. Neither word can be `none` or `contents`.
        [first, second] if !matches!((first, second), ("none" | "contents", _) | (_, "none" | "contents")) => {
            Some(ComputedValue::Keyword(if first == "inline" { "atomic" } else { second }))
        }
        _ => None,
    }
}

fn number(input: &mut Parser<'_>, units: Units) -> Option<ComputedValue> {
    number_or_percentage(input, units).ok().map(ComputedValue::Number)
}

fn number_or(input: &mut Parser<'_>, units: Units, known: &[&'static str]) -> Option<ComputedValue> {
    let word = input.try_parse(|input| keyword(input, known).ok_or(()));
    word.ok().or_else(|| number(input, units))
}

fn length_or(input: &mut Parser<'_>, units: Units, known: &[&'static str]) -> Option<ComputedValue> {
    let word = input.try_parse(|input| keyword(input, known).ok_or(()));
    word.ok().or_else(|| length(input, units).map(ComputedValue::Number))
}

/// Parses a size. `free` is the keyword for "no limit".
fn size(input: &mut Parser<'_>, units: Units, free: &'static str) -> Option<ComputedValue> {
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
        return Some(ComputedValue::Keyword(free));
    }
    if input.try_parse(|input| input.expect_function_matching("fit-content")).is_ok() {
        let inner =
            input.parse_nested_block(|input| length(input, units).ok_or_else(ParseError::<()>::unexpected_token));
        return inner.ok().map(ComputedValue::Number);
    }
    let value = length(input, units)?;
    (value >= 0.0 || value.is_nan()).then_some(ComputedValue::Number(value))
}

pub(super) fn font_size(input: &mut Parser<'_>, base: RelativeBase) -> Option<ComputedValue> {
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
        return Some(ComputedValue::Number(size));
    }
    let size = length(input, RelativeBase { em: parent, ..base }.units(parent))?;
    (size >= 0.0 || size.is_nan()).then_some(ComputedValue::Number(size))
}

fn colour(input: &mut Parser<'_>, base: RelativeBase) -> Option<ComputedValue> {
    let start = input.state();
    if base.quirks
        && let digits = rest(input)
        && matches!(digits.len(), 3 | 6)
        && let Ok((red, green, blue, _)) = cssparser::color::parse_hash_color(digits.as_bytes())
    {
        return Some(ComputedValue::Colour(Colour::from_bytes(red, green, blue)));
    }
    input.reset(&start);
    if input.try_parse(|input| input.expect_ident_matching("currentcolor")).is_ok() {
        return Some(ComputedValue::Current);
    }
    Colour::parse(input, Colour::UNKNOWN).ok().map(ComputedValue::Colour)
}

fn overflow(input: &mut Parser<'_>) -> Option<ComputedValue> {
    let word = keyword(input, &["visible", "hidden", "clip", "scroll", "auto", "overlay", "-webkit-paged-x"])?;
    Some(ComputedValue::Keyword(if word == ComputedValue::Keyword("visible") { "visible" } else { "hidden" }))
}

fn text_indent(input: &mut Parser<'_>, units: Units) -> Option<ComputedValue> {
    let value = length(input, units)?;
    while input.try_parse(|input| keyword(input, &["hanging", "each-line"]).ok_or(())).is_ok() {}
    Some(ComputedValue::Number(value))
}

fn zoom(input: &mut Parser<'_>, base: RelativeBase) -> Option<ComputedValue> {
    if input.try_parse(|input| keyword(input, &["normal", "reset"]).ok_or(())).is_ok() {
        return Some(ComputedValue::Number(1.0));
    }
    let value = number_or_percentage(input, base.units(1.0)).ok()?;
    // Browsers ignore a zoom of zero.
    (value >= 0.0 || value.is_nan()).then_some(ComputedValue::Number(if value == 0.0 { 1.0 } else { value }))
}

pub(super) fn line_height(input: &mut Parser<'_>, base: RelativeBase) -> Option<ComputedValue> {
    if input.try_parse(|input| input.expect_ident_matching("normal")).is_ok() {
        return Some(ComputedValue::Keyword("normal"));
    }
    match quantity(input, base.units(base.em)).ok()? {
        Quantity::Number(n) if n >= 0.0 => Some(ComputedValue::Number(n * base.em)),
        Quantity::Px(n) if n >= 0.0 || n.is_nan() => Some(ComputedValue::Number(n)),
        _ => None,
    }
}

fn contain(input: &mut Parser<'_>) -> Option<ComputedValue> {
    let words = rest(input);
    let has = |word: &str| words.split_ascii_whitespace().any(|part| part == word);
    let known = ["none", "strict", "content", "size", "inline-size", "layout", "style", "paint"];
    if words.is_empty() || !words.split_ascii_whitespace().all(|word| known.contains(&word)) {
        return None;
    }
    Some(ComputedValue::Keyword(match () {
        () if has("strict") || has("size") && has("paint") => "strict",
        () if has("size") => "size",
        () if has("paint") || has("content") => "paint",
        () => "none",
    }))
}

pub(super) fn line_style(input: &mut Parser<'_>) -> Option<ComputedValue> {
    let styles =
        &["none", "hidden", "auto", "dotted", "dashed", "solid", "double", "groove", "ridge", "inset", "outset"];
    let style = keyword(input, styles)?;
    Some(ComputedValue::Keyword(if matches!(style, ComputedValue::Keyword("none" | "hidden")) {
        "none"
    } else {
        "solid"
    }))
}

fn decoration_line(input: &mut Parser<'_>) -> Option<ComputedValue> {
    let words = rest(input);
    let known = ["none", "underline", "overline", "line-through", "blink"];
    let valid = !words.is_empty() && words.split_ascii_whitespace().all(|word| known.contains(&word));
    valid.then(|| ComputedValue::Keyword(if words.contains("line-through") { "line-through" } else { "none" }))
}

fn white_space(input: &mut Parser<'_>) -> Option<ComputedValue> {
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
    valid.then_some(ComputedValue::Keyword(kind))
}

/// Parses a list of names of animations or fonts, in lower case.
pub(super) fn names(input: &mut Parser<'_>) -> Option<ComputedValue> {
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
    (!names.iter().any(String::is_empty)).then(|| ComputedValue::Names(names.into()))
}

/// The longest of a list of times, in seconds.
fn times(input: &mut Parser<'_>) -> Option<ComputedValue> {
    let units = RelativeBase::default().units(f32::NAN);
    let list = input.parse_comma_separated(|input| {
        input
            .try_parse(|input| input.expect_ident_matching("auto").map(|()| 0.0))
            .or_else(|_| quantity(input, units).map(Quantity::number))
    });
    list.ok().map(|times| ComputedValue::Number(times.into_iter().fold(0.0, |max: f32, time| max.max(time.abs()))))
}

/// The keyword `far` for values with a length that can push text out of the viewport, otherwise `none`.
pub(super) fn out_of_viewport(input: &mut Parser<'_>) -> ComputedValue {
    let text = rest(input);
    let units = RelativeBase::default().units(VIEWPORT_WIDTH);
    let reaches = |part: &str| length(&mut Parser::new(part), units).is_some_and(|size| !(size < 300.0));
    let far = text.contains("calc") || text.split([' ', ',', '(', ')', '/']).any(reaches);
    ComputedValue::Keyword(if far { "far" } else { "none" })
}

fn vertical_align(input: &mut Parser<'_>, units: Units) -> Option<ComputedValue> {
    let words =
        &["baseline", "sub", "super", "top", "bottom", "middle", "text-top", "text-bottom", "-webkit-baseline-middle"];
    length_or(input, units, words)
}

fn text_align(input: &mut Parser<'_>) -> Option<ComputedValue> {
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
    let left = matches!(word, ComputedValue::Keyword("left" | "start" | "justify" | "-webkit-left"));
    Some(ComputedValue::Keyword(if left { "left" } else { "right" }))
}

/// "hides" if a dark scheme changes the default colours.
fn color_scheme(input: &mut Parser<'_>) -> ComputedValue {
    let words = rest(input);
    ComputedValue::Keyword(if words.contains("dark") && !words.contains("light") { "hides" } else { "none" })
}

/// Rows of a grid: "zero" if one of them can have no height.
pub(super) fn grid_rows(input: &mut Parser<'_>) -> ComputedValue {
    let rows = rest(input);
    let zero =
        rows.split(['/', ' ', '(', ')', ',']).any(|row| matches!(row, "0" | "0fr" | "0px" | "0em" | "0%" | "0.0"));
    ComputedValue::Keyword(if zero { "zero" } else { "none" })
}
