//! Wiring: builds the store, the engine, its background loops and the listeners, and runs them until shutdown.

use anyhow::{Context as _, bail};
use mailonce_core::{
    control::stop::CONFIGURATION_AUTHOR,
    installation::RecoveryCounts,
    ports::store::{Store, StoreError},
    problem::Problem,
};
use mailonce_engine::{
    Engine,
    access::{Access, kek::SecretUnlocker},
    claims::Claims,
    conversation::Notifications,
    events::Events,
    inbound::Inbound,
    outbox::OutboxDrainer,
    search::Search,
};
use mailonce_store::{postgres::Postgres, sqlite::Sqlite};
use std::{fs::File, future::Future, net::SocketAddr, path::Path, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{
    api,
    config::{Config, StartHandoff, StoreLocation},
    connection_threads::ConnectionThreads,
    entropy::{OsEntropy, wall_time},
    erasure_journal,
    intake::{EngineReceiver, smtp},
    oidc::OidcProvider,
    private_file,
    server::{FailureLimit, HttpListener, read_certificate},
    tls::Tls,
    wall_clock::{self, WallClock},
};

/// How long running requests may take to finish when the server shuts down.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the server checks the store for a fatal error.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Opens the configured ledger with the configured KEK.
pub async fn open_store(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    let kek = config.secrets.read_kek().await?;
    let unlock = SecretUnlocker { kek: kek.as_ref(), entropy: &OsEntropy, now: wall_time() };
    let store: Arc<dyn Store> = match &config.store {
        StoreLocation::Sqlite => Arc::new(Sqlite::open(&config.data, unlock)?),
        StoreLocation::Postgres(url) => Arc::new(Postgres::open(url, unlock).await?),
    };
    Ok(store)
}

/// Opens the ledger and builds an engine with this machine's clock, its randomness and the configured transports.
pub async fn open_engine(config: &Config) -> anyhow::Result<Arc<Engine>> {
    let deps = crate::engine_deps::engine_deps(config)?;
    let store = open_store(config).await?;
    let clock = Arc::new(WallClock::open(&config.data));
    let engine = Engine::new(store, clock, Arc::new(OsEntropy), deps).await?;
    if config.clock_trusted == Some(true) {
        engine.ctx.confirm_time();
    }
    Ok(engine)
}

/// The bound listeners. They are bound before the addresses are printed, so that the printed addresses are correct.
pub struct BoundListeners {
    http: TcpListener,
    tls: Option<Arc<Tls>>,
    smtp: Option<TcpListener>,
}

impl BoundListeners {
    /// The address of the HTTP listener.
    pub fn http_address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.http.local_addr()?)
    }

    /// The address of the SMTP listener, unless it is off.
    pub fn smtp_address(&self) -> anyhow::Result<Option<SocketAddr>> {
        Ok(self.smtp.as_ref().map(TcpListener::local_addr).transpose()?)
    }
}

/// The address of the SMTP listener could not be bound.
#[derive(Debug)]
pub struct SmtpBindFailed(pub SocketAddr);

impl std::fmt::Display for SmtpBindFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "listening for SMTP on {}; choose another address with --smtp, or `--smtp off`", self.0)
    }
}

/// Binds the configured addresses and reads the HTTP certificate.
pub async fn bind_listeners(config: &Config) -> anyhow::Result<BoundListeners> {
    let tls = read_certificate(&config.http_options)?;
    if tls.is_some() || config.smtp.tls_files.is_some() {
        // From now on SIGHUP does not end the process; it reloads the certificates.
        drop(signal(SignalKind::hangup())?);
    }
    let http = TcpListener::bind(config.http).await;
    let http = http.with_context(|| format!("listening on {}; is another mailonce running?", config.http))?;
    let smtp = match config.smtp.listen {
        None => None,
        Some(at) => Some(TcpListener::bind(at).await.context(SmtpBindFailed(at))?),
    };
    Ok(BoundListeners { http, tls, smtp })
}

/// Spawns a background loop that restarts after a panic and ends when `stop` changes.
fn spawn_loop<T: Send + Sync + 'static, F: Future<Output = ()> + Send + 'static>(
    engine: &Engine,
    name: &'static str,
    stop: &watch::Receiver<bool>,
    service: &Arc<T>,
    run: impl Fn(Arc<T>, watch::Receiver<bool>) -> F + Send + Sync + 'static,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(Arc::clone(&engine.ctx).restart_on_panic(name, stop.clone(), Arc::clone(service), run))
}

/// Serves until `stop` resolves, then drains running requests and closes the ledger. Fails if the store reports a fatal
/// error.
pub async fn serve(
    engine: Arc<Engine>,
    listeners: BoundListeners,
    config: &Config,
    echo: bool,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    if let Some(note) = engine.ctx.clock_state().warning() {
        tracing::warn!("{note}");
    }
    let threads = ConnectionThreads::open().context("starting a thread for each core")?;
    let (ending, ended) = watch::channel(false);
    let mut loops = vec![spawn_loop(&engine, "upkeep", &ended, &engine, Engine::run_maintenance)];
    engine.inboxes.load_inbox_domains().await?;
    apply_start_marks(&engine, config).await?;
    erasure_journal::apply(&engine, &config.data).await?;
    let recovered = engine.handoffs.heartbeat_and_recover().await?;
    if recovered != RecoveryCounts::default() {
        let RecoveryCounts { queued, unknown, deliveries, notices } = recovered;
        tracing::warn!(queued, unknown, deliveries, notices, "recovered work of a process that ended");
    }
    loops.push(tokio::spawn(Arc::clone(&engine.handoffs).run_handoff(ended.clone())));
    loops.push(spawn_loop(&engine, "inbound", &ended, &engine.inbound, Inbound::run_inbound_worker));
    loops.push(spawn_loop(&engine, "poll_sources", &ended, &engine.inbound, Inbound::poll_sources));
    loops.push(spawn_loop(&engine, "notify", &ended, &engine.events, Events::run_notifier));
    loops.push(spawn_loop(&engine, "notifications", &ended, &engine.notifications, Notifications::run_notifications));
    loops.push(spawn_loop(&engine, "control", &ended, &engine, Engine::run_control_loop));
    loops.push(spawn_loop(&engine, "retention", &ended, &engine, Engine::run_retention_loop));
    loops.push(spawn_loop(&engine, "erasures", &ended, &engine, Engine::run_erasure_loop));
    loops.push(spawn_loop(&engine, "claims", &ended, &engine.claims, Claims::run_claims_loop));
    for drainer in engine.outboxes.drainers() {
        loops.push(spawn_loop(&engine, "outbox", &ended, drainer, OutboxDrainer::run));
    }
    loops.push(spawn_loop(&engine, "search", &ended, &engine.search, Search::run_indexer));
    loops.push(spawn_loop(&engine, "revoked_keys", &ended, &engine.access, Access::run_revocation_checks));
    loops.push(tokio::spawn(wall_clock::record_readings(Arc::clone(&engine), config.data.clone(), ended.clone())));
    loops.push(tokio::spawn(erasure_journal::run_updates(Arc::clone(&engine), config.data.clone(), ended.clone())));
    let BoundListeners { http, tls, smtp } = listeners;
    let (closing, closed) = watch::channel(false);
    let smtp_task = smtp.map(|listener| start_smtp(&engine, listener, config, closed)).transpose()?;
    let (smtp_task, smtp_metrics) = smtp_task.unzip();
    let url = config.url_at(http.local_addr()?);
    let oidc = config.oidc.as_ref().map(|file| OidcProvider::new(file).map(Arc::new)).transpose()?;
    let failures = FailureLimit::new(config.http_options.trusted_proxies.clone());
    let router = api::router_with_options(
        Arc::clone(&engine),
        echo,
        crate::http::app::RouterOptions { smtp_metrics, public_url: url, auth_failures: failures, oidc },
    );
    let http_listener = HttpListener::new(router, tls, config)?;
    let outcome = tokio::select! {
        () = stop => Ok(()),
        error = http_listener.run(http, &threads) => Err(error),
        error = watch_store(&engine) => Err(anyhow::Error::from(error)),
    };
    closing.send_replace(true);
    engine.events.end_streams();
    if tokio::time::timeout(DRAIN_TIMEOUT, http_listener.drain()).await.is_err() {
        tracing::warn!("some requests did not finish within the drain timeout");
    }
    loops.extend(smtp_task);
    ending.send_replace(true);
    for task in loops {
        if let Err(error) = task.await {
            tracing::error!(%error, "a background loop failed");
        }
    }
    engine.ctx.store().close().await;
    // Dropped last, because requests may have left tasks behind that still ran.
    drop(threads);
    outcome
}

/// Starts the SMTP listener. In `dev` it gets a self-signed certificate, so that STARTTLS can be tried.
fn start_smtp(
    engine: &Arc<Engine>,
    listener: TcpListener,
    config: &Config,
    closed: watch::Receiver<bool>,
) -> anyhow::Result<(tokio::task::JoinHandle<()>, Arc<smtp::SmtpMetrics>)> {
    let spool = Arc::new(spool_dir(&config.data)?);
    let settings = smtp::SmtpSettings { spool, ..config.smtp.settings(!config.dev_domains.is_empty())? };
    let receiver = Arc::new(EngineReceiver(Arc::clone(engine)));
    let metrics = Arc::clone(&settings.metrics);
    Ok((tokio::spawn(smtp::run(listener, receiver, settings, closed)), metrics))
}

/// The directory for the spool of large mails: the data directory or, if PostgreSQL needs none, the temporary
/// directory. Creates a file at startup, so that a failure is noticed before the first large mail.
fn spool_dir(data: &Path) -> anyhow::Result<smtp::SpoolDir> {
    let dir = smtp::SpoolDir(if data.is_dir() { data.to_owned() } else { std::env::temp_dir() });
    let created = smtp::SpoolFiles::create(&dir);
    created.with_context(|| {
        format!("cannot create a spool file for large mails in {}; set TMPDIR or `data`", dir.0.display())
    })?;
    Ok(dir)
}

/// Stops or resumes the installation as the configuration and a restore ask for, and records the restore.
async fn apply_start_marks(engine: &Engine, config: &Config) -> anyhow::Result<()> {
    let hold =
        (config.store == StoreLocation::Sqlite && has_hold_mark(&config.data)).then(|| config.data.join(HOLD_FILE));
    if config.handoff == StartHandoff::Paused {
        engine
            .control
            .stops
            .stop_installation(CONFIGURATION_AUTHOR, "the configuration says handoff = \"paused\"")
            .await?;
    } else {
        engine.control.stops.end_installation_stop_of(CONFIGURATION_AUTHOR).await?;
    }
    let restored = config.data.join(RESTORED_FILE);
    if config.store == StoreLocation::Sqlite && restored.exists() {
        record_restore(engine).await?;
        std::fs::remove_file(&restored).with_context(|| format!("deleting {}", restored.display()))?;
    }
    // Last, because the backup may contain a stop of the configuration, which has just ended.
    if let Some(file) = hold {
        stop_restored(engine).await?;
        std::fs::remove_file(&file).with_context(|| format!("deleting {}", file.display()))?;
    }
    if engine.ctx.store().has_restore_mark().await? {
        apply_restore_mark(engine, config.handoff).await?;
    }
    Ok(())
}

/// Does for PostgreSQL, which is restored by tools of its own, what the marks of `mailonce restore` ask for.
async fn apply_restore_mark(engine: &Engine, handoff: StartHandoff) -> anyhow::Result<()> {
    record_restore(engine).await?;
    if handoff == StartHandoff::RunningAfterRestore {
        tracing::warn!("this ledger was restored, and its email leaves: handoff is `running_after_restore`");
    } else {
        stop_restored(engine).await?;
    }
    // Last, so that a start that is killed before this is repeated by the next one.
    engine.ctx.store().clear_restore_mark().await?;
    Ok(())
}

/// Records a restore in the audit log and signs everybody out.
async fn record_restore(engine: &Engine) -> anyhow::Result<()> {
    engine.control.audit.record_restore().await?;
    let failed = |problem: Problem| anyhow::anyhow!("signing everybody out: {}", problem.detail);
    engine.people.sign_out_everybody().await.map_err(failed)
}

/// Stops the installation, because email that waits in the backup may have left since.
async fn stop_restored(engine: &Engine) -> anyhow::Result<()> {
    tracing::warn!("this ledger was restored: no email leaves until `mailonce resume`");
    engine.control.stops.stop_installation("restore", "the ledger was restored from a backup").await?;
    Ok(())
}

/// The file that asks the next start to stop the installation, after a restore.
const HOLD_FILE: &str = "hold";

/// The file that says that the ledger was restored, until the audit log says so.
const RESTORED_FILE: &str = "restored";

/// Asks the next start to stop the installation, after a restore.
pub fn write_hold_mark(data: &Path) -> std::io::Result<()> {
    write_mark(data, HOLD_FILE)
}

/// Marks a data directory as restored. The next start records it in the audit log.
pub fn mark_restored(data: &Path) -> std::io::Result<()> {
    write_mark(data, RESTORED_FILE)
}

/// Removes that mark, because the restore failed.
pub fn unmark_restored(data: &Path) -> std::io::Result<()> {
    std::fs::remove_file(data.join(RESTORED_FILE))
}

fn write_mark(data: &Path, name: &str) -> std::io::Result<()> {
    private_file::create_dir(data)?;
    let file = File::create(data.join(name))?;
    file.sync_all()?;
    File::open(data)?.sync_all()
}

/// Whether the next start stops the installation.
pub fn has_hold_mark(data: &Path) -> bool {
    data.join(HOLD_FILE).exists()
}

/// Removes the mark, so that the next start stops nothing.
pub fn remove_hold_mark(data: &Path) -> std::io::Result<()> {
    std::fs::remove_file(data.join(HOLD_FILE))
}

/// Returns when the store reports a fatal error.
async fn watch_store(engine: &Engine) -> StoreError {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        if let Some(error) = engine.ctx.store().fatal_error() {
            return error;
        }
    }
}

/// Installs handlers for Ctrl-C and SIGTERM; the returned future resolves when one arrives. The handlers are active at
/// once, so a signal during startup also leads to an orderly shutdown.
pub fn shutdown_signal() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Fails if there is no team, because then no client could authenticate.
pub async fn require_api_key(engine: &Engine) -> anyhow::Result<()> {
    if engine.access.teams().await.map_err(|problem| anyhow::anyhow!(problem.detail))?.is_empty() {
        bail!("there is no API key yet");
    }
    Ok(())
}
