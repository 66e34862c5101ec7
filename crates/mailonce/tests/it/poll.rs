//! Providers that are asked which mails came: what a lost hook would have told is told, and nothing twice.

use serde_json::{Value, json};

use crate::{
    collect::{deliveries, messages, resend, told},
    provider_fake::{API_KEY, Act, Held, Provider},
    world::{HOUR, MINUTE, SECOND, World},
};

const TOKEN: &str = "0123456789abcdef";

async fn postmark(world: &World, provider: &Provider) -> String {
    let body = json!({ "name": "postmark", "kind": "postmark", "takes": ["inbound"], "bearer": TOKEN,
        "api_key": API_KEY, "base_url": provider.url, "poll": "1m" });
    world.post("/v1/sources", &body).await.is(201).word("path")
}

/// A polling source of either kind.
async fn source(world: &World, provider: &Provider, kind: &str) -> String {
    match kind {
        "resend" => resend(world, provider, json!({ "poll": "1m" })).await,
        _ => postmark(world, provider).await,
    }
}

async fn view(world: &World, path: &str) -> Value {
    world.get(&format!("/v1/sources/{}", path.rsplit('/').next().unwrap())).await.is(200).body
}

async fn polled(world: &World) -> usize {
    world.engine.poll_due().await.unwrap()
}

over_every_engine! {
    async fn a_mail_whose_hook_was_lost_is_polled(world) {
        let world = world.with_providers().await;
        let inbox = world.inbox("a").await;
        for (n, kind) in ["resend", "postmark"].into_iter().enumerate() {
            let provider = Provider::start().await;
            let path = source(&world, &provider, kind).await;
            world.pass(MINUTE);
            provider.holds(Held::new(kind, world.at(-SECOND), "a@agents.test"));
            provider.holds(Held { blocked: kind == "postmark", ..Held::new("blocked", world.at(-SECOND), "b@agents.test") });
            polled(&world).await;
            let rows = messages(&world, &inbox).await;
            assert_eq!(rows.len(), n + 1, "{kind}");
            let row = deliveries(&world).await.into_iter().find(|row| row["state"] == "done").unwrap();
            assert_eq!(row["intake"], "poll", "{row}");
            assert_eq!(view(&world, &path).await["last_polled_at"], world.at(0));
            world.call(crate::call::Call::new("DELETE", &path.replace("/hooks/", "/v1/sources/"))).await.is(200);
        }
    }

    async fn a_mail_that_comes_by_hook_and_by_poll_is_one_message(world) {
        let world = world.with_providers().await;
        let provider = Provider::start().await;
        let inbox = world.inbox("a").await;
        let path = source(&world, &provider, "resend").await;
        for (id, hook_first) in [("m1", true), ("m2", false)] {
            world.pass(2 * MINUTE);
            // Lists and hooks need not spell a recipient alike.
            provider.holds(Held::new(id, world.at(-SECOND), "A@Agents.Test"));
            if hook_first {
                world.call(told(&world, &path, id, "a@agents.test")).await.is(200);
            }
            assert_eq!(polled(&world).await, 1, "{id}");
            if !hook_first {
                let answer = world.call(told(&world, &path, id, "a@agents.test")).await.is(200);
                assert_eq!((&answer["kept"], &answer["duplicate"]), (&json!(0), &json!(1)));
            }
        }
        assert_eq!(messages(&world, &inbox).await.len(), 2);
        let count = deliveries(&world).await.len();
        for _ in 0..5 {
            world.pass(2 * MINUTE);
            assert_eq!(polled(&world).await, 0);
        }
        let rows = deliveries(&world).await;
        assert_eq!((rows.len(), count), (4, 4), "what was told once is not told by every poll");
        let of = |intake: &str, state: &str| {
            rows.iter().filter(|row| row["intake"] == intake && row["state"] == state).count()
        };
        assert_eq!([of("hook", "done"), of("poll", "done"), of("hook", "duplicate"), of("poll", "duplicate")], [1; 4]);
        assert!(rows.iter().filter(|row| row["state"] == "duplicate").all(|row| row["reason"] == "same_delivery"));
    }

    async fn two_nodes_that_poll_do_no_harm(world) {
        let world = world.with_providers().await;
        let provider = Provider::start().await;
        let inbox = world.inbox("a").await;
        source(&world, &provider, "resend").await;
        world.pass(MINUTE);
        for n in 0..5 {
            provider.holds(Held::new(&format!("m{n}"), world.at(-SECOND), "a@agents.test"));
        }
        let (one, two, three) = tokio::join!(world.engine.poll_due(), world.engine.poll_due(), world.engine.poll_due());
        assert_eq!([one, two, three].map(Result::unwrap).iter().sum::<usize>(), 5, "one of them told");
        assert_eq!(messages(&world, &inbox).await.len(), 5);
    }

    async fn pages_late_mails_and_old_ones(world) {
        let world = world.with_providers().await;
        let provider = Provider::start().await;
        let inbox = world.inbox("a").await;
        provider.holds(Held::new("before", world.at(-HOUR), "a@agents.test"));
        source(&world, &provider, "resend").await;
        provider.pages_of(2);
        world.pass(10 * MINUTE);
        for n in 0..7_i64 {
            provider.holds(Held::new(&format!("m{n}"), world.at(-n * SECOND), "a@agents.test"));
        }
        assert_eq!(polled(&world).await, 7, "mail from before the source is not collected");
        world.pass(2 * MINUTE);
        // It was there before those that were seen, and appears after them.
        provider.holds(Held::new("late", world.at(-10 * MINUTE), "a@agents.test"));
        provider.holds(Held::new("new", world.at(0), "a@agents.test"));
        assert_eq!(polled(&world).await, 2);
        assert_eq!(messages(&world, &inbox).await.len(), 9);
        provider.asked();
        world.pass(2 * HOUR);
        provider.holds(Held::new("newer", world.at(0), "a@agents.test"));
        assert_eq!(polled(&world).await, 1);
        world.pass(2 * MINUTE);
        provider.asked();
        assert_eq!(polled(&world).await, 0);
        assert_eq!(provider.asked().len(), 2, "it looks no further back than it must");
    }

    async fn failures_back_off_and_are_shown(world) {
        let world = world.with_providers().await;
        let provider = Provider::start().await;
        let path = source(&world, &provider, "resend").await;
        provider.acts(&[Act::Status(503), Act::TooMany(600), Act::Cut, Act::Portal]);
        polled(&world).await;
        let shown = view(&world, &path).await;
        assert!(shown["last_error"].as_str().unwrap().contains("503"), "{shown}");
        assert_eq!(shown["last_polled_at"], Value::Null);
        polled(&world).await;
        world.pass(MINUTE);
        polled(&world).await;
        assert_eq!(provider.asked().len(), 2, "once for each time it was due");
        world.pass(599 * SECOND);
        polled(&world).await;
        assert!(provider.asked().is_empty(), "not before the pause it asked for is over");
        for said in ["broke off", "no JSON"] {
            world.pass(HOUR);
            polled(&world).await;
            assert!(view(&world, &path).await["last_error"].as_str().unwrap().contains(said), "{said}");
        }
        world.pass(HOUR);
        polled(&world).await;
        let shown = view(&world, &path).await;
        assert_eq!((&shown["last_error"], &shown["last_polled_at"]), (&Value::Null, &json!(world.at(0))));
    }

    async fn a_mail_that_is_gone_when_its_turn_comes_is_dead(world) {
        let world = world.with_providers().await;
        let provider = Provider::start().await;
        let inbox = world.inbox("a").await;
        source(&world, &provider, "postmark").await;
        world.pass(MINUTE);
        provider.holds(Held::new("m1", world.at(0), "a@agents.test"));
        assert_eq!(polled(&world).await, 1);
        provider.loses("m1");
        for _ in 0..4 {
            assert!(messages(&world, &inbox).await.is_empty());
            world.pass(MINUTE);
        }
        let rows = deliveries(&world).await;
        assert_eq!((&rows[0]["state"], rows.len()), (&json!("dead"), 1));
        assert!(rows[0]["trouble"].as_str().unwrap().contains("does not have"), "{rows:?}");
    }

    async fn files_that_postmark_keeps_to_itself_are_named(world) {
        let world = world.with_providers().await;
        let provider = Provider::start().await;
        let inbox = world.inbox("a").await;
        source(&world, &provider, "postmark").await;
        world.pass(MINUTE);
        provider.holds(Held { whole: false, ..Held::new("m1", world.at(0), "a@agents.test") });
        polled(&world).await;
        let rows = messages(&world, &inbox).await;
        assert_eq!(rows.len(), 1);
        let full = world.get(&format!("/v1/messages/{}?view=full", rows[0]["id"].as_str().unwrap())).await.is(200);
        assert!(full.text.contains("Hello m1"));
        assert_eq!(full["attachments"], json!([]), "an empty file would be a lie");
        assert!(full["flags"].as_array().unwrap().contains(&json!("cut")), "{}", full.text);
        let raw = world.get(&format!("/v1/messages/{}/raw", rows[0]["id"].as_str().unwrap())).await.is(200);
        assert!(raw.text.contains("X-Mailonce-Missing-File: a.pdf"));
    }
}
