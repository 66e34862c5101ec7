//! Promises about claims: who gets one, what survives a lost holder, and what a stop excludes.

use mailonce_core::{
    claims::{
        Claim, ClaimClock, ClaimQuery, ClaimResolution, ClaimState, ClaimToken, LostHolderPolicy, RETRY_AFTER_MS,
        acquire::{AcquireAnswer, AcquireResult, NewClaim},
        action::{ClaimAction, ClaimActionResult, ClaimActionStatus, ClaimRefusal, ReportedResult},
    },
    control::{
        audit::AuditEntry,
        stop::{Stop, StopAuthor, StopMode, StopScope},
    },
    id::{ApiKeyId, ClaimId, StopId, TeamId},
    key::{Key, KeyHash},
    operation::IdempotentResult,
    time::Time,
    ttl::Ttl,
};
use uuid::Uuid;

use crate::conformance::{
    HOUR, MINUTE, OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_first, all_at_once, event_kinds,
    fixtures::emails::next_id, keyed_email, new_operation,
};

const API_KEY: ApiKeyId = ApiKeyId(Uuid::from_u128(0xa9));

pub(super) fn clock(now: Time) -> ClaimClock {
    ClaimClock { now, policy: Some(now) }
}

pub(super) fn new_claim(key: &str) -> NewClaim {
    NewClaim {
        id: ClaimId(next_id(T0)),
        team: TEAM,
        key: Key::parse(key).unwrap(),
        intent: None,
        fingerprint: None,
        holder: None,
        label: Some("worker 1".into()),
        api_key: Some(API_KEY),
        lease_ms: MINUTE,
        ttl: Ttl(HOUR),
        begins_now: true,
        on_unknown: LostHolderPolicy::Hold,
    }
}

/// A claim whose caller begins it in a later call.
pub(super) fn claim_to_begin_later(key: &str) -> NewClaim {
    NewClaim { begins_now: false, ..new_claim(key) }
}

pub(super) async fn acquire(store: &TestStore, new: NewClaim, now: Time) -> AcquireResult {
    store.acquire_claim(new, clock(now)).await.unwrap()
}

pub(super) async fn win(store: &TestStore, new: NewClaim, now: Time) -> (Claim, ClaimToken) {
    match acquire(store, new, now).await {
        AcquireResult { answer: AcquireAnswer::Won(token), claim: Some(claim), .. } => (claim, token),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn apply(
    store: &TestStore,
    id: ClaimId,
    action: ClaimAction,
    now: Time,
) -> (ClaimActionStatus, Claim) {
    match store.apply_claim_action(TEAM, id, action, None, clock(now)).await.unwrap() {
        IdempotentResult::Done(ClaimActionResult::Done(status, claim)) => (status, *claim),
        other => panic!("{other:?}"),
    }
}

pub(super) fn begin(token: ClaimToken) -> ClaimAction {
    ClaimAction::Begin { token, by: None }
}

pub(super) fn complete(token: ClaimToken, result: &[u8]) -> ClaimAction {
    ClaimAction::Complete { token, result: ReportedResult::Stored(result.to_vec()) }
}

fn resolve(resolution: ClaimResolution, rev: u32) -> ClaimAction {
    ClaimAction::Resolve { resolution, rev: Some(rev), result: ReportedResult::None, by: Some(API_KEY) }
}

pub(super) async fn load(store: &TestStore, id: ClaimId) -> Claim {
    store.claim(TEAM, id).await.unwrap().unwrap().0
}

/// A claim whose holder was lost after it began.
async fn lost(store: &TestStore, key: &str) -> (Claim, ClaimToken) {
    let (claim, token) = win(store, new_claim(key), T0).await;
    store.apply_claim_deadlines(100, clock(T0.plus(MINUTE))).await.unwrap();
    (load(store, claim.id).await, token)
}

async fn audit_actions(store: &TestStore) -> Vec<String> {
    let page = store.audit_page(TEAM, 0, 1_000).await.unwrap();
    page.rows.iter().map(|row| AuditEntry::decode(&row.entry).unwrap().content.action).collect()
}

pub(super) async fn of_64_concurrent_callers_one_wins_a_claim(store: TestStore) {
    let calls = (0..64).map(|_| {
        let (store, new) = (store.clone(), new_claim("invoice-7"));
        async move { store.acquire_claim(new, clock(T0)).await.unwrap() }
    });
    let answers = all_at_once(calls).await;
    let won = answers.iter().filter(|result| matches!(result.answer, AcquireAnswer::Won(_))).count();
    let busy = answers.iter().filter(|result| result.answer == AcquireAnswer::Busy).count();
    assert_eq!((won, busy), (1, 63));
    let ids: Vec<ClaimId> = answers.iter().map(|result| result.claim.as_ref().unwrap().id).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "one claim");
    assert_eq!(event_kinds(&store).await, ["claim.begun"]);
}

pub(super) async fn a_claim_is_read_back_unchanged(store: TestStore) {
    let new = NewClaim { fingerprint: Some("100 EUR".into()), holder: Some("h".into()), ..new_claim("invoice-7") };
    let (claim, token) = win(&store, new.clone(), T0).await;
    assert_eq!(store.claim(TEAM, claim.id).await.unwrap(), Some((claim.clone(), None)));
    assert_eq!(acquire(&store, new.clone(), T0).await.answer, AcquireAnswer::Won(token), "the same holder");
    let (_, done) = apply(&store, claim.id, complete(token, b"{\"id\":1}"), T0.plus(SECOND)).await;
    assert_eq!(store.claim(TEAM, claim.id).await.unwrap(), Some((done, Some(b"{\"id\":1}".to_vec()))));
    let other = NewClaim { fingerprint: Some("200 EUR".into()), ..new };
    assert_eq!(acquire(&store, other, T0).await.answer, AcquireAnswer::Mismatch);
}

pub(super) async fn a_begun_claim_whose_lease_ended_is_unknown(store: TestStore) {
    let (swept, _) = win(&store, new_claim("swept"), T0).await;
    let (asked, _) = win(&store, new_claim("asked"), T0).await;
    assert_eq!(store.apply_claim_deadlines(100, clock(T0.plus(MINUTE - 1))).await.unwrap(), []);
    assert_eq!(acquire(&store, new_claim("asked"), T0.plus(MINUTE)).await.answer, AcquireAnswer::Unknown);
    let noticed = store.apply_claim_deadlines(100, clock(T0.plus(MINUTE))).await.unwrap();
    assert_eq!(noticed.iter().map(|claim| claim.id).collect::<Vec<_>>(), [swept.id]);
    for id in [swept.id, asked.id] {
        assert_eq!(load(&store, id).await.state, ClaimState::Unknown);
    }
    let later = acquire(&store, new_claim("swept"), T0.plus(100 * HOUR)).await.answer;
    assert_eq!(later, AcquireAnswer::Unknown, "never freed by time alone");
    let unknown = store.unknown_claims(None, 100).await.unwrap();
    assert_eq!(unknown.iter().map(|claim| claim.id).collect::<Vec<_>>(), [swept.id, asked.id]);
    assert_eq!(store.unknown_claims(Some(swept.id), 100).await.unwrap().len(), 1);
}

pub(super) async fn an_unbegun_claim_is_free_after_its_lease(store: TestStore) {
    let (claim, first) = win(&store, claim_to_begin_later("a"), T0).await;
    let freed = store.apply_claim_deadlines(100, clock(T0.plus(MINUTE))).await.unwrap();
    assert!(freed.len() == 1 && freed[0].is_free());
    let (_, second) = win(&store, claim_to_begin_later("a"), T0.plus(MINUTE)).await;
    let (stale, _) = apply(&store, claim.id, begin(first), T0.plus(MINUTE)).await;
    assert_eq!(stale, ClaimActionStatus::Refused(ClaimRefusal::StaleToken));
    for _ in 0..2 {
        let (begun, claim) = apply(&store, claim.id, begin(second), T0.plus(MINUTE)).await;
        assert_eq!((begun, claim.state), (ClaimActionStatus::Applied, ClaimState::Begun));
    }
}

pub(super) async fn a_late_completion_is_recorded(store: TestStore) {
    let (claim, first) = win(&store, claim_to_begin_later("a"), T0).await;
    let now = T0.plus(MINUTE);
    let (_, second) = win(&store, claim_to_begin_later("a"), now).await;
    let (status, done) = apply(&store, claim.id, complete(first, b"1"), now).await;
    assert_eq!((status, done.state, done.corrected), (ClaimActionStatus::Applied, ClaimState::Completed, true));
    let (refused, _) = apply(&store, claim.id, begin(second), now).await;
    assert_eq!(refused, ClaimActionStatus::Refused(ClaimRefusal::Ended));
    let (again, same) = apply(&store, claim.id, complete(first, b"2"), now).await;
    assert_eq!((again, same), (ClaimActionStatus::Applied, done));
    assert_eq!(store.claim(TEAM, claim.id).await.unwrap().unwrap().1.as_deref(), Some(b"1".as_slice()));
}

pub(super) async fn a_completion_and_a_begin_never_both_win(store: TestStore) {
    for round in 0..16 {
        let key = format!("round-{round}");
        let (claim, first) = win(&store, claim_to_begin_later(&key), T0).await;
        let now = T0.plus(MINUTE);
        let (_, second) = win(&store, claim_to_begin_later(&key), now).await;
        let calls = [complete(first, b"1"), begin(second)].into_iter().map(|action| {
            let store = store.clone();
            async move { apply(&store, claim.id, action, now).await }
        });
        let answers = all_at_once(calls).await;
        assert_eq!(answers[0].0, ClaimActionStatus::Applied);
        // A begin that came first was told so before the completion changed the state.
        let has_begun_first = answers[1].1.state == ClaimState::Begun;
        assert_eq!(answers[1].0 == ClaimActionStatus::Applied, has_begun_first);
        assert_eq!(load(&store, claim.id).await.state, ClaimState::Completed);
    }
}

pub(super) async fn an_ended_claim_answers_with_its_result(store: TestStore) {
    let (claim, token) = win(&store, new_claim("a"), T0).await;
    apply(&store, claim.id, complete(token, b"{\"invoice\":7}"), T0).await;
    let again = acquire(&store, new_claim("a"), T0.plus(SECOND)).await;
    assert_eq!(again.answer, AcquireAnswer::Ended);
    assert_eq!(again.result.as_deref(), Some(b"{\"invoice\":7}".as_slice()));
    let (claim, token) = win(&store, new_claim("b"), T0).await;
    let fail = ClaimAction::Fail { token, retryable: false, reason: "refused".into() };
    apply(&store, claim.id, fail, T0).await;
    let again = acquire(&store, new_claim("b"), T0).await;
    assert_eq!((again.answer, again.result), (AcquireAnswer::Ended, None));
    assert_eq!(again.claim.unwrap().failure.unwrap().reason, "refused");
}

pub(super) async fn the_policy_frees_a_lost_claim_once(store: TestStore) {
    let retrying = |key: &str| NewClaim { on_unknown: LostHolderPolicy::Retry, ..new_claim(key) };
    let (claim, _) = win(&store, retrying("a"), T0).await;
    let due = T0.plus(MINUTE + RETRY_AFTER_MS);
    let unconfirmed = ClaimClock { now: due, policy: None };
    store.apply_claim_deadlines(100, unconfirmed).await.unwrap();
    assert_eq!(load(&store, claim.id).await.state, ClaimState::Unknown, "not while the time is unconfirmed");
    assert_eq!(store.apply_claim_deadlines(100, unconfirmed).await.unwrap(), []);
    let freed = store.apply_claim_deadlines(100, clock(due)).await.unwrap();
    assert!(freed.len() == 1 && freed[0].is_free() && freed[0].may_repeat());
    win(&store, retrying("a"), due).await;
    store.apply_claim_deadlines(100, clock(due.plus(HOUR))).await.unwrap();
    assert!(load(&store, claim.id).await.needs_decision(), "once");
}

pub(super) async fn a_decision_about_a_claim_is_applied_once(store: TestStore) {
    let (claim, _) = lost(&store, "a").await;
    let decide = || {
        let action = resolve(ClaimResolution::Done, claim.rev);
        let operation = new_operation("decision", 1, T0);
        store.apply_claim_action(TEAM, claim.id, action, Some(operation), clock(T0.plus(HOUR)))
    };
    let first = decide().await.unwrap();
    assert!(matches!(first, IdempotentResult::Done(ClaimActionResult::Done(ClaimActionStatus::Applied, _))));
    assert!(matches!(decide().await.unwrap(), IdempotentResult::Replayed(_)));
    let done = load(&store, claim.id).await;
    assert_eq!((done.state, done.rev), (ClaimState::Completed, claim.rev + 1));
    assert_eq!(audit_actions(&store).await.iter().filter(|action| *action == "claim.resolved").count(), 1);
}

pub(super) async fn a_refused_decision_about_a_claim_binds_no_key(store: TestStore) {
    let (claim, _) = lost(&store, "a").await;
    let before = audit_actions(&store).await.len();
    let decide = |rev: u32| {
        let operation = new_operation("decision", 1, T0);
        let action = resolve(ClaimResolution::Retry, rev);
        store.apply_claim_action(TEAM, claim.id, action, Some(operation), clock(T0.plus(HOUR)))
    };
    let refused = ClaimActionStatus::Refused(ClaimRefusal::StaleRev);
    let stale = decide(claim.rev - 1).await.unwrap();
    assert!(matches!(stale, IdempotentResult::Done(ClaimActionResult::Done(status, _)) if status == refused));
    assert_eq!(audit_actions(&store).await.len(), before);
    let applied = decide(claim.rev).await.unwrap();
    assert!(matches!(applied, IdempotentResult::Done(ClaimActionResult::Done(ClaimActionStatus::Applied, _))));
    assert!(load(&store, claim.id).await.is_free());
}

pub(super) fn stop_of(scope: StopScope) -> Stop {
    let by = StopAuthor { api_key: None, name: "tests".into() };
    Stop { id: StopId(next_id(T0)), scope, mode: StopMode::Wait, reason: None, by, created_at: T0, release: None }
}

/// The number of claims that have begun.
async fn count_begun(store: &TestStore) -> usize {
    store.claims(TEAM, ClaimQuery { state: Some(ClaimState::Begun), ..all() }).await.unwrap().len()
}

/// Creates a stop in the middle of calls for claims. Returns how many had begun when it was created.
async fn stop_while_claims_begin(store: &TestStore, round: usize) -> usize {
    let racing = (0..32).map(|n| {
        let store = store.clone();
        let new = NewClaim { api_key: None, ..new_claim(&format!("racing-{round}-{n}")) };
        let stop = stop_of(StopScope::Team(TEAM));
        async move {
            if n != 7 {
                let _answer = store.acquire_claim(new, clock(T0)).await.unwrap();
                return None;
            }
            let _created = store.create_stop(stop, None, T0).await.unwrap();
            Some(count_begun(&store).await)
        }
    });
    all_at_once(racing).await.into_iter().flatten().next().unwrap()
}

pub(super) async fn no_claim_begins_after_a_stop(store: TestStore) {
    let (waiting, token) = win(&store, claim_to_begin_later("waiting"), T0).await;
    for round in 0..12 {
        for stop in store.stops(Some(TEAM)).await.unwrap() {
            store.end_stop(Some(TEAM), stop.id, None, T0).await.unwrap();
        }
        let at_stop = stop_while_claims_begin(&store, round).await;
        assert_eq!(count_begun(&store).await, at_stop, "a claim began after the stop");
    }
    let (refused, _) = apply(&store, waiting.id, begin(token), T0).await;
    assert!(matches!(refused, ClaimActionStatus::Refused(ClaimRefusal::Stopped(_))), "{refused:?}");
    let stopped = acquire(&store, new_claim("new"), T0).await;
    assert!(matches!(stopped, AcquireResult { answer: AcquireAnswer::Stopped(_), claim: None, .. }), "{stopped:?}");
    let (done, _) = apply(&store, waiting.id, complete(token, b"1"), T0).await;
    assert_eq!(done, ClaimActionStatus::Applied, "a fact is never refused");
    let other = NewClaim { team: OTHER_TEAM, ..new_claim("theirs") };
    assert!(matches!(acquire(&store, other, T0).await.answer, AcquireAnswer::Won(_)));
}

fn all() -> ClaimQuery {
    ClaimQuery { limit: 1_000, ..ClaimQuery::default() }
}

pub(super) async fn claims_have_a_key_space_of_their_own(store: TestStore) {
    let email = accept_first(&store, &keyed_email("shared"), T0).await;
    let (claim, _) = win(&store, new_claim("shared"), T0).await;
    let (other, _) = win(&store, NewClaim { team: OTHER_TEAM, ..new_claim("shared") }, T0).await;
    assert!(claim.id != other.id && email.id.0 != claim.id.0);
}

pub(super) async fn a_claim_belongs_to_its_team(store: TestStore) {
    let (claim, token) = win(&store, new_claim("a"), T0).await;
    assert_eq!(store.claim(OTHER_TEAM, claim.id).await.unwrap(), None);
    assert_eq!(store.claims(OTHER_TEAM, all()).await.unwrap(), []);
    let nobody = TeamId(Uuid::from_u128(0xdead));
    for team in [OTHER_TEAM, nobody] {
        let answer = store.apply_claim_action(team, claim.id, complete(token, b"1"), None, clock(T0)).await.unwrap();
        assert_eq!(answer, IdempotentResult::Done(ClaimActionResult::Missing));
    }
    assert_eq!(load(&store, claim.id).await, claim);
}

pub(super) async fn a_forgotten_claim_is_bound_again(store: TestStore) {
    let (claim, token) = win(&store, new_claim("a"), T0).await;
    apply(&store, claim.id, complete(token, b"1"), T0).await;
    let (kept, _) = lost(&store, "unknown").await;
    assert_eq!(store.forget_claims(100, T0.plus(HOUR - 1)).await.unwrap(), 0);
    assert_eq!(store.forget_claims(100, T0.plus(HOUR)).await.unwrap(), 1);
    assert_eq!(store.claim(TEAM, claim.id).await.unwrap(), None);
    assert_eq!(load(&store, kept.id).await, kept);
    let (second, token) = win(&store, new_claim("a"), T0.plus(HOUR)).await;
    assert_eq!((claim.bind_number, second.bind_number, second.fence), (1, 2, 1));
    // Nobody swept yet: the next call notices that the memory ended.
    apply(&store, second.id, complete(token, b"2"), T0.plus(HOUR)).await;
    let (third, _) = win(&store, new_claim("a"), T0.plus(2 * HOUR)).await;
    assert_eq!((third.bind_number, third.id == second.id), (3, false));
}

pub(super) async fn changes_of_a_claim_have_events(store: TestStore) {
    let (claim, token) = win(&store, claim_to_begin_later("a"), T0).await;
    apply(&store, claim.id, begin(token), T0).await;
    apply(&store, claim.id, ClaimAction::Renew { token, lease_ms: 2 * MINUTE }, T0).await;
    assert_eq!(load(&store, claim.id).await.lease.unwrap().expires_at, T0.plus(2 * MINUTE));
    store.apply_claim_deadlines(100, clock(T0.plus(2 * MINUTE))).await.unwrap();
    let rev = load(&store, claim.id).await.rev;
    apply(&store, claim.id, resolve(ClaimResolution::Abandon, rev), T0.plus(HOUR)).await;
    apply(&store, claim.id, complete(token, b"1"), T0.plus(HOUR)).await;
    let expected = ["claim.claimed", "claim.begun", "claim.unknown", "claim.resolved", "claim.completed"];
    assert_eq!(event_kinds(&store).await, expected);
}

pub(super) async fn claims_are_listed_newest_first(store: TestStore) {
    let mut ids = Vec::new();
    for key in ["a", "b", "c"] {
        ids.insert(0, win(&store, new_claim(key), T0).await.0.id);
    }
    let list = async |query: ClaimQuery| {
        let rows = store.claims(TEAM, query).await.unwrap();
        rows.iter().map(|claim| claim.id).collect::<Vec<_>>()
    };
    assert_eq!(list(all()).await, ids);
    assert_eq!(list(ClaimQuery { limit: 1, before: Some(ids[0]), ..ClaimQuery::default() }).await, [ids[1]]);
    let key = KeyHash::of_claim(TEAM, &Key::parse("b").unwrap());
    assert_eq!(list(ClaimQuery { key: Some(key), ..all() }).await, [ids[1]]);
    assert_eq!(list(ClaimQuery { state: Some(ClaimState::Unknown), ..all() }).await, []);
    assert_eq!(list(ClaimQuery { state: Some(ClaimState::Begun), ..all() }).await, ids);
}

pub(super) async fn ended_leases_are_found_in_batches(store: TestStore) {
    for n in 0..5 {
        win(&store, new_claim(&format!("a{n}")), T0).await;
        win(&store, NewClaim { team: OTHER_TEAM, ..new_claim(&format!("a{n}")) }, T0).await;
    }
    let (mut rounds, mut found) = (0, 0);
    loop {
        let changed = store.apply_claim_deadlines(4, clock(T0.plus(MINUTE))).await.unwrap();
        if changed.is_empty() {
            break;
        }
        assert!(changed.len() <= 4);
        (rounds, found) = (rounds + 1, found + changed.len());
    }
    assert_eq!((rounds, found), (3, 10));
}
