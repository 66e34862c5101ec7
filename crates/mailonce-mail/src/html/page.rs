//! A page as its reader sees it.

use super::{tree::Tree, visible, walk::Walk};

/// A page as its reader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Visible text: inline tags vanish, blocks and rows begin a line, cells are a blank apart.
    pub text: String,
    /// The visible part as small, well-formed HTML without attributes.
    pub clean: String,
    /// Links in the order they stand.
    pub anchors: Vec<Anchor>,
    /// What was taken out.
    pub hidden: Hidden,
    /// The start of the hidden text: to be searched for tricks, never to be shown.
    pub hidden_text: String,
    /// Whether a limit was reached. Text that could not be judged is hidden.
    pub cut: bool,
}

/// A link and the words that stand on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Where it goes, as written.
    pub href: String,
    /// What its reader sees, one line.
    pub text: String,
    /// Whether its reader sees it at all.
    pub hidden: bool,
}

/// What a reader would not have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    /// Characters of hidden text.
    pub chars: usize,
    /// Comments that are more than conditions for old mail programs.
    pub comments: usize,
    /// Images that are there to be fetched, not to be seen.
    pub pixels: usize,
    /// Characters that are seen, but hidden from screen readers by `aria-hidden`. They stay in the text.
    pub aria_chars: usize,
}

impl Page {
    /// Reads a page.
    pub fn read(html: &str) -> Self {
        let tree = Tree::read(html);
        let verdict = visible::judge(&tree);
        let mut walk = Walk::new(&tree, &verdict);
        walk.run();
        walk.finish()
    }
}
