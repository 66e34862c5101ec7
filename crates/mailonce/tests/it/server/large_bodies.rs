//! Large bodies and large mails: while one is parsed, other connections are served.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::fixtures::{
    api_fixture::{World, incoming_mail},
    binary::{CliFixture, SpawnedServer},
};

const TIMEOUT: Duration = Duration::from_mins(3);

/// Makes one call on a new connection. Returns its status and the time from the last byte sent to the response.
async fn timed_call(at: SocketAddr, head: &str, body: &[u8]) -> (u16, Duration) {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let head = format!("{head}Host: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let began = Instant::now();
    let mut response = String::new();
    timeout(TIMEOUT, stream.read_to_string(&mut response)).await.expect("no answer").unwrap();
    (response.split(' ').nth(1).unwrap().parse().unwrap(), began.elapsed())
}

/// Posts a large body over many connections at once and calls `/healthz` meanwhile. Returns the longest time of each.
async fn slowest_calls(server: &SpawnedServer, path: &str, body: &[u8]) -> (Duration, Duration) {
    let at: SocketAddr = server.url.strip_prefix("http://").unwrap().parse().unwrap();
    // Connections go to the threads in turn, so every thread has some.
    let clients = 2 * std::thread::available_parallelism().unwrap().get();
    let posts: Vec<_> = (0..clients)
        .map(|n| {
            let head = format!(
                "POST {path} HTTP/1.1\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
                 Idempotency-Key: {path}-{n}\r\n",
                server.api_key
            );
            let body = body.to_vec();
            tokio::spawn(async move { timed_call(at, &head, &body).await })
        })
        .collect();
    let mut health = Duration::ZERO;
    while posts.iter().any(|post| !post.is_finished()) {
        let (status, took) = timed_call(at, "GET /healthz HTTP/1.1\r\n", b"").await;
        assert_eq!(status, 200);
        health = health.max(took);
        sleep(Duration::from_millis(5)).await;
    }
    let mut parsing = Duration::ZERO;
    for post in posts {
        let (status, took) = post.await.unwrap();
        assert!(status < 300, "{path}: {status}");
        parsing = parsing.max(took);
    }
    (parsing, health)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_connections_are_served_while_large_bodies_are_parsed() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let file = "QUJD".repeat(5 * 1024 * 1024);
    let body = format!(
        r#"{{"from":"agent@mailonce.test","to":["ada@example.com"],"subject":"Hi","text":"Hi","attachments":[{{"filename":"a.txt","content":"{file}"}}]}}"#
    );
    for path in ["/v1/emails", "/compat/resend/emails"] {
        let (parsing, health) = slowest_calls(&server, path, body.as_bytes()).await;
        println!("{path}: {parsing:?} for a large body, {health:?} for /healthz meanwhile");
        assert!(
            parsing > Duration::from_millis(200),
            "{path}: parsing took only {parsing:?}, so this test proves nothing"
        );
        assert!(health < parsing / 3, "{path}: waited {health:?} for bodies that took {parsing:?}");
    }
}

#[tokio::test]
async fn other_tasks_run_while_a_large_mail_is_hashed_and_compressed() {
    let world = World::memory().await.with_inbox_domain().await;
    world.create_inbox("a").await;
    let mail =
        incoming_mail(&["a@agents.test"], &format!("Subject: large\n\n{}\n", "0123456789 abcdef\n".repeat(1_000_000)));
    let ticks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ticks);
    let ticking = tokio::spawn(async move {
        loop {
            sleep(Duration::from_millis(1)).await;
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    tokio::task::yield_now().await;
    let before = ticks.load(Ordering::SeqCst);
    let received = world.engine.inbound.receive_mail(mail).await.unwrap();
    let during = ticks.load(Ordering::SeqCst) - before;
    ticking.abort();
    assert!(received.len() == 1 && received[0].is_accepted(), "{received:?}");
    assert!(during >= 5, "other tasks ran only {during} times meanwhile");
}
