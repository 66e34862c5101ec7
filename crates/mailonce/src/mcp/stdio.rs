//! `mailonce mcp`: carries messages between a client's pipes and a running server, so that one implementation of the
//! tools exists. Every tool may be called again, so a call whose connection broke is asked anew.

use anyhow::Context as _;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    io::{BufRead as _, Read as _, Write as _},
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};

use super::http::MESSAGE_BYTES;
use crate::cli::{
    ServerArgs,
    client::CliClient,
    http_client::{Answer, Call},
};
use crate::mcp::{
    json_rpc::{self, IncomingMessage, RpcError, RpcRequest},
    protocol_revision::{METHOD_HEADER, NAME_HEADER, VERSION_HEADER, VERSION_KEY, meta},
};

/// Lines that wait while others are answered.
const MAX_QUEUED_LINES: usize = 64;
/// Calls at a time.
const MAX_CONCURRENT_CALLS: usize = 64;
/// How often a call is asked anew when nobody answers.
const MAX_ATTEMPTS: u32 = 4;
/// How long what still runs may take when the client is gone.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(1);

type RunningCalls = Arc<Mutex<HashMap<String, AbortHandle>>>;

/// Carries until the client closes its end.
pub(crate) async fn run(reach: ServerArgs) -> anyhow::Result<ExitCode> {
    let mut lines = stdin_lines();
    let reach = Arc::new(reach);
    let running = RunningCalls::default();
    let mut calls = JoinSet::new();
    while let Some(line) = lines.recv().await {
        while calls.len() >= MAX_CONCURRENT_CALLS {
            calls.join_next().await;
        }
        while calls.try_join_next().is_some() {}
        match json_rpc::parse(&line) {
            Err(fault) => write_message(&fault.to_message(&Value::Null))?,
            Ok(IncomingMessage::Notification) => cancel(&running, &line),
            Ok(IncomingMessage::Request(request)) => {
                let (id, reach, known) = (request.id.to_string(), Arc::clone(&reach), Arc::clone(&running));
                let name = id.clone();
                let call = calls.spawn(async move {
                    let answer = forward(&reach, &request, line).await;
                    forget(&known, &name);
                    if let Err(error) = write_message(&answer) {
                        tracing::debug!(%error, "the client is gone");
                    }
                });
                running.lock().unwrap_or_else(PoisonError::into_inner).insert(id, call);
            }
        }
    }
    let ending = async { while calls.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, ending).await.is_err() {
        tracing::debug!("some calls did not end in time");
    }
    Ok(ExitCode::SUCCESS)
}

/// The lines of stdin, read apart: nothing else may wait for them.
fn stdin_lines() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_LINES);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            // One byte more than fits shows that it does not fit; such a line is no JSON and is told so.
            let read = input.by_ref().take(MESSAGE_BYTES as u64 + 1).read_until(b'\n', &mut line);
            if !matches!(read, Ok(1..)) {
                return;
            }
            let blank = line.iter().all(u8::is_ascii_whitespace);
            if !blank && sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Writes one message on a line of its own.
fn write_message(message: &Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{message}").and_then(|()| out.flush()).context("writing to the client")
}

fn forget(running: &RunningCalls, id: &str) {
    running.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
}

/// A client that no longer waits for an answer says so. What was accepted stays accepted.
fn cancel(running: &RunningCalls, line: &[u8]) {
    let Ok(message) = serde_json::from_slice::<Value>(line) else { return };
    if message["method"] != "notifications/cancelled" {
        return;
    }
    let id = message["params"]["requestId"].to_string();
    if let Some(call) = running.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) {
        call.abort();
    }
}

/// Asks the server. The answer is always a message for the client.
async fn forward(reach: &ServerArgs, request: &RpcRequest, line: Vec<u8>) -> Value {
    let mut pause = Duration::from_millis(100);
    let mut tries = 0;
    loop {
        tries += 1;
        match post(reach, request, line.clone()).await {
            Ok(answer) => return response_message(request, &answer),
            Err(error) if tries == MAX_ATTEMPTS => return unreachable_message(request, &format!("{error:#}")),
            Err(error) => tracing::debug!(%error, "asking again"),
        }
        tokio::time::sleep(pause).await;
        pause *= 4;
    }
}

pub(super) async fn post(reach: &ServerArgs, request: &RpcRequest, line: Vec<u8>) -> anyhow::Result<Answer> {
    // Found anew each time: `dev` may have come back at another place.
    let client = CliClient::for_model(reach)?;
    let mut headers = vec![
        ("authorization", format!("Bearer {}", client.api_key)),
        ("accept", "application/json, text/event-stream".to_owned()),
    ];
    headers.extend(routing_headers(&request.method, &request.params));
    client.server.call(&Call { method: Method::POST, path: "/mcp".into(), headers, body: line.into() }).await
}

/// Headers that repeat what a stateless request says.
pub(super) fn routing_headers(method: &str, params: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let version = meta(params).and_then(|meta| meta.get(VERSION_KEY)).and_then(Value::as_str);
    let Some(version) = version else { return Vec::new() };
    let plain = |text: &&str| text.chars().all(|c| c.is_ascii_graphic());
    let name = params.get("name").and_then(Value::as_str).filter(|_| method == "tools/call");
    let said = [(VERSION_HEADER, Some(version)), (METHOD_HEADER, Some(method)), (NAME_HEADER, name)];
    said.into_iter().filter_map(|(header, text)| Some((header, text.filter(plain)?.to_owned()))).collect()
}

/// The server's answer, or the reason why it gave none in our language.
fn response_message(request: &RpcRequest, answer: &Answer) -> Value {
    match serde_json::from_slice::<Value>(&answer.body) {
        Ok(mut message) if message["jsonrpc"] == "2.0" => {
            // Refused before its id was read; there is only one it can mean.
            if message["id"].is_null() {
                message["id"] = request.id.clone();
            }
            message
        }
        _ => unreachable_message(request, &format!("the server answered {} without a message", answer.status)),
    }
}

/// A model can call again, so it is told in its own form; anybody else gets a fault.
fn unreachable_message(request: &RpcRequest, why: &str) -> Value {
    if request.method != "tools/call" {
        return RpcError::internal(why).to_message(&request.id);
    }
    let next = "mailonce could not be reached. Call again with the same arguments; it is safe.";
    let body = json!({ "status": "unavailable", "next": next, "detail": why });
    let text = body.to_string();
    let result = json!({
        "content": [{ "type": "text", "text": text }],
        "structuredContent": body,
        "isError": true,
        "resultType": "complete",
    });
    json_rpc::result_message(&request.id, &result)
}
