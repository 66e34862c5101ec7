//! A full disk and failing syncs, with SQLite.

use crate::fixtures::{TestDirectory, binary, child_processes, faulty_disk};
use mailonce_sim::harness::child_processes::sleep;
use mailonce_sim::harness::disk_faults::{DiskFault, FaultyDisk};
use mailonce_sim::harness::generated_send::{GeneratedSend, SendKind};
use mailonce_sim::harness::http::{HttpReply, exchange};
use mailonce_sim::harness::ledger_snapshot::LedgerSnapshot;
use mailonce_sim::harness::recorded_load::{RecordedLoad, SharedHistory, poll_until, send_again};
use mailonce_sim::harness::rng::seed_from_env;
use mailonce_sim::harness::send_history::CallOutcome;
use mailonce_sim::harness::server::{ServerProcess, ServerSetup};
use mailonce_sim::harness::summary_writer::print_line;
use mailonce_sim::proof::check;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a server may run after a failed sync.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a server may take to accept again once there is space.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the disk is full.
const DISK_FULL_TIME: Duration = Duration::from_millis(700);
/// How long the load lasts.
const LOAD_TIME: Duration = Duration::from_secs(4);

fn start_server(dir: &TestDirectory, disk: Option<&FaultyDisk>) -> ServerProcess {
    let (binary, data) = (binary(), dir.data());
    let env = disk.map(|disk| disk.env().to_vec()).unwrap_or_default();
    let setup = ServerSetup { binary: &binary, data: &data, store: None, paused: false, env: &env };
    setup.start(child_processes()).unwrap()
}

/// One send apart from the load, under its own key.
fn send_probe(at: SocketAddr, n: u32) -> anyhow::Result<HttpReply> {
    let mut request = Vec::new();
    let kind = SendKind::Single;
    GeneratedSend { cycle: u32::MAX, n, kind }.write_request(0, &mut request);
    exchange(at, &request)
}

/// Retries everything once, and unanswered sends twice, and checks the ledger.
fn retry_and_check(at: SocketAddr, history: &SharedHistory) {
    let (all, open) = {
        let history = history.lock();
        (history.sends_since(0), history.unanswered())
    };
    send_again(at, history, &all.into_iter().collect::<Vec<_>>()).unwrap();
    send_again(at, history, &open.into_iter().collect::<Vec<_>>()).unwrap();
    let mut ledger = LedgerSnapshot::read(at).unwrap();
    // The probes are not in the history.
    let probes: Vec<_> =
        ledger.emails.iter().filter(|row| row.to[0].contains("-4294967295-")).map(|row| row.id.clone()).collect();
    ledger.emails.retain(|row| !probes.contains(&row.id));
    ledger
        .events
        .iter_mut()
        .filter(|event| probes.contains(&event.about))
        .for_each(|event| event.kind = "probe".to_owned());
    let found = check(&history.lock().to_checker_history(&ledger, true));
    let shown: Vec<_> = found.iter().take(10).map(ToString::to_string).collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), shown.join("\n"));
}

/// How many calls from index `from` on created an email, and how many got a `503`.
fn count_accepted_and_503(history: &SharedHistory, from: usize) -> (usize, usize) {
    let history = history.lock();
    let calls = history.calls.get(from..).unwrap_or_default();
    let made = calls.iter().filter(|call| matches!(call.outcome, CallOutcome::Ok { first: true, .. })).count();
    let unavailable = calls.iter().filter(|call| matches!(call.outcome, CallOutcome::Fail { status: 503, .. })).count();
    (made, unavailable)
}

fn assert_unavailable(reply: &HttpReply) {
    assert_eq!((reply.status, reply.body["code"].as_str()), (503, Some("unavailable")), "{reply:?}");
    let wait = reply.header("retry-after").and_then(|value| value.parse::<u32>().ok());
    assert!(wait.is_some_and(|seconds| seconds > 0), "no Retry-After: {reply:?}");
}

#[test]
fn a_full_disk_is_unavailable_until_there_is_space_again() {
    let (dir, history, seed) = (TestDirectory::new(), SharedHistory::default(), seed_from_env());
    let disk = faulty_disk(&dir);
    let mut server = start_server(&dir, Some(&disk));
    let at = server.at;
    let load = RecordedLoad { at, seed, cycle: 0, window: LOAD_TIME };
    let (full, free) = load
        .run(&history, || {
            sleep(Duration::from_millis(250));
            assert_eq!(count_accepted_and_503(&history, 0).1, 0, "503 on a healthy disk");
            disk.set(DiskFault::Full)?;
            // A write in progress when the disk became full may have succeeded.
            sleep(Duration::from_millis(100));
            let full = history.lock().calls.len();
            assert_unavailable(&send_probe(at, 1)?);
            sleep(DISK_FULL_TIME);
            assert_unavailable(&send_probe(at, 2)?);
            let free = history.lock().calls.len();
            disk.set(DiskFault::None)?;
            // The refused key must be free, and is accepted now.
            let recovered = poll_until(RECOVERY_TIMEOUT, || Ok(send_probe(at, 2)?.status == 202))?;
            assert!(recovered, "no accept {} s after there was space again", RECOVERY_TIMEOUT.as_secs());
            Ok((full, free))
        })
        .unwrap_or_else(|why| panic!("seed {seed}: {why:#}\n{}", server.read_log()));
    assert!(!disk.triggered_faults().is_empty(), "the disk was never full");
    let (_, unavailable) = count_accepted_and_503(&history, full);
    let (made, _) = count_accepted_and_503(&history, free);
    assert!(unavailable > 0, "no call got a 503 while the disk was full");
    assert!(made > 0, "nothing of the load was accepted after there was space again");
    assert_eq!(server.wait_for_exit(Duration::ZERO).unwrap(), None, "the server ended: {}", server.read_log());
    retry_and_check(at, &history);
    assert!(server.terminate().unwrap().success());
    // The data is on disk, not only in memory.
    let again = start_server(&dir, None);
    retry_and_check(again.at, &history);
}

/// The result of failing syncs.
struct StopResult {
    /// The system calls that failed.
    failed_calls: Vec<String>,
    /// Calls of the load with a `503`.
    unavailable: usize,
}

/// Loads a server, breaks its syncs, and waits until it stops; then starts it on a healthy disk and checks the ledger.
fn run_until_stopped(fault: DiskFault) -> StopResult {
    let (dir, history, seed) = (TestDirectory::new(), SharedHistory::default(), seed_from_env());
    let disk = faulty_disk(&dir);
    let mut server = start_server(&dir, Some(&disk));
    let load = RecordedLoad { at: server.at, seed, cycle: 0, window: LOAD_TIME };
    let ended = load.run(&history, || {
        sleep(Duration::from_millis(250));
        disk.set(fault)?;
        poll_until(STOP_TIMEOUT, || Ok(!disk.triggered_faults().is_empty()))?;
        let began = Instant::now();
        let ended = server.wait_for_exit(STOP_TIMEOUT)?;
        Ok(ended.map(|status| (status, began.elapsed())))
    });
    let ended = ended.unwrap_or_else(|why| panic!("seed {seed}: {why:#}"));
    let (fired, log) = (disk.triggered_faults(), server.read_log());
    let first = fired.first().expect("no sync was made to fail");
    let (made, unavailable) = count_accepted_and_503(&history, 0);
    let (status, took) = ended.unwrap_or_else(|| {
        let late = STOP_TIMEOUT.as_secs();
        panic!("after `{first}` the server still runs {late} s later, {made} emails accepted (seed {seed}): {log}")
    });
    assert!(status.code().is_some_and(|code| code != 0), "it ended with {status}: {log}");
    print_line(&format!(
        "disk: {} failed, the first `{first}`; {made} emails, {unavailable} times 503; {status} after {} ms",
        fired.len(),
        took.as_millis()
    ));
    drop(server);
    let again = start_server(&dir, None);
    retry_and_check(again.at, &history);
    StopResult { failed_calls: fired, unavailable }
}

#[test]
fn a_disk_that_cannot_sync_stops_the_server() {
    let stopped = run_until_stopped(DiskFault::Sync { skip: 0, times: None, suffix: None });
    assert!(stopped.unavailable > 0, "no call got a 503");
}

#[test]
fn one_failed_sync_of_the_log_is_never_tried_again() {
    let (times, suffix) = (Some(1), Some("ledger.db-wal"));
    let stopped = run_until_stopped(DiskFault::Sync { skip: 5, times, suffix });
    assert_eq!(stopped.failed_calls.len(), 1);
    assert!(stopped.unavailable > 0, "no call got a 503");
}

#[test]
fn one_failed_sync_of_the_file_itself_is_never_tried_again() {
    // Checkpoints run when the server is idle, so there may be no call that gets an error.
    let (times, suffix) = (Some(1), Some("ledger.db"));
    let stopped = run_until_stopped(DiskFault::Sync { skip: 0, times, suffix });
    assert_eq!(stopped.failed_calls.len(), 1);
}
