//! AgentMail's official packages, unmodified and at pinned versions, against the real binary: every method that the
//! dialect covers is called, and the table in the documents is held to what the packages have.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed, and says why")]
#![expect(clippy::panic, reason = "a helper that finds what it must not find fails its test")]

#[path = "../it/binary.rs"]
#[expect(dead_code, reason = "other tests ask it for more")]
mod binary;
mod drafts;
mod lists;
#[path = "../it/packages.rs"]
mod packages;
mod retries;
mod wire;

use binary::{CliFixture, SpawnedServer};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::process::Command;

const METHOD_TABLE: &str = include_str!("../../../../docs/dialects-agentmail.md");
/// How long a walk may take.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Where the walks are.
fn scripts_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agentmail")
}

/// What a server says of where it takes mail.
pub(crate) fn smtp_address(server: &SpawnedServer) -> String {
    let line = server.startup_banner.lines().find_map(|line| line.split_once("by SMTP at "));
    line.unwrap_or_else(|| panic!("no SMTP in {}", server.startup_banner)).1.trim().to_owned()
}

/// Walks with a program, and gives what it says in the end.
async fn run_sdk_script(command: &mut Command, server: &SpawnedServer) -> Value {
    command.env("URL", &server.url).env("KEY", &server.api_key).env("SMTP", smtp_address(server));
    let ran = tokio::time::timeout(TIMEOUT, command.kill_on_drop(true).output()).await;
    let output = ran.expect("the walk does not end").expect("node and python3 are needed for this test");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The rows of the table: which packages have a method, and what comes of it.
fn parse_method_table() -> BTreeMap<String, (String, String)> {
    let rows = METHOD_TABLE.split("## Every method").nth(1).unwrap().lines().filter(|line| line.starts_with("| `"));
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    rows.map(cells).map(|row| (row[1].trim_matches('`').to_owned(), (row[2].clone(), row[3].clone()))).collect()
}

fn string_set(list: &Value) -> BTreeSet<String> {
    list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// Holds the table to a package: it has those methods and no other, and each that is covered was called.
fn check_method_table(package: &str, walked: &Value) {
    let table = parse_method_table();
    let here: BTreeSet<String> =
        table.iter().filter(|(_, (who, _))| who == package || who == "both").map(|(name, _)| name.clone()).collect();
    assert_eq!(here, string_set(&walked["methods"]), "the table does not have what the package has");
    let covered: BTreeSet<String> = here.into_iter().filter(|name| table[name].1 == "covered").collect();
    let missed: Vec<String> = covered.difference(&string_set(&walked["called"])).cloned().collect();
    assert!(missed.is_empty(), "covered, and never called: {missed:?}");
}

#[tokio::test]
async fn the_package_for_node_finds_what_it_expects() {
    let home = packages::install_npm("agentmail-npm", &["agentmail@0.5.27", "svix@1.99.1"]);
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let mut node = Command::new("node");
    let walked =
        run_sdk_script(node.arg(scripts_dir().join("walk.cjs")).env("NODE_PATH", home.join("node_modules")), &server)
            .await;
    check_method_table("Node", &walked);

    // What is not covered is told so, where the call leaves the package at all.
    let refused = walked["refused"].as_object().unwrap();
    let told = |status: &&Value| status.as_u64() == Some(404);
    assert!(refused.values().all(|status| status.is_null() || told(&status)), "{refused:?}");
    assert!(refused.values().filter(told).count() >= 15, "{refused:?}");
    assert!(server.terminate().await.success());
}

#[tokio::test]
async fn the_package_for_python_finds_what_it_expects() {
    let python = packages::install_python("agentmail-pypi", &["agentmail==2.0.18", "svix==2.9.1"]);
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let mut command = Command::new(python);
    let walked = run_sdk_script(command.arg("-B").arg(scripts_dir().join("walk.py")), &server).await;
    check_method_table("Python", &walked);
    assert!(server.terminate().await.success());
}

#[tokio::test]
async fn what_prove_asks_of_an_agentmail_server_holds() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let target = format!("{}/compat/agentmail", server.url);
    let words = ["prove", "--target", &target, "--dialect", "agentmail", "--key", &server.api_key];
    let more = ["--from", "agent@mailonce.test", "--callers", "20"];
    let report = cli.run(&[&words[..], &more[..]].concat()).await.expect_exit(0).json();
    assert_eq!(report["held"], true, "{report:#}");
}
