//! Computes the confidence that a number is the code, and the reasons.

use super::{
    ExtractedArtifact, Kind, Reason,
    cue::{self, CueKind, CueMatch},
    label::{Label, find_label, is_adjacent, is_direct},
    shape::{self, CODE_CHARS, CODE_DIGITS, CodeShape, DATE_DIGITS, LinePosition, TYPICAL_CODE_DIGITS, YEAR_DIGITS},
};
use crate::artifact::search_text::SearchText;

/// Scores the codes in a subject and a text, each value once.
pub(super) fn score_codes(subject: &str, text: &str) -> Vec<ExtractedArtifact> {
    let subject = SearchText::new(subject);
    let body = SearchText::new(text);
    let subject_hits = cue::find_cues(&subject);
    let subject_has = |kind: CueKind| subject_hits.iter().any(|hit| hit.kind == kind);
    let subject_score = if subject_has(CueKind::Code) {
        10
    } else if subject_has(CueKind::Hint) && !subject_has(CueKind::Other) {
        5
    } else {
        0
    };
    let mut found: Vec<ExtractedArtifact> = origin_bound_code(&body).into_iter().collect();
    let in_subject = score_all(&subject, &subject_hits, 0);
    let in_body = score_all(&body, &cue::find_cues(&body), subject_score);
    for code in in_body.into_iter().chain(in_subject) {
        if let Some(known) = found.iter_mut().find(|known| known.value == code.value) {
            known.confidence = (known.confidence.max(code.confidence)).saturating_add(8).min(99);
            if !known.reasons.contains(&Reason::SubjectAndText) {
                known.reasons.push(Reason::SubjectAndText);
            }
        } else {
            found.push(code);
        }
    }
    found
}

/// The code in a last line `@host #code`, the format that binds codes in text messages to a site.
fn origin_bound_code(search_text: &SearchText) -> Option<ExtractedArtifact> {
    let text: String = search_text.chars.iter().collect();
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let (host, code) = line.trim().strip_prefix('@')?.split_once(" #")?;
    let code = code.split([' ', '@', '%']).next().unwrap_or_default();
    let fits =
        host.contains('.') && CODE_CHARS.contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric());
    fits.then(|| ExtractedArtifact {
        kind: Kind::Code,
        value: code.to_owned(),
        confidence: 97,
        reasons: vec![Reason::OriginBound],
    })
}

/// The code in a link's query, which the reader may never have seen.
pub(super) fn code_in_link(url: &str) -> Option<ExtractedArtifact> {
    let (_, query) = url.split_once('?')?;
    let value = query.split(['&', '#']).find_map(|pair| {
        pair.split_once('=').filter(|(name, _)| ["code", "otp", "pin"].contains(name)).map(|(_, value)| value)
    })?;
    let fits = CODE_DIGITS.contains(&value.len()) && value.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| ExtractedArtifact { kind: Kind::Code, value: value.to_owned(), confidence: 40, reasons: Vec::new() })
}

fn score_all(search_text: &SearchText, hits: &[CueMatch], subject_score: i32) -> Vec<ExtractedArtifact> {
    let shapes = shape::find_shapes(search_text);
    let mut found: Vec<ExtractedArtifact> = Vec::new();
    for shape in &shapes {
        let Some((score, reasons)) = score_shape(search_text, hits, &shapes, shape, subject_score) else { continue };
        let confidence = score.clamp(0, 99) as u8;
        let new = ExtractedArtifact { kind: Kind::Code, value: shape.value.clone(), confidence, reasons };
        match found.iter_mut().find(|known| known.value == new.value) {
            Some(known) if known.confidence >= new.confidence => {}
            Some(known) => *known = new,
            None => found.push(new),
        }
    }
    found
}

fn score_shape(
    search_text: &SearchText,
    hits: &[CueMatch],
    shapes: &[CodeShape],
    shape: &CodeShape,
    subject_score: i32,
) -> Option<(i32, Vec<Reason>)> {
    let position = shape.position;
    let Label { cue, gap, is_after } = find_label(search_text, hits, shapes, shape)?;
    let adjacent = is_adjacent(&gap);
    let mut reasons = Vec::new();
    let mut score = subject_score;
    match cue.kind {
        CueKind::Code => {
            score += 55;
            reasons.push(if is_after { Reason::LabelAfter } else { Reason::LabelBefore });
        }
        CueKind::Hint => {
            score += 25;
            reasons.push(Reason::WeakLabel);
        }
        CueKind::Other | CueKind::Mention => {
            score -= 50;
            reasons.push(Reason::OtherLabel);
        }
    }
    let mut add = |holds: bool, points: i32, reason: Reason| {
        if holds {
            score += points;
            reasons.push(reason);
        }
    };
    let strong = cue.kind == CueKind::Code;
    // Six digits are rarely anything else. Other numbers must be right beside the label.
    let six = shape.value.len() == TYPICAL_CODE_DIGITS && !shape.has_letters;
    let beside = adjacent && (six || shape.has_letters || position != LinePosition::Inline || is_direct(&gap));
    add(beside && strong, 20, Reason::Adjacent);
    add(position == LinePosition::Alone, 25, Reason::OwnLine);
    add(position == LinePosition::LineStart && !adjacent, 10, Reason::LineStart);
    add(six, 10, Reason::SixDigits);
    add(subject_score == 10, 0, Reason::SubjectLabel);
    add(shape.is_grouped, 0, Reason::Grouped);
    add(shape.has_prefix, 5, Reason::Prefixed);
    add(shape.has_letters, 0, Reason::Letters);
    add(shape.has_number_sign, -25, Reason::NumberSign);
    add(shape.has_letters && is_promo_code(&shape.value), -30, Reason::WordLike);
    let tight = strong && (is_direct(&gap) || position == LinePosition::Alone);
    add(is_date(&shape.value) && !tight, -35, Reason::DateLike);
    // Values with letters and long numbers could be anything, so they need a label right beside them.
    let needs_label = shape.has_letters || shape.value.len() > *CODE_DIGITS.end();
    let close = strong && (adjacent || position == LinePosition::Alone);
    if needs_label && !close || shape.is_grouped && !strong || shape.has_letters && !is_code_word(shape, position, &gap)
    {
        return None;
    }
    Some((score, reasons))
}

/// Without digits, or with lower-case letters, a value is a code only if it is alone on its line or follows a colon.
fn is_code_word(shape: &CodeShape, position: LinePosition, gap: &str) -> bool {
    let digits = shape.value.bytes().any(|b| b.is_ascii_digit());
    let lower = shape.value.bytes().any(|b| b.is_ascii_lowercase());
    let colon = gap.trim_end().ends_with([':', '：']);
    if digits && !lower { true } else { position == LinePosition::Alone || colon }
}

/// Whether a value is a word followed by a number, such as `SAVE20`: a memorable shop coupon.
fn is_promo_code(value: &str) -> bool {
    let letters = value.bytes().take_while(u8::is_ascii_alphabetic).count();
    let rest = &value[letters..];
    letters >= 3
        && !rest.is_empty()
        && rest.len() <= 4
        && rest.bytes().all(|b| b.is_ascii_digit())
        && letters >= rest.len() - 1
}

fn is_date(value: &str) -> bool {
    let year = |text: &str| text.starts_with("19") || text.starts_with("20");
    let part = |from: usize, to: usize| value.get(from..to).and_then(|text| text.parse::<u32>().ok()).unwrap_or(99);
    match value.len() {
        YEAR_DIGITS => year(value),
        DATE_DIGITS => year(value) && (1..=12).contains(&part(4, 6)) && (1..=31).contains(&part(6, 8)),
        _ => false,
    }
}
