//! The official clients of npm and PyPI, unmodified: both transports, both revisions, every tool. And the protocol's
//! own conformance suite.

use serde_json::{Value, json};
use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::{packages, town::Town};

const NODE: [&str; 5] = ["v1-http", "v1-stdio", "v2-http", "v2-stdio", "v2-old-http"];
const PYTHON: [&str; 4] = ["py-http", "py-stdio", "py-old-http", "py-old-stdio"];

/// Mail for one run: a question, and a code.
async fn mail_for(town: &Town, tag: &str) {
    town.writes(&format!("bob-{tag}@people.test"), "Question", "When do you open?").await;
    let code = "Your verification code is 402625. It expires in 10 minutes.";
    town.writes(&format!("no-reply-{tag}@shop.test"), "Your code", code).await;
}

/// Runs a program with JSON on its stdin. The lines it said.
async fn run(mut command: Command, told: Value) -> Vec<String> {
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

async fn exercise(town: &Town, tags: &[&str], command: Command) {
    for tag in tags {
        mail_for(town, tag).await;
    }
    let told = json!({
        "url": format!("{}/mcp", town.server.url), "key": town.server.api_key,
        "binary": env!("CARGO_BIN_EXE_mailonce"), "data": town.desk.data(), "tags": tags,
    });
    let lines = run(command, told).await;
    let done: Vec<&str> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(done, tags);
    for tag in tags {
        // One mail, and the one that was asked for again on purpose; one answer.
        assert_eq!(town.settled(&format!("ann-{tag}@people.test"), 2).await, 2, "{tag}");
        assert_eq!(town.settled(&format!("bob-{tag}@people.test"), 1).await, 1, "{tag}");
    }
}

fn node(program: &Path, code: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--input-type=module", "-e", code]).current_dir(home);
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_clients_of_npm_call_every_tool() {
    let packages = ["@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0", "gpt-tokenizer@4.0.0"];
    let home = packages::npm("mcp-npm", &packages);
    let town = Town::open().await;
    exercise(&town, &NODE, node(Path::new("node"), include_str!("clients/client.mjs"), &home)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_client_of_pypi_calls_every_tool() {
    let python = packages::python("mcp-pypi", &["mcp==2.3.0"]);
    let town = Town::open().await;
    let mut command = Command::new(python);
    command.args(["-c", include_str!("clients/client.py")]);
    exercise(&town, &PYTHON, command).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conformance_suite_finds_nothing_wrong() {
    // The suite wants a newer Node than some machines have.
    let home = packages::npm("mcp-conformance", &["@modelcontextprotocol/conformance@0.1.16", "node@22.23.3"]);
    let town = Town::open().await;
    let port: u16 = town.server.url.rsplit(':').next().unwrap().parse().unwrap();
    let program = home.join("node_modules/node/bin/node");
    let command = node(&program, include_str!("clients/conformance.mjs"), &home);
    let lines = run(command, json!({ "port": port, "key": town.server.api_key })).await;
    assert_eq!(lines.len(), 4, "{lines:?}");
}
