//! The bytes of a mail on their way out: what may not pass, and the dots that are doubled.

use mailonce_core::handoff::transport_request::UnsupportedMail;
use std::borrow::Cow;

/// Octets of one line without its CRLF (RFC 5321).
pub(super) const MAX_LINE_OCTETS: usize = 998;

/// What the bytes ask of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BodyRequirements {
    /// Octets above 127 in the body.
    pub(super) eight_bit: bool,
    /// Octets above 127 in the header.
    pub(super) smtputf8: bool,
}

/// Refuses what two servers could read in two ways: a CR or LF that stands alone, a NUL, a line without end.
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

/// The bytes with every dot that begins a line doubled, without the final dot.
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
    fn what_could_be_read_in_two_ways_is_refused() {
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
    fn dots_are_doubled_where_lines_begin_and_nowhere_else() {
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
    fn octets_above_ascii_are_told_by_place() {
        let needs = |text: &str| check_body(text.as_bytes()).unwrap();
        assert_eq!(needs("Subject: a\r\n\r\nb\r\n"), BodyRequirements::default());
        assert_eq!(needs("Subject: a\r\n\r\nü\r\n"), BodyRequirements { eight_bit: true, smtputf8: false });
        assert_eq!(needs("Subject: ü\r\n\r\nb\r\n"), BodyRequirements { eight_bit: true, smtputf8: true });
    }
}
