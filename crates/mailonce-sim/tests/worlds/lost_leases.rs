//! Leases whose replies were lost. The caller lives on and does not know what it holds.

use mailonce_sim::proof::Rule;
use mailonce_sim::world::mutants::{detect, find_mutant};
use mailonce_sim::world::{FaultKind, HopProfile, WorldPlan, run_plan};
use std::collections::BTreeSet;

/// Worlds in which the only fault is lost replies of the ledger.
fn worlds(nodes: usize, hop: HopProfile) -> impl Iterator<Item = WorldPlan> {
    (0..60).map(move |seed| WorldPlan {
        nodes,
        hops: vec![hop],
        sends: 2,
        faults: BTreeSet::from([FaultKind::LostCommit]),
        fault_percent: 60,
        has_long_pauses: false,
        ..WorldPlan::from_seed(seed)
    })
}

fn broken_rules(nodes: usize, hop: HopProfile, mutant: Option<&'static str>) -> Vec<String> {
    let outcomes = worlds(nodes, hop).map(|plan| run_plan(plan, mutant, false));
    outcomes.flat_map(|outcome| outcome.violations).map(|violation| violation.to_string()).collect()
}

#[test]
fn a_lease_whose_reply_was_lost_is_recovered() {
    for hop in [HopProfile::Relay, HopProfile::Keyed(24 * 3_600_000)] {
        assert_eq!(broken_rules(1, hop, None), Vec::<String>::new());
        let violations = broken_rules(1, hop, Some("lost-lease-kept"));
        assert!(violations.iter().any(|found| found.contains("Stuck")), "{violations:?}");
    }
}

#[test]
fn a_new_lease_identity_sends_a_heartbeat_before_it_leases() {
    assert_eq!(broken_rules(2, HopProfile::Relay, None), Vec::<String>::new());
    // Another node must act in the very moment between the lease and the reply, so it takes some worlds.
    let verdict = detect(find_mutant("unheard-name").unwrap(), 1, 2_000);
    assert!(verdict.rules.contains(&Rule::NeedlessDoubt), "{verdict}");
}
