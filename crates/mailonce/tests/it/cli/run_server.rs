//! The command line as a server: `dev` and `serve`, from the startup banner to shutdown.

use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;

use crate::fixtures::binary::{CliFixture, SpawnedServer, send_args};

/// The URL, headers and body of the curl command in the startup banner.
fn parse_printed_curl(banner: &str) -> (String, Vec<(String, String)>, String) {
    let curl = banner.split_once("curl -si ").expect("the banner contains a curl command").1;
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
async fn dev_prints_its_url_a_key_and_a_curl_command_that_works() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
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
async fn dev_hands_mail_off_to_the_sandbox() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let id = cli.run(&send_args("k", "x")).await.expect_exit(0).json()["id"].as_str().unwrap().to_owned();
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
async fn dev_uses_the_api_key_from_the_environment() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[("MAILONCE_API_KEY", "a-key-of-our-own-choice")]).await;
    assert_eq!(server.api_key, "a-key-of-our-own-choice");
    server.kill().await;
    let server = cli.start_dev(&[("MAILONCE_API_KEY", "a-key-of-our-own-choice")]).await;
    let (status, _) =
        server.call("GET", "/v1/emails", &[("Authorization", "Bearer a-key-of-our-own-choice")], "").await;
    assert_eq!(status, 200);
    let other = CliFixture::new();
    let output =
        other.run_with_env(&["dev", "--http", "127.0.0.1:0"], &[("MAILONCE_API_KEY", "short")]).await.expect_exit(5);
    assert!(output.stderr.contains("16"), "{}", output.stderr);
}

#[tokio::test]
async fn sigterm_stops_dev_cleanly_and_removes_dev_json() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let file = cli.data_dir().join("dev.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    cli.run(&send_args("k", "x")).await.expect_exit(0);
    let status = server.terminate().await;
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(!file.exists());
    // The accepted email is still stored.
    let _server = cli.start_dev(&[]).await;
    assert_eq!(cli.run(&send_args("k", "x")).await.expect_exit(0).json()["dedupe"]["outcome"], "replayed");
}

#[tokio::test]
async fn acknowledged_email_survives_kill_9() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    let first = cli.run(&send_args("k", "x")).await.expect_exit(0).json();
    server.kill().await;
    let _server = cli.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    let again = cli.run(&send_args("k", "x")).await.expect_exit(0).json();
    for same in ["id", "message_id", "created_at"] {
        assert_eq!(again[same], first[same], "{same}");
    }
}

#[tokio::test]
async fn a_second_process_on_the_same_data_is_refused_and_harms_nothing() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    for args in [&["dev", "--http", "127.0.0.1:0"][..], &["serve", "--http", "127.0.0.1:0"], &["migrate"]] {
        let output = cli.run(args).await.expect_exit(5);
        assert!(output.stderr.contains("another process"), "{args:?}: {}", output.stderr);
    }
    assert!(cli.data_dir().join("dev.json").exists());
    cli.run(&send_args("k", "x")).await.expect_exit(0);
}

#[tokio::test]
async fn an_address_in_use_is_reported() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let address = server.url.strip_prefix("http://").unwrap();
    let output = CliFixture::new().run(&["dev", "--http", address]).await.expect_exit(5);
    assert!(output.stderr.contains(address), "{}", output.stderr);
}

#[tokio::test]
async fn serve_without_an_api_key_refuses_with_a_hint() {
    let cli = CliFixture::new();
    let output = cli.run(&["serve", "--http", "127.0.0.1:0"]).await.expect_exit(5);
    assert!(output.stderr.contains("mailonce api-keys create"), "{}", output.stderr);
}

/// Starts `serve` with a first API key.
async fn start_serve_with_key(cli: &CliFixture) -> (SpawnedServer, String) {
    let created = cli.run(&["api-keys", "create", "--name", "first"]).await.expect_exit(0).json();
    let mut server = SpawnedServer::spawn(&mut cli.command(&["serve", "--http", "127.0.0.1:0"]));
    let log = server.read_stderr_until("serving").await;
    let line: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    server.url = format!("http://{}", line["fields"]["http"].as_str().unwrap());
    (server, created["api_key"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn serve_requires_a_verified_domain_and_dev_does_not() {
    let cli = CliFixture::new();
    let (server, secret) = start_serve_with_key(&cli).await;
    let env = [("MAILONCE_URL", server.url.as_str()), ("MAILONCE_API_KEY", secret.as_str())];
    let output = cli.run_with_env(&send_args("k", "x"), &env).await.expect_exit(5);
    assert!(output.stderr.contains("verified domain"), "{}", output.stderr);
    server.terminate().await;
    let server = cli.start_dev(&[]).await;
    cli.run(&send_args("k", "x")).await.expect_exit(0);
    server.terminate().await;
}

#[tokio::test]
async fn an_api_key_created_before_the_first_serve_works() {
    let cli = CliFixture::new();
    std::fs::write(cli.path().join("mailonce.toml"), "[defaults]\nverify_domains = false\n").unwrap();
    let (server, secret) = start_serve_with_key(&cli).await;
    let env = [("MAILONCE_URL", server.url.as_str()), ("MAILONCE_API_KEY", secret.as_str())];
    cli.run_with_env(&send_args("k", "x"), &env).await.expect_exit(0);
    cli.run_with_env(&send_args("k", "x"), &env).await.expect_exit(0);
    assert!(!cli.data_dir().join("dev.json").exists());
    let (status, _) = server.call("GET", "/v1/teams", &[("Authorization", &format!("Bearer {secret}"))], "").await;
    assert_eq!(status, 403, "a key created by the command line has the operator scope only on request");
    assert_eq!(server.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn paused_hand_off_accepts_and_waits() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    cli.run(&send_args("k", "x")).await.expect_exit(0);
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert_eq!(cli.run(&send_args("k", "x")).await.expect_exit(0).json()["state"], "queued");
    server.terminate().await;
}

#[tokio::test]
async fn a_server_stopped_right_after_startup_exits_cleanly() {
    let cli = CliFixture::new();
    for _ in 0..5 {
        assert_eq!(cli.start_dev(&[]).await.terminate().await.code(), Some(0));
        assert!(!cli.data_dir().join("dev.json").exists(), "dev.json still names a server that has stopped");
    }
}

#[tokio::test]
async fn a_clock_that_jumped_while_the_server_was_down_must_be_confirmed() {
    let cli = CliFixture::new();
    let clock_trusted = async |server: &SpawnedServer, path: &str| {
        let bearer = format!("Bearer {}", server.api_key);
        let (status, state) = server.call("POST", path, &[("Authorization", &bearer)], "").await;
        assert_eq!(status, 200, "{state}");
        state["clock_trusted"].clone()
    };
    // Neither the operator nor the kernel confirms the clock.
    let no_clock_source = [("MAILONCE_CLOCK_TRUSTED", "false"), ("MAILONCE_CLOCK_SYNCHRONIZED", "false")];
    let server = cli.start_dev(&no_clock_source).await;
    assert_eq!(clock_trusted(&server, "/v1/handoff/resume").await, true);
    server.terminate().await;
    let file = cli.data_dir().join("clock.json");
    let mut saved_clock: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    saved_clock["wall"] = json!(saved_clock["wall"].as_i64().unwrap() + 7_200_000);
    std::fs::write(&file, saved_clock.to_string()).unwrap();
    for _ in 0..2 {
        let server = cli.start_dev(&no_clock_source).await;
        assert_eq!(
            clock_trusted(&server, "/v1/handoff/resume").await,
            false,
            "untrusted until an operator confirms it, also after restarts"
        );
        server.terminate().await;
    }
    let server = cli.start_dev(&no_clock_source).await;
    assert_eq!(clock_trusted(&server, "/v1/clock/confirm").await, true);
    server.terminate().await;
}

#[tokio::test]
async fn shutdown_waits_for_attempts_that_are_sending() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
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
    cli.run(&slow).await.expect_exit(0);
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(cli.run(&slow).await.json()["state"], "sending");
    assert_eq!(server.terminate().await.code(), Some(0));
    let server = cli.start_dev(&[]).await;
    assert_eq!(cli.run(&slow).await.expect_exit(0).json()["state"], "sent");
    server.terminate().await;
}
