//! Names that others chose, in pages and logs: a name must not look like other text.

/// Whether a character could make a name look like another text: control characters, invisible ones, and those that
/// change the direction of writing.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A name of at most `max_chars` characters in one line, without deceptive characters.
pub fn plain_name(text: &str, max_chars: usize) -> String {
    let plain: String = text.chars().map(|c| if is_deceptive(c) { ' ' } else { c }).collect();
    let words = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(max_chars).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::plain_name;

    #[test]
    fn a_plain_name_is_one_line_that_reads_as_it_is_written() {
        for (text, expected) in [
            (" Ada  Lovelace ", "Ada Lovelace"),
            ("Ada\r\nadmin", "Ada admin"),
            ("Ada \u{202e}nimda", "Ada nimda"),
            ("A\u{200b}da", "A da"),
            ("Ada\u{2028}Bob", "Ada Bob"),
            ("\u{feff}\u{7}", ""),
            ("Zoë 李", "Zoë 李"),
        ] {
            assert_eq!(plain_name(text, 20), expected, "{text:?}");
        }
        assert_eq!(plain_name("Ada Lovelace", 4), "Ada");
    }
}
