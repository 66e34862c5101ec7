//! Selectors and how they are parsed, using the `selectors` crate of Firefox.

use std::fmt;

use cssparser::{ParseError, Parser as CssParser, ToCss, serialize_identifier};
use precomputed_hash::PrecomputedHash;
use selectors::parser::{self, Component, ParseRelative, Selector, SelectorList, SelectorParseErrorKind};

/// Parts of a selector that are evaluated in the time of one step.
const COMPONENTS_PER_STEP: usize = 4;

/// The types that the `selectors` crate is parameterised with.
#[derive(Clone, Debug)]
pub(in crate::html) struct SelectorTypes;

/// A name in a selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::html) struct CssName(Box<str>);

impl From<&str> for CssName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl AsRef<str> for CssName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl ToCss for CssName {
    fn to_css<W: fmt::Write>(&self, out: &mut W) -> fmt::Result {
        serialize_identifier(&self.0, out)
    }
}

impl PrecomputedHash for CssName {
    /// FNV-1a. Only Bloom filters use it, so a collision only costs a comparison.
    fn precomputed_hash(&self) -> u32 {
        self.0.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}

/// Pseudo-classes that do not depend on the tree, by what they match before any user interaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::html) enum PseudoClass {
    /// `:hover`, `:focus`, `:target` and others that need a user or a script.
    Never,
    /// `:defined`, `:dir(ltr)`.
    Always,
    Link,
    Checked,
    Disabled,
    Enabled,
    Required,
    Optional,
    /// Elements whose text a user can edit.
    Editable,
    NotEditable,
    Open,
    Lang(Vec<Box<str>>),
    /// Known to browsers but not decided here. Matches only in the second pass over the page.
    Unknown,
}

/// Pseudo-elements that affect whether text is visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::html) enum PseudoElement {
    /// `::before` and `::after`.
    Generated,
    FirstLine,
    FirstLetter,
    /// `::details-content`.
    Details,
    /// All others. Their rules are dropped.
    Other,
}

impl ToCss for PseudoClass {
    fn to_css<W: fmt::Write>(&self, out: &mut W) -> fmt::Result {
        write!(out, ":{self:?}")
    }
}

impl ToCss for PseudoElement {
    fn to_css<W: fmt::Write>(&self, out: &mut W) -> fmt::Result {
        write!(out, "::{self:?}")
    }
}

impl parser::NonTSPseudoClass for PseudoClass {
    fn is_active_or_hover(&self) -> bool {
        false
    }

    fn is_user_action_state(&self) -> bool {
        false
    }
}

impl parser::PseudoElement for PseudoElement {
    fn accepts_state_pseudo_classes(&self) -> bool {
        true
    }
}

impl parser::SelectorImpl for SelectorTypes {
    type ExtraMatchingData<'a> = ();
    type AttrValue = CssName;
    type Identifier = CssName;
    type LocalName = CssName;
    type NamespaceUrl = CssName;
    type NamespacePrefix = CssName;
    type BorrowedNamespaceUrl = CssName;
    type BorrowedLocalName = CssName;
    type NonTSPseudoClass = PseudoClass;
    type PseudoElement = PseudoElement;
}

/// Parses selectors. `nested` ones may begin with a combinator.
pub(in crate::html) fn parse_list(
    input: &mut CssParser<'_>,
    nested: bool,
) -> Result<SelectorList<SelectorTypes>, ParseError<SelectorParseErrorKind>> {
    let relative = if nested { ParseRelative::ForNesting } else { ParseRelative::No };
    SelectorList::parse(&SelectorParser, input, relative)
}

/// The number of parts of a selector, with those in `:is()` and similar. `&` has as many as all its parents together.
pub(in crate::html) fn weight(selector: &Selector<SelectorTypes>, parents: usize) -> usize {
    let sum = |selectors: &[Selector<SelectorTypes>]| {
        selectors.iter().fold(0_usize, |sum, selector| sum.saturating_add(weight(selector, parents)))
    };
    selector.iter_raw_match_order().fold(0_usize, |total, component| {
        let inner = match component {
            Component::Is(list) | Component::Where(list) | Component::Negation(list) => sum(list.slice()),
            Component::Has(relative) => {
                relative.iter().fold(0_usize, |sum, relative| sum.saturating_add(weight(&relative.selector, parents)))
            }
            Component::NthOf(data) => sum(data.selectors()),
            Component::Slotted(inner) | Component::Host(Some(inner)) => weight(inner, parents),
            Component::ParentSelector => parents,
            _ => 0,
        };
        total.saturating_add(1).saturating_add(inner)
    })
}

/// How deep matching a selector recurses: once for each combinator, and into `:is()` and similar. `parents` is the
/// depth of the selectors that `&` stands for.
pub(in crate::html) fn match_depth(selector: &Selector<SelectorTypes>, parents: usize) -> usize {
    let deepest = |selectors: &[Selector<SelectorTypes>]| {
        selectors.iter().map(|selector| 1 + match_depth(selector, parents)).max().unwrap_or(0)
    };
    let (mut combinators, mut inner) = (0, 0);
    for component in selector.iter_raw_match_order() {
        let depth = match component {
            Component::Combinator(_) => {
                combinators += 1;
                0
            }
            Component::Is(list) | Component::Where(list) | Component::Negation(list) => deepest(list.slice()),
            Component::Has(relative) => {
                relative.iter().map(|relative| 1 + match_depth(&relative.selector, parents)).max().unwrap_or(0)
            }
            Component::NthOf(data) => deepest(data.selectors()),
            Component::Slotted(inner) | Component::Host(Some(inner)) => 1 + match_depth(inner, parents),
            Component::ParentSelector => 1 + parents,
            _ => 0,
        };
        inner = inner.max(depth);
    }
    combinators + inner
}

/// The steps for evaluating a selector of this weight on one element.
pub(in crate::html) fn match_steps(weight: usize) -> usize {
    1 + weight / COMPONENTS_PER_STEP
}

struct SelectorParser;

type SelectorError = ParseError<SelectorParseErrorKind>;

fn unsupported<T>() -> Result<T, SelectorError> {
    Err(ParseError::custom(SelectorParseErrorKind::UnsupportedPseudoClassOrElement))
}

impl<'i> parser::Parser<'i> for SelectorParser {
    type Impl = SelectorTypes;
    type Error = SelectorParseErrorKind;

    fn parse_nth_child_of(&self) -> bool {
        true
    }

    fn parse_is_and_where(&self) -> bool {
        true
    }

    fn parse_has(&self) -> bool {
        true
    }

    fn parse_parent_selector(&self) -> bool {
        true
    }

    fn is_is_alias(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case("-webkit-any") || name.eq_ignore_ascii_case("matches")
    }

    fn parse_non_ts_pseudo_class(&self, name: &str) -> Result<PseudoClass, SelectorError> {
        let class = match name.to_ascii_lowercase().as_str() {
            "link" | "any-link" | "-webkit-any-link" => PseudoClass::Link,
            "defined" => PseudoClass::Always,
            "checked" => PseudoClass::Checked,
            "disabled" => PseudoClass::Disabled,
            "enabled" => PseudoClass::Enabled,
            "required" => PseudoClass::Required,
            "optional" => PseudoClass::Optional,
            "read-write" => PseudoClass::Editable,
            "read-only" => PseudoClass::NotEditable,
            "open" => PseudoClass::Open,
            "visited"
            | "hover"
            | "active"
            | "focus"
            | "focus-within"
            | "focus-visible"
            | "target"
            | "target-current"
            | "fullscreen"
            | "-webkit-full-screen"
            | "modal"
            | "picture-in-picture"
            | "popover-open"
            | "autofill"
            | "-webkit-autofill"
            | "user-valid"
            | "user-invalid"
            | "host"
            | "current"
            | "playing"
            | "muted"
            | "seeking"
            | "stalled"
            | "buffering"
            | "volume-locked"
            | "active-view-transition" => PseudoClass::Never,
            "valid" | "invalid" | "in-range" | "out-of-range" | "placeholder-shown" | "default" | "indeterminate"
            | "paused" | "has-slotted" | "xr-overlay" | "interest-source" | "interest-target" => PseudoClass::Unknown,
            _ => return unsupported(),
        };
        Ok(class)
    }

    fn parse_non_ts_functional_pseudo_class(
        &self,
        name: &str,
        arguments: &mut CssParser<'i>,
        _: bool,
    ) -> Result<PseudoClass, SelectorError> {
        match name.to_ascii_lowercase().as_str() {
            "lang" => {
                let languages = arguments.parse_comma_separated(|input| {
                    Ok::<_, SelectorError>(input.expect_ident_or_string()?.as_ref().into())
                })?;
                Ok(PseudoClass::Lang(languages))
            }
            "dir" | "state" | "host" | "host-context" | "active-view-transition-type" => {
                while arguments.next().is_ok() {}
                Ok(PseudoClass::Unknown)
            }
            _ => unsupported(),
        }
    }

    fn parse_pseudo_element(&self, name: &str) -> Result<PseudoElement, SelectorError> {
        match name.to_ascii_lowercase().as_str() {
            "before" | "after" => Ok(PseudoElement::Generated),
            "first-line" => Ok(PseudoElement::FirstLine),
            "first-letter" => Ok(PseudoElement::FirstLetter),
            "details-content" => Ok(PseudoElement::Details),
            "marker"
            | "selection"
            | "placeholder"
            | "backdrop"
            | "file-selector-button"
            | "cue"
            | "grammar-error"
            | "spelling-error"
            | "target-text"
            | "search-text"
            | "checkmark"
            | "picker-icon"
            | "column"
            | "scroll-marker"
            | "scroll-marker-group" => Ok(PseudoElement::Other),
            name if name.starts_with("-webkit-") => Ok(PseudoElement::Other),
            _ => unsupported(),
        }
    }

    fn parse_functional_pseudo_element(
        &self,
        _: &str,
        arguments: &mut CssParser<'i>,
    ) -> Result<PseudoElement, SelectorError> {
        while arguments.next().is_ok() {}
        Ok(PseudoElement::Other)
    }

    fn namespace_for_prefix(&self, _: &CssName) -> Option<CssName> {
        None
    }
}
