//! Mail whose inbox disappears between RCPT and the final dot: an acknowledged mail always leaves a delivery.

use mailonce::intake::{EngineReceiver, smtp};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    sync::watch,
};

use crate::fixtures::{
    api_fixture::{HOUR, World},
    requests::delete,
};

const MAIL_DATA: &str = "From: ann@shop.test\r\nMessage-ID: <1@shop.test>\r\nSubject: Hi\r\n\r\nHello\r\n";

/// An SMTP session with the engine behind it.
struct SmtpExchange {
    client: DuplexStream,
    _stop: watch::Sender<bool>,
}

impl SmtpExchange {
    /// Runs the session up to the reply to the last RCPT.
    async fn with_recipients(world: &World, recipients: &[&str]) -> Self {
        let (client, server) = duplex(64 * 1024);
        let (stop, stopped) = watch::channel(false);
        let receiver = Arc::new(EngineReceiver(Arc::clone(&world.engine)));
        let listener = smtp::SmtpListener::new(receiver, smtp::SmtpSettings::new("mx.agents.test"));
        tokio::spawn(async move { listener.serve_stream(server, [192, 0, 2, 7].into(), stopped).await });
        let mut session = Self { client, _stop: stop };
        assert!(session.read_reply().await.starts_with("220"));
        assert!(session.command("EHLO out.test\r\n").await.contains("250 "));
        assert!(session.command("MAIL FROM:<ann@shop.test>\r\n").await.starts_with("250"));
        for recipient in recipients {
            assert!(session.command(&format!("RCPT TO:<{recipient}>\r\n")).await.starts_with("250"));
        }
        session
    }

    async fn read_reply(&mut self) -> String {
        let mut buffer = vec![0; 4096];
        let read = self.client.read(&mut buffer).await.unwrap();
        String::from_utf8_lossy(&buffer[..read]).into_owned()
    }

    async fn command(&mut self, line: &str) -> String {
        self.client.write_all(line.as_bytes()).await.unwrap();
        self.read_reply().await
    }

    /// Sends the mail and returns the reply to the final dot.
    async fn send_data(mut self) -> String {
        assert!(self.command("DATA\r\n").await.starts_with("354"));
        self.command(&format!("{MAIL_DATA}.\r\n")).await
    }
}

async fn delete_inbox(world: &World, inbox: &str) {
    world.call(delete(&format!("/v1/inboxes/{inbox}"))).await.expect_status(200);
}

/// Recipient, state and reason of every delivery, newest first.
async fn list_deliveries(world: &World) -> Vec<[String; 3]> {
    while world.engine.inbound.process_waiting_deliveries().await.unwrap() > 0 {}
    let rows = world.get("/v1/deliveries?limit=100").await.expect_status(200).rows();
    let field = |row: &Value, name: &str| row[name].as_str().unwrap_or("none").to_owned();
    rows.iter().map(|row| ["recipient", "state", "reason"].map(|name| field(row, name))).collect()
}

fn delivery_row(recipient: &str, state: &str, reason: &str) -> [String; 3] {
    [recipient, state, reason].map(str::to_owned)
}

async fn refused_event_count(world: &World) -> usize {
    world.events().await.iter().filter(|event| event["type"] == "delivery.refused").count()
}

over_every_engine! {
    async fn when_the_only_inbox_is_removed_after_rcpt_the_mail_is_refused(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let session = SmtpExchange::with_recipients(&world, &["a@agents.test"]).await;
        delete_inbox(&world, &inbox).await;
        let answer = session.send_data().await;
        assert!(answer.starts_with("550 5.1.1"), "{answer}");
        assert_eq!(list_deliveries(&world).await, [delivery_row("a@agents.test", "refused", "unknown_inbox")]);
        assert_eq!(refused_event_count(&world).await, 1);
    }

    async fn when_the_only_inbox_expires_after_rcpt_the_mail_is_refused(world) {
        let world = world.with_inbox_domain().await;
        world.post("/v1/inboxes", &json!({ "username": "a", "ttl": "1h" })).await.expect_status(201);
        let session = SmtpExchange::with_recipients(&world, &["a@agents.test"]).await;
        world.advance_clock(2 * HOUR);
        let answer = session.send_data().await;
        assert!(answer.starts_with("550 5.1.1"), "{answer}");
        assert_eq!(list_deliveries(&world).await, [delivery_row("a@agents.test", "refused", "expired_inbox")]);
    }

    async fn when_one_of_two_inboxes_is_removed_the_sender_retries_and_is_told_which(world) {
        let world = world.with_inbox_domain().await;
        let (a, b) = (world.create_inbox("a").await, world.create_inbox("b").await);
        let both = ["a@agents.test", "b@agents.test"];
        let session = SmtpExchange::with_recipients(&world, &both).await;
        delete_inbox(&world, &a).await;
        let answer = session.send_data().await;
        assert!(answer.starts_with("451 4.2.1"), "{answer}");
        let expected = [delivery_row("b@agents.test", "done", "none"), delivery_row("a@agents.test", "refused", "unknown_inbox")];
        assert_eq!(list_deliveries(&world).await, expected);
        let mut again = SmtpExchange::with_recipients(&world, &["b@agents.test"]).await;
        assert!(again.command("RCPT TO:<a@agents.test>\r\n").await.starts_with("550 5.1.1"));
        let answer = again.send_data().await;
        assert!(answer.starts_with("250"), "{answer}");
        assert_eq!(list_deliveries(&world).await[0], delivery_row("b@agents.test", "duplicate", "same_delivery"));
        let messages = world.get(&format!("/v1/inboxes/{b}/messages")).await.expect_status(200).rows();
        assert_eq!(messages.len(), 1);
    }
}
