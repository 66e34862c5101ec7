//! Relaxed canonicalization (RFC 6376 §3.4.2 and §3.4.4): normalizes what may change in transit without breaking a
//! signature.

use sha2::{Digest as _, Sha256};

use super::DkimError;

/// A raw header field.
#[derive(Clone, Copy)]
pub(super) struct RawHeader<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// The text after the colon, with folds, without the last line end.
    pub(super) value: &'a [u8],
}

/// Splits a mail into header fields and body.
pub(super) fn split_mail(mail: &[u8]) -> Result<(Vec<RawHeader<'_>>, &[u8]), DkimError> {
    let mut headers = Vec::new();
    let mut rest = mail;
    loop {
        if let Some(body) = rest.strip_prefix(b"\r\n") {
            return Ok((headers, body));
        }
        let (field, after) = split_field(rest).ok_or(DkimError::Mail)?;
        let colon = field.iter().position(|&b| b == b':').ok_or(DkimError::Mail)?;
        let name = std::str::from_utf8(&field[..colon]).map_err(|_bytes| DkimError::Mail)?;
        headers.push(RawHeader { name: name.trim_end_matches([' ', '\t']), value: &field[colon + 1..] });
        rest = after;
    }
}

/// The first field with its folded lines but without its last line end, and the rest.
fn split_field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    loop {
        let end = from + bytes[from..].windows(2).position(|pair| pair == b"\r\n")?;
        match bytes.get(end + 2) {
            Some(b' ' | b'\t') => from = end + 2,
            _ => return Some((&bytes[..end], &bytes[end + 2..])),
        }
    }
}

/// A relaxed header field: name in lower case, unfolded, whitespace runs collapsed and trimmed. Without a line end.
pub(super) fn relaxed_header(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = name.to_ascii_lowercase().into_bytes();
    out.push(b':');
    let start = out.len();
    let unfolded = value.iter().copied().filter(|&b| b != b'\r' && b != b'\n');
    collapse_whitespace(&mut out, unfolded);
    if out.get(start) == Some(&b' ') {
        out.remove(start);
    }
    out
}

/// The hash of a relaxed body: whitespace runs are collapsed, whitespace at line ends and empty lines at the end are
/// removed.
pub(super) fn body_hash(body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut empty_lines = 0_usize;
    let mut relaxed = Vec::new();
    let body = body.strip_suffix(b"\r\n").unwrap_or(body);
    for line in body.split(|&b| b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = if line.iter().any(|b| matches!(b, b' ' | b'\t')) {
            relaxed.clear();
            collapse_whitespace(&mut relaxed, line.iter().copied());
            relaxed.as_slice()
        } else {
            line
        };
        if line.is_empty() {
            empty_lines += 1;
            continue;
        }
        while empty_lines > 0 {
            hash.update(b"\r\n");
            empty_lines -= 1;
        }
        hash.update(line);
        hash.update(b"\r\n");
    }
    hash.finalize().into()
}

/// Appends bytes, with each whitespace run as one space and none at the end.
fn collapse_whitespace(out: &mut Vec<u8>, bytes: impl Iterator<Item = u8>) {
    let mut space = false;
    for b in bytes {
        if b == b' ' || b == b'\t' {
            space = true;
        } else {
            if space {
                out.push(b' ');
                space = false;
            }
            out.push(b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sha(text: &str) -> [u8; 32] {
        Sha256::digest(text).into()
    }

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 6376 §3.4.5.
        let mail = b"A: X\r\nB : Y\t\r\n\tZ  \r\n\r\n C \r\nD \t E\r\n\r\n\r\n";
        let (headers, body) = split_mail(mail).unwrap();
        let relaxed: Vec<Vec<u8>> = headers.iter().map(|h| relaxed_header(h.name, h.value)).collect();
        assert_eq!(relaxed, [b"a:X".to_vec(), b"b:Y Z".to_vec()]);
        assert_eq!(body_hash(body), sha(" C\r\nD E\r\n"));
    }

    #[test]
    fn trailing_empty_lines_do_not_count() {
        for body in ["", "\r\n", "\r\n\r\n", " \r\n\t"] {
            assert_eq!(body_hash(body.as_bytes()), sha(""), "{body:?}");
        }
        for body in ["a", "a\r\n", "a \r\n\r\n \r\n"] {
            assert_eq!(body_hash(body.as_bytes()), sha("a\r\n"), "{body:?}");
        }
        assert_eq!(body_hash(b"\r\na\r\n\r\nb"), sha("\r\na\r\n\r\nb\r\n"));
    }

    #[test]
    fn a_mail_without_a_complete_header_is_rejected() {
        for mail in ["", "From: a", "From: a\r\n", "no colon\r\n\r\n"] {
            assert!(split_mail(mail.as_bytes()).is_err(), "{mail:?}");
        }
    }
}
