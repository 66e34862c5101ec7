//! The timeline of the demo's email as a page that needs neither a server nor scripts. It looks as in the dashboard: what
//! took time is a bar of that length, a moment is a mark. The kill of the server, which the dashboard cannot know, is a
//! bar until the server answers again.

use anyhow::Context as _;
use mailonce_core::time::Time;
use serde_json::Value;
use std::path::Path;

use super::{StormResult, time_of_day};
use crate::{cli::printer::display_text, http::html::escape_html};

/// Writes the page into the data directory, and returns its `file://` URL.
pub(super) fn write(storm: &StormResult, data: &Path) -> anyhow::Result<String> {
    let file = data.join("timeline.html");
    std::fs::write(&file, page(storm)).with_context(|| format!("writing {}", file.display()))?;
    let path = std::fs::canonicalize(&file).with_context(|| format!("finding {}", file.display()))?;
    Ok(format!("file://{}", path.display().to_string().replace('%', "%25").replace(' ', "%20")))
}

fn page(storm: &StormResult) -> String {
    let timeline = storm.email["timeline"].as_array().map(Vec::as_slice).unwrap_or_default();
    let axis = Axis::of(timeline);
    let row = |entry: &Value| {
        let from = time_of(entry);
        let (left, right) = (axis.position(from), axis.position(end_of(entry, storm, timeline).max(from)));
        format!(
            "<tr class=\"{}\"><td>{}</td><td>{}</td><td><svg viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" \
             aria-hidden=\"true\"><rect x=\"{left:.2}\" y=\"1\" width=\"{:.2}\" height=\"6\" rx=\"1\"/></svg></td></tr>\n",
            row_class(entry),
            escape_html(&time_of_day(entry)),
            escape_html(&display_text(&entry["description"])),
            (right - left).max(1.0),
        )
    };
    let rows: String = timeline.iter().map(row).collect();
    include_str!("storm.html")
        .replace("{verdict}", &escape_html(&storm.verdict()))
        .replace("{id}", &escape_html(&display_text(&storm.email["id"])))
        .replace("{rows}", &rows)
}

/// When what an entry begins has ended. `None` for a moment.
fn end_of(entry: &Value, storm: &StormResult, timeline: &[Value]) -> Option<Time> {
    let description = display_text(&entry["description"]);
    if description.contains("kill -9") {
        return Some(time_of(entry)?.plus(i64::try_from(storm.downtime.as_millis()).ok()?));
    }
    // An attempt has two entries: `handoff 0, attempt 1: started …` and how it ended.
    let attempt = description.split_once(": started")?.0.to_owned() + ": ";
    let mut later = timeline.iter().filter(|other| time_of(other) >= time_of(entry) && *other != entry);
    time_of(later.find(|other| display_text(&other["description"]).starts_with(&attempt))?)
}

/// The class of a row: what the dashboard gives the same colour.
fn row_class(entry: &Value) -> &'static str {
    let description = display_text(&entry["description"]);
    let says = |words: &str| description.contains(words);
    match () {
        () if says("kill -9") => "bad",
        () if says("duplicate") => "stopped",
        () if says("final state") || says("accepted by") => "good",
        () => "plain",
    }
}

/// The axis of time. It is logarithmic, as that of the dashboard: attempts take milliseconds, restarts longer.
struct Axis {
    start: Option<Time>,
    length_ms: f64,
}

impl Axis {
    fn of(timeline: &[Value]) -> Self {
        let start = timeline.first().and_then(time_of);
        let end = timeline.last().and_then(time_of);
        let length = start.zip(end).map_or(0, |(start, end)| end.since(start));
        Self { start, length_ms: (length as f64).max(10.0) }
    }

    /// Where a time is, in percent.
    fn position(&self, at: Option<Time>) -> f64 {
        let since = self.start.zip(at).map_or(0, |(start, at)| at.since(start).max(0));
        ((since as f64).ln_1p() / self.length_ms.ln_1p() * 99.0).min(99.0)
    }
}

fn time_of(entry: &Value) -> Option<Time> {
    Time::parse(entry["at"].as_str()?)
}
