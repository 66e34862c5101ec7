//! Draining: what commits is sent once, what rolls back never, and order is kept where it is asked for.

use mailonce_core::{
    id::EmailId, outbound::email::EmailState, outbox::RowEmail, ports::outbox_database::OutboxDatabase as _,
};
use mailonce_store::postgres::outbox::PostgresOutbox;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tokio_postgres::SimpleQueryMessage;

use crate::{
    cluster::Cluster,
    database::{TempDatabase, connect_client},
    rig::{Rig, ServerOptions, payload, wait_until},
};

impl Rig {
    /// Records the outcome of a leased row, as a drainer does. Returns the rows that changed.
    async fn record(&self, id: &str, fence: i64, mut outcome: Value) -> Vec<String> {
        outcome["id"] = id.into();
        outcome["fence"] = fence.into();
        let sql = "SELECT id::text FROM mailonce_outbox.record_outcomes($1::text::jsonb) id";
        let rows = self.sql.query(sql, &[&json!([outcome]).to_string()]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// How many blocks a lease reads after others in the same session. Its row is due again at once.
    async fn blocks_of_a_lease(&self) -> u64 {
        let lease = "SELECT * FROM mailonce_outbox.lease('x', 200, 0, 5)";
        for _ in 0..10 {
            assert_eq!(self.sql.query(lease, &[]).await.unwrap().len(), 1);
        }
        let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {lease}");
        let messages = self.sql.simple_query(&explain).await.unwrap();
        let text = messages.iter().find_map(|message| {
            let SimpleQueryMessage::Row(row) = message else { return None };
            row.get(0)
        });
        let plan: Value = serde_json::from_str(text.unwrap()).unwrap();
        let count = |name: &str| plan[0]["Plan"][name].as_u64().unwrap();
        count("Shared Hit Blocks") + count("Shared Read Blocks")
    }
}

#[tokio::test]
async fn a_commit_sends_one_email_and_a_rollback_sends_none() {
    let mut rig = Rig::installed().await;
    let server = rig.start_server().await;
    for (name, commits) in [("first", true), ("second", false), ("third", true)] {
        let tx = rig.sql.transaction().await.unwrap();
        tx.execute("INSERT INTO orders (name) VALUES ($1)", &[&name]).await.unwrap();
        let body = payload(name).to_string();
        tx.execute("SELECT mailonce_outbox.send($1::text::jsonb)", &[&body]).await.unwrap();
        if commits { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }

    rig.wait_for_count("done", 2).await;
    assert_eq!((rig.count("pending").await, rig.count("parked").await), (0, 0));
    // Rows without an order key are accepted in any order.
    let mut subjects = server.subjects().await;
    subjects.sort();
    assert_eq!(subjects, ["first", "third"]);
    server.terminate().await;
}

#[tokio::test]
async fn a_row_shows_the_email_and_its_latest_state() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.order("tracked", Some("order-1")).await;
    rig.wait_for_count("done", 1).await;

    let sql = "SELECT email_id::text, email_state, email_rev FROM mailonce_outbox.rows";
    wait_until("the final state is written back", async || {
        let row = rig.sql.query_one(sql, &[]).await.unwrap();
        let email = server.get(&format!("/v1/emails/{}", row.get::<_, String>(0))).await;
        assert_eq!(email["key"], "order-1");
        let shown = (row.get::<_, String>(1), row.get::<_, i64>(2));
        shown == (email["state"].as_str().unwrap().to_owned(), email["rev"].as_i64().unwrap()) && shown.0 != "queued"
    })
    .await;
    // A state that arrives late changes nothing.
    let before = rig.sql.query_one(sql, &[]).await.unwrap().get::<_, String>(1);
    let late = "SELECT mailonce_outbox.write_back(id, 'queued', 1, true) FROM mailonce_outbox.rows";
    assert!(!rig.sql.query_one(late, &[]).await.unwrap().get::<_, bool>(0));
    assert_eq!(rig.sql.query_one(sql, &[]).await.unwrap().get::<_, String>(1), before);
    server.terminate().await;
}

#[tokio::test]
async fn states_are_written_back_in_one_transaction() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    for name in ["a", "b", "c"] {
        rig.order(name, None).await;
    }
    rig.wait_for_count("done", 3).await;
    server.terminate().await;
    let rows = rig.sql.query("SELECT id, email_id FROM mailonce_outbox.rows", &[]).await.unwrap();
    let latest = |row: &tokio_postgres::Row| {
        (row.get(0), RowEmail { id: EmailId(row.get(1)), state: EmailState::Bounced, rev: 1_000 })
    };
    let latest: Vec<_> = rows.iter().map(latest).collect();
    let outbox = PostgresOutbox::new(&rig.database.url, "mailonce_outbox").unwrap();
    outbox.write_back(&latest).await.unwrap();
    let sql = "SELECT count(*), count(DISTINCT xmin::text) FROM mailonce_outbox.rows WHERE email_state = 'bounced'";
    let written = rig.sql.query_one(sql, &[]).await.unwrap();
    assert_eq!((written.get::<_, i64>(0), written.get::<_, i64>(1)), (3, 1));
}

#[tokio::test]
async fn the_same_key_and_payload_in_two_rows_is_one_email() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.order("twice", Some("order-2")).await;
    rig.order("twice", Some("order-2")).await;
    rig.wait_for_count("done", 2).await;
    let sql = "SELECT count(DISTINCT email_id) FROM mailonce_outbox.rows";
    assert_eq!(rig.sql.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 1);
    assert_eq!(server.subjects().await, ["twice"]);
    server.terminate().await;
}

#[tokio::test]
async fn a_trigger_fills_the_outbox_from_a_table_of_the_debezium_router() {
    let mut rig = Rig::installed().await;
    let server = rig.start_server().await;
    // As in docs/outbox.md.
    rig.sql
        .batch_execute(
            "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb);
             CREATE FUNCTION outbox_to_mailonce() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM mailonce_outbox.send(NEW.payload, 'outbox-' || NEW.id, NEW.aggregatetype || '/' || NEW.aggregateid);
                 RETURN NULL;
             END $$;
             CREATE TRIGGER mailonce AFTER INSERT ON outbox FOR EACH ROW WHEN (NEW.type = 'email.requested')
                 EXECUTE FUNCTION outbox_to_mailonce();",
        )
        .await
        .unwrap();
    for (name, kind, commits) in
        [("mail", "email.requested", true), ("event", "order.placed", true), ("undone", "email.requested", false)]
    {
        let tx = rig.sql.transaction().await.unwrap();
        let insert = "INSERT INTO outbox VALUES (gen_random_uuid(), 'order', '4821', $1, $2::text::jsonb)";
        tx.execute(insert, &[&kind, &payload(name).to_string()]).await.unwrap();
        // The connector of Debezium reads the log, so many applications delete the row at once.
        tx.execute("DELETE FROM outbox", &[]).await.unwrap();
        if commits { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
    rig.wait_for_count("done", 1).await;
    assert_eq!((rig.count("pending").await, server.subjects().await), (0, vec!["mail".to_owned()]));
    server.terminate().await;
}

#[tokio::test]
async fn several_drainers_share_the_rows_and_keep_the_order_of_each_key() {
    let rig = Rig::installed().await;
    let insert = "SELECT mailonce_outbox.send(jsonb_build_object('from', 'shop@mailonce.test', 'to', 'ada@example.com',
            'subject', format('%s-%s', o, n), 'text', format('%s-%s', o, n)), NULL, CASE WHEN o > 0 THEN 'customer-' || o END)
        FROM generate_series(1, 20) n, generate_series(0, 5) o";
    rig.sql.execute(insert, &[]).await.unwrap();
    let server = rig.start(&ServerOptions { drainers: 3, ..ServerOptions::default() }).await;

    rig.wait_for_count("done", 120).await;
    let subjects = server.subjects().await;
    assert_eq!(subjects.len(), 120);
    for customer in 1..=5 {
        let prefix = format!("{customer}-");
        let own: Vec<&String> = subjects.iter().filter(|subject| subject.starts_with(&prefix)).collect();
        let expected: Vec<String> = (1..=20).map(|n| format!("{customer}-{n}")).collect();
        assert_eq!(own, expected.iter().collect::<Vec<_>>());
    }
    server.terminate().await;
}

#[tokio::test]
async fn a_restored_database_is_not_drained_until_an_operator_confirms_it() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.order("before", None).await;
    rig.wait_for_count("done", 1).await;

    // A restore brings the identity of another server with it.
    rig.sql
        .batch_execute(
            "UPDATE mailonce_outbox.install SET server_identity = 'system=1 timeline=00000001 database=1 table=1';
             UPDATE mailonce_outbox.rows SET state = 'pending', email_id = NULL",
        )
        .await
        .unwrap();
    rig.order("after", None).await;
    wait_until("the drainer says so", async || server.log().contains("mailonce outbox confirm")).await;
    let listed = server.get("/v1/outboxes").await;
    assert_eq!((&listed["data"][0]["state"], &listed["data"][0]["pending"]), (&"stopped".into(), &2.into()));
    assert_eq!(rig.outbox(&["status"]).await.expect_exit(0).json()["state"], "not confirmed");
    assert_eq!(server.subjects().await, ["before"]);
    let reported = async || server.events("outbox.stopped,outbox.resumed").await;
    wait_until("the team is told", async || !reported().await.is_empty()).await;
    let (stopped, data) = reported().await.remove(0);
    assert_eq!(data["outbox"], "shop1");
    assert!(data["reason"].as_str().unwrap().contains("was restored, cloned or failed over"), "{data}");

    assert_eq!(rig.outbox(&["confirm"]).await.expect_exit(0).json()["state"], "confirmed");
    rig.wait_for_count("done", 2).await;
    assert_eq!(server.subjects().await, ["before", "after"], "the row that was offered again gets the same email");
    wait_until("the outbox is drained again", async || {
        server.get("/v1/outboxes").await["data"][0]["state"] == "draining"
    })
    .await;
    wait_until("the team is told again", async || reported().await.len() == 2).await;
    assert_eq!(reported().await[1], (stopped, serde_json::json!({ "outbox": "shop1" })));
    server.terminate().await;
}

#[tokio::test]
async fn a_copy_of_the_database_is_not_drained() {
    let rig = Rig::installed().await;
    rig.order("in both", None).await;
    let copy = format!("{}_copy", rig.database.url.rsplit_once('/').unwrap().1);
    let (base, name) = rig.database.url.rsplit_once('/').unwrap();
    let url = format!("{base}/{copy}");
    let admin = crate::database::connect_client(&format!("{base}/postgres")).await;
    let Rig { database, sql, .. } = &rig;
    assert!(database.url.ends_with(name));
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()";
    admin.execute(end, &[&name]).await.unwrap();
    wait_until("the session has ended", async || sql.is_closed()).await;
    admin.batch_execute(&format!("CREATE DATABASE {copy} TEMPLATE {name}")).await.unwrap();

    let status = rig.run(&["outbox", "status", "--database", &url]).await.expect_exit(0).json();
    assert_eq!((&status["state"], &status["pending"]), (&"not confirmed".into(), &1.into()));
    let refused = crate::database::connect_client(&url).await;
    let refused = refused.query("SELECT * FROM mailonce_outbox.lease('x', 1, 1000, 5)", &[]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "MO001");
    admin.batch_execute(&format!("DROP DATABASE {copy} WITH (FORCE)")).await.unwrap();
}

#[tokio::test]
async fn a_commit_wakes_the_drainer_and_polling_finds_rows_without_a_notification() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.order("first", None).await;
    rig.wait_for_count("done", 1).await;

    // By polling alone, each row would wait for most of a second.
    let start = std::time::Instant::now();
    for n in 1..=10 {
        rig.order(&format!("woken {n}"), None).await;
        rig.wait_for_count("done", n + 1).await;
    }
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());

    let silent = "INSERT INTO mailonce_outbox.rows (payload, payload_bytes) VALUES ($1::text::jsonb, 100)";
    rig.sql.execute(silent, &[&payload("polled").to_string()]).await.unwrap();
    rig.wait_for_count("done", 12).await;
    server.terminate().await;
}

#[tokio::test]
async fn a_drainer_connects_again_when_its_session_ends() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.order("before", None).await;
    rig.wait_for_count("done", 1).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    rig.sql.execute(end, &[]).await.unwrap();
    rig.order("after", None).await;
    rig.wait_for_count("done", 2).await;
    assert_eq!(server.subjects().await, ["before", "after"]);
    server.terminate().await;
}

#[tokio::test]
async fn a_row_that_a_stop_refuses_waits_and_is_sent_when_the_stop_ends() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    let (status, stop) = server.post("/v1/stops", "{\"scope\": {\"team\": true}, \"mode\": \"refuse\"}").await;
    assert_eq!(status, 201, "{stop}");
    rig.order("stopped", None).await;
    let waiting = "SELECT count(*) FROM mailonce_outbox.rows WHERE state = 'pending' AND failure_code = 'stopped'";
    wait_until("the row was refused", async || rig.sql.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 1)
        .await;
    assert!(server.subjects().await.is_empty());

    let id = stop["id"].as_str().unwrap();
    assert_eq!(server.call("DELETE", &format!("/v1/stops/{id}")).await.0, 200);
    rig.wait_for_count("done", 1).await;
    assert_eq!(server.subjects().await, ["stopped"]);
    server.terminate().await;
}

#[tokio::test]
async fn only_the_latest_lease_records_an_outcome() {
    let rig = Rig::installed().await;
    rig.order("contested", None).await;
    let lease = "SELECT fence, id::text FROM mailonce_outbox.lease($1, 10, 0, 5)";
    let first = rig.sql.query_one(lease, &[&"first"]).await.unwrap();
    let second = rig.sql.query_one(lease, &[&"second"]).await.unwrap();
    assert_eq!((first.get::<_, i64>(0), second.get::<_, i64>(0)), (1, 2));

    let id: String = first.get(1);
    let done = json!({ "state": "done", "email_id": id, "email_state": "queued", "email_rev": 1, "may_change": true });
    for outcome in [
        done.clone(),
        json!({ "state": "parked", "code": "code", "detail": "detail" }),
        json!({ "state": "pending", "pause_ms": 0, "code": "code", "detail": "detail" }),
    ] {
        assert!(rig.record(&id, 1, outcome.clone()).await.is_empty(), "{outcome}");
    }
    assert_eq!(rig.count("pending").await, 1);
    assert_eq!(rig.record(&id, 2, done).await, [id.as_str()]);
    assert_eq!(rig.count("done").await, 1);
}

#[tokio::test]
async fn a_leased_row_is_not_leased_again_before_its_lease_ends() {
    let rig = Rig::installed().await;
    for (name, order_key) in [("a1", Some("a")), ("a2", Some("a")), ("free", None)] {
        let sql = "SELECT mailonce_outbox.send($1::text::jsonb, NULL, $2)";
        rig.sql.execute(sql, &[&payload(name).to_string(), &order_key]).await.unwrap();
    }
    let lease = "SELECT payload::jsonb->>'subject' FROM mailonce_outbox.lease('x', 10, 60000, 5) ORDER BY 1";
    let leased =
        async || -> Vec<String> { rig.sql.query(lease, &[]).await.unwrap().iter().map(|row| row.get(0)).collect() };
    assert_eq!(leased().await, ["a1", "free"], "the second row of an order key waits for the first");
    assert!(leased().await.is_empty());
    rig.sql.batch_execute("UPDATE mailonce_outbox.rows SET due_at = now() WHERE holder = 'x'").await.unwrap();
    assert_eq!(leased().await, ["a1", "free"]);
    for row in rig.sql.query("SELECT id::text FROM mailonce_outbox.rows", &[]).await.unwrap() {
        rig.record(row.get(0), 2, json!({ "state": "parked", "code": "x", "detail": "x" })).await;
    }
    assert_eq!(leased().await, ["a2"], "a dead letter does not hold up its order key");
}

#[tokio::test]
async fn a_long_chain_costs_no_more_per_lease() {
    let rig = Rig::installed().await;
    let mut blocks = Vec::new();
    for rows in [200, 20_000 - 200] {
        let insert = "INSERT INTO mailonce_outbox.rows (payload, payload_bytes, order_key)
            SELECT $1::text::jsonb, 100, 'customer' FROM generate_series(1, $2)";
        rig.sql.execute(insert, &[&payload("chain").to_string(), &rows]).await.unwrap();
        blocks.push(rig.blocks_of_a_lease().await);
    }
    assert!(blocks[1] <= 2 * blocks[0], "blocks with 200 and with 20,000 rows: {blocks:?}");
}

#[tokio::test]
async fn no_order_key_starves() {
    let rig = Rig::installed().await;
    let insert = "SELECT mailonce_outbox.send(jsonb_build_object('from', 'shop@mailonce.test', 'to', 'ada@example.com',
            'subject', format('%s-%s', o, n), 'text', 'x'), NULL, format('customer-%s', o))
        FROM generate_series(1, 300) o, generate_series(1, 5) n";
    rig.sql.execute(insert, &[]).await.unwrap();
    // These leases end at once, as if each accept had failed: the first rows are always due.
    let lease = "SELECT payload::jsonb->>'subject' FROM mailonce_outbox.lease('x', 200, 0, 5)";
    let mut leased = BTreeSet::new();
    for _ in 0..2 {
        let rows = rig.sql.query(lease, &[]).await.unwrap();
        assert_eq!(rows.len(), 200);
        leased.extend(rows.iter().map(|row| row.get::<_, String>(0)));
    }
    let oldest: BTreeSet<String> = (1..=300).map(|o| format!("{o}-1")).collect();
    assert_eq!(leased, oldest, "the oldest row of each order key");
}

#[tokio::test]
async fn a_due_row_behind_thousands_of_paused_keys_is_reached() {
    let rig = Rig::installed().await;
    let insert = "INSERT INTO mailonce_outbox.rows (payload, payload_bytes, order_key, due_at)
        SELECT '{}'::jsonb, 100, format('paused-%s', n), now() + interval '1 hour' FROM generate_series(1, 10500) n
        UNION ALL SELECT '{}', 100, 'the last one', now()";
    rig.sql.execute(insert, &[]).await.unwrap();
    let lease = "SELECT id FROM mailonce_outbox.lease('x', 200, 60000, 5)";
    for count in [0, 1, 0] {
        assert_eq!(rig.sql.query(lease, &[]).await.unwrap().len(), count, "a lease looks at 10,000 keys");
    }
}

#[tokio::test]
async fn a_backup_that_was_restored_sends_nothing_again_and_says_why() {
    let cluster = Cluster::start();
    let mut rig = Rig::on(TempDatabase::create_on(cluster.url()).await).await;
    rig.outbox(&["install"]).await.expect_exit(0);
    rig.order("sent", None).await;
    cluster.back_up();
    rig.sql = connect_client(&rig.database.url).await;
    let server = rig.start_server().await;
    rig.wait_for_count("done", 1).await;
    let id = server.emails().await[0]["id"].clone();

    cluster.restore();
    rig.sql = connect_client(&rig.database.url).await;
    let state = async || server.get("/v1/outboxes").await["data"][0]["state"].clone();
    wait_until("the drain stops", async || state().await == "stopped").await;
    wait_until("the log says why", async || server.log().contains("mailonce outbox confirm")).await;
    assert_eq!(rig.count("pending").await, 1, "the backup is older than the accept");
    assert_eq!(server.subjects().await, ["sent"]);

    rig.outbox(&["confirm"]).await.expect_exit(0);
    rig.wait_for_count("done", 1).await;
    let emails = server.emails().await;
    assert_eq!((emails.len(), &emails[0]["id"]), (1, &id), "the row got the email that it had before");
    server.terminate().await;
}
