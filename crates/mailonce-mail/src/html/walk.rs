//! From the tree to the page: visible text, links, and what was hidden.

use super::{
    ANCHORS, DEPTH,
    element::{BLOCK, HEADING, KEPT, NO_TEXT},
    page::{Anchor, Page},
    tree::{Content, NodeId, ROOT, Tree},
    visible::Verdict,
};
use crate::glyph;

/// Bytes of hidden text after which no more is kept.
const HIDDEN_BYTES: usize = 64 * 1024;

/// An open element.
struct Open {
    id: NodeId,
    anchor: Option<usize>,
    /// Whether `clean` has an open tag to close.
    written: bool,
    aria_hidden: bool,
}

pub(super) struct Walk<'a> {
    tree: &'a Tree,
    verdict: &'a Verdict,
    page: Page,
    stack: Vec<Open>,
    /// Open tags of `clean`.
    written: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(tree: &'a Tree, verdict: &'a Verdict) -> Self {
        let page = Page { cut: tree.cut || verdict.undecidable, ..Page::default() };
        Self { tree, verdict, page, stack: Vec::new(), written: 0 }
    }

    pub(super) fn run(&mut self) {
        let mut at = Some(ROOT);
        while let Some(id) = at {
            match &self.tree.node(id).content {
                Content::Element(..) => self.open(id),
                Content::Text(text) => self.text(text, self.verdict.text[id]),
                Content::Comment(text) => self.comment(text),
                Content::Document => {}
            }
            at = self.tree.following(id).0;
            let parent = at.and_then(|next| self.tree.node(next).parent);
            while self.stack.last().is_some_and(|open| Some(open.id) != parent) {
                self.close();
            }
        }
    }

    fn comment(&mut self, content: &str) {
        let content = content.trim();
        if content.starts_with('[') || content.is_empty() {
            return;
        }
        self.page.hidden.comments += 1;
        self.keep_hidden(content);
    }

    fn keep_hidden(&mut self, text: &str) {
        if self.page.hidden_text.len() < HIDDEN_BYTES {
            self.page.hidden_text.push_str(text);
            self.page.hidden_text.push(' ');
        }
    }

    fn text(&mut self, text: &str, hidden: bool) {
        let element = self.stack.last().map(|open| open.id);
        if element.is_some_and(|id| NO_TEXT.contains(&self.tree.name(id))) {
            return;
        }
        let counted = text.chars().filter(|c| !c.is_whitespace() && !glyph::is_invisible(*c)).count();
        if hidden {
            self.keep_hidden(text);
            self.page.hidden.chars += counted;
            return;
        }
        if self.stack.last().is_some_and(|open| open.aria_hidden) {
            self.page.hidden.aria_chars += counted;
        }
        let page = &mut self.page;
        for c in text.chars() {
            let blank = c.is_whitespace() && c != '\u{a0}';
            if !blank {
                page.text.push(c);
                escape(&mut page.clean, c);
            } else if !page.text.ends_with([' ', '\n']) {
                page.text.push(' ');
                page.clean.push(' ');
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

    fn line(&mut self) {
        let kept = self.page.text.trim_end_matches(' ').len();
        self.page.text.truncate(kept);
        if !self.page.text.is_empty() && !self.page.text.ends_with("\n\n") {
            self.page.text.push('\n');
        }
    }

    fn open(&mut self, id: NodeId) {
        let (name, hides) = (self.tree.name(id), self.verdict.text[id]);
        if !hides {
            self.shape(name);
        }
        if name == "img" {
            self.image(id);
        }
        let outer = self.stack.last();
        let aria_hidden = outer.is_some_and(|open| open.aria_hidden)
            || self.tree.attribute(id, "aria-hidden").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let around = outer.and_then(|open| open.anchor);
        let href = self.tree.attribute(id, "href").filter(|_| name == "a" || name == "area");
        let anchor = href.and_then(|href| self.anchor(href, hides)).or(around);
        // A heading in a heading would become smaller each time.
        let nested =
            HEADING.contains(&name) && self.stack.iter().any(|open| HEADING.contains(&self.tree.name(open.id)));
        let written = !hides && KEPT.contains(&name) && self.written < DEPTH && !nested;
        if written {
            self.page.clean.extend(["<", name, ">"]);
            self.written += 1;
        }
        self.stack.push(Open { id, anchor, written, aria_hidden });
    }

    fn close(&mut self) {
        let Some(open) = self.stack.pop() else { return };
        let name = self.tree.name(open.id);
        if open.written {
            self.page.clean.extend(["</", name, ">"]);
            self.written -= 1;
        }
        if !self.verdict.text[open.id] && BLOCK.contains(&name) {
            self.line();
        }
    }

    /// Lines and blanks that a tag makes.
    fn shape(&mut self, name: &str) {
        match name {
            "br" | "tr" => {
                self.line();
                self.page.clean.push_str("<br>");
            }
            "td" | "th" if !self.page.text.is_empty() && !self.page.text.ends_with([' ', '\n']) => {
                self.page.text.push(' ');
                self.page.clean.push(' ');
            }
            _ if BLOCK.contains(&name) => self.line(),
            _ => {}
        }
    }

    fn image(&mut self, id: NodeId) {
        let small = |name: &str| {
            let value = self.tree.attribute(id, name).unwrap_or_default();
            value.trim().trim_end_matches("px").parse::<f32>().is_ok_and(|n| n <= 2.0)
        };
        if self.verdict.images[id] || small("width") || small("height") {
            self.page.hidden.pixels += 1;
        } else if let Some(alt) = self.tree.attribute(id, "alt").map(str::trim).filter(|alt| !alt.is_empty()) {
            let alt: String = alt.chars().take(200).collect();
            self.text(&format!(" {alt} "), self.verdict.text[id]);
        }
    }

    fn anchor(&mut self, href: &str, hidden: bool) -> Option<usize> {
        if self.page.anchors.len() >= ANCHORS {
            self.page.cut = true;
            return None;
        }
        self.page.anchors.push(Anchor { href: href.trim().to_owned(), text: String::new(), hidden });
        Some(self.page.anchors.len() - 1)
    }

    /// Closes what is open and hands the page over.
    pub(super) fn finish(mut self) -> Page {
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
