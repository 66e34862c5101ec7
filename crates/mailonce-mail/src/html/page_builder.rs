//! From the tree to the page: visible text, links, and what was hidden.

use super::{
    MAX_ANCHORS, MAX_CLEAN_DEPTH,
    element::{BLOCK_ELEMENTS, CLEAN_ELEMENTS, HEADING_ELEMENTS, NON_TEXT_ELEMENTS},
    page::{Anchor, HtmlPage},
    tree::{HtmlTree, NodeContent, NodeId, ROOT},
};
use crate::html::visibility::HiddenNodes;
use crate::unicode;

/// Bytes of hidden text after which no more is kept.
const MAX_HIDDEN_BYTES: usize = 64 * 1024;

/// An open element.
struct OpenElement {
    id: NodeId,
    anchor: Option<usize>,
    /// Whether `clean` has an open tag to close.
    is_written: bool,
    aria_hidden: bool,
}

pub(super) struct PageBuilder<'a> {
    tree: &'a HtmlTree,
    verdict: &'a HiddenNodes,
    page: HtmlPage,
    stack: Vec<OpenElement>,
    /// Open tags of `clean`.
    open_tags: usize,
}

impl<'a> PageBuilder<'a> {
    pub(super) fn new(tree: &'a HtmlTree, verdict: &'a HiddenNodes) -> Self {
        let page = HtmlPage { is_truncated: tree.is_truncated || verdict.undecidable, ..HtmlPage::default() };
        Self { tree, verdict, page, stack: Vec::new(), open_tags: 0 }
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

    /// Adds words to the link that they stand on.
    fn add_to_anchor(&mut self, text: &str) {
        let Some(anchor) = self.stack.last().and_then(|open| open.anchor) else { return };
        let Some(anchor) = self.page.anchors.get_mut(anchor).filter(|anchor| anchor.text.len() < 500) else { return };
        let words: Vec<&str> = text.split_whitespace().collect();
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
        let (name, hides) = (self.tree.name(id), self.verdict.text[id]);
        if !hides {
            self.add_spacing(name);
        }
        if name == "img" {
            self.add_image(id);
        }
        let outer = self.stack.last();
        let aria_hidden = outer.is_some_and(|open| open.aria_hidden)
            || self.tree.attribute(id, "aria-hidden").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let around = outer.and_then(|open| open.anchor);
        let href = self.tree.attribute(id, "href").filter(|_| name == "a" || name == "area");
        let anchor = href.and_then(|href| self.add_anchor(href, hides)).or(around);
        // A heading in a heading would become smaller each time.
        let nested = HEADING_ELEMENTS.contains(&name)
            && self.stack.iter().any(|open| HEADING_ELEMENTS.contains(&self.tree.name(open.id)));
        let written = !hides && CLEAN_ELEMENTS.contains(&name) && self.open_tags < MAX_CLEAN_DEPTH && !nested;
        if written {
            self.page.clean_html.extend(["<", name, ">"]);
            self.open_tags += 1;
        }
        self.stack.push(OpenElement { id, anchor, is_written: written, aria_hidden });
    }

    fn close(&mut self) {
        let Some(open) = self.stack.pop() else { return };
        let name = self.tree.name(open.id);
        if open.is_written {
            self.page.clean_html.extend(["</", name, ">"]);
            self.open_tags -= 1;
        }
        if !self.verdict.text[open.id] && BLOCK_ELEMENTS.contains(&name) {
            self.end_line();
        }
    }

    /// Lines and blanks that a tag makes.
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
        let small = |name: &str| {
            let value = self.tree.attribute(id, name).unwrap_or_default();
            value.trim().trim_end_matches("px").parse::<f32>().is_ok_and(|n| n <= 2.0)
        };
        if self.verdict.images[id] || small("width") || small("height") {
            self.page.hidden.tracking_pixels += 1;
        } else if let Some(alt) = self.tree.attribute(id, "alt").map(str::trim).filter(|alt| !alt.is_empty()) {
            let alt: String = alt.chars().take(200).collect();
            self.add_text(&format!(" {alt} "), self.verdict.text[id]);
        }
    }

    fn add_anchor(&mut self, href: &str, hidden: bool) -> Option<usize> {
        if self.page.anchors.len() >= MAX_ANCHORS {
            self.page.is_truncated = true;
            return None;
        }
        self.page.anchors.push(Anchor { href: href.trim().to_owned(), text: String::new(), is_hidden: hidden });
        Some(self.page.anchors.len() - 1)
    }

    /// Closes what is open and hands the page over.
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
