//! Deserialization with typed errors: which field is unknown or missing, as a value instead of a sentence.
//!
//! The errors of `serde_json`, TOML and query strings are texts. What they refuse is read again from a [`JsonTree`],
//! whose error type keeps what serde reports.

use serde::{
    Deserialize, Deserializer,
    de::{
        self, IntoDeserializer, Unexpected,
        value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use std::{borrow::Cow, collections::HashSet, fmt};

/// Why a value does not have the shape that the API expects.
#[derive(Debug)]
pub(crate) enum ShapeError {
    UnknownField { name: String, known: &'static [&'static str] },
    MissingField(&'static str),
    Other(String),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField { name, .. } => write!(f, "there is no field `{name}`"),
            Self::MissingField(name) => write!(f, "missing field `{name}`"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for ShapeError {}

impl de::Error for ShapeError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::Other(text.to_string())
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self::UnknownField { name: name.to_owned(), known }
    }

    fn missing_field(name: &'static str) -> Self {
        Self::MissingField(name)
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::Other(format!("invalid type: {}, expected {}", describe_found(found), describe_expected(expected)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::Other(format!("invalid value: {}, expected {}", describe_found(found), describe_expected(expected)))
    }

    fn invalid_length(length: usize, expected: &dyn de::Expected) -> Self {
        Self::Other(format!("invalid length {length}, expected {}", describe_expected(expected)))
    }
}

fn describe_found(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Unit => "null".to_owned(),
        Unexpected::Map => "an object".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        other => other.to_string(),
    }
}

/// What serde expected, in JSON terms. Serde gives the names of Rust types.
fn describe_expected(expected: &dyn de::Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "a sequence" => "a list",
        "a map" | "unit" => "an object",
        "u8" => "a number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "i32" | "i64" => "a whole number",
        name if name.starts_with("struct ") || name.starts_with("tuple struct ") => "an object",
        _ => return text,
    }
    .to_owned()
}

/// A JSON or TOML document. An object keeps the order of its members and has each name once.
pub(crate) enum JsonTree<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(Cow<'a, str>),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl<'de> Deserialize<'de> for JsonTree<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = JsonTree<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }
            fn visit_unit<E>(self) -> Result<JsonTree<'de>, E> {
                Ok(JsonTree::Null)
            }
            fn visit_bool<E>(self, value: bool) -> Result<JsonTree<'de>, E> {
                Ok(JsonTree::Bool(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<JsonTree<'de>, E> {
                Ok(JsonTree::Unsigned(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<JsonTree<'de>, E> {
                Ok(JsonTree::Signed(value))
            }
            fn visit_f64<E>(self, value: f64) -> Result<JsonTree<'de>, E> {
                Ok(JsonTree::Float(value))
            }
            fn visit_str<E>(self, text: &str) -> Result<JsonTree<'de>, E> {
                Ok(JsonTree::Text(text.to_owned().into()))
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<JsonTree<'de>, E> {
                Ok(JsonTree::Text(text.into()))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<JsonTree<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(JsonTree::List(items))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<JsonTree<'de>, A::Error> {
                let (mut members, mut names) = (Vec::new(), HashSet::new());
                while let Some((name, value)) = map.next_entry::<String, JsonTree<'de>>()? {
                    if !names.insert(name.clone()) {
                        return Err(de::Error::custom(format_args!("duplicate field `{name}`")));
                    }
                    members.push((name, value));
                }
                Ok(JsonTree::Object(members))
            }
        }
        from.deserialize_any(Visitor)
    }
}

impl<'de> Deserializer<'de> for JsonTree<'de> {
    type Error = ShapeError;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, ShapeError> {
        match self {
            Self::Null => visitor.visit_unit(),
            Self::Bool(value) => visitor.visit_bool(value),
            Self::Unsigned(value) => visitor.visit_u64(value),
            Self::Signed(value) => visitor.visit_i64(value),
            Self::Float(value) => visitor.visit_f64(value),
            Self::Text(Cow::Borrowed(text)) => visitor.visit_borrowed_str(text),
            Self::Text(Cow::Owned(text)) => visitor.visit_string(text),
            Self::List(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter())),
            Self::Object(members) => visitor.visit_map(MapDeserializer::new(members.into_iter())),
        }
    }

    fn deserialize_option<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, ShapeError> {
        if matches!(self, Self::Null) { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ShapeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ShapeError> {
        match self {
            Self::Text(text) => visitor.visit_enum(text.into_deserializer()),
            Self::Object(members) => {
                visitor.visit_enum(MapAccessDeserializer::new(MapDeserializer::new(members.into_iter())))
            }
            other => other.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, ShapeError> for JsonTree<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
