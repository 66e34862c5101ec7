//! Mail that a provider announces by webhook: fetched, stored once, and dead with a reason when it cannot be fetched.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use mailonce_core::{
    id::{DeliveryId, TeamId},
    inbound::delivery::{DeliveryFormat, FetchedContent},
    limits,
};
use serde_json::{Value, json};
use sha2::Sha256;
use std::{fmt::Write as _, sync::Arc};
use uuid::Uuid;

use crate::fixtures::{
    api_fixture::{MINUTE, SECOND, World, incoming_mail},
    engine_deps::unix_seconds,
    fake_providers::{API_KEY, FakeProvider, ProviderFault, ProviderMail, engine_deps_with_collector},
    requests::{TestRequest, post},
};

const SIGNING_KEY: &[u8; 24] = b"a secret of 24 letters!!";

fn hmac_sha256(text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(SIGNING_KEY).unwrap();
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

/// Creates a Resend source with extra fields. Returns its webhook path.
pub(crate) async fn create_resend_source(world: &World, provider: &FakeProvider, more: Value) -> String {
    let secret = format!("whsec_{}", STANDARD.encode(SIGNING_KEY));
    let mut body = json!({ "name": "resend", "kind": "resend", "accepts": ["inbound"], "secret": secret,
        "api_key": API_KEY, "base_url": provider.url });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    world.post("/v1/sources", &body).await.expect_status(201).string_field("hook_path")
}

/// Resend's webhook for a received mail.
pub(crate) fn resend_received_webhook(world: &World, path: &str, id: &str, to: &str) -> TestRequest {
    let body =
        json!({ "type": "email.received", "data": { "email_id": id, "to": [to], "received_for": [to] } }).to_string();
    let at = unix_seconds(world.engine.ctx.now());
    let signature = format!("v1,{}", STANDARD.encode(hmac_sha256(format!("msg_{id}.{at}.{body}").as_bytes())));
    let call = post(path).anonymous().header("svix-id", &format!("msg_{id}")).header("svix-timestamp", &at);
    call.header("svix-signature", &signature).json_bytes(body)
}

pub(crate) async fn parse_and_list_messages(world: &World, inbox: &str) -> Vec<Value> {
    while world.engine.inbound.process_waiting_deliveries().await.unwrap() > 0 {}
    world.get(&format!("/v1/inboxes/{inbox}/messages?limit=100")).await.expect_status(200).rows()
}

pub(crate) async fn list_deliveries(world: &World) -> Vec<Value> {
    world.get("/v1/deliveries?limit=100").await.expect_status(200).rows()
}

async fn raw_message(world: &World, message: &Value) -> String {
    world.get(&format!("/v1/messages/{}/raw", message["id"].as_str().unwrap())).await.expect_status(200).text
}

over_every_engine! {
    async fn an_announced_mail_is_fetched_and_becomes_one_message(world) {
        let world = world.with_providers().await;
        let provider = FakeProvider::start().await;
        let inbox = world.create_inbox("a").await;
        let path = create_resend_source(&world, &provider, json!({})).await;
        provider.add_mail(ProviderMail::new("m1", world.timestamp_in(0), "a@agents.test"));
        for accepted in [1, 0, 0] {
            let answer = world.call(resend_received_webhook(&world, &path, "m1", "a@agents.test")).await.expect_status(200);
            assert_eq!((&answer["deliveries_accepted"], &answer["deliveries_duplicate"]), (&json!(accepted), &json!(1 - accepted)));
        }
        let rows = parse_and_list_messages(&world, &inbox).await;
        assert_eq!((rows.len(), &rows[0]["subject"]), (1, &json!("Mail m1")));
        assert!(raw_message(&world, &rows[0]).await.ends_with("\r\n\r\nHello m1\r\n"), "the mail itself is stored, not the webhook");
        assert_eq!(provider.take_requested_paths(), ["/emails/receiving/m1?html_format=cid", "/raw/m1?signature=s"]);
        let rows = list_deliveries(&world).await;
        let states: Vec<_> = rows.iter().map(|row| (row["state"].as_str().unwrap(), &row["reason"])).collect();
        let again = ("duplicate", &json!("same_delivery"));
        assert_eq!(states, [again, again, ("done", &Value::Null)]);
    }

    async fn a_fetch_from_a_failing_provider_is_retried_later(world) {
        let world = world.with_providers().await;
        let provider = FakeProvider::start().await;
        let inbox = world.create_inbox("a").await;
        let path = create_resend_source(&world, &provider, json!({})).await;
        provider.add_mail(ProviderMail::new("m1", world.timestamp_in(0), "a@agents.test"));
        provider.queue_faults(&[ProviderFault::TooManyRequests(90), ProviderFault::Status(500), ProviderFault::TruncatedBody, ProviderFault::CaptivePortalPage, ProviderFault::Redirect, ProviderFault::Status(401)]);
        world.call(resend_received_webhook(&world, &path, "m1", "a@agents.test")).await.expect_status(200);
        assert!(parse_and_list_messages(&world, &inbox).await.is_empty());
        world.advance_clock(89 * SECOND);
        assert!(parse_and_list_messages(&world, &inbox).await.is_empty());
        assert_eq!(provider.take_requested_paths().len(), 1, "no retry before the requested delay has passed");
        let mut errors = Vec::new();
        for _ in 0..5 {
            world.advance_clock(5 * MINUTE);
            assert!(parse_and_list_messages(&world, &inbox).await.is_empty());
            let row = list_deliveries(&world).await.remove(0);
            assert_eq!(row["state"], "waiting", "{row}");
            errors.push(row["last_error"].as_str().unwrap().to_owned());
        }
        for (error, expected) in errors.iter().zip(["500", "ended early", "not a JSON object", "302", "401"]) {
            assert!(error.contains(expected), "{expected}: {errors:?}");
        }
        world.advance_clock(5 * MINUTE);
        assert_eq!(parse_and_list_messages(&world, &inbox).await.len(), 1);
        assert_eq!(list_deliveries(&world).await[0]["state"], "done");
    }

    async fn a_mail_missing_at_the_provider_is_dead_and_can_be_replayed(world) {
        let world = world.with_providers().await;
        let provider = FakeProvider::start().await;
        let inbox = world.create_inbox("a").await;
        let path = create_resend_source(&world, &provider, json!({})).await;
        world.call(resend_received_webhook(&world, &path, "m1", "a@agents.test")).await.expect_status(200);
        for _ in 0..4 {
            assert!(parse_and_list_messages(&world, &inbox).await.is_empty());
            world.advance_clock(MINUTE);
        }
        assert_eq!(provider.take_requested_paths().len(), 3, "a 404 is retried, because a webhook may precede the provider's own store");
        let row = list_deliveries(&world).await.remove(0);
        assert_eq!(row["state"], "dead");
        assert!(row["last_error"].as_str().unwrap().contains("404"), "{row}");
        provider.add_mail(ProviderMail::new("m1", world.timestamp_in(0), "a@agents.test"));
        world.post(&format!("/v1/deliveries/{}/replay", row["id"].as_str().unwrap()), &json!({})).await.expect_status(200);
        assert_eq!(parse_and_list_messages(&world, &inbox).await.len(), 1);
    }

    async fn without_a_provider_key_deliveries_are_dead_until_one_is_set(world) {
        let world = world.with_providers().await;
        let provider = FakeProvider::start().await;
        let inbox = world.create_inbox("a").await;
        let path = create_resend_source(&world, &provider, json!({ "api_key": null, "base_url": null })).await;
        provider.add_mail(ProviderMail::new("m1", world.timestamp_in(0), "a@agents.test"));
        world.call(resend_received_webhook(&world, &path, "m1", "a@agents.test")).await.expect_status(200);
        assert!(parse_and_list_messages(&world, &inbox).await.is_empty());
        let row = list_deliveries(&world).await.remove(0);
        assert!(row["last_error"].as_str().unwrap().contains("no api_key"), "{row}");
        let id = path.rsplit('/').next().unwrap();
        let body = json!({ "api_key": API_KEY, "base_url": provider.url });
        let source = world.post(&format!("/v1/sources/{id}/rotate"), &body).await.expect_status(200);
        assert_eq!((&source["has_api_key"], &source["secret_count"]), (&json!(true), &json!(1)));
        assert!(!source.text.contains(API_KEY), "the API key is never shown again");
        world.post(&format!("/v1/deliveries/{}/replay", row["id"].as_str().unwrap()), &json!({})).await.expect_status(200);
        assert_eq!(parse_and_list_messages(&world, &inbox).await.len(), 1);
    }

    async fn a_mail_given_as_fields_is_assembled_with_its_attachments(world) {
        let world = world.with_providers().await;
        let provider = FakeProvider::start().await;
        let inbox = world.create_inbox("a").await;
        let path = create_resend_source(&world, &provider, json!({})).await;
        provider.add_mail(ProviderMail { has_raw: false, ..ProviderMail::new("m1", world.timestamp_in(0), "a@agents.test") });
        world.call(resend_received_webhook(&world, &path, "m1", "a@agents.test")).await.expect_status(200);
        let rows = parse_and_list_messages(&world, &inbox).await;
        assert_eq!(rows.len(), 1);
        let full = world.get(&format!("/v1/messages/{}?view=full", rows[0]["id"].as_str().unwrap())).await.expect_status(200);
        assert_eq!(full["attachments"][0]["filename"], "a.txt");
        assert!(full.text.contains("Hello m1"));
    }

    async fn a_download_url_on_another_host_is_not_fetched(world) {
        let world = world.with_providers().await;
        let (provider, elsewhere) = (FakeProvider::start().await, FakeProvider::start().await);
        let inbox = world.create_inbox("a").await;
        let path = create_resend_source(&world, &provider, json!({})).await;
        provider.add_mail(ProviderMail::new("m1", world.timestamp_in(0), "a@agents.test"));
        elsewhere.add_mail(ProviderMail::new("m1", world.timestamp_in(0), "a@agents.test"));
        provider.set_download_url(&elsewhere.url);
        world.call(resend_received_webhook(&world, &path, "m1", "a@agents.test")).await.expect_status(200);
        assert!(parse_and_list_messages(&world, &inbox).await.is_empty());
        assert_eq!(list_deliveries(&world).await[0]["state"], "dead");
        assert!(elsewhere.take_requested_paths().is_empty());
    }

    async fn nylas_mail_is_fetched_under_its_grant(world) {
        let world = world.with_providers().await;
        let provider = FakeProvider::start().await;
        let inbox = world.create_inbox("a").await;
        let body = json!({ "name": "nylas", "kind": "nylas", "secret": std::str::from_utf8(SIGNING_KEY).unwrap(),
            "api_key": API_KEY, "base_url": provider.url });
        let path = world.post("/v1/sources", &body).await.expect_status(201).string_field("hook_path");
        provider.add_mail(ProviderMail::new("m1", world.timestamp_in(0), "a@agents.test"));
        let object = json!({ "id": "m1", "grant_id": "g1", "to": [{ "email": "a@agents.test" }] });
        let body = json!({ "type": "message.created.truncated", "id": "n", "data": { "object": object } }).to_string();
        let signature = hmac_sha256(body.as_bytes()).iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        });
        world.call(post(&path).anonymous().header("x-nylas-signature", &signature).json_bytes(body)).await.expect_status(200);
        let rows = parse_and_list_messages(&world, &inbox).await;
        assert_eq!((rows.len(), &rows[0]["subject"]), (1, &json!("Mail m1")));
        assert_eq!(provider.take_requested_paths(), ["/v3/grants/g1/messages/m1?fields=raw_mime"]);
    }

    async fn collection_settings_are_validated(world) {
        let secret = json!(format!("whsec_{}", STANDARD.encode(SIGNING_KEY)));
        let inbound = |kind: &str, more: Value| {
            let mut body = json!({ "name": "n", "kind": kind, "accepts": ["inbound"], "secret": secret });
            for (name, value) in more.as_object().unwrap() {
                body[name] = value.clone();
            }
            body
        };
        for (body, field) in [
            (inbound("resend", json!({ "poll_interval": "5m" })), "poll_interval"),
            (inbound("resend", json!({ "poll_interval": "5m", "base_url": "https://x.test" })), "base_url"),
            (inbound("resend", json!({ "poll_interval": "1s", "api_key": API_KEY })), "poll_interval"),
            (inbound("resend", json!({ "poll_interval": "soon", "api_key": API_KEY })), "poll_interval"),
            (inbound("resend", json!({ "api_key": "two words" })), "api_key"),
            (inbound("nylas", json!({ "poll_interval": "5m", "api_key": API_KEY })), "poll_interval"),
            (inbound("standard", json!({ "api_key": API_KEY })), "api_key"),
            (json!({ "name": "n", "kind": "resend", "transport": "sandbox", "secret": secret, "api_key": API_KEY }), "api_key"),
        ] {
            world.post("/v1/sources", &body).await.expect_problem(422, "invalid_field").expect_field(field);
        }
        let strict = Arc::new(mailonce_transport::collect::HttpMailCollector::new(None, false));
        let world = world.with_engine_deps(mailonce_engine::EngineDeps { mail_collector: strict, ..engine_deps_with_collector() }).await;
        for base_url in ["http://x.test", "ftp://x.test", "https://u:p@x.test", "nonsense"] {
            let body = inbound("resend", json!({ "api_key": API_KEY, "base_url": base_url }));
            world.post("/v1/sources", &body).await.expect_problem(422, "invalid_field").expect_field("base_url");
        }
        let created = world.post("/v1/sources", &inbound("resend", json!({ "api_key": API_KEY, "poll_interval": "5m" }))).await.expect_status(201);
        assert_eq!((&created["poll_interval"], &created["has_api_key"], &created["last_polled_at"]), (&json!("5m"), &json!(true), &Value::Null));
        assert!(!created.text.contains(API_KEY));
    }
}

#[tokio::test]
async fn a_provider_that_does_not_respond_delays_no_other_mail() {
    let world = World::memory().await.with_providers().await;
    let provider = FakeProvider::start().await;
    let inbox = world.create_inbox("a").await;
    let path = create_resend_source(&world, &provider, json!({})).await;
    provider.queue_faults(&[ProviderFault::Stall; 30]);
    for n in 0..30 {
        world.call(resend_received_webhook(&world, &path, &format!("m{n}"), "a@agents.test")).await.expect_status(200);
    }
    let (_stop_sender, stop) = tokio::sync::watch::channel(false);
    let reader = tokio::spawn(Arc::clone(&world.engine.inbound).run_inbound_worker(stop));
    while provider.take_requested_paths().is_empty() {
        tokio::task::yield_now().await;
    }
    let mail = "From: ann@shop.test\nMessage-ID: <x@shop.test>\nSubject: Other\n\nHello\n";
    world.engine.inbound.receive_mail(incoming_mail(&["a@agents.test"], mail)).await.unwrap();
    let found = world.get(&format!("/v1/inboxes/{inbox}/wait?timeout=15")).await.expect_status(200);
    assert_eq!(found["message"]["subject"], "Other");
    reader.abort();
    assert!(reader.await.unwrap_err().is_cancelled());
}

/// One message each after a kill while the provider answers and a kill between fetching and processing.
#[tokio::test]
async fn a_kill_between_fetching_and_processing_makes_one_message() {
    let world = World::sqlite().await.with_providers().await;
    let provider = FakeProvider::start().await;
    let inbox = world.create_inbox("a").await;
    let path = create_resend_source(&world, &provider, json!({})).await;
    for id in ["m1", "m2"] {
        provider.add_mail(ProviderMail::new(id, world.timestamp_in(0), "a@agents.test"));
        world.call(resend_received_webhook(&world, &path, id, "a@agents.test")).await.expect_status(200);
    }
    provider.queue_faults(&[ProviderFault::Stall]);
    let killed_engine = Arc::clone(&world.engine);
    let reader = tokio::spawn(async move { killed_engine.inbound.process_waiting_deliveries().await });
    while provider.take_requested_paths().is_empty() {
        tokio::task::yield_now().await;
    }
    reader.abort();
    assert!(reader.await.unwrap_err().is_cancelled());
    let rows = list_deliveries(&world).await;
    let second: Uuid = rows[0]["id"].as_str().unwrap().parse().unwrap();
    let team: TeamId = world.engine.access.teams().await.unwrap()[0].id;
    let raw = ProviderMail::new("m2", world.timestamp_in(0), "a@agents.test").raw;
    let size = raw.len() as u64;
    // The engine stores content that LZ4 cannot shrink uncompressed, with one prefix byte.
    let raw: Arc<[u8]> = [[2].as_slice(), raw.as_bytes()].concat().into();
    let storage_id = DeliveryId(Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001));
    let content = FetchedContent { storage_id, form: DeliveryFormat::Mime, size, raw };
    world.engine.ctx.store().attach_fetched_content(team, DeliveryId(second), content).await.unwrap().unwrap();
    let world = world.restart().await.with_providers().await;
    world.advance_clock(limits::DELIVERY_LEASE_MS + SECOND);
    let rows = parse_and_list_messages(&world, &inbox).await;
    let mut subjects: Vec<_> = rows.iter().map(|row| row["subject"].as_str().unwrap()).collect();
    subjects.sort_unstable();
    assert_eq!(subjects, ["Mail m1", "Mail m2"]);
    let requested = provider.take_requested_paths();
    assert!(
        requested.iter().all(|path| path.contains("m1")),
        "stored content must not be fetched again: {requested:?}"
    );
}
