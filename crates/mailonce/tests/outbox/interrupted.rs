//! Drainers that are killed or suspended at each step: the email exists once, and no transaction stays open.

use rustix::process::Signal;

use crate::rig::{Rig, ServerOptions, wait_until};

/// Kills the server at a failpoint, starts it again, and expects one email.
async fn kill_at(failpoint: &str) {
    let rig = Rig::installed().await;
    rig.order("once", None).await;
    let mut server = rig.start(&ServerOptions { failpoint: Some(failpoint), ..ServerOptions::default() }).await;
    server.wait_for_exit().await;
    assert!(server.log().contains("failpoint"), "{}", server.log());
    let expected = i64::from(failpoint.starts_with("outbox-marked"));
    assert_eq!(rig.count("done").await, expected, "{failpoint}");

    let server = rig.start_server().await;
    rig.wait_for_count("done", 1).await;
    assert_eq!(server.subjects().await, ["once"], "{failpoint}");
    server.terminate().await;
}

#[tokio::test]
async fn a_drainer_that_is_killed_before_the_accept_loses_nothing() {
    kill_at("outbox-leased:kill:1").await;
}

#[tokio::test]
async fn a_drainer_that_is_killed_between_accept_and_mark_sends_no_second_email() {
    kill_at("outbox-accepted:kill:1").await;
}

#[tokio::test]
async fn a_drainer_that_is_killed_after_the_mark_sends_no_second_email() {
    kill_at("outbox-marked:kill:1").await;
}

#[tokio::test]
async fn a_suspended_drainer_holds_no_transaction_open_and_cannot_mark_a_lost_row() {
    let ledger = crate::database::TempDatabase::create().await;
    let rig = Rig::installed().await;
    let first = ServerOptions { name: "first", store: &ledger.url, ..ServerOptions::default() };
    let suspended = rig.start(&ServerOptions { failpoint: Some("outbox-accepted:stop:1"), ..first }).await;
    rig.order("once", None).await;
    wait_until("the drainer is suspended", async || suspended.is_suspended()).await;

    // Neither a transaction nor a snapshot that would keep vacuum from removing rows.
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)";
    assert_eq!(rig.sql.query_one(open, &[]).await.unwrap().get::<_, i64>(0), 0);
    let sessions =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert!(rig.sql.query_one(sessions, &[]).await.unwrap().get::<_, i64>(0) > 0, "the drainer is connected");

    // Another drainer takes the other rows, however long the lease of the first lasts.
    let lease_ends = async |at: &str| {
        let sql = format!("UPDATE mailonce_outbox.rows SET due_at = {at} WHERE payload->>'subject' = 'once'");
        rig.sql.execute(&sql, &[]).await.unwrap();
    };
    lease_ends("now() + interval '1 hour'").await;
    let second = rig.start(&ServerOptions { name: "second", ..first }).await;
    rig.order("other", None).await;
    rig.wait_for_count("done", 1).await;
    let done = "SELECT payload->>'subject' FROM mailonce_outbox.rows WHERE state = 'done'";
    assert_eq!(rig.sql.query_one(done, &[]).await.unwrap().get::<_, String>(0), "other");

    // Later it takes over. The first one is too late.
    lease_ends("now()").await;
    rig.wait_for_count("done", 2).await;
    let fence = "SELECT fence, xmin::text FROM mailonce_outbox.rows WHERE payload->>'subject' = 'once'";
    let before = rig.sql.query_one(fence, &[]).await.unwrap();
    assert_eq!(before.get::<_, i64>(0), 2);
    suspended.send_signal(Signal::CONT);
    wait_until("it goes on", async || !suspended.is_suspended()).await;
    suspended.terminate().await;
    assert_eq!(rig.sql.query_one(fence, &[]).await.unwrap().get::<_, i64>(0), 2);
    let mut subjects = second.subjects().await;
    subjects.sort();
    assert_eq!(subjects, ["once", "other"]);
    second.terminate().await;
}
