//! SQLite keeps acknowledged emails after power cuts, and a server that does not sync is detected.

use mailonce_sim::crash::{
    coverage::CoverageBoard,
    failpoints::StoreKind,
    kills_under_load::{KillsUnderLoad, LoadKillReport, LoadRound},
};
use mailonce_sim::harness::{
    disk_faults::{DiskFault, FaultyDisk, build_shim},
    http,
    power_cut::PowerSupply,
    rng::{SeededRng, env_number_or, seed_from_env},
    server::{ServerProcess, ServerSetup},
    server_fixture::sample_mail,
    summary_writer::print_line,
};
use mailonce_store::sqlite::Sqlite;
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use crate::fixtures::{binary, child_processes, summary_writer, temp_dir};
use crate::parallel_scenarios::run_scenario;

/// Power cuts of a short campaign.
const POWER_CUTS: u64 = 40;
/// How long a sync takes, so that cuts interrupt some.
const SYNC_MICROS: u64 = 2_000;
/// Cuts within which a server that does not sync must be detected.
const CUTS_TO_DETECT: u32 = 20;

/// How long a server takes to exit after a failed sync.
const EXIT_TIMEOUT: Duration = Duration::from_mins(2);

/// A disk for a data directory in `root`.
fn faulty_disk(root: &Path) -> (PathBuf, FaultyDisk) {
    // Scenarios run in parallel and share the shim.
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    let data = root.join("data");
    std::fs::create_dir(&data).unwrap();
    let shim = SHIM.get_or_init(|| build_shim(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap()).clone();
    let disk = FaultyDisk::new(shim, &data, root).unwrap();
    (data, disk)
}

fn check_sqlite_files(folder: &Path) -> anyhow::Result<Vec<String>> {
    Ok(Sqlite::check_integrity(folder)?)
}

/// Cuts the power `cuts` times. Syncs of files with the suffix `unsynced` do nothing.
fn run_power_cut_round(seed: u64, cuts: u32, unsynced: Option<&'static str>) -> Result<LoadKillReport, String> {
    let (root, binary) = (temp_dir(), binary());
    let (data, disk) = faulty_disk(root.path());
    let power = PowerSupply {
        disk: &disk,
        data: &data,
        folder: root.path().join("power"),
        sync_micros: SYNC_MICROS,
        unsynced_suffix: unsynced,
        check_files: check_sqlite_files,
    };
    let board = CoverageBoard::default();
    let round = KillsUnderLoad {
        children: child_processes(),
        binary: &binary,
        data: &data,
        store: None,
        disk: Some(&disk),
        power: Some(&power),
        board: &board,
        seed,
        kills: cuts,
    };
    let report = round.run();
    if report.as_ref().map_or(true, |report| !report.violations.is_empty()) && unsynced.is_none() {
        print_line(&format!("the data is in {}", root.keep().display()));
    }
    report.map_err(|why| format!("{why:#}"))
}

#[test]
fn acknowledged_emails_survive_power_cuts() {
    run_scenario("power::acknowledged_emails_survive_power_cuts");
}

pub(crate) fn run_power_cuts() {
    let cuts = env_number_or("MAILONCE_CUTS", POWER_CUTS);
    for LoadRound { seed, kills: cuts, .. } in LoadRound::split(StoreKind::Sqlite, seed_from_env(), cuts) {
        let replay = format!(
            "replay: MAILONCE_SEED={seed} MAILONCE_CUTS={cuts} cargo test -p mailonce-sim --test faults power::what"
        );
        let report = run_power_cut_round(seed, cuts, None).unwrap_or_else(|why| panic!("{why}\n{replay}"));
        let broken: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
        print_line(&format!("power cuts: {report}; {} (seed {seed})", report.power_loss));
        let counts = [
            ("power_cuts", u64::from(report.kills)),
            ("power_answered", report.counts.answered),
            ("power_writes_unsynced", report.power_loss.unsynced),
            ("power_writes_dropped", report.power_loss.dropped),
            ("power_writes_torn", report.power_loss.torn),
            ("power_emails", report.emails as u64),
        ];
        summary_writer().add(seed, &counts, &broken).unwrap();
        assert!(broken.is_empty(), "{}\n{replay}", broken.join("\n"));
        assert!(report.counts.answered > 0, "nothing was answered: {report}");
        // A cut that lost no writes proves nothing.
        assert!(cuts < 20 || (report.power_loss.dropped > 0 && report.power_loss.torn > 0), "{}", report.power_loss);
    }
}

#[test]
fn an_unsynced_wal_is_detected() {
    run_scenario("power::an_unsynced_wal_is_detected");
}

pub(crate) fn run_without_sync() {
    let seed = seed_from_env();
    let report = run_power_cut_round(seed, CUTS_TO_DETECT, Some("-wal"));
    let summary = match &report {
        Ok(report) => report.violations.iter().take(3).map(ToString::to_string).collect::<Vec<_>>().join("; "),
        Err(why) => why.clone(),
    };
    print_line(&format!("without sync: {summary} (seed {seed})"));
    let lost = report.as_ref().is_ok_and(|report| !report.violations.is_empty());
    // The checkpoint copies unsynced pages, so the database file itself may be torn.
    let gone = report.as_ref().is_err_and(|why| why.contains("after a power cut"));
    summary_writer().add(seed, &[("mutants_convicted", u64::from(lost || gone))], &[]).unwrap();
    assert!(lost || gone, "{CUTS_TO_DETECT} cuts without any sync of the log, and nothing was missed (seed {seed})");
}

#[test]
fn replies_after_a_failed_sync_survive_a_power_cut() {
    run_scenario("power::replies_after_a_failed_sync_survive_a_power_cut");
}

/// A commit cannot be synced, the server exits and is restarted as by a supervisor, a retry is answered, and the power
/// is cut at once.
pub(crate) fn run_failed_sync() {
    let (root, binary) = (temp_dir(), binary());
    let (data, disk) = faulty_disk(root.path());
    let power = PowerSupply {
        disk: &disk,
        data: &data,
        folder: root.path().join("power"),
        sync_micros: 0,
        unsynced_suffix: None,
        check_files: check_sqlite_files,
    };
    let start = |env: &[_]| -> ServerProcess {
        ServerSetup { binary: &binary, data: &data, store: None, paused: true, env }.start(child_processes()).unwrap()
    };
    let send =
        |server: &ServerProcess, n: usize| http::post(server.at, "/v1/emails", Some(&format!("k{n}")), &sample_mail(n));
    power.snapshot_files().unwrap();
    let mut server = start(&power.env());
    assert_eq!(send(&server, 0).unwrap().status, 202);
    disk.set(DiskFault::Sync { skip: 0, times: None, suffix: Some("-wal") }).unwrap();
    if let Ok(refused) = send(&server, 1) {
        assert_eq!(refused.status, 503, "{}", refused.body);
    }
    assert!(server.wait_for_exit(EXIT_TIMEOUT).unwrap().is_some(), "it went on without a disk");
    disk.set(DiskFault::None).unwrap();

    let server = start(&power.env());
    let answered: Vec<String> =
        [1, 2].map(|n| send(&server, n).unwrap().body["id"].as_str().unwrap().to_owned()).into();
    server.kill().unwrap();
    power.cut_power(&mut SeededRng::derive(seed_from_env(), &[])).unwrap();

    let server = start(&[]);
    for id in &answered {
        let found = http::get(server.at, &format!("/v1/emails/{id}")).unwrap();
        assert_eq!(found.status, 200, "email {id} was acknowledged: {}", found.body);
    }
    summary_writer().add(seed_from_env(), &[("syncs_failed", 1)], &[]).unwrap();
}
