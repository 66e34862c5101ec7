//! The visible page as text for a reader.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{HtmlPage, MAX_HTML_BYTES};

/// Characters of a line before it is broken. Paragraphs of mails are shorter.
const WIDTH: usize = 2000;

/// The page's words with lists and quotes marked. What is hidden was taken out before.
///
/// The renderer sees only what [`Page::read`] wrote: few tags, no attributes, bounded depth. Should it give up all the
/// same, the plain lines of the page are the answer.
pub fn render(page: &HtmlPage) -> String {
    let render = || {
        let config = html2text::config::plain_no_decorate().raw_mode(true).no_table_borders().allow_width_overflow();
        config.string_from_read(page.clean_html.as_bytes(), WIDTH).ok()
    };
    let text = catch_unwind(AssertUnwindSafe(render)).ok().flatten();
    let mut text = text.unwrap_or_else(|| page.text.clone());
    // Quotes in quotes repeat their marks on every line.
    text.truncate(text.floor_char_boundary(MAX_HTML_BYTES));
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim().to_owned()
}
