//! The MCP clients that `mailonce mcp install` supports: where each keeps its server list, and in which format.

use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

use crate::cli::{
    ServerArgs, UsageError,
    client::{AGENT_KEY_FILE, DEFAULT_URL, DEV_KEY_FILE, read_dev_file},
};
use crate::mcp::json_edit;

/// An MCP client that `mailonce mcp install` can configure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum McpClient {
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

impl McpClient {
    /// The client's configuration file, and the directory whose existence shows that the client is installed.
    pub(super) fn config_paths(self, home: &Path, current_dir: &Path) -> (PathBuf, PathBuf) {
        let desktop = if cfg!(target_os = "macos") { "Library/Application Support/Claude" } else { ".config/Claude" };
        match self {
            Self::ClaudeCode => (current_dir.join(".mcp.json"), home.join(".claude")),
            Self::ClaudeDesktop => (home.join(desktop).join("claude_desktop_config.json"), home.join(desktop)),
            Self::Cursor => (home.join(".cursor/mcp.json"), home.join(".cursor")),
            Self::Vscode => (current_dir.join(".vscode/mcp.json"), current_dir.join(".vscode")),
            Self::Windsurf => (home.join(".codeium/windsurf/mcp_config.json"), home.join(".codeium/windsurf")),
            Self::Gemini => (home.join(".gemini/settings.json"), home.join(".gemini")),
            Self::Codex => (home.join(".codex/config.toml"), home.join(".codex")),
        }
    }

    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Where the client uses the configuration file.
    pub(super) fn config_scope(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::Vscode => "read in this folder alone",
            _ => "read wherever it is started",
        }
    }

    /// The JSON member that holds the server list.
    fn servers_member(self) -> &'static str {
        if self == Self::Vscode { "servers" } else { "mcpServers" }
    }

    /// The entry for mailonce in this client's format.
    pub(super) fn server_entry(self, command: &LaunchCommand) -> Value {
        let mut server = command.json();
        if self == Self::Vscode {
            server["type"] = json!("stdio");
        }
        server
    }

    /// The existing `mailonce` entry of a configuration file.
    pub(super) fn server_in(self, text: &str) -> anyhow::Result<Option<Value>> {
        if self == Self::Codex {
            return Ok(toml_server(text)?.map(serde_json::to_value).transpose()?);
        }
        json_edit::server_in(text, self.servers_member())
    }

    /// The whole configuration file as a value.
    pub(super) fn parse_file(self, text: &str) -> anyhow::Result<Value> {
        if self == Self::Codex {
            let file: toml::Table = toml::from_str(text).context("the file is not valid TOML")?;
            return Ok(serde_json::to_value(file)?);
        }
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(text).context("the file is not valid JSON")
    }

    /// The configuration file with the `mailonce` entry. Everything else stays as it is.
    pub(super) fn with_server(self, old: &str, command: &LaunchCommand) -> anyhow::Result<String> {
        if self == Self::Codex {
            return command.toml(old);
        }
        json_edit::with_server(old, self.servers_member(), &self.server_entry(command))
    }
}

/// The `mailonce` entry of a TOML file.
fn toml_server(text: &str) -> anyhow::Result<Option<toml::Value>> {
    let file: toml::Table = toml::from_str(text).context("the file is not valid TOML; add the server by hand")?;
    Ok(file.get("mcp_servers").and_then(|servers| servers.get("mailonce")).cloned())
}

/// Environment variables that the client sets for `mailonce mcp`.
const URL: &str = "MAILONCE_URL";
pub(super) const API_KEY: &str = "MAILONCE_API_KEY";

/// The command with which a client starts `mailonce mcp`.
#[derive(Clone)]
pub(super) struct LaunchCommand {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl LaunchCommand {
    /// The command that reaches the chosen server from any working directory, without this shell's environment. Also
    /// returns the API key that the user passed, whose scopes are not known yet. A `dev` server keeps an agent key in
    /// its data directory, where `mailonce mcp` finds it.
    pub(super) fn for_server(server_args: &ServerArgs, current_dir: &Path) -> anyhow::Result<(Self, Option<String>)> {
        let program = std::env::current_exe().context("finding this program")?.display().to_string();
        let data: PathBuf = current_dir.join(&server_args.data).components().collect();
        let dev = read_dev_file(&data).ok();
        let dev_key = dev.map(|dev| dev.api_key).or_else(|| std::fs::read_to_string(data.join(DEV_KEY_FILE)).ok());
        let (data, url, key) = match (server_args.url.clone(), server_args.api_key.clone()) {
            (Some(url), Some(key)) => (None, Some(url), Some(key)),
            (url, None) if dev_key.is_some() => (Some(data), url, None),
            (Some(_), None) => {
                return Err(UsageError("no API key: set MAILONCE_API_KEY or pass --api-key".into()).into());
            }
            (None, Some(key)) if dev_key.is_some() => {
                (Some(data), None, Some(key).filter(|key| dev_key.as_ref() != Some(key)))
            }
            (None, Some(key)) => (None, Some(DEFAULT_URL.to_owned()), Some(key)),
            (None, None) => {
                let next = "no server: start `mailonce dev` here, or set MAILONCE_URL and MAILONCE_API_KEY";
                return Err(UsageError(next.into()).into());
            }
        };
        if let Some(data) = data.as_ref().filter(|data| key.is_none() && !data.join(AGENT_KEY_FILE).exists()) {
            let detail = format!("no agent key in {}: start `mailonce dev` there, then install again", data.display());
            return Err(UsageError(detail).into());
        }
        let mut arguments = vec!["mcp".to_owned()];
        arguments.extend(data.into_iter().flat_map(|data| ["--data".to_owned(), data.display().to_string()]));
        let file = server_args.ca_file.as_ref().map(|file| current_dir.join(file).display().to_string());
        let variables = [(URL, url), ("MAILONCE_CA_FILE", file)];
        let environment = variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Ok((Self { program, arguments, environment }, key))
    }

    /// The same command with this API key in its environment.
    pub(super) fn with_key(mut self, key: &str) -> Self {
        self.environment.retain(|(name, _)| *name != API_KEY);
        self.environment.push((API_KEY, key.to_owned()));
        self
    }

    /// Whether the server is a `dev` on this machine.
    pub(super) fn is_dev(&self) -> bool {
        self.arguments.len() > 1
    }

    /// Whether the environment has an API key.
    pub(super) fn has_key(&self) -> bool {
        self.environment.iter().any(|(name, _)| *name == API_KEY)
    }

    /// The API key in an existing entry, if that entry is for the same server as this command.
    pub(super) fn key_in(&self, server: &Value) -> Option<String> {
        let url = self.environment.iter().find(|(name, _)| *name == URL).map(|(_, url)| json!(url));
        let same = server["env"].get(URL) == url.as_ref() && server["args"] == json!(self.arguments);
        server["env"][API_KEY].as_str().filter(|_| same).map(str::to_owned)
    }

    pub(super) fn json(&self) -> Value {
        let mut server = json!({ "command": self.program, "args": self.arguments });
        if !self.environment.is_empty() {
            let environment: Map<String, Value> =
                self.environment.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
            server["env"] = Value::Object(environment);
        }
        server
    }

    /// Appends a table to the file. An existing `mailonce` table is never changed.
    fn toml(&self, old: &str) -> anyhow::Result<String> {
        // A JSON string without control characters is also a TOML string.
        let quoted = |text: &str| json!(text).to_string();
        let arguments: Vec<String> = self.arguments.iter().map(|text| quoted(text)).collect();
        let pairs: Vec<String> =
            self.environment.iter().map(|(name, value)| format!("{name} = {}", quoted(value))).collect();
        let environment = if pairs.is_empty() { String::new() } else { format!("env = {{ {} }}\n", pairs.join(", ")) };
        let (program, arguments) = (quoted(&self.program), arguments.join(", "));
        let table = format!("[mcp_servers.mailonce]\ncommand = {program}\nargs = [{arguments}]\n{environment}");
        match toml_server(old)? {
            Some(existing) if toml_server(&table)?.as_ref() == Some(&existing) => return Ok(old.to_owned()),
            Some(_) => anyhow::bail!("the file has a different server named mailonce; change it by hand"),
            None => {}
        }
        let line_end = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
        let text = format!("{old}{line_end}\n{table}");
        toml_server(&text)?;
        Ok(text)
    }
}
