//! Intents: the purpose of an email, from which its idempotency key is derived.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

use crate::{address::Address, limits};

/// The purpose of an email. Two callers with the same purpose give the same intent, however they word the email.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The type of email, such as `order.confirmation`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The entity that it concerns, such as `order_4821`.
    pub entity: String,
    /// The version. A deliberate repeat increases it.
    #[serde(default = "first_version")]
    pub version: u32,
    /// The day, week or run, for a recurring email.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
}

fn first_version() -> u32 {
    1
}

/// Why an intent is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("intent.{field} {rule}")]
pub struct IntentError {
    /// The invalid field.
    pub field: &'static str,
    /// The rule it breaks. The text continues after the field name.
    pub rule: &'static str,
}

impl Intent {
    /// The first field with leading or trailing spaces. Every byte changes the key. A program may intend the spaces; a
    /// model never does, and would send a second email.
    pub fn untrimmed_field(&self) -> Option<&'static str> {
        let words = [("type", Some(&self.kind)), ("entity", Some(&self.entity)), ("period", self.period.as_ref())];
        words.into_iter().find(|(_, text)| text.is_some_and(|text| text.trim() != text)).map(|(field, _)| field)
    }

    /// Validates the lengths of its fields, and that the version is at least 1.
    pub fn validate(&self) -> Result<(), IntentError> {
        let fits = |text: &str| {
            !text.is_empty() && text.chars().count() <= limits::INTENT_CHARS && !text.chars().any(char::is_control)
        };
        for (field, text) in
            [("type", Some(&self.kind)), ("entity", Some(&self.entity)), ("period", self.period.as_ref())]
        {
            if text.is_some_and(|text| !fits(text)) {
                return Err(IntentError { field, rule: "must be 1 to 256 characters without control characters" });
            }
        }
        if self.version == 0 {
            return Err(IntentError { field: "version", rule: "must be a whole number from 1 to 4294967295" });
        }
        Ok(())
    }

    /// Whether another intent is the same apart from case and punctuation. A model that forgets what it sent may spell the
    /// same intent in another way.
    pub fn is_spelling_of(&self, other: &Self) -> bool {
        self.folded() == other.folded()
    }

    /// Its parts without case and punctuation.
    pub(crate) fn folded(&self) -> [String; 4] {
        let period = self.period.as_deref().map(fold).unwrap_or_default();
        [fold(&self.kind), fold(&self.entity), self.version.to_string(), period]
    }

    /// The key of this intent for these recipients: `i1_` and the hex SHA-256 of its RFC 8785 form. Recipients are
    /// sorted and deduplicated.
    pub fn derive_key(&self, to: &[Address]) -> String {
        let mut key = String::with_capacity(67);
        key.push_str("i1_");
        for byte in Sha256::digest(self.canonical_json(to).as_bytes()) {
            // Writing to a String cannot fail.
            write!(key, "{byte:02x}").ok();
        }
        key
    }

    /// RFC 8785 JSON. The member names are fixed and ASCII, so their order is fixed too.
    fn canonical_json(&self, to: &[Address]) -> String {
        let mut to: Vec<&str> = to.iter().map(Address::as_str).collect();
        to.sort_unstable_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
        to.dedup();
        let period = self.period.as_ref().map_or(String::new(), |p| format!("\"period\":{},", json_string(p)));
        let to: Vec<String> = to.into_iter().map(json_string).collect();
        format!(
            "{{\"entity\":{},{period}\"to\":[{}],\"type\":{},\"v\":{}}}",
            json_string(&self.entity),
            to.join(","),
            json_string(&self.kind),
            self.version
        )
    }
}

/// The letters and digits of a text in lower case. A break between two digits stays, because 1.12 is not 11.2. A text
/// without letters and digits stays as it is.
fn fold(text: &str) -> String {
    let (mut folded, mut is_after_break) = (String::with_capacity(text.len()), false);
    for c in text.chars() {
        if !c.is_alphanumeric() {
            is_after_break = true;
            continue;
        }
        if is_after_break && c.is_numeric() && folded.ends_with(char::is_numeric) {
            folded.push('.');
        }
        is_after_break = false;
        folded.extend(c.to_lowercase());
    }
    if folded.is_empty() { text.to_owned() } else { folded }
}

/// A JSON string. serde_json escapes exactly as RFC 8785 requires.
fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent(kind: &str, entity: &str, version: u32, period: Option<&str>) -> Intent {
        Intent { kind: kind.into(), entity: entity.into(), version, period: period.map(Into::into) }
    }

    fn to(list: &[&str]) -> Vec<Address> {
        list.iter().map(|a| Address::parse(a).unwrap()).collect()
    }

    #[test]
    fn spaces_around_words_are_found() {
        assert_eq!(intent("t", "e e", 1, Some("p")).untrimmed_field(), None);
        assert_eq!(intent(" t", "e", 1, None).untrimmed_field(), Some("type"));
        assert_eq!(intent("t", "e\u{a0}", 1, None).untrimmed_field(), Some("entity"));
        assert_eq!(intent("t", "e", 1, Some("p ")).untrimmed_field(), Some("period"));
    }

    #[test]
    fn another_spelling_is_the_same_intent_and_another_number_is_not() {
        let one = intent("order.confirmation", "order_4821", 1, None);
        for (kind, entity) in [
            ("Order-Confirmation", "ORDER_4821"),
            ("order confirmation", "order-4821"),
            ("orderConfirmation", "order4821"),
        ] {
            assert!(one.is_spelling_of(&intent(kind, entity, 1, None)), "{kind} {entity}");
        }
        for (kind, entity, version) in [
            ("order.confirmation", "order_4822", 1),
            ("order.confirmation", "order_4821", 2),
            ("order.shipped", "order_4821", 1),
        ] {
            assert!(!one.is_spelling_of(&intent(kind, entity, version, None)), "{kind} {entity} {version}");
        }
        let report = |entity| intent("report", entity, 1, None);
        assert!(report("1.12").is_spelling_of(&report("1-12")) && !report("1.12").is_spelling_of(&report("11.2")));
        assert!(!report("+").is_spelling_of(&report("-")));
    }

    #[test]
    fn each_fault_says_what_its_field_must_be() {
        let told = |intent: &Intent| intent.validate().unwrap_err().to_string();
        assert_eq!(
            told(&intent("", "e", 1, None)),
            "intent.type must be 1 to 256 characters without control characters"
        );
        assert_eq!(told(&intent("t", "e", 0, None)), "intent.version must be a whole number from 1 to 4294967295");
    }

    #[test]
    fn the_canonical_form_is_rfc_8785() {
        let plain = intent("order.confirmation", "order_4821", 1, None);
        assert_eq!(
            plain.canonical_json(&to(&["User@Example.com"])),
            r#"{"entity":"order_4821","to":["user@example.com"],"type":"order.confirmation","v":1}"#
        );
        let odd = intent("a\"b\\c", "é\u{2028}/\u{7f}", 3, Some("2026-W46"));
        let ours = odd.canonical_json(&to(&["b@x.test", "a@x.test", "B@x.test"]));
        let value: serde_json::Value = serde_json::from_str(&ours).unwrap();
        assert_eq!(serde_json_canonicalizer::to_string(&value).unwrap(), ours);
    }

    #[test]
    fn every_part_of_an_intent_changes_its_key() {
        let base = intent("t", "e", 1, None).derive_key(&to(&["a@x.test"]));
        assert_eq!(base.len(), 67);
        for other in [
            intent("t2", "e", 1, None).derive_key(&to(&["a@x.test"])),
            intent("t", "e2", 1, None).derive_key(&to(&["a@x.test"])),
            intent("t", "e", 2, None).derive_key(&to(&["a@x.test"])),
            intent("t", "e", 1, Some("p")).derive_key(&to(&["a@x.test"])),
            intent("t", "e", 1, None).derive_key(&to(&["b@x.test"])),
            intent("t", "e", 1, None).derive_key(&to(&["a@x.test", "b@x.test"])),
        ] {
            assert_ne!(base, other);
        }
        assert_eq!(base, intent("t", "e", 1, None).derive_key(&to(&["A@X.TEST"])));
    }
}
