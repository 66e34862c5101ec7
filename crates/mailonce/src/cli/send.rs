//! `send`: one email, once.

use anyhow::Context as _;
use clap::Args;
use hyper::Method;
use serde_json::{Value, json};
use std::{io::Read as _, process::ExitCode};

use super::{ServerArgs, UsageError, client::CliClient, exit};
use crate::cli::printer::{Printer, print_stderr};

/// An email to send.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    reach: ServerArgs,
    /// Sender
    #[arg(long)]
    from: String,
    /// Recipient; repeat for several
    #[arg(long, required = true)]
    to: Vec<String>,
    /// Subject
    #[arg(long, default_value = "")]
    subject: String,
    /// Plain text; `-` reads it from stdin
    #[arg(long)]
    text: Option<String>,
    /// HTML
    #[arg(long)]
    html: Option<String>,
    /// The name of this wish, the same for every retry
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// What kind of mail it is: order.confirmation
    #[arg(long = "type", value_name = "TYPE", requires = "entity")]
    kind: Option<String>,
    /// What it is about: order_4821
    #[arg(long, requires = "kind")]
    entity: Option<String>,
    /// Rises when the same thing is told again on purpose
    #[arg(long = "intent-version", value_name = "N", requires = "kind")]
    version: Option<u32>,
    /// The day, week or run it belongs to
    #[arg(long, requires = "kind")]
    period: Option<String>,
    /// When it is due: RFC 3339, or "in 5 minutes"
    #[arg(long = "at", value_name = "TIME")]
    scheduled_at: Option<String>,
    /// How long the key is remembered: transactional, notification, or a duration
    #[arg(long)]
    ttl: Option<String>,
    /// The token of a held look-alike that is meant: that email goes, and never another
    #[arg(long, value_name = "TOKEN")]
    distinct_token: Option<String>,
}

/// Sends it and tells by the exit code how it stands.
pub(super) async fn send(out: &Printer, args: SendArgs) -> anyhow::Result<ExitCode> {
    let client = CliClient::find(&args.reach)?;
    if args.key.is_none() && args.kind.is_none() {
        print_stderr("mailonce: no --key and no --type with --entity: a retry of this command would be another email");
    }
    let (_, answer) = client.call(Method::POST, "/v1/emails", args.key.as_deref(), Some(&request_body(&args)?)).await?;
    show_result(out, &answer);
    Ok(ExitCode::from(exit_code(&answer)))
}

fn request_body(args: &SendArgs) -> anyhow::Result<Value> {
    let mut body = json!({ "from": args.from, "to": args.to, "subject": args.subject });
    let text = match args.text.as_deref() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading the text from stdin")?;
            Some(text)
        }
        text => text.map(str::to_owned),
    };
    if text.is_none() && args.html.is_none() {
        return Err(UsageError("a mail needs a body: --text, --text - or --html".into()).into());
    }
    let optional = [
        ("text", json!(text)),
        ("html", json!(args.html)),
        ("scheduled_at", json!(args.scheduled_at)),
        ("ttl", json!(args.ttl)),
        ("distinct_token", json!(args.distinct_token)),
    ];
    for (name, value) in optional {
        body[name] = value;
    }
    if let (Some(kind), Some(entity)) = (&args.kind, &args.entity) {
        body["intent"] = json!({ "type": kind, "entity": entity, "version": args.version, "period": args.period });
    }
    Ok(body)
}

/// Shows what became of a send or an answer.
pub(super) fn show_result(out: &Printer, answer: &Value) {
    if out.is_json() {
        return out.print_json(answer);
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let outcome = text(&answer["dedupe"]["outcome"]);
    let mut facts = vec![
        ("email", text(&answer["id"])),
        ("state", text(&answer["state"])),
        ("outcome", if outcome == "first" { out.green(&outcome) } else { outcome }),
        ("key", text(&answer["dedupe"]["key"])),
        ("suppressed", answer["dedupe"]["suppressed"].to_string()),
    ];
    if let Some(guard) = answer["guard"].as_str() {
        facts.insert(2, ("guard", guard.to_owned()));
    }
    // What `next` tells to pass on.
    let token = answer["distinct_token"].as_str();
    facts.extend(token.map(|token| ("distinct_token", token.to_owned())));
    facts.push(("next", text(&answer["next"])));
    out.print_fields(&facts);
    if let Some(todo) = next_command(answer, token) {
        out.print_line(&format!("\n{todo}"));
    }
}

/// The words of the command line for what `next` says.
fn next_command(answer: &Value, token: Option<&str>) -> Option<String> {
    let id = answer["id"].as_str().unwrap_or_default();
    match (answer["state"].as_str()?, token) {
        ("held", Some(token)) => Some(format!(
            "If both are meant, call it again with:\n  --distinct-token {token}\nIf not, take it back:\n  mailonce emails cancel {id}"
        )),
        ("held", None) => Some(
            "A person with a key that has the scope admin decides:\n  mailonce escalations list\n  \
             mailonce escalations resolve ID --as release"
                .to_owned(),
        ),
        ("unknown", _) => Some(format!(
            "When you know what became of it:\n  mailonce emails show {id}\n  mailonce emails resolve {id} --as sent   # or \
             resend, abandon"
        )),
        _ => None,
    }
}

/// 0 done or replayed, 3 held, 4 in flight, 5 failed, 7 unknown.
pub(super) fn exit_code(answer: &Value) -> u8 {
    let replayed = answer["dedupe"]["outcome"] == "replayed";
    match answer["state"].as_str().unwrap_or_default() {
        "held" => exit::HELD,
        "unknown" => exit::UNKNOWN,
        "failed" | "bounced" | "abandoned" | "cancelled" => exit::FAILED,
        "queued" | "sending" | "scheduled" if !replayed => exit::IN_FLIGHT,
        _ => 0,
    }
}
