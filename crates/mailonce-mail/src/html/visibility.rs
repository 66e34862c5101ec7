//! Which text of a page a person would see, as a browser shows it on a screen of 800 pixels.
//!
//! There is no layout here. Where only a layout could tell, text counts as hidden: a mail that a model sees too little of
//! says so in its counts, and hidden text that reaches a model is an attack.

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "a value that is not computed is NaN, and must hide")]

use std::collections::BTreeMap;

use super::{
    css::{
        colour::Colour,
        declaration::{self, Declaration},
        defaults::{self, BROWSER_SHEET, QUIRKS_SHEET},
        matcher::RuleMatcher,
        property::Property as P,
        selector::{PseudoElement, WorkBudget, within_budget},
        sheet::{Keyframes, StyleRule, StyleSheet, data_url},
        style::{Cascade, ComputedStyle, DeclarationOrigin},
        value::CssValue,
    },
    tree::{HtmlTree, NodeContent, NodeId, ROOT},
};
use crate::html::element_state::{ElementState, PageState};

/// Steps that matching selectors and computing styles may take.
const MAX_STYLE_STEPS: usize = 8_000_000;
/// Bytes of a `style` attribute.
const MAX_STYLE_BYTES: usize = 64 * 1024;
/// Animations of one element.
const MAX_ANIMATIONS: usize = 20;
/// Seconds after which nobody waits for an animation any more.
const MAX_ANIMATION_SECONDS: f32 = 5.0;

/// What a person would not see of a page.
pub(super) struct HiddenNodes {
    /// For each node: whether its text is hidden, or the text directly in it.
    pub(super) text: Vec<bool>,
    /// For each node: whether an image in its place is hidden.
    pub(super) images: Vec<bool>,
    /// For each node: whether `display: none` takes it out of the page.
    pub(super) boxless: Vec<bool>,
    /// Elements that stand elsewhere than their place in the source says.
    pub(super) moved: BTreeMap<NodeId, Displacement>,
    /// Whether the page was too complex to tell. Everything is hidden then.
    pub(super) undecidable: bool,
}

/// How an element comes to stand elsewhere than its place in the source says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Displacement {
    FloatsRight,
    /// Moved by an offset, a margin or a transform.
    Shifted,
}

impl HiddenNodes {
    fn undecidable(tree: &HtmlTree) -> Self {
        Self { text: vec![true; tree.len()], images: vec![true; tree.len()], undecidable: true, ..Self::nothing(tree) }
    }

    fn nothing(tree: &HtmlTree) -> Self {
        let none = || vec![false; tree.len()];
        Self { text: none(), images: none(), boxless: none(), moved: BTreeMap::new(), undecidable: false }
    }

    /// Hides what another reading of the page hides.
    fn merge(&mut self, other: &Self) {
        self.text.iter_mut().zip(&other.text).for_each(|(hidden, also)| *hidden |= also);
        self.images.iter_mut().zip(&other.images).for_each(|(hidden, also)| *hidden |= also);
        self.moved.extend(&other.moved);
    }
}

/// Finds what is hidden.
pub(super) fn find_hidden(tree: &HtmlTree) -> HiddenNodes {
    within_budget(|| evaluate(tree)).flatten().unwrap_or_else(|| HiddenNodes::undecidable(tree))
}

/// Reads a page without and, if there are any, with the rules that a browser may use or not. `None` if it cannot be told.
fn evaluate(tree: &HtmlTree) -> Option<HiddenNodes> {
    let mut browser = StyleSheet::new(false);
    browser.add(BROWSER_SHEET, "");
    if tree.quirks {
        browser.add(QUIRKS_SHEET, "");
    }
    let sheet = author_sheet(tree);
    if sheet.undecidable || tree.styles_truncated {
        return None;
    }
    let mut first = VisibilityPass::new(tree, &browser, &sheet, false);
    first.run();
    if first.uncertain || first.budget.met_undecided.get() || sheet.rules.iter().any(|rule| !rule.is_certain) {
        let mut second = VisibilityPass::new(tree, &browser, &sheet, true);
        second.run();
        first.verdict.merge(&second.verdict);
    }
    Some(first.verdict)
}

/// All style sheets that are in the mail.
fn author_sheet(tree: &HtmlTree) -> StyleSheet {
    let mut sheet = StyleSheet::new(tree.quirks);
    let mut titles = false;
    let mut at = Some(ROOT);
    while let Some(id) = at {
        let media = tree.attribute(id, "media").unwrap_or_default();
        // Browsers use one of the titles, and let a reader choose another.
        let titled = tree.attribute(id, "title").is_some_and(|title| !title.is_empty());
        if let Some(css) = stylesheet_of(tree, id) {
            let alternate = tree.attribute(id, "rel").is_some_and(|rel| rel.to_ascii_lowercase().contains("alternate"));
            if alternate || titled && titles {
                sheet.add_uncertain(&css, media)
            } else {
                sheet.add(&css, media)
            }
            titles |= titled;
        }
        // What is in a template is no part of the page.
        at = if tree.name(id) == "template" { tree.next_outside(id) } else { tree.next_in_order(id).0 };
    }
    sheet
}

/// The style sheet that an element stands for.
fn stylesheet_of(tree: &HtmlTree, id: NodeId) -> Option<String> {
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
fn prefers_dark(tree: &HtmlTree) -> bool {
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
struct VisibilityPass<'a> {
    tree: &'a HtmlTree,
    browser: RuleMatcher<'a>,
    author: RuleMatcher<'a>,
    sheet: &'a StyleSheet,
    budget: WorkBudget,
    /// Open elements, from the outermost.
    stack: Vec<ElementState>,
    surroundings: PageState,
    verdict: HiddenNodes,
    /// Whether an animation was met, so that a second reading is needed.
    uncertain: bool,
}

impl<'a> VisibilityPass<'a> {
    fn new(tree: &'a HtmlTree, browser: &'a StyleSheet, sheet: &'a StyleSheet, assume: bool) -> Self {
        Self {
            tree,
            browser: RuleMatcher::new(browser, false),
            author: RuleMatcher::new(sheet, tree.quirks),
            sheet,
            budget: WorkBudget::new(MAX_STYLE_STEPS, assume),
            stack: vec![ElementState::root(&sheet.registered_properties)],
            surroundings: PageState::default(),
            verdict: HiddenNodes::nothing(tree),
            uncertain: false,
        }
    }

    fn run(&mut self) {
        let mut at = Some(ROOT);
        while let Some(id) = at {
            let is_element = self.tree.is_element(id);
            if is_element {
                self.enter(id);
            } else if let NodeContent::Text(text) = &self.tree.node(id).content {
                self.verdict.text[id] = self.hides_text(text);
            }
            let (next, mut ended) = self.tree.next_in_order(id);
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
        let (fonts, budget) = (&self.sheet.embedded_fonts, &self.budget);
        self.stack.last_mut().is_none_or(|frame| frame.hides_text(text, fonts, budget))
    }

    fn enter(&mut self, id: NodeId) {
        let text = self.tree.attribute(id, "style").unwrap_or_default();
        self.budget.spend_on_text(text);
        let sources = StyleSources {
            attributes: defaults::attribute_declarations(self.tree, id),
            inline: declaration::parse_style_attribute(
                &text[..text.floor_char_boundary(MAX_STYLE_BYTES)],
                self.tree.quirks,
            ),
            browser: self.browser.matching_rules(self.tree, &self.budget, id),
            author: self.author.matching_rules(self.tree, &self.budget, id),
        };
        let style = self.compute_style(id, &sources);
        let Some(parent) = self.stack.last() else { return };
        let mut frame = ElementState::enter(self.tree, id, style, parent, &mut self.surroundings);
        frame.is_hidden |= text.len() > MAX_STYLE_BYTES;
        frame.is_hidden |= first_line_hides(&sources.author, &frame, self.tree.quirks, &self.budget);
        if let Some(style) = generated_style(&sources.author, &frame, self.tree.quirks, &self.budget) {
            frame.cover_with_generated(&style, id, &mut self.surroundings);
        }
        self.verdict.text[id] = frame.hides();
        self.verdict.images[id] = frame.hides_image();
        self.verdict.boxless[id] = frame.style.is(P::Display, "none");
        self.verdict.moved.extend(frame.displacement().map(|how| (id, how)));
        self.stack.push(frame);
    }

    /// The computed style of an element.
    fn compute_style(&mut self, id: NodeId, sources: &StyleSources<'_>) -> ComputedStyle {
        let is_root = self.stack.len() == 1;
        let quirks = self.tree.quirks;
        let mut inherited = self.stack.last().map_or_else(ComputedStyle::initial, |parent| parent.style.clone());
        if quirks && self.tree.name(id) == "table" {
            inherited.set(P::Color, CssValue::Colour(self.surroundings.body_colour));
        }
        let budget = &self.budget;
        let mut cascade = sources.cascade(budget);
        let mut style = ComputedStyle::compute(&cascade, &inherited, quirks, is_root);
        if is_root && (style.is(P::ColorScheme, "hides") || prefers_dark(self.tree)) {
            self.stack.iter_mut().for_each(ElementState::use_dark_canvas);
            inherited.set(P::Color, CssValue::Colour(Colour::WHITE));
            style = ComputedStyle::compute(&cascade, &inherited, quirks, is_root);
            style.set(P::ColorScheme, CssValue::Keyword("none"));
        }
        let frames = self.animation_declarations(&style);
        self.uncertain |= !frames.is_empty();
        if self.budget.assume_match && !frames.is_empty() {
            cascade.add(&frames, DeclarationOrigin::Animation);
            style = ComputedStyle::compute(&cascade, &inherited, quirks, is_root);
        }
        style
    }

    /// Declarations of the animations of an element: of their ends, or of their starts if they wait there.
    fn animation_declarations(&self, style: &ComputedStyle) -> Vec<Declaration> {
        let CssValue::Names(names) = style.get(P::AnimationName) else { return Vec::new() };
        let waits = style.is(P::AnimationPlay, "paused")
            || !(style.number(P::AnimationDuration) < MAX_ANIMATION_SECONDS)
            || !(style.number(P::AnimationDelay) < MAX_ANIMATION_SECONDS);
        if names.len() > MAX_ANIMATIONS {
            self.budget.give_up();
        }
        let frames = names.iter().filter_map(|name| self.sheet.keyframes.get(name));
        let steps = |frames: &Keyframes| {
            let steps = if waits { [&frames.from[..], &frames.middle].concat() } else { frames.to.clone() };
            self.budget.spend(steps.len());
            steps
        };
        frames.flat_map(steps).collect()
    }

    /// Hides all text below a node except for that inside the element that covers it.
    fn hide_covered(&mut self, node: NodeId, cover: NodeId) {
        let end = self.tree.next_outside(node);
        let mut at = self.tree.next_in_order(node).0;
        while let Some(id) = at.filter(|id| Some(*id) != end) {
            self.budget.spend(1);
            if id == cover {
                at = self.tree.next_outside(id);
            } else {
                self.verdict.text[id] = true;
                at = self.tree.next_in_order(id).0;
            }
        }
    }
}

/// Where the declarations of an element come from.
struct StyleSources<'a> {
    attributes: Vec<Declaration>,
    inline: Vec<Declaration>,
    browser: Vec<(usize, &'a StyleRule)>,
    author: Vec<(usize, &'a StyleRule)>,
}

impl StyleSources<'_> {
    fn cascade<'b>(&'b self, budget: &'b WorkBudget) -> Cascade<'b> {
        let mut cascade = Cascade::new(budget);
        for (order, rule) in &self.browser {
            cascade.add(&rule.declarations, DeclarationOrigin::Browser(rule.selector.specificity(), *order));
        }
        cascade.add(&self.attributes, DeclarationOrigin::Attribute);
        add_rules(&mut cascade, &self.author, None);
        cascade.add(&self.inline, DeclarationOrigin::Inline);
        cascade
    }
}

fn add_rules<'r>(cascade: &mut Cascade<'r>, rules: &[(usize, &'r StyleRule)], pseudo: Option<&PseudoElement>) {
    for (order, rule) in rules.iter().filter(|(_, rule)| rule.pseudo.as_ref() == pseudo) {
        cascade.add(&rule.declarations, DeclarationOrigin::Sheet(rule.layer, rule.selector.specificity(), *order));
    }
}

fn has_pseudo_rule(rules: &[(usize, &StyleRule)], pseudo: &PseudoElement) -> bool {
    rules.iter().any(|(_, rule)| rule.pseudo.as_ref() == Some(pseudo))
}

/// Whether a rule for `::first-line` hides. The first line may be all there is.
fn first_line_hides(rules: &[(usize, &StyleRule)], frame: &ElementState, quirks: bool, budget: &WorkBudget) -> bool {
    if !has_pseudo_rule(rules, &PseudoElement::FirstLine) {
        return false;
    }
    let mut cascade = Cascade::new(budget);
    add_rules(&mut cascade, rules, Some(&PseudoElement::FirstLine));
    frame.hides_with(&ComputedStyle::compute(&cascade, &frame.style, quirks, false))
}

/// The style of `::before` and `::after`, if there is one.
fn generated_style(
    rules: &[(usize, &StyleRule)],
    frame: &ElementState,
    quirks: bool,
    budget: &WorkBudget,
) -> Option<ComputedStyle> {
    if !has_pseudo_rule(rules, &PseudoElement::Generated) {
        return None;
    }
    let mut cascade = Cascade::new(budget);
    add_rules(&mut cascade, rules, Some(&PseudoElement::Generated));
    let style = ComputedStyle::compute(&cascade, &frame.style, quirks, false);
    (!style.is(P::Content, "none")).then_some(style)
}
