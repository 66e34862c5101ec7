//! Scenes mostly wait: for a silence to be long enough, for a mail to leave. So all of those that are asked for are
//! played beside each other, whichever test comes first, and each test waits for its own.

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    sync::{Mutex, OnceLock, PoisonError},
    thread::JoinHandle,
};

/// Every scene, under the path of its test.
const SCENARIOS: [(&str, fn()); 12] = [
    ("database::crash", crate::database::run_crash),
    ("database::network", crate::database::run_network),
    ("database::silence", crate::database::run_silence),
    ("failover::nothing_acknowledged_is_lost_by_a_failover", crate::failover::run_failovers),
    ("standby::a_reader_from_before_a_failover_begins_anew", crate::standby::run_failed_over),
    ("standby::a_reader_from_before_a_restore_begins_anew", crate::standby::run_restored),
    ("standby::what_no_standby_confirmed_is_answered_by_no_node", crate::standby::run_unconfirmed),
    (
        "partition::what_a_worker_learns_while_it_is_cut_off_is_written_down_when_the_network_heals",
        crate::partition::run_heal,
    ),
    ("partition::nobody_sends_again_what_a_silent_worker_had_on_the_wire", crate::partition::run_take_over),
    ("power::what_was_acknowledged_survives_power_cuts", crate::power::run_power_cuts),
    ("power::a_log_that_is_not_synced_is_found_out", crate::power::run_without_sync),
    ("power::what_is_answered_after_a_failed_sync_survives_a_power_cut", crate::power::run_failed_sync),
];

/// Whether a test is among those that the command asks for.
fn is_selected(path: &str) -> bool {
    let filters: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    filters.is_empty() || filters.iter().any(|filter| path.contains(filter.as_str()))
}

/// Waits until a scene was played, and fails as it did.
pub(crate) fn run_scenario(path: &str) {
    static PLAYING: OnceLock<Mutex<BTreeMap<&str, JoinHandle<()>>>> = OnceLock::new();
    let playing = PLAYING.get_or_init(|| {
        let asked = SCENARIOS.into_iter().filter(|(path, _)| is_selected(path));
        Mutex::new(asked.map(|(path, scenario)| (path, std::thread::spawn(scenario))).collect())
    });
    let own = playing.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    let scenario = own.unwrap_or_else(|| panic!("there is no scene {path}"));
    scenario.join().unwrap_or_else(|why| {
        // The scene's own output belongs to the test that started all scenes, and is lost when that one passes.
        let text = why.downcast_ref::<String>().map(String::as_str).or(why.downcast_ref::<&str>().copied());
        eprintln!("{path}: {}", text.unwrap_or("the scene panicked without a text"));
        resume_unwind(why)
    });
}
