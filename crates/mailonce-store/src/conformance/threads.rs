//! Promises about threads: messages that answer each other find each other, in whatever order they come.

use super::{
    Ledger, T0,
    post::{answering, filed, letter, open},
};

pub(super) async fn an_answer_joins_the_thread_of_what_it_answers(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let (first, _) = filed(&store, &inbox, letter(Some(1), 1), T0).await;
    let (answer, _) = filed(&store, &inbox, answering(letter(Some(2), 2), &[1]), T0).await;
    assert_eq!(answer.thread, first.thread);
    let (deep, _) = filed(&store, &inbox, answering(letter(Some(3), 3), &[9, 8, 2]), T0).await;
    assert_eq!(deep.thread, first.thread);
    // All names of a thread are known from then on, those of mail that never came too.
    let (sideways, _) = filed(&store, &inbox, answering(letter(None, 4), &[8]), T0).await;
    assert_eq!(sideways.thread, first.thread);
    assert_ne!(filed(&store, &inbox, letter(Some(5), 5), T0).await.0.thread, first.thread);
    let other = open(&store, "b@d.test").await;
    let (elsewhere, _) = filed(&store, &other, answering(letter(Some(6), 6), &[1]), T0).await;
    assert_ne!(elsewhere.thread, first.thread);
}

pub(super) async fn what_was_answered_before_it_came_joins_its_answers(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let (answer, _) = filed(&store, &inbox, answering(letter(Some(2), 2), &[1]), T0).await;
    let (first, _) = filed(&store, &inbox, letter(Some(1), 1), T0).await;
    assert_eq!(first.thread, answer.thread);
}

pub(super) async fn the_closest_known_name_decides_and_keeps_its_thread(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let (one, _) = filed(&store, &inbox, letter(Some(1), 1), T0).await;
    let (two, _) = filed(&store, &inbox, letter(Some(2), 2), T0).await;
    let (both, _) = filed(&store, &inbox, answering(letter(Some(3), 3), &[2, 1]), T0).await;
    assert_eq!(both.thread, two.thread);
    let (still, _) = filed(&store, &inbox, answering(letter(Some(4), 4), &[1]), T0).await;
    assert_eq!(still.thread, one.thread, "first come, first kept");
}
