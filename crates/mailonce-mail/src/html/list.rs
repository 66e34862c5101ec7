//! Numbers list items as browsers do (WHATWG HTML §4.4.5 and §4.4.8).

use super::{
    tree::{HtmlTree, NodeId},
    visibility::HiddenNodes,
};

/// The state of counting an ordered list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListCounter {
    next: i64,
    step: i64,
}

impl ListCounter {
    /// The counter of an `ol` before its first item.
    pub(super) fn new(tree: &HtmlTree, hidden: &HiddenNodes, list: NodeId) -> Self {
        let is_reversed = tree.attribute(list, "reversed").is_some();
        let start = tree.attribute(list, "start").and_then(parse_integer);
        let first = || if is_reversed { count_items(tree, hidden, list) } else { 1 };
        Self { next: start.unwrap_or_else(first), step: if is_reversed { -1 } else { 1 } }
    }

    /// The number of the next item. The `value` attribute of an item also changes the numbers after it.
    pub(super) fn number(&mut self, tree: &HtmlTree, item: NodeId) -> i64 {
        let number = tree.attribute(item, "value").and_then(parse_integer).unwrap_or(self.next);
        self.next = number + self.step;
        number
    }
}

/// Whether an element is a list, so that the list items inside it belong to it.
pub(super) fn is_list(name: &str) -> bool {
    matches!(name, "ol" | "ul" | "menu" | "dir")
}

/// Counts the items of a list, without those of nested lists.
fn count_items(tree: &HtmlTree, hidden: &HiddenNodes, list: NodeId) -> i64 {
    let (mut count, mut at) = (0, tree.next_in_order(list).0);
    let end = tree.next_outside(list);
    while let Some(id) = at.filter(|id| Some(*id) != end) {
        count += i64::from(tree.name(id) == "li" && !hidden.boxless[id]);
        at = if is_list(tree.name(id)) { tree.next_outside(id) } else { tree.next_in_order(id).0 };
    }
    count
}

/// Parses an integer as HTML does: everything after the digits is ignored.
fn parse_integer(text: &str) -> Option<i64> {
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace());
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number: i32 = digits[..end].parse().ok()?;
    Some(sign * i64::from(number))
}
