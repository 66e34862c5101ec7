//! A synchronous standby that stops, is promoted or returns; a database that was restored from a dump. No node answers
//! with commits that a failover could lose, and an event reader gets everything or `410 cursor_reset`. A stop outlasts a
//! failover, which is no restore; a restored ledger begins stopped.

use anyhow::Result;
use mailonce_sim::{
    harness::{
        child_processes::sleep,
        http::{self, HttpReply},
        postgres_cluster::PostgresCluster,
        replicated_postgres::ReplicatedPostgres,
        rng::seed_from_env,
        server::ServerProcess,
        server_fixture::{self, OutboundTarget, ServerFixture, sample_mail},
    },
    sink::smtp::{SmtpSink, SmtpSinkConfig},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, net::SocketAddr, ops::Range, path::Path, sync::Mutex, time::Duration};
use tokio::runtime::Runtime;

use crate::fixtures::{binary, child_processes, summary_writer, temp_dir};
use crate::parallel_scenarios::run_scenario;

/// How often the standby is stopped until an email is in doubt.
const MAX_TRIES: u32 = 40;
/// How long anything may take on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_mins(3);

/// A role that may use the ledger and cannot see the standby's progress.
const PLAIN_ROLE: &str = "
    CREATE ROLE plain LOGIN;
    GRANT USAGE ON SCHEMA mailonce TO plain;
    GRANT ALL ON ALL TABLES IN SCHEMA mailonce TO plain";

fn start_node(root: &Path, name: &str, store: &str) -> ServerProcess {
    start_node_with(root, name, store, "running", String::new())
}

/// Starts a node with a value of `MAILONCE_HANDOFF` and a configuration.
fn start_node_with(root: &Path, name: &str, store: &str, handoff: &str, config: String) -> ServerProcess {
    let binary = binary();
    let servers = ServerFixture { children: child_processes(), binary: &binary, root, store: Some(store), config };
    servers.start_with(name, false, &[("MAILONCE_HANDOFF", handoff.into())]).unwrap()
}

/// Who stopped the installation, without stops that have ended and still release their email.
fn installation_stops(at: SocketAddr) -> Vec<Value> {
    let stops = http::get(at, "/v1/stops").unwrap();
    let rows = stops.body["data"].as_array().unwrap_or_else(|| panic!("{}: {}", stops.status, stops.body));
    let is_in_force = |stop: &&Value| stop["scope"] == json!({ "installation": true }) && stop["state"] == "in_force";
    rows.iter().filter(is_in_force).map(|stop| stop["by"].clone()).collect()
}

/// A call that can be repeated on every node.
#[derive(Clone)]
struct RepeatableRequest {
    path: String,
    /// A call without a body is a GET.
    post: Option<(String, Value)>,
}

impl RepeatableRequest {
    fn get(path: &str) -> Self {
        Self { path: path.to_owned(), post: None }
    }

    fn post(path: &str, key: &str, body: Value) -> Self {
        Self { path: path.to_owned(), post: Some((key.to_owned(), body)) }
    }

    fn send(&self, at: SocketAddr) -> HttpReply {
        let reply = match &self.post {
            None => http::get(at, &self.path),
            Some((key, body)) => http::post(at, &self.path, Some(key), body),
        };
        reply.unwrap_or_else(|why| panic!("{}: {why:#}", self.path))
    }
}

/// Makes calls in parallel, each on each node. Returns their statuses.
fn send_to_all_nodes(calls: &[RepeatableRequest], nodes: &[&ServerProcess]) -> Vec<(String, u16)> {
    let statuses = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for call in calls {
            for node in nodes {
                let (statuses, at) = (&statuses, node.at);
                scope.spawn(move || {
                    let status = call.send(at).status;
                    statuses.lock().unwrap().push((call.path.clone(), status));
                });
            }
        }
    });
    statuses.into_inner().unwrap()
}

/// An inbox with a code: its address, and the id of the code.
fn inbox_with_code(at: SocketAddr) -> Result<(String, String)> {
    let made = http::post(at, "/v1/inboxes", Some("inbox-of-codes"), &json!({ "username": "codes" }))?;
    anyhow::ensure!(made.status == 201, "{}", made.body);
    let (id, address) = (&made.body["id"].as_str().unwrap(), made.body["address"].as_str().unwrap());
    let code =
        json!({"from": "no-reply@example.com", "to": address, "subject": "Your code", "text": "Your code is 482913."});
    let sent = http::post(at, "/v1/emails", Some("the-code"), &code)?;
    anyhow::ensure!(sent.status == 202, "{}", sent.body);
    let arrived = http::get(at, &format!("/v1/inboxes/{id}/wait?has=code&timeout=30"))?;
    anyhow::ensure!(arrived.status == 200, "no code came: {} {}", arrived.status, arrived.body);
    let message = arrived.body["message"]["id"].as_str().unwrap().to_owned();
    let found = http::get(at, &format!("/v1/messages/{message}/artifacts"))?;
    Ok((address.to_owned(), found.body["data"][0]["id"].as_str().unwrap().to_owned()))
}

/// Makes calls while an operator cancels the wait of their commits, which are then on the primary only. The operator
/// begins when a commit that wrote to the table `after` waits, if one is given: cancelled before, the wait of a heartbeat
/// would make the node refuse the calls.
fn send_and_cancel_waits(
    replicas: &ReplicatedPostgres,
    calls: &[RepeatableRequest],
    nodes: &[&ServerProcess],
    after: Option<&str>,
) -> Vec<(String, u16)> {
    let is_over = Mutex::new(false);
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let statuses = send_to_all_nodes(calls, nodes);
            *is_over.lock().unwrap() = true;
            statuses
        });
        let is_over = || *is_over.lock().unwrap();
        if let Some(table) = after {
            let may_begin = || is_over() || replicas.has_sync_wait(table).unwrap();
            server_fixture::wait_until("the first commit", STEP_TIMEOUT, may_begin).unwrap();
        }
        server_fixture::wait_until("the calls", STEP_TIMEOUT, || {
            replicas.cancel_sync_waits().unwrap();
            is_over()
        })
        .unwrap();
        calls.join().unwrap()
    })
}

fn count_emails(replicas: &mut ReplicatedPostgres) -> String {
    replicas.primary().psql("SELECT count(*) FROM mailonce.emails").unwrap()
}

/// Stops the standby and sends an email, so that its commit is in doubt. It goes first: once a commit is in doubt, a node
/// refuses whatever has to read the ledger, and so the email itself when it does not know the API key from a call just
/// before. Then everything is confirmed before the next try.
fn leave_email_unconfirmed(
    replicas: &mut ReplicatedPostgres,
    email: &[RepeatableRequest],
    node: &[&ServerProcess],
) -> Vec<(String, u16)> {
    for _ in 0..MAX_TRIES {
        let receiver = replicas.wal_receiver().unwrap();
        let is_confirmed = || http::get(node[0].at, "/v1/emails?limit=10").unwrap().status == 200;
        server_fixture::wait_until("the confirmation", STEP_TIMEOUT, is_confirmed).unwrap();
        receiver.suspend().unwrap();
        let statuses = send_and_cancel_waits(replicas, email, node, Some("mailonce.emails"));
        if count_emails(replicas) == "2" {
            replicas.stop_standby().unwrap();
            return statuses;
        }
        receiver.resume().unwrap();
    }
    panic!("the email never reached its commit");
}

#[test]
fn no_node_answers_with_unconfirmed_commits() {
    run_scenario("standby::no_node_answers_with_unconfirmed_commits");
}

pub(crate) fn run_unconfirmed() {
    let (mut replicas, root) = (ReplicatedPostgres::start().unwrap(), temp_dir());
    let first = start_node(root.path(), "one", &replicas.url());
    replicas.primary().psql(PLAIN_ROLE).unwrap();
    let nodes = [first, start_node(root.path(), "two", &replicas.url_as("plain"))];
    let (one, both) = ([&nodes[0]], [&nodes[0], &nodes[1]]);
    let (_, code) = inbox_with_code(nodes[0].at).unwrap();
    let writes = [
        RepeatableRequest::post("/v1/emails", "unconfirmed", sample_mail(1)),
        RepeatableRequest::post("/v1/inboxes", "unconfirmed-inbox", json!({ "username": "unconfirmed" })),
        RepeatableRequest::post(
            &format!("/v1/artifacts/{code}/consume"),
            "unconfirmed-code",
            json!({ "for": "run-1" }),
        ),
    ];
    let reads = [
        RepeatableRequest::get("/v1/emails?limit=10"),
        RepeatableRequest::get("/v1/events?limit=1000"),
        RepeatableRequest::get("/v1/inboxes?limit=10"),
        // Another consumer gets a conflict.
        RepeatableRequest::post(&format!("/v1/artifacts/{code}/consume"), "another-key", json!({ "for": "run-2" })),
    ];
    let everything: Vec<RepeatableRequest> = writes.iter().chain(&reads).cloned().collect();

    let mut first = leave_email_unconfirmed(&mut replicas, &writes[..1], &one);
    first.extend(send_and_cancel_waits(&replicas, &writes[1..], &one, None));
    assert!(first.iter().all(|(_, status)| *status == 503), "{first:?}");
    // The mail with the code, and the one with an unknown outcome.
    assert_eq!(count_emails(&mut replicas), "2", "nothing is in doubt");
    let mut shown = send_to_all_nodes(&everything, &both);
    // A restart cancels all other waits, and loses track of unconfirmed commits.
    replicas.primary().restart().unwrap();
    shown.extend(send_to_all_nodes(&everything, &both));
    let wrong: Vec<_> = shown.iter().filter(|(_, status)| *status != 503).collect();
    summary_writer().add(seed_from_env(), &[("unconfirmed_answers", shown.len() as u64)], &[]).unwrap();
    assert!(wrong.is_empty(), "answered before a standby confirmed it: {wrong:?}");

    replicas.restart_standby().unwrap();
    for node in both {
        for call in &everything {
            server_fixture::wait_until(&call.path, STEP_TIMEOUT, || {
                matches!(call.send(node.at).status, 200 | 201 | 409)
            })
            .unwrap();
        }
    }
    let replayed = writes[0].send(nodes[1].at);
    assert_eq!((replayed.status, &replayed.body["dedupe"]["outcome"]), (200, &json!("replayed")), "{}", replayed.body);
}

/// Reads events after a cursor until the node answers.
fn read_events(at: SocketAddr, after: &str) -> HttpReply {
    let mut last = HttpReply::default();
    server_fixture::wait_until("an answer", STEP_TIMEOUT, || {
        last = http::get(at, &format!("/v1/events?limit=1000&after={after}")).unwrap();
        last.status != 503
    })
    .unwrap();
    last
}

/// The ids of events.
fn event_ids(reply: &HttpReply) -> Vec<String> {
    let rows = reply.body["data"].as_array().unwrap_or_else(|| panic!("{}: {}", reply.status, reply.body));
    rows.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
}

fn is_reset(reply: &HttpReply) -> bool {
    reply.status == 410 && reply.body["code"] == "cursor_reset"
}

#[test]
fn a_cursor_from_before_a_failover_is_reset() {
    run_scenario("standby::a_cursor_from_before_a_failover_is_reset");
}

/// A relay that counts its mails.
struct Relay {
    sink: SmtpSink,
    _runtime: Runtime,
}

impl Relay {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sink = runtime.block_on(SmtpSink::start(SmtpSinkConfig::default())).unwrap();
        Self { sink, _runtime: runtime }
    }

    /// Starts a node that sends its mail here.
    fn start_node(&self, root: &Path, name: &str, store: &str) -> ServerProcess {
        start_node_with(root, name, store, "running", OutboundTarget::Relay(self.sink.at.port()).toml())
    }

    /// How often each mail arrived.
    fn arrivals(&self) -> BTreeMap<usize, usize> {
        let mut arrivals = BTreeMap::new();
        for mail in self.sink.mails() {
            *arrivals.entry(server_fixture::mail_number(&mail.recipients[0].0).unwrap()).or_default() += 1;
        }
        arrivals
    }
}

/// Mails that are on their way when the stop is called for.
const MAILS_BEFORE_STOP: Range<usize> = 100..200;
/// Mails that are accepted after the stop was answered.
const MAILS_AFTER_STOP: Range<usize> = 200..210;

fn count_rows(replicas: &mut ReplicatedPostgres, from: &str) -> usize {
    replicas.primary().psql(&format!("SELECT count(*) FROM mailonce.{from}")).unwrap().parse().unwrap()
}

/// A stop that was answered.
struct AnsweredStop {
    id: String,
    /// The number of markers when it was answered.
    markers: usize,
}

/// Stops the team while its mail leaves.
fn stop_amid_mails(at: SocketAddr, replicas: &mut ReplicatedPostgres) -> AnsweredStop {
    let send = |key: &str, numbers: Range<usize>| {
        server_fixture::send_batch(at, key, &numbers.map(sample_mail).collect::<Vec<_>>()).unwrap();
    };
    send("before-the-stop", MAILS_BEFORE_STOP);
    let stop = json!({ "scope": { "team": true }, "reason": "before a failover" });
    let stopped = http::post(at, "/v1/stops", Some("the-stop"), &stop).unwrap();
    assert_eq!(stopped.status, 201, "{}", stopped.body);
    let markers = count_rows(replicas, "attempts");
    send("after-the-stop", MAILS_AFTER_STOP);
    AnsweredStop { id: stopped.body["id"].as_str().unwrap().to_owned(), markers }
}

/// After a failover the stop still holds, also for a node that starts then. Resumed, each mail arrives once, or not at all
/// if the failover left its outcome unknown.
fn check_stop_after_failover(replicas: &mut ReplicatedPostgres, relay: &Relay, root: &Path, stop: &AnsweredStop) {
    let late = relay.start_node(root, "late", &replicas.url());
    assert!(installation_stops(late.at).is_empty(), "a failover is no restore");
    sleep(Duration::from_secs(2));
    assert_eq!(count_rows(replicas, "attempts"), stop.markers, "markers were written after the stop");

    let resumed = http::delete(late.at, &format!("/v1/stops/{}", stop.id)).unwrap();
    assert_eq!(resumed.status, 200, "{}", resumed.body);
    let is_settled =
        || count_rows(replicas, "handoffs WHERE state IN ('queued', 'scheduled', 'leased', 'sending')") == 0;
    server_fixture::wait_until("the release", STEP_TIMEOUT, is_settled).unwrap();
    let unknown = count_rows(replicas, "handoffs WHERE state = 'unknown'");
    let arrivals = relay.arrivals();
    assert!(arrivals.values().all(|count| *count == 1), "{arrivals:?}");
    let missing: Vec<usize> = MAILS_BEFORE_STOP.chain(MAILS_AFTER_STOP).filter(|n| !arrivals.contains_key(n)).collect();
    assert!(missing.len() <= unknown, "{unknown} mails are unknown, and these did not arrive: {missing:?}");
}

pub(crate) fn run_failed_over() {
    let (mut replicas, root, relay) = (ReplicatedPostgres::start().unwrap(), temp_dir(), Relay::start());
    let nodes = ["one", "two"].map(|name| relay.start_node(root.path(), name, &replicas.url()));
    let sent = RepeatableRequest::post("/v1/emails", "before", sample_mail(1)).send(nodes[0].at);
    assert_eq!(sent.status, 202, "{}", sent.body);
    server_fixture::wait_until("the mail", STEP_TIMEOUT, || event_ids(&read_events(nodes[0].at, "0")).len() >= 2)
        .unwrap();
    let before = read_events(nodes[0].at, "0");
    let cursor = before.body["next_cursor"].as_str().unwrap();
    let stop = stop_amid_mails(nodes[0].at, &mut replicas);
    replicas.fail_over().unwrap();
    replicas.rejoin().unwrap();
    for node in &nodes {
        let after = read_events(node.at, cursor);
        assert!(is_reset(&after), "{}: {}", after.status, after.body);
        let again = read_events(node.at, "0");
        assert!(event_ids(&again).starts_with(&event_ids(&before)), "events were lost: {}", again.body);
        let replayed = RepeatableRequest::post("/v1/emails", "before", sample_mail(1)).send(node.at);
        assert_eq!((replayed.status, &replayed.body["id"]), (200, &sent.body["id"]), "{}", replayed.body);
    }
    // Both nodes agree on the epoch.
    let cursors = nodes.each_ref().map(|node| read_events(node.at, "0").body["data"][0]["cursor"].clone());
    assert_eq!(cursors[0], cursors[1]);
    check_stop_after_failover(&mut replicas, &relay, root.path(), &stop);
}

#[test]
fn a_cursor_from_before_a_restore_is_reset() {
    run_scenario("standby::a_cursor_from_before_a_restore_is_reset");
}

pub(crate) fn run_restored() {
    let (first, second, root) = (PostgresCluster::start().unwrap(), PostgresCluster::start().unwrap(), temp_dir());
    // Its mail waits in the dump, whose stop is that of the old configuration and ends with it.
    let old = start_node_with(root.path(), "old", &first.url(), "paused", String::new());
    let send = |at, n: usize| RepeatableRequest::post("/v1/emails", &format!("restored-{n}"), sample_mail(n)).send(at);
    assert_eq!(send(old.at, 1).status, 202);
    second.restore_dump_of(&first).unwrap();
    // A reader got it, and it is not in the dump.
    assert_eq!(send(old.at, 2).status, 202);
    let cursor = read_events(old.at, "0").body["next_cursor"].as_str().unwrap().to_owned();
    drop(old);
    let new = start_node(root.path(), "new", &second.url());
    for n in 3..10 {
        assert_eq!(send(new.at, n).status, 202);
    }
    let after = read_events(new.at, &cursor);
    assert!(is_reset(&after), "{}: {}", after.status, after.body);
    let cursor = read_events(new.at, "0").body["next_cursor"].as_str().unwrap().to_owned();
    drop(new);
    // A restart alone neither resets cursors nor ends the stop.
    let again = start_node(root.path(), "again", &second.url());
    assert_eq!(read_events(again.at, &cursor).status, 200);
    assert_eq!(installation_stops(again.at), ["restore"]);
    sleep(Duration::from_secs(2));
    assert_eq!((count_in_state(again.at, "queued"), count_in_state(again.at, "sent")), (8, 0));
    let resumed = http::post(again.at, "/v1/handoff/resume", None, &json!({})).unwrap();
    assert_eq!(resumed.status, 200, "{}", resumed.body);
    server_fixture::wait_until("the release", STEP_TIMEOUT, || count_in_state(again.at, "sent") == 8).unwrap();
    drop(again);

    // A snapshot of the files keeps its identity, so the operator clears it. This start skips the stop.
    second.psql("UPDATE mailonce.install SET history = ''").unwrap();
    let running = start_node_with(root.path(), "running", &second.url(), "running_after_restore", String::new());
    assert!(installation_stops(running.at).is_empty());
    let restores = http::get(running.at, "/v1/audit?action=ledger.restored").unwrap();
    assert_eq!(restores.body["data"].as_array().map(Vec::len), Some(2), "{}", restores.body);
    drop(running);
    let next = start_node(root.path(), "next", &second.url());
    assert!(installation_stops(next.at).is_empty(), "the mark of a restore is gone after one start");
}

/// How many emails are in a state.
fn count_in_state(at: SocketAddr, state: &str) -> usize {
    let found = http::get(at, &format!("/v1/emails?limit=100&state={state}")).unwrap();
    found.body["data"].as_array().unwrap_or_else(|| panic!("{}: {}", found.status, found.body)).len()
}
