//! The ledger: its schema and its durability. While a server has it, the server is asked.

use mailonce_core::{port::store::Health, time::Time};
use mailonce_engine::Engine;
use mailonce_store::sqlite::{SCHEMA, Sqlite};
use serde_json::Value;
use std::path::Path;

use super::{Check, names::Wanted};
use crate::{
    cli::{Reach, client::Client, env},
    config::{Config, StoreAt},
    serve,
};

/// What was learnt of the ledger.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) checks: Vec<Check>,
    /// The latest time that it knows.
    pub(super) seen_at: Option<Time>,
    /// The records that sending domains want.
    pub(super) domains: Vec<Wanted>,
}

/// Looks at the ledger itself, or asks whoever has it.
pub(super) async fn look(config: &Config) -> Ledger {
    let alone = |check| Ledger { checks: vec![check], ..Ledger::default() };
    if config.store == StoreAt::Sqlite {
        match Sqlite::schema_of(&config.data) {
            Ok(Some(found)) if found > SCHEMA => {
                let found = format!("the ledger has schema {found}; this binary knows {SCHEMA}");
                return alone(Check::fail("ledger", found, "run the newer mailonce that wrote it"));
            }
            Ok(Some(_)) if Sqlite::is_busy(&config.data) => return ask(config).await,
            Ok(Some(_)) => {}
            Ok(None) => return alone(Check::ok("ledger", "none yet; the first start makes it")),
            Err(error) => {
                let next = "restore a backup into another --data, or move the file away";
                return alone(Check::fail("ledger", error.to_string(), next));
            }
        }
    }
    match serve::open_engine(config).await {
        Ok(engine) => {
            let ledger = read(&engine, config).await;
            engine.store().close().await;
            ledger
        }
        Err(error) => {
            let next = "check the store's URL, that the database runs, and who may log in";
            alone(Check::fail("ledger", format!("{error:#}"), next))
        }
    }
}

async fn read(engine: &Engine, config: &Config) -> Ledger {
    let mut ledger = Ledger::default();
    match engine.store().health().await {
        Ok(health) => ledger.checks.extend(durability(&health)),
        Err(error) => {
            let next = "mend what the sentence names: nothing can be accepted";
            ledger.checks.push(Check::fail("ledger", error.to_string(), next));
        }
    }
    ledger.seen_at = engine.store().install().await.ok().and_then(|install| install.seen_at);
    match engine.all_domains().await {
        Ok(domains) => ledger.domains = domains.iter().flat_map(Wanted::of).collect(),
        Err(problem) => ledger.checks.push(Check::warn("domains", problem.detail, "look at the ledger")),
    }
    if serve::is_held(&config.data) {
        let found = "it was restored with --hold: nothing is handed over";
        ledger.checks.push(Check::warn("hand-off", found, "look at what is queued, then `mailonce resume`"));
    }
    ledger
}

/// One check for each thing that the store says of itself.
fn durability(health: &Health) -> Vec<Check> {
    let (about, ways_to_lose) =
        health.notes.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    if !health.degraded {
        return vec![Check::ok("durability", format!("{}: {}", health.engine, health.notes.join("; ")))];
    }
    let mend = |note: &String| {
        let next = if note.contains("full_page_writes") {
            "full_page_writes = on in postgresql.conf, then reload"
        } else if note.contains("fsync") {
            "fsync = on in postgresql.conf, then restart the database"
        } else if note.contains("replica") {
            "name them in synchronous_standby_names, or never fail over to them"
        } else {
            "give the database its durable settings back"
        };
        Check::fail("durability", note.clone(), next)
    };
    std::iter::once(Check::ok("ledger", about)).chain(ways_to_lose.iter().map(mend)).collect()
}

/// A running server knows how it is. It is found as client verbs find it, with the data directory that was named.
async fn ask(config: &Config) -> Ledger {
    let ca_file = env("MAILONCE_CA_FILE").map(Into::into);
    let dev = dev_reach(&config.data);
    let reach = Reach {
        url: dev.0.or_else(|| env("MAILONCE_URL")),
        api_key: dev.1.or_else(|| env("MAILONCE_API_KEY")),
        data: config.data.clone(),
        ca_file,
    };
    let named = reach.url.clone().unwrap_or_else(|| config.url());
    let reach = Reach { url: Some(named.clone()), api_key: Some(reach.api_key.unwrap_or_default()), ..reach };
    let mut ledger = Ledger::default();
    let asked = async { Client::find(&reach)?.get("/readyz").await };
    match asked.await {
        Ok(ready) => ledger.checks.extend(ready_checks(&named, &ready)),
        Err(error) => {
            let found = format!("a running mailonce has it, and {named} does not answer as ready: {error:#}");
            let next = "set MAILONCE_URL to where it listens, or look at its log";
            ledger.checks.push(Check::warn("server", found.replace('\n', ""), next));
            return ledger;
        }
    }
    let asked = async { Client::find(&reach)?.get("/v1/domains?limit=100").await };
    match asked.await {
        Ok(page) => ledger.domains = page["data"].as_array().into_iter().flatten().flat_map(Wanted::read).collect(),
        Err(_) => ledger.checks.push(Check::warn(
            "domains",
            "the running server does not tell us its sending domains",
            "set MAILONCE_API_KEY to a key with the scope admin, or stop it first",
        )),
    }
    ledger
}

/// Where a running `dev` of this directory is, and its key.
fn dev_reach(data: &Path) -> (Option<String>, Option<String>) {
    crate::cli::client::read_dev_file(data).map_or((None, None), |dev| (Some(dev.url), Some(dev.api_key)))
}

fn ready_checks(url: &str, ready: &Value) -> Vec<Check> {
    let mut checks = vec![Check::ok("server", format!("runs at {url} and can commit"))];
    let notes = ready["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for note in notes {
        checks.push(if note.contains("clock jumped") {
            Check::warn("clock", note, "set the machine's clock, then POST /v1/clock/confirm")
        } else if note.contains("paused") {
            Check::warn("hand-off", note, "`mailonce resume` lets it go on")
        } else if note.contains("lose") || note.contains("lost") || note.contains("damage") {
            Check::fail("durability", note, "give the database its durable settings back")
        } else {
            Check::ok("durability", note)
        });
    }
    checks
}
