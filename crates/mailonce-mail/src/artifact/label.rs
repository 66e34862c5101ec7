//! Finds the phrase that labels a number.

use super::{
    cue::{CueKind, CueMatch},
    shape::{CodeShape, LinePosition},
};
use crate::artifact::search_text::SearchText;

/// How far ahead a label may precede its number, in characters.
const LABEL_REACH_FORWARD: usize = 120;
/// How far a label may follow its number, in characters.
const LABEL_REACH_BACKWARD: usize = 70;

/// The phrase that labels a shape.
pub(super) struct Label {
    pub(super) cue: CueMatch,
    /// The text between the phrase and the shape.
    pub(super) gap: String,
    /// Whether the phrase follows the shape.
    pub(super) is_after: bool,
}

/// Finds the phrase that labels a shape.
pub(super) fn find_label(
    search_text: &SearchText,
    hits: &[CueMatch],
    shapes: &[CodeShape],
    shape: &CodeShape,
) -> Option<Label> {
    let position = shape.position;
    let text = |from: usize, to: usize| search_text.slice(from, to).iter().collect::<String>();
    let between = |from: usize, to: usize| {
        let mut inner = shapes.iter().filter(|other| other.start >= from && other.end <= to && !other.has_letters);
        // In a list of codes, the label above the list applies to all of them.
        let listed = |other: &CodeShape| position == LinePosition::Alone && other.position == LinePosition::Alone;
        // "Your code for order 4471 is 731904": the order number has its own label, and only a verb follows it.
        let passed = |other: &CodeShape| {
            is_labelled_as_other(hits, other)
                && other.end < shape.start
                && is_single_short_word(&text(other.end, shape.start))
        };
        inner.any(|other| !listed(other) && !passed(other))
    };
    let mut before: Option<(CueMatch, String)> = None;
    for hit in hits.iter().filter(|hit| {
        hit.end <= shape.start && shape.start - hit.end <= LABEL_REACH_FORWARD && hit.kind != CueKind::Mention
    }) {
        let gap = text(hit.end, shape.start);
        let breaks = breaks_label(&gap, position);
        // A label that is followed by its own number labels that one.
        let has_own_number = between(hit.end, shape.start)
            || hit.kind == CueKind::Other && gap.chars().filter(char::is_ascii_digit).count() >= 3;
        if !breaks
            && !has_own_number
            && before.as_ref().is_none_or(|(known, _)| rank(hit) >= rank(known) || hit.kind != CueKind::Hint)
        {
            before = Some((*hit, gap));
        }
    }
    let behind = hits.iter().find(|hit| {
        hit.start >= shape.end
            && hit.start - shape.end <= LABEL_REACH_BACKWARD
            && !matches!(hit.kind, CueKind::Mention | CueKind::Hint)
    });
    let after = behind.map(|hit| (*hit, text(shape.end, hit.start))).filter(|(hit, gap)| {
        let line = gap.matches('\n').count() <= usize::from(position == LinePosition::Alone);
        line && !ends_sentence(gap) && !between(shape.end, hit.start) && !gap.contains([':', '：'])
    });
    match (before, after) {
        (Some((hit, gap)), Some((other, behind))) => {
            let forward = gap.chars().count();
            // "482913 is your code" is a better label than the phrase before the number.
            let better = hit.kind != CueKind::Code
                && other.kind == CueKind::Code
                && !(hit.kind == CueKind::Other && is_adjacent(&gap));
            if better
                || position != LinePosition::Inline && other.kind == CueKind::Code && behind.chars().count() < forward
            {
                Some(Label { cue: other, gap: behind, is_after: true })
            } else {
                Some(Label { cue: hit, gap, is_after: false })
            }
        }
        (Some((cue, gap)), None) => Some(Label { cue, gap, is_after: false }),
        (None, Some((cue, gap))) => Some(Label { cue, gap, is_after: true }),
        (None, None) => None,
    }
}

/// Whether the phrase right before a number calls it something else than a code. Such a number does not use up another
/// label.
fn is_labelled_as_other(hits: &[CueMatch], shape: &CodeShape) -> bool {
    let last = hits.iter().rfind(|hit| hit.end <= shape.start && shape.start - hit.end <= 12);
    last.is_some_and(|hit| hit.kind == CueKind::Other)
}

fn is_single_short_word(gap: &str) -> bool {
    let word = gap.trim_matches(|c: char| !c.is_alphanumeric());
    !word.contains(char::is_whitespace) && word.chars().count() <= 6
}

fn rank(hit: &CueMatch) -> usize {
    usize::from(hit.kind != CueKind::Hint)
}

/// Whether the text in between ends the reach of a preceding label.
fn breaks_label(gap: &str, position: LinePosition) -> bool {
    let lines = gap.split('\n').skip(1).filter(|line| line.chars().any(char::is_alphanumeric)).count();
    match position {
        // A number alone on its line is labelled by the paragraph before it.
        LinePosition::Alone => lines > 2,
        LinePosition::LineStart => lines > 1,
        LinePosition::Inline => ends_sentence(gap) || gap.contains("\n\n") || lines > 1,
    }
}

fn ends_sentence(gap: &str) -> bool {
    let chars: Vec<char> = gap.chars().collect();
    chars.iter().enumerate().any(|(at, c)| match c {
        '.' | '!' | '?' | ';' => chars.get(at + 1).is_none_or(|next| next.is_whitespace()),
        '。' | '！' | '？' | '；' | '؟' => true,
        _ => false,
    })
}

/// Whether the text in between has only a few connecting words, or ends in a colon.
pub(super) fn is_adjacent(gap: &str) -> bool {
    let words = gap.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count();
    let colon = gap.trim_end_matches([' ', '*', '"', '\n', '[', '「', '【', '“']).ends_with([':', '：', '>', '=']);
    let short = words <= 4 && gap.chars().count() <= 32;
    (short || colon && gap.chars().count() <= 100) && !gap.trim_start_matches(['\n', ' ', ':']).contains("\n\n")
}

/// Whether the text in between is only a verb or a colon.
pub(super) fn is_direct(gap: &str) -> bool {
    let words = gap.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count();
    let colon = gap.trim_end_matches([' ', '*', '"', '[', '「', '【', '“']).ends_with([':', '：']);
    words <= 1 && gap.chars().count() <= 14 || colon && words <= 4
}
