//! Kill -9 during accepts, on both engines.
//!
//! `MAILONCE_KILLS=N` asks for more kills, `MAILONCE_SEED=S` for other or the same randomness.

use crate::setting::{Place, binary, children, disk};
use mailonce_sim::rig::campaign::{Campaign, Report, rounds, say};
use mailonce_sim::rig::chance::{kills, seed};
use mailonce_sim::rig::postgres::Postgres;
use std::fmt::Write as _;

/// Kills of a short campaign, on each engine.
const KILLS: u64 = 75;
/// Violations that are shown.
const SHOWN: usize = 10;

#[test]
fn sqlite_keeps_what_it_acknowledged() {
    for (seed, kills) in rounds(seed(), kills(KILLS)) {
        let place = Place::new();
        let report = run("kills on sqlite", &place, None, seed, kills);
        judge(&report, "sqlite", seed, kills, place);
    }
}

#[test]
fn postgres_keeps_what_it_acknowledged() {
    let postgres = Postgres::from_env().unwrap_or_else(|why| panic!("{why:#}"));
    for (seed, kills) in rounds(seed(), kills(KILLS)) {
        let place = Place::new();
        let name = format!("mailonce_kills_{}_{seed}", std::process::id());
        let database = postgres.create(&name).unwrap();
        let report = run("kills on postgres", &place, Some(&database.url), seed, kills);
        judge(&report, "postgres", seed, kills, place);
    }
}

fn run(name: &str, place: &Place, store: Option<&str>, seed: u64, kills: u32) -> Result<Report, String> {
    let (binary, data, disk) = (binary(), place.data(), disk(place));
    let embedded = store.is_none();
    let campaign = Campaign {
        name,
        children: children(),
        binary: &binary,
        data: &data,
        store,
        disk: embedded.then_some(&disk),
        power: None,
        seed,
        kills,
    };
    let report = campaign.run().map_err(|why| format!("{why:#}"));
    assert!(!embedded || kills < 2 || !disk.fired().is_empty(), "the disk was never slow");
    if let Ok(report) = &report {
        say(&format!("{name}: {report} (seed {seed})"));
    }
    report
}

fn judge(report: &Result<Report, String>, engine: &str, seed: u64, kills: u32, place: Place) {
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
