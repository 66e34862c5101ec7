//! Polling providers for received mail: mail whose webhook was lost is collected, and nothing is received twice.

use serde_json::{Value, json};

use crate::{
    fixtures::{
        api_fixture::{HOUR, MINUTE, SECOND, World},
        fake_providers::{API_KEY, FakeProvider, ProviderFault, ProviderMail},
        requests::TestRequest,
    },
    inbound::announced_mail::{
        create_resend_source, list_deliveries, parse_and_list_messages, resend_received_webhook,
    },
};

const TOKEN: &str = "0123456789abcdef";

async fn create_postmark_source(world: &World, provider: &FakeProvider) -> String {
    let body = json!({ "name": "postmark", "kind": "postmark", "accepts": ["inbound"], "bearer_token": TOKEN,
        "api_key": API_KEY, "base_url": provider.url, "poll_interval": "1m" });
    world.post("/v1/sources", &body).await.expect_status(201).string_field("hook_path")
}

/// A polling source of either kind.
async fn create_polling_source(world: &World, provider: &FakeProvider, kind: &str) -> String {
    match kind {
        "resend" => create_resend_source(world, provider, json!({ "poll_interval": "1m" })).await,
        _ => create_postmark_source(world, provider).await,
    }
}

async fn get_source(world: &World, path: &str) -> Value {
    world.get(&format!("/v1/sources/{}", path.rsplit('/').next().unwrap())).await.expect_status(200).body
}

async fn poll_due(world: &World) -> usize {
    world.engine.inbound.poll_due().await.unwrap()
}

over_every_engine! {
    async fn a_mail_whose_webhook_was_lost_is_polled(world) {
        let world = world.with_providers().await;
        let inbox = world.create_inbox("a").await;
        for (n, kind) in ["resend", "postmark"].into_iter().enumerate() {
            let provider = FakeProvider::start().await;
            let path = create_polling_source(&world, &provider, kind).await;
            world.advance_clock(MINUTE);
            provider.add_mail(ProviderMail::new(kind, world.timestamp_in(-SECOND), "a@agents.test"));
            provider.add_mail(ProviderMail { blocked: kind == "postmark", ..ProviderMail::new("blocked", world.timestamp_in(-SECOND), "b@agents.test") });
            poll_due(&world).await;
            let rows = parse_and_list_messages(&world, &inbox).await;
            assert_eq!(rows.len(), n + 1, "{kind}");
            let row = list_deliveries(&world).await.into_iter().find(|row| row["state"] == "done").unwrap();
            assert_eq!(row["intake"], "poll", "{row}");
            assert_eq!(get_source(&world, &path).await["last_polled_at"], world.timestamp_in(0));
            world.call(TestRequest::new("DELETE", &path.replace("/hooks/", "/v1/sources/"))).await.expect_status(200);
        }
    }

    async fn a_mail_received_by_webhook_and_by_poll_is_one_message(world) {
        let world = world.with_providers().await;
        let provider = FakeProvider::start().await;
        let inbox = world.create_inbox("a").await;
        let path = create_polling_source(&world, &provider, "resend").await;
        for (id, hook_first) in [("m1", true), ("m2", false)] {
            world.advance_clock(2 * MINUTE);
            // The list and the webhook may spell a recipient differently.
            provider.add_mail(ProviderMail::new(id, world.timestamp_in(-SECOND), "A@Agents.Test"));
            if hook_first {
                world.call(resend_received_webhook(&world, &path, id, "a@agents.test")).await.expect_status(200);
            }
            assert_eq!(poll_due(&world).await, 1, "{id}");
            if !hook_first {
                let answer = world.call(resend_received_webhook(&world, &path, id, "a@agents.test")).await.expect_status(200);
                assert_eq!((&answer["deliveries_accepted"], &answer["deliveries_duplicate"]), (&json!(0), &json!(1)));
            }
        }
        assert_eq!(parse_and_list_messages(&world, &inbox).await.len(), 2);
        let count = list_deliveries(&world).await.len();
        for _ in 0..5 {
            world.advance_clock(2 * MINUTE);
            assert_eq!(poll_due(&world).await, 0);
        }
        let rows = list_deliveries(&world).await;
        assert_eq!((rows.len(), count), (4, 4), "later polls create no more deliveries");
        let of = |intake: &str, state: &str| {
            rows.iter().filter(|row| row["intake"] == intake && row["state"] == state).count()
        };
        assert_eq!([of("hook", "done"), of("poll", "done"), of("hook", "duplicate"), of("poll", "duplicate")], [1; 4]);
        assert!(rows.iter().filter(|row| row["state"] == "duplicate").all(|row| row["reason"] == "same_delivery"));
    }

    async fn concurrent_polls_collect_each_mail_once(world) {
        let world = world.with_providers().await;
        let provider = FakeProvider::start().await;
        let inbox = world.create_inbox("a").await;
        create_polling_source(&world, &provider, "resend").await;
        world.advance_clock(MINUTE);
        for n in 0..5 {
            provider.add_mail(ProviderMail::new(&format!("m{n}"), world.timestamp_in(-SECOND), "a@agents.test"));
        }
        let (one, two, three) = tokio::join!(world.engine.inbound.poll_due(), world.engine.inbound.poll_due(), world.engine.inbound.poll_due());
        assert_eq!([one, two, three].map(Result::unwrap).iter().sum::<usize>(), 5, "each mail is collected by one of the polls");
        assert_eq!(parse_and_list_messages(&world, &inbox).await.len(), 5);
    }

    async fn polling_reads_all_pages_and_late_mails_and_ignores_old_ones(world) {
        let world = world.with_providers().await;
        let provider = FakeProvider::start().await;
        let inbox = world.create_inbox("a").await;
        provider.add_mail(ProviderMail::new("before", world.timestamp_in(-HOUR), "a@agents.test"));
        create_polling_source(&world, &provider, "resend").await;
        provider.set_page_size(2);
        world.advance_clock(10 * MINUTE);
        for n in 0..7_i64 {
            provider.add_mail(ProviderMail::new(&format!("m{n}"), world.timestamp_in(-n * SECOND), "a@agents.test"));
        }
        assert_eq!(poll_due(&world).await, 7, "mail from before the source is not collected");
        world.advance_clock(2 * MINUTE);
        // This mail is older than those already seen and appears in the list after them.
        provider.add_mail(ProviderMail::new("late", world.timestamp_in(-10 * MINUTE), "a@agents.test"));
        provider.add_mail(ProviderMail::new("new", world.timestamp_in(0), "a@agents.test"));
        assert_eq!(poll_due(&world).await, 2);
        assert_eq!(parse_and_list_messages(&world, &inbox).await.len(), 9);
        provider.take_requested_paths();
        world.advance_clock(2 * HOUR);
        provider.add_mail(ProviderMail::new("newer", world.timestamp_in(0), "a@agents.test"));
        assert_eq!(poll_due(&world).await, 1);
        world.advance_clock(2 * MINUTE);
        provider.take_requested_paths();
        assert_eq!(poll_due(&world).await, 0);
        assert_eq!(provider.take_requested_paths().len(), 2, "it reads no more pages than necessary");
    }

    async fn poll_failures_back_off_and_are_shown(world) {
        let world = world.with_providers().await;
        let provider = FakeProvider::start().await;
        let path = create_polling_source(&world, &provider, "resend").await;
        provider.queue_faults(&[ProviderFault::Status(503), ProviderFault::TooManyRequests(600), ProviderFault::TruncatedBody, ProviderFault::CaptivePortalPage]);
        poll_due(&world).await;
        let source = get_source(&world, &path).await;
        assert!(source["last_error"].as_str().unwrap().contains("503"), "{source}");
        assert_eq!(source["last_polled_at"], Value::Null);
        poll_due(&world).await;
        world.advance_clock(MINUTE);
        poll_due(&world).await;
        assert_eq!(provider.take_requested_paths().len(), 2, "one request for each time it was due");
        world.advance_clock(599 * SECOND);
        poll_due(&world).await;
        assert!(provider.take_requested_paths().is_empty(), "no request before the requested delay has passed");
        for expected in ["ended early", "not a JSON object"] {
            world.advance_clock(HOUR);
            poll_due(&world).await;
            assert!(get_source(&world, &path).await["last_error"].as_str().unwrap().contains(expected), "{expected}");
        }
        world.advance_clock(HOUR);
        poll_due(&world).await;
        let source = get_source(&world, &path).await;
        assert_eq!((&source["last_error"], &source["last_polled_at"]), (&Value::Null, &json!(world.timestamp_in(0))));
    }

    async fn a_mail_deleted_at_the_provider_before_it_is_fetched_is_dead(world) {
        let world = world.with_providers().await;
        let provider = FakeProvider::start().await;
        let inbox = world.create_inbox("a").await;
        create_polling_source(&world, &provider, "postmark").await;
        world.advance_clock(MINUTE);
        provider.add_mail(ProviderMail::new("m1", world.timestamp_in(0), "a@agents.test"));
        assert_eq!(poll_due(&world).await, 1);
        provider.remove_mail("m1");
        for _ in 0..4 {
            assert!(parse_and_list_messages(&world, &inbox).await.is_empty());
            world.advance_clock(MINUTE);
        }
        let rows = list_deliveries(&world).await;
        assert_eq!((&rows[0]["state"], rows.len()), (&json!("dead"), 1));
        assert!(rows[0]["last_error"].as_str().unwrap().contains("does not have"), "{rows:?}");
    }

    async fn attachments_that_postmark_withholds_are_listed_in_a_header(world) {
        let world = world.with_providers().await;
        let provider = FakeProvider::start().await;
        let inbox = world.create_inbox("a").await;
        create_polling_source(&world, &provider, "postmark").await;
        world.advance_clock(MINUTE);
        provider.add_mail(ProviderMail { has_raw: false, ..ProviderMail::new("m1", world.timestamp_in(0), "a@agents.test") });
        poll_due(&world).await;
        let rows = parse_and_list_messages(&world, &inbox).await;
        assert_eq!(rows.len(), 1);
        let full = world.get(&format!("/v1/messages/{}?view=full", rows[0]["id"].as_str().unwrap())).await.expect_status(200);
        assert!(full.text.contains("Hello m1"));
        assert_eq!(full["attachments"], json!([]), "a missing file must not appear as an empty attachment");
        assert!(full["flags"].as_array().unwrap().contains(&json!("cut")), "{}", full.text);
        let raw = world.get(&format!("/v1/messages/{}/raw", rows[0]["id"].as_str().unwrap())).await.expect_status(200);
        assert!(raw.text.contains("X-Mailonce-Missing-File: a.pdf"));
    }
}
