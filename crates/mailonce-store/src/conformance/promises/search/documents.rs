//! Promises about documents: how they are added, and that they are erased with their mail.

use mailonce_core::{
    limits,
    search::{SOURCE_BYTES, SearchBacklog, SearchRef, SearchSource},
    time::Time,
};

use crate::conformance::{
    DAY, OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_first, all_at_once, cancel_email,
    fixtures::{
        inbound::{file_new, new_message, open_inbox},
        search::{document_of, email_ref, found, index_all, message_ref, new_mails},
    },
    keyless_email,
};

/// When a body that settled at [`T0`] is deleted, and when its email is.
const BODY_END: Time = Time(T0.0 + limits::BODY_RETENTION_MS);
const EMAIL_END: Time = Time(BODY_END.0 + limits::TOMBSTONE_MS);

pub(super) async fn a_team_is_behind_until_its_latest_event_is_indexed(store: TestStore) {
    accept_first(&store, &keyless_email(), T0).await;
    index_all(&store).await;
    assert_eq!(store.search_backlog(10).await.unwrap(), []);

    accept_first(&store, &keyless_email().team(OTHER_TEAM), T0).await;
    store.events(OTHER_TEAM, 0, 1).await.unwrap();
    let behind = SearchBacklog { team: OTHER_TEAM, indexed_until: 0 };
    assert_eq!(store.search_backlog(10).await.unwrap(), [behind]);
    assert!(!store.index_documents(OTHER_TEAM, (1, 2), Vec::new()).await.unwrap());
    assert!(store.index_documents(OTHER_TEAM, (0, 1), Vec::new()).await.unwrap());
    assert_eq!(store.search_backlog(10).await.unwrap(), []);
    assert!(!store.index_documents(OTHER_TEAM, (0, 1), Vec::new()).await.unwrap());
}

pub(super) async fn of_16_concurrent_workers_one_indexes_an_event(store: TestStore) {
    let email = accept_first(&store, &keyless_email(), T0).await;
    let source = store.search_sources(TEAM, vec![email_ref(&email)]).await.unwrap().remove(0);

    let documents = vec![document_of(&source)];
    let indexed = all_at_once((0..16).map(|_| {
        let (store, documents) = (store.clone(), documents.clone());
        async move { store.index_documents(TEAM, (0, 1), documents).await.unwrap() }
    }))
    .await;
    assert_eq!(indexed.iter().filter(|indexed| **indexed).count(), 1);
    assert_eq!(found(&store, "hello").await, [email_ref(&email)]);
}

pub(super) async fn indexing_a_mail_again_changes_nothing(store: TestStore) {
    let email = accept_first(&store, &keyless_email(), T0).await;
    let source = store.search_sources(TEAM, vec![email_ref(&email)]).await.unwrap().remove(0);

    let document = document_of(&source);
    let mut other = document.clone();
    other.text = "something else".into();
    assert!(store.index_documents(TEAM, (0, 1), vec![document.clone(), document]).await.unwrap());
    assert!(store.index_documents(TEAM, (1, 2), vec![other]).await.unwrap());
    assert_eq!(found(&store, "hello").await, [email_ref(&email)]);
    assert_eq!(found(&store, "else").await, []);
}

pub(super) async fn the_bodies_read_at_once_are_bounded(store: TestStore) {
    let large = "x ".repeat(SOURCE_BYTES / 4);
    let mut mails: Vec<SearchRef> = Vec::new();
    for text in ["small", &large, &large, "small"] {
        mails.push(email_ref(&accept_first(&store, &keyless_email().text(text), T0).await));
    }
    let huge = accept_first(&store, &keyless_email().text(&"y ".repeat(SOURCE_BYTES)), T0).await;

    let read = |wanted: Vec<SearchRef>| {
        let store = store.clone();
        async move {
            let sources = store.search_sources(TEAM, wanted).await.unwrap();
            sources.iter().map(SearchSource::reference).collect::<Vec<_>>()
        }
    };
    assert_eq!(read(mails.clone()).await, mails[..2]);
    assert_eq!(read(mails[2..].to_vec()).await, mails[2..]);
    assert_eq!(read(vec![email_ref(&huge), mails[0]]).await, [email_ref(&huge)]);
    assert_eq!(read(vec![SearchRef { id: uuid::Uuid::nil(), ..mails[0] }]).await, []);
}

pub(super) async fn a_deleted_body_is_erased_from_search(store: TestStore) {
    // Large bodies are stored apart from small ones.
    for (text, word) in [("a secret word".to_owned(), "secret"), ("large word ".repeat(20_000), "large")] {
        let email = accept_first(&store, &keyless_email().text(&text), T0).await;
        cancel_email(&store, email.id, T0).await;
        index_all(&store).await;
        assert_eq!(found(&store, word).await, [email_ref(&email)]);

        store.sweep(10, BODY_END).await.unwrap();
        assert_eq!(found(&store, word).await, []);
        assert_eq!(
            found(&store, &format!("hello from:agent {}", format_id(email_ref(&email)))).await,
            [email_ref(&email)]
        );
    }
}

/// A term that finds the email by its Message-ID.
fn format_id(mail: SearchRef) -> String {
    format!("message_id:{}@example.com", mail.id)
}

pub(super) async fn a_deleted_email_is_erased_from_search(store: TestStore) {
    let email = accept_first(&store, &keyless_email().ttl(DAY).text("a secret word"), T0).await;
    let other = accept_first(&store, &keyless_email().text("a secret word"), T0.plus(1)).await;
    cancel_email(&store, email.id, T0).await;
    index_all(&store).await;

    store.sweep(10, EMAIL_END).await.unwrap();
    assert!(store.email(TEAM, email.id).await.unwrap().is_none());
    for text in ["secret", "hello", "from:agent", "-nothing"] {
        assert_eq!(found(&store, text).await, [email_ref(&other)], "{text}");
    }
}

pub(super) async fn messages_of_a_removed_inbox_are_not_found(store: TestStore) {
    let (gone, kept) = (open_inbox(&store, "gone@d.test").await, open_inbox(&store, "kept@d.test").await);
    file_new(&store, &gone, new_message(Some(1), 1), T0).await;
    let (message, _) = file_new(&store, &kept, new_message(Some(2), 2), T0.plus(1)).await;
    index_all(&store).await;
    assert_eq!(found(&store, "täg").await.len(), 2);

    store.remove_inbox(TEAM, gone.id, T0.plus(SECOND)).await.unwrap().unwrap();
    assert_eq!(found(&store, "täg").await, [message_ref(&message)]);
    for _ in 0..3 {
        store.sweep(10, T0.plus(SECOND)).await.unwrap();
    }
    assert_eq!(found(&store, "täg").await, [message_ref(&message)]);
}

pub(super) async fn a_document_of_a_deleted_mail_is_not_added(store: TestStore) {
    let email = accept_first(&store, &keyless_email().ttl(DAY).text("a secret word"), T0).await;
    cancel_email(&store, email.id, T0).await;
    let source = store.search_sources(TEAM, vec![email_ref(&email)]).await.unwrap().remove(0);

    store.sweep(10, BODY_END).await.unwrap();
    assert!(store.index_documents(TEAM, (0, 1), vec![document_of(&source)]).await.unwrap());
    assert_eq!((found(&store, "secret").await, found(&store, "hello").await), (vec![], vec![email_ref(&email)]));

    store.sweep(10, EMAIL_END).await.unwrap();
    assert!(store.index_documents(TEAM, (1, 2), vec![document_of(&source)]).await.unwrap());
    assert_eq!(found(&store, "hello").await, []);
}

pub(super) async fn mail_deleted_while_it_is_indexed_leaves_no_document(store: TestStore) {
    let mut sources = Vec::new();
    for _ in 0..20 {
        let email = accept_first(&store, &keyless_email().ttl(DAY), T0).await;
        cancel_email(&store, email.id, T0).await;
        sources.extend(store.search_sources(TEAM, vec![email_ref(&email)]).await.unwrap());
    }
    let indexer = store.clone();
    let index = async move {
        for (seq, source) in (0..).zip(&sources) {
            assert!(indexer.index_documents(TEAM, (seq, seq + 1), vec![document_of(source)]).await.unwrap());
        }
    };
    let sweeper = store.clone();
    let sweep = async move {
        for _ in 0..20 {
            sweeper.sweep(3, EMAIL_END).await.unwrap();
        }
    };
    tokio::join!(index, sweep);

    assert!(new_mails(&store, TEAM, 0).await.0.len() <= 20);
    for _ in 0..20 {
        store.sweep(3, EMAIL_END).await.unwrap();
    }
    assert_eq!(found(&store, "hello").await, []);
}
