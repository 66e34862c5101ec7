//! `stop`, `resume`, `stops` and `pause`: keep email from leaving, and let it go on.

use clap::Args;
use hyper::Method;
use mailonce_core::control::stop::ERASURE_JOURNAL_AUTHOR;
use serde_json::{Value, json};
use std::process::ExitCode;

use super::{ServerArgs, client::CliClient, inbox::show, listing::show_rows};
use crate::cli::printer::{Printer, print_stderr};

/// The email that a stop covers.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct StopScopeArgs {
    /// Every email of every team
    #[arg(long)]
    installation: bool,
    /// Every email that this transport hands on
    #[arg(long, value_name = "NAME")]
    transport: Option<String>,
    /// Every email of the team
    #[arg(long)]
    team: bool,
    /// Emails from this inbox, by id or address
    #[arg(long, value_name = "INBOX")]
    inbox: Option<String>,
    /// Emails that were sent with this API key, by id
    #[arg(long, value_name = "ID")]
    of_api_key: Option<String>,
}

impl StopScopeArgs {
    fn body(&self) -> Value {
        if let Some(name) = &self.transport {
            json!({ "transport": name })
        } else if let Some(inbox) = &self.inbox {
            json!({ "inbox": inbox })
        } else if let Some(id) = &self.of_api_key {
            json!({ "api_key": id })
        } else if self.team {
            json!({ "team": true })
        } else {
            json!({ "installation": true })
        }
    }
}

/// A stop to create.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    scope: StopScopeArgs,
    /// Why, for the people who see it
    #[arg(long)]
    reason: Option<String>,
    /// Refuse new sends (409 stopped) instead of queueing them
    #[arg(long)]
    refuse: bool,
}

/// The stop to end.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Id of the stop, from `mailonce stops`; the stop of the whole installation by default
    stop: Option<String>,
    /// Release at most this many emails per second, 1 to 10,000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: Option<u32>,
}

const STOP_FIELDS: &[&str] = &["id", "scope", "mode", "reason", "by", "created_at", "state"];

/// Stops email.
pub(super) async fn stop(out: &Printer, args: StopArgs) -> anyhow::Result<ExitCode> {
    let mode = if args.refuse { "refuse" } else { "wait" };
    create_stop(out, &args.server, &args.scope.body(), mode, args.reason).await
}

/// Stops the whole installation.
pub(super) async fn pause(out: &Printer, server: &ServerArgs) -> anyhow::Result<ExitCode> {
    create_stop(out, server, &json!({ "installation": true }), "wait", None).await
}

async fn create_stop(
    out: &Printer,
    server: &ServerArgs,
    scope: &Value,
    mode: &str,
    reason: Option<String>,
) -> anyhow::Result<ExitCode> {
    let body = json!({ "scope": scope, "mode": mode, "reason": reason });
    let (_, stop) = CliClient::find(server)?.call(Method::POST, "/v1/stops", None, Some(&body)).await?;
    let id = stop["id"].as_str().unwrap_or_default().to_owned();
    show_stop(out, stop);
    if !out.is_json() {
        print_stderr(&format!("No further email of this scope leaves until `mailonce resume {id}`."));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the stops.
pub(super) async fn stops(out: &Printer, server: &ServerArgs) -> anyhow::Result<ExitCode> {
    let page = CliClient::find(server)?.get("/v1/stops").await?;
    let text = |stop: &Value, name: &str| stop[name].as_str().unwrap_or_default().to_owned();
    show_rows(out, &page, &["id", "scope", "mode", "state", "waiting", "by", "reason"], |stop| {
        let [id, mode, state, by, reason] = ["id", "mode", "state", "by", "reason"].map(|name| text(stop, name));
        vec![id, scope_text(&stop["scope"]), mode, state, stop["waiting"].to_string(), by, reason]
    });
    Ok(ExitCode::SUCCESS)
}

/// The scope of a stop in words: `team`, `inbox 0197…`.
fn scope_text(scope: &Value) -> String {
    let set = scope.as_object().and_then(|scope| scope.iter().next());
    set.map_or_else(String::new, |(kind, value)| match value.as_str() {
        Some(name) => format!("{kind} {name}"),
        None => kind.clone(),
    })
}

fn show_stop(out: &Printer, mut stop: Value) {
    if !out.is_json() {
        stop["scope"] = scope_text(&stop["scope"]).into();
    }
    show(out, &stop, STOP_FIELDS);
}

/// Ends a stop.
pub(super) async fn resume(out: &Printer, args: ResumeArgs) -> anyhow::Result<ExitCode> {
    let client = CliClient::find(&args.server)?;
    let found = match args.stop {
        Some(id) => Ok(id),
        None => installation_stop(&client).await?,
    };
    let id = match found {
        Ok(id) => id,
        Err(note) => {
            if out.is_json() {
                out.print_json(&Value::Null);
            } else {
                print_stderr(&note);
            }
            return Ok(ExitCode::SUCCESS);
        }
    };
    let rate = args.rate.map_or_else(String::new, |rate| format!("?rate_per_s={rate}"));
    let (_, stop) = client.call(Method::DELETE, &format!("/v1/stops/{id}{rate}"), None, None).await?;
    show_stop(out, stop);
    if !out.is_json() {
        print_stderr("The email of this stop is released.");
    }
    Ok(ExitCode::SUCCESS)
}

/// The stop of the installation that a person ends, or a note why there is none.
async fn installation_stop(client: &CliClient) -> anyhow::Result<Result<String, String>> {
    let page = client.get("/v1/stops").await?;
    let stops = page["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_installation = stops.iter().filter(|stop| stop["scope"]["installation"] == true);
    let (by_itself, others): (Vec<&Value>, Vec<&Value>) =
        of_installation.partition(|stop| stop["by"] == ERASURE_JOURNAL_AUTHOR);
    let id = |stops: &[&Value]| stops.first().and_then(|stop| stop["id"].as_str()).map(str::to_owned);
    Ok(id(&others).ok_or_else(|| match id(&by_itself) {
        Some(id) => format!(
            "The installation is stopped while {ERASURE_JOURNAL_AUTHOR} is applied, and that stop ends by itself. \
             `mailonce resume {id}` ends it now, and email to erased people may leave."
        ),
        None => "The installation is not stopped. `mailonce stops` lists the other stops.".to_owned(),
    }))
}
