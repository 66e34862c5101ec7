//! `reply`, `thread` and `escalations`: replies to messages, threads, and questions for people.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use hyper::Method;
use mailonce_transport::http::base::percent_encode;
use serde_json::{Value, json};
use std::{io::Read as _, process::ExitCode};

use super::{
    ServerArgs, UsageError,
    client::CliClient,
    inbox::show,
    listing::{PageArgs, fetch_list, show_list},
    send,
};
use crate::cli::printer::{Printer, display_text, field_text, sanitize};

/// A reply to a message.
#[derive(Debug, Args)]
pub(crate) struct ReplyArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Id of the message
    message: String,
    /// Body as plain text; `-` reads it from stdin
    #[arg(long)]
    text: Option<String>,
    /// Body as HTML
    #[arg(long)]
    html: Option<String>,
    /// Reply to all recipients of the message
    #[arg(long)]
    all: bool,
    /// Number of the reply: 0 is the first one, higher numbers are intended follow-ups
    #[arg(long, default_value_t = 0)]
    follow_up: u32,
    /// Id of a newer message in the thread that you have read; may be repeated
    #[arg(long, value_name = "MESSAGE")]
    seen: Vec<String>,
    /// Token of your lease on the thread
    #[arg(long, value_name = "TOKEN")]
    lease: Option<String>,
    /// Quote the message below the reply
    #[arg(long)]
    quote: bool,
    /// Idempotency key: a retry with the same key does not send the reply twice
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Token of a reply that is held as a likely duplicate: confirms that it is not one, and sends it
    #[arg(long, value_name = "TOKEN")]
    distinct_token: Option<String>,
    #[command(flatten)]
    wait: send::FinalStateArgs,
}

/// Replies to a message. The exit code reflects the state of the reply.
pub(super) async fn reply(out: &Printer, args: ReplyArgs) -> anyhow::Result<ExitCode> {
    let text = match args.text.as_deref() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading the text from stdin")?;
            Some(text)
        }
        text => text.map(str::to_owned),
    };
    if text.is_none() && args.html.is_none() {
        return Err(UsageError("the reply has no body; pass --text, --text - or --html".into()).into());
    }
    let body = json!({
        "text": text,
        "html": args.html,
        "reply_all": args.all,
        "follow_up": args.follow_up,
        "seen": args.seen,
        "lease": args.lease,
        "quote": args.quote,
        "distinct_token": args.distinct_token,
    });
    let path = format!("/v1/messages/{}/reply", percent_encode(&args.message));
    let client = CliClient::find(&args.server)?;
    let (_, receipt) = client.call(Method::POST, &path, args.key.as_deref(), Some(&body)).await?;
    send::finish(out, &client, &args.wait, receipt).await
}

#[derive(Debug, Subcommand)]
pub(crate) enum ThreadVerb {
    /// List threads, the most recently active first
    List {
        #[command(flatten)]
        server: ServerArgs,
        /// Only threads of this inbox (id or address)
        #[arg(long)]
        inbox: Option<String>,
        /// Only threads with this label
        #[arg(long)]
        label: Option<String>,
        /// Only threads that are not done
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show a thread with its messages and emails, and who holds its lease
    Show {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the thread
        thread: String,
    },
    /// Lease a thread, so that no other agent replies to it; renew the lease with --token
    Lease {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the thread
        thread: String,
        /// Name of the holder, for people
        #[arg(long)]
        holder: Option<String>,
        /// Duration in seconds, 1 to 600
        #[arg(long, default_value_t = 30)]
        ttl: u32,
        /// Token of your lease, to renew it
        #[arg(long)]
        token: Option<String>,
    },
    /// Release your lease on a thread
    Release {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the thread
        thread: String,
        /// Token of your lease
        #[arg(long)]
        token: String,
    },
    /// Mark a thread as done
    Done {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the thread
        thread: String,
    },
}

fn thread_path(thread: &str) -> String {
    format!("/v1/threads/{}", percent_encode(thread))
}

/// Runs a verb of `thread`.
pub(super) async fn thread(out: &Printer, verb: ThreadVerb) -> anyhow::Result<ExitCode> {
    match verb {
        ThreadVerb::List { server, inbox, label, open, page } => {
            let handled = open.then(|| "false".to_owned());
            let filters = vec![("inbox", inbox), ("label", label), ("handled", handled)];
            let page = fetch_list(&CliClient::find(&server)?, "/v1/threads", filters, &page).await?;
            show_list(out, &page, &["id", "last activity", "received", "sent", "~leased by", "~subject"], |thread| {
                let fields =
                    ["id", "last_activity_at", "message_count", "email_count"].map(|name| field_text(thread, name));
                [fields.as_slice(), &[display_text(&thread["lease"]["holder"]), display_text(&thread["subject"])]]
                    .concat()
            });
        }
        ThreadVerb::Show { server, thread } => {
            let view = CliClient::find(&server)?.get(&thread_path(&thread)).await?;
            show_thread(out, &view);
            if !out.is_json() {
                show_entries(out, &view);
            }
        }
        ThreadVerb::Lease { server, thread, holder, ttl, token } => {
            let body = json!({ "holder": holder, "ttl_s": ttl, "token": token });
            let path = format!("{}/lease", thread_path(&thread));
            let (_, lease) = CliClient::find(&server)?.call(Method::POST, &path, None, Some(&body)).await?;
            show(out, &lease, &["token", "fence", "holder", "expires_at"]);
        }
        ThreadVerb::Release { server, thread, token } => {
            let path = format!("{}/lease", thread_path(&thread));
            let body = json!({ "token": token });
            let (_, view) = CliClient::find(&server)?.call(Method::DELETE, &path, None, Some(&body)).await?;
            show_thread(out, &view);
        }
        ThreadVerb::Done { server, thread } => {
            let body = json!({ "handled": true });
            let (_, view) =
                CliClient::find(&server)?.call(Method::PATCH, &thread_path(&thread), None, Some(&body)).await?;
            show_thread(out, &view);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the state of a thread, who holds its lease, and how often it was replied to.
fn show_thread(out: &Printer, view: &Value) {
    if out.is_json() {
        return out.print_json(view);
    }
    let (lease, replies) = (&view["lease"], &view["replies"]);
    let [received, sent] = ["message_count", "email_count"].map(|name| field_text(view, name));
    let [window, day, total] = ["in_window", "last_24h", "total"].map(|name| field_text(replies, name));
    let holder = if lease["holder"].is_null() { "an unnamed client".to_owned() } else { field_text(lease, "holder") };
    out.print_fields(&[
        ("thread", field_text(view, "id")),
        ("subject", field_text(view, "subject")),
        (
            "status",
            if view["handled_at"].is_null() {
                format!("open, last activity {}", field_text(view, "last_activity_at"))
            } else {
                format!("done since {}", field_text(view, "handled_at"))
            },
        ),
        (
            "lease",
            if lease.is_null() {
                "none, any agent may reply".to_owned()
            } else {
                format!("held by {holder} until {}", field_text(lease, "expires_at"))
            },
        ),
        ("fence", field_text(view, "fence")),
        ("messages", format!("{received} received, {sent} sent")),
        ("replies", format!("{total} in total, {day} in the last 24 hours, {window} in the current cap window")),
        ("labels", field_text(view, "labels")),
    ]);
}

/// Shows the decision, if there is one.
fn show_decision(out: &Printer, view: &Value) {
    let decision = &view["decision"];
    if !decision.is_null() {
        let names = [("decision", "as"), ("because", "reason"), ("decided at", "at"), ("decided by", "by")];
        out.print_fields(&names.map(|(label, name)| (label, field_text(decision, name))));
    }
}

/// Shows the messages and emails of a thread, oldest first.
fn show_entries(out: &Printer, view: &Value) {
    let entries = view["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |entry: &Value| {
        let (message, email) = (&entry["message"], &entry["email"]);
        if entry["type"] == "message" {
            let [from, state, subject] = [&message["from"]["address"], &message["state"], &message["subject"]];
            let [from, state, subject] = [from, state, subject].map(display_text);
            vec![field_text(message, "received_at"), "in".to_owned(), from, state, subject]
        } else {
            let [time, from, state, subject] =
                ["created_at", "from", "state", "subject"].map(|name| field_text(email, name));
            vec![time, "out".to_owned(), from, state, subject]
        }
    };
    out.print_line("");
    out.print_table(&["time", "direction", "~from", "state", "~subject"], entries.iter().map(row).collect());
}

#[derive(Debug, Subcommand)]
pub(crate) enum EscalationsVerb {
    /// List questions, newest first
    List {
        #[command(flatten)]
        server: ServerArgs,
        /// Only questions in this state: open, resolved, expired or moot; `any` for every state
        #[arg(long, default_value = "open")]
        state: String,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one question and the email that it holds
    Show {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the escalation
        id: String,
    },
    /// Answer a question
    Resolve(Box<ResolveEscalationArgs>),
}

/// The answer to a question.
#[derive(Debug, Args)]
pub(crate) struct ResolveEscalationArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Id of the escalation
    id: String,
    /// release, edit or reject a held email; sent, resend or abandon for one whose outcome is unknown; done, retry or
    /// abandon for a lost claim
    #[arg(long = "as", value_name = "DECISION")]
    decision: String,
    /// Revision that the decision is based on; fails if the question changed since; default: the latest
    #[arg(long)]
    rev: Option<u32>,
    /// New subject, with `--as edit`
    #[arg(long)]
    subject: Option<String>,
    /// New plain text, with `--as edit`
    #[arg(long)]
    text: Option<String>,
    /// Digest from `escalations show`; fails if the email changed since
    #[arg(long)]
    digest: Option<String>,
    /// New HTML, with `--as edit`
    #[arg(long)]
    html: Option<String>,
    /// Why, for the record
    #[arg(long)]
    reason: Option<String>,
}

const ESCALATION_FIELDS: &[&str] =
    &["id", "rev", "state", "reason", "allowed_decisions", "created_at", "expires_at", "executed_at"];

fn escalation_path(id: &str) -> String {
    format!("/v1/escalations/{}", percent_encode(id))
}

/// Runs a verb of `escalations`.
pub(super) async fn escalations(out: &Printer, verb: EscalationsVerb) -> anyhow::Result<ExitCode> {
    match verb {
        EscalationsVerb::List { server, state, page } => {
            let filters = vec![("state", Some(state).filter(|state| state != "any"))];
            let page = fetch_list(&CliClient::find(&server)?, "/v1/escalations", filters, &page).await?;
            show_list(out, &page, &["id", "opened", "state", "about", "~question"], |escalation| {
                let fields = ["id", "created_at", "state"].map(|name| field_text(escalation, name));
                [fields.as_slice(), &[subject_summary(&escalation["about"]), question(escalation)]].concat()
            });
        }
        EscalationsVerb::Show { server, id } => {
            let view = CliClient::find(&server)?.get(&escalation_path(&id)).await?;
            show(out, &view, ESCALATION_FIELDS);
            if !out.is_json() {
                show_decision(out, &view);
                show_held_email(out, &view);
            }
        }
        EscalationsVerb::Resolve(args) => resolve(out, *args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The question of the agent, or the one that follows from the reason.
fn question(escalation: &Value) -> String {
    if let Some(question) = escalation["about"]["question"].as_str() {
        return sanitize(question, false);
    }
    match escalation["reason"].as_str().unwrap_or_default() {
        "approval" => "Send this email? A rule requires approval.",
        "cap" => "Send this reply? The limit of replies is reached.",
        "looks_duplicate" => "Send this email? It looks like a duplicate.",
        "loop" => "Reply to this message? It looks like a mail loop.",
        "orphaned" => "Where should this mail go? No server has its transport.",
        "overlaps" => "Send this email? Some recipients already got the same intent.",
        "unanswered" => "Who replies to this message? No agent did.",
        "unknown" => "Did this email arrive? The next hop gave no answer.",
        reason => return reason.to_owned(),
    }
    .to_owned()
}

/// The kind and id of what a question is about.
fn subject_summary(about: &Value) -> String {
    let subject = ["email", "claim", "message", "thread", "inbox"].into_iter().find(|name| !about[*name].is_null());
    subject.map_or_else(|| "-".to_owned(), |name| format!("{name} {}", display_text(&about[name])))
}

/// Shows the question, what it is about, and the email that it holds.
fn show_held_email(out: &Printer, view: &Value) {
    let (email, about) = (&view["email"], &view["about"]);
    let fields = [
        ("email", &about["email"]),
        ("claim", &about["claim"]),
        ("message", &about["message"]),
        ("thread", &about["thread"]),
        ("inbox", &about["inbox"]),
        ("rule", &about["rule"]["name"]),
        ("rule_id", &about["rule"]["id"]),
        ("digest", &email["digest"]),
    ];
    let known = fields.into_iter().filter(|(_, value)| !value.is_null());
    let known = known.map(|(name, value)| (name, display_text(value)));
    out.print_fields(&std::iter::once(("question", question(view))).chain(known).collect::<Vec<_>>());
    if let Some(text) = email["approval_text"].as_str() {
        out.print_line("");
        out.print_line(&sanitize(text, true));
    }
    let diff = view["similar_email"]["diff"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !diff.is_empty() {
        out.print_line(&out.dim("\nCompared with an email that was already sent (- only there, + only here):"));
        diff.iter().filter_map(Value::as_str).for_each(|line| out.print_line(&sanitize(line, false)));
    }
}

async fn resolve(out: &Printer, args: ResolveEscalationArgs) -> anyhow::Result<()> {
    let client = CliClient::find(&args.server)?;
    let path = escalation_path(&args.id);
    let latest = client.get(&path).await?;
    let rev = args.rev.map_or_else(|| latest["rev"].clone(), |rev| json!(rev));
    let digest = args.digest.map_or_else(|| latest["email"]["digest"].clone(), |digest| json!(digest));
    let mut body = json!({ "as": args.decision, "rev": rev, "reason": args.reason, "digest": digest });
    if args.subject.is_some() || args.text.is_some() || args.html.is_some() {
        body["edit"] = json!({ "subject": args.subject, "text": args.text, "html": args.html });
    }
    let (_, view) = client.call(Method::POST, &format!("{path}/resolve"), None, Some(&body)).await?;
    show(out, &view, ESCALATION_FIELDS);
    if !out.is_json() {
        show_decision(out, &view);
    }
    Ok(())
}
