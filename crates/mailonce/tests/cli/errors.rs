//! Errors: a code, the next step and an exit code, in words or as JSON, and never on stdout.

use serde_json::Value;
use std::{process::Stdio, time::Duration};

use crate::binary::{CliFixture, CommandOutput, send_args};

/// The one line of JSON on stderr.
fn stderr_json(ran: &CommandOutput) -> Value {
    assert!(ran.stdout.is_empty(), "{ran:?}");
    serde_json::from_str(&ran.stderr).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[tokio::test]
async fn every_error_has_a_code_and_a_next_step_in_both_forms() {
    let cli = CliFixture::new();
    let nowhere = [("MAILONCE_URL", "http://127.0.0.1:1"), ("MAILONCE_API_KEY", "mo_x")];
    let send = send_args("k", "x");
    std::fs::write(cli.path().join("there.db"), "mine").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let cases: [(&[&str], &[(&str, &str)], &str, i32); 13] = [
        (&["fly"], &[], "usage", 64),
        (&["send", "--from", "a@x.test"], &[], "usage", 64),
        (&["key", "derive", "--type", "t", "--entity", "e", "--to", "nobody"], &[], "usage", 64),
        (&send, &[], "no_server", 5),
        (&send, &nowhere, "unreachable", 5),
        (&send, &nowhere[..1], "no_api_key", 5),
        (&["serve", "--http", "nowhere"], &[], "configuration", 5),
        (&["backup", "copy.db"], &[], "no_ledger", 5),
        (&["backup", "there.db"], &[], "file_exists", 5),
        (&["dev", "--http", &taken], &[], "port_taken", 5),
        (&["dev", "--http", "127.0.0.1:0", "--smtp", &taken], &[], "port_taken", 5),
        (&["api-keys", "list", "--team", "nobody"], &[], "not_found", 5),
        (&["simulate", "inbound"], &[("MAILONCE_SMTP_LISTEN", "127.0.0.1:1")], "not_taken", 5),
    ];
    for (words, env, code, exit) in cases {
        let json = cli.run_with_env(&[words, &["--json"]].concat(), env).await.expect_exit(exit);
        let said = stderr_json(&json);
        assert_eq!(said["code"], code, "{words:?}: {said}");
        assert!(said["next"].as_str().is_some_and(|next| !next.is_empty()), "{words:?}: {said}");
        let plain = cli.run_with_env(words, env).await.expect_exit(exit);
        assert!(plain.stdout.is_empty(), "{plain:?}");
        assert!(plain.stderr.contains(&format!("mailonce: {code}: ")) && plain.stderr.contains("next: "), "{plain:?}");
    }
}

#[tokio::test]
async fn a_wrong_call_is_told_whole_with_the_way_to_make_it() {
    let cli = CliFixture::new();
    let said = stderr_json(&cli.run(&["send", "--text", "x", "--json"]).await.expect_exit(64));
    let detail = said["detail"].as_str().unwrap();
    assert!(detail.contains("--from <FROM>") && detail.contains("--to <TO>") && !detail.contains('\n'), "{said}");
    assert!(said["next"].as_str().unwrap().contains("mailonce send"), "{said}");
    let said = stderr_json(&cli.run(&["sedn", "--json"]).await.expect_exit(64));
    assert!(said["detail"].as_str().unwrap().contains("similar subcommand exists: 'send'"), "{said}");
    let said = stderr_json(&cli.run(&["emails", "--json"]).await.expect_exit(64));
    assert!(said["code"] == "usage" && said["detail"].as_str().unwrap().contains("requires a subcommand"), "{said}");
    let said = stderr_json(&cli.run(&["--json", "emails"]).await.expect_exit(64));
    assert_eq!((&said["code"], &said["detail"]), (&"usage".into(), &"the command is missing".into()));
    // Without a verb people get the list of them.
    let plain = cli.run(&["emails"]).await.expect_exit(64);
    assert!(plain.stderr.contains("Usage: mailonce emails"), "{plain:?}");
}

#[tokio::test]
async fn output_that_cannot_be_written_is_told_and_a_reader_that_had_enough_is_not() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let full = || Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    for words in
        [&["emails", "list"][..], &["openapi"], &["--help"], &["tail", "--after", "0"], &["commands", "--plain"]]
    {
        cli.run(&send_args("k", "x")).await;
        let ran = cli.command(words).stdout(full()).spawn().unwrap().wait_with_output().await.unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(74), "{words:?}: {said}");
        assert!(said.contains("mailonce: output: ") && said.contains("next: "), "{words:?}: {said}");
    }
    let ran =
        cli.command(&["emails", "list", "--json"]).stdout(full()).spawn().unwrap().wait_with_output().await.unwrap();
    let said: Value = serde_json::from_slice(&ran.stderr).unwrap();
    assert_eq!((ran.status.code(), &said["code"]), (Some(74), &"output".into()));
    // Nobody reads it.
    for words in [&["openapi"][..], &["--help"], &["tail", "--after", "0"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = cli.command(words).stdout(Stdio::from(writer)).spawn().unwrap().wait_with_output();
        let ran = tokio::time::timeout(Duration::from_secs(20), ran).await.expect("it goes on for nobody").unwrap();
        assert_eq!((ran.status.code(), ran.stderr), (Some(0), Vec::new()), "{words:?}");
    }
    server.terminate().await;
}

#[tokio::test]
async fn a_wrong_key_and_a_ledger_in_use_are_told_with_their_own_next_step() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let wrong = [("MAILONCE_API_KEY", "mo_nobody_knows_this_key")];
    let said = stderr_json(&cli.run_with_env(&["emails", "list", "--json"], &wrong).await.expect_exit(64));
    assert_eq!((&said["code"], &said["status"]), (&"unauthorized".into(), &401.into()));
    assert!(said["next"].as_str().unwrap().contains("Authorization: "), "not as the server said it: {said}");
    let plain = cli.run_with_env(&["emails", "list"], &wrong).await.expect_exit(64);
    assert!(plain.stderr.contains("MAILONCE_API_KEY") && !plain.stderr.contains("Authorization:"), "{plain:?}");
    for words in [&["dev", "--http", "127.0.0.1:0"][..], &["serve", "--http", "127.0.0.1:0"]] {
        let said = stderr_json(&cli.run(&[words, &["--json"]].concat()).await.expect_exit(5));
        assert_eq!(said["code"], "ledger_in_use", "{words:?}: {said}");
    }
    server.terminate().await;
}

#[tokio::test]
async fn a_server_without_smtp_says_so_and_so_does_whoever_wants_to_bring_mail() {
    let cli = CliFixture::new();
    let off = [("MAILONCE_SMTP_LISTEN", "off")];
    let server = cli.start_dev(&off).await;
    assert!(
        server.startup_banner.contains("agent@mailonce.test, SMTP is off, so no mail arrives\n"),
        "{}",
        server.startup_banner
    );
    let said = stderr_json(&cli.run_with_env(&["simulate", "inbound", "--json"], &off).await.expect_exit(5));
    assert!(said["detail"].as_str().unwrap().contains("SMTP is off"), "{said}");
    assert!(said["next"].as_str().unwrap().contains("--smtp off"), "{said}");
    server.terminate().await;
}

#[tokio::test]
async fn a_held_mail_says_what_to_do_in_words_of_the_command_line() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let words =
        ["send", "--from", "agent@mailonce.test", "--to", "bob@example.com", "--text", "The shop is open again."];
    cli.run(&words).await.expect_exit(0);
    let held = cli.run(&[&words[..], &["--plain"]].concat()).await.expect_exit(3);
    let token = held.stdout.lines().find_map(|line| line.trim().strip_prefix("--distinct-token ")).unwrap_or_default();
    assert!(!token.is_empty() && held.stdout.contains("mailonce emails cancel "), "{held:?}");
    let meant = cli.run(&[&words[..], &["--distinct-token", token, "--plain"]].concat()).await.expect_exit(0);
    assert!(!meant.stdout.contains("distinct-token"), "{meant:?}");
    let some = ["send", "--from", "a@mailonce.test", "--text", "x", "--type", "t", "--entity", "e", "--plain"];
    cli.run(&[&some[..], &["--to", "a@x.test", "--to", "b@x.test"]].concat()).await.expect_exit(0);
    let held = cli.run(&[&some[..], &["--to", "a@x.test"]].concat()).await.expect_exit(3);
    assert!(held.stdout.contains("guard") && held.stdout.contains("mailonce escalations resolve ID"), "{held:?}");
    server.terminate().await;
}

#[tokio::test]
async fn a_server_that_cannot_be_proven_is_told_in_both_forms() {
    let cli = CliFixture::new();
    let words = ["prove", "--target", "http://127.0.0.1:1", "--key", "k"];
    let said = stderr_json(&cli.run(&[&words[..], &["--json"]].concat()).await.expect_exit(2));
    assert_eq!(said["code"], "unreachable");
    let plain = cli.run(&words).await.expect_exit(2);
    assert!(plain.stderr.contains("mailonce: unreachable: ") && plain.stderr.contains("next: "), "{plain:?}");
}

#[tokio::test]
async fn the_table_of_exit_codes_is_the_one_that_is_documented() {
    let cli = CliFixture::new();
    let help = cli.run(&["--help"]).await.expect_exit(0).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).unwrap();
    for code in ["0", "2", "3", "4", "5", "6", "7", "64", "74"] {
        assert!(page.contains(&format!("| {code} |")), "docs/cli.md does not say {code}");
        assert!(help.contains(&format!(" {code} ")), "--help does not say {code}: {help}");
    }
    let server = cli.start_dev(&[]).await;
    cli.run(&send_args("k", "x")).await.expect_exit(0);
    cli.run(&send_args("k", "x")).await.expect_exit(0);
    cli.run(&send_args("k", "y")).await.expect_exit(6);
    cli.run(&["pause"]).await.expect_exit(0);
    cli.run(&[&send_args("late", "x")[..], &["--wait", "1s"]].concat()).await.expect_exit(4);
    cli.run(&["resume"]).await.expect_exit(0);
    cli.run(&["wait", "agent@mailonce.test", "--timeout", "1"]).await.expect_exit(2);
    let overlap = |to: &'static [&'static str]| {
        let mut words = vec!["send", "--from", "a@mailonce.test", "--text", "x", "--type", "alert", "--entity", "e"];
        words.extend(to.iter().flat_map(|to| ["--to", to]));
        words
    };
    cli.run(&overlap(&["a@x.test", "b@x.test"])).await.expect_exit(0);
    cli.run(&overlap(&["a@x.test"])).await.expect_exit(3);
    let doubt = ["send", "--from", "a@x.test", "--to", "unknown@sandbox.mailonce.test", "--text", "x", "--key", "d"];
    let mut code = cli.run(&doubt).await.exit_code;
    for _ in 0..200 {
        if code == 7 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        code = cli.run(&doubt).await.exit_code;
    }
    assert_eq!(code, 7, "an unknown outcome");
    server.terminate().await;
}

#[tokio::test]
async fn words_go_into_a_pipe_when_they_are_wanted_and_colours_never() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let door: Value = serde_json::from_slice(&std::fs::read(cli.data_dir().join("dev.json")).unwrap()).unwrap();
    let smtp = door["smtp"].as_str().unwrap();
    cli.run(&["simulate", "inbound", "--code", "481922", "--smtp", smtp]).await.expect_exit(0);
    let take = ["take", "agent@mailonce.test", "--for", "s", "--wait", "20"];
    let code = cli.run(&[&take[..], &["--plain"]].concat()).await.expect_exit(0);
    assert_eq!(code.stdout, "481922\n");
    assert_eq!(cli.run(&take).await.expect_exit(0).json()["artifact"]["value"], "481922");
    let list = cli.run(&["inbox", "list", "--plain"]).await.expect_exit(0);
    assert!(!list.stdout.contains('\u{1b}') && list.stdout.contains("agent@mailonce.test"), "{list:?}");
    cli.run(&["inbox", "list", "--plain", "--json"]).await.expect_exit(64);
    server.terminate().await;
}
