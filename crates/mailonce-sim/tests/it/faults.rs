//! A disk that is full, and a disk that cannot sync, under the embedded engine.

use crate::setting::{Place, binary, children, disk};
use mailonce_sim::proof::check;
use mailonce_sim::rig::campaign::say;
use mailonce_sim::rig::chance::seed;
use mailonce_sim::rig::children::pause;
use mailonce_sim::rig::drive::{Load, Shared, ask_again, until};
use mailonce_sim::rig::fault::{Disk, Fault};
use mailonce_sim::rig::history::End;
use mailonce_sim::rig::http::{Reply, exchange};
use mailonce_sim::rig::ledger::Ledger;
use mailonce_sim::rig::server::{Server, Setup};
use mailonce_sim::rig::wish::{Kind, Wish};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a server with a disk that cannot be trusted may go on.
const STOPS_WITHIN: Duration = Duration::from_secs(8);
/// How long a server may take to accept again when there is space again.
const RECOVERS_WITHIN: Duration = Duration::from_secs(5);
/// How long the disk is full.
const FULL: Duration = Duration::from_millis(700);
/// How long the load lasts.
const WINDOW: Duration = Duration::from_millis(1600);

fn start(place: &Place, disk: Option<&Disk>) -> Server {
    let (binary, data) = (binary(), place.data());
    let env = disk.map(|disk| disk.env().to_vec()).unwrap_or_default();
    let setup = Setup { binary: &binary, data: &data, store: None, paused: false, env: &env };
    setup.start(children()).unwrap()
}

/// One send apart from the load, under a key of its own.
fn probe(at: SocketAddr, n: u32) -> anyhow::Result<Reply> {
    let mut request = Vec::new();
    let kind = Kind::Single;
    Wish { cycle: u32::MAX, n, kind }.write(0, &mut request);
    exchange(at, &request)
}

/// Asks for everything once more, twice for what was never answered, and judges.
fn judge(at: SocketAddr, history: &Shared) {
    let (all, open) = {
        let history = history.lock();
        (history.wishes(0), history.open())
    };
    ask_again(at, history, &all.into_iter().collect::<Vec<_>>()).unwrap();
    ask_again(at, history, &open.into_iter().collect::<Vec<_>>()).unwrap();
    let mut ledger = Ledger::read(at).unwrap();
    // The probes are no part of the history.
    let probes: Vec<_> =
        ledger.emails.iter().filter(|row| row.to[0].contains("-4294967295-")).map(|row| row.id.clone()).collect();
    ledger.emails.retain(|row| !probes.contains(&row.id));
    ledger
        .events
        .iter_mut()
        .filter(|event| probes.contains(&event.about))
        .for_each(|event| event.kind = "probe".to_owned());
    let found = check(&history.lock().proof(&ledger, true));
    let shown: Vec<_> = found.iter().take(10).map(ToString::to_string).collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), shown.join("\n"));
}

/// How many calls of the history from `from` on made an email, and how many were told `503`.
fn made_and_unavailable(history: &Shared, from: usize) -> (usize, usize) {
    let history = history.lock();
    let calls = history.calls.get(from..).unwrap_or_default();
    let made = calls.iter().filter(|call| matches!(call.end, End::Ok { first: true, .. })).count();
    let unavailable = calls.iter().filter(|call| matches!(call.end, End::Fail { status: 503, .. })).count();
    (made, unavailable)
}

fn assert_unavailable(reply: &Reply) {
    assert_eq!((reply.status, reply.body["code"].as_str()), (503, Some("unavailable")), "{reply:?}");
    let wait = reply.header("retry-after").and_then(|value| value.parse::<u32>().ok());
    assert!(wait.is_some_and(|seconds| seconds > 0), "no Retry-After: {reply:?}");
}

#[test]
fn a_full_disk_is_unavailable_until_there_is_space_again() {
    let (place, history, seed) = (Place::new(), Shared::default(), seed());
    let disk = disk(&place);
    let mut server = start(&place, Some(&disk));
    let at = server.at;
    let load = Load { at, seed, cycle: 0, window: WINDOW };
    let (full, free) = load
        .run(&history, || {
            pause(Duration::from_millis(250));
            assert_eq!(made_and_unavailable(&history, 0).1, 0, "503 on a healthy disk");
            disk.set(Fault::Full)?;
            // What was being written when the disk ran full may still have gone through.
            pause(Duration::from_millis(100));
            let full = history.lock().calls.len();
            assert_unavailable(&probe(at, 1)?);
            pause(FULL);
            assert_unavailable(&probe(at, 2)?);
            let free = history.lock().calls.len();
            disk.set(Fault::None)?;
            // The same key that was refused: it must be free, and accepted now.
            let recovered = until(RECOVERS_WITHIN, || Ok(probe(at, 2)?.status == 202))?;
            assert!(recovered, "no accept {} s after there was space again", RECOVERS_WITHIN.as_secs());
            Ok((full, free))
        })
        .unwrap_or_else(|why| panic!("seed {seed}: {why:#}\n{}", server.log()));
    assert!(!disk.fired().is_empty(), "the disk was never full");
    let (_, unavailable) = made_and_unavailable(&history, full);
    let (made, _) = made_and_unavailable(&history, free);
    assert!(unavailable > 0, "nobody was told 503 while the disk was full");
    assert!(made > 0, "nothing of the load was accepted after there was space again");
    assert_eq!(server.ended(Duration::ZERO).unwrap(), None, "the server ended: {}", server.log());
    judge(at, &history);
    assert!(server.stop().unwrap().success());
    // And it is on the disk, not only in memory.
    let again = start(&place, None);
    judge(again.at, &history);
}

/// What a broken disk came to.
struct Stopped {
    /// The calls that failed.
    fired: Vec<String>,
    /// Calls of the load that were told `503`.
    unavailable: usize,
}

/// Loads a server, breaks its syncs, and sees it stop; then starts it on a sound disk and judges what it kept.
fn stops_when(fault: Fault) -> Stopped {
    let (place, history, seed) = (Place::new(), Shared::default(), seed());
    let disk = disk(&place);
    let mut server = start(&place, Some(&disk));
    let load = Load { at: server.at, seed, cycle: 0, window: WINDOW };
    let ended = load.run(&history, || {
        pause(Duration::from_millis(250));
        disk.set(fault)?;
        until(STOPS_WITHIN, || Ok(!disk.fired().is_empty()))?;
        let began = Instant::now();
        let ended = server.ended(STOPS_WITHIN)?;
        Ok(ended.map(|status| (status, began.elapsed())))
    });
    let ended = ended.unwrap_or_else(|why| panic!("seed {seed}: {why:#}"));
    let (fired, log) = (disk.fired(), server.log());
    let first = fired.first().expect("no sync was made to fail");
    let (made, unavailable) = made_and_unavailable(&history, 0);
    let (status, took) = ended.unwrap_or_else(|| {
        let late = STOPS_WITHIN.as_secs();
        panic!("after `{first}` the server still runs {late} s later, {made} emails accepted (seed {seed}): {log}")
    });
    assert!(status.code().is_some_and(|code| code != 0), "it ended with {status}: {log}");
    say(&format!(
        "disk: {} failed, the first `{first}`; {made} emails, {unavailable} times 503; {status} after {} ms",
        fired.len(),
        took.as_millis()
    ));
    drop(server);
    let again = start(&place, None);
    judge(again.at, &history);
    Stopped { fired, unavailable }
}

#[test]
fn a_disk_that_cannot_sync_stops_the_server() {
    let stopped = stops_when(Fault::Sync { skip: 0, times: None, suffix: None });
    assert!(stopped.unavailable > 0, "nobody was told 503");
}

#[test]
fn one_failed_sync_of_the_log_is_never_tried_again() {
    let (times, suffix) = (Some(1), Some("ledger.db-wal"));
    let stopped = stops_when(Fault::Sync { skip: 5, times, suffix });
    assert_eq!(stopped.fired.len(), 1);
    assert!(stopped.unavailable > 0, "nobody was told 503");
}

#[test]
fn one_failed_sync_of_the_file_itself_is_never_tried_again() {
    // The log is moved into the file when it is quiet, so that nobody may be there to be told.
    let (times, suffix) = (Some(1), Some("ledger.db"));
    let stopped = stops_when(Fault::Sync { skip: 0, times, suffix });
    assert_eq!(stopped.fired.len(), 1);
}
