//! The cases. Each sends with new keys, and returns what it observed and how many emails must arrive.

use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    call_result::CallResult,
    case::ProveCase,
    client::{DisconnectPoint, ProveClient},
};
use crate::cli::http_client::Call;

/// When the client disconnects after the request, one email each: while the server reads, works and responds.
const HANG_UPS_MS: [u64; 4] = [0, 2, 10, 50];
/// Emails in a batch.
const BATCH_SIZE: usize = 3;
/// Length of the longest key.
const MAX_KEY_CHARS: usize = 256;

/// The result of a case.
#[derive(Debug)]
pub(super) struct CaseResult {
    pub(super) passed: bool,
    pub(super) observed: String,
    /// Markers, and how many emails with each must arrive.
    pub(super) expected_mails: Vec<(String, u32)>,
}

/// Runs one case.
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

/// The responses in order, and the number of different ids.
fn summarize(answers: &[&CallResult]) -> String {
    let ids: BTreeSet<_> = answers.iter().filter_map(|result| result.ids()).collect();
    let summaries: Vec<String> = answers.iter().map(|result| result.summary()).collect();
    match ids.len() {
        0 => summaries.join(", "),
        1 => format!("{}; one id", summaries.join(", ")),
        many => format!("{}; {many} ids", summaries.join(", ")),
    }
}

/// Whether the first call was accepted and every other one replayed it.
fn is_single_email(answers: &[&CallResult]) -> bool {
    match answers {
        [first, again @ ..] => {
            first.is_first() && again.iter().all(|result| result.is_replay() && result.is_same_email(first))
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

/// Without this case, a server that always returns the same id would pass.
async fn different_keys(caller: &ProveClient) -> CaseResult {
    let marker = caller.marker();
    let mail = caller.mail(&marker);
    let one = caller.call_with_retries(&caller.send(&caller.marker(), &mail)).await;
    let other = caller.call_with_retries(&caller.send(&caller.marker(), &mail)).await;
    let passed = one.is_first() && other.is_first() && !one.is_same_email(&other);
    CaseResult { passed, observed: summarize(&[&one, &other]), expected_mails: vec![(marker, 2)] }
}

async fn concurrent_calls(caller: &Arc<ProveClient>, callers: u32) -> CaseResult {
    let marker = caller.marker();
    let call = caller.send(&caller.marker(), &caller.mail(&marker));
    let (answers, again) = caller.call_concurrently(&call, callers).await;
    let after = caller.call_with_retries(&call).await;
    let ids: BTreeSet<_> = answers.iter().chain([&after]).filter_map(CallResult::ids).collect();
    let accepted = answers.iter().filter(|result| result.ids().is_some()).count();
    // If the dialect marks the first call, there must be exactly one.
    let firsts =
        answers.iter().filter(|result| matches!(result, CallResult::Accepted { replayed: Some(false), .. })).count();
    let tells = answers.iter().any(|result| matches!(result, CallResult::Accepted { replayed: Some(_), .. }));
    let passed = ids.len() == 1 && accepted == answers.len() && after.is_replay() && (!tells || firsts == 1);
    let mut parts = vec![format!("{accepted} of {} clients accepted", answers.len()), format!("ids: {}", ids.len())];
    parts.extend(tells.then(|| format!("firsts: {firsts}")));
    parts.extend((again > 0).then(|| format!("{again} had to retry")));
    parts.extend(answers.iter().find(|result| result.ids().is_none()).map(CallResult::summary));
    let observed = parts.join("; ");
    CaseResult { passed, observed, expected_mails: vec![(marker, 1)] }
}

async fn key_reused_for_other_body(caller: &ProveClient) -> CaseResult {
    let (marker, other, key) = (caller.marker(), caller.marker(), caller.marker());
    let call = caller.send(&key, &caller.mail(&marker));
    let first = caller.call_with_retries(&call).await;
    let refused = caller.call_without_busy_retry(&caller.send(&key, &caller.mail(&other))).await;
    let again = caller.call_with_retries(&call).await;
    let passed = is_single_email(&[&first, &again]) && matches!(refused, CallResult::KeyMismatch(_));
    CaseResult {
        passed,
        observed: summarize(&[&first, &refused, &again]),
        expected_mails: vec![(marker, 1), (other, 0)],
    }
}

async fn retry_after_refusal(caller: &ProveClient) -> CaseResult {
    let (marker, key) = (caller.marker(), caller.marker());
    // No dialect accepts an email without recipients and content.
    let refused = caller.call_without_busy_retry(&caller.send(&key, &json!({}))).await;
    let call = caller.send(&key, &caller.mail(&marker));
    let first = caller.call_without_busy_retry(&call).await;
    let again = caller.call_without_busy_retry(&call).await;
    let passed = matches!(refused, CallResult::Refused(..)) && is_single_email(&[&first, &again]);
    CaseResult { passed, observed: summarize(&[&refused, &first, &again]), expected_mails: vec![(marker, 1)] }
}

async fn disconnect(caller: &ProveClient, cuts: &[DisconnectPoint]) -> CaseResult {
    let (mut passed, mut observed, mut mails) = (true, Vec::new(), Vec::new());
    for cut in cuts {
        let marker = caller.marker();
        let call = caller.send(&caller.marker(), &caller.mail(&marker));
        if let Err(error) = caller.call_and_disconnect(&call, *cut).await {
            (passed, observed) = (false, vec![format!("could not connect: {error:#}")]);
            break;
        }
        let (retry, again) = (caller.call_with_retries(&call).await, caller.call_with_retries(&call).await);
        passed &= retry.ids().is_some() && again.is_replay() && again.is_same_email(&retry);
        observed.push(summarize(&[&retry, &again]));
        mails.push((marker, 1));
    }
    observed.sort();
    observed.dedup();
    CaseResult { passed, observed: observed.join(" / "), expected_mails: mails }
}

/// A batch of emails, and their markers, which must arrive once each.
fn make_batch(caller: &ProveClient) -> (Vec<Value>, Vec<(String, u32)>) {
    let markers: Vec<String> = (0..BATCH_SIZE).map(|_| caller.marker()).collect();
    let mails = markers.iter().map(|marker| caller.mail(marker)).collect();
    (mails, markers.into_iter().map(|marker| (marker, 1)).collect())
}

/// The result for a dialect without batches.
fn batch_unsupported() -> CaseResult {
    CaseResult { passed: false, observed: "skipped".into(), expected_mails: Vec::new() }
}

async fn same_batch_twice(caller: &ProveClient) -> CaseResult {
    let (mails, expected) = make_batch(caller);
    let Some(call) = caller.batch(&caller.marker(), &mails) else { return batch_unsupported() };
    let (first, again) = (caller.call_with_retries(&call).await, caller.call_with_retries(&call).await);
    let ids: BTreeSet<_> = first.ids().unwrap_or_default().iter().collect();
    let whole = ids.len() == BATCH_SIZE && first.ids().is_some_and(|ids| ids.len() == BATCH_SIZE);
    let summary = format!("{}, {}; {} of {BATCH_SIZE} ids", first.summary(), again.summary(), ids.len());
    let observed = if first.is_same_email(&again) {
        format!("{summary}, the same again")
    } else {
        format!("{summary}, not the same")
    };
    CaseResult { passed: whole && is_single_email(&[&first, &again]), observed, expected_mails: expected }
}

async fn key_reused_for_other_batch(caller: &ProveClient) -> CaseResult {
    let (mut mails, mut expected) = make_batch(caller);
    let key = caller.marker();
    let Some(call) = caller.batch(&key, &mails) else { return batch_unsupported() };
    let first = caller.call_with_retries(&call).await;
    let marker = caller.marker();
    mails[BATCH_SIZE - 1] = caller.mail(&marker);
    let refused = caller.call_without_busy_retry(&caller.batch(&key, &mails).unwrap_or(call)).await;
    expected.push((marker, 0));
    let passed = first.is_first() && matches!(refused, CallResult::KeyMismatch(_));
    CaseResult { passed, observed: summarize(&[&first, &refused]), expected_mails: expected }
}

async fn key_across_send_and_batch(caller: &ProveClient) -> CaseResult {
    let ((mails, mut expected), (other_mails, unexpected)) = (make_batch(caller), make_batch(caller));
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
    expected.extend([(one, 0), (other, 1)]);
    expected.extend(unexpected.into_iter().map(|(marker, _)| (marker, 0)));
    let refused = |result: &CallResult| matches!(result, CallResult::KeyMismatch(_));
    let passed = answers[0].is_first() && refused(&answers[1]) && answers[2].is_first() && refused(&answers[3]);
    let summaries: Vec<String> = answers.iter().map(CallResult::summary).collect();
    CaseResult { passed, observed: summaries.join(", "), expected_mails: expected }
}

/// A key of this length.
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
    let passed = is_single_email(&[&first, &again]) && matches!(longer, CallResult::InvalidKey(_));
    let observed =
        format!("{MAX_KEY_CHARS}: {}; {}: {}", summarize(&[&first, &again]), MAX_KEY_CHARS + 1, longer.summary());
    CaseResult { passed, observed, expected_mails: vec![(marker, 1), (other, 0)] }
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
