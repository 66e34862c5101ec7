//! The timeline of the demo's email as a page that needs neither a server nor scripts. It draws the same picture as the
//! dashboard (`web/src/pages/email/waterfall-rows.ts`): what took time is a bar of that length, a moment is a mark, and a
//! burst of duplicate calls is a row of marks. The kill of the server, which the dashboard cannot know, is a bar until the
//! server answers again.

use anyhow::Context as _;
use mailonce_core::time::Time;
use serde_json::Value;
use std::path::Path;

use super::{StormResult, describe_run, time_of_day};
use crate::{cli::printer::display_text, http::html::escape_html};

/// Duplicate calls that follow each other within this time share a row.
const BURST_MS: i64 = 100;
/// Where the axis may have a tick, in milliseconds.
const TICKS_MS: [f64; 6] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0, 60_000.0];
/// The distance between ticks that can be read, in percent of the axis.
const TICK_ROOM: f64 = 11.0;
/// The width of a mark, and the distance between marks that would lie on top of each other, in pixels.
const MARK_PX: usize = 7;
const MARK_STEP_PX: usize = 9;

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
    let rows: String = runs_of(timeline).iter().map(|run| render_row(run, &axis, storm, timeline)).collect();
    include_str!("storm.html")
        .replace("{verdict}", &escape_html(&storm.verdict()))
        .replace("{id}", &escape_html(&display_text(&storm.email["id"])))
        .replace("{ticks}", &axis.render())
        .replace("{rows}", &rows)
}

/// The entries of each row, in the order of time: the duplicate calls of a burst, or one other entry.
fn runs_of(timeline: &[Value]) -> Vec<Vec<&Value>> {
    let (duplicates, others): (Vec<&Value>, Vec<&Value>) = timeline.iter().partition(|entry| is_duplicate(entry));
    let is_burst = |one: &&Value, other: &&Value| {
        let gap = time_of(other).zip(time_of(one)).map(|(later, earlier)| later.since(earlier));
        one["description"] == other["description"] && gap.is_some_and(|gap| gap <= BURST_MS)
    };
    let bursts = duplicates.chunk_by(is_burst).map(<[&Value]>::to_vec);
    let mut runs: Vec<Vec<&Value>> = others.into_iter().map(|entry| vec![entry]).chain(bursts).collect();
    runs.sort_by_key(|run| run.first().map(|first| display_text(&first["at"])));
    runs
}

fn render_row(run: &[&Value], axis: &Axis, storm: &StormResult, timeline: &[Value]) -> String {
    let Some(first) = run.first() else { return String::new() };
    let drawn = if is_duplicate(first) { render_marks(run, axis) } else { render_bar(first, axis, storm, timeline) };
    format!(
        "<tr class=\"{}\"><td>{}</td><td>{}</td><td><div class=\"track\" aria-hidden=\"true\">{drawn}</div></td></tr>\n",
        row_class(first),
        escape_html(&time_of_day(first)),
        escape_html(&describe_run(first, run.len())),
    )
}

/// A bar from an entry to its end. A moment is as wide as a mark.
fn render_bar(entry: &Value, axis: &Axis, storm: &StormResult, timeline: &[Value]) -> String {
    let from = time_of(entry);
    let (left, right) = (axis.position(from), axis.position(end_of(entry, storm, timeline).max(from)));
    let width = right - left;
    format!("<i style=\"left:min({left:.2}%,100% - {MARK_PX}px);width:max({width:.2}%,{MARK_PX}px)\"></i>")
}

/// A mark for each call. Those that would lie on top of each other stand side by side.
fn render_marks(run: &[&Value], axis: &Axis) -> String {
    let start = run.first().map_or(0.0, |first| axis.position(time_of(first)));
    let mark = |(index, entry): (usize, &&Value)| {
        let at = axis.position(time_of(entry));
        let (before, after) = (index * MARK_STEP_PX, (run.len() - 1 - index) * MARK_STEP_PX + MARK_PX);
        let left = format!("min(max({at:.2}%,{start:.2}% + {before}px),100% - {after}px)");
        format!("<i style=\"left:{left};width:{MARK_PX}px\"></i>")
    };
    run.iter().enumerate().map(mark).collect()
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

fn is_duplicate(entry: &Value) -> bool {
    row_class(entry) == "stopped"
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
        self.percent(since as f64)
    }

    fn percent(&self, ms: f64) -> f64 {
        (ms.ln_1p() / self.length_ms.ln_1p() * 100.0).min(100.0)
    }

    /// Ticks from the accept to the end, in milliseconds, far enough apart to be read.
    fn ticks(&self) -> Vec<f64> {
        let (mut ticks, mut last) = (vec![0.0], 0.0);
        for tick in TICKS_MS {
            let at = self.percent(tick);
            if at <= 100.0 - TICK_ROOM && at - last >= TICK_ROOM {
                ticks.push(tick);
                last = at;
            }
        }
        ticks.push(self.length_ms);
        ticks
    }

    fn render(&self) -> String {
        let tick = |ms: f64| {
            let (at, label) = (self.percent(ms), if ms > 0.0 { duration(ms) } else { "0".to_owned() });
            format!("<span style=\"left:{at:.2}%;transform:translateX(-{at:.2}%)\">{label}</span>")
        };
        self.ticks().into_iter().map(tick).collect()
    }
}

/// A length of time, as the dashboard writes it.
fn duration(ms: f64) -> String {
    if ms < 1_000.0 {
        format!("{ms:.0} ms")
    } else if ms < 60_000.0 {
        format!("{} s", (ms / 100.0).round() / 10.0)
    } else {
        format!("{:.0} min", ms / 60_000.0)
    }
}

fn time_of(entry: &Value) -> Option<Time> {
    Time::parse(entry["at"].as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::{collections::BTreeSet, time::Duration};

    const DUPLICATE: &str = "duplicate call via http stopped: same key, same email";

    fn storm_with(entries: &[(i64, &str)]) -> StormResult {
        let start = Time::parse("2026-11-19T10:00:00Z").unwrap();
        let entry =
            |(ms, description): &(i64, &str)| json!({ "at": start.plus(*ms).to_string(), "description": description });
        let timeline: Vec<Value> = entries.iter().map(entry).collect();
        StormResult {
            callers: 5,
            answered_before_kill: 1,
            downtime: Duration::from_millis(200),
            calls: 6,
            ids: BTreeSet::from(["id".to_owned()]),
            delivered: 1,
            email: json!({ "id": "id", "timeline": timeline }),
        }
    }

    #[test]
    fn a_burst_of_duplicates_is_one_row_with_a_mark_for_each_call() {
        let story = [
            (0, "accepted"),
            (10, DUPLICATE),
            (20, "the server is killed (kill -9)"),
            (60, DUPLICATE),
            (150, DUPLICATE),
            (500, DUPLICATE),
            (600, "final state: sent"),
        ];
        let page = page(&storm_with(&story));
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("<tr class=\"stopped\">")).collect();
        let [burst, single] = &rows[..] else { panic!("{page}") };
        // The kill in between does not part the calls: each follows the one before it within 100 ms.
        assert!(burst.contains(&format!("{DUPLICATE}, 3 times")), "{burst}");
        assert_eq!((burst.matches("<i ").count(), single.matches("<i ").count()), (3, 1), "{page}");
        assert!(single.contains(&format!("<td>{DUPLICATE}</td>")), "{single}");
        let places: Vec<usize> =
            ["<td>accepted", "3 times", "kill -9", "final state"].iter().map(|step| page.find(step).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?} {page}");
    }

    #[test]
    fn the_axis_has_the_ticks_of_the_dashboard() {
        let axis = |end: i64| {
            Axis::of(storm_with(&[(0, "accepted"), (end, "final state: sent")]).email["timeline"].as_array().unwrap())
        };
        let labels = |end: i64| axis(end).ticks().into_iter().map(duration).collect::<Vec<_>>();
        // At 600 ms, the tick of 1 ms would touch that of 0.
        assert_eq!(labels(600), ["0 ms", "10 ms", "100 ms", "600 ms"]);
        assert_eq!(labels(2_500), ["0 ms", "10 ms", "100 ms", "1 s", "2.5 s"]);
        let html = axis(600).render();
        assert!(html.starts_with("<span style=\"left:0.00%;transform:translateX(-0.00%)\">0</span>"), "{html}");
        assert!(html.ends_with("left:100.00%;transform:translateX(-100.00%)\">600 ms</span>"), "{html}");
    }
}
