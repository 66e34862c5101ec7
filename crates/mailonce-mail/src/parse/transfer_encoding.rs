//! Transfer encodings and charsets. Of malformed input only the malformed part is lost.

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
    str::Utf8Chunk,
};

use mail_parser::decoders::charsets::map::charset_decoder;
use serde::{Deserialize, Serialize};

/// The transfer encoding of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentTransferEncoding {
    /// Unencoded.
    #[default]
    Plain,
    /// Base64. Other characters in between are ignored.
    Base64,
    /// Quoted-printable.
    QuotedPrintable,
}

impl ContentTransferEncoding {
    /// Parses `Content-Transfer-Encoding`. Unknown values count as unencoded.
    pub(super) fn parse(value: &str) -> Self {
        let word = value.split(['(', ';', ' ']).next().unwrap_or_default();
        match word.to_ascii_lowercase().as_str() {
            "base64" | "b" => Self::Base64,
            "quoted-printable" | "q" => Self::QuotedPrintable,
            _ => Self::Plain,
        }
    }

    /// The decoded bytes. Never longer than the input.
    pub fn decode(self, bytes: &[u8]) -> Vec<u8> {
        self.decode_cow(bytes).into_owned()
    }

    /// The decoded bytes, without a copy if they are unencoded.
    pub(super) fn decode_cow(self, bytes: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Plain => Cow::Borrowed(bytes),
            Self::Base64 => Cow::Owned(decode_base64(bytes)),
            Self::QuotedPrintable => Cow::Owned(decode_quoted_printable(bytes)),
        }
    }
}

fn decode_base64(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for &byte in bytes {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => {
                // Padding ends a group. More input after it is a second, concatenated base64 text.
                (bits, count) = (0, 0);
                continue;
            }
            _ => continue,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
            bits &= (1 << count) - 1;
        }
    }
    out
}

fn decode_quoted_printable(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        let ending = if line.ends_with(b"\r\n") { 2 } else { usize::from(line.ends_with(b"\n")) };
        let (content, ending) = line.split_at(line.len() - ending);
        let content = content.trim_ascii_end();
        let soft = content.last() == Some(&b'=');
        let content = if soft { &content[..content.len() - 1] } else { content };
        decode_escapes(content, &mut out);
        if !soft {
            out.extend_from_slice(ending);
        }
    }
    out
}

fn decode_escapes(content: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&byte) = content.get(at) {
        let pair = content.get(at + 1).zip(content.get(at + 2));
        match pair.and_then(|(&high, &low)| Some(hex_digit(high)? << 4 | hex_digit(low)?)) {
            Some(value) if byte == b'=' => {
                out.push(value);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Decodes text in its declared charset. Without a known one: UTF-8, or Windows-1252 if it is not valid UTF-8.
pub(super) fn decode_text(bytes: &[u8], charset: Option<&str>) -> String {
    let charset_name = charset.map(str::trim).filter(|name| !is_utf8(name)).unwrap_or_default();
    let declared_decoder = charset_decoder(charset_name.as_bytes());
    let fallback = || match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) if charset.is_some_and(is_utf8) => decode_lossy(bytes),
        Err(_) => charset_decoder(b"windows-1252")
            .map_or_else(|| decode_lossy(bytes), |decode| decode_in_chunks(bytes, decode)),
    };
    match declared_decoder {
        Some(decode) => {
            let decode =
                || if is_single_byte_charset(charset_name) { decode_in_chunks(bytes, decode) } else { decode(bytes) };
            catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_panic| fallback())
        }
        None => fallback(),
    }
}

/// UTF-8 with a replacement character for each invalid sequence. The exact size is allocated up front.
fn decode_lossy(bytes: &[u8]) -> String {
    const MARK: char = char::REPLACEMENT_CHARACTER;
    let size = |chunk: Utf8Chunk<'_>| chunk.valid().len() + usize::from(!chunk.invalid().is_empty()) * MARK.len_utf8();
    let mut text = String::with_capacity(bytes.utf8_chunks().map(size).sum());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(MARK);
        }
    }
    text
}

/// Whether each byte of the charset is one character.
fn is_single_byte_charset(charset: &str) -> bool {
    const NAMES: &[&str] =
        &["iso-8859-", "iso_8859-", "iso8859", "latin", "windows-125", "cp125", "koi8-", "macintosh"];
    let starts = |name: &&str| charset.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    NAMES.iter().any(starts)
}

/// Decodes bytes of a single-byte charset in chunks, twice: the first pass measures the size, because a growing string
/// would need several times the memory.
fn decode_in_chunks(bytes: &[u8], decode: fn(&[u8]) -> String) -> String {
    const PIECE: usize = 4 * 1024;
    let mut text = String::with_capacity(bytes.chunks(PIECE).map(|piece| decode(piece).len()).sum());
    bytes.chunks(PIECE).for_each(|piece| text.push_str(&decode(piece)));
    text
}

fn is_utf8(name: &str) -> bool {
    name.trim().eq_ignore_ascii_case("utf-8") || name.trim().eq_ignore_ascii_case("utf8")
}
