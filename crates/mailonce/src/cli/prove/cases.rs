//! The questions. Each sends under fresh keys, says what it saw, and how many mails must come of it.

use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    answer::Seen,
    caller::{Caller, Cut},
};
use crate::cli::http::Call;

/// How long before the answer a caller hangs up, one mail each: while the server reads, works and answers.
const HANG_UPS_MS: [u64; 4] = [0, 2, 10, 50];
/// Mails of a batch.
const BATCH: usize = 3;
/// The longest key.
const KEY_CHARS: usize = 256;

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Twice,
    TwoKeys,
    Race,
    OtherBody,
    AfterRefusal,
    CutHead,
    CutBody,
    CutAnswer,
    BatchTwice,
    BatchOther,
    Across,
    LongKey,
    EmptyKey,
    QuotedKey,
}

/// What came of a question.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) held: bool,
    pub(super) seen: String,
    /// Markers, and how many mails with each must arrive.
    pub(super) mails: Vec<(String, u32)>,
}

impl Case {
    pub(super) const ALL: [Self; 14] = [
        Self::Twice,
        Self::TwoKeys,
        Self::Race,
        Self::OtherBody,
        Self::AfterRefusal,
        Self::CutHead,
        Self::CutBody,
        Self::CutAnswer,
        Self::BatchTwice,
        Self::BatchOther,
        Self::Across,
        Self::LongKey,
        Self::EmptyKey,
        Self::QuotedKey,
    ];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Twice => "twice",
            Self::TwoKeys => "two_keys",
            Self::Race => "race",
            Self::OtherBody => "other_body",
            Self::AfterRefusal => "after_refusal",
            Self::CutHead => "cut_head",
            Self::CutBody => "cut_body",
            Self::CutAnswer => "cut_answer",
            Self::BatchTwice => "batch_twice",
            Self::BatchOther => "batch_other",
            Self::Across => "across",
            Self::LongKey => "long_key",
            Self::EmptyKey => "empty_key",
            Self::QuotedKey => "quoted_key",
        }
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Twice => "the same mail twice under one key",
            Self::TwoKeys => "the same mail under two keys",
            Self::Race => "many callers at once under one key",
            Self::OtherBody => "another mail under the same key",
            Self::AfterRefusal => "a key whose first request was refused",
            Self::CutHead => "hang up after the head, then retry",
            Self::CutBody => "hang up in the middle of the body, then retry",
            Self::CutAnswer => "hang up before the answer is read, then retry",
            Self::BatchTwice => "the same batch twice under one key",
            Self::BatchOther => "another batch under the same key",
            Self::Across => "one key for a batch and for a single mail",
            Self::LongKey => "the longest key, and one character more",
            Self::EmptyKey => "an empty key",
            Self::QuotedKey => "a key with and without quotes",
        }
    }
}

/// Asks one question.
pub(super) async fn ask(case: Case, caller: &Arc<Caller>, callers: u32) -> Outcome {
    match case {
        Case::Twice => twice(caller).await,
        Case::TwoKeys => two_keys(caller).await,
        Case::Race => race(caller, callers).await,
        Case::OtherBody => other_body(caller).await,
        Case::AfterRefusal => after_refusal(caller).await,
        Case::CutHead => cut(caller, &[Cut::Head]).await,
        Case::CutBody => cut(caller, &[Cut::Body]).await,
        Case::CutAnswer => cut(caller, &HANG_UPS_MS.map(|ms| Cut::Answer(Duration::from_millis(ms)))).await,
        Case::BatchTwice => batch_twice(caller).await,
        Case::BatchOther => batch_other(caller).await,
        Case::Across => across(caller).await,
        Case::LongKey => long_key(caller).await,
        Case::EmptyKey => empty_key(caller).await,
        Case::QuotedKey => quoted_key(caller).await,
    }
}

/// What was answered, in order, and whether the ids were one.
fn words(answers: &[&Seen]) -> String {
    let ids: BTreeSet<_> = answers.iter().filter_map(|seen| seen.ids()).collect();
    let told: Vec<String> = answers.iter().map(|seen| seen.words()).collect();
    match ids.len() {
        0 => told.join(", "),
        1 => format!("{}; one id", told.join(", ")),
        many => format!("{}; {many} ids", told.join(", ")),
    }
}

/// The first is taken, and every later one is the same.
fn is_one(answers: &[&Seen]) -> bool {
    match answers {
        [first, again @ ..] => first.is_first() && again.iter().all(|seen| seen.is_replay() && seen.same(first)),
        [] => false,
    }
}

async fn twice(caller: &Caller) -> Outcome {
    let marker = caller.marker();
    let call = caller.send(&caller.marker(), &caller.mail(&marker));
    let (first, again) = (caller.ask(&call).await, caller.ask(&call).await);
    Outcome { held: is_one(&[&first, &again]), seen: words(&[&first, &again]), mails: vec![(marker, 1)] }
}

/// Without this question a server that always answers the same would pass.
async fn two_keys(caller: &Caller) -> Outcome {
    let marker = caller.marker();
    let mail = caller.mail(&marker);
    let one = caller.ask(&caller.send(&caller.marker(), &mail)).await;
    let other = caller.ask(&caller.send(&caller.marker(), &mail)).await;
    let held = one.is_first() && other.is_first() && !one.same(&other);
    Outcome { held, seen: words(&[&one, &other]), mails: vec![(marker, 2)] }
}

async fn race(caller: &Arc<Caller>, callers: u32) -> Outcome {
    let marker = caller.marker();
    let call = caller.send(&caller.marker(), &caller.mail(&marker));
    let (answers, again) = caller.race(&call, callers).await;
    let after = caller.ask(&call).await;
    let ids: BTreeSet<_> = answers.iter().chain([&after]).filter_map(Seen::ids).collect();
    let taken = answers.iter().filter(|seen| seen.ids().is_some()).count();
    // Where the dialect tells who was the first, there must be one.
    let firsts = answers.iter().filter(|seen| matches!(seen, Seen::Taken { replayed: Some(false), .. })).count();
    let tells = answers.iter().any(|seen| matches!(seen, Seen::Taken { replayed: Some(_), .. }));
    let held = ids.len() == 1 && taken == answers.len() && after.is_replay() && (!tells || firsts == 1);
    let mut told = vec![format!("{taken} of {} callers taken", answers.len()), format!("ids: {}", ids.len())];
    told.extend(tells.then(|| format!("firsts: {firsts}")));
    told.extend((again > 0).then(|| format!("{again} had to ask again")));
    told.extend(answers.iter().find(|seen| seen.ids().is_none()).map(Seen::words));
    let seen = told.join("; ");
    Outcome { held, seen, mails: vec![(marker, 1)] }
}

async fn other_body(caller: &Caller) -> Outcome {
    let (marker, other, key) = (caller.marker(), caller.marker(), caller.marker());
    let call = caller.send(&key, &caller.mail(&marker));
    let first = caller.ask(&call).await;
    let refused = caller.ask_other(&caller.send(&key, &caller.mail(&other))).await;
    let again = caller.ask(&call).await;
    let held = is_one(&[&first, &again]) && matches!(refused, Seen::OtherRequest(_));
    Outcome { held, seen: words(&[&first, &refused, &again]), mails: vec![(marker, 1), (other, 0)] }
}

async fn after_refusal(caller: &Caller) -> Outcome {
    let (marker, key) = (caller.marker(), caller.marker());
    // Nobody to send it to and nothing to say: no dialect takes that.
    let refused = caller.ask_other(&caller.send(&key, &json!({}))).await;
    let call = caller.send(&key, &caller.mail(&marker));
    let first = caller.ask_other(&call).await;
    let again = caller.ask_other(&call).await;
    let held = matches!(refused, Seen::Refused(..)) && is_one(&[&first, &again]);
    Outcome { held, seen: words(&[&refused, &first, &again]), mails: vec![(marker, 1)] }
}

async fn cut(caller: &Caller, cuts: &[Cut]) -> Outcome {
    let (mut held, mut seen, mut mails) = (true, Vec::new(), Vec::new());
    for cut in cuts {
        let marker = caller.marker();
        let call = caller.send(&caller.marker(), &caller.mail(&marker));
        if let Err(error) = caller.hang_up(&call, *cut).await {
            (held, seen) = (false, vec![format!("could not begin: {error:#}")]);
            break;
        }
        let (retry, again) = (caller.ask(&call).await, caller.ask(&call).await);
        held &= retry.ids().is_some() && again.is_replay() && again.same(&retry);
        seen.push(words(&[&retry, &again]));
        mails.push((marker, 1));
    }
    seen.sort();
    seen.dedup();
    Outcome { held, seen: seen.join(" / "), mails }
}

/// Some mails with their markers, each to arrive once.
fn batch_of(caller: &Caller) -> (Vec<Value>, Vec<(String, u32)>) {
    let markers: Vec<String> = (0..BATCH).map(|_| caller.marker()).collect();
    let mails = markers.iter().map(|marker| caller.mail(marker)).collect();
    (mails, markers.into_iter().map(|marker| (marker, 1)).collect())
}

/// A dialect without batches was not asked.
fn no_batch() -> Outcome {
    Outcome { held: false, seen: "not asked".into(), mails: Vec::new() }
}

async fn batch_twice(caller: &Caller) -> Outcome {
    let (mails, wanted) = batch_of(caller);
    let Some(call) = caller.batch(&caller.marker(), &mails) else { return no_batch() };
    let (first, again) = (caller.ask(&call).await, caller.ask(&call).await);
    let ids: BTreeSet<_> = first.ids().unwrap_or_default().iter().collect();
    let whole = ids.len() == BATCH && first.ids().is_some_and(|ids| ids.len() == BATCH);
    let told = format!("{}, {}; {} of {BATCH} ids", first.words(), again.words(), ids.len());
    let seen = if first.same(&again) { format!("{told}, the same again") } else { format!("{told}, not the same") };
    Outcome { held: whole && is_one(&[&first, &again]), seen, mails: wanted }
}

async fn batch_other(caller: &Caller) -> Outcome {
    let (mut mails, mut wanted) = batch_of(caller);
    let key = caller.marker();
    let Some(call) = caller.batch(&key, &mails) else { return no_batch() };
    let first = caller.ask(&call).await;
    let marker = caller.marker();
    mails[BATCH - 1] = caller.mail(&marker);
    let refused = caller.ask_other(&caller.batch(&key, &mails).unwrap_or(call)).await;
    wanted.push((marker, 0));
    let held = first.is_first() && matches!(refused, Seen::OtherRequest(_));
    Outcome { held, seen: words(&[&first, &refused]), mails: wanted }
}

async fn across(caller: &Caller) -> Outcome {
    let ((mails, mut wanted), (other_mails, unwanted)) = (batch_of(caller), batch_of(caller));
    let (one, other) = (caller.marker(), caller.marker());
    let (key, other_key) = (caller.marker(), caller.marker());
    let calls: Option<[Call; 4]> =
        caller.batch(&key, &mails).zip(caller.batch(&other_key, &other_mails)).map(|(batch, other_batch)| {
            let single = caller.send(&key, &caller.mail(&one));
            [batch, single, caller.send(&other_key, &caller.mail(&other)), other_batch]
        });
    let Some([batch, single, other_single, other_batch]) = calls else { return no_batch() };
    let answers = [
        caller.ask(&batch).await,
        caller.ask_other(&single).await,
        caller.ask(&other_single).await,
        caller.ask_other(&other_batch).await,
    ];
    wanted.extend([(one, 0), (other, 1)]);
    wanted.extend(unwanted.into_iter().map(|(marker, _)| (marker, 0)));
    let refused = |seen: &Seen| matches!(seen, Seen::OtherRequest(_));
    let held = answers[0].is_first() && refused(&answers[1]) && answers[2].is_first() && refused(&answers[3]);
    let told: Vec<String> = answers.iter().map(Seen::words).collect();
    Outcome { held, seen: told.join(", "), mails: wanted }
}

/// A key of exactly so many characters.
fn key_of(caller: &Caller, chars: usize) -> String {
    let mut key = caller.marker();
    key.extend(std::iter::repeat_n('x', chars.saturating_sub(key.len())));
    key
}

async fn long_key(caller: &Caller) -> Outcome {
    let (marker, other) = (caller.marker(), caller.marker());
    let call = caller.send(&key_of(caller, KEY_CHARS), &caller.mail(&marker));
    let (first, again) = (caller.ask(&call).await, caller.ask(&call).await);
    let longer = caller.ask_other(&caller.send(&key_of(caller, KEY_CHARS + 1), &caller.mail(&other))).await;
    let held = is_one(&[&first, &again]) && matches!(longer, Seen::BadKey(_));
    let seen = format!("{KEY_CHARS}: {}; {}: {}", words(&[&first, &again]), KEY_CHARS + 1, longer.words());
    Outcome { held, seen, mails: vec![(marker, 1), (other, 0)] }
}

async fn empty_key(caller: &Caller) -> Outcome {
    let marker = caller.marker();
    let refused = caller.ask_other(&caller.send("", &caller.mail(&marker))).await;
    Outcome { held: matches!(refused, Seen::BadKey(_)), seen: refused.words(), mails: vec![(marker, 0)] }
}

async fn quoted_key(caller: &Caller) -> Outcome {
    let (marker, key) = (caller.marker(), caller.marker());
    let mail = caller.mail(&marker);
    let bare = caller.ask(&caller.send(&key, &mail)).await;
    let quoted = caller.ask(&caller.send(&format!("\"{key}\""), &mail)).await;
    Outcome { held: is_one(&[&bare, &quoted]), seen: words(&[&bare, &quoted]), mails: vec![(marker, 1)] }
}
