//! Parameters of Content-Type and Content-Disposition, in any language (RFC 2231).

use super::{field::Field, hex};

/// Octets of one parameter with its name, so that it fits a line.
const LINE: usize = 74;

/// Adds `; name=value` to a field. The name is one of ours or was checked.
pub(super) fn write(field: &mut Field<'_>, name: &str, value: &str) {
    field.glue(";");
    let quoted = format!("{name}=\"{value}\"");
    if is_quotable(value) && quoted.len() <= LINE {
        field.word(&quoted);
        return;
    }
    let whole = format!("{name}*=utf-8''{}", percent(value));
    if whole.len() <= LINE {
        field.word(&whole);
        return;
    }
    for (i, piece) in pieces(name, value).iter().enumerate() {
        if i > 0 {
            field.glue(";");
        }
        field.word(piece);
    }
}

/// Text that every reader takes literally between quotes.
fn is_quotable(value: &str) -> bool {
    value.bytes().all(|b| b.is_ascii_alphanumeric() || b" ._-()+@,/=".contains(&b))
        && !value.starts_with(' ')
        && !value.ends_with(' ')
        && !value.contains("  ")
}

/// `name*0*=utf-8''…`, `name*1*=…`: cut between characters, since some readers decode each piece by itself.
fn pieces(name: &str, value: &str) -> Vec<String> {
    let mut list = Vec::new();
    let mut piece = format!("{name}*0*=utf-8''");
    for c in value.chars() {
        let encoded = percent(c.encode_utf8(&mut [0; 4]));
        if piece.len() + encoded.len() > LINE {
            let next = format!("{name}*{}*=", list.len() + 1);
            list.push(std::mem::replace(&mut piece, next));
        }
        piece.push_str(&encoded);
    }
    list.push(piece);
    list
}

/// Everything but letters, digits and a few marks as `%XX`.
pub(super) fn percent(text: &str) -> String {
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
        let mut field = Field::begin(&mut out, "X");
        write(&mut field, "filename", value);
        field.end();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn names_are_quoted_encoded_or_cut() {
        check("report (1).pdf", "X:; filename=\"report (1).pdf\"\r\n");
        check("Übersicht.pdf", "X:; filename*=utf-8''%C3%9Cbersicht.pdf\r\n");
        check("a\"; x=\"b", "X:; filename*=utf-8''a%22%3B%20x%3D%22b\r\n");
        check(
            &"é".repeat(20),
            "X:; filename*0*=utf-8''%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9;\r\n filename*1*=%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9;\r\n filename*2*=%C3%A9\r\n",
        );
    }
}
