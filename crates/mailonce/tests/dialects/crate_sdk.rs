//! Resend's official crate, built once from its own package and kept under `target/`.

use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    binary::CliFixture,
    sdks::{SdkCoverage, run_script, script_path, start_server_with_mail},
    table,
};

/// Files of the crate that contain no service.
const NON_SERVICE_FILES: [&str; 3] = ["client", "config", "rate_limit"];

/// A cargo command on the package that calls the crate.
fn cargo_command(subcommand: &str) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command
        .args([subcommand, "--quiet", "--locked", "--manifest-path"])
        .arg(script_path("resend-rs").join("Cargo.toml"));
    command
}

/// Builds the program that calls the crate and returns its path.
fn build_program() -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dialects-crate");
    let built = cargo_command("build").arg("--target-dir").arg(&home).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    home.join("debug/resend-rs-walk")
}

/// Every method of the crate's services, read from its source.
fn crate_methods() -> Vec<String> {
    let output = cargo_command("metadata").args(["--format-version", "1"]).output().unwrap();
    let tree: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = tree["packages"].as_array().unwrap();
    let found = packages.iter().find(|package| package["name"] == "resend-rs").unwrap();
    let folder = Path::new(found["manifest_path"].as_str().unwrap()).parent().unwrap().join("src");
    let mut methods = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let service = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if NON_SERVICE_FILES.contains(&service.as_str()) {
            continue;
        }
        let own = text.split("pub mod types {").next().unwrap();
        let names = own.split("pub async fn ").skip(1).map(|rest| rest.split(['(', '<']).next().unwrap());
        methods.extend(names.map(|name| format!("{service}.{name}")));
    }
    methods
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resend_for_rust_parses_every_response() {
    let cli = CliFixture::new();
    let server = start_server_with_mail(&cli, "rust").await;
    let mut program = Command::new(build_program());
    // By default the crate limits itself to Resend's rate limit of a few calls per second.
    program.env("RESEND_RATE_LIMIT", "1000");
    let report = run_script(program, &server, "/compat/resend").await;
    // The methods need typed arguments, so uncovered ones are not called. Their routes are the same as in the other
    // packages.
    let refused: serde_json::Map<String, Value> =
        crate_methods().into_iter().map(|method| (method, json!("not covered"))).collect();
    let methods: Vec<&String> = refused.keys().collect();
    let report = json!({ "methods": methods, "worked": report["worked"], "refused": refused });
    table::check_table("resend-rs 0.35.1 (crate)", &SdkCoverage::parse(&report));
}
