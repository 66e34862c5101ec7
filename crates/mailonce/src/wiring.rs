//! Wiring: a store, an engine, its loops and the listener, from configuration to shutdown.

use anyhow::{Context as _, bail};
use mailonce_core::{
    access::team::{ApiKeyDetails, ApiKeyScope},
    installation::RecoveryCounts,
    ports::store::{Store, StoreError},
};
use mailonce_engine::{Engine, access::kek::SecretUnlocker};
use mailonce_store::{postgres::Postgres, sqlite::Sqlite};
use std::{
    fs::File,
    future::Future,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{
    api,
    config::{Config, StoreLocation},
    connection_threads::ConnectionThreads,
    entropy::{OsEntropy, wall_time},
    http::{FailureLimit, HttpListener, read_certificate},
    intake::{EngineReceiver, smtp},
    tls::Tls,
    wall_clock::{self, WallClock},
};

/// How long running requests may take to finish when the server shuts down.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How often we look whether the ledger can still be trusted.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Opens the ledger that the configuration names, with the KEK that it names.
pub async fn open_store(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    let kek = config.secrets.read_kek().await?;
    let unlock = SecretUnlocker { kek: kek.as_ref(), entropy: &OsEntropy, now: wall_time() };
    let store: Arc<dyn Store> = match &config.store {
        StoreLocation::Sqlite => Arc::new(Sqlite::open(&config.data, unlock)?),
        StoreLocation::Postgres(url) => Arc::new(Postgres::open(url, unlock).await?),
    };
    Ok(store)
}

/// An engine over a ledger, with this machine's clock and randomness and the ways out that are configured.
pub async fn open_engine(config: &Config) -> anyhow::Result<Arc<Engine>> {
    let outside = crate::engine_deps::engine_deps(config)?;
    let store = open_store(config).await?;
    let clock = Arc::new(WallClock::open(&config.data));
    let engine = Engine::new(store, clock, Arc::new(OsEntropy), outside).await?;
    if config.clock_trusted == Some(true) {
        engine.confirm_time();
    }
    Ok(engine)
}

/// A credential without restrictions.
pub fn unrestricted_key(name: &str, scopes: Vec<ApiKeyScope>) -> ApiKeyDetails {
    ApiKeyDetails {
        name: name.to_owned(),
        hint: String::new(),
        scopes,
        senders: Vec::new(),
        inboxes: Vec::new(),
        rate_per_s: None,
        expires_at: None,
        allow_ips: Vec::new(),
    }
}

/// The doors. Bound before anything is printed, so that what is printed is true.
pub struct BoundListeners {
    http: TcpListener,
    tls: Option<Arc<Tls>>,
    smtp: Option<TcpListener>,
}

impl BoundListeners {
    /// Where the API is.
    pub fn http_address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.http.local_addr()?)
    }

    /// Where mail comes in, unless that is off.
    pub fn smtp_address(&self) -> anyhow::Result<Option<SocketAddr>> {
        Ok(self.smtp.as_ref().map(TcpListener::local_addr).transpose()?)
    }
}

/// Binds the addresses and reads the certificate of HTTP that the configuration names.
pub async fn bind_listeners(config: &Config) -> anyhow::Result<BoundListeners> {
    let tls = read_certificate(&config.http_options)?;
    if tls.is_some() || config.smtp.tls_files.is_some() {
        // From now on SIGHUP does not end the process: it means that certificates are to be read again.
        drop(signal(SignalKind::hangup())?);
    }
    let http = TcpListener::bind(config.http).await;
    let http = http.with_context(|| format!("listening on {}; is another mailonce running?", config.http))?;
    let smtp = match config.smtp.listen {
        None => None,
        Some(at) => Some(TcpListener::bind(at).await.with_context(|| {
            format!("listening for SMTP on {at}; choose another address with --smtp, or `--smtp off`")
        })?),
    };
    Ok(BoundListeners { http, tls, smtp })
}

/// Serves until `stop` resolves, then finishes what runs and closes the ledger. Fails when the ledger cannot be
/// trusted any more.
pub async fn serve(
    engine: Arc<Engine>,
    doors: BoundListeners,
    config: &Config,
    echo: bool,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    if let Some(note) = engine.clock_state().warning() {
        tracing::warn!("{note}");
    }
    let lanes = ConnectionThreads::open().context("starting a thread for each core")?;
    let (ending, ended) = watch::channel(false);
    let upkeep = Arc::clone(&engine).restart_on_panic("upkeep", ended.clone(), Engine::run_maintenance);
    let mut loops = vec![tokio::spawn(upkeep)];
    engine.load_inbox_domains().await?;
    let hold =
        (config.store == StoreLocation::Sqlite && is_handoff_held(&config.data)).then(|| config.data.join(HOLD_FILE));
    if hold.is_some() {
        tracing::warn!("this ledger was restored with --hold: nothing is handed over until `mailonce resume`");
    }
    engine.set_handoff_paused(!config.handoff || hold.is_some());
    let recovered = engine.heartbeat_and_recover().await?;
    if recovered != RecoveryCounts::default() {
        let RecoveryCounts { queued, unknown, deliveries, notices } = recovered;
        tracing::warn!(queued, unknown, deliveries, notices, "found work of a process that ended");
    }
    loops.push(tokio::spawn(Arc::clone(&engine).run_handoff(ended.clone())));
    loops.push(tokio::spawn(Arc::clone(&engine).restart_on_panic(
        "read_mail",
        ended.clone(),
        Engine::run_inbound_worker,
    )));
    loops.push(tokio::spawn(Arc::clone(&engine).restart_on_panic("poll_sources", ended.clone(), Engine::poll_sources)));
    loops.push(tokio::spawn(Arc::clone(&engine).restart_on_panic("notify", ended.clone(), Engine::run_notifier)));
    let revoked = Arc::clone(&engine).restart_on_panic("open_keys", ended.clone(), Engine::run_revocation_checks);
    loops.push(tokio::spawn(revoked));
    loops.push(tokio::spawn(wall_clock::record_readings(Arc::clone(&engine), config.data.clone(), ended.clone())));
    let BoundListeners { http, tls, smtp } = doors;
    let (closing, closed) = watch::channel(false);
    let post = smtp.map(|listener| start_smtp(&engine, listener, config, closed)).transpose()?;
    let (post, tally) = post.unzip();
    let url = config.url_at(http.local_addr()?);
    let failures = FailureLimit::new(config.http_options.trusted_proxies.clone());
    let router = api::router_with_options(
        Arc::clone(&engine),
        echo,
        api::RouterOptions { smtp_metrics: tally, public_url: url, auth_failures: failures },
    );
    let callers = HttpListener::new(router, tls, config)?;
    let outcome = tokio::select! {
        () = stop => Ok(()),
        error = callers.run(http, &lanes) => Err(error),
        error = watch_store(&engine, hold) => Err(anyhow::Error::from(error)),
    };
    closing.send_replace(true);
    engine.end_streams();
    if tokio::time::timeout(DRAIN_TIMEOUT, callers.drain()).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
    loops.extend(post);
    ending.send_replace(true);
    for task in loops {
        if let Err(error) = task.await {
            tracing::error!(%error, "a loop ended");
        }
    }
    engine.store().close().await;
    // Calls may have left work behind that was still on its way.
    drop(lanes);
    outcome
}

/// Lets mail come in. In `dev` with a certificate made on the spot, so that STARTTLS can be tried.
fn start_smtp(
    engine: &Arc<Engine>,
    listener: TcpListener,
    config: &Config,
    closed: watch::Receiver<bool>,
) -> anyhow::Result<(tokio::task::JoinHandle<()>, Arc<smtp::SmtpMetrics>)> {
    let spool = Arc::new(spool_dir(&config.data)?);
    let settings = smtp::SmtpSettings { spool, ..config.smtp.settings(!config.dev_domains.is_empty())? };
    let desk = Arc::new(EngineReceiver(Arc::clone(engine)));
    let tally = Arc::clone(&settings.metrics);
    Ok((tokio::spawn(smtp::run(listener, desk, settings, closed)), tally))
}

/// Where large mails wait while they come in: in the data directory or, where PostgreSQL needs none, in that of temporary
/// files. Tried now, since nobody sees the first large mail fail.
fn spool_dir(data: &Path) -> anyhow::Result<smtp::SpoolDir> {
    let dir = smtp::SpoolDir(if data.is_dir() { data.to_owned() } else { std::env::temp_dir() });
    let made = smtp::SpoolFiles::create(&dir);
    made.with_context(|| format!("no file for large mails can be made in {}; set TMPDIR or `data`", dir.0.display()))?;
    Ok(dir)
}

/// The file that keeps hand-off at rest over restarts.
const HOLD_FILE: &str = "hold";

/// Makes a folder that its owner alone can look into. One that is there stays as it is.
pub fn create_private_dir(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Keeps the hand-off of a data directory at rest over restarts, until somebody lets it go on.
pub fn hold_handoff(data: &Path) -> std::io::Result<()> {
    create_private_dir(data)?;
    let file = File::create(data.join(HOLD_FILE))?;
    file.sync_all()?;
    File::open(data)?.sync_all()
}

/// Whether hand-off rests over restarts.
pub fn is_handoff_held(data: &Path) -> bool {
    data.join(HOLD_FILE).exists()
}

/// Lets it go on.
pub fn release_handoff(data: &Path) -> std::io::Result<()> {
    std::fs::remove_file(data.join(HOLD_FILE))
}

/// Ends when the ledger cannot be trusted any more. Everything else passes by itself. Takes the mark of a hold away
/// once somebody let hand-off go on: until it is gone, a restart rests again, which is the safe side.
async fn watch_store(engine: &Engine, mut hold: Option<PathBuf>) -> StoreError {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        if let Some(file) = hold.take_if(|_| !engine.is_handoff_paused())
            && let Err(error) = std::fs::remove_file(&file)
        {
            tracing::error!(%error, file = %file.display(), "taking the hold away: the next start rests again");
        }
        if let Some(error) = engine.store().fatal_error() {
            return error;
        }
    }
}

/// Listens for Ctrl-C and SIGTERM from now on; what it returns resolves when one came. It listens before it is waited
/// for: a server that is told to stop while it starts ends as one that ran, and leaves nothing behind.
pub fn shutdown_signal() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Refuses a `serve` that nobody could call.
pub async fn require_api_key(engine: &Engine) -> anyhow::Result<()> {
    if engine.teams().await.map_err(|problem| anyhow::anyhow!(problem.detail))?.is_empty() {
        bail!("there is no API key yet");
    }
    Ok(())
}
