//! Inboxes from a shell: make them, wait for mail, take codes and links.

use clap::{Args, Subcommand};
use hyper::Method;
use mailonce_transport::http::base::percent_encode;
use serde_json::{Value, json};
use std::{process::ExitCode, time::Duration};
use tokio::time::Instant;

use super::{
    ServerArgs, UsageError,
    client::{CliClient, ServerProblem},
    progress::Progress,
};
use crate::cli::{
    error::CliError,
    printer::{Printer, display_text, field_text, sanitize},
};

/// The longest wait that one call of the API grants, in seconds.
const MAX_WAIT_PER_CALL_S: u64 = 55;

#[derive(Debug, Subcommand)]
pub(crate) enum InboxVerb {
    /// Make an inbox; a random address unless you choose one
    Create(CreateInboxArgs),
    /// List inboxes, newest first
    List {
        #[command(flatten)]
        reach: ServerArgs,
    },
    /// Show one inbox
    Show {
        #[command(flatten)]
        reach: ServerArgs,
        /// Its id or address
        inbox: String,
    },
    /// List messages, newest first
    Messages {
        #[command(flatten)]
        reach: ServerArgs,
        /// Its id or address
        inbox: String,
        /// At most so many
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Read one message; --model shows it as a model sees it
    Read {
        #[command(flatten)]
        reach: ServerArgs,
        /// The message's id
        message: String,
        /// min, plain or full
        #[arg(long, default_value = "min")]
        view: String,
        /// What the tool read_message gives a model: everything of strangers inside fences, codes hidden
        #[arg(long, conflicts_with = "view")]
        model: bool,
    },
    /// Every arrival with what became of it
    Deliveries {
        #[command(flatten)]
        reach: ServerArgs,
        /// Its id or address
        inbox: String,
    },
    /// Let it refuse mail from now on; its history stays
    Expire {
        #[command(flatten)]
        reach: ServerArgs,
        /// Its id or address
        inbox: String,
    },
    /// Give it a new random address; the old one reaches nobody any more
    Rotate {
        #[command(flatten)]
        reach: ServerArgs,
        /// Its id or address
        inbox: String,
    },
    /// Remove it with everything in it
    Delete {
        #[command(flatten)]
        reach: ServerArgs,
        /// Its id or address
        inbox: String,
    },
}

/// An inbox to make.
#[derive(Debug, Args)]
pub(crate) struct CreateInboxArgs {
    #[command(flatten)]
    reach: ServerArgs,
    /// The whole address
    #[arg(long)]
    address: Option<String>,
    /// What stands before the @
    #[arg(long)]
    username: Option<String>,
    /// What stands behind it
    #[arg(long)]
    domain: Option<String>,
    /// How long it takes mail: 30m, 24h, 7d
    #[arg(long)]
    ttl: Option<String>,
    /// The same again makes no second inbox
    #[arg(long)]
    client_id: Option<String>,
    /// The agent it is for
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

pub(super) fn show_rows(out: &Printer, page: &Value, heads: &[&str], row: impl Fn(&Value) -> Vec<String>) {
    if out.is_json() {
        return out.print_json(page);
    }
    let data = page["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    out.print_table(heads, data.iter().map(row).collect());
}

const INBOX_FIELDS: &[&str] = &["id", "address", "agent", "client_id", "created_at", "expires_at", "messages"];

/// Verbs about inboxes.
pub(super) async fn inbox(out: &Printer, verb: InboxVerb) -> anyhow::Result<ExitCode> {
    match verb {
        InboxVerb::Create(args) => {
            let CreateInboxArgs { reach, address, username, domain, ttl, client_id, agent } = args;
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
            let (_, made) = CliClient::find(&reach)?.call(Method::POST, "/v1/inboxes", None, Some(&body)).await?;
            show(out, &made, INBOX_FIELDS);
        }
        InboxVerb::List { reach } => {
            let page = CliClient::find(&reach)?.get("/v1/inboxes?limit=100").await?;
            show_rows(out, &page, &["~address", "~agent", "messages", "expires", "id"], |inbox| {
                ["address", "agent", "messages", "expires_at", "id"].map(|name| field_text(inbox, name)).to_vec()
            });
        }
        InboxVerb::Show { reach, inbox } => {
            show(out, &CliClient::find(&reach)?.get(&inbox_path(&inbox)).await?, INBOX_FIELDS);
        }
        InboxVerb::Messages { reach, inbox, limit } => {
            let path = format!("{}/messages?limit={limit}", inbox_path(&inbox));
            show_messages(out, &CliClient::find(&reach)?.get(&path).await?);
        }
        InboxVerb::Read { reach, message, model: true, .. } => {
            read_as_model(out, &CliClient::find(&reach)?, &message).await?;
        }
        InboxVerb::Read { reach, message, view, .. } => {
            let path = format!("/v1/messages/{}?view={}", percent_encode(&message), percent_encode(&view));
            show_message(out, &CliClient::find(&reach)?.get(&path).await?);
        }
        InboxVerb::Deliveries { reach, inbox } => show_deliveries(out, &reach, &inbox).await?,
        InboxVerb::Expire { reach, inbox } => {
            let body = json!({ "ttl": "0s" });
            let (_, now) = CliClient::find(&reach)?.call(Method::PATCH, &inbox_path(&inbox), None, Some(&body)).await?;
            show(out, &now, INBOX_FIELDS);
        }
        InboxVerb::Rotate { reach, inbox } => {
            let path = format!("{}/rotate", inbox_path(&inbox));
            show(out, &CliClient::find(&reach)?.call(Method::POST, &path, None, None).await?.1, INBOX_FIELDS);
        }
        InboxVerb::Delete { reach, inbox } => {
            show(
                out,
                &CliClient::find(&reach)?.call(Method::DELETE, &inbox_path(&inbox), None, None).await?.1,
                INBOX_FIELDS,
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show_messages(out: &Printer, page: &Value) {
    show_rows(out, page, &["received", "~from", "~subject", "has", "state", "id"], |message| {
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

/// The addresses of a reply, with what speaks against them.
fn replies_go_to(to: &Value, flags: &Value) -> String {
    let all = |list: &Value| {
        let words = list.as_array().into_iter().flatten();
        words.map(|word| sanitize(word.as_str().unwrap_or_default(), false)).collect::<Vec<_>>().join(", ")
    };
    match (all(to), all(flags)) {
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
        ("replies go to", replies_go_to(&message["reply"]["to"], &message["reply"]["flags"])),
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

/// Asks the very tool that models ask.
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
        ("replies go to", replies_go_to(&seen["reply_goes_to"], &seen["reply_flags"])),
        ("thread", display_text(&seen["thread"])),
    ]);
    out.print_line(&format!("\n{}\n{}", words("headline"), words("text")));
    for name in ["artifacts", "links", "attachments", "injection_flags"] {
        let all = seen[name].as_array().into_iter().flatten();
        all.for_each(|one| out.print_line(&format!("{name}  {}", sanitize(&one.to_string(), false))));
    }
    Ok(())
}

async fn show_deliveries(out: &Printer, reach: &ServerArgs, inbox: &str) -> anyhow::Result<()> {
    let client = CliClient::find(reach)?;
    let id = display_text(&client.get(&inbox_path(inbox)).await?["id"]);
    let page = client.get(&format!("/v1/deliveries?inbox={id}&limit=100")).await?;
    show_rows(out, &page, &["received", "by", "state", "reason", "~from", "id"], |delivery| {
        ["received_at", "intake", "state", "reason", "sender", "id"].map(|name| field_text(delivery, name)).to_vec()
    });
    Ok(())
}

/// What to wait for.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    reach: ServerArgs,
    /// The inbox's id or address
    inbox: String,
    /// Seconds to wait
    #[arg(long, default_value_t = 30)]
    timeout: u64,
    /// Only after this cursor; `0` is the very start
    #[arg(long)]
    after: Option<String>,
    /// An address, or @domain
    #[arg(long)]
    from: Option<String>,
    /// Part of the subject
    #[arg(long)]
    subject: Option<String>,
    /// code or link
    #[arg(long)]
    has: Option<String>,
    /// The id of a watch
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
            ("watch", &self.watch),
        ];
        let given =
            fields.into_iter().filter_map(|(name, value)| Some(format!("&{name}={}", percent_encode(value.as_ref()?))));
        format!("{}/wait?timeout={seconds}{}", inbox_path(&self.inbox), given.collect::<String>())
    }
}

/// Waits for a message. `None` when none came.
async fn wait_for(client: &CliClient, args: &WaitArgs) -> anyhow::Result<Option<Value>> {
    let _sign = Progress::spinner(&format!("waiting up to {} s for mail to {}", args.timeout, args.inbox));
    let end = Instant::now() + Duration::from_secs(args.timeout);
    loop {
        // The server counts whole seconds; a part of one is waited for as one, so that nobody gives up early.
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

/// Waits for a message.
pub(super) async fn wait(out: &Printer, args: WaitArgs) -> anyhow::Result<ExitCode> {
    let client = CliClient::find(&args.reach)?;
    let Some(arrived) = wait_for(&client, &args).await? else {
        let next = "wait again, or longer with --timeout; --after 0 counts what came before";
        return Err(CliError::timeout(format!("no message within {} s", args.timeout), next).into());
    };
    if out.is_json() {
        out.print_json(&arrived);
    } else {
        show_messages(out, &json!({ "data": [arrived["message"]] }));
    }
    Ok(ExitCode::SUCCESS)
}

/// What to take, and for whom.
#[derive(Debug, Args)]
pub(crate) struct TakeArgs {
    #[command(flatten)]
    reach: ServerArgs,
    /// The inbox's id or address, or the id of an artifact with --artifact
    inbox: String,
    /// code or link
    #[arg(long = "type", value_name = "TYPE", default_value = "code")]
    kind: String,
    /// The account, workflow or run it is for: the same gets it again, another does not
    #[arg(long = "for", value_name = "WHO")]
    purpose: String,
    /// Only from this address, or @domain
    #[arg(long)]
    from: Option<String>,
    /// Only with this in its subject
    #[arg(long)]
    subject: Option<String>,
    /// The id of the watch it belongs to
    #[arg(long)]
    watch: Option<String>,
    /// Wait so many seconds for it to arrive
    #[arg(long)]
    wait: Option<u64>,
    /// The first argument names an artifact
    #[arg(long, conflicts_with_all = ["from", "subject", "wait"])]
    artifact: bool,
}

/// Takes a code or link, once.
pub(super) async fn take(out: &Printer, args: TakeArgs) -> anyhow::Result<ExitCode> {
    let client = CliClient::find(&args.reach)?;
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
        Err(error) if is_missing(&error) && args.wait.is_some() => {
            let detail = format!("no {} within {} s", args.kind, args.wait.unwrap_or_default());
            return Err(CliError::timeout(detail, "take it again later, or wait longer with --wait").into());
        }
        Err(error) => return Err(error),
    }
    Ok(ExitCode::SUCCESS)
}

fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ServerProblem>().is_some_and(|told| told.0["code"] == "not_found")
}

async fn take_from_inbox(client: &CliClient, args: &TakeArgs) -> anyhow::Result<(u16, Value)> {
    if args.kind != "code" && args.kind != "link" {
        return Err(UsageError("--type is code or link".into()).into());
    }
    let mut body = json!({ "type": args.kind, "for": args.purpose, "watch": args.watch });
    body["match"] = json!({ "from": args.from, "subject": args.subject });
    let path = format!("{}/consume", inbox_path(&args.inbox));
    let first = client.call(Method::POST, &path, None, Some(&body)).await;
    let Some(seconds) = args.wait.filter(|_| first.as_ref().is_err_and(is_missing)) else { return first };
    let waiting = WaitArgs {
        reach: args.reach.clone(),
        inbox: args.inbox.clone(),
        timeout: seconds,
        after: None,
        from: args.from.clone(),
        subject: args.subject.clone(),
        has: Some(args.kind.clone()),
        watch: args.watch.clone(),
    };
    if wait_for(client, &waiting).await?.is_none() {
        return first;
    }
    client.call(Method::POST, &path, None, Some(&body)).await
}
