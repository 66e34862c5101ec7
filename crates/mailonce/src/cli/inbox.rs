//! `inbox`, `watch`, `wait` and `take`: inboxes, waiting for messages, and consuming codes and links.

use clap::{Args, Subcommand};
use hyper::Method;
use mailonce_transport::http::base::percent_encode;
use serde_json::{Value, json};
use std::{process::ExitCode, time::Duration};
use tokio::time::Instant;

use super::{
    ServerArgs, UsageError,
    client::{CliClient, ServerProblem},
    listing::{PageArgs, fetch_list, show_list},
    progress::Progress,
};
use crate::cli::{
    error::CliError,
    printer::{Printer, display_text, field_text, print_stderr, sanitize},
};

/// Longest wait that one API call allows, in seconds.
const MAX_WAIT_PER_CALL_S: u64 = 55;

#[derive(Debug, Subcommand)]
pub(crate) enum InboxVerb {
    /// Create an inbox, with a random address unless you choose one
    Create(CreateInboxArgs),
    /// List inboxes, newest first
    List {
        #[command(flatten)]
        server: ServerArgs,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one inbox
    Show {
        #[command(flatten)]
        server: ServerArgs,
        /// Id or address of the inbox
        inbox: String,
    },
    /// List the messages of an inbox, newest first
    Messages {
        #[command(flatten)]
        server: ServerArgs,
        /// Id or address of the inbox
        inbox: String,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one message; --model shows it as a model sees it
    Read {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the message
        message: String,
        /// How much to show: min (visible text), plain (all text) or full (with HTML)
        #[arg(long, default_value = "min")]
        view: String,
        /// Show what the MCP tool read_message gives a model: untrusted text is marked, codes are hidden
        #[arg(long, conflicts_with = "view")]
        model: bool,
    },
    /// List the deliveries to an inbox with their outcome, also duplicates and rejected mail
    Deliveries {
        #[command(flatten)]
        server: ServerArgs,
        /// Id or address of the inbox
        inbox: String,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Reject further mail to an inbox, and keep its messages
    Expire {
        #[command(flatten)]
        server: ServerArgs,
        /// Id or address of the inbox
        inbox: String,
    },
    /// Give an inbox a new random address; mail to the old one is rejected
    Rotate {
        #[command(flatten)]
        server: ServerArgs,
        /// Id or address of the inbox
        inbox: String,
    },
    /// Delete an inbox with its messages
    Delete {
        #[command(flatten)]
        server: ServerArgs,
        /// Id or address of the inbox
        inbox: String,
    },
}

/// A new inbox.
#[derive(Debug, Args)]
pub(crate) struct CreateInboxArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Address of the inbox
    #[arg(long)]
    address: Option<String>,
    /// Part of the address before the @
    #[arg(long)]
    username: Option<String>,
    /// Part of the address after the @
    #[arg(long)]
    domain: Option<String>,
    /// How long the inbox accepts mail, such as 30m, 24h or 7d; default: forever
    #[arg(long)]
    ttl: Option<String>,
    /// Your id for the inbox; creating it again with the same id returns the first inbox
    #[arg(long)]
    client_id: Option<String>,
    /// Name of the agent that uses the inbox
    #[arg(long)]
    agent: Option<String>,
}

fn inbox_path(inbox: &str) -> String {
    format!("/v1/inboxes/{}", percent_encode(inbox))
}

pub(super) fn show(out: &Printer, value: &Value, names: &[&str]) {
    if out.is_json() {
        return out.print_json(value);
    }
    let facts: Vec<(&str, String)> = names.iter().map(|name| (*name, field_text(value, name))).collect();
    out.print_fields(&facts);
}

const INBOX_FIELDS: &[&str] = &["id", "address", "agent", "client_id", "created_at", "expires_at", "message_count"];

/// Runs a verb of `inbox`.
pub(super) async fn inbox(out: &Printer, verb: InboxVerb) -> anyhow::Result<ExitCode> {
    match verb {
        InboxVerb::Create(args) => {
            let CreateInboxArgs { server, address, username, domain, ttl, client_id, agent } = args;
            let fields = [
                ("address", address),
                ("username", username),
                ("domain", domain),
                ("ttl", ttl),
                ("client_id", client_id),
                ("agent", agent),
            ];
            let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
            let body = Value::Object(given.collect());
            let (_, made) = CliClient::find(&server)?.call(Method::POST, "/v1/inboxes", None, Some(&body)).await?;
            show(out, &made, INBOX_FIELDS);
        }
        InboxVerb::List { server, page } => {
            let page = fetch_list(&CliClient::find(&server)?, "/v1/inboxes", Vec::new(), &page).await?;
            show_list(out, &page, &["~address", "~agent", "messages", "expires", "id"], |inbox| {
                ["address", "agent", "message_count", "expires_at", "id"].map(|name| field_text(inbox, name)).to_vec()
            });
        }
        InboxVerb::Show { server, inbox } => {
            show(out, &CliClient::find(&server)?.get(&inbox_path(&inbox)).await?, INBOX_FIELDS);
        }
        InboxVerb::Messages { server, inbox, page } => {
            let path = format!("{}/messages", inbox_path(&inbox));
            show_messages(out, &fetch_list(&CliClient::find(&server)?, &path, Vec::new(), &page).await?);
        }
        InboxVerb::Read { server, message, model: true, .. } => {
            read_as_model(out, &CliClient::find(&server)?, &message).await?;
        }
        InboxVerb::Read { server, message, view, .. } => {
            let path = format!("/v1/messages/{}?view={}", percent_encode(&message), percent_encode(&view));
            show_message(out, &CliClient::find(&server)?.get(&path).await?);
        }
        InboxVerb::Deliveries { server, inbox, page } => show_deliveries(out, &server, &inbox, &page).await?,
        InboxVerb::Expire { server, inbox } => {
            let body = json!({ "ttl": "0s" });
            let (_, expired) =
                CliClient::find(&server)?.call(Method::PATCH, &inbox_path(&inbox), None, Some(&body)).await?;
            show(out, &expired, INBOX_FIELDS);
        }
        InboxVerb::Rotate { server, inbox } => {
            let path = format!("{}/rotate", inbox_path(&inbox));
            show(out, &CliClient::find(&server)?.call(Method::POST, &path, None, None).await?.1, INBOX_FIELDS);
        }
        InboxVerb::Delete { server, inbox } => {
            show(
                out,
                &CliClient::find(&server)?.call(Method::DELETE, &inbox_path(&inbox), None, None).await?.1,
                INBOX_FIELDS,
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show_messages(out: &Printer, page: &Value) {
    show_list(out, page, &["received", "~from", "~subject", "has", "state", "id"], |message| {
        let has: Vec<&str> = message["has"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        vec![
            field_text(message, "received_at"),
            display_text(&message["from"]["address"]),
            display_text(&message["subject"]),
            has.join(" "),
            display_text(&message["state"]),
            display_text(&message["id"]),
        ]
    });
}

/// The recipients of a reply, with warnings about them.
fn reply_recipients_text(to: &Value, flags: &Value) -> String {
    let join = |list: &Value| {
        let items = list.as_array().into_iter().flatten();
        items.map(|item| sanitize(item.as_str().unwrap_or_default(), false)).collect::<Vec<_>>().join(", ")
    };
    match (join(to), join(flags)) {
        (to, _) if to.is_empty() => "-".to_owned(),
        (to, flags) if flags.is_empty() => to,
        (to, flags) => format!("{to}  (warning: {flags})"),
    }
}

fn show_message(out: &Printer, message: &Value) {
    if out.is_json() {
        return out.print_json(message);
    }
    let facts = [
        ("from", display_text(&message["from"]["address"])),
        ("authenticated", display_text(&message["auth"]["verdict"])),
        ("replies go to", reply_recipients_text(&message["reply_target"]["to"], &message["reply_target"]["flags"])),
        ("subject", display_text(&message["subject"])),
        ("received", field_text(message, "received_at")),
        ("thread", display_text(&message["thread_id"])),
    ];
    out.print_fields(&facts);
    out.print_line("");
    out.print_line(&sanitize(message["text"].as_str().unwrap_or("-"), true));
    for artifact in message["artifacts"].as_array().into_iter().flatten() {
        out.print_line(&format!(
            "{} {}  {}",
            display_text(&artifact["type"]),
            display_text(&artifact["masked"]),
            display_text(&artifact["id"])
        ));
    }
}

/// Shows a message as the MCP tool `read_message` gives it to a model.
async fn read_as_model(out: &Printer, client: &CliClient, message: &str) -> anyhow::Result<()> {
    let params = json!({ "name": "read_message", "arguments": { "message": message } });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let (_, answer) = client.call(Method::POST, "/mcp", None, Some(&call)).await?;
    let result = &answer["result"];
    let seen = &result["structuredContent"];
    if result["isError"] == true {
        let part = |name: &str| seen[name].as_str().unwrap_or_default();
        return Err(CliError::new(part("status"), part("detail"), "`mailonce inbox messages INBOX` lists ids").into());
    }
    if out.is_json() {
        out.print_json(seen);
        return Ok(());
    }
    let words = |name: &str| sanitize(seen[name].as_str().unwrap_or("-"), true);
    out.print_fields(&[
        ("from", display_text(&seen["from"])),
        ("auth", display_text(&seen["auth"])),
        ("replies go to", reply_recipients_text(&seen["reply_goes_to"], &seen["reply_flags"])),
        ("thread", display_text(&seen["thread"])),
    ]);
    out.print_line(&format!("\n{}\n{}", words("headline"), words("text")));
    for name in ["artifacts", "links", "attachments", "injection_flags"] {
        let all = seen[name].as_array().into_iter().flatten();
        all.for_each(|one| out.print_line(&format!("{name}  {}", sanitize(&one.to_string(), false))));
    }
    Ok(())
}

async fn show_deliveries(out: &Printer, server: &ServerArgs, inbox: &str, page: &PageArgs) -> anyhow::Result<()> {
    let client = CliClient::find(server)?;
    let id = display_text(&client.get(&inbox_path(inbox)).await?["id"]);
    let page = fetch_list(&client, "/v1/deliveries", vec![("inbox", Some(id))], page).await?;
    show_list(out, &page, &["received", "via", "state", "reason", "~from", "id"], |delivery| {
        ["received_at", "intake", "state", "reason", "sender", "id"].map(|name| field_text(delivery, name)).to_vec()
    });
    Ok(())
}

#[derive(Debug, Subcommand)]
pub(crate) enum WatchVerb {
    /// Start a watch: one run that waits for mail, with a deadline and a budget of resends
    Create(CreateWatchArgs),
}

/// A new watch.
#[derive(Debug, Args)]
pub(crate) struct CreateWatchArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Id or address of the inbox
    inbox: String,
    /// How often the agent may request the mail again
    #[arg(long, value_name = "N", default_value_t = 1)]
    budget: u32,
    /// When the watch ends: a duration such as 10m, or an RFC 3339 time; at most 7d
    #[arg(long, value_name = "TIME", default_value = "10m")]
    deadline: String,
    /// Only count mail from authenticated senders
    #[arg(long)]
    require_auth: bool,
    /// Idempotency key: a retry with the same key returns the same watch
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// Runs a verb of `watch`.
pub(super) async fn watch(out: &Printer, verb: WatchVerb) -> anyhow::Result<ExitCode> {
    let WatchVerb::Create(args) = verb;
    let body = json!({ "budget": args.budget, "deadline": args.deadline, "require_auth": args.require_auth });
    let path = format!("{}/watches", inbox_path(&args.inbox));
    let client = CliClient::find(&args.server)?;
    let (_, watch) = client.call(Method::POST, &path, args.key.as_deref(), Some(&body)).await?;
    show(out, &watch, &["id", "inbox_id", "started_at", "deadline", "budget", "resends_used", "require_auth"]);
    if !out.is_json() {
        let (inbox, id) = (&args.inbox, display_text(&watch["id"]));
        print_stderr(&format!("Wait for its mail: mailonce wait {inbox} --watch {id}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Filters of `wait`.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Id or address of the inbox
    inbox: String,
    /// Timeout in seconds
    #[arg(long, default_value_t = 30)]
    timeout: u64,
    /// The first message after this cursor; without it, the latest one that is already there, or else the next
    #[arg(long)]
    after: Option<String>,
    /// Only messages from this address or @domain
    #[arg(long)]
    from: Option<String>,
    /// Only messages with this text in the subject
    #[arg(long)]
    subject: Option<String>,
    /// Only messages that contain a code or a link: code or link
    #[arg(long)]
    has: Option<String>,
    /// What you will take it for, such as signup-7: passes over messages of an earlier run, and what others took
    #[arg(long = "for", value_name = "PURPOSE")]
    purpose: Option<String>,
    /// Id of a watch, from `watch create`
    #[arg(long)]
    watch: Option<String>,
}

impl WaitArgs {
    fn path(&self, seconds: u64) -> String {
        let fields = [
            ("after", &self.after),
            ("from", &self.from),
            ("subject", &self.subject),
            ("has", &self.has),
            ("for", &self.purpose),
            ("watch", &self.watch),
        ];
        let given =
            fields.into_iter().filter_map(|(name, value)| Some(format!("&{name}={}", percent_encode(value.as_ref()?))));
        format!("{}/wait?timeout={seconds}{}", inbox_path(&self.inbox), given.collect::<String>())
    }
}

/// Waits for a message. `None` on timeout.
async fn wait_for(client: &CliClient, args: &WaitArgs) -> anyhow::Result<Option<Value>> {
    let _spinner = Progress::spinner(&format!("waiting up to {} s for mail to {}", args.timeout, args.inbox));
    let end = Instant::now() + Duration::from_secs(args.timeout);
    loop {
        // The server takes whole seconds. Rounding up avoids giving up early.
        let left = end.saturating_duration_since(Instant::now());
        let left = (left.as_secs() + u64::from(left.subsec_nanos() > 0)).min(MAX_WAIT_PER_CALL_S);
        let (status, arrived) = client.call(Method::GET, &args.path(left), None, None).await?;
        if status == 200 {
            return Ok(Some(arrived));
        }
        if Instant::now() >= end || left == 0 {
            return Ok(None);
        }
    }
}

/// Runs `wait`.
pub(super) async fn wait(out: &Printer, args: WaitArgs) -> anyhow::Result<ExitCode> {
    let client = CliClient::find(&args.server)?;
    let Some(arrived) = wait_for(&client, &args).await? else {
        let next = "wait longer with --timeout; `mailonce inbox messages` lists those that are already there";
        return Err(CliError::timeout(format!("no message within {} s", args.timeout), next).into());
    };
    if out.is_json() {
        out.print_json(&arrived);
    } else {
        show_messages(out, &json!({ "data": [arrived["message"]] }));
    }
    Ok(ExitCode::SUCCESS)
}

/// Which code or link to take, and what for.
#[derive(Debug, Args)]
pub(crate) struct TakeArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Id or address of the inbox; with --artifact, id of the artifact
    inbox: String,
    /// What to take: code or link
    #[arg(long = "type", value_name = "TYPE", default_value = "code")]
    kind: String,
    /// What it is for, such as signup-7; only the same purpose gets the same code or link again
    #[arg(long = "for", value_name = "PURPOSE")]
    purpose: String,
    /// Only from messages of this address or @domain
    #[arg(long)]
    from: Option<String>,
    /// Only from messages with this text in the subject
    #[arg(long)]
    subject: Option<String>,
    /// Id of a watch, from `watch create`
    #[arg(long)]
    watch: Option<String>,
    /// Take the latest one after this cursor of the inbox, however old; without it only new ones count
    #[arg(long, conflicts_with_all = ["watch", "wait"])]
    after: Option<String>,
    /// Seconds to wait for it to arrive
    #[arg(long)]
    wait: Option<u64>,
    /// The argument is the id of an artifact, not an inbox
    #[arg(long, conflicts_with_all = ["from", "subject", "after", "wait"])]
    artifact: bool,
}

/// Runs `take`.
pub(super) async fn take(out: &Printer, args: TakeArgs) -> anyhow::Result<ExitCode> {
    let client = CliClient::find(&args.server)?;
    let taken = if args.artifact {
        let body = json!({ "for": args.purpose, "watch": args.watch });
        let path = format!("/v1/artifacts/{}/consume", percent_encode(&args.inbox));
        client.call(Method::POST, &path, None, Some(&body)).await
    } else {
        take_from_inbox(&client, &args).await
    };
    match taken {
        Ok((_, taken)) if out.is_json() => out.print_json(&taken),
        Ok((_, taken)) => out.print_line(&display_text(&taken["artifact"]["value"])),
        Err(error) => return Err(error),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether there is nothing to take yet: nothing arrived, or others took it.
fn may_still_arrive(error: &anyhow::Error) -> bool {
    let code = error.downcast_ref::<ServerProblem>().map(|problem| &problem.0["code"]);
    code.is_some_and(|code| code == "not_found" || code == "already_consumed")
}

async fn take_from_inbox(client: &CliClient, args: &TakeArgs) -> anyhow::Result<(u16, Value)> {
    if args.kind != "code" && args.kind != "link" {
        return Err(UsageError("--type must be code or link".into()).into());
    }
    let mut body = json!({ "type": args.kind, "for": args.purpose, "watch": args.watch, "after": args.after });
    body["match"] = json!({ "from": args.from, "subject": args.subject });
    let path = format!("{}/consume", inbox_path(&args.inbox));
    let mut left = args.wait.unwrap_or_default();
    let _spinner = (left > 0).then(|| Progress::spinner(&format!("waiting up to {left} s for mail to {}", args.inbox)));
    loop {
        // The server waits for at most a minute.
        let seconds = left.min(MAX_WAIT_PER_CALL_S);
        if seconds > 0 {
            body["timeout"] = json!(seconds);
        }
        let started = Instant::now();
        let taken = client.call(Method::POST, &path, None, Some(&body)).await;
        left -= seconds;
        // An answer before its time is an error of the call: the inbox does not exist, or the watch is over.
        let has_waited = started.elapsed() + Duration::from_secs(1) >= Duration::from_secs(seconds);
        if !has_waited || !taken.as_ref().is_err_and(may_still_arrive) {
            return taken;
        }
        if left == 0 {
            return if seconds == 0 { taken } else { Err(wait_timeout_error(args)) };
        }
    }
}

fn wait_timeout_error(args: &TakeArgs) -> anyhow::Error {
    let detail = format!("no {} within {} s", args.kind, args.wait.unwrap_or_default());
    CliError::timeout(detail, "try again later, or wait longer with --wait").into()
}
