//! An open element: what its style and those around it do to the text inside.

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "a value that is not computed is NaN, and must hide")]

use std::rc::Rc;

use super::{
    css::{
        colour::Colour,
        number::{VIEWPORT_HEIGHT, VIEWPORT_WIDTH},
        property::Property as P,
        style::Style,
        transform::Transform,
        value::Value,
    },
    tree::{NodeId, ROOT, Tree},
};

/// Differences of colour, from 0 to 255, below which nobody reads.
const CONTRAST: f32 = 40.0;
/// Letters of fewer pixels cannot be read.
const LETTERS: f32 = 4.0;
/// Boxes of fewer pixels show no text.
const SLIT: f32 = 6.0;
/// How far to the left or up text may be moved. Its place in the page is not known.
const AWAY: f32 = -60.0;
/// How far down a reader scrolls.
const BELOW: f32 = 3_000.0;
/// How many backgrounds are told apart.
const GROUNDS: usize = 12;
/// How many boxes that clip may stand in each other.
const CLIPS: usize = 40;
/// Blanks in a row that push what follows out of the window.
const BLANKS: usize = 60;
/// Boxes that are wider than this, or have wider margins, push text out of the window.
const WIDE: f32 = 1_200.0;

/// Elements that show something else in the place of what they hold.
const REPLACED: &[&str] = &[
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

/// What elements on the way found out about the page.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) body_colour: Colour,
    /// Backgrounds of the page itself.
    grounds: Vec<Colour>,
    /// Whether the page does not scroll.
    clips: bool,
    /// Nodes whose text is covered, and by what.
    pub(super) covers: Vec<(NodeId, NodeId)>,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self { body_colour: Colour::BLACK, grounds: vec![Colour::WHITE], clips: false, covers: Vec::new() }
    }
}

/// A box that cuts off what does not fit, or whose background ends where it ends.
#[derive(Clone, Debug)]
struct Clip {
    /// For a box that cuts off nothing: the colours around it.
    grounds: Option<Rc<[Colour]>>,
    width: Option<f32>,
    height: Option<f32>,
    x: f32,
    y: f32,
    /// Pixels that content takes so far.
    used: f32,
    used_across: f32,
}

impl Clip {
    fn new(width: Option<f32>, height: Option<f32>) -> Self {
        Self { grounds: None, width, height, x: 0.0, y: 0.0, used: 0.0, used_across: 0.0 }
    }
}

/// An open element.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact about the element that the others do not imply")]
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) style: Style,
    id: NodeId,
    /// Hides for good, whatever the elements inside say.
    pub(super) gone: bool,
    /// Opacity of all elements around.
    alpha: f32,
    scale: f32,
    /// Colours that may lie behind text.
    grounds: Vec<Colour>,
    /// Those behind the element itself.
    outer_grounds: Vec<Colour>,
    ground_unknown: bool,
    x: f32,
    y: f32,
    /// Whether a transform around makes fixed elements move along.
    transformed: bool,
    /// Whether it does not scroll.
    fixed: bool,
    /// Where the nearest positioned element stands, and which one it is.
    origin: (f32, f32, NodeId),
    clips: Vec<Clip>,
    /// Width of the box that lines are aligned in.
    inner_width: f32,
    /// Backgrounds of the nearest element that is not inline.
    block_grounds: Vec<Colour>,
    replaced: bool,
    /// Set where children are not shown, with the one that is: the `summary` of a closed `details`.
    only: Option<Option<NodeId>>,
    /// Whether boxes before it in a flexible row may push it aside.
    in_row: bool,
    /// Whether its box grows with floating elements inside.
    holds_floats: bool,
}

impl Frame {
    /// What is around the root element.
    pub(super) fn outermost(registered: &[String]) -> Self {
        Self {
            style: Style::with_registered(registered),
            id: ROOT,
            gone: false,
            alpha: 1.0,
            scale: 1.0,
            grounds: vec![Colour::WHITE],
            outer_grounds: vec![Colour::WHITE],
            ground_unknown: false,
            x: 0.0,
            y: 0.0,
            transformed: false,
            fixed: false,
            origin: (0.0, 0.0, ROOT),
            clips: Vec::new(),
            inner_width: VIEWPORT_WIDTH,
            block_grounds: vec![Colour::WHITE],
            replaced: false,
            only: None,
            in_row: false,
            holds_floats: true,
        }
    }

    /// Makes the page dark, as browsers do where a mail asks for dark colours alone.
    pub(super) fn darken(&mut self) {
        let canvas = Colour::from_bytes(18, 18, 18);
        self.grounds = vec![canvas];
        self.block_grounds = vec![canvas];
    }

    /// Opens an element.
    pub(super) fn enter(tree: &Tree, id: NodeId, style: Style, parent: &Self, page: &mut Surroundings) -> Self {
        let name = tree.name(id);
        let mut frame = Self { style, id, only: only_child(tree, id), ..parent.clone() };
        if matches!(name, "html" | "body") {
            frame.clip_page(page);
        }
        frame.gone = parent.gone || parent.replaced || frame.hides_for_good(&parent.style) || frame.is_in_slit(parent);
        frame.gone |= parent.only.is_some_and(|only| only != Some(id)) || parent.clips.len() > CLIPS;
        frame.replaced = REPLACED.contains(&name) && (name != "object" || tree.attribute(id, "data").is_some());
        frame.in_row |= parent.style.is(P::Display, "flex");
        frame.fade();
        frame.move_box(parent);
        frame.paint(parent, page);
        frame.clip(name, &parent.style);
        match name {
            "body" | "html" => page.grounds.clone_from(&frame.grounds),
            "col" | "colgroup" if frame.style.is(P::Visibility, "collapse") || frame.is_painted() => {
                let group = tree.node(id).parent;
                let table = group.filter(|group| tree.name(*group) != "colgroup");
                let table = table.or(group.and_then(|group| tree.node(group).parent));
                page.covers.extend(table.map(|table| (table, id)));
            }
            _ => {}
        }
        if name == "body" {
            page.body_colour = frame.style.colour(P::Color);
        }
        frame.cover(name, tree, page);
        frame
    }

    /// Closes the element and gives its place to the one around it.
    pub(super) fn leave(self, parent: &mut Self) {
        let after = self.vertical(P::PaddingBottom) + self.vertical(P::MarginBottom);
        let inline = self.style.is(P::Display, "inline") || self.style.is(P::Display, "atomic");
        let in_row = parent.style.is(P::Display, "flex");
        let inline = inline || in_row;
        if (inline || self.replaced) && !parent.style.is(P::WhiteSpace, "normal") {
            parent.x += self.style.length(P::Width).filter(|_| self.is_box() || self.replaced).unwrap_or(0.0);
        }
        let least = self.vertical(P::Height).max(self.vertical(P::MinHeight));
        let depth = parent.clips.len();
        let line = self.line();
        if self.is_taken_out() {
            return;
        }
        // A box that clips takes its own size, not that of its content.
        let own_clip = self.clips.get(depth).map(|clip| clip.height.unwrap_or(clip.used + line));
        for (own, outer) in self.clips.iter().zip(&mut parent.clips) {
            let started = outer.used;
            let last_line = if !inline && own.used_across > 0.0 { line } else { 0.0 };
            let content = own.used - started + last_line + own_clip.unwrap_or(0.0);
            outer.used = started + content.max(least) + after;
            let taken = self.style.length(P::Width).or(self.style.length(P::FlexBasis)).unwrap_or(0.0);
            outer.used_across = match () {
                () if in_row => own.used_across.max(outer.used_across + taken),
                () if inline => own.used_across,
                () => 0.0,
            };
        }
    }

    /// Pixels of a line of its text.
    fn line(&self) -> f32 {
        self.style.length(P::LineHeight).unwrap_or(self.style.number(P::FontSize) * 1.2)
    }

    fn vertical(&self, property: P) -> f32 {
        let inline = self.style.is(P::Display, "inline");
        self.style.length(property).filter(|size| !inline && size.is_finite()).unwrap_or(0.0)
    }

    fn is_positioned(&self) -> bool {
        !self.style.is(P::Position, "static")
    }

    fn is_taken_out(&self) -> bool {
        self.style.is(P::Position, "absolute") || self.style.is(P::Position, "fixed")
    }

    /// Whether sizes, clips and transforms have an effect.
    fn is_box(&self) -> bool {
        let inline = self.style.is(P::Display, "inline") || self.style.is(P::Display, "contents");
        !inline || self.is_taken_out() || !self.style.is(P::Float, "none")
    }

    /// Styles that no style of an element inside can undo.
    fn hides_for_good(&self, parent: &Style) -> bool {
        let style = &self.style;
        style.unknown
            || style.is(P::Display, "none")
            || style.is(P::MsoHide, "all")
            || style.is(P::ContentVisibility, "hidden")
            || style.is(P::ClipPath, "hides")
            || style.is(P::Clip, "hides") && self.is_taken_out()
            || style.is(P::Mask, "hides")
            || style.is(P::MaskBox, "hides")
            || style.is(P::BlendMode, "hides")
            || style.is(P::Content, "image")
            || style.is(P::OutlineStyle, "solid") && style.number(P::OutlineOffset) <= -4.0
            || self.is_positioned() && style.length(P::ZIndex).is_some_and(|z| !(z >= 0.0))
            || style.is(P::OffsetPath, "hides")
            || style.is(P::ColorScheme, "hides")
            || style.is(P::GridArea, "hides") && parent.is(P::Display, "grid")
            || self.is_pushed_out()
            || self.is_box() && self.is_squeezed(parent)
    }

    /// Sizes that leave no place for text in the window.
    fn is_pushed_out(&self) -> bool {
        let style = &self.style;
        let far = |property: P| style.is(property, "far");
        let large = |property: P, limit: f32| style.length(property).is_some_and(|size| !(size < limit));
        let width = smallest(style.length(P::Width), style.length(P::MaxWidth));
        far(P::GridColumns)
            || far(P::Gap)
            || far(P::BorderLeft)
            || far(P::BorderTop)
            || large(P::MarginRight, 400.0)
            || large(P::MinWidth, WIDE)
            || width.is_some_and(|width| !(width < WIDE))
            || style.length(P::VerticalAlign).is_some_and(|shift| !(shift.abs() < 40.0))
    }

    /// Whether what does not fit is cut off in one direction.
    fn cuts(&self, overflow: P) -> bool {
        let style = &self.style;
        let contained = style.is(P::Contain, "strict") || style.is(P::Contain, "paint");
        style.is(overflow, "hidden") || contained || style.is(P::ContentVisibility, "auto")
    }

    /// Boxes without a size whose content is cut off.
    fn is_squeezed(&self, parent: &Style) -> bool {
        let style = &self.style;
        let cuts_down = self.cuts(P::OverflowY);
        let cuts_across = self.cuts(P::OverflowX);
        let sized =
            style.is(P::Contain, "strict") || style.is(P::Contain, "size") || style.is(P::ContainerType, "size");
        let free_height = self.height().is_none();
        let thin_lines = style.length(P::LineHeight).is_some_and(|height| !(height >= 3.0));
        let zero_rows =
            style.is(P::GridRows, "zero") || parent.is(P::GridRows, "zero") && parent.is(P::Display, "grid");
        let no_basis = parent.is(P::Display, "flex")
            && style.length(P::FlexBasis).is_some_and(|basis| !(basis >= SLIT))
            && !(style.number(P::FlexGrow) > 0.0);
        cuts_down && self.height().is_some_and(|height| !(height >= SLIT))
            || cuts_across && self.width().is_some_and(|width| !(width >= SLIT))
            || cuts_down && free_height && (thin_lines || sized || zero_rows)
            || (cuts_across || cuts_down) && no_basis
    }

    /// Whether its content is cut off at the size of an element around that has none.
    fn is_in_slit(&self, parent: &Self) -> bool {
        let flat = parent.is_box() && parent.height().is_some_and(|height| !(height >= SLIT));
        let across = self.style.length(P::Width).is_none() && !(parent.inner_width >= SLIT);
        let down = self.style.length(P::Height).is_some() && flat;
        self.is_box() && (self.cuts(P::OverflowX) && across || self.cuts(P::OverflowY) && down)
    }

    /// The height that limits what is seen: tables and their parts grow with their content.
    fn height(&self) -> Option<f32> {
        let style = &self.style;
        if ["table", "table-part", "cell"].iter().any(|kind| style.is(P::Display, kind)) && !self.is_taken_out() {
            return None;
        }
        let clamp =
            style.length(P::LineClamp).filter(|_| style.is(P::Display, "flex")).map(|lines| lines * self.line());
        let size = smallest(smallest(style.length(P::Height), style.length(P::MaxHeight)), clamp)?;
        let size = at_least(size, style.length(P::MinHeight).unwrap_or(0.0));
        let top = style.length(P::PaddingTop).filter(|_| style.is(P::BoxSizing, "border-box")).unwrap_or(0.0);
        Some(at_least(size - top, 0.0) + style.length(P::PaddingBottom).unwrap_or(0.0))
    }

    fn width(&self) -> Option<f32> {
        let style = &self.style;
        let table = ["table", "table-part", "cell"].iter().any(|kind| style.is(P::Display, kind));
        let own = style.length(P::Width).filter(|_| !table || self.is_taken_out());
        let size = smallest(own, style.length(P::MaxWidth))?;
        Some(at_least(size, style.length(P::MinWidth).unwrap_or(0.0)) + style.length(P::PaddingRight).unwrap_or(0.0))
    }

    fn fade(&mut self) {
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
                Value::Transform(transform) => sum.then(*transform),
                _ => sum,
            }
        })
    }

    /// Where the element stands, as far as offsets and margins tell.
    fn move_box(&mut self, parent: &Self) {
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
        if style.is(P::Float, "right") || self.is_taken_out() {
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

    /// Whether its box has a colour or an image.
    fn is_painted(&self) -> bool {
        is_painted(&self.style)
    }

    /// Adds the element's background to what lies behind its text.
    fn paint(&mut self, parent: &Self, page: &Surroundings) {
        let style = &self.style;
        let is_inline = style.is(P::Display, "inline");
        self.outer_grounds.clone_from(&parent.grounds);
        let moved = (self.x - parent.x).abs() + (self.y - parent.y).abs() > 40.0;
        let mut below = parent.grounds.clone();
        if self.is_taken_out() && moved {
            below.extend_from_slice(&page.grounds);
        }
        if !style.is(P::Display, "inline") && parent.style.is(P::Display, "inline") {
            // The background of an inline element is not painted behind blocks in it.
            below.extend_from_slice(&parent.block_grounds);
        }
        if !style.is(P::Float, "none") && !parent.holds_floats || self.is_taken_out() {
            below.extend_from_slice(&parent.outer_grounds);
        }
        self.holds_floats = style.is(P::Display, "cell")
            || style.is(P::Display, "atomic")
            || style.is(P::OverflowY, "hidden")
            || !style.is(P::Float, "none")
            || self.is_taken_out();
        let behind_text = style.is(P::BackgroundClip, "text") || style.is(P::Display, "contents");
        let colour = style.colour(P::BackgroundColor);
        if !behind_text {
            let painted: Vec<Colour> = below.iter().map(|ground| colour.over(*ground)).collect();
            // A box that is smaller than its text leaves part of it on what is below.
            let small =
                self.is_box() && (self.height().is_some_and(|h| h < 16.0) || self.width().is_some_and(|w| w < 30.0));
            let flat = style.length(P::LineHeight).is_some_and(|height| !(height >= 10.0));
            if !(small || flat) {
                below.clear();
                self.ground_unknown &= colour.alpha < 0.99;
            }
            below.extend(painted);
            self.add_images(&mut below);
        }
        // Text that is placed by itself may stand on anything.
        self.ground_unknown |= self.is_taken_out() && !(colour.alpha >= 0.9);
        below.dedup();
        self.ground_unknown |= below.len() > GROUNDS;
        below.truncate(GROUNDS);
        if !is_inline {
            self.block_grounds.clone_from(&below);
        }
        self.grounds = below;
    }

    fn add_images(&mut self, below: &mut Vec<Colour>) {
        if let Value::Image(image) = self.style.get(P::BackgroundImage) {
            self.ground_unknown |= image.embedded;
            let ground = below.first().copied().unwrap_or(Colour::WHITE);
            below.extend(image.colours.iter().map(|colour| colour.over(ground)));
        }
        if let Value::Shadow(shadow) = self.style.get(P::BoxShadow) {
            let ground = below.first().copied().unwrap_or(Colour::WHITE);
            below.extend(shadow.inside.map(|colour| colour.over(ground)));
        }
    }

    /// Notes that the element cuts off what does not fit, and takes its place in boxes that do so around it.
    fn clip(&mut self, name: &str, parent: &Style) {
        let in_line = |kind: &str| self.style.is(P::Display, kind);
        let inline = in_line("inline") || in_line("atomic") || parent.is(P::Display, "flex");
        let before = self.vertical(P::PaddingTop) + self.vertical(P::MarginTop).max(0.0);
        let line = self.line();
        if self.style.is(P::Position, "fixed") {
            self.clips.clear();
        }
        for clip in &mut self.clips {
            if !inline && clip.used_across > 0.0 || name == "br" {
                clip.used += line;
                clip.used_across = 0.0;
            }
            clip.used += before;
        }
        if !self.is_box() {
            return;
        }
        self.inner_width = self.style.length(P::Width).unwrap_or(self.inner_width);
        let (width, height) = (self.width(), self.height());
        let clip = Clip { x: self.x, y: self.y, ..Clip::new(width, height) };
        if self.cuts(P::OverflowX) || self.cuts(P::OverflowY) {
            self.clips.push(clip);
        } else if self.is_painted() && (width.is_some() || height.is_some()) {
            self.clips.push(Clip { grounds: Some(self.outer_grounds.as_slice().into()), ..clip });
        }
    }

    /// Boxes of the page itself cut off at the window, not at their own size.
    fn clip_page(&mut self, page: &mut Surroundings) {
        if !page.clips && (self.style.is(P::OverflowX, "hidden") || self.style.is(P::OverflowY, "hidden")) {
            page.clips = true;
            self.clips.push(Clip::new(Some(VIEWPORT_WIDTH), Some(VIEWPORT_HEIGHT)));
            for overflow in [P::OverflowX, P::OverflowY] {
                self.style.set(overflow, Value::Keyword("visible"));
            }
        }
    }

    /// Hides text elsewhere that the element may cover.
    fn cover(&self, name: &str, tree: &Tree, page: &mut Surroundings) {
        if self.gone || !(self.alpha > 0.3) || self.style.is(P::Visibility, "hidden") {
            return;
        }
        let replaced =
            ["img", "svg", "video", "canvas", "iframe", "object", "embed", "input", "textarea"].contains(&name);
        let wide_shadow = matches!(self.style.get(P::BoxShadow), Value::Shadow(shadow) if shadow.wide);
        if !(replaced || self.is_painted() || wide_shadow) {
            return;
        }
        if self.is_taken_out() {
            if (replaced || wide_shadow || self.is_large()) && !self.is_tiny() {
                // It may reach beyond the element that it is placed in.
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

    /// Hides the text of the element if something generated may cover it.
    pub(super) fn cover_by(&mut self, style: &Style, id: NodeId, page: &mut Surroundings) {
        let out = style.is(P::Position, "absolute") || style.is(P::Position, "fixed");
        let shown = style.number(P::Opacity) > 0.3 && !style.is(P::Display, "none");
        if out && shown && (is_painted(style) || style.is(P::Content, "image")) {
            let positioned = self.is_positioned();
            self.gone |= positioned;
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

    /// Whether an image in the place of the element cannot be seen.
    pub(super) fn hides_image(&self) -> bool {
        let small = |size: P| self.style.length(size).is_some_and(|size| !(size > 2.0));
        let tiny = [P::Width, P::Height, P::MaxWidth, P::MaxHeight].into_iter().any(small);
        self.gone || tiny || !(self.alpha > 0.1) || !self.style.is(P::Visibility, "visible")
    }

    fn is_tiny(&self) -> bool {
        self.style.length(P::Width).is_some_and(|width| width <= SLIT)
            || self.style.length(P::Height).is_some_and(|height| height <= SLIT)
    }

    /// Whether text directly in the element is hidden, wherever in the element it stands.
    pub(super) fn hides(&self) -> bool {
        self.gone || self.hides_with(&self.style)
    }

    /// The same for another style of the text.
    pub(super) fn hides_with(&self, style: &Style) -> bool {
        let letters = style.number(P::FontSize);
        let ink = ink(style);
        let indent = style.length(P::TextIndent).unwrap_or(0.0);
        let thick = style.is(P::DecorationLine, "line-through")
            && style.length(P::DecorationThickness).is_some_and(|line| !(line <= letters * 0.3));
        let letter_gap = style.length(P::LetterSpacing).unwrap_or(0.0);
        let word_gap = style.length(P::WordSpacing).unwrap_or(0.0);
        let (x, y) = (self.x + indent, self.y);
        !style.is(P::Visibility, "visible")
            || !style.is(P::TextSecurity, "none")
            || style.is(P::FontSizeAdjust, "hides")
            || !(letters * self.scale >= LETTERS)
            || self.ground_unknown
            || !self.is_readable_on(ink, &self.grounds)
            || thick
            || !(letter_gap >= -0.3 * letters && letter_gap <= 100.0)
            || !(word_gap >= -letters && word_gap <= 200.0)
            || !(x > AWAY && x < VIEWPORT_WIDTH - 20.0)
            || !(y > AWAY && y < if self.fixed { VIEWPORT_HEIGHT - 20.0 } else { BELOW })
    }

    /// Whether a piece of text in the element is hidden. Takes its place in the boxes that clip.
    pub(super) fn hides_text(&mut self, text: &str, fonts: &[String]) -> bool {
        let embedded = matches!(self.style.get(P::FontFamily), Value::Names(names)
            if names.iter().any(|name| fonts.contains(name)));
        self.hides() || self.replaced || embedded || self.only.is_some() || self.is_clipped(text)
    }

    fn is_readable_on(&self, ink: Colour, grounds: &[Colour]) -> bool {
        grounds.iter().all(|ground| ink.contrast(*ground) * self.alpha >= CONTRAST)
    }

    /// Whether text does not fit into one of the boxes around it.
    fn is_clipped(&mut self, text: &str) -> bool {
        if pushes_by_blanks(text, &self.style) {
            return true;
        }
        let Some(extent) = Extent::of(text, &self.style, self.line()) else { return false };
        let mut clips = std::mem::take(&mut self.clips);
        let mut clipped = false;
        for clip in &mut clips {
            let outside = self.is_outside(clip, &extent);
            clipped |=
                outside && clip.grounds.as_ref().is_none_or(|grounds| !self.is_readable_on(ink(&self.style), grounds));
            clip.take(&extent);
        }
        self.clips = clips;
        clipped
    }

    /// Whether part of a text lies outside of a box.
    fn is_outside(&self, clip: &Clip, extent: &Extent) -> bool {
        let width = clip.width.unwrap_or(VIEWPORT_WIDTH);
        let aligned = !self.style.is(P::TextAlign, "left") && self.inner_width > width * 1.3;
        let shifted = clip.width.is_some() && !((self.x - clip.x).abs() < width - 4.0)
            || clip.height.is_some() && self.y - clip.y <= -20.0;
        let pushed = clip.width.is_some() && clip.used_across >= width - 4.0 && (extent.one_line || self.in_row);
        let beyond = clip.width.is_some() && extent.one_line && clip.used_across + extent.across > width * 1.5 + 40.0;
        let below = clip.height.is_some_and(|height| {
            let used = clip.used.max(self.y - clip.y) + extent.lead;
            used + (extent.line - self.style.number(P::FontSize)).max(0.0) / 2.0 >= height - 4.0
                || used + extent.lines(width) * extent.line > height + 1.5 * extent.line
        });
        aligned && clip.width.is_some() || shifted || pushed || beyond || below
    }
}

/// Whether a text has so many blanks on one line that the words behind them cannot be seen.
fn pushes_by_blanks(text: &str, style: &Style) -> bool {
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
            _ if blanks > BLANKS => return true,
            _ => 0,
        };
        false
    })
}

/// How much place a text takes, by the number of its letters.
struct Extent {
    /// Pixels of one line with all of the text.
    across: f32,
    line: f32,
    /// Pixels of empty lines before the first word.
    lead: f32,
    breaks: f32,
    one_line: bool,
}

impl Extent {
    /// `None` for white space that takes no place.
    fn of(text: &str, style: &Style, line: f32) -> Option<Self> {
        let letters = style.number(P::FontSize);
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
            across: count as f32 * letters * 0.45 + indent,
            line,
            lead: newlines(before) * line,
            breaks: newlines(text),
            one_line: preserved || style.is(P::WhiteSpace, "nowrap"),
        })
    }

    fn lines(&self, width: f32) -> f32 {
        let wrapped = if self.one_line { 1.0 } else { (self.across / width.max(1.0)).ceil().max(1.0) };
        wrapped + self.breaks
    }
}

impl Clip {
    /// Moves on behind a text.
    fn take(&mut self, extent: &Extent) {
        let width = self.width.unwrap_or(VIEWPORT_WIDTH).min(VIEWPORT_WIDTH);
        self.used_across += extent.across;
        if !extent.one_line && self.used_across > width {
            self.used += (extent.lines(width) - 1.0).max(1.0) * extent.line;
            self.used_across = 0.0;
        }
        self.used += extent.breaks * extent.line;
    }
}

/// The colour that letters are painted in: a thick outline covers the rest.
fn ink(style: &Style) -> Colour {
    let thick = !(style.number(P::StrokeWidth) <= style.number(P::FontSize) * 0.05);
    style.colour(if thick { P::StrokeColor } else { P::TextFill })
}

fn is_painted(style: &Style) -> bool {
    let image = matches!(style.get(P::BackgroundImage), Value::Image(image)
        if image.embedded || !image.colours.is_empty());
    image || !(style.colour(P::BackgroundColor).alpha <= 0.3)
}

fn smallest(one: Option<f32>, other: Option<f32>) -> Option<f32> {
    match (one, other) {
        (Some(one), Some(other)) if one.is_nan() || other.is_nan() => Some(f32::NAN),
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn at_least(size: f32, least: f32) -> f32 {
    if size.is_nan() { size } else { size.max(least) }
}

fn clamp_unit(part: f32) -> f32 {
    if part.is_nan() { part } else { part.clamp(0.0, 1.0) }
}

/// Closed `details` show their first `summary` alone. Hosts of a shadow tree show nothing that stands directly in them.
fn only_child(tree: &Tree, id: NodeId) -> Option<Option<NodeId>> {
    if tree.name(id) == "details" && tree.attribute(id, "open").is_none() {
        return Some(tree.children(id).find(|child| tree.name(*child) == "summary"));
    }
    let shadow = |child: NodeId| tree.name(child) == "template" && tree.attribute(child, "shadowrootmode").is_some();
    tree.children(id).any(shadow).then_some(None)
}
