//! The event log live: server-sent events that resume where they were cut.
//!
//! A stream holds a place in the log and nothing else. It reads on when the connection has room, so a reader that takes
//! nothing costs no memory; after a while its connection is cut, and it comes back with the last id it has seen.

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use hyper::body::{Bytes, Frame};
use mailonce_core::{
    access::team::ApiKeyScope,
    problem::{Code, Problem},
};
use mailonce_engine::events::tail::EventFollower;
use std::{
    convert::Infallible,
    fmt::Write as _,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

use crate::api::events::event_log::{EventQuery, parse_cursor};
use crate::api::{ApiResult, App, QueryParams, door::AuthedRequest};

/// A sign of life when nothing happens: well within what proxies wait for.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How long a stream lasts. Then the reader comes again. A revoked key ends it at once.
const MAX_STREAM_AGE: Duration = Duration::from_hours(1);
/// Bytes of one piece: more than fits on the wire at once only lies about.
const MAX_CHUNK_BYTES: usize = 8 * 1024;
/// How soon a reader that was cut comes back, in milliseconds.
const RECONNECT_MS: u32 = 1_000;

/// Follow events live.
#[utoipa::path(get, path = "/v1/events/stream", operation_id = "stream_events", tag = "events",
    params(EventQuery, ("Last-Event-ID" = Option<String>, Header, description = "The last cursor seen; sent by every EventSource that was cut")),
    responses((status = 200, description = "Server-sent events: `id` is the cursor, `data` the event as JSON. Without a cursor it begins with the next event", body = String, content_type = "text/event-stream"),
        (status = 410, description = "The cursor is from before a restore", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn stream(
    State(app): State<App>,
    door: AuthedRequest,
    query: QueryParams<EventQuery>,
    headers: HeaderMap,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    query.0.refuse_limit()?;
    let last = headers.get("last-event-id").map(|value| {
        let wrong = |_bytes| Problem::for_field(Code::InvalidQuery, "Last-Event-ID", "Last-Event-ID is a cursor or 0");
        value.to_str().map_err(wrong)
    });
    // Whoever was cut knows better than the address it came with.
    let last = last.transpose()?.filter(|text| !text.is_empty());
    let after = last.or(query.0.after()).map(parse_cursor).transpose()?;
    let reader = app.engine.events.follow_events(&door.caller, after, query.0.parse_selection()?).await?;
    Ok(stream_response(reader))
}

fn stream_response(reader: EventFollower) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::new(EventStreamBody::new(reader))).into_response()
}

/// What is under way towards the next piece, and then the feed again.
type PendingChunk = Pin<Box<dyn Future<Output = (Option<String>, Option<StreamState>)> + Send>>;

/// The body of a stream.
struct EventStreamBody(Option<PendingChunk>);

/// One reader and what is left to say to it.
struct StreamState {
    reader: EventFollower,
    /// Lines that did not fit into the piece before.
    buffered: String,
    deadline: Instant,
}

impl EventStreamBody {
    fn new(reader: EventFollower) -> Self {
        // Said at once, so that the reader knows that it is heard.
        let rest = format!("retry: {RECONNECT_MS}\nid: {}\n\n", reader.cursor());
        Self(Some(Box::pin(
            StreamState { reader, buffered: rest, deadline: Instant::now() + MAX_STREAM_AGE }.next_chunk(),
        )))
    }
}

impl StreamState {
    /// The next piece; without one the stream is over.
    async fn next_chunk(mut self) -> (Option<String>, Option<Self>) {
        if self.buffered.is_empty() {
            if Instant::now() >= self.deadline {
                return (None, None);
            }
            match self.reader.next_events(KEEP_ALIVE_INTERVAL).await {
                Ok(Some(lines)) if lines.is_empty() => {
                    // The id tells how far the reader is, also when nothing it wants has happened.
                    write!(self.buffered, ": beat\nid: {}\n\n", self.reader.cursor()).ok();
                }
                Ok(Some(lines)) => {
                    let epoch = self.reader.cursor().epoch;
                    for line in lines {
                        write!(self.buffered, "id: {epoch}-{}\ndata: {}\n\n", line.seq, line.json).ok();
                    }
                }
                // The reader comes back with its cursor, to a server that is there.
                Ok(None) | Err(_) => return (None, None),
            }
        }
        // No event is torn: a piece may end anywhere, the connection joins them.
        let mut end = MAX_CHUNK_BYTES.min(self.buffered.len());
        while !self.buffered.is_char_boundary(end) {
            end -= 1;
        }
        let rest = self.buffered.split_off(end);
        let piece = std::mem::replace(&mut self.buffered, rest);
        (Some(piece), Some(self))
    }
}

impl hyper::body::Body for EventStreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(step) = self.0.as_mut() else { return Poll::Ready(None) };
        let Poll::Ready((piece, talk)) = step.as_mut().poll(cx) else { return Poll::Pending };
        self.0 = talk.map(|talk| Box::pin(talk.next_chunk()) as PendingChunk);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece.into()))))
    }
}
