//! Which text of a page a person would see, as a browser shows it on a screen of 800 pixels.
//!
//! There is no layout here. Where only a layout could tell, text counts as hidden: a mail that a model sees too little of
//! says so in its counts, and hidden text that reaches a model is an attack.

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "a value that is not computed is NaN, and must hide")]

use super::{
    css::{
        colour::Colour,
        declaration::{self, Declaration},
        defaults::{self, BROWSER_SHEET, QUIRKS_SHEET},
        matcher::Matcher,
        property::Property as P,
        selector::{Budget, PseudoElement, within_budget},
        sheet::{Keyframes, Rule, Sheet, data_url},
        style::{Cascade, Origin, Style},
        value::Value,
    },
    frame::{Frame, Surroundings},
    tree::{Content, NodeId, ROOT, Tree},
};

/// Steps from element to element that matching may take.
const STEPS: usize = 8_000_000;
/// Bytes of a `style` attribute.
const STYLE_BYTES: usize = 64 * 1024;
/// Seconds after which nobody waits for an animation any more.
const PATIENCE: f32 = 5.0;

/// What a person would not see of a page.
pub(super) struct Verdict {
    /// For each node: whether its text is hidden, or the text directly in it.
    pub(super) text: Vec<bool>,
    /// For each node: whether an image in its place is hidden.
    pub(super) images: Vec<bool>,
    /// Whether the page was too complex to tell. Everything is hidden then.
    pub(super) undecidable: bool,
}

impl Verdict {
    fn undecidable(tree: &Tree) -> Self {
        Self { text: vec![true; tree.len()], images: vec![true; tree.len()], undecidable: true }
    }

    /// Hides what another reading of the page hides.
    fn join(&mut self, other: &Self) {
        self.text.iter_mut().zip(&other.text).for_each(|(hidden, also)| *hidden |= also);
        self.images.iter_mut().zip(&other.images).for_each(|(hidden, also)| *hidden |= also);
    }
}

/// Finds what is hidden.
pub(super) fn judge(tree: &Tree) -> Verdict {
    within_budget(|| read_twice(tree)).flatten().unwrap_or_else(|| Verdict::undecidable(tree))
}

/// Reads a page without and, if there are any, with the rules that a browser may use or not. `None` if it cannot be told.
fn read_twice(tree: &Tree) -> Option<Verdict> {
    let mut browser = Sheet::new(false);
    browser.add(BROWSER_SHEET, "");
    if tree.quirks {
        browser.add(QUIRKS_SHEET, "");
    }
    let sheet = sheet(tree);
    if sheet.undecidable || tree.styles_cut {
        return None;
    }
    let mut first = Reading::new(tree, &browser, &sheet, false);
    first.run();
    if first.uncertain || first.budget.undecided.get() || sheet.rules.iter().any(|rule| !rule.certain) {
        let mut second = Reading::new(tree, &browser, &sheet, true);
        second.run();
        first.verdict.join(&second.verdict);
    }
    Some(first.verdict)
}

/// All style sheets that are in the mail.
fn sheet(tree: &Tree) -> Sheet {
    let mut sheet = Sheet::new(tree.quirks);
    let mut titles = false;
    let mut at = Some(ROOT);
    while let Some(id) = at {
        let media = tree.attribute(id, "media").unwrap_or_default();
        // Browsers use one of the titles, and let a reader choose another.
        let titled = tree.attribute(id, "title").is_some_and(|title| !title.is_empty());
        if let Some(css) = css_of(tree, id) {
            let alternate = tree.attribute(id, "rel").is_some_and(|rel| rel.to_ascii_lowercase().contains("alternate"));
            if alternate || titled && titles {
                sheet.add_uncertain(&css, media)
            } else {
                sheet.add(&css, media)
            }
            titles |= titled;
        }
        // What is in a template is no part of the page.
        at = if tree.name(id) == "template" { tree.after(id) } else { tree.following(id).0 };
    }
    sheet
}

/// The style sheet that an element stands for.
fn css_of(tree: &Tree, id: NodeId) -> Option<String> {
    match tree.name(id) {
        "style" if is_css(tree.attribute(id, "type")) => Some(tree.own_text(id)),
        "link" => {
            let relation = tree.attribute(id, "rel").unwrap_or_default().to_ascii_lowercase();
            let is_sheet = relation.split_ascii_whitespace().any(|word| word == "stylesheet");
            tree.attribute(id, "href").filter(|_| is_sheet).and_then(data_url)
        }
        _ => None,
    }
}

/// Whether the page asks for dark colours where nothing sets others.
fn is_dark(tree: &Tree) -> bool {
    (0..tree.len()).filter(|id| tree.name(*id) == "meta").any(|id| {
        let scheme = tree.attribute(id, "name").is_some_and(|name| name.eq_ignore_ascii_case("color-scheme"));
        let content = tree.attribute(id, "content").unwrap_or_default().to_ascii_lowercase();
        scheme && content.contains("dark") && !content.contains("light")
    })
}

fn is_css(kind: Option<&str>) -> bool {
    kind.is_none_or(|kind| kind.is_empty() || kind.eq_ignore_ascii_case("text/css"))
}

/// One walk over the tree that decides about each node.
struct Reading<'a> {
    tree: &'a Tree,
    browser: Matcher<'a>,
    author: Matcher<'a>,
    sheet: &'a Sheet,
    budget: Budget,
    /// Open elements, from the outermost.
    stack: Vec<Frame>,
    surroundings: Surroundings,
    verdict: Verdict,
    /// Whether an animation was met, so that a second reading is needed.
    uncertain: bool,
}

impl<'a> Reading<'a> {
    fn new(tree: &'a Tree, browser: &'a Sheet, sheet: &'a Sheet, assume: bool) -> Self {
        Self {
            tree,
            browser: Matcher::new(browser, false),
            author: Matcher::new(sheet, tree.quirks),
            sheet,
            budget: Budget::new(STEPS, assume),
            stack: vec![Frame::outermost(&sheet.registered)],
            surroundings: Surroundings::default(),
            verdict: Verdict { text: vec![false; tree.len()], images: vec![false; tree.len()], undecidable: false },
            uncertain: false,
        }
    }

    fn run(&mut self) {
        let mut at = Some(ROOT);
        while let Some(id) = at {
            let is_element = self.tree.is_element(id);
            if is_element {
                self.enter(id);
            } else if let Content::Text(text) = &self.tree.node(id).content {
                self.verdict.text[id] = self.hides_text(text);
            }
            let (next, mut ended) = self.tree.following(id);
            // Each node that ends closes its frame; text, comments and the document have none.
            let mut closing = id;
            while ended > 0 {
                if self.tree.is_element(closing) {
                    self.leave();
                }
                match self.tree.node(closing).parent {
                    Some(parent) => closing = parent,
                    None => break,
                }
                ended -= 1;
            }
            at = next;
        }
        for (node, cover) in std::mem::take(&mut self.surroundings.covers) {
            self.hide_covered(node, cover);
        }
    }

    fn leave(&mut self) {
        if self.stack.len() > 1
            && let Some(frame) = self.stack.pop()
            && let Some(parent) = self.stack.last_mut()
        {
            frame.leave(parent);
        }
    }

    fn hides_text(&mut self, text: &str) -> bool {
        let fonts = &self.sheet.fonts;
        self.stack.last_mut().is_none_or(|frame| frame.hides_text(text, fonts))
    }

    fn enter(&mut self, id: NodeId) {
        let text = self.tree.attribute(id, "style").unwrap_or_default();
        self.budget.take(1 + text.len() / 16);
        let sources = Sources {
            attributes: defaults::of_attributes(self.tree, id),
            inline: declaration::inline(&text[..text.floor_char_boundary(STYLE_BYTES)], self.tree.quirks),
            browser: self.browser.rules(self.tree, &self.budget, id),
            author: self.author.rules(self.tree, &self.budget, id),
        };
        let style = self.style(id, &sources);
        let Some(parent) = self.stack.last() else { return };
        let mut frame = Frame::enter(self.tree, id, style, parent, &mut self.surroundings);
        frame.gone |= text.len() > STYLE_BYTES;
        frame.gone |= first_line_hides(&sources.author, &frame, self.tree.quirks);
        if let Some(style) = generated(&sources.author, &frame, self.tree.quirks) {
            frame.cover_by(&style, id, &mut self.surroundings);
        }
        self.verdict.text[id] = frame.hides();
        self.verdict.images[id] = frame.hides_image();
        self.stack.push(frame);
    }

    /// The computed style of an element.
    fn style(&mut self, id: NodeId, sources: &Sources<'_>) -> Style {
        let is_root = self.stack.len() == 1;
        let quirks = self.tree.quirks;
        let mut inherited = self.stack.last().map_or_else(Style::initial, |parent| parent.style.clone());
        if quirks && self.tree.name(id) == "table" {
            inherited.set(P::Color, Value::Colour(self.surroundings.body_colour));
        }
        let mut cascade = sources.cascade();
        let mut style = Style::compute(&cascade, &inherited, quirks, is_root);
        if is_root && (style.is(P::ColorScheme, "hides") || is_dark(self.tree)) {
            self.stack.iter_mut().for_each(Frame::darken);
            inherited.set(P::Color, Value::Colour(Colour::WHITE));
            style = Style::compute(&cascade, &inherited, quirks, is_root);
            style.set(P::ColorScheme, Value::Keyword("none"));
        }
        let frames = self.keyframes(&style);
        self.uncertain |= !frames.is_empty();
        if self.budget.assume && !frames.is_empty() {
            cascade.add(&frames, Origin::Animation);
            style = Style::compute(&cascade, &inherited, quirks, is_root);
        }
        style
    }

    /// Declarations of the animations of an element: of their ends, or of their starts if they wait there.
    fn keyframes(&self, style: &Style) -> Vec<Declaration> {
        let Value::Names(names) = style.get(P::AnimationName) else { return Vec::new() };
        let waits = style.is(P::AnimationPlay, "paused")
            || !(style.number(P::AnimationDuration) < PATIENCE)
            || !(style.number(P::AnimationDelay) < PATIENCE);
        let frames = names.iter().take(20).filter_map(|name| self.sheet.keyframes.get(name));
        let steps =
            |frames: &Keyframes| if waits { [&frames.from[..], &frames.middle].concat() } else { frames.to.clone() };
        frames.flat_map(steps).collect()
    }

    /// Hides all text below a node except for that inside the element that covers it.
    fn hide_covered(&mut self, node: NodeId, cover: NodeId) {
        let end = self.tree.after(node);
        let mut at = self.tree.following(node).0;
        while let Some(id) = at.filter(|id| Some(*id) != end) {
            self.budget.take(1);
            if id == cover {
                at = self.tree.after(id);
            } else {
                self.verdict.text[id] = true;
                at = self.tree.following(id).0;
            }
        }
    }
}

/// Where the declarations of an element come from.
struct Sources<'a> {
    attributes: Vec<Declaration>,
    inline: Vec<Declaration>,
    browser: Vec<(usize, &'a Rule)>,
    author: Vec<(usize, &'a Rule)>,
}

impl Sources<'_> {
    fn cascade(&self) -> Cascade<'_> {
        let mut cascade = Cascade::new();
        for (order, rule) in &self.browser {
            cascade.add(&rule.declarations, Origin::Browser(rule.selector.specificity(), *order));
        }
        cascade.add(&self.attributes, Origin::Attribute);
        add_rules(&mut cascade, &self.author, None);
        cascade.add(&self.inline, Origin::Inline);
        cascade
    }
}

fn add_rules<'r>(cascade: &mut Cascade<'r>, rules: &[(usize, &'r Rule)], pseudo: Option<&PseudoElement>) {
    for (order, rule) in rules.iter().filter(|(_, rule)| rule.pseudo.as_ref() == pseudo) {
        cascade.add(&rule.declarations, Origin::Sheet(rule.layer, rule.selector.specificity(), *order));
    }
}

fn has(rules: &[(usize, &Rule)], pseudo: &PseudoElement) -> bool {
    rules.iter().any(|(_, rule)| rule.pseudo.as_ref() == Some(pseudo))
}

/// Whether a rule for `::first-line` hides. The first line may be all there is.
fn first_line_hides(rules: &[(usize, &Rule)], frame: &Frame, quirks: bool) -> bool {
    if !has(rules, &PseudoElement::FirstLine) {
        return false;
    }
    let mut cascade = Cascade::new();
    add_rules(&mut cascade, rules, Some(&PseudoElement::FirstLine));
    frame.hides_with(&Style::compute(&cascade, &frame.style, quirks, false))
}

/// The style of `::before` and `::after`, if there is one.
fn generated(rules: &[(usize, &Rule)], frame: &Frame, quirks: bool) -> Option<Style> {
    if !has(rules, &PseudoElement::Generated) {
        return None;
    }
    let mut cascade = Cascade::new();
    add_rules(&mut cascade, rules, Some(&PseudoElement::Generated));
    let style = Style::compute(&cascade, &frame.style, quirks, false);
    (!style.is(P::Content, "none")).then_some(style)
}
