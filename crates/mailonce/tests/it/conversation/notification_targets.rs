//! Notification targets: questions are posted once, with a link that decides.

use async_trait::async_trait;
use mailonce_core::{
    events::webhook::{OutgoingWebhook, WebhookResponse, WebhookResult},
    ports::webhook_client::WebhookClient,
};
use mailonce_engine::EngineDeps;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

use crate::{
    conversation::approval_links::{press, require_approval, send_for_approval},
    fixtures::{
        api_fixture::World,
        conversations::str_field,
        requests::{delete, get, patch, post},
    },
};

const HOUR: i64 = 3_600_000;

/// Records what is posted, and answers with a status.
#[derive(Default)]
pub(crate) struct RecordingClient {
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
    /// A client whose posts succeed.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { status: Mutex::new(200), ..Self::default() })
    }

    pub(crate) fn take(&self) -> Vec<OutgoingWebhook> {
        std::mem::take(&mut *self.posts.lock().unwrap())
    }
}

async fn world_with_client(world: World) -> (World, Arc<RecordingClient>) {
    let client = RecordingClient::new();
    let webhook_sender = Arc::clone(&client) as Arc<dyn WebhookClient>;
    let public_url = Some("https://mail.example.com".to_owned());
    let world = world.with_engine_deps(EngineDeps { webhook_sender, public_url, ..EngineDeps::default() }).await;
    require_approval(&world).await;
    (world, client)
}

pub(crate) async fn create_target(world: &World, kind: &str) -> String {
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
            tokio::join!(world.engine.notifications.run_notification_round(), other.notifications.run_notification_round());
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
        assert_eq!(row["actor"], json!({ "kind": "notification_target", "id": target }), "nobody knows which person it was");
        assert_eq!(row["names"][&target], "#slack", "{row}");
        assert_eq!(world.get(&format!("/v1/audit?actor={target}")).await.expect_status(200).rows(), [row]);
        let listed = world.get("/v1/notification-targets").await.expect_status(200);
        assert!(!listed.text.contains("hooks.example.com") && listed.rows().len() == 1, "{}", listed.text);
        assert_eq!(world.get(&format!("/v1/escalations/{}", str_field(&asked, "id"))).await["decided_by"], "#slack");
    }

    async fn calls_about_targets_can_be_repeated_with_a_key(world) {
        let (world, client) = world_with_client(world).await;
        let target = |name: &str| json!({ "name": name, "kind": "webhook", "url": "https://hooks.example.com/1" });
        let create = async |name: &str| world.call(post("/v1/notification-targets").key("k").json(&target(name))).await;
        let first = create("one").await.expect_status(201);
        assert_eq!(create("one").await.expect_status(200).body, first.body);
        create("two").await.expect_problem(422, "key_mismatch");
        let path = format!("/v1/notification-targets/{}/test", first.string_field("id"));
        let told = world.call(post(&path).key("t")).await.expect_status(200);
        *client.status.lock().unwrap() = 500;
        assert_eq!(world.call(post(&path).key("t")).await.expect_status(200).body, told.body);
        assert_eq!((client.take().len(), &told["status"]), (1, &json!(200)));
        let person = json!({ "name": "Ada", "role": "approver" });
        let person = world.post("/v1/people", &person).await.expect_status(201).string_field("id");
        let (_, asked) = send_for_approval(&world, "m", "Invoice 7").await;
        let path = format!("/v1/escalations/{}/approval-links", str_field(&asked, "id"));
        let link = async |key: &str| world.call(post(&path).key(key).json(&json!({ "person": person }))).await;
        let made = link("a").await.expect_status(201).body;
        assert_eq!(link("a").await.expect_status(201).body, made);
        link("k").await.expect_problem(422, "key_mismatch");
    }

    async fn a_team_without_approval_emails_has_quiet_hours_for_its_targets(world) {
        let (world, client) = world_with_client(world).await;
        create_target(&world, "slack").await;
        world.post("/v1/people", &json!({ "name": "Ada", "role": "approver", "address": "ada@people.example" })).await.expect_status(201);
        // From the hour of now to the next but one.
        let hour = world.engine.ctx.now().0.rem_euclid(24 * HOUR) / HOUR;
        let text = |hour: i64| format!("{:02}:00", hour % 24);
        let emails = json!({ "quiet_hours": { "from": text(hour), "to": text(hour + 2) } });
        let changed = world.call(patch("/v1/settings").json(&json!({ "approval_emails": emails }))).await.expect_status(200);
        assert_eq!(changed["approval_emails"]["from"], json!(null));
        send_for_approval(&world, "night", "Invoice 7").await;
        world.engine.notifications.run_notification_round().await;
        assert!(client.take().is_empty());
        world.advance_clock(2 * HOUR);
        world.engine.notifications.run_notification_round().await;
        assert_eq!(client.take().len(), 1);
    }

    async fn a_target_that_fails_is_tried_again_with_the_same_link(world) {
        let (world, client) = world_with_client(world).await;
        create_target(&world, "webhook").await;
        *client.status.lock().unwrap() = 503;
        let (_, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        world.engine.notifications.run_notification_round().await;
        world.engine.notifications.run_notification_round().await;
        let first = client.take();
        assert_eq!(first.len(), 1);
        *client.status.lock().unwrap() = 204;
        world.advance_clock(10_000);
        world.engine.notifications.run_notification_round().await;
        let second = client.take();
        assert_eq!((&second[0].id, &second[0].body), (&first[0].id, &first[0].body));
        world.advance_clock(HOUR);
        world.engine.notifications.run_notification_round().await;
        assert!(client.take().is_empty(), "it succeeded");
        let body: Value = serde_json::from_slice(&second[0].body).unwrap();
        assert_eq!((&body["type"], &body["escalation"], &body["reason"]), (&json!("approval.requested"), &asked["id"], &json!("approval")));
    }

    async fn a_target_that_is_given_up_is_shown_and_counted(world) {
        let (world, client) = world_with_client(world).await;
        create_target(&world, "webhook").await;
        *client.status.lock().unwrap() = 503;
        let (_, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let path = format!("/v1/escalations/{}", str_field(&asked, "id"));
        let read = async || world.get(&path).await.expect_status(200);
        assert!(read().await.body.get("notifications").is_none());
        world.engine.notifications.run_notification_round().await;
        let retry_at = world.timestamp_in(10_000);
        assert_eq!(read().await["notifications"], json!({ "sent": 0, "failed": 0, "next_at": retry_at }));
        for _ in 0..8 {
            world.advance_clock(2 * HOUR);
            world.engine.notifications.run_notification_round().await;
        }
        assert_eq!(client.take().len(), 8);
        let given_up = read().await;
        assert_eq!(given_up["notifications"], json!({ "sent": 0, "failed": 1, "next_at": null }));
        assert!(!given_up.text.contains("/a/"), "{}", given_up.text);
        let metrics = world.get("/metrics").await.expect_status(200).text;
        for line in ["{outcome=\"retry\"} 7", "{outcome=\"given_up\"} 1"] {
            assert!(metrics.contains(&format!("mailonce_approval_notifications_total{line}")), "{metrics}");
        }
        // Another target of the same team is told.
        *client.status.lock().unwrap() = 200;
        create_target(&world, "slack").await;
        let (_, asked) = send_for_approval(&world, "l", "Invoice 8").await;
        world.engine.notifications.run_notification_round().await;
        let path = format!("/v1/escalations/{}", str_field(&asked, "id"));
        let told = world.get(&path).await.expect_status(200);
        assert_eq!(told["notifications"], json!({ "sent": 2, "failed": 0, "next_at": null }));
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "approve"] })).await;
        assert!(world.call(get(&path).bearer(&agent)).await.expect_status(200).body.get("notifications").is_none());
    }

    async fn a_target_hears_of_no_old_question_and_a_removed_one_decides_nothing(world) {
        let (world, client) = world_with_client(world).await;
        send_for_approval(&world, "old", "Invoice, old").await;
        world.advance_clock(1);
        let target = create_target(&world, "webhook").await;
        world.engine.notifications.run_notification_round().await;
        assert!(client.take().is_empty());
        let (email, _) = send_for_approval(&world, "new", "Invoice, new").await;
        world.engine.notifications.run_notification_round().await;
        let body: Value = serde_json::from_slice(&client.take()[0].body).unwrap();
        let path = body["url"].as_str().unwrap().strip_prefix("https://mail.example.com").unwrap().to_owned();
        world.call(delete(&format!("/v1/notification-targets/{target}"))).await.expect_status(200);
        press(&world, &path, &[("as", "release"), ("rev", "1")]).await.expect_status(410);
        assert_eq!(world.email(&email).await["state"], "held");
    }

    async fn every_question_is_posted_however_many_there_are(world) {
        let (world, client) = world_with_client(world).await;
        create_target(&world, "webhook").await;
        for n in 0..130 {
            world.post("/v1/escalations", &json!({ "question": format!("May I do {n}?") })).await.expect_status(201);
        }
        for _ in 0..3 {
            world.engine.notifications.run_notification_round().await;
        }
        let posts = client.take();
        let ids: std::collections::BTreeSet<&String> = posts.iter().map(|post| &post.id).collect();
        assert_eq!((posts.len(), ids.len()), (130, 130));
        world.engine.notifications.run_notification_round().await;
        assert!(client.take().is_empty());
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
