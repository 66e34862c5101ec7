//! Promises about the lease of a thread: one agent at a time works on it, and whoever lost it is told.

use mailonce_core::{
    conversation::thread::{LeaseAsk, Leasing, ThreadLease},
    id::ThreadId,
    port::store::{Bound, Once},
    time::Time,
};

use super::{
    HOUR, Ledger, MINUTE, SECOND, T0, TEAM, all_at_once, events, given, kinds, next_id, operation,
    talk::{asks, lease, leased, letter_in, the_thread},
};

/// A wish to keep the lease of this token for a minute from now on.
fn renews(token: &str) -> LeaseAsk {
    LeaseAsk { renew: Some(token.into()), ttl_ms: MINUTE, ..asks("unused") }
}

fn ends(at: Time, token: &str) -> ThreadLease {
    ThreadLease { token: token.into(), holder: format!("agent {token}"), expires_at: at, message: None }
}

pub(super) async fn a_free_thread_is_leased_and_a_busy_one_is_not(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let before = the_thread(&store, message.thread).await;
    let thread = leased(&store, message.thread, "t", T0).await;
    assert_eq!(thread.about.lease, Some(ends(T0.plus(HOUR), "t")));
    assert_eq!((thread.about.fence, thread.rev, thread.latest_at), (1, before.rev + 1, before.latest_at));
    assert_eq!(the_thread(&store, message.thread).await, thread);

    let busy = lease(&store, message.thread, asks("u"), T0.plus(HOUR - 1)).await;

    assert_eq!(busy, Leasing::Busy(thread.clone()));
    assert_eq!(the_thread(&store, message.thread).await, thread);
    assert_eq!(kinds(&store).await, ["message.received", "thread.leased"]);
    let told = events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!((told.about, told.rev), (thread.id.0, thread.rev));
    assert_eq!((&told.data["holder"], &told.data["fence"]), (&"agent t".into(), &1.into()));
}

pub(super) async fn a_lease_is_renewed_by_its_token_alone(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let first = leased(&store, message.thread, "t", T0).await;
    let later = T0.plus(HOUR - SECOND);
    assert_eq!(lease(&store, message.thread, renews("u"), later).await, Leasing::Stale(first));
    let Leasing::Taken(thread) = lease(&store, message.thread, renews("t"), later).await else { panic!() };
    assert_eq!((thread.about.lease, thread.about.fence), (Some(ends(later.plus(MINUTE), "t")), 1));
    let busy = lease(&store, message.thread, asks("u"), T0.plus(HOUR)).await;
    assert!(matches!(busy, Leasing::Busy(_)), "{busy:?}");
    assert_eq!(kinds(&store).await, ["message.received", "thread.leased"], "a renewal is not told");
}

pub(super) async fn a_lapsed_lease_is_taken_over_with_a_higher_fence(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let _first = leased(&store, message.thread, "t", T0).await;
    // It lapsed, but nobody took it since.
    let end = T0.plus(2 * HOUR);
    let Leasing::Taken(renewed) = lease(&store, message.thread, renews("t"), end).await else { panic!() };
    assert_eq!(renewed.about.fence, 1);
    let later = end.plus(MINUTE);
    let second = leased(&store, message.thread, "u", later).await;
    assert_eq!((second.about.fence, &second.about.lease), (2, &Some(ends(later.plus(HOUR), "u"))));
    assert_eq!(lease(&store, message.thread, renews("t"), later).await, Leasing::Stale(second));
}

pub(super) async fn only_ones_own_lease_is_given_back(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let thread = leased(&store, message.thread, "t", T0).await;
    let release = async |token| store.release_thread(TEAM, message.thread, token, T0).await.unwrap().unwrap();
    assert_eq!(release("u").await, thread);
    assert_eq!(the_thread(&store, message.thread).await, thread);
    let free = release("t").await;
    assert_eq!((free.about.lease.as_ref(), free.about.fence, free.rev), (None, 1, thread.rev + 1));
    assert_eq!(the_thread(&store, message.thread).await, free);
    assert_eq!(release("t").await, free, "twice is once");
    assert_eq!(leased(&store, message.thread, "u", T0).await.about.fence, 2);
}

pub(super) async fn a_leasing_under_an_operation_is_done_once(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let ask = async |token: &str, key: &str, digest| {
        let operation = Some(operation(key, digest, T0));
        store.lease_thread(TEAM, message.thread, asks(token), operation, T0).await.unwrap()
    };
    assert!(matches!(ask("t", "op", 1).await, Once::Done(Leasing::Taken(_))));
    assert_eq!(ask("u", "op", 1).await, Once::Repeated(b"answer 1".to_vec()));
    assert_eq!(ask("u", "op", 2).await, Once::Mismatch(Bound::Operation { digest: [1; 32] }));
    // What was not taken may be later: it binds nothing.
    assert!(matches!(ask("u", "op2", 1).await, Once::Done(Leasing::Busy(_))));
    assert_eq!(store.bound(TEAM, given(TEAM, "op2"), T0).await.unwrap(), None);
    assert_eq!(the_thread(&store, message.thread).await.about.fence, 1);
}

pub(super) async fn nobodys_thread_is_not_leased(store: Ledger) {
    let nobody = ThreadId(next_id(T0));
    let asked = store.lease_thread(TEAM, nobody, asks("t"), Some(operation("op", 1, T0)), T0).await.unwrap();
    assert_eq!(asked, Once::Done(Leasing::Missing));
    assert_eq!(store.bound(TEAM, given(TEAM, "op"), T0).await.unwrap(), None);
    assert_eq!(store.release_thread(TEAM, nobody, "t", T0).await.unwrap(), None);
    assert_eq!(store.thread(TEAM, nobody).await.unwrap(), None);
}

pub(super) async fn of_32_agents_one_takes_a_thread(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    for round in 1..=5_i64 {
        let now = T0.plus(round * HOUR);
        let work = (0..32).map(|n| (store.clone(), asks(&format!("{round}-{n}"))));
        let leasings = all_at_once(work.map(|(store, ask)| async move {
            store.lease_thread(TEAM, message.thread, ask, None, now).await.unwrap()
        }))
        .await;
        let taken: Vec<_> =
            leasings.iter().filter(|leasing| matches!(leasing, Once::Done(Leasing::Taken(_)))).collect();
        let thread = the_thread(&store, message.thread).await;
        assert_eq!(taken, [&Once::Done(Leasing::Taken(thread.clone()))]);
        assert_eq!(thread.about.fence, round as u64);
    }
}
