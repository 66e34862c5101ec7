//! `mailonce mcp install`: adds the mailonce server to the configuration of common MCP clients. It shows the changes
//! before it writes them.

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
    clients::{API_KEY, LaunchCommand, McpClient},
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

/// Timeout of the request that checks the server. It only decides which hint is printed.
const SERVER_CHECK_TIMEOUT: Duration = Duration::from_secs(3);
/// Shown in place of an API key that is created only after the user agrees.
const NEW_KEY_PLACEHOLDER: &str = "(a key for agents, made now)";
/// File mode: only the owner may read and write.
const PRIVATE_MODE: u32 = 0o600;

/// Arguments of `mailonce mcp install`.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    reach: ServerArgs,
    /// Client to configure, may be repeated; without it, every client that is installed
    #[arg(long = "client", value_enum)]
    clients: Vec<McpClient>,
    /// Write without asking
    #[arg(long)]
    yes: bool,
}

/// A configuration file to write.
struct ConfigChange {
    client: McpClient,
    path: PathBuf,
    /// Its current content.
    old: String,
}

/// The files to change, and the clients that cannot be configured, with the reason.
#[derive(Default)]
struct InstallPlan {
    changes: Vec<ConfigChange>,
    skipped: Vec<(McpClient, PathBuf, String)>,
}

/// The API key that a client gets. A model never gets one with the scope `admin`.
enum ClientCredential {
    /// The agent key of a `dev` server. `mailonce mcp` reads it from the data directory; it is not written.
    DevAgentKey,
    /// An existing key without the scope `admin`.
    Existing(String),
    /// A key that must be created first, with an admin key.
    ToCreate,
}

/// Shows the changes, asks for confirmation, and writes. If one file cannot be changed, the others still are.
pub(crate) async fn install(out: &Printer, args: &InstallArgs) -> anyhow::Result<ExitCode> {
    let home = env("HOME").map(PathBuf::from).ok_or_else(|| UsageError("HOME is not set".into()))?;
    let current_dir = std::env::current_dir().context("reading the current directory")?;
    let (command, passed_key) = LaunchCommand::for_server(&args.reach, &current_dir)?;
    let paths = |client: &McpClient| client.config_paths(&home, &current_dir);
    let credential =
        choose_credential(&args.reach, &command, passed_key, || written_keys(&command, |client| paths(client).0))
            .await?;
    let shown_command = match &credential {
        ClientCredential::DevAgentKey => command.clone(),
        ClientCredential::Existing(key) => command.clone().with_key(key),
        ClientCredential::ToCreate => command.clone().with_key(NEW_KEY_PLACEHOLDER),
    };
    let clients: Vec<McpClient> = if args.clients.is_empty() {
        McpClient::value_variants().iter().copied().filter(|client| paths(client).1.exists()).collect()
    } else {
        args.clients.clone()
    };
    if clients.is_empty() {
        print_stderr("No client was found here. Name one with --client, or give yours this server:");
        out.print_line(&serde_json::to_string_pretty(&json!({ "mcpServers": { "mailonce": shown_command.json() } }))?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut plan = InstallPlan::default();
    clients.into_iter().for_each(|client| plan.add(client, paths(&client).0, &shown_command));
    plan.show(&shown_command)?;
    let mut written = Vec::new();
    if !plan.changes.is_empty() && (args.yes || confirm()?) {
        let (command, server_args) = match credential {
            ClientCredential::ToCreate => {
                let key = create_agent_key(&args.reach).await?;
                (command.with_key(&key), ServerArgs { api_key: Some(key), ..args.reach.clone() })
            }
            ClientCredential::Existing(key) => (shown_command, ServerArgs { api_key: Some(key), ..args.reach.clone() }),
            ClientCredential::DevAgentKey => (shown_command, ServerArgs { api_key: None, ..args.reach.clone() }),
        };
        written = plan.write(&command, &current_dir);
        if let Some(next) = missing_setup(&server_args).await {
            print_stderr(&next);
        }
        print_stderr("Restart the client, then ask it: what is the newest mail in my inbox?");
    }
    report(out, &written, &plan.skipped);
    Ok(if plan.skipped.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// Chooses the API key for the clients. Asks the server whether the key that the user passed has the scope `admin`.
/// Reuses a key that an earlier install created.
async fn choose_credential(
    server_args: &ServerArgs,
    command: &LaunchCommand,
    passed_key: Option<String>,
    written: impl FnOnce() -> Vec<String>,
) -> anyhow::Result<ClientCredential> {
    let Some(passed_key) = passed_key else { return Ok(ClientCredential::DevAgentKey) };
    if !has_admin_scope(server_args, &passed_key).await? {
        return Ok(ClientCredential::Existing(passed_key));
    }
    if command.is_dev() {
        return Ok(ClientCredential::DevAgentKey);
    }
    for key in written() {
        if matches!(has_admin_scope(server_args, &key).await, Ok(false)) {
            return Ok(ClientCredential::Existing(key));
        }
    }
    Ok(ClientCredential::ToCreate)
}

/// Whether a key has the scope `admin`, which agents must not have.
async fn has_admin_scope(server_args: &ServerArgs, key: &str) -> anyhow::Result<bool> {
    let client = Server::find(&ServerArgs { api_key: Some(key.to_owned()), ..server_args.clone() })?;
    match client.get("/v1/api-keys").await {
        Ok(_) => Ok(true),
        Err(error)
            if error.downcast_ref::<ServerProblem>().is_some_and(|problem| problem.0["code"] == "wrong_scope") =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// API keys for this server in the clients' configuration files.
fn written_keys(command: &LaunchCommand, path: impl Fn(&McpClient) -> PathBuf) -> Vec<String> {
    let key = |client: &McpClient| {
        let text = fs::read_to_string(path(client)).ok()?;
        command.key_in(&client.server_in(&text).ok()??)
    };
    McpClient::value_variants().iter().filter_map(key).collect()
}

/// Creates an API key with the scopes of an agent.
async fn create_agent_key(server_args: &ServerArgs) -> anyhow::Result<String> {
    let body = json!({ "name": "mcp install", "scopes": AGENT_SCOPES.map(ApiKeyScope::as_str) });
    let (_, created) = Server::find(server_args)?.call(hyper::Method::POST, "/v1/api-keys", None, Some(&body)).await?;
    print_stderr("Created the API key `mcp install` for agents: it can send, read and reply, but not approve.");
    Ok(created["api_key"].as_str().context("the response has no `api_key`")?.to_owned())
}

impl InstallPlan {
    fn add(&mut self, client: McpClient, path: PathBuf, command: &LaunchCommand) {
        // Writes through a symbolic link instead of replacing it.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let old = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            read => read.context("the file cannot be read"),
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
        print_stderr(&format!("{}: {} left as it is: {why}", client.name(), path.display()));
        self.skipped.push((client, path, why));
    }

    /// Prints the lines that change in each file. Hides secrets, both ours and those already in a file.
    fn show(&self, command: &LaunchCommand) -> anyhow::Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        // The key of the shown command may be a secret of the user.
        let redacted = redact_environment(command.json());
        let command = match redacted["env"][API_KEY].as_str() {
            Some(key) => command.clone().with_key(key),
            None => command.clone(),
        };
        for ConfigChange { client, path, old } in &self.changes {
            let secrets = secret_values(&client.parse_file(old)?);
            let diff = file_diff(old, &client.with_server(old, &command)?);
            let diff = secrets.iter().fold(diff, |diff, secret| diff.replace(secret, "…"));
            let (name, scope) = (client.name(), client.config_scope());
            print_stderr(&format!("{name}: {} ({scope})\n\n{diff}\n", path.display()));
        }
        Ok(())
    }

    /// Writes the files and returns those that were written.
    fn write(&mut self, command: &LaunchCommand, current_dir: &Path) -> Vec<(McpClient, PathBuf)> {
        let secret = command.has_key();
        let mut written = Vec::new();
        for ConfigChange { client, path, old } in std::mem::take(&mut self.changes) {
            match client.with_server(&old, command).and_then(|text| write(&path, &text, secret)) {
                Ok(()) => {
                    if secret && path.starts_with(current_dir) {
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

/// Hides the values of environment variables, except those known to be harmless.
fn redact_environment(mut server: Value) -> Value {
    for (name, value) in server["env"].as_object_mut().into_iter().flatten() {
        if !is_harmless_variable(name) && value.as_str() != Some(NEW_KEY_PLACEHOLDER) {
            *value = json!("…");
        }
    }
    server
}

/// The texts of a configuration file that may be secrets: environment variables and headers of every server in it, as
/// they are and as JSON escapes them.
fn secret_values(file: &Value) -> Vec<String> {
    match file {
        Value::Object(members) => members.iter().flat_map(|(name, value)| member_secrets(name, value)).collect(),
        Value::Array(items) => items.iter().flat_map(secret_values).collect(),
        _ => Vec::new(),
    }
}

fn member_secrets(name: &str, value: &Value) -> Vec<String> {
    let Some(variables) = value.as_object().filter(|_| matches!(name, "env" | "headers" | "http_headers")) else {
        return secret_values(value);
    };
    let hidden = variables.iter().filter(|(name, _)| !is_harmless_variable(name));
    let texts = hidden.filter_map(|(_, value)| value.as_str()).filter(|text| !text.is_empty());
    texts.flat_map(|text| [json!(text).to_string().trim_matches('"').to_owned(), text.to_owned()]).collect()
}

fn is_harmless_variable(name: &str) -> bool {
    matches!(name, "MAILONCE_URL" | "MAILONCE_CA_FILE")
}

/// The lines that change in a file: `-` removed, `+` added.
fn file_diff(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = |(one, other): &(&&str, &&str)| one == other;
    let start = old.iter().zip(&new).take_while(same).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(same).count();
    let removed = old[start..old.len() - end].iter().map(|line| format!("  - {line}"));
    let added = new[start..new.len() - end].iter().map(|line| format!("  + {line}"));
    removed.chain(added).collect::<Vec<_>>().join("\n")
}

fn report(out: &Printer, written: &[(McpClient, PathBuf)], skipped: &[(McpClient, PathBuf, String)]) {
    if !out.is_json() {
        return written
            .iter()
            .for_each(|(client, path)| out.print_line(&format!("{} {}", client.name(), path.display())));
    }
    let written: Vec<Value> =
        written.iter().map(|(client, path)| json!({ "client": client.name(), "path": path })).collect();
    let skipped: Vec<Value> = skipped
        .iter()
        .map(|(client, path, why)| json!({ "client": client.name(), "path": path, "reason": why }))
        .collect();
    out.print_json(&json!({ "written": written, "skipped": skipped }));
}

/// A hint about what is still missing before a client can call a tool, if anything is.
async fn missing_setup(server_args: &ServerArgs) -> Option<String> {
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let request = RpcRequest { id: json!(1), method: "ping".into(), params: Map::new() };
    let response = stdio::post(server_args, &request, ping.to_string().into_bytes());
    match tokio::time::timeout(SERVER_CHECK_TIMEOUT, response).await {
        Ok(Ok(answer)) if answer.status == 200 => None,
        Ok(Ok(answer)) if answer.status == 401 => {
            Some("The server rejects the agent key: restart `mailonce dev`, which creates one.".into())
        }
        Ok(Ok(answer)) => Some(format!("The server answers HTTP {} at /mcp: is it a mailonce server?", answer.status)),
        Ok(Err(_)) | Err(_) => {
            Some("Nothing answers at the server's address: start the server before you use a client.".into())
        }
    }
}

fn confirm() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        print_stderr("Nothing was written. Pass --yes to write it.");
        return Ok(false);
    }
    write!(std::io::stderr(), "Write it? [y/N] ").context("writing the question")?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("reading the answer")?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Writes a temporary file and renames it, so that nothing reads a half-written file. A file that holds an API key gets
/// mode 600, whatever its mode was.
fn write(path: &Path, text: &str, secret: bool) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.mailonce"));
    let old_mode = fs::metadata(path).ok().map(|metadata| metadata.permissions().mode() & 0o777);
    let mode = old_mode.filter(|_| !secret).unwrap_or(PRIVATE_MODE);
    if let Err(error) = fs::remove_file(&temporary)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("removing {}", temporary.display()));
    }
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE_MODE).open(&temporary);
    opened
        .and_then(|mut file| {
            file.write_all(text.as_bytes()).and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        })
        .with_context(|| format!("writing {}", temporary.display()))?;
    fs::rename(&temporary, path).with_context(|| format!("writing {}", path.display()))?;
    if let Some(mode) = old_mode.filter(|mode| secret && mode & 0o077 != 0) {
        print_stderr(&format!("{} holds a key: only you can read it now (its mode was {mode:o})", path.display()));
    }
    Ok(())
}
