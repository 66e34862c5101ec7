//! The DNS record that publishes a key.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{DkimError, DkimKey, check_name};

/// Octets of one string of a TXT record.
const MAX_STRING_OCTETS: usize = 255;

/// A TXT record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DkimDnsRecord {
    /// `selector._domainkey.domain`, without a final dot.
    pub name: String,
    /// `v=DKIM1; k=…; p=…` in one piece, as most DNS consoles take it.
    pub value: String,
}

impl DkimDnsRecord {
    /// The record of a key.
    pub fn for_key(key: &DkimKey, selector: &str, domain: &str) -> Result<Self, DkimError> {
        check_name(selector)?;
        check_name(domain)?;
        let word = key.algorithm().key_type();
        Ok(Self {
            name: format!("{selector}._domainkey.{domain}"),
            value: format!("v=DKIM1; k={word}; p={}", STANDARD.encode(key.public_key())),
        })
    }

    /// The value in strings of at most 255 octets, as a zone file wants it. A reader joins them without spaces.
    pub fn strings(&self) -> Vec<&str> {
        let mut strings = Vec::new();
        let mut rest = self.value.as_str();
        while !rest.is_empty() {
            // All of it is ASCII: every cut is between characters.
            let (first, after) = rest.split_at(rest.len().min(MAX_STRING_OCTETS));
            strings.push(first);
            rest = after;
        }
        strings
    }
}
