//! Promises that hold when everybody comes at once.

use mailonce_core::{
    email::{Email, EmailState},
    port::store::{Accept, Bound, Change, Once, Resend, Suppressed},
};
use std::collections::BTreeSet;

use super::{
    DAY, Draft, Ledger, SANDBOX, SECOND, T0, TEAM, about, accepted, all_at_once, capture, detail, events, first, items,
    keyed, keyless, kinds, listed, loose, next_version, operation, sent, the,
};

const A: &str = "a@example.com";
const B: &str = "b@example.com";

/// Accepts all drafts at once.
async fn accept_all(store: &Ledger, drafts: &[Draft], at: i64) -> Vec<Accept> {
    let now = T0.plus(at);
    let work = drafts.iter().map(|draft| (store.clone(), draft.wish(now)));
    all_at_once(work.map(|(store, wish)| async move { store.accept(wish, now).await.unwrap() })).await
}

/// The one email that all answers name, and how many made it.
fn agreed(answers: Vec<Accept>) -> (Email, usize) {
    let firsts = answers.iter().filter(|answer| matches!(answer, Accept::First(_))).count();
    let mut emails: Vec<Email> = answers
        .into_iter()
        .map(|answer| match answer {
            Accept::First(email) | Accept::Bound(Bound::Email(email)) => email,
            other => panic!("{other:?}"),
        })
        .collect();
    emails.dedup();
    assert_eq!(emails.len(), 1, "every caller gets the same email");
    (emails.remove(0), firsts)
}

pub(super) async fn of_64_equal_wishes_one_is_the_first(store: Ledger) {
    let (email, firsts) = agreed(accept_all(&store, &vec![keyed("k"); 64], 0).await);

    assert_eq!((firsts, email.bind), (1, 1));
    assert_eq!(listed(&store, TEAM).await, [email]);
    assert_eq!(events(&store, TEAM).await.len(), 1);
}

pub(super) async fn of_1000_equal_wishes_one_is_the_first(store: Ledger) {
    let (_email, firsts) = agreed(accept_all(&store, &vec![keyed("k"); 1000], 0).await);

    assert_eq!(firsts, 1);
    assert_eq!(events(&store, TEAM).await.len(), 1);
}

pub(super) async fn of_64_different_wishes_under_one_key_one_is_the_first(store: Ledger) {
    let drafts: Vec<_> = (0..64).map(|i| keyed("k").text(&format!("wording {i}"))).collect();

    let (email, firsts) = agreed(accept_all(&store, &drafts, 0).await);

    assert_eq!(firsts, 1);
    let digests: Vec<_> = drafts.iter().map(|draft| draft.wish(T0).digest).collect();
    assert!(digests.contains(&email.digest));
}

pub(super) async fn of_200_keys_each_is_a_first(store: Ledger) {
    let drafts: Vec<_> = (0..200).map(|i| keyed(&format!("k{i}"))).collect();

    let ids: BTreeSet<_> = accept_all(&store, &drafts, 0).await.into_iter().map(|answer| first(answer).id).collect();

    assert_eq!((ids.len(), events(&store, TEAM).await.len()), (200, 200));
}

pub(super) async fn of_64_wishes_under_a_forgotten_key_one_is_the_first(store: Ledger) {
    let old = sent(&store, &keyed("k").ttl(SECOND), T0).await;

    let (email, firsts) = agreed(accept_all(&store, &vec![keyed("k"); 64], SECOND).await);

    assert_eq!((firsts, email.bind), (1, 2));
    assert_ne!(email.id, old.id);
}

pub(super) async fn of_one_and_several_at_once_only_one_goes(store: Ledger) {
    for round in 0..50 {
        let entity = format!("o{round}");
        let (one, several) = (about(&entity, &[A]), about(&entity, &[A, B]));
        let pair = if round % 2 == 0 { [one, several] } else { [several, one] };

        let emails: Vec<_> = accept_all(&store, &pair, 0).await.into_iter().map(first).collect();

        let held = emails.iter().filter(|email| email.state() == EmailState::Held).count();
        assert_eq!(held, 1, "round {round}: {emails:?}");
    }
}

pub(super) async fn of_many_groups_around_one_person_only_one_goes(store: Ledger) {
    for round in 0..10 {
        let names: Vec<String> = (0..12).map(|i| format!("p{i}@example.com")).collect();
        let drafts: Vec<_> = names.iter().map(|name| about(&format!("o{round}"), &[name.as_str(), A])).collect();

        let emails: Vec<_> = accept_all(&store, &drafts, 0).await.into_iter().map(first).collect();

        let going = emails.iter().filter(|email| email.state() == EmailState::Queued).count();
        assert_eq!(going, 1, "round {round}");
    }
}

pub(super) async fn batches_that_cross_do_not_block_each_other(store: Ledger) {
    let keys: Vec<_> = (0..40).map(|i| keyed(&format!("k{i}"))).collect();
    let backwards: Vec<_> = keys.iter().rev().cloned().collect();
    let batches = (0..16).map(|i| if i % 2 == 0 { &keys } else { &backwards });
    let wishes: Vec<_> = batches.map(|drafts| drafts.iter().map(|draft| draft.wish(T0)).collect::<Vec<_>>()).collect();
    let work = wishes.into_iter().map(|wishes| (store.clone(), loose(&wishes)));

    let answers = all_at_once(work.map(|(store, batch)| async move { items(&store, batch, T0).await })).await;

    let firsts = answers.iter().flatten().filter(|answer| matches!(answer, Accept::First(_))).count();
    assert_eq!(firsts, 40);
    assert_eq!((listed(&store, TEAM).await.len(), events(&store, TEAM).await.len()), (40, 40));
}

pub(super) async fn a_batch_and_its_twin_make_its_items_once(store: Ledger) {
    let drafts: Vec<_> = (0..30).map(|i| keyless().item("b", i)).collect();
    let wishes: Vec<Vec<_>> = (0..8).map(|_| drafts.iter().map(|draft| draft.wish(T0)).collect()).collect();
    let work = wishes.into_iter().map(|wishes| {
        let mut batch = loose(&wishes);
        batch.operation = Some(operation("b", 1, T0));
        (store.clone(), batch)
    });

    let answers = all_at_once(work.map(|(store, batch)| async move { items(&store, batch, T0).await })).await;

    for place in 0..30 {
        let (_email, firsts) = agreed(answers.iter().map(|items| items[place].clone()).collect());
        assert_eq!(firsts, 1, "item {place}");
    }
}

pub(super) async fn of_32_cancels_one_is_told(store: Ledger) {
    let id = accepted(&store, &keyed("k"), T0).await.id;
    let work = (0..32).map(|_| store.clone());

    let answers = all_at_once(work.map(|store| async move { store.cancel(TEAM, id, None, T0).await.unwrap() })).await;

    let after = the(&store, id).await;
    assert!(answers.iter().all(|answer| *answer == Once::Done(Change::Email(after.clone()))));
    assert_eq!(kinds(&store).await, ["email.accepted", "email.cancelled"]);
}

pub(super) async fn a_cancel_and_a_capture_never_both_win(store: Ledger) {
    for round in 0..30 {
        let id = accepted(&store, &keyed(&format!("k{round}")), T0).await.id;
        let (canceller, capturer) = (store.clone(), store.clone());
        let cancel = tokio::spawn(async move { canceller.cancel(TEAM, id, None, T0).await.unwrap() });
        let taken = tokio::spawn(async move { capture(&capturer, 10, T0).await });

        let (cancel, taken) = (cancel.await.unwrap(), taken.await.unwrap());

        let won = matches!(cancel, Once::Done(Change::Email(_)));
        let state = the(&store, id).await.state();
        let wanted = if won { EmailState::Cancelled } else { EmailState::Sent };
        assert_eq!((state, taken), (wanted, usize::from(!won)), "round {round}");
    }
}

pub(super) async fn many_workers_capture_each_envelope_once(store: Ledger) {
    let mut ids = Vec::new();
    for i in 0..60 {
        ids.push(accepted(&store, &keyed(&format!("k{i}")), T0).await.id);
    }
    let work = (0..12).map(|_| store.clone());

    let taken: Vec<usize> = all_at_once(work.map(|store| async move {
        let mut taken = 0;
        for _ in 0..12 {
            taken += store.capture(SANDBOX, 7, Some(T0), T0).await.unwrap();
        }
        taken
    }))
    .await;

    assert_eq!(taken.iter().sum::<usize>(), 60);
    for id in ids {
        let found = detail(&store, id).await;
        assert_eq!((found.email.state(), found.attempts.len()), (EmailState::Sent, 1));
    }
    assert_eq!(events(&store, TEAM).await.len(), 120);
}

pub(super) async fn of_32_resends_one_makes_a_version(store: Ledger) {
    let email = sent(&store, &keyed("k"), T0).await;
    let work: Vec<_> = (0..32).map(|_| (store.clone(), next_version(&email).wish(T0))).collect();
    let resends = work.into_iter().map(|(store, wish)| async move { store.resend(wish, None, T0).await.unwrap() });

    let answers = all_at_once(resends).await;

    let firsts = answers.iter().filter(|answer| matches!(answer, Once::Done(Resend::First(_)))).count();
    let versions: BTreeSet<_> = answers
        .iter()
        .map(|answer| match answer {
            Once::Done(Resend::First(next) | Resend::Repeated(next)) => next.id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((firsts, versions.len()), (1, 1));
    assert_eq!(the(&store, email.id).await.resent_as, versions.first().copied());
    assert_eq!(listed(&store, TEAM).await.len(), 2);
}

pub(super) async fn of_32_operations_under_one_key_one_is_done(store: Ledger) {
    let mut work = Vec::new();
    for i in 0..32 {
        let id = accepted(&store, &keyed(&format!("k{i}")), T0).await.id;
        work.push((store.clone(), id, operation("op", 1, T0)));
    }
    let cancels =
        work.into_iter().map(|(store, id, op)| async move { store.cancel(TEAM, id, Some(op), T0).await.unwrap() });

    let answers = all_at_once(cancels).await;

    assert_eq!(answers.iter().filter(|answer| matches!(answer, Once::Done(_))).count(), 1);
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Once::Repeated(_))).count(), 31);
    assert_eq!(kinds(&store).await.iter().filter(|kind| **kind == "email.cancelled").count(), 1);
}

pub(super) async fn notes_of_many_nodes_add_up(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let note = Suppressed { team: TEAM, email: email.id, count: 3, latest: vec![] };
    let work = (0..40).map(|_| (store.clone(), note.clone()));

    all_at_once(work.map(|(store, note)| async move { store.note_suppressed(vec![note], T0).await.unwrap() })).await;

    assert_eq!(the(&store, email.id).await.suppressed, 120);
    assert_eq!(events(&store, TEAM).await.len(), 41);
}

pub(super) async fn a_sweep_beside_new_wishes_loses_nothing(store: Ledger) {
    for i in 0..20 {
        let _old = sent(&store, &keyed(&format!("k{i}")).ttl(SECOND), T0).await;
    }
    let now = T0.plus(40 * DAY);
    let wishes: Vec<_> = (0..20).map(|i| (store.clone(), keyed(&format!("k{i}")).wish(now))).collect();
    let sweeps: Vec<_> = (0..10).map(|_| store.clone()).collect();
    let sweeps = sweeps.into_iter().map(move |store| async move { store.sweep(5, now).await.unwrap() });
    let sweeper = tokio::spawn(all_at_once(sweeps));
    let accepts = wishes.into_iter().map(|(store, wish)| async move { store.accept(wish, now).await.unwrap() });

    let new: Vec<_> = all_at_once(accepts).await.into_iter().map(first).collect();
    let _swept = sweeper.await.unwrap();

    let _rest = store.sweep(100, now).await.unwrap();
    for (i, email) in new.into_iter().enumerate() {
        assert_eq!(email.bind, 2, "k{i}");
        assert_eq!(super::replayed(&store, &keyed(&format!("k{i}")), now).await, email);
    }
}
