//! Events as they happen: a stream that comes back by itself where it was cut.

use clap::Args;
use hyper::Method;
use mailonce_transport::http::base::escaped;
use serde_json::Value;
use std::{process::ExitCode, time::Duration};

use super::{
    Reach,
    client::{Client, Told},
    http::{Call, Following},
    out::{Out, complain, field, text},
};

/// Nothing for so long, not even a sign of life, and the server counts as gone.
const SILENCE: Duration = Duration::from_secs(40);
/// The pause before another try.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of one event at the most.
const EVENT_BYTES: usize = 1024 * 1024;

/// Which events.
#[derive(Clone, Debug, Args)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Begin after this cursor; `0` for the very start. Without it with the next event
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Only this type, such as `email.sent` or `message.*`; repeat for several
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only what is about the thing with this id
    #[arg(long, value_name = "ID")]
    about: Option<String>,
    /// End after so many events
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

/// Prints events until told to stop.
pub(super) async fn tail(out: &Out, args: TailArgs) -> anyhow::Result<ExitCode> {
    let mut events = Events::begin(&args)?;
    while let Some(event) = events.next().await? {
        if out.is_json() {
            out.value(&event);
        } else {
            let at = out.dim(&field(&event, "at"));
            let kind = text(&event["type"]);
            // The type names the kind; the id is what one copies.
            out.line(&format!("{at}  {kind:<20}  {}", text(&event["about"]["id"])));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Events one after the other, whatever becomes of the connection.
pub(super) struct Events {
    client: Client,
    query: String,
    /// The last cursor that was seen.
    last: Option<String>,
    left: Option<usize>,
    open: Option<Following>,
    read: Vec<u8>,
}

impl Events {
    pub(super) fn begin(args: &TailArgs) -> anyhow::Result<Self> {
        let mut query = Vec::new();
        if !args.types.is_empty() {
            query.push(format!("type={}", escaped(&args.types.join(","))));
        }
        query.extend(args.about.as_deref().map(|id| format!("about={}", escaped(id))));
        Ok(Self {
            client: Client::find(&args.reach)?,
            query: query.join("&"),
            last: args.after.clone(),
            left: args.limit,
            open: None,
            read: Vec::new(),
        })
    }

    /// The next event. `None` when there were as many as wanted.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        if self.left == Some(0) {
            return Ok(None);
        }
        loop {
            if let Some(event) = self.take() {
                self.left = self.left.map(|left| left - 1);
                return Ok(Some(event));
            }
            let Some(open) = self.open.as_mut() else {
                self.connect().await?;
                continue;
            };
            match open.next(SILENCE).await {
                Some(piece) if self.read.len() + piece.len() <= EVENT_BYTES => self.read.extend_from_slice(&piece),
                Some(_) => anyhow::bail!("the server sent an event of more than {EVENT_BYTES} bytes"),
                None => self.open = None,
            }
        }
    }

    /// Opens the stream, again if need be. Only a refusal ends it.
    async fn connect(&mut self) -> anyhow::Result<()> {
        self.read.clear();
        let mut headers = vec![("authorization", format!("Bearer {}", self.client.api_key))];
        headers.extend(self.last.clone().map(|cursor| ("last-event-id", cursor)));
        let path = format!("/v1/events/stream?{}", self.query);
        let call = Call { method: Method::GET, path, headers, body: hyper::body::Bytes::new() };
        match self.client.place.follow(&call).await {
            Ok(open) if open.status == 200 => self.open = Some(open),
            Ok(mut refused) => {
                let mut body = Vec::new();
                while let Some(piece) = refused.next(PAUSE).await.filter(|piece| body.len() + piece.len() < EVENT_BYTES)
                {
                    body.extend_from_slice(&piece);
                }
                let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
                if refused.status < 500 && refused.status != 429 {
                    return Err(Told(problem).into());
                }
                complain(&format!("the server answered {}; trying again", refused.status));
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                complain(&format!("{error:#}; trying again"));
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// Takes whole blocks from what was read until one holds an event.
    fn take(&mut self) -> Option<Value> {
        while let Some(end) = self.read.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.read.drain(..end + 2).collect();
            let block = String::from_utf8_lossy(&block);
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
            if let Some(cursor) = field("id:") {
                self.last = Some(cursor.to_owned());
            }
            if let Some(event) = field("data:").and_then(|data| serde_json::from_str(data).ok()) {
                return Some(event);
            }
        }
        None
    }
}
