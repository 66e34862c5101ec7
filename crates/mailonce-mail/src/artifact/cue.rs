//! Phrases that say what a number is.

use std::{collections::HashMap, sync::LazyLock};

use crate::artifact::search_text::SearchText;
use crate::unicode;

/// What a phrase says about a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CueKind {
    Code,
    Hint,
    Other,
    Mention,
}

/// An occurrence of a phrase in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct CueMatch {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) kind: CueKind,
}

struct Cue {
    kind: CueKind,
    phrase: Vec<char>,
    /// Whether the phrase may be the end of a longer word.
    may_end_word: bool,
}

/// Phrases, indexed by their first character.
static CUES_BY_FIRST_CHAR: LazyLock<HashMap<char, Vec<Cue>>> = LazyLock::new(|| {
    let mut cues: HashMap<char, Vec<Cue>> = HashMap::new();
    for cue in include_str!("cues.txt").lines().filter_map(parse_cue_line) {
        cues.entry(cue.phrase[0]).or_default().push(cue);
    }
    cues
});
/// Upper bound for the characters of a phrase.
const MAX_CUE_CHARS: usize = 60;

fn parse_cue_line(line: &str) -> Option<Cue> {
    let (marker, phrase) = line.split_once(' ')?;
    let kind = match marker {
        "+" => CueKind::Code,
        "~" => CueKind::Hint,
        "-" => CueKind::Other,
        "=" => CueKind::Mention,
        _ => return None,
    };
    let may_end_word = phrase.starts_with('*');
    Some(Cue { kind, phrase: phrase.trim_start_matches('*').chars().collect(), may_end_word })
}

/// Finds the phrases in a text. A phrase inside a longer one does not count: a postal code is not a code.
pub(super) fn find_cues(search_text: &SearchText) -> Vec<CueMatch> {
    let mut all: Vec<CueMatch> = Vec::new();
    for at in 0..search_text.lower.len() {
        let first = search_text.lower[at];
        for cue in CUES_BY_FIRST_CHAR.get(&first).into_iter().flatten() {
            if matches_at(search_text, at, cue) {
                all.push(CueMatch { start: at, end: at + cue.phrase.len(), kind: cue.kind });
            }
        }
    }
    // The matches are sorted by position and bounded in length, so only neighbours can overlap.
    let neighbours = |hits: &[CueMatch], at: usize| {
        let first = hits.partition_point(|hit| hit.start + MAX_CUE_CHARS < hits[at].start);
        let last = hits.partition_point(|hit| hit.start < hits[at].end);
        first..last
    };
    let is_contained = |at: usize| {
        let hit = all[at];
        let larger = |other: &CueMatch| {
            other.start <= hit.start && other.end >= hit.end && other.end - other.start > hit.end - hit.start
        };
        all[neighbours(&all, at)].iter().any(larger)
    };
    let kept: Vec<CueMatch> = (0..all.len()).filter(|at| !is_contained(*at)).map(|at| all[at]).collect();
    // `use this code` and `code expires` overlap without one containing the other.
    let overlaps_mention = |at: usize| {
        let hit = kept[at];
        let is_mention =
            |other: &CueMatch| other.kind == CueKind::Mention && other.start < hit.end && hit.start < other.end;
        hit.kind == CueKind::Code && kept[neighbours(&kept, at)].iter().any(is_mention)
    };
    (0..kept.len()).filter(|at| !overlaps_mention(*at)).map(|at| kept[at]).collect()
}

fn matches_at(search_text: &SearchText, at: usize, cue: &Cue) -> bool {
    let end = at + cue.phrase.len();
    if search_text.lower.get(at..end) != Some(cue.phrase.as_slice()) {
        return false;
    }
    let latin = |c: char| c.is_alphabetic() && !unicode::is_unspaced_script(c) && u32::from(c) < 0x0590;
    let open_left = !cue.may_end_word && latin(cue.phrase[0]) && search_text.char_before(at).is_some_and(latin);
    // Hints are word stems, which take inflectional endings.
    let last = cue.phrase[cue.phrase.len() - 1];
    let open_right = cue.kind != CueKind::Hint && latin(last) && search_text.char_at(end).is_some_and(latin);
    !open_left && !open_right
}
