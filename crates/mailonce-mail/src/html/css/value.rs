//! Computed values of the properties that decide whether text is visible.

use std::rc::Rc;

use super::{colour::Colour, number::Units, transform::Transform};

/// A computed value.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::html) enum ComputedValue {
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
    pub(super) fn units(self, percent: f32) -> Units {
        Units { em: self.em, rem: self.rem, percent, quirks: self.quirks, percent_is_number: false }
    }
}
