//! Backgrounds behind the text of an element, and the text that its box covers.

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "an uncomputed value is NaN and must count as hidden")]

use super::{CoveredText, ElementState, PageState};
use crate::html::{
    css::{colour::Colour, property::Property as P, style::ComputedStyle, value::ComputedValue},
    tree::{HtmlTree, NodeId, ROOT},
};

/// Maximum number of possible backgrounds that are tracked.
const MAX_BACKGROUNDS: usize = 12;

impl ElementState {
    /// Whether its box has a visible background colour or image.
    pub(super) fn is_painted(&self) -> bool {
        is_painted(&self.style)
    }

    /// Adds the element's background to those behind its text.
    pub(super) fn apply_background(&mut self, parent: &Self, page: &PageState) {
        let style = &self.style;
        let is_inline = style.is(P::Display, "inline");
        self.outer_backgrounds.clone_from(&parent.backgrounds);
        let moved = (self.x - parent.x).abs() + (self.y - parent.y).abs() > 40.0;
        let mut below = parent.backgrounds.clone();
        if self.is_out_of_flow() && moved {
            below.extend_from_slice(&page.backgrounds);
        }
        if !style.is(P::Display, "inline") && parent.style.is(P::Display, "inline") {
            // A block inside an inline element is not painted on the inline element's background.
            below.extend_from_slice(&parent.block_backgrounds);
        }
        if !style.is(P::Float, "none") && !parent.holds_floats || self.is_out_of_flow() {
            below.extend_from_slice(&parent.outer_backgrounds);
        }
        self.holds_floats = style.is(P::Display, "cell")
            || style.is(P::Display, "atomic")
            || style.is(P::OverflowY, "hidden")
            || !style.is(P::Float, "none")
            || self.is_out_of_flow();
        let behind_text = style.is(P::BackgroundClip, "text") || style.is(P::Display, "contents");
        let colour = style.colour(P::BackgroundColor);
        if !behind_text {
            let painted: Vec<Colour> = below.iter().map(|background| colour.blend_over(*background)).collect();
            // Part of the text overflows a box that is smaller than the text, onto the backgrounds below.
            let small =
                self.is_box() && (self.height().is_some_and(|h| h < 16.0) || self.width().is_some_and(|w| w < 30.0));
            let flat = style.length(P::LineHeight).is_some_and(|height| !(height >= 10.0));
            if !(small || flat) {
                below.clear();
                self.background_unknown &= colour.alpha < 0.99;
            }
            below.extend(painted);
            self.add_images(&mut below);
        }
        // Absolutely positioned text may lie on any background.
        self.background_unknown |= self.is_out_of_flow() && !(colour.alpha >= 0.9);
        below.dedup();
        self.background_unknown |= below.len() > MAX_BACKGROUNDS;
        below.truncate(MAX_BACKGROUNDS);
        if !is_inline {
            self.block_backgrounds.clone_from(&below);
        }
        self.backgrounds = below;
    }

    fn add_images(&mut self, below: &mut Vec<Colour>) {
        if let ComputedValue::Image(image) = self.style.get(P::BackgroundImage) {
            self.background_unknown |= image.is_embedded;
            let background = below.first().copied().unwrap_or(Colour::WHITE);
            below.extend(image.colours.iter().map(|colour| colour.blend_over(background)));
        }
        if let ComputedValue::Shadow(shadow) = self.style.get(P::BoxShadow) {
            let background = below.first().copied().unwrap_or(Colour::WHITE);
            below.extend(shadow.inset_colour.map(|colour| colour.blend_over(background)));
        }
    }

    /// Records which other text the element may cover.
    pub(super) fn record_covered_text(&self, name: &str, tree: &HtmlTree, page: &mut PageState) {
        if self.is_hidden || !(self.alpha > 0.3) || self.style.is(P::Visibility, "hidden") {
            return;
        }
        let replaced =
            ["img", "svg", "video", "canvas", "iframe", "object", "embed", "input", "textarea"].contains(&name);
        let wide_shadow = matches!(self.style.get(P::BoxShadow), ComputedValue::Shadow(shadow) if shadow.is_wide);
        if !(replaced || self.is_painted() || wide_shadow) {
            return;
        }
        if self.is_out_of_flow() {
            if (replaced || wide_shadow || self.is_large()) && !self.is_tiny() {
                // The element may extend beyond its containing block.
                page.covers.push(CoveredText { node: ROOT, element: self.id });
            }
            return;
        }
        let style = &self.style;
        let up = [P::MarginTop, P::MarginLeft].iter().any(|margin| style.number(*margin) <= -10.0);
        let shifted = style.is(P::Position, "relative")
            && [P::Top, P::Left, P::Bottom, P::Right].iter().any(|side| style.number(*side).abs() >= 10.0);
        let transform = self.transform();
        let moved =
            self.is_box() && (transform.x.abs() >= 10.0 || transform.y.abs() >= 10.0 || !(transform.scale <= 1.5));
        let above = replaced || style.is(P::Display, "atomic") || self.is_positioned();
        if wide_shadow || moved || shifted || up && above {
            let over = tree.node(self.id).parent.and_then(|parent| tree.node(parent).parent.or(Some(parent)));
            page.covers.push(CoveredText { node: over.unwrap_or(ROOT), element: self.id });
        }
    }

    /// Hides the text of the element if its `::before` or `::after` may cover it.
    pub(in crate::html) fn cover_with_generated(&mut self, style: &ComputedStyle, id: NodeId, page: &mut PageState) {
        let out_of_flow = style.is(P::Position, "absolute") || style.is(P::Position, "fixed");
        let is_shown = style.number(P::Opacity) > 0.3 && !style.is(P::Display, "none");
        if out_of_flow && is_shown && (is_painted(style) || style.is(P::Content, "image")) {
            let positioned = self.is_positioned();
            self.is_hidden |= positioned;
            if !positioned {
                page.covers.push(CoveredText { node: self.origin.id, element: id });
            }
        }
    }
}

fn is_painted(style: &ComputedStyle) -> bool {
    let image = matches!(style.get(P::BackgroundImage), ComputedValue::Image(image)
        if image.is_embedded || !image.colours.is_empty());
    image || !(style.colour(P::BackgroundColor).alpha <= 0.3)
}
