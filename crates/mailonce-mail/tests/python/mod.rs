//! Another language, with packages of its own, for the tests of this room.

use serde_json::Value;
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A Python of our own with some packages in it, made once and kept under `target/`.
pub(crate) fn with(name: &str, imports: &str, packages: &[&str]) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let python = home.join("bin/python");
    let ready = Command::new(&python).args(["-c", &format!("import {imports}")]).stderr(Stdio::null()).status();
    if !ready.is_ok_and(|status| status.success()) {
        must("python3 with venv", Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
        must("pip", Command::new(&python).args(["-m", "pip", "install", "-q"]).args(packages));
    }
    python
}

fn must(what: &str, command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{what} is needed for this test: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what} is needed for this test and failed: {said}");
}

/// Runs a helper beside these tests and fails with what it says. What it wrote.
pub(crate) fn run(python: &Path, script: &str, given: &Value) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{} is needed for this test and does not start: {error}", python.display()));
    // The helper reads all of it before it says a word. If it died instead, what it said comes first.
    let given = child.stdin.take().unwrap().write_all(given.to_string().as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    given.unwrap();
    said
}
