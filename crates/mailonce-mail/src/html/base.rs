//! Resolves link targets. `<base>` completes links without a host, and changes some that seem to have one.

use url::Url;

use super::tree::{HtmlTree, ROOT};

/// The URL that a page's links are relative to: its first `<base href>`. A mail has no URL of its own.
pub(super) fn of_page(tree: &HtmlTree) -> Option<Url> {
    let mut at = Some(ROOT);
    while let Some(id) = at {
        if tree.name(id) == "base"
            && let Some(href) = tree.attribute(id, "href")
        {
            let url = parse(href)?;
            return (!matches!(url.scheme(), "data" | "javascript")).then_some(url);
        }
        // The content of a template is not part of the page.
        at = if tree.name(id) == "template" { tree.next_outside(id) } else { tree.next_in_order(id).0 };
    }
    None
}

/// The target of a link, or the link as written if it cannot be resolved.
pub(super) fn resolve(base: Option<&Url>, href: &str) -> String {
    let resolved = base.and_then(|base| base.join(href.trim()).ok());
    resolved.map_or_else(|| href.trim().to_owned(), |url| url.to_string())
}

/// Whether a link has a different target in a mail client that ignores `<base>`.
pub(super) fn is_ambiguous(base: Option<&Url>, href: &str) -> bool {
    let Some(base) = base else { return false };
    parse(href).is_some_and(|plain| base.join(href.trim()).is_ok_and(|resolved| resolved != plain))
}

/// Parses a URL without a base. Mail clients read `//host` as `https`.
fn parse(href: &str) -> Option<Url> {
    let href = href.trim();
    if href.starts_with("//") { Url::parse(&format!("https:{href}")).ok() } else { Url::parse(href).ok() }
}
