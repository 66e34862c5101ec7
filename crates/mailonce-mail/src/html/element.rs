//! Element names, grouped by their effect on text.

/// Elements that start a new line.
pub(super) const BLOCK_ELEMENTS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "center",
    "dd",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "tbody",
    "tfoot",
    "thead",
    "tr",
    "ul",
];
/// Tags that are kept in the clean HTML.
pub(super) const CLEAN_ELEMENTS: &[&str] =
    &["blockquote", "div", "h1", "h2", "h3", "h4", "h5", "h6", "li", "ol", "p", "pre", "ul"];
/// Headings.
pub(super) const HEADING_ELEMENTS: &[&str] = &["h1", "h2", "h3", "h4", "h5", "h6"];
/// Elements whose content is never displayed as text. It is neither shown nor counted as hidden.
pub(super) const NON_TEXT_ELEMENTS: &[&str] = &["script", "style", "title"];
