//! Packages of other people, installed once at the versions named and kept under `target/`.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

/// One installs at a time.
static INSTALLING: Mutex<()> = Mutex::new(());

fn must(what: &str, command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{what} is needed for this test: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what} is needed for this test and failed: {said}");
}

/// A folder of this name, made anew unless exactly these packages are in it.
fn home(name: &str, packages: &[&str], install: impl FnOnce(&Path)) -> PathBuf {
    let _turn = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (ready, wanted) = (home.join("ready"), packages.join("\n"));
    if std::fs::read_to_string(&ready).ok().as_ref() != Some(&wanted) {
        if home.exists() {
            std::fs::remove_dir_all(&home).unwrap();
        }
        std::fs::create_dir_all(&home).unwrap();
        install(&home);
        std::fs::write(ready, wanted).unwrap();
    }
    home
}

/// A folder of our own with packages of npm in it.
pub(crate) fn npm(name: &str, packages: &[&str]) -> PathBuf {
    home(name, packages, |home| {
        let mut install = Command::new("npm");
        must("npm", install.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(home).args(packages));
    })
}

/// A Python of our own with packages of PyPI in it.
pub(crate) fn python(name: &str, packages: &[&str]) -> PathBuf {
    let home = home(name, packages, |home| {
        must("python3 with venv", Command::new("python3").args(["-m", "venv", "--clear"]).arg(home));
        let mut install = Command::new(home.join("bin/python"));
        must("pip", install.args(["-m", "pip", "install", "-q"]).args(packages));
    });
    home.join("bin/python")
}
