//! Scans CSS for content that is missing from the page's text: generated text, images, fonts and reordering.
//!
//! All declarations are scanned, wherever they are. The parser has decoded escapes and dropped comments.

use std::collections::BTreeSet;

use cssparser::{ParseError, Parser, Token};
use url::{Host, Url};

use super::{sheet::strip_ignored, token::opens_block};
use crate::unicode;

/// Maximum nesting depth of blocks.
const MAX_DEPTH: usize = 32;
/// Hosts of public web fonts.
const FONT_HOSTS: [&str; 2] = ["fonts.googleapis.com", "fonts.gstatic.com"];
/// Quotation marks that `quotes` may set without a warning.
const QUOTATION_MARKS: &str = "\"'«»‹›“”„‟‘’‚‛「」『』";

/// Fonts that show letters as other signs.
const SYMBOL_FONTS: [&str; 6] = ["wingdings", "webdings", "symbol", "zapf dingbats", "zapfdingbats", "dingbats"];

/// List styles without numbers.
const BULLETS: [&str; 5] = ["disc", "circle", "square", "none", "disclosure-closed"];
/// Words of a list style that do not name its numbers.
const LIST_WORDS: [&str; 9] =
    ["inside", "outside", "important", "initial", "inherit", "unset", "revert", "revert-layer", "disclosure-open"];

/// The effect of a declaration or a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::html) enum CssFinding {
    /// Generates text.
    Text,
    /// Shows an image embedded in the CSS.
    EmbeddedImage,
    /// Loads a style sheet from another server.
    RemoteSheet,
    /// Embeds a font, whose glyphs may show other letters.
    Font,
    /// Changes the order of text.
    Reordered,
    /// Makes text run right to left.
    RightToLeft,
    /// Hides text.
    Hiding,
    /// Strikes text through.
    StruckThrough,
    /// Numbers list items with decimal numbers.
    ListNumbers,
    /// Numbers list items with letters or in another way.
    OtherListNumbers,
    /// Shows list items without their numbers.
    NoListNumbers,
    /// Loads an image from another server.
    RemoteImage,
    /// Raises or lowers text.
    Raised,
    /// Moves words closer together.
    Squeezed,
    /// Shows letters as the signs of a symbol font.
    SymbolFont,
    /// Repeats or reverses an animation.
    RepeatedAnimation,
    /// Nests blocks deeper than is scanned.
    TooDeep,
}

/// Scans a style sheet or the declarations of a `style` attribute.
pub(in crate::html) fn find(css: &str) -> BTreeSet<CssFinding> {
    let mut scanner = CssScanner::default();
    scanner.block(&mut Parser::new(css), 0);
    scanner.found
}

/// Whether a URL holds its content itself.
pub(in crate::html) fn is_data_url(url: &str) -> bool {
    strip_ignored(url).get(..5).is_some_and(|start| start.eq_ignore_ascii_case("data:"))
}

/// Whether a font shows letters as other signs.
pub(in crate::html) fn is_symbol_font(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase();
    SYMBOL_FONTS.contains(&name.trim_end_matches([' ', '2', '3']))
}

/// Whether a URL is on a host of public web fonts.
pub(in crate::html) fn is_known_font_host(url: &str) -> bool {
    let url = Url::parse(url.trim()).ok();
    let host = url.as_ref().filter(|url| url.scheme() == "https").and_then(Url::host);
    matches!(host, Some(Host::Domain(host)) if FONT_HOSTS.contains(&host))
}

#[derive(Default)]
struct CssScanner {
    found: BTreeSet<CssFinding>,
}

/// The value of a property, or the prelude of an at-rule. Words are in lower case.
#[derive(Default)]
struct Value {
    words: Vec<String>,
    functions: Vec<String>,
    strings: Vec<String>,
    urls: Vec<String>,
    numbers: Vec<f32>,
}

impl CssScanner {
    /// Scans declarations and rules. Text before a `{` is parsed as if it were a declaration, which matches no known
    /// property.
    fn block(&mut self, input: &mut Parser<'_>, depth: usize) {
        if depth > MAX_DEPTH {
            self.found.insert(CssFinding::TooDeep);
            return;
        }
        let mut last_word = String::new();
        while let Ok(token) = input.next().cloned() {
            match token {
                Token::Ident(name) => last_word = name.to_ascii_lowercase(),
                Token::Colon if !last_word.is_empty() => {
                    let value = self.value(input, depth);
                    self.declaration(&std::mem::take(&mut last_word), &value);
                }
                Token::AtKeyword(name) => {
                    let name = name.to_ascii_lowercase();
                    let value = self.at_rule(input, depth, name == "font-face");
                    self.rule(&name, &value);
                    last_word.clear();
                }
                token => {
                    last_word.clear();
                    self.nested(&token, input, depth);
                }
            }
        }
    }

    /// Scans the block that a token opens, if it opens one.
    fn nested(&mut self, token: &Token<'_>, input: &mut Parser<'_>, depth: usize) {
        if opens_block(token) {
            let entered: Result<(), ParseError<()>> = input.parse_nested_block(|input| {
                self.block(input, depth + 1);
                Ok(())
            });
            drop(entered);
        }
    }

    /// Parses up to the end of a declaration. A block inside means that the text before it was a selector.
    fn value(&mut self, input: &mut Parser<'_>, depth: usize) -> Value {
        let mut value = Value::default();
        while let Ok(token) = input.next().cloned() {
            match token {
                Token::Semicolon => break,
                Token::CurlyBracketBlock => {
                    self.nested(&token, input, depth);
                    // Custom properties may hold a block, with more after it.
                    break;
                }
                token => self.part(&mut value, &token, input, depth),
            }
        }
        value
    }

    /// Parses an at-rule. The descriptors of `@font-face` become its value. The blocks of other rules are scanned as
    /// rules.
    fn at_rule(&mut self, input: &mut Parser<'_>, depth: usize, is_font: bool) -> Value {
        let mut value = Value::default();
        while let Ok(token) = input.next().cloned() {
            match token {
                Token::Semicolon => break,
                Token::CurlyBracketBlock => {
                    if is_font {
                        self.part(&mut value, &token, input, depth);
                    } else {
                        self.nested(&token, input, depth);
                    }
                    break;
                }
                token => self.part(&mut value, &token, input, depth),
            }
        }
        value
    }

    fn part(&mut self, value: &mut Value, token: &Token<'_>, input: &mut Parser<'_>, depth: usize) {
        match token {
            Token::Ident(word) => value.words.push(word.to_ascii_lowercase()),
            Token::QuotedString(text) => value.strings.push(text.to_string()),
            Token::UnquotedUrl(url) => value.urls.push(url.to_string()),
            Token::Number { value: number, .. } | Token::Dimension { value: number, .. } => {
                value.numbers.push(*number);
            }
            Token::Function(name) => value.functions.push(name.to_ascii_lowercase()),
            _ => {}
        }
        if !opens_block(token) {
            return;
        }
        if depth >= MAX_DEPTH {
            self.found.insert(CssFinding::TooDeep);
            return;
        }
        let entered: Result<(), ParseError<()>> = input.parse_nested_block(|input| {
            while let Ok(token) = input.next().cloned() {
                self.part(value, &token, input, depth + 1);
            }
            Ok(())
        });
        drop(entered);
    }

    fn rule(&mut self, name: &str, value: &Value) {
        let is_remote = |url: &String| !is_data_url(url);
        match name {
            // An imported `data:` style sheet is not scanned here, so it is reported, too.
            "import" if !value.addresses().all(|url| is_remote(url) && is_known_font_host(url)) => {
                self.found.insert(CssFinding::RemoteSheet);
            }
            "counter-style" => {
                self.found.insert(CssFinding::Text);
            }
            "font-face" if !value.addresses().filter(|url| url.contains(':')).all(|url| is_known_font_host(url)) => {
                self.found.insert(CssFinding::Font);
            }
            _ => {}
        }
    }

    fn declaration(&mut self, name: &str, value: &Value) {
        let plain = ["-webkit-", "-moz-", "-ms-", "-o-", "-epub-"].iter().find_map(|prefix| name.strip_prefix(prefix));
        let name = plain.unwrap_or(name);
        if value.shows_text(name) {
            self.found.insert(CssFinding::Text);
        }
        if value.reorders(name) {
            self.found.insert(CssFinding::Reordered);
        }
        if name == "direction" && (value.has_word("rtl") || value.is_substituted()) {
            self.found.insert(CssFinding::RightToLeft);
        }
        let hides = matches!(name, "display" | "visibility" | "mso-hide" | "position");
        if hides && ["none", "hidden", "all", "absolute", "fixed", "collapse"].iter().any(|word| value.has_word(word)) {
            self.found.insert(CssFinding::Hiding);
        }
        if matches!(name, "text-decoration" | "text-decoration-line") && value.has_word("line-through") {
            self.found.insert(CssFinding::StruckThrough);
        }
        self.found.extend(value.list_numbers(name));
        if value.repeats_animation(name) {
            self.found.insert(CssFinding::RepeatedAnimation);
        }
        if value.addresses().any(|url| is_data_url(url)) {
            self.found.insert(CssFinding::EmbeddedImage);
        }
        if value.shows_remote_image(name) {
            self.found.insert(CssFinding::RemoteImage);
        }
        if name == "vertical-align" && (value.has_word("super") || value.has_word("sub")) {
            self.found.insert(CssFinding::Raised);
        }
        if name == "word-spacing" && value.numbers.iter().any(|number| *number < 0.0) {
            self.found.insert(CssFinding::Squeezed);
        }
        if matches!(name, "font" | "font-family") && value.has_symbol_font() {
            self.found.insert(CssFinding::SymbolFont);
        }
    }
}

impl Value {
    fn has_word(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }

    fn has_symbol_font(&self) -> bool {
        self.words.iter().chain(&self.strings).any(|name| is_symbol_font(name))
    }

    fn shows_remote_image(&self, name: &str) -> bool {
        let is_image =
            name == "background" || name == "list-style" || name.ends_with("-image") || name == "border-image";
        is_image && self.addresses().any(|url| !url.trim().is_empty() && !is_data_url(url))
    }

    /// Whether its value depends on the element.
    fn is_substituted(&self) -> bool {
        let is_substitution = |name: &String| {
            matches!(name.as_str(), "var" | "env" | "attr" | "if" | "inherit") || name.starts_with("--")
        };
        self.functions.iter().any(is_substitution)
    }

    /// URLs, with or without quotes.
    fn addresses(&self) -> impl Iterator<Item = &String> {
        self.urls.iter().chain(&self.strings)
    }

    fn shows_text(&self, name: &str) -> bool {
        let is_blank = |text: &String| text.chars().all(|c| c.is_whitespace() || unicode::is_invisible(c));
        let has_text = !self.strings.iter().all(is_blank);
        match name {
            "content" => {
                let harmless = ["none", "normal", "initial", "inherit", "unset", "revert", "revert-layer"];
                let is_harmless = |word: &String| harmless.contains(&word.as_str());
                has_text || !self.functions.is_empty() || !self.urls.is_empty() || !self.words.iter().all(is_harmless)
            }
            "list-style" | "list-style-type" => {
                let is_symbols = self.functions.iter().any(|name| name == "symbols");
                let is_address = self.functions.iter().any(|name| name == "url");
                has_text && !is_address || is_symbols || self.is_substituted()
            }
            "quotes" => {
                let is_mark = |c: char| c.is_whitespace() || QUOTATION_MARKS.contains(c);
                !self.strings.iter().all(|text| text.chars().all(is_mark)) || self.is_substituted()
            }
            "text-overflow" | "hyphenate-character" | "text-emphasis" | "text-emphasis-style" | "string-set" => {
                has_text || self.is_substituted()
            }
            // `content` with a counter is reported by itself. Here only changes to the numbers of lists count.
            "counter-reset" | "counter-increment" | "counter-set" => {
                self.has_word("list-item") || self.is_substituted()
            }
            _ => false,
        }
    }

    /// How a list style numbers its items.
    fn list_numbers(&self, name: &str) -> Option<CssFinding> {
        if name == "display" && self.has_word("list-item") {
            return Some(CssFinding::OtherListNumbers);
        }
        if !matches!(name, "list-style" | "list-style-type") {
            return None;
        }
        let kinds = || self.words.iter().map(String::as_str).filter(|word| !LIST_WORDS.contains(word));
        match () {
            () if kinds().any(|kind| kind != "decimal" && !BULLETS.contains(&kind)) => {
                Some(CssFinding::OtherListNumbers)
            }
            () if kinds().any(|kind| kind == "decimal") => Some(CssFinding::ListNumbers),
            () => kinds().next().map(|_| CssFinding::NoListNumbers),
        }
    }

    /// Whether an animation does not simply run once from its start to its end.
    fn repeats_animation(&self, name: &str) -> bool {
        let is_once = |number: &f32| (number - 1.0).abs() < 0.01;
        match name {
            "animation" | "animation-direction" => {
                ["infinite", "reverse", "alternate", "alternate-reverse"].iter().any(|word| self.has_word(word))
                    || self.is_substituted()
            }
            "animation-iteration-count" => self.has_word("infinite") || !self.numbers.iter().all(is_once),
            _ => false,
        }
    }

    fn reorders(&self, name: &str) -> bool {
        let any = |words: &[&str]| self.is_substituted() || words.iter().any(|word| self.has_word(word));
        match name {
            "unicode-bidi" => {
                any(&["bidi-override", "isolate-override", "-webkit-isolate-override", "-moz-isolate-override"])
            }
            "flex-direction" | "flex-flow" | "flex-wrap" | "box-direction" => {
                any(&["row-reverse", "column-reverse", "reverse", "wrap-reverse"])
            }
            "order" | "flex-order" => self.is_substituted() || self.numbers.iter().any(|number| *number != 0.0),
            "box-ordinal-group" => {
                self.is_substituted() || self.numbers.iter().any(|number| (number - 1.0).abs() > 0.1)
            }
            "writing-mode" => {
                self.is_substituted()
                    || !["horizontal-tb", "lr-tb", "lr", "initial", "inherit", "unset"]
                        .iter()
                        .any(|word| self.has_word(word))
            }
            "caption-side" => any(&["bottom", "block-end"]),
            "display" => ["table-header-group", "table-footer-group"].iter().any(|word| self.has_word(word)),
            "transform" | "scale" | "rotate" => self.is_mirrored_or_rotated(name),
            _ => false,
        }
    }

    /// Whether letters are mirrored or upside down.
    fn is_mirrored_or_rotated(&self, name: &str) -> bool {
        let has = |start: &str| name == start || self.functions.iter().any(|function| function.starts_with(start));
        let is_mirrored = (has("scale") || has("matrix")) && self.numbers.iter().any(|number| *number < 0.0);
        // The unit is ignored: angles in `rad` or `turn` have small numbers, so they pass.
        is_mirrored || has("rotate") && self.numbers.iter().any(|number| number.abs() >= 90.0)
    }
}
