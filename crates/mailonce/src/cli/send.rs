//! `send`: sends one email, and shows the receipt of `send`, `reply` and `emails resend`.

use anyhow::Context as _;
use clap::Args;
use hyper::Method;
use mailonce_core::time::parse_span;
use mailonce_transport::http::base::percent_encode;
use serde_json::{Value, json};
use std::{io::Read as _, process::ExitCode, time::Duration};
use tokio::time::{Instant, sleep};

use super::{ServerArgs, UsageError, client::CliClient, exit, progress::Progress};
use crate::cli::printer::{Printer, print_stderr};

/// Delay before the state is read again while `--wait` waits. It doubles up to `MAX_POLL_DELAY`.
const FIRST_POLL_DELAY: Duration = Duration::from_millis(50);
const MAX_POLL_DELAY: Duration = Duration::from_secs(1);

/// Whether the command waits for the final state of the email.
#[derive(Debug, Args)]
pub(crate) struct FinalStateArgs {
    /// Wait until the email has left, failed or is held; exit with code 4 after this duration [default: 30s]
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "30s", value_parser = parse_duration)]
    wait: Option<Duration>,
}

/// Parses `30s`, `5m`, or a bare number of seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let ms = parse_span(text).or_else(|| parse_span(&format!("{text}s")));
    let ms = ms.and_then(|ms| u64::try_from(ms).ok()).ok_or("is not a duration such as 30s or 5m")?;
    Ok(Duration::from_millis(ms))
}

/// An email on the command line.
#[derive(Debug, Args)]
pub(crate) struct EmailArgs {
    /// Address of the sender
    #[arg(long)]
    from: String,
    /// Address of a recipient; may be repeated
    #[arg(long, required = true)]
    to: Vec<String>,
    /// Subject
    #[arg(long, default_value = "")]
    subject: String,
    /// Body as plain text; `-` reads it from stdin
    #[arg(long)]
    text: Option<String>,
    /// Body as HTML
    #[arg(long)]
    html: Option<String>,
    /// Idempotency key: identifies this email, so that a retry with the same key does not send it twice
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Type of the email, such as order.confirmation; with --entity it replaces --key
    #[arg(long = "type", value_name = "TYPE", requires = "entity")]
    kind: Option<String>,
    /// What the email is about, such as order_4821
    #[arg(long, requires = "kind")]
    entity: Option<String>,
    /// Version of the intent; raise it to send the same notification again on purpose
    #[arg(long = "intent-version", value_name = "N", requires = "kind")]
    version: Option<u32>,
    /// Period of a recurring email, such as 2026-11-17 or 2026-W47
    #[arg(long, requires = "kind")]
    period: Option<String>,
    /// When to send it: an RFC 3339 time, or "in 5 minutes"
    #[arg(long = "at", value_name = "TIME")]
    scheduled_at: Option<String>,
    /// How long the idempotency key is remembered: transactional, notification, or a duration such as 90d
    #[arg(long)]
    ttl: Option<String>,
}

impl EmailArgs {
    /// The idempotency key.
    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The body of a send.
    pub(super) fn request_body(&self) -> anyhow::Result<Value> {
        let mut body = json!({ "from": self.from, "to": self.to, "subject": self.subject });
        let text = match self.text.as_deref() {
            Some("-") => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).context("reading the text from stdin")?;
                Some(text)
            }
            text => text.map(str::to_owned),
        };
        if text.is_none() && self.html.is_none() {
            return Err(UsageError("the email has no body; pass --text, --text - or --html".into()).into());
        }
        let optional = [
            ("text", json!(text)),
            ("html", json!(self.html)),
            ("scheduled_at", json!(self.scheduled_at)),
            ("ttl", json!(self.ttl)),
        ];
        for (name, value) in optional {
            body[name] = value;
        }
        if let (Some(kind), Some(entity)) = (&self.kind, &self.entity) {
            body["intent"] = json!({ "type": kind, "entity": entity, "version": self.version, "period": self.period });
        }
        Ok(body)
    }
}

/// An email to send.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    email: EmailArgs,
    /// Token of an email that is held as a likely duplicate: confirms that it is not one, and sends it
    #[arg(long, value_name = "TOKEN")]
    distinct_token: Option<String>,
    #[command(flatten)]
    wait: FinalStateArgs,
}

/// Sends the email. The exit code reflects its state.
pub(super) async fn send(out: &Printer, args: SendArgs) -> anyhow::Result<ExitCode> {
    let client = CliClient::find(&args.server)?;
    if args.email.key.is_none() && args.email.kind.is_none() {
        print_stderr(
            "mailonce: without --key, or --type and --entity, running this command again sends a second email",
        );
    }
    let mut body = args.email.request_body()?;
    body["distinct_token"] = json!(args.distinct_token);
    let (_, receipt) = client.call(Method::POST, "/v1/emails", args.email.key(), Some(&body)).await?;
    finish(out, &client, &args.wait, receipt).await
}

/// Waits if the user asked for it, shows the receipt, and returns the exit code.
pub(super) async fn finish(
    out: &Printer,
    client: &CliClient,
    args: &FinalStateArgs,
    mut receipt: Value,
) -> anyhow::Result<ExitCode> {
    if let Some(limit) = args.wait {
        wait_until_final(client, &mut receipt, limit).await?;
    }
    show_result(out, &receipt);
    Ok(match args.wait {
        Some(limit) if is_in_flight(&receipt) => {
            let state = receipt["state"].as_str().unwrap_or_default();
            let next = match receipt["stopped_by"].as_str() {
                Some(stop) => format!("stop {stop} keeps it from leaving; see `mailonce stops`"),
                None => "the server keeps working on it".to_owned(),
            };
            print_stderr(&format!("mailonce: still {state} after {} s; {next}", limit.as_secs_f64()));
            ExitCode::from(exit::IN_FLIGHT)
        }
        _ => ExitCode::from(exit_code(&receipt)),
    })
}

fn is_in_flight(receipt: &Value) -> bool {
    matches!(receipt["state"].as_str(), Some("queued" | "sending" | "scheduled"))
}

/// Reads the email until its state is final or the time is up, and brings the receipt up to date.
async fn wait_until_final(client: &CliClient, receipt: &mut Value, limit: Duration) -> anyhow::Result<()> {
    let id = receipt["id"].as_str().unwrap_or_default().to_owned();
    let _spinner = is_in_flight(receipt).then(|| Progress::spinner("waiting for the final state"));
    let (end, mut delay) = (Instant::now() + limit, FIRST_POLL_DELAY);
    while is_in_flight(receipt) && Instant::now() < end {
        sleep(delay.min(end.saturating_duration_since(Instant::now()))).await;
        delay = (delay * 2).min(MAX_POLL_DELAY);
        let email = client.get(&format!("/v1/emails/{}", percent_encode(&id))).await?;
        for name in ["state", "rev"] {
            receipt[name] = email[name].clone();
        }
        match email["stopped_by"].as_str() {
            Some(stop) => receipt["stopped_by"] = json!(stop),
            None => _ = receipt.as_object_mut().and_then(|receipt| receipt.remove("stopped_by")),
        }
    }
    if let Some(next) = receipt["state"].as_str().and_then(next_of_final) {
        receipt["next"] = json!(next);
    }
    Ok(())
}

/// What a receipt that became final says in `next`.
fn next_of_final(state: &str) -> Option<&'static str> {
    match state {
        "sent" | "delivered" => Some("Sent; there is nothing more to do."),
        "bounced" => Some("Sent, and it bounced; check the address."),
        "failed" => Some("The next hop refused it; read the email to see why before you try again."),
        "unknown" => Some("Handed over, but nobody can tell whether it arrived; do not send again, resolve it."),
        _ => None,
    }
}

/// Shows the receipt of a send.
pub(super) fn show_result(out: &Printer, receipt: &Value) {
    if out.is_json() {
        return out.print_json(receipt);
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let outcome = text(&receipt["dedupe"]["outcome"]);
    let mut facts = vec![
        ("email", text(&receipt["id"])),
        ("state", text(&receipt["state"])),
        ("outcome", if outcome == "first" { out.green(&outcome) } else { outcome }),
        ("key", text(&receipt["dedupe"]["key"])),
        ("suppressed", receipt["dedupe"]["suppressed"].to_string()),
    ];
    if let Some(guard) = receipt["guard"].as_str() {
        facts.insert(2, ("guard", guard.to_owned()));
    }
    if let Some(stop) = receipt["stopped_by"].as_str() {
        facts.push(("stopped_by", stop.to_owned()));
    }
    // `next` tells the user to pass it on.
    let token = receipt["distinct_token"].as_str();
    facts.extend(token.map(|token| ("distinct_token", token.to_owned())));
    facts.push(("next", text(&receipt["next"])));
    out.print_fields(&facts);
    if let Some(commands) = next_command(receipt, token) {
        out.print_line(&format!("\n{commands}"));
    }
}

/// The commands that do what `next` says.
fn next_command(receipt: &Value, token: Option<&str>) -> Option<String> {
    let id = receipt["id"].as_str().unwrap_or_default();
    match (receipt["state"].as_str()?, token) {
        ("held", Some(token)) => Some(format!(
            "If it is not a duplicate, send it again with:\n  --distinct-token {token}\nIf it is one, cancel it:\n  mailonce emails cancel {id}"
        )),
        ("held", None) => Some(
            "Somebody with an API key of the scope admin decides:\n  mailonce escalations list\n  \
             mailonce escalations resolve ID --as release"
                .to_owned(),
        ),
        ("unknown", _) => Some(format!(
            "Find out whether it arrived, then record it:\n  mailonce emails show {id}\n  mailonce emails resolve {id} --as sent   # or \
             resend, abandon"
        )),
        _ => None,
    }
}

/// 0 accepted, sent or replayed, 3 held, 5 failed, 7 unknown.
pub(super) fn exit_code(receipt: &Value) -> u8 {
    match receipt["state"].as_str().unwrap_or_default() {
        "held" => exit::HELD,
        "unknown" => exit::UNKNOWN,
        "failed" | "bounced" | "abandoned" | "cancelled" => exit::FAILED,
        _ => 0,
    }
}
