//! `completions`, `man` and `commands`.

use clap::{Command, CommandFactory as _};
use serde_json::json;
use std::process::ExitCode;

use super::{Cli, UsageError};
use crate::cli::printer::Printer;

/// Prints shell completions.
pub(super) fn completions(out: &Printer, shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mailonce", &mut script);
    out.print_raw(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

/// Prints a manual page, as roff.
pub(super) fn man(out: &Printer, words: &[String]) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command();
    command.build();
    let mut found = &command;
    for word in words {
        let next = found.get_subcommands().find(|verb| verb.get_name() == word && !verb.is_hide_set());
        found = next.ok_or_else(|| UsageError(format!("there is no command `{}`", words.join(" "))))?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(found.clone()).render(&mut page)?;
    out.print_raw(&String::from_utf8_lossy(&page));
    Ok(ExitCode::SUCCESS)
}

/// Prints every command with its description.
pub(super) fn commands(out: &Printer) -> ExitCode {
    let mut command = Cli::command();
    command.build();
    let mut verbs = Vec::new();
    walk(&command, &mut Vec::new(), &mut verbs);
    if out.is_json() {
        let one = |(verb, about): &(String, String)| json!({ "verb": verb, "about": about });
        out.print_json(&json!({ "data": verbs.iter().map(one).collect::<Vec<_>>() }));
    } else {
        out.print_table(
            &["command", "~description"],
            verbs.into_iter().map(|(verb, about)| vec![verb, about]).collect(),
        );
    }
    ExitCode::SUCCESS
}

/// Collects the commands that can be run: those without subcommands, and those whose subcommand is optional.
fn walk(command: &Command, words: &mut Vec<String>, verbs: &mut Vec<(String, String)>) {
    let shown = |verb: &&Command| !verb.is_hide_set() && verb.get_name() != "help";
    let children: Vec<&Command> = command.get_subcommands().filter(shown).collect();
    if !words.is_empty() && (children.is_empty() || !command.is_subcommand_required_set()) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        verbs.push((words.join(" "), about));
    }
    for child in children {
        words.push(child.get_name().to_owned());
        walk(child, words, verbs);
        words.pop();
    }
}
