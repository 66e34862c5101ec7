//! Every wrong turn is convicted.

use mailonce_sim::rig::chance::number;
use mailonce_sim::world::mutants::{ALL, Rig, convict_all};
use std::collections::BTreeSet;
use std::path::Path;

/// Worlds that one mutant may survive.
const MOST: u64 = 3_000;
/// Wrong turns at the least.
const LEAST: usize = 60;
/// The first seed, the same every time unless another is asked for: a conviction must not be a matter of luck.
const SEED: u64 = 1;

#[test]
fn every_mutant_is_convicted() {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let seed = number("MAILONCE_SEED").unwrap_or(SEED);
    let verdicts = convict_all(seed, MOST, jobs, |verdict| println!("{verdict}"));
    let survived: Vec<&str> =
        verdicts.iter().filter(|verdict| verdict.worlds.is_none()).map(|verdict| verdict.mutant.name).collect();
    assert!(survived.is_empty(), "{survived:?} survived {MOST} worlds from seed {seed}");
    assert!(verdicts.len() >= LEAST, "{} mutants", verdicts.len());
}

/// The names of wrong turns in the files of a folder.
fn names(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for opening in ["mutant!(\"", "is_on(\""] {
                found.extend(text.split(opening).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            }
        }
    }
}

#[test]
fn every_mutant_in_the_code_is_listed_and_every_listed_one_is_in_the_code() {
    let (crates, mut found) = (Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap(), BTreeSet::new());
    for room in ["mailonce-core", "mailonce-store", "mailonce-engine", "mailonce-sim"] {
        names(&crates.join(room).join("src"), &mut found);
    }
    found.remove("name");
    let listed: BTreeSet<String> =
        ALL.iter().filter(|mutant| mutant.rig == Rig::Worlds).map(|mutant| mutant.name.to_owned()).collect();
    assert_eq!(found, listed);
}
