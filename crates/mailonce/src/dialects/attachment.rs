//! Attachments in the JSON of a dialect. Their content is base64, a list of byte values, or a serialized Node `Buffer`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::outbound::content::RawAttachment;
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// The content of an attachment, normalized to base64.
#[derive(Clone, Debug)]
pub(super) struct Base64Content(pub(super) String);

impl<'de> Deserialize<'de> for Base64Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Base64Content;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64, a list of bytes or a Buffer")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Base64Content, E> {
                Ok(Base64Content(text.to_owned()))
            }
            fn visit_string<E: de::Error>(self, text: String) -> Result<Base64Content, E> {
                Ok(Base64Content(text))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Base64Content, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = list.next_element::<u8>()? {
                    bytes.push(byte);
                }
                Ok(Base64Content(STANDARD.encode(bytes)))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Base64Content, A::Error> {
                let buffer = NodeBuffer::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(Base64Content(STANDARD.encode(buffer.data)))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// `{"type": "Buffer", "data": [97, 98]}`.
#[derive(Deserialize)]
struct NodeBuffer {
    data: Vec<u8>,
}

/// An attachment. Field names are accepted in snake case and in camel case, because SDKs use both.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct DialectAttachment {
    #[serde(default)]
    pub(super) content: Option<Base64Content>,
    /// A URL to fetch the content from. mailonce never fetches it; the field only selects the error message.
    #[serde(default)]
    pub(super) path: Option<serde::de::IgnoredAny>,
    #[serde(default, deserialize_with = "name")]
    filename: Option<String>,
    #[serde(default, alias = "contentType")]
    content_type: Option<String>,
    #[serde(default, alias = "contentId")]
    content_id: Option<String>,
}

/// Parses a file name. SDKs may send a boolean in its place, which counts as no name.
fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "has a type that this field does not accept")]
    enum Name {
        Text(String),
        #[expect(dead_code, reason = "its value is ignored")]
        Flag(bool),
    }
    Ok(match Option::<Name>::deserialize(deserializer)? {
        Some(Name::Text(text)) => Some(text),
        Some(Name::Flag(_)) | None => None,
    })
}

impl DialectAttachment {
    /// Converts it to the engine's type; `None` without content.
    pub(super) fn into_raw(self) -> Option<RawAttachment> {
        Some(RawAttachment {
            filename: self.filename,
            content: self.content?.0,
            content_type: self.content_type,
            content_id: self.content_id,
        })
    }
}

/// The number of bytes that a base64 text stands for.
pub(super) fn decoded_len(base64: &str) -> usize {
    base64.trim_end_matches('=').bytes().filter(|byte| !byte.is_ascii_whitespace()).count() * 3 / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_file_is_that_of_its_bytes() {
        for bytes in ["", "a", "ab", "abc", "abcd", "hello, world"] {
            assert_eq!(decoded_len(&STANDARD.encode(bytes)), bytes.len(), "{bytes}");
        }
        assert_eq!(decoded_len("YW\nJj"), 3);
    }

    #[test]
    fn three_spellings_are_the_same_file() {
        let read = |text: &str| serde_json::from_str::<Base64Content>(text).unwrap().0;
        assert_eq!(read(r#""YWJj""#), "YWJj");
        assert_eq!(read("[97, 98, 99]"), "YWJj");
        assert_eq!(read(r#"{"type":"Buffer","data":[97,98,99]}"#), "YWJj");
        for bad in ["[256]", "[-1]", "[\"a\"]", "7", "{\"type\":\"Buffer\"}"] {
            assert!(serde_json::from_str::<Base64Content>(bad).is_err(), "{bad}");
        }
    }
}
