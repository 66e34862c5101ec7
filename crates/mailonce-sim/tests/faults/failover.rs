//! Failovers to a synchronous standby under load, in the short form. `mailonce-failover` is the long form.

use mailonce_sim::{
    failover::campaign::FailoverCampaign,
    harness::rng::{env_number_or, seed_from_env},
};

use crate::fixtures::{binary, child_processes, summary_writer};
use crate::parallel_scenarios::run_scenario;

#[test]
fn acknowledged_emails_survive_failovers() {
    run_scenario("failover::acknowledged_emails_survive_failovers");
}

pub(crate) fn run_failovers() {
    let (seed, binary) = (seed_from_env(), binary());
    let plan = FailoverCampaign {
        failovers: 2 * env_number_or("MAILONCE_STORMS", 1),
        seed,
        binary: &binary,
        children: child_processes(),
    };
    let report = plan.run().unwrap_or_else(|why| panic!("seed {seed}: {why:#}"));
    let named: Vec<(String, u64)> =
        report.counts.iter().map(|(name, count)| (format!("failover_{name}"), *count)).collect();
    let named: Vec<(&str, u64)> = named.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    summary_writer().add(seed, &named, &report.violations).unwrap();
    let shown: Vec<_> = report.violations.iter().take(10).cloned().collect();
    assert!(
        shown.is_empty(),
        "{} violations:\n{}\nreplay: MAILONCE_SEED={seed} cargo test -p mailonce-sim --test faults failover",
        report.violations.len(),
        shown.join("\n")
    );
    assert!(report.counts["cursor_resets"] > 0, "no cursor was reset");
}
