//! Painting behind, over or instead of text: backgrounds, masks, clips, filters and shadows.

use std::rc::Rc;

use cssparser::{ParseError, Parser, Token};

use super::{
    colour::Colour,
    number::{Units, length, number_or_percentage, quantity},
    property::Property,
    token::{components, keyword, rest},
    value::{ComputedValue, ImageLayer, ShadowEffect},
};

/// Keywords of `background`, grouped by what they set, with the maximum number of each group in a layer.
const BACKGROUND_WORDS: &[(usize, &[&str])] = &[
    (2, &["repeat", "no-repeat", "space", "round"]),
    (1, &["repeat-x", "repeat-y"]),
    (1, &["scroll", "fixed", "local"]),
    (2, &["border-box", "padding-box", "content-box"]),
    (2, &["left", "right", "top", "bottom", "center"]),
    (2, &["auto", "cover", "contain"]),
];

/// The parsed value of `background`.
#[derive(Default)]
struct Background {
    colour: Option<ComputedValue>,
    image: ImageLayer,
    clips_to_text: bool,
}

/// Parses `background` and returns the value of one longhand.
pub(super) fn background(property: Property, text: &str) -> Option<ComputedValue> {
    let mut input = Parser::new(text);
    let mut whole = Background::default();
    if input.is_exhausted() {
        return None;
    }
    let layers = input.parse_comma_separated(|input| {
        // Only the last layer may have a colour.
        if whole.colour.is_some() { Err(ParseError::<()>::unexpected_token()) } else { whole.layer(input) }
    });
    layers.ok()?;
    Some(match property {
        Property::BackgroundColor => whole.colour.unwrap_or(ComputedValue::Colour(Colour::TRANSPARENT)),
        Property::BackgroundImage => ComputedValue::Image(Rc::new(whole.image)),
        _ => ComputedValue::Keyword(if whole.clips_to_text { "text" } else { "border-box" }),
    })
}

impl Background {
    fn layer(&mut self, input: &mut Parser<'_>) -> Result<(), ParseError<()>> {
        let mut words = [0; BACKGROUND_WORDS.len()];
        let (mut images, mut lengths) = (0, 0);
        let units = Units { em: 16.0, rem: 16.0, percent: 100.0, quirks: false, percent_is_number: false };
        while !input.is_exhausted() {
            if let Ok(colour) = input.try_parse(read_colour) {
                if self.colour.replace(colour).is_some() {
                    return Err(ParseError::unexpected_token());
                }
            } else if input.try_parse(|input| layer(input, &mut self.image)).is_ok()
                || input.try_parse(|input| input.expect_ident_matching("none")).is_ok()
            {
                images += 1;
            } else if input.try_parse(|input| length(input, units).ok_or(())).is_ok() {
                lengths += 1;
            } else if input.try_parse(|input| input.expect_delim('/')).is_err() {
                let word = input.expect_ident()?.to_ascii_lowercase();
                self.clips_to_text |= word == "text";
                let kind = BACKGROUND_WORDS.iter().position(|(_, known)| known.contains(&word.as_str()));
                match kind {
                    Some(kind) => words[kind] += 1,
                    None if word == "text" => {}
                    None => return Err(ParseError::unexpected_token()),
                }
            }
        }
        let often = words.iter().zip(BACKGROUND_WORDS).any(|(count, (most, _))| count > most);
        if often || images > 1 || lengths > 4 { Err(ParseError::unexpected_token()) } else { Ok(()) }
    }
}

fn read_colour(input: &mut Parser<'_>) -> Result<ComputedValue, ParseError<()>> {
    if input.try_parse(|input| input.expect_ident_matching("currentcolor")).is_ok() {
        return Ok(ComputedValue::Current);
    }
    Colour::parse(input, Colour::UNKNOWN).map(ComputedValue::Colour)
}

/// Parses `background-image`.
pub(super) fn image(input: &mut Parser<'_>) -> Option<ComputedValue> {
    let mut image = ImageLayer::default();
    let list = input.parse_comma_separated(|input| {
        if input.try_parse(|input| input.expect_ident_matching("none")).is_ok() {
            return Ok(());
        }
        layer(input, &mut image)
    });
    list.ok().map(|_| ComputedValue::Image(Rc::new(image)))
}

/// Parses one image of a background.
fn layer(input: &mut Parser<'_>, image: &mut ImageLayer) -> Result<(), ParseError<()>> {
    match input.next()?.clone() {
        Token::UnquotedUrl(url) => image.is_embedded |= is_embedded(&url),
        Token::Function(name) => {
            let name = name.to_ascii_lowercase();
            input.parse_nested_block(|input| {
                match name.as_str() {
                    "url" | "src" => {
                        let url = input.expect_string_cloned().unwrap_or_default();
                        image.is_embedded |= is_embedded(&url);
                    }
                    "image-set" | "-webkit-image-set" | "cross-fade" | "-webkit-cross-fade" | "image" | "element"
                    | "paint" | "-webkit-canvas" => image.is_embedded = true,
                    name if name.contains("gradient") => gradient(input, image),
                    _ => return Err(ParseError::unexpected_token()),
                }
                while input.next().is_ok() {}
                Ok(())
            })?;
        }
        _ => return Err(ParseError::unexpected_token()),
    }
    Ok(())
}

/// Whether an image is part of the mail. Most mail clients block other images until the reader allows them.
fn is_embedded(url: &str) -> bool {
    let url = url.trim().to_ascii_lowercase();
    url.starts_with("data:") || url.starts_with("cid:") || url.starts_with("blob:")
}

fn gradient(input: &mut Parser<'_>, image: &mut ImageLayer) {
    let before = image.colours.len();
    while !input.is_exhausted() {
        match input.try_parse(|input| Colour::parse(input, Colour::UNKNOWN)) {
            Ok(colour) if image.colours.len() < 16 => image.colours.push(colour),
            Ok(_) => image.is_embedded = true,
            Err(_) => {
                // Legacy syntax: `from(#000)`, `color-stop(0, #000)`.
                if let Ok(Token::Function(_)) = input.next() {
                    image.is_embedded = true;
                }
            }
        }
    }
    image.is_embedded |= image.colours.len() == before;
}

pub(super) fn background_clip(input: &mut Parser<'_>) -> ComputedValue {
    ComputedValue::Keyword(if rest(input).contains("text") { "text" } else { "border-box" })
}

/// For properties where any other value may hide: "none" for one of the given keywords, else "hides".
pub(super) fn none_or_hides(input: &mut Parser<'_>, words: &[&'static str]) -> ComputedValue {
    let matched = input.try_parse(|input| keyword(input, words).filter(|_| input.is_exhausted()).ok_or(()));
    drop(rest(input));
    ComputedValue::Keyword(if matched.is_ok() { "none" } else { "hides" })
}

/// Returns "none" for shapes that leave the whole box visible. Every other shape counts as hiding.
pub(super) fn clip_path(input: &mut Parser<'_>, units: Units) -> ComputedValue {
    let start = input.state();
    let shows = match input.next().cloned() {
        Ok(Token::Ident(word)) => ["none", "border-box", "padding-box", "content-box", "margin-box"]
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known)),
        Ok(Token::Function(name)) => {
            let name = name.to_ascii_lowercase();
            let inside = input.parse_nested_block(|input| Ok::<_, ParseError<()>>(shape(&name, input, units)));
            inside.unwrap_or(false)
        }
        _ => false,
    };
    input.reset(&start);
    drop(rest(input));
    ComputedValue::Keyword(if shows { "none" } else { "hides" })
}

fn shape(name: &str, input: &mut Parser<'_>, units: Units) -> bool {
    let mut shows = matches!(name, "inset" | "circle");
    let mut any = false;
    while let Ok(size) = input.try_parse(|input| length(input, units).ok_or(())) {
        any = true;
        // A circle with a radius of 70 % of the diagonal reaches all corners.
        shows &= if name == "inset" { size <= 2.0 } else { size >= units.percent * 0.7 };
    }
    drop(rest(input));
    shows && any
}

/// Parses `filter` into an opacity factor. A filter that may hide text has the factor 0.
pub(super) fn filter(input: &mut Parser<'_>, units: Units) -> Option<f32> {
    if input.try_parse(|input| input.expect_ident_matching("none")).is_ok() {
        return Some(1.0);
    }
    let mut opacity = 1.0;
    let mut any = false;
    while let Ok(token) = input.next().cloned() {
        any = true;
        let Token::Function(name) = token else { return None };
        let name = name.to_ascii_lowercase();
        opacity *= input.parse_nested_block(|input| filter_function(&name, input, units)).ok()?;
    }
    any.then_some(opacity)
}

fn filter_function(name: &str, input: &mut Parser<'_>, units: Units) -> Result<f32, ParseError<()>> {
    let amount = match name {
        _ if input.is_exhausted() => None,
        "drop-shadow" | "url" => {
            drop(rest(input));
            None
        }
        "blur" => Some(length(input, units).ok_or_else(ParseError::<()>::unexpected_token)?),
        "hue-rotate" => Some(quantity(input, units)?.number()),
        "opacity" | "brightness" | "contrast" | "saturate" | "grayscale" | "sepia" | "invert" => {
            Some(number_or_percentage(input, units)?)
        }
        _ => return Err(ParseError::unexpected_token()),
    };
    Ok(filter_factor(name, amount))
}

fn filter_factor(name: &str, amount: Option<f32>) -> f32 {
    let visible = match (name, amount) {
        ("opacity", Some(amount)) => return amount,
        ("opacity" | "drop-shadow" | "grayscale" | "sepia" | "brightness" | "contrast" | "saturate", None) => true,
        ("drop-shadow" | "grayscale" | "sepia", _) => true,
        ("blur", amount) => amount.unwrap_or(0.0) <= 1.0,
        ("brightness" | "saturate", Some(amount)) => (0.7..=1.3).contains(&amount),
        ("contrast", Some(amount)) => (0.6..=2.0).contains(&amount),
        ("hue-rotate" | "invert", amount) => amount.is_some_and(|amount| amount == 0.0),
        _ => false,
    };
    f32::from(u8::from(visible))
}

/// Parses `box-shadow`.
pub(super) fn shadow(input: &mut Parser<'_>, units: Units) -> Option<ComputedValue> {
    let mut shadow = ShadowEffect { inset_colour: None, is_wide: false };
    if input.try_parse(|input| input.expect_ident_matching("none")).is_ok() {
        return Some(ComputedValue::Shadow(shadow));
    }
    let list = input.parse_comma_separated(|input| {
        let (mut inside, mut colour, mut reach) = (false, Colour::BLACK, 0.0_f32);
        let mut lengths = 0;
        while !input.is_exhausted() {
            if input.try_parse(|input| input.expect_ident_matching("inset")).is_ok() {
                inside = true;
            } else if let Ok(parsed) = input.try_parse(|input| Colour::parse(input, Colour::UNKNOWN)) {
                colour = parsed;
            } else {
                let size = length(input, units).ok_or_else(ParseError::<()>::unexpected_token)?;
                lengths += 1;
                reach = if size.is_nan() { f32::MAX } else { reach.max(size.abs()) };
            }
        }
        if lengths < 2 {
            return Err(ParseError::<()>::unexpected_token());
        }
        if inside && reach >= 6.0 {
            shadow.inset_colour = Some(colour);
        }
        shadow.is_wide |= !inside && reach >= 60.0;
        Ok(())
    });
    list.ok().map(|_| ComputedValue::Shadow(shadow))
}

/// Parses `content`. An image replaces the content of an element.
pub(super) fn content(input: &mut Parser<'_>) -> ComputedValue {
    let text = rest(input);
    let image = components(&text).iter().any(|part| {
        part.starts_with("url(") || part.contains("gradient(") || part.contains("image") || part.starts_with("element(")
    });
    ComputedValue::Keyword(match text.as_str() {
        _ if image => "image",
        "normal" | "none" => "none",
        _ => "text",
    })
}
