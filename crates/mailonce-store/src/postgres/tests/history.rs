//! The epoch follows the history of the database: a restore or failover renews it, once for all nodes. A restore, and no
//! failover, is marked until a start has dealt with it.

use mailonce_core::ports::store::Store;

use super::TestDatabase;

const KILL: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE datname = current_database() AND application_name = 'mailonce'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_that_the_ledger_does_not_know_renews_the_epoch_for_all_nodes() {
    let fresh = TestDatabase::create().await;
    let (running, session) = (fresh.node().await, fresh.session().await);
    let epoch = running.installation().await.unwrap().epoch;
    assert_eq!((epoch, running.epoch()), (1, Some(1)));
    assert_eq!(fresh.node().await.epoch(), Some(1), "a restart is no other history");

    // A database that was moved here from another cluster still has that cluster's identity recorded.
    session.batch_execute("UPDATE install SET history = '7/1/1'").await.unwrap();
    let opened = fresh.node().await;
    let renewed = opened.epoch().unwrap();
    assert!(renewed > 1_700_000_000, "{renewed}: two restores of one backup must differ");
    assert_eq!(opened.installation().await.unwrap().epoch, renewed);
    // A running node detects the change with its next session, before it reads anything there.
    session.query(KILL, &[]).await.unwrap();
    while running.installation().await.is_err() {}
    assert_eq!(running.epoch(), Some(renewed));
    assert_eq!(fresh.node().await.epoch(), Some(renewed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_nodes_that_find_another_history_one_renews() {
    let fresh = TestDatabase::create().await;
    drop(fresh.node().await);
    fresh.session().await.batch_execute("UPDATE install SET history = '7/1/1', epoch = 2000000000").await.unwrap();
    let (one, two, three) = tokio::join!(fresh.node(), fresh.node(), fresh.node());
    assert_eq!([one.epoch(), two.epoch(), three.epoch()], [Some(2_000_000_001); 3]);
}

/// Creates the table anew with the same row, as `pg_restore` does.
const RESTORE: &str = "
    ALTER TABLE install RENAME TO dumped;
    CREATE TABLE install (LIKE dumped INCLUDING ALL);
    INSERT INTO install SELECT * FROM dumped;
    DROP TABLE dumped";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_tables_are_marked_until_a_start_has_dealt_with_them() {
    let fresh = TestDatabase::create().await;
    let session = fresh.session().await;
    assert!(!fresh.node().await.has_restore_mark().await.unwrap(), "the first start");

    session.batch_execute(RESTORE).await.unwrap();
    let opened = fresh.node().await;
    assert!(opened.has_restore_mark().await.unwrap());
    drop(opened);
    // A start that was killed before it dealt with the restore leaves the mark to the next one.
    let next = fresh.node().await;
    assert!(next.has_restore_mark().await.unwrap());
    next.clear_restore_mark().await.unwrap();
    assert!(!next.has_restore_mark().await.unwrap());
    assert!(!fresh.node().await.has_restore_mark().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_no_restore() {
    let fresh = TestDatabase::create().await;
    drop(fresh.node().await);
    let promoted = "UPDATE install SET history = regexp_replace(history, '/[0-9]+/', '/0/')";
    fresh.session().await.batch_execute(promoted).await.unwrap();
    let opened = fresh.node().await;
    assert!(opened.epoch().unwrap() > 1, "another timeline renews the epoch");
    assert!(!opened.has_restore_mark().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_runs_during_a_restore_has_to_be_restarted() {
    let fresh = TestDatabase::create().await;
    let (running, session) = (fresh.node().await, fresh.session().await);
    // Its open sessions go on until it compares the tables, a second later.
    session.batch_execute(RESTORE).await.unwrap();
    let refusal = async || running.installation().await.err().map(|why| why.to_string()).unwrap_or_default();
    while !refusal().await.contains("restart this node") {}
    let started = fresh.node().await;
    assert!(started.has_restore_mark().await.unwrap());
    started.clear_restore_mark().await.unwrap();
    assert!(refusal().await.contains("restart this node"), "somebody else's start is not its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_keeps_the_epoch() {
    let fresh = TestDatabase::create().await;
    drop(fresh.node().await);
    fresh.session().await.batch_execute("UPDATE install SET history = NULL, epoch = 5").await.unwrap();
    assert_eq!(fresh.node().await.epoch(), Some(5));
    assert_eq!(fresh.node().await.epoch(), Some(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_may_not_read_the_control_file_has_an_epoch_too() {
    let fresh = TestDatabase::create().await;
    drop(fresh.node().await);
    let session = fresh.session().await;
    let role = format!("plain_{}", std::process::id());
    session
        .batch_execute(&format!(
            "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA mailonce TO {role};
             GRANT ALL ON ALL TABLES IN SCHEMA mailonce TO {role};
             REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"
        ))
        .await
        .unwrap();
    let url = fresh.url.replace("mailonce@", &format!("{role}@"));
    let opened = super::Postgres::open(&url, [7; 32]).await.map(|node| node.epoch());
    session
        .batch_execute(&format!(
            "GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC;
             DROP OWNED BY {role}; DROP ROLE {role}"
        ))
        .await
        .unwrap();
    assert!(opened.unwrap().is_some());
}
