//! Runs Python helpers with their own packages for the tests of this crate.

use serde_json::Value;
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A virtual environment with some packages, created once and kept under `target/`.
pub(crate) fn with(name: &str, imports: &str, packages: &[&str]) -> PathBuf {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let python = venv.join("bin/python");
    let ready = Command::new(&python).args(["-c", &format!("import {imports}")]).stderr(Stdio::null()).status();
    if !ready.is_ok_and(|status| status.success()) {
        must("python3 with venv", Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
        must("pip", Command::new(&python).args(["-m", "pip", "install", "-q"]).args(packages));
    }
    python
}

fn must(what: &str, command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{what} is needed for this test: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what} is needed for this test and failed: {stderr}");
}

/// Runs a helper script with JSON input. Returns its output; panics with its error output if it fails.
pub(crate) fn run(python: &Path, script: &str, input: &Value) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{} is needed for this test and does not start: {error}", python.display()));
    // The helper reads all input before it writes. If it died instead, its error output is reported first.
    let written = child.stdin.take().unwrap().write_all(input.to_string().as_bytes());
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    written.unwrap();
    stdout
}
