//! The state of an open element: how its style and its ancestors' styles affect the text inside.

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "an uncomputed value is NaN and must count as hidden")]

use std::{collections::BTreeSet, rc::Rc};

use super::{
    css::{
        colour::Colour,
        number::{VIEWPORT_HEIGHT, VIEWPORT_WIDTH},
        property::Property as P,
        selector::WorkBudget,
        style::ComputedStyle,
        transform::Transform,
        value::CssValue,
    },
    tree::{HtmlTree, NodeId, ROOT},
    visibility::Displacement,
};

/// Minimum contrast between text and background, from 0 to 255. Text below it counts as unreadable.
const MIN_CONTRAST: f32 = 40.0;
/// Minimum font size in pixels. Smaller text counts as unreadable.
const MIN_FONT_PX: f32 = 4.0;
/// Minimum size of a box in pixels. Smaller boxes show no text.
const MIN_BOX_PX: f32 = 6.0;
/// Text moved by fewer pixels keeps its place among the surrounding words.
const MIN_MOVE_PX: f32 = 10.0;
/// How far text may be moved left or up, because its position in the page is not known.
const MIN_OFFSET_PX: f32 = -60.0;
/// How far down a reader is expected to scroll, in pixels.
const MAX_OFFSET_DOWN_PX: f32 = 3_000.0;
/// Maximum number of possible backgrounds that are tracked.
const MAX_BACKGROUNDS: usize = 12;
/// Maximum number of nested clipping boxes.
const MAX_CLIPS: usize = 40;
/// Consecutive spaces that push the text after them out of the viewport.
const MAX_BLANKS: usize = 60;
/// Boxes wider than this, or with a larger minimum width, push text out of the viewport.
const MAX_WIDTH_PX: f32 = 1_200.0;

/// Replaced elements: they show something else instead of their content.
const REPLACED_ELEMENTS: &[&str] = &[
    "audio",
    "canvas",
    "iframe",
    "meter",
    "object",
    "progress",
    "select",
    "svg",
    "video",
    "embed",
    "applet",
    "img",
    "input",
    "annotation",
    "annotation-xml",
    "fencedframe",
    "portal",
];

/// Facts about the whole page, collected while elements are visited.
#[derive(Debug)]
pub(super) struct PageState {
    pub(super) body_colour: Colour,
    /// Backgrounds of the page itself.
    backgrounds: Vec<Colour>,
    /// Whether overflow is hidden on the page itself, so that it does not scroll.
    clips_overflow: bool,
    /// Nodes whose text is covered, each with the element that covers it.
    pub(super) covers: Vec<(NodeId, NodeId)>,
}

impl Default for PageState {
    fn default() -> Self {
        Self { body_colour: Colour::BLACK, backgrounds: vec![Colour::WHITE], clips_overflow: false, covers: Vec::new() }
    }
}

/// A box that clips its overflow, or whose background ends at its edges.
#[derive(Clone, Debug)]
struct ClipBox {
    /// For a box that does not clip: the backgrounds around it.
    outer_backgrounds: Option<Rc<[Colour]>>,
    width: Option<f32>,
    height: Option<f32>,
    x: f32,
    y: f32,
    /// Height in pixels that the content has used so far.
    used_height: f32,
    used_width: f32,
}

impl ClipBox {
    fn new(width: Option<f32>, height: Option<f32>) -> Self {
        Self { outer_backgrounds: None, width, height, x: 0.0, y: 0.0, used_height: 0.0, used_width: 0.0 }
    }
}

/// The state of an open element.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact about the element that the others do not imply")]
#[derive(Clone, Debug)]
pub(super) struct ElementState {
    pub(super) style: ComputedStyle,
    id: NodeId,
    /// The whole subtree is hidden. Styles of descendants cannot undo it.
    pub(super) is_hidden: bool,
    /// Product of the opacities of the element and its ancestors.
    alpha: f32,
    scale: f32,
    /// Possible background colours behind its text.
    backgrounds: Vec<Colour>,
    /// Possible background colours behind the element itself.
    outer_backgrounds: Vec<Colour>,
    background_unknown: bool,
    x: f32,
    y: f32,
    /// Whether an ancestor has a transform, so that fixed elements move with it.
    transformed: bool,
    /// Whether the element or an ancestor is fixed, so that it does not scroll.
    fixed: bool,
    /// Position and id of the nearest positioned ancestor.
    origin: (f32, f32, NodeId),
    clips: Vec<ClipBox>,
    /// Width of the box in which its lines are aligned.
    inner_width: f32,
    /// Backgrounds of the nearest ancestor that is not inline.
    block_backgrounds: Vec<Colour>,
    replaced: bool,
    /// Set if children are not shown. Holds the only child that is: the `summary` of a closed `details`.
    only_shown_child: Option<Option<NodeId>>,
    /// Whether the element is inside a flex row, where preceding boxes may push it aside.
    in_flex_row: bool,
    /// Whether its box grows to contain floating descendants.
    holds_floats: bool,
}

impl ElementState {
    /// The state above the root element.
    pub(super) fn root(registered: &[String]) -> Self {
        Self {
            style: ComputedStyle::with_registered(registered),
            id: ROOT,
            is_hidden: false,
            alpha: 1.0,
            scale: 1.0,
            backgrounds: vec![Colour::WHITE],
            outer_backgrounds: vec![Colour::WHITE],
            background_unknown: false,
            x: 0.0,
            y: 0.0,
            transformed: false,
            fixed: false,
            origin: (0.0, 0.0, ROOT),
            clips: Vec::new(),
            inner_width: VIEWPORT_WIDTH,
            block_backgrounds: vec![Colour::WHITE],
            replaced: false,
            only_shown_child: None,
            in_flex_row: false,
            holds_floats: true,
        }
    }

    /// Sets a dark background, as browsers do for a mail that asks only for dark colours.
    pub(super) fn use_dark_canvas(&mut self) {
        let canvas = Colour::from_bytes(18, 18, 18);
        self.backgrounds = vec![canvas];
        self.block_backgrounds = vec![canvas];
    }

    /// Computes the state of an element from its style and its parent's state.
    pub(super) fn enter(
        tree: &HtmlTree,
        id: NodeId,
        style: ComputedStyle,
        parent: &Self,
        page: &mut PageState,
    ) -> Self {
        let name = tree.name(id);
        let mut element = Self { style, id, only_shown_child: only_shown_child(tree, id), ..parent.clone() };
        if matches!(name, "html" | "body") {
            element.clip_page(page);
        }
        element.is_hidden = parent.is_hidden
            || parent.replaced
            || element.hides_subtree(&parent.style)
            || element.is_clipped_by_parent(parent);
        element.is_hidden |=
            parent.only_shown_child.is_some_and(|only| only != Some(id)) || parent.clips.len() > MAX_CLIPS;
        element.replaced =
            REPLACED_ELEMENTS.contains(&name) && (name != "object" || tree.attribute(id, "data").is_some());
        element.in_flex_row |= parent.style.is(P::Display, "flex");
        element.apply_opacity();
        element.apply_position(parent);
        element.apply_background(parent, page);
        element.apply_clip(name, &parent.style);
        match name {
            "body" | "html" => page.backgrounds.clone_from(&element.backgrounds),
            "col" | "colgroup" if element.style.is(P::Visibility, "collapse") || element.is_painted() => {
                let group = tree.node(id).parent;
                let table = group.filter(|group| tree.name(*group) != "colgroup");
                let table = table.or(group.and_then(|group| tree.node(group).parent));
                page.covers.extend(table.map(|table| (table, id)));
            }
            _ => {}
        }
        if name == "body" {
            page.body_colour = element.style.colour(P::Color);
        }
        element.record_covered_text(name, tree, page);
        element
    }

    /// Closes the element and adds the space it took to its parent.
    pub(super) fn leave(self, parent: &mut Self) {
        let after = self.block_length(P::PaddingBottom) + self.block_length(P::MarginBottom);
        let inline = self.style.is(P::Display, "inline") || self.style.is(P::Display, "atomic");
        let in_row = parent.style.is(P::Display, "flex");
        let inline = inline || in_row;
        if (inline || self.replaced) && !parent.style.is(P::WhiteSpace, "normal") {
            parent.x += self.style.length(P::Width).filter(|_| self.is_box() || self.replaced).unwrap_or(0.0);
        }
        let min_height = self.block_length(P::Height).max(self.block_length(P::MinHeight));
        let depth = parent.clips.len();
        let line = self.line_height();
        if self.is_out_of_flow() {
            return;
        }
        // A clipping box takes its own size, not that of its content.
        let own_clip = self.clips.get(depth).map(|clip| clip.height.unwrap_or(clip.used_height + line));
        for (inner, outer) in self.clips.iter().zip(&mut parent.clips) {
            let started = outer.used_height;
            let last_line = if !inline && inner.used_width > 0.0 { line } else { 0.0 };
            let content = inner.used_height - started + last_line + own_clip.unwrap_or(0.0);
            outer.used_height = started + content.max(min_height) + after;
            let item_width = self.style.length(P::Width).or(self.style.length(P::FlexBasis)).unwrap_or(0.0);
            outer.used_width = match () {
                () if in_row => inner.used_width.max(outer.used_width + item_width),
                () if inline => inner.used_width,
                () => 0.0,
            };
        }
    }

    /// Height of a text line in pixels.
    fn line_height(&self) -> f32 {
        self.style.length(P::LineHeight).unwrap_or(self.style.number(P::FontSize) * 1.2)
    }

    fn block_length(&self, property: P) -> f32 {
        let inline = self.style.is(P::Display, "inline");
        self.style.length(property).filter(|size| !inline && size.is_finite()).unwrap_or(0.0)
    }

    fn is_positioned(&self) -> bool {
        !self.style.is(P::Position, "static")
    }

    fn is_out_of_flow(&self) -> bool {
        self.style.is(P::Position, "absolute") || self.style.is(P::Position, "fixed")
    }

    /// Whether sizes, clips and transforms apply to the element.
    fn is_box(&self) -> bool {
        let inline = self.style.is(P::Display, "inline") || self.style.is(P::Display, "contents");
        !inline || self.is_out_of_flow() || !self.style.is(P::Float, "none")
    }

    /// Whether the style hides the element and all its descendants, whatever their own styles.
    fn hides_subtree(&self, parent: &ComputedStyle) -> bool {
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
    fn clips_overflow(&self, overflow: P) -> bool {
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
    fn is_clipped_by_parent(&self, parent: &Self) -> bool {
        let flat = parent.is_box() && parent.height().is_some_and(|height| !(height >= MIN_BOX_PX));
        let across = self.style.length(P::Width).is_none() && !(parent.inner_width >= MIN_BOX_PX);
        let down = self.style.length(P::Height).is_some() && flat;
        self.is_box() && (self.clips_overflow(P::OverflowX) && across || self.clips_overflow(P::OverflowY) && down)
    }

    /// The height that limits visible content. `None` for tables and their parts, which grow with their content.
    fn height(&self) -> Option<f32> {
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

    fn width(&self) -> Option<f32> {
        let style = &self.style;
        let table = ["table", "table-part", "cell"].iter().any(|kind| style.is(P::Display, kind));
        let own_width = style.length(P::Width).filter(|_| !table || self.is_out_of_flow());
        let size = smallest(own_width, style.length(P::MaxWidth))?;
        Some(at_least(size, style.length(P::MinWidth).unwrap_or(0.0)) + style.length(P::PaddingRight).unwrap_or(0.0))
    }

    fn apply_opacity(&mut self) {
        let style = &self.style;
        self.alpha *= clamp_unit(style.number(P::Opacity)) * clamp_unit(style.number(P::Filter));
        self.scale *= style.number(P::Zoom);
        if self.is_box() {
            self.scale *= self.transform().scale;
        }
    }

    fn transform(&self) -> Transform {
        [P::Transform, P::Scale, P::Rotate, P::Translate].iter().fold(Transform::NONE, |sum, property| {
            match self.style.get(*property) {
                CssValue::Transform(transform) => sum.then(*transform),
                _ => sum,
            }
        })
    }

    /// Computes the position of the element, as far as offsets, margins and transforms determine it.
    fn apply_position(&mut self, parent: &Self) {
        let style = &self.style;
        if style.is(P::Position, "absolute") {
            (self.x, self.y) = (parent.origin.0, parent.origin.1);
        } else if style.is(P::Position, "fixed") {
            (self.x, self.y) = if parent.transformed { (parent.origin.0, parent.origin.1) } else { (0.0, 0.0) };
        }
        if self.is_positioned() {
            self.x += style.length(P::Left).or(style.length(P::Right).map(|right| -right)).unwrap_or(0.0);
            self.y += style.length(P::Top).or(style.length(P::Bottom).map(|bottom| -bottom)).unwrap_or(0.0);
        }
        let inline = style.is(P::Display, "inline");
        self.x += style.length(P::MarginLeft).unwrap_or(0.0) + style.length(P::PaddingLeft).unwrap_or(0.0);
        if style.is(P::Float, "right") || self.is_out_of_flow() {
            self.x -= style.length(P::MarginRight).unwrap_or(0.0).min(0.0);
        }
        if !inline {
            self.y += style.length(P::MarginTop).unwrap_or(0.0) + style.length(P::PaddingTop).unwrap_or(0.0);
        }
        if self.is_box() {
            let transform = self.transform();
            (self.x, self.y) = (self.x + transform.x, self.y + transform.y);
        }
        self.transformed |= self.is_box() && self.transform() != Transform::NONE;
        self.fixed |= style.is(P::Position, "fixed");
        if self.is_positioned() || self.is_box() && self.transform() != Transform::NONE {
            self.origin = (self.x, self.y, self.id);
        }
    }

    /// How the element is displaced from its place in the source order.
    pub(super) fn displacement(&self) -> Option<Displacement> {
        let style = &self.style;
        let offset = |side: P| style.length(side).is_some_and(|size| !(size.abs() < MIN_MOVE_PX));
        let transform = self.transform();
        let is_shifted = self.is_out_of_flow()
            || self.is_positioned() && [P::Top, P::Right, P::Bottom, P::Left].into_iter().any(offset)
            || self.is_box() && !(transform.x.abs() < MIN_MOVE_PX && transform.y.abs() < MIN_MOVE_PX)
            || style.number(P::MarginTop) <= -2.0 * MIN_MOVE_PX
            || style.number(P::MarginLeft) <= -4.0 * MIN_MOVE_PX;
        let floats_right = style.is(P::Float, "right") || style.is(P::Float, "inline-end");
        match () {
            () if is_shifted => Some(Displacement::Shifted),
            () if floats_right => Some(Displacement::FloatsRight),
            () => None,
        }
    }

    /// Whether its box has a visible background colour or image.
    fn is_painted(&self) -> bool {
        is_painted(&self.style)
    }

    /// Adds the element's background to those behind its text.
    fn apply_background(&mut self, parent: &Self, page: &PageState) {
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
            let painted: Vec<Colour> = below.iter().map(|background| colour.painted_over(*background)).collect();
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
        if let CssValue::Image(image) = self.style.get(P::BackgroundImage) {
            self.background_unknown |= image.is_embedded;
            let background = below.first().copied().unwrap_or(Colour::WHITE);
            below.extend(image.colours.iter().map(|colour| colour.painted_over(background)));
        }
        if let CssValue::Shadow(shadow) = self.style.get(P::BoxShadow) {
            let background = below.first().copied().unwrap_or(Colour::WHITE);
            below.extend(shadow.inset_colour.map(|colour| colour.painted_over(background)));
        }
    }

    /// Records a clipping box for the element, and adds its space to the clipping boxes around it.
    fn apply_clip(&mut self, name: &str, parent: &ComputedStyle) {
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
    fn clip_page(&mut self, page: &mut PageState) {
        if !page.clips_overflow && (self.style.is(P::OverflowX, "hidden") || self.style.is(P::OverflowY, "hidden")) {
            page.clips_overflow = true;
            self.clips.push(ClipBox::new(Some(VIEWPORT_WIDTH), Some(VIEWPORT_HEIGHT)));
            for overflow in [P::OverflowX, P::OverflowY] {
                self.style.set(overflow, CssValue::Keyword("visible"));
            }
        }
    }

    /// Records which other text the element may cover.
    fn record_covered_text(&self, name: &str, tree: &HtmlTree, page: &mut PageState) {
        if self.is_hidden || !(self.alpha > 0.3) || self.style.is(P::Visibility, "hidden") {
            return;
        }
        let replaced =
            ["img", "svg", "video", "canvas", "iframe", "object", "embed", "input", "textarea"].contains(&name);
        let wide_shadow = matches!(self.style.get(P::BoxShadow), CssValue::Shadow(shadow) if shadow.is_wide);
        if !(replaced || self.is_painted() || wide_shadow) {
            return;
        }
        if self.is_out_of_flow() {
            if (replaced || wide_shadow || self.is_large()) && !self.is_tiny() {
                // The element may extend beyond its containing block.
                page.covers.push((ROOT, self.id));
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
            page.covers.push((over.unwrap_or(ROOT), self.id));
        }
    }

    /// Hides the text of the element if its `::before` or `::after` may cover it.
    pub(super) fn cover_with_generated(&mut self, style: &ComputedStyle, id: NodeId, page: &mut PageState) {
        let out_of_flow = style.is(P::Position, "absolute") || style.is(P::Position, "fixed");
        let is_shown = style.number(P::Opacity) > 0.3 && !style.is(P::Display, "none");
        if out_of_flow && is_shown && (is_painted(style) || style.is(P::Content, "image")) {
            let positioned = self.is_positioned();
            self.is_hidden |= positioned;
            if !positioned {
                page.covers.push((self.origin.2, id));
            }
        }
    }

    fn is_large(&self) -> bool {
        let style = &self.style;
        let padded = |start: P, end: P| style.length(start).unwrap_or(0.0) + style.length(end).unwrap_or(0.0);
        let spans = |start: P, end: P| style.length(start).is_some() && style.length(end).is_some();
        let size = |size: P, least: P| style.length(size).unwrap_or(0.0).max(style.length(least).unwrap_or(0.0));
        let wide = size(P::Width, P::MinWidth) + padded(P::PaddingLeft, P::PaddingRight);
        let high = size(P::Height, P::MinHeight) + padded(P::PaddingTop, P::PaddingBottom);
        (!(wide < 60.0) || spans(P::Left, P::Right)) || (!(high < 30.0) || spans(P::Top, P::Bottom))
    }

    /// Whether an image at this element cannot be seen.
    pub(super) fn hides_image(&self) -> bool {
        let small = |size: P, max: P, min: P| {
            let size = smallest(self.style.length(size), self.style.length(max));
            size.is_some_and(|size| !(at_least(size, self.style.length(min).unwrap_or(0.0)) > 2.0))
        };
        let tiny = small(P::Width, P::MaxWidth, P::MinWidth) || small(P::Height, P::MaxHeight, P::MinHeight);
        self.is_hidden || tiny || !(self.alpha > 0.1) || !self.style.is(P::Visibility, "visible")
    }

    fn is_tiny(&self) -> bool {
        self.style.length(P::Width).is_some_and(|width| width <= MIN_BOX_PX)
            || self.style.length(P::Height).is_some_and(|height| height <= MIN_BOX_PX)
    }

    /// Whether text directly in the element is hidden, whatever its position in the element.
    pub(super) fn hides(&self) -> bool {
        self.is_hidden || self.hides_with(&self.style)
    }

    /// Like `hides`, but with another style for the text.
    pub(super) fn hides_with(&self, style: &ComputedStyle) -> bool {
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
    pub(super) fn hides_start_with(&self, style: &ComputedStyle) -> bool {
        let colour = style.colour(P::BackgroundColor);
        let backgrounds: Vec<Colour> = self.backgrounds.iter().map(|below| colour.painted_over(*below)).collect();
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
    pub(super) fn hides_text(&mut self, text: &str, fonts: &BTreeSet<String>, budget: &WorkBudget) -> bool {
        let embedded = matches!(self.style.get(P::FontFamily), CssValue::Names(names)
            if !fonts.is_empty() && names.iter().inspect(|_| budget.spend(1)).any(|name| fonts.contains(name)));
        self.hides() || self.replaced || embedded || self.only_shown_child.is_some() || self.is_clipped(text)
    }

    fn is_readable_on(&self, text: Colour, backgrounds: &[Colour]) -> bool {
        backgrounds.iter().all(|background| text.contrast(*background) * self.alpha >= MIN_CONTRAST)
    }

    /// Whether text does not fit into one of the boxes around it.
    fn is_clipped(&mut self, text: &str) -> bool {
        if hides_behind_blanks(text, &self.style) {
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
        aligned && clip.width.is_some() || shifted || pushed || beyond || below
    }
}

/// Whether a line has so many spaces that the words after them are out of sight.
fn hides_behind_blanks(text: &str, style: &ComputedStyle) -> bool {
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
        let before = &text[..text.len() - text.trim_start().len()];
        let newlines = |text: &str| if preserved { text.matches('\n').count() as f32 } else { 0.0 };
        let count = if preserved { longest } else { words };
        let indent = style.length(P::TextIndent).unwrap_or(0.0).max(0.0);
        Some(Self {
            width: count as f32 * font_size * 0.45 + indent,
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

impl ClipBox {
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

/// The colour of the text. A thick stroke covers the fill.
fn text_colour(style: &ComputedStyle) -> Colour {
    let thick = !(style.number(P::StrokeWidth) <= style.number(P::FontSize) * 0.05);
    style.colour(if thick { P::StrokeColor } else { P::TextFill })
}

fn is_painted(style: &ComputedStyle) -> bool {
    let image = matches!(style.get(P::BackgroundImage), CssValue::Image(image)
        if image.is_embedded || !image.colours.is_empty());
    image || !(style.colour(P::BackgroundColor).alpha <= 0.3)
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

fn clamp_unit(part: f32) -> f32 {
    if part.is_nan() { part } else { part.clamp(0.0, 1.0) }
}

/// Closed `details` show only their first `summary`. A shadow host shows none of its direct children.
fn only_shown_child(tree: &HtmlTree, id: NodeId) -> Option<Option<NodeId>> {
    if tree.name(id) == "details" && tree.attribute(id, "open").is_none() {
        return Some(tree.children(id).find(|child| tree.name(*child) == "summary"));
    }
    let shadow = |child: NodeId| tree.name(child) == "template" && tree.attribute(child, "shadowrootmode").is_some();
    tree.children(id).any(shadow).then_some(None)
}
