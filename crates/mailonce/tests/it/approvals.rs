//! Approval links and notification targets: one tap decides, once, and only what was shown.

use async_trait::async_trait;
use mailonce_core::{
    events::webhook::{OutgoingWebhook, WebhookResponse, WebhookResult},
    ports::webhook_client::WebhookClient,
};
use mailonce_engine::EngineDeps;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tower::ServiceExt as _;

use crate::{
    call::{TestRequest, TestResponse, get, post},
    talk::str_field,
    world::{World, mail_with},
};

const HOUR: i64 = 3_600_000;

/// Holds every email for approval, and sends one. Returns the email and its escalation.
async fn send_for_approval(world: &World, key: &str, subject: &str) -> (String, Value) {
    let mail = mail_with(json!({ "subject": subject, "text": "Dear <b>Ada</b>, pay & smile." }));
    let held = world.send(key, &mail).await.expect_status(202).string_field("id");
    assert_eq!(world.email(&held).await["state"], "held");
    let asked = world.get("/v1/escalations?state=open").await.expect_status(200).rows().remove(0);
    (held, asked)
}

async fn require_approval(world: &World) {
    let rule = json!({
        "name": "all", "direction": "outbound", "actions": [{ "type": "approve" }],
        "match": { "conditions": [{ "field": "subject", "operator": "contains", "value": "Invoice" }] },
    });
    world.post("/v1/rules", &rule).await.expect_status(201);
}

async fn add_person(world: &World, name: &str, role: &str) -> String {
    world.post("/v1/people", &json!({ "name": name, "role": role })).await.expect_status(201).string_field("id")
}

/// The path of a person's link to a question.
async fn link_path(world: &World, escalation: &Value, person: &str) -> String {
    let path = format!("/v1/escalations/{}/approval-links", str_field(escalation, "id"));
    let link = world.post(&path, &json!({ "person": person })).await.expect_status(201);
    let url = link.string_field("url");
    url[url.find("/a/").unwrap()..].to_owned()
}

/// Posts the form of a page, as a browser without scripts does.
async fn press(world: &World, path: &str, fields: &[(&str, &str)]) -> TestResponse {
    let form: String = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let call = post(path).anonymous().header("content-type", "application/x-www-form-urlencoded").raw_body(form);
    world.call(call).await
}

over_every_engine! {
    async fn one_tap_approves_once_and_the_second_is_told_who_did(world) {
        require_approval(&world).await;
        let (ada, bob) = (add_person(&world, "Ada", "approver").await, add_person(&world, "Bob", "admin").await);
        let (email, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let (hers, his) = (link_path(&world, &asked, &ada).await, link_path(&world, &asked, &bob).await);
        assert_ne!(hers, his);
        assert_eq!(link_path(&world, &asked, &ada).await, hers, "the same link again");
        for method in ["GET", "HEAD", "GET"] {
            let shown = world.call(TestRequest::new(method, &hers).anonymous()).await.expect_status(200);
            assert_eq!(shown.header("referrer-policy"), Some("same-origin"));
            assert!(shown.header("content-security-policy").unwrap().contains("frame-ancestors 'none'"));
        }
        let shown = world.call(get(&hers).anonymous()).await.text;
        for part in ["Approve this email?", "Invoice 7", "Dear &lt;b&gt;Ada&lt;/b&gt;, pay &amp; smile.", "You decide as <strong>Ada</strong>"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(world.email(&email).await["state"], "held", "looking decides nothing");
        let done = press(&world, &hers, &[("as", "release"), ("rev", "1"), ("reason", "fine")]).await;
        assert!(done.text.contains("Decided: Approve and send") && done.text.contains("<strong>Ada</strong>"), "{}", done.text);
        assert_ne!(world.email(&email).await["state"], "held");
        for (path, method) in [(&his, "reject"), (&hers, "reject")] {
            let late = press(&world, path, &[("as", method), ("rev", "1")]).await.expect_status(410);
            assert!(late.text.contains("<strong>Ada</strong> decided"), "{}", late.text);
        }
        let read = world.get(&format!("/v1/escalations/{}", str_field(&asked, "id"))).await.expect_status(200);
        assert_eq!((&read["decision"]["as"], &read["decided_by"], &read["decision"]["person"]), (&json!("release"), &json!("Ada"), &json!(ada)));
        let row = world.get("/v1/audit?limit=1000&action=escalation.decided").await.rows().remove(0);
        assert_eq!(row["actor"], json!({ "kind": "person", "id": ada }));
    }

    async fn of_two_who_tap_at_the_same_time_one_decides(world) {
        require_approval(&world).await;
        let (_, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let mut paths = Vec::new();
        for name in ["Ada", "Bob", "Eve"] {
            let person = add_person(&world, name, "approver").await;
            paths.push(link_path(&world, &asked, &person).await);
        }
        let mut taps = tokio::task::JoinSet::new();
        for (n, path) in paths.iter().enumerate() {
            let form = format!("rev=1&as={}", if n == 1 { "reject" } else { "release" });
            let call = post(path).anonymous().header("content-type", "application/x-www-form-urlencoded").raw_body(form);
            taps.spawn(world.router().oneshot(call.build("")));
        }
        let mut winners = std::collections::BTreeSet::new();
        for answer in taps.join_all().await {
            let text = TestResponse::from_response(answer.unwrap()).await.text;
            winners.insert(["Ada", "Bob", "Eve"].into_iter().find(|name| text.contains(&format!("<strong>{name}</strong> decided"))));
        }
        assert!(winners.len() == 1 && !winners.contains(&None), "{winners:?}");
        assert_eq!(world.get("/v1/audit?limit=1000&action=escalation.decided").await.rows().len(), 1);
    }

    async fn a_person_edits_first_and_a_wrong_form_decides_nothing(world) {
        require_approval(&world).await;
        let ada = add_person(&world, "Ada", "approver").await;
        let (email, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let path = link_path(&world, &asked, &ada).await;
        for bad in [&[][..], &[("rev", "1")], &[("as", "release")], &[("as", "burn"), ("rev", "1")], &[("as", "sent"), ("rev", "1")]] {
            let again = press(&world, &path, bad).await.expect_status(422);
            assert!(again.text.contains("role=\"alert\"") && again.text.contains("Approve and send"), "{}", again.text);
        }
        assert_eq!(world.email(&email).await["state"], "held");
        press(&world, &path, &[("as", "edit"), ("rev", "1"), ("subject", "Invoice 8"), ("text", "Dear Ada,\r\nthank you.")]).await;
        let sent = world.email(&email).await;
        assert_eq!((&sent["subject"], sent["state"] == "held"), (&json!("Invoice 8"), false), "{sent}");
    }

    async fn forged_old_and_withdrawn_links_say_so(world) {
        require_approval(&world).await;
        let (ada, bob) = (add_person(&world, "Ada", "approver").await, add_person(&world, "Bob", "approver").await);
        let (email, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let (hers, his) = (link_path(&world, &asked, &ada).await, link_path(&world, &asked, &bob).await);
        let id = hers.split('-').next().unwrap();
        let forged = format!("{}-{}", id, his.split_once('-').unwrap().1);
        for bad in [forged.as_str(), &hers[..hers.len() - 1], "/a/x", "/a/-", &hers.to_uppercase().replace("/A/", "/a/")] {
            world.call(get(bad).anonymous()).await.expect_status(404);
            press(&world, bad, &[("as", "release"), ("rev", "1")]).await.expect_status(404);
        }
        let viewer = json!({ "rev": 1, "role": "viewer" });
        world.call(crate::call::patch(&format!("/v1/people/{bob}")).json(&viewer)).await.expect_status(200);
        press(&world, &his, &[("as", "release"), ("rev", "1")]).await.expect_status(410);
        world.advance_clock(72 * HOUR);
        let expired = press(&world, &hers, &[("as", "release"), ("rev", "1")]).await.expect_status(410);
        assert!(expired.text.contains("has expired"), "{}", expired.text);
        assert_eq!(world.email(&email).await["state"], "held");
        assert_ne!(link_path(&world, &asked, &ada).await, hers, "an expired link is replaced");
        let path = format!("/v1/escalations/{}/approval-links", str_field(&asked, "id"));
        world.post(&path, &json!({ "person": bob })).await.expect_problem(422, "invalid_field").expect_field("person");
    }

    async fn several_wait_in_a_row(world) {
        require_approval(&world).await;
        let ada = add_person(&world, "Ada", "approver").await;
        let mut paths = Vec::new();
        for n in 0..3 {
            let (_, asked) = send_for_approval(&world, &format!("k{n}"), &format!("Invoice {n}")).await;
            paths.push(link_path(&world, &asked, &ada).await);
        }
        let first = press(&world, &paths[0], &[("as", "release"), ("rev", "1")]).await;
        assert!(first.text.contains("2 more wait") && first.text.contains(&format!("href=\"{}\"", paths[1])), "{}", first.text);
        let second = press(&world, &paths[1], &[("as", "reject"), ("rev", "1")]).await;
        assert!(second.text.contains("One more waits") && second.text.contains(&paths[2]), "{}", second.text);
        let last = press(&world, &paths[2], &[("as", "release"), ("rev", "1")]).await;
        assert!(!last.text.contains("wait"), "{}", last.text);
    }

    async fn an_agent_finds_no_link_and_cannot_make_one(world) {
        require_approval(&world).await;
        let ada = add_person(&world, "Ada", "approver").await;
        let (email, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let path = link_path(&world, &asked, &ada).await;
        let token = path.strip_prefix("/a/").unwrap();
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["send", "read", "reply", "approve"] })).await;
        let id = str_field(&asked, "id");
        let wish = post(&format!("/v1/escalations/{id}/approval-links")).bearer(&agent).json(&json!({ "person": ada }));
        world.call(wish).await.expect_problem(403, "wrong_scope");
        let escalation = format!("/v1/escalations/{id}");
        for path in ["/v1/emails", &format!("/v1/emails/{email}"), "/v1/events?limit=1000", "/v1/escalations", &escalation, "/v1/threads"] {
            let seen = world.call(get(path).bearer(&agent)).await.expect_status(200);
            assert!(!seen.text.contains(token) && !seen.text.contains("/a/"), "{path}: {}", seen.text);
        }
    }
}

/// Records what is posted, and answers with a status.
#[derive(Default)]
struct RecordingClient {
    status: Mutex<u16>,
    posts: Mutex<Vec<OutgoingWebhook>>,
}

#[async_trait]
impl WebhookClient for RecordingClient {
    fn check_url(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    async fn post(&self, post: OutgoingWebhook) -> WebhookResult {
        self.posts.lock().unwrap().push(post);
        let response = WebhookResponse { status: *self.status.lock().unwrap(), ..WebhookResponse::default() };
        WebhookResult { response: Ok(response), latency_ms: 1 }
    }
}

impl RecordingClient {
    fn take(&self) -> Vec<OutgoingWebhook> {
        std::mem::take(&mut *self.posts.lock().unwrap())
    }
}

async fn world_with_client(world: World) -> (World, Arc<RecordingClient>) {
    let client = Arc::new(RecordingClient { status: Mutex::new(200), ..RecordingClient::default() });
    let webhook_sender = Arc::clone(&client) as Arc<dyn WebhookClient>;
    let public_url = Some("https://mail.example.com".to_owned());
    let world = world.with_engine_deps(EngineDeps { webhook_sender, public_url, ..EngineDeps::default() }).await;
    require_approval(&world).await;
    (world, client)
}

async fn create_target(world: &World, kind: &str) -> String {
    let target = json!({ "name": format!("#{kind}"), "kind": kind, "url": "https://hooks.example.com/T0/secret" });
    let created = world.post("/v1/notification-targets", &target).await.expect_status(201);
    assert!(
        created.string_field("secret").starts_with("whsec_") && !created.text.contains("hooks.example.com"),
        "{}",
        created.text
    );
    created.string_field("id")
}

over_every_engine! {
    async fn a_card_is_posted_once_and_its_link_decides(world) {
        let (world, client) = world_with_client(world).await;
        let target = create_target(&world, "slack").await;
        let (email, asked) = send_for_approval(&world, "k", "Invoice <7>").await;
        let other = world.second_engine(EngineDeps { webhook_sender: Arc::clone(&client) as Arc<dyn WebhookClient>, public_url: Some("https://mail.example.com".into()), ..EngineDeps::default() }).await;
        for _ in 0..3 {
            tokio::join!(world.engine.escalations.run_notification_round(), other.escalations.run_notification_round());
        }
        let posts = client.take();
        assert_eq!(posts.len(), 1, "{posts:?}");
        assert_eq!(posts[0].url, "https://hooks.example.com/T0/secret");
        let card: Value = serde_json::from_slice(&posts[0].body).unwrap();
        let url = card["blocks"][1]["elements"][0]["url"].as_str().unwrap();
        assert!(card["text"].as_str().unwrap().contains("Invoice &lt;7&gt;"), "{card}");
        let path = url.strip_prefix("https://mail.example.com").unwrap();
        let done = press(&world, path, &[("as", "reject"), ("rev", "1"), ("reason", "no")]).await;
        assert!(done.text.contains("<strong>#slack</strong> decided"), "{}", done.text);
        assert_eq!(world.email(&email).await["state"], "cancelled");
        let row = world.get("/v1/audit?limit=1000&action=escalation.decided").await.rows().remove(0);
        assert_eq!((&row["actor"]["id"], &row["names"][&target]), (&json!(target), &json!("#slack")), "{row}");
        let listed = world.get("/v1/notification-targets").await.expect_status(200);
        assert!(!listed.text.contains("hooks.example.com") && listed.rows().len() == 1, "{}", listed.text);
        assert_eq!(world.get(&format!("/v1/escalations/{}", str_field(&asked, "id"))).await["decided_by"], "#slack");
    }

    async fn a_target_that_fails_is_tried_again_with_the_same_link(world) {
        let (world, client) = world_with_client(world).await;
        create_target(&world, "webhook").await;
        *client.status.lock().unwrap() = 503;
        let (_, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        world.engine.escalations.run_notification_round().await;
        world.engine.escalations.run_notification_round().await;
        let first = client.take();
        assert_eq!(first.len(), 1);
        *client.status.lock().unwrap() = 204;
        world.advance_clock(5_000);
        world.engine.escalations.run_notification_round().await;
        let second = client.take();
        assert_eq!((&second[0].id, &second[0].body), (&first[0].id, &first[0].body));
        world.advance_clock(HOUR);
        world.engine.escalations.run_notification_round().await;
        assert!(client.take().is_empty(), "it succeeded");
        let body: Value = serde_json::from_slice(&second[0].body).unwrap();
        assert_eq!((&body["type"], &body["escalation"], &body["reason"]), (&json!("approval.requested"), &asked["id"], &json!("approval")));
    }

    async fn a_target_hears_of_no_old_question_and_a_removed_one_decides_nothing(world) {
        let (world, client) = world_with_client(world).await;
        send_for_approval(&world, "old", "Invoice, old").await;
        world.advance_clock(1);
        let target = create_target(&world, "webhook").await;
        world.engine.escalations.run_notification_round().await;
        assert!(client.take().is_empty());
        let (email, _) = send_for_approval(&world, "new", "Invoice, new").await;
        world.engine.escalations.run_notification_round().await;
        let body: Value = serde_json::from_slice(&client.take()[0].body).unwrap();
        let path = body["url"].as_str().unwrap().strip_prefix("https://mail.example.com").unwrap().to_owned();
        world.call(crate::call::delete(&format!("/v1/notification-targets/{target}"))).await.expect_status(200);
        press(&world, &path, &[("as", "release"), ("rev", "1")]).await.expect_status(410);
        assert_eq!(world.email(&email).await["state"], "held");
    }

    async fn a_target_is_checked(world) {
        let (world, client) = world_with_client(world).await;
        let target = |name: &str, kind: &str, url: &str| json!({ "name": name, "kind": kind, "url": url });
        for (body, field) in [
            (target("", "slack", "https://a.test/"), "name"),
            (target("a", "pager", "https://a.test/"), "kind"),
            (target("a", "slack", "http://a.test/"), "url"),
        ] {
            world.post("/v1/notification-targets", &body).await.expect_problem(422, "invalid_field").expect_field(field);
        }
        let id = create_target(&world, "slack").await;
        world.post("/v1/notification-targets", &target("#slack", "slack", "https://a.test/")).await.expect_problem(409, "name_taken");
        let tested = world.post(&format!("/v1/notification-targets/{id}/test"), &json!({})).await.expect_status(200);
        assert_eq!((&tested["ok"], &tested["status"], client.take().len()), (&json!(true), &json!(200), 1));
        for n in 0..19 {
            world.post("/v1/notification-targets", &target(&n.to_string(), "webhook", "https://a.test/")).await.expect_status(201);
        }
        world.post("/v1/notification-targets", &target("x", "webhook", "https://a.test/")).await.expect_problem(422, "invalid_field");
    }
}
