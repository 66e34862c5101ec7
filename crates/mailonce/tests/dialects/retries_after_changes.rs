//! Retries after something changed and mails that were not sent: the first response is replayed, and a failure is never
//! reported as a success.

use serde_json::{Value, json};
use std::time::Duration;

use crate::{
    binary::{CliFixture, SpawnedServer},
    sdks::start_server_with_mail,
};

const RESEND_BASE: &str = "/compat/resend";
const USESEND_BASE: &str = "/compat/usesend/api/v1";
const INBOX_PATH: &str = "/compat/resend/inboxes/agent@mailonce.test";

/// One call with the API key and an optional idempotency key.
async fn api_call(
    server: &SpawnedServer,
    (method, path): (&str, &str),
    key: Option<&str>,
    body: &Value,
) -> (u16, Value) {
    let bearer = format!("Bearer {}", server.api_key);
    let mut headers = vec![("authorization", bearer.as_str())];
    headers.extend(key.map(|key| ("idempotency-key", key)));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.call(method, path, &headers, &body).await
}

/// Fails unless the response has this status, and returns its body.
#[track_caller]
fn expect_status(answer: (u16, Value), status: u16) -> Value {
    assert_eq!(answer.0, status, "{}", answer.1);
    answer.1
}

async fn get_json(server: &SpawnedServer, path: &str) -> Value {
    expect_status(api_call(server, ("GET", path), None, &Value::Null).await, 200)
}

fn string_value(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn email_to(to: &str) -> Value {
    json!({ "from": "agent@mailonce.test", "to": to, "subject": "News", "text": "Hello." })
}

/// Waits until an email has this state.
async fn wait_for_state(server: &SpawnedServer, id: &str, state: &str) {
    wait_until(server, id, |email| email["state"] == state).await;
}

/// Waits until a condition holds for an email.
async fn wait_until(server: &SpawnedServer, id: &str, condition: impl Fn(&Value) -> bool) {
    let mut email = Value::Null;
    for _ in 0..200 {
        email = get_json(server, &format!("/v1/emails/{id}")).await;
        if condition(&email) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the condition was not met in time: {email}");
}

/// The Resend path of the received mail with this subject.
async fn received_mail_path(server: &SpawnedServer, subject: &str) -> String {
    for _ in 0..200 {
        let threads = get_json(server, &format!("{INBOX_PATH}/threads")).await;
        let found = threads["data"].as_array().unwrap().iter().find(|thread| thread["subject"] == subject);
        if let Some(thread) = found {
            let path = format!("{INBOX_PATH}/threads/{}/emails", string_value(&thread["id"]));
            let emails = get_json(server, &path).await;
            return format!("{path}/{}", string_value(&emails["data"][0]["id"]));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{subject} did not arrive");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renaming_the_inbox_does_not_change_the_result_of_a_retry() {
    let cli = CliFixture::new();
    let server = start_server_with_mail(&cli, "honest").await;
    let (one, two) = (received_mail_path(&server, "Another").await, received_mail_path(&server, "With a file").await);
    let reply_body = json!({ "text": "Yes." });
    let forward_body = json!({ "to": "carol@example.org", "text": "See below." });
    let calls = [
        (format!("{one}/reply"), Some("reply"), &reply_body),
        (format!("{two}/reply"), None, &reply_body),
        (format!("{one}/forward"), Some("forward"), &forward_body),
        (format!("{two}/forward"), None, &forward_body),
    ];
    let mut firsts = Vec::new();
    for (path, key, body) in &calls {
        firsts.push(expect_status(api_call(&server, ("POST", path), *key, body).await, 200)["id"].clone());
    }
    for name in ["Ada", "Ada Lovelace"] {
        expect_status(api_call(&server, ("PATCH", INBOX_PATH), None, &json!({ "from_name": name })).await, 200);
        for ((path, key, body), first) in calls.iter().zip(&firsts) {
            let again = expect_status(api_call(&server, ("POST", path), *key, body).await, 200);
            assert_eq!(again["id"], *first, "{path}");
        }
    }
    // A different text is still a conflict.
    let other = json!({ "text": "No." });
    expect_status(api_call(&server, ("POST", &calls[0].0), Some("reply"), &other).await, 409);
    // New emails use the new name.
    let three = received_mail_path(&server, "A question for honest").await;
    let sent = expect_status(api_call(&server, ("POST", &format!("{three}/reply")), None, &reply_body).await, 200);
    let seen = get_json(&server, &format!("{RESEND_BASE}/emails/{}", string_value(&sent["id"]))).await;
    assert_eq!(seen["from"], "Ada Lovelace <agent@mailonce.test>");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_after_the_inbox_was_deleted_gets_the_first_response() {
    let cli = CliFixture::new();
    let server = start_server_with_mail(&cli, "honest").await;
    let path = received_mail_path(&server, "Another").await;
    let (reply, forward) = (format!("{path}/reply"), format!("{path}/forward"));
    let (reply_body, forward_body) =
        (json!({ "text": "Yes." }), json!({ "to": "carol@example.org", "text": "See below." }));
    let first = expect_status(api_call(&server, ("POST", &reply), Some("r"), &reply_body).await, 200)["id"].clone();
    let forwarded =
        expect_status(api_call(&server, ("POST", &forward), Some("f"), &forward_body).await, 200)["id"].clone();
    expect_status(api_call(&server, ("DELETE", INBOX_PATH), None, &Value::Null).await, 200);
    assert_eq!(expect_status(api_call(&server, ("POST", &reply), Some("r"), &reply_body).await, 200)["id"], first);
    assert_eq!(
        expect_status(api_call(&server, ("POST", &forward), Some("f"), &forward_body).await, 200)["id"],
        forwarded
    );
    expect_status(api_call(&server, ("POST", &reply), Some("r"), &json!({ "text": "No." })).await, 409);
    let elsewhere = json!({ "to": "dave@example.org", "text": "See below." });
    expect_status(api_call(&server, ("POST", &forward), Some("f"), &elsewhere).await, 409);
    // A new reply is refused, with or without a new key.
    for key in [None, Some("new")] {
        let response = expect_status(api_call(&server, ("POST", &reply), key, &reply_body).await, 404);
        assert_eq!(response["name"], "not_found");
    }
}

/// Checks that a replay is reported as a failure that names the email.
async fn expect_repeat_refused(server: &SpawnedServer, key: &str, body: &Value, (id, status, name): (&str, u16, &str)) {
    let response =
        expect_status(api_call(server, ("POST", &format!("{RESEND_BASE}/emails")), Some(key), body).await, status);
    assert_eq!((&response["name"], response.as_object().unwrap().len()), (&json!(name), 3), "{response}");
    assert!(string_value(&response["message"]).contains(id), "{response}");
    let response =
        expect_status(api_call(server, ("POST", &format!("{USESEND_BASE}/emails")), Some(key), body).await, 409);
    assert_eq!(response["error"]["code"], "NOT_UNIQUE", "{response}");
    assert!(string_value(&response["error"]["message"]).contains(id), "{response}");
}

#[tokio::test]
async fn a_replay_of_an_unsent_email_is_not_a_success() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let send = format!("{RESEND_BASE}/emails");
    let later = json!({ "from": "agent@mailonce.test", "to": "ada@example.com", "subject": "Later", "text": "Hello.",
        "scheduled_at": "2027-01-01T00:00:00Z", "scheduledAt": "2027-01-01T00:00:00Z" });
    let id = string_value(&expect_status(api_call(&server, ("POST", &send), Some("later"), &later).await, 200)["id"]);
    // A successful send is replayed as a success.
    assert_eq!(expect_status(api_call(&server, ("POST", &send), Some("later"), &later).await, 200)["id"], id);
    expect_status(api_call(&server, ("POST", &format!("{send}/{id}/cancel")), None, &Value::Null).await, 200);
    expect_repeat_refused(&server, "later", &later, (&id, 422, "validation_error")).await;

    let refused = email_to("refuse@sandbox.mailonce.test");
    let id =
        string_value(&expect_status(api_call(&server, ("POST", &send), Some("refused"), &refused).await, 200)["id"]);
    wait_for_state(&server, &id, "failed").await;
    expect_repeat_refused(&server, "refused", &refused, (&id, 422, "validation_error")).await;

    let lost = email_to("unknown@sandbox.mailonce.test");
    let id = string_value(&expect_status(api_call(&server, ("POST", &send), Some("lost"), &lost).await, 200)["id"]);
    wait_for_state(&server, &id, "unknown").await;
    expect_repeat_refused(&server, "lost", &lost, (&id, 409, "concurrent_idempotent_requests")).await;

    let sent = email_to("ada@example.com");
    let id = string_value(&expect_status(api_call(&server, ("POST", &send), Some("sent"), &sent).await, 200)["id"]);
    wait_for_state(&server, &id, "sent").await;
    assert_eq!(expect_status(api_call(&server, ("POST", &send), Some("sent"), &sent).await, 200)["id"], id);
}

#[tokio::test]
async fn one_sent_recipient_does_not_make_an_unknown_email_a_success() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let mut both = email_to("unknown@sandbox.mailonce.test");
    both["to"] = json!(["unknown@sandbox.mailonce.test", "ada@example.com"]);
    let id = string_value(
        &expect_status(api_call(&server, ("POST", &format!("{USESEND_BASE}/emails")), None, &both).await, 200)["emailId"],
    );
    wait_for_state(&server, &id, "unknown").await;
    wait_until(&server, &id, |email| email["handoffs"].as_array().unwrap().iter().any(|copy| copy["state"] == "sent"))
        .await;
    let email = get_json(&server, &format!("{USESEND_BASE}/emails/{id}")).await;
    let statuses: Vec<&Value> = email["emailEvents"].as_array().unwrap().iter().map(|event| &event["status"]).collect();
    assert_eq!(
        (&email["latestStatus"], statuses),
        (&json!("DELIVERY_DELAYED"), vec![&json!("QUEUED"), &json!("DELIVERY_DELAYED")])
    );
}

#[tokio::test]
async fn a_held_email_gets_the_same_response_on_every_call() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let rule = json!({ "name": "ask", "direction": "outbound", "match": { "operator": "all", "conditions":
        [{ "field": "recipient.address", "operator": "is", "value": "boss@example.com" }] }, "actions": [{ "type": "approve" }] });
    expect_status(api_call(&server, ("POST", "/v1/rules"), None, &rule).await, 201);
    let raise = email_to("boss@example.com");
    let mut names = Vec::new();
    for _ in 0..2 {
        let answer = api_call(&server, ("POST", &format!("{RESEND_BASE}/emails")), Some("raise"), &raise).await;
        names.push(string_value(&expect_status(answer, 409)["name"]));
    }
    assert_eq!(names, ["concurrent_idempotent_requests"; 2]);
    let held = get_json(&server, "/v1/emails?to=boss@example.com").await;
    let [one] = held["data"].as_array().unwrap().as_slice() else { panic!("{held}") };
    expect_repeat_refused(&server, "raise", &raise, (&string_value(&one["id"]), 409, "concurrent_idempotent_requests"))
        .await;
    // Without a key the call cannot be retried.
    let answer = api_call(&server, ("POST", &format!("{RESEND_BASE}/emails")), None, &raise).await;
    assert_eq!(expect_status(answer, 422)["name"], "validation_error");
    // In a batch the error names the item.
    let both = json!([email_to("ada@example.com"), raise]);
    for (base, status) in [(RESEND_BASE, 409), (USESEND_BASE, 409)] {
        let answer = api_call(&server, ("POST", &format!("{base}/emails/batch")), Some(base), &both).await;
        let text = expect_status(answer, status).to_string();
        assert!(text.contains("item 1: this email was accepted as "), "{text}");
        assert!(text.contains("do not send the batch again under another key"), "{text}");
    }
    // After a person releases it, the same call is a success.
    let open = get_json(&server, "/v1/escalations").await;
    for escalation in open["data"].as_array().unwrap() {
        let path = format!("/v1/escalations/{}/resolve", string_value(&escalation["id"]));
        let release = json!({ "as": "release", "rev": escalation["rev"] });
        expect_status(api_call(&server, ("POST", &path), None, &release).await, 200);
    }
    wait_for_state(&server, &string_value(&one["id"]), "sent").await;
    let answer = api_call(&server, ("POST", &format!("{RESEND_BASE}/emails")), Some("raise"), &raise).await;
    assert_eq!(expect_status(answer, 200)["id"], one["id"]);
}

#[tokio::test]
async fn tags_accept_only_the_documented_characters() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let path = format!("{RESEND_BASE}/emails");
    let tagged = |tags: Value| {
        let mut body = email_to("ada@example.com");
        body["tags"] = tags;
        body
    };
    let letters = "Tags should only contain ASCII letters, numbers, underscores, or dashes.";
    let many: Vec<Value> = (0..76).map(|n| json!({ "name": format!("t{n}"), "value": "x" })).collect();
    for (tags, message) in [
        (json!([{ "name": "a b", "value": "x" }]), letters),
        (json!([{ "name": "a", "value": "ü" }]), letters),
        (json!([{ "name": "", "value": "x" }]), letters),
        (json!([{ "name": "a", "value": "x".repeat(257) }]), "Tags can contain no more than 256 characters."),
        (json!([{ "name": "x".repeat(257), "value": "a" }]), "Tags can contain no more than 256 characters."),
        (json!(many), "An email can have at most 75 tags."),
    ] {
        let answer = expect_status(api_call(&server, ("POST", &path), None, &tagged(tags.clone())).await, 422);
        assert_eq!((&answer["name"], &answer["message"]), (&json!("validation_error"), &json!(message)), "{tags}");
        let batch = json!([tagged(tags)]);
        let answer = expect_status(api_call(&server, ("POST", &format!("{path}/batch")), None, &batch).await, 422);
        assert_eq!(answer["message"], format!("item 0: {message}"));
    }
    let absent = tagged(json!([{ "name": "a" }]));
    assert_eq!(
        expect_status(api_call(&server, ("POST", &path), None, &absent).await, 422)["name"],
        "missing_required_field"
    );
    let good = tagged(json!([{ "name": "run_1-A", "value": "x".repeat(256) }]));
    expect_status(api_call(&server, ("POST", &path), None, &good).await, 200);
}

#[tokio::test]
async fn attachments_have_the_given_type_or_that_of_their_file_name() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let mut body = email_to("ada@example.com");
    body["attachments"] = json!([
        { "filename": "a.pdf", "content": "YQ==" },
        { "filename": "b.bin", "content": "Yg==", "content_type": "image/png" },
        { "filename": "c.what", "content": "Yw==" },
    ]);
    let id = string_value(
        &expect_status(api_call(&server, ("POST", &format!("{RESEND_BASE}/emails")), None, &body).await, 200)["id"],
    );
    let files = get_json(&server, &format!("{RESEND_BASE}/emails/{id}/attachments")).await;
    let kinds: Vec<&str> =
        files["data"].as_array().unwrap().iter().map(|file| file["content_type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["application/pdf", "image/png", "application/octet-stream"]);
}

#[tokio::test]
async fn last_used_at_is_not_before_created_at() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let created = expect_status(
        api_call(&server, ("POST", &format!("{RESEND_BASE}/api-keys")), None, &json!({ "name": "new" })).await,
        201,
    );
    let bearer = format!("Bearer {}", string_value(&created["token"]));
    server.call("GET", &format!("{RESEND_BASE}/emails"), &[("authorization", &bearer)], "").await;
    // The time of last use is written periodically and at shutdown.
    assert!(server.terminate().await.success());
    let server = cli.start_dev(&[]).await;
    let keys = get_json(&server, &format!("{RESEND_BASE}/api-keys")).await;
    let key = keys["data"].as_array().unwrap().iter().find(|key| key["id"] == created["id"]).unwrap();
    assert!(string_value(&key["last_used_at"]) >= string_value(&key["created_at"]), "{key}");
}

#[tokio::test]
async fn changing_an_inbox_updates_updated_at() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let before = get_json(&server, INBOX_PATH).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    expect_status(api_call(&server, ("PATCH", INBOX_PATH), None, &json!({ "name": "Support" })).await, 200);
    let after = get_json(&server, INBOX_PATH).await;
    assert!(string_value(&after["updated_at"]) > string_value(&before["updated_at"]), "{after}");
    assert_eq!(after["created_at"], before["created_at"]);
}

#[tokio::test]
async fn pages_and_regions_are_validated_as_documented() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    expect_status(
        api_call(&server, ("POST", &format!("{USESEND_BASE}/emails")), None, &email_to("ada@example.com")).await,
        200,
    );
    for (query, rows) in [("page=1", 1), ("page=2", 0), ("page=100000&limit=50", 0)] {
        let page = get_json(&server, &format!("{USESEND_BASE}/emails?{query}")).await;
        assert_eq!((page["data"].as_array().unwrap().len(), &page["count"]), (rows, &json!(1)), "{query}");
    }
    for query in ["page=0", "page=-1", "page=x", "limit=0", "limit=51"] {
        let answer = api_call(&server, ("GET", &format!("{USESEND_BASE}/emails?{query}")), None, &Value::Null).await;
        assert_eq!(expect_status(answer, 400)["error"]["code"], "BAD_REQUEST", "{query}");
    }
    let domains = format!("{RESEND_BASE}/domains");
    let wrong = json!({ "name": "a.example.com", "region": "moon-1" });
    assert_eq!(
        expect_status(api_call(&server, ("POST", &domains), None, &wrong).await, 422)["name"],
        "validation_error"
    );
    let good = json!({ "name": "a.example.com", "region": "eu-west-1" });
    assert_eq!(expect_status(api_call(&server, ("POST", &domains), None, &good).await, 201)["region"], "us-east-1");
}
