//! SQLite keeps what it acknowledged when the power goes, and the rig finds out who does not sync.

use mailonce_sim::rig::{
    campaign::{Campaign, Report, rounds, say},
    chance::{Chance, asked, seed},
    fault::{Disk, Fault, build_shim},
    http,
    post::mail,
    power::Power,
    server::{Server, Setup},
};
use mailonce_store::sqlite::Sqlite;
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use crate::beside::play;
use crate::setting::{binary, children, folder, proof};

/// Power cuts of a short campaign.
const CUTS: u64 = 40;
/// How long a sync takes, so that a cut finds some under way.
const SYNC_MICROS: u64 = 2_000;
/// Cuts within which a server that does not sync must be found out.
const FOUND_WITHIN: u32 = 20;

/// How long a server that lost its disk takes to end.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// A disk for a data directory in `root`.
fn disk(root: &Path) -> (PathBuf, Disk) {
    // Scenes are played beside each other, and it is built once for all of them.
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    let data = root.join("data");
    std::fs::create_dir(&data).unwrap();
    let shim = SHIM.get_or_init(|| build_shim(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap()).clone();
    let disk = Disk::new(shim, &data, root).unwrap();
    (data, disk)
}

fn look(folder: &Path) -> anyhow::Result<Vec<String>> {
    Ok(Sqlite::faults_of(folder)?)
}

/// Cuts the power so often, and says what came of it.
fn campaign(name: &str, seed: u64, cuts: u32, forgets: Option<&'static str>) -> Result<Report, String> {
    let (root, binary) = (folder(), binary());
    let (data, disk) = disk(root.path());
    let power =
        Power { disk: &disk, data: &data, folder: root.path().join("power"), sync_micros: SYNC_MICROS, forgets, look };
    let campaign = Campaign {
        name,
        children: children(),
        binary: &binary,
        data: &data,
        store: None,
        disk: Some(&disk),
        power: Some(&power),
        seed,
        kills: cuts,
    };
    let report = campaign.run();
    if report.as_ref().map_or(true, |report| !report.violations.is_empty()) && forgets.is_none() {
        say(&format!("the data is in {}", root.keep().display()));
    }
    report.map_err(|why| format!("{why:#}"))
}

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    play("power::what_was_acknowledged_survives_power_cuts");
}

pub(crate) fn cuts() {
    for (seed, cuts) in rounds(seed(), asked("MAILONCE_CUTS", CUTS)) {
        let replay = format!(
            "replay: MAILONCE_SEED={seed} MAILONCE_CUTS={cuts} cargo test -p mailonce-sim --test faults power::what"
        );
        let report = campaign("power cuts", seed, cuts, None).unwrap_or_else(|why| panic!("{why}\n{replay}"));
        let broken: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
        say(&format!("power cuts: {report}; {} (seed {seed})", report.taken));
        let counts = [
            ("power_cuts", u64::from(report.kills)),
            ("power_answered", report.counts.answered),
            ("power_writes_unsynced", report.taken.unsynced),
            ("power_writes_dropped", report.taken.dropped),
            ("power_writes_torn", report.taken.torn),
            ("power_emails", report.emails as u64),
        ];
        proof().add(seed, &counts, &broken).unwrap();
        assert!(broken.is_empty(), "{}\n{replay}", broken.join("\n"));
        assert!(report.counts.answered > 0, "nothing was answered: {report}");
        // A cut that found nothing to take proves nothing.
        assert!(cuts < 20 || (report.taken.dropped > 0 && report.taken.torn > 0), "{}", report.taken);
    }
}

#[test]
fn a_log_that_is_not_synced_is_found_out() {
    play("power::a_log_that_is_not_synced_is_found_out");
}

pub(crate) fn does_not_sync() {
    let seed = seed();
    let report = campaign("without sync", seed, FOUND_WITHIN, Some("-wal"));
    let told = match &report {
        Ok(report) => report.violations.iter().take(3).map(ToString::to_string).collect::<Vec<_>>().join("; "),
        Err(why) => why.clone(),
    };
    say(&format!("without sync: {told} (seed {seed})"));
    let lost = report.as_ref().is_ok_and(|report| !report.violations.is_empty());
    // The checkpoint moves what was never safe, so that the file itself may be torn.
    let gone = report.as_ref().is_err_and(|why| why.contains("after a power cut"));
    proof().add(seed, &[("mutants_convicted", u64::from(lost || gone))], &[]).unwrap();
    assert!(lost || gone, "{FOUND_WITHIN} cuts without any sync of the log, and nothing was missed (seed {seed})");
}

#[test]
fn what_is_answered_after_a_failed_sync_survives_a_power_cut() {
    play("power::what_is_answered_after_a_failed_sync_survives_a_power_cut");
}

/// A commit cannot be synced, the server ends and is started again as a supervisor would, a retry is answered, and the
/// power goes at once.
pub(crate) fn failed_sync() {
    let (root, binary) = (folder(), binary());
    let (data, disk) = disk(root.path());
    let power =
        Power { disk: &disk, data: &data, folder: root.path().join("power"), sync_micros: 0, forgets: None, look };
    let start = |env: &[_]| -> Server {
        Setup { binary: &binary, data: &data, store: None, paused: true, env }.start(children()).unwrap()
    };
    let send = |server: &Server, n: usize| http::post(server.at, "/v1/emails", Some(&format!("k{n}")), &mail(n));
    power.begin().unwrap();
    let mut server = start(&power.env());
    assert_eq!(send(&server, 0).unwrap().status, 202);
    disk.set(Fault::Sync { skip: 0, times: None, suffix: Some("-wal") }).unwrap();
    if let Ok(refused) = send(&server, 1) {
        assert_eq!(refused.status, 503, "{}", refused.body);
    }
    assert!(server.ended(ENDS_WITHIN).unwrap().is_some(), "it went on without a disk");
    disk.set(Fault::None).unwrap();

    let server = start(&power.env());
    let answered: Vec<String> =
        [1, 2].map(|n| send(&server, n).unwrap().body["id"].as_str().unwrap().to_owned()).into();
    server.kill().unwrap();
    power.cut(&mut Chance::at(seed(), &[])).unwrap();

    let server = start(&[]);
    for id in &answered {
        let found = http::get(server.at, &format!("/v1/emails/{id}")).unwrap();
        assert_eq!(found.status, 200, "email {id} was acknowledged: {}", found.body);
    }
    proof().add(seed(), &[("syncs_failed", 1)], &[]).unwrap();
}
