//! The parsed page as its reader sees it.

use super::{
    page_builder::PageBuilder,
    tree::HtmlTree,
    unrendered,
    visibility::{self, HiddenNodes},
};

/// A page as its reader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HtmlPage {
    /// Visible text. Inline tags are dropped, blocks and table rows start a new line, and cells are separated by a
    /// space.
    pub text: String,
    /// The visible part as minimal, well-formed HTML. The only attribute in it is `start`, on numbered lists.
    pub clean_html: String,
    /// Links in document order.
    pub anchors: Vec<Anchor>,
    /// Counts of the removed content.
    pub hidden: HiddenCounts,
    /// The start of the hidden text. It is scanned for prompt injection and never shown.
    pub hidden_text: String,
    /// Whether a limit was reached. Text that was not evaluated counts as hidden.
    pub is_truncated: bool,
}

/// A link and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The target: as written, or resolved against the page's `<base>`.
    pub href: String,
    /// The visible link text, on one line.
    pub text: String,
    /// Whether the reader sees nothing to click on.
    pub is_hidden: bool,
}

/// Counts of the content that a reader would not have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HiddenCounts {
    /// Characters of hidden text.
    pub chars: usize,
    /// HTML comments, without conditional comments for old mail clients.
    pub comments: usize,
    /// Images too small or too hidden to be seen, such as tracking pixels.
    pub tracking_pixels: usize,
    /// Visible characters that `aria-hidden` hides from screen readers. They stay in the text.
    pub aria_hidden_chars: usize,
}

impl HtmlPage {
    /// Parses a page.
    pub fn parse(html: &str) -> Self {
        let tree = HtmlTree::parse(html);
        Self::of_tree(&tree, &visibility::find_hidden(&tree))
    }

    /// Parses a page for a person who approves it. The second value lists content that mail clients may show but the
    /// page leaves out.
    pub fn parse_for_approval(html: &str) -> (Self, Vec<String>) {
        let tree = HtmlTree::parse(html);
        let hidden = visibility::find_hidden(&tree);
        let mut page = Self::of_tree(&tree, &hidden);
        let unrendered = unrendered::find(&tree, &hidden, &page);
        page.is_truncated |= unrendered.is_truncated;
        (page, unrendered.names.into_iter().collect())
    }

    fn of_tree(tree: &HtmlTree, hidden: &HiddenNodes) -> Self {
        let mut builder = PageBuilder::new(tree, hidden);
        builder.run();
        builder.finish()
    }
}
