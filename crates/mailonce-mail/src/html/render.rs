//! Renders the visible page as plain text.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{HtmlPage, MAX_HTML_BYTES};

/// Line width in characters before the renderer wraps. Paragraphs of mails are shorter.
const WIDTH: usize = 2000;

/// Renders the page as plain text, with lists and quotes marked. Hidden content was removed before.
///
/// The renderer gets only what [`HtmlPage::parse`] wrote: few tags, no attributes but `start`, bounded depth. If it
/// fails or panics all the same, the result is the page's plain text.
pub fn render(page: &HtmlPage) -> String {
    let render = || {
        let config = html2text::config::plain_no_decorate().raw_mode(true).no_table_borders().allow_width_overflow();
        config.string_from_read(page.clean_html.as_bytes(), WIDTH).ok()
    };
    let text = catch_unwind(AssertUnwindSafe(render)).ok().flatten();
    let mut text = text.unwrap_or_else(|| page.text.clone());
    // Nested quotes repeat their markers on every line, so the output may be longer than the input.
    text.truncate(text.floor_char_boundary(MAX_HTML_BYTES));
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim().to_owned()
}
