//! The browser's default styles, and the styles of presentational attributes such as `bgcolor`.

use super::{
    colour::Colour,
    declaration::{self, Declaration},
};
use crate::html::tree::{HtmlTree, NodeId};

/// The part of a browser's style sheet that affects visibility (WHATWG HTML §15.3, and Chromium).
pub(in crate::html) const BROWSER_SHEET: &str = "
[hidden], area, base, basefont, datalist, head, link, meta, noembed, noframes, param, rp, script, style, template, title,
noscript, source, track, col, colgroup { display: none }
dialog:not([open]), audio:not([controls]), input[type=hidden i], [popover] { display: none }
[hidden=until-found i] { display: block; content-visibility: hidden }
address, article, aside, blockquote, body, center, dd, details, dialog, dir, div, dl, dt, fieldset, figcaption, figure,
footer, form, h1, h2, h3, h4, h5, h6, header, hgroup, hr, html, legend, li, listing, main, menu, nav, ol, optgroup, option,
p, plaintext, pre, search, section, summary, ul, xmp { display: block }
table { display: table }
tr { display: table-row }
tbody, thead, tfoot { display: table-row-group }
td, th { display: table-cell }
caption { display: table-caption }
button, input, select, textarea, meter, progress, marquee { display: inline-block }
:link { color: -webkit-link }
mark { background-color: yellow; color: black }
button { background-color: buttonface; color: black; font-size: 13.333px; text-indent: 0; letter-spacing: normal; line-height: normal }
input, select, textarea { background-color: field; color: black; font-size: 13.333px; text-indent: 0; letter-spacing: normal; line-height: normal }
dialog { position: absolute; background-color: canvas; color: canvastext }
h1 { font-size: 2em } h2 { font-size: 1.5em } h3 { font-size: 1.17em } h5 { font-size: .83em } h6 { font-size: .67em }
big { font-size: larger } small, sub, sup { font-size: smaller } rt { font-size: 50% }
marquee, textarea { overflow: hidden }
pre, nobr, listing, plaintext, xmp { white-space: pre }
";

/// The additional default styles in quirks mode.
pub(in crate::html) const QUIRKS_SHEET: &str = "table { font-size: medium; line-height: normal; white-space: normal }";

/// The declarations that an element's presentational attributes are equivalent to.
pub(in crate::html) fn attribute_declarations(tree: &HtmlTree, id: NodeId, link: Option<Colour>) -> Vec<Declaration> {
    let name = tree.name(id);
    let mut css = String::new();
    let attribute = |key: &str| tree.attribute(id, key);
    let colour = |key: &str| attribute(key).and_then(Colour::parse_legacy);
    if matches!(name, "body" | "table" | "thead" | "tbody" | "tfoot" | "tr" | "td" | "th" | "marquee") {
        declare(&mut css, "background-color", colour("bgcolor"));
    }
    match name {
        "body" => declare(&mut css, "color", colour("text")),
        "font" => {
            declare(&mut css, "color", colour("color"));
            css.push_str(attribute("size").and_then(font_size).unwrap_or_default());
        }
        "a" if attribute("href").is_some() => declare(&mut css, "color", link),
        _ => {}
    }
    if matches!(name, "td" | "th" | "body" | "table" | "tr")
        && let Some(url) = attribute("background").filter(|url| url.len() < 64 && !url.contains(['"', '\\', '\n']))
    {
        css.extend(["background-image:url(\"", url, "\");"]);
    } else if matches!(name, "td" | "th" | "body" | "table" | "tr") && attribute("background").is_some() {
        css.push_str("background-image:url(data:long);");
    }
    let number = |key: &str| attribute(key).and_then(|value| value.trim().parse::<u32>().ok());
    if name == "table" && ["cellpadding", "cellspacing"].iter().any(|key| number(key).is_some_and(|n| n > 200)) {
        css.push_str("gap:2000px;");
    }
    if name == "img" {
        for side in ["width", "height"] {
            if let Some(size) = attribute(side).and_then(dimension) {
                css.extend([side, ":", &size.to_string(), "px;"]);
            }
        }
    }
    if matches!(name, "td" | "th") && attribute("nowrap").is_some() {
        css.push_str("white-space:nowrap;");
    }
    declaration::parse_style_attribute(&css, false)
}

/// Parses the size of an image as HTML does: everything after the number is ignored. `None` for percentages.
fn dimension(text: &str) -> Option<f32> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    if text[end..].starts_with('%') { None } else { text[..end].parse().ok() }
}

fn declare(css: &mut String, property: &str, colour: Option<Colour>) {
    if let Some(Colour { red, green, blue, .. }) = colour {
        css.extend([property, ":", &format!("rgb({red},{green},{blue});")]);
    }
}

/// The link colour that `<body link>` sets.
pub(in crate::html) fn link_colour(tree: &HtmlTree) -> Option<Colour> {
    let body = (0..tree.len()).find(|id| tree.name(*id) == "body" && tree.is_html(*id))?;
    tree.attribute(body, "link").and_then(Colour::parse_legacy)
}

/// Maps `<font size>`: an absolute size from 1 to 7, or an offset from 3.
fn font_size(size: &str) -> Option<&'static str> {
    let size = size.trim();
    let number: i32 = size.trim_start_matches('+').parse().ok()?;
    let relative = size.starts_with(['+', '-']);
    Some(match (if relative { 3 + number } else { number }).clamp(1, 7) {
        1 => "font-size:x-small;",
        2 => "font-size:small;",
        3 => "font-size:medium;",
        4 => "font-size:large;",
        5 => "font-size:x-large;",
        6 => "font-size:xx-large;",
        _ => "font-size:xxx-large;",
    })
}
