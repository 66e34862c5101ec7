//! `outbox upgrade` from earlier schema versions, with rows in every state and a server that waits for it.

use serde_json::json;

use crate::{
    database::connect_client,
    rig::{Rig, ServerOptions, payload, wait_until},
    schema::url_of_role,
};

/// The statements with which version 1 was installed.
const VERSION_1: &str = include_str!("fixtures/version_1.sql");
/// The statements with which version 2 was installed.
const VERSION_2: &str = include_str!("fixtures/version_2.sql");
/// The statements with which version 4 was installed.
const VERSION_4: &str = include_str!("fixtures/version_4.sql");

impl Rig {
    /// A database with an outbox of version 1 and three rows: done, parked and waiting.
    async fn version_1() -> Self {
        let rig = Self::empty().await;
        rig.sql.batch_execute(VERSION_1).await.unwrap();
        for name in ["done", "parked", "waiting"] {
            rig.order(name, Some(name)).await;
        }
        // As a drainer of version 1 leased and marked them.
        rig.sql
            .batch_execute(
                "SELECT id FROM mailonce_outbox.lease('old', 2, 60000);
                 SELECT mailonce_outbox.mark_done(id, 1, gen_random_uuid(), 'delivered', 5, false)
                   FROM mailonce_outbox.rows WHERE key = 'done';
                 SELECT mailonce_outbox.park(id, 1, 'recipient_suppressed', 'x') FROM mailonce_outbox.rows WHERE key = 'parked'",
            )
            .await
            .unwrap();
        rig
    }
}

#[tokio::test]
async fn a_server_says_what_to_do_and_drains_the_rows_after_the_upgrade() {
    let rig = Rig::version_1().await;
    let server = rig.start_server().await;
    wait_until("the server says so", async || server.log().contains("mailonce outbox upgrade")).await;
    let listed = server.get("/v1/outboxes").await;
    assert_eq!(listed["data"][0]["state"], "failing");
    let error = listed["data"][0]["error"].as_str().unwrap();
    assert!(error.contains("schema version 1") && error.contains("`mailonce outbox upgrade`"), "{error}");
    for verb in ["status", "install", "confirm"] {
        assert!(rig.outbox(&[verb]).await.expect_exit(5).stderr.contains("older_outbox"), "{verb}");
    }
    assert_eq!((rig.count("pending").await, server.subjects().await.len()), (1, 0), "nothing is drained meanwhile");

    let upgraded = rig.outbox(&["upgrade"]).await.expect_exit(0).json();
    assert_eq!(
        (&upgraded["schema_version"], &upgraded["pending"], &upgraded["parked"]),
        (&5.into(), &1.into(), &1.into())
    );
    rig.wait_for_count("done", 2).await;
    assert_eq!(server.subjects().await, ["waiting"], "the rows that were done and parked stay so");
    let parked = server.get("/v1/outboxes/shop1/parked").await["data"][0].clone();
    assert_eq!((&parked["kind"], &parked["code"]), (&"email".into(), &"recipient_suppressed".into()));
    let path = format!("/v1/parked/{}/replay", parked["id"].as_str().unwrap());
    assert_eq!(server.call("POST", &path).await.0, 200);
    rig.wait_for_count("done", 3).await;
    rig.sql.batch_execute("SELECT mailonce_outbox.claim('invoice-1', '{}')").await.unwrap();
    rig.wait_for_count("done", 4).await;
    assert_eq!(rig.outbox(&["upgrade"]).await.expect_exit(0).json()["schema_version"], 5);
    server.terminate().await;
    rig.outbox(&["uninstall"]).await.expect_exit(0);
}

#[tokio::test]
async fn rows_and_the_table_of_version_2_are_read_after_the_upgrade() {
    let rig = Rig::with_router_table().await;
    rig.sql.batch_execute(VERSION_2).await.unwrap();
    let source =
        "INSERT INTO mailonce_outbox.source (table_schema, table_name, types, seen_inserts, seen_deletes, seen_rows)
        VALUES ('public', 'outbox', '{email.requested}', 0, 0, 0)";
    rig.sql.batch_execute(source).await.unwrap();
    rig.write_event("email.requested", "collected").await;
    rig.sql
        .batch_execute("SELECT mailonce_outbox.collect(10), mailonce_outbox.claim('invoice-1', '{}')")
        .await
        .unwrap();
    let upgraded = rig.outbox(&["upgrade"]).await.expect_exit(0).json();
    assert_eq!((&upgraded["schema_version"], &upgraded["pending"]), (&5.into(), &2.into()));
    let server = rig.start_server().await;
    rig.wait_for_count("done", 2).await;
    rig.write_event("email.requested", "later").await;
    rig.wait_for_count("done", 3).await;
    assert_eq!(server.subjects().await, ["collected", "later"]);
    let order_keys = "SELECT string_agg(coalesce(order_key, '-'), ' ' ORDER BY seq) FROM mailonce_outbox.rows";
    let order_keys: String = rig.sql.query_one(order_keys, &[]).await.unwrap().get(0);
    assert_eq!(order_keys, "- - order/4821");
    server.terminate().await;
}

#[tokio::test]
async fn rows_of_version_4_keep_their_order_after_the_upgrade() {
    let rig = Rig::empty().await;
    rig.sql.batch_execute(VERSION_4).await.unwrap();
    for (name, order_key) in
        [("a1", Some("a")), ("free", None), ("a2", Some("a")), ("b1", Some("b")), ("a3", Some("a"))]
    {
        let send = "SELECT mailonce_outbox.send($1::text::jsonb, NULL, $2)";
        rig.sql.execute(send, &[&payload(name).to_string(), &order_key]).await.unwrap();
    }
    // The lease of a drainer of version 4 that does not come back.
    let leased = rig.sql.query("SELECT * FROM mailonce_outbox.lease('old', 1, 1000, 4)", &[]).await.unwrap();
    assert_eq!(leased.len(), 1);
    let upgraded = rig.outbox(&["upgrade"]).await.expect_exit(0).json();
    assert_eq!((&upgraded["schema_version"], &upgraded["pending"]), (&5.into(), &5.into()));
    let refused = rig.sql.query("SELECT * FROM mailonce_outbox.lease('old', 1, 1000, 4)", &[]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "MO002");

    let server = rig.start_server().await;
    rig.wait_for_count("done", 5).await;
    let subjects = server.subjects().await;
    assert_eq!(subjects.len(), 5);
    let of_a: Vec<&String> = subjects.iter().filter(|subject| subject.starts_with('a')).collect();
    assert_eq!(of_a, ["a1", "a2", "a3"]);
    server.terminate().await;
    rig.outbox(&["uninstall"]).await.expect_exit(0);
}

#[tokio::test]
async fn a_drainer_of_the_old_version_leases_nothing_after_the_upgrade() {
    let rig = Rig::version_1().await;
    rig.outbox(&["upgrade"]).await.expect_exit(0);
    let refused = rig.sql.query("SELECT * FROM mailonce_outbox.lease('old', 10, 1000)", &[]).await.unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("start the mailonce that upgraded it"), "{refused:?}");
    let other = rig.sql.query("SELECT * FROM mailonce_outbox.lease('x', 10, 1000, 2)", &[]).await.unwrap_err();
    assert_eq!(other.code().unwrap().code(), "MO002");
    assert_eq!(rig.count("pending").await, 1);
}

#[tokio::test]
async fn roles_keep_their_rights_and_get_those_of_the_new_functions() {
    let rig = Rig::version_1().await;
    let name = rig.database.url.rsplit_once('/').unwrap().1.to_owned();
    let (app, drain) = (format!("app_{name}"), format!("drain_{name}"));
    rig.sql
        .batch_execute(&format!(
            "CREATE ROLE {app} LOGIN; CREATE ROLE {drain} LOGIN; GRANT USAGE ON SCHEMA mailonce_outbox TO {app}, {drain};
             GRANT EXECUTE ON FUNCTION mailonce_outbox.send TO {app};
             GRANT EXECUTE ON FUNCTION mailonce_outbox.version, mailonce_outbox.lease, mailonce_outbox.mark_done TO {drain}"
        ))
        .await
        .unwrap();
    rig.outbox(&["upgrade"]).await.expect_exit(0);

    let as_app = connect_client(&url_of_role(&rig, &app)).await;
    let body = payload("by the application").to_string();
    as_app.execute("SELECT mailonce_outbox.send($1::text::jsonb)", &[&body]).await.unwrap();
    as_app.execute("SELECT mailonce_outbox.claim('invoice-1', '{}')", &[]).await.unwrap();
    as_app.query("SELECT * FROM mailonce_outbox.lease('x', 1, 1000, 5)", &[]).await.expect_err("it may not drain");
    let url = url_of_role(&rig, &drain);
    let server = rig.start(&ServerOptions { drain_url: Some(&url), ..ServerOptions::default() }).await;
    rig.wait_for_count("done", 4).await;
    let mut subjects = server.subjects().await;
    subjects.sort();
    assert_eq!((json!(subjects), rig.count("pending").await), (json!(["by the application", "waiting"]), 0));
    server.terminate().await;
    drop(as_app);
    rig.sql.batch_execute(&format!("DROP OWNED BY {app}, {drain}; DROP ROLE {app}, {drain}")).await.unwrap();
}
