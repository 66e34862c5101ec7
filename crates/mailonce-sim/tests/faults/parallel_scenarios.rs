//! Runs the scenarios in parallel, since they mostly wait. The first test starts all selected scenarios, and each test
//! waits for its own.

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    sync::{Mutex, OnceLock, PoisonError},
    thread::JoinHandle,
};

/// Every scenario, under the path of its test.
const SCENARIOS: [(&str, fn()); 14] = [
    ("database::crash", crate::database::run_crash),
    ("database::network", crate::database::run_network),
    ("database::silence", crate::database::run_silence),
    ("failover::acknowledged_emails_survive_failovers", crate::failover::run_failovers),
    ("standby::a_cursor_from_before_a_failover_is_reset", crate::standby::run_failed_over),
    ("standby::a_cursor_from_before_a_restore_is_reset", crate::standby::run_restored),
    ("standby::no_node_answers_with_unconfirmed_commits", crate::standby::run_unconfirmed),
    ("partition::an_outcome_learned_during_a_partition_is_recorded_when_the_network_heals", crate::partition::run_heal),
    ("partition::mail_of_an_unreachable_worker_is_not_resent", crate::partition::run_take_over),
    ("power::acknowledged_emails_survive_power_cuts", crate::power::run_power_cuts),
    ("power::an_unsynced_wal_is_detected", crate::power::run_without_sync),
    ("power::replies_after_a_failed_sync_survive_a_power_cut", crate::power::run_failed_sync),
    ("stop::no_marker_follows_a_stop_on_sqlite", crate::stop::run_on_sqlite),
    ("stop::no_marker_follows_a_stop_on_two_nodes", crate::stop::run_on_two_nodes),
];

/// Whether a test is selected by the command line.
fn is_selected(path: &str) -> bool {
    let filters: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    filters.is_empty() || filters.iter().any(|filter| path.contains(filter.as_str()))
}

/// Waits for a scenario, and fails if it failed.
pub(crate) fn run_scenario(path: &str) {
    static RUNNING: OnceLock<Mutex<BTreeMap<&str, JoinHandle<()>>>> = OnceLock::new();
    let running = RUNNING.get_or_init(|| {
        let selected = SCENARIOS.into_iter().filter(|(path, _)| is_selected(path));
        Mutex::new(selected.map(|(path, scenario)| (path, std::thread::spawn(scenario))).collect())
    });
    let own = running.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    let scenario = own.unwrap_or_else(|| panic!("there is no scenario {path}"));
    scenario.join().unwrap_or_else(|why| {
        // The output of a scenario belongs to the test that started all of them, and is lost if that one passes.
        let text = why.downcast_ref::<String>().map(String::as_str).or(why.downcast_ref::<&str>().copied());
        eprintln!("{path}: {}", text.unwrap_or("it panicked without a text"));
        resume_unwind(why)
    });
}
