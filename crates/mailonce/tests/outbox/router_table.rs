//! An outbox that reads a table of the Debezium outbox router, without a trigger.

use serde_json::Value;

use crate::{
    database::connect_client,
    rig::{Rig, ServerOptions, payload, wait_until},
};

const TABLE: &str = "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255),
    aggregateid varchar(255), type varchar(255), payload jsonb)";
const INSERT: &str =
    "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', '4821', $1, $2::text::jsonb)";
const INSTALL: &[&str] = &["install", "--table", "public.outbox", "--type", "email.requested"];

impl Rig {
    pub(crate) async fn with_router_table() -> Self {
        let rig = Self::empty().await;
        rig.sql.batch_execute(TABLE).await.unwrap();
        rig
    }

    pub(crate) async fn write_event(&self, kind: &str, subject: &str) {
        self.sql.execute(INSERT, &[&kind, &payload(subject).to_string()]).await.unwrap();
    }

    /// Makes the counters of this session visible to others now.
    async fn flush_statistics(&self) {
        self.sql.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
        self.sql.batch_execute("SELECT 1").await.unwrap();
    }

    /// Inserts and deletes rows, each in one transaction.
    async fn insert_and_delete(&self, count: usize) {
        for n in 0..count {
            let sql = format!(
                "BEGIN; INSERT INTO outbox (type, payload) VALUES ('email.requested', '{{}}'); DELETE FROM outbox; COMMIT; SELECT {n}"
            );
            self.sql.batch_execute(&sql).await.unwrap();
        }
        self.flush_statistics().await;
    }
}

#[tokio::test]
async fn new_rows_of_the_table_are_sent_once_and_others_never() {
    let mut rig = Rig::with_router_table().await;
    rig.write_event("email.requested", "before the install").await;
    let installed = rig.outbox(INSTALL).await.expect_exit(0);
    assert!(installed.stderr.contains("1 rows that public.outbox has already"), "{installed:?}");
    assert_eq!(installed.json()["source"]["table"], "public.outbox");
    let server = rig.start(&ServerOptions { drainers: 2, ..ServerOptions::default() }).await;
    for (kind, subject, commits) in
        [("email.requested", "mail", true), ("order.placed", "event", true), ("email.requested", "undone", false)]
    {
        let tx = rig.sql.transaction().await.unwrap();
        tx.execute(INSERT, &[&kind, &payload(subject).to_string()]).await.unwrap();
        if commits { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
    rig.wait_for_count("done", 1).await;
    // The row of the outbox is removed, and that of the table stays: it is not read again.
    rig.sql.batch_execute("DELETE FROM mailonce_outbox.rows").await.unwrap();
    rig.write_event("email.requested", "second").await;
    rig.wait_for_count("done", 1).await;
    assert_eq!(server.subjects().await, ["mail", "second"]);
    let key = "SELECT 'outbox-' || id FROM outbox WHERE payload->>'subject' = 'second'";
    let key: String = rig.sql.query_one(key, &[]).await.unwrap().get(0);
    assert_eq!(server.emails().await[1]["key"], key.as_str());
    server.terminate().await;
}

#[tokio::test]
async fn a_row_that_commits_late_with_a_lower_id_is_not_missed() {
    let rig = Rig::with_router_table().await;
    rig.outbox(INSTALL).await.expect_exit(0);
    let server = rig.start_server().await;
    let mut slow = connect_client(&rig.database.url).await;
    let tx = slow.transaction().await.unwrap();
    let low = "INSERT INTO outbox (id, type, payload) VALUES ('00000000-0000-4000-8000-000000000001', 'email.requested', $1::text::jsonb)";
    tx.execute(low, &[&payload("late").to_string()]).await.unwrap();
    rig.write_event("email.requested", "early").await;
    rig.wait_for_count("done", 1).await;
    tx.commit().await.unwrap();
    rig.wait_for_count("done", 2).await;
    assert_eq!(server.subjects().await, ["early", "late"]);
    server.terminate().await;
}

#[tokio::test]
async fn emails_of_one_aggregate_are_accepted_in_the_order_of_their_inserts() {
    let rig = Rig::with_router_table().await;
    rig.outbox(INSTALL).await.expect_exit(0);
    let insert = "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
        VALUES ('order', $1, 'email.requested', $2::text::jsonb)";
    let mut expected = Vec::new();
    for n in 0..6 {
        for order in ["1", "2"] {
            let subject = format!("{order}-{n}");
            rig.sql.execute(insert, &[&order, &payload(&subject).to_string()]).await.unwrap();
            expected.push(subject);
        }
        // The space of deleted rows is used again, so the order of the rows in the table is not that of the inserts.
        rig.sql
            .batch_execute("INSERT INTO outbox (type) VALUES ('other'); DELETE FROM outbox WHERE type = 'other'")
            .await
            .unwrap();
        rig.sql.batch_execute("VACUUM outbox").await.unwrap();
    }
    rig.write_event("email.requested", "another aggregate").await;
    rig.sql.batch_execute("INSERT INTO outbox (type, payload) VALUES ('email.requested', '{}')").await.unwrap();
    let server = rig.start_server().await;
    rig.wait_for_count("done", 13).await;
    let subjects = server.subjects().await;
    for order in ["1-", "2-"] {
        let of = |all: &[String]| all.iter().filter(|subject| subject.starts_with(order)).cloned().collect::<Vec<_>>();
        assert_eq!(of(&subjects), of(&expected));
    }
    let keys = "SELECT string_agg(DISTINCT coalesce(order_key, 'none'), ' ' ORDER BY coalesce(order_key, 'none')) FROM mailonce_outbox.rows";
    assert_eq!(rig.sql.query_one(keys, &[]).await.unwrap().get::<_, String>(0), "none order/1 order/2 order/4821");
    server.terminate().await;
}

#[tokio::test]
async fn existing_rows_are_sent_when_they_are_asked_for() {
    let rig = Rig::with_router_table().await;
    rig.write_event("email.requested", "old").await;
    rig.write_event("email.bounced", "other type").await;
    rig.outbox(&[INSTALL, &["--include-existing"]].concat()).await.expect_exit(0);
    // The same table again, with another type: what it has of that type is skipped, and the first type is not.
    rig.write_event("email.requested", "between").await;
    let again = rig.outbox(&["install", "--table", "outbox", "--type", "email.bounced"]).await.expect_exit(0).json();
    assert_eq!(again["source"]["types"], serde_json::json!(["email.bounced", "email.requested"]));
    let server = rig.start_server().await;
    rig.wait_for_count("done", 2).await;
    let mut subjects = server.subjects().await;
    subjects.sort();
    assert_eq!(subjects, ["between", "old"]);
    server.terminate().await;
}

#[tokio::test]
async fn a_row_that_is_no_email_is_a_dead_letter() {
    let rig = Rig::with_router_table().await;
    rig.outbox(INSTALL).await.expect_exit(0);
    let server = rig.start_server().await;
    for bad in ["NULL", "'[]'", "'{}'"] {
        let sql = format!("INSERT INTO outbox (type, payload) VALUES ('email.requested', {bad})");
        rig.sql.batch_execute(&sql).await.unwrap();
    }
    rig.write_event("email.requested", "good").await;
    rig.wait_for_count("parked", 3).await;
    rig.wait_for_count("done", 1).await;
    assert_eq!(server.subjects().await, ["good"]);
    server.terminate().await;
}

#[tokio::test]
async fn a_table_whose_rows_are_deleted_at_once_is_refused_with_the_reason() {
    let rig = Rig::with_router_table().await;
    rig.insert_and_delete(3).await;
    let refused = rig.outbox(INSTALL).await.expect_exit(5);
    assert!(refused.stderr.contains("unreadable_table"), "{refused:?}");
    assert!(refused.stderr.contains("3 rows were inserted and 3 deleted"), "{refused:?}");
    assert!(refused.stderr.contains("trigger"), "{refused:?}");
    assert_eq!(rig.outbox(&["status"]).await.expect_exit(0).json()["source"], Value::Null);

    // The operator was wrong: the drainer notices it, and goes on with the other rows.
    rig.outbox(&[INSTALL, &["--rows-stay"]].concat()).await.expect_exit(0);
    let server = rig.start_server().await;
    rig.insert_and_delete(10).await;
    wait_until("the drainer says so", async || server.log().contains("deleted before anybody could read them")).await;
    let listed = server.get("/v1/outboxes").await;
    assert_eq!(listed["data"][0]["state"], "failing", "{listed}");
    assert!(listed["data"][0]["error"].as_str().unwrap().contains("trigger"), "{listed}");
    let problem = rig.outbox(&["status"]).await.expect_exit(0).json()["source"]["problem"].clone();
    assert!(problem.as_str().unwrap().contains("10 rows were inserted into public.outbox"), "{problem}");
    rig.order("by send", None).await;
    rig.wait_for_count("done", 1).await;

    // Now the application lets its rows stay.
    rig.outbox(&["confirm"]).await.expect_exit(0);
    rig.write_event("email.requested", "stays").await;
    rig.wait_for_count("done", 2).await;
    assert_eq!(server.subjects().await, ["by send", "stays"]);
    server.terminate().await;
}

#[tokio::test]
async fn rows_that_are_deleted_later_or_rolled_back_are_no_reason_to_refuse() {
    let mut rig = Rig::with_router_table().await;
    rig.outbox(INSTALL).await.expect_exit(0);
    let server = rig.start_server().await;
    for n in 1..=12 {
        rig.write_event("email.requested", &format!("mail {n}")).await;
    }
    rig.wait_for_count("done", 12).await;
    rig.sql.batch_execute("DELETE FROM outbox").await.unwrap();
    for _ in 0..12 {
        let tx = rig.sql.transaction().await.unwrap();
        tx.execute(INSERT, &[&"email.requested", &payload("undone").to_string()]).await.unwrap();
        tx.rollback().await.unwrap();
    }
    rig.flush_statistics().await;
    assert_eq!(rig.outbox(&["status"]).await.expect_exit(0).json()["source"]["problem"], Value::Null);
    rig.write_event("email.requested", "last").await;
    rig.wait_for_count("done", 13).await;
    server.terminate().await;
}

#[tokio::test]
async fn a_table_of_another_shape_is_refused() {
    let rig = Rig::empty().await;
    for (name, columns, reason) in [
        ("no_type", "id uuid PRIMARY KEY, payload jsonb", "no column type"),
        ("text_id", "id text PRIMARY KEY, type text, payload jsonb", "id is text"),
        ("text_payload", "id uuid PRIMARY KEY, type text, payload text", "payload is text"),
        ("twice", "id uuid, type text, payload jsonb", "unique index"),
    ] {
        rig.sql.batch_execute(&format!("CREATE TABLE {name} ({columns})")).await.unwrap();
        let refused = rig.outbox(&["install", "--table", name, "--type", "x"]).await.expect_exit(5);
        assert!(refused.stderr.contains(reason), "{name}: {refused:?}");
    }
    let missing = rig.outbox(&["install", "--table", "missing", "--type", "x"]).await.expect_exit(5);
    assert!(missing.stderr.contains("there is no table missing"), "{missing:?}");
    rig.outbox(&["install", "--table", "missing"]).await.expect_exit(64);
    rig.sql.batch_execute(TABLE).await.unwrap();
    rig.outbox(INSTALL).await.expect_exit(0);
    rig.sql.batch_execute("CREATE TABLE second (LIKE outbox INCLUDING ALL)").await.unwrap();
    let other = rig.outbox(&["install", "--table", "second", "--type", "x"]).await.expect_exit(5);
    assert!(other.stderr.contains("the outbox reads public.outbox"), "{other:?}");
    rig.outbox(&["uninstall"]).await.expect_exit(0);
}
