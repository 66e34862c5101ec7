//! HTML of strangers: what a reader of it sees, what was hidden from the reader, and where its links go.
//!
//! One pass over one stream of tokens decides all three, so that no two parts of the room see two different mails.
//! Nothing is fetched, scripts and styles are never text, and every list has an end.
//!
//! | file | what it holds |
//! |---|---|
//! | `token` | tags, attributes, text and comments |
//! | `element` | elements by what they do |
//! | `entity` | `&amp;` and its kin |
//! | `style` | declarations and the few rules that hide |
//! | `page` | a page as its reader sees it |
//! | `walk` | open elements, and what they hide |
//! | `text` | the page as text for a reader |

mod element;
mod entity;
mod page;
mod style;
mod text;
mod token;
mod walk;

pub use page::{Anchor, Hidden, Page};
pub use text::render;

/// Bytes of HTML that are looked at.
pub const HTML_BYTES: usize = 768 * 1024;
/// Tags that are looked at.
pub const TAGS: usize = 20_000;
/// Attributes of one tag that are looked at.
pub const ATTRIBUTES: usize = 40;
/// Bytes of one attribute's value.
pub const VALUE_BYTES: usize = 8 * 1024;
/// How deep elements may stand in each other.
pub const DEPTH: usize = 200;
/// Links kept of one page.
pub const ANCHORS: usize = 500;

#[cfg(test)]
mod tests;
