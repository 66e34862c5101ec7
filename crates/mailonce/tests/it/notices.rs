//! Telling: every event reaches every endpoint that wants it, under one id, in order for each subject.

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

use crate::{
    call::{Call, patch, post},
    receiver::{Does, Hall, Scripted, says},
    world::{DAY, HOUR, MINUTE, SECOND, World, mail, mail_with},
};
use mailonce_engine::ways::Outside;
use mailonce_transport::{guard::Reach, webhook::Webhooks};

const URL: &str = "https://hooks.example.com/in";

/// Emails that go to the sandbox and so have two events each, in order.
async fn emails(world: &World, name: &str, count: usize) {
    for n in 0..count {
        world.send(&format!("{name}{n}"), &mail()).await.is(202);
    }
    world.hand_over().await;
}

fn id(thing: &Value) -> &str {
    thing["id"].as_str().unwrap()
}

/// Fails unless what was taken holds every event once, in order for each subject, and each under one id of its own.
fn told_well(receiver: &Scripted, events: &[Value]) {
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for event in receiver.taken() {
        let (about, seq) = (event["about"]["id"].as_str().unwrap().to_owned(), event["seq"].as_u64().unwrap());
        assert!(seen.insert(seq), "event {seq} was taken twice");
        let before = last.insert(about, seq).unwrap_or(0);
        assert!(before < seq, "event {seq} came after {before} of the same subject");
    }
    assert_eq!(seen, (1..=events.len() as u64).collect());
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (post, _) in receiver.posts() {
        let event: Value = serde_json::from_slice(&post.body).unwrap();
        names.entry(id(&event).to_owned()).or_default().insert(post.id);
    }
    assert!(names.values().all(|ids| ids.len() == 1), "{names:?}");
    assert_eq!(names.values().flatten().collect::<BTreeSet<_>>().len(), events.len());
}

async fn states(world: &World, endpoint: &Value) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page = world.get(&format!("/v1/endpoints/{}/notices?limit=100{cursor}", id(endpoint))).await.is(200);
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
    async fn every_event_is_told_as_the_list_shows_it(world) {
        let receiver = Scripted::new(|_| says(200));
        let world = world.told_to(receiver.clone()).await;
        emails(&world, "before", 1).await;
        let endpoint = world.endpoint(URL).await;
        emails(&world, "k", 3).await;
        world.engine.tell_due().await;
        world.engine.tell_due().await;
        let events = world.events().await;
        let mut told = receiver.taken();
        told.sort_by_key(|event| event["seq"].as_u64());
        assert_eq!(told, events[2..], "from the next event on, in the same words");
        let (post, _) = receiver.posts().remove(0);
        assert_eq!((post.url.as_str(), post.at, post.secrets.len()), (URL, world.engine.now().0 / 1000, 1));
        assert_eq!(states(&world, &endpoint).await, BTreeMap::from([("delivered".to_owned(), 6)]));
        let notice = world.get(&format!("/v1/notices/{}", post.id)).await.is(200);
        assert_eq!((&notice["attempts"], &notice["log"][0]["status"]), (&json!(1), &json!(200)));
    }

    async fn an_endpoint_hears_of_what_it_wants_and_from_where_it_wants(world) {
        let receiver = Scripted::new(|_| says(204));
        let world = world.told_to(receiver.clone()).await;
        emails(&world, "k", 2).await;
        world.post("/v1/endpoints", &json!({ "url": URL, "events": ["email.sent"], "after": "0" })).await.is(201);
        world.engine.tell_due().await;
        let kinds: Vec<Value> = receiver.taken().into_iter().map(|event| event["type"].clone()).collect();
        assert_eq!(kinds, ["email.sent", "email.sent"]);
    }

    async fn a_week_of_silence_loses_nothing(world) {
        let up = Arc::new(AtomicBool::new(false));
        let is_up = Arc::clone(&up);
        let receiver = Scripted::new(move |post| match post.at % 3 {
            _ if is_up.load(Ordering::SeqCst) => says(200),
            0 => says(503),
            1 => says(301),
            _ => Does::Breaks,
        });
        let world = world.told_to(receiver.clone()).await;
        let endpoint = world.endpoint(URL).await;
        let begin = world.engine.now();
        let mut made = 0;
        while world.engine.now().since(begin) < 7 * DAY {
            if made < 14 && world.engine.now().since(begin) >= made * 12 * HOUR {
                emails(&world, &format!("day{made}-"), 2).await;
                made += 1;
            }
            world.engine.tell_due().await;
            let next = world.engine.store().next_notice_due().await.unwrap();
            let pause = next.map_or(HOUR, |due| due.since(world.engine.now()));
            world.pass(pause.clamp(SECOND, HOUR));
        }
        assert_eq!((receiver.taken().len(), made), (0, 14));
        let tries = receiver.posts().len();
        assert!(tries < 2_000, "{tries} tries in a week");
        up.store(true, Ordering::SeqCst);
        // What was given up meanwhile is owed again before anything else is told.
        let since = json!({ "since": begin.to_string() });
        world.post(&format!("/v1/endpoints/{}/recover", id(&endpoint)), &since).await.is(202);
        for _ in 0..100 {
            world.engine.tell_due().await;
            world.pass(HOUR);
        }
        let events = world.events().await;
        assert_eq!(events.len(), 56);
        told_well(&receiver, &events);
        let read = world.get(&format!("/v1/endpoints/{}", id(&endpoint))).await.is(200);
        assert_eq!((&read["state"], &read["failing_since"]), (&json!("enabled"), &json!(null)));
    }

    async fn who_asks_for_it_is_told_what_a_message_says_and_never_its_code(world) {
        let receiver = Scripted::new(|_| says(200));
        let outside = Outside { notify: receiver.clone(), local_domains: vec!["agents.test".into()], ..Outside::default() };
        let world = world.rewired(outside).await;
        world.inbox("a").await;
        let wanting = json!({ "url": URL, "events": ["message.received"], "bodies": true });
        let endpoint = world.post("/v1/endpoints", &wanting).await.is(201).body;
        world.post("/v1/endpoints", &json!({ "url": "https://thin.example.com/" })).await.is(201);
        let mail = "From: Shop <s@shop.test>\nTo: a@agents.test\nMessage-ID: <1@shop.test>\nSubject: Code\n\n\
            Hello Ann. Your verification code is 482913.\n";
        world.arrives(&["a@agents.test"], mail).await;
        world.engine.tell_due().await;
        let posts = receiver.posts();
        assert!(posts.len() > 1 && posts.iter().all(|(post, _)| !String::from_utf8_lossy(&post.body).contains("482913")));
        for (post, _) in posts {
            let event: Value = serde_json::from_slice(&post.body).unwrap();
            let text = event["data"]["text"].as_str();
            assert_eq!(text.is_some_and(|text| text.contains("Hello Ann")), post.url == URL, "{event}");
        }
        let path = format!("/v1/endpoints/{}", id(&endpoint));
        assert_eq!(world.call(patch(&path).json(&json!({ "bodies": false }))).await.is(200).body["bodies"], false);
    }

    async fn a_receiver_that_is_gone_is_disabled_and_told_of(world) {
        let receiver = Scripted::new(|post| says(if post.url == URL { 410 } else { 200 }));
        let world = world.told_to(receiver.clone()).await;
        let (gone, other) = (world.endpoint(URL).await, world.endpoint("https://other.example.com/").await);
        emails(&world, "k", 1).await;
        world.engine.tell_due().await;
        world.engine.tell_due().await;
        let read = world.get(&format!("/v1/endpoints/{}", id(&gone))).await.is(200);
        assert_eq!((&read["state"], &read["reason"]), (&json!("disabled"), &json!("gone")));
        let last = world.events().await.pop().unwrap();
        assert_eq!((&last["type"], &last["about"]["id"]), (&json!("endpoint.disabled"), &gone["id"]));
        assert_eq!(states(&world, &other).await["delivered"], 3, "it hears of that too");
        let before = receiver.posts().len();
        emails(&world, "l", 1).await;
        world.pass(DAY);
        world.engine.tell_due().await;
        assert!(receiver.posts()[before..].iter().all(|(post, _)| post.url != URL));
        receiver.now(|_| says(200));
        world.call(post(&format!("/v1/endpoints/{}/resume", id(&gone)))).await.is(200);
        for _ in 0..9 {
            world.engine.tell_due().await;
            world.pass(DAY);
        }
        assert_eq!(states(&world, &gone).await.get("pending"), None);
    }

    async fn a_paused_endpoint_rests_and_hears_everything_later(world) {
        let receiver = Scripted::new(|_| says(200));
        let world = world.told_to(receiver.clone()).await;
        let endpoint = world.endpoint(URL).await;
        let turn = |what: &str| world.call(post(&format!("/v1/endpoints/{}/{what}", id(&endpoint))));
        assert_eq!(turn("pause").await.is(200)["state"], "paused");
        emails(&world, "k", 2).await;
        world.engine.tell_due().await;
        assert_eq!(receiver.posts().len(), 0);
        assert_eq!(turn("resume").await.is(200)["state"], "enabled");
        for _ in 0..3 {
            world.engine.tell_due().await;
        }
        told_well(&receiver, &world.events().await);
    }

    async fn what_a_receiver_asks_for_is_done(world) {
        let receiver = Scripted::new(|_| {
            Does::Says(mailonce_core::port::notify::Reply {
                status: 400,
                wish: Some("abort-message".into()),
                ..Default::default()
            })
        });
        let world = world.told_to(receiver.clone()).await;
        let endpoint = world.endpoint(URL).await;
        world.send("k", &mail()).await.is(202);
        world.engine.tell_due().await;
        assert_eq!(states(&world, &endpoint).await, BTreeMap::from([("dropped".to_owned(), 1)]));
        receiver.now(|_| {
            Does::Says(mailonce_core::port::notify::Reply {
                status: 429,
                retry_after: Some("3600".into()),
                ..Default::default()
            })
        });
        world.send("l", &mail()).await.is(202);
        world.engine.tell_due().await;
        let before = receiver.posts().len();
        world.pass(59 * MINUTE);
        world.engine.tell_due().await;
        assert_eq!(receiver.posts().len(), before, "not before it asked");
        world.pass(2 * MINUTE);
        receiver.now(|_| says(200));
        world.engine.tell_due().await;
        assert_eq!(receiver.posts().len(), before + 1);
    }

    async fn a_notice_is_told_again_under_its_id_and_once_for_a_key(world) {
        let receiver = Scripted::new(|_| says(200));
        let world = world.told_to(receiver.clone()).await;
        let endpoint = world.endpoint(URL).await;
        emails(&world, "k", 2).await;
        for _ in 0..3 {
            world.engine.tell_due().await;
        }
        let first = receiver.posts().remove(0).0;
        let replay = || world.call(post(&format!("/v1/notices/{}/replay", first.id)).key("again"));
        assert_eq!(replay().await.is(200)["state"], "pending");
        world.engine.tell_due().await;
        replay().await.is(200);
        world.engine.tell_due().await;
        let again: Vec<_> = receiver.posts().into_iter().skip(4).map(|(post, _)| (post.id, post.body)).collect();
        assert_eq!(again, [(first.id.clone(), first.body.clone())]);
        let everything = json!({ "after": "0", "only": "all" });
        world.post(&format!("/v1/endpoints/{}/recover", id(&endpoint)), &everything).await.is(202);
        for _ in 0..3 {
            world.engine.tell_due().await;
        }
        assert_eq!(receiver.posts().len(), 4 + 1 + 4);
        for (wish, field) in
            [(json!({}), "since"), (json!({ "since": "now" }), "since"), (json!({ "after": "0", "only": "x" }), "only")]
        {
            let path = format!("/v1/endpoints/{}/recover", id(&endpoint));
            world.post(&path, &wish).await.refused(422, "invalid_field").at(field);
        }
    }

    async fn during_a_rotation_both_secrets_sign(world) {
        let receiver = Scripted::new(|_| says(200));
        let world = world.told_to(receiver.clone()).await;
        let endpoint = world.endpoint(URL).await;
        let path = format!("/v1/endpoints/{}/rotate", id(&endpoint));
        let rotated = world.post(&path, &json!({ "overlap": "1h" })).await.is(200);
        assert_ne!(rotated["secret"], endpoint["secret"]);
        world.send("k", &mail()).await.is(202);
        world.engine.tell_due().await;
        world.pass(HOUR);
        world.send("l", &mail()).await.is(202);
        world.engine.tell_due().await;
        let counts: Vec<usize> = receiver.posts().iter().map(|(post, _)| post.secrets.len()).collect();
        assert_eq!(counts, [2, 1]);
        assert_eq!(receiver.posts()[0].0.secrets[0], receiver.posts()[1].0.secrets[0], "the newest first");
    }

    async fn one_slow_endpoint_delays_no_other(world) {
        let bell = Arc::new(Notify::new());
        let ring = Arc::clone(&bell);
        let receiver =
            Scripted::new(move |post| if post.url == URL { Does::Waits(Arc::clone(&ring)) } else { says(200) });
        let world = world.told_to(receiver.clone()).await;
        world.endpoint(URL).await;
        let (stop, stopped) = watch::channel(false);
        let telling = tokio::spawn(Arc::clone(&world.engine).notify(stopped));
        world.send("slow", &mail()).await.is(202);
        world.endpoint("https://other.example.com/").await;
        for n in 0..20 {
            world.send(&format!("k{n}"), &mail()).await.is(202);
            receiver.until(n + 1).await;
        }
        assert!(receiver.posts().iter().all(|(post, _)| post.url != URL));
        // As many as may be under way at first, one after the other: each answer lets another one come.
        for n in 21..=41 {
            bell.notify_one();
            receiver.until(n).await;
        }
        stop.send_replace(true);
        bell.notify_waiters();
        telling.await.unwrap();
    }

    async fn an_endpoint_is_told_as_fast_as_it_wants_and_no_faster(world) {
        let receiver = Scripted::new(|_| says(200));
        let world = world.told_to(receiver.clone()).await;
        world.post("/v1/endpoints", &json!({ "url": URL, "rate_per_s": 5 })).await.is(201);
        let (stop, stopped) = watch::channel(false);
        for n in 0..12 {
            world.send(&format!("k{n}"), &mail()).await.is(202);
        }
        let telling = tokio::spawn(Arc::clone(&world.engine).notify(stopped));
        for passed in [5, 10] {
            receiver.until(passed).await;
            // The clock stands still, so no more are allowed however long that takes.
            tokio::time::sleep(Duration::from_millis(450)).await;
            assert_eq!(receiver.posts().len(), passed);
            world.pass(SECOND);
        }
        receiver.until(12).await;
        stop.send_replace(true);
        telling.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiting_notices_are_told_once_each() {
    const MANY: usize = 10_000;
    let hall = Hall::open().await;
    let webhooks = Webhooks::new(Reach::new(Vec::new(), true), &[]).unwrap();
    let world = World::sqlite().await.told_to(Arc::new(webhooks)).await;
    world.endpoint(&format!("http://{}/in", hall.at)).await;
    for n in 0..MANY / 1000 {
        let batch: Vec<Value> = (0..1000)
            .map(|m| mail_with(json!({ "subject": format!("{n} {m}"), "scheduled_at": "in 1 day" })))
            .collect();
        world.call(Call::new("POST", "/v1/emails/batch").key(&format!("b{n}")).json(&json!(batch))).await.is(202);
    }
    let (stop, stopped) = watch::channel(false);
    let began = std::time::Instant::now();
    let telling = tokio::spawn(Arc::clone(&world.engine).notify(stopped));
    hall.until(MANY).await;
    let took = began.elapsed();
    stop.send_replace(true);
    telling.await.unwrap();
    println!("{MANY} waiting notices were told within {took:?}");
    let ids: BTreeSet<String> = hall
        .requests()
        .iter()
        .map(|request| request.lines().find_map(|line| line.strip_prefix("webhook-id: ")).unwrap().to_owned())
        .collect();
    assert_eq!((ids.len(), hall.requests().len()), (MANY, MANY), "each once");
}
