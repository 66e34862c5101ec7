//! The ledger: its schema, durability and queue. While a server uses it, the server is asked.

use mailonce_core::{handoff::lease::Backlog, installation::Health, time::Time};
use mailonce_engine::{
    Engine,
    control::stops::{PARTIAL_STOP_NOTE, STOP_NOTE},
    handoff::transport_selector::OrphanedTransport,
};
use mailonce_store::{
    postgres::Postgres,
    sqlite::{SCHEMA_VERSION, Sqlite},
};
use serde_json::Value;
use std::path::Path;

use super::DoctorCheck;
use crate::{
    cli::{ServerArgs, client::CliClient, doctor::dns::ExpectedRecord, env, http_client::Call},
    config::{Config, StartHandoff, StoreLocation},
    engine_deps, wiring,
};

/// What the checks of the ledger found.
#[derive(Default)]
pub(super) struct LedgerReport {
    pub(super) checks: Vec<DoctorCheck>,
    /// The latest time that the ledger recorded.
    pub(super) latest_time: Option<Time>,
    /// The DNS records that sending domains need.
    pub(super) expected_records: Vec<ExpectedRecord>,
}

/// Opens the ledger, or asks the server that uses it.
pub(super) async fn inspect(config: &Config) -> LedgerReport {
    let only = |check| LedgerReport { checks: vec![check], ..LedgerReport::default() };
    let mut schema = None;
    if config.store == StoreLocation::Sqlite {
        match Sqlite::schema_version(&config.data) {
            Ok(Some(found)) if found > SCHEMA_VERSION => {
                let found =
                    format!("the ledger has schema {found}, newer than the schema {SCHEMA_VERSION} of this binary");
                return only(DoctorCheck::fail(
                    "ledger",
                    found,
                    "run the version of mailonce that wrote it, or a newer one",
                ));
            }
            Ok(Some(found)) if Sqlite::is_busy(&config.data) => return inspect_running_server(config, found).await,
            Ok(Some(found)) => schema = Some(found),
            Ok(None) => {
                let next = "run `mailonce dev`; or `mailonce api-keys create`, then `mailonce serve`";
                return only(DoctorCheck::ok("ledger", "none yet; the first start creates it").with_next_step(next));
            }
            Err(error) => {
                let next = "restore a backup into another --data, or move the file away";
                return only(DoctorCheck::fail("ledger", error.to_string(), next));
            }
        }
    }
    match wiring::open_engine(config).await {
        Ok(engine) => {
            let ledger = inspect_opened(&engine, config, schema).await;
            engine.ctx.store().close().await;
            ledger
        }
        // The check of the transports reports this error.
        Err(_) if engine_deps::engine_deps(config).is_err() => LedgerReport::default(),
        Err(error) => {
            let next = "check the URL of --store, that the database runs, and its credentials";
            only(DoctorCheck::fail("ledger", format!("{error:#}"), next))
        }
    }
}

async fn inspect_opened(engine: &Engine, config: &Config, schema: Option<i64>) -> LedgerReport {
    let mut ledger = LedgerReport::default();
    match &config.store {
        // Opening the ledger upgraded it.
        StoreLocation::Sqlite => ledger.checks.push(check_schema("sqlite", schema.map(|_| SCHEMA_VERSION))),
        StoreLocation::Postgres(url) => {
            let schema = Postgres::schema_version(url).await.ok().flatten();
            ledger.checks.push(check_schema("postgres", schema.map(i64::from)));
        }
    }
    match engine.ctx.store().health().await {
        Ok(health) => ledger.checks.extend(check_durability(&health)),
        Err(error) => {
            let next = "fix this first: the server cannot accept emails";
            ledger.checks.push(DoctorCheck::fail("ledger", error.to_string(), next));
        }
    }
    if let Err(error) = wiring::require_api_key(engine).await {
        let next = "run `mailonce api-keys create` with the same --data or --store";
        ledger.checks.push(DoctorCheck::warn(
            "api-keys",
            format!("{error:#}, so `mailonce serve` does not start"),
            next,
        ));
    }
    ledger.latest_time = engine.ctx.store().installation().await.ok().and_then(|install| install.last_heartbeat_at);
    match engine.access.domains.all_domains().await {
        Ok(domains) => ledger.expected_records = domains.iter().flat_map(ExpectedRecord::of_domain).collect(),
        Err(problem) => ledger.checks.push(DoctorCheck::warn("domains", problem.detail, "check the ledger")),
    }
    let stopped = if wiring::has_hold_mark(&config.data) {
        Some("stopped since the restore")
    } else if engine.control.stops.is_installation_stopped().await.unwrap_or_default() {
        Some("stopped")
    } else {
        (config.handoff == StartHandoff::Paused).then_some("stopped by the configuration")
    };
    match engine.ctx.store().backlog().await {
        Ok(backlog) => ledger.checks.push(QueueBacklog::from_backlog(&backlog, engine.ctx.now()).check(stopped)),
        Err(error) => ledger.checks.push(DoctorCheck::warn("hand-off", error.to_string(), "check the ledger")),
    }
    match engine.control.stops.partial_stop_note().await {
        Ok(note) => ledger.checks.extend(note.map(check_partial_stop)),
        Err(error) => ledger.checks.push(DoctorCheck::warn("stops", error.to_string(), "check the ledger")),
    }
    match engine.handoffs.missing_transports().await {
        Ok(missing) => ledger.checks.extend(missing.iter().map(check_orphaned_transport)),
        Err(error) => ledger.checks.push(DoctorCheck::warn("hand-off", error.to_string(), "check the ledger")),
    }
    ledger
}

/// Stops that cover less than the installation are in force.
fn check_partial_stop(note: String) -> DoctorCheck {
    DoctorCheck::warn("stops", note, "`mailonce stops` lists those of your team; `mailonce resume ID` ends one")
}

/// Mail is queued for a transport that no server has.
fn check_orphaned_transport(missing: &OrphanedTransport) -> DoctorCheck {
    let OrphanedTransport { name, waiting, unknown } = missing;
    let found = format!("no server has the transport `{name}`: {waiting} handoffs queued for it, {unknown} unknown");
    DoctorCheck::warn("transport", found, reroute_hint(name))
}

fn reroute_hint(name: &str) -> String {
    format!("add `{name}` to mailonce.toml again, or move the mail with POST /v1/transports/{name}/reroute")
}

fn check_schema(engine: &str, schema: Option<i64>) -> DoctorCheck {
    let schema = schema.map_or_else(String::new, |schema| format!(", schema {schema}"));
    DoctorCheck::ok("ledger", format!("{engine}{schema}"))
}

/// The queue of handoffs.
#[derive(Debug, Default, PartialEq)]
struct QueueBacklog {
    count: u64,
    unknown: u64,
    /// How long the oldest one is due, in seconds.
    oldest_s: u64,
}

/// Mail that is due for longer is a warning, in seconds.
const MAX_QUEUE_AGE_S: u64 = 300;

impl QueueBacklog {
    fn from_backlog(backlog: &Backlog, now: Time) -> Self {
        let due = backlog.oldest_due_at.map_or(0, |oldest| now.since(oldest).max(0));
        let count = backlog.waiting.iter().map(|(_, count)| count).sum();
        Self { count, unknown: backlog.unknown, oldest_s: due.unsigned_abs() / 1_000 }
    }

    /// Reads the queue from the metrics of a running server.
    fn from_metrics(metrics: &str) -> Self {
        let sum = |name: &str| -> f64 {
            let value = |line: &str| line.rsplit(' ').next().and_then(|text| text.parse::<f64>().ok());
            let is_named = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
            metrics.lines().filter(is_named).filter_map(value).sum()
        };
        Self {
            count: sum("mailonce_handoff_queue_depth") as u64,
            unknown: sum("mailonce_handoff_unknown") as u64,
            oldest_s: sum("mailonce_handoff_queue_oldest_seconds") as u64,
        }
    }

    /// `stopped` is the reason why nothing is sent.
    fn check(&self, stopped: Option<&str>) -> DoctorCheck {
        let queue = match self.count {
            0 => "queue empty".to_owned(),
            count if self.oldest_s == 0 => format!("{count} queued"),
            count => format!("{count} queued, the oldest for {} s", self.oldest_s),
        };
        let unknown = match self.unknown {
            0 => String::new(),
            unknown => format!(", {unknown} with an unknown outcome"),
        };
        let finding = format!("{}, {queue}{unknown}", stopped.unwrap_or("running"));
        match stopped {
            Some(_) => {
                let next = "look at `mailonce emails list --state queued`, then run `mailonce resume`";
                DoctorCheck::warn("hand-off", finding, next)
            }
            None if self.unknown > 0 => {
                let next = "`mailonce emails list --state unknown`, then `mailonce emails resolve ID --as …`";
                DoctorCheck::warn("hand-off", finding, next)
            }
            None if self.oldest_s > MAX_QUEUE_AGE_S => {
                let next = "see the check `transport` below, and `mailonce emails list --state queued`";
                DoctorCheck::warn("hand-off", finding, next)
            }
            None => DoctorCheck::ok("hand-off", finding),
        }
    }
}

/// The durability of the store: one check, or one for each setting that loses data.
fn check_durability(health: &Health) -> Vec<DoctorCheck> {
    if !health.degraded {
        return vec![DoctorCheck::ok("durability", format!("{}: {}", health.engine, health.notes.join("; ")))];
    }
    let fix = |note: &String| {
        let next = if note.contains("full_page_writes") {
            "set full_page_writes = on in postgresql.conf, then reload it"
        } else if note.contains("fsync") {
            "set fsync = on in postgresql.conf, then restart the database"
        } else if note.contains("replica") {
            "list it in synchronous_standby_names, or never fail over to it"
        } else {
            "restore the durable settings of the database"
        };
        DoctorCheck::fail("durability", note.clone(), next)
    };
    // The first note is the version of the database.
    health.notes.iter().skip(1).map(fix).collect()
}

/// Asks the running server, which is found as client verbs find it.
async fn inspect_running_server(config: &Config, schema: i64) -> LedgerReport {
    let ca_file = env("MAILONCE_CA_FILE").map(Into::into);
    let dev = dev_reach(&config.data);
    let server = ServerArgs {
        url: dev.0.or_else(|| env("MAILONCE_URL")),
        api_key: dev.1.or_else(|| env("MAILONCE_API_KEY")),
        data: config.data.clone(),
        ca_file,
    };
    let url = server.url.clone().unwrap_or_else(|| config.url());
    let server = ServerArgs { url: Some(url.clone()), api_key: Some(server.api_key.unwrap_or_default()), ..server };
    let mut ledger = LedgerReport::default();
    let readiness = async { CliClient::find(&server)?.get("/readyz").await };
    match readiness.await {
        Ok(ready) => {
            ledger.checks.push(check_schema("sqlite", Some(schema)));
            ledger.checks.extend(ready_checks(&url, &ready));
            let stopped = notes(&ready).any(is_stop_note).then_some("stopped");
            ledger.checks.push(match fetch_metrics(&server).await {
                Ok(metrics) => QueueBacklog::from_metrics(&metrics).check(stopped),
                Err(error) => DoctorCheck::warn("hand-off", format!("{error:#}"), "read the log of the server"),
            });
        }
        Err(error) => {
            let found = format!("a server uses the ledger, but {url} does not report ready: {error:#}");
            let next = "set MAILONCE_URL to its address, or read its log";
            ledger.checks.push(DoctorCheck::warn("server", found.replace('\n', ""), next));
            return ledger;
        }
    }
    let domains = async { CliClient::find(&server)?.get("/v1/domains?limit=100").await };
    match domains.await {
        Ok(page) => {
            ledger.expected_records =
                page["data"].as_array().into_iter().flatten().flat_map(ExpectedRecord::from_json).collect()
        }
        Err(_) => ledger.checks.push(DoctorCheck::warn(
            "domains",
            "the running server does not show its sending domains",
            "set MAILONCE_API_KEY to an API key with the scope admin",
        )),
    }
    ledger
}

/// The metrics of a running server.
async fn fetch_metrics(server: &ServerArgs) -> anyhow::Result<String> {
    let call =
        Call { method: hyper::Method::GET, path: "/metrics".into(), headers: Vec::new(), body: Vec::new().into() };
    let answer = CliClient::find(server)?.server.call(&call).await?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

fn notes(ready: &Value) -> impl Iterator<Item = &str> {
    ready["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Whether a note of the server says that the installation is stopped.
fn is_stop_note(note: &str) -> bool {
    note.starts_with(STOP_NOTE)
}

/// The URL and API key of a `dev` that runs on this data directory.
fn dev_reach(data: &Path) -> (Option<String>, Option<String>) {
    crate::cli::client::read_dev_file(data).map_or((None, None), |dev| (Some(dev.url), Some(dev.api_key)))
}

fn ready_checks(url: &str, ready: &Value) -> Vec<DoctorCheck> {
    let mut checks = vec![DoctorCheck::ok("server", format!("running at {url}, ready"))];
    for note in notes(ready).filter(|note| !is_stop_note(note)) {
        checks.push(if note.starts_with(PARTIAL_STOP_NOTE) {
            check_partial_stop(note.to_owned())
        } else if note.contains("ahead of the database") || note.contains("behind the database") {
            DoctorCheck::fail("clock", note, "synchronize the clocks of both machines with NTP")
        } else if note.contains("clock") {
            DoctorCheck::warn("clock", note, "synchronize the clock with NTP, or confirm it: POST /v1/clock/confirm")
        } else if let Some(name) = missing_transport(note) {
            let found = note.split_once("; ").map_or(note, |(found, _)| found);
            DoctorCheck::warn("transport", found, reroute_hint(name))
        } else if note.contains("lose") || note.contains("lost") || note.contains("damage") {
            DoctorCheck::fail("durability", note, "restore the durable settings of the database")
        } else {
            DoctorCheck::ok("durability", note)
        });
    }
    checks
}

/// The transport that a warning of `/readyz` calls missing.
fn missing_transport(note: &str) -> Option<&str> {
    note.strip_prefix("no node has the transport `")?.split('`').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_that_a_running_server_misses_is_a_warning_with_what_to_do() {
        let note = "no node has the transport `lost`: 3 handoffs wait for it, 1 are unknown; configure it again";
        let checks = ready_checks("http://x", &serde_json::json!({ "warnings": [note] }));
        assert_eq!((checks[1].name, checks[1].level), ("transport", super::super::CheckLevel::Warn));
        assert!(
            checks[1].finding.ends_with("1 are unknown") && checks[1].next_step.contains("/v1/transports/lost/reroute")
        );
    }

    #[test]
    fn unsafe_durability_settings_fail_with_the_setting_to_change() {
        let notes = ["PostgreSQL 17", "fsync is off", "full_page_writes is off", "a replica is asynchronous"];
        let health = Health { engine: "postgres", degraded: true, notes: notes.map(str::to_owned).to_vec() };
        let checks = check_durability(&health);
        assert_eq!(checks.len(), 3);
        for (check, next) in checks.iter().zip(["fsync = on", "full_page_writes = on", "synchronous_standby_names"]) {
            assert!(check.level == super::super::CheckLevel::Fail && check.next_step.contains(next), "{check:?}");
        }
        let well = Health { degraded: false, ..health };
        assert_eq!(check_durability(&well)[0].level, super::super::CheckLevel::Ok);
    }

    #[test]
    fn the_queue_check_reads_the_metrics_and_names_the_next_step() {
        let metrics = "# HELP mailonce_handoff_queue_depth x\nmailonce_handoff_queue_depth{transport=\"a\"} 2\n\
                       mailonce_handoff_queue_depth{transport=\"b\"} 3\nmailonce_handoff_queue_oldest_seconds 4.5\n\
                       mailonce_handoff_unknown 1\nmailonce_handoff_unknown_total 9\n";
        let waiting = QueueBacklog::from_metrics(metrics);
        assert_eq!(waiting, QueueBacklog { count: 5, unknown: 1, oldest_s: 4 });
        let check = waiting.check(None);
        assert_eq!(
            (check.level, check.finding.as_str()),
            (super::super::CheckLevel::Warn, "running, 5 queued, the oldest for 4 s, 1 with an unknown outcome")
        );
        assert!(check.next_step.contains("emails resolve"));
        let old = QueueBacklog { count: 1, unknown: 0, oldest_s: MAX_QUEUE_AGE_S + 1 };
        assert_eq!(old.check(None).level, super::super::CheckLevel::Warn);
        assert_eq!(QueueBacklog::default().check(None).finding, "running, queue empty");
        assert!(QueueBacklog::default().check(Some("stopped")).next_step.contains("mailonce resume"));
    }
}
