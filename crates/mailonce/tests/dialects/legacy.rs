//! A script without idempotency keys that is run again, counted at the next hop: one mail for identical runs, two for
//! two different mails.

use serde_json::Value;
use std::{os::unix::process::ExitStatusExt as _, process::Output, time::Duration};

use crate::{
    binary::{CliFixture, SpawnedServer},
    sdks::node_script,
    sink::SmtpMailSink,
};

/// SIGKILL.
const KILL_SIGNAL: i32 = 9;

/// Runs the script to its end.
async fn run_once(server: &SpawnedServer, (to, text): (&str, &str), is_killed: bool) -> Output {
    let mut command = node_script("legacy.cjs");
    command.env("URL", format!("{}/compat/resend", server.url)).env("KEY", &server.api_key);
    command.env("TO", to).env("TEXT", text);
    if is_killed {
        command.env("IS_KILLED", "1");
    }
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().expect("node is needed for this test")
}

/// Runs the script, which must succeed, and returns the id of its email.
async fn run_to_id(server: &SpawnedServer, mail: (&str, &str)) -> Value {
    let output = run_once(server, mail, false).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    printed["id"].clone()
}

/// The states of all emails, once none of them is on its way.
async fn final_states(server: &SpawnedServer) -> Vec<Value> {
    let auth = format!("Bearer {}", server.api_key);
    let mut states = Vec::new();
    for _ in 0..200 {
        let (_, page) = server.call("GET", "/v1/emails?limit=100", &[("authorization", &auth)], "").await;
        states = page["data"].as_array().unwrap().iter().map(|email| email["state"].clone()).collect();
        if states.iter().all(|state| state == "sent") {
            return states;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not sent in time: {states:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_without_keys_that_is_run_again_sends_one_mail() {
    let (cli, sink) = (CliFixture::new(), SmtpMailSink::start().await);
    let config = format!(
        "[[transports]]\nname = \"relay\"\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {}\ntls = \"none\"\n",
        sink.port
    );
    std::fs::write(cli.path().join("mailonce.toml"), config).unwrap();
    let server = cli.start_dev(&[]).await;

    let (ann, ben) = (("ann@example.com", "Invoice 4821"), ("ben@example.com", "Invoice 4822"));
    let first = run_to_id(&server, ann).await;
    assert_eq!(run_to_id(&server, ann).await, first, "run twice within a minute");

    let killed = run_once(&server, ben, true).await;
    assert_eq!(killed.status.signal(), Some(KILL_SIGNAL), "{killed:?}");
    run_to_id(&server, ben).await;

    let other = run_to_id(&server, ("ann@example.com", "Invoice 4823")).await;
    assert_ne!(other, first, "two different mails to one person are two");

    assert_eq!(final_states(&server).await.len(), 3);
    let counts = ["ann@example.com", "ben@example.com"].map(|to| sink.mails_to(to).len());
    assert_eq!(counts, [2, 1], "{:?}", sink.all());
}
