//! The server that `demo storm` starts, kills and starts again.

use anyhow::Context as _;
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::Stdio,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{Instant, sleep},
};

use super::{RETRY_DELAY, STEP_TIMEOUT};
use crate::{
    cli::{
        ServerArgs,
        client::{CliClient, DEV_FILE},
        error::CliError,
    },
    private_file,
};

/// The server of the demo.
pub(super) struct DemoServer {
    /// How clients reach it.
    pub(super) server: ServerArgs,
    config: PathBuf,
    log: PathBuf,
    child: Option<Child>,
    /// What it says of itself when it starts.
    greeting: Value,
}

impl DemoServer {
    /// Prepares the data directory, with a configuration that sends mail to a local port.
    pub(super) fn new(data: &Path, relay: u16) -> anyhow::Result<Self> {
        private_file::create_dir(data).with_context(|| format!("creating {}", data.display()))?;
        let config = data.join("storm.toml");
        let relay = format!(
            "[[transports]]\nname = \"counter\"\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {relay}\ntls = \"none\"\n"
        );
        std::fs::write(&config, relay).with_context(|| format!("writing {}", config.display()))?;
        let server = ServerArgs { url: None, api_key: None, data: data.to_owned(), ca_file: None };
        Ok(Self { server, config, log: data.join("storm.log"), child: None, greeting: Value::Null })
    }

    /// Starts the server, and waits until it answers.
    pub(super) async fn start(&mut self, handoff: &str) -> anyhow::Result<()> {
        let file = self.server.data.join(DEV_FILE);
        if file.exists() {
            std::fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        }
        let log = std::fs::File::create(&self.log).with_context(|| format!("writing {}", self.log.display()))?;
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MAILONCE_")) {
            command.env_remove(name);
        }
        command.args(["dev", "--json", "--http", "127.0.0.1:0", "--smtp", "off", "--config"]).arg(&self.config);
        command.arg("--data").arg(&self.server.data).env("MAILONCE_HANDOFF", handoff).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().context("starting the server")?;
        let mut output = BufReader::new(child.stdout.take().context("reading from the server")?);
        self.child = Some(child);
        let end = Instant::now() + STEP_TIMEOUT;
        while !self.is_serving().await {
            let ended = self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
            if ended || Instant::now() > end {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                let next = "check that no other process uses this folder, or choose another --data";
                let detail = format!("the server of the demo did not start: {}", log.trim());
                return Err(CliError::new("not_started", detail, next).into());
            }
            sleep(RETRY_DELAY).await;
        }
        // It prints this line before it answers.
        let mut line = String::new();
        let reading = tokio::time::timeout(STEP_TIMEOUT, output.read_line(&mut line)).await;
        reading.context("the server says nothing")?.context("reading from the server")?;
        self.greeting = serde_json::from_str(&line).context("reading what the server says")?;
        Ok(())
    }

    /// The link that signs in to its dashboard, at `localhost`. Browsers keep one cookie for all ports of a host, so a link
    /// to 127.0.0.1 would end the session at a `mailonce dev` there, whose own link has been used.
    pub(super) fn sign_in_link(&self) -> anyhow::Result<String> {
        let link = self.greeting["sign_in"].as_str().context("the server has no sign-in link")?;
        Ok(link.replacen("//127.0.0.1:", "//localhost:", 1))
    }

    async fn is_serving(&self) -> bool {
        match CliClient::find(&self.server) {
            Ok(client) => client.get("/v1/emails?limit=1").await.is_ok(),
            Err(_) => false,
        }
    }

    /// Kills the server with SIGKILL.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        match self.child.take() {
            Some(mut child) => child.kill().await.context("killing the server"),
            None => Ok(()),
        }
    }

    /// Stops the server with SIGTERM, and waits until it has ended.
    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if let Some(id) = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
            rustix::process::kill_process(id, rustix::process::Signal::TERM).context("stopping the server")?;
        }
        tokio::time::timeout(STEP_TIMEOUT, child.wait())
            .await
            .context("the server does not stop")?
            .context("stopping the server")?;
        Ok(())
    }
}
