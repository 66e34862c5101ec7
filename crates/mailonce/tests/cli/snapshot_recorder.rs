//! Snapshots of what verbs print, stored in `snapshots`, one file for each verb.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use crate::{
    binary::{CliFixture, CommandOutput},
    redactor::Redactor,
};

/// Records the snapshots of one run through the verbs.
pub(crate) struct SnapshotRecorder {
    redactor: Redactor,
    snapshots: BTreeMap<String, String>,
}

/// How a snapshot is taken.
#[derive(Clone, Copy, Default)]
pub(crate) struct SnapshotOptions<'a> {
    /// Variables of the environment.
    pub(crate) env: &'a [(&'a str, &'a str)],
    /// Every number is another each time.
    pub(crate) redact_numbers: bool,
    /// Only so many lines of stdout are kept.
    pub(crate) max_stdout_lines: Option<usize>,
    /// It prints something that is no JSON for everybody.
    pub(crate) is_not_json: bool,
}

pub(crate) fn snapshot_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cli/snapshots")
}

/// The name of the file that holds the snapshots of a verb.
pub(crate) fn snapshot_file_name(verb: &str) -> String {
    format!("{}.txt", verb.replace(' ', "-"))
}

impl SnapshotRecorder {
    pub(crate) fn new() -> Self {
        Self { redactor: Redactor::default(), snapshots: BTreeMap::new() }
    }

    /// Runs words for people and then for machines, and keeps both under the verb. `{n}` in a word is 1 and then 2.
    /// Gives back what machines were told.
    pub(crate) async fn record(
        &mut self,
        cli: &CliFixture,
        verb: &str,
        words: &[&str],
        how: SnapshotOptions<'_>,
    ) -> CommandOutput {
        self.run_and_record(cli, verb, words, "--plain", how).await;
        self.run_and_record(cli, verb, words, "--json", how).await
    }

    async fn run_and_record(
        &mut self,
        cli: &CliFixture,
        verb: &str,
        words: &[&str],
        form: &str,
        how: SnapshotOptions<'_>,
    ) -> CommandOutput {
        let number = if form == "--json" { "2" } else { "1" };
        let words: Vec<String> = words.iter().map(|word| word.replace("{n}", number)).collect();
        let mut all: Vec<&str> = words.iter().map(String::as_str).collect();
        all.push(form);
        let ran = cli.run_with_env(&all, how.env).await;
        if form == "--json" && !how.is_not_json {
            for line in ran.stdout.lines() {
                assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "jq cannot read {all:?}: {ran:?}");
            }
            let told = ran.stderr.lines().filter(|line| line.contains("\"code\""));
            told.for_each(|line| drop(serde_json::from_str::<serde_json::Value>(line).unwrap()));
        }
        self.add_snapshot(cli, verb, &all.join(" "), &ran, how);
        ran
    }

    /// Adds a snapshot.
    pub(crate) fn add_snapshot(
        &mut self,
        cli: &CliFixture,
        verb: &str,
        words: &str,
        ran: &CommandOutput,
        how: SnapshotOptions<'_>,
    ) {
        let folder = cli.path().display().to_string();
        let places = [(folder.as_str(), "DESK"), (env!("CARGO_BIN_EXE_mailonce"), "MAILONCE")];
        let mut plain = |text: &str| self.redactor.redact(text, &places, how.redact_numbers);
        let mut out = plain(&ran.stdout);
        if how.redact_numbers {
            // Repeats are counted a moment later, so how many a timeline shows by now is chance.
            let kept: Vec<&str> =
                out.split_inclusive('\n').filter(|line| !line.contains("duplicate call via")).collect();
            out = kept.concat();
        }
        if let Some(most) = how.max_stdout_lines {
            out = out.lines().take(most).map(|line| format!("{line}\n")).chain(["…\n".to_owned()]).collect();
        }
        let (words, err) = (plain(words), plain(&ran.stderr));
        let part = |name: &str, text: &str| if text.is_empty() { String::new() } else { format!("--- {name}\n{text}") };
        let page = format!(
            "$ mailonce {words}\n{}{}--- exit {}\n\n",
            part("stdout", &out),
            part("stderr", &err),
            ran.exit_code
        );
        self.snapshots.entry(verb.to_owned()).or_default().push_str(&page);
    }

    /// Compares with what is kept, or keeps this from now on.
    pub(crate) fn verify(self) {
        let bless = std::env::var_os("MAILONCE_BLESS").is_some();
        let mut wrong = Vec::new();
        for (verb, page) in &self.snapshots {
            let path = snapshot_dir().join(snapshot_file_name(verb));
            let kept = std::fs::read_to_string(&path).unwrap_or_default();
            if bless {
                std::fs::write(&path, page).unwrap();
            } else if kept != *page {
                wrong.push(format!("{}\n{}", path.display(), diff_lines(&kept, page)));
            }
        }
        assert!(wrong.is_empty(), "not as in the snapshots (MAILONCE_BLESS=1 keeps it):\n{}", wrong.join("\n"));
        let files: BTreeSet<String> = std::fs::read_dir(snapshot_dir())
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        let pages: BTreeSet<String> = self.snapshots.keys().map(|verb| snapshot_file_name(verb)).collect();
        assert_eq!(files, pages, "a snapshot without a verb, or a verb without a snapshot");
    }
}

/// The lines that differ, old and new.
fn diff_lines(kept: &str, page: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (kept.lines().collect(), page.lines().collect());
    let missing = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
    let more = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}"));
    missing.chain(more).collect::<Vec<_>>().join("\n")
}
