//! Enums whose variants have one spelling on the wire, in the ledger and in the docs.

macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),* }

        impl $name {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The spelling of the variant.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            /// Parses the spelling.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}
pub(crate) use string_enum;
