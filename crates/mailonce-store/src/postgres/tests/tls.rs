//! TLS connections to the server.

use mailonce_core::ports::store::{Store as _, StoreError};

use super::{NOW, TEAM, TestDatabase, new_email};
use crate::postgres::{Options, Postgres};

/// Opens a node with these query parameters in the URL.
async fn open(fresh: &TestDatabase, query: &str) -> Result<Postgres, StoreError> {
    let url = format!("{}?{query}", fresh.url);
    Postgres::open_with(&url, [7; 32], Options { accept_workers: 1, sessions: 2 }).await
}

fn authority() -> String {
    std::env::var("MAILONCE_TEST_POSTGRES_CA").expect("MAILONCE_TEST_POSTGRES_CA names the server's authority")
}

/// How many of mailonce's sessions on this database are encrypted, and how many there are.
async fn sessions(fresh: &TestDatabase) -> (i64, i64) {
    let asked = "SELECT count(*) FILTER (WHERE s.ssl), count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
        WHERE a.datname = current_database() AND a.application_name = 'mailonce'";
    let row = fresh.session().await.query_one(asked, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn every_session_is_encrypted_when_the_url_says_so() {
    let fresh = TestDatabase::create().await;
    for mode in ["require", "verify-ca", "verify-full", "prefer"] {
        let node = open(&fresh, &format!("sslmode={mode}&sslrootcert={}", authority())).await.unwrap();
        let _accepted = node.accept(new_email(Some(mode)), NOW).await.unwrap();
        assert!(node.key_binding(TEAM, new_email(Some(mode)).key.unwrap(), NOW).await.unwrap().is_some());
        let (encrypted, all) = sessions(&fresh).await;
        assert!(encrypted > 0 && encrypted == all, "{mode}: {encrypted} of {all}");
        node.close().await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_prove_its_name_is_not_spoken_to() {
    let fresh = TestDatabase::create().await;
    let node = open(&fresh, "sslmode=disable").await.unwrap();
    assert_eq!(sessions(&fresh).await.0, 0);
    node.close().await;
    // The public root certificates do not include this server's authority.
    let error = open(&fresh, "sslmode=require").await.err().expect("it was believed");
    assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
}
