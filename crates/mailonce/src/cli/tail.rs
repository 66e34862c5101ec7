//! `tail`: prints events as they happen. The stream reconnects where it was interrupted.

use clap::Args;
use mailonce_sdk::{EventFollower, EventQuery, Retry};
use serde_json::Value;
use std::{process::ExitCode, time::Duration};

use super::{ServerArgs, client::CliClient};
use crate::cli::printer::{Printer, display_text, field_text, print_stderr_error};

/// Delay before the next attempt.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Filters of `tail`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Start after this cursor; `0` prints all events; default: new events
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Only events of this type, such as `email.sent` or `message.*`; may be repeated
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only events about the email, message or other object with this id
    #[arg(long, value_name = "ID")]
    about: Option<String>,
    /// Stop after this number of events
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

/// Prints events until the user stops it.
pub(super) async fn tail(out: &Printer, args: TailArgs) -> anyhow::Result<ExitCode> {
    let mut events = EventTail::open(&args)?;
    while let Some(event) = events.next().await? {
        if out.is_json() {
            out.print_json(&event);
        } else {
            let at = out.dim(&field_text(&event, "at"));
            let kind = display_text(&event["type"]);
            // The type already names the kind of the object.
            out.print_line(&format!("{at}  {kind:<20}  {}", display_text(&event["about"]["id"])));
        }
        if out.is_closed() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A stream of events that survives lost connections.
pub(super) struct EventTail {
    client: CliClient,
    stream: EventFollower,
    remaining: Option<usize>,
}

impl EventTail {
    pub(super) fn open(args: &TailArgs) -> anyhow::Result<Self> {
        let client = CliClient::find(&args.server)?;
        let types = (!args.types.is_empty()).then(|| args.types.join(","));
        let (after, about) = (args.after.clone(), args.about.clone());
        let query = EventQuery { after, kind: types, about, ..EventQuery::default() };
        // This loop retries and prints each error, so the SDK does not.
        let followed = client.sdk().max_retries(0).build()?.events.stream(query);
        Ok(Self { client, stream: followed, remaining: args.limit })
    }

    /// The next event. `None` once the limit is reached. Fails only if the server refuses the request.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        if self.remaining == Some(0) {
            return Ok(None);
        }
        loop {
            match self.stream.next_as().await {
                Ok(event) => {
                    self.remaining = self.remaining.map(|left| left - 1);
                    return Ok(Some(event));
                }
                Err(error) if error.retry == Retry::Same || error.status == 429 => {
                    print_stderr_error(&format!("{:#}; retrying", self.client.to_error(error)));
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(error) => return Err(self.client.to_error(error)),
            }
        }
    }
}
