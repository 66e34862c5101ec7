//! Promises about leases of threads: one agent at a time holds a thread, and a lost lease is reported as stale.

use mailonce_core::{
    conversation::thread::{ThreadLease, ThreadLeaseResult, ThreadLeaseSpec},
    id::ThreadId,
    operation::IdempotentResult,
    outbound::key_binding::KeyBinding,
    time::Time,
};

use crate::conformance::{
    HOUR, MINUTE, SECOND, T0, TEAM, TestStore, all_at_once, all_events, event_kinds,
    fixtures::conversations::{expect_leased_thread, inbox_with_message, lease_thread, load_thread, thread_lease_spec},
    given_key_hash, new_operation, next_id,
};

/// A request to renew the lease of this token for a minute.
fn renew_request(token: &str) -> ThreadLeaseSpec {
    ThreadLeaseSpec { renew: Some(token.into()), ttl_ms: MINUTE, ..thread_lease_spec("unused") }
}

fn lease_until(at: Time, token: &str) -> ThreadLease {
    ThreadLease { token: token.into(), holder: format!("agent {token}"), expires_at: at, message: None }
}

pub(super) async fn a_free_thread_is_leased_and_a_leased_one_is_not(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let before = load_thread(&store, message.thread).await;
    let thread = expect_leased_thread(&store, message.thread, "t", T0).await;
    assert_eq!(thread.details.lease, Some(lease_until(T0.plus(HOUR), "t")));
    assert_eq!(
        (thread.details.fence, thread.rev, thread.last_activity_at),
        (1, before.rev + 1, before.last_activity_at)
    );
    assert_eq!(load_thread(&store, message.thread).await, thread);

    let busy = lease_thread(&store, message.thread, thread_lease_spec("u"), T0.plus(HOUR - 1)).await;

    assert_eq!(busy, ThreadLeaseResult::Busy(thread.clone()));
    assert_eq!(load_thread(&store, message.thread).await, thread);
    assert_eq!(event_kinds(&store).await, ["message.received", "thread.leased"]);
    let event = all_events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!((event.subject_id, event.rev), (thread.id.0, thread.rev));
    assert_eq!((&event.data["holder"], &event.data["fence"]), (&"agent t".into(), &1.into()));
}

pub(super) async fn a_lease_is_renewed_only_with_its_token(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let first = expect_leased_thread(&store, message.thread, "t", T0).await;
    let later = T0.plus(HOUR - SECOND);
    assert_eq!(lease_thread(&store, message.thread, renew_request("u"), later).await, ThreadLeaseResult::Stale(first));
    let ThreadLeaseResult::Leased(thread) = lease_thread(&store, message.thread, renew_request("t"), later).await
    else {
        panic!()
    };
    assert_eq!((thread.details.lease, thread.details.fence), (Some(lease_until(later.plus(MINUTE), "t")), 1));
    let busy = lease_thread(&store, message.thread, thread_lease_spec("u"), T0.plus(HOUR)).await;
    assert!(matches!(busy, ThreadLeaseResult::Busy(_)), "{busy:?}");
    assert_eq!(event_kinds(&store).await, ["message.received", "thread.leased"], "a renewal emits no event");
}

pub(super) async fn an_expired_lease_is_taken_over_with_a_higher_fence(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let _first = expect_leased_thread(&store, message.thread, "t", T0).await;
    // The lease expired, but no other agent took the thread since.
    let end = T0.plus(2 * HOUR);
    let ThreadLeaseResult::Leased(renewed) = lease_thread(&store, message.thread, renew_request("t"), end).await else {
        panic!()
    };
    assert_eq!(renewed.details.fence, 1);
    let later = end.plus(MINUTE);
    let second = expect_leased_thread(&store, message.thread, "u", later).await;
    assert_eq!((second.details.fence, &second.details.lease), (2, &Some(lease_until(later.plus(HOUR), "u"))));
    assert_eq!(lease_thread(&store, message.thread, renew_request("t"), later).await, ThreadLeaseResult::Stale(second));
}

pub(super) async fn a_lease_is_released_only_by_its_holder(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let thread = expect_leased_thread(&store, message.thread, "t", T0).await;
    let release = async |token| store.release_thread(TEAM, message.thread, token, T0).await.unwrap().unwrap();
    assert_eq!(release("u").await, thread);
    assert_eq!(load_thread(&store, message.thread).await, thread);
    let free = release("t").await;
    assert_eq!((free.details.lease.as_ref(), free.details.fence, free.rev), (None, 1, thread.rev + 1));
    assert_eq!(load_thread(&store, message.thread).await, free);
    assert_eq!(release("t").await, free, "a second release changes nothing");
    assert_eq!(expect_leased_thread(&store, message.thread, "u", T0).await.details.fence, 2);
}

pub(super) async fn leasing_a_thread_under_an_operation_is_done_once(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let lease = async |token: &str, key: &str, digest| {
        let operation = Some(new_operation(key, digest, T0));
        store.lease_thread(TEAM, message.thread, thread_lease_spec(token), operation, T0).await.unwrap()
    };
    assert!(matches!(lease("t", "op", 1).await, IdempotentResult::Done(ThreadLeaseResult::Leased(_))));
    assert_eq!(lease("u", "op", 1).await, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert_eq!(lease("u", "op", 2).await, IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
    // A refused lease may succeed later, so it binds no key.
    assert!(matches!(lease("u", "op2", 1).await, IdempotentResult::Done(ThreadLeaseResult::Busy(_))));
    assert_eq!(store.key_binding(TEAM, given_key_hash(TEAM, "op2"), T0).await.unwrap(), None);
    assert_eq!(load_thread(&store, message.thread).await.details.fence, 1);
}

pub(super) async fn an_unknown_thread_cannot_be_leased(store: TestStore) {
    let missing = ThreadId(next_id(T0));
    let result =
        store.lease_thread(TEAM, missing, thread_lease_spec("t"), Some(new_operation("op", 1, T0)), T0).await.unwrap();
    assert_eq!(result, IdempotentResult::Done(ThreadLeaseResult::Missing));
    assert_eq!(store.key_binding(TEAM, given_key_hash(TEAM, "op"), T0).await.unwrap(), None);
    assert_eq!(store.release_thread(TEAM, missing, "t", T0).await.unwrap(), None);
    assert_eq!(store.thread(TEAM, missing).await.unwrap(), None);
}

pub(super) async fn of_32_concurrent_agents_one_leases_a_thread(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    for round in 1..=5_i64 {
        let now = T0.plus(round * HOUR);
        let work = (0..32).map(|n| (store.clone(), thread_lease_spec(&format!("{round}-{n}"))));
        let results = all_at_once(work.map(|(store, spec)| async move {
            store.lease_thread(TEAM, message.thread, spec, None, now).await.unwrap()
        }))
        .await;
        let leased: Vec<_> = results
            .iter()
            .filter(|result| matches!(result, IdempotentResult::Done(ThreadLeaseResult::Leased(_))))
            .collect();
        let thread = load_thread(&store, message.thread).await;
        assert_eq!(leased, [&IdempotentResult::Done(ThreadLeaseResult::Leased(thread.clone()))]);
        assert_eq!(thread.details.fence, round as u64);
    }
}
