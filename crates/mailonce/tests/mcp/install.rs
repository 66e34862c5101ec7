//! `mailonce mcp install`: shows, asks, writes, and keeps what was there.

use serde_json::{Value, json};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
};
use tokio::io::AsyncWriteExt as _;

use crate::binary::{Desk, Ran, Server};

const SECRET: &str = "a-key-of-some-length";

fn json_of(desk: &Desk, path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(desk.path().join(path)).unwrap()).unwrap()
}

fn mode(desk: &Desk, path: &str) -> u32 {
    fs::metadata(desk.path().join(path)).unwrap().permissions().mode() & 0o777
}

/// A client's folder, with a file in it.
fn has(desk: &Desk, path: &str, text: &str) {
    let path = desk.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Runs `mcp install` with the folder of the test as home.
async fn install(desk: &Desk, words: &[&str], env: &[(&str, &str)]) -> Ran {
    let home = desk.path().to_str().unwrap();
    let words: Vec<&str> = ["mcp", "install"].iter().chain(words).copied().collect();
    let env: Vec<(&str, &str)> = [("HOME", home)].iter().chain(env).copied().collect();
    desk.run_with(&words, &env).await
}

#[tokio::test]
async fn what_is_written_is_shown_first_and_keeps_what_was_there() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let before =
        json!({ "mcpServers": { "other": { "command": "other", "env": { "TOKEN": "of-another" } } }, "theme": "dark" });
    has(&desk, ".cursor/mcp.json", &before.to_string());
    has(&desk, ".codex/config.toml", "model = \"x\"\n");

    let shown = install(&desk, &[], &[]).await.exits(0);
    assert!(shown.err.contains(".cursor/mcp.json") && shown.err.contains("--yes"), "{shown:?}");
    assert!(shown.err.contains("\"mailonce\"") && !shown.err.contains("of-another"), "{shown:?}");
    assert_eq!(json_of(&desk, ".cursor/mcp.json"), before);

    let done = install(&desk, &["--yes"], &[]).await.exits(0);
    let clients: Vec<Value> =
        done.json()["written"].as_array().unwrap().iter().map(|one| one["client"].clone()).collect();
    assert_eq!(clients, ["cursor", "codex"]);
    assert!(!done.err.contains("Nothing answers"), "{done:?}");
    let cursor = json_of(&desk, ".cursor/mcp.json");
    assert_eq!((&cursor["theme"], &cursor["mcpServers"]["other"]), (&json!("dark"), &before["mcpServers"]["other"]));
    let entry = &cursor["mcpServers"]["mailonce"];
    assert_eq!(entry["args"], json!(["mcp", "--data", desk.data()]));
    assert!(entry.get("env").is_none() && !cursor.to_string().contains(&server.api_key));
    let codex = fs::read_to_string(desk.path().join(".codex/config.toml")).unwrap();
    assert!(codex.starts_with("model = \"x\"\n") && codex.contains("[mcp_servers.mailonce]"), "{codex}");

    let again = install(&desk, &["--yes"], &[]).await.exits(0);
    assert!(
        again.json()["written"].as_array().unwrap().is_empty() && again.err.contains("has it already"),
        "{again:?}"
    );
}

/// The server as a client's file has it.
fn entry(desk: &Desk) -> Value {
    json_of(desk, ".cursor/mcp.json")["mcpServers"]["mailonce"].clone()
}

/// One call of the API with somebody's key.
async fn call(server: &Server, key: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let bearer = format!("Bearer {key}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.call(method, path, &headers, &body).await
}

/// A key that decides nothing.
async fn agents_key(server: &Server) -> String {
    let about = json!({ "name": "mine", "scopes": ["send", "read", "reply"] });
    let (_, made) = call(server, &server.api_key, "POST", "/v1/api-keys", &about).await;
    made["api_key"].as_str().unwrap().to_owned()
}

/// How many keys of a name there are.
async fn named(server: &Server, name: &str) -> usize {
    let (_, page) = call(server, &server.api_key, "GET", "/v1/api-keys", &Value::Null).await;
    page["data"].as_array().unwrap().iter().filter(|key| key["name"] == name).count()
}

/// What a client gets that starts the server that is written for it and asks for the tools.
async fn tools_of(desk: &Desk) -> Value {
    let words = entry(desk)["args"].as_array().unwrap().clone();
    let words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
    let mut child = desk.command(&words).current_dir("/").stdin(Stdio::piped()).spawn().unwrap();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    child.stdin.take().unwrap().write_all(format!("{list}\n").as_bytes()).await.unwrap();
    let said = child.wait_with_output().await.unwrap().stdout;
    serde_json::from_slice(&said).unwrap()
}

#[tokio::test]
async fn a_client_can_start_what_is_written_from_anywhere() {
    let desk = Desk::new();
    let words = ["--yes", "--client", "cursor"];
    // Nothing runs, nothing ran, and there is no key: nothing is written, and it is said what to do.
    let refused = install(&desk, &words, &[]).await.exits(64);
    assert!(refused.err.contains("start `mailonce dev`") && refused.err.contains("MAILONCE_API_KEY"), "{refused:?}");
    let nowhere = ["--yes", "--client", "cursor", "--url", "http://127.0.0.1:1"];
    let refused = install(&desk, &nowhere, &[]).await.exits(64);
    assert!(refused.err.contains("MAILONCE_API_KEY"), "{refused:?}");
    // Nobody can say what this key may do.
    let refused = install(&desk, &nowhere, &[("MAILONCE_API_KEY", SECRET)]).await.exits(5);
    assert!(refused.err.contains("unreachable"), "{refused:?}");
    assert!(!desk.path().join(".cursor").exists());

    // The key that a `dev` of this folder has stays in its own file, and so does the one that models get.
    let server = desk.dev(&[]).await;
    install(&desk, &words, &[("MAILONCE_API_KEY", &server.api_key)]).await.exits(0);
    let written = entry(&desk);
    assert_eq!((&written["args"], written.get("env")), (&json!(["mcp", "--data", desk.data()]), None));
    assert_eq!(tools_of(&desk).await["result"]["tools"].as_array().unwrap().len(), 10);
    // One that nobody knows is not written; one that decides nothing is, beside the place.
    let refused = install(&desk, &words, &[("MAILONCE_API_KEY", SECRET)]).await.exits(64);
    assert!(refused.err.contains("unauthorized") && refused.err.contains("next: "), "{refused:?}");
    assert_eq!(entry(&desk), written);
    let agent = agents_key(&server).await;
    install(&desk, &words, &[("MAILONCE_API_KEY", &agent)]).await.exits(0);
    let other = entry(&desk);
    assert_eq!((&other["args"][2], &other["env"]), (&json!(desk.data()), &json!({ "MAILONCE_API_KEY": agent })));

    // A `dev` that rests will come back with the same keys.
    server.terminate().await;
    let done = install(&desk, &words, &[]).await.exits(0);
    assert!(done.err.contains("Nothing answers"), "{done:?}");
    assert_eq!(entry(&desk), written);
}

#[tokio::test]
async fn a_model_never_gets_a_key_that_decides() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let keys = |key: String| {
        let server = &server;
        async move { call(server, &key, "GET", "/v1/api-keys", &Value::Null).await.0 }
    };
    // Of a `dev` it gets the one that is kept for agents, and no other: without that one nothing works.
    install(&desk, &["--yes", "--client", "cursor"], &[]).await.exits(0);
    let kept = fs::read_to_string(desk.data().join("agent.key")).unwrap();
    assert_eq!((keys(kept.clone()).await, mode(&desk, "mailonce-data/agent.key")), (403, 0o600));
    assert_eq!(tools_of(&desk).await["result"]["tools"].as_array().unwrap().len(), 10);
    assert_eq!(named(&server, "agents of dev").await, 1);
    let (_, page) = call(&server, &server.api_key, "GET", "/v1/api-keys", &Value::Null).await;
    let id = page["data"].as_array().unwrap().iter().find(|key| key["name"] == "agents of dev").unwrap()["id"].clone();
    let path = format!("/v1/api-keys/{}", id.as_str().unwrap());
    assert_eq!(call(&server, &server.api_key, "DELETE", &path, &Value::Null).await.0, 200);
    assert!(tools_of(&desk).await.get("error").is_some(), "another key was used");

    // Of any other server one is made for it, once, when it is agreed to.
    let at = ["--client", "cursor", "--url", &server.url];
    let env = [("MAILONCE_API_KEY", server.api_key.as_str())];
    let shown = install(&desk, &at, &env).await.exits(0);
    assert!(shown.err.contains("a key for agents, made now"), "{shown:?}");
    assert_eq!(named(&server, "mcp install").await, 0);
    let yes = [&at[..], &["--yes"]].concat();
    let done = install(&desk, &yes, &env).await.exits(0);
    let made = entry(&desk)["env"]["MAILONCE_API_KEY"].as_str().unwrap().to_owned();
    assert!(made != server.api_key && !done.err.contains(&made), "{done:?}");
    assert_eq!((keys(made.clone()).await, named(&server, "mcp install").await), (403, 1));
    let again = install(&desk, &yes, &env).await.exits(0);
    assert!(again.err.contains("has it already"), "{again:?}");
    // Another client gets the same one.
    install(&desk, &["--client", "gemini", "--url", &server.url, "--yes"], &env).await.exits(0);
    assert_eq!(json_of(&desk, ".gemini/settings.json")["mcpServers"]["mailonce"], entry(&desk));
    assert_eq!(named(&server, "mcp install").await, 1);
}

#[tokio::test]
async fn a_server_of_our_name_is_changed_in_its_place_after_the_difference_was_shown() {
    let desk = Desk::new();
    let _server = desk.dev(&[]).await;
    let old = "{\n    \"zoo\": [1, 2],\n    \"mcpServers\": {\n        \"mailonce\": { \"command\": \"/old/mailonce\", \
               \"env\": { \"TOKEN\": \"of-another\" } },\n        \"ant\": {\"command\":\"ant\"}\n    },\n    \"bee\": true\n}\n";
    has(&desk, ".cursor/mcp.json", old);
    let done = install(&desk, &["--yes", "--client", "cursor"], &[]).await.exits(0);
    assert!(done.err.contains("-   \"command\": \"/old/mailonce\""), "{done:?}");
    assert!(done.err.contains("+   \"command\": ") && !done.err.contains("of-another"), "{done:?}");
    let new = fs::read_to_string(desk.path().join(".cursor/mcp.json")).unwrap();
    assert!(new.starts_with("{\n    \"zoo\": [1, 2],\n    \"mcpServers\": {\n        \"mailonce\": {\n"), "{new}");
    assert!(
        new.ends_with("        },\n        \"ant\": {\"command\":\"ant\"}\n    },\n    \"bee\": true\n}\n"),
        "{new}"
    );
    // Who reads which file is said of each.
    let words = ["--client", "claude-code", "--client", "windsurf"];
    let shown = install(&desk, &words, &[]).await.exits(0);
    assert!(shown.err.contains(".mcp.json, read in this folder alone"), "{shown:?}");
    assert!(shown.err.contains("mcp_config.json, read wherever it is started"), "{shown:?}");
}

#[tokio::test]
async fn a_key_is_shown_to_nobody_and_its_file_is_private() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let secret = agents_key(&server).await;
    has(&desk, ".mcp.json", "{}");
    has(&desk, ".cursor/mcp.json", "{}");
    for path in [".mcp.json", ".cursor/mcp.json"] {
        fs::set_permissions(desk.path().join(path), Permissions::from_mode(0o644)).unwrap();
    }
    let words = ["--yes", "--client", "claude-code", "--client", "vscode", "--url", &server.url];
    let done = install(&desk, &words, &[("MAILONCE_API_KEY", &secret)]).await.exits(0);
    assert!(!done.err.contains(&secret) && !done.out.contains(&secret), "{done:?}");
    assert!(done.err.contains("only you can read it now (its mode was 644)"), "{done:?}");
    assert!(done.err.contains("version control"), "{done:?}");
    let entry = &json_of(&desk, ".mcp.json")["mcpServers"]["mailonce"];
    assert_eq!(entry["env"], json!({ "MAILONCE_URL": server.url, "MAILONCE_API_KEY": secret }));
    assert_eq!(json_of(&desk, ".vscode/mcp.json")["servers"]["mailonce"]["type"], "stdio");
    assert_eq!((mode(&desk, ".mcp.json"), mode(&desk, ".vscode/mcp.json")), (0o600, 0o600));
    // Without a key in it a file stays as open as it was.
    install(&desk, &["--yes", "--client", "cursor"], &[]).await.exits(0);
    assert_eq!(mode(&desk, ".cursor/mcp.json"), 0o644);
}

#[tokio::test]
async fn one_file_that_cannot_be_changed_keeps_no_other_from_it() {
    let desk = Desk::new();
    let _server = desk.dev(&[]).await;
    has(&desk, ".cursor/mcp.json", "{ // mine\n}");
    has(&desk, ".gemini/settings.json", "{}");
    fs::create_dir_all(desk.path().join(".codeium/windsurf/mcp_config.json")).unwrap();
    has(&desk, ".codex/config.toml", "[mcp_servers.mailonce]\ncommand = \"mine\"\n");

    let done = install(&desk, &["--yes"], &[]).await.exits(5);

    let told = done.json();
    let names =
        |list: &str| -> Vec<Value> { told[list].as_array().unwrap().iter().map(|one| one["client"].clone()).collect() };
    assert_eq!(
        (names("written"), names("left")),
        (vec![json!("gemini")], vec![json!("cursor"), json!("windsurf"), json!("codex")])
    );
    assert!(done.err.contains("left as it is"), "{done:?}");
    assert_eq!(fs::read_to_string(desk.path().join(".cursor/mcp.json")).unwrap(), "{ // mine\n}");
    assert!(fs::read_to_string(desk.path().join(".codex/config.toml")).unwrap().contains("mine"));
    assert!(json_of(&desk, ".gemini/settings.json")["mcpServers"]["mailonce"]["command"].is_string());
}
