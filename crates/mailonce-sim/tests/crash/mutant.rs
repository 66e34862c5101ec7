//! A server with a wrong turn in it, to see that the rig notices.

use crate::setting::tools;
use mailonce_sim::crash::{
    board::Board,
    round::Round,
    table::{Class, Store},
    world::Tools,
};
use mailonce_sim::proof::Promise;

/// What was on the wire when the server died is sent again.
const MUTANT: &str = "crash-requeues-sending";

#[test]
fn a_server_that_sends_again_what_was_on_the_wire_is_convicted() {
    let tools = Tools { mutant: Some(MUTANT.into()), judge: None, ..tools(None) };
    let root = tempfile::Builder::new().prefix("mailonce-mutant").tempdir().unwrap();
    let round = Round { store: Store::Sqlite, class: Class::Smtp, seed: 21, short: true, cycles: usize::MAX };
    let judgement = round.play(&tools, &Board::default(), root.path()).unwrap();
    let broken: Vec<Promise> = judgement.violations.iter().map(|violation| violation.rule.promise()).collect();
    assert!(broken.contains(&Promise::P3), "nobody noticed; broken: {broken:?}\n{}", judgement.story);
}
