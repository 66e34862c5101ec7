//! `simulate inbound`: delivers a mail to an inbox through the SMTP listener.

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, Subcommand};
use mailonce_core::{
    address::{Address, NamedAddress},
    handoff::{reply::ReplyMeaning, transport_request::FrozenEnvelope},
    id::{EmailId, TeamId},
    ports::{Entropy as _, transport::Transport as _},
};
use mailonce_transport::smtp::{RelayConfig, SmtpTransport, TlsMode};
use serde_json::json;
use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::ExitCode,
};
use uuid::Uuid;

use super::{UsageError, client::read_dev_file};
use crate::{
    cli::{
        error::CliError,
        printer::{Printer, print_stderr},
    },
    config::default_data_dir,
    entropy::OsEntropy,
};

/// Size limit of a mail from a file or stdin.
const MAIL_BYTES: u64 = mailonce_core::limits::INBOUND_MAIL_BYTES as u64;

#[derive(Debug, Subcommand)]
pub(crate) enum SimulateVerb {
    /// Deliver a mail to an inbox: from a template, a file, or stdin (`-`)
    Inbound(InboundArgs),
}

/// The mail to deliver.
#[derive(Debug, Args)]
pub(crate) struct InboundArgs {
    /// Address of the recipient
    #[arg(long, default_value = "agent@mailonce.test")]
    to: String,
    /// Address of the sender
    #[arg(long, default_value = "no-reply@example.com")]
    from: String,
    /// Subject
    #[arg(long)]
    subject: Option<String>,
    /// Text
    #[arg(long)]
    text: Option<String>,
    /// Include a one-time code; a random one without a value
    #[arg(long, num_args = 0..=1, default_missing_value = "")]
    code: Option<String>,
    /// Include a link; an example without a value
    #[arg(long, num_args = 0..=1, default_missing_value = "")]
    link: Option<String>,
    /// Deliver the same mail this number of times
    #[arg(long, default_value_t = 1, value_name = "N")]
    duplicate: u32,
    /// File with a complete mail, instead of the template; `-` reads stdin
    #[arg(conflicts_with_all = ["subject", "text", "code", "link"])]
    file: Option<PathBuf>,
    /// Address of the SMTP listener; default: that of the running `mailonce dev`
    #[arg(long, env = "MAILONCE_SMTP_LISTEN", value_name = "ADDR")]
    smtp: Option<String>,
    /// Data directory of the running `mailonce dev`
    #[arg(long, env = "MAILONCE_DATA", value_name = "DIR", default_value_os_t = default_data_dir())]
    data: PathBuf,
}

/// Runs a verb of `simulate`.
pub(super) async fn simulate(out: &Printer, verb: SimulateVerb) -> anyhow::Result<ExitCode> {
    let SimulateVerb::Inbound(args) = verb;
    let mailbox = |flag: &str, text: &str| {
        NamedAddress::parse(text).map_err(|error| UsageError(format!("--{flag} {text} {error}")))
    };
    let (sender, reader) = (mailbox("from", &args.from)?, mailbox("to", &args.to)?);
    let address = |text: &str| Address::parse(text).map_err(|error| UsageError(format!("{text} {error}")));
    let (from, to) = (address(&sender.address)?, address(&reader.address)?);
    let SimulatedMail { raw, code, link } = build_mail(&args, &sender, &from, &reader)?;
    let smtp = match &args.smtp {
        Some(smtp) if smtp != "off" => smtp.clone(),
        _ => dev_smtp_address(&args.data)?,
    };
    for _ in 0..args.duplicate.max(1) {
        if let Err(reply) = deliver(&smtp, &from, &to, &raw).await? {
            let next = "create the inbox first: `mailonce inbox create --address ADDRESS`";
            return Err(CliError::new(
                "not_taken",
                format!("{to} did not accept the mail: {reply}", to = to.as_str()),
                next,
            )
            .into());
        }
    }
    let count = args.duplicate.max(1);
    if out.is_json() {
        out.print_json(&json!({ "to": to.as_str(), "delivered": count, "code": code, "link": link }));
    } else {
        let times = if count == 1 { String::new() } else { format!(", {count} times") };
        out.print_line(&format!("delivered to {}{times}", to.as_str()));
        let artifacts = [("code", code), ("link", link)];
        artifacts.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))).for_each(|(name, value)| {
            out.print_line(&format!("{name} {value}"));
            print_stderr(&format!("Take it: mailonce take {} --type {name} --for signup-1", to.as_str()));
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// The SMTP address of the running `dev`.
fn dev_smtp_address(data: &Path) -> Result<String, CliError> {
    let none = |detail: &str, next: &str| Err(CliError::new("no_server", detail, next));
    match read_dev_file(data).map(|dev| dev.smtp) {
        Ok(Some(smtp)) => Ok(smtp),
        Ok(None) => {
            none("SMTP is off in the running `mailonce dev`", "start it without `--smtp off`, or pass --smtp ADDR")
        }
        Err(_) => none("no running `mailonce dev` was found", "start `mailonce dev` here, or pass --smtp ADDR"),
    }
}

struct SimulatedMail {
    raw: Vec<u8>,
    code: Option<String>,
    link: Option<String>,
}

/// Builds the mail, or reads it from the given file.
fn build_mail(
    args: &InboundArgs,
    sender: &NamedAddress,
    from: &Address,
    to: &NamedAddress,
) -> anyhow::Result<SimulatedMail> {
    if let Some(file) = &args.file {
        let mut raw = Vec::new();
        if file.as_os_str() == "-" {
            std::io::stdin().take(MAIL_BYTES).read_to_end(&mut raw)?;
        } else {
            let opened = std::fs::File::open(file).with_context(|| format!("reading {}", file.display()))?;
            opened.take(MAIL_BYTES).read_to_end(&mut raw)?;
        }
        return Ok(SimulatedMail { raw: to_crlf(&raw), code: None, link: None });
    }
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let random = random_number();
    let code = args.code.clone().map(|code| if code.is_empty() { format!("{:06}", random % 1_000_000) } else { code });
    let example = || format!("https://{}/verify?token={:016x}", from.domain(), random as u64);
    let link = args.link.clone().map(|link| if link.is_empty() { example() } else { link });
    let about_code = code.as_ref().map(|code| format!("Your verification code is {code}.\nIt expires in 10 minutes."));
    let about_link = link.as_ref().map(|link| format!("Please confirm your email address:\n{link}"));
    let paragraphs: Vec<String> = [args.text.clone(), about_code, about_link].into_iter().flatten().collect();
    let body = if paragraphs.is_empty() { "Hello, this is a simulated mail.".into() } else { paragraphs.join("\n\n") };
    let default_subject = if code.is_some() {
        "Your verification code"
    } else if link.is_some() {
        "Please confirm your email address"
    } else {
        "Hello"
    };
    let subject = args.subject.clone().unwrap_or_else(|| default_subject.to_owned());
    let plain = |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let raw = format!(
        "From: {from}\nTo: {to}\nSubject: {subject}\nDate: {date}\nMessage-ID: <{random:032x}@{domain}>\n\
         MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n{body}\n",
        from = header_mailbox(sender),
        to = header_mailbox(to),
        subject = plain(&subject),
        date = jiff::fmt::rfc2822::to_string(&now)?,
        domain = from.domain(),
    );
    Ok(SimulatedMail { raw: to_crlf(raw.as_bytes()), code, link })
}

/// A mailbox in header syntax.
fn header_mailbox(mailbox: &NamedAddress) -> String {
    let NamedAddress { name, address } = mailbox;
    match name {
        None => address.clone(),
        Some(name) if name.is_ascii() => {
            format!("\"{}\" <{address}>", name.replace('\\', "\\\\").replace('"', "\\\""))
        }
        Some(name) => format!("=?utf-8?b?{}?= <{address}>", STANDARD.encode(name)),
    }
}

/// A random number.
fn random_number() -> u128 {
    let mut bytes = [0; 16];
    OsEntropy.fill(&mut bytes);
    u128::from_be_bytes(bytes)
}

/// Converts line ends to CRLF.
fn to_crlf(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() + raw.len() / 32);
    for line in raw.split_inclusive(|byte| *byte == b'\n') {
        let bare = line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
        out.extend_from_slice(bare);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Delivers the mail. The inner error is the reply of the server.
async fn deliver(smtp: &str, from: &Address, to: &Address, raw: &[u8]) -> anyhow::Result<Result<(), String>> {
    let (host, port) = smtp.rsplit_once(':').context("--smtp must be host:port")?;
    let mut config = RelayConfig::new("simulate", host, port.parse().context("--smtp must be host:port")?);
    config.tls = TlsMode::None;
    let client = SmtpTransport::new(config)?;
    let id = Uuid::from_u128(random_number());
    let envelope = FrozenEnvelope {
        team: TeamId(id),
        email: EmailId(id),
        handoff: 0,
        attempt: 1,
        return_path: from.as_str().to_owned(),
        envelope_id: id.to_string(),
        recipients: vec![to.as_str().to_owned()],
        key: id,
        bytes: raw.into(),
    };
    let reply = match client.prepare(envelope).await {
        Ok(ready) => ready.hand_over().await,
        Err(reply) => reply,
    };
    Ok(if reply.meaning == ReplyMeaning::Accepted { Ok(()) } else { Err(reply.text) })
}
