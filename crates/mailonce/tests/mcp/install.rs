//! `mailonce mcp install`: shows, asks, writes, and keeps what was there.

use serde_json::{Value, json};

use crate::binary::Desk;

fn json_of(desk: &Desk, path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(desk.path().join(path)).unwrap()).unwrap()
}

#[tokio::test]
async fn what_is_written_is_shown_first_and_keeps_what_was_there() {
    let desk = Desk::new();
    let home = desk.path().to_str().unwrap().to_owned();
    let env = [("HOME", home.as_str())];
    std::fs::create_dir_all(desk.path().join(".cursor")).unwrap();
    std::fs::create_dir_all(desk.path().join(".codex")).unwrap();
    let before = json!({ "mcpServers": { "other": { "command": "other" } }, "theme": "dark" });
    std::fs::write(desk.path().join(".cursor/mcp.json"), before.to_string()).unwrap();
    std::fs::write(desk.path().join(".codex/config.toml"), "model = \"x\"\n").unwrap();

    let shown = desk.run_with(&["mcp", "install"], &env).await.exits(0);
    assert!(shown.err.contains(".cursor/mcp.json") && shown.err.contains("--yes"), "{shown:?}");
    assert_eq!(json_of(&desk, ".cursor/mcp.json"), before);

    let done = desk.run_with(&["mcp", "install", "--yes"], &env).await.exits(0);
    assert!(done.out.contains("cursor") && done.out.contains("codex"), "{done:?}");
    let cursor = json_of(&desk, ".cursor/mcp.json");
    assert_eq!((&cursor["theme"], &cursor["mcpServers"]["other"]["command"]), (&json!("dark"), &json!("other")));
    let server = &cursor["mcpServers"]["mailonce"];
    assert_eq!(server["args"][0], "mcp");
    assert!(server["args"][2].as_str().unwrap().ends_with("mailonce-data"));
    assert!(server.get("env").is_none());
    let codex = std::fs::read_to_string(desk.path().join(".codex/config.toml")).unwrap();
    assert!(codex.starts_with("model = \"x\"\n") && codex.contains("[mcp_servers.mailonce]"), "{codex}");

    let secret = "a-key-of-some-length";
    let words = ["mcp", "install", "--yes", "--client", "claude-code", "--client", "vscode", "--url", "https://m.test"];
    let env = [("HOME", home.as_str()), ("MAILONCE_API_KEY", secret)];
    let done = desk.run_with(&words, &env).await.exits(0);
    assert!(!done.err.contains(secret) && !done.out.contains(secret), "{done:?}");
    let server = &json_of(&desk, ".mcp.json")["mcpServers"]["mailonce"];
    assert_eq!(
        (&server["env"]["MAILONCE_URL"], &server["env"]["MAILONCE_API_KEY"]),
        (&json!("https://m.test"), &json!(secret))
    );
    assert_eq!(json_of(&desk, ".vscode/mcp.json")["servers"]["mailonce"]["type"], "stdio");
    // A file that is no plain JSON is left alone.
    std::fs::write(desk.path().join(".cursor/mcp.json"), "{ // mine\n}").unwrap();
    desk.run_with(&["mcp", "install", "--yes", "--client", "cursor"], &env).await.exits(5);
    assert_eq!(std::fs::read_to_string(desk.path().join(".cursor/mcp.json")).unwrap(), "{ // mine\n}");
}
