//! What the rig asked and was told: each call with its wish and its end.

use crate::harness::generated_send::{GeneratedSend, SendKind};
use crate::harness::ledger_snapshot::{LedgerSnapshot, TEAM};
use crate::proof;
use crate::proof::history::{CallKind, CallRecord as Judged, ExpectedEmail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub use crate::proof::history::CallOutcome;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendCall {
    /// What it asked for.
    pub send: GeneratedSend,
    /// How it ended.
    pub outcome: CallOutcome,
}

/// All calls in the order in which they began.
#[derive(Debug, Clone, Default)]
pub struct SendHistory {
    /// The calls.
    pub calls: Vec<SendCall>,
}

/// What the calls came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Calls with a `2xx`.
    pub answered: u64,
    /// Calls without an answer.
    pub unknown: u64,
    /// Calls with another answer.
    pub refused: u64,
}

impl SendHistory {
    /// Notes that a call begins, and says under which number.
    pub fn begin_call(&mut self, wish: GeneratedSend) -> usize {
        self.calls.push(SendCall { send: wish, outcome: CallOutcome::Info });
        self.calls.len() - 1
    }

    /// Notes how a call ended.
    pub fn end_call(&mut self, call: usize, end: CallOutcome) {
        if let Some(call) = self.calls.get_mut(call) {
            call.outcome = end;
        }
    }

    /// The wishes of the calls from number `from` on, each once.
    pub fn sends_since(&self, from: usize) -> BTreeSet<GeneratedSend> {
        self.calls.iter().skip(from).map(|call| call.send).collect()
    }

    /// The wishes that no answer was ever given to.
    pub fn unanswered(&self) -> BTreeSet<GeneratedSend> {
        let mut open = self.sends_since(0);
        for call in &self.calls {
            if matches!(call.outcome, CallOutcome::Ok { .. }) {
                open.remove(&call.send);
            }
        }
        open
    }

    /// The calls of each wish.
    pub fn calls_by_send(&self) -> BTreeMap<GeneratedSend, Vec<&SendCall>> {
        let mut all: BTreeMap<GeneratedSend, Vec<&SendCall>> = BTreeMap::new();
        for call in &self.calls {
            all.entry(call.send).or_default().push(call);
        }
        all
    }

    /// These calls and what the server shows, as the judge wants them. Events may come behind the emails they tell of,
    /// so they are judged only in the end.
    pub fn to_checker_history(&self, ledger: &LedgerSnapshot, healed: bool) -> proof::History {
        let calls = (1..).zip(&self.calls).map(|(at, call)| Judged {
            ended: Some(at),
            key: Some(call.send.to_string()),
            wanted: call.send.recipients().into_iter().map(|to| ExpectedEmail { to: vec![to], body: 0 }).collect(),
            end: call.outcome.clone(),
            ..Judged::new(at, TEAM, if call.send.kind == SendKind::Batch { CallKind::Batch } else { CallKind::Send })
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
    pub fn counts(&self) -> CallCounts {
        let mut counts = CallCounts::default();
        for call in &self.calls {
            match call.outcome {
                CallOutcome::Ok { .. } => counts.answered += 1,
                CallOutcome::Info => counts.unknown += 1,
                CallOutcome::Fail { .. } => counts.refused += 1,
            }
        }
        counts
    }
}

/// What an answer to a wish means. An answer that says less than it must is a refusal with a word of our own.
pub fn classify_response(wish: &GeneratedSend, status: u16, body: &[u8]) -> CallOutcome {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    if !matches!(status, 200 | 202) {
        let code = value["code"].as_str().unwrap_or("no_code").to_owned();
        return CallOutcome::Fail { status, code };
    }
    let one = std::slice::from_ref(&value);
    let data = match wish.kind {
        SendKind::Batch => value["data"].as_array().map_or(&[][..], Vec::as_slice),
        SendKind::Single | SendKind::Intent => one,
    };
    let ids: Vec<_> = data.iter().filter_map(|email| email["id"].as_str()).map(str::to_owned).collect();
    let first = status == 202;
    let word = if first { "first" } else { "replayed" };
    let said_so = data.iter().all(|email| email["dedupe"]["outcome"] == word);
    if ids.len() != wish.email_count() || !said_so {
        let code = "answer_without_all_ids_or_outcome".to_owned();
        return CallOutcome::Fail { status, code };
    }
    CallOutcome::Ok { first, ids }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_answered_without_an_item_is_no_answer() {
        let batch = GeneratedSend { cycle: 0, n: 2, kind: SendKind::Batch };
        let email = r#"{"id":"a","dedupe":{"outcome":"first"}}"#;
        let body = |items: usize| format!(r#"{{"data":[{}]}}"#, vec![email; items].join(","));
        assert!(matches!(classify_response(&batch, 202, body(20).as_bytes()), CallOutcome::Ok { first: true, .. }));
        assert!(matches!(classify_response(&batch, 202, body(19).as_bytes()), CallOutcome::Fail { .. }));
        assert!(matches!(classify_response(&batch, 200, body(20).as_bytes()), CallOutcome::Fail { .. }));
    }

    #[test]
    fn a_wish_that_was_answered_and_is_not_there_is_lost() {
        let wish = GeneratedSend { cycle: 0, n: 0, kind: SendKind::Single };
        let mut history = SendHistory::default();
        let call = history.begin_call(wish);
        history.end_call(call, CallOutcome::Ok { first: true, ids: vec!["gone".into()] });
        let found = proof::check(&history.to_checker_history(&LedgerSnapshot::default(), false));
        assert_eq!(found.iter().map(|found| found.rule).collect::<Vec<_>>(), [proof::Rule::Lost]);
    }
}
