//! A worker that cannot reach the database while its mail is on the wire. Its marker is durable, so nobody sends the
//! mail again; what it learnt is written down when the network heals.

use mailonce_sim::{
    rig::{
        campaign::say,
        chance::{asked, seed},
        children::pause,
        cluster::Cluster,
        post::{self, Post, Way, mail},
        proxy::{Proxy, Weather},
        server::Server,
    },
    sink::smtp::{self, Act, SmtpSink, Step},
};
use std::{path::Path, time::Duration};
use tokio::runtime::Runtime;

use crate::beside::play;
use crate::setting::{binary, children, folder, proof};

/// Mails that are on the wire when the network goes.
const MAILS: usize = 3;
/// How long the sink takes to answer a dot: long enough to see that the mails are on the wire.
const DOT: Duration = Duration::from_secs(6);
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// After this long without a sign of life a process is taken for dead.
const SILENCE: Duration = Duration::from_secs(15);

struct Scene {
    cluster: Cluster,
    proxy: Proxy,
    sink: SmtpSink,
    _runtime: Runtime,
    root: tempfile::TempDir,
    binary: std::path::PathBuf,
    seed: u64,
}

impl Scene {
    fn new() -> Self {
        let (cluster, seed) = (Cluster::start().unwrap(), seed());
        let proxy = Proxy::start(cluster.port(), seed).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sink = runtime.block_on(SmtpSink::start(smtp::Setting::default())).unwrap();
        sink.on(Step::Dot, Act::Late(DOT));
        Self { cluster, proxy, sink, _runtime: runtime, root: folder(), binary: binary(), seed }
    }

    fn node(&self, name: &str, store: &str) -> Server {
        let (root, binary): (&Path, &Path) = (self.root.path(), &self.binary);
        let config = Way::Relay(self.sink.at.port()).toml();
        let place = Post { children: children(), binary, root, store: Some(store), config };
        place.start(name, None, false).unwrap()
    }

    /// Sends mails by a worker behind the network, and waits until all of them are on the wire.
    fn on_the_wire(&self) -> (Server, Vec<String>) {
        let worker = self.node("worker", &self.cluster.url_at(self.proxy.at.port()));
        let mails: Vec<_> = (0..MAILS).map(mail).collect();
        let ids = post::send_batch(worker.at, "batch", &mails).unwrap();
        // Not before the dot: until then the worker may still wait for the answer to its marker.
        post::until("the dots", PATIENCE, || self.sink.dots() == MAILS).unwrap();
        assert_eq!(self.sink.count(), 0, "the sink answered before the network went");
        (worker, ids)
    }

    fn close(self, name: &str, found: Vec<String>) {
        say(&format!(
            "{name}: {} mails at the sink; {} violations (seed {})",
            self.sink.count(),
            found.len(),
            self.seed
        ));
        let counts = [(name, 1), ("partition_mails", self.sink.count() as u64)];
        proof().add(self.seed, &counts, &found).unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    /// Each mail arrived once.
    fn arrived_once(&self) -> Vec<String> {
        let mut counts = [0; MAILS];
        for n in self.sink.mails().iter().filter_map(|mail| post::number(&mail.recipients[0].0)) {
            counts[n] += 1;
        }
        let wrong = counts.iter().enumerate().filter(|(_, count)| **count != 1);
        wrong.map(|(n, count)| format!("mail {n} arrived {count} times")).collect()
    }
}

/// Waits until every email is sent, and says which are not.
fn sent(at: std::net::SocketAddr, ids: &[String]) -> Vec<String> {
    let wanted = |_, state: &str| state == "sent";
    post::until_all(at, ids, PATIENCE, wanted).err().map(|why| format!("{why:#}")).into_iter().collect()
}

#[test]
fn what_a_worker_learns_while_it_is_cut_off_is_written_down_when_the_network_heals() {
    play("partition::what_a_worker_learns_while_it_is_cut_off_is_written_down_when_the_network_heals");
}

pub(crate) fn heals() {
    let rounds = asked("MAILONCE_STORMS", 1) as usize;
    // One beside the other: both mostly wait.
    std::thread::scope(|scope| {
        for weather in [Weather::Stalled, Weather::Down] {
            scope.spawn(move || (0..rounds).for_each(|_| heal(weather)));
        }
    });
}

/// The network goes while mails are on the wire, and heals.
fn heal(weather: Weather) {
    let scene = Scene::new();
    let (worker, ids) = scene.on_the_wire();
    scene.proxy.set(weather);
    post::until("the sink's answers", PATIENCE, || scene.sink.count() == MAILS).unwrap();
    // The answers are with the worker by now, and cannot be written down.
    pause(Duration::from_secs(1));
    scene.proxy.set(Weather::Fair);
    let mut found = sent(worker.at, &ids);
    found.extend(scene.arrived_once());
    scene.close("partitions_healed", found);
}

#[test]
fn nobody_sends_again_what_a_silent_worker_had_on_the_wire() {
    play("partition::nobody_sends_again_what_a_silent_worker_had_on_the_wire");
}

pub(crate) fn takes_over() {
    for _ in 0..asked("MAILONCE_STORMS", 1) {
        take_over();
    }
}

/// One node is cut off with its mails on the wire, another takes it for dead, and the network heals.
fn take_over() {
    let scene = Scene::new();
    let other = scene.node("other", &scene.cluster.url());
    // Rest, so that the worker alone has the mails.
    let paused = mailonce_sim::rig::http::post(other.at, "/v1/handoff/pause", None, &serde_json::json!({})).unwrap();
    assert_eq!(paused.status, 200, "{}", paused.body);
    let (worker, ids) = scene.on_the_wire();
    scene.proxy.set(Weather::Stalled);
    let went_on = mailonce_sim::rig::http::post(other.at, "/v1/handoff/resume", None, &serde_json::json!({})).unwrap();
    assert_eq!(went_on.status, 200, "{}", went_on.body);
    // The other node takes the worker for dead: the mails are in doubt, and stay where they are.
    let taken_over = post::until_all(other.at, &ids, SILENCE + PATIENCE, |_, state| state == "unknown");
    let mut found: Vec<String> = taken_over.err().map(|why| format!("{why:#}")).into_iter().collect();
    pause(Duration::from_secs(2));
    found.extend(scene.arrived_once());
    scene.proxy.set(Weather::Fair);
    // Its late answers are facts.
    found.extend(sent(other.at, &ids));
    for id in &ids {
        let email = post::email(other.at, id).unwrap();
        if !email.to_string().contains("late_reply") {
            found.push(format!("{id} does not say that the answer came late: {email}"));
        }
    }
    found.extend(scene.arrived_once());
    drop(worker);
    scene.close("partitions_taken_over", found);
}
