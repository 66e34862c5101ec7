//! `reply`, `thread` and `escalations` from a shell.

use serde_json::{Value, json};

use crate::fixtures::binary::CliFixture;

#[tokio::test]
async fn a_message_is_answered_once_and_escalations_are_resolved_from_a_shell() {
    let cli = CliFixture::new();
    // The mail comes from another team, because the loop guard refuses replies to our own team's mail.
    let other =
        cli.run(&["team", "create", "others"]).await.expect_exit(0).json()["api_key"].as_str().unwrap().to_owned();
    let _server = cli.start_dev(&[]).await;
    let send_from_ann = ["send", "--from", "ann@example.com", "--to", "agent@mailonce.test", "--key", "hello"];
    let args =
        [send_from_ann.as_slice(), &["--subject", "Hello", "--text", "How are you?", "--api-key", &other]].concat();
    cli.run(&args).await.expect_exit(0);
    let wait_result = cli.run(&["wait", "agent@mailonce.test", "--timeout", "20"]).await.expect_exit(0).json();
    let message = wait_result["message"]["id"].as_str().unwrap().to_owned();
    let reply = |text: &'static str, more: &'static [&'static str]| {
        let args: Vec<String> =
            ["reply", &message, "--text", text].iter().chain(more).map(ToString::to_string).collect();
        let cli = &cli;
        async move { cli.run(&args.iter().map(String::as_str).collect::<Vec<_>>()).await }
    };
    let first = reply("Fine", &[]).await.expect_exit(0).json();
    let again = reply("Very well", &[]).await.expect_exit(0).json();
    assert_eq!((&again["id"], &again["guard"]), (&first["id"], &json!("already_answered")));
    cli.run(&["reply", &message]).await.expect_exit(64);

    let notice_args =
        ["send", "--from", "agent@mailonce.test", "--to", "bob@example.com", "--text", "The shop is open again."];
    cli.run(&notice_args).await.expect_exit(0);
    let held = cli.run(&notice_args).await.expect_exit(3).json();
    let token_args = ["--distinct-token", held["distinct_token"].as_str().unwrap()];
    // The token of another mail does not release this reply.
    let answer = [["reply", &message, "--text", "Well", "--follow-up", "1"].as_slice(), &token_args].concat();
    let refused = cli.run(&answer).await.expect_exit(6);
    assert!(refused.stderr.contains("does not answer the same message"), "{}", refused.stderr);
    let released = cli.run(&[notice_args.as_slice(), &token_args].concat()).await.expect_exit(0).json();
    assert_eq!(released["id"], held["id"]);

    let threads = cli.run(&["thread", "list", "--inbox", "agent@mailonce.test"]).await.expect_exit(0).json();
    let thread = threads["data"][0]["id"].as_str().unwrap().to_owned();
    let lease = cli.run(&["thread", "lease", &thread, "--holder", "shell"]).await.expect_exit(0).json();
    let refused = cli.run(&["thread", "lease", &thread, "--holder", "other"]).await.expect_exit(5);
    assert!(refused.stderr.contains("leased") && refused.stderr.contains("shell"), "{}", refused.stderr);
    cli.run(&["thread", "release", &thread, "--token", lease["token"].as_str().unwrap()]).await.expect_exit(0);
    let done = cli.run(&["thread", "done", &thread]).await.expect_exit(0).json();
    assert!(done["handled_at"].is_string());
    let shown = cli.run(&["thread", "show", &thread]).await.expect_exit(0).json();
    assert_eq!(shown["entries"].as_array().unwrap().len(), 2);

    for number in ["1", "2"] {
        cli.run(&["reply", &message, "--text", "x", "--follow-up", number]).await;
    }
    let held = cli.run(&["reply", &message, "--text", "x", "--follow-up", "3"]).await.expect_exit(3).json();
    assert_eq!(held["guard"], "cap");
    let escalations = cli.run(&["escalations", "list"]).await.expect_exit(0).json();
    let id = escalations["data"][0]["id"].as_str().unwrap().to_owned();
    let one = cli.run(&["escalations", "show", &id]).await.expect_exit(0).json();
    assert_eq!((&one["reason"], &one["email"]["id"]), (&json!("cap"), &held["id"]));
    let decided =
        cli.run(&["escalations", "resolve", &id, "--as", "reject", "--reason", "enough"]).await.expect_exit(0).json();
    assert_eq!((&decided["state"], &decided["decision"]["reason"]), (&json!("resolved"), &json!("enough")));
    cli.run(&["escalations", "resolve", &id, "--as", "release"]).await.expect_exit(5);
    assert!(cli.run(&["escalations", "list"]).await.expect_exit(0).json()["data"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_take_in_a_watch_waits_past_the_code_of_another_run() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let ready: Value = serde_json::from_slice(&std::fs::read(cli.data_dir().join("dev.json")).unwrap()).unwrap();
    let smtp = ready["smtp"].as_str().unwrap();
    let inbox = "agent@mailonce.test";
    let watch = cli.run(&["watch", "create", inbox]).await.expect_exit(0).json()["id"].as_str().unwrap().to_owned();
    let send_code = async |code: &str| {
        let mail = ["simulate", "inbound", "--to", inbox, "--from", "shop@example.com", "--code", code];
        cli.run(&[mail.as_slice(), &["--smtp", smtp]].concat()).await.expect_exit(0)
    };
    let take = ["take", inbox, "--watch", &watch, "--wait", "30", "--json", "--for"];
    let taken = async |purpose: &str| cli.run(&[take.as_slice(), &[purpose]].concat()).await.expect_exit(0).json();
    send_code("481920").await;
    assert_eq!(taken("run-1").await["artifact"]["value"], "481920");
    let waited = ["wait", inbox, "--watch", &watch, "--has", "code", "--timeout", "0"];
    cli.run(&waited).await.expect_exit(0);
    cli.run(&[waited.as_slice(), &["--for", "run-2"]].concat()).await.expect_exit(2);
    let (second, _) = tokio::join!(taken("run-2"), send_code("771204"));
    assert_eq!(second["artifact"]["value"], "771204");
}
