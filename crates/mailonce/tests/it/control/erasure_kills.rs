//! The real server is killed at the failpoints of an erasure. The next one continues, and nothing of the person is left
//! in the file of the ledger.

use serde_json::{Value, json};

use super::erasures::{ADDRESS, SUBJECT, TEXT, assert_ledger_without_canary, wait_until_done};
use crate::fixtures::binary::{CliFixture, SpawnedServer};

/// Emails to others that mention the person: more than one step erases.
const MENTIONS: usize = 120;
/// Together with one email to the person.
const EMAILS: usize = MENTIONS + 1;

async fn send_emails(cli: &CliFixture, server: &SpawnedServer) {
    let mail = |n: usize| {
        json!({
            "from": "agent@mailonce.test",
            "to": [format!("p{n}@example.com")],
            "subject": SUBJECT,
            "text": format!("Number {n}: {TEXT}. Write to {ADDRESS}."),
        })
    };
    let batch: Vec<Value> = (0..MENTIONS).map(mail).collect();
    let bearer = format!("Bearer {}", server.api_key);
    let headers =
        [("authorization", bearer.as_str()), ("content-type", "application/json"), ("idempotency-key", "all")];
    let (status, answer) = server.call("POST", "/v1/emails/batch", &headers, &json!(batch).to_string()).await;
    assert_eq!(status, 202, "{answer}");
    let send =
        ["send", "--from", "agent@mailonce.test", "--to", ADDRESS, "--subject", SUBJECT, "--text", TEXT, "--key", "1"];
    cli.run(&send).await.expect_exit(0);
}

/// Waits until the server ends at its failpoint.
async fn wait_for_kill(mut server: SpawnedServer) {
    server.read_stderr_until("failpoint erasure-").await;
    server.kill().await;
}

/// Requests an erasure and kills one server after the other, each at its failpoint. Another one finishes the erasure.
async fn erase_with_kills(cli: &CliFixture, first: &str, others: &[&str]) -> Value {
    let server = cli.start_dev(&[("MAILONCE_FAILPOINT", first)]).await;
    send_emails(cli, &server).await;
    // The answer may be lost with the server.
    cli.run(&["erase", ADDRESS, "--reason", "asked by mail"]).await;
    wait_for_kill(server).await;
    for failpoint in others {
        let mut command = cli.command(&["dev", "--http", "127.0.0.1:0"]);
        wait_for_kill(SpawnedServer::spawn(command.env("MAILONCE_FAILPOINT", failpoint))).await;
    }
    let server = cli.start_dev(&[]).await;
    let erased = wait_until_done(cli, &[]).await;
    server.terminate().await;
    erased
}

#[tokio::test]
async fn an_erasure_continues_where_a_kill_left_it() {
    let cli = CliFixture::new();
    let others = [
        "erasure-after-save:kill:2",
        "erasure-after-save:kill:6",
        "erasure-before-overwrite:kill:1",
        "erasure-after-overwrite:kill:1",
        "erasure-after-save:kill:1",
    ];

    let erased = erase_with_kills(&cli, "erasure-after-save:kill:1", &others).await;

    assert_eq!(erased["counts"]["emails"], json!(EMAILS), "{erased}");
    assert_ledger_without_canary(&cli.data_dir());
}

#[tokio::test]
async fn an_erasure_repeats_a_step_that_a_kill_kept_from_being_saved() {
    let cli = CliFixture::new();

    let erased = erase_with_kills(
        &cli,
        "erasure-before-save:kill:1",
        &["erasure-before-save:kill:4", "erasure-before-save:kill:9"],
    )
    .await;

    // What the first step erased is found by no other step, so its count is lost with it.
    assert!(erased["counts"]["emails"].as_u64().unwrap() <= EMAILS as u64, "{erased}");
    assert_ledger_without_canary(&cli.data_dir());
}
