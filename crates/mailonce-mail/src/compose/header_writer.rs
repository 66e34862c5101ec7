//! Writes one header field with folding.

use super::{MAX_HEADER_WORD_OCTETS, encoded_word};

/// Lines are folded at this length if they have a space. RFC 5322 §2.1.1 says 78; one is left for a comma or semicolon.
const MAX_LINE_OCTETS: usize = 77;
/// Minimum room on a line to start an encoded word.
const MIN_ENCODED_WORD_ROOM: usize = 40;

/// A header field in progress.
pub(super) struct HeaderWriter<'a> {
    out: &'a mut Vec<u8>,
    column: usize,
    is_at_start: bool,
}

impl<'a> HeaderWriter<'a> {
    /// Begins a field. The name must be valid.
    pub(super) fn begin(out: &'a mut Vec<u8>, name: &str) -> Self {
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        Self { out, column: name.len() + 1, is_at_start: true }
    }

    /// Writes a whole field of free text.
    pub(super) fn write_text(out: &mut Vec<u8>, name: &str, text: &str) {
        let mut field = HeaderWriter::begin(out, name);
        if is_plain(text) {
            field.push_plain(text);
        } else {
            field.push_encoded(text);
        }
        field.finish();
    }

    /// Writes a whole field of words that are never broken.
    pub(super) fn write_words<'w>(out: &mut Vec<u8>, name: &str, words: impl IntoIterator<Item = &'w str>) {
        let mut field = HeaderWriter::begin(out, name);
        words.into_iter().for_each(|word| field.push_word(word));
        field.finish();
    }

    /// Adds a space and a word, on a new line when this one is full.
    pub(super) fn push_word(&mut self, word: &str) {
        self.push_spaced(1, word);
    }

    /// Adds text to the last word.
    pub(super) fn append(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        self.column += text.len();
    }

    /// Adds text as encoded words.
    pub(super) fn push_encoded(&mut self, text: &str) {
        let room = match MAX_LINE_OCTETS.saturating_sub(self.column + 1) {
            room if room >= MIN_ENCODED_WORD_ROOM => room,
            _ if self.is_at_start => MIN_ENCODED_WORD_ROOM,
            _ => MAX_LINE_OCTETS,
        };
        encoded_word::encode(text, room).iter().for_each(|word| self.push_word(word));
    }

    /// Adds plain text, folded at its spaces. Unfolding restores it exactly.
    pub(super) fn push_plain(&mut self, text: &str) {
        let mut spaces = 1;
        for word in text.split(' ') {
            if word.is_empty() {
                spaces += 1;
            } else {
                self.push_spaced(spaces, word);
                spaces = 1;
            }
        }
    }

    /// Ends the field.
    pub(super) fn finish(self) {
        self.out.extend_from_slice(b"\r\n");
    }

    fn push_spaced(&mut self, spaces: usize, word: &str) {
        // No fold directly after the colon: some parsers would read it as part of the value.
        if !self.is_at_start && self.column + spaces + word.len() > MAX_LINE_OCTETS {
            self.out.extend_from_slice(b"\r\n");
            self.column = 0;
        }
        self.out.resize(self.out.len() + spaces, b' ');
        self.column += spaces;
        self.append(word);
        self.is_at_start = false;
    }
}

/// Whether text can be written unencoded: printable, foldable, and not parsed as an encoded word.
pub(super) fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| (b' '..=b'~').contains(&b))
        && !text.contains("=?")
        && !text.starts_with(' ')
        && !text.ends_with(' ')
        && !text.contains("        ")
        && text.split(' ').all(|word| word.len() <= MAX_HEADER_WORD_OCTETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, text: &str) -> String {
        let mut out = Vec::new();
        HeaderWriter::write_text(&mut out, name, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn plain_text_is_folded_at_its_spaces_and_unfolds_to_itself() {
        let words = "a  word and another ".repeat(20);
        let field = text("Subject", words.trim());
        assert!(field.lines().count() > 3);
        assert!(field.lines().all(|line| line.len() <= 78));
        assert_eq!(field.replace("\r\n", ""), format!("Subject: {}", words.trim()));
    }

    #[test]
    fn non_plain_text_is_encoded() {
        assert_eq!(text("Subject", ""), "Subject:\r\n");
        assert_eq!(text("Subject", "Für dich und mich"), "Subject: =?utf-8?Q?F=C3=BCr_dich_und_mich?=\r\n");
        assert_eq!(text("Subject", " x"), "Subject: =?utf-8?Q?_x?=\r\n");
        assert_eq!(text("Subject", "=?utf-8?Q?x?="), "Subject: =?utf-8?B?PT91dGYtOD9RP3g/PQ==?=\r\n");
    }

    #[test]
    fn a_word_that_fits_no_line_is_encoded() {
        let field = text("X-Long", &"x".repeat(998));
        assert!(field.lines().all(|line| line.len() <= 78), "{field}");
        let field = text("X-Long", &"x".repeat(500));
        assert_eq!(field.len(), "X-Long: \r\n".len() + 500);
    }
}
