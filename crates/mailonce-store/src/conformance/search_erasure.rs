//! Deleted text leaves the file of SQLite: search keeps no copy of it in unused space.

use mailonce_core::{id::IdGenerator, limits};
use rusqlite::Connection;
use std::{cell::RefCell, path::Path, sync::Arc};

use super::{
    DAY, IDS, T0, TEAM, TestStore, accept_first, cancel_email, create_teams,
    fixtures::search::{document_of, email_ref, found},
    keyless_email,
};
use crate::sqlite::Sqlite;

fn count_in_file(folder: &Path, word: &str) -> usize {
    let path = folder.join("ledger.db");
    let conn = Connection::open(&path).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let bytes = std::fs::read(path).unwrap();
    bytes.windows(word.len()).filter(|window| *window == word.as_bytes()).count()
}

/// Accepts emails and indexes them with a text of which every second one has the word. The word is not in the emails
/// themselves. Many commits make FTS5 merge its index.
async fn fill(store: &TestStore, word: &str) {
    for number in 0..40_u64 {
        let email = accept_first(store, &keyless_email().ttl(DAY), T0.plus(number as i64)).await;
        let source = store.search_sources(TEAM, vec![email_ref(&email)]).await.unwrap().remove(0);
        let mut document = document_of(&source);
        document.text = "other".into();
        if number % 2 == 0 {
            cancel_email(store, email.id, T0).await;
            document.text = format!("{word} {}", "and more ".repeat(number as usize));
        }
        assert!(store.index_documents(TEAM, (number, number + 1), vec![document]).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_text_leaves_the_file() {
    let (folder, word) = (tempfile::tempdir().unwrap(), "jqzvxkw");
    let store: TestStore = Arc::new(Sqlite::open(folder.path(), [7; 32]).unwrap());
    create_teams(&store).await;
    IDS.scope(RefCell::new(IdGenerator::default()), fill(&store, word)).await;
    assert_eq!(found(&store, word).await.len(), 20);
    assert!(count_in_file(folder.path(), word) >= 20);

    store.sweep(100, T0.plus(limits::BODY_RETENTION_MS)).await.unwrap();
    assert_eq!((found(&store, word).await.len(), found(&store, "other").await.len()), (0, 20));
    store.close().await;
    assert_eq!(count_in_file(folder.path(), word), 0);
    assert_eq!(Sqlite::check_integrity(folder.path()).unwrap(), [""; 0]);
}
