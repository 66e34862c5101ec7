//! Promises about threading: messages that reply to each other share a thread, in whatever order they arrive.

use crate::conformance::{
    T0, TestStore,
    fixtures::inbound::{file_new, in_reply_to, new_message, open_inbox},
};

pub(super) async fn a_reply_joins_the_thread_of_its_message(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let (first, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    let (answer, _) = file_new(&store, &inbox, in_reply_to(new_message(Some(2), 2), &[1]), T0).await;
    assert_eq!(answer.thread, first.thread);
    let (deep, _) = file_new(&store, &inbox, in_reply_to(new_message(Some(3), 3), &[9, 8, 2]), T0).await;
    assert_eq!(deep.thread, first.thread);
    // All references of a thread are known from now on, also those of mail that never arrived.
    let (sideways, _) = file_new(&store, &inbox, in_reply_to(new_message(None, 4), &[8]), T0).await;
    assert_eq!(sideways.thread, first.thread);
    assert_ne!(file_new(&store, &inbox, new_message(Some(5), 5), T0).await.0.thread, first.thread);
    let other = open_inbox(&store, "b@d.test").await;
    let (elsewhere, _) = file_new(&store, &other, in_reply_to(new_message(Some(6), 6), &[1]), T0).await;
    assert_ne!(elsewhere.thread, first.thread);
}

pub(super) async fn a_message_that_arrives_after_its_reply_joins_the_replys_thread(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let (answer, _) = file_new(&store, &inbox, in_reply_to(new_message(Some(2), 2), &[1]), T0).await;
    let (first, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    assert_eq!(first.thread, answer.thread);
}

pub(super) async fn the_closest_known_reference_decides_the_thread(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let (one, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    let (two, _) = file_new(&store, &inbox, new_message(Some(2), 2), T0).await;
    let (both, _) = file_new(&store, &inbox, in_reply_to(new_message(Some(3), 3), &[2, 1]), T0).await;
    assert_eq!(both.thread, two.thread);
    let (still, _) = file_new(&store, &inbox, in_reply_to(new_message(Some(4), 4), &[1]), T0).await;
    assert_eq!(still.thread, one.thread, "a known reference keeps its thread");
}
