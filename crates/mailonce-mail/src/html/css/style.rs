//! The computed style of an element.

use std::{array, collections::BTreeMap, rc::Rc};

use super::{
    colour::Colour,
    declaration::{Declaration, DeclarationTarget, is_css_wide_keyword, needs_substitution},
    property::Property,
    shorthand,
    transform::Transform,
    value::{ComputedValue, ImageLayer, RelativeBase, ShadowEffect},
    variable::{self, CustomProperties, SubstitutionError},
    work_budget::WorkBudget,
};

const COUNT: usize = Property::ALL.len();
/// Maximum custom properties of one element, including inherited ones.
pub(in crate::html) const MAX_CUSTOM_PROPERTIES: usize = 2_000;
/// Steps that setting a custom property costs: its name is compared with those of other properties.
const CUSTOM_PROPERTY_STEPS: usize = 3;

/// Computed values of all properties that affect visibility.
#[derive(Clone, Debug)]
pub(in crate::html) struct ComputedStyle {
    values: [ComputedValue; COUNT],
    custom: CustomProperties,
    /// Whether a value is set that only a browser can compute.
    pub(in crate::html) is_unknown: bool,
    rem: f32,
}

/// The precedence of a declaration: origin and importance, layer, specificity, position.
type CascadePriority = (u8, usize, u32, usize);

/// The declaration with the highest precedence for each property.
pub(in crate::html) struct Cascade<'a> {
    author: [Option<(CascadePriority, &'a Declaration)>; COUNT],
    browser: [Option<(CascadePriority, &'a Declaration)>; COUNT],
    custom: BTreeMap<&'a str, (CascadePriority, &'a Declaration)>,
    budget: &'a WorkBudget,
}

/// The origin of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::html) enum DeclarationOrigin {
    /// The browser's default style sheet: specificity and position.
    Browser(u32, usize),
    /// Attributes such as `bgcolor`.
    Attribute,
    /// A style sheet of the mail: layer, specificity and position.
    Sheet(usize, u32, usize),
    /// A `style` attribute.
    Inline,
    Animation,
}

impl<'a> Cascade<'a> {
    pub(in crate::html) fn new(budget: &'a WorkBudget) -> Self {
        let (author, browser) = (array::from_fn(|_| None), array::from_fn(|_| None));
        Self { author, browser, custom: BTreeMap::new(), budget }
    }

    pub(in crate::html) fn add(&mut self, declarations: &'a [Declaration], origin: DeclarationOrigin) {
        self.budget.spend(declarations.len());
        for (position, declaration) in declarations.iter().enumerate() {
            let weight = weight(origin, declaration.is_important, position);
            match &declaration.target {
                DeclarationTarget::Custom(name) => {
                    self.budget.spend(CUSTOM_PROPERTY_STEPS);
                    let known = self.custom.entry(name).or_insert((weight, declaration));
                    if weight >= known.0 {
                        *known = (weight, declaration);
                    }
                }
                DeclarationTarget::Property(property, _) => {
                    let table = if matches!(origin, DeclarationOrigin::Browser(..)) {
                        &mut self.browser
                    } else {
                        &mut self.author
                    };
                    let slot = &mut table[*property as usize];
                    if slot.as_ref().is_none_or(|(known, _)| weight >= *known) {
                        *slot = Some((weight, declaration));
                    }
                }
            }
        }
    }
}

fn weight(origin: DeclarationOrigin, important: bool, position: usize) -> CascadePriority {
    let last = usize::MAX;
    match (origin, important) {
        (DeclarationOrigin::Browser(specificity, order), _) => (0, 0, specificity, order),
        (DeclarationOrigin::Attribute, _) => (1, 0, 0, 0),
        (DeclarationOrigin::Sheet(layer, specificity, order), false) => (2, layer, specificity, order),
        (DeclarationOrigin::Inline, false) => (2, last, u32::MAX, position),
        (DeclarationOrigin::Animation, _) => (3, 0, 0, position),
        // For important declarations, an earlier layer takes precedence over a later one.
        (DeclarationOrigin::Sheet(layer, specificity, order), true) => (4, last - layer, specificity, order),
        (DeclarationOrigin::Inline, true) => (5, 0, 0, position),
    }
}

impl ComputedStyle {
    /// The initial style, above the root element.
    pub(in crate::html) fn initial() -> Self {
        Self {
            values: array::from_fn(|index| initial(Property::ALL[index])),
            custom: CustomProperties::default(),
            is_unknown: false,
            rem: 16.0,
        }
    }

    /// The initial style for a page that registers custom properties. The value of `var()` for those is not computed.
    pub(in crate::html) fn with_registered(names: &[String]) -> Self {
        let custom = names.iter().map(|name| (variable::registered_marker(name), "".into())).collect();
        Self { custom: Rc::new(custom), ..Self::initial() }
    }

    /// The style of an element, from its declarations and its parent's style.
    pub(in crate::html) fn compute(cascade: &Cascade<'_>, parent: &Self, quirks: bool, is_root: bool) -> Self {
        let mut style = Self::initial();
        style.rem = parent.rem;
        style.custom = custom(cascade, parent);
        let parent_em = parent.number(Property::FontSize);
        for property in Property::ALL {
            let em = if *property == Property::FontSize { parent_em } else { style.number(Property::FontSize) };
            let base = RelativeBase { em, rem: style.rem, parent_em, quirks };
            let value = style.resolve(cascade, parent, *property, base);
            style.values[*property as usize] = value;
            if is_root && *property == Property::FontSize {
                style.rem = style.number(Property::FontSize);
            }
        }
        style
    }

    fn resolve(
        &mut self,
        cascade: &Cascade<'_>,
        parent: &Self,
        property: Property,
        base: RelativeBase,
    ) -> ComputedValue {
        let index = property as usize;
        let unset = || if property.is_inherited() { parent.values[index].clone() } else { initial(property) };
        let browser = cascade.browser[index].as_ref().map(|(_, declaration)| *declaration);
        let author = cascade.author[index].as_ref().map(|(_, declaration)| *declaration);
        for declaration in author.into_iter().chain(browser) {
            cascade.budget.spend_on_text(&declaration.value);
            match declaration.value.trim().to_ascii_lowercase().as_str() {
                "inherit" => return parent.values[index].clone(),
                "initial" => return initial(property),
                "unset" => return unset(),
                "revert" => continue,
                // The values of lower layers are not kept.
                "revert-layer" => {
                    self.is_unknown = true;
                    continue;
                }
                _ => {}
            }
            return match self.value(declaration, property, base, cascade.budget) {
                Ok(Some(value)) => value,
                Ok(None) | Err(SubstitutionError::Unset) => unset(),
                Err(SubstitutionError::Unknown) => {
                    self.is_unknown = true;
                    unset()
                }
            };
        }
        unset()
    }

    fn value(
        &self,
        declaration: &Declaration,
        property: Property,
        base: RelativeBase,
        budget: &WorkBudget,
    ) -> Result<Option<ComputedValue>, SubstitutionError> {
        let DeclarationTarget::Property(_, shorthand) = declaration.target else { return Ok(None) };
        let text = &declaration.value;
        if !needs_substitution(text) {
            return Ok(shorthand::parse(property, shorthand, text, base));
        }
        let text = variable::substitute(text, &self.custom, budget)?;
        let plain = text.replace("/**/", "");
        if is_css_wide_keyword(plain.trim()) {
            // `display: var(--x)` where the custom property is itself a CSS-wide keyword such as `inherit`.
            return Err(SubstitutionError::Unknown);
        }
        Ok(shorthand::parse(property, shorthand, &text, base))
    }

    #[cfg(test)]
    pub(in crate::html) fn shares_custom_properties(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.custom, &other.custom)
    }

    pub(in crate::html) fn get(&self, property: Property) -> &ComputedValue {
        &self.values[property as usize]
    }

    pub(in crate::html) fn set(&mut self, property: Property, value: ComputedValue) {
        self.values[property as usize] = value;
    }

    /// A number or a length. NaN for keywords.
    pub(in crate::html) fn number(&self, property: Property) -> f32 {
        match self.get(property) {
            ComputedValue::Number(number) => *number,
            _ => f32::NAN,
        }
    }

    /// A length. `None` for a keyword such as `auto`.
    pub(in crate::html) fn length(&self, property: Property) -> Option<f32> {
        match self.get(property) {
            ComputedValue::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(in crate::html) fn is(&self, property: Property, keyword: &str) -> bool {
        matches!(self.get(property), ComputedValue::Keyword(value) if *value == keyword)
    }

    /// A colour, with `currentcolor` resolved.
    pub(in crate::html) fn colour(&self, property: Property) -> Colour {
        match self.get(property) {
            ComputedValue::Colour(colour) => *colour,
            ComputedValue::Current if property != Property::Color => self.colour(Property::Color),
            _ => Colour::UNKNOWN,
        }
    }
}

/// The custom properties of an element. The map is copied only if the element changes a property. Leaving one out could
/// reveal text that a browser hides, so an element with too many makes the page undecidable.
fn custom(cascade: &Cascade<'_>, parent: &ComputedStyle) -> CustomProperties {
    let inherits = |text: &str| {
        let text = text.trim();
        is_css_wide_keyword(text) && !text.eq_ignore_ascii_case("initial")
    };
    let is_changed = |name: &str, value: &Rc<str>| parent.custom.get(name).is_none_or(|known| known != value);
    let set = cascade.custom.iter().map(|(name, (_, declaration))| (*name, &declaration.value));
    let mut changed = set.filter(|(name, value)| !inherits(value) && is_changed(name, value)).peekable();
    if changed.peek().is_none() {
        return Rc::clone(&parent.custom);
    }
    cascade.budget.spend(CUSTOM_PROPERTY_STEPS * parent.custom.len());
    let mut custom = (*parent.custom).clone();
    custom.extend(changed.map(|(name, value)| (name.into(), Rc::clone(value))));
    if custom.len() > MAX_CUSTOM_PROPERTIES {
        cascade.budget.give_up();
    }
    Rc::new(custom)
}

fn initial(property: Property) -> ComputedValue {
    use Property as P;
    match property {
        P::FontSize => ComputedValue::Number(16.0),
        P::Color => ComputedValue::Colour(Colour::BLACK),
        P::TextFill | P::StrokeColor => ComputedValue::Current,
        P::BackgroundColor => ComputedValue::Colour(Colour::TRANSPARENT),
        P::BackgroundImage => ComputedValue::Image(Rc::new(ImageLayer::default())),
        P::Display => ComputedValue::Keyword("inline"),
        P::Visibility | P::ContentVisibility | P::OverflowX | P::OverflowY => ComputedValue::Keyword("visible"),
        P::Opacity | P::Filter | P::Zoom => ComputedValue::Number(1.0),
        P::Transform | P::Scale | P::Rotate | P::Translate => ComputedValue::Transform(Transform::NONE),
        P::BoxShadow => ComputedValue::Shadow(ShadowEffect { inset_colour: None, is_wide: false }),
        P::AnimationName | P::FontFamily => ComputedValue::Names(Rc::new([])),
        P::Position => ComputedValue::Keyword("static"),
        P::BackgroundClip => ComputedValue::Keyword("border-box"),
        P::BoxSizing => ComputedValue::Keyword("content-box"),
        P::Width
        | P::Height
        | P::MinWidth
        | P::MinHeight
        | P::Top
        | P::Right
        | P::Bottom
        | P::Left
        | P::ZIndex
        | P::FlexBasis
        | P::DecorationThickness => ComputedValue::Keyword("auto"),
        P::LetterSpacing | P::WordSpacing | P::LineHeight | P::WhiteSpace => ComputedValue::Keyword("normal"),
        P::MarginTop
        | P::MarginRight
        | P::MarginBottom
        | P::MarginLeft
        | P::PaddingTop
        | P::PaddingRight
        | P::PaddingBottom
        | P::PaddingLeft
        | P::TextIndent
        | P::StrokeWidth
        | P::OutlineOffset
        | P::AnimationDuration
        | P::AnimationDelay
        | P::FlexGrow => ComputedValue::Number(0.0),
        P::AnimationPlay => ComputedValue::Keyword("running"),
        P::VerticalAlign => ComputedValue::Keyword("baseline"),
        P::TextAlign => ComputedValue::Keyword("left"),
        _ => ComputedValue::Keyword("none"),
    }
}
