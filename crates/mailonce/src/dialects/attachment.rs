//! Files inside a dialect's JSON: base64, a list of numbers, or a Buffer as Node writes one. All mean the same bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::outbound::content::RawAttachment;
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// The bytes of a file, as base64 whatever they came as.
#[derive(Clone, Debug)]
pub(super) struct Base64Content(pub(super) String);

impl<'de> Deserialize<'de> for Base64Content {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
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
        from.deserialize_any(Visitor)
    }
}

/// `{"type": "Buffer", "data": [97, 98]}`.
#[derive(Deserialize)]
struct NodeBuffer {
    data: Vec<u8>,
}

/// A file that goes with a mail. Both spellings that SDKs use are read.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct DialectAttachment {
    #[serde(default)]
    pub(super) content: Option<Base64Content>,
    /// An address to fetch it from; nothing is ever fetched.
    #[serde(default)]
    pub(super) path: Option<serde::de::IgnoredAny>,
    #[serde(default, deserialize_with = "name")]
    filename: Option<String>,
    #[serde(default, alias = "contentType")]
    content_type: Option<String>,
    #[serde(default, alias = "contentId")]
    content_id: Option<String>,
}

/// A name, or anything else for none.
fn name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Name {
        Text(String),
        #[expect(dead_code, reason = "only that it is one counts")]
        Flag(bool),
    }
    Ok(match Option::<Name>::deserialize(from)? {
        Some(Name::Text(text)) => Some(text),
        Some(Name::Flag(_)) | None => None,
    })
}

impl DialectAttachment {
    /// The engine's form of it; `None` without content.
    pub(super) fn into_raw(self) -> Option<RawAttachment> {
        Some(RawAttachment {
            filename: self.filename,
            content: self.content?.0,
            content_type: self.content_type,
            content_id: self.content_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
