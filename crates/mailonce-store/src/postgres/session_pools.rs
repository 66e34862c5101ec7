//! Connection pools: the database URL, TLS, and the settings of every session.

use deadpool_postgres::{
    Client, ClientWrapper, Connect, Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime,
};
use mailonce_core::ports::store::StoreError;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinHandle;
use tokio_postgres::{
    AsyncMessage, Config, NoTls, Socket,
    config::{SslMode, TargetSessionAttrs},
    error::Severity,
    tls::{MakeTlsConnect, TlsConnect},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{durability, server::ServerState};
use crate::postgres::error::TxResult;

/// Settings of every new session. The planner settings force index scans with nested loops. On a new installation the
/// statistics would otherwise favor sequential scans.
const SESSION_SETUP: &str = "
    SELECT set_config('synchronous_commit', 'on', false)
     WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
    SET search_path = mailonce;
    SET default_transaction_isolation = 'read committed';
    SET statement_timeout = '30s';
    SET idle_in_transaction_session_timeout = '15s';
    SET client_min_messages = 'warning';
    SET jit = off;
    SET enable_seqscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET enable_material = off;
    SET random_page_cost = 0;
    SET seq_page_cost = 0;";

/// Server routines whose warnings mean that a commit may not be durable: a cancelled wait for synchronous
/// replication, and `RAISE WARNING` in PL/pgSQL. Other warnings, about collations for example, do not concern
/// commits. Routine names, unlike messages, are not translated.
const COMMIT_WARNING_ROUTINES: [&str; 2] = ["SyncRepWaitForLSN", "exec_stmt_raise"];

/// The connection settings from the database URL.
#[derive(Clone)]
pub(crate) struct ConnectConfig {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl ConnectConfig {
    /// Parses a URL. TLS is used with `sslmode=require` or `prefer`. `verify-ca` and `verify-full` mean the same as
    /// `require`, because certificates are always verified, against `sslrootcert` or else the public roots.
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut rest) = (SslMode::Disable, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("sslmode", "disable" | "allow") => {}
                ("sslmode", "prefer") => mode = SslMode::Prefer,
                ("sslmode", "require" | "verify-ca" | "verify-full") => mode = SslMode::Require,
                ("sslmode", other) => return Err(unreachable_error(format!("sslmode={other} is not known"))),
                ("sslrootcert", path) => roots = Some(path.to_owned()),
                _ => rest.push(pair),
            }
        }
        let plain = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut config: Config =
            plain.parse().map_err(|error| unreachable_error(format!("the URL of the store: {error}")))?;
        config
            .ssl_mode(mode)
            .application_name("mailonce")
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(Duration::from_secs(5))
            .tcp_user_timeout(Duration::from_secs(15))
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(3))
            .keepalives_retries(3);
        let tls = if mode == SslMode::Disable { None } else { Some(tls_connector(roots.as_deref())?) };
        Ok(Self { config, tls })
    }

    /// Opens a session on a database that is not the ledger. It begins with `setup`, and passes notifications to
    /// `heard`.
    pub(crate) async fn open_foreign_session(&self, setup: &'static str, heard: NotificationHandler) -> OpenResult {
        let opener = SessionOpener { tls: self.tls.clone(), warnings: Arc::default(), on_notification: heard, setup };
        opener.connect(&self.config).await
    }

    /// Creates a pool. Warnings about commits are counted in `warnings`. Each new session is asked which server it is
    /// on; a session from before a server change is not reused.
    fn pool(&self, size: usize, warnings: &Arc<AtomicU64>, server: &Arc<ServerState>) -> Result<Pool, StoreError> {
        let opener = SessionOpener {
            tls: self.tls.clone(),
            warnings: warnings.clone(),
            on_notification: Arc::new(|_letter| {}),
            setup: SESSION_SETUP,
        };
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(self.config.clone(), opener, recycling);
        let (asked, outdated) = (Arc::clone(server), Arc::clone(server));
        Pool::builder(manager)
            .max_size(size)
            .post_create(Hook::async_fn(move |client, _| identify(&asked, client)))
            .pre_recycle(Hook::sync_fn(move |_, metrics| {
                let outdated = outdated.is_outdated(metrics.created);
                if outdated { Err(HookError::message("this session is on another server")) } else { Ok(()) }
            }))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(Duration::from_secs(10)))
            .create_timeout(Some(Duration::from_secs(10)))
            .build()
            .map_err(|error| unreachable_error(error.to_string()))
    }
}

type HookFuture<'a> = Pin<Box<dyn Future<Output = Result<(), HookError>> + Send + 'a>>;

fn identify<'a>(server: &Arc<ServerState>, client: &'a ClientWrapper) -> HookFuture<'a> {
    let server = Arc::clone(server);
    Box::pin(async move {
        let identified = server.identify(client).await;
        identified.map_err(|error| HookError::message(StoreError::from(error).to_string()))
    })
}

fn unreachable_error(why: String) -> StoreError {
    StoreError::Unreachable(why)
}

fn tls_connector(roots: Option<&str>) -> Result<MakeRustlsConnect, StoreError> {
    let mut store = RootCertStore::empty();
    match roots {
        None => store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let unreadable = |why: String| unreachable_error(format!("sslrootcert {path}: {why}"));
            let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(error.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
                store.add(certificate).map_err(|error| unreadable(error.to_string()))?;
            }
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unreachable_error(error.to_string()))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

pub(crate) type OpenResult = Result<(tokio_postgres::Client, JoinHandle<()>), tokio_postgres::Error>;

/// Called with the payload of each notification that a `LISTEN` session receives.
pub(crate) type NotificationHandler = Arc<dyn Fn(&str) + Send + Sync>;

/// Opens sessions and handles their asynchronous messages: warnings and notifications.
struct SessionOpener {
    tls: Option<MakeRustlsConnect>,
    warnings: Arc<AtomicU64>,
    on_notification: NotificationHandler,
    /// The statements that every new session begins with.
    setup: &'static str,
}

impl Connect for SessionOpener {
    fn connect(&self, config: &Config) -> Pin<Box<dyn Future<Output = OpenResult> + Send + '_>> {
        let (config, warnings, heard) = (config.clone(), self.warnings.clone(), self.on_notification.clone());
        let setup = self.setup;
        Box::pin(async move {
            let opened = match self.tls.clone() {
                Some(tls) => open_session(config, tls, warnings, heard).await?,
                None => open_session(config, NoTls, warnings, heard).await?,
            };
            opened.0.batch_execute(setup).await?;
            Ok(opened)
        })
    }
}

async fn open_session<T>(config: Config, tls: T, warnings: Arc<AtomicU64>, heard: NotificationHandler) -> OpenResult
where
    T: MakeTlsConnect<Socket> + Send,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let (client, mut connection) = config.connect(tls).await?;
    let driver = tokio::spawn(async move {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                Ok(AsyncMessage::Notice(notice)) => {
                    let warns = notice.parsed_severity() == Some(Severity::Warning);
                    if warns && notice.routine().is_some_and(|routine| COMMIT_WARNING_ROUTINES.contains(&routine)) {
                        warnings.fetch_add(1, Ordering::SeqCst);
                    }
                    if warns {
                        tracing::warn!("the database warns: {}", notice.message());
                    }
                }
                Ok(AsyncMessage::Notification(payload)) => heard(payload.payload()),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(
                        "a connection to the database ended: {}",
                        crate::postgres::error::server_message(&error)
                    );
                    return;
                }
            }
        }
    });
    Ok((client, driver))
}

/// The connection pools of one store.
pub(crate) struct SessionPools {
    config: ConnectConfig,
    accept_pool: Pool,
    verb_pool: Pool,
    /// How many warnings about commits the server has raised. A commit with such a warning reports success, but may
    /// not be durable.
    commit_warnings: Arc<AtomicU64>,
    /// The server that the sessions are on.
    pub(crate) server: Arc<ServerState>,
}

impl SessionPools {
    /// Creates separate pools for accepts and for all other calls, so that neither waits for the other.
    pub(crate) fn new(
        config: &ConnectConfig,
        accept_connections: usize,
        other_connections: usize,
    ) -> Result<Self, StoreError> {
        let (warnings, server) = (Arc::default(), Arc::default());
        let accepts = config.pool(accept_connections, &warnings, &server)?;
        let verbs = config.pool(other_connections, &warnings, &server)?;
        Ok(Self { config: config.clone(), accept_pool: accepts, verb_pool: verbs, commit_warnings: warnings, server })
    }

    /// Opens a session outside the pools that counts the warnings about its own commits.
    pub(crate) async fn open_separate_session(
        &self,
        warnings: &Arc<AtomicU64>,
    ) -> TxResult<(tokio_postgres::Client, JoinHandle<()>)> {
        let opener = SessionOpener {
            tls: self.config.tls.clone(),
            warnings: warnings.clone(),
            on_notification: Arc::new(|_letter| {}),
            setup: SESSION_SETUP,
        };
        Ok(opener.connect(&self.config.config).await?)
    }

    /// Opens a session outside the pools that passes notifications to `heard` while its driver runs.
    pub(crate) async fn open_listener(
        &self,
        heard: NotificationHandler,
    ) -> TxResult<(tokio_postgres::Client, JoinHandle<()>)> {
        let opener = SessionOpener {
            tls: self.config.tls.clone(),
            warnings: self.commit_warnings.clone(),
            on_notification: heard,
            setup: SESSION_SETUP,
        };
        Ok(opener.connect(&self.config.config).await?)
    }

    /// Takes a session for accepts from the pool.
    pub(crate) async fn accept_client(&self) -> TxResult<Client> {
        durability::mark_unproven();
        Ok(self.accept_pool.get().await?)
    }

    /// Takes a session for any other call from the pool.
    pub(crate) async fn client(&self) -> TxResult<Client> {
        durability::mark_unproven();
        Ok(self.verb_pool.get().await?)
    }

    /// How many warnings about commits the server has raised so far.
    pub(crate) fn commit_warnings(&self) -> u64 {
        self.commit_warnings.load(Ordering::SeqCst)
    }

    /// Closes both pools.
    pub(crate) fn close(&self) {
        self.accept_pool.close();
        self.verb_pool.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_follows_the_url() {
        for (url, tls) in [
            ("postgres://u@h/d", false),
            ("postgres://u@h/d?sslmode=disable", false),
            ("postgres://u@h/d?sslmode=prefer", true),
            ("postgres://u@h/d?sslmode=require&connect_timeout=3", true),
            ("postgres://u@h/d?connect_timeout=3&sslmode=verify-full", true),
        ] {
            assert_eq!(ConnectConfig::parse(url).unwrap().tls.is_some(), tls, "{url}");
        }
        for bad in ["postgres://u@h/d?sslmode=maybe", "postgres://u@h/d?sslmode=require&sslrootcert=/no/such/file", "x"]
        {
            assert!(matches!(ConnectConfig::parse(bad), Err(StoreError::Unreachable(_))), "{bad}");
        }
    }
}
