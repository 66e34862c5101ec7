//! Metrics: received mail by intake, layer and reason; the SMTP listener; notices that are due to endpoints.

use serde_json::json;
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use crate::fixtures::{
    api_fixture::{HOUR, World, mail},
    binary::CliFixture,
    requests::post,
    webhook_receivers::{ScriptedReceiver, respond_with},
};

const RAW_MAIL: &str = "From: ann@shop.test\nTo: a@agents.test\nMessage-ID: <1@shop.test>\nSubject: Hi\n\nHello\n";

async fn metric_value(world: &World, metric: &str) -> u64 {
    let text = world.get("/metrics").await.expect_status(200).text;
    let line = text.lines().find_map(|line| line.strip_prefix(metric)?.trim().parse().ok());
    line.unwrap_or_else(|| panic!("{metric} is not in {text}"))
}

over_memory_and_sqlite! {
    async fn pending_and_dead_notices_are_counted(world) {
        let world = world.with_notifier(ScriptedReceiver::new(|post| respond_with(if post.url.ends_with("gone") { 410 } else { 500 }))).await;
        for name in ["down", "gone"] {
            world.create_endpoint(&format!("https://hooks.example.com/{name}")).await;
        }
        world.send("k", &mail()).await.expect_status(202);
        assert_eq!((metric_value(&world, "mailonce_notice_lag_events").await, metric_value(&world, "mailonce_notice_pending").await), (1, 0));
        world.engine.events.deliver_due_notices().await;
        assert_eq!(metric_value(&world, "mailonce_notice_attempts_total{outcome=\"status\"}").await, 1);
        assert_eq!(metric_value(&world, "mailonce_notice_attempts_total{outcome=\"gone\"}").await, 1);
        assert_eq!(metric_value(&world, "mailonce_endpoints{state=\"disabled\"}").await, 1);
        assert!(metric_value(&world, "mailonce_notice_pending").await > 0);
        assert_eq!(metric_value(&world, "mailonce_notice_dead").await, 0);
        for _ in 0..100 {
            world.advance_clock(HOUR * 6);
            world.engine.events.deliver_due_notices().await;
            if metric_value(&world, "mailonce_notice_dead").await > 0 {
                return;
            }
        }
        panic!("no notice became dead");
    }

    async fn received_mail_is_counted_by_intake_layer_and_reason(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.post("/v1/inboxes", &json!({ "username": "old", "ttl": "1m" })).await.expect_status(201);
        world.advance_clock(HOUR);
        for to in ["a@agents.test", "a@agents.test", "a+x@agents.test", "old@agents.test"] {
            world.receive_mail(&[to], RAW_MAIL).await;
        }
        let arrived = |outcome: &str, reason: &str| {
            format!("mailonce_inbound_deliveries_total{{intake=\"smtp\",outcome=\"{outcome}\",reason=\"{reason}\"}}")
        };
        assert_eq!(metric_value(&world, &arrived("accepted", "new")).await, 2);
        assert_eq!(metric_value(&world, &arrived("duplicate", "same_delivery")).await, 1);
        assert_eq!(metric_value(&world, &arrived("refused", "expired_inbox")).await, 1);
        let read = |reason: &str| {
            format!("mailonce_inbound_messages_total{{intake=\"smtp\",layer=\"message\",reason=\"{reason}\"}}")
        };
        assert_eq!(metric_value(&world, &read("new")).await, 1);
        assert_eq!(metric_value(&world, &read("same_message")).await, 1);
    }

    /// After a restart the sandbox still routes mail to inboxes at a team's own domain.
    async fn inbox_domains_are_loaded_at_startup(world) {
        world.post("/v1/inboxes", &json!({ "address": "a@own.test" })).await.expect_status(201);
        let world = world.restart().await;
        world.engine.inboxes.load_inbox_domains().await.unwrap();
        let mail = json!({ "from": "b@example.com", "to": ["a@own.test"], "subject": "s", "text": "t" });
        let sent = world.call(post("/v1/emails").key("k").json(&mail)).await.expect_status(202).string_field("id");
        assert_eq!(world.email(&sent).await["handoffs"][0]["transport"], "local");
    }
}

#[tokio::test]
async fn the_smtp_listener_exports_metrics() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let http = server.url.strip_prefix("http://").unwrap().to_owned();
    let mut addresses = server.startup_banner.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ':');
    let smtp = addresses.find(|word| word.starts_with("127.0.0.1:") && *word != http).expect("the SMTP address");
    let mut smtp_stream = TcpStream::connect(smtp).unwrap();
    smtp_stream.write_all(b"NONSENSE\r\nQUIT\r\n").unwrap();
    let mut smtp_replies = String::new();
    smtp_stream.read_to_string(&mut smtp_replies).unwrap();
    let mut http_stream = TcpStream::connect(&http).unwrap();
    http_stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut metrics = String::new();
    http_stream.read_to_string(&mut metrics).unwrap();
    assert!(metrics.contains("mailonce_smtp_connections_total 1"), "{smtp_replies}{metrics}");
    assert!(metrics.contains("mailonce_smtp_refused_total{reason=\"syntax\"} 1"), "{smtp_replies}{metrics}");
    server.terminate().await;
}
