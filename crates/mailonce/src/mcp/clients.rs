//! The clients that `mailonce mcp install` knows: where each keeps its servers, and in which form.

use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

use crate::cli::{
    ServerArgs, UsageError,
    client::{AGENT_KEY_FILE, DEFAULT_URL, DEV_KEY_FILE, read_dev_file},
};
use crate::mcp::json_edit;

/// A client that can be told.
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
    /// Where the client keeps its servers, and what must be there for it to be one of this machine.
    pub(super) fn config_paths(self, home: &Path, here: &Path) -> (PathBuf, PathBuf) {
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

    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Who reads the file.
    pub(super) fn config_scope(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::Vscode => "read in this folder alone",
            _ => "read wherever it is started",
        }
    }

    /// Where in its file the servers are.
    fn servers_member(self) -> &'static str {
        if self == Self::Vscode { "servers" } else { "mcpServers" }
    }

    /// Our server as this client has it.
    pub(super) fn server_entry(self, command: &LaunchCommand) -> Value {
        let mut server = command.json();
        if self == Self::Vscode {
            server["type"] = json!("stdio");
        }
        server
    }

    /// The server of our name that its file has.
    pub(super) fn server_in(self, text: &str) -> anyhow::Result<Option<Value>> {
        if self == Self::Codex {
            return Ok(toml_server(text)?.map(serde_json::to_value).transpose()?);
        }
        json_edit::server_in(text, self.servers_member())
    }

    /// The file with our server in it. Everything else that it says stays.
    pub(super) fn with_server(self, old: &str, command: &LaunchCommand) -> anyhow::Result<String> {
        if self == Self::Codex {
            return command.toml(old);
        }
        json_edit::with_server(old, self.servers_member(), &self.server_entry(command))
    }
}

/// The server of our name in a file of TOML.
fn toml_server(text: &str) -> anyhow::Result<Option<toml::Value>> {
    let file: toml::Table = toml::from_str(text).context("it is no TOML; add the server by hand")?;
    Ok(file.get("mcp_servers").and_then(|all| all.get("mailonce")).cloned())
}

/// What a client's environment has for us.
const URL: &str = "MAILONCE_URL";
pub(super) const API_KEY: &str = "MAILONCE_API_KEY";

/// How a client starts us.
#[derive(Clone)]
pub(super) struct LaunchCommand {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl LaunchCommand {
    /// How to reach the server that is meant from wherever a client starts us: nothing of this shell is there then. Beside
    /// it the key that was given, if one was: what it may do is for the server to say. A `dev` keeps a key for agents
    /// in its own file, and `mailonce mcp` finds it there.
    pub(super) fn for_server(reach: &ServerArgs, here: &Path) -> anyhow::Result<(Self, Option<String>)> {
        let program = std::env::current_exe().context("finding this program")?.display().to_string();
        let data: PathBuf = here.join(&reach.data).components().collect();
        let dev = read_dev_file(&data).ok();
        let own = dev.map(|dev| dev.api_key).or_else(|| std::fs::read_to_string(data.join(DEV_KEY_FILE)).ok());
        let (data, url, key) = match (reach.url.clone(), reach.api_key.clone()) {
            (Some(url), Some(key)) => (None, Some(url), Some(key)),
            (url, None) if own.is_some() => (Some(data), url, None),
            (Some(_), None) => {
                return Err(UsageError("no API key: set MAILONCE_API_KEY or pass --api-key".into()).into());
            }
            (None, Some(key)) if own.is_some() => (Some(data), None, Some(key).filter(|key| own.as_ref() != Some(key))),
            (None, Some(key)) => (None, Some(DEFAULT_URL.to_owned()), Some(key)),
            (None, None) => {
                let next = "no server: start `mailonce dev` here, or set MAILONCE_URL and MAILONCE_API_KEY";
                return Err(UsageError(next.into()).into());
            }
        };
        if let Some(data) = data.as_ref().filter(|data| key.is_none() && !data.join(AGENT_KEY_FILE).exists()) {
            let detail =
                format!("no key for agents is in {}: start `mailonce dev` there, then install", data.display());
            return Err(UsageError(detail).into());
        }
        let mut arguments = vec!["mcp".to_owned()];
        arguments.extend(data.into_iter().flat_map(|data| ["--data".to_owned(), data.display().to_string()]));
        let file = reach.ca_file.as_ref().map(|file| here.join(file).display().to_string());
        let all = [(URL, url), ("MAILONCE_CA_FILE", file)];
        let environment = all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Ok((Self { program, arguments, environment }, key))
    }

    /// The same with a key of its own.
    pub(super) fn with_key(mut self, key: &str) -> Self {
        self.environment.retain(|(name, _)| *name != API_KEY);
        self.environment.push((API_KEY, key.to_owned()));
        self
    }

    /// Whether a `dev` of this machine is meant.
    pub(super) fn is_dev(&self) -> bool {
        self.arguments.len() > 1
    }

    /// Whether a key is written.
    pub(super) fn has_key(&self) -> bool {
        self.environment.iter().any(|(name, _)| *name == API_KEY)
    }

    /// The key that stands in a server that is written already, if it is for the same place as this one.
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

    /// A table at the end of the file. One that is there is not touched.
    fn toml(&self, old: &str) -> anyhow::Result<String> {
        // Texts of JSON without control characters are texts of TOML.
        let quoted = |text: &str| json!(text).to_string();
        let arguments: Vec<String> = self.arguments.iter().map(|text| quoted(text)).collect();
        let pairs: Vec<String> =
            self.environment.iter().map(|(name, value)| format!("{name} = {}", quoted(value))).collect();
        let environment = if pairs.is_empty() { String::new() } else { format!("env = {{ {} }}\n", pairs.join(", ")) };
        let (program, arguments) = (quoted(&self.program), arguments.join(", "));
        let table = format!("[mcp_servers.mailonce]\ncommand = {program}\nargs = [{arguments}]\n{environment}");
        match toml_server(old)? {
            Some(there) if toml_server(&table)?.as_ref() == Some(&there) => return Ok(old.to_owned()),
            Some(_) => anyhow::bail!("it has another server named mailonce; change it by hand"),
            None => {}
        }
        let line_end = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
        let text = format!("{old}{line_end}\n{table}");
        toml_server(&text)?;
        Ok(text)
    }
}
