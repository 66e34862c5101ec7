//! A server with a wrong turn in it, to see that the rig notices.

use crate::setting::tools;
use mailonce_sim::crash::{
    board::Board,
    round::Round,
    table::{Class, Store},
    world::Tools,
};
use mailonce_sim::proof::Promise;

/// Plays a short round with a mutant, and fails unless it breaks a promise.
fn convict(mutant: &str, class: Class, promise: Promise) {
    let tools = Tools { mutant: Some(mutant.into()), judge: None, ..tools(None) };
    let root = tempfile::Builder::new().prefix("mailonce-mutant").tempdir().unwrap();
    let round = Round { store: Store::Sqlite, class, seed: 21, short: true, cycles: usize::MAX };
    let judgement = round.play(&tools, &Board::default(), root.path()).unwrap();
    let broken: Vec<Promise> = judgement.violations.iter().map(|violation| violation.rule.promise()).collect();
    assert!(broken.contains(&promise), "nobody noticed; broken: {broken:?}\n{}", judgement.story);
}

#[test]
fn a_server_that_sends_again_what_was_on_the_wire_is_convicted() {
    convict("crash-requeues-sending", Class::Smtp, Promise::P3);
}

#[test]
fn a_server_that_answers_a_message_again_is_convicted() {
    convict("answered-twice", Class::Inbound, Promise::P1);
}
