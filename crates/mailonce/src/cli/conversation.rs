//! Conversations from a shell: answering, threads, and questions for people.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use hyper::Method;
use mailonce_transport::http::base::percent_encode;
use serde_json::{Value, json};
use std::{io::Read as _, process::ExitCode};

use super::{
    ServerArgs, UsageError,
    client::CliClient,
    emails::query_string,
    inbox::{show, show_rows},
    send,
};
use crate::cli::printer::{Printer, display_text, field_text, sanitize};

/// An answer to a message.
#[derive(Debug, Args)]
pub(crate) struct ReplyArgs {
    #[command(flatten)]
    reach: ServerArgs,
    /// The message's id
    message: String,
    /// Plain text; `-` reads it from stdin
    #[arg(long)]
    text: Option<String>,
    /// HTML
    #[arg(long)]
    html: Option<String>,
    /// Answer everybody who got the message
    #[arg(long)]
    all: bool,
    /// Which answer it is: 0 is the first, others are wanted follow-ups
    #[arg(long, default_value_t = 0)]
    follow_up: u32,
    /// A newer message that you have read; repeat for several
    #[arg(long, value_name = "MESSAGE")]
    seen: Vec<String>,
    /// The token of the lease that you hold
    #[arg(long, value_name = "TOKEN")]
    lease: Option<String>,
    /// Put the message below your words
    #[arg(long)]
    quote: bool,
    /// The name of this wish, the same for every retry
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The token of a held look-alike that is meant: that answer goes, and never another
    #[arg(long, value_name = "TOKEN")]
    distinct_token: Option<String>,
}

/// Answers a message and tells by the exit code how it stands.
pub(super) async fn reply(out: &Printer, args: ReplyArgs) -> anyhow::Result<ExitCode> {
    let words = match args.text.as_deref() {
        Some("-") => {
            let mut words = String::new();
            std::io::stdin().read_to_string(&mut words).context("reading the text from stdin")?;
            Some(words)
        }
        words => words.map(str::to_owned),
    };
    if words.is_none() && args.html.is_none() {
        return Err(UsageError("an answer needs a body: --text, --text - or --html".into()).into());
    }
    let body = json!({
        "text": words,
        "html": args.html,
        "reply_all": args.all,
        "follow_up": args.follow_up,
        "seen": args.seen,
        "lease": args.lease,
        "quote": args.quote,
        "distinct_token": args.distinct_token,
    });
    let path = format!("/v1/messages/{}/reply", percent_encode(&args.message));
    let client = CliClient::find(&args.reach)?;
    let (_, answer) = client.call(Method::POST, &path, args.key.as_deref(), Some(&body)).await?;
    send::show_result(out, &answer);
    Ok(ExitCode::from(send::exit_code(&answer)))
}

#[derive(Debug, Subcommand)]
pub(crate) enum ThreadVerb {
    /// List threads, those with the latest news first
    List {
        #[command(flatten)]
        reach: ServerArgs,
        /// Only of this inbox: its id or address
        #[arg(long)]
        inbox: Option<String>,
        /// Only with this label
        #[arg(long)]
        label: Option<String>,
        /// Only those in which something is left to do
        #[arg(long)]
        open: bool,
    },
    /// Show a thread: who works on it, and what was said in both directions
    Show {
        #[command(flatten)]
        reach: ServerArgs,
        /// The thread's id
        thread: String,
    },
    /// Take the lease of a thread, or renew it with its token
    Lease {
        #[command(flatten)]
        reach: ServerArgs,
        /// The thread's id
        thread: String,
        /// Who asks, as people call it
        #[arg(long)]
        holder: Option<String>,
        /// Seconds, 1 to 600
        #[arg(long, default_value_t = 30)]
        ttl: u32,
        /// The token of your lease, to renew it
        #[arg(long)]
        token: Option<String>,
    },
    /// Give your lease back
    Release {
        #[command(flatten)]
        reach: ServerArgs,
        /// The thread's id
        thread: String,
        /// The token of your lease
        #[arg(long)]
        token: String,
    },
    /// Say that nothing is left to do
    Done {
        #[command(flatten)]
        reach: ServerArgs,
        /// The thread's id
        thread: String,
    },
}

const THREAD_FIELDS: &[&str] = &["id", "subject", "messages", "emails", "labels", "handled_at", "latest_at", "fence"];

fn thread_path(thread: &str) -> String {
    format!("/v1/threads/{}", percent_encode(thread))
}

/// Verbs about threads.
pub(super) async fn thread(out: &Printer, verb: ThreadVerb) -> anyhow::Result<ExitCode> {
    match verb {
        ThreadVerb::List { reach, inbox, label, open } => {
            let handled = open.then(|| "false".to_owned());
            let asked = [("inbox", inbox), ("label", label), ("handled", handled), ("limit", Some("100".into()))];
            let page = CliClient::find(&reach)?.get(&format!("/v1/threads?{}", query_string(asked))).await?;
            show_rows(out, &page, &["id", "latest", "messages", "emails", "~holder", "~subject"], |thread| {
                let fields = ["id", "latest_at", "messages", "emails"].map(|name| field_text(thread, name));
                [fields.as_slice(), &[display_text(&thread["lease"]["holder"]), display_text(&thread["subject"])]]
                    .concat()
            });
        }
        ThreadVerb::Show { reach, thread } => {
            let view = CliClient::find(&reach)?.get(&thread_path(&thread)).await?;
            show(out, &view, THREAD_FIELDS);
            if !out.is_json() {
                show_lease(out, &view);
                show_entries(out, &view);
            }
        }
        ThreadVerb::Lease { reach, thread, holder, ttl, token } => {
            let body = json!({ "holder": holder, "ttl_s": ttl, "token": token });
            let path = format!("{}/lease", thread_path(&thread));
            let (_, lease) = CliClient::find(&reach)?.call(Method::POST, &path, None, Some(&body)).await?;
            show(out, &lease, &["token", "fence", "holder", "expires_at"]);
        }
        ThreadVerb::Release { reach, thread, token } => {
            let path = format!("{}/lease", thread_path(&thread));
            let body = json!({ "token": token });
            let (_, view) = CliClient::find(&reach)?.call(Method::DELETE, &path, None, Some(&body)).await?;
            show(out, &view, THREAD_FIELDS);
        }
        ThreadVerb::Done { reach, thread } => {
            let body = json!({ "handled": true });
            let (_, view) =
                CliClient::find(&reach)?.call(Method::PATCH, &thread_path(&thread), None, Some(&body)).await?;
            show(out, &view, THREAD_FIELDS);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Who works on a thread, and how often it was answered.
fn show_lease(out: &Printer, view: &Value) {
    let (lease, replies) = (&view["lease"], &view["replies"]);
    let [window, today, in_all] = ["in_window", "today", "in_all"].map(|name| field_text(replies, name));
    let mut facts = vec![("answers", format!("{window} of late, {today} today, {in_all} in all"))];
    if !lease.is_null() {
        facts.push(("holder", display_text(&lease["holder"])));
        facts.push(("held_until", field_text(lease, "expires_at")));
    }
    out.print_fields(&facts);
}

/// What was decided about a question, once it is.
fn show_decision(out: &Printer, view: &Value) {
    let decided = &view["decided"];
    if !decided.is_null() {
        let facts: Vec<(&str, String)> = ["as", "reason", "at", "by"]
            .map(|name| (if name == "as" { "decided" } else { name }, field_text(decided, name)))
            .into();
        out.print_fields(&facts);
    }
}

fn show_entries(out: &Printer, view: &Value) {
    let said = view["said"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |said: &Value| {
        let (message, email) = (&said["message"], &said["email"]);
        if said["type"] == "message" {
            let said = [&message["from"]["address"], &message["state"], &message["subject"]].map(display_text);
            [&[field_text(message, "received_at")], said.as_slice()].concat()
        } else {
            ["created_at", "from", "state", "subject"].map(|name| field_text(email, name)).to_vec()
        }
    };
    out.print_line("");
    out.print_table(&["when", "~who", "state", "~subject"], said.iter().map(row).collect());
}

#[derive(Debug, Subcommand)]
pub(crate) enum EscalationsVerb {
    /// List questions, newest first
    List {
        #[command(flatten)]
        reach: ServerArgs,
        /// open, resolved, expired or moot
        #[arg(long, default_value = "open")]
        state: String,
        /// Every state
        #[arg(long, conflicts_with = "state")]
        all: bool,
    },
    /// Show one question, with the email that waits and what it looks like
    Show {
        #[command(flatten)]
        reach: ServerArgs,
        /// The escalation's id
        id: String,
    },
    /// Decide a question
    Resolve(Box<ResolveEscalationArgs>),
}

/// A decision.
#[derive(Debug, Args)]
pub(crate) struct ResolveEscalationArgs {
    #[command(flatten)]
    reach: ServerArgs,
    /// The escalation's id
    id: String,
    /// release, edit, reject, sent, resend or abandon
    #[arg(long = "as", value_name = "DECISION")]
    decision: String,
    /// The rev that you saw; the latest when you do not say
    #[arg(long)]
    rev: Option<u32>,
    /// Another subject, with `--as edit`
    #[arg(long)]
    subject: Option<String>,
    /// Another text, with `--as edit`
    #[arg(long)]
    text: Option<String>,
    /// The digest of what `show` printed; the decision is refused if anything else would be sent
    #[arg(long)]
    digest: Option<String>,
    /// Another page, with `--as edit`
    #[arg(long)]
    html: Option<String>,
    /// Why
    #[arg(long)]
    reason: Option<String>,
}

const ESCALATION_FIELDS: &[&str] = &["id", "rev", "state", "reason", "choices", "created_at", "expires_at", "done_at"];

fn escalation_path(id: &str) -> String {
    format!("/v1/escalations/{}", percent_encode(id))
}

/// Verbs about questions for people.
pub(super) async fn escalations(out: &Printer, verb: EscalationsVerb) -> anyhow::Result<ExitCode> {
    match verb {
        EscalationsVerb::List { reach, state, all } => {
            let asked = [("state", Some(state).filter(|_| !all)), ("limit", Some("100".into()))];
            let page = CliClient::find(&reach)?.get(&format!("/v1/escalations?{}", query_string(asked))).await?;
            show_rows(out, &page, &["id", "asked", "reason", "state", "about"], |one| {
                let fields = ["id", "created_at", "reason", "state"].map(|name| field_text(one, name));
                [fields.as_slice(), &[subject_summary(&one["about"])]].concat()
            });
        }
        EscalationsVerb::Show { reach, id } => {
            let view = CliClient::find(&reach)?.get(&escalation_path(&id)).await?;
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

/// What a question is about, in a few words.
fn subject_summary(about: &Value) -> String {
    let named = ["email", "message", "thread", "inbox"].into_iter().find(|name| !about[*name].is_null());
    named.map_or_else(|| "-".to_owned(), |name| format!("{name} {}", display_text(&about[name])))
}

fn show_held_email(out: &Printer, view: &Value) {
    let draft = &view["draft"];
    let about = &view["about"];
    let facts = [
        ("email", &about["email"]),
        ("message", &about["message"]),
        ("thread", &about["thread"]),
        ("inbox", &about["inbox"]),
        ("rule", &about["rule"]["name"]),
        ("rule_id", &about["rule"]["id"]),
        ("question", &about["question"]),
        ("digest", &draft["digest"]),
    ];
    let known = facts.into_iter().filter(|(_, value)| !value.is_null());
    out.print_fields(&known.map(|(name, value)| (name, display_text(value))).collect::<Vec<_>>());
    if let Some(shown) = draft["shown"].as_str() {
        out.print_line("");
        out.print_line(&sanitize(shown, true));
    }
    let diff = view["looks_like"]["diff"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !diff.is_empty() {
        out.print_line(&out.dim("\nIt looks like this mail, which was sent:"));
        diff.iter().filter_map(Value::as_str).for_each(|line| out.print_line(&sanitize(line, false)));
    }
}

async fn resolve(out: &Printer, args: ResolveEscalationArgs) -> anyhow::Result<()> {
    let client = CliClient::find(&args.reach)?;
    let path = escalation_path(&args.id);
    let seen = client.get(&path).await?;
    let rev = args.rev.map_or_else(|| seen["rev"].clone(), |rev| json!(rev));
    let digest = args.digest.map_or_else(|| seen["draft"]["digest"].clone(), |digest| json!(digest));
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
