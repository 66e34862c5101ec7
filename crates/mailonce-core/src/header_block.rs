//! Where the header of a mail starts. The parser and the authenticator both ask here: if they disagreed, a forger could
//! show one sender and have another one checked.

/// The offset of the first header field: behind blank lines, and behind the `From ` line of a mailbox file.
pub fn header_start(raw: &[u8]) -> usize {
    let blank = blank_lines(raw);
    let rest = &raw[blank..];
    if !rest.starts_with(b"From ") && !rest.starts_with(b">From ") {
        return blank;
    }
    let start = rest.iter().position(|&b| b == b'\n').map_or(raw.len(), |end| blank + end + 1);
    // An empty line here ends a header without fields. A line of spaces is a continuation of no field.
    if matches!(raw[start..], [b'\n', ..] | [b'\r', b'\n', ..]) { start } else { start + blank_lines(&raw[start..]) }
}

/// Octets of the lines at the start that have nothing but whitespace.
fn blank_lines(raw: &[u8]) -> usize {
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
            ("From x\r\n\r\nbody: text", 8),
            ("From x\n\nbody: text", 7),
            ("From x", 6),
            ("   ", 0),
            ("", 0),
        ] {
            assert_eq!(header_start(raw.as_bytes()), start, "{raw:?}");
        }
    }
}
