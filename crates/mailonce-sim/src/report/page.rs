//! Renders `docs/proof.md` from the template next to this file.
//!
//! A placeholder is written `{{rig.what}}`. `what` is `facts` (how it ran and what it found), `table` (more figures),
//! or the name of a count. The page says so if a test has no results.

use serde_json::Value;
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use super::summary::{RIGS, RunSummary};

/// The template.
pub const TEMPLATE: &str = include_str!("proof_template.md");

/// Why the page cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The template has an unknown placeholder.
    #[error("the template names {{{{{0}}}}}, which is nothing")]
    UnknownPlaceholder(String),
    /// Formatting failed.
    #[error(transparent)]
    Write(#[from] fmt::Error),
}

/// Renders the page.
pub fn render_page(template: &str, summaries: &BTreeMap<String, RunSummary>) -> Result<String, PageError> {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (placeholder, after) =
            after.split_once("}}").ok_or_else(|| PageError::UnknownPlaceholder(after.to_owned()))?;
        page.push_str(before);
        page.push_str(&fill_placeholder(placeholder, summaries)?);
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

fn fill_placeholder(placeholder: &str, summaries: &BTreeMap<String, RunSummary>) -> Result<String, PageError> {
    let nothing = || PageError::UnknownPlaceholder(placeholder.to_owned());
    let (rig, what) = placeholder.trim().split_once('.').ok_or_else(nothing)?;
    if !RIGS.contains(&rig) {
        return Err(nothing());
    }
    let Some(summary) = summaries.get(rig) else {
        return Ok(match what {
            "facts" => "Not run.".into(),
            "table" => String::new(),
            count => format!("{count}: not run"),
        });
    };
    match what {
        "facts" => Ok(facts_table(summary)?),
        "table" => Ok(figures_table(summary)?),
        count => {
            summary.counts.get(count).map(|figure| format!("{} {count}", group_thousands(*figure))).ok_or_else(nothing)
        }
    }
}

/// How the test ran, and what it found.
fn facts_table(summary: &RunSummary) -> Result<String, fmt::Error> {
    let RunSummary { rig: _, version, command, started, seconds, seeds, counts, violations, table: _, state: _ } =
        summary;
    let counts: Vec<String> =
        counts.iter().map(|(name, figure)| format!("{} {name}", group_thousands(*figure))).collect();
    let mut facts = String::from("| | |\n|---|---|\n");
    writeln!(facts, "| found | {} |", counts.join(", "))?;
    writeln!(facts, "| violations | {} |", violations.len())?;
    writeln!(facts, "| version | `{version}` |")?;
    writeln!(facts, "| begun | {started}, {} |", show_duration(*seconds))?;
    writeln!(facts, "| seeds | {} |", show_value(seeds))?;
    write!(facts, "| again | `{command}` |")?;
    for violation in violations {
        write!(facts, "\n\n**Violation:** {}", show_value(violation))?;
    }
    Ok(facts)
}

fn figures_table(summary: &RunSummary) -> Result<String, fmt::Error> {
    let mut table = String::new();
    for (number, row) in summary.table.iter().enumerate() {
        writeln!(table, "| {} |", row.join(" | "))?;
        if number == 0 {
            writeln!(table, "|{}", "---|".repeat(row.len()))?;
        }
    }
    Ok(table.trim_end().to_owned())
}

fn show_value(value: &Value) -> String {
    match value {
        Value::Null => "none: every order was played".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(show_value).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn show_duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..120 => format!("{whole} s"),
        120..7_200 => format!("{} min", whole / 60),
        _ => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
    }
}

/// Formats 1234567 as 1,234,567.
fn group_thousands(figure: u64) -> String {
    let digits = figure.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summaries() -> BTreeMap<String, RunSummary> {
        let summary = serde_json::json!({
            "rig": "kills", "version": "v0-7-gabc", "command": "mailonce-crash", "started": "2026-11-15T10:00:00.000Z",
            "seconds": 7_300.4, "seeds": [7, 8], "counts": {"kills": 20_000, "mails": 1_234_567}, "violations": [],
            "table": [["point", "kills"], ["after-marker", "25"]],
        });
        BTreeMap::from([("kills".to_owned(), serde_json::from_value(summary).expect("a summary"))])
    }

    #[test]
    fn figures_come_from_summaries_and_a_rig_without_one_was_not_run() {
        let page = render_page("{{kills.kills}}; {{worlds.worlds}}\n{{worlds.facts}}\n{{kills.table}}", &summaries());
        let wanted = "20,000 kills; worlds: not run\nNot run.\n| point | kills |\n|---|---|\n| after-marker | 25 |";
        assert_eq!(page.expect("a page"), wanted);
    }

    #[test]
    fn facts_say_how_it_was_run() {
        let page = render_page("{{kills.facts}}", &summaries()).expect("a page");
        for part in ["20,000 kills, 1,234,567 mails", "| violations | 0 |", "`v0-7-gabc`", "2 h 1 min", "7, 8"] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }

    #[test]
    fn a_violation_is_on_the_page() {
        let mut summaries = summaries();
        summaries.get_mut("kills").expect("kills").violations.push("a second mail".into());
        let page = render_page("{{kills.facts}}", &summaries).expect("a page");
        assert!(page.contains("| violations | 1 |") && page.contains("**Violation:** a second mail"), "{page}");
    }

    #[test]
    fn an_unknown_placeholder_is_an_error() {
        for wrong in ["{{kills.mice}}", "{{dogs.facts}}", "{{kills}}", "{{kills.facts"] {
            assert!(render_page(wrong, &summaries()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_template_has_no_figure_of_its_own() {
        let outside_code = TEMPLATE.split('`').step_by(2).collect::<String>();
        let figure =
            |word: &&str| word.contains(|c: char| c.is_ascii_digit()) && !word.trim_start_matches('(').starts_with('P');
        assert_eq!(outside_code.split_whitespace().filter(figure).collect::<Vec<_>>(), [""; 0]);
        assert!(render_page(TEMPLATE, &BTreeMap::new()).expect("a page").contains("kills: not run"));
    }
}
