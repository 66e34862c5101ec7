//! A page as its reader sees it.

use super::{
    page_builder::PageBuilder,
    tree::HtmlTree,
    unrendered,
    visibility::{self, HiddenNodes},
};

/// A page as its reader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HtmlPage {
    /// Visible text: inline tags vanish, blocks and rows begin a line, cells are a blank apart.
    pub text: String,
    /// The visible part as small, well-formed HTML. Its only attribute is the `start` of numbered lists.
    pub clean_html: String,
    /// Links in the order they stand.
    pub anchors: Vec<Anchor>,
    /// What was taken out.
    pub hidden: HiddenCounts,
    /// The start of the hidden text: to be searched for tricks, never to be shown.
    pub hidden_text: String,
    /// Whether a limit was reached. Text that could not be judged is hidden.
    pub is_truncated: bool,
}

/// A link and the words that stand on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Where it goes: as written, or as the page's `<base>` completes it.
    pub href: String,
    /// What its reader sees, one line.
    pub text: String,
    /// Whether its reader sees nothing to click on.
    pub is_hidden: bool,
}

/// What a reader would not have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HiddenCounts {
    /// Characters of hidden text.
    pub chars: usize,
    /// Comments that are more than conditions for old mail programs.
    pub comments: usize,
    /// Images that are there to be fetched, not to be seen.
    pub tracking_pixels: usize,
    /// Characters that are seen, but hidden from screen readers by `aria-hidden`. They stay in the text.
    pub aria_hidden_chars: usize,
}

impl HtmlPage {
    /// Reads a page.
    pub fn parse(html: &str) -> Self {
        let tree = HtmlTree::parse(html);
        Self::of_tree(&tree, &visibility::find_hidden(&tree))
    }

    /// Reads a page for a person who approves it. The second value names what mail programs may show of it and the page
    /// does not.
    pub fn parse_for_approval(html: &str) -> (Self, Vec<String>) {
        let tree = HtmlTree::parse(html);
        let hidden = visibility::find_hidden(&tree);
        let mut page = Self::of_tree(&tree, &hidden);
        let unrendered = unrendered::find(&tree, &hidden, &page);
        page.is_truncated |= unrendered.is_truncated;
        (page, unrendered.names.into_iter().collect())
    }

    fn of_tree(tree: &HtmlTree, hidden: &HiddenNodes) -> Self {
        let mut walk = PageBuilder::new(tree, hidden);
        walk.run();
        walk.finish()
    }
}
