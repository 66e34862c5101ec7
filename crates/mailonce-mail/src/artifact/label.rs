//! Which words name a number.

use super::{
    cue::{CueKind, CueMatch},
    shape::{CodeShape, LinePosition},
};
use crate::artifact::search_text::SearchText;

/// How far a label reaches forward, in characters.
const LABEL_REACH_FORWARD: usize = 120;
/// How far back.
const LABEL_REACH_BACKWARD: usize = 70;

/// The words that name a shape, what stands between, and whether they stand behind it.
pub(super) fn find_label(
    script: &SearchText,
    hits: &[CueMatch],
    shapes: &[CodeShape],
    shape: &CodeShape,
) -> Option<(CueMatch, String, bool)> {
    let stand = shape.position;
    let text = |from: usize, to: usize| script.slice(from, to).iter().collect::<String>();
    let between = |from: usize, to: usize| {
        let mut inner = shapes.iter().filter(|other| other.start >= from && other.end <= to && !other.has_letters);
        // In a list of codes none uses up the words above the list.
        let listed = |other: &CodeShape| stand == LinePosition::Alone && other.position == LinePosition::Alone;
        // "Your code for order 4471 is 731904": the order has its own word, and only a verb follows it.
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
        let breaks = breaks_label(&gap, stand);
        // A label that has its own number names that one.
        let spent = between(hit.end, shape.start)
            || hit.kind == CueKind::Other && gap.chars().filter(char::is_ascii_digit).count() >= 3;
        if !breaks
            && !spent
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
        let line = gap.matches('\n').count() <= usize::from(stand == LinePosition::Alone);
        line && !ends_sentence(gap) && !between(shape.end, hit.start) && !gap.contains([':', '：'])
    });
    match (before, after) {
        (Some((hit, gap)), Some((other, behind))) => {
            let forward = gap.chars().count();
            // "482913 is your code" says it better than whatever stood before.
            let better = hit.kind != CueKind::Code
                && other.kind == CueKind::Code
                && !(hit.kind == CueKind::Other && is_adjacent(&gap));
            if better
                || stand != LinePosition::Inline && other.kind == CueKind::Code && behind.chars().count() < forward
            {
                Some((other, behind, true))
            } else {
                Some((hit, gap, false))
            }
        }
        (Some((hit, gap)), None) => Some((hit, gap, false)),
        (None, Some((hit, gap))) => Some((hit, gap, true)),
        (None, None) => None,
    }
}

/// Whether words right before a number call it something else than a code: then it cannot use up another label.
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

/// Whether a label before cannot reach over what stands between.
fn breaks_label(gap: &str, stand: LinePosition) -> bool {
    let lines = gap.split('\n').skip(1).filter(|line| line.chars().any(char::is_alphanumeric)).count();
    match stand {
        // A number that stands for itself is named by the paragraph before it.
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

/// Whether only a few joining words stand between, or a colon ends them.
pub(super) fn is_adjacent(gap: &str) -> bool {
    let words = gap.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count();
    let colon = gap.trim_end_matches([' ', '*', '"', '\n', '[', '「', '【', '“']).ends_with([':', '：', '>', '=']);
    let short = words <= 4 && gap.chars().count() <= 32;
    (short || colon && gap.chars().count() <= 100) && !gap.trim_start_matches(['\n', ' ', ':']).contains("\n\n")
}

/// Whether nothing but a verb or a colon stands between.
pub(super) fn is_direct(gap: &str) -> bool {
    let words = gap.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count();
    let colon = gap.trim_end_matches([' ', '*', '"', '[', '「', '【', '“']).ends_with([':', '：']);
    words <= 1 && gap.chars().count() <= 14 || colon && words <= 4
}
