//! The command line as a client: `send`, `emails`, `key inspect` and `key derive`.

use serde_json::json;
use std::process::Stdio;
use tokio::io::AsyncWriteExt as _;

use crate::fixtures::binary::{CliFixture, send_args};

#[tokio::test]
async fn sending_twice_is_first_then_replayed() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let first = cli.run(&send_args("k", "Hello")).await.expect_exit(0).json();
    assert_eq!(first["dedupe"]["outcome"], "first");
    let again = cli.run(&send_args("k", "Hello")).await.expect_exit(0).json();
    assert_eq!((&again["dedupe"]["outcome"], &again["id"]), (&json!("replayed"), &first["id"]));
}

#[tokio::test]
async fn waiting_ends_with_the_final_state_or_exits_4() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let sent = cli.run(&[&send_args("k", "x")[..], &["--wait"]].concat()).await.expect_exit(0).json();
    assert_eq!((&sent["state"], &sent["next"]), (&json!("sent"), &json!("Sent; there is nothing more to do.")));
    let unknown = ["send", "--from", "a@x.test", "--to", "unknown@sandbox.mailonce.test", "--text", "x", "--key", "u"];
    let unknown = cli.run(&[&unknown[..], &["--wait", "20s"]].concat()).await.expect_exit(7).json();
    assert_eq!(unknown["state"], "unknown");
    cli.run(&["pause"]).await.expect_exit(0);
    let output = cli.run(&[&send_args("later", "x")[..], &["--wait", "1"]].concat()).await.expect_exit(4);
    assert!(output.json()["state"] == "queued" && output.stderr.contains("still queued after 1 s"), "{output:?}");
    cli.run(&[&send_args("wrong", "x")[..], &["--wait", "soon"]].concat()).await.expect_exit(64);
    server.terminate().await;
}

#[tokio::test]
async fn lists_follow_the_cursor_to_the_end() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    for number in 0..25 {
        cli.run(&["inbox", "create", "--username", &format!("n{number}")]).await.expect_exit(0);
    }
    let page = cli.run(&["inbox", "list", "--plain"]).await.expect_exit(0);
    assert!(page.stderr.contains("--all") && page.stdout.lines().count() == 21, "{page:?}");
    let all = cli.run(&["inbox", "list", "--all"]).await.expect_exit(0).json();
    assert_eq!((all["data"].as_array().unwrap().len(), &all["next_cursor"]), (26, &json!(null)));
    server.terminate().await;
}

#[tokio::test]
async fn another_text_under_the_same_key_exits_6() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let first = cli.run(&send_args("k", "Hello")).await.expect_exit(0).json();
    let refused = cli.run(&send_args("k", "Goodbye")).await.expect_exit(6);
    assert!(refused.stderr.contains("key_mismatch"), "{}", refused.stderr);
    assert!(refused.stderr.contains(first["id"].as_str().unwrap()), "{}", refused.stderr);
    assert!(refused.stderr.contains("next:"), "{}", refused.stderr);
}

#[tokio::test]
async fn a_send_that_a_guard_holds_exits_3() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let args = |to: &'static [&'static str]| {
        let mut args = vec!["send", "--from", "a@mailonce.test", "--text", "x", "--type", "alert", "--entity", "e"];
        args.extend(to.iter().flat_map(|to| ["--to", to]));
        args
    };
    cli.run(&args(&["a@x.test", "b@x.test"])).await.expect_exit(0);
    let held = cli.run(&args(&["a@x.test"])).await.expect_exit(3).json();
    assert_eq!(held["guard"], "overlaps");
}

#[tokio::test]
async fn wrong_usage_exits_64_and_help_exits_0() {
    let cli = CliFixture::new();
    let wrong: [&[&str]; 7] = [
        &[],
        &["fly"],
        &["send"],
        &["send", "--to", "a@x.test", "--text", "x"],
        &["send", "--from", "a@x.test", "--to", "a@x.test", "--text", "x", "--entity", "e"],
        &["key", "derive", "--type", "t", "--entity", "e"],
        &["key", "derive", "--type", "t", "--entity", "e", "--to", "a@x.test", "--version", "one"],
    ];
    for args in wrong {
        let output = cli.run(args).await.expect_exit(64);
        assert!(!output.stderr.is_empty(), "{output:?}");
    }
    for args in [&["--help"][..], &["--version"], &["send", "--help"]] {
        assert!(!cli.run(args).await.expect_exit(0).stdout.is_empty());
    }
}

#[tokio::test]
async fn a_request_that_the_server_refuses_as_invalid_exits_64() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let output =
        cli.run(&["send", "--from", "a@x.test", "--to", "nobody", "--text", "x", "--key", "k"]).await.expect_exit(64);
    assert!(output.stderr.contains("to[0]"), "{}", output.stderr);
    cli.run(&["send", "--from", "a@x.test", "--to", "b@x.test", "--key", "k"]).await.expect_exit(64);
    cli.run(&["key", "derive", "--type", "t", "--entity", "e", "--to", "nobody"]).await.expect_exit(64);
    cli.run(&["key", "derive", "--type", "", "--entity", "e", "--to", "a@x.test"]).await.expect_exit(64);
}

#[tokio::test]
async fn a_send_without_a_server_fails_with_a_hint() {
    let cli = CliFixture::new();
    let output = cli.run(&send_args("k", "x")).await.expect_exit(5);
    assert!(output.stderr.contains("mailonce dev"), "{}", output.stderr);
    let output = cli
        .run_with_env(&send_args("k", "x"), &[("MAILONCE_URL", "http://127.0.0.1:1"), ("MAILONCE_API_KEY", "mo_x")])
        .await
        .expect_exit(5);
    assert!(output.stderr.contains("127.0.0.1:1"), "{}", output.stderr);
}

#[tokio::test]
async fn the_derived_key_is_the_key_that_the_server_uses() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let intent = ["--type", "order.confirmation", "--entity", "order_4821", "--to", "User@Example.com"];
    let derived = cli.run(&[&["key", "derive"], &intent[..]].concat()).await.expect_exit(0).json();
    let send = [&["send", "--from", "a@mailonce.test", "--text", "x"], &intent[..]].concat();
    let sent = cli.run(&send).await.expect_exit(0).json();
    assert_eq!(sent["dedupe"]["key"], derived["key"]);
    let view = cli.run(&["key", "inspect", derived["key"].as_str().unwrap()]).await.expect_exit(0).json();
    assert_eq!((&view["email"], &view["derivation"]), (&sent["id"], &json!("intent")));
}

#[tokio::test]
async fn a_key_with_special_characters_can_be_inspected() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    let key = "order 4821/a?b#c%d";
    let sent = cli.run(&send_args(key, "x")).await.expect_exit(0).json();
    let view = cli.run(&["key", "inspect", key]).await.expect_exit(0).json();
    assert_eq!((&view["key"], &view["email"], &view["state"]), (&json!(key), &sent["id"], &json!("queued")));
    let missing = cli.run(&["key", "inspect", "never-used"]).await.expect_exit(64);
    assert!(missing.stderr.contains("not_found"), "{}", missing.stderr);
}

#[tokio::test]
async fn emails_are_listed_and_shown() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    let mut ids = Vec::new();
    for key in ["a", "b", "c"] {
        ids.push(cli.run(&send_args(key, "x")).await.expect_exit(0).json()["id"].clone());
    }
    ids.reverse();
    let page = cli.run(&["emails", "list", "--limit", "2"]).await.expect_exit(0).json();
    let listed = |page: &serde_json::Value| {
        page["data"].as_array().unwrap().iter().map(|row| row["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&page), ids[..2]);
    let rest =
        cli.run(&["emails", "list", "--cursor", page["next_cursor"].as_str().unwrap()]).await.expect_exit(0).json();
    assert_eq!(listed(&rest), ids[2..]);
    let found = cli
        .run(&["emails", "list", "--key", "b", "--state", "queued", "--to", "ada@example.com"])
        .await
        .expect_exit(0)
        .json();
    assert_eq!(listed(&found), ids[1..2]);
    let shown = cli.run(&["emails", "show", ids[0].as_str().unwrap()]).await.expect_exit(0).json();
    assert_eq!((&shown["text"], &shown["key"]), (&json!("x"), &json!("c")));
    cli.run(&["emails", "list", "--state", "flying"]).await.expect_exit(64);
    cli.run(&["emails", "show", "nonsense"]).await.expect_exit(64);
}

#[tokio::test]
async fn send_reads_the_text_from_stdin() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let mut child = cli.command(&send_args("k", "-")).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"From a pipe\n").await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(0));
    let id = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["id"].as_str().unwrap().to_owned();
    let shown = cli.run(&["emails", "show", &id]).await.expect_exit(0).json();
    assert_eq!(shown["text"], "From a pipe\n");
}

#[tokio::test]
async fn a_send_without_a_key_warns_on_stderr_and_leaves_stdout_clean() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let output =
        cli.run(&["send", "--from", "a@mailonce.test", "--to", "b@x.test", "--text", "x"]).await.expect_exit(0);
    assert!(output.stderr.contains("a second email"), "{}", output.stderr);
    assert_eq!(output.json()["dedupe"]["key"], json!(null));
}
