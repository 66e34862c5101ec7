//! Webhooks to local receivers, well-behaved and broken ones.

use super::*;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// How a receiver behaves.
enum ReceiverBehavior {
    Responds(String),
    /// Sends this head and then body bytes until the client disconnects.
    Floods(&'static str),
    /// Sends this and then nothing, without closing the connection.
    Stalls(&'static str),
    Closes,
}

/// Starts a receiver. Returns its address and the requests that it receives.
async fn receiver(behavior: ReceiverBehavior) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        // The task ends with the test's runtime.
        while let Ok((mut stream, _)) = listener.accept().await {
            sender.send(request_of(&mut stream).await).ok();
            match &behavior {
                ReceiverBehavior::Responds(text) => stream.write_all(text.as_bytes()).await.unwrap(),
                ReceiverBehavior::Floods(head) => {
                    stream.write_all(head.as_bytes()).await.unwrap();
                    while stream.write_all(&[b'x'; 4_096]).await.is_ok() {}
                }
                ReceiverBehavior::Stalls(text) => {
                    stream.write_all(text.as_bytes()).await.unwrap();
                    std::future::pending().await
                }
                ReceiverBehavior::Closes => {}
            }
        }
    });
    (address, requests)
}

async fn request_of(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"}") {
        let mut some = [0; 4_096];
        let count = stream.read(&mut some).await.unwrap();
        assert!(count > 0, "the request ended early");
        read.extend_from_slice(&some[..count]);
    }
    String::from_utf8(read).unwrap()
}

fn webhooks(timeout: Duration) -> HttpWebhookSender {
    HttpWebhookSender { timeout, ..HttpWebhookSender::new(EgressPolicy::new(Vec::new(), true), &[]).unwrap() }
}

fn post(at: SocketAddr) -> OutgoingWebhook {
    OutgoingWebhook {
        url: format!("http://{at}/in?x=1"),
        id: "018f".into(),
        timestamp_s: 1_700_000_000,
        secrets: vec![b"new".to_vec(), b"old".to_vec()],
        headers: vec![("x-team".into(), "blue".into())],
        body: br#"{"a":1}"#.to_vec(),
    }
}

async fn post_to(behavior: ReceiverBehavior) -> WebhookResult {
    let (address, _requests) = receiver(behavior).await;
    webhooks(Duration::from_millis(300)).post(post(address)).await
}

fn responds(status: &str, rest: &str) -> ReceiverBehavior {
    ReceiverBehavior::Responds(format!("HTTP/1.1 {status}\r\n{rest}"))
}

#[tokio::test]
async fn a_post_carries_both_sets_of_headers_and_a_signature_for_each_secret() {
    let (at, mut requests) = receiver(responds("204 No Content", "\r\n")).await;
    let result = webhooks(WEBHOOK_TIMEOUT).post(post(at)).await;
    assert_eq!(result.response.unwrap().status, 204);
    let request = requests.recv().await.unwrap();
    assert!(request.starts_with("POST /in?x=1 HTTP/1.1\r\n"), "{request}");
    let header = |name: &str| {
        let line = request.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name} in {request}"))
    };
    for set in ["webhook", "svix"] {
        assert_eq!(header(&format!("{set}-id")), "018f");
        assert_eq!(header(&format!("{set}-timestamp")), "1700000000");
        assert_eq!(header(&format!("{set}-signature")).split(' ').count(), 2);
    }
    assert_eq!((header("host"), header("x-team")), (at.to_string().as_str(), "blue"));
    assert_eq!(header("content-type"), "application/json");
    assert!(request.ends_with("\r\n\r\n{\"a\":1}"));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (elsewhere, mut visited) = receiver(responds("200 OK", "content-length: 0\r\n\r\n")).await;
    let result =
        post_to(responds("302 Found", &format!("location: http://{elsewhere}/\r\ncontent-length: 0\r\n\r\n"))).await;
    assert_eq!(result.response.unwrap().status, 302);
    assert!(visited.try_recv().is_err());
}

#[tokio::test]
async fn retry_headers_are_kept_and_the_body_is_truncated() {
    let head = "retry-after: 120\r\nwebhook-delivery: Abort-Message\r\ncontent-length: 2000\r\n\r\n";
    let reply = post_to(responds("503 Busy", &format!("{head}{}", "y".repeat(2_000)))).await.response.unwrap();
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("120")));
    assert_eq!(reply.header("webhook-delivery"), Some("Abort-Message"));
    assert_eq!(reply.excerpt, "y".repeat(limits::WEBHOOK_RESPONSE_BYTES));
}

#[tokio::test]
async fn an_endless_body_is_truncated_and_the_status_counts() {
    let reply = post_to(ReceiverBehavior::Floods("HTTP/1.1 200 OK\r\n\r\n")).await.response.unwrap();
    assert_eq!((reply.status, reply.excerpt.len()), (200, limits::WEBHOOK_RESPONSE_BYTES));
}

#[tokio::test]
async fn an_endless_header_is_an_error() {
    let result = post_to(ReceiverBehavior::Floods("HTTP/1.1 200 OK\r\nx: ")).await;
    assert!(matches!(result.response, Err((WebhookError::Broken, _))), "{result:?}");
}

#[tokio::test]
async fn a_silent_receiver_times_out() {
    let began = Instant::now();
    let result = post_to(ReceiverBehavior::Stalls("")).await;
    assert!(matches!(result.response, Err((WebhookError::Timeout, _))), "{result:?}");
    assert!(result.latency_ms >= 300 && began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_stalled_body_times_out_and_an_interrupted_body_keeps_the_status() {
    let stalled = post_to(ReceiverBehavior::Stalls("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc")).await;
    assert!(matches!(stalled.response, Err((WebhookError::Timeout, _))), "{stalled:?}");
    let broken = post_to(responds("200 OK", "content-length: 100\r\n\r\nabc")).await;
    assert_eq!(broken.response.unwrap().excerpt, "abc");
}

#[tokio::test]
async fn a_closed_connection_is_not_a_delivery() {
    assert!(matches!(post_to(ReceiverBehavior::Closes).await.response, Err((WebhookError::Broken, _))));
    let closed_port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let result = webhooks(WEBHOOK_TIMEOUT).post(post(closed_port)).await;
    assert_eq!(result.response, Err((WebhookError::Connect, "the connection could not be opened".into())));
}

#[tokio::test]
async fn plain_http_and_loopback_need_dev_mode() {
    let (at, mut requests) = receiver(responds("200 OK", "\r\n")).await;
    let strict = HttpWebhookSender::new(EgressPolicy::new(Vec::new(), false), &[]).unwrap();
    let result = strict.post(post(at)).await;
    assert!(matches!(result.response, Err((WebhookError::Blocked, _))), "{result:?}");
    assert!(strict.check_url(&post(at).url).is_err());
    assert!(requests.try_recv().is_err());
}
