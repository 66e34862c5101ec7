//! Searches attribute values for `[name*="text"]` in linear time.
//!
//! Rules of one style sheet often share a selector: each rule nested in `[x*="y"]` evaluates it again. Prepared search
//! texts and results for long values are therefore kept.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use memchr::memmem::Finder;

use super::work_budget::WorkBudget;
use crate::html::tree::NodeId;

/// Bytes of a value that are searched in the time of one step.
pub(super) const BYTES_PER_STEP: usize = 32;
/// Values with fewer bytes are searched again instead of being remembered.
const MIN_REMEMBERED_BYTES: usize = 128;
/// Maximum results that are kept.
const MAX_RESULTS: usize = 50_000;

/// An attribute value: its element, its position among the attributes of the element, and its text.
#[derive(Clone, Copy)]
pub(super) struct AttributeValue<'a> {
    pub(super) element: NodeId,
    pub(super) position: usize,
    pub(super) text: &'a str,
}

/// Identifies a search text: its address in the style sheet, and whether case is ignored.
type SearchTextKey = (usize, bool);

/// Prepared search texts and results of one style sheet. The style sheet must outlive it.
#[derive(Default)]
pub(in crate::html) struct AttributeSearch {
    finders: RefCell<BTreeMap<SearchTextKey, Rc<Finder<'static>>>>,
    results: RefCell<BTreeMap<(NodeId, usize, SearchTextKey), bool>>,
}

impl AttributeSearch {
    /// Whether a value contains a text.
    pub(super) fn contains(
        &self,
        value: AttributeValue<'_>,
        needle: &str,
        ignore_case: bool,
        budget: &WorkBudget,
    ) -> bool {
        budget.spend(2);
        if needle.is_empty() || needle.len() > value.text.len() {
            return false;
        }
        let needle_key = (needle.as_ptr().addr(), ignore_case);
        let key = (value.element, value.position, needle_key);
        if let Some(known) = self.results.borrow().get(&key) {
            return *known;
        }
        budget.spend(value.text.len() / BYTES_PER_STEP);
        let finder = self.finder(needle_key, needle, budget);
        let is_found = if ignore_case {
            finder.find(value.text.to_ascii_lowercase().as_bytes()).is_some()
        } else {
            finder.find(value.text.as_bytes()).is_some()
        };
        let mut results = self.results.borrow_mut();
        if value.text.len() >= MIN_REMEMBERED_BYTES && results.len() < MAX_RESULTS {
            results.insert(key, is_found);
        }
        is_found
    }

    fn finder(&self, key: SearchTextKey, needle: &str, budget: &WorkBudget) -> Rc<Finder<'static>> {
        let mut finders = self.finders.borrow_mut();
        let finder = finders.entry(key).or_insert_with(|| {
            budget.spend(1 + needle.len());
            let folded = if key.1 { needle.to_ascii_lowercase() } else { needle.to_owned() };
            Rc::new(Finder::new(folded.as_bytes()).into_owned())
        });
        Rc::clone(finder)
    }
}
