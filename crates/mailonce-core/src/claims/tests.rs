//! The rules of claims: a table of cases, and random histories against an independent model.

use uuid::Uuid;

use super::{
    acquire::{AcquireAnswer, NewClaim},
    action::{ClaimAction, ClaimActionStatus, ClaimRefusal, ReportedResult},
    *,
};
use crate::{
    control::{
        erasure::AddressEraser,
        stop::{Stop, StopAuthor, StopMode, StopScope, Stops},
    },
    id::StopId,
    key::{InstallSecret, Key},
};

const TEAM: TeamId = TeamId(Uuid::from_u128(7));
const API_KEY: ApiKeyId = ApiKeyId(Uuid::from_u128(8));
const LEASE_MS: i64 = 60_000;

fn clock(ms: i64) -> ClaimClock {
    ClaimClock { now: Time(ms), policy: Some(Time(ms)) }
}

fn request(holder: &str) -> NewClaim {
    NewClaim {
        id: ClaimId(Uuid::from_u128(9)),
        team: TEAM,
        key: Key::parse("invoice-7").unwrap(),
        intent: None,
        fingerprint: None,
        holder: Some(holder.into()),
        label: None,
        api_key: Some(API_KEY),
        lease_ms: LEASE_MS,
        ttl: ttl::DEFAULT,
        begins_now: true,
        on_unknown: LostHolderPolicy::Hold,
    }
}

fn acquire(claim: &mut Option<Claim>, request: &NewClaim, at: i64) -> AcquireAnswer {
    let change = request.decide(claim.clone(), 0, &Stops::default(), clock(at));
    *claim = change.claim;
    change.answer
}

fn win(claim: &mut Option<Claim>, request: &NewClaim, at: i64) -> ClaimToken {
    match acquire(claim, request, at) {
        AcquireAnswer::Won(token) => token,
        other => panic!("{other:?}"),
    }
}

fn apply(claim: &mut Option<Claim>, action: ClaimAction, at: i64) -> ClaimActionStatus {
    let change = claim.clone().unwrap().apply(action, &Stops::default(), clock(at));
    *claim = change.claim;
    change.answer
}

fn complete(claim: &mut Option<Claim>, token: ClaimToken, at: i64) -> ClaimActionStatus {
    apply(claim, ClaimAction::Complete { token, result: ReportedResult::None }, at)
}

fn fail(claim: &mut Option<Claim>, token: ClaimToken, retryable: bool, at: i64) -> ClaimActionStatus {
    apply(claim, ClaimAction::Fail { token, retryable, reason: "no".into() }, at)
}

fn begin(claim: &mut Option<Claim>, token: ClaimToken, at: i64) -> ClaimActionStatus {
    apply(claim, ClaimAction::Begin { token, by: None }, at)
}

fn resolve(claim: &mut Option<Claim>, resolution: ClaimResolution, rev: Option<u32>, at: i64) -> ClaimActionStatus {
    apply(claim, ClaimAction::Resolve { resolution, rev, result: ReportedResult::None, by: None }, at)
}

fn refused(refusal: ClaimRefusal) -> ClaimActionStatus {
    ClaimActionStatus::Refused(refusal)
}

const APPLIED: ClaimActionStatus = ClaimActionStatus::Applied;

#[test]
fn one_caller_wins_and_only_its_own_retry_gets_the_token_again() {
    let mut claim = None;
    let token = win(&mut claim, &request("a"), 0);
    assert_eq!(acquire(&mut claim, &request("a"), 1), AcquireAnswer::Won(token));
    assert_eq!(acquire(&mut claim, &request("b"), 1), AcquireAnswer::Busy);
    assert_eq!(acquire(&mut claim, &NewClaim { holder: None, ..request("") }, 1), AcquireAnswer::Busy);
    assert_eq!(claim.as_ref().unwrap().state, ClaimState::Begun);
    let mut nameless = None;
    let request = NewClaim { holder: None, ..request("") };
    win(&mut nameless, &request, 0);
    assert_eq!(acquire(&mut nameless, &request, 1), AcquireAnswer::Busy, "without a holder nobody matches");
}

#[test]
fn a_claim_that_has_begun_is_never_freed_by_its_lease() {
    let mut claim = None;
    win(&mut claim, &request("a"), 0);
    assert_eq!(acquire(&mut claim, &request("b"), LEASE_MS - 1), AcquireAnswer::Busy);
    assert_eq!(acquire(&mut claim, &request("b"), LEASE_MS), AcquireAnswer::Unknown);
    assert_eq!(acquire(&mut claim, &request("a"), LEASE_MS), AcquireAnswer::Unknown, "not even for its holder");
    assert_eq!(acquire(&mut claim, &request("b"), i64::MAX), AcquireAnswer::Unknown);
    assert!(claim.unwrap().needs_decision());
}

#[test]
fn a_claim_that_has_not_begun_is_freed_and_its_first_holder_cannot_begin() {
    let mut claim = None;
    let later = |holder: &str| NewClaim { begins_now: false, ..request(holder) };
    let first = win(&mut claim, &later("a"), 0);
    let second = win(&mut claim, &later("b"), LEASE_MS);
    assert!(second.fence > first.fence);
    assert_eq!(begin(&mut claim, first, LEASE_MS), refused(ClaimRefusal::StaleToken));
    assert_eq!(begin(&mut claim, second, LEASE_MS), APPLIED);
    assert_eq!(begin(&mut claim, second, LEASE_MS), APPLIED, "repeated");
}

#[test]
fn a_holder_that_asks_again_for_now_has_begun() {
    let mut claim = None;
    let token = win(&mut claim, &NewClaim { begins_now: false, ..request("a") }, 0);
    assert_eq!(acquire(&mut claim, &request("a"), 1), AcquireAnswer::Won(token));
    assert_eq!(claim.as_ref().unwrap().state, ClaimState::Begun);
    // Otherwise the lease would free it, and another caller would perform the effect again.
    assert_eq!(acquire(&mut claim, &request("b"), LEASE_MS), AcquireAnswer::Unknown);
}

#[test]
fn what_may_still_be_completed_is_kept_beyond_a_short_ttl() {
    let short = NewClaim { ttl: Ttl(1_000), ..request("a") };
    let mut completed = None;
    let token = win(&mut completed, &short, 0);
    assert_eq!(complete(&mut completed, token, 1), APPLIED);
    assert!(completed.unwrap().is_forgotten(Time(2_000)));
    let mut abandoned = None;
    win(&mut abandoned, &short, 0);
    assert_eq!(acquire(&mut abandoned, &request("b"), LEASE_MS), AcquireAnswer::Unknown);
    assert_eq!(resolve(&mut abandoned, ClaimResolution::Abandon, None, LEASE_MS), APPLIED);
    let abandoned = abandoned.unwrap();
    assert!(!abandoned.is_forgotten(Time(LEASE_MS + 2_000)) && abandoned.is_forgotten(Time(LEASE_MS + ttl::DEFAULT.0)));
}

#[test]
fn a_late_completion_is_recorded_and_refuses_the_next_holder() {
    let mut claim = None;
    let later = |holder: &str| NewClaim { begins_now: false, ..request(holder) };
    let first = win(&mut claim, &later("a"), 0);
    let second = win(&mut claim, &later("b"), LEASE_MS);
    assert_eq!(complete(&mut claim, first, LEASE_MS + 1), APPLIED);
    let done = claim.clone().unwrap();
    assert!(done.corrected && done.state == ClaimState::Completed);
    assert_eq!(begin(&mut claim, second, LEASE_MS + 2), refused(ClaimRefusal::Ended));
    assert_eq!(complete(&mut claim, first, LEASE_MS + 3), APPLIED);
    assert_eq!(claim.as_ref(), Some(&done), "a repeat changes nothing");
    assert_eq!(complete(&mut claim, second, LEASE_MS + 4), APPLIED);
    assert_eq!(claim.unwrap().completed_by, [first.fence, second.fence], "both did it");
}

#[test]
fn a_repeated_completion_whose_result_is_too_large_is_saved() {
    let mut claim = None;
    let token = win(&mut claim, &request("one"), 0);
    assert_eq!(complete(&mut claim, token, 1), APPLIED);
    let again = |claim: &Option<Claim>| {
        let action = ClaimAction::Complete { token, result: ReportedResult::Omitted };
        claim.clone().unwrap().apply(action, &Stops::default(), clock(2))
    };
    let changed = again(&claim);
    assert!(changed.is_changed, "callers learn that there was a result");
    assert!(!again(&changed.claim).is_changed);
}

#[test]
fn the_policy_frees_a_lost_claim_once() {
    let mut claim = None;
    let request = |holder: &str| NewClaim { on_unknown: LostHolderPolicy::Retry, ..request(holder) };
    win(&mut claim, &request("a"), 0);
    let freed_at = LEASE_MS + RETRY_AFTER_MS;
    assert_eq!(acquire(&mut claim, &request("b"), freed_at - 1), AcquireAnswer::Unknown);
    let unconfirmed = ClaimClock { now: Time(freed_at), policy: None };
    let answer = request("b").decide(claim.clone(), 0, &Stops::default(), unconfirmed).answer;
    assert_eq!(answer, AcquireAnswer::Unknown, "not while the time is unconfirmed");
    win(&mut claim, &request("b"), freed_at);
    assert!(claim.as_ref().unwrap().may_repeat());
    assert_eq!(acquire(&mut claim, &request("c"), freed_at * 9), AcquireAnswer::Unknown, "once");
}

#[test]
fn a_failure_does_not_hide_an_earlier_attempt_in_doubt() {
    let mut claim = None;
    let request = |holder: &str| NewClaim { on_unknown: LostHolderPolicy::Retry, ..request(holder) };
    win(&mut claim, &request("a"), 0);
    let second = win(&mut claim, &request("b"), LEASE_MS + RETRY_AFTER_MS);
    assert_eq!(fail(&mut claim, second, false, LEASE_MS + RETRY_AFTER_MS + 1), APPLIED);
    assert!(claim.unwrap().needs_decision());
}

#[test]
fn a_failure_ends_the_claim_or_frees_it() {
    let mut claim = None;
    let first = win(&mut claim, &request("a"), 0);
    assert_eq!(fail(&mut claim, first, true, 1), APPLIED);
    assert_eq!(fail(&mut claim, first, true, 2), APPLIED, "repeated");
    let second = win(&mut claim, &request("b"), 3);
    assert_eq!(fail(&mut claim, first, false, 4), refused(ClaimRefusal::StaleToken));
    assert_eq!(fail(&mut claim, second, false, 5), APPLIED);
    assert_eq!(acquire(&mut claim, &request("c"), 6), AcquireAnswer::Ended);
    assert_eq!(complete(&mut claim, second, 7), APPLIED, "a fact is never refused");
    assert_eq!(claim.unwrap().state, ClaimState::Completed);
}

#[test]
fn a_holder_that_only_seemed_lost_comes_back_by_renewing() {
    let mut claim = None;
    let token = win(&mut claim, &request("a"), 0);
    let renew = |claim: &mut _, at| apply(claim, ClaimAction::Renew { token, lease_ms: LEASE_MS }, at);
    assert_eq!(acquire(&mut claim, &request("b"), LEASE_MS), AcquireAnswer::Unknown);
    assert_eq!(renew(&mut claim, LEASE_MS + 1), APPLIED);
    assert_eq!(acquire(&mut claim, &request("b"), LEASE_MS + 2), AcquireAnswer::Busy);
    assert_eq!(complete(&mut claim, token, LEASE_MS + 3), APPLIED);
    assert!(!claim.as_ref().unwrap().corrected);
    assert_eq!(renew(&mut claim, LEASE_MS + 4), refused(ClaimRefusal::Ended));
}

#[test]
fn evidence_and_people_settle_an_unknown_claim() {
    let lost = || {
        let mut claim = None;
        win(&mut claim, &request("a"), 0);
        acquire(&mut claim, &request("b"), LEASE_MS);
        claim
    };
    let evidence = |claim: &mut _, says| {
        apply(claim, ClaimAction::Evidence { says, result: ReportedResult::Stored(b"1".into()), by: None }, LEASE_MS)
    };
    let mut claim = lost();
    assert_eq!(evidence(&mut claim, ClaimEvidence::NotFound), APPLIED);
    assert_eq!(claim.as_ref().unwrap().state, ClaimState::Unknown, "a negative look-up proves nothing");
    assert_eq!(evidence(&mut claim, ClaimEvidence::Done), APPLIED);
    let done = claim.unwrap();
    assert_eq!((done.state, done.result, done.corrected), (ClaimState::Completed, ResultPresence::Stored, false));

    let mut claim = lost();
    let rev = claim.as_ref().unwrap().rev;
    assert_eq!(resolve(&mut claim, ClaimResolution::Retry, Some(rev - 1), LEASE_MS), refused(ClaimRefusal::StaleRev));
    assert_eq!(resolve(&mut claim, ClaimResolution::Retry, Some(rev), LEASE_MS), APPLIED);
    assert_eq!(resolve(&mut claim, ClaimResolution::Done, None, LEASE_MS), refused(ClaimRefusal::NotUnknown));
    win(&mut claim, &request("b"), LEASE_MS);
    assert!(claim.unwrap().may_repeat());

    let mut claim = lost();
    assert_eq!(resolve(&mut claim, ClaimResolution::Abandon, Some(rev), LEASE_MS), APPLIED);
    assert_eq!(acquire(&mut claim, &request("b"), LEASE_MS), AcquireAnswer::Ended);
}

#[test]
fn another_fingerprint_is_a_mismatch_in_every_state() {
    let of = |text: &str| NewClaim { fingerprint: Some(text.into()), ..request("a") };
    let mut claim = None;
    let token = win(&mut claim, &of("100 EUR"), 0);
    assert_eq!(acquire(&mut claim, &of("200 EUR"), 1), AcquireAnswer::Mismatch);
    complete(&mut claim, token, 2);
    assert_eq!(acquire(&mut claim, &of("200 EUR"), 3), AcquireAnswer::Mismatch);
    assert_eq!(acquire(&mut claim, &of("100 EUR"), 3), AcquireAnswer::Ended);
    assert_eq!(acquire(&mut claim, &request("a"), 3), AcquireAnswer::Ended, "no fingerprint makes no statement");
}

#[test]
fn an_erased_claim_answers_as_before_and_has_no_text() {
    let eraser = AddressEraser::new(&InstallSecret([7; 32]), TEAM, "ann@example.com");
    let of = |holder: &str, fingerprint: &str| NewClaim {
        key: Key::parse("invoice-ann@example.com").unwrap(),
        intent: Some(Intent { kind: "invoice".into(), entity: "Ann Lee".into(), version: 1, period: None }),
        fingerprint: Some(fingerprint.into()),
        ..request(holder)
    };
    let mut claim = None;
    let token = win(&mut claim, &of("a", "100 EUR"), 0);
    assert!(!claim.as_mut().unwrap().erase(&eraser), "its holder still has it");
    let result = ReportedResult::Stored(b"1".to_vec());
    assert_eq!(apply(&mut claim, ClaimAction::Complete { token, result }, 1), APPLIED);
    let mut ended = claim.unwrap();
    let hash = ended.key_hash();
    assert!(ended.is_named(&eraser));
    for _ in 0..2 {
        assert!(ended.erase(&eraser) && ended.is_erased() && !ended.is_named(&eraser), "{ended:?}");
    }
    let stored = serde_json::to_string(&ended).unwrap();
    assert!(!["ann", "Lee", "EUR"].iter().any(|text| stored.contains(text)), "{stored}");
    let mut claim: Option<Claim> = Some(serde_json::from_str(&stored).unwrap());
    assert_eq!(claim.as_ref(), Some(&ended));
    assert_eq!((ended.key_hash(), ended.result), (hash, ResultPresence::Omitted));
    assert_eq!(acquire(&mut claim, &of("b", "100 EUR"), 2), AcquireAnswer::Ended);
    assert_eq!(acquire(&mut claim, &of("b", "200 EUR"), 2), AcquireAnswer::Mismatch);
}

#[test]
fn a_free_claim_is_erased_unless_a_worker_needs_its_payload() {
    let eraser = AddressEraser::new(&InstallSecret([7; 32]), TEAM, "ann@example.com");
    let mut claim = None;
    let token = win(&mut claim, &request("a"), 0);
    let reason = "no answer from ann@example.com".to_owned();
    assert_eq!(apply(&mut claim, ClaimAction::Fail { token, retryable: true, reason }, 1), APPLIED);
    let mut offered = claim.clone().unwrap();
    offered.offer = Some(offer::ClaimOffer { digest: "d".into(), at: Time(1) });
    assert!(offered.is_named(&eraser) && !offered.erase(&eraser));
    let free = claim.as_mut().unwrap();
    assert!(free.erase(&eraser) && !free.is_named(&eraser), "{free:?}");
    let again = win(&mut claim, &request("b"), 2);
    assert_eq!((again.fence, complete(&mut claim, again, 3)), (2, APPLIED), "the next caller gets it");
}

#[test]
fn a_stop_keeps_claims_from_beginning() {
    let stop = |scope: StopScope, mode| {
        let by = StopAuthor { api_key: None, name: "test".into() };
        let id = StopId(Uuid::from_u128(3));
        Stops(vec![Stop { id, scope, mode, reason: None, by, created_at: Time(0), release: None }])
    };
    let other_key = ApiKeyId(Uuid::from_u128(99));
    let answer =
        |stops: &Stops, begins_now| NewClaim { begins_now, ..request("a") }.decide(None, 0, stops, clock(0)).answer;
    let is_stopped = |answer: &AcquireAnswer| matches!(answer, AcquireAnswer::Stopped(_));
    for (scope, covered) in [
        (StopScope::Installation, true),
        (StopScope::Team(TEAM), true),
        (StopScope::Team(TeamId(Uuid::from_u128(70))), false),
        (StopScope::ApiKey { team: TEAM, id: API_KEY }, true),
        (StopScope::ApiKey { team: TEAM, id: other_key }, false),
        (StopScope::Transport("relay".into()), false),
    ] {
        assert_eq!(is_stopped(&answer(&stop(scope.clone(), StopMode::Wait), true)), covered, "{scope:?}");
    }
    let waits = stop(StopScope::Team(TEAM), StopMode::Wait);
    assert!(!is_stopped(&answer(&waits, false)), "it may be claimed, and begin later");
    assert!(is_stopped(&answer(&stop(StopScope::Team(TEAM), StopMode::Refuse), false)));
    let mut claim = None;
    let token = win(&mut claim, &NewClaim { begins_now: false, ..request("a") }, 0);
    let begun = claim.unwrap().apply(ClaimAction::Begin { token, by: None }, &waits, clock(1));
    assert!(matches!(begun.answer, ClaimActionStatus::Refused(ClaimRefusal::Stopped(_))) && !begun.is_changed);
    let by = Some(other_key);
    let stops = stop(StopScope::ApiKey { team: TEAM, id: other_key }, StopMode::Wait);
    let begun = begun.claim.unwrap().apply(ClaimAction::Begin { token, by }, &stops, clock(1));
    assert!(matches!(begun.answer, ClaimActionStatus::Refused(ClaimRefusal::Stopped(_))), "the caller's own key");
}

#[test]
fn memory_counts_from_the_end_and_nothing_unknown_is_forgotten() {
    let short = |holder: &str| NewClaim { ttl: Ttl(1_000), ..request(holder) };
    let mut claim = None;
    let token = win(&mut claim, &short("a"), 0);
    assert_eq!(claim.as_ref().unwrap().forget_at(), None);
    assert_eq!(acquire(&mut claim, &short("b"), LEASE_MS), AcquireAnswer::Unknown);
    assert_eq!(claim.as_ref().unwrap().forget_at(), None);
    complete(&mut claim, token, 100_000);
    // A holder was lost in between, so that another completion may come.
    let kept_until = Time(100_000 + ttl::DEFAULT.0);
    assert_eq!(claim.as_ref().unwrap().forget_at(), Some(kept_until));
    assert!(!claim.as_ref().unwrap().is_forgotten(Time(kept_until.0 - 1)) && claim.unwrap().is_forgotten(kept_until));
}

/// What an observer outside knows about a claim, in other words than the claim's own.
#[derive(Clone, Debug, Default)]
struct Observer {
    /// The holders in the order in which they won: token, whether it began, and the end of its lease.
    holders: Vec<(ClaimToken, bool, i64)>,
    /// Whether the latest holder still counts.
    has_holder: bool,
    /// How it ended: `done` if somebody reported that the side effect happened, else `closed`.
    end: Option<&'static str>,
    lost_at: Option<i64>,
    policy_used: bool,
    doubt: bool,
}

impl Observer {
    fn pass_time(&mut self, now: i64) {
        let Some((_, began, ends)) = self.holders.last().copied() else { return };
        if self.has_holder && ends <= now && self.lost_at.is_none() {
            if began {
                self.lost_at = Some(ends);
            } else {
                self.has_holder = false;
            }
        }
        if let Some(lost_at) = self.lost_at
            && !self.policy_used
            && self.has_holder
            && lost_at + RETRY_AFTER_MS <= now
        {
            (self.lost_at, self.policy_used, self.doubt, self.has_holder) = (None, true, true, false);
        }
    }

    fn state(&self) -> &'static str {
        match self {
            Self { end: Some(end), .. } => end,
            Self { lost_at: Some(_), .. } => "unknown",
            Self { has_holder: true, .. } => "busy",
            _ => "free",
        }
    }

    fn ask(&mut self, now: i64, begins: bool, ends: i64) -> &'static str {
        self.pass_time(now);
        let was = self.state();
        if was == "free" {
            let token = ClaimToken { fence: self.holders.len() as u64 + 1, issued_at: Time(now) };
            self.holders.push((token, begins, ends));
            self.has_holder = true;
        }
        was
    }

    /// Whether a command with this token is obeyed.
    fn accepts_token(&self, token: ClaimToken) -> bool {
        self.end.is_none() && self.has_holder && self.holders.last().is_some_and(|last| last.0 == token)
    }
}

/// A small random number generator, so that a failing seed can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn name_of(answer: &AcquireAnswer) -> &'static str {
    match answer {
        AcquireAnswer::Won(_) => "free",
        AcquireAnswer::Busy => "busy",
        AcquireAnswer::Unknown => "unknown",
        AcquireAnswer::Ended => "ended",
        AcquireAnswer::Stopped(_) | AcquireAnswer::Mismatch => "refused",
    }
}

/// One random step of both. Panics where they differ.
fn step(claim: &mut Option<Claim>, seen: &mut Observer, random: &mut Random, now: i64) {
    let choice = random.below(9);
    if choice < 3 || claim.is_none() {
        let begins = random.below(2) == 0;
        let asked = NewClaim {
            holder: None,
            begins_now: begins,
            on_unknown: LostHolderPolicy::Retry,
            lease_ms: LEASE_MS,
            ..request("")
        };
        let expected = match seen.ask(now, begins, now + LEASE_MS) {
            "done" | "closed" => "ended",
            other => other,
        };
        assert_eq!(name_of(&acquire(claim, &asked, now)), expected);
        return;
    }
    let (token, _, _) = seen.holders[random.below(seen.holders.len() as u64) as usize];
    seen.pass_time(now);
    let accepts_token = seen.accepts_token(token);
    let applied = match choice {
        3 => {
            let may_begin = accepts_token && seen.lost_at.is_none();
            if let Some(last) = seen.holders.last_mut().filter(|_| may_begin) {
                last.1 = true;
            }
            assert_eq!(begin(claim, token, now) == APPLIED, may_begin);
            return;
        }
        4 => {
            if let Some(last) = seen.holders.last_mut().filter(|_| accepts_token) {
                last.2 = now + LEASE_MS;
                seen.lost_at = None;
            }
            apply(claim, ClaimAction::Renew { token, lease_ms: LEASE_MS }, now)
        }
        5 => {
            seen.end = Some("done");
            assert_eq!(complete(claim, token, now), APPLIED, "a fact was refused");
            return;
        }
        6 | 7 => return fail_step(claim, seen, (token, choice == 6), now),
        _ => {
            let is_unknown = seen.state() == "unknown";
            if is_unknown {
                (seen.lost_at, seen.has_holder, seen.doubt) = (None, false, false);
            }
            assert_eq!(resolve(claim, ClaimResolution::Retry, None, now) == APPLIED, is_unknown);
            return;
        }
    };
    assert_eq!(applied == APPLIED, accepts_token);
}

fn fail_step(claim: &mut Option<Claim>, seen: &mut Observer, (token, retryable): (ClaimToken, bool), now: i64) {
    let accepts_token = seen.accepts_token(token);
    if accepts_token {
        seen.has_holder = false;
        let stays_unknown = seen.doubt && !retryable;
        seen.lost_at = stays_unknown.then_some(now);
        seen.end = (!retryable && !stays_unknown).then_some("closed");
    }
    let repeats = claim.as_ref().unwrap().failure.as_ref().is_some_and(|failure| failure.fence == token.fence);
    assert_eq!(fail(claim, token, retryable, now) == APPLIED, accepts_token || repeats);
}

#[test]
fn random_histories_agree_with_an_observer() {
    for seed in 0..4_000 {
        let (mut random, mut claim, mut seen, mut now) = (Random(seed), None, Observer::default(), 0);
        for _ in 0..40 {
            // Short and long pauses, so that leases and policies end between the steps.
            now += [1, 1_000, LEASE_MS, RETRY_AFTER_MS][random.below(4) as usize];
            let before: Option<Claim> = claim.clone();
            step(&mut claim, &mut seen, &mut random, now);
            let claim = claim.as_ref().unwrap();
            assert_eq!(seen.end == Some("done"), claim.state == ClaimState::Completed, "seed {seed}: {claim:?}");
            if let Some(before) = before.filter(|before| before.state == ClaimState::Completed) {
                assert_eq!(claim.state, before.state, "seed {seed}: what happened cannot be undone");
            }
        }
    }
}
