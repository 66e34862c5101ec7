//! `mailonce outbox`: install, upgrade, status, uninstall and rights; and what `send` refuses.

use crate::{
    database::connect_client,
    rig::{Rig, ServerOptions, payload},
};

#[tokio::test]
async fn an_outbox_is_installed_once_and_uninstalled_without_a_trace() {
    let rig = Rig::empty().await;
    rig.outbox(&["status"]).await.expect_exit(5);
    rig.outbox(&["upgrade"]).await.expect_exit(5);
    let first = rig.outbox(&["install"]).await.expect_exit(0).json();
    let again = rig.outbox(&["install"]).await.expect_exit(0).json();
    assert_eq!((&first["outbox_id"], &first["state"]), (&again["outbox_id"], &"confirmed".into()));
    assert_eq!(rig.outbox(&["upgrade"]).await.expect_exit(0).json(), again);

    rig.order("one", None).await;
    assert_eq!(rig.outbox(&["status"]).await.expect_exit(0).json()["pending"], 1);
    assert!(rig.outbox(&["uninstall"]).await.expect_exit(5).stderr.contains("outbox_not_empty"));
    rig.sql.batch_execute("CREATE VIEW report AS SELECT * FROM mailonce_outbox.rows").await.unwrap();
    rig.outbox(&["uninstall", "--force"]).await.expect_exit(5);
    assert_eq!(rig.count("pending").await, 1, "a failed uninstall changes nothing");
    rig.sql.batch_execute("DROP VIEW report").await.unwrap();
    rig.outbox(&["uninstall", "--force"]).await.expect_exit(0);

    let left = rig.sql.query_one("SELECT count(*) FROM pg_namespace WHERE nspname = 'mailonce_outbox'", &[]).await;
    assert_eq!(left.unwrap().get::<_, i64>(0), 0);
    rig.outbox(&["status"]).await.expect_exit(5);
}

#[tokio::test]
async fn a_schema_of_another_version_is_neither_changed_nor_drained() {
    let rig = Rig::installed().await;
    rig.sql.batch_execute("UPDATE mailonce_outbox.install SET schema_version = 99").await.unwrap();
    assert!(rig.outbox(&["install"]).await.expect_exit(5).stderr.contains("newer_outbox"));
    rig.outbox(&["upgrade"]).await.expect_exit(5);
    let server = rig.start_server().await;
    let listed = server.get("/v1/outboxes").await;
    assert_eq!(listed["data"][0]["state"], "failing");
    assert!(listed["data"][0]["error"].as_str().unwrap().contains("schema version 99"), "{listed}");
    server.terminate().await;
}

#[tokio::test]
async fn send_refuses_what_can_never_be_accepted_and_the_transaction_fails() {
    let rig = Rig::installed().await;
    let long = "k".repeat(257);
    let good = payload("x").to_string();
    for (payload, key, order_key) in [
        ("[]", None, None),
        ("{}", None, None),
        ("{\"from\": \"a@b.test\"}", None, None),
        (good.as_str(), Some(long.as_str()), None),
        (good.as_str(), Some("é"), None),
        (good.as_str(), Some(" "), None),
        (good.as_str(), Some("line\nbreak"), None),
        (good.as_str(), None, Some("")),
        (good.as_str(), None, Some(long.as_str())),
    ] {
        let sql = "SELECT mailonce_outbox.send($1::text::jsonb, $2, $3)";
        let refused = rig.sql.execute(sql, &[&payload, &key, &order_key]).await;
        assert!(refused.is_err(), "{payload} {key:?} {order_key:?}");
    }
    let large =
        "SELECT mailonce_outbox.send(jsonb_build_object('from', 'a', 'to', 'b', 'text', repeat('x', 41943040)))";
    let refused = rig.sql.execute(large, &[]).await.unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("at most 41943040"), "{refused}");
    assert_eq!(rig.count("pending").await, 0);
}

/// The URL of the same database for another role.
pub(crate) fn url_of_role(rig: &Rig, role: &str) -> String {
    let (scheme, rest) = rig.database.url.split_once("://").unwrap();
    format!("{scheme}://{role}@{}", rest.split_once('@').unwrap().1)
}

#[tokio::test]
async fn the_application_and_the_drainer_have_only_the_rights_they_need() {
    let rig = Rig::empty().await;
    let suffix = rig.database.url.rsplit_once('/').unwrap().1.to_owned();
    let (app, drain) = (format!("app_{suffix}"), format!("drain_{suffix}"));
    rig.sql.batch_execute(&format!("CREATE ROLE {app} LOGIN; CREATE ROLE {drain} LOGIN")).await.unwrap();
    rig.outbox(&["install", "--grant-send", &app, "--grant-drain", &drain]).await.expect_exit(0);

    let as_app = connect_client(&url_of_role(&rig, &app)).await;
    let body = payload("by the application").to_string();
    as_app.execute("SELECT mailonce_outbox.send($1::text::jsonb)", &[&body]).await.unwrap();
    let as_drain = connect_client(&url_of_role(&rig, &drain)).await;
    for (client, sql) in [
        (&as_app, "SELECT * FROM mailonce_outbox.rows"),
        (&as_app, "SELECT * FROM mailonce_outbox.lease('x', 1, 1000, 5)"),
        (&as_app, "SELECT mailonce_outbox.confirm()"),
        (&as_drain, "SELECT * FROM mailonce_outbox.rows"),
        (&as_drain, "SELECT mailonce_outbox.send('{\"from\": 1, \"to\": 2}')"),
        (&as_drain, "SELECT mailonce_outbox.claim('key', '{}')"),
        (&as_drain, "SELECT mailonce_outbox.confirm()"),
        (&as_drain, "SELECT mailonce_outbox.lock_order_heads(1)"),
        (&as_drain, "SELECT * FROM orders"),
    ] {
        let refused = client.query(sql, &[]).await.expect_err(sql);
        assert_eq!(refused.code(), Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE), "{sql}");
    }
    let url = url_of_role(&rig, &drain);
    let server = rig.start(&ServerOptions { drain_url: Some(&url), ..ServerOptions::default() }).await;
    rig.wait_for_count("done", 1).await;
    assert_eq!(server.subjects().await, ["by the application"]);
    server.terminate().await;
    drop((as_app, as_drain));
    let drop_roles = format!("DROP OWNED BY {app}, {drain}; DROP ROLE {app}, {drain}");
    rig.sql.batch_execute(&drop_roles).await.unwrap();
}

#[tokio::test]
async fn an_ordinary_role_installs_an_outbox_even_where_the_server_hides_its_identity() {
    let rig = Rig::empty().await;
    let name = rig.database.url.rsplit_once('/').unwrap().1.to_owned();
    let owner = format!("owner_{name}");
    rig.sql
        .batch_execute(&format!(
            "CREATE ROLE {owner} LOGIN NOSUPERUSER; GRANT CREATE ON DATABASE {name} TO {owner};
             REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC;
             REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC"
        ))
        .await
        .unwrap();
    let url = url_of_role(&rig, &owner);
    let installed = rig.run(&["outbox", "install", "--database", &url]).await.expect_exit(0).json();
    let identity = installed["current_identity"].as_str().unwrap();
    assert!(identity.starts_with("system=unknown timeline=unknown database="), "{identity}");

    let as_owner = connect_client(&url).await;
    let body = payload("ordinary").to_string();
    as_owner.execute("SELECT mailonce_outbox.send($1::text::jsonb)", &[&body]).await.unwrap();
    let server = rig.start(&ServerOptions { drain_url: Some(&url), ..ServerOptions::default() }).await;
    rig.wait_for_count("done", 1).await;
    assert_eq!(server.subjects().await, ["ordinary"]);
    server.terminate().await;
    drop(as_owner);
    rig.run(&["outbox", "uninstall", "--database", &url]).await.expect_exit(0);
    rig.sql.batch_execute(&format!("DROP OWNED BY {owner}; DROP ROLE {owner}")).await.unwrap();
}
