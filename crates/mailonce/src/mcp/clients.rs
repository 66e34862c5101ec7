//! The clients that `mailonce mcp install` knows: where each keeps its servers, and in which form.

use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

use crate::cli::{
    Reach, Usage,
    client::{DEV_KEY, USUAL_URL, read_dev_file},
};

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

impl Client {
    /// Where the client keeps its servers, and what must be there for it to be one of this machine.
    pub(super) fn place(self, home: &Path, here: &Path) -> (PathBuf, PathBuf) {
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

    /// The file with our server in it. Everything else that it says stays.
    pub(super) fn written(self, old: &str, command: &Command) -> anyhow::Result<String> {
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
pub(super) struct Command {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Command {
    /// How to reach the server that is meant from wherever a client starts us: nothing of this shell is there then. The
    /// key of a `dev` stays in its own file.
    pub(super) fn of(reach: &Reach, here: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?.display().to_string();
        let data: PathBuf = here.join(&reach.data).components().collect();
        let dev = read_dev_file(&data).ok();
        let is_known = dev.is_some() || data.join(DEV_KEY).exists();
        let (url, key) = (reach.url.clone(), reach.api_key.clone());
        let (data, url, key) = match (url, key) {
            (Some(url), Some(key)) => (None, Some(url), Some(key)),
            (url, None) if is_known => (Some(data), url, None),
            (Some(_), None) => return Err(Usage("no API key: set MAILONCE_API_KEY or pass --api-key".into()).into()),
            (None, Some(key)) if is_known => {
                (Some(data), None, Some(key).filter(|key| dev.is_none_or(|dev| dev.api_key != *key)))
            }
            (None, Some(key)) => (None, Some(USUAL_URL.to_owned()), Some(key)),
            (None, None) => {
                let next = "no server: start `mailonce dev` here, or set MAILONCE_URL and MAILONCE_API_KEY";
                return Err(Usage(next.into()).into());
            }
        };
        let mut arguments = vec!["mcp".to_owned()];
        arguments.extend(data.into_iter().flat_map(|data| ["--data".to_owned(), data.display().to_string()]));
        let file = reach.ca_file.as_ref().map(|file| here.join(file).display().to_string());
        let all = [("MAILONCE_URL", url), ("MAILONCE_API_KEY", key), ("MAILONCE_CA_FILE", file)];
        let environment = all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Ok(Self { program, arguments, environment })
    }

    /// The secret that is written, when one is.
    pub(super) fn secret(&self) -> Option<&str> {
        self.environment.iter().find(|(name, _)| *name == "MAILONCE_API_KEY").map(|(_, value)| value.as_str())
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
        let no_toml = "it is no TOML; add the server by hand";
        let server = |text: &str| -> anyhow::Result<Option<toml::Value>> {
            let file: toml::Table = toml::from_str(text).context(no_toml)?;
            Ok(file.get("mcp_servers").and_then(|all| all.get("mailonce")).cloned())
        };
        // Texts of JSON without control characters are texts of TOML.
        let quoted = |text: &str| json!(text).to_string();
        let arguments: Vec<String> = self.arguments.iter().map(|text| quoted(text)).collect();
        let pairs: Vec<String> =
            self.environment.iter().map(|(name, value)| format!("{name} = {}", quoted(value))).collect();
        let environment = if pairs.is_empty() { String::new() } else { format!("env = {{ {} }}\n", pairs.join(", ")) };
        let (program, arguments) = (quoted(&self.program), arguments.join(", "));
        let table = format!("[mcp_servers.mailonce]\ncommand = {program}\nargs = [{arguments}]\n{environment}");
        match server(old)? {
            Some(there) if server(&table)?.as_ref() == Some(&there) => return Ok(old.to_owned()),
            Some(_) => anyhow::bail!("it has another server named mailonce; change it by hand"),
            None => {}
        }
        let line_end = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
        let text = format!("{old}{line_end}\n{table}");
        server(&text)?;
        Ok(text)
    }
}
