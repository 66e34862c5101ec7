//! A synchronous standby that stops, is promoted or returns; a database that was restored from a dump. No node answers
//! with commits that a failover could lose, and an event reader gets everything or `410 cursor_reset`.

use anyhow::Result;
use mailonce_sim::harness::{
    http::{self, HttpReply},
    postgres_cluster::PostgresCluster,
    replicated_postgres::ReplicatedPostgres,
    rng::seed_from_env,
    server::ServerProcess,
    server_fixture::{self, ServerFixture, sample_mail},
};
use serde_json::{Value, json};
use std::{net::SocketAddr, path::Path, sync::Mutex, time::Duration};

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
    let binary = binary();
    let servers =
        ServerFixture { children: child_processes(), binary: &binary, root, store: Some(store), config: String::new() };
    servers.start(name, None, false).unwrap()
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

pub(crate) fn run_failed_over() {
    let (mut replicas, root) = (ReplicatedPostgres::start().unwrap(), temp_dir());
    let nodes = [start_node(root.path(), "one", &replicas.url()), start_node(root.path(), "two", &replicas.url())];
    let sent = RepeatableRequest::post("/v1/emails", "before", sample_mail(1)).send(nodes[0].at);
    assert_eq!(sent.status, 202, "{}", sent.body);
    server_fixture::wait_until("the mail", STEP_TIMEOUT, || event_ids(&read_events(nodes[0].at, "0")).len() >= 2)
        .unwrap();
    let before = read_events(nodes[0].at, "0");
    let cursor = before.body["next_cursor"].as_str().unwrap();
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
}

#[test]
fn a_cursor_from_before_a_restore_is_reset() {
    run_scenario("standby::a_cursor_from_before_a_restore_is_reset");
}

pub(crate) fn run_restored() {
    let (first, second, root) = (PostgresCluster::start().unwrap(), PostgresCluster::start().unwrap(), temp_dir());
    let old = start_node(root.path(), "old", &first.url());
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
    // A restart alone does not reset cursors.
    let again = start_node(root.path(), "again", &second.url());
    assert_eq!(read_events(again.at, &cursor).status, 200);
}
