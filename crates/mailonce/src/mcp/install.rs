//! `mailonce mcp install`: tells the usual clients where the tools are, after showing what it would write.

use anyhow::Context as _;
use clap::{Args, ValueEnum as _};
use serde_json::{Map, Value, json};
use std::{
    fs::{self, Permissions},
    io::{ErrorKind, IsTerminal as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use super::{
    clients::{Client, Command},
    message::Request,
    stdio,
};
use crate::cli::{Reach, Usage, env, exit, out::Out, out::say};

/// How long a look at the server may take. It only says what is still to be done.
const LOOK: Duration = Duration::from_secs(3);
/// A file that its owner alone reads.
const PRIVATE: u32 = 0o600;

/// Whom to tell.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    reach: Reach,
    /// Which client; all whose folder is found here when none is named
    #[arg(long = "client", value_enum)]
    clients: Vec<Client>,
    /// Write without asking
    #[arg(long)]
    yes: bool,
}

/// What a client's file is to hold.
struct Change {
    client: Client,
    path: PathBuf,
    text: String,
}

/// What is to be done, and whom it cannot be done for.
#[derive(Default)]
struct Plan {
    changes: Vec<Change>,
    left: Vec<(Client, PathBuf, String)>,
}

/// Shows what would be written, asks, and writes. A client whose file cannot be changed keeps no other from it.
pub(crate) async fn install(out: &Out, args: &InstallArgs) -> anyhow::Result<ExitCode> {
    let home = env("HOME").map(PathBuf::from).ok_or_else(|| Usage("HOME is not set".into()))?;
    let here = std::env::current_dir().context("finding this folder")?;
    let command = Command::of(&args.reach, &here)?;
    let found = |client: &Client| client.place(&home, &here).1.exists();
    let clients: Vec<Client> = if args.clients.is_empty() {
        Client::value_variants().iter().copied().filter(found).collect()
    } else {
        args.clients.clone()
    };
    let server = json!({ "mcpServers": { "mailonce": command.json() } });
    if clients.is_empty() {
        say("No client was found here. Name one with --client, or give yours this server:");
        out.line(&serde_json::to_string_pretty(&server)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut plan = Plan::default();
    for client in clients {
        plan.add(client, client.place(&home, &here).0, &command);
    }
    plan.show(&server, command.secret())?;
    let mut written = Vec::new();
    if !plan.changes.is_empty() && (args.yes || agreed()?) {
        written = plan.write(&here, command.secret().is_some());
        if let Some(next) = still_missing(&args.reach).await {
            say(&next);
        }
        say("Start the client anew, then ask it: what is the newest mail in my inbox?");
    }
    tell(out, &written, &plan.left);
    Ok(if plan.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

impl Plan {
    fn add(&mut self, client: Client, path: PathBuf, command: &Command) {
        // A file that is a link to another stays one.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let old = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            read => read.context("it cannot be read"),
        };
        match old.and_then(|old| Ok((client.written(&old, command)?, old))) {
            Ok((text, old)) if text == old => say(&format!("{}: {} has it already", client.name(), path.display())),
            Ok((text, _)) => self.changes.push(Change { client, path, text }),
            Err(error) => self.leave(client, path, &error),
        }
    }

    fn leave(&mut self, client: Client, path: PathBuf, error: &anyhow::Error) {
        let why = format!("{error:#}");
        say(&format!("{}: {} is left as it is: {why}", client.name(), path.display()));
        self.left.push((client, path, why));
    }

    /// Prints where something would be written and what, without secrets: ours, or those that a file has already.
    fn show(&self, server: &Value, secret: Option<&str>) -> anyhow::Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        for Change { client, path, .. } in &self.changes {
            say(&format!("{}: {}", client.name(), path.display()));
        }
        let text = serde_json::to_string_pretty(server)?;
        let shown = secret.map_or_else(|| text.clone(), |secret| text.replace(secret, "…"));
        say(&format!("would each get this server, in their own form; everything else stays:\n\n{shown}\n"));
        Ok(())
    }

    /// Writes the files. Those that were written.
    fn write(&mut self, here: &Path, secret: bool) -> Vec<(Client, PathBuf)> {
        let mut written = Vec::new();
        for Change { client, path, text } in std::mem::take(&mut self.changes) {
            match write(&path, &text, secret) {
                Ok(()) => {
                    if secret && path.starts_with(here) {
                        say(&format!("{} holds your key: keep it out of version control", path.display()));
                    }
                    written.push((client, path));
                }
                Err(error) => self.leave(client, path, &error),
            }
        }
        written
    }
}

fn tell(out: &Out, written: &[(Client, PathBuf)], left: &[(Client, PathBuf, String)]) {
    if !out.is_json() {
        return written.iter().for_each(|(client, path)| out.line(&format!("{} {}", client.name(), path.display())));
    }
    let written: Vec<Value> =
        written.iter().map(|(client, path)| json!({ "client": client.name(), "path": path })).collect();
    let left: Vec<Value> =
        left.iter().map(|(client, path, why)| json!({ "client": client.name(), "path": path, "why": why })).collect();
    out.value(&json!({ "written": written, "left": left }));
}

/// What stands between a client and its first call, as far as it can be seen from here.
async fn still_missing(reach: &Reach) -> Option<String> {
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let request = Request { id: json!(1), method: "ping".into(), params: Map::new() };
    let asked = stdio::ask(reach, &request, ping.to_string().into_bytes());
    match tokio::time::timeout(LOOK, asked).await {
        Ok(Ok(answer)) if answer.status == 200 => None,
        Ok(Ok(answer)) if answer.status == 401 => Some(
            "The server does not know this key: set MAILONCE_API_KEY to one that it knows, and install again.".into(),
        ),
        Ok(Ok(answer)) => Some(format!("The server answers {} at /mcp: is it a mailonce?", answer.status)),
        Ok(Err(_)) | Err(_) => Some("Nothing answers there now: start the server before you use a client.".into()),
    }
}

fn agreed() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        say("Nothing was written. Pass --yes to write it.");
        return Ok(false);
    }
    write!(std::io::stderr(), "Write it? [y/N] ").context("asking")?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("reading the answer")?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Writes beside the file and puts it in its place, so that a half-written one is never read. What holds a key is for
/// its owner alone, whatever it was before.
fn write(path: &Path, text: &str, secret: bool) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = folder.join(format!(".{name}.mailonce"));
    let was = fs::metadata(path).ok().map(|about| about.permissions().mode() & 0o777);
    let mode = was.filter(|_| !secret).unwrap_or(PRIVATE);
    if let Err(error) = fs::remove_file(&fresh)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("removing {}", fresh.display()));
    }
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(&fresh);
    opened
        .and_then(|mut file| {
            file.write_all(text.as_bytes()).and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        })
        .with_context(|| format!("writing {}", fresh.display()))?;
    fs::rename(&fresh, path).with_context(|| format!("writing {}", path.display()))?;
    if let Some(was) = was.filter(|was| secret && was & 0o077 != 0) {
        say(&format!("{} holds your key: only you can read it now (its mode was {was:o})", path.display()));
    }
    Ok(())
}
