//! The caller's own ids for a call, stored with its result, so that an agent's trace can be matched with mailonce's.
//!
//! They have no effect: they are neither an idempotency key nor part of the digest.

use serde::{Deserialize, Serialize};

use crate::limits;

/// The length of a `traceparent` (W3C Trace Context, version 00), in characters.
const TRACEPARENT_CHARS: usize = 55;

/// The caller's own ids for a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTrace {
    /// The caller's id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The position of the call in the caller's trace, as a `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl CallTrace {
    /// A trace of ids that were validated before; `None` when both are absent.
    pub fn from_parts(id: Option<String>, traceparent: Option<String>) -> Option<Self> {
        (id.is_some() || traceparent.is_some()).then_some(Self { id, traceparent })
    }
}

/// Whether a text is a valid call id: not empty, not too long, without control characters.
pub fn is_valid_call_id(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= limits::CALL_ID_CHARS && !text.chars().any(char::is_control)
}

/// A valid `traceparent`. An invalid one is ignored, as its standard requires.
pub fn parse_traceparent(text: &str) -> Option<&str> {
    let kept = text.get(..TRACEPARENT_CHARS)?;
    let rest = &text[TRACEPARENT_CHARS..];
    let mut parts = kept.split('-');
    let mut part = |chars: usize| {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        parts.next().filter(|part| part.len() == chars && part.bytes().all(hex))
    };
    let (version, trace, parent, _flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let nothing = |part: &str| part.bytes().all(|byte| byte == b'0');
    let whole = rest.is_empty() || (version != "00" && rest.starts_with('-'));
    (whole && version != "ff" && !nothing(trace) && !nothing(parent)).then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_calls_are_short_and_on_one_line() {
        for (text, fits) in [
            ("toolu_01", true),
            ("call 1 of ünit", true),
            ("", false),
            ("a\nb", false),
            ("a\u{7f}", false),
            (&"x".repeat(limits::CALL_ID_CHARS), true),
            (&"x".repeat(limits::CALL_ID_CHARS + 1), false),
        ] {
            assert_eq!(is_valid_call_id(text), fits, "{text:?}");
        }
    }

    #[test]
    fn a_trace_parent_is_kept_as_its_standard_says() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(parse_traceparent(good), Some(good));
        let later = good.replacen("00", "cc", 1);
        assert_eq!(parse_traceparent(&format!("{later}-what-comes-later")), Some(later.as_str()));
        for bad in [
            "",
            "00",
            &good[1..],
            &good.to_uppercase(),
            &format!("{good}-more"),
            &format!("{later}more"),
            &good.replacen("00", "ff", 1),
            &good.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &good.replace("b7ad6b7169203331", &"0".repeat(16)),
            &good.replace('-', "_"),
            &"é".repeat(TRACEPARENT_CHARS),
        ] {
            assert_eq!(parse_traceparent(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_call_trace_without_fields_is_none() {
        assert_eq!(CallTrace::from_parts(None, None), None);
        assert!(CallTrace::from_parts(Some("a".into()), None).is_some());
    }
}
