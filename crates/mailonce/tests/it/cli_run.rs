//! The command line as a server: dev and serve, from greeting to farewell.

use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;

use crate::binary::{CliFixture, SpawnedServer, send_args};

/// The headers and the body of the curl that the greeting prints.
fn parse_printed_curl(greeting: &str) -> (String, Vec<(String, String)>, String) {
    let curl = greeting.split_once("curl -si ").expect("the greeting prints a curl").1;
    let url = curl.split_whitespace().next().unwrap().to_owned();
    let mut quoted = curl.split('\'');
    let (mut headers, mut body) = (Vec::new(), String::new());
    while let (Some(before), Some(inside)) = (quoted.next(), quoted.next()) {
        if before.trim_end().ends_with("-H") {
            let (name, value) = inside.split_once(": ").unwrap();
            headers.push((name.to_owned(), value.to_owned()));
        } else if before.trim_end().ends_with("-d") {
            inside.clone_into(&mut body);
        }
    }
    (url, headers, body)
}

#[tokio::test]
async fn dev_greets_with_url_key_and_a_curl_that_works_as_it_says() {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[]).await;
    assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.startup_banner);
    assert!(server.api_key.starts_with("mo_"), "{}", server.startup_banner);
    let (url, headers, body) = parse_printed_curl(&server.startup_banner);
    let path = url.strip_prefix(&server.url).unwrap();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let (status, first) = server.call("POST", path, &headers, &body).await;
    assert_eq!((status, &first["dedupe"]["outcome"]), (202, &json!("first")), "{first}");
    let (status, again) = server.call("POST", path, &headers, &body).await;
    assert_eq!((status, &again["dedupe"]["outcome"], &again["id"]), (200, &json!("replayed"), &first["id"]));
}

#[tokio::test]
async fn dev_hands_mail_to_the_sandbox_by_itself() {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[]).await;
    let id = desk.run(&send_args("k", "x")).await.expect_exit(4).json()["id"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {}", server.api_key);
    let mut state = json!(null);
    for _ in 0..200 {
        state =
            server.call("GET", &format!("/v1/emails/{id}"), &[("Authorization", &bearer)], "").await.1["state"].clone();
        if state == "sent" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(state, "sent");
}

#[tokio::test]
async fn dev_takes_the_key_that_the_environment_fixes() {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[("MAILONCE_API_KEY", "a-key-of-our-own-choice")]).await;
    assert_eq!(server.api_key, "a-key-of-our-own-choice");
    server.kill().await;
    let server = desk.start_dev(&[("MAILONCE_API_KEY", "a-key-of-our-own-choice")]).await;
    let (status, _) =
        server.call("GET", "/v1/emails", &[("Authorization", "Bearer a-key-of-our-own-choice")], "").await;
    assert_eq!(status, 200);
    let other = CliFixture::new();
    let ran =
        other.run_with_env(&["dev", "--http", "127.0.0.1:0"], &[("MAILONCE_API_KEY", "short")]).await.expect_exit(5);
    assert!(ran.stderr.contains("16"), "{}", ran.stderr);
}

#[tokio::test]
async fn sigterm_ends_dev_cleanly_and_takes_its_file_away() {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[]).await;
    let file = desk.data_dir().join("dev.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    desk.run(&send_args("k", "x")).await.expect_exit(4);
    let status = server.terminate().await;
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(!file.exists());
    // What was accepted is still there.
    let _server = desk.start_dev(&[]).await;
    assert_eq!(desk.run(&send_args("k", "x")).await.expect_exit(0).json()["dedupe"]["outcome"], "replayed");
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9() {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    let first = desk.run(&send_args("k", "x")).await.expect_exit(4).json();
    server.kill().await;
    let _server = desk.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    let again = desk.run(&send_args("k", "x")).await.expect_exit(0).json();
    for same in ["id", "message_id", "created_at"] {
        assert_eq!(again[same], first[same], "{same}");
    }
}

#[tokio::test]
async fn a_second_process_on_the_same_data_is_refused_and_harms_nothing() {
    let desk = CliFixture::new();
    let _server = desk.start_dev(&[]).await;
    for words in
        [&["dev", "--http", "127.0.0.1:0"][..], &["serve", "--http", "127.0.0.1:0"], &["keys", "create"], &["migrate"]]
    {
        let ran = desk.run(words).await.expect_exit(5);
        assert!(ran.stderr.contains("another process"), "{words:?}: {}", ran.stderr);
    }
    assert!(desk.data_dir().join("dev.json").exists());
    desk.run(&send_args("k", "x")).await.expect_exit(4);
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[]).await;
    let address = server.url.strip_prefix("http://").unwrap();
    let ran = CliFixture::new().run(&["dev", "--http", address]).await.expect_exit(5);
    assert!(ran.stderr.contains(address), "{}", ran.stderr);
}

#[tokio::test]
async fn serve_without_a_key_refuses_with_a_hint() {
    let desk = CliFixture::new();
    let ran = desk.run(&["serve", "--http", "127.0.0.1:0"]).await.expect_exit(5);
    assert!(ran.stderr.contains("mailonce keys create"), "{}", ran.stderr);
}

/// A server with a first key.
async fn start_serve_with_key(desk: &CliFixture) -> (SpawnedServer, String) {
    let made = desk.run(&["keys", "create", "--name", "first"]).await.expect_exit(0).json();
    let mut server = SpawnedServer::spawn(&mut desk.command(&["serve", "--http", "127.0.0.1:0"]));
    let log = server.read_stderr_until("serving").await;
    let line: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    server.url = format!("http://{}", line["fields"]["http"].as_str().unwrap());
    (server, made["api_key"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn serve_asks_for_a_verified_domain_and_dev_does_not() {
    let desk = CliFixture::new();
    let (server, secret) = start_serve_with_key(&desk).await;
    let env = [("MAILONCE_URL", server.url.as_str()), ("MAILONCE_API_KEY", secret.as_str())];
    let ran = desk.run_with_env(&send_args("k", "x"), &env).await.expect_exit(5);
    assert!(ran.stderr.contains("verified domain"), "{}", ran.stderr);
    server.terminate().await;
    let server = desk.start_dev(&[]).await;
    desk.run(&send_args("k", "x")).await.expect_exit(4);
    server.terminate().await;
}

#[tokio::test]
async fn a_key_can_be_made_before_the_first_serve_and_opens_it() {
    let desk = CliFixture::new();
    std::fs::write(desk.path().join("mailonce.toml"), "[defaults]\nverify_domains = false\n").unwrap();
    let (server, secret) = start_serve_with_key(&desk).await;
    let env = [("MAILONCE_URL", server.url.as_str()), ("MAILONCE_API_KEY", secret.as_str())];
    desk.run_with_env(&send_args("k", "x"), &env).await.expect_exit(4);
    desk.run_with_env(&send_args("k", "x"), &env).await.expect_exit(0);
    assert!(!desk.data_dir().join("dev.json").exists());
    let (status, _) = server.call("GET", "/v1/teams", &[("Authorization", &format!("Bearer {secret}"))], "").await;
    assert_eq!(status, 403, "a key of the command line is no operator unless asked");
    assert_eq!(server.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn paused_hand_off_accepts_and_waits() {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    desk.run(&send_args("k", "x")).await.expect_exit(4);
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert_eq!(desk.run(&send_args("k", "x")).await.expect_exit(0).json()["state"], "queued");
    server.terminate().await;
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_as_soon_as_it_greets_ends_well() {
    let desk = CliFixture::new();
    for _ in 0..5 {
        assert_eq!(desk.start_dev(&[]).await.terminate().await.code(), Some(0));
        assert!(!desk.data_dir().join("dev.json").exists(), "it leaves word of a server that is gone");
    }
}

#[tokio::test]
async fn a_clock_that_was_set_while_nothing_ran_has_to_be_confirmed() {
    let desk = CliFixture::new();
    let sure = async |server: &SpawnedServer, path: &str| {
        let bearer = format!("Bearer {}", server.api_key);
        let (status, state) = server.call("POST", path, &[("Authorization", &bearer)], "").await;
        assert_eq!(status, 200, "{state}");
        state["time_is_sure"].clone()
    };
    // Nobody vouches for the clock.
    let alone = [("MAILONCE_CLOCK_TRUSTED", "false"), ("MAILONCE_CLOCK_SYNCHRONIZED", "false")];
    let server = desk.start_dev(&alone).await;
    assert_eq!(sure(&server, "/v1/handoff/resume").await, true);
    server.terminate().await;
    let file = desk.data_dir().join("clock.json");
    let mut left: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    left["wall"] = json!(left["wall"].as_i64().unwrap() + 7_200_000);
    std::fs::write(&file, left.to_string()).unwrap();
    for _ in 0..2 {
        let server = desk.start_dev(&alone).await;
        assert_eq!(sure(&server, "/v1/handoff/resume").await, false, "until somebody confirms, over restarts too");
        server.terminate().await;
    }
    let server = desk.start_dev(&alone).await;
    assert_eq!(sure(&server, "/v1/clock/confirm").await, true);
    server.terminate().await;
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_lets_what_is_on_the_wire_end() {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[]).await;
    let slow = [
        "send",
        "--from",
        "a@x.test",
        "--to",
        "slow@sandbox.mailonce.test",
        "--subject",
        "s",
        "--text",
        "t",
        "--key",
        "k",
    ];
    desk.run(&slow).await.expect_exit(4);
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(desk.run(&slow).await.json()["state"], "sending");
    assert_eq!(server.terminate().await.code(), Some(0));
    let server = desk.start_dev(&[]).await;
    assert_eq!(desk.run(&slow).await.expect_exit(0).json()["state"], "sent");
    server.terminate().await;
}
