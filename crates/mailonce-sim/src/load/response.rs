//! Parses as much of an HTTP/1.1 response as the load generator needs: status, length, keep-alive.

use std::io;
use std::ops::Range;

/// A response, borrowed from the connection's buffer.
#[derive(Debug)]
pub struct LoadResponse<'a> {
    /// The status code.
    pub status: u16,
    /// The body, without chunk headers.
    pub body: &'a [u8],
}

/// The state of a response that is being read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParseState {
    /// An incomplete response.
    Partial,
    /// A complete response.
    Complete { status: u16, body: Range<usize>, keep_alive: bool },
    /// Not a valid response.
    Invalid(&'static str),
}

enum BodyLength {
    None,
    Known(usize),
    Chunked,
}

/// Parses the response in `bytes`. A chunked body is joined in place once it is complete.
pub(super) fn parse(bytes: &mut [u8]) -> ParseState {
    let Some(end) = find_head_end(bytes) else {
        return ParseState::Partial;
    };
    let Some(status) = parse_status(bytes) else {
        return ParseState::Invalid("no HTTP/1.1 status line");
    };
    let (length, keep_alive) = match parse_headers(&bytes[..end]) {
        Ok(found) => found,
        Err(why) => return ParseState::Invalid(why),
    };
    match length {
        BodyLength::Known(length) if bytes.len() < end + length => ParseState::Partial,
        BodyLength::Known(length) => ParseState::Complete { status, body: end..end + length, keep_alive },
        BodyLength::Chunked => match unchunk(&mut bytes[end..]) {
            Ok(Some(length)) => ParseState::Complete { status, body: end..end + length, keep_alive },
            Ok(None) => ParseState::Partial,
            Err(why) => ParseState::Invalid(why),
        },
        BodyLength::None if matches!(status, 204 | 304) => ParseState::Complete { status, body: end..end, keep_alive },
        BodyLength::None => ParseState::Invalid("an answer without a length"),
    }
}

/// Status and position of the body, once the response is complete.
pub(crate) fn parse_complete(bytes: &mut [u8]) -> io::Result<Option<(u16, Range<usize>)>> {
    match parse(bytes) {
        ParseState::Partial => Ok(None),
        ParseState::Complete { status, body, .. } => Ok(Some((status, body))),
        ParseState::Invalid(why) => Err(io::Error::new(io::ErrorKind::InvalidData, why)),
    }
}

fn find_head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

fn parse_status(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn parse_headers(head: &[u8]) -> Result<(BodyLength, bool), &'static str> {
    let (mut length, mut keep_alive) = (BodyLength::None, true);
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        // The few relevant names differ in length, so most lines cost one comparison.
        if let Some(value) = header_value(line, b"content-length") {
            let text = std::str::from_utf8(value).unwrap_or_default();
            length = BodyLength::Known(text.parse().map_err(|_why| "a Content-Length that is no number")?);
        } else if header_value(line, b"transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case(b"chunked")) {
            length = BodyLength::Chunked;
        } else if header_value(line, b"connection").is_some_and(|value| value.eq_ignore_ascii_case(b"close")) {
            keep_alive = false;
        }
    }
    Ok((length, keep_alive))
}

fn header_value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    if line.get(name.len()) != Some(&b':') || !line[..name.len()].eq_ignore_ascii_case(name) {
        return None;
    }
    Some(line[name.len() + 1..].trim_ascii())
}

/// Joins the chunks and returns the length of the body; changes nothing while a chunk is missing.
fn unchunk(bytes: &mut [u8]) -> Result<Option<usize>, &'static str> {
    if chunks(bytes, |_, _| {})?.is_none() {
        return Ok(None);
    }
    let mut moves = Vec::new();
    chunks(bytes, |from, length| moves.push((from, length)))?;
    let mut to = 0;
    for (from, length) in moves {
        bytes.copy_within(from..from + length, to);
        to += length;
    }
    Ok(Some(to))
}

fn chunks(bytes: &[u8], mut each: impl FnMut(usize, usize)) -> Result<Option<()>, &'static str> {
    let mut at = 0;
    loop {
        let Some(line) = bytes[at..].windows(2).position(|two| two == b"\r\n") else {
            return Ok(None);
        };
        let digits = bytes[at..at + line].split(|byte| *byte == b';').next().unwrap_or_default();
        let text = std::str::from_utf8(digits.trim_ascii()).unwrap_or_default();
        let length = usize::from_str_radix(text, 16).map_err(|_why| "a chunk without a length")?;
        at += line + 2;
        if bytes.len() < at + length + 2 {
            return Ok(None);
        }
        if length == 0 {
            return Ok(Some(()));
        }
        each(at, length);
        at += length + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::{ParseState, parse};

    fn whole(text: &str) -> (u16, String, bool) {
        let mut bytes = text.as_bytes().to_vec();
        for cut in 0..bytes.len() {
            assert_eq!(parse(&mut bytes[..cut].to_vec()), ParseState::Partial, "cut at {cut}");
        }
        match parse(&mut bytes) {
            ParseState::Complete { status, body, keep_alive } => {
                (status, String::from_utf8(bytes[body].to_vec()).unwrap(), keep_alive)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_body_with_a_length() {
        let answer = whole("HTTP/1.1 202 Accepted\r\nDate: now\r\ncontent-LENGTH:  5\r\n\r\nhello");
        assert_eq!(answer, (202, "hello".to_owned(), true));
    }

    #[test]
    fn a_body_in_chunks() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
        assert_eq!(whole(text), (200, "hello world".to_owned(), true));
    }

    #[test]
    fn the_last_answer_of_a_connection() {
        let text = "HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(whole(text), (503, String::new(), false));
    }

    #[test]
    fn what_is_not_an_answer() {
        for text in ["SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"] {
            assert!(matches!(parse(&mut text.as_bytes().to_vec()), ParseState::Invalid(_)), "{text}");
        }
    }
}
