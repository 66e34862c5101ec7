//! Finds content that mail clients may show but [`HtmlPage`] leaves out, for the person who approves a mail.
//!
//! The search uses the parsed tree and parsed CSS. A finding is a warning and hides nothing, so a CSS rule counts
//! whether or not it matches an element.

use std::collections::BTreeSet;

use url::Url;

use super::{
    HtmlPage, MAX_ALT_CHARS, base,
    css::{
        scan::{self, CssFinding},
        sheet::{decode_data_url, strip_ignored},
    },
    element_state::Displacement,
    tree::{HtmlTree, NodeContent, NodeId, ROOT},
    visibility::{self, HiddenNodes},
};
use crate::parse::one_line;

/// Maximum bytes of CSS that are scanned. Browsers reopen some elements, so `style` attributes may repeat.
const MAX_CSS_BYTES: usize = 2 * 1024 * 1024;
/// Maximum displaced elements whose neighbours are checked. With more, the text counts as reordered.
const MAX_MOVED: usize = 500;
/// Maximum characters of a URL in a warning.
const MAX_ADDRESS_CHARS: usize = 500;

const CSS_TEXT: &str = "text in its style sheet";
const EMBEDDED_IMAGE: &str = "an image inside the HTML";
const UNDESCRIBED_IMAGE: &str = "an image without alternative text";
const CONDITIONAL_TEXT: &str = "text that is hidden from some readers";
const FORM_FIELD: &str = "a form field with text";
const LIST_NUMBERS: &str = "lists with other numbers or signs";
const OUTLOOK_TEXT: &str = "text for Outlook alone";
const RAISED: &str = "text that is raised or lowered";
const REMOTE_IMAGE: &str = "a background image from elsewhere";
const SYMBOL_FONT: &str = "letters that are shown as other signs";
const REMOTE_SHEET: &str = "a style sheet from elsewhere";
const REORDERED: &str = "text that its reader sees in another place or order";
const SCRIPT_LINK: &str = "a link that runs a script";
const STRUCK_THROUGH: &str = "text that is struck through";
const USER_NAME_LINK: &str = "a link with a user name before its host, which can be taken for the host";

/// Elements that the page leaves out, with their names in a warning.
const ELEMENTS: &[(&str, &str)] = &[
    ("applet", "an embedded object"),
    ("audio", "a video or a sound"),
    ("canvas", "a drawing"),
    ("datalist", "a list to choose from"),
    ("embed", "an embedded object"),
    ("fencedframe", "another page"),
    ("form", "a form"),
    ("frame", "another page"),
    ("iframe", "another page"),
    ("marquee", "moving text"),
    ("math", "a formula"),
    ("noscript", "text for programs without scripts"),
    ("object", "an embedded object"),
    ("portal", "another page"),
    ("ruby", "text above other text"),
    ("select", "a list to choose from"),
    ("svg", "a drawing"),
    ("video", "a video or a sound"),
];

/// The result of the search.
#[derive(Default)]
pub(super) struct UnrenderedFeatures {
    pub(super) names: BTreeSet<String>,
    /// Whether a limit was reached.
    pub(super) is_truncated: bool,
}

/// Finds content that the page leaves out.
pub(super) fn find(tree: &HtmlTree, hidden: &HiddenNodes, page: &HtmlPage) -> UnrenderedFeatures {
    let base = base::of_page(tree);
    let mut search = FeatureScan {
        tree,
        hidden,
        page,
        base,
        css_bytes: 0,
        css: BTreeSet::new(),
        runs_right_to_left: false,
        siblings: SiblingFacts::of_tree(tree),
        lists: ListFacts::default(),
        found: UnrenderedFeatures::default(),
    };
    let mut at = Some(ROOT);
    while let Some(id) = at {
        match &tree.node(id).content {
            NodeContent::Element(..) => search.element(id),
            NodeContent::Comment(text) => search.comment(text),
            _ => {}
        }
        at = tree.next_in_order(id).0;
    }
    let moves = |(id, displacement): (&NodeId, &Displacement)| reorders_text(tree, hidden, *id, *displacement);
    let is_moved = hidden.moved.len() > MAX_MOVED || hidden.moved.iter().any(moves);
    if is_moved || search.runs_right_to_left && !is_right_to_left(&page.text) {
        search.add(REORDERED);
    }
    search.report_lists();
    let repeats = search.css.contains(&CssFinding::RepeatedAnimation);
    match visibility::is_hidden_from_some(tree, hidden, repeats) {
        Some(true) => search.add(CONDITIONAL_TEXT),
        Some(false) => {}
        None => search.found.is_truncated = true,
    }
    search.found
}

struct FeatureScan<'a> {
    tree: &'a HtmlTree,
    hidden: &'a HiddenNodes,
    page: &'a HtmlPage,
    base: Option<Url>,
    css_bytes: usize,
    /// Effects of the page's CSS.
    css: BTreeSet<CssFinding>,
    /// Whether text is set to run right to left, which is normal in some languages.
    runs_right_to_left: bool,
    siblings: Vec<SiblingFacts>,
    lists: ListFacts,
    found: UnrenderedFeatures,
}

/// What the siblings of a node have.
#[derive(Clone, Copy, Default)]
struct SiblingFacts {
    has_content_before: bool,
    has_content_after: bool,
}

impl SiblingFacts {
    /// The facts for all nodes of a tree, in one pass over the children of each node.
    fn of_tree(tree: &HtmlTree) -> Vec<Self> {
        let has_content = |id: NodeId| match &tree.node(id).content {
            NodeContent::Text(text) => !text.trim().is_empty(),
            NodeContent::Element(..) => !matches!(tree.name(id), "col" | "colgroup" | "caption" | "script" | "style"),
            _ => false,
        };
        let mut facts = vec![Self::default(); tree.len()];
        for parent in 0..tree.len() {
            let mut was_found = false;
            for child in tree.children(parent) {
                facts[child].has_content_before = was_found;
                was_found |= has_content(child);
            }
            was_found = false;
            for child in std::iter::successors(tree.node(parent).last, |child| tree.node(*child).previous) {
                facts[child].has_content_after = was_found;
                was_found |= has_content(child);
            }
        }
        facts
    }
}

/// What the lists of a page have.
#[derive(Default)]
struct ListFacts {
    /// Whether there is a list with bullets, unless CSS says otherwise.
    has_bullets: bool,
    /// Whether the numbers of a list are set by attributes.
    has_set_numbers: bool,
    /// Whether a list has letters or Roman numbers.
    has_letters: bool,
}

impl FeatureScan<'_> {
    fn add(&mut self, name: &str) {
        if !self.found.names.contains(name) {
            self.found.names.insert(name.to_owned());
        }
    }

    fn attribute(&self, id: NodeId, name: &str) -> &str {
        self.tree.attribute(id, name).unwrap_or_default().trim()
    }

    fn element(&mut self, id: NodeId) {
        let name = self.tree.name(id);
        if let Some((_, warning)) = ELEMENTS.iter().find(|(element, _)| *element == name) {
            self.add(warning);
        }
        // With spaces around it, the type is unknown to browsers, which show a text field.
        let is_hidden_field = self.tree.attribute(id, "type").is_some_and(|kind| kind.eq_ignore_ascii_case("hidden"));
        let has_text = ["value", "placeholder", "alt"].iter().any(|text| !self.attribute(id, text).is_empty());
        match name {
            "input" if has_text && !is_hidden_field => self.add(FORM_FIELD),
            "textarea" if has_text => self.add(FORM_FIELD),
            "img" | "input" if self.is_undescribed_image(id, name) => self.add(UNDESCRIBED_IMAGE),
            "img" if self.attribute(id, "alt").chars().nth(MAX_ALT_CHARS).is_some() => {
                self.add("a long description of an image");
            }
            "bdo" => self.add(REORDERED),
            "style" => self.css(&self.tree.own_text(id)),
            "link" => self.link(id),
            "meta" => self.meta(id),
            "a" | "area" => self.anchor(id),
            "ol" | "ul" | "menu" | "dir" | "li" => self.list(id, name),
            "s" | "strike" | "del" => self.add(STRUCK_THROUGH),
            "sup" | "sub" if self.extends_number(id) => self.add("small digits directly after a number"),
            "table" if self.is_moved_table(id) => self.add(REORDERED),
            "caption" if self.attribute(id, "align").eq_ignore_ascii_case("bottom") => self.add(REORDERED),
            "font" if self.attribute(id, "face").split(',').any(scan::is_symbol_font) => self.add(SYMBOL_FONT),
            "tfoot" | "thead" | "caption" | "legend" | "summary" if self.is_displayed_out_of_order(id, name) => {
                self.add(REORDERED);
            }
            _ if name.starts_with("v:") && !self.attribute(id, "string").is_empty() => self.add(OUTLOOK_TEXT),
            _ => {}
        }
        self.runs_right_to_left |= self.attribute(id, "dir").eq_ignore_ascii_case("rtl");
        let embeds = |name: &&str| strip_ignored(self.attribute(id, name)).to_ascii_lowercase().contains("data:");
        if ["src", "srcset", "poster", "background", "dynsrc", "lowsrc"].iter().any(embeds) {
            self.add(EMBEDDED_IMAGE);
        }
        let background = self.attribute(id, "background");
        if !background.is_empty() && !scan::is_data_url(background) {
            self.add(REMOTE_IMAGE);
        }
        self.css(self.tree.attribute(id, "style").unwrap_or_default());
    }

    /// Whether a reader sees an image of which the page shows nothing.
    fn is_undescribed_image(&self, id: NodeId, name: &str) -> bool {
        let is_image = name == "img" || self.attribute(id, "type").eq_ignore_ascii_case("image");
        let has_source = ["src", "srcset"].iter().any(|source| !self.attribute(id, source).is_empty());
        is_image && has_source && self.attribute(id, "alt").is_empty() && !self.hidden.images[id]
    }

    fn anchor(&mut self, id: NodeId) {
        if base::is_ambiguous(self.base.as_ref(), self.attribute(id, "href")) {
            self.add("a link that leads elsewhere in programs that ignore its base address");
        }
        let Ok(url) = Url::parse(&base::resolve(self.base.as_ref(), self.attribute(id, "href"))) else { return };
        if matches!(url.scheme(), "javascript" | "vbscript" | "data") {
            self.add(SCRIPT_LINK);
        }
        if matches!(url.scheme(), "http" | "https") && !(url.username().is_empty() && url.password().is_none()) {
            self.add(USER_NAME_LINK);
        }
    }

    /// Whether a table floats right of text that follows it.
    fn is_moved_table(&self, id: NodeId) -> bool {
        self.attribute(id, "align").eq_ignore_ascii_case("right")
            && reorders_text(self.tree, self.hidden, id, Displacement::FloatsRight)
    }

    /// Whether a part of a table, a form or a `details` element is displayed before or after its place in the source.
    fn is_displayed_out_of_order(&self, id: NodeId, name: &str) -> bool {
        if name == "tfoot" { self.siblings[id].has_content_after } else { self.siblings[id].has_content_before }
    }

    /// Whether a raised or lowered number follows another number directly, as in 10³.
    fn extends_number(&self, id: NodeId) -> bool {
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit() || c == '-');
        let before = self.tree.node(id).previous.map(|previous| &self.tree.node(previous).content);
        let is_after_number = match before {
            Some(NodeContent::Text(text)) => digit(text.chars().next_back()),
            Some(NodeContent::Element(..)) => true,
            _ => false,
        };
        is_after_number && digit(self.tree.own_text(id).trim_start().chars().next())
    }

    /// Records how the attributes of a list change its numbers.
    fn list(&mut self, id: NodeId, name: &str) {
        let has = |attribute: &str| self.tree.attribute(id, attribute).is_some();
        let is_lettered = matches!(self.attribute(id, "type"), "a" | "A" | "i" | "I");
        let is_numbered = self.attribute(id, "type") == "1";
        let sets_number = has("value") && name == "li" || (has("start") || has("reversed")) && name == "ol";
        self.lists.has_bullets |= matches!(name, "ul" | "menu" | "dir");
        self.lists.has_set_numbers |= sets_number;
        self.lists.has_letters |= is_lettered;
        let mut ancestors = std::iter::successors(self.tree.node(id).parent, |id| self.tree.node(*id).parent);
        let is_alone = name == "li" && !ancestors.any(|id| super::list::is_list(self.tree.name(id)));
        if (is_lettered || is_numbered) && name != "ol" || is_alone {
            self.add(LIST_NUMBERS);
        }
    }

    /// Reports lists whose CSS shows other numbers than the page.
    fn report_lists(&mut self) {
        let adds_numbers = self.lists.has_bullets && self.css.contains(&CssFinding::ListNumbers);
        let drops_numbers = self.lists.has_set_numbers && self.css.contains(&CssFinding::NoListNumbers);
        let has_other_letters = self.lists.has_letters && self.lists.has_set_numbers;
        if adds_numbers || drops_numbers || has_other_letters || self.css.contains(&CssFinding::OtherListNumbers) {
            self.add(LIST_NUMBERS);
        }
    }

    fn link(&mut self, id: NodeId) {
        let relation = self.attribute(id, "rel").to_ascii_lowercase();
        if !relation.split_ascii_whitespace().any(|word| word == "stylesheet") {
            return;
        }
        let href = self.attribute(id, "href");
        match decode_data_url(href) {
            Some(css) => self.css(&css),
            None if scan::is_known_font_host(href) => {}
            None => self.add(REMOTE_SHEET),
        }
    }

    fn meta(&mut self, id: NodeId) {
        if !self.attribute(id, "http-equiv").eq_ignore_ascii_case("refresh") {
            return;
        }
        let content = self.attribute(id, "content");
        let target = content.split_once([';', ',']).map_or("", |(_, target)| target.trim());
        let url = match target.split_once('=') {
            Some((name, url)) if name.trim().eq_ignore_ascii_case("url") => url,
            _ => target,
        };
        let url = base::resolve(self.base.as_ref(), url.trim().trim_matches(['"', '\'']));
        self.add(&format!("a redirect to {}", one_line(&url, MAX_ADDRESS_CHARS)));
    }

    fn css(&mut self, css: &str) {
        self.css_bytes += css.len();
        if self.css_bytes > MAX_CSS_BYTES {
            self.found.is_truncated = true;
            return;
        }
        for finding in scan::find(css) {
            match finding {
                CssFinding::Text => self.add(CSS_TEXT),
                CssFinding::EmbeddedImage => self.add(EMBEDDED_IMAGE),
                CssFinding::RemoteSheet => self.add(REMOTE_SHEET),
                CssFinding::Font => self.add("letters from a font of its own"),
                CssFinding::Reordered => self.add(REORDERED),
                CssFinding::RightToLeft => self.runs_right_to_left = true,
                CssFinding::RemoteImage => self.add(REMOTE_IMAGE),
                CssFinding::Raised => self.add(RAISED),
                CssFinding::Squeezed => self.add("words that are moved closer together"),
                CssFinding::SymbolFont => self.add(SYMBOL_FONT),
                CssFinding::TooDeep => self.found.is_truncated = true,
                CssFinding::StruckThrough => self.add(STRUCK_THROUGH),
                // The page applies hiding rules, for most readers and for some.
                CssFinding::Hiding => {}
                CssFinding::ListNumbers
                | CssFinding::OtherListNumbers
                | CssFinding::NoListNumbers
                | CssFinding::RepeatedAnimation => drop(self.css.insert(finding)),
            }
        }
    }

    /// Checks a conditional comment, which Outlook renders and other mail clients do not.
    fn comment(&mut self, comment: &str) {
        let condition = comment.trim_start().strip_prefix('[').map(str::trim_start);
        if !condition.is_some_and(|text| text.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("if"))) {
            return;
        }
        let Some((_, content)) = comment.split_once("]>") else { return };
        let mut outlook = OutlookContent::default();
        outlook.read(content, 0);
        let text = outlook.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_same_link = |href: &String| {
            let href = base::resolve(self.base.as_ref(), href);
            self.page.anchors.iter().any(|anchor| anchor.href == href && anchor.text == text)
        };
        let is_button = outlook.links.len() == 1 && outlook.links.iter().all(is_same_link);
        let is_empty = text.is_empty() && outlook.links.is_empty();
        if outlook.hides || !is_empty && !is_button {
            self.add(OUTLOOK_TEXT);
        }
    }
}

/// The content of a conditional comment. Buttons drawn for Outlook usually repeat a link of the page.
#[derive(Default)]
struct OutlookContent {
    text: String,
    links: Vec<String>,
    /// Whether it hides content that other mail clients show.
    hides: bool,
}

impl OutlookContent {
    fn read(&mut self, html: &str, depth: usize) {
        let tree = HtmlTree::parse(html);
        self.hides |= tree.is_truncated;
        let mut at = Some(ROOT);
        while let Some(id) = at {
            match &tree.node(id).content {
                NodeContent::Text(text) => self.text(text, tree.node(id).parent.map_or("", |id| tree.name(id)), depth),
                NodeContent::Element(..) => self.element(&tree, id),
                _ => {}
            }
            // Word stores settings in `<xml>` and displays none of them.
            at = if tree.name(id) == "xml" { tree.next_outside(id) } else { tree.next_in_order(id).0 };
        }
    }

    fn text(&mut self, text: &str, parent: &str, depth: usize) {
        match parent {
            "style" | "script" | "title" => {}
            // Word runs no scripts, so it displays the content of `noscript`.
            "noscript" if depth == 0 => self.read(text, depth + 1),
            _ => self.text.push_str(text),
        }
    }

    fn element(&mut self, tree: &HtmlTree, id: NodeId) {
        self.links.extend(tree.attribute(id, "href").filter(|_| tree.name(id) != "link").map(str::to_owned));
        for text in ["alt", "value", "placeholder", "string"].iter().filter_map(|name| tree.attribute(id, name)) {
            self.text.push_str(text);
        }
        if tree.name(id) == "style" {
            self.hides |= !scan::find(&tree.own_text(id)).is_empty();
        }
    }
}

/// Whether a displaced element changes the order of the words around it.
fn reorders_text(tree: &HtmlTree, hidden: &HiddenNodes, id: NodeId, displacement: Displacement) -> bool {
    let parent_end = tree.node(id).parent.and_then(|parent| tree.next_outside(parent));
    let end = tree.next_outside(id);
    // An element that floats right, with no text after it, appears where a reader expects it.
    let is_out_of_order = || displacement == Displacement::Shifted || has_text(tree, hidden, end, parent_end);
    has_text(tree, hidden, Some(id), end) && is_out_of_order()
}

fn has_text(tree: &HtmlTree, hidden: &HiddenNodes, from: Option<NodeId>, end: Option<NodeId>) -> bool {
    let mut at = from;
    while let Some(id) = at.filter(|id| Some(*id) != end) {
        if !hidden.text[id] && matches!(&tree.node(id).content, NodeContent::Text(text) if !text.trim().is_empty()) {
            return true;
        }
        at = tree.next_in_order(id).0;
    }
    false
}

/// Whether most letters belong to a right-to-left script.
fn is_right_to_left(text: &str) -> bool {
    let is_rtl = |c: &char| matches!(u32::from(*c), 0x590..=0x8ff | 0xfb1d..=0xfdff | 0xfe70..=0xfefc | 0x10800..=0x10fff | 0x1e800..=0x1efff);
    let letters = text.chars().filter(|c| c.is_alphabetic());
    let (rtl, all) = letters.fold((0, 0), |(rtl, all), c| (rtl + usize::from(is_rtl(&c)), all + 1));
    2 * rtl > all
}
