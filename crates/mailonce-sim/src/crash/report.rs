//! The results of a campaign, in the format that `docs/proof.md` is made from.

use crate::crash::coverage::CoverageBoard;
use crate::crash::failpoints::{HopClass, POINTS, PointRow, StoreKind};
use crate::report::summary::{RunSummary, TestRun};
use anyhow::Result;
use std::path::Path;

/// How the table shows a cell that cannot be reached.
const UNREACHABLE_CELL: &str = "·";

/// Writes the results of a campaign while it runs.
#[derive(Debug)]
pub struct CampaignReport<'a> {
    /// The folder.
    pub dir: &'a Path,
    /// The run.
    pub run: TestRun,
    /// The columns of the table.
    pub columns: Vec<(StoreKind, HopClass)>,
}

impl CampaignReport<'_> {
    /// Writes the results so far.
    pub fn write(&self, board: &CoverageBoard) -> Result<()> {
        self.kill_summary(board)?.write(self.dir)?;
        if board.counts().judged_twice > 0 {
            self.second_checker_summary(board).write(self.dir)?;
        }
        Ok(())
    }

    /// Kills and stops, with the table of failpoints.
    fn kill_summary(&self, board: &CoverageBoard) -> Result<RunSummary> {
        let (mut summary, counts) = (self.run.summary(), board.counts());
        summary.add_count("kills", counts.kills + counts.others);
        summary.add_count("stops", counts.stops);
        summary.add_count("rounds", counts.rounds);
        summary.add_count("emails", counts.emails);
        summary.add_count("acceptances", counts.taken);
        summary.seeds = counts.seeds.into();
        summary.violations = counts.violations.into_iter().map(Into::into).collect();
        let titles = self.columns.iter().map(|(store, class)| format!("{} {class}", store.as_str()));
        summary.table.push(std::iter::once("point".to_owned()).chain(titles).collect());
        summary.table.extend(POINTS.iter().map(|row| self.row(board, row)));
        summary.state = board.save()?;
        Ok(summary)
    }

    fn row(&self, board: &CoverageBoard, row: &PointRow) -> Vec<String> {
        let cell = |(store, class): &(StoreKind, HopClass)| match row.unreachable_reason(*store, *class) {
            Some(_) => UNREACHABLE_CELL.to_owned(),
            None => board.cell_hits((row.point, *store, *class)).to_string(),
        };
        std::iter::once(row.point.to_owned()).chain(self.columns.iter().map(cell)).collect()
    }

    /// The results of the second checker.
    fn second_checker_summary(&self, board: &CoverageBoard) -> RunSummary {
        let counts = board.counts();
        let mut summary = RunSummary { rig: "judge".to_owned(), ..self.run.summary() };
        summary.add_count("histories", counts.judged_twice);
        summary.add_count("promises", counts.opinions.len() as u64);
        summary.seeds = counts.seeds.into();
        summary.table.push(["promise", "held in", "broken in"].map(str::to_owned).to_vec());
        for (promise, (held, broken)) in &counts.opinions {
            summary.table.push(vec![promise.clone(), held.to_string(), broken.to_string()]);
            if *broken > 0 {
                summary.violations.push(format!("{promise} in {broken} histories").into());
            }
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_campaign_continues_with_its_counts() {
        let dir = tempfile::tempdir().unwrap();
        let board = CoverageBoard::default();
        let cell = ("after-marker", StoreKind::Sqlite, HopClass::Smtp);
        board.record_hit(cell, false);
        board.record_hit(cell, true);
        board.update_counts(|counts| {
            (counts.others, counts.judged_twice) = (2, 1);
            counts.violations.push("a second mail".into());
            counts.opinions.insert("P3".into(), (0, 1));
        });
        let ledger = CampaignReport {
            dir: dir.path(),
            run: TestRun::start("kills"),
            columns: vec![(StoreKind::Sqlite, HopClass::Smtp)],
        };
        ledger.write(&board).unwrap();
        let (run, state) = TestRun::resume("kills", dir.path()).unwrap();
        let board = CoverageBoard::resume(state).unwrap();
        board.record_hit(cell, false);
        CampaignReport { run, ..ledger }.write(&board).unwrap();
        let all = RunSummary::read_all(dir.path()).unwrap();
        assert_eq!((all["kills"].counts["kills"], all["kills"].counts["stops"]), (4, 1));
        assert!(all["kills"].table.contains(&vec!["after-marker".to_owned(), "2+1".to_owned()]));
        assert!(all["kills"].table.contains(&vec!["http-connected".to_owned(), UNREACHABLE_CELL.to_owned()]));
        assert_eq!((all["kills"].violations.len(), all["judge"].violations.len()), (1, 1));
    }
}
