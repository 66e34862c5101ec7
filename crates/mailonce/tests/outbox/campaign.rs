//! Many transactions, half of them rolled back, three drainers that are killed and suspended at random, and a PostgreSQL
//! that crashes: every committed order has exactly one email, no other order has one, and the SMTP server behind the ledger
//! gets each email once. The same holds for the claims of orders with an invoice. While a drainer is suspended, no
//! transaction of the drainers holds back vacuum for long.
//!
//! The short form runs 400 transactions and crashes PostgreSQL once. `MAILONCE_OUTBOX_TRANSACTIONS` chooses another
//! number; from 5,000 on PostgreSQL crashes twice.

use rustix::process::Signal;
use serde_json::Value;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio_postgres::{Client, NoTls};

use crate::{
    cluster::Cluster,
    database::{TempDatabase, connect_client},
    rig::{Rig, Server, ServerOptions, payload},
    sink::SmtpMailSink,
};

/// Connections that insert orders at the same time. Each has its own order key.
const WRITERS: u64 = 4;
/// The longest time that a snapshot of a drainer may hold back vacuum: PostgreSQL ends the session after 15 seconds.
const MAX_SNAPSHOT_S: f64 = 20.0;
/// How often the snapshots of the drainers are looked at while one of them is suspended.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// The age of the drainers' oldest snapshot in seconds and in transactions, and how many of their transactions were open
/// already at this time.
const SNAPSHOTS: &str = "
    SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)) FILTER (WHERE backend_xmin IS NOT NULL), 0)::float8,
           coalesce(max(age(backend_xmin)), 0)::bigint,
           count(*) FILTER (WHERE xact_start < $1::text::timestamptz)
      FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'mailonce'";

/// A pseudo-random sequence, so that a seed repeats a run.
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Connects, and again while the server is down.
async fn connect_patiently(url: &str) -> Client {
    loop {
        if let Ok((client, connection)) = tokio_postgres::connect(url, NoTls).await {
            tokio::spawn(connection);
            return client;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Whether an order has an invoice as well: two of 20, of which one is rolled back.
fn makes_claim(order: &str) -> bool {
    let number: u64 = order.rsplit_once('-').unwrap().1.parse().unwrap();
    (number / 2).is_multiple_of(10)
}

/// The key of the claim for the invoice of an order.
fn invoice_key(order: &str) -> String {
    format!("invoice-{order}")
}

/// One order with its email, and with the claim for its invoice if it has one. When the connection breaks, nobody knows
/// whether it was committed; the table of orders says.
async fn write_order(
    sql: &mut Client,
    name: &str,
    keys: (Option<String>, Option<String>),
    commits: bool,
) -> Result<(), tokio_postgres::Error> {
    let tx = sql.transaction().await?;
    tx.execute("INSERT INTO orders (name) VALUES ($1)", &[&name]).await?;
    let send = "SELECT mailonce_outbox.send($1::text::jsonb, $2, $3)";
    tx.execute(send, &[&payload(name).to_string(), &keys.0, &keys.1]).await?;
    if makes_claim(name) {
        tx.execute("SELECT mailonce_outbox.claim($1, '{}')", &[&invoice_key(name)]).await?;
    }
    if commits { tx.commit().await } else { tx.rollback().await }
}

/// Inserts orders, each with its email in the same transaction, and rolls half of them back.
async fn write_orders(url: String, writer: u64, count: u64, mut random: Sequence, written: Arc<AtomicU64>) {
    let mut sql = connect_patiently(&url).await;
    for n in 0..count {
        let (name, choice) = (format!("{writer}-{n:06}"), random.next());
        let key = (choice % 3 == 0).then(|| format!("order-{name}"));
        let order_key = (choice % 5 < 3).then(|| format!("writer-{writer}"));
        if write_order(&mut sql, &name, (key, order_key), n % 2 == 0).await.is_err() {
            sql = connect_patiently(&url).await;
        }
        written.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(random.next() % 20)).await;
    }
}

/// What happened to the drainers and to PostgreSQL.
#[derive(Debug, Default)]
struct Faults {
    kills: u32,
    suspensions: u32,
    crashes: u64,
    /// The oldest snapshot of a drainer that was seen while one of them was suspended.
    snapshot_s: f64,
    snapshot_transactions: i64,
}

/// The servers of a campaign.
struct Campaign<'a> {
    rig: &'a Rig,
    cluster: &'a Cluster,
    ledger: &'a TempDatabase,
    sink_port: u16,
    servers: Vec<Server>,
    faults: Faults,
}

impl Campaign<'_> {
    async fn start_server(&self, name: &str) -> Server {
        let (store, sink_port) = (self.ledger.url.as_str(), Some(self.sink_port));
        self.rig.start(&ServerOptions { name, store, sink_port, ..ServerOptions::default() }).await
    }

    /// Looks at the snapshots of the drainers for this time, and until every transaction that they have open now has
    /// ended. One that a suspended drainer keeps open holds back vacuum.
    async fn watch_snapshots(&mut self, duration: Duration) {
        let sql = connect_patiently(&self.rig.database.url).await;
        let now: String = sql.query_one("SELECT clock_timestamp()::text", &[]).await.unwrap().get(0);
        let start = Instant::now();
        loop {
            let row = sql.query_one(SNAPSHOTS, &[&now]).await.unwrap();
            let (seconds, age, open): (f64, i64, i64) = (row.get(0), row.get(1), row.get(2));
            assert!(seconds <= MAX_SNAPSHOT_S, "a snapshot of a drainer is {seconds} s and {age} transactions old");
            self.faults.snapshot_s = self.faults.snapshot_s.max(seconds);
            self.faults.snapshot_transactions = self.faults.snapshot_transactions.max(age);
            if open == 0 && start.elapsed() >= duration {
                return;
            }
            assert!(start.elapsed() < duration + Duration::from_mins(1), "a transaction of a drainer stays open");
            tokio::time::sleep(SAMPLE_INTERVAL).await;
        }
    }

    /// Kills a server and starts another in its place, or suspends it.
    async fn disturb(&mut self, random: &mut Sequence) {
        let victim = (random.next() % 3) as usize;
        if random.next().is_multiple_of(3) {
            // Sometimes longer than a lease.
            self.servers[victim].send_signal(Signal::STOP);
            self.watch_snapshots(Duration::from_millis(random.next() % 12_000)).await;
            self.servers[victim].send_signal(Signal::CONT);
            self.faults.suspensions += 1;
            return;
        }
        for name in [["n3", "n4", "n5"][victim], ["n0", "n1", "n2"][victim]] {
            let next = self.start_server(name).await;
            std::mem::replace(&mut self.servers[victim], next).kill().await;
            self.faults.kills += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_orders_have_one_email_each_whatever_is_killed() {
    let transactions = number_from_env("MAILONCE_OUTBOX_TRANSACTIONS", 400);
    let seed = number_from_env("MAILONCE_SEED", u64::from(std::process::id())).max(1);
    println!("MAILONCE_SEED={seed} MAILONCE_OUTBOX_TRANSACTIONS={transactions}");
    let crashes = if transactions < 5_000 { 1 } else { 2 };
    let cluster = Cluster::start();
    let mut rig = Rig::on(TempDatabase::create_on(cluster.url()).await).await;
    rig.outbox(&["install"]).await.expect_exit(0);
    let ledger = TempDatabase::create_on(cluster.url()).await;
    let (sink, faults) = (SmtpMailSink::start().await, Faults::default());
    let mut campaign =
        Campaign { rig: &rig, cluster: &cluster, ledger: &ledger, sink_port: sink.port, servers: Vec::new(), faults };
    for name in ["n0", "n1", "n2"] {
        let server = campaign.start_server(name).await;
        campaign.servers.push(server);
    }
    let (start, written) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let random = Sequence(seed.wrapping_mul(0x9e37_79b9).wrapping_add(writer) | 1);
            let (url, count) = (rig.database.url.clone(), transactions / WRITERS);
            tokio::spawn(write_orders(url, writer, count, random, Arc::clone(&written)))
        })
        .collect();

    let mut random = Sequence(seed.wrapping_mul(0x2545_f491) | 1);
    while writers.iter().any(|writer| !writer.is_finished()) || campaign.faults.crashes < crashes {
        tokio::time::sleep(Duration::from_millis(random.next() % 700)).await;
        let due = transactions * (campaign.faults.crashes + 1) / (crashes + 1);
        if campaign.faults.crashes < crashes && written.load(Ordering::Relaxed) >= due {
            campaign.cluster.crash_and_restart();
            campaign.faults.crashes += 1;
        }
        campaign.disturb(&mut random).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    // No attempt of these servers goes on after their end, so that nothing reaches the sink while mails are counted.
    let server = campaign.start_server("last").await;
    let Campaign { servers, faults, .. } = campaign;
    for server in servers {
        server.terminate().await;
    }
    rig.sql = connect_client(&rig.database.url).await;
    wait_until_drained(&rig, &server, transactions).await;
    assert_eq!(rig.count("parked").await, 0);
    let orders = check_emails(&rig, &server).await;
    // Half of the transactions are rolled back, and each crash interrupts a few.
    assert!(orders as u64 * 100 >= transactions * 45, "{orders} orders of {transactions} transactions");
    let (unknown, sent_again) = check_mails(&sink, &server).await;
    println!("{faults:?}, {orders} orders, {unknown} unknown, {sent_again} of them sent again");
    println!("{} s", start.elapsed().as_secs());
    server.terminate().await;
}

async fn wait_until_drained(rig: &Rig, server: &Server, transactions: u64) {
    let (start, patience) = (Instant::now(), Duration::from_secs(180 + transactions / 20));
    while rig.count("pending").await > 0 {
        assert!(start.elapsed() < patience, "rows stay pending: {}", server.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Compares the emails in the ledger with the orders in the user's database. Returns the number of orders.
async fn check_emails(rig: &Rig, server: &Server) -> usize {
    let rows = rig.sql.query("SELECT name FROM orders ORDER BY name", &[]).await.unwrap();
    let orders: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let mut subjects = server.subjects().await;
    subjects.sort();
    assert_eq!(subjects.iter().collect::<BTreeSet<_>>().len(), subjects.len(), "an order has two emails");
    assert_eq!(subjects, orders);
    check_order(rig, server).await;
    check_claims(server, &orders).await;
    let unknown = "SELECT count(*) FROM mailonce_outbox.rows WHERE coalesce(email_id, claim_id) IS NULL";
    assert_eq!(rig.sql.query_one(unknown, &[]).await.unwrap().get::<_, i64>(0), 0);
    orders.len()
}

/// Checks that the ledger has one claim for each committed order with an invoice, and none of a rollback.
async fn check_claims(server: &Server, orders: &[String]) {
    let (mut keys, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/claims?limit=100{cursor}")).await;
        keys.extend(page["data"].as_array().unwrap().iter().map(|claim| claim["key"].as_str().unwrap().to_owned()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    keys.sort();
    let mut invoices: Vec<String> =
        orders.iter().filter(|order| makes_claim(order)).map(|order| invoice_key(order)).collect();
    invoices.sort();
    assert_eq!(keys, invoices);
}

/// Checks that the emails of each order key were accepted in the order of their rows. Marks prove nothing: rows that are
/// marked together have the same time.
async fn check_order(rig: &Rig, server: &Server) {
    let emails = server.emails().await;
    let text = |email: &Value, name: &str| email[name].as_str().unwrap().to_owned();
    let accepted: HashMap<String, String> =
        emails.iter().map(|email| (text(email, "id"), text(email, "created_at"))).collect();
    let rows = "SELECT order_key, email_id::text FROM mailonce_outbox.rows WHERE order_key IS NOT NULL ORDER BY seq";
    let mut latest: HashMap<String, &String> = HashMap::new();
    for row in rig.sql.query(rows, &[]).await.unwrap() {
        let (key, own) = (row.get::<_, String>(0), &accepted[row.get::<_, &str>(1)]);
        let before = latest.insert(key.clone(), own);
        assert!(before.is_none_or(|before| before <= own), "{key} was overtaken: {before:?}, {own}");
    }
}

/// Compares the emails with the mails at the sink: each was handed over once. A server that was killed between the marker
/// and the reply leaves an email `unknown`, and only the sink knows whether it has it. One that it does not have is sent
/// again, as a person would. Returns how many were unknown, and how many of them were sent again.
async fn check_mails(sink: &SmtpMailSink, server: &Server) -> (usize, usize) {
    let emails = wait_for_outcomes(server).await;
    let (mut unknown, mut sent_again) = (0, 0);
    let mails = mails_by_subject(sink);
    for email in emails.iter().filter(|email| email["state"] == "unknown") {
        unknown += 1;
        if mails.contains_key(email["subject"].as_str().unwrap()) {
            continue;
        }
        sent_again += 1;
        let path = format!("/v1/emails/{}/resolve", email["id"].as_str().unwrap());
        let decision =
            serde_json::json!({ "as": "resend", "rev": email["rev"], "reason": "the sink does not have it" });
        let (status, answer) = server.post(&path, &decision.to_string()).await;
        assert_eq!(status, 200, "{answer}");
    }
    let emails = wait_for_outcomes(server).await;
    let mut mails = mails_by_subject(sink);
    for email in &emails {
        let count = mails.remove(email["subject"].as_str().unwrap()).unwrap_or(0);
        assert_eq!(count, 1, "mails of {email}");
    }
    assert!(mails.is_empty(), "mails of no committed order: {mails:?}");
    (unknown, sent_again)
}

/// Waits until every email was handed over or is unknown. Returns the emails.
async fn wait_for_outcomes(server: &Server) -> Vec<Value> {
    let is_open = |email: &Value| !matches!(email["state"].as_str(), Some("sent" | "unknown"));
    let start = Instant::now();
    loop {
        let emails = server.emails().await;
        let Some(open) = emails.iter().find(|email| is_open(email)) else { return emails };
        assert!(start.elapsed() < Duration::from_mins(3), "it is not handed over: {open}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// How many mails with each subject the sink accepted.
fn mails_by_subject(sink: &SmtpMailSink) -> HashMap<String, usize> {
    let mut mails = HashMap::new();
    for mail in sink.mails_to("ada@example.com") {
        *mails.entry(mail.header("Subject").unwrap().to_owned()).or_default() += 1;
    }
    mails
}
