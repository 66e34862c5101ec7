//! The official clients of npm and PyPI, unmodified: both transports, both revisions, every tool. And the protocol's
//! own conformance suite.

use serde_json::{Value, json};
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{packages, town::McpFixture};

const NODE_TAGS: [&str; 5] = ["v1-http", "v1-stdio", "v2-http", "v2-stdio", "v2-old-http"];
const PYTHON_TAGS: [&str; 4] = ["py-http", "py-stdio", "py-old-http", "py-old-stdio"];

/// Mail for one run: a question, and a code.
async fn receive_mail_for_run(town: &McpFixture, tag: &str) {
    town.receive_text(&format!("bob-{tag}@people.test"), "Question", "When do you open?").await;
    let code = "Your verification code is 402625. It expires in 10 minutes.";
    town.receive_text(&format!("no-reply-{tag}@shop.test"), "Your code", code).await;
}

/// Runs a program with JSON on its stdin. The lines it said.
async fn run_with_json(mut command: Command, told: Value) -> Vec<String> {
    let output = tokio::task::spawn_blocking(move || {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        child.stdin.take().unwrap().write_all(told.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    });
    let output = output.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

async fn run_client(town: &McpFixture, tags: &[&str], command: Command) {
    for tag in tags {
        receive_mail_for_run(town, tag).await;
    }
    let told = json!({
        "url": format!("{}/mcp", town.server.url), "key": town.server.api_key,
        "binary": env!("CARGO_BIN_EXE_mailonce"), "data": town.cli.data_dir(), "tags": tags,
    });
    let lines = run_with_json(command, told).await;
    let done: Vec<&str> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(done, tags);
    for tag in tags {
        // One mail, and the one that was asked for again on purpose; one answer.
        assert_eq!(town.wait_for_mail_count(&format!("ann-{tag}@people.test"), 2).await, 2, "{tag}");
        assert_eq!(town.wait_for_mail_count(&format!("bob-{tag}@people.test"), 1).await, 1, "{tag}");
    }
}

fn node_command(program: &Path, code: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--input-type=module", "-e", code]).current_dir(home);
    command
}

/// Code for a Python with the official client of PyPI.
fn python_command(code: &str) -> Command {
    let mut command = Command::new(packages::install_python("mcp-pypi", &["mcp==2.3.0"]));
    command.args(["-c", code]);
    command
}

/// The folder with the official clients of npm.
fn install_npm_clients() -> PathBuf {
    let packages = ["@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0", "gpt-tokenizer@4.0.0"];
    packages::install_npm("mcp-npm", &packages)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_clients_of_npm_call_every_tool() {
    let home = install_npm_clients();
    let town = McpFixture::start().await;
    run_client(&town, &NODE_TAGS, node_command(Path::new("node"), include_str!("clients/client.mjs"), &home)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_client_of_pypi_calls_every_tool() {
    let town = McpFixture::start().await;
    run_client(&town, &PYTHON_TAGS, python_command(include_str!("clients/client.py"))).await;
}

/// Lets clients ask for mails that a person must approve. Only what a person decided by a key of their own may leave.
async fn check_approval_page_flow(command: Command, count: usize) {
    let town = McpFixture::start().await;
    town.require_approval().await;
    let told = json!({
        "url": format!("{}/mcp", town.server.url), "key": town.create_agent_key().await, "person": town.server.api_key,
        "binary": env!("CARGO_BIN_EXE_mailonce"),
    });
    let tags = run_with_json(command, told).await;
    assert_eq!(tags.len(), count, "{tags:?}");
    for tag in tags {
        let expected = usize::from(tag == "http-decided");
        assert_eq!(town.wait_for_mail_count(&format!("ann-{tag}@people.test"), expected).await, expected, "{tag}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_npm_lead_a_person_to_the_page_and_decide_nothing() {
    check_approval_page_flow(
        node_command(Path::new("node"), include_str!("clients/elicit.mjs"), &install_npm_clients()),
        9,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_of_pypi_leads_a_person_to_the_page_and_decides_nothing() {
    check_approval_page_flow(python_command(include_str!("clients/elicit.py")), 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conformance_suite_finds_nothing_wrong() {
    // The suite wants a newer Node than some machines have.
    let home =
        packages::install_npm("mcp-conformance", &["@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22.23.3"]);
    let town = McpFixture::start().await;
    let port: u16 = town.server.url.rsplit(':').next().unwrap().parse().unwrap();
    let program = home.join("node_modules/node/bin/node");
    let command = node_command(&program, include_str!("clients/conformance.mjs"), &home);
    let lines = run_with_json(command, json!({ "port": port, "key": town.server.api_key })).await;
    assert_eq!(lines.len(), 12, "{lines:?}");
}

/// What the inspector's command line says, as JSON.
async fn run_inspector(home: &Path, town: &McpFixture, words: &[&str]) -> Value {
    let inspector = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut command = Command::new(home.join("node_modules/node/bin/node"));
    // It keeps what it saw in the home of whoever runs it.
    command.args([inspector, "--cli"]).args(words).current_dir(home).env("HOME", town.cli.path());
    let lines = run_with_json(command, Value::Null).await;
    serde_json::from_str(&lines.join("\n")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_inspector_lists_and_calls_over_both_transports() {
    let home = packages::install_npm("mcp-inspector", &["@modelcontextprotocol/inspector@2.12.0", "node@22.23.3"]);
    let town = McpFixture::start().await;
    let (url, header) = (format!("{}/mcp", town.server.url), format!("Authorization: Bearer {}", town.server.api_key));
    let data = town.cli.data_dir();
    let http = [url.as_str(), "--transport", "http", "--header", &header];
    let pipes = [env!("CARGO_BIN_EXE_mailonce"), "mcp", "--data", data.to_str().unwrap()];
    for (way, entity) in [(http.as_slice(), "entity=over_http"), (pipes.as_slice(), "entity=over_pipes")] {
        let listed = run_inspector(&home, &town, &[way, &["--strict", "--method", "tools/list"]].concat()).await;
        assert_eq!(listed["tools"].as_array().unwrap().len(), 10, "{listed}");
        let call = ["--method", "tools/call", "--tool-name", "send_email", "--tool-arg"];
        let mail = ["to=ann@people.test", "subject=Hi", "type=greeting", "period=once", entity, "text=Hello"];
        let first = run_inspector(&home, &town, &[way, &call, &mail].concat()).await;
        let again = run_inspector(&home, &town, &[way, &call, &mail].concat()).await;
        assert_eq!(first["structuredContent"]["dedupe"]["outcome"], "first", "{first}");
        assert_eq!(again["structuredContent"]["email"], first["structuredContent"]["email"], "{again}");
    }
    assert_eq!(town.wait_for_mail_count("ann@people.test", 2).await, 2);
}
