//! Deaths at every point of the short form.

use crate::setting::tools;
use mailonce_sim::crash::{
    board::Board,
    campaign::Plan,
    table::{Class, Store},
};
use mailonce_sim::rig::{campaign::say, chance::seed, postgres::Postgres};
use std::path::Path;

/// Deaths that there must be at least.
const KILLS: u64 = 150;
/// Rounds side by side: those on PostgreSQL mostly wait until a silence is long enough.
const JOBS: usize = 6;

#[test]
fn wherever_the_server_dies_nothing_is_twice_and_nothing_is_lost() {
    let postgres = Postgres::from_env().unwrap_or_else(|why| panic!("{why:#}"));
    let (tools, board, seed) = (tools(Some(postgres)), Board::default(), seed());
    let plan = Plan {
        stores: Store::ALL.to_vec(),
        classes: Class::ALL.to_vec(),
        cycles: 0,
        seed,
        jobs: JOBS,
        short: true,
        keep: Path::new(env!("CARGO_TARGET_TMPDIR")).join("crash"),
    };
    let plan = Plan { cycles: plan.every_cell(), ..plan };
    let played = plan.run(&tools, &board, |round, judgement| {
        let word = if judgement.as_ref().is_ok_and(|it| it.violations.is_empty()) { "good" } else { "BAD" };
        say(&format!("{} {} seed {}: {word}; {}", round.store.word(), round.class, round.seed, board.line()));
    });
    say(&board.table(&plan.parts()));
    let counts = board.counts();
    assert!(counts.violations.is_empty(), "seed {seed}\n{}", counts.violations.join("\n\n"));
    played.unwrap_or_else(|why| panic!("seed {seed}: {why:#}"));
    let missing = board.missing(&plan.parts(), true, 1);
    assert!(missing.is_empty(), "seed {seed}: never reached: {missing:?}");
    let kills = counts.kills + counts.others;
    assert!(kills >= KILLS, "only {kills} kills");
}
