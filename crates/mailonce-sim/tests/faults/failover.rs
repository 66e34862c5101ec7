//! Failovers to a synchronous standby under load, in short. `mailonce-failover` is the long form.

use mailonce_sim::{
    failover::campaign::Plan,
    rig::chance::{asked, seed},
};

use crate::beside::play;
use crate::setting::{binary, children, proof};

#[test]
fn nothing_acknowledged_is_lost_by_a_failover() {
    play("failover::nothing_acknowledged_is_lost_by_a_failover");
}

pub(crate) fn fails_over() {
    let (seed, binary) = (seed(), binary());
    let plan = Plan { failovers: 2 * asked("MAILONCE_STORMS", 1), seed, binary: &binary, children: children() };
    let report = plan.run().unwrap_or_else(|why| panic!("seed {seed}: {why:#}"));
    let named: Vec<(String, u64)> =
        report.counts.iter().map(|(name, count)| (format!("failover_{name}"), *count)).collect();
    let named: Vec<(&str, u64)> = named.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    proof().add(seed, &named, &report.violations).unwrap();
    let shown: Vec<_> = report.violations.iter().take(10).cloned().collect();
    assert!(
        shown.is_empty(),
        "{} violations:\n{}\nreplay: MAILONCE_SEED={seed} cargo test -p mailonce-sim --test faults failover",
        report.violations.len(),
        shown.join("\n")
    );
    assert!(report.counts["cursor_resets"] > 0, "no reader was told to begin anew");
}
