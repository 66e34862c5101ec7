//! The DKIM-Signature header.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::time::Time;

use super::{DkimError, DkimKey, check_name};
use crate::dkim::canonicalization::{self, RawHeader};

/// Headers that readers see or mail programs rely on. Each is signed once more than it occurs (oversigning), so that
/// adding another one breaks the signature (RFC 6376 §8.15).
const OVERSIGNED_HEADERS: [&str; 8] =
    ["From", "To", "Cc", "Subject", "Date", "Reply-To", "MIME-Version", "Content-Type"];
/// Headers that are signed as often as they occur. One-click unsubscribe is valid only if signed (RFC 8058 §4).
const SIGNED_HEADERS: [&str; 8] = [
    "Content-Transfer-Encoding",
    "Message-ID",
    "In-Reply-To",
    "References",
    "Auto-Submitted",
    "X-Mailonce-Id",
    "List-Unsubscribe",
    "List-Unsubscribe-Post",
];
/// Header lines are folded at this length.
const MAX_LINE_OCTETS: usize = 76;

/// A key with the name under which receivers find its public key.
#[derive(Clone, Copy, Debug)]
pub struct DkimSigner<'a> {
    /// The signing domain, as A-label.
    pub domain: &'a str,
    /// The selector of the key in that domain.
    pub selector: &'a str,
    /// The key.
    pub key: &'a DkimKey,
}

/// The mail with one signature per signer in front, RSA first. `date` is the mail's own Date.
pub fn sign(mail: &[u8], signers: &[DkimSigner<'_>], date: Time) -> Result<Vec<u8>, DkimError> {
    let (headers, body) = canonicalization::split_mail(mail)?;
    if !headers.iter().any(|header| header.name.eq_ignore_ascii_case("From")) {
        return Err(DkimError::Mail);
    }
    let body_hash = STANDARD.encode(canonicalization::body_hash(body));
    let (names, canonical_headers) = select_headers(&headers);
    let mut signers = signers.to_vec();
    signers.sort_by_key(|signer| signer.key.algorithm());
    let mut out = Vec::with_capacity(mail.len() + signers.len() * 1_200);
    for signer in signers {
        let unsigned = unsigned_value(&signer, date, &names, &body_hash)?;
        let mut bytes = canonical_headers.clone();
        bytes.extend(canonicalization::relaxed_header("DKIM-Signature", unsigned.as_bytes()));
        let signature = STANDARD.encode(signer.key.sign(&bytes)?);
        out.extend_from_slice(format!("DKIM-Signature:{unsigned}{}\r\n", fold_signature(&signature)).as_bytes());
    }
    out.extend_from_slice(mail);
    Ok(out)
}

/// The names for `h=` and the canonical headers that they cover.
fn select_headers(headers: &[RawHeader<'_>]) -> (Vec<&'static str>, Vec<u8>) {
    let (mut names, mut bytes) = (Vec::new(), Vec::new());
    for (name, oversign) in
        OVERSIGNED_HEADERS.map(|name| (name, true)).into_iter().chain(SIGNED_HEADERS.map(|name| (name, false)))
    {
        // RFC 6376 §5.4.2: of several headers with the same name, the last is signed first.
        for header in headers.iter().rev().filter(|header| header.name.eq_ignore_ascii_case(name)) {
            names.push(name);
            bytes.extend(canonicalization::relaxed_header(header.name, header.value));
            bytes.extend_from_slice(b"\r\n");
        }
        if oversign {
            names.push(name);
        }
    }
    (names, bytes)
}

/// The value of the header with an empty `b=`.
fn unsigned_value(signer: &DkimSigner<'_>, date: Time, names: &[&str], body_hash: &str) -> Result<String, DkimError> {
    let DkimSigner { domain, selector, key } = signer;
    check_name(domain)?;
    check_name(selector)?;
    let algorithm = key.algorithm().signature_algorithm();
    let seconds = date.0.div_euclid(1_000).max(0);
    let names = fold_names(names);
    let prefix = format!(" v=1; a={algorithm}; c=relaxed/relaxed;\r\n d={domain};\r\n s={selector}; t={seconds};\r\n");
    Ok(format!("{prefix} h={names};\r\n bh={body_hash};\r\n b="))
}

/// The names joined by colons and folded. The first line starts after ` h=`.
fn fold_names(names: &[&str]) -> String {
    let mut out = String::new();
    let mut column = 3;
    for (i, name) in names.iter().enumerate() {
        if i > 0 {
            out.push(':');
        }
        if column + name.len() + 1 > MAX_LINE_OCTETS {
            out.push_str("\r\n ");
            column = 1;
        }
        out.push_str(name);
        column += name.len() + 1;
    }
    out
}

/// Folds base64 into lines. The whitespace is ignored (RFC 6376 §3.2).
fn fold_signature(signature: &str) -> String {
    let mut out = String::with_capacity(signature.len() + 32);
    for (i, c) in signature.chars().enumerate() {
        if i > 0 && i % 72 == 0 {
            out.push_str("\r\n ");
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_headers_the_last_is_signed_first() {
        let mail = b"From: a\r\nList-Unsubscribe: one\r\nX: y\r\nlist-unsubscribe: two\r\n\r\n";
        let (headers, _) = canonicalization::split_mail(mail).unwrap();
        let (names, bytes) = select_headers(&headers);
        assert_eq!(names.iter().filter(|name| **name == "List-Unsubscribe").count(), 2);
        assert_eq!(String::from_utf8(bytes).unwrap(), "from:a\r\nlist-unsubscribe:two\r\nlist-unsubscribe:one\r\n");
    }
}
