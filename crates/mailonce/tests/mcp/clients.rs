//! The official npm and PyPI clients, unmodified: both transports, both protocol revisions, every tool. Also the
//! protocol's own conformance suite.

use serde_json::{Value, json};
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{fixtures::McpFixture, packages};

const NODE_TAGS: [&str; 5] = ["v1-http", "v1-stdio", "v2-http", "v2-stdio", "v2-old-http"];
const PYTHON_TAGS: [&str; 4] = ["py-http", "py-stdio", "py-old-http", "py-old-stdio"];

/// Receives the mail for one run: a question and a code.
async fn receive_mail_for_run(fixture: &McpFixture, tag: &str) {
    fixture.receive_text(&format!("bob-{tag}@people.test"), "Question", "When do you open?").await;
    let code = "Your verification code is 402625. It expires in 10 minutes.";
    fixture.receive_text(&format!("no-reply-{tag}@shop.test"), "Your code", code).await;
}

/// Runs a program with JSON on its stdin and returns the lines of its stdout.
pub(crate) async fn run_with_json(mut command: Command, input: Value) -> Vec<String> {
    let output = tokio::task::spawn_blocking(move || {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    });
    let output = output.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

async fn run_client(fixture: &McpFixture, tags: &[&str], command: Command) {
    for tag in tags {
        receive_mail_for_run(fixture, tag).await;
    }
    let input = json!({
        "url": format!("{}/mcp", fixture.server.url), "key": fixture.server.api_key,
        "binary": env!("CARGO_BIN_EXE_mailonce"), "data": fixture.cli.data_dir(), "tags": tags,
    });
    let lines = run_with_json(command, input).await;
    let done: Vec<&str> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(done, tags);
    for tag in tags {
        // The mail and its deliberate resend, and one reply.
        assert_eq!(fixture.wait_for_mail_count(&format!("ann-{tag}@people.test"), 2).await, 2, "{tag}");
        assert_eq!(fixture.wait_for_mail_count(&format!("bob-{tag}@people.test"), 1).await, 1, "{tag}");
    }
}

pub(crate) fn node_command(program: &Path, code: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--input-type=module", "-e", code]).current_dir(home);
    command
}

/// Runs code in a Python with the official PyPI client.
pub(crate) fn python_command(code: &str) -> Command {
    let mut command = Command::new(packages::install_python("mcp-pypi", &["mcp==2.3.0"]));
    command.args(["-c", code]);
    command
}

/// Installs the official npm clients and returns their folder.
pub(crate) fn install_npm_clients() -> PathBuf {
    let packages = ["@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0", "gpt-tokenizer@4.0.0"];
    packages::install_npm("mcp-npm", &packages)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_npm_clients_call_every_tool() {
    let home = install_npm_clients();
    let fixture = McpFixture::start().await;
    run_client(&fixture, &NODE_TAGS, node_command(Path::new("node"), include_str!("clients/client.mjs"), &home)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_pypi_client_calls_every_tool() {
    let fixture = McpFixture::start().await;
    run_client(&fixture, &PYTHON_TAGS, python_command(include_str!("clients/client.py"))).await;
}

/// Runs clients that send mails which need approval. Only mails released with a person's own API key may be sent.
async fn check_approval_page_flow(command: Command, count: usize) {
    let fixture = McpFixture::start().await;
    fixture.require_approval().await;
    let input = json!({
        "url": format!("{}/mcp", fixture.server.url), "key": fixture.create_agent_key().await, "person": fixture.server.api_key,
        "binary": env!("CARGO_BIN_EXE_mailonce"),
    });
    let tags = run_with_json(command, input).await;
    assert_eq!(tags.len(), count, "{tags:?}");
    for tag in tags {
        let expected = usize::from(tag == "http-decided");
        assert_eq!(fixture.wait_for_mail_count(&format!("ann-{tag}@people.test"), expected).await, expected, "{tag}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn npm_clients_open_the_approval_page_and_cannot_decide() {
    check_approval_page_flow(
        node_command(Path::new("node"), include_str!("clients/elicit.mjs"), &install_npm_clients()),
        9,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pypi_client_opens_the_approval_page_and_cannot_decide() {
    check_approval_page_flow(python_command(include_str!("clients/elicit.py")), 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conformance_suite_passes() {
    // The suite needs a newer Node than some machines have.
    let home =
        packages::install_npm("mcp-conformance", &["@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22.23.3"]);
    let fixture = McpFixture::start().await;
    let port: u16 = fixture.server.url.rsplit(':').next().unwrap().parse().unwrap();
    let program = home.join("node_modules/node/bin/node");
    let command = node_command(&program, include_str!("clients/conformance.mjs"), &home);
    let lines = run_with_json(command, json!({ "port": port, "key": fixture.server.api_key })).await;
    assert_eq!(lines.len(), 12, "{lines:?}");
}

/// Runs the inspector's command line and returns its output as JSON.
async fn run_inspector(home: &Path, fixture: &McpFixture, args: &[&str]) -> Value {
    let inspector = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut command = Command::new(home.join("node_modules/node/bin/node"));
    // The inspector writes its state to the home directory.
    command.args([inspector, "--cli"]).args(args).current_dir(home).env("HOME", fixture.cli.path());
    let lines = run_with_json(command, Value::Null).await;
    serde_json::from_str(&lines.join("\n")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_inspector_lists_and_calls_over_both_transports() {
    let home = packages::install_npm("mcp-inspector", &["@modelcontextprotocol/inspector@2.12.0", "node@22.23.3"]);
    let fixture = McpFixture::start().await;
    let (url, header) =
        (format!("{}/mcp", fixture.server.url), format!("Authorization: Bearer {}", fixture.server.api_key));
    let data = fixture.cli.data_dir();
    let http = [url.as_str(), "--transport", "http", "--header", &header];
    let stdio = [env!("CARGO_BIN_EXE_mailonce"), "mcp", "--data", data.to_str().unwrap()];
    for (transport_args, entity) in [(http.as_slice(), "entity=over_http"), (stdio.as_slice(), "entity=over_pipes")] {
        let listed =
            run_inspector(&home, &fixture, &[transport_args, &["--strict", "--method", "tools/list"]].concat()).await;
        assert_eq!(listed["tools"].as_array().unwrap().len(), 10, "{listed}");
        let call = ["--method", "tools/call", "--tool-name", "send_email", "--tool-arg"];
        let mail = ["to=ann@people.test", "subject=Hi", "type=greeting", "period=once", entity, "text=Hello"];
        let first = run_inspector(&home, &fixture, &[transport_args, &call, &mail].concat()).await;
        let again = run_inspector(&home, &fixture, &[transport_args, &call, &mail].concat()).await;
        assert_eq!(first["structuredContent"]["dedupe"]["outcome"], "first", "{first}");
        assert_eq!(again["structuredContent"]["email"], first["structuredContent"]["email"], "{again}");
    }
    assert_eq!(fixture.wait_for_mail_count("ann@people.test", 2).await, 2);
}
