//! Parses untrusted HTML: the text a reader sees, the text hidden from the reader, and the targets of the links.
//!
//! One tree decides all three, so that every part of this crate sees the same mail. html5ever builds the tree as
//! browsers do, and the mail's CSS decides what is visible. Nothing is fetched, scripts never run, and every list is
//! bounded. Once a limit is reached, text that was not evaluated counts as hidden.
//!
//! | file | contents |
//! |---|---|
//! | `tree` | the page as a tree |
//! | `css` | style sheets and computed styles |
//! | `visibility` | which text a person would see |
//! | `element_state` | an open element, and what hides its text |
//! | `element` | element names, grouped by their effect on text |
//! | `page` | the parsed page as its reader sees it |
//! | `page_builder` | builds the page from the tree |
//! | `list` | numbering of list items |
//! | `base` | resolves link targets |
//! | `unrendered` | content that mail clients may show but the page leaves out |
//! | `render` | renders the page as plain text |

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

/// Maximum bytes of HTML that are parsed.
pub const MAX_HTML_BYTES: usize = 768 * 1024;
/// Maximum number of start tags that are parsed.
pub const MAX_TAGS: usize = 20_000;
/// Maximum number of nodes in a tree. It exceeds the tag limit because browsers reopen some elements.
pub const MAX_NODES: usize = 80_000;
/// Maximum attributes of one element. An element with more counts as hidden.
const MAX_ATTRIBUTES: usize = 1_000;
/// Maximum nesting depth of elements. Chromium has the same limit.
pub const MAX_NESTING: usize = 512;
/// Maximum nesting depth of tags in the clean HTML.
pub const MAX_CLEAN_DEPTH: usize = 200;
/// Maximum characters of an image's `alt` text.
const MAX_ALT_CHARS: usize = 200;
/// Maximum links kept per page.
pub const MAX_ANCHORS: usize = 500;

#[cfg(test)]
mod tests;
