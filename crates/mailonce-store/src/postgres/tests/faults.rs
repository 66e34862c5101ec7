//! Lost connections, warnings at commit, emails that the database rejects, and other schema versions.

use mailonce_core::ports::store::{Store, StoreError};
use std::sync::Arc;

use super::{NOW, TEAM, TestDatabase, email_of, new_email, rows, wait_until_blocked};
use crate::postgres::{Postgres, schema};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_a_newer_version_are_refused() {
    let fresh = TestDatabase::create().await;
    assert_eq!(Postgres::schema_version(&fresh.url).await.unwrap(), None);
    fresh.node().await.close().await;
    assert_eq!(Postgres::schema_version(&fresh.url).await.unwrap(), Some(Postgres::current_schema_version()));
    fresh.session().await.batch_execute("INSERT INTO schema (version) VALUES (99)").await.unwrap();

    match Postgres::open(&fresh.url, [7; 32]).await.map(drop) {
        Err(StoreError::Corrupt(why)) => {
            assert!(why.contains("99") && why.contains(&schema::SCHEMA_VERSION.to_string()), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_is_killed_leaves_nothing() {
    let fresh = TestDatabase::create().await;
    let dying = fresh.session().await;
    dying.batch_execute("BEGIN; CREATE SCHEMA mailonce; CREATE TABLE mailonce.install (one boolean)").await.unwrap();
    let pid: i32 = dying.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    fresh.session().await.query("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();

    let node = fresh.node().await;
    assert_eq!(node.installation().await.unwrap().secret.0, [7; 32]);
    assert_eq!(Postgres::schema_version(&fresh.url).await.unwrap(), Some(schema::SCHEMA_VERSION));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_of_the_first_node_stays() {
    let fresh = TestDatabase::create().await;
    let opened = tokio::join!(Postgres::open(&fresh.url, [1; 32]), Postgres::open(&fresh.url, [2; 32]));
    let (one, two) = (opened.0.unwrap(), opened.1.unwrap());
    let third = Postgres::open(&fresh.url, [3; 32]).await.unwrap();
    let secret = one.installation().await.unwrap().secret.0;
    assert!(secret == [1; 32] || secret == [2; 32]);
    assert_eq!(two.installation().await.unwrap().secret.0, secret);
    assert_eq!(third.installation().await.unwrap().secret.0, secret);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lost_during_an_accept_is_no_answer_and_the_retry_makes_one_email() {
    let fresh = TestDatabase::create().await;
    let node = Arc::new(fresh.node().await);
    let (first, again) = (new_email(Some("k")), new_email(Some("k")));
    // Another transaction holds the same key, so that the accept blocks in the middle of its statement.
    let other = fresh.session().await;
    other.batch_execute("BEGIN").await.unwrap();
    let lock = "INSERT INTO keys (team, hash) VALUES ($1, $2)";
    other.execute(lock, &[&TEAM.0, &uuid::Uuid::from_bytes(first.key.unwrap().0)]).await.unwrap();
    let waiting = tokio::spawn({
        let node = node.clone();
        async move { node.accept(first, NOW).await }
    });
    let session = fresh.session().await;
    wait_until_blocked(&session, 1).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = 'mailonce' AND wait_event_type = 'Lock'";
    session.query(kill, &[]).await.unwrap();

    let lost = waiting.await.unwrap();
    assert!(matches!(lost, Err(StoreError::CommitUnknown(_))), "{lost:?}");
    other.batch_execute("ROLLBACK").await.unwrap();
    let (email, first) = email_of(node.accept(again, NOW).await.unwrap());
    assert!(first);
    assert_eq!(
        node.key_binding(TEAM, email.head.key.as_ref().unwrap().hash(TEAM), NOW).await.unwrap().is_some(),
        first
    );
    assert_eq!(rows(&session, "emails").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_session_may_be_lost_and_the_node_goes_on() {
    let fresh = TestDatabase::create().await;
    let node = fresh.node().await;
    let session = fresh.session().await;
    for i in 0..10 {
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE datname = current_database() AND application_name = 'mailonce'";
        session.query(kill, &[]).await.unwrap();
        let key = format!("k{i}");
        // The caller retries until it gets an answer; the idempotency key prevents duplicates.
        let mut tries = 0;
        while let Err(error) = node.accept(new_email(Some(&key)), NOW).await {
            assert!(!matches!(error, StoreError::Corrupt(_)), "{error}");
            tries += 1;
            assert!(tries < 20, "{error}");
        }
    }
    assert_eq!(rows(&session, "emails").await, 10);
    assert_eq!(node.events(TEAM, 0, 100).await.unwrap().len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_is_reported_as_unreachable() {
    let nowhere = Postgres::open("postgres://mailonce@127.0.0.1:1/none", [7; 32]).await.map(drop);
    assert!(matches!(nowhere, Err(StoreError::Unreachable(_))), "{nowhere:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_with_a_warning_is_not_promised() {
    let fresh = TestDatabase::create().await;
    let node = fresh.node().await;
    let session = fresh.session().await;
    // Simulates the warning that the server raises when the wait for synchronous replication is cancelled.
    let warn = "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN RAISE WARNING 'not replicated'; RETURN NEW; END $$;
                CREATE TRIGGER warn BEFORE INSERT ON emails FOR EACH ROW EXECUTE FUNCTION warn()";
    session.batch_execute(warn).await.unwrap();
    let unsure = node.accept(new_email(Some("k")), NOW).await;
    assert!(matches!(unsure, Err(StoreError::CommitUnknown(_))), "{unsure:?}");
    session.batch_execute("DROP TRIGGER warn ON emails").await.unwrap();
    assert!(!email_of(node.accept(new_email(Some("k")), NOW).await.unwrap()).1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_email_that_the_database_rejects_does_not_fail_its_batch() {
    let fresh = TestDatabase::create().await;
    let node = Arc::new(fresh.node().await);
    let mut tasks = Vec::new();
    for i in 0..60 {
        let mut email = new_email(Some(&format!("k{i}")));
        if i % 20 == 7 {
            // PostgreSQL text cannot contain NUL.
            email.envelopes[0].transport = "no\0transport".into();
        }
        let node = node.clone();
        tasks.push((i, tokio::spawn(async move { node.accept(email, NOW).await })));
    }
    for (i, task) in tasks {
        let answer = task.await.unwrap();
        assert_eq!(answer.is_ok(), i % 20 != 7, "{i}: {answer:?}");
    }
    assert_eq!(rows(&fresh.session().await, "keys").await, 57);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_store_answers_what_waits_and_nothing_more() {
    let fresh = TestDatabase::create().await;
    let node = Arc::new(fresh.node().await);
    let waiting: Vec<_> = (0..50)
        .map(|i| {
            let node = node.clone();
            tokio::spawn(async move { node.accept(new_email(Some(&format!("k{i}"))), NOW).await })
        })
        .collect();
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    node.close().await;
    let mut firsts = 0;
    for task in waiting {
        match task.await.unwrap() {
            Ok(answer) => firsts += i64::from(email_of(answer).1),
            Err(error) => assert!(matches!(error, StoreError::Unreachable(_)), "{error}"),
        }
    }
    assert_eq!(rows(&fresh.session().await, "emails").await, firsts);
    assert!(node.accept(new_email(None), NOW).await.is_err());
    assert!(node.email(TEAM, mailonce_core::id::EmailId(TEAM.0)).await.is_err());
}
