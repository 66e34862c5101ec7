//! How selectors match the elements of a tree. Every step between elements is charged to the budget.

use std::fmt;

use selectors::{
    OpaqueElement,
    attr::{AttrSelectorOperation, AttrSelectorOperator, CaseSensitivity, NamespaceConstraint},
    bloom::BloomFilter,
    context::MatchingContext,
    matching::ElementSelectorFlags,
};

use super::{
    attribute::{AttributeSearch, AttributeValue, BYTES_PER_STEP},
    reader::Reader,
    selector::{CssName, PseudoClass, PseudoElement, SelectorTypes},
    work_budget::WorkBudget,
};
use crate::html::tree::{HtmlTree, NodeContent, NodeId};

/// Attributes of an element that are compared in the time of one step.
const ATTRIBUTES_PER_STEP: usize = 4;
/// The start of the classes that Gmail adds around a mail.
const GMAIL_CLASS_PREFIX: &str = "gmail_";
/// Attributes that Outlook adds to elements whose colours it changes.
const OUTLOOK_ATTRIBUTES: [&str; 4] = ["data-ogsc", "data-ogsb", "data-ogac", "data-ogab"];

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

    /// Whether the page is evaluated for Gmail. Records that the answer matters.
    fn is_in_gmail(&self) -> bool {
        self.budget.met_gmail.set(true);
        matches!(self.reader, Reader::Gmail | Reader::All)
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
        match (self.tree.name(self.id), name.as_ref()) {
            (own, wanted) if own == wanted => true,
            // Gmail drops the head and puts an empty `u` there.
            ("head", "u") => self.is_in_gmail(),
            ("body", "div") => matches!(self.reader, Reader::Gmail | Reader::All),
            _ => false,
        }
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
        if name.as_ref().starts_with(GMAIL_CLASS_PREFIX) && self.is_one_of(&["body"]) && self.is_in_gmail() {
            return true;
        }
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
