//! Ten thousand concurrent calls with one key.

use mailonce_engine::SANDBOX;
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{sync::Semaphore, task::JoinSet};
use tower::ServiceExt as _;

use crate::fixtures::{
    api_fixture::{SECOND, World, mail, mail_with, mail_with_intent},
    requests::{TestRequest, TestResponse, post},
};

const CALLS: usize = 10_000;

/// Checks that concurrent calls with one key make one email: one 202, all others 200, equal ids.
async fn send_concurrently(world: World) {
    let gate = Arc::new(Semaphore::new(0));
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let (router, gate) = (world.router(), Arc::clone(&gate));
        let request = post("/v1/emails").key("storm").json(&mail()).build(&world.secret);
        calls.spawn(async move {
            drop(gate.acquire().await.unwrap());
            TestResponse::from_response(router.oneshot(request).await.unwrap()).await
        });
    }
    tokio::task::yield_now().await;
    gate.add_permits(CALLS);
    let answers =
        tokio::time::timeout(Duration::from_mins(2), calls.join_all()).await.expect("the calls did not finish in time");
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    let worst = answers.iter().max_by_key(|answer| answer.status).unwrap();
    assert_eq!((count(202), count(200)), (1, CALLS - 1), "worst: {}", worst.text);
    let ids: BTreeSet<String> = answers.iter().map(|answer| answer.string_field("id")).collect();
    let message_ids: BTreeSet<String> = answers.iter().map(|answer| answer.string_field("message_id")).collect();
    assert_eq!((ids.len(), message_ids.len()), (1, 1));
    assert_eq!(world.email_count().await, 1);
    world.engine.outbound.flush_suppressed_calls().await;
    let id = ids.first().unwrap();
    assert_eq!(world.email(id).await["suppressed"], CALLS - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_simultaneous_calls_make_one_email_in_memory() {
    Box::pin(send_concurrently(World::memory().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_simultaneous_calls_make_one_email_in_sqlite() {
    Box::pin(send_concurrently(World::sqlite().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_simultaneous_calls_make_one_email_in_postgres() {
    Box::pin(send_concurrently(World::postgres().await)).await;
}

/// Concurrent calls with one intent and different wording: the first wins, and every caller gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn simultaneous_calls_with_different_wording_share_one_email() {
    let world = World::sqlite().await;
    let mut calls = JoinSet::new();
    for n in 0..200 {
        let mut body = mail_with_intent("order_4821");
        body["text"] = format!("Wording {n}").into();
        let (router, request) = (world.router(), post("/v1/emails").json(&body).build(&world.secret));
        calls.spawn(async move { TestResponse::from_response(router.oneshot(request).await.unwrap()).await });
    }
    let answers = calls.join_all().await;
    let firsts = answers.iter().filter(|answer| answer.status == 202).count();
    let differing = answers.iter().filter(|answer| answer["dedupe"]["payload_differs"] == true).count();
    let ids: BTreeSet<String> = answers.iter().map(|answer| answer.string_field("id")).collect();
    assert_eq!((firsts, differing, ids.len()), (1, 199, 1));
}

/// One of 400 emails, each with its own recipient and a key that is remembered for two seconds.
fn short_ttl_request(n: usize) -> TestRequest {
    let body = mail_with(json!({ "to": [format!("user{n}@example.com")], "ttl": "2s" }));
    post("/v1/emails").key(&format!("k{n}")).json(&body)
}

/// Sends them while the sandbox captures accepted emails, so that accepts and captures share commits.
async fn send_while_capturing(world: &World) -> BTreeSet<String> {
    let engine = Arc::clone(&world.engine);
    let capturing = tokio::spawn(async move {
        let mut captured = 0;
        while captured < 400 {
            captured += engine.ctx.store().capture(SANDBOX, 64, None, engine.ctx.now()).await.unwrap();
        }
    });
    let mut calls = JoinSet::new();
    for n in 0..400 {
        let (router, request) = (world.router(), short_ttl_request(n).build(&world.secret));
        calls.spawn(async move {
            TestResponse::from_response(router.oneshot(request).await.unwrap())
                .await
                .expect_status(202)
                .string_field("id")
        });
    }
    let ids = calls.join_all().await.into_iter().collect();
    capturing.await.unwrap();
    ids
}

/// A replay shows the same state as a read, and no key is replayed after it expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replays_equal_reads_while_emails_are_captured() {
    let world = World::sqlite().await;
    let ids = send_while_capturing(&world).await;
    for n in 0..400 {
        let replay = world.call(short_ttl_request(n)).await.expect_status(200);
        let email = world.email(&replay.string_field("id")).await;
        assert_eq!((&replay["state"], &replay["rev"]), (&email["state"], &email["rev"]), "email {n}");
    }
    world.advance_clock(2 * SECOND);
    for n in 0..400 {
        let first = world.call(short_ttl_request(n)).await.expect_status(202);
        assert!(!ids.contains(&first.string_field("id")), "email {n}");
    }
}
