//! The properties that decide whether text is visible, their aliases, and their shorthands.

/// Declares the properties once: as an enum, as a list and by name.
macro_rules! properties {
    ($($property:ident = $name:literal,)*) => {
        /// A property that decides whether text is visible.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::html) enum Property { $(#[doc = $name] $property,)* }

        impl Property {
            pub(in crate::html) const ALL: &[Self] = &[$(Self::$property,)*];

            fn exact(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$property),)* _ => None }
            }
        }
    };
}

properties! {
    FontSize = "font-size",
    Color = "color",
    Display = "display",
    Visibility = "visibility",
    Opacity = "opacity",
    TextFill = "-webkit-text-fill-color",
    StrokeWidth = "-webkit-text-stroke-width",
    StrokeColor = "-webkit-text-stroke-color",
    BackgroundColor = "background-color",
    BackgroundImage = "background-image",
    BackgroundClip = "background-clip",
    OverflowX = "overflow-x",
    OverflowY = "overflow-y",
    Width = "width",
    Height = "height",
    MaxWidth = "max-width",
    MaxHeight = "max-height",
    MinWidth = "min-width",
    MinHeight = "min-height",
    Position = "position",
    Top = "top",
    Right = "right",
    Bottom = "bottom",
    Left = "left",
    MarginTop = "margin-top",
    MarginRight = "margin-right",
    MarginBottom = "margin-bottom",
    MarginLeft = "margin-left",
    PaddingTop = "padding-top",
    PaddingRight = "padding-right",
    PaddingBottom = "padding-bottom",
    PaddingLeft = "padding-left",
    TextIndent = "text-indent",
    Transform = "transform",
    Scale = "scale",
    Rotate = "rotate",
    Translate = "translate",
    Clip = "clip",
    ClipPath = "clip-path",
    Filter = "filter",
    Zoom = "zoom",
    LetterSpacing = "letter-spacing",
    WordSpacing = "word-spacing",
    LineHeight = "line-height",
    ContentVisibility = "content-visibility",
    ZIndex = "z-index",
    Mask = "mask-image",
    MaskBox = "mask-border-source",
    BlendMode = "mix-blend-mode",
    TextSecurity = "-webkit-text-security",
    MsoHide = "mso-hide",
    Contain = "contain",
    ContainerType = "container-type",
    OutlineStyle = "outline-style",
    OutlineOffset = "outline-offset",
    BoxShadow = "box-shadow",
    DecorationLine = "text-decoration-line",
    DecorationThickness = "text-decoration-thickness",
    Content = "content",
    AnimationName = "animation-name",
    AnimationDuration = "animation-duration",
    AnimationDelay = "animation-delay",
    AnimationPlay = "animation-play-state",
    FontFamily = "font-family",
    WhiteSpace = "white-space",
    LineClamp = "-webkit-line-clamp",
    GridRows = "grid-template-rows",
    FlexBasis = "flex-basis",
    FlexGrow = "flex-grow",
    Float = "float",
    BoxSizing = "box-sizing",
    GridColumns = "grid-template-columns",
    Gap = "gap",
    BorderLeft = "border-left-width",
    BorderTop = "border-top-width",
    OffsetPath = "offset-path",
    FontSizeAdjust = "font-size-adjust",
    VerticalAlign = "vertical-align",
    TextAlign = "text-align",
    ColorScheme = "color-scheme",
    GridArea = "grid-area",
}

/// A shorthand property, which sets several properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::html) enum Shorthand {
    All,
    Animation,
    Background,
    /// One to four values for the four sides.
    Sides(&'static [Property; 4]),
    /// Two values: start and end, or horizontal and vertical.
    Pair(&'static [Property; 2]),
    Flex,
    Font,
    Grid,
    /// Borders on all sides.
    Border,
    Outline,
    Decoration,
    Stroke,
}

const MARGIN: [Property; 4] =
    [Property::MarginTop, Property::MarginRight, Property::MarginBottom, Property::MarginLeft];
const PADDING: [Property; 4] =
    [Property::PaddingTop, Property::PaddingRight, Property::PaddingBottom, Property::PaddingLeft];
const INSET: [Property; 4] = [Property::Top, Property::Right, Property::Bottom, Property::Left];

impl Shorthand {
    fn of(name: &str) -> Option<Self> {
        use Property as P;
        Some(match name {
            "all" => Self::All,
            "animation" => Self::Animation,
            "background" => Self::Background,
            "margin" => Self::Sides(&MARGIN),
            "padding" => Self::Sides(&PADDING),
            "inset" => Self::Sides(&INSET),
            "margin-inline" => Self::Pair(&[P::MarginLeft, P::MarginRight]),
            "margin-block" => Self::Pair(&[P::MarginTop, P::MarginBottom]),
            "padding-inline" => Self::Pair(&[P::PaddingLeft, P::PaddingRight]),
            "padding-block" => Self::Pair(&[P::PaddingTop, P::PaddingBottom]),
            "inset-inline" => Self::Pair(&[P::Left, P::Right]),
            "inset-block" => Self::Pair(&[P::Top, P::Bottom]),
            "overflow" => Self::Pair(&[P::OverflowX, P::OverflowY]),
            "flex" => Self::Flex,
            "font" => Self::Font,
            "grid" | "grid-template" => Self::Grid,
            "border" | "border-width" => Self::Border,
            "outline" => Self::Outline,
            "text-decoration" => Self::Decoration,
            "-webkit-text-stroke" => Self::Stroke,
            _ => return None,
        })
    }

    /// The properties that it sets.
    pub(in crate::html) fn longhands(self) -> &'static [Property] {
        use Property as P;
        match self {
            Self::All => P::ALL,
            Self::Animation => &[P::AnimationName, P::AnimationDuration, P::AnimationDelay, P::AnimationPlay],
            Self::Background => &[P::BackgroundColor, P::BackgroundImage, P::BackgroundClip],
            Self::Sides(sides) => sides,
            Self::Pair(pair) => pair,
            Self::Flex => &[P::FlexBasis, P::FlexGrow],
            Self::Font => &[P::FontSize, P::LineHeight, P::FontFamily],
            Self::Grid => &[P::GridRows, P::GridColumns],
            Self::Border => &[P::BorderLeft, P::BorderTop],
            Self::Outline => &[P::OutlineStyle],
            Self::Decoration => &[P::DecorationLine, P::DecorationThickness],
            Self::Stroke => &[P::StrokeWidth, P::StrokeColor],
        }
    }
}

/// The property or shorthand that a declaration's name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::html) enum PropertyTarget {
    One(Property),
    Many(Shorthand),
}

impl PropertyTarget {
    /// Finds a property by its lower-case name, with or without the `-webkit-` prefix.
    pub(in crate::html) fn named(name: &str) -> Option<Self> {
        let plain = name.strip_prefix("-webkit-").unwrap_or(name);
        [name, plain].iter().find_map(|name| {
            let name = logical(name);
            Property::exact(name).map(Self::One).or_else(|| Shorthand::of(name).map(Self::Many))
        })
    }
}

/// The physical name of a logical property or alias, for left-to-right text.
fn logical(name: &str) -> &str {
    match name {
        "block-size" | "logical-height" => "height",
        "inline-size" | "logical-width" => "width",
        "max-block-size" => "max-height",
        "max-inline-size" => "max-width",
        "min-block-size" => "min-height",
        "min-inline-size" => "min-width",
        "inset-inline-start" => "left",
        "inset-inline-end" => "right",
        "inset-block-start" => "top",
        "inset-block-end" => "bottom",
        "margin-inline-start" | "margin-start" => "margin-left",
        "margin-inline-end" | "margin-end" => "margin-right",
        "margin-block-start" | "margin-before" => "margin-top",
        "margin-block-end" | "margin-after" => "margin-bottom",
        "padding-inline-start" | "padding-start" => "padding-left",
        "padding-inline-end" => "padding-right",
        "padding-block-start" => "padding-top",
        "padding-block-end" => "padding-bottom",
        "overflow-inline" => "overflow-x",
        "overflow-block" => "overflow-y",
        "mask" => "mask-image",
        "mask-border" | "mask-box-image" | "mask-box-image-source" => "mask-border-source",
        "offset" => "offset-path",
        "grid-row" | "grid-column" | "grid-row-start" | "grid-column-start" | "grid-row-end" | "grid-column-end" => {
            "grid-area"
        }
        "column-gap" | "row-gap" | "border-spacing" | "grid-gap" | "grid-column-gap" | "grid-row-gap" => "gap",
        "border-left" | "border-inline" | "border-inline-start" | "border-inline-width" => "border-left-width",
        "border-top" | "border-block" | "border-block-start" | "border-block-width" => "border-top-width",
        "line-clamp" => "-webkit-line-clamp",
        "text-fill-color" => "-webkit-text-fill-color",
        "word-wrap" => "overflow-wrap",
        "text-wrap" | "text-wrap-mode" => "white-space",
        name => name,
    }
}

impl Property {
    /// Whether children inherit the value. Decorations count as inherited here because they are painted across
    /// children.
    pub(in crate::html) fn is_inherited(self) -> bool {
        matches!(
            self,
            Self::FontSize
                | Self::Color
                | Self::Visibility
                | Self::TextFill
                | Self::StrokeWidth
                | Self::StrokeColor
                | Self::TextIndent
                | Self::LetterSpacing
                | Self::WordSpacing
                | Self::LineHeight
                | Self::TextSecurity
                | Self::DecorationLine
                | Self::DecorationThickness
                | Self::FontFamily
                | Self::WhiteSpace
                | Self::TextAlign
                | Self::ColorScheme
                | Self::FontSizeAdjust
        )
    }
}
