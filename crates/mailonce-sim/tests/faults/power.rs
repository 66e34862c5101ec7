//! SQLite keeps what it acknowledged when the power goes, and the rig finds out who does not sync.

use mailonce_sim::rig::{
    campaign::{Campaign, Report, rounds, say},
    chance::{asked, seed},
    fault::{Disk, build_shim},
    power::Power,
};
use mailonce_store::sqlite::Sqlite;
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::beside::play;
use crate::setting::{binary, children, folder, proof};

/// Power cuts of a short campaign.
const CUTS: u64 = 40;
/// How long a sync takes, so that a cut finds some under way.
const SYNC_MICROS: u64 = 2_000;
/// Cuts within which a server that does not sync must be found out.
const FOUND_WITHIN: u32 = 20;

/// Cuts the power so often, and says what came of it.
fn campaign(name: &str, seed: u64, cuts: u32, forgets: Option<&'static str>) -> Result<Report, String> {
    // Scenes are played beside each other, and it is built once for all of them.
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    let (root, binary) = (folder(), binary());
    let data = root.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let shim = SHIM.get_or_init(|| build_shim(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap()).clone();
    let disk = Disk::new(shim, &data, root.path()).unwrap();
    let look = |folder: &Path| Sqlite::faults_of(folder).map_err(anyhow::Error::from);
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
