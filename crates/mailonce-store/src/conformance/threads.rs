//! Promises about threads: messages that answer each other find each other, in whatever order they come.

use super::{
    T0, TestStore,
    post::{file_new, in_reply_to, new_message, open_inbox},
};

pub(super) async fn an_answer_joins_the_thread_of_what_it_answers(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let (first, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    let (answer, _) = file_new(&store, &inbox, in_reply_to(new_message(Some(2), 2), &[1]), T0).await;
    assert_eq!(answer.thread, first.thread);
    let (deep, _) = file_new(&store, &inbox, in_reply_to(new_message(Some(3), 3), &[9, 8, 2]), T0).await;
    assert_eq!(deep.thread, first.thread);
    // All names of a thread are known from then on, those of mail that never came too.
    let (sideways, _) = file_new(&store, &inbox, in_reply_to(new_message(None, 4), &[8]), T0).await;
    assert_eq!(sideways.thread, first.thread);
    assert_ne!(file_new(&store, &inbox, new_message(Some(5), 5), T0).await.0.thread, first.thread);
    let other = open_inbox(&store, "b@d.test").await;
    let (elsewhere, _) = file_new(&store, &other, in_reply_to(new_message(Some(6), 6), &[1]), T0).await;
    assert_ne!(elsewhere.thread, first.thread);
}

pub(super) async fn what_was_answered_before_it_came_joins_its_answers(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let (answer, _) = file_new(&store, &inbox, in_reply_to(new_message(Some(2), 2), &[1]), T0).await;
    let (first, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    assert_eq!(first.thread, answer.thread);
}

pub(super) async fn the_closest_known_name_decides_and_keeps_its_thread(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let (one, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    let (two, _) = file_new(&store, &inbox, new_message(Some(2), 2), T0).await;
    let (both, _) = file_new(&store, &inbox, in_reply_to(new_message(Some(3), 3), &[2, 1]), T0).await;
    assert_eq!(both.thread, two.thread);
    let (still, _) = file_new(&store, &inbox, in_reply_to(new_message(Some(4), 4), &[1]), T0).await;
    assert_eq!(still.thread, one.thread, "first come, first kept");
}
