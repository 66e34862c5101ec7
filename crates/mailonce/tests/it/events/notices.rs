//! Webhook delivery: every event reaches every subscribed endpoint, under one id, in order for each subject.

use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, watch};

use crate::fixtures::{
    api_fixture::{DAY, HOUR, MINUTE, SECOND, World, mail, mail_with},
    requests::{TestRequest, patch, post},
    webhook_receivers::{ReceiverAction, ScriptedReceiver, WebhookServer, respond_with},
};
use mailonce_engine::EngineDeps;
use mailonce_transport::{egress::EgressPolicy, webhook::HttpWebhookSender};

const ENDPOINT_URL: &str = "https://hooks.example.com/in";

/// Sends emails to the sandbox. Each has two events, in order.
async fn send_emails(world: &World, name: &str, count: usize) {
    for n in 0..count {
        world.send(&format!("{name}{n}"), &mail()).await.expect_status(202);
    }
    world.hand_off_due().await;
}

fn id_of(value: &Value) -> &str {
    value["id"].as_str().unwrap()
}

/// Fails unless the receiver accepted every event once, in order for each subject, and each under its own id.
fn expect_each_event_once_in_order(receiver: &ScriptedReceiver, events: &[Value]) {
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for event in receiver.accepted_events() {
        let (about, seq) = (event["about"]["id"].as_str().unwrap().to_owned(), event["seq"].as_u64().unwrap());
        assert!(seen.insert(seq), "event {seq} was accepted twice");
        let before = last.insert(about, seq).unwrap_or(0);
        assert!(before < seq, "event {seq} came after {before} of the same subject");
    }
    assert_eq!(seen, (1..=events.len() as u64).collect());
    let mut ids_by_event: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (post, _) in receiver.posts() {
        let event: Value = serde_json::from_slice(&post.body).unwrap();
        ids_by_event.entry(id_of(&event).to_owned()).or_default().insert(post.id);
    }
    assert!(ids_by_event.values().all(|ids| ids.len() == 1), "{ids_by_event:?}");
    assert_eq!(ids_by_event.values().flatten().collect::<BTreeSet<_>>().len(), events.len());
}

async fn notice_state_counts(world: &World, endpoint: &Value) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page =
            world.get(&format!("/v1/endpoints/{}/notices?limit=100{cursor}", id_of(endpoint))).await.expect_status(200);
        for notice in page.rows() {
            *counts.entry(notice["state"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return counts,
        }
    }
}

over_every_engine! {
    async fn every_event_is_delivered_as_the_list_shows_it(world) {
        let receiver = ScriptedReceiver::new(|_| respond_with(200));
        let world = world.with_notifier(receiver.clone()).await;
        send_emails(&world, "before", 1).await;
        let endpoint = world.create_endpoint(ENDPOINT_URL).await;
        send_emails(&world, "k", 3).await;
        world.engine.events.deliver_due_notices().await;
        world.engine.events.deliver_due_notices().await;
        let events = world.events().await;
        let mut delivered = receiver.accepted_events();
        delivered.sort_by_key(|event| event["seq"].as_u64());
        assert_eq!(delivered, events[2..], "the endpoint receives later events exactly as the list shows them");
        let (post, _) = receiver.posts().remove(0);
        assert_eq!((post.url.as_str(), post.timestamp_s, post.secrets.len()), (ENDPOINT_URL, world.engine.ctx.now().0 / 1000, 1));
        assert_eq!(notice_state_counts(&world, &endpoint).await, BTreeMap::from([("delivered".to_owned(), 6)]));
        let notice = world.get(&format!("/v1/notices/{}", post.id)).await.expect_status(200);
        assert_eq!((&notice["attempt_count"], &notice["attempts"][0]["status"]), (&json!(1), &json!(200)));
    }

    async fn an_endpoint_receives_the_subscribed_types_from_its_cursor_on(world) {
        let receiver = ScriptedReceiver::new(|_| respond_with(204));
        let world = world.with_notifier(receiver.clone()).await;
        send_emails(&world, "k", 2).await;
        world.post("/v1/endpoints", &json!({ "url": ENDPOINT_URL, "events": ["email.sent"], "after": "0" })).await.expect_status(201);
        world.engine.events.deliver_due_notices().await;
        let kinds: Vec<Value> = receiver.accepted_events().into_iter().map(|event| event["type"].clone()).collect();
        assert_eq!(kinds, ["email.sent", "email.sent"]);
    }

    async fn an_endpoint_down_for_a_week_loses_no_event(world) {
        let up = Arc::new(AtomicBool::new(false));
        let is_up = Arc::clone(&up);
        let receiver = ScriptedReceiver::new(move |post| match post.timestamp_s % 3 {
            _ if is_up.load(Ordering::SeqCst) => respond_with(200),
            0 => respond_with(503),
            1 => respond_with(301),
            _ => ReceiverAction::Disconnect,
        });
        let world = world.with_notifier(receiver.clone()).await;
        let endpoint = world.create_endpoint(ENDPOINT_URL).await;
        let begin = world.engine.ctx.now();
        let mut created = 0;
        while world.engine.ctx.now().since(begin) < 7 * DAY {
            if created < 14 && world.engine.ctx.now().since(begin) >= created * 12 * HOUR {
                send_emails(&world, &format!("day{created}-"), 2).await;
                created += 1;
            }
            world.engine.events.deliver_due_notices().await;
            let next = world.engine.ctx.store().next_notice_due().await.unwrap();
            let pause = next.map_or(HOUR, |due| due.since(world.engine.ctx.now()));
            world.advance_clock(pause.clamp(SECOND, HOUR));
        }
        assert_eq!((receiver.accepted_events().len(), created), (0, 14));
        let tries = receiver.posts().len();
        assert!(tries < 2_000, "{tries} tries in a week");
        up.store(true, Ordering::SeqCst);
        // Dead notices are queued again before new events are delivered.
        let since = json!({ "since": begin.to_string() });
        world.post(&format!("/v1/endpoints/{}/recover", id_of(&endpoint)), &since).await.expect_status(202);
        for _ in 0..100 {
            world.engine.events.deliver_due_notices().await;
            world.advance_clock(HOUR);
        }
        let events = world.events().await;
        assert_eq!(events.len(), 56);
        expect_each_event_once_in_order(&receiver, &events);
        let read = world.get(&format!("/v1/endpoints/{}", id_of(&endpoint))).await.expect_status(200);
        assert_eq!((&read["state"], &read["failing_since"]), (&json!("enabled"), &json!(null)));
    }

    async fn include_text_adds_the_message_text_without_its_code(world) {
        let receiver = ScriptedReceiver::new(|_| respond_with(200));
        let deps = EngineDeps { webhook_sender: receiver.clone(), local_domains: vec!["agents.test".into()], ..EngineDeps::default() };
        let world = world.with_engine_deps(deps).await;
        world.create_inbox("a").await;
        let request = json!({ "url": ENDPOINT_URL, "events": ["message.received"], "include_text": true });
        let endpoint = world.post("/v1/endpoints", &request).await.expect_status(201).body;
        world.post("/v1/endpoints", &json!({ "url": "https://thin.example.com/" })).await.expect_status(201);
        let mail = "From: Shop <s@shop.test>\nTo: a@agents.test\nMessage-ID: <1@shop.test>\nSubject: Code\n\n\
            Hello Ann. Your verification code is 482913.\n";
        world.receive_mail(&["a@agents.test"], mail).await;
        world.engine.events.deliver_due_notices().await;
        let posts = receiver.posts();
        assert!(posts.len() > 1 && posts.iter().all(|(post, _)| !String::from_utf8_lossy(&post.body).contains("482913")));
        for (post, _) in posts {
            let event: Value = serde_json::from_slice(&post.body).unwrap();
            let text = event["data"]["text"].as_str();
            assert_eq!(text.is_some_and(|text| text.contains("Hello Ann")), post.url == ENDPOINT_URL, "{event}");
        }
        let path = format!("/v1/endpoints/{}", id_of(&endpoint));
        assert_eq!(world.call(patch(&path).json(&json!({ "include_text": false }))).await.expect_status(200).body["include_text"], false);
    }

    async fn a_receiver_that_answers_410_is_disabled_with_an_event(world) {
        let receiver = ScriptedReceiver::new(|post| respond_with(if post.url == ENDPOINT_URL { 410 } else { 200 }));
        let world = world.with_notifier(receiver.clone()).await;
        let (gone, other) = (world.create_endpoint(ENDPOINT_URL).await, world.create_endpoint("https://other.example.com/").await);
        send_emails(&world, "k", 1).await;
        world.engine.events.deliver_due_notices().await;
        world.engine.events.deliver_due_notices().await;
        let read = world.get(&format!("/v1/endpoints/{}", id_of(&gone))).await.expect_status(200);
        assert_eq!((&read["state"], &read["reason"]), (&json!("disabled"), &json!("gone")));
        let last = world.events().await.pop().unwrap();
        assert_eq!((&last["type"], &last["about"]["id"]), (&json!("endpoint.disabled"), &gone["id"]));
        assert_eq!(notice_state_counts(&world, &other).await["delivered"], 3, "the other endpoint also receives endpoint.disabled");
        let before = receiver.posts().len();
        send_emails(&world, "l", 1).await;
        world.advance_clock(DAY);
        world.engine.events.deliver_due_notices().await;
        assert!(receiver.posts()[before..].iter().all(|(post, _)| post.url != ENDPOINT_URL));
        receiver.set_script(|_| respond_with(200));
        world.call(post(&format!("/v1/endpoints/{}/resume", id_of(&gone)))).await.expect_status(200);
        for _ in 0..9 {
            world.engine.events.deliver_due_notices().await;
            world.advance_clock(DAY);
        }
        assert_eq!(notice_state_counts(&world, &gone).await.get("pending"), None);
    }

    async fn a_paused_endpoint_receives_everything_after_it_resumes(world) {
        let receiver = ScriptedReceiver::new(|_| respond_with(200));
        let world = world.with_notifier(receiver.clone()).await;
        let endpoint = world.create_endpoint(ENDPOINT_URL).await;
        let set_state = |action: &str| world.call(post(&format!("/v1/endpoints/{}/{action}", id_of(&endpoint))));
        assert_eq!(set_state("pause").await.expect_status(200)["state"], "paused");
        send_emails(&world, "k", 2).await;
        world.engine.events.deliver_due_notices().await;
        assert_eq!(receiver.posts().len(), 0);
        assert_eq!(set_state("resume").await.expect_status(200)["state"], "enabled");
        for _ in 0..3 {
            world.engine.events.deliver_due_notices().await;
        }
        expect_each_event_once_in_order(&receiver, &world.events().await);
    }

    async fn abort_and_retry_after_of_a_receiver_are_honored(world) {
        let receiver = ScriptedReceiver::new(|_| {
            ReceiverAction::Respond(mailonce_core::events::webhook::WebhookResponse {
                status: 400,
                delivery_directive: Some("abort-message".into()),
                ..Default::default()
            })
        });
        let world = world.with_notifier(receiver.clone()).await;
        let endpoint = world.create_endpoint(ENDPOINT_URL).await;
        world.send("k", &mail()).await.expect_status(202);
        world.engine.events.deliver_due_notices().await;
        assert_eq!(notice_state_counts(&world, &endpoint).await, BTreeMap::from([("dropped".to_owned(), 1)]));
        receiver.set_script(|_| {
            ReceiverAction::Respond(mailonce_core::events::webhook::WebhookResponse {
                status: 429,
                retry_after: Some("3600".into()),
                ..Default::default()
            })
        });
        world.send("l", &mail()).await.expect_status(202);
        world.engine.events.deliver_due_notices().await;
        let before = receiver.posts().len();
        world.advance_clock(59 * MINUTE);
        world.engine.events.deliver_due_notices().await;
        assert_eq!(receiver.posts().len(), before, "no retry before Retry-After has passed");
        world.advance_clock(2 * MINUTE);
        receiver.set_script(|_| respond_with(200));
        world.engine.events.deliver_due_notices().await;
        assert_eq!(receiver.posts().len(), before + 1);
    }

    async fn a_replayed_notice_keeps_its_id_and_is_sent_once_per_key(world) {
        let receiver = ScriptedReceiver::new(|_| respond_with(200));
        let world = world.with_notifier(receiver.clone()).await;
        let endpoint = world.create_endpoint(ENDPOINT_URL).await;
        send_emails(&world, "k", 2).await;
        for _ in 0..3 {
            world.engine.events.deliver_due_notices().await;
        }
        let first = receiver.posts().remove(0).0;
        let replay = || world.call(post(&format!("/v1/notices/{}/replay", first.id)).key("again"));
        assert_eq!(replay().await.expect_status(200)["state"], "pending");
        world.engine.events.deliver_due_notices().await;
        replay().await.expect_status(200);
        world.engine.events.deliver_due_notices().await;
        let again: Vec<_> = receiver.posts().into_iter().skip(4).map(|(post, _)| (post.id, post.body)).collect();
        assert_eq!(again, [(first.id.clone(), first.body.clone())]);
        let everything = json!({ "after": "0", "include": "all" });
        world.post(&format!("/v1/endpoints/{}/recover", id_of(&endpoint)), &everything).await.expect_status(202);
        for _ in 0..3 {
            world.engine.events.deliver_due_notices().await;
        }
        assert_eq!(receiver.posts().len(), 4 + 1 + 4);
        for (body, field) in
            [(json!({}), "since"), (json!({ "since": "now" }), "since"), (json!({ "after": "0", "include": "x" }), "include")]
        {
            let path = format!("/v1/endpoints/{}/recover", id_of(&endpoint));
            world.post(&path, &body).await.expect_problem(422, "invalid_field").expect_field(field);
        }
    }

    async fn during_a_rotation_both_secrets_sign(world) {
        let receiver = ScriptedReceiver::new(|_| respond_with(200));
        let world = world.with_notifier(receiver.clone()).await;
        let endpoint = world.create_endpoint(ENDPOINT_URL).await;
        let path = format!("/v1/endpoints/{}/rotate", id_of(&endpoint));
        let rotated = world.post(&path, &json!({ "previous_secret_ttl": "1h" })).await.expect_status(200);
        assert_ne!(rotated["secret"], endpoint["secret"]);
        world.send("k", &mail()).await.expect_status(202);
        world.engine.events.deliver_due_notices().await;
        world.advance_clock(HOUR);
        world.send("l", &mail()).await.expect_status(202);
        world.engine.events.deliver_due_notices().await;
        let counts: Vec<usize> = receiver.posts().iter().map(|(post, _)| post.secrets.len()).collect();
        assert_eq!(counts, [2, 1]);
        assert_eq!(receiver.posts()[0].0.secrets[0], receiver.posts()[1].0.secrets[0], "the newest secret comes first");
    }

    async fn one_slow_endpoint_delays_no_other(world) {
        let release = Arc::new(Notify::new());
        let release_signal = Arc::clone(&release);
        let receiver =
            ScriptedReceiver::new(move |post| if post.url == ENDPOINT_URL { ReceiverAction::WaitFor(Arc::clone(&release_signal)) } else { respond_with(200) });
        let world = world.with_notifier(receiver.clone()).await;
        world.create_endpoint(ENDPOINT_URL).await;
        let (stop, stopped) = watch::channel(false);
        let notifier = tokio::spawn(Arc::clone(&world.engine.events).run_notifier(stopped));
        world.send("slow", &mail()).await.expect_status(202);
        world.create_endpoint("https://other.example.com/").await;
        for n in 0..20 {
            world.send(&format!("k{n}"), &mail()).await.expect_status(202);
            receiver.wait_for_requests(n + 1).await;
        }
        assert!(receiver.posts().iter().all(|(post, _)| post.url != ENDPOINT_URL));
        // The slow endpoint answers one notice at a time, and each response allows another request.
        for n in 21..=41 {
            release.notify_one();
            receiver.wait_for_requests(n).await;
        }
        stop.send_replace(true);
        release.notify_waiters();
        notifier.await.unwrap();
    }

    async fn an_endpoint_receives_at_most_its_rate_limit(world) {
        let receiver = ScriptedReceiver::new(|_| respond_with(200));
        let world = world.with_notifier(receiver.clone()).await;
        world.post("/v1/endpoints", &json!({ "url": ENDPOINT_URL, "rate_per_s": 5 })).await.expect_status(201);
        let (stop, stopped) = watch::channel(false);
        for n in 0..12 {
            world.send(&format!("k{n}"), &mail()).await.expect_status(202);
        }
        let notifier = tokio::spawn(Arc::clone(&world.engine.events).run_notifier(stopped));
        for passed in [5, 10] {
            receiver.wait_for_requests(passed).await;
            // The test clock does not advance, so the rate limit allows no more.
            tokio::time::sleep(Duration::from_millis(450)).await;
            assert_eq!(receiver.posts().len(), passed);
            world.advance_clock(SECOND);
        }
        receiver.wait_for_requests(12).await;
        stop.send_replace(true);
        notifier.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_pending_notices_are_delivered_once_each() {
    const MANY: usize = 10_000;
    let webhook_server = WebhookServer::start().await;
    let webhooks = HttpWebhookSender::new(EgressPolicy::new(Vec::new(), true), &[]).unwrap();
    let world = World::sqlite().await.with_notifier(Arc::new(webhooks)).await;
    world.create_endpoint(&format!("http://{}/in", webhook_server.address)).await;
    for n in 0..MANY / 1000 {
        let batch: Vec<Value> = (0..1000)
            .map(|m| mail_with(json!({ "subject": format!("{n} {m}"), "scheduled_at": "in 1 day" })))
            .collect();
        world
            .call(TestRequest::new("POST", "/v1/emails/batch").key(&format!("b{n}")).json(&json!(batch)))
            .await
            .expect_status(202);
    }
    let (stop, stopped) = watch::channel(false);
    let began = std::time::Instant::now();
    let notifier = tokio::spawn(Arc::clone(&world.engine.events).run_notifier(stopped));
    webhook_server.wait_for_requests(MANY).await;
    let took = began.elapsed();
    stop.send_replace(true);
    notifier.await.unwrap();
    println!("{MANY} pending notices were delivered within {took:?}");
    let ids: BTreeSet<String> = webhook_server
        .requests()
        .iter()
        .map(|request| request.lines().find_map(|line| line.strip_prefix("webhook-id: ")).unwrap().to_owned())
        .collect();
    assert_eq!((ids.len(), webhook_server.requests().len()), (MANY, MANY), "each notice is delivered once");
}
