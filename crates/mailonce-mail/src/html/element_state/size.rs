//! Sizes: whether the box of an element leaves room for text.

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "an uncomputed value is NaN and must count as hidden")]

use super::{ElementState, MIN_BOX_PX};
use crate::html::css::{property::Property as P, style::ComputedStyle};

/// Boxes wider than this, or with a larger minimum width, push text out of the viewport.
const MAX_WIDTH_PX: f32 = 1_200.0;

impl ElementState {
    /// Whether the style hides the element and all its descendants, whatever their own styles.
    pub(super) fn hides_subtree(&self, parent: &ComputedStyle) -> bool {
        let style = &self.style;
        style.is_unknown
            || style.is(P::Display, "none")
            || style.is(P::MsoHide, "all")
            || style.is(P::ContentVisibility, "hidden")
            || style.is(P::ClipPath, "hides")
            || style.is(P::Clip, "hides") && self.is_out_of_flow()
            || style.is(P::Mask, "hides")
            || style.is(P::MaskBox, "hides")
            || style.is(P::BlendMode, "hides")
            || style.is(P::Content, "image")
            || style.is(P::OutlineStyle, "solid") && style.number(P::OutlineOffset) <= -4.0
            || self.is_positioned() && style.length(P::ZIndex).is_some_and(|z| !(z >= 0.0))
            || style.is(P::OffsetPath, "hides")
            || style.is(P::ColorScheme, "hides")
            || style.is(P::GridArea, "hides") && parent.is(P::Display, "grid")
            || self.is_outside_viewport()
            || self.is_box() && self.is_collapsed(parent)
    }

    /// Whether sizes or offsets leave no room for text in the viewport.
    fn is_outside_viewport(&self) -> bool {
        let style = &self.style;
        let far = |property: P| style.is(property, "far");
        let large = |property: P, limit: f32| style.length(property).is_some_and(|size| !(size < limit));
        let width = smallest(style.length(P::Width), style.length(P::MaxWidth));
        far(P::GridColumns)
            || far(P::Gap)
            || far(P::BorderLeft)
            || far(P::BorderTop)
            || large(P::MarginRight, 400.0)
            || large(P::MinWidth, MAX_WIDTH_PX)
            || width.is_some_and(|width| !(width < MAX_WIDTH_PX))
            || style.length(P::VerticalAlign).is_some_and(|shift| !(shift.abs() < 40.0))
    }

    /// Whether overflow is clipped in one direction.
    pub(super) fn clips_overflow(&self, overflow: P) -> bool {
        let style = &self.style;
        let contained = style.is(P::Contain, "strict") || style.is(P::Contain, "paint");
        style.is(overflow, "hidden") || contained || style.is(P::ContentVisibility, "auto")
    }

    /// Whether the box has almost no size and clips its content.
    fn is_collapsed(&self, parent: &ComputedStyle) -> bool {
        let style = &self.style;
        let cuts_down = self.clips_overflow(P::OverflowY);
        let cuts_across = self.clips_overflow(P::OverflowX);
        let sized =
            style.is(P::Contain, "strict") || style.is(P::Contain, "size") || style.is(P::ContainerType, "size");
        let free_height = self.height().is_none();
        let thin_lines = style.length(P::LineHeight).is_some_and(|height| !(height >= 3.0));
        let zero_rows =
            style.is(P::GridRows, "zero") || parent.is(P::GridRows, "zero") && parent.is(P::Display, "grid");
        let no_basis = parent.is(P::Display, "flex")
            && style.length(P::FlexBasis).is_some_and(|basis| !(basis >= MIN_BOX_PX))
            && !(style.number(P::FlexGrow) > 0.0);
        cuts_down && self.height().is_some_and(|height| !(height >= MIN_BOX_PX))
            || cuts_across && self.width().is_some_and(|width| !(width >= MIN_BOX_PX))
            || cuts_down && free_height && (thin_lines || sized || zero_rows)
            || (cuts_across || cuts_down) && no_basis
    }

    /// Whether the parent has almost no size and this element clips its content to that size.
    pub(super) fn is_clipped_by_parent(&self, parent: &Self) -> bool {
        let flat = parent.is_box() && parent.height().is_some_and(|height| !(height >= MIN_BOX_PX));
        let across = self.style.length(P::Width).is_none() && !(parent.inner_width >= MIN_BOX_PX);
        let down = self.style.length(P::Height).is_some() && flat;
        self.is_box() && (self.clips_overflow(P::OverflowX) && across || self.clips_overflow(P::OverflowY) && down)
    }

    /// The height that limits visible content. `None` for tables and their parts, which grow with their content.
    pub(super) fn height(&self) -> Option<f32> {
        let style = &self.style;
        if ["table", "table-part", "cell"].iter().any(|kind| style.is(P::Display, kind)) && !self.is_out_of_flow() {
            return None;
        }
        let clamp =
            style.length(P::LineClamp).filter(|_| style.is(P::Display, "flex")).map(|lines| lines * self.line_height());
        let size = smallest(smallest(style.length(P::Height), style.length(P::MaxHeight)), clamp)?;
        let size = at_least(size, style.length(P::MinHeight).unwrap_or(0.0));
        let top = style.length(P::PaddingTop).filter(|_| style.is(P::BoxSizing, "border-box")).unwrap_or(0.0);
        Some(at_least(size - top, 0.0) + style.length(P::PaddingBottom).unwrap_or(0.0))
    }

    pub(super) fn width(&self) -> Option<f32> {
        let style = &self.style;
        let table = ["table", "table-part", "cell"].iter().any(|kind| style.is(P::Display, kind));
        let own_width = style.length(P::Width).filter(|_| !table || self.is_out_of_flow());
        let size = smallest(own_width, style.length(P::MaxWidth))?;
        Some(at_least(size, style.length(P::MinWidth).unwrap_or(0.0)) + style.length(P::PaddingRight).unwrap_or(0.0))
    }

    pub(super) fn is_large(&self) -> bool {
        let style = &self.style;
        let padded = |start: P, end: P| style.length(start).unwrap_or(0.0) + style.length(end).unwrap_or(0.0);
        let spans = |start: P, end: P| style.length(start).is_some() && style.length(end).is_some();
        let size = |size: P, least: P| style.length(size).unwrap_or(0.0).max(style.length(least).unwrap_or(0.0));
        let wide = size(P::Width, P::MinWidth) + padded(P::PaddingLeft, P::PaddingRight);
        let high = size(P::Height, P::MinHeight) + padded(P::PaddingTop, P::PaddingBottom);
        (!(wide < 60.0) || spans(P::Left, P::Right)) || (!(high < 30.0) || spans(P::Top, P::Bottom))
    }

    pub(super) fn is_tiny(&self) -> bool {
        self.style.length(P::Width).is_some_and(|width| width <= MIN_BOX_PX)
            || self.style.length(P::Height).is_some_and(|height| height <= MIN_BOX_PX)
    }

    /// Whether an image at this element cannot be seen.
    pub(in crate::html) fn hides_image(&self) -> bool {
        let small = |size: P, max: P, min: P| {
            let size = smallest(self.style.length(size), self.style.length(max));
            size.is_some_and(|size| !(at_least(size, self.style.length(min).unwrap_or(0.0)) > 2.0))
        };
        let tiny = small(P::Width, P::MaxWidth, P::MinWidth) || small(P::Height, P::MaxHeight, P::MinHeight);
        self.is_hidden || tiny || !(self.alpha > 0.1) || !self.style.is(P::Visibility, "visible")
    }
}

fn smallest(a: Option<f32>, b: Option<f32>) -> Option<f32> {
    match (a, b) {
        (Some(a), Some(b)) if a.is_nan() || b.is_nan() => Some(f32::NAN),
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn at_least(size: f32, min: f32) -> f32 {
    if size.is_nan() { size } else { size.max(min) }
}
