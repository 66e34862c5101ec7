//! Kill -9 during accepts, on both engines.
//!
//! `MAILONCE_KILLS=N` asks for more kills, `MAILONCE_SEED=S` for other or the same randomness.

use crate::setting::{TestDirectory, binary, child_processes, faulty_disk};
use mailonce_sim::harness::kill_campaign::{KillCampaign, KillReport, print_line, split_into_rounds};
use mailonce_sim::harness::postgres::PostgresServer;
use mailonce_sim::harness::rng::{kills_from_env, seed_from_env};
use std::fmt::Write as _;

/// Kills of a short campaign, on each engine.
const KILLS: u64 = 75;
/// Violations that are shown.
const SHOWN: usize = 10;

#[test]
fn sqlite_keeps_what_it_acknowledged() {
    for (seed, kills) in split_into_rounds(seed_from_env(), kills_from_env(KILLS)) {
        let place = TestDirectory::new();
        let report = run_campaign("kills on sqlite", &place, None, seed, kills);
        assert_clean(&report, "sqlite", seed, kills, place);
    }
}

#[test]
fn postgres_keeps_what_it_acknowledged() {
    let postgres = PostgresServer::from_env().unwrap_or_else(|why| panic!("{why:#}"));
    for (seed, kills) in split_into_rounds(seed_from_env(), kills_from_env(KILLS)) {
        let place = TestDirectory::new();
        let name = format!("mailonce_kills_{}_{seed}", std::process::id());
        let database = postgres.create_database(&name).unwrap();
        let report = run_campaign("kills on postgres", &place, Some(&database.url), seed, kills);
        assert_clean(&report, "postgres", seed, kills, place);
    }
}

fn run_campaign(
    name: &str,
    place: &TestDirectory,
    store: Option<&str>,
    seed: u64,
    kills: u32,
) -> Result<KillReport, String> {
    let (binary, data, disk) = (binary(), place.data(), faulty_disk(place));
    let embedded = store.is_none();
    let campaign = KillCampaign {
        name,
        children: child_processes(),
        binary: &binary,
        data: &data,
        store,
        disk: embedded.then_some(&disk),
        power: None,
        seed,
        kills,
    };
    let report = campaign.run().map_err(|why| format!("{why:#}"));
    assert!(!embedded || kills < 2 || !disk.triggered_faults().is_empty(), "the disk was never slow");
    if let Ok(report) = &report {
        print_line(&format!("{name}: {report} (seed {seed})"));
    }
    report
}

fn assert_clean(report: &Result<KillReport, String>, engine: &str, seed: u64, kills: u32, place: TestDirectory) {
    let mut wrong = match report {
        Err(why) => why.clone(),
        Ok(report) if !report.violations.is_empty() => {
            let shown = report.violations.iter().take(SHOWN);
            shown.fold(format!("{report}\n"), |mut text, violation| {
                writeln!(text, "  {violation}").unwrap();
                text
            })
        }
        Ok(report) => {
            assert!(report.counts.answered > 0, "nothing was answered: {report}");
            assert!(report.counts.unknown >= u64::from(kills), "the kills missed: {report}");
            return;
        }
    };
    writeln!(wrong, "\nthe data is in {}", place.keep().display()).unwrap();
    panic!(
        "{wrong}replay: MAILONCE_SEED={seed} MAILONCE_KILLS={kills} \
         cargo test -p mailonce-sim --test it kills::{engine} -- --nocapture"
    );
}
