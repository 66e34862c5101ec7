//! Events, as a list and as a stream that resumes where it was cut.

use bytes::Bytes;
use hyper::header;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

use crate::{
    call::{Call, Caller, Parts, StreamOpening},
    error::Error,
    http::StreamingResponse,
    wire::{Event, EventPage},
};

/// Idle timeout. The server sends a heartbeat every 15 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);
/// Most bytes of one line.
const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

/// Filters for events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventQuery {
    /// Return events after this cursor; `0` returns all stored events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Event types, such as `email.sent,message.*`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Id of the email, message or other resource that the event is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Only events of this inbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox: Option<String>,
    /// Most events to return; only for `list`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Calls for events.
#[derive(Clone)]
pub struct Events {
    caller: Arc<Caller>,
}

impl Events {
    pub(crate) fn new(caller: &Arc<Caller>) -> Self {
        Self { caller: Arc::clone(caller) }
    }

    /// A page of events, oldest first with `after`.
    pub fn list(&self, query: &EventQuery) -> Call<EventPage> {
        Call::new(&self.caller, Parts::get("/v1/events".to_owned()).query(query))
    }

    /// Streams every event from now on, or after `after`, once and in order, and reconnects by itself. Store the `cursor` to
    /// resume in another process. Dropping the follower ends the stream.
    pub fn stream(&self, query: EventQuery) -> EventFollower {
        let query = EventQuery { limit: None, ..query };
        EventFollower { caller: Arc::clone(&self.caller), query, open: None, frames: Frames::default(), failed: 0 }
    }
}

/// A stream of events.
pub struct EventFollower {
    caller: Arc<Caller>,
    query: EventQuery,
    open: Option<StreamingResponse>,
    frames: Frames,
    /// Failed tries in a row.
    failed: u32,
}

impl std::fmt::Debug for EventFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Followed").field("query", &self.query).finish_non_exhaustive()
    }
}

impl EventFollower {
    /// The cursor of the last event. Pass it as `after` to resume from here.
    pub fn cursor(&self) -> Option<&str> {
        self.query.after.as_deref()
    }

    /// Waits for the next event. After an error, calling it again resumes from the same cursor.
    pub async fn next(&mut self) -> Result<Event, Error> {
        self.next_as().await
    }

    /// Waits for the next event, as a type of your own.
    pub async fn next_as<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        loop {
            while let Some(frame) = self.frames.take()? {
                self.failed = 0;
                self.query.after = frame.id.or(self.query.after.take());
                if let Some(data) = frame.data {
                    return serde_json::from_str(&data)
                        .map_err(|error| Error::no_answer("an event cannot be read", Some(error.into())));
                }
            }
            if let Err(error) = self.piece().await {
                self.open = None;
                if !error.is_passing() || self.failed >= self.caller.max_retries {
                    self.failed = 0;
                    return Err(error);
                }
                self.again().await?;
            }
        }
    }

    /// Pauses before another try.
    async fn again(&mut self) -> Result<(), Error> {
        self.failed += 1;
        sleep(self.caller.pause(self.failed)?).await;
        Ok(())
    }

    /// Reads the next piece of the stream; opens it again if it ended.
    async fn piece(&mut self) -> Result<(), Error> {
        let Some(open) = &mut self.open else {
            self.frames = Frames::default();
            self.open = Some(self.opened().await?);
            return Ok(());
        };
        if let Some(piece) = open.next(IDLE_TIMEOUT).await {
            return self.frames.add(&piece);
        }
        self.open = None;
        self.again().await
    }

    async fn opened(&self) -> Result<StreamingResponse, Error> {
        let mut parts = Parts::get("/v1/events/stream".to_owned()).query(&self.query)?;
        parts.headers.push((header::ACCEPT.as_str(), "text/event-stream".to_owned()));
        let request = self.caller.request(parts)?;
        let opening = timeout(self.caller.timeout, self.caller.wire.open_stream(&request)).await;
        let error = match opening {
            Ok(Ok(StreamOpening::Stream(open))) => return Ok(open),
            Ok(Ok(StreamOpening::Refused(answer))) => {
                Error::refusal(answer.status, &answer.body, self.caller.wire.url())
            }
            Ok(Err(why)) => Error::no_answer("the stream could not be opened", Some(why.into())),
            Err(late) => Error::no_answer("the stream did not open in time", Some(late.into())),
        };
        Err(error.for_call(self.caller.wire.url(), &request.path))
    }
}

/// Server-sent events. An incomplete frame is dropped, because the stream resumes from the cursor before it.
#[derive(Default)]
struct Frames {
    read: Vec<u8>,
    frame: Frame,
}

#[derive(Default)]
struct Frame {
    id: Option<String>,
    data: Option<String>,
}

impl Frames {
    fn add(&mut self, piece: &Bytes) -> Result<(), Error> {
        if self.read.len() + piece.len() > MAX_LINE_BYTES {
            return Err(Error::no_answer("a line of the stream does not end", None));
        }
        self.read.extend_from_slice(piece);
        Ok(())
    }

    /// The next complete frame with an id or data.
    fn take(&mut self) -> Result<Option<Frame>, Error> {
        while let Some(line) = self.line() {
            let line = String::from_utf8(line)
                .map_err(|error| Error::no_answer("the stream is no UTF-8", Some(error.into())))?;
            if line.is_empty() {
                let frame = std::mem::take(&mut self.frame);
                if frame.id.is_some() || frame.data.is_some() {
                    return Ok(Some(frame));
                }
                continue;
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match (name, &mut self.frame.data) {
                ("id", _) => self.frame.id = Some(value.to_owned()),
                ("data", Some(data)) => *data = format!("{data}\n{value}"),
                ("data", data) => *data = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The next complete line, without its LF, CR or CRLF.
    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.read.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
        let pair = self.read[end] == b'\r';
        // A CR at the end may be the first half of a CRLF.
        if pair && end + 1 == self.read.len() {
            return None;
        }
        let after = end + 1 + usize::from(pair && self.read[end + 1] == b'\n');
        let rest = self.read.split_off(after);
        let mut line = std::mem::replace(&mut self.read, rest);
        line.truncate(end);
        Some(line)
    }
}
