//! Many transactions, half of them rolled back, and three drainers that are killed at random: every committed order has
//! exactly one email, and no other order has one.
//!
//! The short form runs 400 transactions. `MAILONCE_OUTBOX_TRANSACTIONS` chooses another number.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::{
    database::{TempDatabase, connect_client},
    rig::{Rig, Server, ServerOptions, payload},
};

/// Connections that insert orders at the same time. Each has its own order key.
const WRITERS: u64 = 4;

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

/// Inserts orders, each with its email in the same transaction, and rolls half of them back.
async fn write_orders(url: String, writer: u64, count: u64, mut random: Sequence) {
    let mut sql = connect_client(&url).await;
    for n in 0..count {
        let name = format!("{writer}-{n:06}");
        let tx = sql.transaction().await.unwrap();
        tx.execute("INSERT INTO orders (name) VALUES ($1)", &[&name]).await.unwrap();
        let (body, choice) = (payload(&name).to_string(), random.next());
        let key = (choice % 3 == 0).then(|| format!("order-{name}"));
        let order_key = (choice % 5 < 3).then(|| format!("writer-{writer}"));
        let send = "SELECT mailonce_outbox.send($1::text::jsonb, $2, $3)";
        tx.execute(send, &[&body, &key, &order_key]).await.unwrap();
        if n % 2 == 0 {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        tokio::time::sleep(Duration::from_millis(random.next() % 20)).await;
    }
}

#[tokio::test]
async fn committed_orders_have_one_email_each_however_often_drainers_are_killed() {
    let transactions = number_from_env("MAILONCE_OUTBOX_TRANSACTIONS", 400);
    let seed = number_from_env("MAILONCE_SEED", u64::from(std::process::id())).max(1);
    println!("MAILONCE_SEED={seed} MAILONCE_OUTBOX_TRANSACTIONS={transactions}");
    let (rig, ledger) = (Rig::installed().await, TempDatabase::create().await);
    let names = ["n0", "n1", "n2"];
    let options = |name| ServerOptions { name, store: &ledger.url, ..ServerOptions::default() };
    let mut servers: Vec<Server> = Vec::new();
    for name in names {
        servers.push(rig.start(&options(name)).await);
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let random = Sequence(seed.wrapping_mul(0x9e37_79b9).wrapping_add(writer) | 1);
            tokio::spawn(write_orders(rig.database.url.clone(), writer, transactions / WRITERS, random))
        })
        .collect();

    let mut random = Sequence(seed.wrapping_mul(0x2545_f491) | 1);
    let mut kills = 0;
    while writers.iter().any(|writer| !writer.is_finished()) {
        tokio::time::sleep(Duration::from_millis(random.next() % 700)).await;
        let victim = (random.next() % 3) as usize;
        let next = rig.start(&options(["n3", "n4", "n5"][victim])).await;
        std::mem::replace(&mut servers[victim], next).kill().await;
        let again = rig.start(&options(names[victim])).await;
        std::mem::replace(&mut servers[victim], again).kill().await;
        kills += 2;
    }
    for writer in writers {
        writer.await.unwrap();
    }

    let start = Instant::now();
    while rig.count("pending").await > 0 {
        assert!(start.elapsed() < Duration::from_mins(3), "rows stay pending: {}", servers[0].log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(rig.count("parked").await, 0);
    check_emails(&rig, &servers[0]).await;
    println!("{kills} kills, {} emails", rig.count("done").await);
    for server in servers {
        server.terminate().await;
    }
}

/// Compares the emails in the ledger with the orders in the user's database.
async fn check_emails(rig: &Rig, server: &Server) {
    let rows = rig.sql.query("SELECT name FROM orders ORDER BY name", &[]).await.unwrap();
    let orders: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let mut subjects = server.subjects().await;
    subjects.sort();
    assert_eq!(subjects.iter().collect::<BTreeSet<_>>().len(), subjects.len(), "an order has two emails");
    assert_eq!(subjects, orders);
    // A row is leased only when the rows before it are marked, so the marks of one order key are in order.
    let disorder = "SELECT count(*) FROM mailonce_outbox.rows a JOIN mailonce_outbox.rows b USING (order_key)
        WHERE a.seq < b.seq AND a.done_at > b.done_at";
    assert_eq!(rig.sql.query_one(disorder, &[]).await.unwrap().get::<_, i64>(0), 0, "an order key was overtaken");
    let unknown = "SELECT count(*) FROM mailonce_outbox.rows WHERE email_id IS NULL";
    assert_eq!(rig.sql.query_one(unknown, &[]).await.unwrap().get::<_, i64>(0), 0);
}
