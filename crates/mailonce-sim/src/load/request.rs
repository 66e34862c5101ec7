//! Requests as bytes with number slots: rendered once, patched per request.

use std::fmt::Write as _;

/// The mark in a path, header or body that [`Template::write`] replaces by the request's number, always twelve
/// digits wide so that `Content-Length` never changes.
pub const NUMBER_PLACEHOLDER: &str = "{n}";

const NUMBER_WIDTH: usize = 12;
const ZEROES: &str = "000000000000";

/// A whole HTTP/1.1 request that differs from the next one in its numbers only.
#[derive(Debug, Clone)]
pub struct RequestTemplate {
    bytes: Vec<u8>,
    slots: Vec<usize>,
}

impl RequestTemplate {
    /// A JSON `POST` to `path`. [`NUMBER`] may occur anywhere, any number of times.
    pub fn post(path: &str, headers: &[(&str, &str)], body: &str) -> Self {
        let length = body.len() + body.matches(NUMBER_PLACEHOLDER).count() * (NUMBER_WIDTH - NUMBER_PLACEHOLDER.len());
        let mut text = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n");
        for (name, value) in headers {
            // Writing to a `String` cannot fail.
            let _infallible = write!(text, "{name}: {value}\r\n");
        }
        let _infallible = write!(text, "Content-Length: {length}\r\n\r\n{body}");
        Self::from_text(&text)
    }

    fn from_text(text: &str) -> Self {
        let mut bytes = Vec::with_capacity(text.len() + NUMBER_WIDTH);
        let mut slots = Vec::new();
        let mut pieces = text.split(NUMBER_PLACEHOLDER);
        bytes.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
        for piece in pieces {
            slots.push(bytes.len());
            bytes.extend_from_slice(ZEROES.as_bytes());
            bytes.extend_from_slice(piece.as_bytes());
        }
        Self { bytes, slots }
    }

    /// Appends the request with the number `n` in its slots.
    pub fn write_numbered(&self, n: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let digits = zero_padded(n);
        for slot in &self.slots {
            out[start + slot..start + slot + NUMBER_WIDTH].copy_from_slice(&digits);
        }
    }

    /// Length in bytes, head included.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

fn zero_padded(mut n: u64) -> [u8; NUMBER_WIDTH] {
    let mut digits = [b'0'; NUMBER_WIDTH];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::RequestTemplate;

    #[test]
    fn numbers_fill_every_slot_and_the_length_counts_them() {
        let template = RequestTemplate::post("/send", &[("Idempotency-Key", "k-{n}")], r#"{"to":"u{n}@example.org"}"#);
        let mut out = Vec::new();
        template.write_numbered(42, &mut out);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Idempotency-Key: k-000000000042\r\n"));
        assert_eq!(body, r#"{"to":"u000000000042@example.org"}"#);
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())));
        assert_eq!(text.len(), template.size());
    }
}
