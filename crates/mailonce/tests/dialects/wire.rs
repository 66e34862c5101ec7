//! The dialects without a socket and with a test clock: requests that no SDK would send, and behavior over a day.

use serde_json::{Value, json};
use std::collections::BTreeSet;

use crate::{
    api_fixture::{DAY, HOUR, World, mail, mail_with},
    requests::{TestRequest, delete, get, patch, post},
};

const RESEND_BASE: &str = "/compat/resend";
const USESEND_BASE: &str = "/compat/usesend/api/v1";

fn resend_path(path: &str) -> String {
    format!("{RESEND_BASE}{path}")
}

fn usesend_path(path: &str) -> String {
    format!("{USESEND_BASE}{path}")
}

/// Checks a Resend error and returns its message.
#[track_caller]
fn expect_resend_error(answer: &crate::requests::TestResponse, status: u16, name: &str) -> String {
    assert_eq!(answer.header("content-type"), Some("application/json"), "{}", answer.text);
    let body = &answer.body;
    assert_eq!(
        (answer.status, &body["statusCode"], &body["name"]),
        (status, &json!(status), &json!(name)),
        "{}",
        answer.text
    );
    assert_eq!(body.as_object().unwrap().len(), 3);
    body["message"].as_str().unwrap().to_owned()
}

/// Checks a useSend error and returns its message.
#[track_caller]
fn expect_usesend_error(answer: &crate::requests::TestResponse, status: u16, code: &str) -> String {
    assert_eq!((answer.status, &answer.body["error"]["code"]), (status, &json!(code)), "{}", answer.text);
    assert_eq!(answer.body.as_object().unwrap().len(), 1);
    answer.body["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_missing_or_wrong_api_key_gets_the_error_of_the_dialect() {
    let world = World::memory().await;
    for path in ["/emails", "/what", "/emails/x/cancel"] {
        let answer = world.call(post(&resend_path(path)).anonymous().json(&mail())).await;
        assert_eq!(
            expect_resend_error(&answer, 401, "missing_api_key"),
            "Missing API key in the authorization header."
        );
        let answer = world.call(get(&resend_path(path)).bearer("re_wrong")).await;
        assert_eq!(expect_resend_error(&answer, 403, "invalid_api_key"), "API key is invalid.");
        let answer = world.call(post(&usesend_path(path)).anonymous().json(&mail())).await;
        assert_eq!(expect_usesend_error(&answer, 401, "UNAUTHORIZED"), "No Authorization header provided");
        let answer = world.call(get(&usesend_path(path)).bearer("us_wrong_wrong")).await;
        assert_eq!(expect_usesend_error(&answer, 403, "FORBIDDEN"), "Invalid API token");
    }
    // useSend reads the second word of the header, whatever the scheme is.
    let odd = get(&usesend_path("/domains")).header("authorization", &format!("Token {}", world.secret));
    world.call(odd).await.expect_status(200);
}

#[tokio::test]
async fn unusual_bodies_are_accepted_and_invalid_ones_refused() {
    let world = World::memory().await;
    let sent =
        world.call(post(&resend_path("/emails")).header("IDEMPOTENCY-KEY", "k").json(&mail())).await.expect_status(200);
    let id = sent.body["id"].as_str().unwrap();
    // A body on GET, and an empty body declared as JSON.
    world.call(get(&resend_path(&format!("/emails/{id}"))).json_bytes("{}")).await.expect_status(200);
    let later = mail_with(json!({ "scheduled_at": "in 1 hour", "subject": "Later" }));
    for body in ["", "{}"] {
        let other = world.call(post(&resend_path("/emails")).json(&later)).await.expect_status(200).body["id"]
            .as_str()
            .unwrap()
            .to_owned();
        world.call(post(&resend_path(&format!("/emails/{other}/cancel"))).json_bytes(body)).await.expect_status(200);
    }
    // Without a content type, and with unknown members.
    let odd = mail_with(json!({ "region": "x", "cc": null, "attachments": null, "headers": null, "html": null }));
    let again = world.call(post(&resend_path("/emails")).key("k").raw_body(odd.to_string())).await.expect_status(200);
    assert_eq!(again.body["id"], id);
    for body in ["", "[]", "7", "\"x\"", "null"] {
        assert!(world.call(post(&resend_path("/emails")).json_bytes(body)).await.status >= 400, "{body}");
        assert!(world.call(post(&usesend_path("/emails")).json_bytes(body)).await.status >= 400, "{body}");
    }
    expect_resend_error(&world.call(post(&resend_path("/emails")).json_bytes("{")).await, 400, "validation_error");
    let message =
        expect_usesend_error(&world.call(post(&usesend_path("/emails")).json_bytes("{")).await, 400, "BAD_REQUEST");
    assert_eq!(message, "Malformed JSON in request body");
    assert_eq!(world.email_count().await, 3);
}

#[tokio::test]
async fn invalid_fields_get_the_documented_error_names() {
    let world = World::memory().await;
    let answer = |more: Value| post(&resend_path("/emails")).json(&mail_with(more));
    for (more, name) in [
        (json!({ "from": null }), "missing_required_field"),
        (json!({ "to": [] }), "missing_required_field"),
        (json!({ "subject": null }), "missing_required_field"),
        (json!({ "text": null }), "missing_required_field"),
        (json!({ "to": "x" }), "validation_error"),
        (json!({ "to": [7] }), "validation_error"),
        (json!({ "from": "x" }), "validation_error"),
        (json!({ "subject": ["x"] }), "validation_error"),
        (json!({ "to": vec!["a@example.com"; 51] }), "validation_error"),
        (json!({ "scheduled_at": "soon" }), "validation_error"),
        (json!({ "topic_id": "x" }), "validation_error"),
        (json!({ "attachments": [{ "filename": "a", "content": "?" }] }), "invalid_attachment"),
        (json!({ "attachments": [{ "filename": "a" }] }), "invalid_attachment"),
    ] {
        expect_resend_error(&world.call(answer(more)).await, 422, name);
    }
    expect_resend_error(&world.call(answer(json!({})).key("")).await, 400, "invalid_idempotency_key");
    expect_resend_error(&world.call(answer(json!({})).key(&"k".repeat(257))).await, 400, "invalid_idempotency_key");
    expect_resend_error(&world.get(&resend_path("/what")).await, 404, "not_found");
    expect_resend_error(&world.call(delete(&resend_path("/emails"))).await, 405, "method_not_allowed");
    expect_resend_error(&world.get(&resend_path("/emails/x")).await, 422, "invalid_parameter");
    expect_resend_error(&world.get(&resend_path("/emails?limit=0")).await, 422, "validation_error");
    let id = uuid::Uuid::from_u128(7);
    expect_resend_error(
        &world.get(&resend_path(&format!("/emails?after={id}&before={id}"))).await,
        422,
        "validation_error",
    );
    expect_usesend_error(&world.get(&usesend_path("/contactBooks/1/contacts")).await, 501, "NOT_IMPLEMENTED");
    expect_usesend_error(&world.get(&usesend_path("/what")).await, 404, "NOT_FOUND");
    for path in ["/contacts", "/broadcasts/x/send", "/segments", "/topics/x", "/automations"] {
        let answer = world.call(post(&resend_path(path)).json(&json!({}))).await;
        assert!(expect_resend_error(&answer, 501, "not_implemented").contains("not available"), "{path}");
    }
    expect_usesend_error(&world.call(delete(&usesend_path("/emails"))).await, 405, "METHOD_NOT_ALLOWED");
    assert_eq!(
        expect_usesend_error(
            &world.call(post(&usesend_path("/emails")).key("").json(&mail())).await,
            400,
            "BAD_REQUEST"
        ),
        "Invalid Idempotency-Key length"
    );
    assert_eq!(world.email_count().await, 0);
}

#[tokio::test]
async fn a_dialect_remembers_keys_for_a_day_and_the_api_for_longer() {
    let world = World::sqlite().await;
    let send = async |path: &str, key: &str| {
        let answer = world.call(post(path).key(key).json(&mail())).await;
        let body = &answer.body;
        body["id"].as_str().or(body["emailId"].as_str()).map(str::to_owned).unwrap_or(answer.text)
    };
    let paths = [resend_path("/emails"), usesend_path("/emails"), "/v1/emails".to_owned()];
    let mut firsts = Vec::new();
    for (n, path) in paths.iter().enumerate() {
        firsts.push(send(path, &format!("k{n}")).await);
    }
    world.hand_off_due().await;
    world.advance_clock(23 * HOUR);
    for (n, path) in paths.iter().enumerate() {
        assert_eq!(send(path, &format!("k{n}")).await, firsts[n]);
    }
    world.advance_clock(2 * HOUR);
    for (n, path) in paths.iter().enumerate() {
        assert_eq!(send(path, &format!("k{n}")).await == firsts[n], n == 2, "{path}");
    }
}

#[tokio::test]
async fn a_dialect_remembers_a_batch_key_for_a_day() {
    let world = World::sqlite().await;
    let batch = [mail(), mail_with(json!({ "subject": "Two" }))];
    let other = [mail_with(json!({ "subject": "Three" }))];
    let send =
        async |items: &[Value]| world.call(post(&resend_path("/emails/batch")).key("b").json(&json!(items))).await;
    let first = send(&batch).await.expect_status(200).body;
    world.hand_off_due().await;
    world.advance_clock(DAY - HOUR);
    assert_eq!(send(&batch).await.expect_status(200).body, first);
    expect_resend_error(&send(&other).await, 409, "invalid_idempotent_request");
    world.advance_clock(2 * HOUR);
    send(&other).await.expect_status(200);
}

#[tokio::test]
async fn look_alikes_without_a_key_are_not_held_in_a_dialect() {
    let world = World::sqlite().await;
    let mut ids = BTreeSet::new();
    for (path, field) in [(resend_path("/emails"), "id"), (usesend_path("/emails"), "emailId")] {
        for end in [".", "!"] {
            let near = mail_with(json!({ "text": format!("The same words {field}{end}") }));
            let sent = world.call(post(&path).json(&near)).await.expect_status(200);
            let id = sent.body[field].as_str().unwrap().to_owned();
            assert_eq!(world.email(&id).await["state"], "queued");
            ids.insert(id);
        }
    }
    assert_eq!(ids.len(), 4, "each is a mail of its own");
    // The native API holds what the dialects send.
    let near = mail_with(json!({ "text": "The same words id?" }));
    let held = world.send_without_key(&near).await.expect_status(202);
    assert_eq!(held.body["state"], "held");
    let id = held.body["id"].as_str().unwrap();
    // A held mail is shown as queued and not as sent.
    assert_eq!(world.get(&resend_path(&format!("/emails/{id}"))).await.expect_status(200).body["last_event"], "queued");
    assert_eq!(
        world.get(&usesend_path(&format!("/emails/{id}"))).await.expect_status(200).body["latestStatus"],
        "QUEUED"
    );
}

/// A body with the fields that any of the calls needs.
fn catch_all_body() -> Value {
    json!({
        "text": "x", "to": "x@example.com", "scheduled_at": "in 1 hour", "folder": "inbox", "name": "x", "labels": [],
    })
}

/// Creates one of each resource. Returns the email's id and the calls of the Resend dialect that name a resource.
async fn create_resources_and_calls(world: &World) -> (String, Vec<(&'static str, String)>) {
    let email = world.send("k", &mail()).await.expect_status(202).body["id"].as_str().unwrap().to_owned();
    let inbox = world.create_inbox("agent").await;
    world.receive_mail(&["agent@agents.test"], "From: a@b.test\nMessage-ID: <1@b.test>\nSubject: Hi\n\nHello\n").await;
    let [message] = &world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200).rows()[..] else {
        panic!()
    };
    let (message, thread) = (message["id"].as_str().unwrap(), message["thread_id"].as_str().unwrap());
    let domain = world.post("/v1/domains", &json!({ "name": "ours.example.com" })).await.expect_status(201).body["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let hook = json!({ "endpoint": "https://example.com/in", "events": ["email.sent"] });
    let hook =
        world.post(&resend_path("/webhooks"), &hook).await.expect_status(201).body["id"].as_str().unwrap().to_owned();
    let draft = world.post(&resend_path(&format!("/inboxes/{inbox}/drafts")), &json!({ "text": "x" })).await;
    let draft = draft.expect_status(200).body["id"].as_str().unwrap().to_owned();
    let label = json!({ "name": "urgent" });
    world.post(&resend_path(&format!("/inboxes/{inbox}/labels")), &label).await.expect_status(200);
    let gone = json!({ "email": "gone@example.com" });
    let gone = world.post(&resend_path("/suppressions"), &gone).await.expect_status(200).body["id"].clone();
    let gone = gone.as_str().unwrap();
    let key =
        world.post(&resend_path("/api-keys"), &json!({ "name": "x" })).await.expect_status(201).body["id"].clone();
    let key = key.as_str().unwrap();
    let mut calls = inbox_calls(&inbox, thread, &draft);
    calls.extend([
        ("GET", "/suppressions/gone@example.com".to_owned()),
        ("GET", format!("/suppressions/{gone}")),
        ("DELETE", format!("/suppressions/{gone}")),
        ("PATCH", format!("/domains/{domain}")),
        ("PATCH", format!("/api-keys/{key}")),
        ("DELETE", format!("/api-keys/{key}")),
        ("GET", format!("/emails/{email}")),
        ("PATCH", format!("/emails/{email}")),
        ("POST", format!("/emails/{email}/cancel")),
        ("GET", format!("/emails/{email}/attachments")),
        ("GET", format!("/emails/receiving/{message}")),
        ("GET", format!("/emails/receiving/{message}/attachments")),
        ("GET", format!("/inboxes/{inbox}")),
        ("GET", "/inboxes/agent@agents.test".to_owned()),
        ("PATCH", format!("/inboxes/{inbox}")),
        ("DELETE", format!("/inboxes/{inbox}")),
        ("GET", format!("/inboxes/{inbox}/threads")),
        ("GET", format!("/inboxes/{inbox}/threads/{thread}")),
        ("PATCH", format!("/inboxes/{inbox}/threads/{thread}")),
        ("GET", format!("/inboxes/{inbox}/threads/{thread}/emails")),
        ("POST", format!("/inboxes/{inbox}/threads/{thread}/emails/{message}/reply")),
        ("POST", format!("/inboxes/{inbox}/threads/{thread}/emails/{message}/forward")),
        ("GET", format!("/webhooks/{hook}")),
        ("PATCH", format!("/webhooks/{hook}")),
        ("DELETE", format!("/webhooks/{hook}")),
        ("POST", format!("/webhooks/{hook}/signing-secret/rotate")),
        ("GET", format!("/webhooks/{hook}/events")),
        ("GET", format!("/domains/{domain}")),
        ("POST", format!("/domains/{domain}/verify")),
        ("DELETE", format!("/domains/{domain}")),
    ]);
    (email, calls)
}

/// The calls that name a thread, a label or a draft of an inbox.
fn inbox_calls(inbox: &str, thread: &str, draft: &str) -> Vec<(&'static str, String)> {
    vec![
        ("GET", format!("/inboxes/{inbox}/threads/search?query=hi")),
        ("DELETE", format!("/inboxes/{inbox}/threads/{thread}")),
        ("POST", format!("/inboxes/{inbox}/threads/{thread}/labels")),
        ("PUT", format!("/inboxes/{inbox}/threads/{thread}/labels")),
        ("DELETE", format!("/inboxes/{inbox}/threads/{thread}/labels/urgent")),
        ("GET", format!("/inboxes/{inbox}/labels")),
        ("POST", format!("/inboxes/{inbox}/labels")),
        ("PATCH", format!("/inboxes/{inbox}/labels/urgent")),
        ("DELETE", format!("/inboxes/{inbox}/labels/urgent")),
        ("GET", format!("/inboxes/{inbox}/drafts")),
        ("POST", format!("/inboxes/{inbox}/drafts")),
        ("GET", format!("/inboxes/{inbox}/drafts/{draft}")),
        ("PATCH", format!("/inboxes/{inbox}/drafts/{draft}")),
        ("POST", format!("/inboxes/{inbox}/drafts/{draft}/send")),
        ("DELETE", format!("/inboxes/{inbox}/drafts/{draft}")),
    ]
}

#[tokio::test]
async fn another_team_gets_not_found_on_every_route() {
    let world = World::sqlite().await.with_inbox_domain().await;
    let other_team = world.create_team("strangers").await;
    let (email, calls) = create_resources_and_calls(&world).await;
    let body = catch_all_body();
    for (method, path) in calls {
        let answer = world.call(TestRequest::new(method, &resend_path(&path)).bearer(&other_team).json(&body)).await;
        expect_resend_error(&answer, 404, "not_found");
    }
    for path in ["/emails", "/emails/receiving", "/inboxes", "/webhooks", "/domains", "/suppressions"] {
        assert_eq!(
            world.call(get(&resend_path(path)).bearer(&other_team)).await.expect_status(200).body["data"],
            json!([]),
            "{path}"
        );
    }
    for (method, path) in [
        ("GET", format!("/emails/{email}")),
        ("PATCH", format!("/emails/{email}")),
        ("POST", format!("/emails/{email}/cancel")),
    ] {
        let body = json!({ "scheduledAt": "2027-01-01T00:00:00Z" });
        expect_usesend_error(
            &world.call(TestRequest::new(method, &usesend_path(&path)).bearer(&other_team).json(&body)).await,
            404,
            "NOT_FOUND",
        );
    }
    assert_eq!(
        world.call(get(&usesend_path("/emails")).bearer(&other_team)).await.expect_status(200).body["data"],
        json!([])
    );
    assert_eq!(world.call(get(&usesend_path("/domains")).bearer(&other_team)).await.expect_status(200).body, json!([]));
}

#[tokio::test]
async fn a_key_of_another_inbox_is_refused_on_every_route() {
    let world = World::sqlite().await.with_inbox_domain().await;
    let (email, calls) = create_resources_and_calls(&world).await;
    let second = world.create_inbox("second").await;
    let scopes = ["send", "read", "reply", "secrets", "admin"];
    let tied = world.create_api_key(&json!({ "name": "tied", "scopes": scopes, "inboxes": [second] })).await;
    let mut all: Vec<(&str, String)> = calls.into_iter().map(|(method, path)| (method, resend_path(&path))).collect();
    for (method, path) in [("GET", ""), ("PATCH", ""), ("POST", "/cancel")] {
        all.push((method, usesend_path(&format!("/emails/{email}{path}"))));
    }
    let sends = ["/emails", "/emails/batch"];
    all.extend(sends.iter().flat_map(|path| [("POST", resend_path(path)), ("POST", usesend_path(path))]));
    for (method, path) in all {
        let mail = json!({ "from": "agent@agents.test", "to": "x@example.com", "subject": "x", "text": "x" });
        let body = match (method, path.ends_with("/batch"), path.ends_with("/emails")) {
            ("POST", true, _) => json!([mail]),
            ("POST", _, true) => mail,
            _ if path.contains("usesend") => json!({ "scheduledAt": "2027-01-01T00:00:00Z" }),
            _ => catch_all_body(),
        };
        let answer = world.call(TestRequest::new(method, &path).bearer(&tied).json(&body)).await;
        // Resend answers 401 for a restricted key.
        let restricted = answer.body["name"] == "restricted_api_key" && answer.status == 401;
        assert!(
            restricted || [403, 404].contains(&answer.status),
            "{method} {path}: {} {}",
            answer.status,
            answer.body
        );
    }
    for path in
        [resend_path("/emails"), resend_path("/emails/receiving"), resend_path("/webhooks"), usesend_path("/emails")]
    {
        let answer = world.call(get(&path).bearer(&tied)).await;
        let restricted = [401, 403].contains(&answer.status);
        assert!(restricted || answer.body["data"] == json!([]), "{path}: {}", answer.body);
    }
    let inboxes = world.call(get(&resend_path("/inboxes")).bearer(&tied)).await.expect_status(200);
    assert_eq!(inboxes.rows().len(), 1, "{}", inboxes.body);
}

#[tokio::test]
async fn a_send_only_key_cannot_read() {
    let world = World::memory().await;
    let send_only = world.create_api_key(&json!({ "name": "only", "scopes": ["send"] })).await;
    world.call(post(&resend_path("/emails")).bearer(&send_only).json(&mail())).await.expect_status(200);
    for path in ["/emails", "/emails/receiving", "/inboxes", "/webhooks", "/domains", "/api-keys"] {
        let answer = world.call(get(&resend_path(path)).bearer(&send_only)).await;
        assert_eq!(
            expect_resend_error(&answer, 401, "restricted_api_key"),
            "This API key is restricted to only send emails."
        );
    }
    let read = world.create_api_key(&json!({ "name": "read", "scopes": ["read"] })).await;
    let message = expect_resend_error(
        &world.call(post(&resend_path("/emails")).bearer(&read).json(&mail())).await,
        401,
        "restricted_api_key",
    );
    assert_eq!(message, "This API key is restricted: this call needs the scope `send`.");
    expect_usesend_error(
        &world.call(post(&usesend_path("/emails")).bearer(&read).json(&mail())).await,
        403,
        "FORBIDDEN",
    );
    expect_usesend_error(
        &world.call(patch(&usesend_path("/emails/x")).bearer(&read).json(&json!({}))).await,
        403,
        "FORBIDDEN",
    );
}

#[tokio::test]
async fn download_links_are_signed_and_expire_after_an_hour() {
    let world = World::sqlite().await.with_inbox_domain().await;
    world.create_inbox("agent").await;
    world.receive_mail(&["agent@agents.test"], "From: a@b.test\nMessage-ID: <1@b.test>\nSubject: Hi\n\nHello\n").await;
    let [received] =
        &world.get(&resend_path("/emails/receiving")).await.expect_status(200).body["data"].as_array().unwrap().clone()
            [..]
    else {
        panic!()
    };
    let path = resend_path(&format!("/emails/receiving/{}", received["id"].as_str().unwrap()));
    let url = world.get(&path).await.expect_status(200).body["raw"]["download_url"].as_str().unwrap().to_owned();
    assert!(world.call(get(&url).anonymous()).await.expect_status(200).text.contains("Subject: Hi"));
    // A changed expiry, another kind of file, a wrong signature, and a path that does not exist.
    let (payload, mac) = url.rsplit_once('.').unwrap();
    let tampered = [
        format!("{payload}0.{mac}"),
        url.replace("raw.", "file."),
        format!("{payload}.{}", "0".repeat(64)),
        resend_path("/files/x"),
    ];
    for url in tampered {
        expect_resend_error(&world.call(get(&url).anonymous()).await, 404, "not_found");
    }
    world.advance_clock(HOUR);
    expect_resend_error(&world.call(get(&url).anonymous()).await, 404, "not_found");
    // Raw bytes need the `secrets` scope.
    let read = world.create_api_key(&json!({ "name": "read", "scopes": ["read"] })).await;
    let plain = world.call(get(&path).bearer(&read)).await.expect_status(200).body;
    assert_eq!((&plain["raw"], &plain["html"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn usesend_pages_show_the_total_count() {
    for world in [World::memory().await, World::sqlite().await] {
        for n in 0..7 {
            world
                .call(post(&usesend_path("/emails")).json(&mail_with(json!({ "subject": format!("{n}") }))))
                .await
                .expect_status(200);
            world.advance_clock(HOUR);
        }
        for (query, rows, count) in [
            ("", 7, 7),
            ("?limit=3", 3, 7),
            ("?limit=3&page=3", 1, 7),
            ("?limit=3&page=9", 0, 7),
            ("?startDate=2026-11-15T12:00:00Z", 5, 5),
            ("?endDate=2026-11-15T12:00:00Z&limit=1", 1, 2),
            ("?startDate=2026-11-15T11:00:00Z&endDate=2026-11-15T13:00:00Z&limit=1&page=2", 1, 2),
            ("?startDate=2026-11-15T11:00:00Z&endDate=2026-11-15T11:00:00.001Z", 1, 1),
            ("?startDate=2026-11-15T11:00:00.001Z&endDate=2026-11-15T11:59:59Z", 0, 0),
        ] {
            let page = world.get(&usesend_path(&format!("/emails{query}"))).await.expect_status(200).body;
            assert_eq!((page["data"].as_array().unwrap().len(), &page["count"]), (rows, &json!(count)), "{query}");
        }
    }
    let world = World::memory().await;
    let message = expect_usesend_error(&world.get(&usesend_path("/emails?domainId=3")).await, 400, "BAD_REQUEST");
    assert_eq!(message, "domainId is not supported; leave it out");
}

#[tokio::test]
async fn error_messages_use_the_words_of_the_dialect() {
    let world = World::memory().await;
    for (body, expected) in [
        (json!(7), "invalid type: integer `7`, expected an object"),
        (
            json!({ "to": 7 }),
            "Invalid `to` field: invalid type: integer `7`, expected an address or a list of addresses",
        ),
        (mail_with(json!({ "text": {} })), "Invalid `text` field: invalid type: an object, expected a string"),
        (
            mail_with(json!({ "attachments": "x" })),
            "Invalid `attachments` field: invalid type: string \"x\", expected a list",
        ),
        (
            mail_with(json!({ "to": vec!["a@example.com"; 51] })),
            "The `to` field names 51 recipients with cc and bcc; at most 50 fit one email.",
        ),
        (
            mail_with(json!({ "headers": { "Date": "x" } })),
            "The `headers.Date` field is written by mailonce and cannot be set.",
        ),
    ] {
        let answer = world.call(post(&resend_path("/emails")).json(&body)).await;
        let message = answer.body["message"].as_str().unwrap();
        assert!(message.starts_with(expected) && !message.contains("struct"), "{message}");
    }
    for (body, expected) in [
        (json!(7), "invalid type: integer `7`, expected an object"),
        (mail_with(json!({ "scheduledAt": "soon" })), "scheduledAt must be an ISO 8601 time with an offset"),
        (json!([7]), "expected a JSON object, found a list"),
        (mail_with(json!({ "scheduledAt": 7 })), "scheduledAt: invalid type: integer `7`, expected a string"),
        (mail_with(json!({ "replyTo": "x" })), "replyTo"),
    ] {
        let answer = world.call(post(&usesend_path("/emails")).json(&body)).await;
        let message = expect_usesend_error(&answer, 400, "BAD_REQUEST");
        assert!(message.starts_with(expected) && !message.contains("struct"), "{message}");
    }
    let id = uuid::Uuid::from_u128(7);
    for (path, body, status, expected) in [
        (
            "/emails/batch",
            json!([mail_with(json!({ "scheduled_at": "soon" }))]),
            422,
            "item 0: The `scheduled_at` field must be an RFC 3339 time",
        ),
        ("/emails/batch", json!([7]), 422, "item 0: invalid type: integer `7`, expected an object"),
        (
            "/emails",
            mail_with(json!({ "attachments": [{ "content": "?" }] })),
            422,
            "The `attachments[0].content` field is not base64",
        ),
        ("/emails", mail_with(json!({ "tags": [{ "value": "x" }] })), 422, "Missing `tags[0].name` field."),
        ("/inboxes", json!({ "email_address": "x" }), 422, "The `email_address` field has no local part"),
        ("/api-keys", json!({ "name": "n", "domain_id": id }), 404, "Domain not found"),
    ] {
        let answer = world.call(post(&resend_path(path)).json(&body)).await;
        let message = answer.body["message"].as_str().unwrap();
        assert!(answer.status == status && message.starts_with(expected), "{path}: {}", answer.text);
    }
    assert_eq!(
        expect_resend_error(&world.get(&resend_path(&format!("/emails/{id}"))).await, 404, "not_found"),
        "Email not found"
    );
}

#[tokio::test]
async fn a_webhook_response_lists_event_types_that_never_happen() {
    let world = World::memory().await;
    let hook = |events: Value| json!({ "endpoint": "https://example.com/in", "events": events });
    let created =
        world.post(&resend_path("/webhooks"), &hook(json!(["email.sent", "email.opened", "topic.created"]))).await;
    assert_eq!(created.header("mailonce-never-happens"), Some("email.opened, topic.created"), "{}", created.text);
    let path = resend_path(&format!("/webhooks/{}", created.expect_status(201).body["id"].as_str().unwrap()));
    let changed = world
        .call(patch(&path).json(&json!({ "events": ["email.bounced", "email.clicked"] })))
        .await
        .expect_status(200);
    assert_eq!(changed.header("mailonce-never-happens"), Some("email.clicked"));
    let plain = world.post(&resend_path("/webhooks"), &hook(json!(["email.sent"]))).await.expect_status(201);
    assert_eq!(plain.header("mailonce-never-happens"), None);
    let refused = world.post(&resend_path("/webhooks"), &hook(json!(["email.opened"]))).await;
    assert_eq!(expect_resend_error(&refused, 422, "validation_error"), "None of these events ever happens here.");
}
