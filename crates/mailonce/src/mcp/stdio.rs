//! `mailonce mcp`: forwards messages between a client's pipes and a running server, so that the tools are implemented
//! once. Every tool call is idempotent, so a call whose connection broke is retried.

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
    http_client::{Answer, Call, RESPONSE_TIMEOUT},
};
use crate::mcp::{
    json_rpc::{self, IncomingMessage, RpcError, RpcRequest},
    progress::MessageReader,
    protocol_revision::{METHOD_HEADER, NAME_HEADER, VERSION_HEADER, VERSION_KEY, meta},
};

/// Lines that are read ahead while earlier calls run.
const MAX_QUEUED_LINES: usize = 64;
/// Calls that run at the same time.
const MAX_CONCURRENT_CALLS: usize = 64;
/// Attempts of one call while the server is unreachable.
const MAX_ATTEMPTS: u32 = 4;
/// How long running calls may take to finish after the client closed its end.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(1);

type RunningCalls = Arc<Mutex<HashMap<String, AbortHandle>>>;

/// Forwards messages until the client closes its end.
pub(crate) async fn run(server_args: ServerArgs) -> anyhow::Result<ExitCode> {
    let mut lines = stdin_lines();
    let server_args = Arc::new(server_args);
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
                let (id, server_args, running_calls) =
                    (request.id.to_string(), Arc::clone(&server_args), Arc::clone(&running));
                let name = id.clone();
                let call = calls.spawn(async move {
                    let answer = forward(&server_args, &request, line).await;
                    forget(&running_calls, &name);
                    if let Err(error) = write_message(&answer) {
                        tracing::debug!(%error, "the client closed its end before it read the response");
                    }
                });
                running.lock().unwrap_or_else(PoisonError::into_inner).insert(id, call);
            }
        }
    }
    let ending = async { while calls.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, ending).await.is_err() {
        tracing::debug!("some calls did not finish within the drain timeout");
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the lines of stdin on a thread of its own, because the reads block.
fn stdin_lines() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_LINES);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            // A line over the limit is cut after one byte too many. The cut line is not valid JSON, so the client gets
            // a parse error.
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

/// Handles `notifications/cancelled`: stops waiting for the call. An email that was accepted stays accepted.
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

/// Sends a request to the server, with retries. Always returns a message for the client.
async fn forward(server_args: &ServerArgs, request: &RpcRequest, line: Vec<u8>) -> Value {
    let mut delay = Duration::from_millis(100);
    let mut attempts = 0;
    // Notifications of a retry say less than those before it, and progress must increase.
    let mut progress = 0;
    loop {
        attempts += 1;
        match exchange(server_args, request, &line, &mut progress).await {
            Ok(message) => return message,
            Err(error) if attempts == MAX_ATTEMPTS => return unreachable_message(request, &format!("{error:#}")),
            Err(error) => tracing::debug!(%error, "the call failed; retrying"),
        }
        tokio::time::sleep(delay).await;
        delay *= 4;
    }
}

/// Sends a request once, writes the progress that the server reports, and returns the response.
async fn exchange(
    server_args: &ServerArgs,
    request: &RpcRequest,
    line: &[u8],
    progress: &mut u64,
) -> anyhow::Result<Value> {
    if meta(&request.params).is_none_or(|meta| !meta.contains_key("progressToken")) {
        let answer = post(server_args, request, line.to_vec()).await?;
        return Ok(response_message(request, answer.status, &answer.body));
    }
    let (client, call) = prepare(server_args, request, line.to_vec())?;
    let mut answer = client.server.follow(&call).await?;
    let mut reader = MessageReader::default();
    while let Some(piece) = answer.next(RESPONSE_TIMEOUT).await {
        for message in reader.add(&piece).context("the server's message is too long")? {
            if message["method"] != "notifications/progress" {
                return Ok(message);
            }
            let now = message["params"]["progress"].as_u64().unwrap_or_default();
            if now > *progress {
                *progress = now;
                write_message(&message)?;
            }
        }
    }
    let body = reader.into_plain_body().context("the stream ended before the response")?;
    anyhow::ensure!(!body.is_empty(), "the connection broke before the response");
    Ok(response_message(request, answer.status, &body))
}

pub(super) async fn post(server_args: &ServerArgs, request: &RpcRequest, line: Vec<u8>) -> anyhow::Result<Answer> {
    let (client, call) = prepare(server_args, request, line)?;
    client.server.call(&call).await
}

fn prepare(server_args: &ServerArgs, request: &RpcRequest, line: Vec<u8>) -> anyhow::Result<(CliClient, Call)> {
    // Located again for each attempt: `dev` may have restarted on another port.
    let client = CliClient::for_model(server_args)?;
    let mut headers = vec![
        ("authorization", format!("Bearer {}", client.api_key)),
        ("accept", "application/json, text/event-stream".to_owned()),
    ];
    headers.extend(routing_headers(&request.method, &request.params));
    Ok((client, Call { method: Method::POST, path: "/mcp".into(), headers, body: line.into() }))
}

/// The headers that a stateless request must repeat from its body.
pub(super) fn routing_headers(method: &str, params: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let version = meta(params).and_then(|meta| meta.get(VERSION_KEY)).and_then(Value::as_str);
    let Some(version) = version else { return Vec::new() };
    let is_printable = |text: &&str| text.chars().all(|c| c.is_ascii_graphic());
    let name = params.get("name").and_then(Value::as_str).filter(|_| method == "tools/call");
    let headers = [(VERSION_HEADER, Some(version)), (METHOD_HEADER, Some(method)), (NAME_HEADER, name)];
    headers.into_iter().filter_map(|(header, text)| Some((header, text.filter(is_printable)?.to_owned()))).collect()
}

/// The server's JSON-RPC message, or an error if the response is not JSON-RPC.
fn response_message(request: &RpcRequest, status: u16, body: &[u8]) -> Value {
    match serde_json::from_slice::<Value>(body) {
        Ok(mut message) if message["jsonrpc"] == "2.0" => {
            // The server rejected the request before it read the id. Only this request can be meant.
            if message["id"].is_null() {
                message["id"] = request.id.clone();
            }
            message
        }
        _ => unreachable_message(request, &format!("the server answered HTTP {status} without a JSON-RPC message")),
    }
}

/// A tool call gets a tool result that tells the model to retry; any other method gets a JSON-RPC error.
fn unreachable_message(request: &RpcRequest, detail: &str) -> Value {
    if request.method != "tools/call" {
        return RpcError::internal(detail).to_message(&request.id);
    }
    let next = "mailonce could not be reached. Call again with the same arguments; it is safe.";
    let body = json!({ "status": "unavailable", "next": next, "detail": detail });
    let text = body.to_string();
    let result = json!({
        "content": [{ "type": "text", "text": text }],
        "structuredContent": body,
        "isError": true,
        "resultType": "complete",
    });
    json_rpc::result_message(&request.id, &result)
}
