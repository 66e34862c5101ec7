//! Events as they happen: a stream that comes back by itself where it was cut.

use clap::Args;
use mailonce_sdk::{EventQuery, Followed, Retry};
use serde_json::Value;
use std::{process::ExitCode, time::Duration};

use super::{ServerArgs, client::CliClient};
use crate::cli::printer::{Printer, display_text, field_text, print_stderr_error};

/// The pause before another try.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Which events.
#[derive(Clone, Debug, Args)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) reach: ServerArgs,
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
pub(super) async fn tail(out: &Printer, args: TailArgs) -> anyhow::Result<ExitCode> {
    let mut events = EventTail::open(&args)?;
    while let Some(event) = events.next().await? {
        if out.is_json() {
            out.print_json(&event);
        } else {
            let at = out.dim(&field_text(&event, "at"));
            let kind = display_text(&event["type"]);
            // The type names the kind; the id is what one copies.
            out.print_line(&format!("{at}  {kind:<20}  {}", display_text(&event["about"]["id"])));
        }
        if out.is_closed() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Events one after the other, whatever becomes of the connection.
pub(super) struct EventTail {
    client: CliClient,
    stream: Followed,
    remaining: Option<usize>,
}

impl EventTail {
    pub(super) fn open(args: &TailArgs) -> anyhow::Result<Self> {
        let client = CliClient::find(&args.reach)?;
        let types = (!args.types.is_empty()).then(|| args.types.join(","));
        let (after, about) = (args.after.clone(), args.about.clone());
        let query = EventQuery { after, kind: types, about, ..EventQuery::default() };
        // Every failure is told, so none is repeated in silence.
        let followed = client.sdk().max_retries(0).build()?.events.stream(query);
        Ok(Self { client, stream: followed, remaining: args.limit })
    }

    /// The next event. `None` when there were as many as wanted. Only a refusal ends it.
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
                    print_stderr_error(&format!("{:#}; trying again", self.client.to_error(error)));
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(error) => return Err(self.client.to_error(error)),
            }
        }
    }
}
