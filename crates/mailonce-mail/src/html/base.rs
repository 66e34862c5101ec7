//! Where links lead: `<base>` completes those without a host, and some that seem to have one.

use url::Url;

use super::tree::{HtmlTree, ROOT};

/// The address that links of a page are relative to. A mail has none of its own.
pub(super) fn of_page(tree: &HtmlTree) -> Option<Url> {
    let mut at = Some(ROOT);
    while let Some(id) = at {
        if tree.name(id) == "base"
            && let Some(href) = tree.attribute(id, "href")
        {
            let url = parse(href)?;
            return (!matches!(url.scheme(), "data" | "javascript")).then_some(url);
        }
        // What is in a template is no part of the page.
        at = if tree.name(id) == "template" { tree.next_outside(id) } else { tree.next_in_order(id).0 };
    }
    None
}

/// Where a link leads, or the link as written where nothing tells.
pub(super) fn resolve(base: Option<&Url>, href: &str) -> String {
    let resolved = base.and_then(|base| base.join(href.trim()).ok());
    resolved.map_or_else(|| href.trim().to_owned(), |url| url.to_string())
}

/// Whether a link leads elsewhere in a mail program that ignores `<base>`.
pub(super) fn is_ambiguous(base: Option<&Url>, href: &str) -> bool {
    let Some(base) = base else { return false };
    parse(href).is_some_and(|plain| base.join(href.trim()).is_ok_and(|resolved| resolved != plain))
}

/// An address by itself. Mail programs take `//host` as `https`.
fn parse(href: &str) -> Option<Url> {
    let href = href.trim();
    if href.starts_with("//") { Url::parse(&format!("https:{href}")).ok() } else { Url::parse(href).ok() }
}
