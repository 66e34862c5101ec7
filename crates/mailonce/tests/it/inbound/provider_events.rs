//! Provider event webhooks: authenticated, recorded once, in any order, within one team and transport.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use mailonce_core::handoff::{action::HandoffActionStatus, lease::TransportAccount};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::fixtures::{
    api_fixture::{MINUTE, World, mail, mail_with},
    engine_deps::{TransportFixture, unix_seconds},
    requests::{TestRequest, TestResponse, delete, post},
};

const SIGNING_KEY: &[u8; 24] = b"a secret of 24 letters!!";

/// Resend's webhook secret, as its console shows it.
fn webhook_secret() -> String {
    format!("whsec_{}", STANDARD.encode(SIGNING_KEY))
}

/// Creates a source of Resend events for a transport. Returns its webhook path.
async fn create_source(world: &World, name: &str, transport: &str) -> String {
    let body = json!({ "name": name, "kind": "resend", "transport": transport, "secret": webhook_secret() });
    world.post("/v1/sources", &body).await.expect_status(201).string_field("hook_path")
}

/// A request that Resend signed.
pub(crate) fn signed_webhook(world: &World, path: &str, id: &str, event: &Value) -> TestRequest {
    let (at, body) = (unix_seconds(world.engine.ctx.now()), event.to_string());
    let mut mac = Hmac::<Sha256>::new_from_slice(SIGNING_KEY).unwrap();
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let call = post(path).anonymous().header("svix-id", id).header("svix-timestamp", &at);
    call.header("svix-signature", &signature).json_bytes(body)
}

/// A Resend event about our email.
fn resend_event(kind: &str, email: &str, to: &str) -> Value {
    json!({ "type": kind, "created_at": "2026-11-15T10:00:00.000Z", "data": {
        "email_id": "re_1", "to": [to], "tags": { "mailonce": email },
        "bounce": { "type": "Permanent", "message": "no such user" },
    }})
}

/// An email and the source of its provider events.
struct ProviderEventFixture {
    fixture: TransportFixture,
    source_path: String,
    email_id: String,
}

impl ProviderEventFixture {
    /// An email that the relay accepted.
    async fn with_sent_email(world: World) -> Self {
        let provider = Self::with_queued_email(world).await;
        provider.fixture.hand_off("relay", "re_1").await;
        assert_eq!(provider.email_state().await, "sent");
        provider
    }

    async fn with_queued_email(world: World) -> Self {
        let wired = TransportFixture::new(world, false).await;
        let path = create_source(&wired.world, "resend", "relay").await;
        let email = wired.world.send("k", &mail()).await.expect_status(202).string_field("id");
        Self { fixture: wired, source_path: path, email_id: email }
    }

    async fn post_event(&self, id: &str, kind: &str) -> TestResponse {
        let event = resend_event(kind, &self.email_id, "User@Example.com");
        self.fixture
            .world
            .call(signed_webhook(&self.fixture.world, &self.source_path, id, &event))
            .await
            .expect_status(200)
    }

    async fn email_state(&self) -> String {
        self.fixture.world.email(&self.email_id).await["state"].as_str().unwrap().to_owned()
    }
}

over_every_engine! {
    async fn a_delivered_event_sets_the_state_delivered(world) {
        let provider = ProviderEventFixture::with_sent_email(world).await;
        let answer = provider.post_event("e1", "email.delivered").await;
        assert_eq!((&answer["reports"], &answer["recorded"]), (&json!(1), &json!(1)));
        assert_eq!(provider.email_state().await, "delivered");
        let evidence = provider.fixture.world.engine.ctx.store();
        let team = provider.fixture.world.engine.access.teams().await.unwrap()[0].id;
        let detail = evidence.email_detail(team, provider.email_id.parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(detail.evidence.len(), 1);
        let kinds: Vec<Value> = provider.fixture.world.events().await.iter().map(|event| event["type"].clone()).collect();
        assert_eq!(kinds.last(), Some(&json!("email.delivered")));
    }

    async fn a_bounce_suppresses_the_address_with_a_reason(world) {
        let provider = ProviderEventFixture::with_sent_email(world).await;
        let answer = provider.post_event("e1", "email.bounced").await;
        assert_eq!((&answer["recorded"], &answer["addresses_suppressed"]), (&json!(1), &json!(1)));
        assert_eq!(provider.email_state().await, "bounced");
        let world = &provider.fixture.world;
        let entry = world.get("/v1/suppressions/user@example.com").await.expect_status(200);
        assert_eq!((&entry["reason"], &entry["email"]), (&json!("bounced"), &json!(provider.email_id)));
        assert_eq!(entry["detail"], "no such user");
        let refused = world.send("next", &mail()).await.expect_problem(422, "recipient_suppressed").expect_field("to[0]");
        assert_eq!(refused["reason"], "bounced");
        assert_eq!(world.send("k", &mail()).await.expect_status(200)["id"], provider.email_id.as_str(), "a retry of the accepted email is still replayed");
    }

    async fn a_complaint_suppresses_the_address(world) {
        let provider = ProviderEventFixture::with_sent_email(world).await;
        provider.post_event("e1", "email.complained").await;
        assert_eq!(provider.email_state().await, "complained");
        let refused = provider.fixture.world.send("next", &mail()).await.expect_problem(422, "recipient_suppressed");
        assert_eq!(refused["reason"], "complained");
    }

    async fn duplicate_and_reordered_events_change_nothing(world) {
        let provider = ProviderEventFixture::with_sent_email(world).await;
        let steps = [("e3", "email.bounced"), ("e1", "email.sent"), ("e2", "email.delivered"), ("e4", "email.opened")];
        for (id, kind) in steps {
            provider.post_event(id, kind).await;
            assert_eq!(provider.email_state().await, "bounced", "{kind}");
        }
        let before = provider.fixture.world.events().await.len();
        for (id, kind) in steps {
            let again = provider.post_event(id, kind).await;
            assert_eq!(again["recorded"], 0, "{kind}: {}", again.text);
        }
        assert_eq!((provider.email_state().await.as_str(), provider.fixture.world.events().await.len()), ("bounced", before));
    }

    async fn an_event_that_precedes_our_own_commit_counts(world) {
        let provider = ProviderEventFixture::with_queued_email(world).await;
        let held = provider.fixture.lease_handoff("relay").await;
        provider.fixture.commit_marker(&held).await;
        assert_eq!(provider.email_state().await, "sending");
        provider.post_event("e1", "email.delivered").await;
        assert_eq!(provider.email_state().await, "delivered");
        assert_eq!(provider.fixture.record_accepted(&held, "re_1").await, HandoffActionStatus::Stale, "the late reply is only recorded");
        assert_eq!(provider.email_state().await, "delivered");
    }

    async fn an_event_resolves_an_unknown_outcome(world) {
        let provider = ProviderEventFixture::with_queued_email(world).await;
        let held = provider.fixture.lease_handoff("relay").await;
        provider.fixture.commit_marker(&held).await;
        provider.fixture.crash_holder(&held).await;
        assert_eq!(provider.email_state().await, "unknown");
        provider.post_event("e1", "email.sent").await;
        assert_eq!(provider.email_state().await, "sent");
    }

    async fn a_delay_event_resolves_an_unknown_outcome(world) {
        let wired = TransportFixture::new(world, false).await;
        let path = create_source(&wired.world, "resend", "relay").await;
        let email = wired.world.send("k", &mail_with(json!({ "on_unknown": "resend" }))).await.expect_status(202).string_field("id");
        let provider = ProviderEventFixture { fixture: wired, source_path: path, email_id: email };
        let held = provider.fixture.lease_handoff("relay").await;
        provider.fixture.commit_marker(&held).await;
        provider.fixture.crash_holder(&held).await;
        assert_eq!(provider.email_state().await, "unknown");

        assert_eq!(provider.post_event("e1", "email.delivery_delayed").await["recorded"], 1);

        assert_eq!(provider.email_state().await, "sent");
        let email = provider.fixture.world.email(&provider.email_id).await;
        let facts: Vec<&Value> = email["evidence"].as_array().unwrap().iter().map(|fact| &fact["says"]).collect();
        assert_eq!(facts, ["lost", "delayed"]);
        provider.fixture.world.advance_clock(11 * MINUTE);
        let engine = &provider.fixture.world.engine;
        let mine = [TransportAccount { name: "relay".into(), account: "relay".into() }];
        let unknown_handoffs = engine.ctx.store().due_unknown_handoffs(&mine, 10, engine.ctx.now()).await.unwrap();
        assert_eq!(unknown_handoffs, [], "no unknown handoff is left to resend");
    }

    async fn another_teams_email_is_untouched(world) {
        let provider = ProviderEventFixture::with_sent_email(world).await;
        let world = &provider.fixture.world;
        let other = world.create_team("other").await;
        let body = json!({ "name": "resend", "kind": "resend", "transport": "relay", "secret": webhook_secret() });
        let path = world.call(post("/v1/sources").bearer(&other).json(&body)).await.expect_status(201).string_field("hook_path");
        let event = resend_event("email.bounced", &provider.email_id, "user@example.com");
        let answer = world.call(signed_webhook(world, &path, "e1", &event)).await.expect_status(200);
        assert_eq!((&answer["unmatched"], &answer["recorded"], &answer["addresses_suppressed"]), (&json!(1), &json!(0), &json!(0)));
        assert_eq!(provider.email_state().await, "sent");
        world.call(post("/v1/emails").bearer(&other).json(&mail())).await.expect_status(202);
    }

    async fn an_event_from_another_transport_is_ignored(world) {
        let provider = ProviderEventFixture::with_sent_email(world).await;
        let world = &provider.fixture.world;
        let path = create_source(world, "elsewhere", "provider").await;
        for id in [provider.email_id.as_str(), ""] {
            let event = resend_event("email.bounced", id, "user@example.com");
            let answer = world.call(signed_webhook(world, &path, &format!("e{id}"), &event)).await.expect_status(200);
            assert_eq!((&answer["unmatched"], &answer["addresses_suppressed"]), (&json!(1), &json!(0)), "{}", answer.text);
        }
        assert_eq!(provider.email_state().await, "sent");
        world.send("next", &mail()).await.expect_status(202);
    }

    async fn an_event_changes_only_the_recipient_it_names(world) {
        let wired = TransportFixture::new(world, false).await;
        let path = create_source(&wired.world, "resend", "relay").await;
        let both = mail_with(json!({ "to": ["a@example.com", "b@example.com"] }));
        let email = wired.world.send("k", &both).await.expect_status(202).string_field("id");
        wired.hand_off("relay", "re_a").await;
        wired.hand_off("relay", "re_b").await;
        let event = resend_event("email.bounced", &email, "b@example.com");
        wired.world.call(signed_webhook(&wired.world, &path, "e1", &event)).await.expect_status(200);
        let states: Vec<Value> = wired.world.email(&email).await["handoffs"].as_array().unwrap().iter()
            .map(|handoff| json!([handoff["recipients"][0], handoff["state"]])).collect();
        assert_eq!(states, [json!(["a@example.com", "sent"]), json!(["b@example.com", "bounced"])]);
        wired.world.send("a", &mail_with(json!({ "to": "a@example.com" }))).await.expect_status(202);
        wired.world.send("b", &mail_with(json!({ "to": "b@example.com" }))).await.expect_problem(422, "recipient_suppressed");
    }

    async fn an_event_is_matched_by_the_providers_own_id(world) {
        let provider = ProviderEventFixture::with_sent_email(world).await;
        let event = resend_event("email.delivered", "not our id", "user@example.com");
        let answer = provider.fixture.world.call(signed_webhook(&provider.fixture.world, &provider.source_path, "e1", &event)).await.expect_status(200);
        assert_eq!(answer["recorded"], 1);
        assert_eq!(provider.email_state().await, "delivered");
    }

    async fn a_duplicate_bounce_does_not_restore_a_removed_suppression(world) {
        let provider = ProviderEventFixture::with_sent_email(world).await;
        provider.post_event("e1", "email.bounced").await;
        let world = &provider.fixture.world;
        world.call(delete("/v1/suppressions/user@example.com")).await.expect_status(200);
        let again = provider.post_event("e1", "email.bounced").await;
        assert_eq!((&again["already_known"], &again["addresses_suppressed"]), (&json!(1), &json!(0)));
        world.send("next", &mail()).await.expect_status(202);
    }

    async fn unauthenticated_events_are_refused(world) {
        let provider = ProviderEventFixture::with_sent_email(world).await;
        let world = &provider.fixture.world;
        let event = resend_event("email.bounced", &provider.email_id, "user@example.com");
        let plain = |path: &str| post(path).anonymous().json(&event);
        world.call(plain(&provider.source_path)).await.expect_problem(401, "bad_signature");
        let forged = signed_webhook(world, &provider.source_path, "e1", &event).json_bytes(event.to_string().replace("bounced", "complained"));
        world.call(forged).await.expect_problem(401, "bad_signature");
        let old = signed_webhook(world, &provider.source_path, "e1", &event);
        world.advance_clock(10 * MINUTE);
        // Our clock may be wrong, so the provider is asked to retry.
        let late = world.call(old).await.expect_problem(503, "unavailable");
        assert!(late.header("retry-after").is_some());
        world.call(plain("/hooks/01a1dd04-6b9c-7000-a6ea-eb0dbef0a296")).await.expect_problem(404, "not_found");
        world.call(plain("/hooks/nonsense")).await.expect_problem(404, "not_found");
        let large = post(&provider.source_path).anonymous().raw_body(vec![b' '; (1 << 20) + 1]);
        world.call(large).await.expect_problem(413, "too_large");
        assert_eq!(provider.email_state().await, "sent");
        assert!(world.get("/v1/suppressions").await.expect_status(200).rows().is_empty());
    }

    async fn an_event_about_an_unknown_email_is_acknowledged_and_counted(world) {
        let provider = ProviderEventFixture::with_sent_email(world).await;
        let mut event = resend_event("email.bounced", "01a1dd04-6b9c-7000-a6ea-eb0dbef0a296", "user@example.com");
        event["data"]["email_id"] = json!("re_9");
        let world = &provider.fixture.world;
        let answer = world.call(signed_webhook(world, &provider.source_path, "e1", &event)).await.expect_status(200);
        assert_eq!((&answer["unmatched"], &answer["addresses_suppressed"]), (&json!(1), &json!(0)));
        let metrics = world.get("/metrics").await.expect_status(200).text;
        let counted = |line: &str| line.starts_with("mailonce_hook_reports") && line.contains("\"unmatched\"") && line.ends_with(" 1");
        assert!(metrics.lines().any(counted), "{metrics}");
    }
}
