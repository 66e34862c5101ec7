//! `reply`, `thread` and `escalations` from a shell.

use serde_json::json;

use crate::binary::CliFixture;

#[tokio::test]
async fn a_message_is_answered_once_and_a_person_decides_from_a_shell() {
    let desk = CliFixture::new();
    // Another team's agent writes, since one's own is not answered.
    let other =
        desk.run(&["team", "create", "others"]).await.expect_exit(0).json()["api_key"].as_str().unwrap().to_owned();
    let _server = desk.start_dev(&[]).await;
    let people = ["send", "--from", "ann@example.com", "--to", "agent@mailonce.test", "--key", "hello"];
    let words = [people.as_slice(), &["--subject", "Hello", "--text", "How are you?", "--api-key", &other]].concat();
    desk.run(&words).await.expect_exit(4);
    let waited = desk.run(&["wait", "agent@mailonce.test", "--timeout", "20"]).await.expect_exit(0).json();
    let message = waited["message"]["id"].as_str().unwrap().to_owned();
    let reply = |text: &'static str, more: &'static [&'static str]| {
        let words: Vec<String> =
            ["reply", &message, "--text", text].iter().chain(more).map(ToString::to_string).collect();
        let desk = &desk;
        async move { desk.run(&words.iter().map(String::as_str).collect::<Vec<_>>()).await }
    };
    let first = reply("Fine", &[]).await.expect_exit(4).json();
    let again = reply("Very well", &[]).await.expect_exit(0).json();
    assert_eq!((&again["id"], &again["guard"]), (&first["id"], &json!("already_answered")));
    desk.run(&["reply", &message]).await.expect_exit(64);

    let news =
        ["send", "--from", "agent@mailonce.test", "--to", "bob@example.com", "--text", "The shop is open again."];
    desk.run(&news).await.expect_exit(4);
    let held = desk.run(&news).await.expect_exit(3).json();
    let meant = ["--distinct-token", held["distinct_token"].as_str().unwrap()];
    // The token of another mail does not let this answer go.
    let answer = [["reply", &message, "--text", "Well", "--follow-up", "1"].as_slice(), &meant].concat();
    let refused = desk.run(&answer).await.expect_exit(6);
    assert!(refused.stderr.contains("does not answer the same message"), "{}", refused.stderr);
    let released = desk.run(&[news.as_slice(), &meant].concat()).await.expect_exit(0).json();
    assert_eq!(released["id"], held["id"]);

    let threads = desk.run(&["thread", "list", "--inbox", "agent@mailonce.test"]).await.expect_exit(0).json();
    let thread = threads["data"][0]["id"].as_str().unwrap().to_owned();
    let lease = desk.run(&["thread", "lease", &thread, "--holder", "shell"]).await.expect_exit(0).json();
    let refused = desk.run(&["thread", "lease", &thread, "--holder", "other"]).await.expect_exit(5);
    assert!(refused.stderr.contains("leased") && refused.stderr.contains("shell"), "{}", refused.stderr);
    desk.run(&["thread", "release", &thread, "--token", lease["token"].as_str().unwrap()]).await.expect_exit(0);
    let done = desk.run(&["thread", "done", &thread]).await.expect_exit(0).json();
    assert!(done["handled_at"].is_string());
    let shown = desk.run(&["thread", "show", &thread]).await.expect_exit(0).json();
    assert_eq!(shown["said"].as_array().unwrap().len(), 2);

    for number in ["1", "2"] {
        desk.run(&["reply", &message, "--text", "x", "--follow-up", number]).await;
    }
    let held = desk.run(&["reply", &message, "--text", "x", "--follow-up", "3"]).await.expect_exit(3).json();
    assert_eq!(held["guard"], "cap");
    let asked = desk.run(&["escalations", "list"]).await.expect_exit(0).json();
    let id = asked["data"][0]["id"].as_str().unwrap().to_owned();
    let one = desk.run(&["escalations", "show", &id]).await.expect_exit(0).json();
    assert_eq!((&one["reason"], &one["draft"]["id"]), (&json!("cap"), &held["id"]));
    let decided =
        desk.run(&["escalations", "resolve", &id, "--as", "reject", "--reason", "enough"]).await.expect_exit(0).json();
    assert_eq!((&decided["state"], &decided["decided"]["reason"]), (&json!("resolved"), &json!("enough")));
    desk.run(&["escalations", "resolve", &id, "--as", "release"]).await.expect_exit(5);
    assert!(desk.run(&["escalations", "list"]).await.expect_exit(0).json()["data"].as_array().unwrap().is_empty());
}
