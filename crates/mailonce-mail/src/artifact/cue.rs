//! Words that say what a number is.

use std::{collections::HashMap, sync::LazyLock};

use super::script::Script;
use crate::glyph;

/// What a phrase says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Code,
    Hint,
    Other,
    Talk,
}

/// A phrase in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) says: Says,
}

struct Cue {
    says: Says,
    words: Vec<char>,
    /// Whether it may be the end of a longer word.
    inside: bool,
}

/// By their first character.
static CUES: LazyLock<HashMap<char, Vec<Cue>>> = LazyLock::new(|| {
    let mut cues: HashMap<char, Vec<Cue>> = HashMap::new();
    for cue in include_str!("cues.txt").lines().filter_map(cue) {
        cues.entry(cue.words[0]).or_default().push(cue);
    }
    cues
});
/// Characters of the longest phrase, at least.
const LONGEST: usize = 60;

fn cue(line: &str) -> Option<Cue> {
    let (kind, phrase) = line.split_once(' ')?;
    let says = match kind {
        "+" => Says::Code,
        "~" => Says::Hint,
        "-" => Says::Other,
        "=" => Says::Talk,
        _ => return None,
    };
    let inside = phrase.starts_with('*');
    Some(Cue { says, words: phrase.trim_start_matches('*').chars().collect(), inside })
}

/// The phrases of a text. One that is part of a longer one of another kind does not count: a postal code is no code.
pub(super) fn hits(script: &Script) -> Vec<Hit> {
    let mut all: Vec<Hit> = Vec::new();
    for at in 0..script.lower.len() {
        let first = script.lower[at];
        for cue in CUES.get(&first).into_iter().flatten() {
            if stands(script, at, cue) {
                all.push(Hit { start: at, end: at + cue.words.len(), says: cue.says });
            }
        }
    }
    // They are in order, and none is longer than the longest, so only the neighbours can overlap.
    let near = |hits: &[Hit], at: usize| {
        let first = hits.partition_point(|hit| hit.start + LONGEST < hits[at].start);
        let last = hits.partition_point(|hit| hit.start < hits[at].end);
        first..last
    };
    let swallowed = |at: usize| {
        let hit = all[at];
        let larger = |other: &Hit| {
            other.start <= hit.start && other.end >= hit.end && other.end - other.start > hit.end - hit.start
        };
        all[near(&all, at)].iter().any(larger)
    };
    let kept: Vec<Hit> = (0..all.len()).filter(|at| !swallowed(*at)).map(|at| all[at]).collect();
    // `use this code` and `code expires` overlap without either holding the other.
    let crossed = |at: usize| {
        let hit = kept[at];
        let talk = |other: &Hit| other.says == Says::Talk && other.start < hit.end && hit.start < other.end;
        hit.says == Says::Code && kept[near(&kept, at)].iter().any(talk)
    };
    (0..kept.len()).filter(|at| !crossed(*at)).map(|at| kept[at]).collect()
}

fn stands(script: &Script, at: usize, cue: &Cue) -> bool {
    let end = at + cue.words.len();
    if script.lower.get(at..end) != Some(cue.words.as_slice()) {
        return false;
    }
    let latin = |c: char| c.is_alphabetic() && !glyph::is_ideograph(c) && u32::from(c) < 0x0590;
    let open_left = !cue.inside && latin(cue.words[0]) && script.before(at).is_some_and(latin);
    // Hints are stems, and grammar adds endings to them.
    let last = cue.words[cue.words.len() - 1];
    let open_right = cue.says != Says::Hint && latin(last) && script.at(end).is_some_and(latin);
    !open_left && !open_right
}
