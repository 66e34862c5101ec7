//! Promises about repeatable calls that are not sends.

use mailonce_core::{
    email::{EmailState, Refusal},
    id::EmailId,
    limits,
    port::store::{Accept, Bound, Change, KeyChange, Once, Operation, Resend},
    ttl::Ttl,
};

use super::{
    DAY, HOUR, Ledger, OTHER, T0, TEAM, accept, accepted, events, given, keyed, next_id, next_version, operation, sent,
    the,
};

/// A cancel under an operation, at T0.
async fn cancel(store: &Ledger, id: EmailId, operation: Operation) -> Once<Change> {
    store.cancel(TEAM, id, Some(operation), T0).await.unwrap()
}

pub(super) async fn a_repeated_operation_gives_the_stored_answer(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let first = cancel(&store, email.id, operation("op", 1, T0)).await;

    let mut again = operation("op", 1, T0);
    again.answer = b"never stored".to_vec();

    assert!(matches!(first, Once::Done(Change::Email(after)) if after.state() == EmailState::Cancelled));
    assert_eq!(cancel(&store, email.id, again).await, Once::Repeated(b"answer 1".to_vec()));
    assert_eq!(events(&store, TEAM).await.len(), 2);
}

pub(super) async fn another_operation_under_the_same_key_does_nothing(store: Ledger) {
    let one = accepted(&store, &keyed("k1"), T0).await;
    let two = accepted(&store, &keyed("k2"), T0).await;
    let _done = cancel(&store, one.id, operation("op", 1, T0)).await;

    let answer = cancel(&store, two.id, operation("op", 2, T0)).await;

    assert_eq!(answer, Once::Mismatch(Bound::Operation { digest: [1; 32] }));
    assert_eq!(the(&store, two.id).await, two);
}

pub(super) async fn an_operation_under_an_emails_key_does_nothing(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;

    let answer = cancel(&store, email.id, operation("k", 1, T0)).await;

    assert_eq!(answer, Once::Mismatch(Bound::Email(email.clone())));
    assert_eq!(the(&store, email.id).await, email);
}

pub(super) async fn a_wish_under_an_operations_key_finds_the_operation(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let _done = cancel(&store, email.id, operation("op", 1, T0)).await;

    let bound = Bound::Operation { digest: [1; 32] };

    assert_eq!(accept(&store, &keyed("op"), T0).await, Accept::Bound(bound.clone()));
    assert_eq!(store.bound(TEAM, given(TEAM, "op"), T0).await.unwrap(), Some(bound.clone()));
    let view = store.key(TEAM, given(TEAM, "op"), T0).await.unwrap().unwrap();
    assert_eq!((view.bind, view.bound, view.forgotten_at), (1, Some(bound), None));
    assert_eq!(view.expires_at, Some(T0.plus(DAY)));
    assert_eq!(events(&store, TEAM).await.len(), 2);
}

pub(super) async fn an_operation_is_forgotten_at_its_time(store: Ledger) {
    for (i, sweep) in [false, true].into_iter().enumerate() {
        let key = format!("op{i}");
        let email = accepted(&store, &keyed(&format!("k{i}")), T0).await;
        let _done = cancel(&store, email.id, operation(&key, 1, T0)).await;
        let end = T0.plus(DAY);
        if sweep {
            let _swept = store.sweep(100, end).await.unwrap();
        }
        let just_before = store.bound(TEAM, given(TEAM, &key), end.plus(-1)).await.unwrap();
        assert_eq!(just_before.is_some(), !sweep);
        assert_eq!(store.bound(TEAM, given(TEAM, &key), end).await.unwrap(), None);
        let view = store.key(TEAM, given(TEAM, &key), end).await.unwrap().unwrap();
        assert_eq!((view.bind, view.bound, view.forgotten_at), (1, None, Some(end)), "swept: {sweep}");
        assert_eq!(view.expires_at, None, "swept: {sweep}");
        let wish = accepted(&store, &keyed(&key), end).await;
        assert_eq!(wish.bind, 2, "swept: {sweep}");
    }
}

pub(super) async fn an_operation_alone_is_bound_once_until_its_time(store: Ledger) {
    let bind = async |digest, at| store.bind_operation(operation("op", digest, T0), at).await.unwrap();
    assert_eq!(bind(1, T0).await, Once::Done(()));

    let last = T0.plus(DAY - 1);
    assert_eq!(bind(1, last).await, Once::Repeated(b"answer 1".to_vec()));
    assert_eq!(bind(2, last).await, Once::Mismatch(Bound::Operation { digest: [1; 32] }));
    assert_eq!(store.bound(TEAM, given(TEAM, "op"), last).await.unwrap(), Some(Bound::Operation { digest: [1; 32] }));
    assert!(events(&store, TEAM).await.is_empty(), "nothing else happened");
    let theirs = Operation { team: OTHER, key: given(OTHER, "op"), ..operation("op", 2, T0) };
    assert_eq!(store.bind_operation(theirs, T0).await.unwrap(), Once::Done(()), "another team's key is another key");

    assert_eq!(store.bind_operation(operation("op", 2, T0.plus(DAY)), T0.plus(DAY)).await.unwrap(), Once::Done(()));
    let email = accepted(&store, &keyed("k"), T0).await;
    let taken = store.bind_operation(operation("k", 1, T0), T0).await.unwrap();
    assert_eq!(taken, Once::Mismatch(Bound::Email(email)));
}

pub(super) async fn the_tombstone_of_an_operation_goes_in_the_end(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let _done = cancel(&store, email.id, operation("op", 1, T0)).await;
    let end = T0.plus(DAY + limits::TOMBSTONE_MS);
    let _swept = store.sweep(100, end.plus(-1)).await.unwrap();
    assert!(store.key(TEAM, given(TEAM, "op"), end.plus(-1)).await.unwrap().is_some());

    let _swept = store.sweep(100, end).await.unwrap();

    assert_eq!(store.key(TEAM, given(TEAM, "op"), end).await.unwrap(), None);
    assert_eq!(accepted(&store, &keyed("op"), end).await.bind, 1);
}

pub(super) async fn a_forgotten_operation_is_done_again(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let _done = cancel(&store, email.id, operation("op", 1, T0)).await;
    let later = T0.plus(DAY);

    let again = store.cancel(TEAM, email.id, Some(operation("op", 2, later)), later).await.unwrap();

    assert!(matches!(again, Once::Done(Change::Email(_))), "{again:?}");
    let view = store.key(TEAM, given(TEAM, "op"), later).await.unwrap().unwrap();
    assert_eq!((view.bind, view.bound), (2, Some(Bound::Operation { digest: [2; 32] })));
}

pub(super) async fn the_key_of_an_operation_is_no_emails_key(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let _done = cancel(&store, email.id, operation("op", 1, T0)).await;
    let key = given(TEAM, "op");

    assert_eq!(store.extend_key(TEAM, key, Ttl(DAY), T0).await.unwrap(), KeyChange::Missing);
    assert_eq!(store.forget_key(TEAM, key, T0).await.unwrap(), KeyChange::Missing);
}

pub(super) async fn operations_of_two_teams_never_meet(store: Ledger) {
    let mine = accepted(&store, &keyed("k"), T0).await;
    let theirs = accepted(&store, &keyed("k").team(OTHER), T0).await;
    let their_operation = Operation { team: OTHER, key: given(OTHER, "op"), ..operation("op", 2, T0) };
    let _done = cancel(&store, mine.id, operation("op", 1, T0)).await;

    let answer = store.cancel(OTHER, theirs.id, Some(their_operation), T0).await.unwrap();

    assert!(matches!(answer, Once::Done(Change::Email(_))), "{answer:?}");
}

pub(super) async fn an_operation_on_nobody_binds_nothing(store: Ledger) {
    let nobody = EmailId(next_id(T0));
    let mut of_nobody = keyed("k").wish(T0);
    of_nobody.head.resend_of = Some(nobody);

    assert_eq!(cancel(&store, nobody, operation("op", 1, T0)).await, Once::Done(Change::Missing));
    let resend = store.resend(of_nobody, Some(operation("op", 1, T0)), T0).await.unwrap();
    assert_eq!(resend, Once::Done(Resend::Missing));
    assert_eq!(store.bound(TEAM, given(TEAM, "op"), T0).await.unwrap(), None);
}

pub(super) async fn a_resend_under_an_operation_is_done_once(store: Ledger) {
    let email = sent(&store, &keyed("k"), T0).await;
    let wish = || next_version(&email).wish(T0);

    let first = store.resend(wish(), Some(operation("op", 1, T0)), T0).await.unwrap();
    let again = store.resend(wish(), Some(operation("op", 1, T0)), T0.plus(HOUR)).await.unwrap();
    let other_key = store.resend(wish(), Some(operation("op2", 1, T0)), T0.plus(HOUR)).await.unwrap();
    let other_call = store.resend(wish(), Some(operation("op", 2, T0)), T0.plus(HOUR)).await.unwrap();

    let Once::Done(Resend::First(next)) = first else { panic!("{first:?}") };
    assert_eq!(again, Once::Repeated(b"answer 1".to_vec()));
    assert_eq!(other_key, Once::Done(Resend::Repeated(next)));
    assert_eq!(other_call, Once::Mismatch(Bound::Operation { digest: [1; 32] }));
}

pub(super) async fn a_refusal_under_an_operation_changes_no_email(store: Ledger) {
    let email = sent(&store, &keyed("k"), T0).await;

    let answer = cancel(&store, email.id, operation("op", 1, T0)).await;

    assert_eq!(answer, Once::Done(Change::Refused(Refusal::TooLate, email.clone())));
    assert_eq!(the(&store, email.id).await, email);
}
