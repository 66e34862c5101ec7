//! Counts which failpoints were reached and what the rounds found; prints the progress line, the table and the summary.

use crate::crash::failpoints::{HopClass, POINTS, PointRow, StoreKind};
use anyhow::Result;
use comfy_table::Table;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A cell of the table: failpoint, store and class of next hop.
pub type CoverageCell = (&'static str, StoreKind, HopClass);

/// How often a cell was reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellHits {
    /// Kills.
    pub kills: u64,
    /// Stops.
    pub stops: u64,
}

/// Totals of all rounds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CampaignCounts {
    /// Rounds that were checked.
    pub rounds: u64,
    /// Kills at a failpoint.
    pub kills: u64,
    /// Stops at a failpoint.
    pub stops: u64,
    /// Kills at any other moment.
    pub others: u64,
    /// Cycles that did not reach their failpoint.
    pub misses: u64,
    /// Emails.
    pub emails: u64,
    /// Mails that sinks accepted.
    pub taken: u64,
    /// The seeds of the campaigns.
    pub seeds: Vec<u64>,
    /// For each invariant, the number of histories in which the second checker found it kept, and broken.
    pub opinions: BTreeMap<String, (u64, u64)>,
    /// Histories that both checkers checked.
    pub judged_twice: u64,
    /// Violations, each with the log of its round and the command that replays it.
    pub violations: Vec<String>,
}

#[derive(Debug, Default)]
struct CoverageState {
    counts: CampaignCounts,
    cells: BTreeMap<CoverageCell, CellHits>,
}

/// The counts as they are saved between runs.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SavedCoverage {
    counts: CampaignCounts,
    cells: Vec<(String, StoreKind, HopClass, CellHits)>,
}

/// The counts of a campaign, shared by its rounds.
#[derive(Debug)]
pub struct CoverageBoard {
    started_at: Instant,
    state: Mutex<CoverageState>,
}

impl Default for CoverageBoard {
    fn default() -> Self {
        Self { started_at: Instant::now(), state: Mutex::default() }
    }
}

impl CoverageBoard {
    /// Continues with the counts that [`Self::save`] returned.
    pub fn resume(state: Value) -> Result<Self> {
        let SavedCoverage { counts, cells } = serde_json::from_value(state)?;
        let known = |name: &str| POINTS.iter().map(|row| row.point).find(|point| *point == name);
        let cell = |(name, store, class, hits): (String, StoreKind, HopClass, CellHits)| {
            Some(((known(&name)?, store, class), hits))
        };
        let cells = cells.into_iter().filter_map(cell).collect();
        Ok(Self { state: Mutex::new(CoverageState { counts, cells }), ..Self::default() })
    }

    /// The counts, for [`Self::resume`].
    pub fn save(&self) -> Result<Value> {
        let marks = self.lock();
        let cells = marks.cells.iter().map(|((name, store, class), hits)| ((*name).to_owned(), *store, *class, *hits));
        Ok(serde_json::to_value(SavedCoverage { counts: marks.counts.clone(), cells: cells.collect() })?)
    }

    /// How often a cell was reached.
    pub fn cell_hits(&self, cell: CoverageCell) -> CellHits {
        self.lock().cells.get(&cell).copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, CoverageState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a kill or a stop at a failpoint.
    pub fn record_hit(&self, cell: CoverageCell, stopped: bool) {
        let mut marks = self.lock();
        let hits = marks.cells.entry(cell).or_default();
        if stopped {
            hits.stops += 1;
            marks.counts.stops += 1;
        } else {
            hits.kills += 1;
            marks.counts.kills += 1;
        }
    }

    /// Changes the totals.
    pub fn update_counts(&self, change: impl FnOnce(&mut CampaignCounts)) {
        change(&mut self.lock().counts);
    }

    /// The totals so far.
    pub fn counts(&self) -> CampaignCounts {
        self.lock().counts.clone()
    }

    /// The progress line.
    pub fn status_line(&self) -> String {
        let marks = self.lock();
        let CampaignCounts { rounds, kills, stops, others, misses, emails, taken, violations, .. } = &marks.counts;
        format!(
            "{:>5} s  {} kills ({others} not at failpoints), {stops} stops, {misses} misses, {rounds} rounds, {emails} \
             emails, {taken} acceptances, {} violations",
            self.started_at.elapsed().as_secs(),
            kills + others,
            violations.len()
        )
    }

    /// The reachable cells of these columns that were hit fewer than `least` times.
    pub fn missed_cells(&self, parts: &[(StoreKind, HopClass)], short: bool, least: u64) -> Vec<CoverageCell> {
        let marks = self.lock();
        let mut missing = Vec::new();
        for (store, class) in parts {
            for row in crate::crash::failpoints::reachable_points(*store, *class, short) {
                let cell = (row.point, *store, *class);
                let hits = marks.cells.get(&cell).copied().unwrap_or_default();
                if hits.kills + hits.stops < least {
                    missing.push(cell);
                }
            }
        }
        missing
    }

    /// The table of cells as text, with the reasons why some cannot be reached.
    pub fn table(&self, parts: &[(StoreKind, HopClass)]) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        let titles = parts.iter().map(|(store, class)| format!("{}\n{class}", store.as_str()));
        table.set_header(std::iter::once("point".to_owned()).chain(titles));
        let mut reasons: Vec<&str> = Vec::new();
        let marks = self.lock();
        for row in &POINTS {
            let mut line = vec![row.point.to_owned()];
            for (store, class) in parts {
                line.push(match row.unreachable_reason(*store, *class) {
                    Some(why) => {
                        let at = reasons.iter().position(|known| *known == why).unwrap_or_else(|| {
                            reasons.push(why);
                            reasons.len() - 1
                        });
                        format!("({})", (b'a' + at as u8) as char)
                    }
                    None => marks.cells.get(&(row.point, *store, *class)).copied().unwrap_or_default().to_string(),
                });
            }
            table.add_row(line);
        }
        let mut text = format!("{table}\nkills+stops; cells that cannot be reached:\n");
        for (at, why) in reasons.iter().enumerate() {
            // Writing to a `String` cannot fail.
            let _infallible = writeln!(text, "  ({}) {why}", (b'a' + at as u8) as char);
        }
        text
    }

    /// The table and the totals as JSON.
    pub fn summary(&self, parts: &[(StoreKind, HopClass)]) -> Value {
        let marks = self.lock();
        let cell = |row: &'static PointRow, store: StoreKind, class: HopClass| {
            let hits = marks.cells.get(&(row.point, store, class)).copied().unwrap_or_default();
            json!({"point": row.point, "store": store, "class": class, "kills": hits.kills, "stops": hits.stops,
                "impossible": row.unreachable_reason(store, class)})
        };
        let cells: Vec<Value> = POINTS
            .iter()
            .flat_map(|row| parts.iter().map(move |(s, c)| (row, *s, *c)))
            .map(|(r, s, c)| cell(r, s, c))
            .collect();
        let CampaignCounts { rounds, kills, stops, others, misses, emails, taken, violations, .. } = &marks.counts;
        json!({
            "seconds": self.started_at.elapsed().as_secs(), "rounds": rounds, "kills": kills + others,
            "kills_at_points": kills, "kills_beside_points": others, "stops": stops, "misses": misses,
            "emails": emails, "acceptances": taken, "violations": violations, "cells": cells,
        })
    }
}

impl std::fmt::Display for CellHits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self { kills: 0, stops: 0 } => write!(f, "-"),
            Self { kills, stops: 0 } => write!(f, "{kills}"),
            Self { kills, stops } => write!(f, "{kills}+{stops}"),
        }
    }
}
