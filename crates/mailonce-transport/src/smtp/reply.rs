//! Parses SMTP replies from bytes that arrive in any chunks, with limits on every part.
//!
//! A line ends at LF; a CR before it is not part of the line. A reply whose lines have different codes is malformed.

/// Maximum length of a line.
const MAX_LINE_OCTETS: usize = 2_000;
/// Maximum number of lines in a reply.
const MAX_LINES: usize = 100;
/// Maximum size of a reply.
const MAX_REPLY_OCTETS: usize = 64 * 1024;

/// A complete reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelayReply {
    /// The code, 200 to 599.
    pub(super) code: u16,
    /// The text after the code, line by line.
    pub(super) lines: Vec<String>,
}

impl RelayReply {
    /// The first digit of the code.
    pub(super) fn class(&self) -> u16 {
        self.code / 100
    }

    /// All lines joined by spaces.
    pub(super) fn text(&self) -> String {
        self.lines.join(" ")
    }

    /// The relay's queue id, if the text follows one of the common formats.
    pub(super) fn remote_id(&self) -> Option<String> {
        let text = self.text();
        let lower = text.to_ascii_lowercase();
        let id_start = ["queued as ", " id="].iter().find_map(|mark| Some(lower.find(mark)? + mark.len()));
        let id = match id_start {
            Some(start) => text.get(start..)?.split_whitespace().next()?,
            // Some large providers reply `250 Ok 0102018c…`: one long word after Ok.
            None => text.split_once(' ').filter(|(ok, id)| ok.eq_ignore_ascii_case("ok") && is_long_word(id))?.1,
        };
        let id = id.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        (!id.is_empty()).then(|| id.to_owned())
    }
}

fn is_long_word(text: &str) -> bool {
    text.len() >= 16 && !text.contains(char::is_whitespace) && text.bytes().any(|b| b.is_ascii_digit())
}

/// Why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RelayReplyError {
    #[error("a line of the reply is too long")]
    LineTooLong,
    #[error("the reply has too many lines")]
    TooManyLines,
    #[error("the reply is too long")]
    TooLong,
    #[error("a line of the reply has no code")]
    MissingCode,
    #[error("the lines of the reply have different codes")]
    CodesDiffer,
}

/// An incremental reply parser.
#[derive(Debug, Default)]
pub(super) struct RelayReplyParser {
    code: Option<u16>,
    lines: Vec<String>,
    octets: usize,
}

impl RelayReplyParser {
    /// Whether part of a reply was parsed.
    pub(super) fn has_started(&self) -> bool {
        self.code.is_some()
    }

    /// Removes complete lines from the front of `bytes` until a reply is complete. The rest stays in `bytes`.
    pub(super) fn parse(&mut self, bytes: &mut Vec<u8>) -> Result<Option<RelayReply>, RelayReplyError> {
        let mut taken = 0;
        let mut result = Ok(None);
        while matches!(result, Ok(None)) {
            let Some(rest) = bytes.get(taken..) else { break };
            let Some(end) = rest.iter().take(MAX_LINE_OCTETS).position(|b| *b == b'\n') else {
                result = if rest.len() >= MAX_LINE_OCTETS { Err(RelayReplyError::LineTooLong) } else { Ok(None) };
                break;
            };
            result = self.parse_line(&rest[..end]);
            taken += end + 1;
        }
        bytes.drain(..taken);
        result
    }

    fn parse_line(&mut self, line: &[u8]) -> Result<Option<RelayReply>, RelayReplyError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (code, last, text) = split_line(line).ok_or(RelayReplyError::MissingCode)?;
        if *self.code.get_or_insert(code) != code {
            return Err(RelayReplyError::CodesDiffer);
        }
        self.octets += line.len();
        if self.octets > MAX_REPLY_OCTETS {
            return Err(RelayReplyError::TooLong);
        }
        self.lines.push(String::from_utf8_lossy(text).into_owned());
        if last {
            let lines = std::mem::take(self).lines;
            return Ok(Some(RelayReply { code, lines }));
        }
        if self.lines.len() >= MAX_LINES { Err(RelayReplyError::TooManyLines) } else { Ok(None) }
    }
}

/// Splits a line into its code, whether it is the last line, and the text.
fn split_line(line: &[u8]) -> Option<(u16, bool, &[u8])> {
    let (code, rest) = line.split_at_checked(3)?;
    if !code.iter().all(u8::is_ascii_digit) || !matches!(code[0], b'2'..=b'5') {
        return None;
    }
    let code = code.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    match rest.split_first() {
        None => Some((code, true, rest)),
        Some((b' ', text)) => Some((code, true, text)),
        Some((b'-', text)) => Some((code, false, text)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (Result<Option<RelayReply>, RelayReplyError>, Vec<u8>) {
        let mut bytes = bytes.to_vec();
        let answer = RelayReplyParser::default().parse(&mut bytes);
        (answer, bytes)
    }

    fn answer(code: u16, lines: &[&str]) -> RelayReply {
        RelayReply { code, lines: lines.iter().map(ToString::to_string).collect() }
    }

    #[test]
    fn one_reply_is_taken_and_the_rest_stays() {
        let (first, rest) = read(b"250-a\r\n250 b\r\n354 go\r\n");
        assert_eq!(first, Ok(Some(answer(250, &["a", "b"]))));
        assert_eq!(rest, b"354 go\r\n");
    }

    #[test]
    fn replies_may_arrive_in_any_chunks() {
        let (mut parser, mut bytes, mut replies) = (RelayReplyParser::default(), Vec::new(), Vec::new());
        for byte in b"220-one\r\n220\r\n250 two\n" {
            bytes.push(*byte);
            replies.extend(parser.parse(&mut bytes).unwrap());
        }
        assert_eq!(replies, [answer(220, &["one", ""]), answer(250, &["two"])]);
    }

    #[test]
    fn malformed_replies_are_rejected_with_the_reason() {
        let cases: [(&[u8], RelayReplyError); 8] = [
            (b"hello\r\n", RelayReplyError::MissingCode),
            (b"\r\n", RelayReplyError::MissingCode),
            (b"25\r\n", RelayReplyError::MissingCode),
            (b"199 x\r\n", RelayReplyError::MissingCode),
            (b"600 x\r\n", RelayReplyError::MissingCode),
            (b"250x\r\n", RelayReplyError::MissingCode),
            (b"250-yes\r\n550 no\r\n", RelayReplyError::CodesDiffer),
            (&[b'2'; MAX_LINE_OCTETS], RelayReplyError::LineTooLong),
        ];
        for (bytes, why) in cases {
            assert_eq!(read(bytes).0, Err(why), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_reply_has_limits() {
        assert_eq!(read("250-x\r\n".repeat(MAX_LINES).as_bytes()).0, Err(RelayReplyError::TooManyLines));
        let long = format!("250-{}\r\n", "x".repeat(1_900));
        assert_eq!(read(long.repeat(40).as_bytes()).0, Err(RelayReplyError::TooLong));
        assert_eq!(read("250-x\r\n".repeat(MAX_LINES - 1).as_bytes()).0, Ok(None));
    }

    #[test]
    fn common_queue_id_formats_are_recognized() {
        for (text, id) in [
            ("2.0.0 Ok: queued as 4F2A1", Some("4F2A1")),
            ("OK id=1rXyZ-0003-4u", Some("1rXyZ-0003-4u")),
            ("Ok 0102018c5e1f-aaaa", Some("0102018c5e1f-aaaa")),
            ("2.0.0 Message accepted for delivery", None),
            ("Ok thank-you-very-much", None),
            ("OK", None),
        ] {
            assert_eq!(answer(250, &[text]).remote_id().as_deref(), id, "{text}");
        }
    }
}
