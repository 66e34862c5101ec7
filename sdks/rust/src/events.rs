//! Events: by list, and as a stream that goes on where it was cut.

use bytes::Bytes;
use hyper::header;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

use crate::{
    call::{Call, Caller, Opened, Parts},
    error::Error,
    http::Following,
    wire::{Event, EventPage},
};

/// The server gives a sign of life every 15 s.
const SILENCE: Duration = Duration::from_secs(45);
/// Bytes of one line at the most.
const LONGEST_LINE: usize = 4 * 1024 * 1024;

/// Which events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventQuery {
    /// A cursor, or `0` for everything there ever was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// `email.sent,message.*`
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The id of the thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Only what happens at this inbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox: Option<String>,
    /// At most so many; only for a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Events of the server.
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

    /// Every event from now on, or behind `after`, each once and in order, over any number of cuts. Remember its `cursor` to
    /// go on in another process. Dropping it ends it.
    pub fn stream(&self, query: EventQuery) -> EventFollower {
        let query = EventQuery { limit: None, ..query };
        EventFollower { caller: Arc::clone(&self.caller), query, open: None, frames: Frames::default(), failed: 0 }
    }
}

/// A stream of events.
pub struct EventFollower {
    caller: Arc<Caller>,
    query: EventQuery,
    open: Option<Following>,
    frames: Frames,
    /// Tries in a row that brought nothing.
    failed: u32,
}

impl std::fmt::Debug for EventFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Followed").field("query", &self.query).finish_non_exhaustive()
    }
}

impl EventFollower {
    /// The place behind what was seen. Pass it as `after` to go on from here.
    pub fn cursor(&self) -> Option<&str> {
        self.query.after.as_deref()
    }

    /// The next event, as soon as there is one. An error is final for this try: asking again goes on from the same place.
    pub async fn next(&mut self) -> Result<Event, Error> {
        self.next_as().await
    }

    /// The next event, in a shape of your own.
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

    /// Reads on. A stream that ended is opened again.
    async fn piece(&mut self) -> Result<(), Error> {
        let Some(open) = &mut self.open else {
            self.frames = Frames::default();
            self.open = Some(self.opened().await?);
            return Ok(());
        };
        if let Some(piece) = open.next(SILENCE).await {
            return self.frames.add(&piece);
        }
        self.open = None;
        self.again().await
    }

    async fn opened(&self) -> Result<Following, Error> {
        let mut parts = Parts::get("/v1/events/stream".to_owned()).query(&self.query)?;
        parts.headers.push((header::ACCEPT.as_str(), "text/event-stream".to_owned()));
        let request = self.caller.request(parts)?;
        let opening = timeout(self.caller.timeout, self.caller.wire.follow(&request)).await;
        let error = match opening {
            Ok(Ok(Opened::Stream(open))) => return Ok(open),
            Ok(Ok(Opened::Refused(answer))) => Error::refusal(answer.status, &answer.body, self.caller.wire.url()),
            Ok(Err(why)) => Error::no_answer("the stream could not be opened", Some(why.into())),
            Err(late) => Error::no_answer("the stream did not open in time", Some(late.into())),
        };
        Err(error.for_call(self.caller.wire.url(), &request.path))
    }
}

/// Server-sent events. A frame that was cut short is not seen; the cursor before it brings it back.
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
        if self.read.len() + piece.len() > LONGEST_LINE {
            return Err(Error::no_answer("a line of the stream does not end", None));
        }
        self.read.extend_from_slice(piece);
        Ok(())
    }

    /// The next whole frame that says something.
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

    /// The next whole line, without its end: LF, CR or both.
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
