//! Colours, and whether text of one colour is readable on another.
//!
//! A colour that is not computed here (`lab()`, `color-mix()`, …) has NaN components. Text in or on such a colour
//! counts as hidden.

use cssparser::{BasicParseErrorKind, ParseError, Parser, Token, color};

use super::number::{Quantity, Units, quantity};

/// Red, green and blue from 0 to 255, and opacity from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::html) struct Colour {
    pub(in crate::html) red: f32,
    pub(in crate::html) green: f32,
    pub(in crate::html) blue: f32,
    pub(in crate::html) alpha: f32,
}

type ColourResult = Result<Colour, ParseError<()>>;

fn failure<T>() -> Result<T, ParseError<()>> {
    Err(ParseError::from_basic_kind(BasicParseErrorKind::UnexpectedToken))
}

impl Colour {
    pub(in crate::html) const BLACK: Self = Self::opaque(0.0, 0.0, 0.0);
    pub(in crate::html) const WHITE: Self = Self::opaque(255.0, 255.0, 255.0);
    pub(in crate::html) const TRANSPARENT: Self = Self { alpha: 0.0, ..Self::BLACK };
    /// Valid, but not computed.
    pub(in crate::html) const UNKNOWN: Self = Self { red: f32::NAN, ..Self::BLACK };

    const fn opaque(red: f32, green: f32, blue: f32) -> Self {
        Self { red, green, blue, alpha: 1.0 }
    }

    pub(in crate::html) fn from_bytes(red: u8, green: u8, blue: u8) -> Self {
        Self::opaque(red.into(), green.into(), blue.into())
    }

    /// The colour that results when this one is painted over another one.
    pub(in crate::html) fn blend_over(self, below: Self) -> Self {
        let mix = |top: f32, bottom: f32| top * self.alpha + bottom * (1.0 - self.alpha);
        if self.alpha >= 1.0 {
            return self;
        }
        Self::opaque(mix(self.red, below.red), mix(self.green, below.green), mix(self.blue, below.blue))
    }

    /// The largest difference of a component after this colour is painted on the background. NaN if a component is
    /// unknown.
    pub(in crate::html) fn contrast(self, background: Self) -> f32 {
        let painted = self.blend_over(background);
        let parts = [painted.red - background.red, painted.green - background.green, painted.blue - background.blue];
        if parts.iter().any(|part| part.is_nan()) {
            return f32::NAN;
        }
        parts.iter().fold(0.0, |max: f32, part| max.max(part.abs()))
    }

    /// Parses a colour. `current` is the value of `currentcolor`.
    pub(in crate::html) fn parse(input: &mut Parser<'_>, current: Self) -> ColourResult {
        match input.next()?.clone() {
            Token::Hash(hex) | Token::IDHash(hex) => match color::parse_hash_color(hex.as_bytes()) {
                Ok((red, green, blue, alpha)) => {
                    Ok(Self { alpha, ..Self::opaque(red.into(), green.into(), blue.into()) })
                }
                Err(()) => failure(),
            },
            Token::Ident(name) => Self::named(&name, current),
            Token::Function(name) => input.parse_nested_block(|input| function(&name, input, current)),
            _ => failure(),
        }
    }

    fn named(name: &str, current: Self) -> ColourResult {
        if let Ok((red, green, blue)) = color::parse_named_color(name) {
            return Ok(Self::opaque(red.into(), green.into(), blue.into()));
        }
        let value = match name.to_ascii_lowercase().as_str() {
            "transparent" => Self::TRANSPARENT,
            "currentcolor" => current,
            "canvas" | "field" | "window" | "background" | "menu" | "infobackground" | "highlighttext"
            | "selecteditemtext" | "accentcolortext" | "-webkit-activelink" => Self::WHITE,
            "canvastext" | "fieldtext" | "windowtext" | "buttontext" | "text" | "-webkit-text" | "menutext"
            | "infotext" | "captiontext" | "marktext" | "windowframe" | "buttonborder" => Self::BLACK,
            "linktext" | "-webkit-link" => Self::opaque(0.0, 0.0, 238.0),
            "buttonface" | "threedface" | "buttonhighlight" | "buttonshadow" => Self::opaque(239.0, 239.0, 239.0),
            "graytext" | "inactivecaptiontext" => Self::opaque(128.0, 128.0, 128.0),
            "mark" => Self::opaque(255.0, 255.0, 0.0),
            "activetext"
            | "visitedtext"
            | "highlight"
            | "selecteditem"
            | "accentcolor"
            | "activeborder"
            | "activecaption"
            | "appworkspace"
            | "inactiveborder"
            | "inactivecaption"
            | "scrollbar"
            | "threeddarkshadow"
            | "threedhighlight"
            | "threedlightshadow"
            | "threedshadow"
            | "-webkit-focus-ring-color" => Self::UNKNOWN,
            _ => return failure(),
        };
        Ok(value)
    }

    /// Parses the value of `bgcolor`, `color` and similar attributes, which accept almost anything (WHATWG HTML
    /// §2.3.6).
    pub(in crate::html) fn parse_legacy(text: &str) -> Option<Self> {
        let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
        if text.is_empty() || text.eq_ignore_ascii_case("transparent") {
            return None;
        }
        if let Ok((red, green, blue)) = color::parse_named_color(text) {
            return Some(Self::opaque(red.into(), green.into(), blue.into()));
        }
        if let Some(hex) = text.strip_prefix('#').filter(|hex| hex.len() == 3)
            && let Ok((red, green, blue, _)) = color::parse_hash_color(hex.as_bytes())
        {
            return Some(Self::opaque(red.into(), green.into(), blue.into()));
        }
        let mut digits: Vec<u8> = text.strip_prefix('#').unwrap_or(text).chars().take(128).map(digit).collect();
        while digits.is_empty() || !digits.len().is_multiple_of(3) {
            digits.push(0);
        }
        Some(Self::from_digits(&digits))
    }

    /// Three components of equal length, each cut to its two significant digits.
    fn from_digits(digits: &[u8]) -> Self {
        let mut parts: Vec<&[u8]> = digits.chunks(digits.len() / 3).collect();
        for part in &mut parts {
            *part = &part[part.len().saturating_sub(8)..];
        }
        while parts.iter().all(|part| part.len() > 2 && part[0] == 0) {
            for part in &mut parts {
                *part = &part[1..];
            }
        }
        let value = |part: &[u8]| part.iter().take(2).fold(0.0, |sum, digit| sum * 16.0 + f32::from(*digit));
        Self::opaque(value(parts[0]), value(parts[1]), value(parts[2]))
    }
}

fn digit(c: char) -> u8 {
    c.to_digit(16).map_or(0, |digit| digit as u8)
}

fn function(name: &str, input: &mut Parser<'_>, current: Colour) -> ColourResult {
    match name.to_ascii_lowercase().as_str() {
        "rgb" | "rgba" => rgb(input),
        "hsl" | "hsla" => hue(input, from_hsl),
        "hwb" => hue(input, from_hwb),
        "light-dark" => {
            let light = Colour::parse(input, current)?;
            while input.next().is_ok() {}
            Ok(light)
        }
        "lab" | "lch" | "oklab" | "oklch" | "color" | "color-mix" | "device-cmyk" | "contrast-color" | "alpha" => {
            Ok(unknown(input))
        }
        _ => failure(),
    }
}

/// Consumes a colour that browsers compute and this code does not.
fn unknown(input: &mut Parser<'_>) -> Colour {
    while input.next().is_ok() {}
    Colour::UNKNOWN
}

/// A component, and whether it was a percentage. `none` counts as the number 0.
fn component(input: &mut Parser<'_>, full: f32) -> Result<(f32, bool), ParseError<()>> {
    if input.try_parse(|input| input.expect_ident_matching("none")).is_ok() {
        return Ok((0.0, false));
    }
    let units = Units { em: 16.0, rem: 16.0, percent: full, quirks: false, percent_is_number: false };
    match quantity(input, units)? {
        Quantity::Px(part) => Ok((part, true)),
        Quantity::Number(part) | Quantity::Angle(part) => Ok((part, false)),
    }
}

/// Parses components, where `full` is the value of 100 %. Commas separate all of them, or spaces do, with a slash
/// before the last. `None` for a relative colour (`from`).
fn components(input: &mut Parser<'_>, full: [f32; 4], hue: bool) -> Result<Option<[f32; 4]>, ParseError<()>> {
    if input.try_parse(|input| input.expect_ident_matching("from")).is_ok() {
        return Ok(None);
    }
    let mut parts = [(0.0, false); 4];
    parts[3] = (1.0, false);
    parts[0] = component(input, full[0])?;
    let commas = input.try_parse(Parser::expect_comma).is_ok();
    parts[1] = component(input, full[1])?;
    if commas {
        input.expect_comma()?;
    }
    parts[2] = component(input, full[2])?;
    if !input.is_exhausted() {
        if commas {
            input.expect_comma()?
        } else {
            input.expect_delim('/')?
        }
        parts[3] = component(input, full[3])?;
    }
    let [first, second, third, _] = parts.map(|(_, percent)| percent);
    let consistent = if hue { second && third } else { first == second && second == third };
    if commas && !consistent {
        return failure();
    }
    Ok(Some(parts.map(|(part, _)| part)))
}

fn rgb(input: &mut Parser<'_>) -> ColourResult {
    let Some([red, green, blue, alpha]) = components(input, [255.0, 255.0, 255.0, 1.0], false)? else {
        return Ok(unknown(input));
    };
    let byte = |part: f32| if part.is_nan() { part } else { part.clamp(0.0, 255.0) };
    Ok(Colour { red: byte(red), green: byte(green), blue: byte(blue), alpha: clamp_unit(alpha) })
}

fn clamp_unit(part: f32) -> f32 {
    if part.is_nan() { part } else { part.clamp(0.0, 1.0) }
}

fn hue(input: &mut Parser<'_>, convert: fn(f32, f32, f32) -> [f32; 3]) -> ColourResult {
    let Some([hue, second, third, alpha]) = components(input, [360.0, 100.0, 100.0, 1.0], true)? else {
        return Ok(unknown(input));
    };
    let [red, green, blue] = convert(hue, clamp_unit(second / 100.0), clamp_unit(third / 100.0));
    Ok(Colour { red: red * 255.0, green: green * 255.0, blue: blue * 255.0, alpha: clamp_unit(alpha) })
}

fn from_hsl(hue: f32, saturation: f32, lightness: f32) -> [f32; 3] {
    let reach = saturation * lightness.min(1.0 - lightness);
    [0.0, 8.0, 4.0].map(|offset| {
        let k = (offset + hue / 30.0).rem_euclid(12.0);
        lightness - reach * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0)
    })
}

fn from_hwb(hue: f32, white: f32, black: f32) -> [f32; 3] {
    if white + black >= 1.0 {
        return [white / (white + black); 3];
    }
    from_hsl(hue, 1.0, 0.5).map(|part| part * (1.0 - white - black) + white)
}
