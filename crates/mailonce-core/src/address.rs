//! Email addresses: parsing, and the normalized form for comparison.

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

use crate::limits;

/// A normalized bare address, as keys and digests use it: in ASCII lower case, the domain as A-label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(String);

/// An address with an optional display name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedAddress {
    /// The display name, when one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The bare address as the caller wrote it, the domain as A-label. The local part keeps its case, because only the
    /// recipient's server knows whether it matters.
    pub address: String,
}

/// Why a text is not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is empty.
    #[error("is empty")]
    Empty,
    /// CR, LF, NUL or another control character.
    #[error("contains a control character")]
    ControlCharacter,
    /// No `@` between two parts.
    #[error("has no local part and domain around an @")]
    MissingAt,
    /// The local part is not a dot-atom.
    #[error("has a local part that is not a dot-separated name")]
    LocalPart,
    /// The domain is not a valid domain name.
    #[error("has a domain that is not a valid name")]
    Domain,
    /// Longer than RFC 5321 allows.
    #[error("is longer than mail allows")]
    TooLong,
    /// The display name is too long.
    #[error("has a display name that is too long")]
    DisplayNameTooLong,
    /// Unbalanced angle brackets or quotes.
    #[error("has unbalanced angle brackets or quotes")]
    Brackets,
}

impl Address {
    /// The address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part after the `@`.
    pub fn domain(&self) -> &str {
        domain_of(&self.0)
    }

    /// Parses a bare address (no display name).
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        split_address(text).map(|(local, domain)| Self(format!("{}@{domain}", local.to_ascii_lowercase())))
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.0
    }
}

impl NamedAddress {
    /// Parses `user@example.com`, `Name <user@example.com>` or `"Name, quoted" <user@example.com>`.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.chars().any(char::is_control) {
            return Err(AddressError::ControlCharacter);
        }
        let text = text.trim();
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        let (name, bare) = match text.strip_suffix('>') {
            Some(front) => {
                let (name, bare) = front.rsplit_once('<').ok_or(AddressError::Brackets)?;
                (parse_display_name(name)?, bare)
            }
            None if text.contains(['<', '>']) => return Err(AddressError::Brackets),
            None => (None, text),
        };
        let (local, domain) = split_address(bare)?;
        Ok(Self { name, address: [local, &domain].join("@") })
    }

    /// The normalized form for comparison.
    pub fn to_address(&self) -> Address {
        Address(self.address.to_ascii_lowercase())
    }

    /// The normalized form as a string, borrowed when nothing changes, which is the usual case.
    pub fn lowercased(&self) -> Cow<'_, str> {
        lowercased(&self.address)
    }

    /// The part after the `@`, already normalized.
    pub fn domain(&self) -> &str {
        domain_of(&self.address)
    }
}

/// The address without the spaces that RFC 5322 §4.4 allows around its dots and its `@`: `a @ b . com` is `a@b.com`.
/// Spaces within a quoted local part belong to it.
pub fn remove_obsolete_spacing(address: &str) -> Cow<'_, str> {
    if !address.contains(char::is_whitespace) {
        return Cow::Borrowed(address);
    }
    let join = |text: &str| text.split('.').map(str::trim).collect::<Vec<_>>().join(".");
    let Some((local, domain)) = address.rsplit_once('@') else { return Cow::Borrowed(address.trim()) };
    let local = local.trim();
    let local = if local.contains('"') { local.to_owned() } else { join(local) };
    Cow::Owned(format!("{local}@{}", join(domain)))
}

fn domain_of(address: &str) -> &str {
    address.rsplit_once('@').map_or("", |(_, domain)| domain)
}

/// The text in ASCII lower case, borrowed when nothing changes.
fn lowercased(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

/// The display name without its quotes. `None` when it is empty.
fn parse_display_name(text: &str) -> Result<Option<String>, AddressError> {
    let text = text.trim();
    let name = match text.strip_prefix('"') {
        Some(rest) => {
            let inner = rest.strip_suffix('"').ok_or(AddressError::Brackets)?;
            inner.replace("\\\"", "\"").replace("\\\\", "\\")
        }
        None => text.to_owned(),
    };
    if name.chars().count() > limits::NAME_CHARS {
        return Err(AddressError::DisplayNameTooLong);
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}

/// Splits an address into the local part as written and the domain as lower-case A-label.
fn split_address(text: &str) -> Result<(&str, Cow<'_, str>), AddressError> {
    if text.chars().any(char::is_control) {
        return Err(AddressError::ControlCharacter);
    }
    let text = text.trim();
    if text.is_empty() {
        return Err(AddressError::Empty);
    }
    let (local, domain) = text.rsplit_once('@').ok_or(AddressError::MissingAt)?;
    if local.is_empty() || domain.is_empty() {
        return Err(AddressError::MissingAt);
    }
    if !local.split('.').all(is_atom) {
        return Err(AddressError::LocalPart);
    }
    let domain = to_a_label(domain)?;
    if local.len() > limits::LOCAL_PART_OCTETS || local.len() + 1 + domain.len() > limits::ADDRESS_OCTETS {
        return Err(AddressError::TooLong);
    }
    Ok((local, domain))
}

/// Whether the text is an RFC 5322 atom. Letters beyond ASCII are allowed (RFC 6531).
fn is_atom(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| {
            c.is_ascii_alphanumeric()
                || "!#$%&'*+-/=?^_`{|}~".contains(c)
                || (!c.is_ascii() && !c.is_whitespace() && !c.is_control())
        })
}

/// The domain in ASCII form, in lower case.
fn to_a_label(domain: &str) -> Result<Cow<'_, str>, AddressError> {
    // Lower-cased first, so that the case of letters never decides whether a domain is valid.
    let domain = lowercased(domain);
    let plain = domain.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.');
    // IDNA processing is expensive and most domains are plain ASCII, so only others are processed; an `xn--` label is
    // validated. Hyphens in the third and fourth place are accepted with and without such a label.
    let ascii = if plain && !domain.contains("xn--") {
        domain
    } else {
        let strict =
            Uts46::new().to_ascii(domain.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify);
        Cow::Owned(strict.map_err(|_strict| AddressError::Domain)?.into_owned())
    };
    let labels_fit =
        ascii.split('.').all(|l| !l.is_empty() && l.len() <= 63 && !l.starts_with('-') && !l.ends_with('-'));
    if !labels_fit || ascii.len() > 253 || ascii.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(AddressError::Domain);
    }
    Ok(ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailboxes_are_read_with_and_without_names() {
        for (text, name, address) in [
            ("user@example.com", None, "user@example.com"),
            ("Ada <Ada.L@Example.COM>", Some("Ada"), "Ada.L@example.com"),
            ("\"Lovelace, Ada\" <ada@example.com>", Some("Lovelace, Ada"), "ada@example.com"),
            ("<ada@example.com>", None, "ada@example.com"),
            ("Jürgen <jürgen@müller.de>", Some("Jürgen"), "jürgen@xn--mller-kva.de"),
        ] {
            let mailbox = NamedAddress::parse(text).unwrap();
            assert_eq!((mailbox.name.as_deref(), mailbox.address.as_str()), (name, address), "{text}");
        }
    }

    #[test]
    fn spaces_around_dots_and_at_are_removed() {
        for (text, address) in [
            ("a@b.com", "a@b.com"),
            (" a @ b . com ", "a@b.com"),
            ("a . b@c.com", "a.b@c.com"),
            ("\"a . b\" @ c.com", "\"a . b\"@c.com"),
            ("a b@c d.com", "a b@c d.com"),
            (" nobody ", "nobody"),
        ] {
            assert_eq!(remove_obsolete_spacing(text), address, "{text:?}");
        }
    }

    #[test]
    fn bare_forms_fold_case_and_domain() {
        assert_eq!(Address::parse("User@EXAMPLE.com").unwrap().as_str(), "user@example.com");
        assert_eq!(Address::parse("u@müller.de").unwrap(), Address::parse("U@xn--mller-kva.de").unwrap());
        assert_eq!(Address::parse("u@müller.de").unwrap().domain(), "xn--mller-kva.de");
    }

    #[test]
    fn what_is_borrowed_is_the_same_as_what_is_made() {
        for text in ["user@example.com", "User@Example.com", "JÜRGEN@müller.de"] {
            let mailbox = NamedAddress::parse(text).unwrap();
            assert_eq!(mailbox.lowercased(), mailbox.to_address().as_str(), "{text}");
            assert_eq!(mailbox.domain(), mailbox.to_address().domain(), "{text}");
        }
    }

    #[test]
    fn the_case_of_a_domain_never_decides_whether_it_is_one() {
        for domain in ["aa--bar.com", "r3---sn.example", "aa--bar.xn--mller-kva.de", "xn--a.example", "xn--.example"] {
            let as_is = Address::parse(&format!("x@{domain}"));
            assert_eq!(Address::parse(&format!("X@{}", domain.to_uppercase())), as_is, "{domain}");
            assert_eq!(as_is.is_ok(), !domain.starts_with("xn--"), "{domain}");
        }
        assert_eq!(Address::parse("x@aa--bar.müller.de").unwrap().domain(), "aa--bar.xn--mller-kva.de");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            " ",
            "user",
            "@example.com",
            "user@",
            "a b@example.com",
            "a..b@example.com",
            ".a@example.com",
            "user@exa mple.com",
            "user@-example.com",
            "user@example..com",
            "user@127.0.0.1",
            "user@[127.0.0.1]",
            "user@example.com\r\nBcc: x@example.com",
            "user\0@example.com",
            "A <user@example.com",
            "user@example.com>",
            "\"A <user@example.com>",
            "a@b@c@",
            "user@example.com.",
        ] {
            assert!(NamedAddress::parse(text).is_err(), "{text:?} was taken");
        }
        assert!(NamedAddress::parse(&format!("{}@example.com", "a".repeat(65))).is_err());
        assert!(NamedAddress::parse(&format!("{}@example.com", "a".repeat(64))).is_ok());
    }
}
