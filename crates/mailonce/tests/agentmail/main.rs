//! AgentMail's official packages, unmodified and in pinned versions, against the real binary. Every covered method is
//! called, and the table in the documentation must list exactly the methods of the packages.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot continue has failed, and the message says why")]
#![expect(clippy::panic, reason = "a helper fails its test when it finds something unexpected")]

#[path = "../it/fixtures/binary.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod binary;
mod drafts;
mod lists;
#[path = "../it/fixtures/packages.rs"]
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
/// How long an SDK script may take.
const TIMEOUT: Duration = Duration::from_mins(4);

/// The folder of the SDK scripts.
fn scripts_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agentmail")
}

/// The SMTP address in the startup banner of a server.
pub(crate) fn smtp_address(server: &SpawnedServer) -> String {
    let line = server.startup_banner.lines().find_map(|line| line.split_once("by SMTP at "));
    line.unwrap_or_else(|| panic!("no SMTP in {}", server.startup_banner)).1.trim().to_owned()
}

/// Runs an SDK script and returns its JSON output.
async fn run_sdk_script(command: &mut Command, server: &SpawnedServer) -> Value {
    command.env("URL", &server.url).env("KEY", &server.api_key).env("SMTP", smtp_address(server));
    let finished = tokio::time::timeout(TIMEOUT, command.kill_on_drop(true).output()).await;
    let output = finished.expect("the script does not exit").expect("node and python3 are needed for this test");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}\n{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The rows of the table: which packages have a method, and its result.
fn parse_method_table() -> BTreeMap<String, (String, String)> {
    let rows = METHOD_TABLE.split("## Every method").nth(1).unwrap().lines().filter(|line| line.starts_with("| `"));
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    rows.map(cells).map(|row| (row[1].trim_matches('`').to_owned(), (row[2].clone(), row[3].clone()))).collect()
}

fn string_set(list: &Value) -> BTreeSet<String> {
    list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// Checks that the table lists exactly the methods of a package and that each covered one was called.
fn check_method_table(package: &str, report: &Value) {
    let table = parse_method_table();
    let documented: BTreeSet<String> =
        table.iter().filter(|(_, (who, _))| who == package || who == "both").map(|(name, _)| name.clone()).collect();
    assert_eq!(documented, string_set(&report["methods"]), "the table does not match the methods of the package");
    let covered: BTreeSet<String> = documented.into_iter().filter(|name| table[name].1 == "covered").collect();
    let missed: Vec<String> = covered.difference(&string_set(&report["called"])).cloned().collect();
    assert!(missed.is_empty(), "covered but never called: {missed:?}");
}

#[tokio::test]
async fn the_node_package_works() {
    let home = packages::install_npm("agentmail-npm", &["agentmail@0.5.27", "svix@1.99.1"]);
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let mut node = Command::new("node");
    let report =
        run_sdk_script(node.arg(scripts_dir().join("walk.cjs")).env("NODE_PATH", home.join("node_modules")), &server)
            .await;
    check_method_table("Node", &report);

    // Uncovered methods get a 501, unless the package fails before it sends the call.
    let refused = report["refused"].as_object().unwrap();
    let is_not_implemented = |status: &&Value| status.as_u64() == Some(501);
    assert!(refused.values().all(|status| status.is_null() || is_not_implemented(&status)), "{refused:?}");
    assert!(refused.values().filter(is_not_implemented).count() >= 8, "{refused:?}");
    assert!(server.terminate().await.success());
}

#[tokio::test]
async fn the_python_package_works() {
    let python = packages::install_python("agentmail-pypi", &["agentmail==2.0.18", "svix==2.9.1"]);
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let mut command = Command::new(python);
    let report = run_sdk_script(command.arg("-B").arg(scripts_dir().join("walk.py")), &server).await;
    check_method_table("Python", &report);
    assert!(server.terminate().await.success());
}

#[tokio::test]
async fn prove_passes_for_the_agentmail_dialect() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let target = format!("{}/compat/agentmail", server.url);
    let args = ["prove", "--target", &target, "--dialect", "agentmail", "--key", &server.api_key];
    let more = ["--from", "agent@mailonce.test", "--callers", "20"];
    let report = cli.run(&[&args[..], &more[..]].concat()).await.expect_exit(0).json();
    assert_eq!(report["passed"], true, "{report:#}");
}
