//! The state of an open element: how its style and its ancestors' styles affect the text inside.
//!
//! | file | contents |
//! |---|---|
//! | `size` | whether a box leaves room for text |
//! | `paint` | backgrounds behind text, and text that a box covers |
//! | `clip` | boxes that clip their overflow |
//! | `text` | whether text can be seen and read |

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "an uncomputed value is NaN and must count as hidden")]

mod clip;
mod paint;
mod size;
mod text;

use super::{
    css::{
        colour::Colour, number::VIEWPORT_WIDTH, property::Property as P, style::ComputedStyle, transform::Transform,
        value::ComputedValue,
    },
    tree::{HtmlTree, NodeId, ROOT},
};
use clip::ClipBox;

/// Minimum size of a box in pixels. Smaller boxes show no text.
const MIN_BOX_PX: f32 = 6.0;
/// Text moved by fewer pixels keeps its place among the surrounding words.
const MIN_MOVE_PX: f32 = 10.0;
/// Maximum number of nested clipping boxes.
const MAX_CLIPS: usize = 40;
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

/// The text that an element covers.
#[derive(Debug)]
pub(super) struct CoveredText {
    /// All text below this node is covered, except inside the element.
    pub(super) node: NodeId,
    pub(super) element: NodeId,
}

/// Facts about the whole page, collected while elements are visited.
#[derive(Debug)]
pub(super) struct PageState {
    pub(super) body_colour: Colour,
    /// Backgrounds of the page itself.
    backgrounds: Vec<Colour>,
    /// Whether overflow is hidden on the page itself, so that it does not scroll.
    clips_overflow: bool,
    /// Text that is covered.
    pub(super) covers: Vec<CoveredText>,
}

impl Default for PageState {
    fn default() -> Self {
        Self { body_colour: Colour::BLACK, backgrounds: vec![Colour::WHITE], clips_overflow: false, covers: Vec::new() }
    }
}

/// How an element is displaced from its place in the source order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Displacement {
    FloatsRight,
    /// Moved by an offset, a margin or a transform.
    Shifted,
}

/// A positioned element, to which the offsets of its descendants are relative.
#[derive(Clone, Copy, Debug)]
struct Origin {
    x: f32,
    y: f32,
    id: NodeId,
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
    /// The nearest positioned ancestor.
    origin: Origin,
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
            origin: Origin { x: 0.0, y: 0.0, id: ROOT },
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
                page.covers.extend(table.map(|node| CoveredText { node, element: id }));
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
                ComputedValue::Transform(transform) => sum.then(*transform),
                _ => sum,
            }
        })
    }

    /// Computes the position of the element, as far as offsets, margins and transforms determine it.
    fn apply_position(&mut self, parent: &Self) {
        let style = &self.style;
        if style.is(P::Position, "absolute") {
            (self.x, self.y) = (parent.origin.x, parent.origin.y);
        } else if style.is(P::Position, "fixed") {
            (self.x, self.y) = if parent.transformed { (parent.origin.x, parent.origin.y) } else { (0.0, 0.0) };
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
            self.origin = Origin { x: self.x, y: self.y, id: self.id };
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
            || style.number(P::MarginLeft) <= -4.0 * MIN_MOVE_PX
            || style.number(P::MarginRight) <= -4.0 * MIN_MOVE_PX;
        let floats_right = style.is(P::Float, "right") || style.is(P::Float, "inline-end");
        match () {
            () if is_shifted => Some(Displacement::Shifted),
            () if floats_right => Some(Displacement::FloatsRight),
            () => None,
        }
    }
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
