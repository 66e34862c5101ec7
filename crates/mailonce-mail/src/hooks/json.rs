//! A strict JSON parser for webhooks: no duplicate names, limited depth, nothing after the end.
//!
//! With duplicate names, the code that verifies a signature and the code that reads the event could see different
//! values.

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use std::fmt;

use mailonce_core::{json_limits, time::Time};

use super::{HookParseError, MAX_EVENTS};

/// Parses a document, with limits on depth, members, names and values.
pub(crate) fn parse(body: &[u8]) -> Result<Value, HookParseError> {
    json_limits::check(body).map_err(|excess| HookParseError::json(&format!("the body {excess}")))?;
    match serde_json::from_slice::<StrictJson>(body) {
        Ok(StrictJson(value)) => Ok(value),
        Err(why) => Err(HookParseError::json(&why.to_string())),
    }
}

/// Parses one object or an array of objects.
pub(crate) fn parse_objects(body: &[u8]) -> Result<Vec<Value>, HookParseError> {
    let objects = match parse(body)? {
        Value::Array(items) => items,
        one => vec![one],
    };
    if objects.len() > MAX_EVENTS {
        return Err(HookParseError::TooMany(objects.len()));
    }
    if objects.iter().all(Value::is_object) {
        Ok(objects)
    } else {
        Err(HookParseError::Unexpected("an object or an array of them"))
    }
}

/// The string at a JSON pointer. `None` if it is empty.
pub(crate) fn str_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// The first non-empty string at one of the JSON pointers.
pub(crate) fn first_str_at<'a>(value: &'a Value, pointers: &[&str]) -> Option<&'a str> {
    pointers.iter().find_map(|pointer| str_at(value, pointer))
}

/// The RFC 3339 time at a JSON pointer.
pub(crate) fn time_at(value: &Value, pointer: &str) -> Option<Time> {
    str_at(value, pointer).and_then(Time::parse)
}

/// The time at a JSON pointer in seconds since the epoch, with or without a fraction.
pub(crate) fn epoch_time_at(value: &Value, pointer: &str) -> Option<Time> {
    let seconds = value.pointer(pointer)?.as_f64()?;
    // Limited to the year 9999, so that the product is exact enough and the cast cannot overflow.
    (0.0..253_402_300_800.0).contains(&seconds).then(|| Time((seconds * 1000.0).round() as i64))
}

/// The value of a named entry, whether the entries are an object or an array of `{name, value}`.
pub(crate) fn entry_value<'a>(entries: Option<&'a Value>, name: &str) -> Option<&'a str> {
    match entries? {
        Value::Object(map) => map.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?.1.as_str(),
        Value::Array(items) => {
            let has_name =
                |item: &&Value| str_at(item, "/name").is_some_and(|item_name| item_name.eq_ignore_ascii_case(name));
            items.iter().find(has_name).and_then(|item| str_at(item, "/value"))
        }
        _ => None,
    }
}

struct StrictJson(Value);

impl<'de> Deserialize<'de> for StrictJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = StrictJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<StrictJson, E> {
        Ok(StrictJson(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<StrictJson, E> {
        Ok(StrictJson(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<StrictJson, E> {
        Ok(StrictJson(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<StrictJson, E> {
        Ok(StrictJson(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<StrictJson, E> {
        Ok(StrictJson(value.into()))
    }

    fn visit_unit<E>(self) -> Result<StrictJson, E> {
        Ok(StrictJson(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<StrictJson, A::Error> {
        let mut found = Vec::new();
        while let Some(StrictJson(item)) = items.next_element()? {
            found.push(item);
        }
        Ok(StrictJson(Value::Array(found)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<StrictJson, A::Error> {
        let mut found = Map::new();
        while let Some((name, StrictJson(value))) = entries.next_entry::<String, StrictJson>()? {
            if found.insert(name, value).is_some() {
                return Err(A::Error::custom("duplicate name"));
            }
        }
        Ok(StrictJson(Value::Object(found)))
    }
}
