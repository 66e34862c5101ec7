//! Leases whose answers were lost. The process that asked lives on and does not know what it holds.

use mailonce_sim::world::{Class, FaultKind, Plan, run_plan};
use std::collections::BTreeSet;

/// Worlds in which nothing goes wrong but answers of the ledger.
fn worlds(nodes: usize, hop: Class) -> impl Iterator<Item = Plan> {
    (0..40).map(move |seed| Plan {
        nodes,
        hops: vec![hop],
        wishes: 2,
        faults: BTreeSet::from([FaultKind::LostCommit, FaultKind::LoseReply]),
        rate: 60,
        slow: false,
        ..Plan::of(seed)
    })
}

fn broken(nodes: usize, hop: Class, mutant: Option<&'static str>) -> Vec<String> {
    let outcomes = worlds(nodes, hop).map(|plan| run_plan(plan, mutant, false));
    outcomes.flat_map(|outcome| outcome.violations).map(|violation| violation.to_string()).collect()
}

#[test]
fn a_lease_whose_answer_was_lost_is_taken_over() {
    for hop in [Class::Relay, Class::Keyed(24 * 3_600_000)] {
        assert_eq!(broken(1, hop, None), Vec::<String>::new());
        let kept = broken(1, hop, Some("lost-lease-kept"));
        assert!(kept.iter().any(|found| found.contains("Stuck")), "{kept:?}");
    }
}

#[test]
fn a_new_name_is_heard_of_before_anything_is_leased_under_it() {
    assert_eq!(broken(2, Class::Relay, None), Vec::<String>::new());
    let unheard = broken(2, Class::Relay, Some("unheard-name"));
    assert!(unheard.iter().any(|found| found.contains("NeedlessDoubt")), "{unheard:?}");
}
