//! Where the header of a mail starts, and whether every parser reads the same fields in it. The parser and the
//! authenticator both ask here: if they disagreed, a forger could show one sender and have another one checked.

use crate::limits;

/// Maximum size of a header block. A longer one is ambiguous, because parsers differ in what they leave out.
pub const MAX_HEADER_BYTES: usize = 256 * 1024;
/// Maximum number of lines in a header block, folded ones included.
const MAX_HEADER_LINES: usize = 2_000;

/// Whether every parser reads the same fields in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderShape {
    /// Each line is a field or the continuation of one, and an empty line ends the header.
    Complete,
    /// As `Complete`, but the mail ends before the empty line.
    Unterminated,
    /// The header has other lines or exceeds a limit. Parsers disagree about its fields, so a forger could show one
    /// header and have another one authenticated.
    Ambiguous,
}

/// Checks the header of a whole mail.
pub fn header_shape(raw: &[u8]) -> HeaderShape {
    let rest = &raw[header_start(raw)..];
    let head = &rest[..rest.len().min(MAX_HEADER_BYTES)];
    for (count, line) in head.split_inclusive(|&b| b == b'\n').enumerate() {
        // Some parsers drop a last line that has no end.
        let Some(line) = line.strip_suffix(b"\n") else { return HeaderShape::Ambiguous };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return HeaderShape::Complete;
        }
        let is_continuation = line.starts_with(b" ") || line.starts_with(b"\t");
        let is_expected = if is_continuation { count > 0 } else { has_field_name(line) };
        if !is_expected || line.contains(&b'\0') || line.contains(&b'\r') || count >= MAX_HEADER_LINES {
            return HeaderShape::Ambiguous;
        }
    }
    if head.len() < rest.len() { HeaderShape::Ambiguous } else { HeaderShape::Unterminated }
}

/// Whether a line starts with a field name as RFC 5322 §2.2 requires it, with nothing before the colon.
fn has_field_name(line: &[u8]) -> bool {
    let colon = line.iter().take(limits::HEADER_VALUE_CHARS).position(|&b| b == b':');
    colon.is_some_and(|colon| colon > 0 && line[..colon].iter().all(u8::is_ascii_graphic))
}

/// The offset of the first header field: behind blank lines, and behind the `From ` line of a mailbox file.
pub fn header_start(raw: &[u8]) -> usize {
    let blank = leading_blank_octets(raw);
    let rest = &raw[blank..];
    // `From :` is a field with obsolete spacing (RFC 5322 §4.5), which readers show.
    let is_field =
        rest.strip_prefix(b"From").is_some_and(|rest| rest.iter().find(|b| !b" \t".contains(b)) == Some(&b':'));
    if is_field || !rest.starts_with(b"From ") && !rest.starts_with(b">From ") {
        return blank;
    }
    let start = rest.iter().position(|&b| b == b'\n').map_or(raw.len(), |end| blank + end + 1);
    // An empty line here ends a header without fields. A line of spaces is a continuation of no field.
    if matches!(raw[start..], [b'\n', ..] | [b'\r', b'\n', ..]) {
        start
    } else {
        start + leading_blank_octets(&raw[start..])
    }
}

/// Octets of the lines at the start that have nothing but whitespace.
fn leading_blank_octets(raw: &[u8]) -> usize {
    let space = raw.iter().take_while(|b| b.is_ascii_whitespace()).count();
    raw[..space].iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_starts_behind_blank_lines_and_a_mailbox_line() {
        for front in [
            "",
            "\r\n",
            "\n\n",
            " \r\n",
            "\t\r\n\r\n \n",
            "From x Mon\n",
            ">From x\r\n",
            "\r\n>From x\r\n",
            "From x\r\n \r\n",
        ] {
            let raw = format!("{front}From: a@b.test\r\n\r\nx");
            assert_eq!(header_start(raw.as_bytes()), front.len(), "{front:?}");
        }
    }

    #[test]
    fn a_continuation_and_an_empty_header_stay_where_they_are() {
        for (raw, start) in [
            ("  folded\r\nFrom: a@b.test\r\n\r\n", 0),
            ("\r\n  folded\r\n", 2),
            ("From : a@b.test\r\nFrom: c@d.test\r\n\r\n", 0),
            ("\r\nFrom \t: a@b.test\r\n\r\n", 2),
            ("From x\r\n\r\nbody: text", 8),
            ("From x\n\nbody: text", 7),
            ("From x", 6),
            ("   ", 0),
            ("", 0),
        ] {
            assert_eq!(header_start(raw.as_bytes()), start, "{raw:?}");
        }
    }

    #[test]
    fn the_shape_of_a_header() {
        let fields = |count: usize| "X: y\r\n".repeat(count);
        let long_field = |bytes: usize| format!("X: {}\r\n", "y".repeat(bytes - 5));
        for (raw, shape) in [
            ("From: a@b.test\r\n\r\nbody", HeaderShape::Complete),
            ("From x\nFrom: a@b.test\n\tfolded\n\nno field", HeaderShape::Complete),
            ("\n", HeaderShape::Unterminated),
            ("", HeaderShape::Unterminated),
            ("From: a@b.test\n", HeaderShape::Unterminated),
            ("From: a@b.test", HeaderShape::Ambiguous),
            ("X : y\n\n", HeaderShape::Ambiguous),
            (" folded\n\n", HeaderShape::Ambiguous),
            ("From: a@b.test\rX: y\n\n", HeaderShape::Ambiguous),
            (&format!("{}\r\n", fields(MAX_HEADER_LINES)), HeaderShape::Complete),
            (&format!("{}\r\n", fields(MAX_HEADER_LINES + 1)), HeaderShape::Ambiguous),
            (&format!("{}\r\n", long_field(MAX_HEADER_BYTES - 2)), HeaderShape::Complete),
            (&long_field(MAX_HEADER_BYTES), HeaderShape::Unterminated),
            (&format!("{}\r\n", long_field(MAX_HEADER_BYTES)), HeaderShape::Ambiguous),
        ] {
            assert_eq!(header_shape(raw.as_bytes()), shape, "{:?}", &raw[..raw.len().min(60)]);
        }
    }
}
