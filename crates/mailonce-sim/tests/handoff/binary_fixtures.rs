//! What the tests of the real binary share: sinks on their own runtime, and server fixtures.

use mailonce_sim::{
    harness::{
        child_processes::ChildProcesses,
        server::built_binary,
        server_fixture::{self, OutboundTarget, ServerFixture},
    },
    sink::{
        http::{self, HttpSink},
        smtp::{self, SmtpSink},
    },
};
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// How long recovery from a dead worker may take: 15 s until it is noticed, and some for the work.
pub(crate) const RECOVERY_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a server may take to reach a failpoint.
pub(crate) const FAILPOINT_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn child_processes() -> &'static ChildProcesses {
    static CHILDREN: OnceLock<ChildProcesses> = OnceLock::new();
    CHILDREN.get_or_init(|| {
        let children = ChildProcesses::default();
        children.kill_children_on_signal(None).unwrap();
        children
    })
}

pub(crate) fn binary() -> PathBuf {
    built_binary().unwrap_or_else(|why| panic!("{why:#}"))
}

pub(crate) fn temp_dir() -> TempDir {
    tempfile::Builder::new().prefix("mailonce-rig").tempdir().unwrap()
}

/// The kind of next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SinkKind {
    Relay,
    Keyed,
}

/// A next hop that outlives every server.
pub(crate) enum RunningSink {
    Relay(SmtpSink),
    Keyed(HttpSink),
}

/// Next hop and runtime. The sink is dropped first.
pub(crate) struct SinkFixture {
    pub(crate) sink: RunningSink,
    pub(crate) runtime: Runtime,
}

impl SinkFixture {
    pub(crate) fn new(hop: SinkKind) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let oracle = runtime.block_on(async {
            match hop {
                SinkKind::Relay => RunningSink::Relay(SmtpSink::start(smtp::SmtpSinkConfig::default()).await.unwrap()),
                SinkKind::Keyed => RunningSink::Keyed(HttpSink::start().await.unwrap()),
            }
        });
        Self { sink: oracle, runtime }
    }

    pub(crate) fn outbound_target(&self) -> OutboundTarget {
        match &self.sink {
            RunningSink::Relay(sink) => OutboundTarget::Relay(sink.at.port()),
            RunningSink::Keyed(sink) => OutboundTarget::Resend(sink.url().to_owned(), http::API_KEY.to_owned()),
        }
    }

    pub(crate) fn relay(&self) -> &SmtpSink {
        match &self.sink {
            RunningSink::Relay(sink) => sink,
            RunningSink::Keyed(_) => panic!("this next hop speaks HTTP"),
        }
    }

    pub(crate) fn keyed(&self) -> &HttpSink {
        match &self.sink {
            RunningSink::Keyed(sink) => sink,
            RunningSink::Relay(_) => panic!("this next hop speaks SMTP"),
        }
    }

    /// The numbers of the accepted mails, in order.
    pub(crate) fn accepted_numbers(&self) -> Vec<usize> {
        let recipients: Vec<String> = match &self.sink {
            RunningSink::Relay(sink) => sink.mails().iter().map(|mail| mail.recipients[0].0.clone()).collect(),
            RunningSink::Keyed(sink) => sink.accepted_mail().iter().map(|mail| mail.recipients[0].clone()).collect(),
        };
        recipients.iter().filter_map(|to| server_fixture::mail_number(to)).collect()
    }

    /// How often each mail was accepted.
    pub(crate) fn copies_per_mail(&self, mails: usize) -> Vec<usize> {
        let mut counts = vec![0; mails];
        for n in self.accepted_numbers() {
            counts[n] += 1;
        }
        counts
    }
}

/// Servers that send one mail at a time, so that the state after a kill is known exactly.
pub(crate) fn sequential_server<'a>(
    outside: &SinkFixture,
    binary: &'a Path,
    root: &'a Path,
    store: Option<&'a str>,
) -> ServerFixture<'a> {
    let config = format!("{}\n[defaults]\nmax_in_flight = 1\n", outside.outbound_target().toml());
    ServerFixture { children: child_processes(), binary, root, store, config }
}
