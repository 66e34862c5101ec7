//! The command line as a caller: send, look, derive.

use serde_json::json;
use std::process::Stdio;
use tokio::io::AsyncWriteExt as _;

use crate::binary::{CliFixture, send_args};

#[tokio::test]
async fn sending_twice_is_in_flight_then_replayed() {
    let desk = CliFixture::new();
    let _server = desk.start_dev(&[]).await;
    let first = desk.run(&send_args("k", "Hello")).await.expect_exit(4).json();
    assert_eq!(first["dedupe"]["outcome"], "first");
    let again = desk.run(&send_args("k", "Hello")).await.expect_exit(0).json();
    assert_eq!((&again["dedupe"]["outcome"], &again["id"]), (&json!("replayed"), &first["id"]));
}

#[tokio::test]
async fn another_text_under_the_same_key_exits_6() {
    let desk = CliFixture::new();
    let _server = desk.start_dev(&[]).await;
    let first = desk.run(&send_args("k", "Hello")).await.expect_exit(4).json();
    let refused = desk.run(&send_args("k", "Goodbye")).await.expect_exit(6);
    assert!(refused.stderr.contains("key_mismatch"), "{}", refused.stderr);
    assert!(refused.stderr.contains(first["id"].as_str().unwrap()), "{}", refused.stderr);
    assert!(refused.stderr.contains("next:"), "{}", refused.stderr);
}

#[tokio::test]
async fn a_send_that_a_guard_holds_exits_3() {
    let desk = CliFixture::new();
    let _server = desk.start_dev(&[]).await;
    let words = |to: &'static [&'static str]| {
        let mut words = vec!["send", "--from", "a@mailonce.test", "--text", "x", "--type", "alert", "--entity", "e"];
        words.extend(to.iter().flat_map(|to| ["--to", to]));
        words
    };
    desk.run(&words(&["a@x.test", "b@x.test"])).await.expect_exit(4);
    let held = desk.run(&words(&["a@x.test"])).await.expect_exit(3).json();
    assert_eq!(held["guard"], "overlaps");
}

#[tokio::test]
async fn wrong_usage_exits_64_and_help_exits_0() {
    let desk = CliFixture::new();
    let wrong: [&[&str]; 7] = [
        &[],
        &["fly"],
        &["send"],
        &["send", "--to", "a@x.test", "--text", "x"],
        &["send", "--from", "a@x.test", "--to", "a@x.test", "--text", "x", "--entity", "e"],
        &["key", "derive", "--type", "t", "--entity", "e"],
        &["key", "derive", "--type", "t", "--entity", "e", "--to", "a@x.test", "--version", "one"],
    ];
    for words in wrong {
        let ran = desk.run(words).await.expect_exit(64);
        assert!(!ran.stderr.is_empty(), "{ran:?}");
    }
    for words in [&["--help"][..], &["--version"], &["send", "--help"]] {
        assert!(!desk.run(words).await.expect_exit(0).stdout.is_empty());
    }
}

#[tokio::test]
async fn a_call_whose_words_are_wrong_exits_64_too() {
    let desk = CliFixture::new();
    let _server = desk.start_dev(&[]).await;
    let ran =
        desk.run(&["send", "--from", "a@x.test", "--to", "nobody", "--text", "x", "--key", "k"]).await.expect_exit(64);
    assert!(ran.stderr.contains("to[0]"), "{}", ran.stderr);
    desk.run(&["send", "--from", "a@x.test", "--to", "b@x.test", "--key", "k"]).await.expect_exit(64);
    desk.run(&["key", "derive", "--type", "t", "--entity", "e", "--to", "nobody"]).await.expect_exit(64);
    desk.run(&["key", "derive", "--type", "", "--entity", "e", "--to", "a@x.test"]).await.expect_exit(64);
}

#[tokio::test]
async fn a_send_without_a_server_fails_with_a_hint() {
    let desk = CliFixture::new();
    let ran = desk.run(&send_args("k", "x")).await.expect_exit(5);
    assert!(ran.stderr.contains("mailonce dev"), "{}", ran.stderr);
    let ran = desk
        .run_with_env(&send_args("k", "x"), &[("MAILONCE_URL", "http://127.0.0.1:1"), ("MAILONCE_API_KEY", "mo_x")])
        .await
        .expect_exit(5);
    assert!(ran.stderr.contains("127.0.0.1:1"), "{}", ran.stderr);
}

#[tokio::test]
async fn the_key_that_is_derived_is_the_key_that_the_server_uses() {
    let desk = CliFixture::new();
    let _server = desk.start_dev(&[]).await;
    let intent = ["--type", "order.confirmation", "--entity", "order_4821", "--to", "User@Example.com"];
    let derived = desk.run(&[&["key", "derive"], &intent[..]].concat()).await.expect_exit(0).json();
    let send = [&["send", "--from", "a@mailonce.test", "--text", "x"], &intent[..]].concat();
    let sent = desk.run(&send).await.expect_exit(4).json();
    assert_eq!(sent["dedupe"]["key"], derived["key"]);
    let view = desk.run(&["key", "inspect", derived["key"].as_str().unwrap()]).await.expect_exit(0).json();
    assert_eq!((&view["email"], &view["derivation"]), (&sent["id"], &json!("intent")));
}

#[tokio::test]
async fn a_key_is_inspected_however_it_is_spelt() {
    let desk = CliFixture::new();
    let _server = desk.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    let key = "order 4821/a?b#c%d";
    let sent = desk.run(&send_args(key, "x")).await.expect_exit(4).json();
    let view = desk.run(&["key", "inspect", key]).await.expect_exit(0).json();
    assert_eq!((&view["key"], &view["email"], &view["state"]), (&json!(key), &sent["id"], &json!("queued")));
    let missing = desk.run(&["key", "inspect", "never-used"]).await.expect_exit(64);
    assert!(missing.stderr.contains("not_found"), "{}", missing.stderr);
}

#[tokio::test]
async fn emails_are_listed_and_shown() {
    let desk = CliFixture::new();
    let _server = desk.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    let mut ids = Vec::new();
    for key in ["a", "b", "c"] {
        ids.push(desk.run(&send_args(key, "x")).await.expect_exit(4).json()["id"].clone());
    }
    ids.reverse();
    let page = desk.run(&["emails", "list", "--limit", "2"]).await.expect_exit(0).json();
    let listed = |page: &serde_json::Value| {
        page["data"].as_array().unwrap().iter().map(|row| row["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&page), ids[..2]);
    let rest =
        desk.run(&["emails", "list", "--cursor", page["next_cursor"].as_str().unwrap()]).await.expect_exit(0).json();
    assert_eq!(listed(&rest), ids[2..]);
    let found = desk
        .run(&["emails", "list", "--key", "b", "--state", "queued", "--to", "ada@example.com"])
        .await
        .expect_exit(0)
        .json();
    assert_eq!(listed(&found), ids[1..2]);
    let shown = desk.run(&["emails", "show", ids[0].as_str().unwrap()]).await.expect_exit(0).json();
    assert_eq!((&shown["text"], &shown["key"]), (&json!("x"), &json!("c")));
    desk.run(&["emails", "list", "--state", "flying"]).await.expect_exit(64);
    desk.run(&["emails", "show", "nonsense"]).await.expect_exit(64);
}

#[tokio::test]
async fn the_text_may_come_from_stdin() {
    let desk = CliFixture::new();
    let _server = desk.start_dev(&[]).await;
    let mut child = desk.command(&send_args("k", "-")).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"From a pipe\n").await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(4));
    let id = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["id"].as_str().unwrap().to_owned();
    let shown = desk.run(&["emails", "show", &id]).await.expect_exit(0).json();
    assert_eq!(shown["text"], "From a pipe\n");
}

#[tokio::test]
async fn a_send_without_a_key_warns_on_stderr_and_leaves_stdout_clean() {
    let desk = CliFixture::new();
    let _server = desk.start_dev(&[]).await;
    let ran = desk.run(&["send", "--from", "a@mailonce.test", "--to", "b@x.test", "--text", "x"]).await.expect_exit(4);
    assert!(ran.stderr.contains("another email"), "{}", ran.stderr);
    assert_eq!(ran.json()["dedupe"]["key"], json!(null));
}
