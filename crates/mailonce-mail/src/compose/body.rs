//! Encodes bodies in 7 bits: plain, quoted-printable or base64.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::hex;

/// Maximum length of a body line.
const MAX_LINE_OCTETS: usize = 76;
/// How many bytes one line of base64 encodes.
const BASE64_LINE_BYTES: usize = MAX_LINE_OCTETS / 4 * 3;

/// The transfer encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEncoding {
    /// Unencoded.
    SevenBit,
    /// Quoted-printable, mostly readable.
    QuotedPrintable,
    /// Base64, compact for everything else.
    Base64,
}

impl BodyEncoding {
    /// Its value in `Content-Transfer-Encoding`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::SevenBit => "7bit",
            Self::QuotedPrintable => "quoted-printable",
            Self::Base64 => "base64",
        }
    }

    /// The most readable encoding that transports a text (lines ended by LF) unchanged.
    pub(super) fn choose(text: &str) -> Self {
        if text.split('\n').all(is_plain) {
            return Self::SevenBit;
        }
        let escaped = text.bytes().filter(|&b| !is_literal(b) && b != b'\n').count();
        if text.len() + escaped * 2 <= base64_len(text.len()) { Self::QuotedPrintable } else { Self::Base64 }
    }

    /// Writes a text (lines ended by LF) without adding a last line end.
    pub(super) fn write(self, out: &mut Vec<u8>, text: &str) {
        match self {
            Self::SevenBit => out.extend_from_slice(text.replace('\n', "\r\n").as_bytes()),
            Self::QuotedPrintable => write_quoted_printable(out, text),
            Self::Base64 => write_base64(out, text.replace('\n', "\r\n").as_bytes()),
        }
    }
}

/// Whether hops leave a line unchanged. It must be short and printable, without trailing whitespace. It must not look
/// like the start of a mail in an mbox file, the end of DATA, or one of our boundaries, which begin with `=_`.
fn is_plain(line: &str) -> bool {
    line.len() <= MAX_LINE_OCTETS
        && line.bytes().all(is_printable)
        && !line.ends_with([' ', '\t'])
        && !line.starts_with("From ")
        && !line.starts_with('.')
        && !line.starts_with("--=_")
}

fn is_printable(b: u8) -> bool {
    (b' '..=b'~').contains(&b) || b == b'\t'
}

fn is_literal(b: u8) -> bool {
    is_printable(b) && b != b'='
}

/// The length of `bytes` as base64 with line ends.
pub(super) fn base64_len(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4 + bytes / BASE64_LINE_BYTES * 2
}

/// Writes base64, without a last line end.
pub(super) fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    // Encodes many lines at a time: fewer allocations than per line, and no second copy of the whole file.
    for chunk in bytes.chunks(BASE64_LINE_BYTES * 1_024) {
        for line in STANDARD.encode(chunk).as_bytes().chunks(MAX_LINE_OCTETS) {
            if out.len() > start {
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(line);
        }
    }
}

fn write_quoted_printable(out: &mut Vec<u8>, text: &str) {
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.extend_from_slice(b"\r\n");
        }
        write_quoted_printable_line(out, line.as_bytes());
    }
}

fn write_quoted_printable_line(out: &mut Vec<u8>, line: &[u8]) {
    let mut column = 0;
    for (index, &b) in line.iter().enumerate() {
        let is_last = index + 1 == line.len();
        let mut literal = is_literal(b) && !(is_last && (b == b' ' || b == b'\t'));
        // Leaves room for a soft line break, unless the line ends here.
        let limit = if is_last { MAX_LINE_OCTETS } else { MAX_LINE_OCTETS - 1 };
        if column + if literal { 1 } else { 3 } > limit {
            out.extend_from_slice(b"=\r\n");
            column = 0;
        }
        if column == 0 && (b == b'.' || line[index..].starts_with(b"From ")) {
            literal = false;
        }
        if literal {
            out.push(b);
            column += 1;
        } else {
            out.extend(['=', hex::high(b), hex::low(b)].map(|c| c as u8));
            column += 3;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, encoding: BodyEncoding, expected: &str) {
        let mut out = Vec::new();
        assert_eq!(BodyEncoding::choose(text), encoding);
        encoding.write(&mut out, text);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn the_most_readable_encoding_is_chosen() {
        check("", BodyEncoding::SevenBit, "");
        check("one\n\n\ttwo = 2\n", BodyEncoding::SevenBit, "one\r\n\r\n\ttwo = 2\r\n");
        check("schön = gut \n", BodyEncoding::QuotedPrintable, "sch=C3=B6n =3D gut=20\r\n");
        assert_eq!(BodyEncoding::choose(&"x".repeat(76)), BodyEncoding::SevenBit);
        assert_eq!(BodyEncoding::choose(&"x".repeat(77)), BodyEncoding::QuotedPrintable);
        check("日本語", BodyEncoding::Base64, "5pel5pys6Kqe");
    }

    #[test]
    fn lines_that_hops_would_change_are_encoded() {
        check("From here", BodyEncoding::QuotedPrintable, "=46rom here");
        check(".\n..", BodyEncoding::QuotedPrintable, "=2E\r\n=2E.");
        check("-- \nAda", BodyEncoding::QuotedPrintable, "--=20\r\nAda");
        check("--=_0123", BodyEncoding::QuotedPrintable, "--=3D_0123");
    }

    #[test]
    fn long_lines_get_soft_breaks() {
        let mut out = Vec::new();
        let text = format!("{}\n{}.{}From x", "a".repeat(76), "a".repeat(75), "b".repeat(74));
        write_quoted_printable(&mut out, &text);
        let out = String::from_utf8(out).unwrap();
        assert!(out.lines().all(|line| line.len() <= 76), "{out}");
        assert!(!out.lines().any(|line| line.starts_with('.') || line.starts_with("From ")), "{out}");
        assert_eq!(out.replace("=\r\n", "").replace("=2E", ".").replace("=46", "F"), text.replace('\n', "\r\n"));
    }

    #[test]
    fn the_base64_length_is_predicted() {
        for bytes in [0, 1, 56, 57, 58, 113, 114, 115, 10_000] {
            let mut out = Vec::new();
            write_base64(&mut out, &vec![7; bytes]);
            assert!(out.len() <= base64_len(bytes) && out.len() + 4 > base64_len(bytes), "{bytes}");
        }
    }
}
