//! Progress notifications: while a tool waits, a caller that sent a `progressToken` hears about it every second, so
//! that neither the client nor a proxy takes the call for dead.
//!
//! A call that ends within the first second is answered as JSON. Only a longer one is answered with a stream, which
//! `mailonce mcp` reads with [`MessageReader`].

use axum::{
    http::{HeaderMap, header},
    response::Response,
};
use serde_json::{Map, Value, json};
use std::{future::Future, pin::Pin, time::Duration};
use tokio::time::{Instant, timeout_at};

use super::{http::MESSAGE_BYTES, json_rpc::RpcRequest, protocol_revision, tools};
use crate::http::event_stream::{self, ChunkSource};

/// Time between two notifications.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest token, in bytes. It is repeated in every notification.
const MAX_TOKEN_BYTES: usize = 1024;

/// A running call. It resolves to the response message.
pub(super) type RunningCall<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The progress token of a request, if its tool waits and the client can read a stream.
pub(super) fn token(request: &RpcRequest, headers: &HeaderMap) -> Option<Value> {
    let is_waiting_tool = request.method == "tools/call"
        && request.params.get("name").and_then(Value::as_str).is_some_and(tools::is_waiting_tool);
    let token = protocol_revision::meta(&request.params)?.get("progressToken")?;
    let is_valid = match token {
        Value::String(text) => text.len() <= MAX_TOKEN_BYTES,
        Value::Number(number) => number.is_i64() || number.is_u64(),
        _ => false,
    };
    (is_waiting_tool && is_valid && accepts_stream(headers)).then(|| token.clone())
}

fn accepts_stream(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/event-stream")
    })
}

/// Waits for a call for as long as its answer can still be JSON. `Err` returns the call if it takes longer.
pub(super) async fn wait_briefly<T>(mut call: RunningCall<T>) -> Result<T, RunningCall<T>> {
    tokio::time::timeout(INTERVAL, call.as_mut()).await.map_err(|_still_running| call)
}

/// Streams notifications until the call ends, then its response.
pub(super) fn stream(token: Value, total_s: u64, call: RunningCall<Value>) -> Response {
    event_stream::response(ProgressStream { token, total_s, progress: 1, started: Instant::now(), call })
}

/// A call whose first notification is due.
struct ProgressStream {
    token: Value,
    /// How long the call waits at most, in seconds.
    total_s: u64,
    /// What the next notification says, in seconds.
    progress: u32,
    /// When the first notification was due.
    started: Instant,
    call: RunningCall<Value>,
}

impl ChunkSource for ProgressStream {
    async fn next_chunk(mut self) -> (Option<String>, Option<Self>) {
        match timeout_at(self.started + INTERVAL * (self.progress - 1), self.call.as_mut()).await {
            Ok(response) => (Some(frame(&response)), None),
            Err(_still_waiting) => {
                let chunk = frame(&self.notification());
                self.progress += 1;
                (Some(chunk), Some(self))
            }
        }
    }
}

impl ProgressStream {
    fn notification(&self) -> Value {
        let mut params: Map<String, Value> = super::object([
            ("progressToken", self.token.clone()),
            ("progress", json!(self.progress)),
            ("message", json!("waiting for mail")),
        ]);
        // The end of a wait takes a moment, and progress never exceeds its total.
        if u64::from(self.progress) <= self.total_s {
            params.insert("total".into(), json!(self.total_s));
        }
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
    }
}

/// One server-sent event. JSON on one line has no line breaks of its own.
fn frame(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}

/// Reads the messages of an answer, be it a stream or plain JSON.
#[derive(Default)]
pub(super) struct MessageReader {
    unread: Vec<u8>,
    is_stream: bool,
}

impl MessageReader {
    /// Adds a piece of the body and returns the messages that it completes. `None` if a message is too long.
    pub(super) fn add(&mut self, piece: &[u8]) -> Option<Vec<Value>> {
        if self.unread.len() + piece.len() > MESSAGE_BYTES {
            return None;
        }
        self.unread.extend_from_slice(piece);
        let mut messages = Vec::new();
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            if let Some(data) = line.strip_prefix(b"data:") {
                self.is_stream = true;
                messages.extend(serde_json::from_slice::<Value>(data));
            }
        }
        Some(messages)
    }

    /// The answer of a body that was no stream.
    pub(super) fn into_plain_body(self) -> Option<Vec<u8>> {
        (!self.is_stream).then_some(self.unread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read_in_pieces_and_a_plain_body_as_a_whole() {
        let mut reader = MessageReader::default();
        let text = format!("{}{}", frame(&json!({ "a": 1 })), frame(&json!({ "b": "\n" })));
        let mut read = Vec::new();
        for piece in text.as_bytes().chunks(7) {
            read.extend(reader.add(piece).unwrap());
        }
        assert_eq!(read, [json!({ "a": 1 }), json!({ "b": "\n" })]);
        assert_eq!(reader.into_plain_body(), None);

        let mut reader = MessageReader::default();
        assert_eq!(reader.add(b"{\"a\"").unwrap(), Vec::<Value>::new());
        assert_eq!(reader.add(b":1}").unwrap(), Vec::<Value>::new());
        assert_eq!(reader.into_plain_body().unwrap(), b"{\"a\":1}");
        assert_eq!(MessageReader::default().add(&vec![b' '; MESSAGE_BYTES + 1]), None);
    }
}
