//! `mailonce mcp install`: shows, asks, writes, and keeps what was there.

use serde_json::{Value, json};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
};

use crate::binary::{Desk, Ran};

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

#[tokio::test]
async fn a_client_can_start_what_is_written_from_anywhere() {
    let desk = Desk::new();
    let words = ["--yes", "--client", "cursor"];
    // Nothing runs, nothing ran, and there is no key: nothing is written, and it is said what to do.
    let refused = install(&desk, &words, &[]).await.exits(64);
    assert!(refused.err.contains("start `mailonce dev`") && refused.err.contains("MAILONCE_API_KEY"), "{refused:?}");
    let refused = install(&desk, &["--yes", "--client", "cursor", "--url", "http://127.0.0.1:1"], &[]).await.exits(64);
    assert!(refused.err.contains("MAILONCE_API_KEY"), "{refused:?}");
    assert!(!desk.path().join(".cursor").exists());

    // A key in the environment and no server of this folder: where a server usually is.
    let done = install(&desk, &words, &[("MAILONCE_API_KEY", SECRET)]).await.exits(0);
    assert!(done.err.contains("Nothing answers") || done.err.contains("does not know this key"), "{done:?}");
    let entry = json_of(&desk, ".cursor/mcp.json")["mcpServers"]["mailonce"].clone();
    assert_eq!(entry["env"], json!({ "MAILONCE_URL": "http://127.0.0.1:6245", "MAILONCE_API_KEY": SECRET }));
    assert_eq!(entry["args"], json!(["mcp"]));

    // The key that a `dev` of this folder has stays in its own file; another one is written beside its place.
    let server = desk.dev(&[]).await;
    install(&desk, &words, &[("MAILONCE_API_KEY", &server.api_key)]).await.exits(0);
    let entry = json_of(&desk, ".cursor/mcp.json")["mcpServers"]["mailonce"].clone();
    assert_eq!((&entry["args"], entry.get("env")), (&json!(["mcp", "--data", desk.data()]), None));
    let done = install(&desk, &words, &[("MAILONCE_API_KEY", SECRET)]).await.exits(0);
    assert!(done.err.contains("does not know this key"), "{done:?}");
    let entry = json_of(&desk, ".cursor/mcp.json")["mcpServers"]["mailonce"].clone();
    assert_eq!((&entry["args"][2], &entry["env"]), (&json!(desk.data()), &json!({ "MAILONCE_API_KEY": SECRET })));

    // A `dev` that rests will come back with the same key.
    server.terminate().await;
    let done = install(&desk, &words, &[]).await.exits(0);
    assert!(done.err.contains("Nothing answers"), "{done:?}");
    assert!(json_of(&desk, ".cursor/mcp.json")["mcpServers"]["mailonce"].get("env").is_none());
}

#[tokio::test]
async fn a_key_is_shown_to_nobody_and_its_file_is_private() {
    let desk = Desk::new();
    has(&desk, ".mcp.json", "{}");
    has(&desk, ".cursor/mcp.json", "{}");
    for path in [".mcp.json", ".cursor/mcp.json"] {
        fs::set_permissions(desk.path().join(path), Permissions::from_mode(0o644)).unwrap();
    }
    let words = ["--yes", "--client", "claude-code", "--client", "vscode", "--url", "http://127.0.0.1:1"];
    let done = install(&desk, &words, &[("MAILONCE_API_KEY", SECRET)]).await.exits(0);
    assert!(!done.err.contains(SECRET) && !done.out.contains(SECRET), "{done:?}");
    assert!(done.err.contains("only you can read it now (its mode was 644)"), "{done:?}");
    assert!(done.err.contains("version control"), "{done:?}");
    let entry = &json_of(&desk, ".mcp.json")["mcpServers"]["mailonce"];
    assert_eq!(entry["env"], json!({ "MAILONCE_URL": "http://127.0.0.1:1", "MAILONCE_API_KEY": SECRET }));
    assert_eq!(json_of(&desk, ".vscode/mcp.json")["servers"]["mailonce"]["type"], "stdio");
    assert_eq!((mode(&desk, ".mcp.json"), mode(&desk, ".vscode/mcp.json")), (0o600, 0o600));
    // Without a key in it a file stays as open as it was.
    let _server = desk.dev(&[]).await;
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
