//! PostgreSQL crashes, is cut off, or its answers are lost, under load: callers hear 503 and nothing worse, what was
//! acknowledged is kept, a retry under the same key is one email, and every mail reaches the sink once.

use anyhow::{Context as _, Result};
use mailonce_sim::{
    proof,
    rig::{
        campaign::say,
        chance::{Chance, asked, seed},
        children::pause,
        cluster::Cluster,
        drive::{Load, Shared, ask_again, until},
        history::{End, end_of},
        http,
        ledger::Ledger,
        post::{Post, Way},
        proxy::{Proxy, Weather},
        server::Server,
        wish::{Kind, Wish},
    },
    sink::smtp::{self, SmtpSink},
};
use std::{collections::BTreeMap, net::SocketAddr, time::Duration};
use tokio::runtime::Runtime;

use crate::beside::play;
use crate::setting::{self, binary, children, folder};

/// How long a storm lasts.
const STORM: Duration = Duration::from_millis(500);
/// Load before it.
const CALM: Duration = Duration::from_millis(200);
/// How long a server may take until it accepts again.
const RECOVERS: Duration = Duration::from_mins(1);
/// How long all mails may take to leave, on a busy machine.
const LEAVES: Duration = Duration::from_mins(3);

/// A database, a network to it, a server, and where its mails arrive.
struct Scene {
    cluster: Cluster,
    proxy: Proxy,
    server: Server,
    sink: SmtpSink,
    /// The sink's.
    _runtime: Runtime,
    _root: tempfile::TempDir,
    history: Shared,
    seed: u64,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let (cluster, root, binary) = (Cluster::start().unwrap(), folder(), binary());
        let proxy = Proxy::start(cluster.port(), seed).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sink = runtime.block_on(SmtpSink::start(smtp::Setting::default())).unwrap();
        let store = cluster.url_at(proxy.at.port());
        let config = Way::Relay(sink.at.port()).toml();
        let place = Post { children: children(), binary: &binary, root: root.path(), store: Some(&store), config };
        let server = place.start("node", None, false).unwrap();
        Self { cluster, proxy, server, sink, _runtime: runtime, _root: root, history: Shared::default(), seed }
    }

    /// Loads the server, lets something happen to its database meanwhile, and waits until it accepts again.
    fn endure(&mut self, cycle: u32, window: Duration, trouble: impl FnOnce(&mut Cluster, &Proxy) -> Result<()>) {
        let Self { cluster, proxy, .. } = self;
        let load = Load { at: self.server.at, seed: self.seed, cycle, window };
        let done = load.run(&self.history, || {
            pause(CALM);
            let done = trouble(cluster, proxy);
            proxy.set(Weather::Fair);
            done
        });
        done.unwrap_or_else(|why| panic!("seed {}: {why:#}\n{}", self.seed, self.server.log()));
        self.recovers(cycle);
    }

    fn recovers(&self, cycle: u32) {
        let mail = serde_json::json!({"from": "a@example.com", "to": "probe@example.org", "subject": "?", "text": "?"});
        let key = format!("probe-{cycle}");
        let accepts = until(RECOVERS, || {
            Ok(http::post(self.server.at, "/v1/emails", Some(&key), &mail).is_ok_and(|reply| reply.status < 300))
        });
        assert!(accepts.unwrap(), "no accept {} s after the storm: {}", RECOVERS.as_secs(), self.server.log());
    }

    /// Asks for everything once more, judges the ledger, and counts what arrived.
    fn judge(&self) -> Vec<String> {
        let at = self.server.at;
        for _ in 0..2 {
            let all: Vec<_> = self.history.lock().wishes(0).into_iter().collect();
            ask_again(at, &self.history, &all).unwrap();
        }
        let mut ledger = Ledger::default();
        until(RECOVERS, || {
            ledger = Ledger::read(at)?;
            Ok(ledger.births() == ledger.emails.len())
        })
        .unwrap();
        // Probes are no part of the history.
        let probes: Vec<_> = ledger
            .emails
            .iter()
            .filter(|row| row.to.iter().any(|to| to.starts_with("probe")))
            .map(|row| row.id.clone())
            .collect();
        ledger.emails.retain(|row| !probes.contains(&row.id));
        for event in ledger.events.iter_mut().filter(|event| probes.contains(&event.about)) {
            event.kind = "probe".to_owned();
        }
        let mut found: Vec<String> =
            proof::check(&self.history.lock().proof(&ledger, true)).iter().map(ToString::to_string).collect();
        found.extend(self.mails(&ledger).unwrap_or_else(|why| vec![format!("{why:#}: {}", self.server.log())]));
        found
    }

    /// Every email that is sent arrived once, and one that is unknown at most once.
    fn mails(&self, ledger: &Ledger) -> Result<Vec<String>> {
        let at = self.server.at;
        let rest = until(LEAVES, || Ok(in_state(at, "queued")? == 0 && in_state(at, "sending")? == 0))?;
        anyhow::ensure!(rest, "mails did not leave within {} s", LEAVES.as_secs());
        let unknown = listed(at, "unknown")?;
        let mut arrived: BTreeMap<String, u32> = BTreeMap::new();
        for mail in self.sink.mails() {
            *arrived.entry(mail.recipients[0].0.clone()).or_default() += 1;
        }
        let mut found = Vec::new();
        for row in &ledger.emails {
            let to = row.to.join(" ");
            let count = arrived.get(&to).copied().unwrap_or(0);
            let right = count == 1 || (count == 0 && unknown.contains(&row.id));
            if !right {
                let state = if unknown.contains(&row.id) { "unknown" } else { "not unknown" };
                found.push(format!("{to} arrived {count} times and is {state}"));
            }
        }
        Ok(found)
    }

    /// What the calls came to: answered, told 503, without an answer.
    fn ends(&self) -> (u64, u64, u64) {
        let counts = self.history.lock().counts();
        let history = self.history.lock();
        let busy = history.calls.iter().filter(|call| matches!(call.end, End::Fail { status: 503, .. })).count();
        (counts.answered, busy as u64, counts.unknown)
    }

    /// Judges, writes the proof, and fails when something was broken.
    fn close(self, name: &str, storms: u64) {
        let found = self.judge();
        let (answered, unavailable, open) = self.ends();
        let (cuts, lost) = (self.proxy.cuts(), self.proxy.lost());
        say(&format!(
            "{name}: {answered} answered, {unavailable} times 503, {open} open; {cuts} cuts, {lost} answers lost; \
             {} mails; {} violations (seed {})",
            self.sink.count(),
            found.len(),
            self.seed
        ));
        let (storms_name, mails_name) = (format!("{name}_storms"), format!("{name}_mails"));
        let counts = [
            (storms_name.as_str(), storms),
            (mails_name.as_str(), self.sink.count() as u64),
            ("database_answered", answered),
            ("database_unavailable", unavailable),
            ("connections_cut", cuts),
            ("answers_lost", lost),
        ];
        setting::proof().add(self.seed, &counts, &found).unwrap();
        let shown: Vec<_> = found.iter().take(10).cloned().collect();
        assert!(
            found.is_empty(),
            "{} violations:\n{}\nreplay: MAILONCE_SEED={} cargo test -p mailonce-sim --test faults database::{name}",
            found.len(),
            shown.join("\n"),
            self.seed
        );
        assert!(answered > 0, "nothing was answered");
    }
}

/// The ids of the emails in a state, page by page.
fn listed(at: SocketAddr, state: &str) -> Result<Vec<String>> {
    let (mut ids, mut from) = (Vec::new(), String::new());
    loop {
        let reply = http::get(at, &format!("/v1/emails?limit=100&state={state}{from}"))?;
        anyhow::ensure!(reply.status == 200, "emails were answered {}: {}", reply.status, reply.body);
        let page = reply.body["data"].as_array().context("a page without data")?;
        ids.extend(page.iter().filter_map(|row| row["id"].as_str()).map(str::to_owned));
        match reply.body["next_cursor"].as_str() {
            Some(cursor) => from = format!("&cursor={cursor}"),
            None => return Ok(ids),
        }
    }
}

/// How many emails of a page are in a state.
fn in_state(at: SocketAddr, state: &str) -> Result<usize> {
    let reply = http::get(at, &format!("/v1/emails?limit=1&state={state}"))?;
    anyhow::ensure!(reply.status == 200, "emails were answered {}: {}", reply.status, reply.body);
    Ok(reply.body["data"].as_array().map_or(0, Vec::len))
}

fn storms() -> u64 {
    asked("MAILONCE_STORMS", 1)
}

#[test]
fn crash() {
    play("database::crash");
}

pub(crate) fn crashes() {
    let (mut scene, rounds) = (Scene::new(seed()), 2 * storms());
    for round in 0..rounds {
        // The load goes on while it is down and after it came back.
        scene.endure(round as u32, Duration::from_secs(2), |cluster, _| {
            cluster.crash()?;
            pause(STORM);
            cluster.go_on()
        });
    }
    assert!(scene.ends().1 > 0, "nobody was told 503 while the database was down");
    scene.close("crash", rounds);
}

#[test]
fn network() {
    play("database::network");
}

pub(crate) fn networks() {
    let (mut scene, rounds) = (Scene::new(seed()), storms());
    let mut cycle = 0;
    for round in 0..rounds {
        let mut chance = Chance::at(scene.seed, &[round, 77]);
        let weathers = [
            // What was asked for was done, and nobody is told: a commit's answer, and any answer.
            Weather::LosesAnswers(chance.between(2, 8), b"COMMIT\0"),
            Weather::LosesAnswers(chance.between(5, 40), b""),
            Weather::BreaksRequests(chance.between(5, 40)),
            Weather::CutsAfter(chance.between(20_000, 200_000)),
            Weather::Down,
            Weather::Stalled,
        ];
        for weather in weathers {
            say(&format!("network: {weather:?}"));
            scene.endure(cycle, CALM + STORM + CALM, |_, proxy| {
                proxy.set(weather);
                pause(STORM);
                Ok(())
            });
            cycle += 1;
        }
    }
    assert!(scene.proxy.lost() > 0, "no answer was lost");
    assert!(scene.proxy.cuts() > 0, "no connection was cut");
    scene.close("network", u64::from(cycle));
}

/// Callers of a database that does not say a word, more than there are connections to it.
const CALLERS: u32 = 24;
/// Within which every one of them must be answered.
const ANSWERED: Duration = Duration::from_secs(80);

#[test]
fn silence() {
    play("database::silence");
}

pub(crate) fn silences() {
    let scene = Scene::new(seed());
    scene.recovers(0);
    scene.proxy.set(Weather::Stalled);
    let at = scene.server.at;
    let call = |n| {
        let (wish, mut request) = (Wish { cycle: 0, n, kind: Kind::Single }, Vec::new());
        wish.write(0, &mut request);
        let call = scene.history.lock().invoke(wish);
        let reply = http::exchange_within(at, &request, ANSWERED);
        let status = reply.as_ref().map_or(0, |reply| reply.status);
        if let Ok(reply) = reply {
            scene.history.lock().end(call, end_of(&wish, reply.status, reply.body.to_string().as_bytes()));
        }
        status
    };
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..CALLERS)
            .map(|n| {
                let call = &call;
                scope.spawn(move || call(n))
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| *status == 503), "{statuses:?}: {}", scene.server.log());
    scene.proxy.set(Weather::Fair);
    scene.recovers(1);
    scene.close("silence", 1);
}
