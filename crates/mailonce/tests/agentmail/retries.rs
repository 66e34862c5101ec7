//! Retries after the inbox was renamed, paused or removed get the first answer; what is told speaks of the dialect.

use serde_json::{Value, json};
use std::time::Duration;

use crate::{
    binary::{Desk, Server},
    wire::{INBOX, arrives, call},
};

const NAME: &str = "%3Cquestion@x.test%3E";

/// A call under a key, and what was told.
async fn asks(server: &Server, path: &str, key: Option<&str>, body: &Value) -> (u16, Value) {
    let headers: Vec<(&str, &str)> = key.map(|key| ("Idempotency-Key", key)).into_iter().collect();
    call(server, "POST", path, &headers, &body.to_string()).await
}

/// What an agent says: path, key and body of each call.
fn calls() -> Vec<(String, Option<&'static str>, Value)> {
    let send = json!({ "to": "ada@example.com", "subject": "News", "text": "Hello." });
    let pass = json!({ "to": "carol@example.com", "text": "See below." });
    vec![
        (format!("{INBOX}/messages/send"), Some("send"), send),
        (format!("{INBOX}/messages/{NAME}/reply"), Some("reply"), json!({ "text": "Yes." })),
        (format!("{INBOX}/messages/{NAME}/forward"), Some("forward"), pass),
    ]
}

/// Says all of it for the first time.
async fn firsts(server: &Server) -> Vec<Value> {
    arrives(server, "<question@x.test>", "A question").await;
    let mut all = Vec::new();
    for (path, key, body) in calls() {
        let (status, sent) = asks(server, &path, key, &body).await;
        assert_eq!(status, 200, "{path}: {sent}");
        all.push(sent);
    }
    all
}

/// Says all of it again, and other words under the same keys.
async fn repeats(server: &Server, firsts: &[Value], keyless: bool) {
    for ((path, key, body), first) in calls().iter().zip(firsts) {
        let (status, again) = asks(server, path, *key, body).await;
        assert_eq!((status, &again["message_id"]), (200, &first["message_id"]), "{path}: {again}");
        let other = json!({ "to": "dave@example.com", "text": "Something else." });
        let (status, told) = asks(server, path, *key, &other).await;
        assert_eq!(status, 409, "{path}: {told}");
    }
    // A message is answered once, and passed on to the same people once, without a key as well.
    for ((path, _, body), first) in calls().iter().zip(firsts).skip(1).filter(|_| keyless) {
        let (status, again) = asks(server, path, None, body).await;
        assert_eq!((status, &again["message_id"]), (200, &first["message_id"]), "{path}: {again}");
    }
    let (_, page) = call(server, "GET", "/v1/emails?limit=100", &[], "").await;
    assert_eq!(page["data"].as_array().unwrap().len(), firsts.len(), "{page}");
}

#[tokio::test]
async fn a_retry_after_another_name_gets_the_first_answer() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let firsts = firsts(&server).await;
    for name in ["Ada", "Ada \\ \"Countess\""] {
        let (status, inbox) = call(&server, "PATCH", INBOX, &[], &json!({ "display_name": name }).to_string()).await;
        assert_eq!((status, &inbox["display_name"]), (200, &json!(name)), "{inbox}");
        repeats(&server, &firsts, true).await;
    }
    // The name itself is on what goes from now on.
    let (path, _, body) = calls().swap_remove(0);
    let (_, sent) = asks(&server, &path, None, &body).await;
    let id = sent["message_id"].as_str().unwrap().replace('<', "%3C").replace('>', "%3E");
    let (_, seen) = call(&server, "GET", &format!("{INBOX}/messages/{id}"), &[], "").await;
    assert_eq!(seen["from"], "Ada \\ \"Countess\" <agent@mailonce.test>");
}

#[tokio::test]
async fn the_sender_that_a_caller_names_itself_is_the_same_sender() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let (status, inbox) = call(&server, "PATCH", INBOX, &[], r#"{"display_name":"Ada"}"#).await;
    assert_eq!(status, 200, "{inbox}");
    let native =
        json!({ "from": "Ada <agent@mailonce.test>", "to": "ada@example.com", "subject": "News", "text": "Hello." });
    let (status, first) = asks(&server, "/v1/emails", Some("one"), &native).await;
    assert_eq!(status, 202, "{first}");
    let (path, _, body) = calls().swap_remove(0);
    let (status, again) = asks(&server, &path, Some("one"), &body).await;
    assert_eq!((status, &again["message_id"]), (200, &first["message_id"]), "{again}");
}

#[tokio::test]
async fn a_retry_while_the_inbox_rests_gets_the_first_answer() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let firsts = firsts(&server).await;
    let (status, _) = call(&server, "PATCH", INBOX, &[], r#"{"status":"paused"}"#).await;
    assert_eq!(status, 200);
    repeats(&server, &firsts, true).await;
    for (path, _, body) in calls() {
        let fresh = json!({ "to": "new@example.com", "text": body["text"] });
        let (status, told) = asks(&server, &path, Some("fresh"), &fresh).await;
        // The message was answered already, whatever is said now.
        let answered = path.ends_with("reply");
        assert_eq!(status, if answered { 409 } else { 403 }, "{path}: {told}");
    }
}

#[tokio::test]
async fn a_retry_after_the_inbox_is_gone_gets_the_first_answer() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let firsts = firsts(&server).await;
    let (status, _) = call(&server, "DELETE", INBOX, &[], "").await;
    assert_eq!(status, 204);
    repeats(&server, &firsts, false).await;
    for (path, _, body) in calls() {
        for key in [None, Some("fresh")] {
            let (status, told) = asks(&server, &path, key, &body).await;
            assert_eq!((status, &told["name"]), (404, &json!("NotFoundError")), "{path}: {told}");
        }
    }
}

#[tokio::test]
async fn a_conflict_of_a_forward_speaks_of_a_forward() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    firsts(&server).await;
    let (path, _, _) = calls().swap_remove(2);
    let other = json!({ "to": "carol@example.com", "text": "Other words." });
    let (status, told) = asks(&server, &path, None, &other).await;
    let said = told["message"].as_str().unwrap();
    assert!(status == 409 && said.contains("already forwarded") && !said.contains("answered"), "{told}");
}

#[tokio::test]
async fn what_is_told_leads_somewhere_and_speaks_of_the_dialect() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let send = format!("{INBOX}/messages/send");
    let doomed = json!({ "to": "refuse@sandbox.mailonce.test", "subject": "x", "text": "x" });
    let (status, _) = asks(&server, &send, Some("doomed"), &doomed).await;
    assert_eq!(status, 200);
    let mut told = Value::Null;
    for _ in 0..100 {
        let (status, answer) = asks(&server, &send, Some("doomed"), &doomed).await;
        if status == 403 {
            told = answer;
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((&told["state"], &told["name"]), (&json!("failed"), &json!("MessageRejectedError")), "{told}");
    let mut all = vec![told];
    for (method, path, body) in [
        ("GET", "/compat/agentmail/v0/nothing", ""),
        ("GET", "/compat/agentmail/v0/inboxes/nobody@mailonce.test", ""),
        ("POST", &send, "{"),
        ("POST", &send, r#"{"text":"x"}"#),
    ] {
        all.push(call(&server, method, path, &[], body).await.1);
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
async fn a_change_shows_in_when_it_was() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    arrives(&server, "<question@x.test>", "A question").await;
    let hook = r#"{"url":"http://127.0.0.1:9/","event_types":["message.sent"]}"#;
    let (_, hook) = call(&server, "POST", "/compat/agentmail/v0/webhooks", &[], hook).await;
    let hook = format!("/compat/agentmail/v0/webhooks/{}", hook["webhook_id"].as_str().unwrap());
    let message = format!("{INBOX}/messages/{NAME}");
    let (_, seen) = call(&server, "GET", &message, &[], "").await;
    let thread = format!("{INBOX}/threads/{}", seen["thread_id"].as_str().unwrap());
    let mut unmoved = Vec::new();
    for (path, changed, change) in [
        (INBOX, INBOX, r#"{"display_name":"Ada"}"#),
        (&hook, &hook, r#"{"event_types":["message.bounced"]}"#),
        (&message, &message, r#"{"add_labels":["todo"]}"#),
        (&thread, &message, r#"{"add_labels":["later"]}"#),
    ] {
        let (_, before) = call(&server, "GET", path, &[], "").await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let (status, answer) = call(&server, "PATCH", changed, &[], change).await;
        assert_eq!(status, 200, "{answer}");
        let (_, after) = call(&server, "GET", path, &[], "").await;
        let at = |body: &Value, name: &str| body[name].as_str().unwrap().to_owned();
        assert_eq!(at(&after, "created_at"), at(&before, "created_at"));
        unmoved.extend((at(&after, "updated_at") <= at(&before, "updated_at")).then_some((path, before, after)));
    }
    assert!(unmoved.is_empty(), "{unmoved:#?}");
}
