//! `mailonce mcp install`: shows, asks, writes, and keeps what was there.

use serde_json::{Value, json};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
};
use tokio::io::AsyncWriteExt as _;

use crate::binary::{CliFixture, CommandOutput, SpawnedServer};

const UNKNOWN_API_KEY: &str = "a-key-of-some-length";

fn read_json(desk: &CliFixture, path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(desk.path().join(path)).unwrap()).unwrap()
}

fn file_mode(desk: &CliFixture, path: &str) -> u32 {
    fs::metadata(desk.path().join(path)).unwrap().permissions().mode() & 0o777
}

/// A client's folder, with a file in it.
fn write_client_file(desk: &CliFixture, path: &str, text: &str) {
    let path = desk.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Runs `mcp install` with the folder of the test as home.
async fn run_install(desk: &CliFixture, words: &[&str], env: &[(&str, &str)]) -> CommandOutput {
    let home = desk.path().to_str().unwrap();
    let words: Vec<&str> = ["mcp", "install"].iter().chain(words).copied().collect();
    let env: Vec<(&str, &str)> = [("HOME", home)].iter().chain(env).copied().collect();
    desk.run_with_env(&words, &env).await
}

#[tokio::test]
async fn what_is_written_is_shown_first_and_keeps_what_was_there() {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[]).await;
    let before =
        json!({ "mcpServers": { "other": { "command": "other", "env": { "TOKEN": "of-another" } } }, "theme": "dark" });
    write_client_file(&desk, ".cursor/mcp.json", &before.to_string());
    write_client_file(&desk, ".codex/config.toml", "model = \"x\"\n");

    let shown = run_install(&desk, &[], &[]).await.expect_exit(0);
    assert!(shown.stderr.contains(".cursor/mcp.json") && shown.stderr.contains("--yes"), "{shown:?}");
    assert!(shown.stderr.contains("\"mailonce\"") && !shown.stderr.contains("of-another"), "{shown:?}");
    assert_eq!(read_json(&desk, ".cursor/mcp.json"), before);

    let done = run_install(&desk, &["--yes"], &[]).await.expect_exit(0);
    let clients: Vec<Value> =
        done.json()["written"].as_array().unwrap().iter().map(|one| one["client"].clone()).collect();
    assert_eq!(clients, ["cursor", "codex"]);
    assert!(!done.stderr.contains("Nothing answers"), "{done:?}");
    let cursor = read_json(&desk, ".cursor/mcp.json");
    assert_eq!((&cursor["theme"], &cursor["mcpServers"]["other"]), (&json!("dark"), &before["mcpServers"]["other"]));
    let entry = &cursor["mcpServers"]["mailonce"];
    assert_eq!(entry["args"], json!(["mcp", "--data", desk.data_dir()]));
    assert!(entry.get("env").is_none() && !cursor.to_string().contains(&server.api_key));
    let codex = fs::read_to_string(desk.path().join(".codex/config.toml")).unwrap();
    assert!(codex.starts_with("model = \"x\"\n") && codex.contains("[mcp_servers.mailonce]"), "{codex}");

    let again = run_install(&desk, &["--yes"], &[]).await.expect_exit(0);
    assert!(
        again.json()["written"].as_array().unwrap().is_empty() && again.stderr.contains("has it already"),
        "{again:?}"
    );
}

/// The server as a client's file has it.
fn installed_entry(desk: &CliFixture) -> Value {
    read_json(desk, ".cursor/mcp.json")["mcpServers"]["mailonce"].clone()
}

/// One call of the API with somebody's key.
async fn api_call(server: &SpawnedServer, key: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let bearer = format!("Bearer {key}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.call(method, path, &headers, &body).await
}

/// A key that decides nothing.
async fn create_agent_key(server: &SpawnedServer) -> String {
    let about = json!({ "name": "mine", "scopes": ["send", "read", "reply"] });
    let (_, made) = api_call(server, &server.api_key, "POST", "/v1/api-keys", &about).await;
    made["api_key"].as_str().unwrap().to_owned()
}

/// How many keys of a name there are.
async fn count_keys_named(server: &SpawnedServer, name: &str) -> usize {
    let (_, page) = api_call(server, &server.api_key, "GET", "/v1/api-keys", &Value::Null).await;
    page["data"].as_array().unwrap().iter().filter(|key| key["name"] == name).count()
}

/// What a client gets that starts the server that is written for it and asks for the tools.
async fn list_tools_via_entry(desk: &CliFixture) -> Value {
    let words = installed_entry(desk)["args"].as_array().unwrap().clone();
    let words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
    let mut child = desk.command(&words).current_dir("/").stdin(Stdio::piped()).spawn().unwrap();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    child.stdin.take().unwrap().write_all(format!("{list}\n").as_bytes()).await.unwrap();
    let said = child.wait_with_output().await.unwrap().stdout;
    serde_json::from_slice(&said).unwrap()
}

#[tokio::test]
async fn a_client_can_start_what_is_written_from_anywhere() {
    let desk = CliFixture::new();
    let words = ["--yes", "--client", "cursor"];
    // Nothing runs, nothing ran, and there is no key: nothing is written, and it is said what to do.
    let refused = run_install(&desk, &words, &[]).await.expect_exit(64);
    assert!(
        refused.stderr.contains("start `mailonce dev`") && refused.stderr.contains("MAILONCE_API_KEY"),
        "{refused:?}"
    );
    let nowhere = ["--yes", "--client", "cursor", "--url", "http://127.0.0.1:1"];
    let refused = run_install(&desk, &nowhere, &[]).await.expect_exit(64);
    assert!(refused.stderr.contains("MAILONCE_API_KEY"), "{refused:?}");
    // Nobody can say what this key may do.
    let refused = run_install(&desk, &nowhere, &[("MAILONCE_API_KEY", UNKNOWN_API_KEY)]).await.expect_exit(5);
    assert!(refused.stderr.contains("unreachable"), "{refused:?}");
    assert!(!desk.path().join(".cursor").exists());

    // The key that a `dev` of this folder has stays in its own file, and so does the one that models get.
    let server = desk.start_dev(&[]).await;
    run_install(&desk, &words, &[("MAILONCE_API_KEY", &server.api_key)]).await.expect_exit(0);
    let written = installed_entry(&desk);
    assert_eq!((&written["args"], written.get("env")), (&json!(["mcp", "--data", desk.data_dir()]), None));
    assert_eq!(list_tools_via_entry(&desk).await["result"]["tools"].as_array().unwrap().len(), 10);
    // One that nobody knows is not written; one that decides nothing is, beside the place.
    let refused = run_install(&desk, &words, &[("MAILONCE_API_KEY", UNKNOWN_API_KEY)]).await.expect_exit(64);
    assert!(refused.stderr.contains("unauthorized") && refused.stderr.contains("next: "), "{refused:?}");
    assert_eq!(installed_entry(&desk), written);
    let agent = create_agent_key(&server).await;
    run_install(&desk, &words, &[("MAILONCE_API_KEY", &agent)]).await.expect_exit(0);
    let other = installed_entry(&desk);
    assert_eq!((&other["args"][2], &other["env"]), (&json!(desk.data_dir()), &json!({ "MAILONCE_API_KEY": agent })));

    // A `dev` that rests will come back with the same keys.
    server.terminate().await;
    let done = run_install(&desk, &words, &[]).await.expect_exit(0);
    assert!(done.stderr.contains("Nothing answers"), "{done:?}");
    assert_eq!(installed_entry(&desk), written);
}

#[tokio::test]
async fn a_model_never_gets_a_key_that_decides() {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[]).await;
    let keys = |key: String| {
        let server = &server;
        async move { api_call(server, &key, "GET", "/v1/api-keys", &Value::Null).await.0 }
    };
    // Of a `dev` it gets the one that is kept for agents, and no other: without that one nothing works.
    run_install(&desk, &["--yes", "--client", "cursor"], &[]).await.expect_exit(0);
    let kept = fs::read_to_string(desk.data_dir().join("agent.key")).unwrap();
    assert_eq!((keys(kept.clone()).await, file_mode(&desk, "mailonce-data/agent.key")), (403, 0o600));
    assert_eq!(list_tools_via_entry(&desk).await["result"]["tools"].as_array().unwrap().len(), 10);
    assert_eq!(count_keys_named(&server, "agents of dev").await, 1);
    let (_, page) = api_call(&server, &server.api_key, "GET", "/v1/api-keys", &Value::Null).await;
    let id = page["data"].as_array().unwrap().iter().find(|key| key["name"] == "agents of dev").unwrap()["id"].clone();
    let path = format!("/v1/api-keys/{}", id.as_str().unwrap());
    assert_eq!(api_call(&server, &server.api_key, "DELETE", &path, &Value::Null).await.0, 200);
    assert!(list_tools_via_entry(&desk).await.get("error").is_some(), "another key was used");

    // Of any other server one is made for it, once, when it is agreed to.
    let at = ["--client", "cursor", "--url", &server.url];
    let env = [("MAILONCE_API_KEY", server.api_key.as_str())];
    let shown = run_install(&desk, &at, &env).await.expect_exit(0);
    assert!(shown.stderr.contains("a key for agents, made now"), "{shown:?}");
    assert_eq!(count_keys_named(&server, "mcp install").await, 0);
    let yes = [&at[..], &["--yes"]].concat();
    let done = run_install(&desk, &yes, &env).await.expect_exit(0);
    let made = installed_entry(&desk)["env"]["MAILONCE_API_KEY"].as_str().unwrap().to_owned();
    assert!(made != server.api_key && !done.stderr.contains(&made), "{done:?}");
    assert_eq!((keys(made.clone()).await, count_keys_named(&server, "mcp install").await), (403, 1));
    let again = run_install(&desk, &yes, &env).await.expect_exit(0);
    assert!(again.stderr.contains("has it already"), "{again:?}");
    // Another client gets the same one.
    run_install(&desk, &["--client", "gemini", "--url", &server.url, "--yes"], &env).await.expect_exit(0);
    assert_eq!(read_json(&desk, ".gemini/settings.json")["mcpServers"]["mailonce"], installed_entry(&desk));
    assert_eq!(count_keys_named(&server, "mcp install").await, 1);
}

#[tokio::test]
async fn a_server_of_our_name_is_changed_in_its_place_after_the_difference_was_shown() {
    let desk = CliFixture::new();
    let _server = desk.start_dev(&[]).await;
    let old = "{\n    \"zoo\": [1, 2],\n    \"mcpServers\": {\n        \"mailonce\": { \"command\": \"/old/mailonce\", \
               \"env\": { \"TOKEN\": \"of-another\" } },\n        \"ant\": {\"command\":\"ant\"}\n    },\n    \"bee\": true\n}\n";
    write_client_file(&desk, ".cursor/mcp.json", old);
    let done = run_install(&desk, &["--yes", "--client", "cursor"], &[]).await.expect_exit(0);
    assert!(done.stderr.contains("-   \"command\": \"/old/mailonce\""), "{done:?}");
    assert!(done.stderr.contains("+   \"command\": ") && !done.stderr.contains("of-another"), "{done:?}");
    let new = fs::read_to_string(desk.path().join(".cursor/mcp.json")).unwrap();
    assert!(new.starts_with("{\n    \"zoo\": [1, 2],\n    \"mcpServers\": {\n        \"mailonce\": {\n"), "{new}");
    assert!(
        new.ends_with("        },\n        \"ant\": {\"command\":\"ant\"}\n    },\n    \"bee\": true\n}\n"),
        "{new}"
    );
    // Who reads which file is said of each.
    let words = ["--client", "claude-code", "--client", "windsurf"];
    let shown = run_install(&desk, &words, &[]).await.expect_exit(0);
    assert!(shown.stderr.contains(".mcp.json, read in this folder alone"), "{shown:?}");
    assert!(shown.stderr.contains("mcp_config.json, read wherever it is started"), "{shown:?}");
}

#[tokio::test]
async fn a_key_is_shown_to_nobody_and_its_file_is_private() {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[]).await;
    let secret = create_agent_key(&server).await;
    write_client_file(&desk, ".mcp.json", "{}");
    write_client_file(&desk, ".cursor/mcp.json", "{}");
    for path in [".mcp.json", ".cursor/mcp.json"] {
        fs::set_permissions(desk.path().join(path), Permissions::from_mode(0o644)).unwrap();
    }
    let words = ["--yes", "--client", "claude-code", "--client", "vscode", "--url", &server.url];
    let done = run_install(&desk, &words, &[("MAILONCE_API_KEY", &secret)]).await.expect_exit(0);
    assert!(!done.stderr.contains(&secret) && !done.stdout.contains(&secret), "{done:?}");
    assert!(done.stderr.contains("only you can read it now (its mode was 644)"), "{done:?}");
    assert!(done.stderr.contains("version control"), "{done:?}");
    let entry = &read_json(&desk, ".mcp.json")["mcpServers"]["mailonce"];
    assert_eq!(entry["env"], json!({ "MAILONCE_URL": server.url, "MAILONCE_API_KEY": secret }));
    assert_eq!(read_json(&desk, ".vscode/mcp.json")["servers"]["mailonce"]["type"], "stdio");
    assert_eq!((file_mode(&desk, ".mcp.json"), file_mode(&desk, ".vscode/mcp.json")), (0o600, 0o600));
    // Without a key in it a file stays as open as it was.
    run_install(&desk, &["--yes", "--client", "cursor"], &[]).await.expect_exit(0);
    assert_eq!(file_mode(&desk, ".cursor/mcp.json"), 0o644);
}

#[tokio::test]
async fn one_file_that_cannot_be_changed_keeps_no_other_from_it() {
    let desk = CliFixture::new();
    let _server = desk.start_dev(&[]).await;
    write_client_file(&desk, ".cursor/mcp.json", "{ // mine\n}");
    write_client_file(&desk, ".gemini/settings.json", "{}");
    fs::create_dir_all(desk.path().join(".codeium/windsurf/mcp_config.json")).unwrap();
    write_client_file(&desk, ".codex/config.toml", "[mcp_servers.mailonce]\ncommand = \"mine\"\n");

    let done = run_install(&desk, &["--yes"], &[]).await.expect_exit(5);

    let told = done.json();
    let names =
        |list: &str| -> Vec<Value> { told[list].as_array().unwrap().iter().map(|one| one["client"].clone()).collect() };
    assert_eq!(
        (names("written"), names("left")),
        (vec![json!("gemini")], vec![json!("cursor"), json!("windsurf"), json!("codex")])
    );
    assert!(done.stderr.contains("left as it is"), "{done:?}");
    assert_eq!(fs::read_to_string(desk.path().join(".cursor/mcp.json")).unwrap(), "{ // mine\n}");
    assert!(fs::read_to_string(desk.path().join(".codex/config.toml")).unwrap().contains("mine"));
    assert!(read_json(&desk, ".gemini/settings.json")["mcpServers"]["mailonce"]["command"].is_string());
}
