//! The event stream: many readers, disconnects, filters, and stalled readers.

use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, body::Bytes, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};
use tower::ServiceExt as _;

use crate::fixtures::{
    api_fixture::{World, mail},
    binary::{CliFixture, SpawnedServer},
    requests::{TestResponse, get},
    webhook_receivers::WebhookServer,
};

const TIMEOUT: Duration = Duration::from_mins(2);

/// Parses server-sent events.
#[derive(Default)]
struct SseParser {
    buffer: String,
    /// The last event id received, with or without an event.
    last_event_id: String,
}

impl SseParser {
    /// The events of all complete blocks.
    fn parse_chunk(&mut self, chunk: &[u8]) -> Vec<Value> {
        self.buffer += std::str::from_utf8(chunk).unwrap();
        let mut events = Vec::new();
        while let Some((block, rest)) = self.buffer.split_once("\n\n") {
            for line in block.lines() {
                match line.split_once(": ") {
                    Some(("id", id)) => id.clone_into(&mut self.last_event_id),
                    Some(("data", json)) => events.push(serde_json::from_str(json).unwrap()),
                    Some(("retry" | "", _)) => {}
                    other => panic!("{other:?}"),
                }
            }
            self.buffer = rest.to_owned();
        }
        events
    }
}

/// An event stream through the router, without a socket.
struct EventStreamClient {
    body: axum::body::Body,
    parser: SseParser,
}

impl EventStreamClient {
    async fn open(world: &World, path: &str, last: Option<&str>) -> Result<Self, TestResponse> {
        let call = last.into_iter().fold(get(path), |call, last| call.header("last-event-id", last));
        let response = world.router().oneshot(call.build(&world.secret)).await.unwrap();
        if response.status() != 200 {
            return Err(TestResponse::from_response(response).await);
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Ok(Self { body: response.into_body(), parser: SseParser::default() })
    }

    async fn next_chunk(&mut self) -> Option<Vec<Value>> {
        let frame = tokio::time::timeout(TIMEOUT, self.body.frame()).await.expect("no data in time")?;
        Some(self.parser.parse_chunk(frame.unwrap().data_ref().unwrap()))
    }

    async fn next_events(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            events.extend(self.next_chunk().await.expect("the stream ended"));
        }
        events
    }
}

over_every_engine! {
    async fn a_stream_delivers_what_the_list_shows_and_continues(world) {
        for n in 0..3 {
            world.send(&format!("k{n}"), &mail()).await.expect_status(202);
        }
        let mut stream = EventStreamClient::open(&world, "/v1/events/stream?after=0", None).await.ok().unwrap();
        assert_eq!(stream.next_events(3).await, world.events().await);
        world.send("later", &mail()).await.expect_status(202);
        let later = stream.next_events(1).await;
        assert_eq!((&later[0]["seq"], &later[0]["cursor"]), (&json!(4), &json!(stream.parser.last_event_id)));
        let mut again = EventStreamClient::open(&world, "/v1/events/stream?after=0", Some("1-3")).await.ok().unwrap();
        assert_eq!(again.next_events(1).await, later, "Last-Event-ID takes precedence over the query");
        let mut fresh = EventStreamClient::open(&world, "/v1/events/stream", None).await.ok().unwrap();
        assert_eq!((fresh.next_chunk().await.unwrap().len(), fresh.parser.last_event_id.as_str()), (0, "1-4"), "without a cursor the stream starts at the end");
        world.send("last", &mail()).await.expect_status(202);
        assert_eq!(fresh.next_events(1).await[0]["seq"], 5);
    }

    async fn filters_hide_events_and_the_cursor_moves_on(world) {
        let id = world.send("a", &mail()).await.expect_status(202).string_field("id");
        world.send("b", &mail()).await.expect_status(202);
        world.hand_off_due().await;
        let mut sent = EventStreamClient::open(&world, "/v1/events/stream?after=0&type=email.sent", None).await.ok().unwrap();
        assert!(sent.next_events(2).await.iter().all(|event| event["type"] == "email.sent"));
        let mut about =
            EventStreamClient::open(&world, &format!("/v1/events/stream?after=0&about={id}"), None).await.ok().unwrap();
        assert!(about.next_events(2).await.iter().all(|event| event["about"]["id"] == id.as_str()));
        let listed = world.get("/v1/events?type=email.sent,key.*&limit=1").await.expect_status(200);
        assert_eq!((listed.rows().len(), &listed["next_cursor"]), (1, &json!("1-3")));
        let nothing = world.get("/v1/events?type=message.*").await.expect_status(200);
        assert_eq!((nothing.rows().len(), &nothing["next_cursor"]), (0, &json!("1-4")), "the cursor moves past events that do not match");
        let inbox = world.get("/v1/events?inbox=018f0000-0000-7000-8000-000000000000").await.expect_status(200);
        assert_eq!(inbox.rows().len(), 0);
    }

    async fn an_invalid_cursor_or_filter_is_refused(world) {
        world.send("a", &mail()).await.expect_status(202);
        for (path, last, status, code) in [
            ("?after=9-1", None, 410, "cursor_reset"),
            ("?after=1-2", None, 410, "cursor_reset"),
            ("", Some("2-1"), 410, "cursor_reset"),
            ("?after=x", None, 400, "invalid_query"),
            ("", Some("x"), 400, "invalid_query"),
            ("?limit=5", None, 400, "invalid_query"),
            ("?type=email.snet", None, 400, "invalid_query"),
            ("?about=x", None, 400, "invalid_query"),
        ] {
            let answer = EventStreamClient::open(&world, &format!("/v1/events/stream{path}"), last).await;
            answer.err().unwrap_or_else(|| panic!("{path} was accepted")).expect_problem(status, code);
        }
        world.get("/v1/events?after=1-2").await.expect_problem(410, "cursor_reset");
        world.get("/v1/events?after=1-1").await.expect_status(200);
    }

    async fn streams_end_with_the_server(world) {
        let mut stream = EventStreamClient::open(&world, "/v1/events/stream", None).await.ok().unwrap();
        assert_eq!(stream.next_chunk().await.unwrap().len(), 0);
        world.engine.events.end_streams();
        assert_eq!(stream.next_chunk().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_sends_its_cursor_as_a_heartbeat() {
    let world = World::memory().await;
    world.send("a", &mail()).await.expect_status(202);
    let mut stream =
        EventStreamClient::open(&world, "/v1/events/stream?after=0&type=message.*", None).await.ok().unwrap();
    assert_eq!(stream.next_chunk().await.unwrap().len(), 0);
    stream.parser.last_event_id.clear();
    let began = tokio::time::Instant::now();
    assert_eq!(stream.next_chunk().await.unwrap().len(), 0);
    assert_eq!((stream.parser.last_event_id.as_str(), began.elapsed().as_secs()), ("1-1", 15));
}

/// Opens a stream over a socket.
async fn open_stream(server: &SpawnedServer, after: &str) -> (Incoming, tokio::task::JoinHandle<()>) {
    let address = server.url.strip_prefix("http://").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let driver = tokio::spawn(async move { drop(connection.await) });
    let request = Request::get("/v1/events/stream?after=0")
        .header("host", address)
        .header("authorization", format!("Bearer {}", server.api_key))
        .header("last-event-id", after);
    let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    (answer.into_body(), driver)
}

/// Reads `count` events and reconnects after every `cut_every`. Returns their ids, in order.
async fn follow_with_reconnects(server: &SpawnedServer, count: usize, cut_every: usize) -> Vec<String> {
    let (mut ids, mut last) = (Vec::new(), "0".to_owned());
    while ids.len() < count {
        let (mut body, driver) = open_stream(server, &last).await;
        let mut parser = SseParser::default();
        let until = ids.len() + cut_every;
        while ids.len() < until.min(count) {
            let frame = tokio::time::timeout(TIMEOUT, body.frame()).await.expect("no data in time").unwrap().unwrap();
            let events = parser.parse_chunk(frame.data_ref().unwrap());
            ids.extend(events.iter().map(|event| event["id"].as_str().unwrap().to_owned()));
        }
        last = parser.last_event_id;
        driver.abort();
    }
    ids.truncate(count);
    ids
}

/// Requests all events and then reads nothing.
async fn open_stalled_stream(server: &SpawnedServer) -> TcpStream {
    let address = server.url.strip_prefix("http://").unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let head = format!(
        "GET /v1/events/stream?after=0 HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\r\n",
        server.api_key
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn send_batches(server: &SpawnedServer, from: usize, count: usize) {
    let bearer = format!("Bearer {}", server.api_key);
    for n in (from..from + count).step_by(500) {
        let mails: Vec<Value> = (n..(n + 500).min(from + count))
            .map(|reader| {
                let mut mail = mail();
                // Different recipients, so that the content guard flags none of them.
                mail["to"] = json!(format!("reader{reader}@example.com"));
                mail["scheduled_at"] = json!("in 1 day");
                mail
            })
            .collect();
        let key = format!("b{n}");
        let headers =
            [("authorization", bearer.as_str()), ("idempotency-key", &key), ("content-type", "application/json")];
        let (status, answer) = server.call("POST", "/v1/emails/batch", &headers, &json!(mails).to_string()).await;
        assert_eq!(status, 202, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_reconnecting_readers_see_the_same_sequence() {
    const READERS: usize = 1_000;
    const EVENTS: usize = 300;
    let cli = CliFixture::new();
    let server = std::sync::Arc::new(cli.start_dev(&[]).await);
    let mut readers = JoinSet::new();
    for n in 0..READERS {
        let server = std::sync::Arc::clone(&server);
        readers.spawn(async move { follow_with_reconnects(&server, EVENTS, 40 + n % 300).await });
    }
    for n in 0..EVENTS / 50 {
        send_batches(&server, n * 50, 50).await;
    }
    let mut sequences: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    while let Some(ids) = readers.join_next().await {
        *sequences.entry(ids.unwrap()).or_default() += 1;
    }
    let bearer = format!("Bearer {}", server.api_key);
    let (_, page) = server.call("GET", "/v1/events?limit=1000", &[("authorization", &bearer)], "").await;
    let events = page["data"].as_array().unwrap();
    let listed: Vec<String> = events.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(sequences, BTreeMap::from([(listed, READERS)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_readers_use_bounded_memory() {
    const READERS: usize = 200;
    const EVENTS: usize = 5_000;
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    send_batches(&server, 0, EVENTS).await;
    let mut stalled_streams = Vec::new();
    for _ in 0..READERS {
        stalled_streams.push(open_stalled_stream(&server).await);
    }
    // When one active reader has read everything, all requests have been handled.
    assert_eq!(follow_with_reconnects(&server, EVENTS, EVENTS).await.len(), EVENTS);
    let before = server.resident_bytes();
    send_batches(&server, EVENTS, EVENTS).await;
    assert_eq!(follow_with_reconnects(&server, 2 * EVENTS, EVENTS).await.len(), 2 * EVENTS);
    let grown = server.resident_bytes().saturating_sub(before);
    // The new events are a few megabytes. Buffered for each reader they would be hundreds.
    assert!(grown < 64 * 1024 * 1024, "{} MiB more", grown >> 20);
    drop(stalled_streams);
}

#[tokio::test]
async fn tail_shows_and_listen_forwards_events() {
    let webhook_server = WebhookServer::start().await;
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let bearer = format!("Bearer {}", server.api_key);
    send_batches(&server, 0, 3).await;
    let seen = cli.run(&["tail", "--after", "0", "--limit", "3"]).await.expect_exit(0);
    let cursors: Vec<Value> =
        seen.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["cursor"].clone()).collect();
    assert_eq!(cursors, ["1-1", "1-2", "1-3"]);
    cli.run(&["tail", "--after", "7-1"]).await.expect_exit(64);
    let url = format!("http://{}/hook", webhook_server.address);
    let args = ["webhooks", "listen", "--forward-to", &url, "--after", "0", "--type", "email.*", "--limit", "2"];
    let output = cli.run(&args).await.expect_exit(0);
    assert!(output.stderr.contains("whsec_"), "{output:?}");
    assert_eq!(webhook_server.requests().len(), 2);
    assert!(webhook_server.requests()[0].contains("svix-signature: v1,"));
    let id_of = |request: &str| request.lines().find_map(|line| line.strip_prefix("webhook-id: ").map(str::to_owned));
    let event: Value = serde_json::from_str(webhook_server.requests()[0].lines().last().unwrap()).unwrap();
    assert_ne!(id_of(&webhook_server.requests()[0]).as_deref(), event["id"].as_str(), "a notice has its own id");
    cli.run(&args).await.expect_exit(0);
    let ids: Vec<_> = webhook_server.requests().iter().map(|request| id_of(request).unwrap()).collect();
    assert_eq!(ids[..2], ids[2..], "the same event keeps its notice id for the same receiver");
    let endpoint = json!({ "url": url, "after": "0" }).to_string();
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let (status, created) = server.call("POST", "/v1/endpoints", &headers, &endpoint).await;
    assert_eq!(status, 201, "{created}");
    webhook_server.wait_for_requests(7).await;
    let last_request = webhook_server.requests().pop().unwrap();
    let id = last_request.lines().find_map(|line| line.strip_prefix("webhook-id: ")).unwrap();
    cli.run(&["webhooks", "replay", id]).await.expect_exit(0);
    webhook_server.wait_for_requests(8).await;
    assert!(webhook_server.requests().pop().unwrap().contains(id));
    let listed = cli.run(&["webhooks", "list"]).await.expect_exit(0).json();
    assert_eq!(listed["data"][0]["url"], url);
}
