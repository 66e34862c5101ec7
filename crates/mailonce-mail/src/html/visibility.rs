//! Decides which text of a page a person would see in a browser with a viewport of 800 pixels.
//!
//! This module does no layout. Where only a layout could decide, text counts as hidden. Too much hidden text shows up
//! in the counts, but hidden text that reaches a model is an attack.

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "an uncomputed value is NaN and must count as hidden")]

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use super::{
    css::{
        colour::Colour,
        declaration::{self, Declaration},
        defaults::{self, BROWSER_SHEET, QUIRKS_SHEET},
        matcher::{MatchedRule, RuleMatcher},
        property::Property as P,
        reader::{AnimationStep, Reader},
        selector::PseudoElement,
        sheet::{Keyframes, StyleSheet, decode_data_url},
        style::{Cascade, ComputedStyle, DeclarationOrigin},
        value::ComputedValue,
        work_budget::{WorkBudget, within_budget},
    },
    tree::{HtmlTree, NodeContent, NodeId, ROOT},
};
use crate::html::element_state::{CoveredText, Displacement, ElementState, PageState};

/// Budget of steps for matching selectors and computing styles, for both evaluations of a page.
const MAX_STYLE_STEPS: usize = 8_000_000;
/// Steps for computing the style of an element that no rule matches.
const ELEMENT_STEPS: usize = 40;
/// Maximum conditions such as `print` that a page is evaluated for. With more, text counts as hidden from some readers.
const MAX_CONDITIONS: usize = 12;
/// Maximum bytes of a `style` attribute.
const MAX_STYLE_BYTES: usize = 64 * 1024;
/// Maximum animations per element.
const MAX_ANIMATIONS: usize = 20;
/// An animation that takes longer, in seconds, counts as paused at its start.
const MAX_ANIMATION_SECONDS: f32 = 5.0;

/// The nodes of a page that a person would not see.
pub(super) struct HiddenNodes {
    /// For each node: whether it is hidden text, or hides the text directly in it.
    pub(super) text: Vec<bool>,
    /// For each node: whether an image there is hidden.
    pub(super) images: Vec<bool>,
    /// For each node: whether `display: none` removes it from the page.
    pub(super) boxless: Vec<bool>,
    /// Elements that are displaced from their place in the source order.
    pub(super) moved: BTreeMap<NodeId, Displacement>,
    /// Whether the page was too complex to evaluate. Everything is hidden then.
    pub(super) undecidable: bool,
}

impl HiddenNodes {
    fn undecidable(tree: &HtmlTree) -> Self {
        Self {
            text: vec![true; tree.len()],
            images: vec![true; tree.len()],
            undecidable: true,
            ..Self::none_hidden(tree)
        }
    }

    /// A page of which everything is shown.
    fn none_hidden(tree: &HtmlTree) -> Self {
        let none = || vec![false; tree.len()];
        Self { text: none(), images: none(), boxless: none(), moved: BTreeMap::new(), undecidable: false }
    }

    /// Also hides what another evaluation of the page hides.
    fn merge(&mut self, other: &Self) {
        self.text.iter_mut().zip(&other.text).for_each(|(hidden, also)| *hidden |= also);
        self.images.iter_mut().zip(&other.images).for_each(|(hidden, also)| *hidden |= also);
        self.moved.extend(&other.moved);
    }
}

/// Finds the hidden nodes. Hides everything if the budget runs out.
pub(super) fn find_hidden(tree: &HtmlTree) -> HiddenNodes {
    within_budget(|| evaluate(tree)).flatten().unwrap_or_else(|| HiddenNodes::undecidable(tree))
}

/// Evaluates the page without the rules that a browser may or may not apply, and with them if there are any. A node is
/// hidden if either result hides it. `None` if the page cannot be decided.
fn evaluate(tree: &HtmlTree) -> Option<HiddenNodes> {
    let browser = browser_sheet(tree);
    let sheet = author_sheet(tree, StyleSheet::new(tree.quirks));
    let selects_dropped = tree.overfull_elements > 0 && !sheet.rules.is_empty();
    if sheet.undecidable || tree.styles_truncated || selects_dropped {
        return None;
    }
    let mut first = VisibilityPass::new(tree, &browser, &sheet, WorkBudget::new(MAX_STYLE_STEPS, false), Reader::Usual);
    first.run();
    if first.uncertain || first.budget.met_undecided.get() || sheet.rules.iter().any(|rule| !rule.is_certain) {
        let budget = WorkBudget::new(first.budget.remaining_steps(), true);
        let mut second = VisibilityPass::new(tree, &browser, &sheet, budget, Reader::Usual);
        second.run();
        first.verdict.merge(&second.verdict);
    }
    Some(first.verdict)
}

fn browser_sheet(tree: &HtmlTree) -> StyleSheet {
    let mut browser = StyleSheet::new(false);
    browser.add(BROWSER_SHEET, "");
    if tree.quirks {
        browser.add(QUIRKS_SHEET, "");
    }
    browser
}

/// Whether text that the page shows is hidden from some readers: on paper, on small screens, with dark colours, in some
/// mail clients, while they point at it, or during animations. `None` if the page is too complex. `repeats` says whether animations repeat
/// or run backwards, so that readers see their start again.
pub(super) fn is_hidden_from_some(tree: &HtmlTree, hidden: &HiddenNodes, repeats: bool) -> Option<bool> {
    within_budget(|| {
        let browser = browser_sheet(tree);
        let sheet = author_sheet(tree, StyleSheet::for_all_readers(tree.quirks));
        if sheet.undecidable {
            return None;
        }
        let conditions: BTreeSet<&Rc<str>> = sheet.rules.iter().flat_map(|rule| &rule.other_readers).collect();
        if conditions.len() > MAX_CONDITIONS {
            return Some(true);
        }
        let mut steps = MAX_STYLE_STEPS;
        let mut run = |reader| {
            let budget = WorkBudget::new(steps, true);
            let mut pass = VisibilityPass::new(tree, &browser, &sheet, budget, reader);
            pass.run();
            steps = pass.budget.remaining_steps();
            pass
        };
        let all = run(Reader::All);
        let mut readers: Vec<Reader<'_>> = conditions.iter().map(|condition| Reader::Condition(condition)).collect();
        readers.extend(all.budget.met_interaction.get().then_some(Reader::Interacting));
        readers.extend(all.budget.met_outlook.get().then_some(Reader::OutlookDark));
        readers.extend(all.budget.met_gmail.get().then_some(Reader::Gmail));
        if all.is_animated {
            readers.extend([AnimationStep::Middle, AnimationStep::End].map(Reader::Animated));
            readers.extend(repeats.then_some(Reader::Animated(AnimationStep::Start)));
        }
        let hides_more = |verdict: &HiddenNodes| hides_more(tree, hidden, verdict);
        let is_hidden = !readers.is_empty() && hides_more(&all.verdict);
        Some(is_hidden || readers.into_iter().any(|reader| hides_more(&run(reader).verdict)))
    })
    .flatten()
}

/// Whether an evaluation hides text or images that another one shows.
fn hides_more(tree: &HtmlTree, shown: &HiddenNodes, other: &HiddenNodes) -> bool {
    (0..tree.len()).any(|id| match &tree.node(id).content {
        NodeContent::Text(text) => !shown.text[id] && other.text[id] && !text.trim().is_empty(),
        NodeContent::Element(..) => tree.name(id) == "img" && !shown.images[id] && other.images[id],
        _ => false,
    })
}

/// The steps that the first evaluation of a page costs.
#[cfg(test)]
pub(super) fn count_steps(html: &str) -> usize {
    let tree = HtmlTree::parse(html);
    let browser = browser_sheet(&tree);
    let sheet = author_sheet(&tree, StyleSheet::new(tree.quirks));
    let mut pass = VisibilityPass::new(&tree, &browser, &sheet, WorkBudget::new(usize::MAX, false), Reader::Usual);
    pass.run();
    usize::MAX - pass.budget.remaining_steps()
}

/// Collects all style sheets in the mail.
fn author_sheet(tree: &HtmlTree, mut sheet: StyleSheet) -> StyleSheet {
    let mut titles = false;
    let mut at = Some(ROOT);
    while let Some(id) = at {
        let media = tree.attribute(id, "media").unwrap_or_default();
        // Browsers apply the style sheets of one title, and let the reader choose another title.
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
        // The content of a template is not part of the page.
        at = if tree.name(id) == "template" { tree.next_outside(id) } else { tree.next_in_order(id).0 };
    }
    sheet
}

/// The style sheet in a `style` element, or in the `data:` URL of a `link`.
fn stylesheet_of(tree: &HtmlTree, id: NodeId) -> Option<String> {
    match tree.name(id) {
        "style" if is_css(tree.attribute(id, "type")) => Some(tree.own_text(id)),
        "link" => {
            let relation = tree.attribute(id, "rel").unwrap_or_default().to_ascii_lowercase();
            let is_sheet = relation.split_ascii_whitespace().any(|word| word == "stylesheet");
            tree.attribute(id, "href").filter(|_| is_sheet).and_then(decode_data_url)
        }
        _ => None,
    }
}

/// Whether the page asks only for dark colours.
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

/// One pass over the tree that decides each node.
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
    /// Whether an element is animated, so that a second pass is needed.
    uncertain: bool,
    /// Whether an element has an animation.
    is_animated: bool,
    /// The colour of links that `<body link>` sets.
    link_colour: Option<Colour>,
    reader: Reader<'a>,
}

impl<'a> VisibilityPass<'a> {
    fn new(
        tree: &'a HtmlTree,
        browser: &'a StyleSheet,
        sheet: &'a StyleSheet,
        budget: WorkBudget,
        reader: Reader<'a>,
    ) -> Self {
        Self {
            tree,
            browser: RuleMatcher::new(browser, false, Reader::Usual),
            author: RuleMatcher::new(sheet, tree.quirks, reader),
            sheet,
            budget,
            stack: vec![ElementState::root(&sheet.registered_properties)],
            surroundings: PageState::default(),
            verdict: HiddenNodes::none_hidden(tree),
            uncertain: false,
            is_animated: false,
            link_colour: defaults::link_colour(tree),
            reader,
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
            // Each element that ends is popped from the stack. Text, comments and the document are not on it.
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
        for cover in std::mem::take(&mut self.surroundings.covers) {
            self.hide_covered(&cover);
        }
    }

    fn leave(&mut self) {
        if self.stack.len() > 1
            && let Some(element) = self.stack.pop()
            && let Some(parent) = self.stack.last_mut()
        {
            element.leave(parent);
        }
    }

    fn hides_text(&mut self, text: &str) -> bool {
        let (fonts, budget) = (&self.sheet.embedded_fonts, &self.budget);
        self.stack.last_mut().is_none_or(|element| element.hides_text(text, fonts, budget))
    }

    fn enter(&mut self, id: NodeId) {
        let text = self.tree.attribute(id, "style").unwrap_or_default();
        self.budget.spend(ELEMENT_STEPS);
        self.budget.spend_on_text(text);
        let sources = StyleSources {
            attributes: defaults::attribute_declarations(self.tree, id, self.link_colour),
            inline: declaration::parse_style_attribute(
                &text[..text.floor_char_boundary(MAX_STYLE_BYTES)],
                self.tree.quirks,
            ),
            browser: self.browser.matching_rules(self.tree, &self.budget, id),
            author: self.author.matching_rules(self.tree, &self.budget, id),
        };
        let style = self.compute_style(id, &sources);
        let Some(parent) = self.stack.last() else { return };
        let mut element = ElementState::enter(self.tree, id, style, parent, &mut self.surroundings);
        element.is_hidden |= text.len() > MAX_STYLE_BYTES;
        for pseudo in [PseudoElement::FirstLine, PseudoElement::FirstLetter] {
            element.is_hidden |= start_hides(&sources.author, &pseudo, &element, self.tree.quirks, &self.budget);
        }
        if let Some(style) = generated_style(&sources.author, &element, self.tree.quirks, &self.budget) {
            element.cover_with_generated(&style, id, &mut self.surroundings);
        }
        self.verdict.text[id] = element.hides();
        self.verdict.images[id] = element.hides_image();
        self.verdict.boxless[id] = element.style.is(P::Display, "none");
        self.verdict.moved.extend(element.displacement().map(|displacement| (id, displacement)));
        self.stack.push(element);
    }

    /// The computed style of an element.
    fn compute_style(&mut self, id: NodeId, sources: &StyleSources<'_>) -> ComputedStyle {
        let is_root = self.stack.len() == 1;
        let quirks = self.tree.quirks;
        let mut inherited = self.stack.last().map_or_else(ComputedStyle::initial, |parent| parent.style.clone());
        if quirks && self.tree.name(id) == "table" {
            inherited.set(P::Color, ComputedValue::Colour(self.surroundings.body_colour));
        }
        let budget = &self.budget;
        let mut cascade = sources.cascade(budget);
        let mut style = ComputedStyle::compute(&cascade, &inherited, quirks, is_root);
        if is_root && (style.is(P::ColorScheme, "hides") || prefers_dark(self.tree)) {
            self.stack.iter_mut().for_each(ElementState::use_dark_canvas);
            inherited.set(P::Color, ComputedValue::Colour(Colour::WHITE));
            style = ComputedStyle::compute(&cascade, &inherited, quirks, is_root);
            style.set(P::ColorScheme, ComputedValue::Keyword("none"));
        }
        let frames = self.animation_declarations(&style);
        self.uncertain |= !frames.is_empty();
        self.is_animated |= matches!(style.get(P::AnimationName), ComputedValue::Names(names) if !names.is_empty());
        if self.budget.assume_match && !frames.is_empty() {
            cascade.add(&frames, DeclarationOrigin::Animation);
            style = ComputedStyle::compute(&cascade, &inherited, quirks, is_root);
        }
        style
    }

    /// The declarations of an element's animations: those of their ends, or of their starts if they are paused or slow.
    fn animation_declarations(&self, style: &ComputedStyle) -> Vec<Declaration> {
        let ComputedValue::Names(names) = style.get(P::AnimationName) else { return Vec::new() };
        let shows_start = style.is(P::AnimationPlay, "paused")
            || !(style.number(P::AnimationDuration) < MAX_ANIMATION_SECONDS)
            || !(style.number(P::AnimationDelay) < MAX_ANIMATION_SECONDS);
        if names.len() > MAX_ANIMATIONS {
            self.budget.give_up();
        }
        let frames = names.iter().filter_map(|name| self.sheet.keyframes.get(name));
        let steps = |frames: &Keyframes| {
            let steps = match self.reader {
                Reader::Animated(AnimationStep::Start) => frames.from.clone(),
                Reader::Animated(AnimationStep::Middle) => frames.middle.clone(),
                Reader::Animated(AnimationStep::End) => frames.to.clone(),
                _ if shows_start => [&frames.from[..], &frames.middle].concat(),
                _ => frames.to.clone(),
            };
            self.budget.spend(steps.len());
            steps
        };
        frames.flat_map(steps).collect()
    }

    /// Hides the covered text, except inside the covering element.
    fn hide_covered(&mut self, cover: &CoveredText) {
        let end = self.tree.next_outside(cover.node);
        let mut at = self.tree.next_in_order(cover.node).0;
        while let Some(id) = at.filter(|id| Some(*id) != end) {
            self.budget.spend(1);
            if id == cover.element {
                at = self.tree.next_outside(id);
            } else {
                self.verdict.text[id] = true;
                at = self.tree.next_in_order(id).0;
            }
        }
    }
}

/// The declarations that apply to an element, by origin.
struct StyleSources<'a> {
    attributes: Vec<Declaration>,
    inline: Vec<Declaration>,
    browser: Vec<MatchedRule<'a>>,
    author: Vec<MatchedRule<'a>>,
}

impl StyleSources<'_> {
    fn cascade<'b>(&'b self, budget: &'b WorkBudget) -> Cascade<'b> {
        let mut cascade = Cascade::new(budget);
        for MatchedRule { position, rule } in &self.browser {
            cascade.add(&rule.declarations, DeclarationOrigin::Browser(rule.selector.specificity(), *position));
        }
        cascade.add(&self.attributes, DeclarationOrigin::Attribute);
        add_rules(&mut cascade, &self.author, None);
        cascade.add(&self.inline, DeclarationOrigin::Inline);
        cascade
    }
}

fn add_rules<'r>(cascade: &mut Cascade<'r>, rules: &[MatchedRule<'r>], pseudo: Option<&PseudoElement>) {
    for MatchedRule { position, rule } in rules.iter().filter(|matched| matched.rule.pseudo.as_ref() == pseudo) {
        cascade.add(&rule.declarations, DeclarationOrigin::Sheet(rule.layer, rule.selector.specificity(), *position));
    }
}

fn has_pseudo_rule(rules: &[MatchedRule<'_>], pseudo: &PseudoElement) -> bool {
    rules.iter().any(|matched| matched.rule.pseudo.as_ref() == Some(pseudo))
}

/// Whether a rule for `::first-line` or `::first-letter` hides text or moves it. The first line may be the whole text,
/// and a letter the first digit of an amount, so all text counts as hidden then.
fn start_hides(
    rules: &[MatchedRule<'_>],
    pseudo: &PseudoElement,
    element: &ElementState,
    quirks: bool,
    budget: &WorkBudget,
) -> bool {
    if !has_pseudo_rule(rules, pseudo) {
        return false;
    }
    let mut cascade = Cascade::new(budget);
    add_rules(&mut cascade, rules, Some(pseudo));
    element.hides_start_with(&ComputedStyle::compute(&cascade, &element.style, quirks, false))
}

/// The style of `::before` and `::after`, if a rule generates content.
fn generated_style(
    rules: &[MatchedRule<'_>],
    element: &ElementState,
    quirks: bool,
    budget: &WorkBudget,
) -> Option<ComputedStyle> {
    if !has_pseudo_rule(rules, &PseudoElement::Generated) {
        return None;
    }
    let mut cascade = Cascade::new(budget);
    add_rules(&mut cascade, rules, Some(&PseudoElement::Generated));
    let style = ComputedStyle::compute(&cascade, &element.style, quirks, false);
    (!style.is(P::Content, "none")).then_some(style)
}
