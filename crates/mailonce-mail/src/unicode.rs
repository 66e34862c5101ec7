//! Character properties against obfuscated text: invisible characters, and digits and letters of every script.

/// Whether a character is invisible or changes how its neighbours are displayed: zero-width characters, bidirectional
/// controls, tag characters, variation selectors, fillers.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}'
        | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{2800}' | '\u{3164}'
        | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF9}'..='\u{FFFB}' | '\u{1BCA0}'..='\u{1BCA3}'
        | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

/// Whether a character changes the direction of text.
pub fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// The zeros of all Unicode decimal digits. The digits 1 to 9 follow each of them.
const DECIMAL_ZEROS: &[u32] = &[
    0x0030, 0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66, 0x0DE6,
    0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40,
    0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC,
    0x1D7F6, 0x1FBF0,
];

/// The ASCII form of digits, full-width characters, dashes and spaces. Other characters stay unchanged.
pub fn fold_to_ascii(c: char) -> char {
    if c.is_ascii() {
        return c;
    }
    let code = u32::from(c);
    if let Some(zero) = DECIMAL_ZEROS.iter().find(|&&zero| (zero..zero + 10).contains(&code)) {
        return char::from(b'0' + (code - zero) as u8);
    }
    match c {
        '\u{FF01}'..='\u{FF5E}' => char::from((code - 0xFF01 + 0x21) as u8),
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{FE58}' | '\u{FE63}' => '-',
        '\u{00A0}' | '\u{1680}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}' => ' ',
        _ => c,
    }
}

/// Whether a character is part of a word. Characters of unspaced scripts, such as Chinese, are not: they end a word.
pub(crate) fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() && !is_unspaced_script(c)
}

/// Whether a character belongs to a script without spaces between words.
pub(crate) fn is_unspaced_script(c: char) -> bool {
    matches!(c, '\u{2E80}'..='\u{30FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7AF}'
        | '\u{F900}'..='\u{FAFF}' | '\u{0E00}'..='\u{0E7F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_every_script_become_ascii() {
        for text in ["482913", "４８２９１３", "٤٨٢٩١٣", "۴۸۲۹۱۳", "४८२९१३", "𝟒𝟖𝟐𝟗𝟏𝟑"]
        {
            assert_eq!(text.chars().map(fold_to_ascii).collect::<String>(), "482913");
        }
        assert_eq!("Ｇ－１\u{a0}é".chars().map(fold_to_ascii).collect::<String>(), "G-1 é");
    }

    #[test]
    fn invisible_characters_are_recognized() {
        for c in ['\u{200B}', '\u{202E}', '\u{FEFF}', '\u{E0041}', '\u{00AD}', '\u{2063}'] {
            assert!(is_invisible(c), "{c:?}");
        }
        assert!("aé日 \n".chars().all(|c| !is_invisible(c)));
    }
}
