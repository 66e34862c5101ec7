//! `audit`: list, export and verify the audit log.
//!
//! `verify` computes every hash on this machine, from what the server or an export shows. It does not trust the server's
//! own check.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use mailonce_core::{
    access::call_origin::{Actor, ActorKind},
    control::audit::{
        AuditEntry, MAX_PAGE, NewAuditEntry,
        chain::{ChainLink, ChainVerifier},
    },
    hex::{format_hash, parse_hash},
    id::TeamId,
    time::Time,
};
use mailonce_transport::http::base::percent_encode;
use serde_json::{Value, json};
use std::{collections::VecDeque, io::BufRead as _, path::PathBuf, process::ExitCode};

use super::{ServerArgs, UsageError, client::CliClient, exit, listing::show_rows};
use crate::cli::printer::{Printer, display_text, field_text, print_stderr};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Show the latest entries: who did what, when and from where
    List(ListArgs),
    /// Print every entry as a line of JSON, without the names of people and addresses
    Export(ExportArgs),
    /// Check that no entry was changed or removed
    Verify(VerifyArgs),
}

/// Which entries to show.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Number of entries
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// The first entries after this number, instead of the latest
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Only acts of this API key or person, by id
    #[arg(long, value_name = "ID")]
    actor: Option<String>,
    /// Only this action, such as `rule.changed` or `rule.*`
    #[arg(long)]
    action: Option<String>,
    /// Only acts on this resource, by id
    #[arg(long, value_name = "ID")]
    about: Option<String>,
}

/// Which entries to print.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Only entries after this number, to continue an earlier export
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
}

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Check this export instead of a server; `-` reads stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Check that the log contains an entry with this hash, which was noted elsewhere
    #[arg(long, value_name = "HASH")]
    head: Option<String>,
}

/// Lists, exports or verifies the audit log.
pub(super) async fn audit(out: &Printer, verb: AuditVerb) -> anyhow::Result<ExitCode> {
    match verb {
        AuditVerb::List(args) => list(out, args).await,
        AuditVerb::Export(args) => export(out, args).await,
        AuditVerb::Verify(args) => verify(out, args).await,
    }
}

async fn fetch_page(client: &CliClient, after: u64, limit: usize, filter: &FilterArgs) -> anyhow::Result<Value> {
    let given = [("actor", &filter.actor), ("action", &filter.action), ("about", &filter.about)];
    let given = given.iter().filter_map(|(name, value)| Some(format!("&{name}={}", percent_encode(value.as_ref()?))));
    client.get(&format!("/v1/audit?after={after}&limit={limit}{}", given.collect::<String>())).await
}

fn rows(page: &Value) -> &[Value] {
    page["data"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn next_cursor(page: &Value) -> Option<u64> {
    page["next_cursor"].as_str()?.parse().ok()
}

const UNFILTERED: FilterArgs = FilterArgs { actor: None, action: None, about: None };

async fn list(out: &Printer, args: ListArgs) -> anyhow::Result<ExitCode> {
    let client = CliClient::find(&args.server)?;
    let limit = usize::from(args.limit);
    let page = match args.after {
        Some(after) => fetch_page(&client, after, limit, &args.filter).await?,
        None => latest(&client, limit, &args.filter).await?,
    };
    show_rows(out, &page, &["seq", "at", "~actor", "~from", "action", "~about", "~change"], |entry| {
        let name = |id: &Value| {
            let id = id.as_str().unwrap_or_default();
            display_text(entry["names"].get(id).unwrap_or(&Value::from(id)))
        };
        let about = about_text(entry, &name(&entry["about"]));
        let (at, action) = (field_text(entry, "at"), display_text(&entry["action"]));
        let (actor, from) = (name(&entry["actor"]["id"]), name(&entry["from"]));
        vec![entry["seq"].to_string(), at, actor, from, action, about, change_text(entry)]
    });
    if !out.is_json() && rows(&page).iter().any(|entry| !entry["fault"].is_null()) {
        print_stderr("The log is damaged. `mailonce audit verify` says where.");
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of what was changed, without its kind if the action says it already.
fn about_text(entry: &Value, name: &str) -> String {
    let (action, about) = (entry["action"].as_str().unwrap_or_default(), entry["about"].as_str().unwrap_or_default());
    let kind = about.split_once('/').map_or("", |(kind, _)| kind);
    let name = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('/')).unwrap_or(name);
    if action.split('.').next() == Some(kind) { name.to_owned() } else { format!("{kind} {name}") }
}

/// What changed, such as `enabled: true → false`.
fn change_text(entry: &Value) -> String {
    if let Some(fault) = entry["fault"].as_str() {
        return fault.to_owned();
    }
    let empty = serde_json::Map::new();
    let (before, after) = (entry["before"].as_object(), entry["after"].as_object());
    let (old, new) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    let text = |name: &&String| match (old.get(*name), new.get(*name)) {
        (Some(was), Some(is)) => format!("{name}: {} → {}", display_text(was), display_text(is)),
        (None, Some(is)) if before.is_some() && *name != "changed" => format!("{name}: - → {}", display_text(is)),
        (Some(was), None) if after.is_some() => format!("{name}: {} → -", display_text(was)),
        (was, is) => format!("{name}: {}", display_text(was.or(is).unwrap_or(&Value::Null))),
    };
    names.iter().map(text).collect::<Vec<_>>().join("; ")
}

/// The latest entries as one page.
async fn latest(client: &CliClient, limit: usize, filter: &FilterArgs) -> anyhow::Result<Value> {
    let is_filtered = filter.actor.is_some() || filter.action.is_some() || filter.about.is_some();
    let first = fetch_page(client, 0, 1, &UNFILTERED).await?;
    let head = first["head"]["seq"].as_u64().unwrap_or_default();
    let mut after = if is_filtered { 0 } else { head.saturating_sub(limit as u64) };
    let mut latest: VecDeque<Value> = VecDeque::new();
    loop {
        let mut page = fetch_page(client, after, MAX_PAGE, filter).await?;
        latest.extend(rows(&page).iter().cloned());
        latest.drain(..latest.len().saturating_sub(limit));
        let Some(next) = next_cursor(&page) else {
            page["data"] = latest.into_iter().collect();
            return Ok(page);
        };
        after = next;
    }
}

async fn export(out: &Printer, args: ExportArgs) -> anyhow::Result<ExitCode> {
    let client = CliClient::find(&args.server)?;
    let mut after = args.after;
    loop {
        let page = fetch_page(&client, after, MAX_PAGE, &UNFILTERED).await?;
        for entry in rows(&page) {
            let mut entry = entry.clone();
            entry["team"] = page["team"].clone();
            if let Some(fields) = entry.as_object_mut() {
                fields.remove("names");
                fields.retain(|name, value| name != "fault" || !value.is_null());
            }
            out.print_line(&entry.to_string());
        }
        let Some(next) = next_cursor(&page) else {
            // Without this line a verification could not tell a whole export from one that was cut.
            out.print_line(&json!({ "team": page["team"], "head": page["head"] }).to_string());
            return Ok(ExitCode::SUCCESS);
        };
        after = next;
    }
}

/// The entry that a line of JSON shows, and its hash. `None` when a field is missing or malformed.
fn parse_entry(entry: &Value, team: &Value) -> Option<(AuditEntry, [u8; 32])> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let json = |value: &Value| (!value.is_null()).then(|| value.to_string());
    let content = NewAuditEntry {
        at: Time::parse(entry["at"].as_str()?)?,
        actor: Actor { kind: ActorKind::parse(entry["actor"]["kind"].as_str()?)?, id: text(&entry["actor"]["id"])? },
        from: text(&entry["from"])?,
        action: text(&entry["action"])?,
        about: text(&entry["about"])?,
        before: json(&entry["before"]),
        after: json(&entry["after"]),
    };
    let team: TeamId = team.as_str()?.parse().ok()?;
    let prev = parse_hash(entry["prev"].as_str()?)?;
    let entry_hash = parse_hash(entry["hash"].as_str()?)?;
    Some((AuditEntry { team, seq: entry["seq"].as_u64()?, content, prev }, entry_hash))
}

fn parse_link(link: &Value) -> Option<ChainLink> {
    Some(ChainLink { seq: link["seq"].as_u64()?, hash: parse_hash(link["hash"].as_str()?)? })
}

/// The state of a verification.
struct Verification {
    /// `None` before the first entry of an export, which does not show where its chain starts.
    verifier: Option<ChainVerifier>,
    /// The hash of `--head`, and the number of the entry that has it.
    expected_head: Option<([u8; 32], Option<u64>)>,
    /// What is wrong.
    fault: Option<String>,
    entries: u64,
    /// Whether the last line of an export was the head of the log.
    is_complete: bool,
}

impl Verification {
    fn new(expected_head: Option<&str>) -> anyhow::Result<Self> {
        let parse = |text: &str| {
            let wrong = || UsageError(format!("--head {text} is not a hash of 64 hexadecimal digits"));
            parse_hash(text).map(|hash| (hash, None)).ok_or_else(wrong)
        };
        let expected_head = expected_head.map(parse).transpose()?;
        Ok(Self { verifier: None, expected_head, fault: None, entries: 0, is_complete: false })
    }

    /// Begins after this place.
    fn begin(&mut self, start: ChainLink) {
        self.verifier = Some(ChainVerifier::new(start));
        // Number 0 is no entry.
        if start.seq > 0 {
            self.match_expected_head(start);
        }
    }

    /// Records the number of the entry that has the hash of `--head`.
    fn match_expected_head(&mut self, link: ChainLink) {
        if let Some((hash, found @ None)) = &mut self.expected_head
            && *hash == link.hash
        {
            *found = Some(link.seq);
        }
    }

    /// Checks the next entry. The rest of a chain with a fault is not checked.
    fn check(&mut self, entry: &Value, team: &Value) {
        if self.fault.is_some() {
            return;
        }
        let seq = entry["seq"].as_u64().unwrap_or_default();
        let Some((parsed, hash)) = parse_entry(entry, team) else {
            self.fault = Some(format!("entry {seq} is damaged"));
            return;
        };
        // An export starts where it starts; what was before it cannot be checked.
        if self.verifier.is_none() {
            self.begin(ChainLink { seq: parsed.seq.saturating_sub(1), hash: parsed.prev });
        }
        // The server also checks the bytes that are stored, of which JSON shows only the meaning.
        if let Some(fault) = entry["fault"].as_str() {
            self.fault = Some(format!("entry {seq} {fault}"));
            return;
        }
        let Some(verifier) = &mut self.verifier else { return };
        self.fault = verifier.check(&parsed, hash).err().map(|fault| fault.to_string());
        self.entries += 1;
        self.match_expected_head(ChainLink { seq, hash });
    }

    /// Checks a line of an export: an entry, or the head of the log, with which every export ends.
    fn check_line(&mut self, line: &Value) {
        let Some(head) = line.get("head") else {
            self.is_complete = false;
            return self.check(line, &line["team"]);
        };
        match parse_link(head) {
            // The export of a log without newer entries.
            Some(head) if self.verifier.is_none() => self.begin(head),
            Some(head) => self.finish(head),
            None => self.fault = self.fault.take().or_else(|| Some("the head of the log is damaged".to_owned())),
        }
        self.is_complete = true;
    }

    /// Checks the end of the chain.
    fn finish(&mut self, head: ChainLink) {
        if let (None, Some(verifier)) = (&self.fault, &self.verifier) {
            self.fault = verifier.finish(head).err().map(|fault| fault.to_string());
        }
    }

    fn report(self, out: &Printer) -> ExitCode {
        let last = self.verifier.map(|verifier| verifier.last()).unwrap_or_default();
        let (is_intact, head) = (self.fault.is_none(), format_hash(&last.hash));
        let unknown_head = || "no entry has the hash of --head: the log was replaced, or it is another log".to_owned();
        let fault = self.fault.or_else(|| matches!(self.expected_head, Some((_, None))).then(unknown_head));
        let exit = ExitCode::from(if fault.is_none() { 0 } else { exit::DAMAGED });
        if out.is_json() {
            let head = json!({ "seq": last.seq, "hash": head });
            out.print_json(&json!({ "valid": fault.is_none(), "entries": self.entries, "fault": fault, "head": head }));
            return exit;
        }
        if let Some(fault) = fault {
            out.print_line(&format!("{} {fault}", out.red("failed")));
            if !is_intact {
                print_stderr(&format!("The entries up to {} are intact.", last.seq));
            }
            return exit;
        }
        out.print_line(&format!("{} the chain is intact", out.green("ok")));
        out.print_fields(&[("entries", self.entries.to_string()), ("head", format!("{} {head}", last.seq))]);
        match self.expected_head.and_then(|(_, seq)| seq) {
            Some(seq) => print_stderr(&format!("Entry {seq} has the hash of --head.")),
            None => {
                print_stderr("Note the head elsewhere. `mailonce audit verify --head HASH` then finds a replaced log.")
            }
        }
        exit
    }
}

async fn verify(out: &Printer, args: VerifyArgs) -> anyhow::Result<ExitCode> {
    let mut verification = Verification::new(args.head.as_deref())?;
    match &args.file {
        Some(file) => verify_file(&mut verification, file)?,
        None => verify_server(&mut verification, &CliClient::find(&args.server)?).await?,
    }
    Ok(verification.report(out))
}

async fn verify_server(verification: &mut Verification, client: &CliClient) -> anyhow::Result<()> {
    let mut after = 0;
    loop {
        let page = fetch_page(client, after, MAX_PAGE, &UNFILTERED).await?;
        if verification.verifier.is_none() {
            verification.begin(parse_link(&page["start"]).context("the server shows no start of the log")?);
        }
        for entry in rows(&page) {
            verification.check(entry, &page["team"]);
        }
        match next_cursor(&page) {
            Some(next) if verification.fault.is_none() => after = next,
            _ => {
                verification.finish(parse_link(&page["head"]).context("the server shows no head of the log")?);
                return Ok(());
            }
        }
    }
}

fn verify_file(verification: &mut Verification, file: &PathBuf) -> anyhow::Result<()> {
    let open = || -> std::io::Result<Box<dyn std::io::BufRead>> {
        if file.as_os_str() == "-" {
            return Ok(Box::new(std::io::stdin().lock()));
        }
        Ok(Box::new(std::io::BufReader::new(std::fs::File::open(file)?)))
    };
    let name = file.display().to_string();
    for (number, line) in (1_u64..).zip(open().with_context(|| name.clone())?.lines()) {
        let line = line.with_context(|| name.clone())?;
        match serde_json::from_str::<Value>(&line) {
            Ok(line) => verification.check_line(&line),
            Err(error) => {
                let fault = format!("line {number} is not JSON: {error}");
                verification.fault.get_or_insert(fault);
            }
        }
    }
    if !verification.is_complete {
        let fault = "the file does not end with the head of the log: its end is missing";
        verification.fault.get_or_insert_with(|| fault.to_owned());
    }
    Ok(())
}
