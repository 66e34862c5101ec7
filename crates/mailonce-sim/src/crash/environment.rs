//! What a round runs in: a sink that is never killed, a store, and the configuration that all its servers share.

use crate::crash::failpoints::{HopClass, StoreKind};
use crate::crash::inbound_delivery::SmtpAddressBook;
use crate::harness::child_processes::{ChildProcess, ChildProcesses};
use crate::harness::http;
use crate::harness::postgres::{PostgresServer, TemporaryDatabase};
use crate::harness::server::{ServerProcess, ServerSetup, StartOutcome};
use crate::sink::http::API_KEY as SINK_KEY;
use crate::sink::oracle::behavior::FaultRates;
use crate::sink::oracle::provider_webhooks::HookTarget;
use crate::sink::oracle::sink_log::SinkLog;
use crate::sink::oracle::webhook_receiver::{self, WebhookLogLine};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// How long a sink may take to print its addresses.
const SINK_START_TIMEOUT: Duration = Duration::from_secs(30);

/// The programs and services that rounds use.
#[derive(Debug, Clone)]
pub struct CrashTools {
    /// Owner of the server and sink processes.
    pub children: ChildProcesses,
    /// The server's binary, built with `--features failpoints`.
    pub server: PathBuf,
    /// The sink's binary.
    pub sink: PathBuf,
    /// The second checker, `scripts/prove-history`, if it is used.
    pub second_checker: Option<PathBuf>,
    /// A deliberate defect that every server has, which the checkers must find.
    pub mutant: Option<String>,
    /// The PostgreSQL server in which rounds create their databases.
    pub postgres: Option<PostgresServer>,
}

/// The environment of one round.
#[derive(Debug)]
pub struct CrashEnvironment<'a> {
    tools: &'a CrashTools,
    root: PathBuf,
    store: StoreKind,
    database: Option<TemporaryDatabase>,
    config: PathBuf,
    sink: SocketAddr,
    servers_started: u64,
    /// The SMTP addresses that servers announce.
    smtp_addresses: Arc<SmtpAddressBook>,
    /// Kept so that the sink runs as long as the round.
    _sink: ChildProcess,
}

impl<'a> CrashEnvironment<'a> {
    /// Starts the sink and creates the database.
    pub fn new(tools: &'a CrashTools, root: &Path, (store, class): (StoreKind, HopClass), seed: u64) -> Result<Self> {
        let (sink, addresses) = start_sink(tools, root, seed)?;
        let database = match store {
            StoreKind::Sqlite => None,
            StoreKind::Postgres => {
                let postgres = tools.postgres.as_ref().context("no PostgreSQL: see scripts/services")?;
                let name = format!("mailonce_crash_{}_{seed}_{}", std::process::id(), class.as_str());
                Some(postgres.create_database(&name)?)
            }
        };
        let config = root.join("mailonce.toml");
        std::fs::write(&config, transport_config(class, &addresses)?)?;
        let http = addresses["http"].as_str().and_then(|url| url.strip_prefix("http://"));
        let at = http.context("a sink without an address")?.parse()?;
        Ok(Self {
            tools,
            root: root.to_owned(),
            store,
            database,
            config,
            sink: at,
            servers_started: 0,
            smtp_addresses: Arc::default(),
            _sink: sink,
        })
    }

    /// Starts a server, optionally with a failpoint such as `after-marker:kill:3`.
    pub fn start(&mut self, point: Option<&str>) -> Result<StartOutcome> {
        self.servers_started += 1;
        let name = format!("n{}", self.servers_started);
        // PostgreSQL nodes have data directories of their own. A SQLite ledger has one, used by one process at a time.
        let data = self.root.join(if self.store == StoreKind::Sqlite { "data" } else { &name });
        let store = self.database.as_ref().map(|database| database.url.as_str());
        let mut env: Vec<(&str, OsString)> = vec![("MAILONCE_CONFIG", self.config.clone().into())];
        env.extend(self.tools.mutant.as_ref().map(|name| ("MAILONCE_MUTANT", name.into())));
        env.extend(point.map(|point| ("MAILONCE_FAILPOINT", point.into())));
        let setup = ServerSetup { binary: &self.tools.server, data: &data, store, paused: false, env: &env };
        let log = self.root.join(format!("{name}.log"));
        let started = ServerProcess::start_or_end(&self.tools.children, &log, |at| Ok(setup.command("dev", at)))?;
        if let StartOutcome::Ready(server) = &started {
            self.smtp_addresses.register(server.at, data.clone());
        }
        Ok(started)
    }

    /// The SMTP addresses of the servers.
    pub fn smtp_addresses(&self) -> Arc<SmtpAddressBook> {
        Arc::clone(&self.smtp_addresses)
    }

    /// Controls the sink: `calm` ends its faults, `hooks` sets where it sends provider events.
    pub fn control_sink(&self, what: &str, to: Option<&HookTarget>) -> Result<()> {
        let body = serde_json::to_value(to)?;
        let reply = http::post(self.sink, &format!("/control/{what}"), None, &body)?;
        ensure!(reply.status == 200, "the sink answered {}: {}", reply.status, reply.body);
        Ok(())
    }

    /// The URL of a team's webhook endpoint.
    pub fn receiver_url(&self, team: &str) -> String {
        format!("http://{}/receiver/{team}", self.sink)
    }

    /// The webhooks that endpoints received so far.
    pub fn notices(&self) -> Result<Vec<WebhookLogLine>> {
        SinkLog::read(&self.root.join(webhook_receiver::WEBHOOK_LOG_FILE))
    }

    /// The directory of the round.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The second checker, if it is used.
    pub fn second_checker(&self) -> Option<&Path> {
        self.tools.second_checker.as_deref()
    }

    /// The path of the sink's log.
    pub fn sink_log_path(&self) -> PathBuf {
        self.root.join("sink.jsonl")
    }

    /// Drops the round's database.
    pub fn drop_database(self) -> Result<()> {
        self.database.map_or(Ok(()), TemporaryDatabase::drop_database)
    }
}

fn start_sink(tools: &CrashTools, root: &Path, seed: u64) -> Result<(ChildProcess, Value)> {
    let mut command = Command::new(&tools.sink);
    command
        .arg("--log")
        .arg(root.join("sink.jsonl"))
        .args(["--seed", &seed.to_string()])
        .args(FaultRates::ALL_FAULTS.to_flags());
    let output_file = root.join("sink.out");
    let mut sink = tools.children.spawn(command, &output_file)?;
    let line = || std::fs::read_to_string(&output_file).unwrap_or_default();
    sink.wait_until_ready(SINK_START_TIMEOUT, || line().ends_with('\n'))?;
    let addresses = serde_json::from_str(&line()).with_context(|| format!("the sink printed no JSON: {}", line()))?;
    Ok((sink, addresses))
}

/// How long a server waits for a reply of the sink.
pub const SINK_REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// The configuration of the class's only transport.
fn transport_config(class: HopClass, sink: &Value) -> Result<String> {
    let at = |name: &str| sink[name].as_str().with_context(|| format!("the sink has no {name}"));
    let head = format!("[[transports]]\nname = \"{class}\"\ntimeout = \"{}s\"\n", SINK_REPLY_TIMEOUT.as_secs());
    let key = format!("base_url = \"{}\"\napi_key = \"{SINK_KEY}\"\n", at("http")?);
    Ok(match class {
        HopClass::Sandbox | HopClass::Inbound => String::new(),
        HopClass::Smtp => {
            let at: SocketAddr = at("smtp")?.parse()?;
            format!("{head}kind = \"smtp\"\nhost = \"{}\"\nport = {}\ntls = \"none\"\n", at.ip(), at.port())
        }
        HopClass::Keyed => format!("{head}kind = \"resend\"\n{key}"),
        HopClass::LookUp => format!("{head}kind = \"postmark\"\n{key}"),
        HopClass::Keyless => format!(
            "{head}kind = \"http\"\nurl = \"{}\"\nheaders = {{ Authorization = \"Bearer {SINK_KEY}\" }}\n\
             body = '{{\"to\": \"{{{{to}}}}\", \"id\": \"{{{{id}}}}\", \"subject\": \"{{{{subject}}}}\", \"text\": \
             \"{{{{text}}}}\"}}'\naccepted_statuses = [200]\nmessage_id_pointer = \"/data/id\"\n",
            at("keyless")?
        ),
    })
}
