//! How sure it is that a number is the code, and why.

use super::{
    ExtractedArtifact, Kind, Reason,
    cue::{self, CueKind, CueMatch},
    label::{find_label, is_adjacent, is_direct},
    shape::{self, CodeShape, LinePosition},
};
use crate::artifact::search_text::SearchText;

/// Codes of a subject and a text, each value once.
pub(super) fn score_codes(subject: &str, text: &str) -> Vec<ExtractedArtifact> {
    let subject = SearchText::new(subject);
    let body = SearchText::new(text);
    let subject_hits = cue::find_cues(&subject);
    let about = |says: CueKind| subject_hits.iter().any(|hit| hit.kind == says);
    let topic = if about(CueKind::Code) {
        10
    } else if about(CueKind::Hint) && !about(CueKind::Other) {
        5
    } else {
        0
    };
    let mut found: Vec<ExtractedArtifact> = origin_bound_code(&body).into_iter().collect();
    let in_subject = score_all(&subject, &subject_hits, 0);
    let in_body = score_all(&body, &cue::find_cues(&body), topic);
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

/// A last line `@host #code`, as text messages bind a code to a site.
fn origin_bound_code(script: &SearchText) -> Option<ExtractedArtifact> {
    let text: String = script.chars.iter().collect();
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let (host, code) = line.trim().strip_prefix('@')?.split_once(" #")?;
    let code = code.split([' ', '@', '%']).next().unwrap_or_default();
    let fits = host.contains('.') && (4..=12).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric());
    fits.then(|| ExtractedArtifact {
        kind: Kind::Code,
        value: code.to_owned(),
        confidence: 97,
        reasons: vec![Reason::OriginBound],
    })
}

/// The code in a link's query, which its reader may never have seen.
pub(super) fn code_in_link(url: &str) -> Option<ExtractedArtifact> {
    let (_, query) = url.split_once('?')?;
    let value = query.split(['&', '#']).find_map(|pair| {
        pair.split_once('=').filter(|(name, _)| ["code", "otp", "pin"].contains(name)).map(|(_, value)| value)
    })?;
    let fits = (4..=8).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| ExtractedArtifact { kind: Kind::Code, value: value.to_owned(), confidence: 40, reasons: Vec::new() })
}

fn score_all(script: &SearchText, hits: &[CueMatch], topic: i32) -> Vec<ExtractedArtifact> {
    let shapes = shape::find_shapes(script);
    let mut found: Vec<ExtractedArtifact> = Vec::new();
    for shape in &shapes {
        let Some((score, reasons)) = score_shape(script, hits, &shapes, shape, topic) else { continue };
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
    script: &SearchText,
    hits: &[CueMatch],
    shapes: &[CodeShape],
    shape: &CodeShape,
    topic: i32,
) -> Option<(i32, Vec<Reason>)> {
    let stand = shape.position;
    let (hit, gap, after) = find_label(script, hits, shapes, shape)?;
    let near = is_adjacent(&gap);
    let mut reasons = Vec::new();
    let mut score = topic;
    match hit.kind {
        CueKind::Code => {
            score += 55;
            reasons.push(if after { Reason::LabelAfter } else { Reason::LabelBefore });
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
    let strong = hit.kind == CueKind::Code;
    // Six digits are hardly ever anything else; other numbers must stand right beside the word.
    let six = shape.value.len() == 6 && !shape.has_letters;
    let beside = near && (six || shape.has_letters || stand != LinePosition::Inline || is_direct(&gap));
    add(beside && strong, 20, Reason::Adjacent);
    add(stand == LinePosition::Alone, 25, Reason::OwnLine);
    add(stand == LinePosition::LineStart && !near, 10, Reason::LineStart);
    add(six, 10, Reason::SixDigits);
    add(topic == 10, 0, Reason::SubjectLabel);
    add(shape.is_grouped, 0, Reason::Grouped);
    add(shape.has_prefix, 5, Reason::Prefixed);
    add(shape.has_letters, 0, Reason::Letters);
    add(shape.has_number_sign, -25, Reason::NumberSign);
    add(shape.has_letters && is_promo_code(&shape.value), -30, Reason::WordLike);
    let tight = strong && (is_direct(&gap) || stand == LinePosition::Alone);
    add(is_date(&shape.value) && !tight, -35, Reason::DateLike);
    // Letters and long runs could be anything: only a label right beside them makes them a code.
    let odd = shape.has_letters || shape.value.len() > 8;
    let close = strong && (near || stand == LinePosition::Alone);
    if odd && !close || shape.is_grouped && !strong || shape.has_letters && !is_code_word(shape, stand, &gap) {
        return None;
    }
    Some((score, reasons))
}

/// Words in capitals are codes only where nothing else could stand.
fn is_code_word(shape: &CodeShape, stand: LinePosition, gap: &str) -> bool {
    let digits = shape.value.bytes().any(|b| b.is_ascii_digit());
    let lower = shape.value.bytes().any(|b| b.is_ascii_lowercase());
    let colon = gap.trim_end().ends_with([':', '：']);
    if digits && !lower { true } else { stand == LinePosition::Alone || colon }
}

/// A word with a number behind it, such as `SAVE20`, was made to be remembered: shops do that.
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
        4 => year(value),
        8 => year(value) && (1..=12).contains(&part(4, 6)) && (1..=31).contains(&part(6, 8)),
        _ => false,
    }
}
