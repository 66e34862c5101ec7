//! Checks the bytes of a mail before they are sent, and applies dot-stuffing.

use mailonce_core::handoff::transport_request::UnsupportedMail;
use std::borrow::Cow;

/// Maximum length of a line without its CRLF (RFC 5321).
pub(super) const MAX_LINE_OCTETS: usize = 998;

/// The extensions that the bytes need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BodyRequirements {
    /// Octets above 127 in the body.
    pub(super) eight_bit: bool,
    /// Octets above 127 in the header.
    pub(super) smtputf8: bool,
}

/// Rejects what two servers could parse differently (SMTP smuggling): a bare CR or LF, a NUL, an overlong line.
pub(super) fn check_body(bytes: &[u8]) -> Result<BodyRequirements, UnsupportedMail> {
    if bytes.is_empty() {
        return Err(UnsupportedMail("the mail has no bytes".to_owned()));
    }
    if !bytes.ends_with(b"\r\n") {
        return Err(UnsupportedMail("the mail does not end with CRLF".to_owned()));
    }
    let mut needs = BodyRequirements::default();
    let mut in_header = true;
    for (number, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
        let unfit = |why: &str| Err(UnsupportedMail(format!("line {} {why}", number + 1)));
        let Some(line) = line.strip_suffix(b"\r\n") else { return unfit("ends with a bare LF") };
        if line.len() > MAX_LINE_OCTETS {
            return unfit("is longer than 998 octets");
        }
        if line.contains(&b'\r') {
            return unfit("has a bare CR");
        }
        if line.contains(&0) {
            return unfit("has a NUL");
        }
        in_header &= !line.is_empty();
        if !line.is_ascii() {
            needs.eight_bit = true;
            needs.smtputf8 |= in_header;
        }
    }
    Ok(needs)
}

/// The bytes with dot-stuffing: every dot at the start of a line is doubled. Without the final dot.
pub(super) fn dot_stuffed(bytes: &[u8]) -> Cow<'_, [u8]> {
    let dots = bytes.split_inclusive(|b| *b == b'\n').filter(|line| line.starts_with(b".")).count();
    if dots == 0 {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len() + dots);
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        if line.starts_with(b".") {
            out.push(b'.');
        }
        out.extend_from_slice(line);
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_bytes_are_rejected() {
        for bytes in [
            &b""[..],
            b"no end",
            b"a\nb\r\n",
            b"a\n.\r\n",
            b"a\r.\r\n",
            b"a\r\n.\n",
            b"a\n.\n",
            b"a\r\r\n",
            b"a\n\r\n",
            b"a\r\n.\r\r\n",
            b"a\r\n\n.\r\n",
            b"a\0.\r\n",
            b"a\r",
            b"\n",
        ] {
            assert!(check_body(bytes).is_err(), "{:?} passed", String::from_utf8_lossy(bytes));
        }
        assert!(check_body(format!("{}\r\n", "x".repeat(MAX_LINE_OCTETS)).as_bytes()).is_ok());
        assert!(check_body(format!("{}\r\n", "x".repeat(MAX_LINE_OCTETS + 1)).as_bytes()).is_err());
    }

    #[test]
    fn only_dots_at_the_start_of_a_line_are_doubled() {
        for (plain, out) in [
            ("a.b\r\n", "a.b\r\n"),
            (".\r\n", "..\r\n"),
            ("..\r\n.a\r\nb.\r\n", "...\r\n..a\r\nb.\r\n"),
            ("a\r\n.\r\n.\r\n", "a\r\n..\r\n..\r\n"),
        ] {
            assert_eq!(dot_stuffed(plain.as_bytes()), out.as_bytes());
        }
    }

    #[test]
    fn non_ascii_octets_in_header_and_body_are_distinguished() {
        let needs = |text: &str| check_body(text.as_bytes()).unwrap();
        assert_eq!(needs("Subject: a\r\n\r\nb\r\n"), BodyRequirements::default());
        assert_eq!(needs("Subject: a\r\n\r\nü\r\n"), BodyRequirements { eight_bit: true, smtputf8: false });
        assert_eq!(needs("Subject: ü\r\n\r\nb\r\n"), BodyRequirements { eight_bit: true, smtputf8: true });
    }
}
