//! `mailonce mcp install`: tells the usual clients where the tools are, after showing what it would write.

use anyhow::Context as _;
use clap::{Args, ValueEnum as _};
use mailonce_core::access::team::ApiKeyScope;
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
    clients::{LaunchCommand, McpClient},
    stdio,
};
use crate::cli::{
    ServerArgs, UsageError,
    client::{CliClient as Server, ServerProblem},
    env, exit,
    printer::{Printer, print_stderr},
    run_server::AGENT_SCOPES,
};
use crate::mcp::json_rpc::RpcRequest;

/// How long a look at the server may take. It only says what is still to be done.
const SERVER_CHECK_TIMEOUT: Duration = Duration::from_secs(3);
/// Stands for a key that is made when it is agreed to.
const NEW_KEY_PLACEHOLDER: &str = "(a key for agents, made now)";
/// A file that its owner alone reads.
const PRIVATE_MODE: u32 = 0o600;

/// Whom to tell.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    reach: ServerArgs,
    /// Which client; all whose folder is found here when none is named
    #[arg(long = "client", value_enum)]
    clients: Vec<McpClient>,
    /// Write without asking
    #[arg(long)]
    yes: bool,
}

/// A client's file that is to be written.
struct ConfigChange {
    client: McpClient,
    path: PathBuf,
    /// What it holds now.
    old: String,
}

/// What is to be done, and whom it cannot be done for.
#[derive(Default)]
struct InstallPlan {
    changes: Vec<ConfigChange>,
    skipped: Vec<(McpClient, PathBuf, String)>,
}

/// Whose key a client gets. A model never gets one that decides.
enum ClientCredential {
    /// The one that a `dev` keeps for agents: it is found there, and not written.
    DevAgentKey,
    /// One that decides nothing.
    Existing(String),
    /// One that is made first, by a key that decides.
    ToCreate,
}

/// Shows what would be written, asks, and writes. A client whose file cannot be changed keeps no other from it.
pub(crate) async fn install(out: &Printer, args: &InstallArgs) -> anyhow::Result<ExitCode> {
    let home = env("HOME").map(PathBuf::from).ok_or_else(|| UsageError("HOME is not set".into()))?;
    let here = std::env::current_dir().context("finding this folder")?;
    let (command, given) = LaunchCommand::for_server(&args.reach, &here)?;
    let place = |client: &McpClient| client.config_paths(&home, &here);
    let credential =
        choose_credential(&args.reach, &command, given, || written_keys(&command, |client| place(client).0)).await?;
    let shown = match &credential {
        ClientCredential::DevAgentKey => command.clone(),
        ClientCredential::Existing(key) => command.clone().with_key(key),
        ClientCredential::ToCreate => command.clone().with_key(NEW_KEY_PLACEHOLDER),
    };
    let clients: Vec<McpClient> = if args.clients.is_empty() {
        McpClient::value_variants().iter().copied().filter(|client| place(client).1.exists()).collect()
    } else {
        args.clients.clone()
    };
    if clients.is_empty() {
        print_stderr("No client was found here. Name one with --client, or give yours this server:");
        out.print_line(&serde_json::to_string_pretty(&json!({ "mcpServers": { "mailonce": shown.json() } }))?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut plan = InstallPlan::default();
    clients.into_iter().for_each(|client| plan.add(client, place(&client).0, &shown));
    plan.show(&shown)?;
    let mut written = Vec::new();
    if !plan.changes.is_empty() && (args.yes || confirm()?) {
        let (command, reach) = match credential {
            ClientCredential::ToCreate => {
                let key = create_agent_key(&args.reach).await?;
                (command.with_key(&key), ServerArgs { api_key: Some(key), ..args.reach.clone() })
            }
            ClientCredential::Existing(key) => (shown, ServerArgs { api_key: Some(key), ..args.reach.clone() }),
            ClientCredential::DevAgentKey => (shown, ServerArgs { api_key: None, ..args.reach.clone() }),
        };
        written = plan.write(&command, &here);
        if let Some(next) = missing_setup(&reach).await {
            print_stderr(&next);
        }
        print_stderr("Start the client anew, then ask it: what is the newest mail in my inbox?");
    }
    report(out, &written, &plan.skipped);
    Ok(if plan.skipped.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// Finds out whose key clients get: the server says what the one that was given may do. One that an earlier install made
/// is taken again.
async fn choose_credential(
    reach: &ServerArgs,
    command: &LaunchCommand,
    given: Option<String>,
    written: impl FnOnce() -> Vec<String>,
) -> anyhow::Result<ClientCredential> {
    let Some(given) = given else { return Ok(ClientCredential::DevAgentKey) };
    if !has_admin_scope(reach, &given).await? {
        return Ok(ClientCredential::Existing(given));
    }
    if command.is_dev() {
        return Ok(ClientCredential::DevAgentKey);
    }
    for key in written() {
        if matches!(has_admin_scope(reach, &key).await, Ok(false)) {
            return Ok(ClientCredential::Existing(key));
        }
    }
    Ok(ClientCredential::ToCreate)
}

/// Whether a key may do more than an agent.
async fn has_admin_scope(reach: &ServerArgs, key: &str) -> anyhow::Result<bool> {
    let client = Server::find(&ServerArgs { api_key: Some(key.to_owned()), ..reach.clone() })?;
    match client.get("/v1/api-keys").await {
        Ok(_) => Ok(true),
        Err(error) if error.downcast_ref::<ServerProblem>().is_some_and(|told| told.0["code"] == "wrong_scope") => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Keys that stand in the clients' files for this very server.
fn written_keys(command: &LaunchCommand, path: impl Fn(&McpClient) -> PathBuf) -> Vec<String> {
    let key = |client: &McpClient| {
        let text = fs::read_to_string(path(client)).ok()?;
        command.key_in(&client.server_in(&text).ok()??)
    };
    McpClient::value_variants().iter().filter_map(key).collect()
}

/// Makes a key for agents.
async fn create_agent_key(reach: &ServerArgs) -> anyhow::Result<String> {
    let about = json!({ "name": "mcp install", "scopes": AGENT_SCOPES.map(ApiKeyScope::as_str) });
    let (_, made) = Server::find(reach)?.call(hyper::Method::POST, "/v1/api-keys", None, Some(&about)).await?;
    print_stderr(
        "An API key named `mcp install` was made for agents: it sends, reads and answers, and approves nothing.",
    );
    Ok(made["api_key"].as_str().context("the server told no key")?.to_owned())
}

impl InstallPlan {
    fn add(&mut self, client: McpClient, path: PathBuf, command: &LaunchCommand) {
        // A file that is a link to another stays one.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let old = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            read => read.context("it cannot be read"),
        };
        match old.and_then(|old| Ok((client.with_server(&old, command)?, old))) {
            Ok((text, old)) if text == old => {
                print_stderr(&format!("{}: {} has it already", client.name(), path.display()))
            }
            Ok((_, old)) => self.changes.push(ConfigChange { client, path, old }),
            Err(error) => self.skip(client, path, &error),
        }
    }

    fn skip(&mut self, client: McpClient, path: PathBuf, error: &anyhow::Error) {
        let why = format!("{error:#}");
        print_stderr(&format!("{}: {} is left as it is: {why}", client.name(), path.display()));
        self.skipped.push((client, path, why));
    }

    /// Prints where something would be written and what, without secrets: ours, or those that a file has already.
    fn show(&self, command: &LaunchCommand) -> anyhow::Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        for ConfigChange { client, path, .. } in &self.changes {
            print_stderr(&format!("{}: {}, {}", client.name(), path.display(), client.config_scope()));
        }
        let text =
            serde_json::to_string_pretty(&json!({ "mcpServers": { "mailonce": redact_environment(command.json()) } }))?;
        print_stderr(&format!("would each get this server, in their own form; everything else stays:\n\n{text}\n"));
        for ConfigChange { client, path, old } in &self.changes {
            if let Some(there) = client.server_in(old)? {
                let change = diff(&redact_environment(there), &redact_environment(client.server_entry(command)))?;
                print_stderr(&format!("{} has a server of this name, which changes:\n\n{change}\n", path.display()));
            }
        }
        Ok(())
    }

    /// Writes the files. Those that were written.
    fn write(&mut self, command: &LaunchCommand, here: &Path) -> Vec<(McpClient, PathBuf)> {
        let secret = command.has_key();
        let mut written = Vec::new();
        for ConfigChange { client, path, old } in std::mem::take(&mut self.changes) {
            match client.with_server(&old, command).and_then(|text| write(&path, &text, secret)) {
                Ok(()) => {
                    if secret && path.starts_with(here) {
                        print_stderr(&format!("{} holds a key: keep it out of version control", path.display()));
                    }
                    written.push((client, path));
                }
                Err(error) => self.skip(client, path, &error),
            }
        }
        written
    }
}

/// A server without what its environment keeps secret. Of what we do not know, everything may be.
fn redact_environment(mut server: Value) -> Value {
    for (name, value) in server["env"].as_object_mut().into_iter().flatten() {
        let is_known = matches!(name.as_str(), "MAILONCE_URL" | "MAILONCE_CA_FILE");
        if !is_known && value.as_str() != Some(NEW_KEY_PLACEHOLDER) {
            *value = json!("…");
        }
    }
    server
}

/// The lines that go and come.
fn diff(old: &Value, new: &Value) -> anyhow::Result<String> {
    let (old, new) = (serde_json::to_string_pretty(old)?, serde_json::to_string_pretty(new)?);
    let gone = old.lines().filter(|line| !new.lines().any(|other| other == *line)).map(|line| format!("- {line}"));
    let mark = |line: &str| if old.lines().any(|other| other == line) { ' ' } else { '+' };
    let lines: Vec<String> = gone.chain(new.lines().map(|line| format!("{} {line}", mark(line)))).collect();
    Ok(if old == new { "  only what is secret in it".to_owned() } else { lines.join("\n") })
}

fn report(out: &Printer, written: &[(McpClient, PathBuf)], left: &[(McpClient, PathBuf, String)]) {
    if !out.is_json() {
        return written
            .iter()
            .for_each(|(client, path)| out.print_line(&format!("{} {}", client.name(), path.display())));
    }
    let written: Vec<Value> =
        written.iter().map(|(client, path)| json!({ "client": client.name(), "path": path })).collect();
    let left: Vec<Value> =
        left.iter().map(|(client, path, why)| json!({ "client": client.name(), "path": path, "why": why })).collect();
    out.print_json(&json!({ "written": written, "left": left }));
}

/// What stands between a client and its first call, as far as it can be seen from here.
async fn missing_setup(reach: &ServerArgs) -> Option<String> {
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let request = RpcRequest { id: json!(1), method: "ping".into(), params: Map::new() };
    let asked = stdio::post(reach, &request, ping.to_string().into_bytes());
    match tokio::time::timeout(SERVER_CHECK_TIMEOUT, asked).await {
        Ok(Ok(answer)) if answer.status == 200 => None,
        Ok(Ok(answer)) if answer.status == 401 => {
            Some("The server does not know the agents' key: start `mailonce dev` anew, which makes one.".into())
        }
        Ok(Ok(answer)) => Some(format!("The server answers {} at /mcp: is it a mailonce?", answer.status)),
        Ok(Err(_)) | Err(_) => Some("Nothing answers there now: start the server before you use a client.".into()),
    }
}

fn confirm() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        print_stderr("Nothing was written. Pass --yes to write it.");
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
    let mode = was.filter(|_| !secret).unwrap_or(PRIVATE_MODE);
    if let Err(error) = fs::remove_file(&fresh)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("removing {}", fresh.display()));
    }
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE_MODE).open(&fresh);
    opened
        .and_then(|mut file| {
            file.write_all(text.as_bytes()).and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        })
        .with_context(|| format!("writing {}", fresh.display()))?;
    fs::rename(&fresh, path).with_context(|| format!("writing {}", path.display()))?;
    if let Some(was) = was.filter(|was| secret && was & 0o077 != 0) {
        print_stderr(&format!("{} holds a key: only you can read it now (its mode was {was:o})", path.display()));
    }
    Ok(())
}
