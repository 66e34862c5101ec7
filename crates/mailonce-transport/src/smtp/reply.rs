//! What a server says: reply lines, read from bytes that may come in any portions, each with a bound.
//!
//! A line ends at LF, and a CR before it is no part of it, everywhere alike. Lines of one reply that disagree about
//! the code make no reply at all.

/// Octets of one line.
const MAX_LINE_OCTETS: usize = 2_000;
/// Lines of one reply.
const MAX_LINES: usize = 100;
/// Octets of one reply.
const MAX_REPLY_OCTETS: usize = 64 * 1024;

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelayReply {
    /// 200 to 599.
    pub(super) code: u16,
    /// What stood behind the code, line by line.
    pub(super) lines: Vec<String>,
}

impl RelayReply {
    /// The first digit.
    pub(super) fn class(&self) -> u16 {
        self.code / 100
    }

    /// All lines as one.
    pub(super) fn text(&self) -> String {
        self.lines.join(" ")
    }

    /// The name a server gave the mail, where it follows one of the usual wordings.
    pub(super) fn remote_id(&self) -> Option<String> {
        let text = self.text();
        let lower = text.to_ascii_lowercase();
        let named = ["queued as ", " id="].iter().find_map(|mark| Some(lower.find(mark)? + mark.len()));
        let id = match named {
            Some(start) => text.get(start..)?.split_whitespace().next()?,
            // `250 Ok 0102018c…` of a large provider: one long word after Ok.
            None => text.split_once(' ').filter(|(ok, id)| ok.eq_ignore_ascii_case("ok") && is_long_word(id))?.1,
        };
        let id = id.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        (!id.is_empty()).then(|| id.to_owned())
    }
}

fn is_long_word(text: &str) -> bool {
    text.len() >= 16 && !text.contains(char::is_whitespace) && text.bytes().any(|b| b.is_ascii_digit())
}

/// Why bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RelayReplyError {
    #[error("a line of the reply has no end")]
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

/// A reply in the making.
#[derive(Debug, Default)]
pub(super) struct RelayReplyParser {
    code: Option<u16>,
    lines: Vec<String>,
    octets: usize,
}

impl RelayReplyParser {
    /// Whether a part of a reply was seen.
    pub(super) fn has_started(&self) -> bool {
        self.code.is_some()
    }

    /// Takes whole lines off the front of `bytes` until a reply is complete. The rest stays.
    pub(super) fn parse(&mut self, bytes: &mut Vec<u8>) -> Result<Option<RelayReply>, RelayReplyError> {
        let mut taken = 0;
        let mut answer = Ok(None);
        while matches!(answer, Ok(None)) {
            let Some(rest) = bytes.get(taken..) else { break };
            let Some(end) = rest.iter().take(MAX_LINE_OCTETS).position(|b| *b == b'\n') else {
                answer = if rest.len() >= MAX_LINE_OCTETS { Err(RelayReplyError::LineTooLong) } else { Ok(None) };
                break;
            };
            answer = self.parse_line(&rest[..end]);
            taken += end + 1;
        }
        bytes.drain(..taken);
        answer
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

/// Code, whether it is the last line, and the text.
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
    fn portions_do_not_matter() {
        let (mut partial, mut bytes, mut found) = (RelayReplyParser::default(), Vec::new(), Vec::new());
        for byte in b"220-one\r\n220\r\n250 two\n" {
            bytes.push(*byte);
            found.extend(partial.parse(&mut bytes).unwrap());
        }
        assert_eq!(found, [answer(220, &["one", ""]), answer(250, &["two"])]);
    }

    #[test]
    fn what_is_no_reply_is_told_apart() {
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
    fn a_reply_has_a_bound() {
        assert_eq!(read("250-x\r\n".repeat(MAX_LINES).as_bytes()).0, Err(RelayReplyError::TooManyLines));
        let long = format!("250-{}\r\n", "x".repeat(1_900));
        assert_eq!(read(long.repeat(40).as_bytes()).0, Err(RelayReplyError::TooLong));
        assert_eq!(read("250-x\r\n".repeat(MAX_LINES - 1).as_bytes()).0, Ok(None));
    }

    #[test]
    fn the_usual_names_of_a_queued_mail_are_found() {
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
