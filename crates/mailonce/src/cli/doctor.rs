//! `doctor`: looks at what there is and says what to mend.

use mailonce_core::port::store::Health;
use mailonce_store::sqlite::{SCHEMA, Sqlite};
use serde_json::json;
use std::{os::unix::fs::PermissionsExt as _, path::Path, process::ExitCode};

use super::{configured, exit, out::Out};
use crate::{
    config::{Config, Flags, StoreAt},
    serve,
};

/// One thing that was looked at.
struct Check {
    name: &'static str,
    well: bool,
    found: String,
    mend: &'static str,
}

impl Check {
    fn well(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, well: true, found: found.into(), mend: "" }
    }

    fn ill(name: &'static str, found: impl Into<String>, mend: &'static str) -> Self {
        Self { name, well: false, found: found.into(), mend }
    }
}

/// Checks this installation. Exit code 5 when something is to be mended.
pub(super) async fn doctor(out: &Out, flags: &Flags) -> anyhow::Result<ExitCode> {
    let config = match configured(flags) {
        Ok(config) => config,
        Err(error) => {
            return Ok(report(
                out,
                &[Check::ill("configuration", format!("{error:#}"), "correct the file or the variable it names")],
            ));
        }
    };
    let mut checks =
        vec![Check::well("configuration", format!("http {} · data {}", config.http, config.data.display()))];
    checks.push(permissions(&config.data));
    checks.push(disk(&config.data));
    checks.extend(ledger(&config).await);
    checks.push(transports(&config));
    Ok(report(out, &checks))
}

fn report(out: &Out, checks: &[Check]) -> ExitCode {
    let well = checks.iter().all(|check| check.well);
    if out.is_json() {
        let one = |c: &Check| json!({ "check": c.name, "ok": c.well, "found": c.found, "mend": c.mend });
        out.value(&json!({ "ok": well, "checks": checks.iter().map(one).collect::<Vec<_>>() }));
    } else {
        for check in checks {
            let mark = if check.well { out.good("ok  ") } else { out.bad("mend") };
            out.line(&format!("{mark}  {:14} {}", check.name, check.found));
            if !check.well {
                out.line(&format!("      {:14} {}", "", check.mend));
            }
        }
    }
    if well { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) }
}

/// The ledger holds everybody's mail: only its owner should read it.
fn permissions(data: &Path) -> Check {
    let Ok(about) = std::fs::metadata(data.join("ledger.db")) else {
        return Check::well("permissions", "no ledger file yet");
    };
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Check::well("permissions", format!("ledger.db is {mode:o}"));
    }
    Check::ill(
        "permissions",
        format!("ledger.db is {mode:o}: others can read mail and hashes"),
        "chmod 600 ledger.db*, and 700 on the data directory",
    )
}

/// The ways out, built as `serve` would build them. Nobody is dialled.
fn transports(config: &Config) -> Check {
    match crate::outside::outside(config) {
        Err(error) => Check::ill("transport", format!("{error:#}"), "correct mailonce.toml; `serve` would not start"),
        Ok(_) => match config.default_transports().as_slice() {
            [] => Check::well("transport", "sandbox: mail is captured, nothing leaves this machine"),
            names => Check::well("transport", format!("mail is handed to {}", names.join(", then "))),
        },
    }
}

fn disk(data: &Path) -> Check {
    let place =
        data.ancestors().find(|place| place.exists() && !place.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(about) = rustix::fs::statvfs(place) else { return Check::well("disk", "not known") };
    let free = about.f_bavail * about.f_frsize / (1024 * 1024);
    if free < 1024 {
        return Check::ill("disk", format!("{free} MiB free"), "make room: at least 1 GiB, or accepts will answer 503");
    }
    Check::well("disk", format!("{free} MiB free"))
}

async fn ledger(config: &Config) -> Vec<Check> {
    if config.store == StoreAt::Sqlite {
        match Sqlite::schema_of(&config.data) {
            Ok(Some(found)) if found > SCHEMA => {
                let text = format!("schema {found}; this binary knows {SCHEMA}");
                return vec![Check::ill("schema", text, "run the newer mailonce that wrote it")];
            }
            Ok(Some(found)) => {
                if let Some(busy) = busy(config) {
                    return vec![Check::well("schema", format!("{found}")), busy];
                }
            }
            Ok(None) => return vec![Check::well("ledger", "none yet; it is made at the first start")],
            Err(error) => {
                return vec![Check::ill("ledger", error.to_string(), "restore a backup, or move the file away")];
            }
        }
    }
    match serve::open_store(config).await {
        Ok(store) => {
            let health = store.health().await;
            store.close().await;
            match health {
                Ok(health) => health.notes.iter().map(|note| durability(&health, note)).collect(),
                Err(error) => vec![Check::ill("ledger", error.to_string(), "see the message")],
            }
        }
        Err(error) => vec![Check::ill(
            "ledger",
            format!("{error:#}"),
            "check the store URL, that the database runs, and who may log in",
        )],
    }
}

fn durability(health: &Health, note: &str) -> Check {
    let found = format!("{}: {note}", health.engine);
    if health.degraded {
        let mend = "what is acknowledged could be lost: turn fsync on, and make replicas synchronous";
        return Check::ill("durability", found, mend);
    }
    Check::well("durability", found)
}

/// A running server holds the directory; that is well, and its own `/readyz` says more.
fn busy(config: &Config) -> Option<Check> {
    let text = format!("in use by a running mailonce; ask http://{}/readyz", config.http);
    Sqlite::is_busy(&config.data).then(|| Check::well("ledger", text))
}
