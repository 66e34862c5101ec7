//! Webhooks survive crashes: the real binary is killed between lease, connect, reply and record, alone with SQLite and
//! as one of two nodes with PostgreSQL. Every event arrives at least once, under one id, in order for each subject.
//!
//! Needs the binary built with `--features failpoints`, and a PostgreSQL (`scripts/services`).

#[cfg(test)]
mod receiver;

#[cfg(test)]
use mailonce_sim::harness::{
    child_processes::ChildProcesses,
    http,
    postgres::PostgresServer,
    server::{ServerProcess, built_binary},
    server_fixture::{self, ServerFixture, sample_mail},
};
#[cfg(test)]
use receiver::NoticeReceiver;
#[cfg(test)]
use serde_json::{Value, json};
#[cfg(test)]
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

/// The failpoints.
#[cfg(test)]
const POINTS: [&str; 4] = ["notice-leased", "notice-posting", "notice-answered", "notice-settled"];
/// How long recovery from a dead worker may take: 15 s until it is noticed, and some for the work.
#[cfg(test)]
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(45);
#[cfg(test)]
const MAX_ROUNDS: usize = 60;

#[cfg(test)]
fn child_processes() -> &'static ChildProcesses {
    static CHILDREN: OnceLock<ChildProcesses> = OnceLock::new();
    CHILDREN.get_or_init(|| {
        let children = ChildProcesses::default();
        children.kill_children_on_signal(None).unwrap();
        children
    })
}

#[cfg(test)]
fn binary() -> PathBuf {
    built_binary().unwrap_or_else(|why| panic!("{why:#}"))
}

#[cfg(test)]
fn create_endpoint(at: SocketAddr, receiver: &NoticeReceiver) {
    let endpoint = json!({ "url": format!("http://{}/in", receiver.at), "after": "0" });
    let reply = http::post(at, "/v1/endpoints", Some("endpoint"), &endpoint).unwrap();
    assert!(matches!(reply.status, 200 | 201), "{}", reply.body);
}

/// Every event, in order.
#[cfg(test)]
fn read_events(at: SocketAddr) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), "0".to_owned());
    loop {
        let page = http::get(at, &format!("/v1/events?limit=1000&after={after}")).unwrap().body;
        let Some(next) = page["next_cursor"].as_str() else { return all };
        next.clone_into(&mut after);
        all.extend(page["data"].as_array().unwrap().iter().cloned());
    }
}

/// Waits until every event arrived, and checks how.
#[cfg(test)]
fn assert_all_delivered(at: SocketAddr, receiver: &NoticeReceiver) {
    let all = || read_events(at).iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>();
    server_fixture::wait_until("every event", RECOVERY_TIMEOUT, || all().is_subset(&receiver.event_ids())).unwrap();
    assert_eq!(all(), receiver.event_ids(), "only recorded events are delivered");
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for (name, event) in receiver.received() {
        let first = names.entry(event["id"].as_str().unwrap().to_owned()).or_default();
        let (about, seq) = (event["about"]["id"].as_str().unwrap().to_owned(), event["seq"].as_u64().unwrap());
        if first.is_empty() {
            let before = last.insert(about, seq).unwrap_or(0);
            assert!(before < seq, "event {seq} came first after {before} of the same subject");
        }
        first.insert(name);
    }
    assert!(names.values().all(|ids| ids.len() == 1), "an event came under two ids: {names:?}");
    assert_eq!(names.values().flatten().collect::<BTreeSet<_>>().len(), names.len(), "two events under one id");
}

/// Sends until the server is killed.
#[cfg(test)]
fn send_until_crash(server: &mut ServerProcess, name: &str) {
    for round in 0..MAX_ROUNDS {
        let mails: Vec<Value> = (0..4).map(|n| sample_mail(round * 4 + n)).collect();
        let _maybe = server_fixture::send_batch(server.at, &format!("{name}-{round}"), &mails);
        if server.wait_for_exit(Duration::from_millis(200)).unwrap().is_some() {
            return;
        }
    }
    panic!("{name} was not reached: {}", server.read_log());
}

#[test]
fn a_crash_during_webhook_delivery_loses_no_event() {
    let binary = binary();
    for point in POINTS {
        let (receiver, root) = (NoticeReceiver::open(), tempfile::tempdir().unwrap());
        let servers = ServerFixture {
            children: child_processes(),
            binary: &binary,
            root: root.path(),
            store: None,
            config: String::new(),
        };
        let mut server = servers.start("data", Some(&format!("{point}:kill:3")), false).unwrap();
        create_endpoint(server.at, &receiver);
        send_until_crash(&mut server, point);
        let server = servers.start("data", None, false).unwrap();
        assert_all_delivered(server.at, &receiver);
    }
}

/// Kills one of two nodes at `point`; the other one delivers everything.
#[cfg(test)]
fn kill_one_of_two_at(point: &str, binary: &Path, postgres: &PostgresServer) {
    let (receiver, root) = (NoticeReceiver::open(), tempfile::tempdir().unwrap());
    let name = format!("mailonce_notices_{}_{}", std::process::id(), point.replace('-', "_"));
    let database = postgres.create_database(&name).unwrap();
    let store = Some(database.url.as_str());
    let servers =
        ServerFixture { children: child_processes(), binary, root: root.path(), store, config: String::new() };
    let survivor = servers.start("survivor", None, false).unwrap();
    let mut victim = servers.start("victim", Some(&format!("{point}:kill:3")), false).unwrap();
    create_endpoint(survivor.at, &receiver);
    send_until_crash(&mut victim, point);
    assert_all_delivered(survivor.at, &receiver);
    drop(survivor);
    database.drop_database().unwrap();
}

#[test]
fn the_other_node_delivers_every_webhook_after_a_crash() {
    let (binary, postgres) = (binary(), PostgresServer::from_env().unwrap_or_else(|why| panic!("{why:#}")));
    // All failpoints in parallel: each waits 15 s until the survivor notices that the other node is dead.
    std::thread::scope(|scope| {
        for point in POINTS {
            let (binary, postgres) = (&binary, &postgres);
            scope.spawn(move || kill_one_of_two_at(point, binary, postgres));
        }
    });
}
