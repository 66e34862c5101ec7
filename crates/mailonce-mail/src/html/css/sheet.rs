//! Style sheets parsed into rules with their selectors, conditions and layers.
//!
//! Rules whose condition a browser may decide either way are marked as uncertain. The page is then evaluated once
//! without and once with them, and text is visible only if both results show it.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use cssparser::{
    AtRuleParser, CowRcStr, DeclarationParser, ParseError, Parser, ParserState, QualifiedRuleParser,
    RuleBodyItemParser, RuleBodyParser, StyleSheetParser, Token,
};
use selectors::parser::{Selector, SelectorList};

use super::{
    declaration::{self, Declaration, DeclarationTarget},
    media::{self, TriState},
    selector::{PseudoElement, SelectorTypes, match_depth, parse_list, weight},
    style::MAX_CUSTOM_PROPERTIES,
};

/// Maximum bytes of all style sheets of a page.
const MAX_SHEET_BYTES: usize = 256 * 1024;
/// Maximum rules of a page. Each selector of a list is a rule.
const MAX_RULES: usize = 5_000;
/// Maximum declarations of a page.
const MAX_DECLARATIONS: usize = 20_000;
/// Maximum declarations of custom properties in the style sheets of a page.
const MAX_CUSTOM_DECLARATIONS: usize = 4_000;
/// Maximum parts of all selectors of a page, with those that `&` stands for.
const MAX_SELECTOR_PARTS_PER_PAGE: usize = 1_000_000;
/// Maximum cascade layers of a page.
const MAX_LAYERS: usize = 200;
/// Maximum nesting depth of rules.
const MAX_RULE_NESTING: usize = 12;
/// Maximum opening parentheses in one selector list.
const MAX_PARENTHESES: usize = 60;
/// Maximum recursion depth of matching a selector, so that it fits in a small stack.
const MAX_MATCH_DEPTH: usize = 128;
/// Maximum depth of imports between style sheets.
const MAX_IMPORT_DEPTH: usize = 4;
/// The layer of rules outside all layers. It has the highest precedence.
pub(in crate::html) const UNLAYERED: usize = usize::MAX;

/// A selector and its declarations.
#[derive(Debug)]
pub(in crate::html) struct StyleRule {
    pub(in crate::html) selector: Selector<SelectorTypes>,
    /// Number of parts of the selector, with those that `&` stands for.
    pub(in crate::html) weight: usize,
    pub(in crate::html) pseudo: Option<PseudoElement>,
    pub(in crate::html) declarations: Rc<[Declaration]>,
    pub(in crate::html) layer: usize,
    /// Whether its conditions certainly hold.
    pub(in crate::html) is_certain: bool,
    /// Conditions that hold for other readers only, such as `print`. Empty unless the sheet keeps such rules.
    pub(in crate::html) other_readers: Vec<Rc<str>>,
}

/// Declarations of an animation at its start, in between, and at its end.
#[derive(Debug, Default)]
pub(in crate::html) struct Keyframes {
    pub(in crate::html) from: Vec<Declaration>,
    pub(in crate::html) middle: Vec<Declaration>,
    pub(in crate::html) to: Vec<Declaration>,
}

impl Keyframes {
    fn len(&self) -> usize {
        self.from.len() + self.middle.len() + self.to.len()
    }
}

/// All style sheets of a page.
#[derive(Debug, Default)]
pub(in crate::html) struct StyleSheet {
    pub(in crate::html) rules: Vec<StyleRule>,
    pub(in crate::html) keyframes: BTreeMap<String, Keyframes>,
    /// Fonts embedded in the mail. Their glyphs may show other letters.
    pub(in crate::html) embedded_fonts: BTreeSet<String>,
    /// Whether a limit was reached, or a construct was found that can change the meaning of every rule.
    pub(in crate::html) undecidable: bool,
    /// Custom properties that `@property` registers with a type and an initial value.
    pub(in crate::html) registered_properties: Vec<String>,
    layers: Vec<String>,
    bytes: usize,
    declarations: usize,
    custom_declarations: usize,
    selector_weight: usize,
    quirks: bool,
    /// Whether rules are kept that apply to other readers only.
    keeps_other_readers: bool,
}

impl StyleSheet {
    pub(in crate::html) fn new(quirks: bool) -> Self {
        Self { quirks, ..Self::default() }
    }

    /// A sheet that also keeps rules for other readers, such as those of `@media print`.
    pub(in crate::html) fn for_all_readers(quirks: bool) -> Self {
        Self { keeps_other_readers: true, ..Self::new(quirks) }
    }

    /// Adds a style sheet that a browser may or may not use.
    pub(in crate::html) fn add_uncertain(&mut self, css: &str, media: &str) {
        let scope = RuleScope { condition: TriState::Unknown, ..RuleScope::default() };
        let scope = self.within(scope, media::matches(media), media);
        self.read(css, &scope);
    }

    /// The scope inside a condition.
    fn within(&self, mut scope: RuleScope, truth: TriState, condition: &str) -> RuleScope {
        if truth == TriState::No && self.keeps_other_readers {
            scope.other_readers.push(condition.into());
        } else {
            scope.condition = scope.condition.and(truth);
        }
        scope
    }

    /// Adds a style sheet.
    pub(in crate::html) fn add(&mut self, css: &str, media: &str) {
        let scope = self.within(RuleScope::default(), media::matches(media), media);
        self.read(css, &scope);
    }

    fn read(&mut self, css: &str, scope: &RuleScope) {
        self.bytes += css.len();
        if self.bytes > MAX_SHEET_BYTES || scope.imports > MAX_IMPORT_DEPTH {
            self.undecidable = true;
            return;
        }
        if scope.condition == TriState::No {
            return;
        }
        let mut input = Parser::new(css);
        let mut parser =
            RuleParser { sheet: self, scope: scope.clone(), declarations: Vec::new(), may_import: TriState::Yes };
        StyleSheetParser::new(&mut input, &mut parser).for_each(drop);
    }

    fn layer(&mut self, parent: Option<&str>, name: Option<&str>) -> String {
        let name = name.map_or_else(|| format!("\n{}", self.layers.len()), str::to_owned);
        let full = parent.map_or_else(|| name.clone(), |parent| format!("{parent}.{name}"));
        if !self.layers.contains(&full) {
            if self.layers.len() >= MAX_LAYERS {
                self.undecidable = true;
            } else {
                self.layers.push(full.clone());
            }
        }
        full
    }

    fn push(&mut self, parents: &WeighedSelectors, declarations: Vec<Declaration>, scope: &RuleScope) {
        let is_custom = |declaration: &&Declaration| matches!(declaration.target, DeclarationTarget::Custom(_));
        self.declarations += declarations.len();
        self.custom_declarations += declarations.iter().filter(is_custom).count();
        self.undecidable |= self.custom_declarations > MAX_CUSTOM_DECLARATIONS;
        if declarations.is_empty() || scope.condition == TriState::No {
            return;
        }
        if self.declarations > MAX_DECLARATIONS || self.rules.len() + parents.list.slice().len() > MAX_RULES {
            self.undecidable = true;
            return;
        }
        let declarations: Rc<[Declaration]> = declarations.into();
        let layer = scope.layer.as_ref().and_then(|name| self.layers.iter().position(|layer| layer == name));
        for (selector, weight) in parents.list.slice().iter().zip(&*parents.weights) {
            let pseudo = selector.pseudo_element().cloned();
            if pseudo == Some(PseudoElement::Other) {
                continue;
            }
            self.rules.push(StyleRule {
                selector: selector.clone(),
                weight: *weight,
                pseudo,
                declarations: Rc::clone(&declarations),
                layer: layer.unwrap_or(UNLAYERED),
                is_certain: scope.condition == TriState::Yes,
                other_readers: scope.other_readers.clone(),
            });
        }
    }
}

/// A list of selectors, with `&` replaced, and the weight of each.
#[derive(Clone, Debug)]
struct WeighedSelectors {
    list: SelectorList<SelectorTypes>,
    weights: Rc<[usize]>,
    total_weight: usize,
    /// How deep matching the deepest of them recurses.
    depth: usize,
}

/// The context of a rule in a style sheet.
#[derive(Clone, Debug)]
struct RuleScope {
    condition: TriState,
    other_readers: Vec<Rc<str>>,
    layer: Option<String>,
    parents: Option<WeighedSelectors>,
    depth: usize,
    imports: usize,
}

impl Default for RuleScope {
    fn default() -> Self {
        Self { condition: TriState::Yes, other_readers: Vec::new(), layer: None, parents: None, depth: 0, imports: 0 }
    }
}

/// Parses the rules of a style sheet or of a block.
struct RuleParser<'s> {
    sheet: &'s mut StyleSheet,
    scope: RuleScope,
    /// Declarations directly in the block.
    declarations: Vec<Declaration>,
    /// Whether `@import` is still valid. It is not inside a block, nor after a rule that browsers know.
    may_import: TriState,
}

/// The prelude of an at-rule.
enum AtRulePrelude {
    /// `@media`, `@supports`, `@container`, `@scope`: whether its rules apply.
    Condition(TriState, String),
    Layer(Vec<String>),
    Keyframes(String),
    FontFace,
    Property(String),
    Import(String, String),
    /// At-rules that do not affect this page.
    Ignored,
}

impl RuleParser<'_> {
    /// Parses a block of rules in a scope, and the declarations directly in it.
    fn block(&mut self, input: &mut Parser<'_>, scope: RuleScope) {
        if scope.depth > MAX_RULE_NESTING {
            self.sheet.undecidable = true;
            return;
        }
        let mut body = RuleParser { sheet: self.sheet, scope, declarations: Vec::new(), may_import: TriState::No };
        RuleBodyParser::new(input, &mut body).for_each(drop);
        let RuleParser { scope, declarations, .. } = body;
        if let Some(parents) = &scope.parents {
            self.sheet.push(parents, declarations, &scope);
        }
    }

    /// The weights of selectors. Adds them to those of the page, with the cost of replacing `&`.
    fn weigh(&mut self, list: &SelectorList<SelectorTypes>) -> Rc<[usize]> {
        let parents = self.scope.parents.as_ref();
        let parents_weight = parents.map_or(0, |parents| parents.total_weight);
        let parent_count = parents.map_or(0, |parents| parents.weights.len());
        let weights: Rc<[usize]> = list.slice().iter().map(|selector| weight(selector, parents_weight)).collect();
        // The specificity of all parents is computed for each selector, also for those inside `:is()`.
        let replaced = |selector| weight(selector, 0).saturating_mul(parent_count);
        let replacing = list.slice().iter().fold(0_usize, |sum, selector| sum.saturating_add(replaced(selector)));
        let total = weights.iter().fold(replacing, |sum, weight| sum.saturating_add(*weight));
        self.sheet.selector_weight = self.sheet.selector_weight.saturating_add(total);
        weights
    }

    /// The scope of a block inside this one.
    fn nested_scope(&self) -> RuleScope {
        RuleScope { depth: self.scope.depth + 1, ..self.scope.clone() }
    }

    fn import(&mut self, url: &str, rest: &str) {
        // Only style sheets inside the mail are parsed. Mail clients fetch no others.
        let Some(css) = decode_data_url(url) else { return };
        // `layer()` and `supports()` may precede the media queries.
        let plain = !rest.contains('(') && !rest.to_ascii_lowercase().starts_with("layer");
        let truth = if plain { media::matches(rest) } else { TriState::Unknown };
        let truth = truth.and(self.may_import);
        let scope = RuleScope { imports: self.scope.imports + 1, ..self.nested_scope() };
        let scope = self.sheet.within(scope, truth, rest);
        self.sheet.read(&css, &scope);
    }
}

/// A URL without the characters that browsers ignore: tabs and line breaks anywhere, control characters around it.
pub(in crate::html) fn strip_ignored(url: &str) -> String {
    let url = url.trim_matches(|c: char| c <= ' ' || c.is_whitespace());
    url.chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect()
}

/// The content of a `data:` URL as text. `None` for other URLs.
pub(in crate::html) fn decode_data_url(url: &str) -> Option<String> {
    let url = strip_ignored(url);
    let rest = url.get(5..).filter(|_| url[..5].eq_ignore_ascii_case("data:"))?;
    let (kind, body) = rest.split_once(',')?;
    let bytes = percent_decoded(body);
    if kind.to_ascii_lowercase().ends_with(";base64") {
        use base64::Engine;
        let plain: Vec<u8> = bytes.into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let engine = base64::engine::general_purpose::GeneralPurpose::new(
            &base64::alphabet::STANDARD,
            base64::engine::GeneralPurposeConfig::new()
                .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
        );
        return engine.decode(plain).ok().map(|css| String::from_utf8_lossy(&css).into_owned());
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        let value = pair.filter(|_| bytes[at] == b'%').and_then(|pair| u8::from_str_radix(pair, 16).ok());
        out.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 3 } else { 1 };
    }
    out
}

fn remaining(input: &mut Parser<'_>) -> String {
    input.skip_whitespace();
    let start = input.position();
    while input.next().is_ok() {}
    input.slice_from(start).trim().to_owned()
}

impl<'i> AtRuleParser<'i> for RuleParser<'_> {
    type Prelude = AtRulePrelude;
    type AtRule = ();
    type Error = ();

    fn parse_prelude(&mut self, name: CowRcStr<'i>, input: &mut Parser<'i>) -> Result<AtRulePrelude, ParseError<()>> {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "import" | "charset" | "layer" => {}
            "media" => self.may_import = TriState::No,
            // Browsers ignore at-rules that they do not know.
            _ => self.may_import = self.may_import.and(TriState::Unknown),
        }
        Ok(match name.as_str() {
            "media" => {
                let condition = remaining(input);
                AtRulePrelude::Condition(media::matches(&condition), condition)
            }
            "supports" | "container" | "scope" | "document" | "-moz-document" | "when" | "else" => {
                drop(remaining(input));
                AtRulePrelude::Condition(TriState::Unknown, String::new())
            }
            "layer" => {
                let names = remaining(input);
                let names = names.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
                AtRulePrelude::Layer(names.collect())
            }
            "keyframes" | "-webkit-keyframes" => {
                AtRulePrelude::Keyframes(input.expect_ident_or_string()?.to_ascii_lowercase())
            }
            "font-face" => AtRulePrelude::FontFace,
            "property" => AtRulePrelude::Property(input.expect_ident()?.to_string()),
            "import" => {
                let url = input.expect_url_or_string()?.to_string();
                AtRulePrelude::Import(url, remaining(input))
            }
            "namespace" => {
                self.sheet.undecidable = true;
                drop(remaining(input));
                AtRulePrelude::Ignored
            }
            _ => {
                drop(remaining(input));
                AtRulePrelude::Ignored
            }
        })
    }

    fn rule_without_block(&mut self, prelude: AtRulePrelude, _: &ParserState) -> Result<(), ()> {
        match prelude {
            AtRulePrelude::Layer(names) => {
                let parent = self.scope.layer.clone();
                self.sheet.undecidable |= names.len() > MAX_LAYERS;
                for name in names.iter().take(MAX_LAYERS) {
                    drop(self.sheet.layer(parent.as_deref(), Some(name)));
                }
            }
            AtRulePrelude::Import(url, rest) if self.may_import != TriState::No => self.import(&url, &rest),
            _ => {}
        }
        Ok(())
    }

    fn parse_block(
        &mut self,
        prelude: AtRulePrelude,
        _: &ParserState,
        input: &mut Parser<'i>,
    ) -> Result<(), ParseError<()>> {
        let scope = self.nested_scope();
        match prelude {
            AtRulePrelude::Condition(truth, condition) => {
                let scope = self.sheet.within(scope, truth, &condition);
                self.block(input, scope);
            }
            AtRulePrelude::Layer(names) => {
                self.may_import = TriState::No;
                let layer = self.sheet.layer(scope.layer.as_deref(), names.first().map(String::as_str));
                self.block(input, RuleScope { layer: Some(layer), ..scope });
            }
            AtRulePrelude::Keyframes(name) if scope.condition != TriState::No && scope.other_readers.is_empty() => {
                let mut parser = KeyframesParser { quirks: self.sheet.quirks, frames: Keyframes::default() };
                RuleBodyParser::new(input, &mut parser).for_each(drop);
                self.sheet.declarations += parser.frames.len();
                if self.sheet.keyframes.len() < 200 && self.sheet.declarations <= MAX_DECLARATIONS {
                    self.sheet.keyframes.insert(name, parser.frames);
                } else {
                    self.sheet.undecidable = true;
                }
            }
            AtRulePrelude::Property(name) => {
                self.sheet.undecidable |= self.sheet.registered_properties.len() >= MAX_CUSTOM_PROPERTIES;
                self.sheet.registered_properties.push(name);
                drop(remaining(input));
            }
            AtRulePrelude::FontFace => {
                if let Some(font) = embedded_font(&remaining(input)) {
                    self.sheet.embedded_fonts.insert(font);
                }
            }
            _ => drop(remaining(input)),
        }
        Ok(())
    }
}

/// The name of a font that is embedded in the mail.
fn embedded_font(block: &str) -> Option<String> {
    let lower = block.to_ascii_lowercase();
    if !lower.contains("data:") && !lower.contains("cid:") {
        return None;
    }
    let mut input = Parser::new(block);
    while let Ok(token) = input.next() {
        if matches!(token, Token::Ident(name) if name.eq_ignore_ascii_case("font-family")) {
            input.expect_colon().ok()?;
            let mut name = String::new();
            while let Ok(word) = input.try_parse(|input| input.expect_ident_or_string().cloned()) {
                name = if name.is_empty() {
                    word.to_ascii_lowercase()
                } else {
                    format!("{name} {}", word.to_ascii_lowercase())
                };
            }
            return Some(name);
        }
    }
    None
}

impl<'i> QualifiedRuleParser<'i> for RuleParser<'_> {
    type Prelude = WeighedSelectors;
    type QualifiedRule = ();
    type Error = ();

    fn parse_prelude(&mut self, input: &mut Parser<'i>) -> Result<WeighedSelectors, ParseError<()>> {
        // Browsers drop a rule whose selector they do not know.
        self.may_import = self.may_import.and(TriState::Unknown);
        if self.sheet.undecidable {
            return Err(ParseError::unexpected_token());
        }
        let start = input.state();
        let text = remaining(input);
        input.reset(&start);
        if text.bytes().filter(|byte| *byte == b'(').count() > MAX_PARENTHESES {
            self.sheet.undecidable = true;
            return Err(ParseError::unexpected_token());
        }
        let list = parse_list(input, self.scope.parents.is_some());
        let Ok(list) = list else { return Err(ParseError::unexpected_token()) };
        let weights = self.weigh(&list);
        let parents_depth = self.scope.parents.as_ref().map_or(0, |parents| parents.depth);
        let depth = list.slice().iter().map(|selector| match_depth(selector, parents_depth)).max().unwrap_or(0);
        if self.sheet.selector_weight > MAX_SELECTOR_PARTS_PER_PAGE || depth > MAX_MATCH_DEPTH {
            self.sheet.undecidable = true;
            return Err(ParseError::unexpected_token());
        }
        let parents = self.scope.parents.as_ref();
        let list = parents.map_or_else(|| list.clone(), |parents| list.replace_parent_selector(&parents.list));
        let total_weight = weights.iter().fold(0_usize, |sum, weight| sum.saturating_add(*weight));
        Ok(WeighedSelectors { list, weights, total_weight, depth })
    }

    fn parse_block(
        &mut self,
        list: WeighedSelectors,
        _: &ParserState,
        input: &mut Parser<'i>,
    ) -> Result<(), ParseError<()>> {
        self.may_import = TriState::No;
        let scope = RuleScope { parents: Some(list), ..self.nested_scope() };
        self.block(input, scope);
        Ok(())
    }
}

impl<'i> DeclarationParser<'i> for RuleParser<'_> {
    type Declaration = ();
    type Error = ();

    fn parse_value(
        &mut self,
        name: CowRcStr<'i>,
        input: &mut Parser<'i>,
        _: &ParserState,
    ) -> Result<(), ParseError<()>> {
        declaration::parse_declaration(&name, input, self.sheet.quirks, &mut self.declarations)
    }
}

impl RuleBodyItemParser<'_, (), ()> for RuleParser<'_> {
    fn parse_declarations(&self) -> bool {
        self.scope.parents.is_some()
    }

    fn parse_qualified(&self) -> bool {
        true
    }
}

/// Parses the keyframes of an animation.
struct KeyframesParser {
    quirks: bool,
    frames: Keyframes,
}

impl AtRuleParser<'_> for KeyframesParser {
    type Prelude = ();
    type AtRule = ();
    type Error = ();
}

impl DeclarationParser<'_> for KeyframesParser {
    type Declaration = ();
    type Error = ();
}

impl<'i> QualifiedRuleParser<'i> for KeyframesParser {
    type Prelude = String;
    type QualifiedRule = ();
    type Error = ();

    fn parse_prelude(&mut self, input: &mut Parser<'i>) -> Result<String, ParseError<()>> {
        Ok(remaining(input).to_ascii_lowercase())
    }

    fn parse_block(&mut self, steps: String, _: &ParserState, input: &mut Parser<'i>) -> Result<(), ParseError<()>> {
        let start = input.position();
        while input.next().is_ok() {}
        let declarations = declaration::parse_style_attribute(input.slice_from(start), self.quirks);
        // A selector may name a step several times. Its declarations are kept once.
        let has_step = |wanted: &[&str]| steps.split(',').any(|step| wanted.contains(&step.trim()));
        let (start, end) = (["from", "0%"], ["to", "100%"]);
        let between = |step: &str| !start.contains(&step.trim()) && !end.contains(&step.trim());
        if has_step(&start) {
            self.frames.from.extend(declarations.iter().cloned());
        }
        if steps.split(',').any(between) {
            self.frames.middle.extend(declarations.iter().cloned());
        }
        if has_step(&end) {
            self.frames.to.extend(declarations);
        }
        Ok(())
    }
}

impl RuleBodyItemParser<'_, (), ()> for KeyframesParser {
    fn parse_declarations(&self) -> bool {
        false
    }

    fn parse_qualified(&self) -> bool {
        true
    }
}
