//! The files of `fuzz/` for `cargo fuzz`: a manifest, and a file per target. They are generated from the list of
//! targets, and a test compares them.

use super::TARGETS;

const MANIFEST_HEADER: &str = r#"# Readers of outside bytes under libFuzzer, as `cargo +nightly fuzz run TARGET` wants them. A workspace of its own: it needs
# a nightly compiler, and nothing else may. Written by `mailonce-fuzz --write-targets fuzz`.
[package]
name = "mailonce-libfuzzer"
version = "0.0.0"
edition = "2024"
license = "MIT OR Apache-2.0"
publish = false

[package.metadata]
cargo-fuzz = true

[workspace]

[dependencies]
libfuzzer-sys = "0.4.13" # the loop that follows coverage
mailonce-sim = { path = "../crates/mailonce-sim", default-features = false, features = ["fuzz"] }
"#;

/// `Cargo.toml`.
pub fn manifest() -> String {
    let bin = |name: &str| {
        let flags = "test = false\ndoc = false\nbench = false";
        format!("\n[[bin]]\nname = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n{flags}\n")
    };
    TARGETS.iter().fold(MANIFEST_HEADER.to_owned(), |manifest, target| manifest + &bin(target.name))
}

/// `fuzz_targets/NAME.rs`.
pub fn target_file(name: &str) -> String {
    format!(
        "//! libFuzzer for the reader `{name}`.\n\n#![no_main]\n\nlibfuzzer_sys::fuzz_target!(|bytes: &[u8]| {{\n    \
         assert_eq!(mailonce_sim::fuzz::run(\"{name}\", bytes).err(), None);\n}});\n"
    )
}
