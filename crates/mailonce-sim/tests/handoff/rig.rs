//! What the rigs over the real binary share: sinks on a runtime of their own, and places for servers.

use mailonce_sim::{
    rig::{
        children::Children,
        post::{self, Post, Way},
        server::built_binary,
    },
    sink::{
        http::{self, Sink},
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

/// How long nothing may be stuck after its worker died: 15 s until that is noticed, and some for the work.
pub(crate) const UNSTUCK: Duration = Duration::from_secs(20);
/// How long a server may take to come to a point.
pub(crate) const REACH: Duration = Duration::from_secs(30);

pub(crate) fn children() -> &'static Children {
    static CHILDREN: OnceLock<Children> = OnceLock::new();
    CHILDREN.get_or_init(|| {
        let children = Children::default();
        children.watch_signals(None).unwrap();
        children
    })
}

pub(crate) fn binary() -> PathBuf {
    built_binary().unwrap_or_else(|why| panic!("{why:#}"))
}

pub(crate) fn folder() -> TempDir {
    tempfile::Builder::new().prefix("mailonce-rig").tempdir().unwrap()
}

/// Which next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    Relay,
    Keyed,
}

/// A next hop that outlives every server.
pub(crate) enum Oracle {
    Relay(SmtpSink),
    Keyed(Sink),
}

/// Next hop and runtime. The sink ends first.
pub(crate) struct Outside {
    pub(crate) oracle: Oracle,
    pub(crate) runtime: Runtime,
}

impl Outside {
    pub(crate) fn new(hop: Hop) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let oracle = runtime.block_on(async {
            match hop {
                Hop::Relay => Oracle::Relay(SmtpSink::start(smtp::Setting::default()).await.unwrap()),
                Hop::Keyed => Oracle::Keyed(Sink::open().await.unwrap()),
            }
        });
        Self { oracle, runtime }
    }

    pub(crate) fn way(&self) -> Way {
        match &self.oracle {
            Oracle::Relay(sink) => Way::Relay(sink.at.port()),
            Oracle::Keyed(sink) => Way::Resend(sink.url().to_owned(), http::API_KEY.to_owned()),
        }
    }

    pub(crate) fn relay(&self) -> &SmtpSink {
        match &self.oracle {
            Oracle::Relay(sink) => sink,
            Oracle::Keyed(_) => panic!("this next hop speaks HTTP"),
        }
    }

    pub(crate) fn keyed(&self) -> &Sink {
        match &self.oracle {
            Oracle::Keyed(sink) => sink,
            Oracle::Relay(_) => panic!("this next hop speaks SMTP"),
        }
    }

    /// The numbers of the mails it took, in order.
    pub(crate) fn taken(&self) -> Vec<usize> {
        let recipients: Vec<String> = match &self.oracle {
            Oracle::Relay(sink) => sink.mails().iter().map(|mail| mail.recipients[0].0.clone()).collect(),
            Oracle::Keyed(sink) => sink.taken().iter().map(|mail| mail.recipients[0].clone()).collect(),
        };
        recipients.iter().filter_map(|to| post::number(to)).collect()
    }

    /// How often it took each mail.
    pub(crate) fn counts(&self, mails: usize) -> Vec<usize> {
        let mut counts = vec![0; mails];
        for n in self.taken() {
            counts[n] += 1;
        }
        counts
    }
}

/// A place for servers that hand over one mail at a time, so that what a kill leaves is known exactly.
pub(crate) fn one_by_one<'a>(outside: &Outside, binary: &'a Path, root: &'a Path, store: Option<&'a str>) -> Post<'a> {
    let config = format!("{}\n[defaults]\nin_flight = 1\n", outside.way().toml());
    Post { children: children(), binary, root, store, config }
}
