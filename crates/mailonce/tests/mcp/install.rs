//! `mailonce mcp install`: shows the change, asks, writes it, and keeps existing settings.

use serde_json::{Value, json};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
};
use tokio::io::AsyncWriteExt as _;

use crate::binary::{CliFixture, CommandOutput, SpawnedServer};

const UNKNOWN_API_KEY: &str = "a-key-of-some-length";

fn read_json(cli: &CliFixture, path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(cli.path().join(path)).unwrap()).unwrap()
}

fn file_mode(cli: &CliFixture, path: &str) -> u32 {
    fs::metadata(cli.path().join(path)).unwrap().permissions().mode() & 0o777
}

/// Creates a client's folder with a file in it.
fn write_client_file(cli: &CliFixture, path: &str, text: &str) {
    let path = cli.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Runs `mcp install` with the test's folder as the home directory.
async fn run_install(cli: &CliFixture, args: &[&str], env: &[(&str, &str)]) -> CommandOutput {
    let home = cli.path().to_str().unwrap();
    let args: Vec<&str> = ["mcp", "install"].iter().chain(args).copied().collect();
    let env: Vec<(&str, &str)> = [("HOME", home)].iter().chain(env).copied().collect();
    cli.run_with_env(&args, &env).await
}

#[tokio::test]
async fn install_shows_the_change_first_and_keeps_existing_settings() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let before =
        json!({ "mcpServers": { "other": { "command": "other", "env": { "TOKEN": "of-another" } } }, "theme": "dark" });
    write_client_file(&cli, ".cursor/mcp.json", &before.to_string());
    write_client_file(&cli, ".codex/config.toml", "model = \"x\"\n");

    let shown = run_install(&cli, &[], &[]).await.expect_exit(0);
    assert!(shown.stderr.contains(".cursor/mcp.json") && shown.stderr.contains("--yes"), "{shown:?}");
    assert!(shown.stderr.contains("\"mailonce\"") && !shown.stderr.contains("of-another"), "{shown:?}");
    assert_eq!(read_json(&cli, ".cursor/mcp.json"), before);

    let done = run_install(&cli, &["--yes"], &[]).await.expect_exit(0);
    let clients: Vec<Value> =
        done.json()["written"].as_array().unwrap().iter().map(|one| one["client"].clone()).collect();
    assert_eq!(clients, ["cursor", "codex"]);
    assert!(!done.stderr.contains("Nothing answers"), "{done:?}");
    let cursor = read_json(&cli, ".cursor/mcp.json");
    assert_eq!((&cursor["theme"], &cursor["mcpServers"]["other"]), (&json!("dark"), &before["mcpServers"]["other"]));
    let entry = &cursor["mcpServers"]["mailonce"];
    assert_eq!(entry["args"], json!(["mcp", "--data", cli.data_dir()]));
    assert!(entry.get("env").is_none() && !cursor.to_string().contains(&server.api_key));
    let codex = fs::read_to_string(cli.path().join(".codex/config.toml")).unwrap();
    assert!(codex.starts_with("model = \"x\"\n") && codex.contains("[mcp_servers.mailonce]"), "{codex}");

    let again = run_install(&cli, &["--yes"], &[]).await.expect_exit(0);
    assert!(
        again.json()["written"].as_array().unwrap().is_empty() && again.stderr.contains("has it already"),
        "{again:?}"
    );
}

/// The server entry in a client's configuration file.
fn installed_entry(cli: &CliFixture) -> Value {
    read_json(cli, ".cursor/mcp.json")["mcpServers"]["mailonce"].clone()
}

/// Calls the API with this key.
async fn api_call(server: &SpawnedServer, key: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let bearer = format!("Bearer {key}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.call(method, path, &headers, &body).await
}

/// Creates a key without the `admin` scope.
async fn create_agent_key(server: &SpawnedServer) -> String {
    let key_body = json!({ "name": "mine", "scopes": ["send", "read", "reply"] });
    let (_, created) = api_call(server, &server.api_key, "POST", "/v1/api-keys", &key_body).await;
    created["api_key"].as_str().unwrap().to_owned()
}

/// How many API keys have this name.
async fn count_keys_named(server: &SpawnedServer, name: &str) -> usize {
    let (_, page) = api_call(server, &server.api_key, "GET", "/v1/api-keys", &Value::Null).await;
    page["data"].as_array().unwrap().iter().filter(|key| key["name"] == name).count()
}

/// Starts the server as the installed entry says, and returns its tool list.
async fn list_tools_via_entry(cli: &CliFixture) -> Value {
    let args = installed_entry(cli)["args"].as_array().unwrap().clone();
    let args: Vec<&str> = args.iter().map(|arg| arg.as_str().unwrap()).collect();
    let mut child = cli.command(&args).current_dir("/").stdin(Stdio::piped()).spawn().unwrap();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    child.stdin.take().unwrap().write_all(format!("{list}\n").as_bytes()).await.unwrap();
    let stdout = child.wait_with_output().await.unwrap().stdout;
    serde_json::from_slice(&stdout).unwrap()
}

#[tokio::test]
async fn the_installed_server_starts_from_any_directory() {
    let cli = CliFixture::new();
    let args = ["--yes", "--client", "cursor"];
    // Without a server, old data or an API key, nothing is written and the error says what to do.
    let refused = run_install(&cli, &args, &[]).await.expect_exit(64);
    assert!(
        refused.stderr.contains("start `mailonce dev`") && refused.stderr.contains("MAILONCE_API_KEY"),
        "{refused:?}"
    );
    let nowhere = ["--yes", "--client", "cursor", "--url", "http://127.0.0.1:1"];
    let refused = run_install(&cli, &nowhere, &[]).await.expect_exit(64);
    assert!(refused.stderr.contains("MAILONCE_API_KEY"), "{refused:?}");
    // The server is unreachable, so the scopes of this key cannot be checked.
    let refused = run_install(&cli, &nowhere, &[("MAILONCE_API_KEY", UNKNOWN_API_KEY)]).await.expect_exit(5);
    assert!(refused.stderr.contains("unreachable"), "{refused:?}");
    assert!(!cli.path().join(".cursor").exists());

    // The operator key and the agent key of a `dev` in this folder stay in their own files.
    let server = cli.start_dev(&[]).await;
    run_install(&cli, &args, &[("MAILONCE_API_KEY", &server.api_key)]).await.expect_exit(0);
    let written = installed_entry(&cli);
    assert_eq!((&written["args"], written.get("env")), (&json!(["mcp", "--data", cli.data_dir()]), None));
    assert_eq!(list_tools_via_entry(&cli).await["result"]["tools"].as_array().unwrap().len(), 10);
    // An unknown key is refused. An agent key is written together with the data directory.
    let refused = run_install(&cli, &args, &[("MAILONCE_API_KEY", UNKNOWN_API_KEY)]).await.expect_exit(64);
    assert!(refused.stderr.contains("unauthorized") && refused.stderr.contains("next: "), "{refused:?}");
    assert_eq!(installed_entry(&cli), written);
    let agent = create_agent_key(&server).await;
    run_install(&cli, &args, &[("MAILONCE_API_KEY", &agent)]).await.expect_exit(0);
    let other = installed_entry(&cli);
    assert_eq!((&other["args"][2], &other["env"]), (&json!(cli.data_dir()), &json!({ "MAILONCE_API_KEY": agent })));

    // A stopped `dev` will restart with the same keys.
    server.terminate().await;
    let done = run_install(&cli, &args, &[]).await.expect_exit(0);
    assert!(done.stderr.contains("Nothing answers"), "{done:?}");
    assert_eq!(installed_entry(&cli), written);
}

#[tokio::test]
async fn a_model_never_gets_an_admin_key() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let list_keys_status = |key: String| {
        let server = &server;
        async move { api_call(server, &key, "GET", "/v1/api-keys", &Value::Null).await.0 }
    };
    // With `dev`, the model gets only the agent key. Once that key is revoked, nothing works.
    run_install(&cli, &["--yes", "--client", "cursor"], &[]).await.expect_exit(0);
    let agent_key = fs::read_to_string(cli.data_dir().join("agent.key")).unwrap();
    assert_eq!((list_keys_status(agent_key.clone()).await, file_mode(&cli, "mailonce-data/agent.key")), (403, 0o600));
    assert_eq!(list_tools_via_entry(&cli).await["result"]["tools"].as_array().unwrap().len(), 10);
    assert_eq!(count_keys_named(&server, "agents of dev").await, 1);
    let (_, page) = api_call(&server, &server.api_key, "GET", "/v1/api-keys", &Value::Null).await;
    let id = page["data"].as_array().unwrap().iter().find(|key| key["name"] == "agents of dev").unwrap()["id"].clone();
    let path = format!("/v1/api-keys/{}", id.as_str().unwrap());
    assert_eq!(api_call(&server, &server.api_key, "DELETE", &path, &Value::Null).await.0, 200);
    assert!(list_tools_via_entry(&cli).await.get("error").is_some(), "another key was used");

    // With any other server, an agent key is created once, after confirmation.
    let client_args = ["--client", "cursor", "--url", &server.url];
    let env = [("MAILONCE_API_KEY", server.api_key.as_str())];
    let shown = run_install(&cli, &client_args, &env).await.expect_exit(0);
    assert!(shown.stderr.contains("a key for agents, made now"), "{shown:?}");
    assert_eq!(count_keys_named(&server, "mcp install").await, 0);
    let confirmed_args = [&client_args[..], &["--yes"]].concat();
    let done = run_install(&cli, &confirmed_args, &env).await.expect_exit(0);
    let created = installed_entry(&cli)["env"]["MAILONCE_API_KEY"].as_str().unwrap().to_owned();
    assert!(created != server.api_key && !done.stderr.contains(&created), "{done:?}");
    assert_eq!((list_keys_status(created.clone()).await, count_keys_named(&server, "mcp install").await), (403, 1));
    let again = run_install(&cli, &confirmed_args, &env).await.expect_exit(0);
    assert!(again.stderr.contains("has it already"), "{again:?}");
    // Another client gets the same key.
    run_install(&cli, &["--client", "gemini", "--url", &server.url, "--yes"], &env).await.expect_exit(0);
    assert_eq!(read_json(&cli, ".gemini/settings.json")["mcpServers"]["mailonce"], installed_entry(&cli));
    assert_eq!(count_keys_named(&server, "mcp install").await, 1);
}

#[tokio::test]
async fn an_existing_mailonce_entry_is_updated_in_place_after_showing_the_diff() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let old = "{\n    \"zoo\": [1, 2],\n    \"mcpServers\": {\n        \"mailonce\": { \"command\": \"/old/mailonce\", \
               \"env\": { \"TOKEN\": \"of-another\" } },\n        \"ant\": {\"command\":\"ant\"}\n    },\n    \"bee\": true\n}\n";
    write_client_file(&cli, ".cursor/mcp.json", old);
    let done = run_install(&cli, &["--yes", "--client", "cursor"], &[]).await.expect_exit(0);
    let removed = done.stderr.lines().find(|line| line.contains("/old/mailonce"));
    assert!(removed.is_some_and(|line| line.trim_start().starts_with('-')), "{done:?}");
    assert!(done.stderr.contains("\"command\": ") && !done.stderr.contains("of-another"), "{done:?}");
    let new = fs::read_to_string(cli.path().join(".cursor/mcp.json")).unwrap();
    assert!(new.starts_with("{\n    \"zoo\": [1, 2],\n    \"mcpServers\": {\n        \"mailonce\": {\n"), "{new}");
    assert!(
        new.ends_with("        },\n        \"ant\": {\"command\":\"ant\"}\n    },\n    \"bee\": true\n}\n"),
        "{new}"
    );
    // The output says where each file applies.
    let args = ["--client", "claude-code", "--client", "windsurf"];
    let shown = run_install(&cli, &args, &[]).await.expect_exit(0);
    assert!(shown.stderr.contains(".mcp.json (read in this folder alone)"), "{shown:?}");
    assert!(shown.stderr.contains("mcp_config.json (read wherever it is started)"), "{shown:?}");
}

#[tokio::test]
async fn a_key_is_never_printed_and_its_file_is_private() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let secret = create_agent_key(&server).await;
    write_client_file(&cli, ".mcp.json", "{}");
    write_client_file(&cli, ".cursor/mcp.json", "{}");
    for path in [".mcp.json", ".cursor/mcp.json"] {
        fs::set_permissions(cli.path().join(path), Permissions::from_mode(0o644)).unwrap();
    }
    let args = ["--yes", "--client", "claude-code", "--client", "vscode", "--url", &server.url];
    let done = run_install(&cli, &args, &[("MAILONCE_API_KEY", &secret)]).await.expect_exit(0);
    assert!(!done.stderr.contains(&secret) && !done.stdout.contains(&secret), "{done:?}");
    assert!(done.stderr.contains("only you can read it now (its mode was 644)"), "{done:?}");
    assert!(done.stderr.contains("version control"), "{done:?}");
    let entry = &read_json(&cli, ".mcp.json")["mcpServers"]["mailonce"];
    assert_eq!(entry["env"], json!({ "MAILONCE_URL": server.url, "MAILONCE_API_KEY": secret }));
    assert_eq!(read_json(&cli, ".vscode/mcp.json")["servers"]["mailonce"]["type"], "stdio");
    assert_eq!((file_mode(&cli, ".mcp.json"), file_mode(&cli, ".vscode/mcp.json")), (0o600, 0o600));
    // A file without a key keeps its mode.
    run_install(&cli, &["--yes", "--client", "cursor"], &[]).await.expect_exit(0);
    assert_eq!(file_mode(&cli, ".cursor/mcp.json"), 0o644);
}

#[tokio::test]
async fn one_unwritable_file_does_not_stop_the_others() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    write_client_file(&cli, ".cursor/mcp.json", "{ // mine\n}");
    write_client_file(&cli, ".gemini/settings.json", "{}");
    fs::create_dir_all(cli.path().join(".codeium/windsurf/mcp_config.json")).unwrap();
    write_client_file(&cli, ".codex/config.toml", "[mcp_servers.mailonce]\ncommand = \"mine\"\n");

    let done = run_install(&cli, &["--yes"], &[]).await.expect_exit(5);

    let report = done.json();
    let names = |list: &str| -> Vec<Value> {
        report[list].as_array().unwrap().iter().map(|one| one["client"].clone()).collect()
    };
    assert_eq!(
        (names("written"), names("skipped")),
        (vec![json!("gemini")], vec![json!("cursor"), json!("windsurf"), json!("codex")])
    );
    assert!(done.stderr.contains("left as it is"), "{done:?}");
    assert_eq!(fs::read_to_string(cli.path().join(".cursor/mcp.json")).unwrap(), "{ // mine\n}");
    assert!(fs::read_to_string(cli.path().join(".codex/config.toml")).unwrap().contains("mine"));
    assert!(read_json(&cli, ".gemini/settings.json")["mcpServers"]["mailonce"]["command"].is_string());
}
