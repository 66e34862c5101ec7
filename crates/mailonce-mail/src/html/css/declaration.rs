//! Declarations: a property, its value as text, and whether it is `!important`.
//!
//! Values stay text until the element is known, because `em` and `var()` depend on the element.

use std::rc::Rc;

use cssparser::{
    AtRuleParser, CowRcStr, DeclarationParser, ParseError, Parser, ParserState, QualifiedRuleParser,
    RuleBodyItemParser, RuleBodyParser, Token, parse_important,
};

use super::{
    property::{Property, PropertyTarget, Shorthand},
    shorthand::parse,
    token::{opens_block, skip_block},
    value::RelativeBase,
};

/// Functions whose value depends on the element.
const SUBSTITUTIONS: &[&str] = &["var(", "env(", "attr(", "if(", "inherit(", "--"];
/// Maximum bytes of a value.
const MAX_VALUE_BYTES: usize = 4 * 1024;

/// The property that a declaration sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::html) enum DeclarationTarget {
    /// A property, set directly or through a shorthand.
    Property(Property, Option<Shorthand>),
    /// A custom property, with its dashes.
    Custom(Rc<str>),
}

/// One declaration. A shorthand is expanded to one declaration for each property that it sets.
#[derive(Clone, Debug)]
pub(in crate::html) struct Declaration {
    pub(in crate::html) target: DeclarationTarget,
    pub(in crate::html) value: Rc<str>,
    pub(in crate::html) is_important: bool,
}

/// Whether a value is a CSS-wide keyword, which every property accepts.
pub(in crate::html) fn is_css_wide_keyword(text: &str) -> bool {
    ["inherit", "initial", "unset", "revert", "revert-layer"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Whether a value depends on the element that it is used on.
pub(in crate::html) fn needs_substitution(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains('(') && SUBSTITUTIONS.iter().any(|function| text.contains(function))
}

/// Parses the value of a declaration up to its end. An error means that it may be a nested rule.
pub(in crate::html) fn parse_declaration(
    name: &str,
    input: &mut Parser<'_>,
    quirks: bool,
    out: &mut Vec<Declaration>,
) -> Result<(), ParseError<()>> {
    let custom = name.starts_with("--");
    input.skip_whitespace();
    let start = input.position();
    let (mut end, mut important) = (start, false);
    loop {
        let state = input.state();
        let Ok(token) = input.next_including_whitespace() else { break };
        match token {
            Token::Delim('!') => {
                input.reset(&state);
                parse_important(input)?;
                input.expect_exhausted()?;
                important = true;
                break;
            }
            Token::CurlyBracketBlock if !custom => return Err(ParseError::unexpected_token()),
            Token::BadString(_) | Token::BadUrl(_) => return Err(ParseError::unexpected_token()),
            token if opens_block(token) => skip_block(input)?,
            _ => {}
        }
        end = input.position();
    }
    declare(name, limit_value(input.slice(start..end)), important, quirks, out);
    Ok(())
}

/// The value to store. A value that is too long becomes one that cannot be computed, which hides.
fn limit_value(text: &str) -> &str {
    let text = text.trim();
    if text.len() > MAX_VALUE_BYTES { "attr(long)" } else { text }
}

fn declare(name: &str, text: &str, important: bool, quirks: bool, out: &mut Vec<Declaration>) {
    let value: Rc<str> = text.into();
    if name.starts_with("--") {
        out.push(Declaration { target: DeclarationTarget::Custom(name.into()), value, is_important: important });
        return;
    }
    let Some(target) = PropertyTarget::named(&name.to_ascii_lowercase()) else { return };
    let deferred = is_css_wide_keyword(text) || needs_substitution(text);
    let base = RelativeBase { quirks, ..RelativeBase::default() };
    let (properties, shorthand): (&[Property], _) = match &target {
        PropertyTarget::One(property) => (std::slice::from_ref(property), None),
        PropertyTarget::Many(shorthand) => (shorthand.longhands(), Some(*shorthand)),
    };
    let valid = |property: &Property| deferred || parse(*property, shorthand, text, base).is_some();
    if !properties.iter().all(valid) {
        return;
    }
    for property in properties {
        let target_property = DeclarationTarget::Property(*property, shorthand);
        out.push(Declaration { target: target_property, value: Rc::clone(&value), is_important: important });
    }
}

/// Parses the declarations of a `style` attribute.
pub(in crate::html) fn parse_style_attribute(text: &str, quirks: bool) -> Vec<Declaration> {
    let mut parser = StyleAttributeParser { quirks, out: Vec::new() };
    let mut input = Parser::new(text);
    RuleBodyParser::new(&mut input, &mut parser).for_each(drop);
    parser.out
}

struct StyleAttributeParser {
    quirks: bool,
    out: Vec<Declaration>,
}

impl<'i> DeclarationParser<'i> for StyleAttributeParser {
    type Declaration = ();
    type Error = ();

    fn parse_value(
        &mut self,
        name: CowRcStr<'i>,
        input: &mut Parser<'i>,
        _: &ParserState,
    ) -> Result<(), ParseError<()>> {
        parse_declaration(&name, input, self.quirks, &mut self.out)
    }
}

impl AtRuleParser<'_> for StyleAttributeParser {
    type Prelude = ();
    type AtRule = ();
    type Error = ();
}

impl QualifiedRuleParser<'_> for StyleAttributeParser {
    type Prelude = ();
    type QualifiedRule = ();
    type Error = ();
}

impl RuleBodyItemParser<'_, (), ()> for StyleAttributeParser {
    fn parse_declarations(&self) -> bool {
        true
    }

    fn parse_qualified(&self) -> bool {
        false
    }
}
