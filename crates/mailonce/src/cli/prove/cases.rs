//! The questions. Each sends under fresh keys, says what it saw, and how many mails must come of it.

use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::cli::http_client::Call;
use crate::cli::prove::{
    call_result::CallResult,
    client::{DisconnectPoint, ProveClient},
};

/// How long before the answer a caller hangs up, one mail each: while the server reads, works and answers.
const HANG_UPS_MS: [u64; 4] = [0, 2, 10, 50];
/// Mails of a batch.
const BATCH_SIZE: usize = 3;
/// The longest key.
const MAX_KEY_CHARS: usize = 256;

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProveCase {
    SameKeyTwice,
    DifferentKeys,
    ConcurrentCalls,
    KeyReusedForOtherBody,
    RetryAfterRefusal,
    DisconnectAfterHead,
    DisconnectMidBody,
    DisconnectBeforeResponse,
    SameBatchTwice,
    KeyReusedForOtherBatch,
    KeyAcrossSendAndBatch,
    LongKey,
    EmptyKey,
    QuotedKey,
}

/// What came of a question.
#[derive(Debug)]
pub(super) struct CaseResult {
    pub(super) passed: bool,
    pub(super) observed: String,
    /// Markers, and how many mails with each must arrive.
    pub(super) expected_mails: Vec<(String, u32)>,
}

impl ProveCase {
    pub(super) const ALL: [Self; 14] = [
        Self::SameKeyTwice,
        Self::DifferentKeys,
        Self::ConcurrentCalls,
        Self::KeyReusedForOtherBody,
        Self::RetryAfterRefusal,
        Self::DisconnectAfterHead,
        Self::DisconnectMidBody,
        Self::DisconnectBeforeResponse,
        Self::SameBatchTwice,
        Self::KeyReusedForOtherBatch,
        Self::KeyAcrossSendAndBatch,
        Self::LongKey,
        Self::EmptyKey,
        Self::QuotedKey,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::SameKeyTwice => "twice",
            Self::DifferentKeys => "two_keys",
            Self::ConcurrentCalls => "race",
            Self::KeyReusedForOtherBody => "other_body",
            Self::RetryAfterRefusal => "after_refusal",
            Self::DisconnectAfterHead => "cut_head",
            Self::DisconnectMidBody => "cut_body",
            Self::DisconnectBeforeResponse => "cut_answer",
            Self::SameBatchTwice => "batch_twice",
            Self::KeyReusedForOtherBatch => "batch_other",
            Self::KeyAcrossSendAndBatch => "across",
            Self::LongKey => "long_key",
            Self::EmptyKey => "empty_key",
            Self::QuotedKey => "quoted_key",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::SameKeyTwice => "the same mail twice under one key",
            Self::DifferentKeys => "the same mail under two keys",
            Self::ConcurrentCalls => "many callers at once under one key",
            Self::KeyReusedForOtherBody => "another mail under the same key",
            Self::RetryAfterRefusal => "a key whose first request was refused",
            Self::DisconnectAfterHead => "hang up after the head, then retry",
            Self::DisconnectMidBody => "hang up in the middle of the body, then retry",
            Self::DisconnectBeforeResponse => "hang up before the answer is read, then retry",
            Self::SameBatchTwice => "the same batch twice under one key",
            Self::KeyReusedForOtherBatch => "another batch under the same key",
            Self::KeyAcrossSendAndBatch => "one key for a batch and for a single mail",
            Self::LongKey => "the longest key, and one character more",
            Self::EmptyKey => "an empty key",
            Self::QuotedKey => "a key with and without quotes",
        }
    }
}

/// Asks one question.
pub(super) async fn run_case(case: ProveCase, caller: &Arc<ProveClient>, callers: u32) -> CaseResult {
    match case {
        ProveCase::SameKeyTwice => same_key_twice(caller).await,
        ProveCase::DifferentKeys => different_keys(caller).await,
        ProveCase::ConcurrentCalls => concurrent_calls(caller, callers).await,
        ProveCase::KeyReusedForOtherBody => key_reused_for_other_body(caller).await,
        ProveCase::RetryAfterRefusal => retry_after_refusal(caller).await,
        ProveCase::DisconnectAfterHead => disconnect(caller, &[DisconnectPoint::AfterHead]).await,
        ProveCase::DisconnectMidBody => disconnect(caller, &[DisconnectPoint::MidBody]).await,
        ProveCase::DisconnectBeforeResponse => {
            disconnect(caller, &HANG_UPS_MS.map(|ms| DisconnectPoint::BeforeResponse(Duration::from_millis(ms)))).await
        }
        ProveCase::SameBatchTwice => same_batch_twice(caller).await,
        ProveCase::KeyReusedForOtherBatch => key_reused_for_other_batch(caller).await,
        ProveCase::KeyAcrossSendAndBatch => key_across_send_and_batch(caller).await,
        ProveCase::LongKey => long_key(caller).await,
        ProveCase::EmptyKey => empty_key(caller).await,
        ProveCase::QuotedKey => quoted_key(caller).await,
    }
}

/// What was answered, in order, and whether the ids were one.
fn summarize(answers: &[&CallResult]) -> String {
    let ids: BTreeSet<_> = answers.iter().filter_map(|seen| seen.ids()).collect();
    let told: Vec<String> = answers.iter().map(|seen| seen.summary()).collect();
    match ids.len() {
        0 => told.join(", "),
        1 => format!("{}; one id", told.join(", ")),
        many => format!("{}; {many} ids", told.join(", ")),
    }
}

/// The first is taken, and every later one is the same.
fn is_single_email(answers: &[&CallResult]) -> bool {
    match answers {
        [first, again @ ..] => {
            first.is_first() && again.iter().all(|seen| seen.is_replay() && seen.is_same_email(first))
        }
        [] => false,
    }
}

async fn same_key_twice(caller: &ProveClient) -> CaseResult {
    let marker = caller.marker();
    let call = caller.send(&caller.marker(), &caller.mail(&marker));
    let (first, again) = (caller.call_with_retries(&call).await, caller.call_with_retries(&call).await);
    CaseResult {
        passed: is_single_email(&[&first, &again]),
        observed: summarize(&[&first, &again]),
        expected_mails: vec![(marker, 1)],
    }
}

/// Without this question a server that always answers the same would pass.
async fn different_keys(caller: &ProveClient) -> CaseResult {
    let marker = caller.marker();
    let mail = caller.mail(&marker);
    let one = caller.call_with_retries(&caller.send(&caller.marker(), &mail)).await;
    let other = caller.call_with_retries(&caller.send(&caller.marker(), &mail)).await;
    let held = one.is_first() && other.is_first() && !one.is_same_email(&other);
    CaseResult { passed: held, observed: summarize(&[&one, &other]), expected_mails: vec![(marker, 2)] }
}

async fn concurrent_calls(caller: &Arc<ProveClient>, callers: u32) -> CaseResult {
    let marker = caller.marker();
    let call = caller.send(&caller.marker(), &caller.mail(&marker));
    let (answers, again) = caller.call_concurrently(&call, callers).await;
    let after = caller.call_with_retries(&call).await;
    let ids: BTreeSet<_> = answers.iter().chain([&after]).filter_map(CallResult::ids).collect();
    let taken = answers.iter().filter(|seen| seen.ids().is_some()).count();
    // Where the dialect tells who was the first, there must be one.
    let firsts =
        answers.iter().filter(|seen| matches!(seen, CallResult::Accepted { replayed: Some(false), .. })).count();
    let tells = answers.iter().any(|seen| matches!(seen, CallResult::Accepted { replayed: Some(_), .. }));
    let held = ids.len() == 1 && taken == answers.len() && after.is_replay() && (!tells || firsts == 1);
    let mut told = vec![format!("{taken} of {} callers taken", answers.len()), format!("ids: {}", ids.len())];
    told.extend(tells.then(|| format!("firsts: {firsts}")));
    told.extend((again > 0).then(|| format!("{again} had to ask again")));
    told.extend(answers.iter().find(|seen| seen.ids().is_none()).map(CallResult::summary));
    let seen = told.join("; ");
    CaseResult { passed: held, observed: seen, expected_mails: vec![(marker, 1)] }
}

async fn key_reused_for_other_body(caller: &ProveClient) -> CaseResult {
    let (marker, other, key) = (caller.marker(), caller.marker(), caller.marker());
    let call = caller.send(&key, &caller.mail(&marker));
    let first = caller.call_with_retries(&call).await;
    let refused = caller.call_without_busy_retry(&caller.send(&key, &caller.mail(&other))).await;
    let again = caller.call_with_retries(&call).await;
    let held = is_single_email(&[&first, &again]) && matches!(refused, CallResult::KeyMismatch(_));
    CaseResult {
        passed: held,
        observed: summarize(&[&first, &refused, &again]),
        expected_mails: vec![(marker, 1), (other, 0)],
    }
}

async fn retry_after_refusal(caller: &ProveClient) -> CaseResult {
    let (marker, key) = (caller.marker(), caller.marker());
    // Nobody to send it to and nothing to say: no dialect takes that.
    let refused = caller.call_without_busy_retry(&caller.send(&key, &json!({}))).await;
    let call = caller.send(&key, &caller.mail(&marker));
    let first = caller.call_without_busy_retry(&call).await;
    let again = caller.call_without_busy_retry(&call).await;
    let held = matches!(refused, CallResult::Refused(..)) && is_single_email(&[&first, &again]);
    CaseResult { passed: held, observed: summarize(&[&refused, &first, &again]), expected_mails: vec![(marker, 1)] }
}

async fn disconnect(caller: &ProveClient, cuts: &[DisconnectPoint]) -> CaseResult {
    let (mut held, mut seen, mut mails) = (true, Vec::new(), Vec::new());
    for cut in cuts {
        let marker = caller.marker();
        let call = caller.send(&caller.marker(), &caller.mail(&marker));
        if let Err(error) = caller.call_and_disconnect(&call, *cut).await {
            (held, seen) = (false, vec![format!("could not begin: {error:#}")]);
            break;
        }
        let (retry, again) = (caller.call_with_retries(&call).await, caller.call_with_retries(&call).await);
        held &= retry.ids().is_some() && again.is_replay() && again.is_same_email(&retry);
        seen.push(summarize(&[&retry, &again]));
        mails.push((marker, 1));
    }
    seen.sort();
    seen.dedup();
    CaseResult { passed: held, observed: seen.join(" / "), expected_mails: mails }
}

/// Some mails with their markers, each to arrive once.
fn make_batch(caller: &ProveClient) -> (Vec<Value>, Vec<(String, u32)>) {
    let markers: Vec<String> = (0..BATCH_SIZE).map(|_| caller.marker()).collect();
    let mails = markers.iter().map(|marker| caller.mail(marker)).collect();
    (mails, markers.into_iter().map(|marker| (marker, 1)).collect())
}

/// A dialect without batches was not asked.
fn batch_unsupported() -> CaseResult {
    CaseResult { passed: false, observed: "not asked".into(), expected_mails: Vec::new() }
}

async fn same_batch_twice(caller: &ProveClient) -> CaseResult {
    let (mails, wanted) = make_batch(caller);
    let Some(call) = caller.batch(&caller.marker(), &mails) else { return batch_unsupported() };
    let (first, again) = (caller.call_with_retries(&call).await, caller.call_with_retries(&call).await);
    let ids: BTreeSet<_> = first.ids().unwrap_or_default().iter().collect();
    let whole = ids.len() == BATCH_SIZE && first.ids().is_some_and(|ids| ids.len() == BATCH_SIZE);
    let told = format!("{}, {}; {} of {BATCH_SIZE} ids", first.summary(), again.summary(), ids.len());
    let seen =
        if first.is_same_email(&again) { format!("{told}, the same again") } else { format!("{told}, not the same") };
    CaseResult { passed: whole && is_single_email(&[&first, &again]), observed: seen, expected_mails: wanted }
}

async fn key_reused_for_other_batch(caller: &ProveClient) -> CaseResult {
    let (mut mails, mut wanted) = make_batch(caller);
    let key = caller.marker();
    let Some(call) = caller.batch(&key, &mails) else { return batch_unsupported() };
    let first = caller.call_with_retries(&call).await;
    let marker = caller.marker();
    mails[BATCH_SIZE - 1] = caller.mail(&marker);
    let refused = caller.call_without_busy_retry(&caller.batch(&key, &mails).unwrap_or(call)).await;
    wanted.push((marker, 0));
    let held = first.is_first() && matches!(refused, CallResult::KeyMismatch(_));
    CaseResult { passed: held, observed: summarize(&[&first, &refused]), expected_mails: wanted }
}

async fn key_across_send_and_batch(caller: &ProveClient) -> CaseResult {
    let ((mails, mut wanted), (other_mails, unwanted)) = (make_batch(caller), make_batch(caller));
    let (one, other) = (caller.marker(), caller.marker());
    let (key, other_key) = (caller.marker(), caller.marker());
    let calls: Option<[Call; 4]> =
        caller.batch(&key, &mails).zip(caller.batch(&other_key, &other_mails)).map(|(batch, other_batch)| {
            let single = caller.send(&key, &caller.mail(&one));
            [batch, single, caller.send(&other_key, &caller.mail(&other)), other_batch]
        });
    let Some([batch, single, other_single, other_batch]) = calls else { return batch_unsupported() };
    let answers = [
        caller.call_with_retries(&batch).await,
        caller.call_without_busy_retry(&single).await,
        caller.call_with_retries(&other_single).await,
        caller.call_without_busy_retry(&other_batch).await,
    ];
    wanted.extend([(one, 0), (other, 1)]);
    wanted.extend(unwanted.into_iter().map(|(marker, _)| (marker, 0)));
    let refused = |seen: &CallResult| matches!(seen, CallResult::KeyMismatch(_));
    let held = answers[0].is_first() && refused(&answers[1]) && answers[2].is_first() && refused(&answers[3]);
    let told: Vec<String> = answers.iter().map(CallResult::summary).collect();
    CaseResult { passed: held, observed: told.join(", "), expected_mails: wanted }
}

/// A key of exactly so many characters.
fn key_of_length(caller: &ProveClient, chars: usize) -> String {
    let mut key = caller.marker();
    key.extend(std::iter::repeat_n('x', chars.saturating_sub(key.len())));
    key
}

async fn long_key(caller: &ProveClient) -> CaseResult {
    let (marker, other) = (caller.marker(), caller.marker());
    let call = caller.send(&key_of_length(caller, MAX_KEY_CHARS), &caller.mail(&marker));
    let (first, again) = (caller.call_with_retries(&call).await, caller.call_with_retries(&call).await);
    let longer = caller
        .call_without_busy_retry(&caller.send(&key_of_length(caller, MAX_KEY_CHARS + 1), &caller.mail(&other)))
        .await;
    let held = is_single_email(&[&first, &again]) && matches!(longer, CallResult::InvalidKey(_));
    let seen =
        format!("{MAX_KEY_CHARS}: {}; {}: {}", summarize(&[&first, &again]), MAX_KEY_CHARS + 1, longer.summary());
    CaseResult { passed: held, observed: seen, expected_mails: vec![(marker, 1), (other, 0)] }
}

async fn empty_key(caller: &ProveClient) -> CaseResult {
    let marker = caller.marker();
    let refused = caller.call_without_busy_retry(&caller.send("", &caller.mail(&marker))).await;
    CaseResult {
        passed: matches!(refused, CallResult::InvalidKey(_)),
        observed: refused.summary(),
        expected_mails: vec![(marker, 0)],
    }
}

async fn quoted_key(caller: &ProveClient) -> CaseResult {
    let (marker, key) = (caller.marker(), caller.marker());
    let mail = caller.mail(&marker);
    let bare = caller.call_with_retries(&caller.send(&key, &mail)).await;
    let quoted = caller.call_with_retries(&caller.send(&format!("\"{key}\""), &mail)).await;
    CaseResult {
        passed: is_single_email(&[&bare, &quoted]),
        observed: summarize(&[&bare, &quoted]),
        expected_mails: vec![(marker, 1)],
    }
}
