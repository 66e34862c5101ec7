//! Promises about idempotent operations: keyed calls that are not sends.

use mailonce_core::{
    id::EmailId,
    limits,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::AcceptResult,
        email::{EmailChangeRefusal, EmailState, Guard},
        email_commands::{EmailChangeResult, EmailResendResult},
        key_binding::{KeyBinding, KeyChangeResult},
    },
    ttl::Ttl,
};

use crate::conformance::{
    DAY, HOUR, OTHER_TEAM, T0, TEAM, TestStore, accept_and_send, accept_email, accept_first, all_events,
    given_key_hash, intent_email, keyed_email, keyless_email, load_email, new_operation, next_id, next_version,
};

/// A cancel under an operation, at T0.
async fn cancel(store: &TestStore, id: EmailId, operation: KeyedOperation) -> IdempotentResult<EmailChangeResult> {
    store.cancel(TEAM, id, Some(operation), T0).await.unwrap()
}

pub(super) async fn a_repeated_operation_returns_the_stored_response(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let first = cancel(&store, email.id, new_operation("op", 1, T0)).await;

    let mut again = new_operation("op", 1, T0);
    again.response = b"never stored".to_vec();

    assert!(
        matches!(first, IdempotentResult::Done(EmailChangeResult::Changed(after)) if after.state() == EmailState::Cancelled)
    );
    assert_eq!(cancel(&store, email.id, again).await, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert_eq!(all_events(&store, TEAM).await.len(), 2);
}

pub(super) async fn another_operation_under_the_same_key_does_nothing(store: TestStore) {
    let one = accept_first(&store, &keyed_email("k1"), T0).await;
    let two = accept_first(&store, &keyed_email("k2"), T0).await;
    let _done = cancel(&store, one.id, new_operation("op", 1, T0)).await;

    let answer = cancel(&store, two.id, new_operation("op", 2, T0)).await;

    assert_eq!(answer, IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
    assert_eq!(load_email(&store, two.id).await, two);
}

pub(super) async fn an_operation_under_an_emails_key_does_nothing(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;

    let answer = cancel(&store, email.id, new_operation("k", 1, T0)).await;

    assert_eq!(answer, IdempotentResult::KeyMismatch(KeyBinding::Email(email.clone())));
    assert_eq!(load_email(&store, email.id).await, email);
}

pub(super) async fn a_send_under_an_operations_key_returns_the_operation(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let _done = cancel(&store, email.id, new_operation("op", 1, T0)).await;

    let bound = KeyBinding::Operation { digest: [1; 32] };

    assert_eq!(accept_email(&store, &keyed_email("op"), T0).await, AcceptResult::KeyBound(bound.clone()));
    assert_eq!(store.key_binding(TEAM, given_key_hash(TEAM, "op"), T0).await.unwrap(), Some(bound.clone()));
    let view = store.key(TEAM, given_key_hash(TEAM, "op"), T0).await.unwrap().unwrap();
    assert_eq!((view.bind_number, view.binding, view.forgotten_at), (1, Some(bound), None));
    assert_eq!(view.expires_at, Some(T0.plus(DAY)));
    assert_eq!(all_events(&store, TEAM).await.len(), 2);
}

pub(super) async fn an_operation_expires_at_its_time(store: TestStore) {
    for (i, sweep) in [false, true].into_iter().enumerate() {
        let key = format!("op{i}");
        let email = accept_first(&store, &keyed_email(&format!("k{i}")), T0).await;
        let _done = cancel(&store, email.id, new_operation(&key, 1, T0)).await;
        let end = T0.plus(DAY);
        if sweep {
            let _swept = store.sweep(100, end).await.unwrap();
        }
        let just_before = store.key_binding(TEAM, given_key_hash(TEAM, &key), end.plus(-1)).await.unwrap();
        assert_eq!(just_before.is_some(), !sweep);
        assert_eq!(store.key_binding(TEAM, given_key_hash(TEAM, &key), end).await.unwrap(), None);
        let view = store.key(TEAM, given_key_hash(TEAM, &key), end).await.unwrap().unwrap();
        assert_eq!((view.bind_number, view.binding, view.forgotten_at), (1, None, Some(end)), "swept: {sweep}");
        assert_eq!(view.expires_at, None, "swept: {sweep}");
        let rebound = accept_first(&store, &keyed_email(&key), end).await;
        assert_eq!(rebound.bind_number, 2, "swept: {sweep}");
    }
}

pub(super) async fn an_operation_without_effects_binds_its_key_until_it_expires(store: TestStore) {
    let bind = async |digest, at| store.bind_operation(new_operation("op", digest, T0), at).await.unwrap();
    assert_eq!(bind(1, T0).await, IdempotentResult::Done(()));

    let last = T0.plus(DAY - 1);
    assert_eq!(bind(1, last).await, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert_eq!(bind(2, last).await, IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
    assert_eq!(
        store.key_binding(TEAM, given_key_hash(TEAM, "op"), last).await.unwrap(),
        Some(KeyBinding::Operation { digest: [1; 32] })
    );
    assert!(all_events(&store, TEAM).await.is_empty(), "nothing else happened");
    let theirs =
        KeyedOperation { team: OTHER_TEAM, key: given_key_hash(OTHER_TEAM, "op"), ..new_operation("op", 2, T0) };
    assert_eq!(
        store.bind_operation(theirs, T0).await.unwrap(),
        IdempotentResult::Done(()),
        "another team's key is another key"
    );

    assert_eq!(
        store.bind_operation(new_operation("op", 2, T0.plus(DAY)), T0.plus(DAY)).await.unwrap(),
        IdempotentResult::Done(())
    );
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let taken = store.bind_operation(new_operation("k", 1, T0), T0).await.unwrap();
    assert_eq!(taken, IdempotentResult::KeyMismatch(KeyBinding::Email(email)));
}

pub(super) async fn the_tombstone_of_an_operation_is_swept(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let _done = cancel(&store, email.id, new_operation("op", 1, T0)).await;
    let end = T0.plus(DAY + limits::TOMBSTONE_MS);
    let _swept = store.sweep(100, end.plus(-1)).await.unwrap();
    assert!(store.key(TEAM, given_key_hash(TEAM, "op"), end.plus(-1)).await.unwrap().is_some());

    let _swept = store.sweep(100, end).await.unwrap();

    assert_eq!(store.key(TEAM, given_key_hash(TEAM, "op"), end).await.unwrap(), None);
    assert_eq!(accept_first(&store, &keyed_email("op"), end).await.bind_number, 1);
}

pub(super) async fn an_expired_operation_can_be_done_again(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let _done = cancel(&store, email.id, new_operation("op", 1, T0)).await;
    let later = T0.plus(DAY);

    let again = store.cancel(TEAM, email.id, Some(new_operation("op", 2, later)), later).await.unwrap();

    assert!(matches!(again, IdempotentResult::Done(EmailChangeResult::Changed(_))), "{again:?}");
    let view = store.key(TEAM, given_key_hash(TEAM, "op"), later).await.unwrap().unwrap();
    assert_eq!((view.bind_number, view.binding), (2, Some(KeyBinding::Operation { digest: [2; 32] })));
}

pub(super) async fn an_operations_key_cannot_be_extended_or_deleted(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let _done = cancel(&store, email.id, new_operation("op", 1, T0)).await;
    let key = given_key_hash(TEAM, "op");

    assert_eq!(store.extend_key(TEAM, key, Ttl(DAY), T0).await.unwrap(), KeyChangeResult::Missing);
    assert_eq!(store.forget_key(TEAM, key, T0).await.unwrap(), KeyChangeResult::Missing);
}

pub(super) async fn operations_of_two_teams_do_not_share_keys(store: TestStore) {
    let mine = accept_first(&store, &keyed_email("k"), T0).await;
    let theirs = accept_first(&store, &keyed_email("k").team(OTHER_TEAM), T0).await;
    let their_operation =
        KeyedOperation { team: OTHER_TEAM, key: given_key_hash(OTHER_TEAM, "op"), ..new_operation("op", 2, T0) };
    let _done = cancel(&store, mine.id, new_operation("op", 1, T0)).await;

    let answer = store.cancel(OTHER_TEAM, theirs.id, Some(their_operation), T0).await.unwrap();

    assert!(matches!(answer, IdempotentResult::Done(EmailChangeResult::Changed(_))), "{answer:?}");
}

pub(super) async fn an_operation_on_an_unknown_email_binds_no_key(store: TestStore) {
    let missing = EmailId(next_id(T0));
    let mut resend = keyed_email("k").to_new_email(T0);
    resend.head.resend_of = Some(missing);

    assert_eq!(
        cancel(&store, missing, new_operation("op", 1, T0)).await,
        IdempotentResult::Done(EmailChangeResult::Missing)
    );
    let answer = store.resend(resend, Some(new_operation("op", 1, T0)), T0).await.unwrap();
    assert_eq!(answer, IdempotentResult::Done(EmailResendResult::Missing));
    assert_eq!(store.key_binding(TEAM, given_key_hash(TEAM, "op"), T0).await.unwrap(), None);
}

pub(super) async fn a_resend_under_an_operation_is_done_once(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k"), T0).await;
    let new_version = || next_version(&email).to_new_email(T0);

    let first = store.resend(new_version(), Some(new_operation("op", 1, T0)), T0).await.unwrap();
    let again = store.resend(new_version(), Some(new_operation("op", 1, T0)), T0.plus(HOUR)).await.unwrap();
    let other_key = store.resend(new_version(), Some(new_operation("op2", 1, T0)), T0.plus(HOUR)).await.unwrap();
    let other_call = store.resend(new_version(), Some(new_operation("op", 2, T0)), T0.plus(HOUR)).await.unwrap();

    let IdempotentResult::Done(EmailResendResult::First(next)) = first else { panic!("{first:?}") };
    assert_eq!(again, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert_eq!(other_key, IdempotentResult::Done(EmailResendResult::Replayed(next)));
    assert_eq!(other_call, IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
}

pub(super) async fn a_resend_under_the_key_of_an_operation_cancels_nothing(store: TestStore) {
    let held = accept_first(&store, &keyless_email().held(Guard::Approval), T0).await;
    let mut new_email = next_version(&held).to_new_email(T0);
    new_email.guard_input.cancels_previous = true;
    let taken = KeyedOperation { key: new_email.key.unwrap(), ..new_operation("op", 1, T0) };
    assert_eq!(store.bind_operation(taken, T0).await.unwrap(), IdempotentResult::Done(()));
    let events = all_events(&store, TEAM).await;

    let refused = store.resend(new_email, Some(new_operation("op", 2, T0)), T0).await.unwrap();

    assert_eq!(refused, IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
    assert_eq!(load_email(&store, held.id).await, held);
    assert_eq!(all_events(&store, TEAM).await, events);
    let _free = accept_first(&store, &keyed_email("op"), T0).await;
}

pub(super) async fn a_resend_that_finds_its_version_takes_back_the_held_email(store: TestStore) {
    let held = accept_first(&store, &intent_email("o", &["a@example.com"]).held(Guard::Approval), T0).await;
    let mut new_email = next_version(&held).to_new_email(T0);
    new_email.guard_input.cancels_previous = true;
    let version = accept_first(&store, &intent_email("o", &["a@example.com"]).version(2), T0).await;

    let found = store.resend(new_email, Some(new_operation("op", 1, T0)), T0).await.unwrap();

    assert_eq!(found, IdempotentResult::Done(EmailResendResult::Replayed(version.clone())));
    let previous = load_email(&store, held.id).await;
    assert_eq!((previous.state(), previous.resent_as), (EmailState::Cancelled, Some(version.id)));
    let bound = store.key_binding(TEAM, given_key_hash(TEAM, "op"), T0).await.unwrap();
    assert_eq!(bound, Some(KeyBinding::Operation { digest: [1; 32] }));
}

pub(super) async fn a_refused_operation_changes_no_email(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k"), T0).await;

    let answer = cancel(&store, email.id, new_operation("op", 1, T0)).await;

    assert_eq!(answer, IdempotentResult::Done(EmailChangeResult::Refused(EmailChangeRefusal::TooLate, email.clone())));
    assert_eq!(load_email(&store, email.id).await, email);
}
