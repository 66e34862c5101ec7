//! Tools that wait: for how long, from where they continue, and progress notifications by raw JSON-RPC over HTTP and over
//! stdio. The official client is in `clients.rs`.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

use crate::fixtures::McpFixture;

fn wait_request(meta: Value, arguments: Value) -> Value {
    let params = json!({ "name": "wait_for_message", "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params })
}

/// Posts a message and returns the head of the response and its lines with the time at which each arrived.
async fn post_stream(fixture: &McpFixture, accept: &str, body: &Value) -> (String, Vec<(Duration, String)>) {
    let (address, body) = (fixture.server.url.strip_prefix("http://").unwrap(), body.to_string());
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nAccept: {accept}\r\nConnection: close\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n",
        fixture.server.api_key,
        body.len()
    );
    let started = Instant::now();
    let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
    stream.get_mut().write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let (mut head, mut rows) = (String::new(), Vec::new());
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap() == 0 {
            return (head, rows);
        }
        if rows.is_empty() && !head.ends_with("\r\n\r\n") {
            head += &line;
        } else {
            rows.push((started.elapsed(), line.trim_end().to_owned()));
        }
    }
}

/// The messages of a stream.
fn messages(rows: &[(Duration, String)]) -> Vec<(Duration, Value)> {
    let data = rows.iter().filter_map(|(at, row)| Some((*at, row.strip_prefix("data: ")?)));
    data.map(|(at, text)| (at, serde_json::from_str(text).unwrap())).collect()
}

const BOTH: &str = "application/json, text/event-stream";

/// Fails unless the messages are progress at least every two seconds, and then the response.
#[track_caller]
fn check_progress(messages: &[(Duration, Value)], token: &Value) {
    let (last, progress) = messages.split_last().unwrap();
    assert!(progress.len() >= 2, "{messages:?}");
    let mut before = (Duration::ZERO, 0);
    for (at, message) in progress {
        assert_eq!(message["method"], "notifications/progress", "{message}");
        assert_eq!(&message["params"]["progressToken"], token, "{message}");
        let value = message["params"]["progress"].as_u64().unwrap();
        assert!(value > before.1 && at.saturating_sub(before.0) < Duration::from_secs(2), "{messages:?}");
        before = (*at, value);
    }
    assert_eq!(last.1["id"], 7, "{last:?}");
    assert_eq!(last.1["result"]["structuredContent"]["status"], "timeout", "{last:?}");
}

#[tokio::test]
async fn a_waiting_tool_reports_progress_over_http() {
    let fixture = McpFixture::start().await;
    let nobody = json!({ "from": "nobody@people.test", "timeout_s": 3 });
    for token in [json!("token-1"), json!(42)] {
        let call = wait_request(json!({ "progressToken": token }), nobody.clone());
        let (head, rows) = post_stream(&fixture, BOTH, &call).await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-type: text/event-stream"), "{head}");
        check_progress(&messages(&rows), &token);
    }

    // Without a token, with an invalid one, or if the client cannot read a stream, the answer is plain JSON.
    for (accept, meta) in [
        (BOTH, json!({})),
        (BOTH, json!({ "progressToken": { "a": 1 } })),
        ("application/json", json!({ "progressToken": 1 })),
    ] {
        let (head, rows) = post_stream(&fixture, accept, &wait_request(meta, nobody.clone())).await;
        assert!(head.contains("content-type: application/json"), "{head}");
        let answer: Value = serde_json::from_str(&rows[0].1).unwrap();
        assert_eq!(answer["result"]["structuredContent"]["status"], "timeout", "{answer}");
    }

    // Mail that is there already is returned at once.
    fixture.receive_text("bob@people.test", "Question", "When do you open?").await;
    let call = wait_request(json!({ "progressToken": 1 }), json!({ "from": "bob@people.test", "timeout_s": 50 }));
    let (_, rows) = post_stream(&fixture, BOTH, &call).await;
    let answer: Value = serde_json::from_str(&rows[0].1).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["status"], "arrived", "{answer}");
}

#[tokio::test]
async fn a_wait_without_timeout_takes_4_seconds() {
    let fixture = McpFixture::start().await;
    for meta in [json!({}), json!({ "progressToken": 1 })] {
        let started = Instant::now();
        post_stream(&fixture, BOTH, &wait_request(meta, json!({ "from": "nobody@people.test" }))).await;
        assert!((3_500..6_000).contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());
    }
}

#[tokio::test]
async fn a_call_with_timeout_0_looks_once() {
    let fixture = McpFixture::start().await;
    // A call that waited would take the default of 4 seconds.
    for (tool, arguments, expected) in [
        ("wait_for_message", json!({ "from": "nobody@people.test", "timeout_s": 0 }), "timeout"),
        ("take_artifact", json!({ "type": "code", "for": "sign-up", "timeout_s": 0 }), "none"),
    ] {
        let started = Instant::now();
        let answer = fixture.call_tool(tool, arguments).await;
        assert_eq!(answer["status"], expected, "{answer}");
        assert!(started.elapsed() < Duration::from_millis(3_500), "{tool}: {:?}", started.elapsed());
    }

    fixture.receive_text("bob@people.test", "Question", "When do you open?").await;
    let there = fixture.call_tool("wait_for_message", json!({ "from": "bob@people.test", "timeout_s": 20 })).await;
    let looked = fixture.call_tool("wait_for_message", json!({ "from": "bob@people.test", "timeout_s": 0 })).await;
    assert_eq!((&looked["status"], &looked["message"]), (&json!("arrived"), &there["message"]), "{looked}");
}

#[tokio::test]
async fn a_wait_that_timed_out_continues_from_its_cursor() {
    let fixture = McpFixture::start().await;
    let wait = async |arguments: Value| fixture.call_tool("wait_for_message", arguments).await;
    fixture.receive_text("ann@people.test", "Before", "You have read this already.").await;
    let before = wait(json!({ "from": "ann@people.test", "timeout_s": 20 })).await;
    let timed_out = wait(json!({ "from": "eve@people.test", "timeout_s": 0 })).await;
    assert_eq!(timed_out["status"], "timeout", "{timed_out}");
    for subject in ["One", "Two"] {
        fixture.receive_text("eve@people.test", subject, "Do you have a minute?").await;
    }
    // Nothing that came before the call, and everything that came after it.
    let (mut cursor, mut seen) = (timed_out["cursor"].clone(), vec![before["message"].clone()]);
    for _ in 0..2 {
        let arrived = wait(json!({ "cursor": cursor, "timeout_s": 20 })).await;
        assert_eq!((&arrived["status"], &arrived["from"]), (&json!("arrived"), &json!("eve@people.test")), "{arrived}");
        assert!(!seen.contains(&arrived["message"]), "{arrived}");
        seen.push(arrived["message"].clone());
        cursor = arrived["cursor"].clone();
    }
    let timed_out = wait(json!({ "cursor": cursor, "timeout_s": 0 })).await;
    assert_eq!((&timed_out["status"], &timed_out["cursor"]), (&json!("timeout"), &cursor), "{timed_out}");
}

#[tokio::test]
async fn a_waiting_tool_reports_progress_over_stdio() {
    let fixture = McpFixture::start().await;
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_mailonce"))
        .args(["mcp", "--data"])
        .arg(fixture.cli.data_dir())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let nobody = json!({ "from": "nobody@people.test", "timeout_s": 3 });
    let call = wait_request(json!({ "progressToken": "over-pipes" }), nobody);
    let started = Instant::now();
    child.stdin.as_mut().unwrap().write_all(format!("{call}\n").as_bytes()).await.unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut messages = Vec::new();
    while messages.last().is_none_or(|(_, message): &(_, Value)| message.get("id").is_none()) {
        let line = lines.next_line().await.unwrap().unwrap();
        messages.push((started.elapsed(), serde_json::from_str(&line).unwrap()));
    }
    check_progress(&messages, &json!("over-pipes"));
}
