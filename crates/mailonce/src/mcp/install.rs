//! `mailonce mcp install`: tells the usual clients where the tools are, after showing what it would write.

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use std::{
    io::{IsTerminal as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::cli::{Reach, Usage, env, out::Out, out::say};

/// A client that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// Claude Code, for the project in this folder
    ClaudeCode,
    /// Claude Desktop
    ClaudeDesktop,
    /// Cursor
    Cursor,
    /// Visual Studio Code, for the project in this folder
    Vscode,
    /// Windsurf
    Windsurf,
    /// Gemini CLI
    Gemini,
    /// Codex CLI
    Codex,
}

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

impl Client {
    /// Where the client keeps its servers, and what must be there for it to be one of this machine.
    fn place(self, home: &Path, here: &Path) -> (PathBuf, PathBuf) {
        let support = if cfg!(target_os = "macos") { "Library/Application Support/Claude" } else { ".config/Claude" };
        match self {
            Self::ClaudeCode => (here.join(".mcp.json"), home.join(".claude")),
            Self::ClaudeDesktop => (home.join(support).join("claude_desktop_config.json"), home.join(support)),
            Self::Cursor => (home.join(".cursor/mcp.json"), home.join(".cursor")),
            Self::Vscode => (here.join(".vscode/mcp.json"), here.join(".vscode")),
            Self::Windsurf => (home.join(".codeium/windsurf/mcp_config.json"), home.join(".codeium/windsurf")),
            Self::Gemini => (home.join(".gemini/settings.json"), home.join(".gemini")),
            Self::Codex => (home.join(".codex/config.toml"), home.join(".codex")),
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The file with our server in it. Everything else that it says stays.
    fn written(self, old: &str, command: &Command) -> anyhow::Result<String> {
        if self == Self::Codex {
            return command.toml(old);
        }
        let mut file: Map<String, Value> = if old.trim().is_empty() {
            Map::new()
        } else {
            serde_json::from_str(old).context("it holds more than plain JSON; add the server by hand")?
        };
        let servers = if self == Self::Vscode { "servers" } else { "mcpServers" };
        let all = file.entry(servers).or_insert_with(|| json!({}));
        let all = all.as_object_mut().with_context(|| format!("`{servers}` is no object"))?;
        let mut server = command.json();
        if self == Self::Vscode {
            server["type"] = json!("stdio");
        }
        all.insert("mailonce".into(), server);
        Ok(format!("{}\n", serde_json::to_string_pretty(&file)?))
    }
}

/// How a client starts us.
struct Command {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Command {
    /// The server that the flags name, else the `dev` of this folder, whose key stays in its own file.
    fn of(reach: &Reach, here: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?.display().to_string();
        let mut arguments = vec!["mcp".to_owned()];
        let mut environment = Vec::new();
        if reach.url.is_none() && reach.api_key.is_none() {
            arguments.extend(["--data".to_owned(), here.join(&reach.data).display().to_string()]);
        }
        environment.extend(reach.url.clone().map(|url| ("MAILONCE_URL", url)));
        environment.extend(reach.api_key.clone().map(|key| ("MAILONCE_API_KEY", key)));
        environment
            .extend(reach.ca_file.as_ref().map(|file| ("MAILONCE_CA_FILE", here.join(file).display().to_string())));
        Ok(Self { program, arguments, environment })
    }

    fn json(&self) -> Value {
        let mut server = json!({ "command": self.program, "args": self.arguments });
        if !self.environment.is_empty() {
            let environment: Map<String, Value> =
                self.environment.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
            server["env"] = Value::Object(environment);
        }
        server
    }

    /// A table at the end of the file. One that is there is not touched.
    fn toml(&self, old: &str) -> anyhow::Result<String> {
        if old.contains("[mcp_servers.mailonce]") {
            anyhow::bail!("it has a server named mailonce; change it by hand");
        }
        // Texts of JSON without control characters are texts of TOML.
        let quoted = |text: &str| json!(text).to_string();
        let arguments: Vec<String> = self.arguments.iter().map(|text| quoted(text)).collect();
        let pairs: Vec<String> =
            self.environment.iter().map(|(name, value)| format!("{name} = {}", quoted(value))).collect();
        let environment = if pairs.is_empty() { String::new() } else { format!("env = {{ {} }}\n", pairs.join(", ")) };
        let (program, arguments) = (quoted(&self.program), arguments.join(", "));
        let line_end = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
        let table = format!("[mcp_servers.mailonce]\ncommand = {program}\nargs = [{arguments}]\n{environment}");
        let text = format!("{old}{line_end}\n{table}");
        toml::from_str::<toml::Table>(&text).context("it is no TOML; add the server by hand")?;
        Ok(text)
    }
}

/// Shows what would be written, asks, and writes.
pub(crate) fn install(out: &Out, args: &InstallArgs) -> anyhow::Result<ExitCode> {
    let home = env("HOME").map(PathBuf::from).ok_or_else(|| Usage("HOME is not set".into()))?;
    let here = std::env::current_dir().context("finding this folder")?;
    let command = Command::of(&args.reach, &here)?;
    let found = |client: &Client| client.place(&home, &here).1.exists();
    let clients: Vec<Client> = if args.clients.is_empty() {
        Client::value_variants().iter().copied().filter(found).collect()
    } else {
        args.clients.clone()
    };
    if clients.is_empty() {
        say("No client was found here. Name one with --client, or give yours this server:");
        out.line(&serde_json::to_string_pretty(&json!({ "mcpServers": { "mailonce": command.json() } }))?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut changes = Vec::new();
    for client in clients {
        let path = client.place(&home, &here).0;
        let old = match std::fs::read_to_string(&path) {
            Ok(old) => old,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let text = client.written(&old, &command).with_context(|| path.display().to_string())?;
        if text == old {
            say(&format!("{}: {} has it already", client.name(), path.display()));
        } else {
            changes.push(Change { client, path, text });
        }
    }
    show(&changes, args.reach.api_key.as_deref());
    if changes.is_empty() || !(args.yes || agreed()?) {
        return Ok(ExitCode::SUCCESS);
    }
    for Change { client, path, text } in &changes {
        write(path, text)?;
        if args.reach.api_key.is_some() && path.starts_with(&here) {
            say(&format!("{} holds your key: keep it out of version control", path.display()));
        }
        out.line(&format!("{} {}", client.name(), path.display()));
    }
    say("Start the client anew, then ask it: what is the newest mail in my inbox?");
    Ok(ExitCode::SUCCESS)
}

/// Prints the files as they would be, without secrets.
fn show(changes: &[Change], secret: Option<&str>) {
    for Change { client, path, text } in changes {
        let shown = secret.map_or_else(|| text.clone(), |secret| text.replace(secret, "…"));
        say(&format!("{}: {} would hold\n\n{shown}", client.name(), path.display()));
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

/// Writes beside the file and puts it in its place, so that a half-written one is never read.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = folder.join(format!(".{name}.mailonce"));
    // It may hold a key: nobody else reads a new file, and an old one stays as it was.
    let mode = std::fs::metadata(path).map_or(0o600, |about| about.permissions().mode());
    let opened = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&fresh);
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("writing {}", fresh.display()))?;
    std::fs::rename(&fresh, path).with_context(|| format!("writing {}", path.display()))
}
