//! Derives the idempotency key of an intent exactly as the server does. Vectors: sdks/contract/keys.json.

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

use crate::{
    error::Error,
    wire::{Addresses, Intent},
};

/// Most characters of each part of an intent.
const WORD_CHARS: usize = 256;
const LOCAL_PART_OCTETS: usize = 64;
const ADDRESS_OCTETS: usize = 254;

/// `"i1_" + hex(SHA-256(JCS({entity, period?, to, type, v})))`. Sends do not need it, because the server derives the same
/// key. Use it to look up an email by key, or to identify another side effect.
pub fn derive_key(intent: &Intent, to: impl Into<Addresses>) -> Result<String, Error> {
    // The members stand in the order of RFC 8785, and serde_json escapes exactly what it asks for.
    let mut text = format!("{{\"entity\":{}", word("entity", &intent.entity)?);
    if let Some(period) = &intent.period {
        write!(text, ",\"period\":{}", word("period", period)?).ok(); // writing to a String cannot fail
    }
    let to: Vec<String> = recipients(&to.into())?.iter().map(|one| quoted(one)).collect();
    let (kind, version) = (word("type", &intent.kind)?, version(intent.version)?);
    write!(text, ",\"to\":[{}],\"type\":{kind},\"v\":{version}}}", to.join(",")).ok();
    let mut key = String::from("i1_");
    for byte in Sha256::digest(text.as_bytes()) {
        write!(key, "{byte:02x}").ok();
    }
    Ok(key)
}

/// Keys are 1 to 256 printable ASCII characters; others are refused without a call.
pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    let printable = key.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    if printable && (1..=256).contains(&key.len()) && !key.trim().is_empty() {
        return Ok(());
    }
    let said = Error::local(
        "invalid_key",
        "a key is 1 to 256 printable ASCII characters",
        "Take the key from your own task: the order, the run, the message you answer.",
    );
    Err(said.at("Idempotency-Key"))
}

/// The address as it is compared: without a display name, in lower case, its domain as A-label.
pub fn bare_address(text: &str) -> Option<String> {
    if text.chars().any(char::is_control) {
        return None;
    }
    let text = text.trim();
    let bare = match text.strip_suffix('>') {
        Some(front) => {
            let (name, bare) = front.rsplit_once('<')?;
            let name = name.trim();
            if name.strip_prefix('"').is_some_and(|rest| !rest.ends_with('"')) {
                return None;
            }
            bare
        }
        None if text.contains(['<', '>']) => return None,
        None => text,
    };
    let (local, domain) = bare.trim().rsplit_once('@')?;
    if !local.split('.').all(is_atom) {
        return None;
    }
    let (local, domain) = (local.to_ascii_lowercase(), a_label(domain)?);
    let fits = local.len() <= LOCAL_PART_OCTETS && local.len() + 1 + domain.len() <= ADDRESS_OCTETS;
    fits.then(|| format!("{local}@{domain}"))
}

fn word(name: &str, text: &str) -> Result<String, Error> {
    let field = format!("intent.{name}");
    if !(1..=WORD_CHARS).contains(&text.chars().count()) {
        return Err(Error::invalid(field, "must have 1 to 256 characters"));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(field, "must not contain control characters"));
    }
    Ok(quoted(text))
}

fn version(given: Option<u32>) -> Result<u32, Error> {
    match given.unwrap_or(1) {
        0 => Err(Error::invalid("intent.version", "must be a whole number from 1 to 4294967295")),
        version => Ok(version),
    }
}

fn recipients(to: &Addresses) -> Result<Vec<String>, Error> {
    if to.as_slice().is_empty() {
        return Err(Error::invalid("to", "must name somebody"));
    }
    let mut bare = Vec::new();
    for (number, text) in to.as_slice().iter().enumerate() {
        bare.push(bare_address(text).ok_or_else(|| Error::invalid(format!("to[{number}]"), "is no address"))?);
    }
    // RFC 8785 orders by UTF-16 code units.
    bare.sort_unstable_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
    bare.dedup();
    Ok(bare)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// RFC 5322 atom text, or any letter beyond ASCII (RFC 6531).
fn is_atom(text: &str) -> bool {
    let fits = |c: char| {
        c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || (!c.is_ascii() && !c.is_whitespace())
    };
    !text.is_empty() && text.chars().all(fits)
}

/// The domain in its ASCII form: UTS 46, non-transitional.
fn a_label(domain: &str) -> Option<String> {
    let ascii =
        Uts46::new().to_ascii(domain.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify);
    let ascii = ascii.ok()?.into_owned();
    (!ascii.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')).then_some(ascii)
}
