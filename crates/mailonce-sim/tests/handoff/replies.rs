//! One reply per message and one agent per thread, with the real binary: alone with SQLite, and as two nodes with one
//! PostgreSQL. The sink counts sent mails.

use mailonce_sim::{
    crash::{
        inbound_delivery::{self, INBOUND_HOOK_SECRET},
        injected_mail::InjectedMail,
    },
    harness::{
        child_processes::sleep,
        http::{self, HttpReply},
        postgres::{PostgresServer, TemporaryDatabase},
        server::ServerProcess,
        server_fixture,
    },
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;

use crate::binary_fixtures::{RECOVERY_TIMEOUT, SinkFixture, SinkKind, binary, sequential_server, temp_dir};

const INBOX: &str = "support@mailonce.test";
const HOOK_REPEATS: usize = 50;
const WORKERS: usize = 8;
/// How long a mail may take from its webhook to its inbox.
const FILING_TIMEOUT: Duration = Duration::from_secs(30);

/// Nodes over one ledger, their inbox, and the sink.
struct ReplyFixture {
    nodes: Vec<ServerProcess>,
    hook_path: String,
    sink: SinkFixture,
    // Dropped after the servers, which it outlives.
    _database: Option<TemporaryDatabase>,
    _root: TempDir,
}

impl ReplyFixture {
    fn open(nodes: usize, name: &str) -> Self {
        let (binary, outside, root) = (binary(), SinkFixture::new(SinkKind::Relay), temp_dir());
        let database = (nodes > 1).then(|| {
            let postgres = PostgresServer::from_env().unwrap_or_else(|why| panic!("{why:#}"));
            postgres.create_database(&format!("mailonce_{name}_{}", std::process::id())).unwrap()
        });
        let url = database.as_ref().map(|database| database.url.as_str());
        let servers = sequential_server(&outside, &binary, root.path(), url);
        let nodes: Vec<ServerProcess> =
            (0..nodes).map(|n| servers.start(&format!("node{n}"), None, false).unwrap()).collect();
        let made = http::post(nodes[0].at, "/v1/inboxes", None, &json!({ "address": INBOX })).unwrap();
        assert_eq!(made.status, 201, "{}", made.body);
        let source =
            json!({ "name": "mail", "kind": "standard", "accepts": ["inbound"], "secret": INBOUND_HOOK_SECRET });
        let made = http::post(nodes[0].at, "/v1/sources", None, &source).unwrap();
        let hook = made.body["hook_path"].as_str().unwrap_or_else(|| panic!("no source: {}", made.body)).to_owned();
        Self { nodes, hook_path: hook, sink: outside, _database: database, _root: root }
    }

    fn node(&self, n: usize) -> SocketAddr {
        self.nodes[n % self.nodes.len()].at
    }

    /// A provider delivers a mail to a node, which acknowledges it.
    fn deliver_by_hook(&self, n: usize, mail: &InjectedMail) {
        let mut stream = http::connect(self.node(n)).unwrap();
        assert!(inbound_delivery::deliver_by_hook(&mut stream, &self.hook_path, mail).unwrap());
    }

    /// The message of a mail, as a node shows it.
    fn message(&self, n: usize, mail: &InjectedMail) -> Value {
        let mut found = Value::Null;
        let path = format!("/v1/inboxes/{INBOX}/messages?limit=100");
        let filed = || {
            let page = http::get(self.node(n), &path).unwrap().body;
            let rows = page["data"].as_array().cloned().unwrap_or_default();
            let own = rows.into_iter().find(|row| row["message_id"] == mail.message_id.as_str());
            found = own.unwrap_or_default();
            !found.is_null()
        };
        server_fixture::wait_until("the message", FILING_TIMEOUT, filed).unwrap();
        found
    }

    fn reply(&self, n: usize, message: &Value, body: &Value) -> HttpReply {
        let path = format!("/v1/messages/{}/reply", message["id"].as_str().unwrap());
        http::post(self.node(n), &path, None, body).unwrap()
    }

    /// Waits until no attempt is running, and returns the number of mails at the sink.
    fn wait_for_sent(&self, at_least: usize) -> usize {
        server_fixture::wait_until("the answer", RECOVERY_TIMEOUT, || self.sink.relay().mail_count() >= at_least)
            .unwrap();
        let idle = || self.nodes.iter().all(|node| server_fixture::handoffs_in_flight(node.at) == Some(0));
        server_fixture::wait_until("the end of the work", RECOVERY_TIMEOUT, idle).unwrap();
        self.sink.relay().mail_count()
    }
}

fn incoming_mail(name: &str, answers: Option<&str>) -> InjectedMail {
    let (sender, message_id) = ("ann@customer.example".to_owned(), format!("<{name}@customer.example>"));
    let thread = answers.map(|id| format!("In-Reply-To: {id}\r\nReferences: {id}\r\n")).unwrap_or_default();
    let raw = format!(
        "From: Ann <{sender}>\r\nTo: <{INBOX}>\r\nSubject: Where is my order?\r\nMessage-ID: {message_id}\r\n{thread}\
         Date: Sun, 15 Nov 2026 04:00:00 +0000\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n\
         It should have been here on Friday ({name}).\r\n"
    );
    let (code, inboxes) = (String::new(), vec![INBOX.to_owned()]);
    InjectedMail { name: name.to_owned(), message_id, sender, inboxes, code, raw, by_hook: true }
}

/// The same webhook from many connections, each handled by one of a few workers that write their own reply.
fn reply_from_every_worker(fixture: &ReplyFixture) -> Vec<HttpReply> {
    let (mail, next, heard) = (incoming_mail("m1", None), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (mail, next, heard) = (&mail, &next, &heard);
            scope.spawn(move || {
                loop {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    if n >= HOOK_REPEATS {
                        return;
                    }
                    fixture.deliver_by_hook(n, mail);
                    let message = fixture.message(n + worker, mail);
                    let words = json!({ "text": format!("Worker {worker} says in call {n}: it is on its way.") });
                    let reply = fixture.reply(n, &message, &words);
                    heard.lock().unwrap().push(reply);
                }
            });
        }
    });
    heard.into_inner().unwrap()
}

#[test]
fn one_webhook_from_50_connections_at_8_workers_is_one_reply() {
    for nodes in [1, 2] {
        let fixture = ReplyFixture::open(nodes, "answers");
        let heard = reply_from_every_worker(&fixture);
        let mut counts: BTreeMap<(u16, String), usize> = BTreeMap::new();
        for reply in &heard {
            *counts.entry((reply.status, reply.body["guard"].as_str().unwrap_or_default().to_owned())).or_default() +=
                1;
        }
        let wanted = [((200, "already_answered".to_owned()), HOOK_REPEATS - 1), ((202, String::new()), 1)];
        assert_eq!(counts, BTreeMap::from(wanted), "{nodes} nodes");
        let ids: BTreeSet<String> = heard.iter().map(|reply| reply.body["id"].to_string()).collect();
        assert_eq!(ids.len(), 1, "all calls return the same reply");
        assert!(heard.iter().all(|reply| reply.body["next"].as_str().is_some_and(|next| !next.is_empty())));
        assert_eq!(fixture.wait_for_sent(1), 1, "{nodes} nodes");
    }
}

#[test]
fn an_agent_that_slept_past_its_lease_gets_the_newer_fence() {
    for nodes in [1, 2] {
        let fixture = ReplyFixture::open(nodes, "leases");
        let mail = incoming_mail("m1", None);
        fixture.deliver_by_hook(0, &mail);
        let message = fixture.message(0, &mail);
        let lease = format!("/v1/threads/{}/lease", message["thread_id"].as_str().unwrap());
        let take = |n: usize, holder: &str| {
            http::post(fixture.node(n), &lease, None, &json!({ "holder": holder, "ttl_s": 1 })).unwrap()
        };
        let first = take(0, "first").body;
        assert_eq!(take(1, "second").status, 409, "while the first holds it");
        sleep(Duration::from_millis(1_500));
        let second = take(1, "second");
        assert_eq!(second.status, 201, "{}", second.body);
        assert!(second.body["fence"].as_u64() > first["fence"].as_u64());
        let late = fixture.reply(0, &message, &json!({ "text": "I am back.", "lease": first["token"] }));
        assert_eq!((late.status, &late.body["code"]), (409, &json!("leased")), "{}", late.body);
        let answer = fixture.reply(1, &message, &json!({ "text": "It comes.", "lease": second.body["token"] }));
        assert_eq!(answer.status, 202, "{}", answer.body);
        let late = fixture.reply(0, &message, &json!({ "text": "I am back.", "lease": first["token"] }));
        assert!(matches!(late.status, 200 | 409), "{}", late.body);
        assert_eq!(fixture.wait_for_sent(1), 1);
    }
}

#[test]
fn two_messages_of_one_thread_at_the_same_time_are_both_answered() {
    for nodes in [1, 2] {
        let fixture = ReplyFixture::open(nodes, "threads");
        let mails = [incoming_mail("m1", None), incoming_mail("m2", Some("<m1@customer.example>"))];
        mails.iter().for_each(|mail| fixture.deliver_by_hook(0, mail));
        let messages: Vec<Value> = mails.iter().map(|mail| fixture.message(1, mail)).collect();
        assert_eq!(messages[0]["thread_id"], messages[1]["thread_id"]);
        let seen: Vec<&Value> = messages.iter().map(|message| &message["id"]).collect();
        let replies: Vec<HttpReply> = std::thread::scope(|scope| {
            let tasks: Vec<_> = messages
                .iter()
                .enumerate()
                .map(|(n, message)| {
                    let words = json!({ "text": format!("About the {n}th: yes."), "seen": seen });
                    let fixture = &fixture;
                    scope.spawn(move || fixture.reply(n, message, &words))
                })
                .collect();
            tasks.into_iter().map(|task| task.join().unwrap()).collect()
        });
        assert!(replies.iter().all(|reply| reply.status == 202), "{replies:?}");
        assert_eq!(fixture.wait_for_sent(2), 2);
    }
}
