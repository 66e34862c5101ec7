//! Parameters of Content-Type and Content-Disposition in any charset (RFC 2231).

use super::hex;
use crate::compose::header_writer::HeaderWriter;

/// Maximum length of a parameter with its name, so that it fits on a line.
const MAX_PARAM_OCTETS: usize = 74;

/// Adds `; name=value` to a field. The name must be valid.
pub(super) fn write_param(field: &mut HeaderWriter<'_>, name: &str, value: &str) {
    field.append(";");
    let quoted = format!("{name}=\"{value}\"");
    if is_quotable(value) && quoted.len() <= MAX_PARAM_OCTETS {
        field.push_word(&quoted);
        return;
    }
    let whole = format!("{name}*=utf-8''{}", percent_encode(value));
    if whole.len() <= MAX_PARAM_OCTETS {
        field.push_word(&whole);
        return;
    }
    for (i, piece) in continuations(name, value).iter().enumerate() {
        if i > 0 {
            field.append(";");
        }
        field.push_word(piece);
    }
}

/// Whether every parser reads the text literally between quotes.
fn is_quotable(value: &str) -> bool {
    value.bytes().all(|b| b.is_ascii_alphanumeric() || b" ._-()+@,/=".contains(&b))
        && !value.starts_with(' ')
        && !value.ends_with(' ')
        && !value.contains("  ")
}

/// `name*0*=utf-8''…`, `name*1*=…`: split between characters, because some parsers decode each piece separately.
fn continuations(name: &str, value: &str) -> Vec<String> {
    let mut list = Vec::new();
    let mut piece = format!("{name}*0*=utf-8''");
    for c in value.chars() {
        let encoded = percent_encode(c.encode_utf8(&mut [0; 4]));
        if piece.len() + encoded.len() > MAX_PARAM_OCTETS {
            let next = format!("{name}*{}*=", list.len() + 1);
            list.push(std::mem::replace(&mut piece, next));
        }
        piece.push_str(&encoded);
    }
    list.push(piece);
    list
}

/// Percent-encodes everything except letters, digits and a few punctuation characters.
pub(super) fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3);
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"._-+~$".contains(&b) {
            out.push(char::from(b));
        } else {
            out.extend(['%', hex::high(b), hex::low(b)]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &str, expected: &str) {
        let mut out = Vec::new();
        let mut field = HeaderWriter::begin(&mut out, "X");
        write_param(&mut field, "filename", value);
        field.finish();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn names_are_quoted_encoded_or_split() {
        check("report (1).pdf", "X:; filename=\"report (1).pdf\"\r\n");
        check("Übersicht.pdf", "X:; filename*=utf-8''%C3%9Cbersicht.pdf\r\n");
        check("a\"; x=\"b", "X:; filename*=utf-8''a%22%3B%20x%3D%22b\r\n");
        check(
            &"é".repeat(20),
            "X:; filename*0*=utf-8''%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9;\r\n filename*1*=%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9;\r\n filename*2*=%C3%A9\r\n",
        );
    }
}
