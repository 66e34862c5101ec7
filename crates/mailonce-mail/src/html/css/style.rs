//! The computed style of an element.

use std::{array, collections::HashMap, rc::Rc};

use super::{
    colour::Colour,
    declaration::{Declaration, Subject, is_pending, is_wide},
    property::Property,
    transform::Transform,
    value::{self, Base, Image, Shadow, Value},
    variable::{self, Custom, Missing},
};

const COUNT: usize = Property::ALL.len();

/// Computed values of all properties that decide about visibility.
#[derive(Clone, Debug)]
pub(in crate::html) struct Style {
    values: [Value; COUNT],
    custom: Custom,
    /// Whether a value is set that nobody can compute without a browser.
    pub(in crate::html) unknown: bool,
    rem: f32,
}

/// How strong a declaration is: origin and importance, layer, specificity, position.
type Weight = (u8, usize, u32, usize);

/// The strongest declaration of each property.
pub(in crate::html) struct Cascade<'a> {
    author: [Option<(Weight, &'a Declaration)>; COUNT],
    browser: [Option<(Weight, &'a Declaration)>; COUNT],
    custom: HashMap<&'a str, (Weight, &'a Declaration)>,
}

/// Who wrote a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::html) enum Origin {
    /// The style sheet that browsers bring along: specificity and position.
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
    pub(in crate::html) fn new() -> Self {
        Self { author: array::from_fn(|_| None), browser: array::from_fn(|_| None), custom: HashMap::new() }
    }

    pub(in crate::html) fn add(&mut self, declarations: &'a [Declaration], origin: Origin) {
        for (position, declaration) in declarations.iter().enumerate() {
            let weight = weight(origin, declaration.important, position);
            match &declaration.subject {
                Subject::Custom(name) => {
                    let known = self.custom.entry(name).or_insert((weight, declaration));
                    if weight >= known.0 {
                        *known = (weight, declaration);
                    }
                }
                Subject::Property(property, _) => {
                    let table =
                        if matches!(origin, Origin::Browser(..)) { &mut self.browser } else { &mut self.author };
                    let slot = &mut table[*property as usize];
                    if slot.as_ref().is_none_or(|(known, _)| weight >= *known) {
                        *slot = Some((weight, declaration));
                    }
                }
            }
        }
    }
}

fn weight(origin: Origin, important: bool, position: usize) -> Weight {
    let last = usize::MAX;
    match (origin, important) {
        (Origin::Browser(specificity, order), _) => (0, 0, specificity, order),
        (Origin::Attribute, _) => (1, 0, 0, 0),
        (Origin::Sheet(layer, specificity, order), false) => (2, layer, specificity, order),
        (Origin::Inline, false) => (2, last, u32::MAX, position),
        (Origin::Animation, _) => (3, 0, 0, position),
        // Important declarations of an earlier layer win over those of a later one.
        (Origin::Sheet(layer, specificity, order), true) => (4, last - layer, specificity, order),
        (Origin::Inline, true) => (5, 0, 0, position),
    }
}

impl Style {
    /// The style above the root element.
    pub(in crate::html) fn initial() -> Self {
        Self {
            values: array::from_fn(|index| initial(Property::ALL[index])),
            custom: Custom::default(),
            unknown: false,
            rem: 16.0,
        }
    }

    /// The same, for a page that registers custom properties. What `var()` gives for those is not computed.
    pub(in crate::html) fn with_registered(names: &[String]) -> Self {
        let custom = names.iter().map(|name| (variable::registered(name), "".into())).collect();
        Self { custom: Rc::new(custom), ..Self::initial() }
    }

    /// The style of an element from its declarations and its parent.
    pub(in crate::html) fn compute(cascade: &Cascade<'_>, parent: &Self, quirks: bool, is_root: bool) -> Self {
        let mut style = Self::initial();
        style.rem = parent.rem;
        style.custom = custom(cascade, parent);
        let parent_em = parent.number(Property::FontSize);
        for property in Property::ALL {
            let em = if *property == Property::FontSize { parent_em } else { style.number(Property::FontSize) };
            let base = Base { em, rem: style.rem, parent_em, quirks };
            let value = style.resolve(cascade, parent, *property, base);
            style.values[*property as usize] = value;
            if is_root && *property == Property::FontSize {
                style.rem = style.number(Property::FontSize);
            }
        }
        style
    }

    fn resolve(&mut self, cascade: &Cascade<'_>, parent: &Self, property: Property, base: Base) -> Value {
        let index = property as usize;
        let unset = || if property.is_inherited() { parent.values[index].clone() } else { initial(property) };
        let browser = cascade.browser[index].as_ref().map(|(_, declaration)| *declaration);
        let author = cascade.author[index].as_ref().map(|(_, declaration)| *declaration);
        for declaration in author.into_iter().chain(browser) {
            match declaration.value.trim().to_ascii_lowercase().as_str() {
                "inherit" => return parent.values[index].clone(),
                "initial" => return initial(property),
                "unset" => return unset(),
                "revert" => continue,
                // Which layer comes before is not kept.
                "revert-layer" => {
                    self.unknown = true;
                    continue;
                }
                _ => {}
            }
            return match self.value(declaration, property, base) {
                Ok(Some(value)) => value,
                Ok(None) | Err(Missing::Unset) => unset(),
                Err(Missing::Unknown) => {
                    self.unknown = true;
                    unset()
                }
            };
        }
        unset()
    }

    fn value(&self, declaration: &Declaration, property: Property, base: Base) -> Result<Option<Value>, Missing> {
        let Subject::Property(_, shorthand) = declaration.subject else { return Ok(None) };
        let text = &declaration.value;
        if !is_pending(text) {
            return Ok(value::parse(property, shorthand, text, base));
        }
        let text = variable::substitute(text, &self.custom)?;
        let plain = text.replace("/**/", "");
        if is_wide(plain.trim()) {
            // `display: var(--x)` where the custom property is itself a keyword such as `inherit`.
            return Err(Missing::Unknown);
        }
        Ok(value::parse(property, shorthand, &text, base))
    }

    pub(in crate::html) fn get(&self, property: Property) -> &Value {
        &self.values[property as usize]
    }

    pub(in crate::html) fn set(&mut self, property: Property, value: Value) {
        self.values[property as usize] = value;
    }

    /// A number or a length; NaN for keywords.
    pub(in crate::html) fn number(&self, property: Property) -> f32 {
        match self.get(property) {
            Value::Number(number) => *number,
            _ => f32::NAN,
        }
    }

    /// A length, if it is not a keyword such as `auto`.
    pub(in crate::html) fn length(&self, property: Property) -> Option<f32> {
        match self.get(property) {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(in crate::html) fn is(&self, property: Property, keyword: &str) -> bool {
        matches!(self.get(property), Value::Keyword(own) if *own == keyword)
    }

    /// A colour, with `currentcolor` resolved.
    pub(in crate::html) fn colour(&self, property: Property) -> Colour {
        match self.get(property) {
            Value::Colour(colour) => *colour,
            Value::Current if property != Property::Color => self.colour(Property::Color),
            _ => Colour::UNKNOWN,
        }
    }
}

fn custom(cascade: &Cascade<'_>, parent: &Style) -> Custom {
    if cascade.custom.is_empty() {
        return Rc::clone(&parent.custom);
    }
    let mut custom = (*parent.custom).clone();
    for (name, (_, declaration)) in cascade.custom.iter().take(500) {
        match declaration.value.trim().to_ascii_lowercase().as_str() {
            "inherit" | "unset" | "revert" | "revert-layer" => {}
            _ => drop(custom.insert((*name).into(), Rc::clone(&declaration.value))),
        }
    }
    Rc::new(custom)
}

fn initial(property: Property) -> Value {
    use Property as P;
    match property {
        P::FontSize => Value::Number(16.0),
        P::Color => Value::Colour(Colour::BLACK),
        P::TextFill | P::StrokeColor => Value::Current,
        P::BackgroundColor => Value::Colour(Colour::TRANSPARENT),
        P::BackgroundImage => Value::Image(Rc::new(Image::default())),
        P::Display => Value::Keyword("inline"),
        P::Visibility | P::ContentVisibility | P::OverflowX | P::OverflowY => Value::Keyword("visible"),
        P::Opacity | P::Filter | P::Zoom => Value::Number(1.0),
        P::Transform | P::Scale | P::Rotate | P::Translate => Value::Transform(Transform::NONE),
        P::BoxShadow => Value::Shadow(Shadow { inside: None, wide: false }),
        P::AnimationName | P::FontFamily => Value::Names(Rc::new([])),
        P::Position => Value::Keyword("static"),
        P::BackgroundClip => Value::Keyword("border-box"),
        P::BoxSizing => Value::Keyword("content-box"),
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
        | P::DecorationThickness => Value::Keyword("auto"),
        P::LetterSpacing | P::WordSpacing | P::LineHeight | P::WhiteSpace => Value::Keyword("normal"),
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
        | P::FlexGrow => Value::Number(0.0),
        P::AnimationPlay => Value::Keyword("running"),
        P::VerticalAlign => Value::Keyword("baseline"),
        P::TextAlign => Value::Keyword("left"),
        _ => Value::Keyword("none"),
    }
}
