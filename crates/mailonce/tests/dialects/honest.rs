//! Retries after the world changed, and mails that did not go: the first answer stands, and nothing is told as a success
//! that is none.

use serde_json::{Value, json};
use std::time::Duration;

use crate::{
    binary::{Desk, Server},
    sdks::with_mail,
};

const RESEND: &str = "/compat/resend";
const USESEND: &str = "/compat/usesend/api/v1";
const INBOX: &str = "/compat/resend/inboxes/agent@mailonce.test";

/// One call with a credential, perhaps under a key.
async fn call(server: &Server, (method, path): (&str, &str), key: Option<&str>, body: &Value) -> (u16, Value) {
    let bearer = format!("Bearer {}", server.api_key);
    let mut headers = vec![("authorization", bearer.as_str())];
    headers.extend(key.map(|key| ("idempotency-key", key)));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.call(method, path, &headers, &body).await
}

/// A call that must be answered with this status.
#[track_caller]
fn is(answer: (u16, Value), status: u16) -> Value {
    assert_eq!(answer.0, status, "{}", answer.1);
    answer.1
}

async fn get(server: &Server, path: &str) -> Value {
    is(call(server, ("GET", path), None, &Value::Null).await, 200)
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn mail(to: &str) -> Value {
    json!({ "from": "agent@mailonce.test", "to": to, "subject": "News", "text": "Hello." })
}

/// Waits until an email has come to a state.
async fn becomes(server: &Server, id: &str, state: &str) {
    until(server, id, |email| email["state"] == state).await;
}

/// Waits until something is true of an email.
async fn until(server: &Server, id: &str, holds: impl Fn(&Value) -> bool) {
    let mut email = Value::Null;
    for _ in 0..200 {
        email = get(server, &format!("/v1/emails/{id}")).await;
        if holds(&email) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("what was waited for does not come: {email}");
}

/// The path of the mail with a subject in the inbox, in Resend's words.
async fn received(server: &Server, subject: &str) -> String {
    for _ in 0..200 {
        let threads = get(server, &format!("{INBOX}/threads")).await;
        let found = threads["data"].as_array().unwrap().iter().find(|thread| thread["subject"] == subject);
        if let Some(thread) = found {
            let path = format!("{INBOX}/threads/{}/emails", word(&thread["id"]));
            let emails = get(server, &path).await;
            return format!("{path}/{}", word(&emails["data"][0]["id"]));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{subject} did not come");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_name_of_the_inbox_does_not_make_a_retry_another_answer() {
    let desk = Desk::new();
    let server = with_mail(&desk, "honest").await;
    let (one, two) = (received(&server, "Another").await, received(&server, "With a file").await);
    let says = json!({ "text": "Yes." });
    let passes = json!({ "to": "carol@example.org", "text": "See below." });
    let calls = [
        (format!("{one}/reply"), Some("reply"), &says),
        (format!("{two}/reply"), None, &says),
        (format!("{one}/forward"), Some("forward"), &passes),
        (format!("{two}/forward"), None, &passes),
    ];
    let mut firsts = Vec::new();
    for (path, key, body) in &calls {
        firsts.push(is(call(&server, ("POST", path), *key, body).await, 200)["id"].clone());
    }
    for name in ["Ada", "Ada Lovelace"] {
        is(call(&server, ("PATCH", INBOX), None, &json!({ "from_name": name })).await, 200);
        for ((path, key, body), first) in calls.iter().zip(&firsts) {
            let again = is(call(&server, ("POST", path), *key, body).await, 200);
            assert_eq!(again["id"], *first, "{path}");
        }
    }
    // Other words are still other words.
    let other = json!({ "text": "No." });
    is(call(&server, ("POST", &calls[0].0), Some("reply"), &other).await, 409);
    // What goes from now on has the name.
    let three = received(&server, "A question for honest").await;
    let sent = is(call(&server, ("POST", &format!("{three}/reply")), None, &says).await, 200);
    let seen = get(&server, &format!("{RESEND}/emails/{}", word(&sent["id"]))).await;
    assert_eq!(seen["from"], "Ada Lovelace <agent@mailonce.test>");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_after_the_inbox_is_gone_gets_the_first_answer() {
    let desk = Desk::new();
    let server = with_mail(&desk, "honest").await;
    let path = received(&server, "Another").await;
    let (reply, forward) = (format!("{path}/reply"), format!("{path}/forward"));
    let (says, passes) = (json!({ "text": "Yes." }), json!({ "to": "carol@example.org", "text": "See below." }));
    let first = is(call(&server, ("POST", &reply), Some("r"), &says).await, 200)["id"].clone();
    let passed = is(call(&server, ("POST", &forward), Some("f"), &passes).await, 200)["id"].clone();
    is(call(&server, ("DELETE", INBOX), None, &Value::Null).await, 200);
    assert_eq!(is(call(&server, ("POST", &reply), Some("r"), &says).await, 200)["id"], first);
    assert_eq!(is(call(&server, ("POST", &forward), Some("f"), &passes).await, 200)["id"], passed);
    is(call(&server, ("POST", &reply), Some("r"), &json!({ "text": "No." })).await, 409);
    let elsewhere = json!({ "to": "dave@example.org", "text": "See below." });
    is(call(&server, ("POST", &forward), Some("f"), &elsewhere).await, 409);
    // What was never said is not said now, and a key does not stand for another message.
    for key in [None, Some("new")] {
        let told = is(call(&server, ("POST", &reply), key, &says).await, 404);
        assert_eq!(told["name"], "not_found");
    }
}

/// A repeat is told as no success, and names the email.
async fn repeats(server: &Server, key: &str, body: &Value, (id, status, name): (&str, u16, &str)) {
    let told = is(call(server, ("POST", &format!("{RESEND}/emails")), Some(key), body).await, status);
    assert_eq!((&told["name"], told.as_object().unwrap().len()), (&json!(name), 3), "{told}");
    assert!(word(&told["message"]).contains(id), "{told}");
    let told = is(call(server, ("POST", &format!("{USESEND}/emails")), Some(key), body).await, 409);
    assert_eq!(told["error"]["code"], "NOT_UNIQUE", "{told}");
    assert!(word(&told["error"]["message"]).contains(id), "{told}");
}

#[tokio::test]
async fn a_repeat_of_what_did_not_go_is_no_success() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let send = format!("{RESEND}/emails");
    let later = json!({ "from": "agent@mailonce.test", "to": "ada@example.com", "subject": "Later", "text": "Hello.",
        "scheduled_at": "2027-01-01T00:00:00Z", "scheduledAt": "2027-01-01T00:00:00Z" });
    let id = word(&is(call(&server, ("POST", &send), Some("later"), &later).await, 200)["id"]);
    // An honest success stays one.
    assert_eq!(is(call(&server, ("POST", &send), Some("later"), &later).await, 200)["id"], id);
    is(call(&server, ("POST", &format!("{send}/{id}/cancel")), None, &Value::Null).await, 200);
    repeats(&server, "later", &later, (&id, 422, "validation_error")).await;

    let refused = mail("refuse@sandbox.mailonce.test");
    let id = word(&is(call(&server, ("POST", &send), Some("refused"), &refused).await, 200)["id"]);
    becomes(&server, &id, "failed").await;
    repeats(&server, "refused", &refused, (&id, 422, "validation_error")).await;

    let lost = mail("unknown@sandbox.mailonce.test");
    let id = word(&is(call(&server, ("POST", &send), Some("lost"), &lost).await, 200)["id"]);
    becomes(&server, &id, "unknown").await;
    repeats(&server, "lost", &lost, (&id, 409, "concurrent_idempotent_requests")).await;

    let sent = mail("ada@example.com");
    let id = word(&is(call(&server, ("POST", &send), Some("sent"), &sent).await, 200)["id"]);
    becomes(&server, &id, "sent").await;
    assert_eq!(is(call(&server, ("POST", &send), Some("sent"), &sent).await, 200)["id"], id);
}

#[tokio::test]
async fn one_copy_that_left_is_no_success_of_an_email_in_doubt() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let mut both = mail("unknown@sandbox.mailonce.test");
    both["to"] = json!(["unknown@sandbox.mailonce.test", "ada@example.com"]);
    let id = word(&is(call(&server, ("POST", &format!("{USESEND}/emails")), None, &both).await, 200)["emailId"]);
    becomes(&server, &id, "unknown").await;
    until(&server, &id, |email| email["handoffs"].as_array().unwrap().iter().any(|copy| copy["state"] == "sent")).await;
    let email = get(&server, &format!("{USESEND}/emails/{id}")).await;
    let told: Vec<&Value> = email["emailEvents"].as_array().unwrap().iter().map(|event| &event["status"]).collect();
    assert_eq!(
        (&email["latestStatus"], told),
        (&json!("DELIVERY_DELAYED"), vec![&json!("QUEUED"), &json!("DELIVERY_DELAYED")])
    );
}

#[tokio::test]
async fn what_is_held_is_told_alike_to_the_first_and_to_every_other() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let rule = json!({ "name": "ask", "direction": "outbound", "match": { "operator": "all", "conditions":
        [{ "field": "recipient.address", "operator": "is", "value": "boss@example.com" }] }, "actions": [{ "type": "approve" }] });
    is(call(&server, ("POST", "/v1/rules"), None, &rule).await, 201);
    let raise = mail("boss@example.com");
    let mut told = Vec::new();
    for _ in 0..2 {
        let answer = call(&server, ("POST", &format!("{RESEND}/emails")), Some("raise"), &raise).await;
        told.push(word(&is(answer, 409)["name"]));
    }
    assert_eq!(told, ["concurrent_idempotent_requests"; 2]);
    let held = get(&server, "/v1/emails?to=boss@example.com").await;
    let [one] = held["data"].as_array().unwrap().as_slice() else { panic!("{held}") };
    repeats(&server, "raise", &raise, (&word(&one["id"]), 409, "concurrent_idempotent_requests")).await;
    // Without a key there is nothing to ask for again.
    let answer = call(&server, ("POST", &format!("{RESEND}/emails")), None, &raise).await;
    assert_eq!(is(answer, 422)["name"], "validation_error");
    // In a batch it is the fault of its item.
    let both = json!([mail("ada@example.com"), raise]);
    for (base, status) in [(RESEND, 409), (USESEND, 409)] {
        let answer = call(&server, ("POST", &format!("{base}/emails/batch")), Some(base), &both).await;
        let text = is(answer, status).to_string();
        assert!(text.contains("item 1: this email was accepted as "), "{text}");
        assert!(text.contains("do not send the batch again under another key"), "{text}");
    }
    // Once a person let it go, the same call is a success.
    let open = get(&server, "/v1/escalations").await;
    for question in open["data"].as_array().unwrap() {
        let path = format!("/v1/escalations/{}/resolve", word(&question["id"]));
        let yes = json!({ "as": "release", "rev": question["rev"] });
        is(call(&server, ("POST", &path), None, &yes).await, 200);
    }
    becomes(&server, &word(&one["id"]), "sent").await;
    let answer = call(&server, ("POST", &format!("{RESEND}/emails")), Some("raise"), &raise).await;
    assert_eq!(is(answer, 200)["id"], one["id"]);
}

#[tokio::test]
async fn tags_have_the_letters_that_are_documented() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let path = format!("{RESEND}/emails");
    let tagged = |tags: Value| {
        let mut body = mail("ada@example.com");
        body["tags"] = tags;
        body
    };
    let letters = "Tags should only contain ASCII letters, numbers, underscores, or dashes.";
    let many: Vec<Value> = (0..76).map(|n| json!({ "name": format!("t{n}"), "value": "x" })).collect();
    for (tags, told) in [
        (json!([{ "name": "a b", "value": "x" }]), letters),
        (json!([{ "name": "a", "value": "ü" }]), letters),
        (json!([{ "name": "", "value": "x" }]), letters),
        (json!([{ "name": "a", "value": "x".repeat(257) }]), "Tags can contain no more than 256 characters."),
        (json!([{ "name": "x".repeat(257), "value": "a" }]), "Tags can contain no more than 256 characters."),
        (json!(many), "An email can have at most 75 tags."),
    ] {
        let answer = is(call(&server, ("POST", &path), None, &tagged(tags.clone())).await, 422);
        assert_eq!((&answer["name"], &answer["message"]), (&json!("validation_error"), &json!(told)), "{tags}");
        let batch = json!([tagged(tags)]);
        let answer = is(call(&server, ("POST", &format!("{path}/batch")), None, &batch).await, 422);
        assert_eq!(answer["message"], format!("item 0: {told}"));
    }
    let absent = tagged(json!([{ "name": "a" }]));
    assert_eq!(is(call(&server, ("POST", &path), None, &absent).await, 422)["name"], "missing_required_field");
    let good = tagged(json!([{ "name": "run_1-A", "value": "x".repeat(256) }]));
    is(call(&server, ("POST", &path), None, &good).await, 200);
}

#[tokio::test]
async fn files_are_of_the_type_that_was_said_or_that_their_name_says() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let mut body = mail("ada@example.com");
    body["attachments"] = json!([
        { "filename": "a.pdf", "content": "YQ==" },
        { "filename": "b.bin", "content": "Yg==", "content_type": "image/png" },
        { "filename": "c.what", "content": "Yw==" },
    ]);
    let id = word(&is(call(&server, ("POST", &format!("{RESEND}/emails")), None, &body).await, 200)["id"]);
    let files = get(&server, &format!("{RESEND}/emails/{id}/attachments")).await;
    let kinds: Vec<&str> =
        files["data"].as_array().unwrap().iter().map(|file| file["content_type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["application/pdf", "image/png", "application/octet-stream"]);
}

#[tokio::test]
async fn a_key_was_never_used_before_it_was_made() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let made = is(call(&server, ("POST", &format!("{RESEND}/api-keys")), None, &json!({ "name": "new" })).await, 201);
    let bearer = format!("Bearer {}", word(&made["token"]));
    server.call("GET", &format!("{RESEND}/emails"), &[("authorization", &bearer)], "").await;
    // When it was used is written down now and then, and in the end.
    assert!(server.terminate().await.success());
    let server = desk.dev(&[]).await;
    let keys = get(&server, &format!("{RESEND}/api-keys")).await;
    let key = keys["data"].as_array().unwrap().iter().find(|key| key["id"] == made["id"]).unwrap();
    assert!(word(&key["last_used_at"]) >= word(&key["created_at"]), "{key}");
}

#[tokio::test]
async fn a_change_of_an_inbox_shows_in_when_it_was() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    let before = get(&server, INBOX).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    is(call(&server, ("PATCH", INBOX), None, &json!({ "name": "Support" })).await, 200);
    let after = get(&server, INBOX).await;
    assert!(word(&after["updated_at"]) > word(&before["updated_at"]), "{after}");
    assert_eq!(after["created_at"], before["created_at"]);
}

#[tokio::test]
async fn pages_and_regions_are_taken_as_documented() {
    let desk = Desk::new();
    let server = desk.dev(&[]).await;
    is(call(&server, ("POST", &format!("{USESEND}/emails")), None, &mail("ada@example.com")).await, 200);
    for (query, rows) in [("page=1", 1), ("page=2", 0), ("page=100000&limit=50", 0)] {
        let page = get(&server, &format!("{USESEND}/emails?{query}")).await;
        assert_eq!((page["data"].as_array().unwrap().len(), &page["count"]), (rows, &json!(1)), "{query}");
    }
    for query in ["page=0", "page=-1", "page=x", "limit=0", "limit=51"] {
        let answer = call(&server, ("GET", &format!("{USESEND}/emails?{query}")), None, &Value::Null).await;
        assert_eq!(is(answer, 400)["error"]["code"], "BAD_REQUEST", "{query}");
    }
    let domains = format!("{RESEND}/domains");
    let wrong = json!({ "name": "a.example.com", "region": "moon-1" });
    assert_eq!(is(call(&server, ("POST", &domains), None, &wrong).await, 422)["name"], "validation_error");
    let good = json!({ "name": "a.example.com", "region": "eu-west-1" });
    assert_eq!(is(call(&server, ("POST", &domains), None, &good).await, 201)["region"], "us-east-1");
}
