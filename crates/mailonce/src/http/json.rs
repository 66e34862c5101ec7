//! Readers for JSON values that every channel shares: lists or single values, ordered maps, strict objects, checks.

use mailonce_core::{
    limits,
    problem::{Code, FieldError, Problem, nearest_name},
};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use std::{collections::HashSet, fmt, marker::PhantomData};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ArrayBuilder, ObjectBuilder, OneOfBuilder, RefOr, Schema, Type},
};
/// Deserializes a field so that `null` (`Some(None)`) differs from absent (`None`, by `#[serde(default)]`).
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// One address or a list of addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct OneOrMany(pub(crate) Vec<String>);

impl OneOrMany {
    /// The addresses, without empty ones: clients of other providers' APIs send those for fields that they do not use.
    pub(crate) fn non_empty(mut self) -> Vec<String> {
        self.drop_empty();
        self.0
    }

    /// Removes the empty addresses.
    pub(crate) fn drop_empty(&mut self) {
        self.0.retain(|text| !text.trim().is_empty());
    }
}

/// A field that is refused when it says something. Null, an empty text and an empty list are the same as none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnsupportedField(bool);

impl UnsupportedField {
    pub(crate) fn is_given(self) -> bool {
        self.0
    }
}

impl<'de> Deserialize<'de> for UnsupportedField {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(match Value::deserialize(from)? {
            Value::Null => false,
            Value::String(text) => !text.trim().is_empty(),
            Value::Array(list) => !list.is_empty(),
            _ => true,
        }))
    }
}

/// A text that has characters. An empty one is the same as none in other providers' APIs.
pub(crate) fn non_empty_text(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = OneOrMany;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address or a list of addresses")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany(vec![text.to_owned()]))
            }
            fn visit_unit<E: de::Error>(self) -> Result<OneOrMany, E> {
                Ok(OneOrMany::default())
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMany, A::Error> {
                let mut all = Vec::new();
                while let Some(text) = list.next_element()? {
                    all.push(text);
                }
                Ok(OneOrMany(all))
            }
        }
        from.deserialize_any(Visitor)
    }
}

impl PartialSchema for OneOrMany {
    fn schema() -> RefOr<Schema> {
        let list = ArrayBuilder::new().items(ObjectBuilder::new().schema_type(Type::String));
        let either = OneOfBuilder::new().item(ObjectBuilder::new().schema_type(Type::String)).item(list);
        either.description(Some("One address or a list of addresses.")).into()
    }
}

impl ToSchema for OneOrMany {
    fn name() -> std::borrow::Cow<'static, str> {
        "Addresses".into()
    }
}

/// Schema of a `metadata` value.
pub(crate) struct ScalarSchema;

impl PartialSchema for ScalarSchema {
    fn schema() -> RefOr<Schema> {
        let kinds = [Type::String, Type::Number, Type::Boolean].map(|kind| ObjectBuilder::new().schema_type(kind));
        let either = kinds.into_iter().fold(OneOfBuilder::new(), OneOfBuilder::item);
        either.description(Some("A string, a number up to 2^53-1 or a boolean.")).into()
    }
}

impl ToSchema for ScalarSchema {
    fn name() -> std::borrow::Cow<'static, str> {
        "Scalar".into()
    }
}

/// A JSON object with arbitrary names, in order. Duplicate names are an error.
#[derive(Clone, Debug)]
pub(crate) struct OrderedMap<T>(pub(crate) Vec<(String, T)>);

impl<T> Default for OrderedMap<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedMap<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = OrderedMap<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<OrderedMap<T>, A::Error> {
                let (mut pairs, mut names): (Vec<(String, T)>, HashSet<String>) = Default::default();
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    if !names.insert(name.clone()) {
                        return Err(de::Error::custom(format!("duplicate field `{name}`")));
                    }
                    pairs.push((name, value));
                }
                Ok(OrderedMap(pairs))
            }
        }
        from.deserialize_map(Visitor(PhantomData))
    }
}

/// A JSON object only. Derived deserializers would also accept an array of field values.
#[derive(Clone, Debug)]
pub(crate) struct StrictObject<T>(pub(crate) T);

/// Deserializes an object; an array is an error.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    StrictObject::deserialize(from).map(|StrictObject(it)| it)
}

/// Deserializes an object or `null`; an array is an error.
pub(crate) fn object_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(Option::deserialize(from)?.map(|StrictObject(it)| it))
}

/// Deserializes an object or `null`, and distinguishes `null` from absent.
pub(crate) fn given_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    object_or_null(from).map(Some)
}

/// Deserializes a list of objects.
pub(crate) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Vec::deserialize(from)?.into_iter().map(|StrictObject(it)| it).collect())
}

/// Deserializes a list of objects, or `null`.
pub(crate) fn objects_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    let all: Option<Vec<StrictObject<T>>> = Option::deserialize(from)?;
    Ok(all.map(|all| all.into_iter().map(|StrictObject(it)| it).collect()))
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for StrictObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = StrictObject<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<StrictObject<T>, A::Error> {
                T::deserialize(de::value::MapAccessDeserializer::new(map)).map(StrictObject)
            }
        }
        from.deserialize_map(Visitor(PhantomData))
    }
}

/// Parses a field whose value is one of `allowed`.
pub(crate) fn parse_choice<'a>(
    path: &str,
    text: Option<&'a str>,
    allowed: &[&'a str],
) -> Result<Option<&'a str>, FieldError> {
    let Some(text) = text else { return Ok(None) };
    if allowed.contains(&text) {
        return Ok(Some(text));
    }
    let hint =
        nearest_name(text, allowed.iter().copied()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Err(FieldError::new(path, format!("must be one of {}{hint}", allowed.join(", "))))
}

/// Checks a short free text: one line, limited length.
pub(crate) fn check_text(path: &str, text: &str) -> Result<(), Problem> {
    if text.chars().count() > limits::FREE_TEXT_CHARS || text.chars().any(char::is_control) {
        let detail =
            format!("{path} must be at most {} characters without control characters", limits::FREE_TEXT_CHARS);
        return Err(Problem::for_field(Code::InvalidField, path, detail));
    }
    Ok(())
}

/// Checks a short free text that must not be empty.
pub(crate) fn check_required_text(path: &str, text: &str) -> Result<(), Problem> {
    if text.trim().is_empty() {
        return Err(Problem::for_field(Code::InvalidField, path, format!("{path} must not be empty")));
    }
    check_text(path, text)
}
