//! The walk over a page: which elements are open, what they hide, and what becomes text.

use super::{
    ANCHORS, DEPTH,
    element::{BLOCK, FORMATTING, KEPT, VOID},
    page::{Anchor, Page},
    style::{self, Colour, Look, Sheet},
};
use crate::glyph;

/// Bytes of hidden text after which no more is kept.
const HIDDEN_BYTES: usize = 64 * 1024;

/// An open element.
struct Frame {
    name: String,
    /// Hides for good, whatever its children say.
    gone: bool,
    tiny: bool,
    colour: Colour,
    ground: Colour,
    anchor: Option<usize>,
    /// Whether `clean` has an open tag to close.
    written: bool,
}

impl Frame {
    fn hides(&self) -> bool {
        self.gone || self.tiny || self.colour.melts_into(self.ground)
    }
}

pub(super) struct Walk {
    page: Page,
    stack: Vec<Frame>,
    /// Open elements beyond the depth we keep.
    beyond: usize,
    sheet: Sheet,
}

fn attribute<'a>(attributes: &'a [(String, String)], name: &str) -> Option<&'a str> {
    attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

impl Walk {
    pub(super) fn new(cut: bool) -> Self {
        Self { page: Page { cut, ..Page::default() }, stack: Vec::new(), beyond: 0, sheet: Sheet::default() }
    }

    /// Notes that a limit was reached.
    pub(super) fn cut(&mut self) {
        self.page.cut = true;
    }

    /// Takes in the rules of a `style` element.
    pub(super) fn style(&mut self, css: &str) {
        self.sheet.read(css);
    }

    fn hides(&self) -> bool {
        self.beyond > 0 || self.stack.last().is_some_and(Frame::hides)
    }

    pub(super) fn comment(&mut self, content: &str) {
        let content = content.trim();
        if content.starts_with('[') || content.is_empty() {
            return;
        }
        self.page.hidden.comments += 1;
        if self.page.hidden_text.len() < HIDDEN_BYTES {
            self.page.hidden_text.push_str(content);
            self.page.hidden_text.push(' ');
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        if self.hides() {
            if self.page.hidden_text.len() < HIDDEN_BYTES {
                self.page.hidden_text.push_str(text);
                self.page.hidden_text.push(' ');
            }
            self.page.hidden.chars += text.chars().filter(|c| !c.is_whitespace() && !glyph::is_invisible(*c)).count();
            return;
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
        if let Some(anchor) = self.stack.iter().rev().find_map(|frame| frame.anchor)
            && let Some(anchor) = page.anchors.get_mut(anchor)
            && anchor.text.len() < 500
        {
            let words: Vec<&str> = text.split_whitespace().collect();
            if text.starts_with(char::is_whitespace) && !anchor.text.is_empty() {
                anchor.text.push(' ');
            }
            anchor.text.push_str(&words.join(" "));
            if text.ends_with(char::is_whitespace) && !words.is_empty() {
                anchor.text.push(' ');
            }
        }
    }

    fn line(&mut self) {
        let kept = self.page.text.trim_end_matches(' ').len();
        self.page.text.truncate(kept);
        if !self.page.text.is_empty() && !self.page.text.ends_with("\n\n") {
            self.page.text.push('\n');
        }
    }

    pub(super) fn open(&mut self, name: &str, attributes: &[(String, String)]) {
        self.close_implied(name);
        let look = self.look(name, attributes);
        let frame = self.frame(name, look);
        let hides = self.beyond > 0 || frame.hides();
        if !hides {
            self.shape(name);
        }
        if name == "img" {
            self.image(attributes, hides);
        }
        if VOID.contains(&name) {
            return;
        }
        if self.stack.len() >= DEPTH {
            self.beyond += 1;
            self.page.cut = true;
            return;
        }
        let href = attribute(attributes, "href").filter(|_| name == "a" || name == "area");
        let anchor = href.and_then(|href| self.anchor(href, hides));
        let written = !hides && KEPT.contains(&name);
        if written {
            self.page.clean.extend(["<", name, ">"]);
        }
        self.stack.push(Frame { anchor, written, ..frame });
    }

    /// The element with what it has from its parent.
    fn frame(&self, name: &str, look: Look) -> Frame {
        let parent = self.stack.last();
        let ground = look.ground.filter(|ground| *ground != Colour::Clear).or(parent.map(|frame| frame.ground));
        Frame {
            name: name.to_owned(),
            gone: look.hides || parent.is_some_and(|frame| frame.gone),
            tiny: look.tiny.unwrap_or_else(|| parent.is_some_and(|frame| frame.tiny)),
            colour: look.colour.or(parent.map(|frame| frame.colour)).unwrap_or(Colour::Rgb(0, 0, 0)),
            ground: ground.unwrap_or(Colour::WHITE),
            anchor: None,
            written: false,
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

    fn look(&self, name: &str, attributes: &[(String, String)]) -> Look {
        let get = |attribute_name: &str| attribute(attributes, attribute_name).unwrap_or_default();
        let rule = self.sheet.of(name, get("class"), get("id"));
        let own = style::look(get("style"));
        let colour = attribute(attributes, "color").and_then(Colour::read);
        let ground = attribute(attributes, "bgcolor").and_then(Colour::read);
        Look {
            hides: rule.hides || own.hides || attribute(attributes, "hidden").is_some(),
            tiny: own.tiny.or(rule.tiny),
            colour: own.colour.or(rule.colour).or(colour),
            ground: own.ground.or(rule.ground).or(ground),
        }
    }

    fn image(&mut self, attributes: &[(String, String)], hides: bool) {
        let small = |name: &str| {
            attribute(attributes, name)
                .and_then(|value| value.trim_end_matches("px").parse::<f32>().ok())
                .is_some_and(|n| n <= 2.0)
        };
        let style = attribute(attributes, "style").unwrap_or_default().replace(' ', "");
        let flat = ["width:0", "height:0", "width:1px", "height:1px"].iter().any(|flat| style.contains(flat));
        if hides || small("width") || small("height") || flat {
            self.page.hidden.pixels += 1;
        } else if let Some(alt) = attribute(attributes, "alt").map(str::trim).filter(|alt| !alt.is_empty()) {
            let alt: String = alt.chars().take(200).collect();
            self.text(&format!(" {alt} "));
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

    /// Elements that a new one closes, though nobody wrote it.
    fn close_implied(&mut self, name: &str) {
        let (closes, scope): (&[&str], &[&str]) = match name {
            "li" => (&["li"], &["ul", "ol"]),
            "td" | "th" => (&["td", "th"], &["table", "tr"]),
            "tr" => (&["tr"], &["table"]),
            "dt" | "dd" => (&["dt", "dd"], &["dl"]),
            "a" => (&["a"], &["table", "td", "th"]),
            _ if BLOCK.contains(&name) => (&["p"], &["table", "td", "th", "button"]),
            _ => return,
        };
        let open = self
            .stack
            .iter()
            .rposition(|frame| closes.contains(&frame.name.as_str()) || scope.contains(&frame.name.as_str()));
        if let Some(at) = open.filter(|at| closes.contains(&self.stack[*at].name.as_str())) {
            self.pop_to(at);
        }
    }

    pub(super) fn close(&mut self, name: &str) {
        if VOID.contains(&name) {
            return;
        }
        if self.beyond > 0 {
            self.beyond -= 1;
            return;
        }
        if let Some(at) = self.stack.iter().rposition(|frame| frame.name == name) {
            self.pop_to(at);
        }
    }

    /// Closes what is open and hands the page over.
    pub(super) fn finish(mut self) -> Page {
        self.pop_to(0);
        let kept = self.page.text.trim_end().len();
        self.page.text.truncate(kept);
        self.page.anchors.iter_mut().for_each(|anchor| anchor.text = anchor.text.trim().to_owned());
        self.page
    }

    fn pop_to(&mut self, at: usize) {
        let closed = self.stack.split_off(at.min(self.stack.len()));
        let cell = closed.first().is_some_and(|frame| matches!(frame.name.as_str(), "td" | "th" | "table" | "tr"));
        for frame in closed.iter().rev() {
            if frame.written {
                self.page.clean.extend(["</", frame.name.as_str(), ">"]);
            }
            if !frame.hides() && BLOCK.contains(&frame.name.as_str()) {
                self.line();
            }
        }
        if !cell {
            // What was closed over and hides goes on hiding, as in a browser.
            let again =
                closed.into_iter().skip(1).filter(|frame| frame.hides() && FORMATTING.contains(&frame.name.as_str()));
            self.stack.extend(again.map(|frame| Frame { written: false, ..frame }));
        }
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
