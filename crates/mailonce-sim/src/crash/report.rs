//! What a campaign came to, in the form in which every rig leaves its figures.

use super::board::Board;
use super::table::{Class, ROWS, Row, Store};
use crate::report::summary::{Run, Summary};
use anyhow::Result;
use std::path::Path;

/// How a cell that cannot be reached is shown.
const IMPOSSIBLE: &str = "·";

/// A campaign that leaves figures while it runs.
#[derive(Debug)]
pub struct Ledger<'a> {
    /// Where.
    pub dir: &'a Path,
    /// The run.
    pub run: Run,
    /// The columns of the table.
    pub parts: Vec<(Store, Class)>,
}

impl Ledger<'_> {
    /// Writes what was counted so far.
    pub fn write(&self, board: &Board) -> Result<()> {
        self.kills(board)?.write(self.dir)?;
        if board.counts().judged_twice > 0 {
            self.opinions(board).write(self.dir)?;
        }
        Ok(())
    }

    /// Kills and stops, and every point with where it was reached.
    fn kills(&self, board: &Board) -> Result<Summary> {
        let (mut summary, counts) = (self.run.over(), board.counts());
        summary.count("kills", counts.kills + counts.others);
        summary.count("stops", counts.stops);
        summary.count("rounds", counts.rounds);
        summary.count("emails", counts.emails);
        summary.count("acceptances", counts.taken);
        summary.seeds = counts.seeds.into();
        summary.violations = counts.violations.into_iter().map(Into::into).collect();
        let titles = self.parts.iter().map(|(store, class)| format!("{} {class}", store.word()));
        summary.table.push(std::iter::once("point".to_owned()).chain(titles).collect());
        summary.table.extend(ROWS.iter().map(|row| self.row(board, row)));
        summary.state = board.state()?;
        Ok(summary)
    }

    fn row(&self, board: &Board, row: &Row) -> Vec<String> {
        let cell = |(store, class): &(Store, Class)| match row.obstacle(*store, *class) {
            Some(_) => IMPOSSIBLE.to_owned(),
            None => board.hits((row.point, *store, *class)).to_string(),
        };
        std::iter::once(row.point.to_owned()).chain(self.parts.iter().map(cell)).collect()
    }

    /// What the second judge found.
    fn opinions(&self, board: &Board) -> Summary {
        let counts = board.counts();
        let mut summary = Summary { rig: "judge".to_owned(), ..self.run.over() };
        summary.count("histories", counts.judged_twice);
        summary.count("promises", counts.opinions.len() as u64);
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
    fn a_campaign_that_was_cut_goes_on_with_what_it_counted() {
        let dir = tempfile::tempdir().unwrap();
        let board = Board::default();
        let cell = ("after-marker", Store::Sqlite, Class::Smtp);
        board.hit(cell, false);
        board.hit(cell, true);
        board.count(|counts| {
            (counts.others, counts.judged_twice) = (2, 1);
            counts.violations.push("a second mail".into());
            counts.opinions.insert("P3".into(), (0, 1));
        });
        let ledger = Ledger { dir: dir.path(), run: Run::of("kills"), parts: vec![(Store::Sqlite, Class::Smtp)] };
        ledger.write(&board).unwrap();
        let (run, state) = Run::resume("kills", dir.path()).unwrap();
        let board = Board::resume(state).unwrap();
        board.hit(cell, false);
        Ledger { run, ..ledger }.write(&board).unwrap();
        let all = Summary::read_all(dir.path()).unwrap();
        assert_eq!((all["kills"].counts["kills"], all["kills"].counts["stops"]), (4, 1));
        assert!(all["kills"].table.contains(&vec!["after-marker".to_owned(), "2+1".to_owned()]));
        assert!(all["kills"].table.contains(&vec!["http-connected".to_owned(), IMPOSSIBLE.to_owned()]));
        assert_eq!((all["kills"].violations.len(), all["judge"].violations.len()), (1, 1));
    }
}
