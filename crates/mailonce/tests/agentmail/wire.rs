//! Wire details that the packages cannot show: unexpected bodies, ids in every spelling, and responses to sends that
//! fail.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    binary::{CliFixture, SpawnedServer},
    smtp_address,
};

pub(crate) const INBOX_PATH: &str = "/compat/agentmail/v0/inboxes/agent@mailonce.test";

/// Makes one call with the API key.
pub(crate) async fn api_call(
    server: &SpawnedServer,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    let bearer = format!("bearer {}", server.api_key);
    let mut all = vec![("AUTHORIZATION", bearer.as_str())];
    all.extend(headers);
    server.call(method, path, &all, body).await
}

/// Delivers a mail by SMTP.
pub(crate) async fn deliver_by_smtp(server: &SpawnedServer, message_id: &str, subject: &str) {
    let mut stream = TcpStream::connect(smtp_address(server)).await.unwrap();
    let mail = format!(
        "From: ann@x.test\r\nTo: agent@mailonce.test\r\nSubject: {subject}\r\nMessage-ID: {message_id}\r\n\r\nHello.\r\n."
    );
    let mut buffer = [0; 1024];
    stream.read(&mut buffer).await.map(|octets| assert!(octets > 0)).unwrap();
    for line in ["HELO x.test", "MAIL FROM:<ann@x.test>", "RCPT TO:<agent@mailonce.test>", "DATA", &mail, "QUIT"] {
        stream.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
        let octets = stream.read(&mut buffer).await.unwrap();
        assert!(matches!(buffer[..octets].first(), Some(b'2' | b'3')), "{}", String::from_utf8_lossy(&buffer));
    }
}

/// Receives a mail and waits until it is listed.
pub(crate) async fn receive_mail(server: &SpawnedServer, message_id: &str, subject: &str) {
    deliver_by_smtp(server, message_id, subject).await;
    for _ in 0..100 {
        let (_, page) = api_call(server, "GET", &format!("{INBOX_PATH}/messages"), &[], "").await;
        if page["messages"].as_array().unwrap().iter().any(|one| one["message_id"] == message_id) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the mail did not arrive");
}

#[tokio::test]
async fn calls_are_accepted_as_the_packages_make_them() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    receive_mail(&server, "<a/b+c@x.test>", "Slashes").await;
    for id in ["%3Ca/b+c@x.test%3E", "%3Ca%2Fb%2Bc%40x.test%3E", "%3ca%2fb+c@x.test%3e"] {
        for inbox in [INBOX_PATH, "/compat/agentmail/v0/inboxes/agent%40mailonce.test"] {
            let (status, message) = api_call(&server, "GET", &format!("{inbox}/messages/{id}"), &[], "").await;
            assert_eq!((status, &message["message_id"]), (200, &json!("<a/b+c@x.test>")), "{id}");
        }
    }
    // A body on a GET, and an empty body with a JSON content type.
    let json = [("content-type", "application/json")];
    let (status, _) =
        api_call(&server, "GET", &format!("{INBOX_PATH}/messages?labels=%5B%22unread%22%5D"), &json, "{}").await;
    assert_eq!(status, 200);
    let (status, _) = api_call(&server, "POST", "/compat/agentmail/v0/inboxes", &json, "").await;
    assert_eq!(status, 200);
    let (status, _) =
        api_call(&server, "DELETE", &format!("{INBOX_PATH}/messages/%3Ca/b+c@x.test%3E"), &json, "").await;
    assert_eq!(status, 204);
}

#[tokio::test]
async fn a_thread_is_found_by_its_own_labels_and_those_of_its_mail() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    receive_mail(&server, "<question@x.test>", "A question").await;
    let (_, page) = api_call(&server, "GET", &format!("{INBOX_PATH}/threads"), &[], "").await;
    let thread = format!("{INBOX_PATH}/threads/{}", page["threads"][0]["thread_id"].as_str().unwrap());
    api_call(&server, "PATCH", &thread, &[], r#"{"add_labels":["urgent"]}"#).await;
    // A label of the thread and one of its mail match. A label that neither has does not.
    for (labels, count) in [("labels=urgent&labels=received", 1), ("labels=urgent&labels=sent", 0)] {
        let (_, found) = api_call(&server, "GET", &format!("{INBOX_PATH}/threads?{labels}"), &[], "").await;
        assert_eq!(found["count"], count, "{labels}: {found}");
    }
}

#[tokio::test]
async fn an_unsent_email_is_never_a_success() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let rule = json!({ "name": "ask", "direction": "outbound", "match": { "operator": "all", "conditions":
        [{ "field": "recipient.address", "operator": "is", "value": "boss@example.com" }] }, "actions": [{ "type": "approve" }] });
    let (status, created) = api_call(&server, "POST", "/v1/rules", &[], &rule.to_string()).await;
    assert_eq!(status, 201, "{created}");
    let mail = |to: &str| json!({ "to": to, "subject": "Raise", "text": "Please." }).to_string();
    let send = format!("{INBOX_PATH}/messages/send");
    let key = [("Idempotency-Key", "raise")];
    for _ in 0..2 {
        let (status, body) = api_call(&server, "POST", &send, &key, &mail("boss@example.com")).await;
        assert_eq!(
            (status, &body["name"], &body["state"]),
            (403, &json!("MessageRejectedError"), &json!("held")),
            "{body}"
        );
        let id = body["message_id"].as_str().unwrap().replace('<', "%3C").replace('>', "%3E");
        let (_, message) = api_call(&server, "GET", &format!("{INBOX_PATH}/messages/{id}"), &[], "").await;
        assert_eq!(message["labels"], json!(["held"]));
    }
    let (status, first) =
        api_call(&server, "POST", &send, &[("Idempotency-Key", "doubt")], &mail("unknown@sandbox.mailonce.test")).await;
    assert_eq!(status, 200, "{first}");
    let id = first["message_id"].as_str().unwrap().replace('<', "%3C").replace('>', "%3E");
    let path = format!("{INBOX_PATH}/messages/{id}");
    for _ in 0..100 {
        let (_, message) = api_call(&server, "GET", &path, &[], "").await;
        if message["labels"] == json!(["unknown"]) {
            // A replay is not a success either, although the first call could not know the outcome.
            let again = mail("unknown@sandbox.mailonce.test");
            let (status, body) = api_call(&server, "POST", &send, &[("Idempotency-Key", "doubt")], &again).await;
            assert_eq!((status, &body["state"]), (403, &json!("unknown")), "{body}");
            assert_eq!(body["message_id"], first["message_id"]);
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the unknown outcome was not shown in time");
}

#[tokio::test]
async fn errors_have_the_documented_format() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let send = format!("{INBOX_PATH}/messages/send");
    let cases: [(&str, &str, &str, u16, &str, &str); 8] = [
        ("POST", &send, "{", 400, "ValidationError", "validation_error"),
        ("POST", &send, "[]", 400, "ValidationError", "validation_error"),
        ("POST", &send, r#"{"to":"a@example.com","text":1}"#, 400, "ValidationError", "validation_error"),
        ("POST", &send, r#"{"to":"a@example.com","text":"x","txt":"x"}"#, 400, "ValidationError", "validation_error"),
        ("POST", &send, r#"{"text":"x"}"#, 400, "ValidationError", "validation_error"),
        ("GET", "/compat/agentmail/v0/inboxes?limit=x", "", 400, "ValidationError", "validation_error"),
        ("GET", "/compat/agentmail/v0/nothing", "", 404, "NotFoundError", "not_found"),
        ("PUT", "/compat/agentmail/v0/inboxes", "", 404, "NotFoundError", "not_found"),
    ];
    for (method, path, body, status, name, code) in cases {
        let (found, answer) = api_call(&server, method, path, &[], body).await;
        assert_eq!((found, &answer["name"], &answer["code"]), (status, &json!(name), &json!(code)), "{body} {answer}");
        assert!(answer["message"].is_string() && answer["fix"].is_string(), "{answer}");
        assert_eq!(answer["errors"].is_array(), status == 400, "{answer}");
    }
    for headers in [&[][..], &[("Authorization", "Bearer am_nobody0000000000")], &[("Authorization", "Basic eDp5")]] {
        let (status, answer) = server.call("GET", "/compat/agentmail/v0/inboxes", headers, "").await;
        assert_eq!((status, &answer["name"]), (401, &json!("UnauthorizedError")), "{answer}");
    }
}

#[tokio::test]
async fn another_team_finds_nothing() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    receive_mail(&server, "<mine@x.test>", "Mine").await;
    let send = format!("{INBOX_PATH}/messages/send");
    let (_, sent) = api_call(&server, "POST", &send, &[], r#"{"to":"a@example.com","text":"x"}"#).await;
    let (_, draft) = api_call(&server, "POST", &format!("{INBOX_PATH}/drafts"), &[], r#"{"text":"x"}"#).await;
    let hook = r#"{"url":"http://127.0.0.1:9/","event_types":["message.sent"]}"#;
    let (_, hook) = api_call(&server, "POST", "/compat/agentmail/v0/webhooks", &[], hook).await;
    let (_, key) = api_call(&server, "POST", "/compat/agentmail/v0/api-keys", &[], r#"{"name":"mine"}"#).await;
    let domain = r#"{"domain":"mine.example.com"}"#;
    api_call(&server, "POST", "/compat/agentmail/v0/domains", &[], domain).await;
    let text_field = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
    let key = text_field(&key, "api_key_id");
    let (thread, draft, hook) =
        (text_field(&sent, "thread_id"), text_field(&draft, "draft_id"), text_field(&hook, "webhook_id"));
    let (_, team) = api_call(&server, "POST", "/v1/teams", &[], r#"{"name":"other"}"#).await;
    let bearer = format!("Bearer {}", text_field(&team, "api_key"));
    let other = [("Authorization", bearer.as_str())];
    for path in [
        INBOX_PATH.to_owned(),
        format!("{INBOX_PATH}/messages"),
        format!("{INBOX_PATH}/messages/%3Cmine@x.test%3E"),
        format!("{INBOX_PATH}/threads/{thread}"),
        format!("{INBOX_PATH}/drafts/{draft}"),
        format!("/compat/agentmail/v0/threads/{thread}"),
        format!("/compat/agentmail/v0/drafts/{draft}"),
        format!("/compat/agentmail/v0/webhooks/{hook}"),
        format!("/compat/agentmail/v0/api-keys/{key}"),
        "/compat/agentmail/v0/domains/mine.example.com".to_owned(),
        format!("{INBOX_PATH}/api-keys"),
        format!("{INBOX_PATH}/metrics/events"),
    ] {
        let (status, found) = server.call("GET", &path, &other, "").await;
        assert_eq!((status, &found["name"]), (404, &json!("NotFoundError")), "{path}: {found}");
        let (status, found) = api_call(&server, "GET", &path, &[], "").await;
        assert_eq!(status, 200, "{path}: {found}");
    }
    for (method, path) in [("POST", send.as_str()), ("DELETE", INBOX_PATH)] {
        let (status, found) = server.call(method, path, &other, r#"{"to":"a@example.com","text":"x"}"#).await;
        assert_eq!(status, 404, "{found}");
    }
    let (_, listed) = server.call("GET", "/compat/agentmail/v0/inboxes", &other, "").await;
    assert_eq!(listed["count"], 0, "{listed}");
}

const API_ROOT: &str = "/compat/agentmail/v0";

/// Every route that names a resource of the agent's inbox, with a body where one is needed.
fn routes_of_inbox(
    thread: &str,
    draft: &str,
    hook: &str,
    mail: &'static str,
) -> Vec<(&'static str, String, &'static str)> {
    let message = "%3Ccanary@x.test%3E";
    let entry = r#"{"entry":"a@b.test"}"#;
    let ids = r#"{"message_ids":["<canary@x.test>"],"add_labels":["x"]}"#;
    let labels = r#"{"add_labels":["x"]}"#;
    let rename = r#"{"display_name":"Mallory"}"#;
    vec![
        ("GET", INBOX_PATH.to_owned(), ""),
        ("PATCH", INBOX_PATH.to_owned(), rename),
        ("DELETE", INBOX_PATH.to_owned(), ""),
        ("GET", format!("{INBOX_PATH}/messages"), ""),
        ("GET", format!("{INBOX_PATH}/messages/search?q=canary"), ""),
        ("POST", format!("{INBOX_PATH}/messages/send"), mail),
        ("POST", format!("{INBOX_PATH}/messages/batch-get"), ids),
        ("POST", format!("{INBOX_PATH}/messages/batch-update"), ids),
        ("GET", format!("{INBOX_PATH}/messages/{message}"), ""),
        ("PATCH", format!("{INBOX_PATH}/messages/{message}"), labels),
        ("DELETE", format!("{INBOX_PATH}/messages/{message}"), ""),
        ("GET", format!("{INBOX_PATH}/messages/{message}/raw"), ""),
        ("POST", format!("{INBOX_PATH}/messages/{message}/reply"), mail),
        ("POST", format!("{INBOX_PATH}/messages/{message}/reply-all"), mail),
        ("POST", format!("{INBOX_PATH}/messages/{message}/forward"), mail),
        ("GET", format!("{INBOX_PATH}/threads"), ""),
        ("GET", format!("{INBOX_PATH}/threads/search?q=canary"), ""),
        ("GET", format!("{INBOX_PATH}/threads/{thread}"), ""),
        ("PATCH", format!("{INBOX_PATH}/threads/{thread}"), labels),
        ("DELETE", format!("{INBOX_PATH}/threads/{thread}"), ""),
        ("GET", format!("{API_ROOT}/threads/{thread}"), ""),
        ("PATCH", format!("{API_ROOT}/threads/{thread}"), labels),
        ("DELETE", format!("{API_ROOT}/threads/{thread}"), ""),
        ("GET", format!("{INBOX_PATH}/drafts"), ""),
        ("POST", format!("{INBOX_PATH}/drafts"), r#"{"text":"x"}"#),
        ("GET", format!("{INBOX_PATH}/drafts/{draft}"), ""),
        ("PATCH", format!("{INBOX_PATH}/drafts/{draft}"), r#"{"text":"x"}"#),
        ("POST", format!("{INBOX_PATH}/drafts/{draft}/send"), "{}"),
        ("DELETE", format!("{INBOX_PATH}/drafts/{draft}"), ""),
        ("GET", format!("{API_ROOT}/drafts/{draft}"), ""),
        ("GET", format!("{INBOX_PATH}/lists/receive/block"), ""),
        ("POST", format!("{INBOX_PATH}/lists/receive/block"), entry),
        ("POST", format!("{API_ROOT}/lists/receive/block"), entry),
        ("GET", format!("{INBOX_PATH}/webhooks"), ""),
        ("GET", format!("{API_ROOT}/webhooks/{hook}"), ""),
        ("PATCH", format!("{API_ROOT}/webhooks/{hook}"), r#"{"event_types":["message.received"]}"#),
        ("DELETE", format!("{API_ROOT}/webhooks/{hook}"), ""),
        ("GET", format!("{API_ROOT}/webhooks/{hook}/headers"), ""),
    ]
}

/// Checks that a webhook of a tied key shows nothing of events of other inboxes, even with all event types.
async fn webhook_shows_no_dropped_events(server: &SpawnedServer, tied: &[(&str, &str)]) {
    let own = r#"{"url":"http://127.0.0.1:9/own","event_types":["message.sent"],"inbox_ids":["second@mailonce.test"]}"#;
    let (_, own) = server.call("POST", &format!("{API_ROOT}/webhooks"), tied, own).await;
    let endpoint = own["webhook_id"].as_str().unwrap().replace("ep_", "");
    let (status, changed) =
        server.call("PATCH", &format!("/v1/endpoints/{endpoint}"), tied, r#"{"events":["*"],"rev":1}"#).await;
    assert_eq!(status, 200, "{changed}");
    let (_, _) = api_call(
        server,
        "POST",
        &format!("{INBOX_PATH}/messages/send"),
        &[],
        r#"{"to":"x@example.com","text":"later"}"#,
    )
    .await;
    for _ in 0..20 {
        let (status, page) = server.call("GET", &format!("/v1/endpoints/{endpoint}/notices"), tied, "").await;
        assert_eq!((status, &page["data"]), (200, &json!([])), "{page}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_key_of_another_inbox_can_neither_read_nor_change_anything() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    receive_mail(&server, "<canary@x.test>", "canary").await;
    let mail = r#"{"to":"canary@example.com","subject":"canary","text":"canary","labels":["canary"]}"#;
    let (_, sent) = api_call(&server, "POST", &format!("{INBOX_PATH}/messages/send"), &[], mail).await;
    let (_, draft) = api_call(&server, "POST", &format!("{INBOX_PATH}/drafts"), &[], r#"{"text":"canary"}"#).await;
    let hook = r#"{"url":"http://127.0.0.1:9/canary","event_types":["message.sent"]}"#;
    let (_, hook) = api_call(&server, "POST", &format!("{API_ROOT}/webhooks"), &[], hook).await;
    let text_field = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
    let (thread, draft, hook) =
        (text_field(&sent, "thread_id"), text_field(&draft, "draft_id"), text_field(&hook, "webhook_id"));
    api_call(&server, "POST", "/v1/inboxes", &[], r#"{"username":"second"}"#).await;
    let key = json!({ "name": "tied", "scopes": ["send", "read", "reply", "secrets", "admin"], "inboxes": ["second@mailonce.test"] });
    let (_, key) = api_call(&server, "POST", "/v1/api-keys", &[], &key.to_string()).await;
    let bearer = format!("Bearer {}", text_field(&key, "api_key"));
    let tied = [("Authorization", bearer.as_str())];

    let calls = routes_of_inbox(&thread, &draft, &hook, mail);
    for (method, path, body) in &calls {
        let (status, answer) = server.call(method, path, &tied, body).await;
        assert!([403, 404].contains(&status), "{method} {path}: {status} {answer}");
        assert!(!answer.to_string().contains("Hello"), "{method} {path}: {answer}");
    }
    for list in ["inboxes", "inboxes/search?q=agent", "threads", "threads/search?q=canary", "drafts", "webhooks"] {
        let (_, answer) = server.call("GET", &format!("{API_ROOT}/{list}"), &tied, "").await;
        let shown = answer.to_string();
        assert!(!shown.contains("canary") && !shown.contains("agent@mailonce.test"), "{list}: {answer}");
    }
    webhook_shows_no_dropped_events(&server, &tied).await;
    for (method, path, body) in calls.iter().filter(|(method, ..)| *method == "GET") {
        let (status, answer) = api_call(&server, method, path, &[], body).await;
        assert_eq!(status, 200, "the owner can still read it: {path}: {answer}");
    }
}

#[tokio::test]
async fn error_messages_mention_only_members_of_the_response() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let send = format!("{INBOX_PATH}/messages/send");
    let many = json!({ "to": vec!["a@example.com"; 60], "text": "x" }).to_string();
    for (method, path, body, expected, field) in [
        ("POST", send.as_str(), "7", "invalid type: integer `7`, expected an object", json!([])),
        ("POST", &send, r#"{"to":7}"#, "to: invalid type: integer `7`, expected an address or a list", json!(["to"])),
        ("POST", &send, &many, "to names 60 recipients with cc and bcc; at most 50 fit one email", json!(["to"])),
        (
            "POST",
            &format!("{INBOX_PATH}/messages/batch-get"),
            "{}",
            "missing field `message_ids`",
            json!(["message_ids"]),
        ),
        ("POST", &format!("{INBOX_PATH}/drafts"), r#"{"send_at":"x"}"#, "send_at must be a time", json!(["send_at"])),
        ("GET", &format!("{INBOX_PATH}/threads?limit=0"), "", "limit must be a number from 1 to 100", json!(["limit"])),
        (
            "GET",
            &format!("{INBOX_PATH}/drafts?ascending=x"),
            "",
            "ascending must be true or false",
            json!(["ascending"]),
        ),
    ] {
        let (status, answer) = api_call(&server, method, path, &[], body).await;
        let (message, fix) = (answer["message"].as_str().unwrap(), answer["fix"].as_str().unwrap());
        assert!(status == 400 && message.starts_with(expected), "{path}: {answer}");
        assert_eq!(answer["errors"][0]["path"], field, "{answer}");
        // The `fix` text mentions only members that this response has.
        assert!(!fix.contains("`field`") && !fix.contains("/v1/") && fix.contains("errors"), "{answer}");
    }
    let (_, created) = api_call(&server, "POST", "/v1/api-keys", &[], r#"{"name":"look","scopes":["read"]}"#).await;
    let bearer = format!("Bearer {}", created["api_key"].as_str().unwrap());
    let (status, answer) =
        server.call("POST", &send, &[("Authorization", &bearer)], r#"{"to":"a@example.com","text":"x"}"#).await;
    assert_eq!((status, &answer["name"]), (403, &json!("ForbiddenError")), "{answer}");
    assert_eq!(answer["message"], "this call needs the scope `send`");
}
