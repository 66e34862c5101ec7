//! A client that disconnects in the middle of a request never leaves partial state.

use serde_json::{Value, json};
use std::{pin::pin, task::Poll};
use tower::ServiceExt as _;

use crate::fixtures::{
    api_fixture::{World, mail},
    requests::{TestRequest, post},
};

/// Polls a call at most `polls` times, then drops it. Returns whether it finished before.
pub(crate) async fn drop_request_after(world: &World, call: TestRequest, polls: usize) -> bool {
    let mut future = pin!(world.router().oneshot(call.build(&world.secret)));
    for _ in 0..polls {
        let ended = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await;
        if ended {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Checks that the key is free or bound to a complete email, and that repeating the call agrees.
async fn expect_consistent(world: &World, key: &str) {
    let view = world.get(&format!("/v1/keys/{key}")).await;
    let answer = world.send(key, &mail()).await;
    let id = answer.string_field("id");
    if view.status == 404 {
        // The commit may have completed between the two calls.
        assert!([200, 202].contains(&answer.status), "{}", answer.text);
    } else {
        assert_eq!((view.status, answer.status), (200, 200), "{}", answer.text);
        assert_eq!(view["email"], id);
    }
    let email = world.email(&id).await;
    assert_eq!((&email["key"], &email["text"]), (&json!(key), &mail()["text"]));
    assert_eq!(email["handoffs"].as_array().map(Vec::len), Some(1));
    let listed = world.get(&format!("/v1/emails?key={key}")).await.expect_status(200).ids();
    assert_eq!(listed, [id]);
}

over_every_engine! {
    async fn a_dropped_send_leaves_a_free_key_or_a_complete_email(world) {
        for polls in 1..=20 {
            let key = format!("dropped-{polls}");
            drop_request_after(&world, post("/v1/emails").key(&key).json(&mail()), polls).await;
            expect_consistent(&world, &key).await;
        }
    }

    async fn a_dropped_batch_leaves_nothing_or_all_of_it(world) {
        let items: Value = (0..20).map(|_| mail()).collect();
        for polls in 1..=5 {
            let call = || post("/v1/emails/batch").key(&format!("batch-{polls}")).json(&items);
            drop_request_after(&world, call(), polls).await;
            let (once, twice) = (world.call(call()).await, world.call(call()).await.expect_status(200));
            assert!([200, 202].contains(&once.status), "{}", once.text);
            assert_eq!(once.ids(), twice.ids());
            assert_eq!(twice.rows().len(), 20);
        }
        assert_eq!(world.email_count().await, 100);
    }
}
