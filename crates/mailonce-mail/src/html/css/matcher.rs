//! Finds the rules that match an element. Rules are indexed by the tag, class or id in the last part of their selector.

use std::collections::BTreeMap;

use selectors::{
    context::{MatchingContext, MatchingForInvalidation, MatchingMode, NeedsSelectorFlags, QuirksMode, SelectorCaches},
    matching::matches_selector,
    parser::Component,
};

use super::{
    attribute::AttributeSearch,
    element_ref::ElementRef,
    reader::Reader,
    selector::match_steps,
    sheet::{StyleRule, StyleSheet},
    work_budget::WorkBudget,
};
use crate::html::tree::{HtmlTree, NodeId};

/// A rule that matches an element, with its position in the sheet.
pub(in crate::html) struct MatchedRule<'a> {
    pub(in crate::html) position: usize,
    pub(in crate::html) rule: &'a StyleRule,
}

/// Rules, indexed by the last part of their selectors.
pub(in crate::html) struct RuleMatcher<'a> {
    sheet: &'a StyleSheet,
    unkeyed: Vec<usize>,
    /// Keys are `.class`, `#id` and `tag`, in lower case.
    keyed: BTreeMap<String, Vec<usize>>,
    quirks: bool,
    search: AttributeSearch,
    reader: Reader<'a>,
}

impl<'a> RuleMatcher<'a> {
    pub(in crate::html) fn new(sheet: &'a StyleSheet, quirks: bool, reader: Reader<'a>) -> Self {
        let search = AttributeSearch::default();
        let mut matcher = Self { sheet, unkeyed: Vec::new(), keyed: BTreeMap::new(), quirks, search, reader };
        for (index, rule) in sheet.rules.iter().enumerate() {
            match rule_key(rule) {
                Some(key) => matcher.keyed.entry(key).or_default().push(index),
                None => matcher.unkeyed.push(index),
            }
        }
        matcher
    }

    /// Rules that match an element. Each candidate is charged to the budget.
    pub(in crate::html) fn matching_rules(
        &self,
        tree: &HtmlTree,
        budget: &WorkBudget,
        id: NodeId,
    ) -> Vec<MatchedRule<'a>> {
        let mut caches = SelectorCaches::default();
        let mut found = Vec::new();
        budget.spend_on_text(tree.attribute(id, "class").unwrap_or_default());
        let keyed = element_keys(tree, id).into_iter().filter_map(|key| self.keyed.get(&key)).flatten();
        for index in self.unkeyed.iter().chain(keyed) {
            let rule = &self.sheet.rules[*index];
            let steps = match_steps(rule.weight);
            budget.spend(steps);
            let element = ElementRef { tree, budget, search: &self.search, id, steps, reader: self.reader };
            let applies = (rule.is_certain || budget.assume_match) && self.reader.conditions_apply(&rule.other_readers);
            if applies && self.matches(rule, element, &mut caches) {
                found.push(MatchedRule { position: *index, rule });
            }
        }
        found
    }

    fn matches(&self, rule: &StyleRule, element: ElementRef<'_>, caches: &mut SelectorCaches) -> bool {
        let mode = if rule.pseudo.is_some() { MatchingMode::ForStatelessPseudoElement } else { MatchingMode::Normal };
        let quirks = if self.quirks { QuirksMode::Quirks } else { QuirksMode::NoQuirks };
        let mut context =
            MatchingContext::new(mode, None, caches, quirks, NeedsSelectorFlags::No, MatchingForInvalidation::No);
        matches_selector(&rule.selector, 0, None, element, &mut context)
    }
}

/// The class, id or tag that a matching element must have. `None` if any element may match.
fn rule_key(rule: &StyleRule) -> Option<String> {
    if rule.pseudo.is_some() {
        return None;
    }
    rule.selector.iter().find_map(|component| match component {
        Component::ID(id) => Some(format!("#{}", id.as_ref().to_ascii_lowercase())),
        Component::Class(class) => Some(format!(".{}", class.as_ref().to_ascii_lowercase())),
        Component::LocalName(name) => Some(name.lower_name.as_ref().to_ascii_lowercase()),
        _ => None,
    })
}

fn element_keys(tree: &HtmlTree, id: NodeId) -> Vec<String> {
    let mut keys = vec![tree.name(id).to_ascii_lowercase()];
    // Gmail turns the body into a `div`.
    keys.extend((tree.name(id) == "body").then(|| "div".to_owned()));
    keys.extend(tree.attribute(id, "id").map(|id| format!("#{}", id.to_ascii_lowercase())));
    let classes = tree.attribute(id, "class").unwrap_or_default();
    keys.extend(classes.split_ascii_whitespace().map(|class| format!(".{}", class.to_ascii_lowercase())));
    keys.sort_unstable();
    keys.dedup();
    keys
}
