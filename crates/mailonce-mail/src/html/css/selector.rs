//! Selectors and how they match, using the `selectors` crate of Firefox.
//!
//! Every step between elements is counted, so that a hostile selector costs bounded time. The cascade spends the same
//! budget. The crate cannot abort in the middle of a match. An exhausted budget therefore unwinds to [`within_budget`],
//! and the page counts as undecidable.

use std::{
    cell::Cell,
    fmt,
    panic::{self, AssertUnwindSafe},
    rc::Rc,
};

use cssparser::{ParseError, Parser as CssParser, ToCss, serialize_identifier};
use precomputed_hash::PrecomputedHash;
use selectors::{
    OpaqueElement,
    attr::{AttrSelectorOperation, AttrSelectorOperator, CaseSensitivity, NamespaceConstraint},
    bloom::BloomFilter,
    context::MatchingContext,
    matching::ElementSelectorFlags,
    parser::{self, Component, ParseRelative, Selector, SelectorList, SelectorParseErrorKind},
};

use super::attribute::{AttributeSearch, AttributeValue, BYTES_PER_STEP};
use crate::html::tree::{HtmlTree, NodeContent, NodeId};

/// Attributes of an element that are compared in the time of one step.
const ATTRIBUTES_PER_STEP: usize = 4;
/// Attributes that Outlook adds to elements whose colours it changes.
const OUTLOOK_ATTRIBUTES: [&str; 4] = ["data-ogsc", "data-ogsb", "data-ogac", "data-ogab"];
/// Parts of a selector that are evaluated in the time of one step.
const COMPONENTS_PER_STEP: usize = 4;

/// The types that the `selectors` crate is parameterised with.
#[derive(Clone, Debug)]
pub(in crate::html) struct SelectorTypes;

/// A name in a selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::html) struct CssName(Box<str>);

impl From<&str> for CssName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl AsRef<str> for CssName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl ToCss for CssName {
    fn to_css<W: fmt::Write>(&self, out: &mut W) -> fmt::Result {
        serialize_identifier(&self.0, out)
    }
}

impl PrecomputedHash for CssName {
    /// FNV-1a. Only Bloom filters use it, so a collision only costs a comparison.
    fn precomputed_hash(&self) -> u32 {
        self.0.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}

/// Pseudo-classes that do not depend on the tree, by what they match before any user interaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::html) enum PseudoClass {
    /// `:hover`, `:focus`, `:target` and others that need a user or a script.
    Never,
    /// `:defined`, `:dir(ltr)`.
    Always,
    Link,
    Checked,
    Disabled,
    Enabled,
    Required,
    Optional,
    /// Elements whose text a user can edit.
    Editable,
    NotEditable,
    Open,
    Lang(Vec<Box<str>>),
    /// Known to browsers but not decided here. Matches only in the second pass over the page.
    Unknown,
}

/// Pseudo-elements that affect whether text is visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::html) enum PseudoElement {
    /// `::before` and `::after`.
    Generated,
    FirstLine,
    FirstLetter,
    /// `::details-content`.
    Details,
    /// All others. Their rules are dropped.
    Other,
}

impl ToCss for PseudoClass {
    fn to_css<W: fmt::Write>(&self, out: &mut W) -> fmt::Result {
        write!(out, ":{self:?}")
    }
}

impl ToCss for PseudoElement {
    fn to_css<W: fmt::Write>(&self, out: &mut W) -> fmt::Result {
        write!(out, "::{self:?}")
    }
}

impl parser::NonTSPseudoClass for PseudoClass {
    fn is_active_or_hover(&self) -> bool {
        false
    }

    fn is_user_action_state(&self) -> bool {
        false
    }
}

impl parser::PseudoElement for PseudoElement {
    fn accepts_state_pseudo_classes(&self) -> bool {
        true
    }
}

impl parser::SelectorImpl for SelectorTypes {
    type ExtraMatchingData<'a> = ();
    type AttrValue = CssName;
    type Identifier = CssName;
    type LocalName = CssName;
    type NamespaceUrl = CssName;
    type NamespacePrefix = CssName;
    type BorrowedNamespaceUrl = CssName;
    type BorrowedLocalName = CssName;
    type NonTSPseudoClass = PseudoClass;
    type PseudoElement = PseudoElement;
}

/// Parses selectors. `nested` ones may begin with a combinator.
pub(in crate::html) fn parse_list(
    input: &mut CssParser<'_>,
    nested: bool,
) -> Result<SelectorList<SelectorTypes>, ParseError<SelectorParseErrorKind>> {
    let relative = if nested { ParseRelative::ForNesting } else { ParseRelative::No };
    SelectorList::parse(&SelectorParser, input, relative)
}

/// The number of parts of a selector, with those in `:is()` and similar. `&` has as many as all its parents together.
pub(in crate::html) fn weight(selector: &Selector<SelectorTypes>, parents: usize) -> usize {
    let sum = |selectors: &[Selector<SelectorTypes>]| {
        selectors.iter().fold(0_usize, |sum, selector| sum.saturating_add(weight(selector, parents)))
    };
    selector.iter_raw_match_order().fold(0_usize, |total, component| {
        let inner = match component {
            Component::Is(list) | Component::Where(list) | Component::Negation(list) => sum(list.slice()),
            Component::Has(relative) => {
                relative.iter().fold(0_usize, |sum, relative| sum.saturating_add(weight(&relative.selector, parents)))
            }
            Component::NthOf(data) => sum(data.selectors()),
            Component::Slotted(inner) | Component::Host(Some(inner)) => weight(inner, parents),
            Component::ParentSelector => parents,
            _ => 0,
        };
        total.saturating_add(1).saturating_add(inner)
    })
}

/// The steps for evaluating a selector of this weight on one element.
pub(in crate::html) fn match_steps(weight: usize) -> usize {
    1 + weight / COMPONENTS_PER_STEP
}

struct SelectorParser;

type SelectorError = ParseError<SelectorParseErrorKind>;

fn unsupported<T>() -> Result<T, SelectorError> {
    Err(ParseError::custom(SelectorParseErrorKind::UnsupportedPseudoClassOrElement))
}

impl<'i> parser::Parser<'i> for SelectorParser {
    type Impl = SelectorTypes;
    type Error = SelectorParseErrorKind;

    fn parse_nth_child_of(&self) -> bool {
        true
    }

    fn parse_is_and_where(&self) -> bool {
        true
    }

    fn parse_has(&self) -> bool {
        true
    }

    fn parse_parent_selector(&self) -> bool {
        true
    }

    fn is_is_alias(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case("-webkit-any") || name.eq_ignore_ascii_case("matches")
    }

    fn parse_non_ts_pseudo_class(&self, name: &str) -> Result<PseudoClass, SelectorError> {
        let class = match name.to_ascii_lowercase().as_str() {
            "link" | "any-link" | "-webkit-any-link" => PseudoClass::Link,
            "defined" => PseudoClass::Always,
            "checked" => PseudoClass::Checked,
            "disabled" => PseudoClass::Disabled,
            "enabled" => PseudoClass::Enabled,
            "required" => PseudoClass::Required,
            "optional" => PseudoClass::Optional,
            "read-write" => PseudoClass::Editable,
            "read-only" => PseudoClass::NotEditable,
            "open" => PseudoClass::Open,
            "visited"
            | "hover"
            | "active"
            | "focus"
            | "focus-within"
            | "focus-visible"
            | "target"
            | "target-current"
            | "fullscreen"
            | "-webkit-full-screen"
            | "modal"
            | "picture-in-picture"
            | "popover-open"
            | "autofill"
            | "-webkit-autofill"
            | "user-valid"
            | "user-invalid"
            | "host"
            | "current"
            | "playing"
            | "muted"
            | "seeking"
            | "stalled"
            | "buffering"
            | "volume-locked"
            | "active-view-transition" => PseudoClass::Never,
            "valid" | "invalid" | "in-range" | "out-of-range" | "placeholder-shown" | "default" | "indeterminate"
            | "paused" | "has-slotted" | "xr-overlay" | "interest-source" | "interest-target" => PseudoClass::Unknown,
            _ => return unsupported(),
        };
        Ok(class)
    }

    fn parse_non_ts_functional_pseudo_class(
        &self,
        name: &str,
        arguments: &mut CssParser<'i>,
        _: bool,
    ) -> Result<PseudoClass, SelectorError> {
        match name.to_ascii_lowercase().as_str() {
            "lang" => {
                let languages = arguments.parse_comma_separated(|input| {
                    Ok::<_, SelectorError>(input.expect_ident_or_string()?.as_ref().into())
                })?;
                Ok(PseudoClass::Lang(languages))
            }
            "dir" | "state" | "host" | "host-context" | "active-view-transition-type" => {
                while arguments.next().is_ok() {}
                Ok(PseudoClass::Unknown)
            }
            _ => unsupported(),
        }
    }

    fn parse_pseudo_element(&self, name: &str) -> Result<PseudoElement, SelectorError> {
        match name.to_ascii_lowercase().as_str() {
            "before" | "after" => Ok(PseudoElement::Generated),
            "first-line" => Ok(PseudoElement::FirstLine),
            "first-letter" => Ok(PseudoElement::FirstLetter),
            "details-content" => Ok(PseudoElement::Details),
            "marker"
            | "selection"
            | "placeholder"
            | "backdrop"
            | "file-selector-button"
            | "cue"
            | "grammar-error"
            | "spelling-error"
            | "target-text"
            | "search-text"
            | "checkmark"
            | "picker-icon"
            | "column"
            | "scroll-marker"
            | "scroll-marker-group" => Ok(PseudoElement::Other),
            name if name.starts_with("-webkit-") => Ok(PseudoElement::Other),
            _ => unsupported(),
        }
    }

    fn parse_functional_pseudo_element(
        &self,
        _: &str,
        arguments: &mut CssParser<'i>,
    ) -> Result<PseudoElement, SelectorError> {
        while arguments.next().is_ok() {}
        Ok(PseudoElement::Other)
    }

    fn namespace_for_prefix(&self, _: &CssName) -> Option<CssName> {
        None
    }
}

/// The reader that a page is evaluated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::html) enum Reader<'a> {
    /// Reads on a screen with light colours, and does not touch anything.
    Usual,
    /// Has a screen, or a printer, for which this condition holds.
    Condition(&'a str),
    /// Points at elements and clicks on them.
    Interacting,
    /// Reads in Outlook with dark colours, which marks elements with attributes.
    OutlookDark,
    /// Sees the elements during their animations.
    Animated(AnimationStep),
    /// All of them at once.
    All,
}

/// A part of an animation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::html) enum AnimationStep {
    Start,
    Middle,
    End,
}

impl Reader<'_> {
    /// Whether rules apply that have these conditions.
    pub(in crate::html) fn meets(self, conditions: &[Rc<str>]) -> bool {
        match self {
            _ if conditions.is_empty() => true,
            Self::All => true,
            Self::Condition(met) => conditions.iter().any(|condition| **condition == *met),
            _ => false,
        }
    }
}

/// The budget for matching and the cascade, and whether an undecided pseudo-class was found.
#[derive(Debug)]
pub(in crate::html) struct WorkBudget {
    remaining_steps: Cell<usize>,
    /// Whether undecided pseudo-classes and conditions count as matching.
    pub(in crate::html) assume_match: bool,
    /// Whether an undecided pseudo-class was evaluated.
    pub(in crate::html) met_undecided: Cell<bool>,
    /// Whether a pseudo-class was evaluated that needs a user.
    pub(in crate::html) met_interaction: Cell<bool>,
    /// Whether an attribute was evaluated that Outlook adds.
    pub(in crate::html) met_outlook: Cell<bool>,
}

impl WorkBudget {
    pub(in crate::html) fn new(steps: usize, assume: bool) -> Self {
        Self {
            remaining_steps: Cell::new(steps),
            assume_match: assume,
            met_undecided: Cell::new(false),
            met_interaction: Cell::new(false),
            met_outlook: Cell::new(false),
        }
    }

    /// Spends steps. Unwinds to [`within_budget`] once the budget is exhausted.
    pub(in crate::html) fn spend(&self, steps: usize) {
        match self.remaining_steps.get().checked_sub(steps) {
            Some(left) => self.remaining_steps.set(left),
            None => self.give_up(),
        }
    }

    /// Spends the steps for processing a text.
    pub(in crate::html) fn spend_on_text(&self, text: &str) {
        self.spend(1 + text.len());
    }

    /// Unwinds to [`within_budget`], because a limit was reached and the page cannot be decided.
    pub(in crate::html) fn give_up(&self) -> ! {
        panic::resume_unwind(Box::new(BudgetExhausted))
    }

    pub(in crate::html) fn remaining_steps(&self) -> usize {
        self.remaining_steps.get()
    }
}

/// The panic payload for an exhausted budget.
struct BudgetExhausted;

/// Runs a computation that spends a budget. `None` if the budget is exhausted.
pub(in crate::html) fn within_budget<T>(compute: impl FnOnce() -> T) -> Option<T> {
    match panic::catch_unwind(AssertUnwindSafe(compute)) {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<BudgetExhausted>() => None,
        Err(payload) => panic::resume_unwind(payload),
    }
}

/// An element of a tree, for the matcher.
#[derive(Clone, Copy)]
pub(in crate::html) struct ElementRef<'a> {
    pub(in crate::html) tree: &'a HtmlTree,
    pub(in crate::html) budget: &'a WorkBudget,
    pub(in crate::html) search: &'a AttributeSearch,
    pub(in crate::html) id: NodeId,
    /// The steps for going to another element: the selector may evaluate all its parts there.
    pub(in crate::html) steps: usize,
    pub(in crate::html) reader: Reader<'a>,
}

impl fmt::Debug for ElementRef<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "<{}>", self.tree.name(self.id))
    }
}

impl<'a> ElementRef<'a> {
    fn with_id(&self, id: NodeId) -> Self {
        ElementRef { id, ..*self }
    }

    /// The first element in a chain of siblings.
    fn first_element(&self, from: Option<NodeId>, step: impl Fn(NodeId) -> Option<NodeId>) -> Option<Self> {
        let mut at = from;
        while let Some(id) = at {
            self.budget.spend(1);
            if self.tree.is_element(id) {
                self.budget.spend(self.steps);
                return Some(self.with_id(id));
            }
            at = step(id);
        }
        None
    }

    fn attribute(&self, name: &str) -> Option<&'a str> {
        self.spend_on_attributes();
        self.tree.attribute(self.id, name)
    }

    /// Spends the steps for finding an attribute by its name.
    fn spend_on_attributes(&self) {
        if let NodeContent::Element(_, attributes) = &self.tree.node(self.id).content {
            self.budget.spend(1 + attributes.len() / ATTRIBUTES_PER_STEP);
        }
    }

    fn is_one_of(&self, names: &[&str]) -> bool {
        names.contains(&self.tree.name(self.id))
    }

    fn is_control(&self) -> bool {
        self.is_one_of(&["button", "input", "select", "textarea", "optgroup", "option", "fieldset"])
    }

    fn is_editable(&self) -> bool {
        let editable = self.is_one_of(&["input", "textarea"]) && self.attribute("readonly").is_none();
        editable || self.attribute("contenteditable").is_some()
    }

    fn has_language(&self, languages: &[Box<str>]) -> bool {
        let mut at = Some(self.id);
        while let Some(id) = at {
            if let Some(language) = self.with_id(id).attribute("lang") {
                self.budget.spend(languages.iter().map(|wanted| 1 + wanted.len()).sum());
                self.budget.spend_on_text(language);
                let language = language.to_ascii_lowercase();
                return languages.iter().any(|wanted| {
                    let rest = language.strip_prefix(wanted.to_ascii_lowercase().trim_start_matches("*-"));
                    &**wanted == "*" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
                });
            }
            at = self.tree.node(id).parent;
        }
        false
    }

    fn matches_class(&self, class: &PseudoClass) -> bool {
        match class {
            PseudoClass::Never => {
                self.budget.met_interaction.set(true);
                matches!(self.reader, Reader::Interacting | Reader::All)
            }
            PseudoClass::Always => true,
            PseudoClass::Link => selectors::Element::is_link(self),
            PseudoClass::Checked => self.attribute("checked").or(self.attribute("selected")).is_some(),
            PseudoClass::Disabled => self.is_control() && self.attribute("disabled").is_some(),
            PseudoClass::Enabled => self.is_control() && self.attribute("disabled").is_none(),
            PseudoClass::Required => self.is_control() && self.attribute("required").is_some(),
            PseudoClass::Optional => {
                self.is_one_of(&["input", "select", "textarea"]) && self.attribute("required").is_none()
            }
            PseudoClass::Editable => self.is_editable(),
            PseudoClass::NotEditable => !self.is_editable(),
            PseudoClass::Open => self.is_one_of(&["details", "dialog"]) && self.attribute("open").is_some(),
            PseudoClass::Lang(languages) => self.has_language(languages),
            PseudoClass::Unknown => {
                self.budget.met_undecided.set(true);
                self.budget.assume_match
            }
        }
    }
}

impl selectors::Element for ElementRef<'_> {
    type Impl = SelectorTypes;

    fn opaque(&self) -> OpaqueElement {
        OpaqueElement::new(self.tree.node(self.id))
    }

    fn parent_element(&self) -> Option<Self> {
        self.budget.spend(self.steps);
        let parent = self.tree.node(self.id).parent.filter(|parent| self.tree.is_element(*parent))?;
        Some(self.with_id(parent))
    }

    fn parent_node_is_shadow_root(&self) -> bool {
        false
    }

    fn containing_shadow_host(&self) -> Option<Self> {
        None
    }

    fn is_pseudo_element(&self) -> bool {
        false
    }

    fn prev_sibling_element(&self) -> Option<Self> {
        self.first_element(self.tree.node(self.id).previous, |id| self.tree.node(id).previous)
    }

    fn next_sibling_element(&self) -> Option<Self> {
        self.first_element(self.tree.node(self.id).next, |id| self.tree.node(id).next)
    }

    fn first_element_child(&self) -> Option<Self> {
        self.first_element(self.tree.node(self.id).first, |id| self.tree.node(id).next)
    }

    fn is_html_element_in_html_document(&self) -> bool {
        self.tree.is_html(self.id)
    }

    fn has_local_name(&self, name: &CssName) -> bool {
        self.tree.name(self.id) == name.as_ref()
    }

    fn has_namespace(&self, namespace: &CssName) -> bool {
        let NodeContent::Element(name, _) = &self.tree.node(self.id).content else { return false };
        &*name.ns == namespace.as_ref()
    }

    fn is_same_type(&self, other: &Self) -> bool {
        self.budget.spend(1);
        self.tree.name(self.id) == self.tree.name(other.id)
    }

    fn attr_matches(
        &self,
        namespace: &NamespaceConstraint<&CssName>,
        name: &CssName,
        operation: &AttrSelectorOperation<&CssName>,
    ) -> bool {
        let NodeContent::Element(_, attributes) = &self.tree.node(self.id).content else { return false };
        self.spend_on_attributes();
        if OUTLOOK_ATTRIBUTES.contains(&name.as_ref()) {
            self.budget.met_outlook.set(true);
            if matches!(self.reader, Reader::OutlookDark | Reader::All) {
                return true;
            }
        }
        attributes.iter().enumerate().any(|(position, attribute)| {
            let fits = match namespace {
                NamespaceConstraint::Any => true,
                NamespaceConstraint::Specific(url) => &*attribute.name.ns == url.as_ref(),
            };
            if !fits || &*attribute.name.local != name.as_ref() {
                return false;
            }
            if let AttrSelectorOperation::WithValue {
                operator: AttrSelectorOperator::Substring,
                case_sensitivity,
                value: needle,
            } = operation
            {
                let value = AttributeValue { element: self.id, position, text: &attribute.value };
                let ignore_case = *case_sensitivity == CaseSensitivity::AsciiCaseInsensitive;
                return self.search.contains(value, needle.as_ref(), ignore_case, self.budget);
            }
            self.budget.spend(1 + attribute.value.len() / (BYTES_PER_STEP / 4));
            operation.eval_str(&attribute.value)
        })
    }

    fn match_non_ts_pseudo_class(&self, class: &PseudoClass, _: &mut MatchingContext<SelectorTypes>) -> bool {
        self.budget.spend(1);
        self.matches_class(class)
    }

    /// Rules for pseudo-elements are matched against the element they belong to.
    fn match_pseudo_element(&self, element: &PseudoElement, _: &mut MatchingContext<SelectorTypes>) -> bool {
        *element != PseudoElement::Other
    }

    fn apply_selector_flags(&self, _: ElementSelectorFlags) {}

    fn is_link(&self) -> bool {
        self.is_one_of(&["a", "area"]) && self.attribute("href").is_some()
    }

    fn is_html_slot_element(&self) -> bool {
        false
    }

    fn has_id(&self, id: &CssName, case: CaseSensitivity) -> bool {
        self.attribute("id").is_some_and(|value| case.eq(value.as_bytes(), id.as_ref().as_bytes()))
    }

    fn has_class(&self, name: &CssName, case: CaseSensitivity) -> bool {
        let Some(classes) = self.attribute("class") else { return false };
        self.budget.spend(1 + classes.len() / (BYTES_PER_STEP / 4));
        classes.split_ascii_whitespace().any(|class| case.eq(class.as_bytes(), name.as_ref().as_bytes()))
    }

    fn has_custom_state(&self, _: &CssName) -> bool {
        false
    }

    fn imported_part(&self, _: &CssName) -> Option<CssName> {
        None
    }

    fn is_part(&self, _: &CssName) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        self.tree.children(self.id).inspect(|_| self.budget.spend(1)).all(|child| {
            match &self.tree.node(child).content {
                NodeContent::Text(text) => text.is_empty(),
                NodeContent::Comment(_) => true,
                _ => false,
            }
        })
    }

    fn is_root(&self) -> bool {
        self.tree.node(self.id).parent.is_some_and(|parent| !self.tree.is_element(parent))
    }

    fn add_element_unique_hashes(&self, _: &mut BloomFilter) -> bool {
        false
    }
}
