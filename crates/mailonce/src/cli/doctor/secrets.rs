//! Where the key encryption key (KEK) lives, and whether it opens the ledger.

use mailonce_engine::access::kek::HOW_TO_MAKE;
use std::path::Path;

use super::DoctorCheck;
use crate::{
    config::Config,
    secrets::{KekSource, KekStatus, UNLOCK_HINT},
};

/// What was found, and whether the ledger can be opened.
pub(super) async fn inspect(config: &Config) -> (Option<DoctorCheck>, bool) {
    // A ledger that cannot be reached is reported by the check of the ledger.
    let Ok(status) = KekStatus::inspect(config).await else { return (None, true) };
    if let Some(why) = status.open_error() {
        return (Some(DoctorCheck::fail("secrets", why, UNLOCK_HINT)), false);
    }
    if let Some(KekSource::File(path)) = &config.secrets.kek
        && is_inside(path, &config.data)
    {
        let found = format!("the KEK in {} lies beside the ledger: whoever copies the folder has both", path.display());
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
        let found = "no key encryption key (KEK): the install secret lies in the ledger, so a copy of the ledger opens \
             every secret in it";
        return DoctorCheck::ok("secrets", found)
            .with_next_step(format!("set [secrets] kek_file to keep the KEK elsewhere; {HOW_TO_MAKE}"));
    };
    let bodies = if seal_bodies { "; bodies of mail are sealed" } else { "; bodies of mail are not sealed" };
    let ledger = match status.wrapped() {
        Some(wrapped) => format!("wraps the ledger's secrets since {}", wrapped.since),
        None => "the next start wraps the ledger's secrets".to_owned(),
    };
    DoctorCheck::ok("secrets", format!("KEK {} from {source}: {ledger}{bodies}", kek.fingerprint()))
}
