//! Finds values with the form of a code: runs and groups of digits, and runs with letters.

use std::ops::{Range, RangeInclusive};

use super::unit::has_unit;
use crate::artifact::search_text::SearchText;
use crate::unicode;

/// A value that could be a code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a shape")]
pub(super) struct CodeShape {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) value: String,
    pub(super) is_grouped: bool,
    pub(super) has_prefix: bool,
    pub(super) has_letters: bool,
    /// Whether a number sign precedes it.
    pub(super) has_number_sign: bool,
    pub(super) position: LinePosition,
}

/// The position of a shape on its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinePosition {
    Alone,
    LineStart,
    Inline,
}

/// Maximum shapes kept per text.
const MAX_SHAPES: usize = 500;
/// Digits of a code.
pub(super) const CODE_DIGITS: RangeInclusive<usize> = 4..=8;
/// Digits of a run that could be a code. The longest ones need a label right beside them.
const RUN_DIGITS: RangeInclusive<usize> = 4..=10;
/// Characters of a code with letters.
pub(super) const CODE_CHARS: RangeInclusive<usize> = 4..=12;
/// Characters of a code that is all capitals.
const CAPITALS: RangeInclusive<usize> = 5..=8;
/// Most codes have this many digits.
pub(super) const TYPICAL_CODE_DIGITS: usize = 6;
/// Digits of a year, as in `2026`.
pub(super) const YEAR_DIGITS: usize = 4;
/// Digits of a date, as in `20260131`.
pub(super) const DATE_DIGITS: usize = 8;

/// Finds shapes, left to right.
pub(super) fn find_shapes(search_text: &SearchText) -> Vec<CodeShape> {
    let mut shapes = Vec::new();
    let mut at = 0;
    while at < search_text.chars.len() && shapes.len() < MAX_SHAPES {
        let c = search_text.chars[at];
        if !c.is_ascii_alphanumeric() {
            at += 1;
            continue;
        }
        let end = run_end(search_text, at);
        let digits = search_text.slice(at, end).iter().all(char::is_ascii_digit);
        if digits {
            at = collect_numbers(search_text, at, &mut shapes);
        } else {
            let whole = dashed_run_end(search_text, at);
            shapes.extend(alphanumeric_shape(search_text, at, whole));
            at = whole;
        }
    }
    for shape in &mut shapes {
        shape.position = line_position(search_text, shape);
    }
    shapes
}

/// The position of a shape on its line. Punctuation around it is ignored, links are not.
fn line_position(search_text: &SearchText, shape: &CodeShape) -> LinePosition {
    let (start, end) = search_text.line_bounds(shape.start);
    let empty =
        |from: usize, to: usize| !search_text.slice(from, to).iter().any(|c| c.is_alphanumeric() || *c == '\u{1}');
    match (empty(start, shape.start), empty(shape.end, end)) {
        (true, true) => LinePosition::Alone,
        (true, false) => LinePosition::LineStart,
        _ => LinePosition::Inline,
    }
}

/// The end of a run of letters and digits.
fn run_end(search_text: &SearchText, at: usize) -> usize {
    at + search_text.chars[at..].iter().take_while(|c| c.is_ascii_alphanumeric()).count()
}

/// The end of a chain of runs joined by single dashes.
fn dashed_run_end(search_text: &SearchText, at: usize) -> usize {
    let mut end = run_end(search_text, at);
    while search_text.char_at(end) == Some('-')
        && search_text.char_at(end + 1).is_some_and(|c| c.is_ascii_alphanumeric())
    {
        end = run_end(search_text, end + 1);
    }
    end
}

/// Adds the shapes of a chain of digit groups that starts at `at`. Returns the end of the chain.
fn collect_numbers(search_text: &SearchText, at: usize, shapes: &mut Vec<CodeShape>) -> usize {
    let first = at..run_end(search_text, at);
    let mut end = first.end;
    let mut groups = vec![first];
    let mut seps: Vec<char> = Vec::new();
    loop {
        let blanks = search_text.chars[end..].iter().take(4).take_while(|c| **c == ' ').count();
        let tight = search_text.char_at(end).filter(|c| "-.,:/".contains(*c));
        let next = if let Some(c) = tight {
            Some((end + 1, c))
        } else {
            (1..=3).contains(&blanks).then_some((end + blanks, ' '))
        };
        let Some((start, sep)) =
            next.filter(|(start, _)| search_text.char_at(*start).is_some_and(|c| c.is_ascii_digit()))
        else {
            break;
        };
        let stop = run_end(search_text, start);
        if !search_text.slice(start, stop).iter().all(char::is_ascii_digit) {
            break;
        }
        groups.push(start..stop);
        seps.push(sep);
        end = stop;
    }
    let (front, back) = (search_text.char_before(at), search_text.char_at(end));
    if !may_start_number(search_text, at, front)
        || back.is_some_and(|c| unicode::is_word_char(c) || c == '_' || c == '\u{1}' || c == '%' || c == '#')
    {
        return end;
    }
    let tight_letter = back == Some('-') && search_text.char_at(end + 1).is_some_and(char::is_alphanumeric);
    if !tight_letter && !has_unit(search_text, end) {
        shapes.extend(digit_group_shapes(search_text, &groups, &seps));
    }
    end
}

/// Whether a code may start here.
fn may_start_number(search_text: &SearchText, at: usize, before: Option<char>) -> bool {
    let Some(before) = before else { return true };
    let earlier = at.checked_sub(2).and_then(|at| search_text.char_at(at));
    let money = |c: char| "$€£¥₹₽₩₺+".contains(c);
    let joins = "-.,:/".contains(before) && earlier.is_some_and(char::is_alphanumeric) && before != ':';
    let clock = before == ':' && earlier.is_some_and(|c| c.is_ascii_digit());
    // One star is emphasis, several stars are a masked card number.
    let emphasis = before == '*' && earlier != Some('*');
    let spaced_money = before == ' ' && earlier.is_some_and(money);
    !(unicode::is_word_char(before)
        || money(before)
        || joins
        || clock
        || spaced_money
        || "*•_@\u{1}=&x×~".contains(before) && !emphasis)
}

fn digit_group_shapes(search_text: &SearchText, groups: &[Range<usize>], seps: &[char]) -> Vec<CodeShape> {
    let shape = |start: usize, end: usize, grouped: bool| {
        let value: String = search_text.slice(start, end).iter().filter(|c| c.is_ascii_digit()).collect();
        let sign = search_text.char_before(start) == Some('#') || search_text.char_before(start) == Some('№');
        CodeShape {
            start,
            end,
            value,
            is_grouped: grouped,
            has_prefix: false,
            has_letters: false,
            has_number_sign: sign,
            position: LinePosition::Inline,
        }
    };
    let lengths: Vec<usize> = groups.iter().map(ExactSizeIterator::len).collect();
    let total: usize = lengths.iter().sum();
    let (first, last) = (groups[0].start, groups[groups.len() - 1].end);
    if groups.len() == 1 {
        return if RUN_DIGITS.contains(&total) { vec![shape(first, last, false)] } else { Vec::new() };
    }
    let one_sep = seps.iter().all(|sep| *sep == seps[0]);
    let singles = lengths.iter().all(|length| *length == 1) && CODE_DIGITS.contains(&total);
    let even = lengths.iter().all(|length| *length == lengths[0])
        && (2..=4).contains(&lengths[0])
        && groups.len() <= 4
        && CODE_DIGITS.contains(&total);
    let dated = total == DATE_DIGITS && seps[0] == '-' && lengths[0] == YEAR_DIGITS;
    if one_sep && (seps[0] == ' ' || seps[0] == '-') && (singles || even) && !dated {
        return vec![shape(first, last, true)];
    }
    // Two groups of unequal length are separate numbers. Three or more are a telephone number, a card number or a
    // table.
    if seps.iter().all(|sep| *sep == ' ') && groups.len() == 2 && total <= *CODE_DIGITS.end() {
        return groups
            .iter()
            .filter(|group| CODE_DIGITS.contains(&group.len()))
            .map(|group| shape(group.start, group.end, false))
            .collect();
    }
    Vec::new()
}

/// A shape with letters, or with a prefix: `TF35D`, `84A-KMN`, `G-553201`.
fn alphanumeric_shape(search_text: &SearchText, start: usize, end: usize) -> Option<CodeShape> {
    let front = search_text.char_before(start);
    let back = search_text.char_at(end);
    let closed =
        |c: Option<char>| c.is_some_and(|c| unicode::is_word_char(c) || "_@\u{1}./\\=&".contains(c) && c != '.');
    let dotted = back == Some('.') && search_text.char_at(end + 1).is_some_and(char::is_alphanumeric);
    let front_dotted = front == Some('.') || front == Some('-');
    if closed(front) || closed(back) || dotted || front_dotted {
        return None;
    }
    let text: String = search_text.slice(start, end).iter().collect();
    let groups: Vec<&str> = text.split('-').collect();
    let sign = front == Some('#');
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if let [prefix, number] = groups.as_slice()
        && (1..=2).contains(&prefix.len())
        && !prefix.bytes().any(|b| b.is_ascii_digit())
        && CODE_DIGITS.contains(&number.len())
        && digits(number)
        && *prefix == prefix.to_ascii_uppercase()
    {
        return Some(CodeShape {
            start,
            end,
            value: (*number).to_owned(),
            is_grouped: false,
            has_prefix: true,
            has_letters: false,
            has_number_sign: sign,
            position: LinePosition::Inline,
        });
    }
    let value: String = groups.concat();
    let upper = !value.bytes().any(|b| b.is_ascii_lowercase());
    let count = value.bytes().filter(u8::is_ascii_digit).count();
    let even = groups.len() > 1 && groups.iter().all(|group| (2..=5).contains(&group.len()));
    let fits = CODE_CHARS.contains(&value.len()) && (groups.len() == 1 || even);
    // Without a digit it is a word, unless it is all capitals and of a typical length.
    let mixed = count >= 1 && count < value.len() && (upper || value.len() >= 5 && groups.len() == 1);
    let capitals = count == 0
        && upper
        && (groups.len() > 1 && value.len() >= TYPICAL_CODE_DIGITS || CAPITALS.contains(&value.len()));
    let grouped = groups.len() > 1;
    (fits && (mixed || capitals)).then_some(CodeShape {
        start,
        end,
        value,
        is_grouped: grouped,
        has_prefix: false,
        has_letters: true,
        has_number_sign: sign,
        position: LinePosition::Inline,
    })
}
