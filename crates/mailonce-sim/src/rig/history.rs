//! What the rig asked and was told: each call with its wish, the hash of its body, and its end.

use super::wish::{Kind, Wish};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// No answer came: it may have happened or not.
    Unknown,
    /// `202` or `200`, with the ids in order.
    Ok {
        /// Whether this call made the emails.
        first: bool,
        /// One id per email of the wish.
        ids: Vec<String>,
    },
    /// Any other answer.
    Refused {
        /// The status.
        status: u16,
        /// The word to branch on.
        code: String,
    },
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What it asked for.
    pub wish: Wish,
    /// The hash of the body that it sent.
    pub body: u64,
    /// How it ended.
    pub end: End,
}

/// All calls in the order in which they began.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The calls.
    pub calls: Vec<Call>,
}

/// What the calls came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls with a `2xx`.
    pub answered: u64,
    /// Calls without an answer.
    pub unknown: u64,
    /// Calls with another answer.
    pub refused: u64,
}

impl History {
    /// Notes that a call begins, and says under which number.
    pub fn invoke(&mut self, wish: Wish, body: u64) -> usize {
        let end = End::Unknown;
        self.calls.push(Call { wish, body, end });
        self.calls.len() - 1
    }

    /// Notes how a call ended.
    pub fn end(&mut self, call: usize, end: End) {
        if let Some(call) = self.calls.get_mut(call) {
            call.end = end;
        }
    }

    /// The wishes of the calls from number `from` on, each once.
    pub fn wishes(&self, from: usize) -> BTreeSet<Wish> {
        self.calls.iter().skip(from).map(|call| call.wish).collect()
    }

    /// The wishes that no answer was ever given to.
    pub fn open(&self) -> BTreeSet<Wish> {
        let mut open = self.wishes(0);
        for call in &self.calls {
            if matches!(call.end, End::Ok { .. }) {
                open.remove(&call.wish);
            }
        }
        open
    }

    /// The calls of each wish.
    pub fn by_wish(&self) -> BTreeMap<Wish, Vec<&Call>> {
        let mut all: BTreeMap<Wish, Vec<&Call>> = BTreeMap::new();
        for call in &self.calls {
            all.entry(call.wish).or_default().push(call);
        }
        all
    }

    /// What the calls came to.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for call in &self.calls {
            match call.end {
                End::Ok { .. } => counts.answered += 1,
                End::Unknown => counts.unknown += 1,
                End::Refused { .. } => counts.refused += 1,
            }
        }
        counts
    }
}

/// What an answer to a wish means. An answer that says less than it must is a refusal with a word of our own.
pub fn end_of(wish: &Wish, status: u16, body: &[u8]) -> End {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    if !matches!(status, 200 | 202) {
        let code = value["code"].as_str().unwrap_or("no_code").to_owned();
        return End::Refused { status, code };
    }
    let one = std::slice::from_ref(&value);
    let data = match wish.kind {
        Kind::Batch => value["data"].as_array().map_or(&[][..], Vec::as_slice),
        Kind::Single | Kind::Intent => one,
    };
    let ids: Vec<_> = data.iter().filter_map(|email| email["id"].as_str()).map(str::to_owned).collect();
    let first = status == 202;
    let word = if first { "first" } else { "replayed" };
    let said_so = data.iter().all(|email| email["dedupe"]["outcome"] == word);
    if ids.len() != wish.size() || !said_so {
        let code = "answer_without_all_ids_or_outcome".to_owned();
        return End::Refused { status, code };
    }
    End::Ok { first, ids }
}
