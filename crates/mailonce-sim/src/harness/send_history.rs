//! The recorded calls of a load, each with its send and its outcome.

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
    /// The send.
    pub send: GeneratedSend,
    /// The outcome.
    pub outcome: CallOutcome,
}

/// All calls in the order in which they started.
#[derive(Debug, Clone, Default)]
pub struct SendHistory {
    /// The calls.
    pub calls: Vec<SendCall>,
}

/// Calls by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Calls with a `2xx`.
    pub answered: u64,
    /// Calls without a reply.
    pub unknown: u64,
    /// Calls with any other reply.
    pub refused: u64,
}

impl SendHistory {
    /// Records the start of a call and returns its index.
    pub fn begin_call(&mut self, send: GeneratedSend) -> usize {
        self.calls.push(SendCall { send, outcome: CallOutcome::Info });
        self.calls.len() - 1
    }

    /// Records the outcome of a call.
    pub fn end_call(&mut self, call: usize, end: CallOutcome) {
        if let Some(call) = self.calls.get_mut(call) {
            call.outcome = end;
        }
    }

    /// The distinct sends of the calls from index `from` on.
    pub fn sends_since(&self, from: usize) -> BTreeSet<GeneratedSend> {
        self.calls.iter().skip(from).map(|call| call.send).collect()
    }

    /// The sends that never got a `2xx`.
    pub fn unanswered(&self) -> BTreeSet<GeneratedSend> {
        let mut open = self.sends_since(0);
        for call in &self.calls {
            if matches!(call.outcome, CallOutcome::Ok { .. }) {
                open.remove(&call.send);
            }
        }
        open
    }

    /// The calls of each send.
    pub fn calls_by_send(&self) -> BTreeMap<GeneratedSend, Vec<&SendCall>> {
        let mut all: BTreeMap<GeneratedSend, Vec<&SendCall>> = BTreeMap::new();
        for call in &self.calls {
            all.entry(call.send).or_default().push(call);
        }
        all
    }

    /// These calls and the ledger as a history for the checker. Events may lag behind their emails, so they are
    /// included only when `healed` is set.
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

    /// The calls by outcome.
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

/// What a response to an API call means. A `2xx` without an id for each of `emails` counts as a failure.
pub fn classify_reply(status: u16, body: &Value, emails: usize) -> CallOutcome {
    if !matches!(status, 200..=202) {
        let code = body["code"].as_str().unwrap_or("no_code").to_owned();
        return CallOutcome::Fail { status, code };
    }
    let rows = body["data"].as_array().map_or(std::slice::from_ref(body), Vec::as_slice);
    let ids: Vec<String> = rows.iter().filter_map(|row| row["id"].as_str()).map(str::to_owned).collect();
    if emails > 0 && ids.len() != emails {
        return CallOutcome::Fail { status, code: "answer_without_all_ids".to_owned() };
    }
    CallOutcome::Ok { first: status == 202, ids }
}

/// What a response to a send means. Its status must agree with `dedupe.outcome` of each email.
pub fn classify_send_reply(send: &GeneratedSend, status: u16, body: &Value) -> CallOutcome {
    let outcome = classify_reply(status, body, send.email_count());
    let CallOutcome::Ok { first, .. } = outcome else { return outcome };
    let expected = if first { "first" } else { "replayed" };
    let rows = body["data"].as_array().map_or(std::slice::from_ref(body), Vec::as_slice);
    if rows.iter().any(|email| email["dedupe"]["outcome"] != expected) {
        return CallOutcome::Fail { status, code: "status_contradicts_outcome".to_owned() };
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_answered_without_an_item_is_no_answer() {
        let batch = GeneratedSend { cycle: 0, n: 2, kind: SendKind::Batch };
        let email = r#"{"id":"a","dedupe":{"outcome":"first"}}"#;
        let body = |items: usize| -> Value {
            serde_json::from_str(&format!(r#"{{"data":[{}]}}"#, vec![email; items].join(","))).unwrap()
        };
        assert!(matches!(classify_send_reply(&batch, 202, &body(20)), CallOutcome::Ok { first: true, .. }));
        assert!(matches!(classify_send_reply(&batch, 202, &body(19)), CallOutcome::Fail { .. }));
        assert!(matches!(classify_send_reply(&batch, 200, &body(20)), CallOutcome::Fail { .. }));
    }

    #[test]
    fn an_acknowledged_send_without_an_email_is_lost() {
        let send = GeneratedSend { cycle: 0, n: 0, kind: SendKind::Single };
        let mut history = SendHistory::default();
        let call = history.begin_call(send);
        history.end_call(call, CallOutcome::Ok { first: true, ids: vec!["gone".into()] });
        let found = proof::check(&history.to_checker_history(&LedgerSnapshot::default(), false));
        assert_eq!(found.iter().map(|found| found.rule).collect::<Vec<_>>(), [proof::Rule::Lost]);
    }
}
