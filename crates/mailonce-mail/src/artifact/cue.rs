//! Words that say what a number is.

use std::{collections::HashMap, sync::LazyLock};

use crate::artifact::search_text::SearchText;
use crate::unicode;

/// What a phrase says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CueKind {
    Code,
    Hint,
    Other,
    Mention,
}

/// A phrase in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct CueMatch {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) kind: CueKind,
}

struct Cue {
    kind: CueKind,
    phrase: Vec<char>,
    /// Whether it may be the end of a longer word.
    may_end_word: bool,
}

/// By their first character.
static CUES_BY_FIRST_CHAR: LazyLock<HashMap<char, Vec<Cue>>> = LazyLock::new(|| {
    let mut cues: HashMap<char, Vec<Cue>> = HashMap::new();
    for cue in include_str!("cues.txt").lines().filter_map(parse_cue) {
        cues.entry(cue.phrase[0]).or_default().push(cue);
    }
    cues
});
/// Characters of the longest phrase, at least.
const MAX_CUE_CHARS: usize = 60;

fn parse_cue(line: &str) -> Option<Cue> {
    let (kind, phrase) = line.split_once(' ')?;
    let says = match kind {
        "+" => CueKind::Code,
        "~" => CueKind::Hint,
        "-" => CueKind::Other,
        "=" => CueKind::Mention,
        _ => return None,
    };
    let inside = phrase.starts_with('*');
    Some(Cue { kind: says, phrase: phrase.trim_start_matches('*').chars().collect(), may_end_word: inside })
}

/// The phrases of a text. One that is part of a longer one of another kind does not count: a postal code is no code.
pub(super) fn find_cues(script: &SearchText) -> Vec<CueMatch> {
    let mut all: Vec<CueMatch> = Vec::new();
    for at in 0..script.lower.len() {
        let first = script.lower[at];
        for cue in CUES_BY_FIRST_CHAR.get(&first).into_iter().flatten() {
            if matches_at(script, at, cue) {
                all.push(CueMatch { start: at, end: at + cue.phrase.len(), kind: cue.kind });
            }
        }
    }
    // They are in order, and none is longer than the longest, so only the neighbours can overlap.
    let near = |hits: &[CueMatch], at: usize| {
        let first = hits.partition_point(|hit| hit.start + MAX_CUE_CHARS < hits[at].start);
        let last = hits.partition_point(|hit| hit.start < hits[at].end);
        first..last
    };
    let swallowed = |at: usize| {
        let hit = all[at];
        let larger = |other: &CueMatch| {
            other.start <= hit.start && other.end >= hit.end && other.end - other.start > hit.end - hit.start
        };
        all[near(&all, at)].iter().any(larger)
    };
    let kept: Vec<CueMatch> = (0..all.len()).filter(|at| !swallowed(*at)).map(|at| all[at]).collect();
    // `use this code` and `code expires` overlap without either holding the other.
    let crossed = |at: usize| {
        let hit = kept[at];
        let talk = |other: &CueMatch| other.kind == CueKind::Mention && other.start < hit.end && hit.start < other.end;
        hit.kind == CueKind::Code && kept[near(&kept, at)].iter().any(talk)
    };
    (0..kept.len()).filter(|at| !crossed(*at)).map(|at| kept[at]).collect()
}

fn matches_at(script: &SearchText, at: usize, cue: &Cue) -> bool {
    let end = at + cue.phrase.len();
    if script.lower.get(at..end) != Some(cue.phrase.as_slice()) {
        return false;
    }
    let latin = |c: char| c.is_alphabetic() && !unicode::is_unspaced_script(c) && u32::from(c) < 0x0590;
    let open_left = !cue.may_end_word && latin(cue.phrase[0]) && script.char_before(at).is_some_and(latin);
    // Hints are stems, and grammar adds endings to them.
    let last = cue.phrase[cue.phrase.len() - 1];
    let open_right = cue.kind != CueKind::Hint && latin(last) && script.char_at(end).is_some_and(latin);
    !open_left && !open_right
}
