//! Wiring: a store, an engine, its loops and the listener, from configuration to shutdown.

use anyhow::{Context as _, bail};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use mailonce_core::{
    port::store::{Recovered, Store, StoreError},
    team::{AboutApiKey, Scope},
};
use mailonce_engine::Engine;
use mailonce_store::{postgres::Postgres, sqlite::Sqlite};
use std::{
    fs::File,
    future::Future,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};

use crate::{
    api,
    client_address::TrustedProxies,
    clock::{self, WallClock},
    config::{Config, StoreAt},
    intake::{FrontDesk, smtp},
    lanes::Lanes,
    stall::{self, Watched},
    system::{SystemChance, fresh_secret},
};

/// Connections at a time. The next one waits in the kernel's queue.
const CONNECTIONS: usize = 20_000;
/// How long a client may take for its first or next request's head.
const HEAD_TIME: Duration = Duration::from_mins(1);
/// How long running requests may take to end when we stop.
const FAREWELL: Duration = Duration::from_secs(10);
/// How often we look whether the ledger can still be trusted.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Opens the ledger that the configuration names.
pub async fn open_store(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    let store: Arc<dyn Store> = match &config.store {
        StoreAt::Sqlite => Arc::new(Sqlite::open(&config.data, fresh_secret())?),
        StoreAt::Postgres(url) => Arc::new(Postgres::open(url, fresh_secret()).await?),
    };
    Ok(store)
}

/// An engine over a ledger, with this machine's clock and randomness and the ways out that are configured.
pub async fn open_engine(config: &Config) -> anyhow::Result<Arc<Engine>> {
    let outside = crate::outside::outside(config)?;
    let store = open_store(config).await?;
    let clock = Arc::new(WallClock::with(&config.data));
    let engine = Engine::new(store, clock, Arc::new(SystemChance), outside).await?;
    if config.clock_trusted == Some(true) {
        engine.confirm_time();
    }
    Ok(engine)
}

/// A credential without restrictions.
pub fn about(name: &str, scopes: Vec<Scope>) -> AboutApiKey {
    AboutApiKey {
        name: name.to_owned(),
        hint: String::new(),
        scopes,
        senders: Vec::new(),
        inboxes: Vec::new(),
        rate_per_s: None,
        expires_at: None,
    }
}

/// The doors. Bound before anything is printed, so that what is printed is true.
pub struct Doors {
    http: TcpListener,
    smtp: Option<TcpListener>,
}

impl Doors {
    /// Where the API is.
    pub fn http(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.http.local_addr()?)
    }

    /// Where mail comes in, unless that is off.
    pub fn smtp(&self) -> anyhow::Result<Option<SocketAddr>> {
        Ok(self.smtp.as_ref().map(TcpListener::local_addr).transpose()?)
    }
}

/// Binds the doors that the configuration names.
pub async fn listen(config: &Config) -> anyhow::Result<Doors> {
    let http = TcpListener::bind(config.http).await;
    let http = http.with_context(|| format!("listening on {}; is another mailonce running?", config.http))?;
    let smtp = match config.smtp.listen {
        None => None,
        Some(at) => Some(TcpListener::bind(at).await.with_context(|| {
            format!("listening for SMTP on {at}; choose another address with --smtp, or `--smtp off`")
        })?),
    };
    Ok(Doors { http, smtp })
}

/// Serves until `stop` resolves, then finishes what runs and closes the ledger. Fails when the ledger cannot be
/// trusted any more.
pub async fn serve(
    engine: Arc<Engine>,
    doors: Doors,
    config: &Config,
    echo: bool,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    if let Some(note) = engine.clock_state().note() {
        tracing::warn!("{note}");
    }
    let lanes = Lanes::open().context("starting a thread for each core")?;
    let (ending, ended) = watch::channel(false);
    let upkeep = Arc::clone(&engine).keep_running("upkeep", ended.clone(), Engine::keep_up);
    let mut loops = vec![tokio::spawn(upkeep)];
    engine.learn_inbox_domains().await?;
    let hold = (config.store == StoreAt::Sqlite && is_held(&config.data)).then(|| config.data.join(HOLD_FILE));
    if hold.is_some() {
        tracing::warn!("this ledger was restored with --hold: nothing is handed over until `mailonce resume`");
    }
    engine.pause(!config.handoff || hold.is_some());
    let recovered = engine.recover().await?;
    if recovered != Recovered::default() {
        let Recovered { queued, unknown, deliveries, notices } = recovered;
        tracing::warn!(queued, unknown, deliveries, notices, "found work of a process that ended");
    }
    loops.push(tokio::spawn(Arc::clone(&engine).hand_off(ended.clone())));
    loops.push(tokio::spawn(Arc::clone(&engine).keep_running("read_mail", ended.clone(), Engine::read_mail)));
    loops.push(tokio::spawn(Arc::clone(&engine).keep_running("poll_sources", ended.clone(), Engine::poll_sources)));
    loops.push(tokio::spawn(Arc::clone(&engine).keep_running("notify", ended.clone(), Engine::notify)));
    loops.push(tokio::spawn(clock::remember(Arc::clone(&engine), config.data.clone(), ended.clone())));
    let Doors { http, smtp } = doors;
    let (closing, closed) = watch::channel(false);
    let post = smtp.map(|listener| open_smtp(&engine, listener, config, closed)).transpose()?;
    let (post, tally) = post.unzip();
    let url = config.public_url.clone().map_or_else(|| Ok(format!("http://{}", http.local_addr()?)), anyhow::Ok)?;
    let router = api::router_beside(Arc::clone(&engine), echo, api::Beside { tally, url });
    let guests = Guests::default();
    let outcome = tokio::select! {
        () = stop => Ok(()),
        error = accept_connections(http, Callers::new(router, config), &guests, &lanes) => Err(error),
        error = until_broken(&engine, hold) => Err(anyhow::Error::from(error)),
    };
    closing.send_replace(true);
    engine.end_streams();
    if tokio::time::timeout(FAREWELL, guests.farewell()).await.is_err() {
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
fn open_smtp(
    engine: &Arc<Engine>,
    listener: TcpListener,
    config: &Config,
    closed: watch::Receiver<bool>,
) -> anyhow::Result<(tokio::task::JoinHandle<()>, Arc<smtp::Tally>)> {
    let settings = config.smtp.settings(!config.dev_domains.is_empty())?;
    let desk = Arc::new(FrontDesk(Arc::clone(engine)));
    let tally = Arc::clone(&settings.tally);
    Ok((tokio::spawn(smtp::run(listener, desk, settings, closed)), tally))
}

/// Connections that are open, and the wish that they come to their end. One that became a socket is no longer among
/// them: it ends with the streams.
struct Guests {
    places: Arc<Semaphore>,
    leaving: watch::Sender<bool>,
}

impl Default for Guests {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(CONNECTIONS)), leaving: watch::Sender::new(false) }
    }
}

impl Guests {
    /// Lets every connection end after the call that it is at, and waits for them.
    async fn farewell(&self) {
        self.leaving.send_replace(true);
        drop(self.places.acquire_many(CONNECTIONS as u32).await);
    }
}

/// What every connection of the HTTP listener shares.
#[derive(Clone)]
struct Callers {
    router: axum::Router,
    trusted_proxies: Arc<TrustedProxies>,
}

impl Callers {
    fn new(router: axum::Router, config: &Config) -> Self {
        Self { router, trusted_proxies: Arc::new(config.http_options.trusted_proxies.clone()) }
    }
}

async fn accept_connections(listener: TcpListener, callers: Callers, guests: &Guests, lanes: &Lanes) -> anyhow::Error {
    loop {
        let Ok(place) = Arc::clone(&guests.places).acquire_owned().await else {
            return anyhow::anyhow!("the listener closed");
        };
        let (stream, peer) = match listener.accept().await {
            Ok((stream, peer)) => (stream, peer.ip()),
            Err(error) => {
                // Out of descriptors, most likely: those that are open will end.
                tracing::warn!(%error, "accepting a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (callers, leaving) = (callers.clone(), guests.leaving.subscribe());
        let served = lanes.serve(stream, move |stream| async move {
            if let Err(error) = attend(stream, peer, callers, leaving).await {
                tracing::debug!(%error, "a connection ended");
            }
            drop(place);
        });
        if let Err(error) = served {
            tracing::warn!(%error, "giving a connection to a lane");
        }
    }
}

/// Answers the calls of one connection until it ends or the house closes.
async fn attend(
    stream: TcpStream,
    peer: IpAddr,
    callers: Callers,
    mut leaving: watch::Receiver<bool>,
) -> hyper::Result<()> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY");
    }
    let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
        let client = callers.trusted_proxies.client(peer, request.headers());
        request.extensions_mut().insert(client);
        api::answer(callers.router.clone(), request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(Watched::new(stream, stall::PATIENCE)), answer);
    let mut connection = pin!(connection.with_upgrades());
    tokio::select! {
        ended = connection.as_mut() => ended,
        _ = leaving.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

/// The file that keeps hand-off at rest over restarts.
const HOLD_FILE: &str = "hold";

/// Makes a folder that its owner alone can look into. One that is there stays as it is.
pub fn own_folder(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Keeps the hand-off of a data directory at rest over restarts, until somebody lets it go on.
pub fn hold(data: &Path) -> std::io::Result<()> {
    own_folder(data)?;
    let file = File::create(data.join(HOLD_FILE))?;
    file.sync_all()?;
    File::open(data)?.sync_all()
}

/// Whether hand-off rests over restarts.
pub fn is_held(data: &Path) -> bool {
    data.join(HOLD_FILE).exists()
}

/// Lets it go on.
pub fn let_go(data: &Path) -> std::io::Result<()> {
    std::fs::remove_file(data.join(HOLD_FILE))
}

/// Ends when the ledger cannot be trusted any more. Everything else passes by itself. Takes the mark of a hold away
/// once somebody let hand-off go on: until it is gone, a restart rests again, which is the safe side.
async fn until_broken(engine: &Engine, mut hold: Option<PathBuf>) -> StoreError {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(file) = hold.take_if(|_| !engine.is_paused())
            && let Err(error) = std::fs::remove_file(&file)
        {
            tracing::error!(%error, file = %file.display(), "taking the hold away: the next start rests again");
        }
        if let Some(error) = engine.store().stopped() {
            return error;
        }
    }
}

/// Listens for Ctrl-C and SIGTERM from now on; what it returns resolves when one came. It listens before it is waited
/// for: a server that is told to stop while it starts ends as one that ran, and leaves nothing behind.
pub fn told_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Refuses a `serve` that nobody could call.
pub async fn need_a_key(engine: &Engine) -> anyhow::Result<()> {
    if engine.teams().await.map_err(|problem| anyhow::anyhow!(problem.detail))?.is_empty() {
        bail!("there is no API key yet");
    }
    Ok(())
}
