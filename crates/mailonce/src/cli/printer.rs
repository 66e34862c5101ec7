//! Output: tables for people, JSON for pipes, colour only where it is wanted.

use serde_json::Value;
use std::{
    io::{ErrorKind, IsTerminal as _, Write as _},
    sync::OnceLock,
};

use super::table;

/// Prints results as text or JSON.
pub(crate) struct Printer {
    json: bool,
    colour: bool,
    /// Columns of the terminal. `None` means no limit.
    width: Option<usize>,
    /// The error that stopped the output.
    write_error: OnceLock<std::io::Error>,
}

impl Printer {
    /// JSON with `--json`, or into a pipe without `--plain`.
    pub(crate) fn new(json: bool, plain: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let colour = terminal && super::env("NO_COLOR").is_none() && super::env("TERM").as_deref() != Some("dumb");
        Self {
            json: json || !(terminal || plain),
            colour,
            width: terminal_width(terminal),
            write_error: OnceLock::new(),
        }
    }

    /// Whether the output is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a value as JSON.
    pub(crate) fn print_json(&self, value: &Value) {
        self.print_raw(&format!("{value}\n"));
    }

    /// Prints text unchanged. Keeps the first error, and prints nothing after it.
    pub(crate) fn print_raw(&self, text: &str) {
        if self.write_error.get().is_some() {
            return;
        }
        let mut stdout = std::io::stdout().lock();
        if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            self.write_error.get_or_init(|| error);
        }
    }

    /// Whether the output is closed, so that endless output can stop.
    pub(crate) fn is_closed(&self) -> bool {
        self.write_error.get().is_some()
    }

    /// The error of the output. A reader that closed the pipe is not one.
    pub(crate) fn write_failure(&self) -> Option<&std::io::Error> {
        self.write_error.get().filter(|error| error.kind() != ErrorKind::BrokenPipe)
    }

    /// Prints a line of text.
    pub(crate) fn print_line(&self, text: &str) {
        self.print_raw(&format!("{text}\n"));
    }

    /// Prints a table. Columns whose head starts with `~` may be truncated.
    pub(crate) fn print_table(&self, heads: &[&str], rows: Vec<Vec<String>>) {
        if rows.is_empty() {
            return self.print_line(&self.dim("none"));
        }
        self.print_raw(&table::render(heads, &rows, self.width, |text| self.dim(text)));
    }

    /// Prints names and values, one per line.
    pub(crate) fn print_fields(&self, fields: &[(&str, String)]) {
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in fields {
            let value = table::wrap(value, width + 2, self.width);
            self.print_line(&format!("{}  {value}", self.dim(&format!("{name:width$}"))));
        }
    }

    /// Dimmed text.
    pub(crate) fn dim(&self, text: &str) -> String {
        self.colored("2", text)
    }

    /// Text for success.
    pub(crate) fn green(&self, text: &str) -> String {
        self.colored("32", text)
    }

    /// Text for a warning.
    pub(crate) fn yellow(&self, text: &str) -> String {
        self.colored("33", text)
    }

    /// Text for a failure.
    pub(crate) fn red(&self, text: &str) -> String {
        self.colored("31", text)
    }

    fn colored(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Columns of the terminal.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }
}

/// The width from `COLUMNS`, else from the terminal.
fn terminal_width(terminal: bool) -> Option<usize> {
    let from_env = super::env("COLUMNS").and_then(|text| text.parse().ok());
    let from_terminal = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    from_env.or_else(|| from_terminal().filter(|_| terminal)).filter(|columns| *columns > 0)
}

/// A value as text. Mail is untrusted: control characters become spaces.
pub(crate) fn display_text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Array(all) if all.is_empty() => "-".into(),
        Value::String(text) => sanitize(text, false),
        Value::Array(all) if all.iter().all(Value::is_string) => {
            all.iter().filter_map(Value::as_str).map(|one| sanitize(one, false)).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// A member as text; times to the second.
pub(crate) fn field_text(value: &Value, name: &str) -> String {
    let text = display_text(&value[name]);
    if matches!(name, "at" | "ledger_time" | "deadline") || name.ends_with("_at") { format_time(&text) } else { text }
}

/// `2026-11-15T18:01:30.123Z` as `2026-11-15 18:01:30Z`. Other text is unchanged.
pub(crate) fn format_time(time: &str) -> String {
    match (time.split_once('T'), time.ends_with('Z')) {
        (Some((day, clock)), true) if day.len() == 10 && clock.len() >= 9 => {
            format!("{day} {}Z", clock.get(..8).unwrap_or(clock))
        }
        _ => time.to_owned(),
    }
}

/// Untrusted text without the control characters that a terminal would interpret.
pub(crate) fn sanitize(text: &str, lines: bool) -> String {
    let is_control = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if is_control(c) && !(lines && (c == '\n' || c == '\t')) { ' ' } else { c }).collect()
}

/// Prints a line to stderr.
pub(crate) fn print_stderr(text: &str) {
    writeln!(std::io::stderr(), "{text}").ok();
}

/// Prints an error to stderr.
pub(crate) fn print_stderr_error(text: &str) {
    print_stderr(&format!("mailonce: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_terminal_obeys_nothing_that_a_mail_says() {
        assert_eq!(display_text(&json!("a\x1b[2Jb\r\nc\u{202e}d")), "a [2Jb  c d");
        assert_eq!(sanitize("a\nb\x07", true), "a\nb ");
        assert_eq!(display_text(&json!(["a", "b"])), "a, b");
        assert_eq!(display_text(&json!([{ "a": 1 }])), r#"[{"a":1}]"#);
    }

    #[test]
    fn times_are_shown_to_the_second() {
        let value = json!({ "created_at": "2026-11-15T18:01:30.123Z", "subject": "2026-11-15T18:01:30.123Z" });
        assert_eq!(field_text(&value, "created_at"), "2026-11-15 18:01:30Z");
        assert_eq!(field_text(&value, "subject"), "2026-11-15T18:01:30.123Z");
        assert_eq!(field_text(&value, "settled_at"), "-");
    }
}
