//! The styles that hide: inline declarations, and the plain rules of `style` elements.
//!
//! Rules inside `@media` and the like are left alone: they hide for one screen what another shows.

/// What of a style decides whether its text is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) hides: bool,
    /// Whether its letters are too small to read. Children often take larger ones.
    pub(super) tiny: Option<bool>,
    pub(super) colour: Option<Colour>,
    pub(super) ground: Option<Colour>,
}

/// Red, green, blue; or seen through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    Rgb(u8, u8, u8),
    Clear,
}

impl Colour {
    pub(super) const WHITE: Self = Self::Rgb(255, 255, 255);

    /// Whether nobody could read one on the other.
    pub(super) fn melts_into(self, ground: Self) -> bool {
        match (self, ground) {
            (Self::Clear, _) => true,
            (Self::Rgb(red, green, blue), Self::Rgb(r, g, b)) => {
                red.abs_diff(r) <= 8 && green.abs_diff(g) <= 8 && blue.abs_diff(b) <= 8
            }
            (Self::Rgb(..), Self::Clear) => false,
        }
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        if let Some(hex) = text.strip_prefix('#') {
            return Self::hex(hex);
        }
        if let Some(inner) = text.strip_prefix("rgba(").or_else(|| text.strip_prefix("rgb(")) {
            let parts: Vec<f32> = inner
                .trim_end_matches(')')
                .split([',', ' ', '/'])
                .filter_map(|part| part.trim().parse().ok())
                .collect();
            if parts.get(3).is_some_and(|alpha| *alpha < 0.05) {
                return Some(Self::Clear);
            }
            let part = |n: usize| parts.get(n).map(|value| value.clamp(0.0, 255.0) as u8);
            return Some(Self::Rgb(part(0)?, part(1)?, part(2)?));
        }
        match text.as_str() {
            "white" => Some(Self::WHITE),
            "black" => Some(Self::Rgb(0, 0, 0)),
            "transparent" => Some(Self::Clear),
            "red" => Some(Self::Rgb(255, 0, 0)),
            "yellow" => Some(Self::Rgb(255, 255, 0)),
            "silver" => Some(Self::Rgb(192, 192, 192)),
            "gray" | "grey" => Some(Self::Rgb(128, 128, 128)),
            "whitesmoke" => Some(Self::Rgb(245, 245, 245)),
            "snow" => Some(Self::Rgb(255, 250, 250)),
            _ => Self::hex(&text),
        }
    }

    fn hex(hex: &str) -> Option<Self> {
        if !hex.is_ascii() {
            return None;
        }
        let digit = |n: usize| u8::from_str_radix(hex.get(n..=n)?, 16).ok().map(|value| value * 17);
        let byte = |n: usize| u8::from_str_radix(hex.get(n..n + 2)?, 16).ok();
        match hex.len() {
            3 => Some(Self::Rgb(digit(0)?, digit(1)?, digit(2)?)),
            6 => Some(Self::Rgb(byte(0)?, byte(2)?, byte(4)?)),
            _ => None,
        }
    }
}

/// Reads declarations (`color: red; display: none`).
pub(super) fn look(declarations: &str) -> Look {
    let mut look = Look::default();
    let (mut clipped, mut flat, mut placed, mut away) = (false, false, false, false);
    for declaration in declarations.split(';').take(200) {
        let Some((name, value)) = declaration.split_once(':') else { continue };
        let name = name.trim().to_ascii_lowercase();
        let value = value.trim().to_ascii_lowercase();
        let value = value.trim_end_matches("!important").trim();
        match name.as_str() {
            "display" => look.hides |= value == "none",
            "visibility" => look.hides |= value == "hidden" || value == "collapse",
            "mso-hide" => look.hides |= value == "all",
            "opacity" => look.hides |= value.trim_end_matches('%').parse::<f32>().is_ok_and(|n| n < 0.05),
            "font-size" => look.tiny = Some(tiny(value)),
            "font" => {
                let size =
                    value.split([' ', '/']).find(|word| word.starts_with(|c: char| c.is_ascii_digit() || c == '.'));
                look.tiny = size.map(tiny).or(look.tiny);
            }
            "clip" => look.hides |= value.starts_with("rect(0") || value.starts_with("rect(1px"),
            "clip-path" => {
                look.hides |= value.starts_with("inset(50%") || value.starts_with("inset(100%") || value == "circle(0)"
            }
            "transform" => look.hides |= value.contains("scale(0)") || value.contains("translate(-9"),
            "text-indent" | "margin-left" => look.hides |= length(value).is_some_and(|n| n <= -400.0),
            "overflow" => clipped |= value == "hidden",
            "height" | "max-height" | "width" | "max-width" => flat |= length(value).is_some_and(|n| n <= 1.0),
            "position" => placed |= value == "absolute" || value == "fixed" || value == "relative",
            "left" | "top" | "right" => away |= length(value).is_some_and(|n| n <= -400.0),
            "color" => look.colour = Colour::read(value).or(look.colour),
            "background-color" => look.ground = Colour::read(value).or(look.ground),
            "background" => look.ground = value.split(' ').find_map(Colour::read).or(look.ground),
            _ => {}
        }
    }
    look.hides |= clipped && flat || placed && away;
    look
}

/// Letters too small to read.
fn tiny(value: &str) -> bool {
    let number = length(value);
    if value.ends_with("em") || value.ends_with('%') {
        return number.is_some_and(|n| n <= if value.ends_with('%') { 5.0 } else { 0.1 });
    }
    number.is_some_and(|n| n <= 2.0)
}

/// A length without its unit.
fn length(value: &str) -> Option<f32> {
    let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%').trim();
    number.parse().ok()
}

/// Selectors of one class, one id or one element, and what they do.
#[derive(Debug, Default)]
pub(super) struct Sheet(Vec<(String, Look)>);

impl Sheet {
    /// Adds the rules of a `style` element that hide or colour.
    pub(super) fn read(&mut self, css: &str) {
        let mut rest = css;
        while let Some((head, behind)) = rest.split_once('{') {
            let head = head.rsplit_once("*/").map_or(head, |(_, head)| head).trim();
            let head = head.rsplit_once(';').map_or(head, |(_, head)| head).trim();
            let Some((body, behind)) = block(behind) else { return };
            rest = behind;
            let look = look(body);
            if head.starts_with('@') || look == Look::default() || self.0.len() >= 200 {
                continue;
            }
            for selector in head.split(',').take(20) {
                let selector = selector.trim().to_ascii_lowercase();
                if !selector.is_empty() && !selector.contains([' ', '>', '+', '~', ':', '[', '*']) {
                    self.0.push((selector, look));
                }
            }
        }
    }

    /// What the rules say about an element.
    pub(super) fn of(&self, element: &str, classes: &str, id: &str) -> Look {
        let mut sum = Look::default();
        for (selector, look) in &self.0 {
            let (tag, class) = selector.split_once('.').unwrap_or((selector, ""));
            let (tag, own) = tag.split_once('#').unwrap_or((tag, ""));
            let fits = (tag.is_empty() || tag == element)
                && (class.is_empty()
                    || classes.split_ascii_whitespace().take(20).any(|word| word.eq_ignore_ascii_case(class)))
                && (own.is_empty() || id.eq_ignore_ascii_case(own));
            if fits {
                sum.hides |= look.hides;
                sum.tiny = look.tiny.or(sum.tiny);
                sum.colour = look.colour.or(sum.colour);
                sum.ground = look.ground.or(sum.ground);
            }
        }
        sum
    }
}

/// Up to the brace that closes, and what follows.
fn block(text: &str) -> Option<(&str, &str)> {
    let mut depth = 1;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&text[..at], &text[at + 1..]));
        }
    }
    None
}
