//! Builds the page from the tree: visible text, links, and hidden content.

use url::Url;

use super::{
    MAX_ALT_CHARS, MAX_ANCHORS, MAX_CLEAN_DEPTH, base,
    element::{BLOCK_ELEMENTS, CLEAN_ELEMENTS, HEADING_ELEMENTS, NON_TEXT_ELEMENTS},
    list::{ListCounter, is_list},
    page::{Anchor, HtmlPage},
    tree::{HtmlTree, NodeContent, NodeId, ROOT},
};
use crate::html::visibility::HiddenNodes;
use crate::unicode;

/// Bytes of link text after which no more text is added.
const MAX_ANCHOR_TEXT: usize = 500;
/// Maximum nested lists and quotes. The renderer touches each line once for each of them, so deeper ones are not
/// indented.
const MAX_INDENTATION: usize = 20;
/// Bytes of hidden text after which no more is kept.
const MAX_HIDDEN_BYTES: usize = 64 * 1024;

/// An open element.
struct OpenElement {
    id: NodeId,
    anchor: Option<usize>,
    /// Whether `clean_tags` holds the tag of this element.
    is_written: bool,
    aria_hidden: bool,
    /// For an `ol`: the counter of its items.
    counter: Option<ListCounter>,
}

/// An open tag of the clean HTML.
enum CleanTag<'a> {
    Plain(&'a str),
    /// An `ol`, with the number that the renderer gives to the next item. `None` means that the tag is not written yet.
    /// Text between items, or an item out of sequence, closes the tag, and the next item reopens it.
    NumberedList(Option<i64>),
    /// An `li`. An item that is not a direct child of its list gets an `ol` of its own.
    Item {
        has_own_list: bool,
    },
}

impl CleanTag<'_> {
    /// Whether the renderer puts a prefix before each line inside.
    fn is_indenting(&self) -> bool {
        matches!(self, Self::NumberedList(_) | Self::Plain("ul" | "blockquote") | Self::Item { has_own_list: true })
    }
}

pub(super) struct PageBuilder<'a> {
    tree: &'a HtmlTree,
    verdict: &'a HiddenNodes,
    page: HtmlPage,
    stack: Vec<OpenElement>,
    /// Open tags of the clean HTML.
    clean_tags: Vec<CleanTag<'a>>,
    /// How many of them indent their lines.
    indentation: usize,
    /// The URL that links without a host are relative to.
    base: Option<Url>,
}

impl<'a> PageBuilder<'a> {
    pub(super) fn new(tree: &'a HtmlTree, verdict: &'a HiddenNodes) -> Self {
        let page = HtmlPage { is_truncated: tree.is_truncated || verdict.undecidable, ..HtmlPage::default() };
        Self {
            tree,
            verdict,
            page,
            stack: Vec::new(),
            clean_tags: Vec::new(),
            indentation: 0,
            base: base::of_page(tree),
        }
    }

    pub(super) fn run(&mut self) {
        let mut at = Some(ROOT);
        while let Some(id) = at {
            match &self.tree.node(id).content {
                NodeContent::Element(..) => self.open(id),
                NodeContent::Text(text) => self.add_text(text, self.verdict.text[id]),
                NodeContent::Comment(text) => self.add_comment(text),
                NodeContent::Document => {}
            }
            at = self.tree.next_in_order(id).0;
            let parent = at.and_then(|next| self.tree.node(next).parent);
            while self.stack.last().is_some_and(|open| Some(open.id) != parent) {
                self.close();
            }
        }
    }

    fn add_comment(&mut self, content: &str) {
        let content = content.trim();
        if content.starts_with('[') || content.is_empty() {
            return;
        }
        self.page.hidden.comments += 1;
        self.keep_hidden(content);
    }

    fn keep_hidden(&mut self, text: &str) {
        if self.page.hidden_text.len() < MAX_HIDDEN_BYTES {
            self.page.hidden_text.push_str(text);
            self.page.hidden_text.push(' ');
        }
    }

    fn add_text(&mut self, text: &str, hidden: bool) {
        let element = self.stack.last().map(|open| open.id);
        if element.is_some_and(|id| NON_TEXT_ELEMENTS.contains(&self.tree.name(id))) {
            return;
        }
        let counted = text.chars().filter(|c| !c.is_whitespace() && !unicode::is_invisible(*c)).count();
        if hidden {
            self.keep_hidden(text);
            self.page.hidden.chars += counted;
            return;
        }
        if self.stack.last().is_some_and(|open| open.aria_hidden) {
            self.page.hidden.aria_hidden_chars += counted;
        }
        if !text.trim().is_empty() {
            self.interrupt_list();
        }
        let page = &mut self.page;
        for c in text.chars() {
            let blank = c.is_whitespace() && c != '\u{a0}';
            if !blank {
                page.text.push(c);
                escape(&mut page.clean_html, c);
            } else if !page.text.ends_with([' ', '\n']) {
                page.text.push(' ');
                page.clean_html.push(' ');
            }
        }
        self.add_to_anchor(text);
    }

    /// Adds text to the link that contains it.
    fn add_to_anchor(&mut self, text: &str) {
        let Some(anchor) = self.stack.last().and_then(|open| open.anchor) else { return };
        let Some(anchor) = self.page.anchors.get_mut(anchor).filter(|anchor| anchor.text.len() < MAX_ANCHOR_TEXT)
        else {
            return;
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        anchor.is_hidden &= words.is_empty();
        if text.starts_with(char::is_whitespace) && !anchor.text.is_empty() {
            anchor.text.push(' ');
        }
        anchor.text.push_str(&words.join(" "));
        if text.ends_with(char::is_whitespace) && !words.is_empty() {
            anchor.text.push(' ');
        }
    }

    fn end_line(&mut self) {
        let kept = self.page.text.trim_end_matches(' ').len();
        self.page.text.truncate(kept);
        if !self.page.text.is_empty() && !self.page.text.ends_with("\n\n") {
            self.page.text.push('\n');
        }
    }

    fn open(&mut self, id: NodeId) {
        let (name, is_hidden) = (self.tree.name(id), self.verdict.text[id]);
        if !is_hidden {
            self.add_spacing(name);
        }
        if name == "img" {
            self.add_image(id);
        }
        let outer = self.stack.last();
        let aria_hidden = outer.is_some_and(|open| open.aria_hidden)
            || self.tree.attribute(id, "aria-hidden").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let outer_anchor = outer.and_then(|open| open.anchor);
        let anchor = self.add_anchor(id, is_hidden).or(outer_anchor);
        // Nested headings would get smaller with each level.
        let nested = HEADING_ELEMENTS.contains(&name)
            && self.stack.iter().any(|open| HEADING_ELEMENTS.contains(&self.tree.name(open.id)));
        let written =
            !is_hidden && CLEAN_ELEMENTS.contains(&name) && self.clean_tags.len() < MAX_CLEAN_DEPTH && !nested;
        let number = self.item_number(id);
        if written {
            self.open_clean_tag(name, number);
        }
        let counter = (name == "ol").then(|| ListCounter::new(self.tree, self.verdict, id));
        self.stack.push(OpenElement { id, anchor, is_written: written, aria_hidden, counter });
    }

    /// The number of a list item. Hidden items count where browsers count them.
    fn item_number(&mut self, id: NodeId) -> Option<i64> {
        if self.tree.name(id) != "li" || self.verdict.boxless[id] {
            return None;
        }
        let list = self.stack.iter_mut().rev().find(|open| is_list(self.tree.name(open.id)))?;
        list.counter.as_mut().map(|counter| counter.number(self.tree, id))
    }

    fn open_clean_tag(&mut self, name: &'a str, number: Option<i64>) {
        let is_in_list = matches!(self.clean_tags.last(), Some(CleanTag::NumberedList(_) | CleanTag::Plain("ul")));
        let is_too_deep = self.indentation >= MAX_INDENTATION;
        let tag = match (name, number) {
            ("li", number) if is_too_deep && !is_in_list => {
                let number = number.map(|number| format!("{number}. ")).unwrap_or_default();
                self.page.clean_html.extend(["<div>", &number]);
                CleanTag::Plain("div")
            }
            ("ol" | "ul" | "blockquote", _) if is_too_deep => {
                self.interrupt_list();
                self.page.clean_html.push_str("<div>");
                CleanTag::Plain("div")
            }
            ("ol", _) => {
                self.interrupt_list();
                CleanTag::NumberedList(None)
            }
            ("li", Some(number)) => {
                let is_in_list = matches!(self.clean_tags.last(), Some(CleanTag::NumberedList(_)));
                if !matches!(self.clean_tags.last(), Some(CleanTag::NumberedList(Some(next))) if *next == number) {
                    self.interrupt_list();
                    self.begin_list(number);
                }
                if let Some(CleanTag::NumberedList(next)) = self.clean_tags.last_mut() {
                    *next = Some(number + 1);
                }
                self.page.clean_html.push_str("<li>");
                CleanTag::Item { has_own_list: !is_in_list }
            }
            _ => {
                self.interrupt_list();
                self.page.clean_html.extend(["<", name, ">"]);
                CleanTag::Plain(name)
            }
        };
        self.indentation += usize::from(tag.is_indenting());
        self.clean_tags.push(tag);
    }

    fn begin_list(&mut self, number: i64) {
        if number == 1 {
            self.page.clean_html.push_str("<ol>");
        } else {
            self.page.clean_html.extend(["<ol start=\"", &number.to_string(), "\">"]);
        }
    }

    /// Closes the tag of a numbered list before content that is not an item, because the renderer would drop that
    /// content.
    fn interrupt_list(&mut self) {
        if let Some(CleanTag::NumberedList(next)) = self.clean_tags.last_mut()
            && next.take().is_some()
        {
            self.page.clean_html.push_str("</ol>");
        }
    }

    fn close(&mut self) {
        let Some(open) = self.stack.pop() else { return };
        let name = self.tree.name(open.id);
        if open.is_written
            && let Some(tag) = self.clean_tags.pop()
        {
            self.indentation -= usize::from(tag.is_indenting());
            match tag {
                CleanTag::NumberedList(Some(_)) => self.page.clean_html.push_str("</ol>"),
                CleanTag::NumberedList(None) => {}
                CleanTag::Item { has_own_list: true } => self.page.clean_html.push_str("</li></ol>"),
                CleanTag::Item { has_own_list: false } => self.page.clean_html.push_str("</li>"),
                CleanTag::Plain(name) => self.page.clean_html.extend(["</", name, ">"]),
            }
        }
        if !self.verdict.text[open.id] && BLOCK_ELEMENTS.contains(&name) {
            self.end_line();
        }
    }

    /// Adds the line breaks and spaces that a tag produces.
    fn add_spacing(&mut self, name: &str) {
        match name {
            "br" | "tr" => {
                self.end_line();
                self.page.clean_html.push_str("<br>");
            }
            "td" | "th" if !self.page.text.is_empty() && !self.page.text.ends_with([' ', '\n']) => {
                self.page.text.push(' ');
                self.page.clean_html.push(' ');
            }
            _ if BLOCK_ELEMENTS.contains(&name) => self.end_line(),
            _ => {}
        }
    }

    fn add_image(&mut self, id: NodeId) {
        let alt = self.tree.attribute(id, "alt").map(str::trim).filter(|alt| !alt.is_empty());
        let alt: Option<String> = alt.map(|alt| alt.chars().take(MAX_ALT_CHARS).collect());
        if self.verdict.images[id] {
            self.page.hidden.tracking_pixels += 1;
            if let Some(alt) = alt {
                self.add_text(&alt, true);
            }
            return;
        }
        // The reader can click on an image even if the text of the link is hidden.
        let anchor = self.stack.last().and_then(|open| open.anchor);
        if let Some(anchor) = anchor.and_then(|anchor| self.page.anchors.get_mut(anchor)) {
            anchor.is_hidden = false;
        }
        if let Some(alt) = alt {
            self.add_text(&format!(" {alt} "), self.verdict.text[id]);
        }
    }

    /// Adds an `a` or `area` element as a link. An `area` is clickable although it has no box.
    fn add_anchor(&mut self, id: NodeId, hidden: bool) -> Option<usize> {
        let is_area = self.tree.name(id) == "area";
        let href = self.tree.attribute(id, "href").filter(|_| is_area || self.tree.name(id) == "a")?;
        if self.page.anchors.len() >= MAX_ANCHORS {
            self.page.is_truncated = true;
            return None;
        }
        let alt = self.tree.attribute(id, "alt").filter(|_| is_area).unwrap_or_default();
        let text = alt[..alt.floor_char_boundary(MAX_ANCHOR_TEXT)].to_owned();
        let href = base::resolve(self.base.as_ref(), href);
        self.page.anchors.push(Anchor { href, text, is_hidden: hidden && !is_area });
        Some(self.page.anchors.len() - 1)
    }

    /// Closes all open elements and returns the page.
    pub(super) fn finish(mut self) -> HtmlPage {
        while !self.stack.is_empty() {
            self.close();
        }
        let kept = self.page.text.trim_end().len();
        self.page.text.truncate(kept);
        self.page.anchors.iter_mut().for_each(|anchor| anchor.text = anchor.text.trim().to_owned());
        self.page
    }
}

fn escape(out: &mut String, c: char) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        c => out.push(c),
    }
}
