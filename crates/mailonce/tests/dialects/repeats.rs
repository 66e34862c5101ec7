//! Calls of the dialects that are repeated: with the same idempotency key, after an interruption, or with the same name
//! twice.

use serde_json::{Value, json};

use crate::{
    call::{TestResponse, delete, get, patch, post},
    world::World,
};

const RESEND: &str = "/compat/resend";
const AGENTMAIL: &str = "/compat/agentmail/v0";

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

async fn keyed_post(world: &World, path: &str, key: &str, body: &Value) -> TestResponse {
    world.call(post(path).key(key).json(body)).await
}

#[tokio::test]
async fn the_key_of_a_draft_belongs_to_its_body() {
    let world = World::sqlite().await.with_inbox_domain().await;
    let inbox = world.create_inbox("a").await;
    let path = format!("{RESEND}/inboxes/{inbox}/drafts");
    let draft = json!({ "to": "ada@example.com", "subject": "Hi", "text": "Hello" });
    let first = keyed_post(&world, &path, "draft-1", &draft).await.expect_status(200);
    let again = keyed_post(&world, &path, "draft-1", &draft).await.expect_status(200);
    assert_eq!(again.body["id"], first.body["id"]);
    let other = json!({ "to": "ada@example.com", "subject": "Hi", "text": "Goodbye" });
    let refused = keyed_post(&world, &path, "draft-1", &other).await;
    assert_eq!(
        (refused.status, &refused.body["name"]),
        (409, &json!("invalid_idempotent_request")),
        "{}",
        refused.text
    );
    let listed = world.get(&path).await.expect_status(200);
    assert_eq!(listed.body["data"].as_array().unwrap().len(), 1, "{}", listed.text);
}

#[tokio::test]
async fn a_template_is_copied_once_under_a_key_and_a_replay_names_the_first() {
    let world = World::sqlite().await;
    let wording = json!({ "name": "welcome", "subject": "Hi", "text": "Hello" });
    let made = keyed_post(&world, "/v1/templates", "make", &wording).await.expect_status(201).string_field("id");
    let path = format!("{RESEND}/templates/{made}/duplicate");
    let copy = keyed_post(&world, &path, "copy-1", &json!({})).await.expect_status(200);
    let again = keyed_post(&world, &path, "copy-1", &json!({})).await.expect_status(200);
    assert_eq!(again.body["id"], copy.body["id"]);
    assert_eq!(world.get("/v1/templates").await.rows().len(), 2);
    let second = keyed_post(&world, &path, "copy-2", &json!({})).await.expect_status(200);
    assert_ne!(second.body["id"], copy.body["id"]);

    // Another template took the name: the key still belongs to the first one, which is gone.
    world.call(delete("/v1/templates/welcome")).await.expect_status(200);
    world.post("/v1/templates", &wording).await.expect_status(201);
    keyed_post(&world, "/v1/templates", "make", &wording).await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn an_api_key_of_agentmail_is_created_once_under_a_key() {
    let world = World::sqlite().await;
    let path = format!("{AGENTMAIL}/api-keys");
    let body = json!({ "name": "agent" });
    let first = keyed_post(&world, &path, "key-1", &body).await.expect_status(200);
    let again = keyed_post(&world, &path, "key-1", &body).await.expect_status(200);
    assert_eq!(
        (&again.body["api_key_id"], &again.body["api_key"]),
        (&first.body["api_key_id"], &first.body["api_key"])
    );
    let other = keyed_post(&world, &path, "key-1", &json!({ "name": "other" })).await;
    assert_eq!(other.status, 409, "{}", other.text);
    let listed = world.get(&path).await.expect_status(200);
    let names = listed.body["api_keys"].as_array().unwrap().iter().filter(|key| key["name"] == "agent").count();
    assert_eq!(names, 1, "{}", listed.text);
}

#[tokio::test]
async fn a_suppression_that_is_named_twice_is_removed_once() {
    let world = World::sqlite().await;
    let added =
        world.post(&format!("{RESEND}/suppressions"), &json!({ "email": "gone@example.com" })).await.expect_status(200);
    let emails = json!({ "emails": ["gone@example.com", "Gone@example.com", "gone@example.com"] });
    let removed = world.post(&format!("{RESEND}/suppressions/batch/remove"), &emails).await.expect_status(200);
    let data = removed.body["data"].as_array().unwrap();
    assert_eq!(data.len(), 3, "{}", removed.text);
    assert!(data.iter().all(|one| one["id"] == added.body["id"] && one["deleted"] == true), "{}", removed.text);
    let gone = world.post(&format!("{RESEND}/suppressions/batch/remove"), &emails).await;
    assert_eq!(gone.status, 404, "{}", gone.text);
}

#[tokio::test]
async fn a_native_template_keeps_its_tags_when_it_is_sent_back() {
    let world = World::sqlite().await;
    let html = "<p>Dear {{ user.name }}{% if vip %}!{% endif %} {{ order }}</p>";
    let wording = json!({ "name": "native", "subject": "For {{ user.name }}", "html": html });
    world.post("/v1/templates", &wording).await.expect_status(201);
    let path = format!("{RESEND}/templates/native");
    let shown = world.get(&path).await.expect_status(200).body;
    let corrected = text(&shown["html"]).replace("Dear", "Hello");
    let change = json!({ "subject": shown["subject"], "html": corrected });
    world.call(patch(&path).json(&change)).await.expect_status(200);
    let native = world.get("/v1/templates/native").await.expect_status(200).body;
    assert_eq!((&native["subject"], &native["html"]), (&wording["subject"], &json!(html.replace("Dear", "Hello"))));
}

/// An inbox with threads, by their ids.
async fn inbox_with_threads(world: &World, count: usize) -> (String, Vec<String>) {
    let inbox = world.create_inbox("a").await;
    for n in 0..count {
        let mail =
            format!("From: p{n}@x.test\nTo: a@agents.test\nMessage-ID: <{n}@x.test>\nSubject: Number {n}\n\nHi {n}\n");
        world.receive_mail(&["a@agents.test"], &mail).await;
    }
    let threads = world.get(&format!("/v1/threads?inbox={inbox}")).await.expect_status(200).rows();
    (inbox, threads.iter().map(|thread| text(&thread["id"])).collect())
}

#[tokio::test]
async fn an_interrupted_rename_of_a_label_is_finished_by_repeating_it() {
    let world = World::sqlite().await.with_inbox_domain().await;
    let (inbox, threads) = inbox_with_threads(&world, 3).await;
    let labels = format!("{RESEND}/inboxes/{inbox}/labels");
    world.post(&labels, &json!({ "name": "todo" })).await.expect_status(200);
    for thread in &threads {
        let path = format!("{RESEND}/inboxes/{inbox}/threads/{thread}/labels");
        world.post(&path, &json!({ "labels": ["todo"] })).await.expect_status(200);
    }
    let rename = async || world.call(patch(&format!("{labels}/todo")).json(&json!({ "name": "later" }))).await;
    rename().await.expect_status(200);
    // As if the rename had ended before this thread, while somebody else labelled it.
    let native = format!("/v1/threads/{}", threads[1]);
    world.call(patch(&native).json(&json!({ "labels": ["todo", "urgent"] }))).await.expect_status(200);
    rename().await.expect_status(200);
    for thread in &threads {
        let read = world.get(&format!("/v1/threads/{thread}")).await.expect_status(200).body;
        let expected = if *thread == threads[1] { json!(["urgent", "later"]) } else { json!(["later"]) };
        assert_eq!(read["labels"], expected, "{thread}");
    }
    // A repeat after the last thread is a success, too. A label that is another one is still refused.
    rename().await.expect_status(200);
    world.post(&labels, &json!({ "name": "other" })).await.expect_status(200);
    let taken = world.call(patch(&format!("{labels}/later")).json(&json!({ "name": "other" }))).await;
    assert_eq!(taken.status, 422, "{}", taken.text);
}

#[tokio::test]
async fn metrics_count_for_an_admin_key_that_is_tied_to_an_inbox() {
    let world = World::sqlite().await.with_inbox_domain().await;
    world.create_inbox("a").await;
    let tied = json!({ "name": "tied", "scopes": ["admin", "read"], "inboxes": ["a@agents.test"] });
    let key = world.post("/v1/api-keys", &tied).await.expect_status(201).string_field("api_key");
    for path in ["/metrics/usage", "/organizations"] {
        let read = world.call(get(&format!("{AGENTMAIL}{path}")).bearer(&key)).await.expect_status(200);
        assert!(read.text.contains("inbox_count"), "{path}: {}", read.text);
    }
}
