//! HTML of strangers: what a reader of it sees, what was hidden from the reader, and where its links go.
//!
//! One tree decides all three, so that no two parts of this crate see two different mails. html5ever builds the tree as
//! browsers do, and the CSS of the mail decides what is seen. Nothing is fetched, scripts are never run, and every list has
//! an end. Where a limit is reached, text that could not be judged counts as hidden.
//!
//! | file | what it holds |
//! |---|---|
//! | `tree` | the page as a tree |
//! | `css` | style sheets, and computed styles |
//! | `visible` | which text a person would see |
//! | `frame` | an open element: what hides its text |
//! | `element` | elements by what they do to the text |
//! | `page` | a page as its reader sees it |
//! | `walk` | from the tree to the page |
//! | `list` | the numbers of list items |
//! | `base` | where links lead |
//! | `unrendered` | what mail programs may show and the page does not |
//! | `text` | the page as text for a reader |

mod base;
mod css;
mod element;
mod element_state;
mod list;
mod page;
mod page_builder;
mod render;
mod tree;
mod unrendered;
mod visibility;

pub use page::{Anchor, HiddenCounts, HtmlPage};
pub use render::render;

/// Bytes of HTML that are looked at.
pub const MAX_HTML_BYTES: usize = 768 * 1024;
/// Tags that are looked at.
pub const MAX_TAGS: usize = 20_000;
/// Nodes of a tree. Browsers open some elements again, so there may be more than tags.
pub const MAX_NODES: usize = 80_000;
/// How deep elements may stand in each other. Chromium has the same limit.
pub const MAX_NESTING: usize = 512;
/// How deep the tags of the clean page may stand in each other.
pub const MAX_CLEAN_DEPTH: usize = 200;
/// Characters of the description of an image.
const MAX_ALT_CHARS: usize = 200;
/// Links kept of one page.
pub const MAX_ANCHORS: usize = 500;

#[cfg(test)]
mod tests;
