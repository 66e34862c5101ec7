//! Retries after the inbox was renamed, paused or deleted get the first response. Errors use the terms of the dialect.

use serde_json::{Value, json};
use std::time::Duration;

use crate::{
    binary::{CliFixture, SpawnedServer},
    wire::{INBOX_PATH, api_call, receive_mail},
};

const MESSAGE_ID: &str = "%3Cquestion@x.test%3E";

/// Posts with an optional idempotency key.
async fn post_with_key(server: &SpawnedServer, path: &str, key: Option<&str>, body: &Value) -> (u16, Value) {
    let headers: Vec<(&str, &str)> = key.map(|key| ("Idempotency-Key", key)).into_iter().collect();
    api_call(server, "POST", path, &headers, &body.to_string()).await
}

/// Sample calls of an agent: path, key and body of each.
fn sample_calls() -> Vec<(String, Option<&'static str>, Value)> {
    let send = json!({ "to": "ada@example.com", "subject": "News", "text": "Hello." });
    let forward = json!({ "to": "carol@example.com", "text": "See below." });
    vec![
        (format!("{INBOX_PATH}/messages/send"), Some("send"), send),
        (format!("{INBOX_PATH}/messages/{MESSAGE_ID}/reply"), Some("reply"), json!({ "text": "Yes." })),
        (format!("{INBOX_PATH}/messages/{MESSAGE_ID}/forward"), Some("forward"), forward),
    ]
}

/// Makes all sample calls for the first time.
async fn make_first_calls(server: &SpawnedServer) -> Vec<Value> {
    receive_mail(server, "<question@x.test>", "A question").await;
    let mut all = Vec::new();
    for (path, key, body) in sample_calls() {
        let (status, sent) = post_with_key(server, &path, key, &body).await;
        assert_eq!(status, 200, "{path}: {sent}");
        all.push(sent);
    }
    all
}

/// Repeats all sample calls, then sends different bodies with the same keys.
async fn check_repeats(server: &SpawnedServer, firsts: &[Value], keyless: bool) {
    for ((path, key, body), first) in sample_calls().iter().zip(firsts) {
        let (status, again) = post_with_key(server, path, *key, body).await;
        assert_eq!((status, &again["message_id"]), (200, &first["message_id"]), "{path}: {again}");
        let other = json!({ "to": "dave@example.com", "text": "Something else." });
        let (status, response) = post_with_key(server, path, *key, &other).await;
        assert_eq!(status, 409, "{path}: {response}");
    }
    // Without a key, a message is still answered once and forwarded to the same recipients once.
    for ((path, _, body), first) in sample_calls().iter().zip(firsts).skip(1).filter(|_| keyless) {
        let (status, again) = post_with_key(server, path, None, body).await;
        assert_eq!((status, &again["message_id"]), (200, &first["message_id"]), "{path}: {again}");
    }
    let (_, page) = api_call(server, "GET", "/v1/emails?limit=100", &[], "").await;
    assert_eq!(page["data"].as_array().unwrap().len(), firsts.len(), "{page}");
}

#[tokio::test]
async fn a_retry_after_renaming_the_inbox_gets_the_first_response() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let firsts = make_first_calls(&server).await;
    for name in ["Ada", "Ada \\ \"Countess\""] {
        let (status, inbox) =
            api_call(&server, "PATCH", INBOX_PATH, &[], &json!({ "display_name": name }).to_string()).await;
        assert_eq!((status, &inbox["display_name"]), (200, &json!(name)), "{inbox}");
        check_repeats(&server, &firsts, true).await;
    }
    // New emails use the new name.
    let (path, _, body) = sample_calls().swap_remove(0);
    let (_, sent) = post_with_key(&server, &path, None, &body).await;
    let id = sent["message_id"].as_str().unwrap().replace('<', "%3C").replace('>', "%3E");
    let (_, seen) = api_call(&server, "GET", &format!("{INBOX_PATH}/messages/{id}"), &[], "").await;
    assert_eq!(seen["from"], "Ada \\ \"Countess\" <agent@mailonce.test>");
}

#[tokio::test]
async fn an_explicit_sender_equal_to_the_inbox_is_the_same_email() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let (status, inbox) = api_call(&server, "PATCH", INBOX_PATH, &[], r#"{"display_name":"Ada"}"#).await;
    assert_eq!(status, 200, "{inbox}");
    let native =
        json!({ "from": "Ada <agent@mailonce.test>", "to": "ada@example.com", "subject": "News", "text": "Hello." });
    let (status, first) = post_with_key(&server, "/v1/emails", Some("one"), &native).await;
    assert_eq!(status, 202, "{first}");
    let (path, _, body) = sample_calls().swap_remove(0);
    let (status, again) = post_with_key(&server, &path, Some("one"), &body).await;
    assert_eq!((status, &again["message_id"]), (200, &first["message_id"]), "{again}");
}

#[tokio::test]
async fn a_retry_while_the_inbox_is_paused_gets_the_first_response() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let firsts = make_first_calls(&server).await;
    let (status, _) = api_call(&server, "PATCH", INBOX_PATH, &[], r#"{"status":"paused"}"#).await;
    assert_eq!(status, 200);
    check_repeats(&server, &firsts, true).await;
    for (path, _, body) in sample_calls() {
        let fresh = json!({ "to": "new@example.com", "text": body["text"] });
        let (status, response) = post_with_key(&server, &path, Some("fresh"), &fresh).await;
        // The message has already been answered, whatever the new text is.
        let answered = path.ends_with("reply");
        assert_eq!(status, if answered { 409 } else { 403 }, "{path}: {response}");
    }
}

#[tokio::test]
async fn a_retry_after_the_inbox_was_deleted_gets_the_first_response() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let firsts = make_first_calls(&server).await;
    let (status, _) = api_call(&server, "DELETE", INBOX_PATH, &[], "").await;
    assert_eq!(status, 204);
    check_repeats(&server, &firsts, false).await;
    for (path, _, body) in sample_calls() {
        for key in [None, Some("fresh")] {
            let (status, response) = post_with_key(&server, &path, key, &body).await;
            assert_eq!((status, &response["name"]), (404, &json!("NotFoundError")), "{path}: {response}");
        }
    }
}

#[tokio::test]
async fn a_conflict_of_a_forward_mentions_forwarding() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    make_first_calls(&server).await;
    let (path, _, _) = sample_calls().swap_remove(2);
    let other = json!({ "to": "carol@example.com", "text": "Other words." });
    let (status, response) = post_with_key(&server, &path, None, &other).await;
    let message_text = response["message"].as_str().unwrap();
    assert!(
        status == 409 && message_text.contains("already forwarded") && !message_text.contains("answered"),
        "{response}"
    );
}

#[tokio::test]
async fn error_docs_links_work_and_errors_use_dialect_paths() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let send = format!("{INBOX_PATH}/messages/send");
    let refused_mail = json!({ "to": "refuse@sandbox.mailonce.test", "subject": "x", "text": "x" });
    let (status, _) = post_with_key(&server, &send, Some("doomed"), &refused_mail).await;
    assert_eq!(status, 200);
    let mut response = Value::Null;
    for _ in 0..100 {
        let (status, answer) = post_with_key(&server, &send, Some("doomed"), &refused_mail).await;
        if status == 403 {
            response = answer;
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        (&response["state"], &response["name"]),
        (&json!("failed"), &json!("MessageRejectedError")),
        "{response}"
    );
    let mut all = vec![response];
    for (method, path, body) in [
        ("GET", "/compat/agentmail/v0/nothing", ""),
        ("GET", "/compat/agentmail/v0/inboxes/nobody@mailonce.test", ""),
        ("POST", &send, "{"),
        ("POST", &send, r#"{"text":"x"}"#),
    ] {
        all.push(api_call(&server, method, path, &[], body).await.1);
    }
    all.push(server.call("GET", "/compat/agentmail/v0/inboxes", &[], "").await.1);
    for answer in all {
        let docs = answer["docs"].as_str().unwrap_or_else(|| panic!("{answer}"));
        let path = docs.strip_prefix(server.url.as_str()).unwrap_or_else(|| panic!("{docs}"));
        let (status, _) = server.call("GET", path, &[], "").await;
        assert_eq!(status, 200, "{docs}");
        assert!(!answer.to_string().contains("/v1"), "{answer}");
    }
}

#[tokio::test]
async fn a_change_updates_updated_at() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    receive_mail(&server, "<question@x.test>", "A question").await;
    let hook = r#"{"url":"http://127.0.0.1:9/","event_types":["message.sent"]}"#;
    let (_, hook) = api_call(&server, "POST", "/compat/agentmail/v0/webhooks", &[], hook).await;
    let hook = format!("/compat/agentmail/v0/webhooks/{}", hook["webhook_id"].as_str().unwrap());
    let message = format!("{INBOX_PATH}/messages/{MESSAGE_ID}");
    let (_, seen) = api_call(&server, "GET", &message, &[], "").await;
    let thread = format!("{INBOX_PATH}/threads/{}", seen["thread_id"].as_str().unwrap());
    let mut unchanged = Vec::new();
    for (path, changed, change) in [
        (INBOX_PATH, INBOX_PATH, r#"{"display_name":"Ada"}"#),
        (&hook, &hook, r#"{"event_types":["message.bounced"]}"#),
        (&message, &message, r#"{"add_labels":["todo"]}"#),
        (&thread, &message, r#"{"add_labels":["later"]}"#),
    ] {
        let (_, before) = api_call(&server, "GET", path, &[], "").await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let (status, answer) = api_call(&server, "PATCH", changed, &[], change).await;
        assert_eq!(status, 200, "{answer}");
        let (_, after) = api_call(&server, "GET", path, &[], "").await;
        let at = |body: &Value, name: &str| body[name].as_str().unwrap().to_owned();
        assert_eq!(at(&after, "created_at"), at(&before, "created_at"));
        unchanged.extend((at(&after, "updated_at") <= at(&before, "updated_at")).then_some((path, before, after)));
    }
    assert!(unchanged.is_empty(), "{unchanged:#?}");
}
