//! Calls of the dialects that are repeated: with the same idempotency key, after an interruption, or with the same name
//! twice.

use serde_json::{Value, json};

use crate::{
    api_fixture::World,
    requests::{TestResponse, delete, get, patch, post},
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
    let by_domain = format!("{RESEND}/emails/metrics?dimensions=domain");
    world.call(get(&by_domain).bearer(&key)).await.expect_status(200);
}

#[tokio::test]
async fn a_draft_that_is_held_is_never_sent_with_success() {
    let world = World::sqlite().await.with_inbox_domain().await;
    let inbox = world.create_inbox("a").await;
    let rule = json!({ "name": "ask", "direction": "outbound", "match": { "operator": "all", "conditions":
        [{ "field": "recipient.address", "operator": "is", "value": "boss@example.com" }] }, "actions": [{ "type": "approve" }] });
    world.post("/v1/rules", &rule).await.expect_status(201);
    let drafts = format!("{RESEND}/inboxes/{inbox}/drafts");
    let draft = json!({ "to": "boss@example.com", "subject": "Raise", "text": "Please." });
    let draft = world.post(&drafts, &draft).await.expect_status(200).string_field("id");
    let send = async || world.post(&format!("{drafts}/{draft}/send"), &json!({})).await;
    let first = send().await;
    for answer in [first, send().await, send().await] {
        assert_eq!((answer.status, answer.header("mailonce-state")), (409, Some("held")), "{}", answer.text);
    }
    let question = world.get("/v1/escalations").await.rows().remove(0);
    let release = json!({ "as": "release", "rev": question["rev"] });
    world.post(&format!("/v1/escalations/{}/resolve", text(&question["id"])), &release).await.expect_status(200);
    let email = world.get("/v1/emails?to=boss@example.com").await.rows().remove(0);
    let sent = send().await.expect_status(200);
    assert_eq!((&sent["id"], sent.is_replay()), (&email["id"], true));
}

#[tokio::test]
async fn empty_texts_count_as_absent() {
    let world = World::sqlite().await.with_inbox_domain().await;
    let inbox = world.create_inbox("a").await;
    let address = world.get(&format!("/v1/inboxes/{inbox}")).await.string_field("address");
    let mail = |more: Value| {
        let mut mail =
            json!({ "from": "agent@example.com", "to": "ada@example.com", "subject": "Hi", "text": "Hello" });
        mail.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        mail
    };
    let empty = json!({ "cc": "", "bcc": [""], "reply_to": "", "topic_id": "", "scheduled_at": "" });
    world.post(&format!("{RESEND}/emails"), &mail(empty)).await.expect_status(200);
    let empty = json!({ "scheduledAt": "", "templateId": "", "inReplyToId": "", "cc": "" });
    world.post("/compat/usesend/api/v1/emails", &mail(empty)).await.expect_status(200);
    let template = json!({ "name": "Welcome", "alias": "", "from": "", "reply_to": "", "html": "<p>Hi</p>" });
    world.post(&format!("{RESEND}/templates"), &template).await.expect_status(200);

    let agent = format!("{AGENTMAIL}/inboxes/{address}");
    let mut send = json!({ "to": ["ada@example.com", ""], "cc": "", "bcc": "", "reply_to": "", "labels": "" });
    (send["subject"], send["text"]) = (json!("Hi"), json!("Hello there"));
    world.post(&format!("{agent}/messages/send"), &send).await.expect_status(200);
    let draft = json!({ "to": "ada@example.com", "cc": "", "subject": "Hi", "text": "Draft", "send_at": "",
        "in_reply_to": "", "forward_of": "", "client_id": "" });
    let draft = world.post(&format!("{agent}/drafts"), &draft).await.expect_status(200);
    let draft = format!("{agent}/drafts/{}", draft.string_field("draft_id"));
    world.call(patch(&draft).json(&json!({ "send_at": "", "client_id": "" }))).await.expect_status(200);
    world.post(&format!("{draft}/send"), &json!({})).await.expect_status(200);

    let drafts = format!("{RESEND}/inboxes/{inbox}/drafts");
    let draft = json!({ "to": "ada@example.com", "cc": "", "bcc": [""], "subject": "Hi", "text": "Other draft",
        "thread_id": "", "reply_to_email_id": "" });
    let draft = world.post(&drafts, &draft).await.expect_status(200).string_field("id");
    world.post(&format!("{drafts}/{draft}/send"), &json!({})).await.expect_status(200);
}

#[tokio::test]
async fn a_search_for_files_finds_those_that_were_sent() {
    let world = World::sqlite().await.with_inbox_domain().await;
    let (inbox, threads) = inbox_with_threads(&world, 2).await;
    let files = json!([{ "filename": "a.txt", "content": "aGVsbG8=" }]);
    let messages = world.get(&format!("/v1/inboxes/{inbox}/messages?thread={}", threads[0])).await.rows();
    let message = text(&messages[0]["id"]);
    let reply = json!({ "text": "See the file.", "attachments": files });
    let address = world.get(&format!("/v1/inboxes/{inbox}")).await.string_field("address");
    let reply = world.post(&format!("{AGENTMAIL}/inboxes/{address}/messages/{message}/reply"), &reply).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    for (wanted, expected) in [("true", vec![&threads[0]]), ("false", vec![&threads[0], &threads[1]])] {
        let path = format!("{RESEND}/inboxes/{inbox}/threads/search?has_attachment={wanted}");
        let found = world.get(&path).await.expect_status(200);
        let mut ids: Vec<String> = found.body["data"].as_array().unwrap().iter().map(|row| text(&row["id"])).collect();
        ids.sort();
        let mut expected: Vec<String> = expected.into_iter().cloned().collect();
        expected.sort();
        assert_eq!(ids, expected, "{wanted}: {}", found.text);
    }
}
