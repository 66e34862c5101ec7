//! A page as its reader sees it.

use super::tree::HtmlTree;
use crate::html::{page_builder::PageBuilder, visibility};

/// A page as its reader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HtmlPage {
    /// Visible text: inline tags vanish, blocks and rows begin a line, cells are a blank apart.
    pub text: String,
    /// The visible part as small, well-formed HTML without attributes.
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
    /// Where it goes, as written.
    pub href: String,
    /// What its reader sees, one line.
    pub text: String,
    /// Whether its reader sees it at all.
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
        let verdict = visibility::find_hidden(&tree);
        let mut walk = PageBuilder::new(&tree, &verdict);
        walk.run();
        walk.finish()
    }
}
