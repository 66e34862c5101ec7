//! Whether a reader can see and read the text of an element: its size, colour, spacing and place.

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "an uncomputed value is NaN and must count as hidden")]

use std::collections::BTreeSet;

use super::{ElementState, MIN_MOVE_PX};
use crate::html::css::{
    colour::Colour,
    number::{VIEWPORT_HEIGHT, VIEWPORT_WIDTH},
    property::Property as P,
    style::ComputedStyle,
    value::ComputedValue,
    work_budget::WorkBudget,
};

/// Minimum contrast between text and background, from 0 to 255. Text below it counts as unreadable.
const MIN_CONTRAST: f32 = 40.0;
/// Minimum font size in pixels. Smaller text counts as unreadable.
const MIN_FONT_PX: f32 = 4.0;
/// How far text may be moved left or up, because its position in the page is not known.
const MIN_OFFSET_PX: f32 = -60.0;
/// How far down a reader is expected to scroll, in pixels.
const MAX_OFFSET_DOWN_PX: f32 = 3_000.0;

impl ElementState {
    /// Whether text directly in the element is hidden, whatever its position in the element.
    pub(in crate::html) fn hides(&self) -> bool {
        self.is_hidden || self.hides_with(&self.style)
    }

    /// Like `hides`, but with another style for the text.
    pub(in crate::html) fn hides_with(&self, style: &ComputedStyle) -> bool {
        let font_size = style.number(P::FontSize);
        let colour = text_colour(style);
        let indent = style.length(P::TextIndent).unwrap_or(0.0);
        let thick_strike = style.is(P::DecorationLine, "line-through")
            && style.length(P::DecorationThickness).is_some_and(|line| !(line <= font_size * 0.3));
        let letter_gap = style.length(P::LetterSpacing).unwrap_or(0.0);
        let word_gap = style.length(P::WordSpacing).unwrap_or(0.0);
        let (x, y) = (self.x + indent, self.y);
        !style.is(P::Visibility, "visible")
            || !style.is(P::TextSecurity, "none")
            || style.is(P::FontSizeAdjust, "hides")
            || !(font_size * self.scale >= MIN_FONT_PX)
            || self.background_unknown
            || !self.is_readable_on(colour, &self.backgrounds)
            || thick_strike
            || !(letter_gap >= -0.3 * font_size && letter_gap <= 100.0)
            || !(word_gap >= -font_size && word_gap <= 200.0)
            || !(x > MIN_OFFSET_PX && x < VIEWPORT_WIDTH - 20.0)
            || !(y > MIN_OFFSET_PX && y < if self.fixed { VIEWPORT_HEIGHT - 20.0 } else { MAX_OFFSET_DOWN_PX })
    }

    /// Whether the first line or letter is hidden or moved away with this style.
    pub(in crate::html) fn hides_start_with(&self, style: &ComputedStyle) -> bool {
        let colour = style.colour(P::BackgroundColor);
        let backgrounds: Vec<Colour> = self.backgrounds.iter().map(|below| colour.blend_over(*below)).collect();
        let is_moved = [P::MarginLeft, P::MarginTop, P::MarginRight, P::PaddingLeft]
            .iter()
            .any(|side| style.length(*side).is_some_and(|size| !(size > -MIN_MOVE_PX && size < 4.0 * MIN_MOVE_PX)));
        let floats_right = style.is(P::Float, "right") || style.is(P::Float, "inline-end");
        self.hides_with(style)
            || is_moved
            || floats_right
            || !self.is_readable_on(text_colour(style), &backgrounds)
            || !(style.number(P::Opacity) > 0.3)
    }

    /// Whether a text node in the element is hidden. Adds its space to the clipping boxes.
    pub(in crate::html) fn hides_text(&mut self, text: &str, fonts: &BTreeSet<String>, budget: &WorkBudget) -> bool {
        let embedded = matches!(self.style.get(P::FontFamily), ComputedValue::Names(names)
            if !fonts.is_empty() && names.iter().inspect(|_| budget.spend(1)).any(|name| fonts.contains(name)));
        self.hides() || self.replaced || embedded || self.only_shown_child.is_some() || self.is_clipped(text)
    }

    pub(super) fn is_readable_on(&self, text: Colour, backgrounds: &[Colour]) -> bool {
        backgrounds.iter().all(|background| text.contrast(*background) * self.alpha >= MIN_CONTRAST)
    }
}

/// The colour of the text. A thick stroke covers the fill.
pub(super) fn text_colour(style: &ComputedStyle) -> Colour {
    let thick = !(style.number(P::StrokeWidth) <= style.number(P::FontSize) * 0.05);
    style.colour(if thick { P::StrokeColor } else { P::TextFill })
}
