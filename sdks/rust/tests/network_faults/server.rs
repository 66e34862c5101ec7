//! What only a real server can show: notices that it signs, leases that it gives to one at a time, bytes as they travelled,
//! and the wire format that it speaks.

use hyper::{HeaderMap, Method};
use mailonce_sdk::{
    Client, Error, Intent, Mail, Reply, Retry, Verifier, WaitFor, derive_key, verify_webhook,
    wire::{NewEndpoint, NewInbox, NewLease},
};
use serde_json::Value;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::{arrive, behaviour, run};

fn client() -> Client {
    Client::from_env().unwrap()
}

/// Takes one request: its headers and its body.
async fn one_request(listener: TcpListener) -> (HeaderMap, Vec<u8>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut read = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let more = stream.read(&mut piece).await.unwrap();
        read.extend_from_slice(&piece[..more]);
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&read[..end]).into_owned();
        let fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let headers: HeaderMap = fields
            .map(|(name, value)| (name.parse::<hyper::header::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        let length: usize = headers["content-length"].to_str().unwrap().parse().unwrap();
        if read.len() >= end + 4 + length {
            stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await.unwrap();
            return (headers, read[end + 4..].to_vec());
        }
    }
}

#[tokio::test]
async fn a_notice_of_the_server_is_believed_and_a_forged_one_is_not() {
    let mo = client();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port());
    let endpoint = mo.webhooks.create(&NewEndpoint { url, ..NewEndpoint::default() }).await.unwrap();
    let secret = endpoint.secret.unwrap();
    let receiving = tokio::spawn(one_request(listener));
    mo.webhooks.test(&endpoint.id).await.unwrap();
    let (headers, body) = receiving.await.unwrap();
    assert_eq!(verify_webhook(&body, &headers, &secret).unwrap().kind, "endpoint.test");
    let rotating = Verifier::new(["whsec_AAAA", secret.as_str()]).unwrap();
    assert_eq!(rotating.verify(&body, &headers).unwrap().kind, "endpoint.test");
    let forged = String::from_utf8(body).unwrap().replace("endpoint", "endpoInt");
    assert_eq!(verify_webhook(forged.as_bytes(), &headers, &secret).unwrap_err().code, "bad_signature");
    assert_eq!(mo.webhooks.delete(&endpoint.id).await.unwrap().id, endpoint.id);
}

#[tokio::test]
async fn a_thread_is_worked_on_by_one_at_a_time_for_longer_than_a_lease_lasts() {
    let (mo, run) = (client(), run());
    let desk = format!("lease-{run}@mailonce.test");
    mo.inboxes.create(&NewInbox { username: Some(format!("lease-{run}")), ..NewInbox::default() }).await.unwrap();
    arrive(&desk, "ann@example.com", &["--text", "Hello?"]);
    let waiting = WaitFor { timeout: Some(10), ..WaitFor::default() };
    let message = mo.inboxes.wait(&desk, &waiting).await.unwrap().unwrap().message;
    let ask = |holder: &str| NewLease { holder: Some(holder.into()), ttl_s: Some(1), ..NewLease::default() };
    let worked = mo.threads.with_lease(&message.thread_id, ask("one"), async |lease| {
        tokio::time::sleep(Duration::from_millis(1600)).await;
        assert!(!lease.is_lost());
        let refused = mo.threads.lease(&message.thread_id, ask("two")).await.unwrap_err();
        assert_eq!((refused.code.as_str(), refused.retry), ("leased", Retry::Later));
        mo.messages.reply(&message.id, &Reply::text("Hello.").lease(&lease.token)).await
    });
    worked.await.unwrap();
    let other = mo.threads.lease(&message.thread_id, ask("two")).await.unwrap();
    assert!(other.fence >= 2);
    other.release().await.unwrap();
}

#[tokio::test]
async fn the_key_that_is_derived_here_is_the_key_there() {
    let (mo, run) = (client(), run());
    let intent = Intent::new("größe", format!("№ {run}")).period("2026-W46");
    let to = ["Zoë <ZOE@BÜCHER.example>", "ada@Example.com"];
    let sent = mo.emails.send(Mail::new("agent@mailonce.test", to).text("t"), intent.clone()).await.unwrap();
    let key = derive_key(&intent, to).unwrap();
    assert_eq!(sent.dedupe.key.as_deref(), Some(key.as_str()));
    let found: Value = mo.request(Method::GET, format!("/v1/keys/{key}"), None).await.unwrap();
    assert_eq!(found["key"], key);
}

#[tokio::test]
async fn a_message_is_read_as_it_travelled() {
    let (mo, run) = (client(), run());
    let desk = format!("raw-{run}@mailonce.test");
    mo.inboxes.create(&NewInbox { username: Some(format!("raw-{run}")), ..NewInbox::default() }).await.unwrap();
    arrive(&desk, "ann@example.com", &["--subject", "Bytes", "--text", "As they came."]);
    let waiting = WaitFor { timeout: Some(10), ..WaitFor::default() };
    let message = mo.inboxes.wait(&desk, &waiting).await.unwrap().unwrap().message;
    let raw = mo.messages.raw(&message.id).await.unwrap();
    assert_eq!(raw.content_type, "message/rfc822");
    assert!(String::from_utf8_lossy(&raw.content).contains("Subject: Bytes"));
    assert_eq!(mo.messages.attachment(&message.id, 7).await.unwrap_err().code, "not_found");
}

#[tokio::test]
async fn the_server_tells_the_stories_of_the_contract() {
    behaviour::tell(&client(), |mail| {
        let text = |name: &str| mail[name].as_str().unwrap_or_default();
        let code = format!("--code={}", text("code"));
        let mut more = vec!["--subject", text("subject")];
        if !text("text").is_empty() {
            more.extend(["--text", text("text")]);
        }
        if !text("code").is_empty() {
            more.push(&code);
        }
        arrive(text("to"), text("from"), &more);
    })
    .await;
}

#[tokio::test]
async fn a_refused_key_is_told_with_what_to_do() {
    let stranger = Client::new(crate::env("MAILONCE_URL"), "mo_nobody_knows_this_key").unwrap();
    let error: Error = stranger.emails.get("e-1").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.status, error.retry), ("unauthorized", 401, Retry::Never));
    assert!(!error.next.is_empty());
    let url = format!("{}/v1/emails/e-1", crate::env("MAILONCE_URL"));
    assert_eq!(error.url.as_deref(), Some(url.as_str()));
    let page = format!("{}/docs/errors/unauthorized", crate::env("MAILONCE_URL"));
    assert_eq!(error.docs_url.as_deref(), Some(page.as_str()));
    assert_eq!(error.to_string(), format!("unauthorized: {} ({url}, see {page}); next: {}", error.detail, error.next));
}

#[tokio::test]
async fn a_call_outlasts_a_restart_with_the_same_key_and_the_same_bytes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener); // down
    let mo = Client::builder().base_url(format!("http://{address}")).api_key("k").backoff(Duration::from_millis(25));
    let mo = mo.build().unwrap();
    let body = serde_json::json!({ "username": "größe" });
    let asking = tokio::spawn(async move { mo.request(Method::POST, "/v1/inboxes", Some(&body)).await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    let listener = TcpListener::bind(address).await.unwrap();
    // Hears the whole request and ends without an answer.
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut piece = [0; 4096];
    let length = stream.read(&mut piece).await.unwrap();
    drop(stream);
    let first = piece[..length].to_vec();
    let (mut stream, _) = listener.accept().await.unwrap();
    let length = stream.read(&mut piece).await.unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{\"id\":\"i-1\"}").await.unwrap();
    assert_eq!(asking.await.unwrap().unwrap()["id"], "i-1");
    assert_eq!(String::from_utf8_lossy(&piece[..length]), String::from_utf8_lossy(&first));
    assert!(String::from_utf8_lossy(&first).contains("idempotency-key: sdk_"));
}
