//! The figures for people (a table) and for programs (JSON).

use crate::args::Args;
use crate::gates::{BenchGate, GateVerdict};
use crate::results::{BenchResults, FigureRow};
use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use std::path::Path;

/// Prints both tables.
pub(crate) fn print(args: &Args, results: &BenchResults, gates: &[BenchGate]) {
    println!("{}", heading(args, results));
    println!("{}", figures_table(results));
    println!("\n{}", gates_table(gates));
    for (name, why) in results.failures() {
        println!("\n{name} could not be measured: {why}");
    }
    for (name, why) in results.skips() {
        println!("\n{name} was not measured: {why}");
    }
}

fn heading(args: &Args, results: &BenchResults) -> String {
    let rounds = match args.rounds() {
        1 => "one round".to_owned(),
        rounds => format!("median of {rounds} rounds"),
    };
    let fsync = results.row("fsync").map(FigureRow::medians).unwrap_or_default();
    format!(
        "{} cores, {} connections, bodies of about 1 KB, {rounds}; a 4 KB write made durable takes {} (p99 {})",
        cores(),
        args.connections,
        millis(fsync.p50_ms),
        millis(fsync.p99_ms),
    )
}

fn figures_table(results: &BenchResults) -> Table {
    let mut table = table(&["figure", "rate", "p50", "p95", "p99", "max", "memory", "serving"]);
    for row in results.rows.iter().filter(|row| row.name != "fsync") {
        let medians = row.medians();
        table.add_row([
            row.name.clone(),
            if row.skipped.is_some() { "not measured".to_owned() } else { rate(medians.rate, row.unit) },
            millis(medians.p50_ms),
            millis(medians.p95_ms),
            millis(medians.p99_ms),
            millis(medians.max_ms),
            medians.rss_mb.map_or_else(String::new, |mb| format!("{mb:.0} MB")),
            millis(medians.serving_ms),
        ]);
    }
    align(&mut table, 1..8);
    table
}

fn gates_table(gates: &[BenchGate]) -> Table {
    let mut table = table(&["gate", "measured", "must be", "wanted", ""]);
    for gate in gates {
        let sign = if gate.at_least { '≥' } else { '≤' };
        let amount = |value: f64| match gate.unit {
            "×" => format!("{value:.2} ×"),
            unit => format!("{value:.0} {unit}"),
        };
        let verdict = match gate.verdict {
            GateVerdict::Goal => "pass, goal reached",
            GateVerdict::Pass => "pass",
            GateVerdict::Fail => "FAIL",
            GateVerdict::Unmeasured => "not measured",
        };
        table.add_row([
            gate.what.clone(),
            gate.value.map_or_else(String::new, |value| show_amount(value, gate.unit)),
            format!("{sign} {}", amount(gate.must)),
            format!("{sign} {}", amount(gate.goal)),
            verdict.to_owned(),
        ]);
    }
    align(&mut table, 1..4);
    table
}

fn show_amount(value: f64, unit: &str) -> String {
    match unit {
        "×" => format!("{value:.2} ×"),
        unit => format!("{value:.1} {unit}"),
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header.to_vec());
    table
}

fn align(table: &mut Table, columns: std::ops::Range<usize>) {
    for index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// A rate with its unit, or nothing.
pub(crate) fn rate(rate: Option<f64>, unit: &str) -> String {
    rate.map_or_else(String::new, |rate| format!("{} {unit}/s", thousands(rate)))
}

fn millis(time: Option<f64>) -> String {
    time.map_or_else(String::new, |time| format!("{time:.*} ms", if time < 10.0 { 2 } else { 1 }))
}

fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

/// Writes everything as JSON: each round, the medians, the gates.
pub(crate) fn write(path: &Path, args: &Args, results: &BenchResults, gates: &[BenchGate]) -> Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    let figures: serde_json::Map<String, Value> =
        results.rows.iter().map(|row| (row.name.clone(), figure(row))).collect();
    let value = json!({
        "cores": cores(),
        "connections": args.connections,
        "rounds": args.rounds(),
        "window_s": args.measured_time().as_secs(),
        "storm": args.storm,
        "emails": args.emails(),
        "queued": args.queued,
        "ledger_emails": args.ledger_emails,
        "figures": figures,
        "gates": gates,
    });
    let text = serde_json::to_string_pretty(&value)? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn figure(row: &FigureRow) -> Value {
    let rounds: Vec<Value> = row
        .rounds
        .iter()
        .map(|round| match round {
            Ok(sample) => json!(sample),
            Err(why) => json!({ "failed": why }),
        })
        .collect();
    if let Some(why) = &row.skipped {
        return json!({ "unit": row.unit, "skipped": why });
    }
    json!({ "unit": row.unit, "median": row.medians(), "rounds": rounds })
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_read_well() {
        assert_eq!(super::rate(Some(1_234_567.8), "emails"), "1,234,568 emails/s");
        assert_eq!(super::rate(Some(999.4), "emails"), "999 emails/s");
        assert_eq!(super::millis(Some(3.456)), "3.46 ms");
        assert_eq!(super::millis(Some(123.45)), "123.5 ms");
        assert_eq!(super::millis(None), "");
    }
}
