//! Elements by what they do to the text.

/// Elements that begin a line.
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
/// Tags that the clean page keeps.
pub(super) const CLEAN_ELEMENTS: &[&str] =
    &["blockquote", "div", "h1", "h2", "h3", "h4", "h5", "h6", "li", "ol", "p", "pre", "ul"];
/// Headings.
pub(super) const HEADING_ELEMENTS: &[&str] = &["h1", "h2", "h3", "h4", "h5", "h6"];
/// Elements whose content is no text in any program: it is neither shown nor counted as hidden.
pub(super) const NON_TEXT_ELEMENTS: &[&str] = &["script", "style", "title"];
