//! Backup and restore: a backup of a ledger in use holds every acknowledged email, and a restored ledger sends nothing
//! until an operator resumes it.

use serde_json::json;
use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use crate::binary::{CliFixture, send_args};

#[tokio::test]
async fn a_copy_of_a_ledger_in_use_holds_what_was_acknowledged_before() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    for number in 0..5 {
        cli.run(&send_args(&format!("before-{number}"), "x")).await.expect_exit(0);
    }
    let began = jiff::Timestamp::from_millisecond(jiff::Timestamp::now().as_millisecond()).unwrap();
    // Others go on meanwhile.
    let (during, copied) = tokio::join!(
        async {
            for number in 0..5 {
                cli.run(&send_args(&format!("during-{number}"), "x")).await.expect_exit(0);
            }
        },
        cli.run(&["backup", "copy.db"]),
    );
    let ((), told) = (during, copied.expect_exit(0).json());
    assert!(told["emails"].as_u64().unwrap() >= 5, "{told}");
    // It holds what was acknowledged before it began.
    let as_of: jiff::Timestamp = told["as_of"].as_str().unwrap().parse().unwrap();
    assert!(as_of >= began && as_of <= jiff::Timestamp::now(), "{told}");
    let mode = std::fs::metadata(cli.path().join("copy.db")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "others can read the copy");
    server.terminate().await;

    cli.run(&["restore", "copy.db", "--data", "back", "--hold"]).await.expect_exit(0);
    let back = cli.path().join("back");
    let env = [("MAILONCE_DATA", back.to_str().unwrap())];
    let server = cli.start_dev(&env).await;
    for number in 0..5 {
        let again = cli.run_with_env(&send_args(&format!("before-{number}"), "x"), &env).await.expect_exit(0).json();
        assert_eq!(again["dedupe"]["outcome"], "replayed");
    }
    server.terminate().await;
}

#[tokio::test]
async fn a_restored_ledger_rests_over_restarts_until_somebody_lets_it_go_on() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    let id = cli.run(&send_args("k", "x")).await.expect_exit(0).json()["id"].as_str().unwrap().to_owned();
    cli.run(&["backup", "copy.db"]).await.expect_exit(0);
    server.terminate().await;

    let told = cli.run(&["restore", "copy.db", "--data", "back"]).await.expect_exit(0).json();
    assert_eq!((&told["waiting"], &told["handoff"]), (&json!(1), &json!("stopped")));
    // A ledger that is there is left alone, and is not made to rest either.
    let ran = cli.run(&["restore", "copy.db", "--hold"]).await.expect_exit(5);
    assert!(ran.stderr.contains("ledger_exists") && !cli.data_dir().join("hold").exists(), "{ran:?}");

    let back = cli.path().join("back");
    let env = [("MAILONCE_DATA", back.to_str().unwrap())];
    let state = async || cli.run_with_env(&["emails", "show", &id], &env).await.expect_exit(0).json()["state"].clone();
    for _ in 0..2 {
        let server = cli.start_dev(&env).await;
        tokio::time::sleep(Duration::from_millis(800)).await;
        assert!(!back.join("hold").exists(), "the ledger itself has the stop");
        assert_eq!(state().await, "queued");
        server.kill().await;
    }
    let server = cli.start_dev(&env).await;
    cli.run_with_env(&["resume"], &env).await.expect_exit(0);
    wait_until_sent(&cli, &id, &env).await;
    server.terminate().await;
}

#[tokio::test]
async fn a_ledger_that_is_restored_to_run_sends_its_waiting_mail() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[("MAILONCE_HANDOFF", "paused")]).await;
    let sent = cli.run(&send_args("k", "x")).await.expect_exit(0).json();
    assert_eq!(sent["state"], "queued");
    cli.run(&["backup", "copy.db"]).await.expect_exit(0);
    server.terminate().await;

    let told = cli.run(&["restore", "copy.db", "--data", "back", "--run"]).await.expect_exit(0).json();

    assert_eq!((&told["waiting"], &told["handoff"]), (&json!(1), &json!("running")));
    let back = cli.path().join("back");
    let env = [("MAILONCE_DATA", back.to_str().unwrap())];
    let server = cli.start_dev(&env).await;
    wait_until_sent(&cli, sent["id"].as_str().unwrap(), &env).await;
    server.terminate().await;
}

async fn wait_until_sent(cli: &CliFixture, id: &str, env: &[(&str, &str)]) {
    let state = async || cli.run_with_env(&["emails", "show", id], env).await.expect_exit(0).json()["state"].clone();
    for _ in 0..200 {
        if state().await == "sent" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(state().await, "sent");
}

#[tokio::test]
async fn readers_of_events_are_told_that_another_history_began() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    cli.run(&send_args("k", "x")).await.expect_exit(0);
    let seen = cli.run(&["tail", "--after", "0", "--limit", "1"]).await.expect_exit(0).json();
    cli.run(&["backup", "copy.db"]).await.expect_exit(0);
    server.terminate().await;
    cli.run(&["restore", "copy.db", "--data", "back", "--hold"]).await.expect_exit(0);
    let back = cli.path().join("back");
    let env = [("MAILONCE_DATA", back.to_str().unwrap())];
    let server = cli.start_dev(&env).await;
    let ran = cli.run_with_env(&["tail", "--after", seen["cursor"].as_str().unwrap(), "--limit", "1"], &env).await;
    assert!(ran.stderr.contains("cursor_reset"), "{ran:?}");
    server.terminate().await;
}
