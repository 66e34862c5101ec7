//! Third-party packages, installed once in pinned versions and kept under `target/`. Without npm or Python a test fails
//! and is not skipped.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn run_or_panic(what: &str, command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{what} is needed for this test: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what} is needed for this test and failed: {stderr}");
}

/// Installs into a folder once per set of packages. A file lock serializes tests in several processes.
fn install_once(folder: &str, packages: &[&str], install: impl FnOnce(&Path)) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let (ready, wanted) = (home.join("ready"), packages.join(" "));
    std::fs::create_dir_all(&home).unwrap();
    let lock = std::fs::File::create(home.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if std::fs::read_to_string(&ready).is_ok_and(|text| text == wanted) {
        return home;
    }
    install(&home);
    std::fs::write(ready, wanted).unwrap();
    home
}

/// Installs npm packages and returns their folder.
pub(crate) fn install_npm(folder: &str, packages: &[&str]) -> PathBuf {
    install_once(folder, packages, |home| {
        let mut command = Command::new("npm");
        run_or_panic("npm", command.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(home).args(packages));
    })
}

/// Installs PyPI packages into a virtual environment and returns its Python.
pub(crate) fn install_python(folder: &str, packages: &[&str]) -> PathBuf {
    let home = install_once(folder, packages, |home| {
        run_or_panic("python3 with venv", Command::new("python3").args(["-m", "venv", "--clear"]).arg(home));
        run_or_panic("pip", Command::new(home.join("bin/python")).args(["-m", "pip", "install", "-q"]).args(packages));
    });
    home.join("bin/python")
}
