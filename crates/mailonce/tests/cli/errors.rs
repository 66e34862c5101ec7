//! Errors: a code, the next step and an exit code, in words or as JSON, and never on stdout.

use serde_json::Value;

use crate::binary::{Desk, Ran, send_words};

/// The one line of JSON on stderr.
fn told(ran: &Ran) -> Value {
    assert!(ran.out.is_empty(), "{ran:?}");
    serde_json::from_str(&ran.err).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[tokio::test]
async fn every_error_has_a_code_and_a_next_step_in_both_forms() {
    let desk = Desk::new();
    let nowhere = [("MAILONCE_URL", "http://127.0.0.1:1"), ("MAILONCE_API_KEY", "mo_x")];
    let send = send_words("k", "x");
    let cases: [(&[&str], &[(&str, &str)], &str, i32); 10] = [
        (&["fly"], &[], "usage", 64),
        (&["send", "--from", "a@x.test"], &[], "usage", 64),
        (&["key", "derive", "--type", "t", "--entity", "e", "--to", "nobody"], &[], "usage", 64),
        (&send, &[], "no_server", 5),
        (&send, &nowhere, "unreachable", 5),
        (&send, &nowhere[..1], "no_api_key", 5),
        (&["serve", "--http", "nowhere"], &[], "configuration", 5),
        (&["backup", "copy.db"], &[], "ledger", 5),
        (&["keys", "list", "--team", "nobody"], &[], "not_found", 5),
        (&["simulate", "inbound"], &[("MAILONCE_SMTP_LISTEN", "127.0.0.1:1")], "not_taken", 5),
    ];
    for (words, env, code, exit) in cases {
        let json = desk.run_with(&[words, &["--json"]].concat(), env).await.exits(exit);
        let said = told(&json);
        assert_eq!(said["code"], code, "{words:?}: {said}");
        assert!(said["next"].as_str().is_some_and(|next| !next.is_empty()), "{words:?}: {said}");
        let plain = desk.run_with(words, env).await.exits(exit);
        assert!(plain.out.is_empty(), "{plain:?}");
        if code != "usage" {
            assert!(plain.err.contains(&format!("mailonce: {code}: ")) && plain.err.contains("next: "), "{plain:?}");
        }
    }
}

#[tokio::test]
async fn the_table_of_exit_codes_is_the_one_that_is_documented() {
    let desk = Desk::new();
    let help = desk.run(&["--help"]).await.exits(0).out.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).unwrap();
    for code in ["0", "2", "3", "4", "5", "6", "7", "64", "74"] {
        assert!(page.contains(&format!("| {code} |")), "docs/cli.md does not say {code}");
        assert!(help.contains(&format!(" {code} ")), "--help does not say {code}: {help}");
    }
    let server = desk.dev(&[]).await;
    desk.run(&send_words("k", "x")).await.exits(4);
    desk.run(&send_words("k", "x")).await.exits(0);
    desk.run(&send_words("k", "y")).await.exits(6);
    desk.run(&["wait", "agent@mailonce.test", "--timeout", "1"]).await.exits(2);
    let overlap = |to: &'static [&'static str]| {
        let mut words = vec!["send", "--from", "a@mailonce.test", "--text", "x", "--type", "alert", "--entity", "e"];
        words.extend(to.iter().flat_map(|to| ["--to", to]));
        words
    };
    desk.run(&overlap(&["a@x.test", "b@x.test"])).await.exits(4);
    desk.run(&overlap(&["a@x.test"])).await.exits(3);
    let doubt = ["send", "--from", "a@x.test", "--to", "unknown@sandbox.mailonce.test", "--text", "x", "--key", "d"];
    let mut code = desk.run(&doubt).await.code;
    for _ in 0..200 {
        if code == 7 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        code = desk.run(&doubt).await.code;
    }
    assert_eq!(code, 7, "an unknown outcome");
    server.terminate().await;
}

#[tokio::test]
async fn words_go_into_a_pipe_when_they_are_wanted_and_colours_never() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let door: Value = serde_json::from_slice(&std::fs::read(desk.data().join("dev.json")).unwrap()).unwrap();
    let smtp = door["smtp"].as_str().unwrap();
    desk.run(&["simulate", "inbound", "--code", "481922", "--smtp", smtp]).await.exits(0);
    let take = ["take", "agent@mailonce.test", "--for", "s", "--wait", "20"];
    let code = desk.run(&[&take[..], &["--plain"]].concat()).await.exits(0);
    assert_eq!(code.out, "481922\n");
    assert_eq!(desk.run(&take).await.exits(0).json()["artifact"]["value"], "481922");
    let list = desk.run(&["inbox", "list", "--plain"]).await.exits(0);
    assert!(!list.out.contains('\u{1b}') && list.out.contains("agent@mailonce.test"), "{list:?}");
    desk.run(&["inbox", "list", "--plain", "--json"]).await.exits(64);
    server.terminate().await;
}
