//! Compares the tables of `docs/promises.md` with the lists of promises.
//!
//! The page is written by hand except for the part between two markers. `MAILONCE_BLESS=1` writes that part anew.

use std::{collections::BTreeSet, fmt::Write as _, path::PathBuf};

use super::{promises::DOMAINS, random};

const BEGIN: &str = "<!-- generated from crates/mailonce-store/src/conformance: begin -->\n";
const END: &str = "<!-- generated from crates/mailonce-store/src/conformance: end -->\n";

/// The promises of one folder.
pub(super) struct Domain {
    pub(super) folder: &'static str,
    pub(super) title: &'static str,
    pub(super) groups: &'static [Group],
}

/// The promises of one file.
pub(super) struct Group {
    pub(super) file: &'static str,
    pub(super) title: &'static str,
    pub(super) summary: &'static str,
    /// Statement and name of each promise.
    pub(super) promises: &'static [(&'static str, &'static str)],
}

fn page_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/promises.md")
}

fn table<'a>(promises: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut table = "| promise | test |\n|---|---|\n".to_owned();
    for (statement, name) in promises {
        writeln!(table, "| {} | `{name}` |", statement.trim()).unwrap();
    }
    table
}

/// The generated part of the page.
fn generated() -> String {
    let mut text = String::new();
    for domain in DOMAINS {
        write!(text, "\n### {}\n\nIn `conformance/promises/{}`.\n", domain.title, domain.folder).unwrap();
        for group in domain.groups {
            write!(text, "\n**{}** (`{}.rs`). {}\n\n", group.title, group.file, group.summary.trim()).unwrap();
            text.push_str(&table(group.promises.iter().copied()));
        }
    }
    text.push_str("\n### Random histories\n\nIn `conformance/random`.\n\n");
    text + &table([random::PROMISE].into_iter()) + "\n"
}

#[test]
fn the_page_lists_every_promise() {
    let page = std::fs::read_to_string(page_path()).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("docs/promises.md has the marker where the tables begin");
    let (found, after) = rest.split_once(END).expect("docs/promises.md has the marker where the tables end");
    let expected = generated();
    if std::env::var_os("MAILONCE_BLESS").is_some() {
        std::fs::write(page_path(), [before, BEGIN, &expected, END, after].concat()).unwrap();
        return;
    }

    let different = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);

    assert!(
        found == expected,
        "docs/promises.md differs from the lists of promises (MAILONCE_BLESS=1 rewrites it): {different:?}"
    );
}

#[test]
fn every_promise_is_named_once() {
    let page = std::fs::read_to_string(page_path()).unwrap();
    let names = DOMAINS.iter().flat_map(|domain| domain.groups).flat_map(|group| group.promises).map(|(_, name)| *name);
    let mut seen = BTreeSet::new();

    for name in names.chain([random::PROMISE.1]) {
        assert!(seen.insert(name), "{name} is the name of two promises");
        assert_eq!(page.matches(&format!("`{name}`")).count(), 1, "{name} in docs/promises.md");
    }
}
