//! Boxes that clip their overflow, and the space that text takes in them.

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "an uncomputed value is NaN and must count as hidden")]

use std::rc::Rc;

use super::{ElementState, PageState, text::text_colour};
use crate::html::css::{
    colour::Colour,
    number::{VIEWPORT_HEIGHT, VIEWPORT_WIDTH},
    property::Property as P,
    style::ComputedStyle,
    value::ComputedValue,
};

/// Consecutive spaces that push the text after them out of the viewport.
const MAX_BLANKS: usize = 60;

/// Boxes narrower than this cut words that do not fit. In wider ones, such a word is a long link.
const NARROW_PX: f32 = 100.0;

/// A box that clips its overflow, or whose background ends at its edges.
#[derive(Clone, Debug)]
pub(super) struct ClipBox {
    /// For a box that does not clip: the backgrounds around it.
    outer_backgrounds: Option<Rc<[Colour]>>,
    width: Option<f32>,
    pub(super) height: Option<f32>,
    x: f32,
    y: f32,
    /// Height in pixels that the content has used so far.
    pub(super) used_height: f32,
    pub(super) used_width: f32,
}

impl ClipBox {
    fn new(width: Option<f32>, height: Option<f32>) -> Self {
        Self { outer_backgrounds: None, width, height, x: 0.0, y: 0.0, used_height: 0.0, used_width: 0.0 }
    }

    /// Adds the space of a text.
    fn advance(&mut self, extent: &TextExtent) {
        let width = self.width.unwrap_or(VIEWPORT_WIDTH).min(VIEWPORT_WIDTH);
        self.used_width += extent.width;
        if !extent.is_single_line && self.used_width > width {
            self.used_height += (extent.line_count(width) - 1.0).max(1.0) * extent.line_height;
            self.used_width = 0.0;
        }
        self.used_height += extent.line_breaks * extent.line_height;
    }
}

impl ElementState {
    /// Records a clipping box for the element, and adds its space to the clipping boxes around it.
    pub(super) fn apply_clip(&mut self, name: &str, parent: &ComputedStyle) {
        let in_line = |kind: &str| self.style.is(P::Display, kind);
        let inline = in_line("inline") || in_line("atomic") || parent.is(P::Display, "flex");
        let before = self.block_length(P::PaddingTop) + self.block_length(P::MarginTop).max(0.0);
        let line = self.line_height();
        if self.style.is(P::Position, "fixed") {
            self.clips.clear();
        }
        for clip in &mut self.clips {
            if !inline && clip.used_width > 0.0 || name == "br" {
                clip.used_height += line;
                clip.used_width = 0.0;
            }
            clip.used_height += before;
        }
        if !self.is_box() {
            return;
        }
        self.inner_width = self.style.length(P::Width).unwrap_or(self.inner_width);
        let (width, height) = (self.width(), self.height());
        let clip = ClipBox { x: self.x, y: self.y, ..ClipBox::new(width, height) };
        if self.clips_overflow(P::OverflowX) || self.clips_overflow(P::OverflowY) {
            self.clips.push(clip);
        } else if self.is_painted() && (width.is_some() || height.is_some()) {
            self.clips.push(ClipBox { outer_backgrounds: Some(self.outer_backgrounds.as_slice().into()), ..clip });
        }
    }

    /// `html` and `body` clip at the viewport, not at their own size.
    pub(super) fn clip_page(&mut self, page: &mut PageState) {
        if !page.clips_overflow && (self.style.is(P::OverflowX, "hidden") || self.style.is(P::OverflowY, "hidden")) {
            page.clips_overflow = true;
            self.clips.push(ClipBox::new(Some(VIEWPORT_WIDTH), Some(VIEWPORT_HEIGHT)));
            for overflow in [P::OverflowX, P::OverflowY] {
                self.style.set(overflow, ComputedValue::Keyword("visible"));
            }
        }
    }

    /// Whether text does not fit into one of the boxes around it.
    pub(super) fn is_clipped(&mut self, text: &str) -> bool {
        if has_text_behind_spaces(text, &self.style) {
            return true;
        }
        let Some(extent) = TextExtent::of(text, &self.style, self.line_height()) else { return false };
        let mut clips = std::mem::take(&mut self.clips);
        let mut clipped = false;
        for clip in &mut clips {
            let outside = self.is_outside(clip, &extent);
            clipped |= outside
                && clip
                    .outer_backgrounds
                    .as_ref()
                    .is_none_or(|backgrounds| !self.is_readable_on(text_colour(&self.style), backgrounds));
            clip.advance(&extent);
        }
        self.clips = clips;
        clipped
    }

    /// Whether part of a text lies outside a box.
    fn is_outside(&self, clip: &ClipBox, extent: &TextExtent) -> bool {
        let width = clip.width.unwrap_or(VIEWPORT_WIDTH);
        let aligned = !self.style.is(P::TextAlign, "left") && self.inner_width > width * 1.3;
        let shifted = clip.width.is_some() && !((self.x - clip.x).abs() < width - 4.0)
            || clip.height.is_some() && self.y - clip.y <= -20.0;
        let pushed =
            clip.width.is_some() && clip.used_width >= width - 4.0 && (extent.is_single_line || self.in_flex_row);
        let beyond =
            clip.width.is_some() && extent.is_single_line && clip.used_width + extent.width > width * 1.5 + 40.0;
        let below = clip.height.is_some_and(|height| {
            let used = clip.used_height.max(self.y - clip.y) + extent.leading_height;
            used + (extent.line_height - self.style.number(P::FontSize)).max(0.0) / 2.0 >= height - 4.0
                || used + extent.line_count(width) * extent.line_height > height + 1.5 * extent.line_height
        });
        let cut = clip.width.is_some_and(|width| width < NARROW_PX && extent.longest_word > width);
        aligned && clip.width.is_some() || shifted || pushed || beyond || below || cut
    }
}

/// Whether a line has so many spaces that the words after them are out of sight.
fn has_text_behind_spaces(text: &str, style: &ComputedStyle) -> bool {
    let preserved = style.is(P::WhiteSpace, "pre");
    if !preserved && !style.is(P::WhiteSpace, "nowrap") {
        return false;
    }
    let mut blanks = 0;
    text.chars().any(|c| {
        blanks = match c {
            '\u{a0}' => blanks + 1,
            '\t' if preserved => blanks + 8,
            '\n' if preserved => 0,
            c if c.is_whitespace() => blanks + usize::from(preserved),
            _ if blanks > MAX_BLANKS => return true,
            _ => 0,
        };
        false
    })
}

/// The space that a text takes, estimated from its number of characters.
struct TextExtent {
    /// Width in pixels if all the text is on one line.
    width: f32,
    /// Width in pixels of the longest word, which does not wrap.
    longest_word: f32,
    line_height: f32,
    /// Height in pixels of empty lines before the first word.
    leading_height: f32,
    line_breaks: f32,
    is_single_line: bool,
}

impl TextExtent {
    /// Returns `None` for white space that takes no space.
    fn of(text: &str, style: &ComputedStyle, line: f32) -> Option<Self> {
        let font_size = style.number(P::FontSize);
        let preserved = style.is(P::WhiteSpace, "pre");
        let words = text.split_ascii_whitespace().map(|word| word.chars().count() + 1).sum::<usize>();
        if words == 0 && !preserved {
            return None;
        }
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let word = text.split_ascii_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
        let before = &text[..text.len() - text.trim_start().len()];
        let newlines = |text: &str| if preserved { text.matches('\n').count() as f32 } else { 0.0 };
        let count = if preserved { longest } else { words };
        let indent = style.length(P::TextIndent).unwrap_or(0.0).max(0.0);
        Some(Self {
            width: count as f32 * font_size * 0.45 + indent,
            longest_word: word as f32 * font_size * 0.45,
            line_height: line,
            leading_height: newlines(before) * line,
            line_breaks: newlines(text),
            is_single_line: preserved || style.is(P::WhiteSpace, "nowrap"),
        })
    }

    fn line_count(&self, width: f32) -> f32 {
        let wrapped = if self.is_single_line { 1.0 } else { (self.width / width.max(1.0)).ceil().max(1.0) };
        wrapped + self.line_breaks
    }
}
