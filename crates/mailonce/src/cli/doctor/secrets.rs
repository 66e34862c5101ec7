//! The key encryption key (KEK): where it is kept, and whether it opens the ledger.

use mailonce_engine::access::kek::HOW_TO_MAKE;
use std::path::Path;

use super::DoctorCheck;
use crate::{
    cli::kek_status::KekStatus,
    config::Config,
    secrets::{KekSource, UNLOCK_HINT},
};

/// Checks the KEK. Also returns whether the ledger can be opened.
pub(super) async fn inspect(config: &Config) -> (Option<DoctorCheck>, bool) {
    // The check of the ledger reports a ledger that cannot be reached.
    let Ok(status) = KekStatus::inspect(config).await else { return (None, true) };
    if let Some(why) = status.open_error() {
        return (Some(DoctorCheck::fail("secrets", why, UNLOCK_HINT)), false);
    }
    if let Some(KekSource::File(path)) = &config.secrets.kek
        && is_inside(path, &config.data)
    {
        let found =
            format!("the KEK in {} is in the data directory, so a copy of the directory contains both", path.display());
        return (Some(DoctorCheck::warn("secrets", found, "move it out of the data directory")), true);
    }
    (Some(check(&status, config.secrets.seal_bodies)), true)
}

fn is_inside(path: &Path, folder: &Path) -> bool {
    let resolved = |path: &Path| path.canonicalize().ok();
    resolved(path).zip(resolved(folder)).is_some_and(|(path, folder)| path.starts_with(folder))
}

fn check(status: &KekStatus, seal_bodies: bool) -> DoctorCheck {
    let Some((source, Ok(kek))) = &status.configured else {
        let found = "no key encryption key (KEK): the ledger contains the key to its secrets, so a copy of the ledger \
             reveals them";
        return DoctorCheck::ok("secrets", found)
            .with_next_step(format!("to keep the key elsewhere, set [secrets] kek_file; {HOW_TO_MAKE}"));
    };
    let bodies = if seal_bodies { ", bodies of emails encrypted" } else { ", bodies of emails not encrypted" };
    let ledger = match status.wrapped() {
        Some(wrapped) => format!("encrypts the secrets of the ledger since {}", wrapped.since),
        None => "will encrypt the secrets of the ledger at the next start".to_owned(),
    };
    DoctorCheck::ok("secrets", format!("KEK {} from {source}: {ledger}{bodies}", kek.fingerprint()))
}
