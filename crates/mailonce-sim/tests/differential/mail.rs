//! Mail that comes in by SMTP, with an inbox that is deleted between `RCPT` and the final dot.

use mailonce::intake::{EngineReceiver, smtp};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    sync::watch,
};

use crate::{
    installation::Installation,
    node::{DOMAIN, DifferentialNode},
    plan::PlannedIncoming,
};

/// How long workers may take to read a mail.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// What an installation answered, and the deliveries that it lists afterwards: recipient, state and reason.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReceptionResult {
    replies: Vec<String>,
    deliveries: Vec<[String; 3]>,
}

/// An SMTP conversation with a node.
struct SmtpConversation {
    client: DuplexStream,
    _stop: watch::Sender<bool>,
}

impl SmtpConversation {
    fn with(node: &DifferentialNode) -> Self {
        let (client, server) = duplex(64 * 1024);
        let (stop, stopped) = watch::channel(false);
        let handler = smtp::SmtpListener::new(
            Arc::new(EngineReceiver(Arc::clone(&node.engine))),
            smtp::SmtpSettings::new(&format!("mx.{DOMAIN}")),
        );
        tokio::spawn(async move { handler.serve_stream(server, [192, 0, 2, 7].into(), stopped).await });
        Self { client, _stop: stop }
    }

    /// Sends a line, if any, and returns the status code of the reply.
    async fn command(&mut self, line: &str) -> String {
        self.client.write_all(line.as_bytes()).await.unwrap();
        let mut reply = vec![0; 4096];
        let length = self.client.read(&mut reply).await.unwrap();
        String::from_utf8_lossy(&reply[..length]).chars().take(3).collect()
    }
}

impl Installation {
    /// Receives a mail on one node while another one deletes the inbox.
    pub(crate) async fn receive(&self, incoming: &PlannedIncoming) -> Result<ReceptionResult, String> {
        let (first, last) = (&self.nodes[0], &self.nodes[self.nodes.len() - 1]);
        let before = deliveries(first).await?.len();
        let mut conversation = SmtpConversation::with(first);
        let mut replies = vec![conversation.command("").await];
        replies.push(conversation.command("EHLO out.test\r\n").await);
        replies.push(conversation.command("MAIL FROM:<ann@shop.test>\r\n").await);
        for name in &incoming.recipients {
            replies.push(conversation.command(&format!("RCPT TO:<{name}@{DOMAIN}>\r\n")).await);
        }
        if let Some(name) = &incoming.deleted {
            let deleted = last.delete(&format!("/v1/inboxes/{name}@{DOMAIN}")).await;
            replies.push(deleted.status.to_string());
        }
        replies.push(conversation.command("DATA\r\n").await);
        let number = incoming.number;
        let text = format!(
            "From: ann@shop.test\r\nMessage-ID: <{number}@shop.test>\r\nSubject: Hi\r\n\r\nMail {number}\r\n.\r\n"
        );
        let answer = conversation.command(&text).await;
        replies.push(answer.clone());
        let mut after = read_deliveries(first).await?;
        after.truncate(after.len() - before);
        let covers = |name: &String| after.iter().any(|row| row[0] == format!("{name}@{DOMAIN}"));
        if answer == "250" && !incoming.recipients.iter().all(covers) {
            return Err(format!("{incoming:?} was answered 250 and its deliveries are {after:?}"));
        }
        Ok(ReceptionResult { replies, deliveries: after })
    }
}

/// All deliveries, once no worker has to read one any more.
async fn read_deliveries(node: &DifferentialNode) -> Result<Vec<[String; 3]>, String> {
    let deadline = Instant::now() + READ_TIMEOUT;
    loop {
        let rows = deliveries(node).await?;
        if rows.iter().all(|row| row[1] != "waiting") {
            return Ok(rows);
        }
        if Instant::now() > deadline {
            return Err(format!("a delivery waits: {rows:?}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Recipient, state and reason of every delivery, the latest first.
async fn deliveries(node: &DifferentialNode) -> Result<Vec<[String; 3]>, String> {
    let (mut rows, mut from) = (Vec::new(), String::new());
    loop {
        let page = node.get(&format!("/v1/deliveries?limit=100{from}")).await;
        if page.status != 200 {
            return Err(format!("deliveries were answered {page:?}"));
        }
        rows.extend(
            page.rows().iter().map(|row| {
                ["recipient", "state", "reason"].map(|name| row[name].as_str().unwrap_or_default().to_owned())
            }),
        );
        match page.body["next_cursor"].as_str() {
            Some(cursor) => from = format!("&cursor={cursor}"),
            None => return Ok(rows),
        }
    }
}
