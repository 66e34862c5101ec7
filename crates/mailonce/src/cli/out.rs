//! Output: tables for people, JSON for pipes, colour only where it is wanted.

use comfy_table::{Table, presets};
use serde_json::Value;
use std::io::{IsTerminal as _, Write as _};

/// How answers are shown.
pub(crate) struct Out {
    json: bool,
    colour: bool,
}

impl Out {
    pub(crate) fn new(json: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let colour = terminal && super::env("NO_COLOR").is_none() && super::env("TERM").as_deref() != Some("dumb");
        Self { json: json || !terminal, colour }
    }

    /// Whether machines read this.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a value as JSON.
    pub(crate) fn value(&self, value: &Value) {
        self.raw(&format!("{value}\n"));
    }

    /// Prints text as it is. A reader that went away ends nothing but the reading.
    pub(crate) fn raw(&self, text: &str) {
        std::io::stdout().write_all(text.as_bytes()).ok();
    }

    /// Prints a line for people.
    pub(crate) fn line(&self, text: &str) {
        self.raw(&format!("{text}\n"));
    }

    /// Prints a table for people.
    pub(crate) fn table(&self, heads: &[&str], rows: Vec<Vec<String>>) {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(heads.iter().map(|head| self.dim(head)));
        for row in rows {
            table.add_row(row);
        }
        self.line(&table.trim_fmt());
    }

    /// Names and values, one a line.
    pub(crate) fn facts(&self, facts: &[(&str, String)]) {
        let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in facts {
            self.line(&format!("{}  {value}", self.dim(&format!("{name:width$}"))));
        }
    }

    /// Quiet words.
    pub(crate) fn dim(&self, text: &str) -> String {
        self.painted("2", text)
    }

    /// Words for what is well.
    pub(crate) fn good(&self, text: &str) -> String {
        self.painted("32", text)
    }

    /// Words for what is not.
    pub(crate) fn bad(&self, text: &str) -> String {
        self.painted("31", text)
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Says something on stderr.
pub(crate) fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").ok();
}

/// Says what went wrong on stderr.
pub(crate) fn complain(text: &str) {
    say(&format!("mailonce: {text}"));
}
