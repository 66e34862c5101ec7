//! The DNS record that publishes a key.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{DkimError, DkimKey, check_name};

/// Maximum length of one string of a TXT record.
const MAX_STRING_OCTETS: usize = 255;

/// A TXT record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DkimDnsRecord {
    /// `selector._domainkey.domain`, without a final dot.
    pub name: String,
    /// `v=DKIM1; k=…; p=…` as one string, as most DNS consoles expect it.
    pub value: String,
}

impl DkimDnsRecord {
    /// The record of a key.
    pub fn for_key(key: &DkimKey, selector: &str, domain: &str) -> Result<Self, DkimError> {
        check_name(selector)?;
        check_name(domain)?;
        let key_type = key.algorithm().key_type();
        Ok(Self {
            name: format!("{selector}._domainkey.{domain}"),
            value: format!("v=DKIM1; k={key_type}; p={}", STANDARD.encode(key.public_key())),
        })
    }

    /// The value in strings of at most 255 octets, for a zone file. Resolvers join them without spaces.
    pub fn strings(&self) -> Vec<&str> {
        let mut strings = Vec::new();
        let mut rest = self.value.as_str();
        while !rest.is_empty() {
            // The value is ASCII, so every position is a character boundary.
            let (first, after) = rest.split_at(rest.len().min(MAX_STRING_OCTETS));
            strings.push(first);
            rest = after;
        }
        strings
    }
}
