//! Runs every verb and takes a snapshot of each.

use serde_json::{Value, json};
use std::time::Duration;

use crate::{
    binary::{CliFixture, CommandOutput, SpawnedServer},
    snapshot_recorder::{SnapshotOptions, SnapshotRecorder, snapshot_dir, snapshot_file_name},
};

const AGENT_INBOX: &str = "agent@mailonce.test";

/// The verbs that there are, as the binary itself names them.
async fn all_commands() -> Vec<String> {
    let told = CliFixture::new().run(&["commands"]).await.expect_exit(0).json();
    told["data"].as_array().unwrap().iter().map(|verb| verb["verb"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_verb_has_a_snapshot() {
    let verbs = all_commands().await;
    assert!(verbs.len() > 50, "{verbs:?}");
    let missing: Vec<&String> =
        verbs.iter().filter(|verb| !snapshot_dir().join(snapshot_file_name(verb)).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn every_verb_prints_what_it_printed_before() {
    let mut recorder = SnapshotRecorder::new();
    snapshot_offline_commands(&mut recorder).await;
    snapshot_store_commands(&mut recorder).await;
    snapshot_kek_commands(&mut recorder).await;
    let cli = CliFixture::new();
    let other =
        cli.run(&["team", "create", "others"]).await.expect_exit(0).json()["api_key"].as_str().unwrap().to_owned();
    let server = cli.start_dev(&[]).await;
    recorder.add_snapshot(&cli, "dev", "dev --http 127.0.0.1:0", &banner_output(&server), SnapshotOptions::default());
    snapshot_send_commands(&mut recorder, &cli).await;
    snapshot_inbox_commands(&mut recorder, &cli).await;
    snapshot_conversation_commands(&mut recorder, &cli, &other).await;
    snapshot_webhook_commands(&mut recorder, &cli, &server).await;
    snapshot_operator_commands(&mut recorder, &cli).await;
    snapshot_audit_commands(&mut recorder, &cli).await;
    snapshot_erasures(&mut recorder, &cli).await;
    snapshot_claim_commands(&mut recorder, &cli, &server).await;
    snapshot_outbox_commands(&mut recorder, &cli).await;
    snapshot_templates(&mut recorder, &cli).await;
    server.terminate().await;
    recorder.verify();
}

/// The output of `dev`, for a snapshot.
fn banner_output(server: &SpawnedServer) -> CommandOutput {
    CommandOutput { exit_code: 0, stdout: String::new(), stderr: server.startup_banner.clone() }
}

/// Waits until an email is in a state.
async fn wait_for_state(cli: &CliFixture, id: &str, state: &str) {
    for _ in 0..400 {
        if cli.run(&["emails", "show", id]).await.expect_exit(0).json()["state"] == state {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{id} does not become {state}");
}

fn string_value(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

async fn snapshot_offline_commands(recorder: &mut SnapshotRecorder) {
    let cli = CliFixture::new();
    let usual = SnapshotOptions::default();
    let raw = SnapshotOptions { is_not_json: true, max_stdout_lines: Some(8), ..usual };
    let derive =
        ["key", "derive", "--type", "order.confirmation", "--entity", "order_4821", "--to", "User@Example.com"];
    recorder.record(&cli, "key derive", &derive, usual).await;
    recorder.record(&cli, "openapi", &["openapi"], raw).await;
    recorder.record(&cli, "completions", &["completions", "bash"], raw).await;
    recorder.record(&cli, "man", &["man", "send"], raw).await;
    recorder.record(&cli, "commands", &["commands"], usual).await;
    recorder.record(&cli, "commands", &["commands"], SnapshotOptions { env: &[("COLUMNS", "50")], ..usual }).await;
    recorder.record(&cli, "serve", &["serve", "--http", "127.0.0.1:0"], usual).await;
    recorder
        .record(&cli, "send", &["send", "--from", "a@x.test", "--to", "b@x.test", "--text", "x", "--key", "k"], usual)
        .await;
    recorder.record(&cli, "mcp", &["mcp"], SnapshotOptions { is_not_json: true, ..usual }).await;
    let home = cli.path().to_str().unwrap().to_owned();
    recorder
        .record(
            &cli,
            "mcp install",
            &["mcp", "install"],
            SnapshotOptions { env: &[("HOME", &home)], is_not_json: true, ..usual },
        )
        .await;
    recorder
        .record(
            &cli,
            "demo storm",
            &["demo", "storm", "--callers", "8"],
            SnapshotOptions { redact_numbers: true, ..usual },
        )
        .await
        .expect_exit(0);
}

async fn snapshot_store_commands(recorder: &mut SnapshotRecorder) {
    let cli = CliFixture::new();
    let usual = SnapshotOptions::default();
    recorder.record(&cli, "doctor", &["doctor", "--offline"], usual).await;
    recorder.record(&cli, "migrate", &["migrate"], usual).await;
    recorder
        .record(&cli, "api-keys create", &["api-keys", "create", "--name", "ci {n}", "--scope", "send"], usual)
        .await;
    let keys = recorder.record(&cli, "api-keys list", &["api-keys", "list"], usual).await.json();
    recorder
        .record(&cli, "api-keys revoke", &["api-keys", "revoke", &string_value(&keys["data"][0]["id"])], usual)
        .await;
    recorder.record(&cli, "team create", &["team", "create", "sales"], usual).await;
    recorder.record(&cli, "team list", &["team", "list"], usual).await;
    let (ada, boss) = (["login", "--name", "Ada", "--role", "approver"], ["login", "--name", "Ada", "--role", "boss"]);
    recorder.record(&cli, "login", &[&ada[..], &["--team", "sales"]].concat(), usual).await;
    recorder.record(&cli, "login", &boss, usual).await;
    recorder
        .record(&cli, "doctor", &["doctor", "--offline"], SnapshotOptions { env: &[("COLUMNS", "60")], ..usual })
        .await;
}

/// A ledger that a key encryption key wraps.
async fn snapshot_kek_commands(recorder: &mut SnapshotRecorder) {
    let cli = CliFixture::new();
    let (usual, old, new) = (SnapshotOptions::default(), "01".repeat(32), "02".repeat(32));
    let env = [("MAILONCE_SECRETS_KEK_ENV", "KEK"), ("KEK", old.as_str()), ("NEW_KEK", new.as_str())];
    let keyed = SnapshotOptions { env: &env, ..usual };
    let (status, rotate) = (["secrets", "status"], ["secrets", "rotate-kek", "--new-kek-env", "NEW_KEK"]);
    recorder.record(&cli, "secrets status", &status, usual).await.expect_exit(0);
    recorder.record(&cli, "secrets rotate-kek", &rotate, usual).await.expect_exit(5);
    cli.run_with_env(&["migrate"], &env).await.expect_exit(0);
    recorder.record(&cli, "secrets status", &status, keyed).await.expect_exit(0);
    recorder.record(&cli, "secrets rotate-kek", &rotate, keyed).await.expect_exit(0);
    recorder.record(&cli, "secrets status", &status, keyed).await.expect_exit(5);
}

async fn snapshot_audit_commands(recorder: &mut SnapshotRecorder, cli: &CliFixture) {
    let usual = SnapshotOptions::default();
    let wide = SnapshotOptions { env: &[("COLUMNS", "160")], ..usual };
    recorder.record(cli, "audit list", &["audit", "list", "--limit", "2"], wide).await.expect_exit(0);
    let stops = ["audit", "list", "--action", "stop.*", "--limit", "2"];
    recorder.record(cli, "audit list", &stops, wide).await.expect_exit(0);
    let export = ["audit", "export"];
    let first = SnapshotOptions { max_stdout_lines: Some(2), ..usual };
    recorder.record(cli, "audit export", &export, first).await.expect_exit(0);
    recorder.record(cli, "audit verify", &["audit", "verify"], usual).await.expect_exit(0);
    let other = "0f".repeat(32);
    recorder.record(cli, "audit verify", &["audit", "verify", "--head", &other], usual).await.expect_exit(1);
}

/// Erases somebody who is nowhere in the ledger, so that the counts are always the same.
async fn snapshot_erasures(recorder: &mut SnapshotRecorder, cli: &CliFixture) {
    let usual = SnapshotOptions::default();
    let erase = ["erase", "zoe@elsewhere.example", "--reason", "request of 18 November"];
    let asked = recorder.record(cli, "erase", &erase, usual).await.expect_exit(0).json();
    let id = string_value(&asked["id"]);
    for _ in 0..200 {
        if cli.run(&["erasures", "show", &id]).await.expect_exit(0).json()["state"] == "done" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let wide = SnapshotOptions { env: &[("COLUMNS", "160")], ..usual };
    recorder.record(cli, "erasures list", &["erasures", "list"], wide).await.expect_exit(0);
    recorder.record(cli, "erasures show", &["erasures", "show", &id], usual).await.expect_exit(0);
}

/// A database that does not answer. `tests/outbox` runs the verbs on a real one.
async fn snapshot_outbox_commands(recorder: &mut SnapshotRecorder, cli: &CliFixture) {
    for verb in ["install", "upgrade", "status", "verify", "confirm", "uninstall"] {
        let words = ["outbox", verb, "--database", "postgres://shop@127.0.0.1:1/shop"];
        let name = format!("outbox {verb}");
        recorder.record(cli, &name, &words, SnapshotOptions::default()).await.expect_exit(5);
    }
    // The server of the snapshots has no outbox.
    for words in [["outbox", "parked", "shop"], ["outbox", "replay", "row-7"]] {
        recorder.record(cli, &words[..2].join(" "), &words, SnapshotOptions::default()).await.expect_exit(64);
    }
}

/// Runs a command once, and decides about a claim whose holder is lost.
async fn snapshot_claim_commands(recorder: &mut SnapshotRecorder, cli: &CliFixture, server: &SpawnedServer) {
    let usual = SnapshotOptions::default();
    let report = ["once", "--key", "report-17", "--", "/bin/echo", "report sent"];
    // The recorder's own flags would become arguments of the command.
    for (once, code) in [(&report[..], 0), (&report[..], 0), (&report[..5], 122)] {
        let ran = cli.run(once).await.expect_exit(code);
        recorder.add_snapshot(cli, "once", &once.join(" "), &ran, usual);
    }
    let auth = format!("Bearer {}", server.api_key);
    let headers = [("authorization", auth.as_str()), ("content-type", "application/json")];
    let body = json!({ "key": "invoice-4821", "lease_s": 1, "label": "billing-7" }).to_string();
    let (_, won) = server.call("POST", "/v1/claims", &headers, &body).await;
    let id = string_value(&won["id"]);
    for _ in 0..400 {
        if cli.run(&["claims", "show", &id]).await.expect_exit(0).json()["state"] == "unknown" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    recorder.record(cli, "claims list", &["claims", "list"], usual).await.expect_exit(0);
    recorder.record(cli, "claims show", &["claims", "show", &id], usual).await.expect_exit(0);
    // The second time there is nothing left to decide.
    recorder.record(cli, "claims resolve", &["claims", "resolve", &id, "--as", "done"], usual).await.expect_exit(5);
}

/// Stops the installation, and an inbox for a moment.
async fn snapshot_stops(recorder: &mut SnapshotRecorder, cli: &CliFixture) {
    recorder.record(cli, "pause", &["pause"], SnapshotOptions::default()).await;
    let stop = ["stop", "--inbox", AGENT_INBOX, "--reason", "answers in a loop"];
    recorder.record(cli, "stop", &stop, SnapshotOptions::default()).await;
    recorder.record(cli, "stops", &["stops"], SnapshotOptions::default()).await;
    let stops = cli.run(&["stops"]).await.expect_exit(0).json();
    cli.run(&["resume", &string_value(&stops["data"][1]["id"])]).await.expect_exit(0);
}

/// Creates, changes and removes a template.
async fn snapshot_templates(recorder: &mut SnapshotRecorder, cli: &CliFixture) {
    let (usual, wide) =
        (SnapshotOptions::default(), SnapshotOptions { env: &[("COLUMNS", "160")], ..SnapshotOptions::default() });
    let file = cli.path().join("welcome.json");
    let write = |name: &str, subject: &str| {
        let variables = json!({ "name": { "default": "you" } });
        let template = json!({ "name": name, "subject": subject, "text": "Order {{ id }}", "variables": variables });
        std::fs::write(&file, template.to_string()).unwrap();
    };
    let preview = ["templates", "preview", "welcome", "--variables", r#"{"id": 7}"#];
    write("welcome", "Hello {{ name }}");
    recorder.record(cli, "templates set", &["templates", "set", "welcome.json"], usual).await.expect_exit(0);
    write("welcome", "Welcome {{ name }}");
    recorder.record(cli, "templates set", &["templates", "set", "welcome.json"], usual).await.expect_exit(0);
    recorder.record(cli, "templates list", &["templates", "list"], wide).await.expect_exit(0);
    recorder
        .record(cli, "templates show", &["templates", "show", "welcome", "--version", "1"], usual)
        .await
        .expect_exit(0);
    recorder.record(cli, "templates preview", &preview, usual).await.expect_exit(0);
    recorder.record(cli, "templates preview", &["templates", "preview", "welcome"], usual).await;
    // Each form of the output removes one.
    for name in ["spare-1", "spare-2"] {
        write(name, "Hello {{ name }}");
        cli.run(&["templates", "set", "welcome.json"]).await.expect_exit(0);
    }
    recorder.record(cli, "templates remove", &["templates", "remove", "spare-{n}"], usual).await.expect_exit(0);
}

/// Tries an email that would leave, and one whose sender is refused.
async fn snapshot_policy(recorder: &mut SnapshotRecorder, cli: &CliFixture) {
    let try_from = |from: &'static str| ["policy", "try", "--from", from, "--to", "ada@example.com", "--text", "Hello"];
    let options = SnapshotOptions { env: &[("COLUMNS", "120")], ..SnapshotOptions::default() };
    recorder.record(cli, "policy try", &try_from("bot@example.com"), options).await.expect_exit(0);
    recorder.record(cli, "policy try", &try_from("not an address"), options).await;
}

/// Searches for emails when they are indexed.
async fn snapshot_search(recorder: &mut SnapshotRecorder, cli: &CliFixture) {
    for _ in 0..200 {
        let found = cli.run(&["search", "to:example.com"]).await.expect_exit(0).json();
        if found["data"].as_array().is_some_and(|rows| rows.len() == 2) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for columns in ["160", "80"] {
        let options = SnapshotOptions { env: &[("COLUMNS", columns)], ..SnapshotOptions::default() };
        recorder.record(cli, "search", &["search", "to:example.com"], options).await.expect_exit(0);
    }
    recorder.record(cli, "search", &["search", "form:ada"], SnapshotOptions::default()).await;
}

/// The list of emails, in terminals of several widths.
async fn snapshot_email_list(recorder: &mut SnapshotRecorder, cli: &CliFixture) {
    let usual = SnapshotOptions::default();
    for columns in ["160", "80", "50"] {
        recorder
            .record(cli, "emails list", &["emails", "list"], SnapshotOptions { env: &[("COLUMNS", columns)], ..usual })
            .await
            .expect_exit(0);
    }
}

async fn snapshot_send_commands(recorder: &mut SnapshotRecorder, cli: &CliFixture) {
    let usual = SnapshotOptions::default();
    snapshot_policy(recorder, cli).await;
    snapshot_stops(recorder, cli).await;
    let send = [
        "send",
        "--from",
        AGENT_INBOX,
        "--to",
        "ada@example.com",
        "--subject",
        "Invoice",
        "--text",
        "17",
        "--key",
        "i-17",
    ];
    let first = string_value(&recorder.record(cli, "send", &send, usual).await.json()["id"]);
    let other = [
        "send",
        "--from",
        AGENT_INBOX,
        "--to",
        "ada@example.com",
        "--subject",
        "Invoice",
        "--text",
        "18",
        "--key",
        "i-17",
    ];
    recorder.record(cli, "send", &other, usual).await;
    let later = [
        "send",
        "--from",
        AGENT_INBOX,
        "--to",
        "bob@example.com",
        "--text",
        "x",
        "--key",
        "later",
        "--at",
        "in 2 hours",
    ];
    let later = string_value(&cli.run(&later).await.expect_exit(0).json()["id"]);
    recorder.record(cli, "emails move", &["emails", "move", &later, "--at", "in 3 hours"], usual).await;
    recorder.record(cli, "emails cancel", &["emails", "cancel", &later], usual).await;
    // Counts are written up to a second behind.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    snapshot_email_list(recorder, cli).await;
    snapshot_search(recorder, cli).await;
    recorder.record(cli, "emails show", &["emails", "show", &first], usual).await;
    recorder.record(cli, "key inspect", &["key", "inspect", "i-17"], usual).await;
    recorder.record(cli, "key extend", &["key", "extend", "i-17", "--ttl", "90d"], usual).await;
    recorder.record(cli, "key forget", &["key", "forget", "i-17"], usual).await;
    recorder.record(cli, "resume", &["resume"], usual).await;
    wait_for_state(cli, &first, "sent").await;
    recorder.record(cli, "key forget", &["key", "forget", "i-17"], usual).await;
    cli.run(&["pause"]).await.expect_exit(0);
    recorder.record(cli, "emails resend", &["emails", "resend", &first, "--reason", "lost"], usual).await;
    cli.run(&["resume"]).await.expect_exit(0);
    let doubt =
        ["send", "--from", AGENT_INBOX, "--to", "unknown@sandbox.mailonce.test", "--text", "x", "--key", "doubt"];
    let doubt = string_value(&cli.run(&doubt).await.expect_exit(0).json()["id"]);
    wait_for_state(cli, &doubt, "unknown").await;
    recorder.record(cli, "emails resolve", &["emails", "resolve", &doubt, "--as", "sent"], usual).await;
}

/// The newest message, once an inbox has so many.
async fn wait_for_newest_message(cli: &CliFixture, inbox: &str, count: usize) -> String {
    for _ in 0..400 {
        let page = cli.run(&["inbox", "messages", inbox]).await.expect_exit(0).json();
        if page["data"].as_array().unwrap().len() == count {
            return string_value(&page["data"][0]["id"]);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{inbox} does not have {count} messages");
}

async fn snapshot_inbox_commands(recorder: &mut SnapshotRecorder, cli: &CliFixture) {
    let usual = SnapshotOptions::default();
    let door: Value = serde_json::from_slice(&std::fs::read(cli.data_dir().join("dev.json")).unwrap()).unwrap();
    let smtp = string_value(&door["smtp"]);
    let by_smtp = SnapshotOptions { env: &[("MAILONCE_SMTP_LISTEN", &smtp)], ..usual };
    let create = ["inbox", "create", "--username", "signup", "--client-id", "signup", "--agent", "Signer"];
    recorder.record(cli, "inbox create", &create, usual).await;
    let inbox = "signup@mailonce.test";
    let mail = ["simulate", "inbound", "--to", inbox, "--from", "Bob <bob@example.com>", "--code", "48192{n}"];
    recorder.record(cli, "simulate inbound", &mail, by_smtp).await;
    recorder
        .record(cli, "simulate inbound", &["simulate", "inbound", "--to", "nobody@mailonce.test"], usual)
        .await
        .expect_exit(5);
    let wait = ["wait", inbox, "--after", "0", "--subject", "code", "--timeout", "20"];
    recorder.record(cli, "wait", &wait, usual).await;
    recorder.record(cli, "wait", &["wait", inbox, "--subject", "never", "--timeout", "1"], usual).await;
    let message = wait_for_newest_message(cli, inbox, 2).await;
    let watch = ["watch", "create", inbox, "--budget", "2", "--deadline", "5m"];
    recorder.record(cli, "watch create", &watch, usual).await.expect_exit(0);
    recorder.record(cli, "inbox list", &["inbox", "list"], usual).await;
    recorder.record(cli, "inbox show", &["inbox", "show", inbox], usual).await;
    for columns in ["160", "50"] {
        let how = SnapshotOptions { env: &[("COLUMNS", columns)], ..usual };
        recorder.record(cli, "inbox messages", &["inbox", "messages", inbox], how).await;
    }
    let how = SnapshotOptions { redact_numbers: true, ..usual };
    recorder.record(cli, "inbox read", &["inbox", "read", &message], how).await;
    let seen = recorder.record(cli, "inbox read", &["inbox", "read", &message, "--model"], how).await.expect_exit(0);
    assert!(
        !seen.stdout.contains("48192") && seen.stdout.contains("<<<untrusted mail"),
        "a model sees a code: {seen:?}"
    );
    recorder.record(cli, "inbox read", &["inbox", "read", "nothing", "--model"], how).await.expect_exit(5);
    recorder.record(cli, "inbox deliveries", &["inbox", "deliveries", inbox], usual).await;
    recorder.record(cli, "take", &["take", inbox, "--for", "signup-1"], usual).await;
    recorder.record(cli, "take", &["take", inbox, "--for", "signup-2"], usual).await;
    recorder.record(cli, "inbox expire", &["inbox", "expire", inbox], usual).await;
    cli.run(&["inbox", "create", "--username", "spare"]).await.expect_exit(0);
    let spare = "spare@mailonce.test";
    recorder.record(cli, "inbox delete", &["inbox", "delete", spare], usual).await;
    let rotate = ["inbox", "rotate", inbox];
    recorder.record(cli, "inbox rotate", &rotate, SnapshotOptions { redact_numbers: true, ..usual }).await;
}

async fn snapshot_conversation_commands(recorder: &mut SnapshotRecorder, cli: &CliFixture, other: &str) {
    let usual = SnapshotOptions::default();
    let hello = [
        "send",
        "--from",
        "ann@example.com",
        "--to",
        AGENT_INBOX,
        "--key",
        "hello",
        "--subject",
        "Hello",
        "--text",
        "How are you?",
        "--api-key",
        other,
    ];
    cli.run(&hello).await;
    let waited = cli.run(&["wait", AGENT_INBOX, "--after", "0", "--timeout", "20"]).await.expect_exit(0).json();
    let message = string_value(&waited["message"]["id"]);
    cli.run(&["pause"]).await.expect_exit(0);
    recorder.record(cli, "reply", &["reply", &message, "--text", "Fine {n}"], usual).await;
    for columns in ["160", "80"] {
        let how = SnapshotOptions { env: &[("COLUMNS", columns)], ..usual };
        recorder.record(cli, "thread list", &["thread", "list", "--inbox", AGENT_INBOX], how).await;
    }
    let threads = cli.run(&["thread", "list", "--inbox", AGENT_INBOX]).await.expect_exit(0).json();
    let thread = string_value(&threads["data"][0]["id"]);
    // Counts are written up to a second behind.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    recorder.record(cli, "thread show", &["thread", "show", &thread], usual).await;
    let lease = ["thread", "lease", &thread, "--holder", "shell", "--ttl", "600"];
    let secret = |recorder: &mut SnapshotRecorder, verb: &str, words: &str, mut ran: CommandOutput, token: &str| {
        ran.stdout = ran.stdout.replace(token, "TOKEN");
        recorder.add_snapshot(cli, verb, &words.replace(token, "TOKEN"), &ran, SnapshotOptions::default());
    };
    let taken = cli.run(&[&lease[..], &["--json"]].concat()).await.expect_exit(0);
    let token = string_value(&taken.json()["token"]);
    secret(recorder, "thread lease", &[&lease[..], &["--json"]].concat().join(" "), taken, &token);
    let renew = [&lease[..], &["--token", &token, "--plain"]].concat();
    let renewed = cli.run(&renew).await.expect_exit(0);
    secret(recorder, "thread lease", &renew.join(" "), renewed, &token);
    recorder.record(cli, "thread lease", &["thread", "lease", &thread, "--holder", "other"], usual).await;
    for form in ["--plain", "--json"] {
        let words = ["thread", "release", &thread, "--token", &token, form];
        let ran = cli.run(&words).await;
        secret(recorder, "thread release", &words.join(" "), ran, &token);
    }
    recorder.record(cli, "thread done", &["thread", "done", &thread], usual).await;
    for number in ["1", "2", "3"] {
        cli.run(&["reply", &message, "--text", "x", "--follow-up", number]).await;
    }
    let asked = recorder.record(cli, "escalations list", &["escalations", "list"], usual).await.json();
    let id = asked["data"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["reason"] == "cap")
        .map(|one| string_value(&one["id"]))
        .unwrap();
    recorder.record(cli, "escalations show", &["escalations", "show", &id], usual).await;
    let reject = ["escalations", "resolve", &id, "--as", "reject", "--reason", "enough"];
    recorder.record(cli, "escalations resolve", &reject, usual).await;
    cli.run(&["resume"]).await.expect_exit(0);
    snapshot_guard_refusals(recorder, cli).await;
}

/// What a guard refuses, and the question about it.
async fn snapshot_guard_refusals(recorder: &mut SnapshotRecorder, cli: &CliFixture) {
    let usual = SnapshotOptions::default();
    let own = [
        "send",
        "--from",
        AGENT_INBOX,
        "--to",
        AGENT_INBOX,
        "--key",
        "round",
        "--subject",
        "Round",
        "--text",
        "And round",
    ];
    cli.run(&own).await;
    let waited = cli
        .run(&["wait", AGENT_INBOX, "--after", "0", "--subject", "Round", "--timeout", "20"])
        .await
        .expect_exit(0)
        .json();
    let message = string_value(&waited["message"]["id"]);
    recorder.record(cli, "reply", &["reply", &message, "--text", "Me again"], usual).await.expect_exit(5);
    let asked = recorder.record(cli, "escalations list", &["escalations", "list"], usual).await.json();
    let question = asked["data"].as_array().unwrap().iter().find(|one| one["reason"] == "loop").unwrap();
    recorder.record(cli, "escalations show", &["escalations", "show", &string_value(&question["id"])], usual).await;
}

async fn snapshot_webhook_commands(recorder: &mut SnapshotRecorder, cli: &CliFixture, server: &SpawnedServer) {
    let usual = SnapshotOptions::default();
    recorder.record(cli, "tail", &["tail", "--after", "0", "--limit", "2"], usual).await;
    let nobody = "http://127.0.0.1:1/hook";
    let secret = [("MAILONCE_WEBHOOK_SECRET", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")];
    let listen = ["webhooks", "listen", "--forward-to", nobody, "--after", "0", "--limit", "1"];
    recorder
        .record(cli, "webhooks listen", &listen, SnapshotOptions { env: &secret, redact_numbers: true, ..usual })
        .await;
    let (bearer, body) = (
        format!("Bearer {}", server.api_key),
        json!({ "url": nobody, "after": "0", "events": ["email.cancelled"] }).to_string(),
    );
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let (status, made) = server.call("POST", "/v1/endpoints", &headers, &body).await;
    assert_eq!(status, 201, "{made}");
    let path = format!("/v1/endpoints/{}", string_value(&made["id"]));
    let mut notice = None;
    for _ in 0..400 {
        let (_, page) = server.call("GET", &format!("{path}/notices"), &headers, "").await;
        let (_, endpoint) = server.call("GET", &path, &headers, "").await;
        notice = page["data"].as_array().and_then(|all| all.last()).map(|notice| string_value(&notice["id"]));
        if notice.is_some() && endpoint["failing_since"].is_string() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let notice = notice.expect("the endpoint is owed nothing");
    let (status, _) =
        server.call("POST", &format!("/v1/endpoints/{}/pause", string_value(&made["id"])), &headers, "").await;
    assert_eq!(status, 200);
    recorder
        .record(cli, "webhooks list", &["webhooks", "list"], SnapshotOptions { redact_numbers: true, ..usual })
        .await;
    recorder
        .record(
            cli,
            "webhooks replay",
            &["webhooks", "replay", &notice],
            SnapshotOptions { redact_numbers: true, ..usual },
        )
        .await
        .expect_exit(0);
    let create = ["webhooks", "create", "http://127.0.0.1:1/other", "--event", "email.cancelled", "--description", "x"];
    let how = SnapshotOptions { env: &secret, redact_numbers: true, ..usual };
    recorder.record(cli, "webhooks create", &create, how).await.expect_exit(0);
}

async fn snapshot_operator_commands(recorder: &mut SnapshotRecorder, cli: &CliFixture) {
    let usual = SnapshotOptions::default();
    let numbers = SnapshotOptions { redact_numbers: true, ..usual };
    recorder.record(cli, "backup", &["backup", "copy{n}.db"], numbers).await;
    recorder.record(cli, "backup", &["backup", "copy1.db"], usual).await;
    recorder.record(cli, "restore", &["restore", "copy1.db", "--data", "back{n}", "--hold"], numbers).await;
    recorder.record(cli, "restore", &["restore", "copy1.db", "--data", "back1", "--hold"], usual).await;
    recorder.record(cli, "doctor", &["doctor", "--offline"], usual).await;
    recorder.record(cli, "dev", &["dev", "--http", "127.0.0.1:0"], usual).await;
    let home = cli.path().to_str().unwrap().to_owned();
    let at_home = SnapshotOptions { env: &[("HOME", &home)], is_not_json: true, ..usual };
    recorder.record(cli, "mcp install", &["mcp", "install"], at_home).await;
    recorder.record(cli, "api-keys create", &["api-keys", "create"], usual).await;
    recorder.record(cli, "bench", &["bench", "--count", "20", "--connections", "2"], numbers).await;
    recorder.record(cli, "prove", &["prove", "--target", "http://127.0.0.1:1", "--key", "k"], usual).await;
}
