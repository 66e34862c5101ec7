//! A word diff of two texts that ignores layout, punctuation and case.

use std::collections::BTreeSet;

/// Largest number of word pairs that are compared in order. Longer texts are compared as sets of words.
const MAX_PAIRS: usize = 4_000_000;

/// The words of each text that are not in the longest common subsequence of both.
pub(crate) fn word_difference(first: &str, second: &str) -> (Vec<String>, Vec<String>) {
    let (first, second): (Vec<String>, Vec<String>) = (words(first).collect(), words(second).collect());
    let same_start = first.iter().zip(&second).take_while(|(one, other)| one == other).count();
    let (first, second) = (&first[same_start..], &second[same_start..]);
    let same_end = first.iter().rev().zip(second.iter().rev()).take_while(|(one, other)| one == other).count();
    let (first, second) = (&first[..first.len() - same_end], &second[..second.len() - same_end]);
    if first.len().saturating_mul(second.len()) > MAX_PAIRS {
        return vocabulary_difference(first, second);
    }
    sequence_difference(first, second)
}

/// The words of each list without their longest common subsequence.
fn sequence_difference(first: &[String], second: &[String]) -> (Vec<String>, Vec<String>) {
    let width = second.len() + 1;
    // For each pair of positions, the length of the longest common subsequence of the words that follow.
    let mut common = vec![0_u16; (first.len() + 1) * width];
    for (row, one) in first.iter().enumerate().rev() {
        for (column, other) in second.iter().enumerate().rev() {
            let at = row * width + column;
            common[at] = if one == other { common[at + width + 1] + 1 } else { common[at + width].max(common[at + 1]) };
        }
    }
    let (mut only_first, mut only_second) = (Vec::new(), Vec::new());
    let (mut row, mut column) = (0, 0);
    while row < first.len() || column < second.len() {
        let at = row * width + column;
        if row < first.len() && column < second.len() && first[row] == second[column] {
            (row, column) = (row + 1, column + 1);
        } else if column == second.len() || row < first.len() && common[at + width] >= common[at + 1] {
            only_first.push(first[row].clone());
            row += 1;
        } else {
            only_second.push(second[column].clone());
            column += 1;
        }
    }
    (only_first, only_second)
}

/// The words that occur in only one text. Texts with the same words differ in order, so both are returned whole.
fn vocabulary_difference(first: &[String], second: &[String]) -> (Vec<String>, Vec<String>) {
    let only = |here: &[String], there: &[String]| {
        let known: BTreeSet<&String> = there.iter().collect();
        here.iter().filter(|word| !known.contains(word)).cloned().collect::<Vec<_>>()
    };
    let (only_first, only_second) = (only(first, second), only(second, first));
    if only_first.is_empty() && only_second.is_empty() {
        return (first.to_vec(), second.to_vec());
    }
    (only_first, only_second)
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let is_inside = |c: char| c.is_alphanumeric() || "@.:/_?=&%+".contains(c) || is_minus(c) || is_currency(c);
    let pieces = text.split(move |c: char| !is_inside(c)).map(trim_word);
    pieces.filter(|piece| !piece.is_empty()).map(|piece| piece.to_lowercase().replace(is_minus, "-"))
}

/// A word without the signs around it. A minus, a point or a currency before an amount, and a currency or `%` after it,
/// change its value and stay.
fn trim_word(piece: &str) -> &str {
    let word = piece.trim_matches(|c: char| !c.is_alphanumeric());
    if word.is_empty() {
        return piece.trim_matches(|c: char| !is_currency(c));
    }
    let start = piece.find(word).unwrap_or_default();
    let (before, after) = (&piece[..start], &piece[start + word.len()..]);
    let is_sign = |c: char| c == '.' || is_minus(c) || is_currency(c);
    let sign = if is_amount(word) { before.len() - before.trim_end_matches(is_sign).len() } else { 0 };
    let unit = after.chars().next().filter(|c| *c == '%' || is_currency(*c));
    let unit = unit.filter(|_| word.ends_with(char::is_numeric)).map_or(0, char::len_utf8);
    &piece[start - sign..start + word.len() + unit]
}

/// Whether a word is an amount, such as `1000` or `US$1000`, or a currency code before one, such as `EUR`.
fn is_amount(word: &str) -> bool {
    let number = word.trim_start_matches(|c: char| c.is_ascii_uppercase() || is_currency(c));
    number.starts_with(char::is_numeric) || number.is_empty() && word.len() == 3
}

fn is_minus(c: char) -> bool {
    matches!(c, '-' | '\u{2010}'..='\u{2013}' | '\u{2212}' | '\u{fe63}' | '\u{ff0d}')
}

fn is_currency(c: char) -> bool {
    matches!(c, '$' | '\u{a2}'..='\u{a5}' | '\u{20a0}'..='\u{20cf}' | '\u{fe69}' | '\u{ff04}' | '\u{ffe0}'..='\u{ffe6}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(first: &str, second: &str) -> (String, String) {
        let (first, second) = word_difference(first, second);
        (first.join(" "), second.join(" "))
    }

    #[test]
    fn layout_and_case_make_no_difference() {
        assert_eq!(difference("* Pay **10** euros,\n> now", "pay 10 Euros now."), (String::new(), String::new()));
    }

    #[test]
    fn order_and_repetition_make_a_difference() {
        assert_eq!(difference("Pay 10, not 1000", "Pay 1000, not 10"), ("10 not".into(), "not 10".into()));
        assert_eq!(difference("Pay Ann", "Pay Ann. Pay Ann"), (String::new(), "pay ann".into()));
        assert_eq!(difference("Hello. Pay 10.", "Hello. Unsubscribe. Pay 10."), (String::new(), "unsubscribe".into()));
    }

    #[test]
    fn signs_of_numbers_make_a_difference() {
        assert_eq!(difference("Pay -1000", "Pay 1000"), ("-1000".into(), "1000".into()));
        assert_eq!(difference("Pay \u{2212}1000", "Pay -1000"), (String::new(), String::new()));
        assert_eq!(difference("Take .5 off", "Take 5 off"), (".5".into(), "5".into()));
        assert_eq!(difference("Take 50% off", "Take 50 off"), ("50%".into(), "50".into()));
        assert_eq!(difference("- Pay 10 - now", "Pay 10 now"), (String::new(), String::new()));
        for (signed, unsigned) in [("-€1000", "€1000"), ("€-1000", "€1000"), ("-US$1000", "US$1000"), ("-EUR", "EUR")]
        {
            let expected = (signed.to_lowercase(), unsigned.to_lowercase());
            assert_eq!(difference(&format!("Pay {signed} now"), &format!("Pay {unsigned} now")), expected);
        }
        assert_eq!(difference("Pay \u{2013}€5", "Pay -€5"), (String::new(), String::new()));
        assert_eq!(difference("Pay \u{2013}5", "Pay 5"), ("-5".into(), "5".into()));
        assert_eq!(difference("Pay €5", "Pay $5"), ("€5".into(), "$5".into()));
        assert_eq!(difference("Pay 5€ or 10 €", "Pay 5$ or 10 $"), ("5€ €".into(), "5$ $".into()));
    }

    #[test]
    fn long_texts_are_compared() {
        let many = |word: &str| format!("{word} ").repeat(3_000);
        let (first, second) =
            difference(&format!("{}{}", many("a"), many("b")), &format!("{}{}", many("b"), many("a")));
        assert!(first.starts_with('a') && second.starts_with('b'));
        assert_eq!(difference(&format!("{}x", many("a b")), &format!("y {}", many("b a"))), ("x".into(), "y".into()));
    }
}
