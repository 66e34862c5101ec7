//! Lists and searches: both orders, full pages, every thread, every word, and message ids with special characters.

use serde_json::{Value, json};

use crate::{
    binary::{CliFixture, SpawnedServer},
    wire::{INBOX_PATH, api_call, receive_mail},
};

const API_ROOT: &str = "/compat/agentmail/v0";

/// The values of one member in every row of a page.
async fn list_column(server: &SpawnedServer, path: &str, rows: &str, member: &str) -> Vec<String> {
    let (status, page) = api_call(server, "GET", path, &[], "").await;
    assert_eq!(status, 200, "{path}: {page}");
    assert_eq!(page["count"].as_u64().unwrap() as usize, page[rows].as_array().unwrap().len(), "{page}");
    page[rows].as_array().unwrap().iter().map(|row| row[member].as_str().unwrap().to_owned()).collect()
}

/// The rows of all pages of `limit` rows. Every page but the last must be full.
async fn list_all_pages(server: &SpawnedServer, path: &str, rows: &str, member: &str, limit: usize) -> Vec<String> {
    let mut all = Vec::new();
    let mut page_query = String::new();
    loop {
        let (status, page) = api_call(server, "GET", &format!("{path}limit={limit}{page_query}"), &[], "").await;
        assert_eq!(status, 200, "{page}");
        let found = page[rows].as_array().unwrap();
        all.extend(found.iter().map(|row| row[member].as_str().unwrap().to_owned()));
        let Some(next) = page["next_page_token"].as_str() else { return all };
        assert_eq!(found.len(), limit, "a page that is not full has a next page: {page}");
        page_query = format!("&page_token={next}");
    }
}

async fn send_email(server: &SpawnedServer, to: &str, subject: &str, text: &str) -> Value {
    let body = json!({ "to": to, "subject": subject, "text": text }).to_string();
    let (status, sent) = api_call(server, "POST", &format!("{INBOX_PATH}/messages/send"), &[], &body).await;
    assert_eq!(status, 200, "{sent}");
    sent
}

#[tokio::test]
async fn lists_work_in_both_orders_with_full_pages() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    for n in 0..5 {
        receive_mail(&server, &format!("<in-{n}@x.test>"), &format!("In {n}")).await;
        send_email(&server, "ann@example.com", &format!("Out {n}"), "Hello.").await;
        api_call(&server, "POST", &format!("{INBOX_PATH}/drafts"), &[], r#"{"text":"draft"}"#).await;
        api_call(&server, "POST", &format!("{API_ROOT}/inboxes"), &[], "{}").await;
        let hook = json!({ "url": format!("http://127.0.0.1:9/{n}"), "event_types": ["message.sent"] });
        api_call(&server, "POST", &format!("{API_ROOT}/webhooks"), &[], &hook.to_string()).await;
    }
    for (path, rows, member, count) in [
        (format!("{INBOX_PATH}/messages"), "messages", "message_id", 10),
        (format!("{INBOX_PATH}/threads"), "threads", "thread_id", 10),
        (format!("{API_ROOT}/threads"), "threads", "thread_id", 10),
        (format!("{INBOX_PATH}/drafts"), "drafts", "draft_id", 5),
        (format!("{API_ROOT}/drafts"), "drafts", "draft_id", 5),
        (format!("{API_ROOT}/inboxes"), "inboxes", "inbox_id", 6),
        (format!("{API_ROOT}/webhooks"), "webhooks", "webhook_id", 5),
    ] {
        let mut all = list_column(&server, &format!("{path}?limit=100"), rows, member).await;
        assert_eq!(all.len(), count, "{path}");
        assert_eq!(list_all_pages(&server, &format!("{path}?"), rows, member, 2).await, all, "{path}");
        all.reverse();
        assert_eq!(
            list_column(&server, &format!("{path}?limit=100&ascending=true"), rows, member).await,
            all,
            "{path}"
        );
        assert_eq!(list_all_pages(&server, &format!("{path}?ascending=true&"), rows, member, 3).await, all, "{path}");
    }
    // Pages are full even with a filter.
    let path = format!("{API_ROOT}/threads?subject=Out&");
    assert_eq!(list_all_pages(&server, &path, "threads", "thread_id", 2).await.len(), 5);
    let path = format!("{INBOX_PATH}/threads?subject=In&");
    assert_eq!(list_all_pages(&server, &path, "threads", "thread_id", 2).await.len(), 5);
}

#[tokio::test]
async fn a_search_matches_mails_that_contain_every_word() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    receive_mail(&server, "<one@x.test>", "Invoice 42 for October").await;
    send_email(&server, "bob@shop.example", "October news", "The invoice was paid yesterday.").await;
    send_email(&server, "bob@shop.example", "Nothing", "A prepaid card.").await;
    for (query, subjects) in [
        ("invoice october", &["Invoice 42 for October", "October news"][..]),
        ("OCTOBER 42", &["Invoice 42 for October"]),
        ("ann@ invoice", &["Invoice 42 for October"]),
        ("voice", &["Invoice 42 for October"]),
        ("paid shop", &["October news"]),
        ("hello", &["Invoice 42 for October"]),
        ("invoice november", &[]),
    ] {
        let q = query.replace(' ', "%20");
        for (path, rows) in [
            (format!("{INBOX_PATH}/messages/search?q={q}"), "messages"),
            (format!("{INBOX_PATH}/threads/search?q={q}"), "threads"),
            (format!("{API_ROOT}/threads/search?q={q}"), "threads"),
        ] {
            assert_eq!(list_column(&server, &path, rows, "subject").await, subjects, "{path}");
        }
    }
    let (_, page) = api_call(&server, "GET", &format!("{INBOX_PATH}/messages/search?q=paid%20bob"), &[], "").await;
    let highlights = &page["messages"][0]["highlights"];
    assert_eq!(highlights["recipients"], json!(["**bob**@shop.example"]));
    assert_eq!(highlights["text"], json!(["The invoice was **paid** yesterday."]));
}

#[tokio::test]
async fn a_mail_is_found_by_the_id_that_lists_show() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let ids = ["<plain@x.test>", "<a/b@x.test>", "<a?b=c@x.test>", "<a#b@x.test>", "<a%41b@x.test>", "<a/../b@x.test>"];
    for (n, id) in ids.iter().enumerate() {
        receive_mail_by_subject(&server, id, &format!("Mail {n}")).await;
    }
    let (_, page) = api_call(&server, "GET", &format!("{INBOX_PATH}/messages?ascending=true"), &[], "").await;
    for ((n, id), row) in ids.iter().enumerate().zip(page["messages"].as_array().unwrap()) {
        let name = row["message_id"].as_str().unwrap();
        assert_eq!(name == *id, n < 2, "{row}");
        // With only the necessary characters escaped, and with every byte escaped.
        let raw = name.replace('<', "%3C").replace('>', "%3E");
        let escaped = id.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
        for name in [raw, escaped] {
            let (status, found) = api_call(&server, "GET", &format!("{INBOX_PATH}/messages/{name}"), &[], "").await;
            assert_eq!((status, &found["subject"]), (200, &json!(format!("Mail {n}"))), "{name}: {found}");
        }
    }
}

/// Receives a mail and waits until it is listed by its subject.
async fn receive_mail_by_subject(server: &SpawnedServer, message_id: &str, subject: &str) {
    crate::wire::deliver_by_smtp(server, message_id, subject).await;
    for _ in 0..100 {
        let (_, page) = api_call(server, "GET", &format!("{INBOX_PATH}/messages"), &[], "").await;
        if page["messages"].as_array().unwrap().iter().any(|one| one["subject"] == subject) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the mail did not arrive");
}
