//! The event log as a live stream of server-sent events that a client can resume.
//!
//! A stream keeps only its position in the log. It reads more events when the connection can take them, so a slow
//! client uses no extra memory. A stream ends after an hour; the client reconnects with the last id it has seen.

use axum::{extract::State, http::HeaderMap};
use mailonce_core::{access::team::ApiKeyScope, problem::Problem};
use mailonce_engine::events::tail::EventFollower;
use std::{fmt::Write as _, time::Duration};
use tokio::time::Instant;

use crate::{
    api::events::event_log::{EventQuery, parse_cursor},
    http::{
        app::{ApiResult, App},
        event_stream::{self, ChunkSource},
        extract::AuthedRequest,
        params::QueryParams,
    },
};

/// Interval of keep-alive comments, shorter than the idle timeout of common proxies.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How long a stream lasts before the client must reconnect. A revoked API key ends it earlier.
const MAX_STREAM_AGE: Duration = Duration::from_hours(1);
/// Size of one body chunk. A larger one would only wait in memory for the socket.
const MAX_CHUNK_BYTES: usize = 8 * 1024;
/// Reconnect delay that is sent to the client, in milliseconds.
const RECONNECT_MS: u32 = 1_000;

/// Stream events live (server-sent events).
#[utoipa::path(get, path = "/v1/events/stream", operation_id = "stream_events", tag = "events",
    params(EventQuery, ("Last-Event-ID" = Option<String>, Header, description = "Cursor of the last event received; an EventSource sends it when it reconnects")),
    responses((status = 200, description = "Server-sent events: `id` is the cursor, `data` the event as JSON. Without a cursor the stream starts with the next event", body = String, content_type = "text/event-stream"),
        (status = 410, description = "The cursor is from before a restore or database failover, or events after it were deleted", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn stream(
    State(app): State<App>,
    auth: AuthedRequest,
    query: QueryParams<EventQuery>,
    headers: HeaderMap,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    query.0.refuse_limit()?;
    let last = headers.get("last-event-id").map(|value| {
        let detail = "Last-Event-ID must be a cursor or 0";
        value.to_str().map_err(|_bytes| Problem::invalid_query("Last-Event-ID", detail))
    });
    // A client that reconnects keeps its URL, so `Last-Event-ID` is newer than `after`.
    let last = last.transpose()?.filter(|text| !text.is_empty());
    let after = last.or(query.0.after()).map(parse_cursor).transpose()?;
    let reader = app.engine.events.follow_events(&auth.caller, after, query.0.parse_selection()?).await?;
    Ok(event_stream::response(StreamState::new(reader)))
}

/// The position of one client and the text that was not sent to it yet.
struct StreamState {
    reader: EventFollower,
    /// Text that did not fit into the previous chunk.
    buffered: String,
    deadline: Instant,
}

impl StreamState {
    fn new(reader: EventFollower) -> Self {
        // Sent at once, so that the client knows that the stream is open.
        let greeting = format!("retry: {RECONNECT_MS}\nid: {}\n\n", reader.cursor());
        Self { reader, buffered: greeting, deadline: Instant::now() + MAX_STREAM_AGE }
    }
}

impl ChunkSource for StreamState {
    async fn next_chunk(mut self) -> (Option<String>, Option<Self>) {
        if self.buffered.is_empty() {
            if Instant::now() >= self.deadline {
                return (None, None);
            }
            match self.reader.next_events(KEEP_ALIVE_INTERVAL).await {
                Ok(Some(lines)) if lines.is_empty() => {
                    // The id moves the client's cursor forward even when no event matches its filters.
                    write!(self.buffered, ": beat\nid: {}\n\n", self.reader.cursor()).ok();
                }
                Ok(Some(lines)) => {
                    let epoch = self.reader.cursor().epoch;
                    for line in lines {
                        write!(self.buffered, "id: {epoch}-{}\ndata: {}\n\n", line.seq, line.json).ok();
                    }
                }
                // The client reconnects with its cursor, to this or another node.
                Ok(None) | Err(_) => return (None, None),
            }
        }
        // A chunk may end inside an event, because the client joins the chunks.
        let mut end = MAX_CHUNK_BYTES.min(self.buffered.len());
        while !self.buffered.is_char_boundary(end) {
            end -= 1;
        }
        let rest = self.buffered.split_off(end);
        let chunk = std::mem::replace(&mut self.buffered, rest);
        (Some(chunk), Some(self))
    }
}
