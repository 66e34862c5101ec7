//! What the rig asked and was told: each call with its wish and its end.

use super::ledger::{Ledger, TEAM};
use super::wish::{Kind, Wish};
use crate::proof;
use crate::proof::history::{Call as Judged, Verb, Wanted};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub use crate::proof::history::End;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What it asked for.
    pub wish: Wish,
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
    pub fn invoke(&mut self, wish: Wish) -> usize {
        self.calls.push(Call { wish, end: End::Info });
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

    /// These calls and what the server shows, as the judge wants them. Events may come behind the emails they tell of,
    /// so they are judged only in the end.
    pub fn proof(&self, ledger: &Ledger, healed: bool) -> proof::History {
        let calls = (1..).zip(&self.calls).map(|(at, call)| Judged {
            ended: Some(at),
            key: Some(call.wish.to_string()),
            wanted: call.wish.slots().into_iter().map(|to| Wanted { to: vec![to], body: 0 }).collect(),
            end: call.end.clone(),
            ..Judged::new(at, TEAM, if call.wish.kind == Kind::Batch { Verb::Batch } else { Verb::Send })
        });
        proof::History {
            calls: calls.collect(),
            emails: ledger.emails.clone(),
            events: if healed { ledger.events.clone() } else { Vec::new() },
            healed,
            ..proof::History::default()
        }
    }

    /// What the calls came to.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for call in &self.calls {
            match call.end {
                End::Ok { .. } => counts.answered += 1,
                End::Info => counts.unknown += 1,
                End::Fail { .. } => counts.refused += 1,
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
        return End::Fail { status, code };
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
        return End::Fail { status, code };
    }
    End::Ok { first, ids }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_answered_without_an_item_is_no_answer() {
        let batch = Wish { cycle: 0, n: 2, kind: Kind::Batch };
        let email = r#"{"id":"a","dedupe":{"outcome":"first"}}"#;
        let body = |items: usize| format!(r#"{{"data":[{}]}}"#, vec![email; items].join(","));
        assert!(matches!(end_of(&batch, 202, body(20).as_bytes()), End::Ok { first: true, .. }));
        assert!(matches!(end_of(&batch, 202, body(19).as_bytes()), End::Fail { .. }));
        assert!(matches!(end_of(&batch, 200, body(20).as_bytes()), End::Fail { .. }));
    }

    #[test]
    fn a_wish_that_was_answered_and_is_not_there_is_lost() {
        let wish = Wish { cycle: 0, n: 0, kind: Kind::Single };
        let mut history = History::default();
        let call = history.invoke(wish);
        history.end(call, End::Ok { first: true, ids: vec!["gone".into()] });
        let found = proof::check(&history.proof(&Ledger::default(), false));
        assert_eq!(found.iter().map(|found| found.rule).collect::<Vec<_>>(), [proof::Rule::Lost]);
    }
}
