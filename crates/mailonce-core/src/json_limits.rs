//! Limits on the shape of JSON, checked in one pass over the bytes before they are parsed.
//!
//! A parser allocates every member and name before a handler can count them. This scanner allocates nothing, reads each
//! byte once and stops at the first excess. It does not validate: malformed JSON is left to the parser.

use crate::limits;
use memchr::memchr2;

/// The limit that a JSON document exceeds. The message continues "the body …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonLimitExceeded {
    /// The nesting of objects and arrays.
    #[error("nests objects and lists deeper than {}", limits::JSON_DEPTH)]
    Depth,
    /// The members of one object.
    #[error("has an object with more than {} members", limits::JSON_MEMBERS)]
    Members,
    /// The length of a member's name.
    #[error("has a field name longer than {} bytes", limits::JSON_NAME_BYTES)]
    Name,
    /// The total number of values.
    #[error("has more than {} values", limits::JSON_VALUES)]
    Values,
}

/// An open object or array.
#[derive(Clone, Copy, Default)]
struct Container {
    is_object: bool,
    members: usize,
}

struct JsonScanner {
    open: [Container; limits::JSON_DEPTH],
    depth: usize,
    values: usize,
    /// The length of the last string. A colon after it makes it a member name.
    last_string: usize,
}

impl JsonScanner {
    fn enter(&mut self, is_object: bool) -> Result<(), JsonLimitExceeded> {
        let slot = self.open.get_mut(self.depth).ok_or(JsonLimitExceeded::Depth)?;
        *slot = Container { is_object, members: 0 };
        self.depth += 1;
        self.count_value()
    }

    fn count_value(&mut self) -> Result<(), JsonLimitExceeded> {
        self.values += 1;
        if self.values > limits::JSON_VALUES { Err(JsonLimitExceeded::Values) } else { Ok(()) }
    }

    /// Counts a member, when the colon after its name is read.
    fn count_member(&mut self) -> Result<(), JsonLimitExceeded> {
        if self.last_string > limits::JSON_NAME_BYTES {
            return Err(JsonLimitExceeded::Name);
        }
        if let Some(container) = self.depth.checked_sub(1).and_then(|top| self.open.get_mut(top))
            && container.is_object
        {
            container.members += 1;
            if container.members > limits::JSON_MEMBERS {
                return Err(JsonLimitExceeded::Members);
            }
        }
        Ok(())
    }
}

/// Checks nesting, members, names and the number of values.
pub fn check(bytes: &[u8]) -> Result<(), JsonLimitExceeded> {
    let mut scanner =
        JsonScanner { open: [Container::default(); limits::JSON_DEPTH], depth: 0, values: 0, last_string: 0 };
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let length = string_length(bytes.get(at..).unwrap_or_default());
                scanner.last_string = length;
                at += length + 1;
            }
            b'{' => scanner.enter(true)?,
            b'[' => scanner.enter(false)?,
            b'}' | b']' => scanner.depth = scanner.depth.saturating_sub(1),
            b':' => scanner.count_member()?,
            b',' => scanner.count_value()?,
            _ => {}
        }
    }
    Ok(())
}

/// The length of a string up to its closing quote, or to the end of the input.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes.get(at) == Some(&b'"') {
            return at;
        }
        // Skip the backslash and the escaped byte.
        at += 2;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(members: usize) -> String {
        let members: Vec<String> = (0..members).map(|n| format!(r#""m{n}":{n}"#)).collect();
        format!("{{{}}}", members.join(","))
    }

    #[test]
    fn every_limit_is_allowed_and_one_more_is_not() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let named = |length: usize| format!(r#"{{"{}":1}}"#, "n".repeat(length));
        let list = |values: usize| format!("[{}]", vec!["0"; values].join(","));
        for (fits, exceeds, excess) in [
            (nested(limits::JSON_DEPTH), nested(limits::JSON_DEPTH + 1), JsonLimitExceeded::Depth),
            (object(limits::JSON_MEMBERS), object(limits::JSON_MEMBERS + 1), JsonLimitExceeded::Members),
            (named(limits::JSON_NAME_BYTES), named(limits::JSON_NAME_BYTES + 1), JsonLimitExceeded::Name),
            (list(limits::JSON_VALUES), list(limits::JSON_VALUES + 2), JsonLimitExceeded::Values),
        ] {
            assert_eq!(check(fits.as_bytes()), Ok(()), "{excess:?}");
            assert_eq!(check(exceeds.as_bytes()), Err(excess));
        }
    }

    #[test]
    fn what_is_inside_a_string_is_not_counted() {
        let text = format!(r#"{{"text":"{}"}}"#, r#"[{\":,\\"#.repeat(limits::JSON_MEMBERS * 2));
        assert_eq!(check(text.as_bytes()), Ok(()));
        // An escaped name is still a name.
        let long = format!(r#"{{"{}":1}}"#, r#"\""#.repeat(limits::JSON_NAME_BYTES));
        assert_eq!(check(long.as_bytes()), Err(JsonLimitExceeded::Name));
    }

    #[test]
    fn broken_json_is_left_to_the_parser() {
        for text in ["", "}", "]]]]", "\"", "\"\\", "{\"a\"", ":::", "[,,,", "\u{1F600}"] {
            assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
        }
    }

    #[test]
    fn members_of_nested_objects_are_counted_by_object() {
        let inner = object(limits::JSON_MEMBERS);
        let text = format!(r#"{{"a":{inner},"b":[{inner},{inner}]}}"#);
        assert_eq!(check(text.as_bytes()), Ok(()));
    }
}
