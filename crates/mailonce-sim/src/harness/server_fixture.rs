//! A server whose mail goes to sinks, and mails whose state is read through the public API.

use super::{
    http,
    server::{ServerProcess, ServerSetup},
};
use crate::harness::child_processes::{ChildProcesses, sleep};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    fmt::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Where the server sends its mail.
#[derive(Debug, Clone)]
pub enum OutboundTarget {
    /// An SMTP relay on this machine.
    Relay(u16),
    /// A provider that takes idempotency keys, at this URL with this API key.
    Resend(String, String),
}

impl OutboundTarget {
    /// The transport as configuration.
    pub fn toml(&self) -> String {
        match self {
            Self::Relay(port) => format!(
                "[[transports]]\nname = \"out\"\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {port}\ntls = \"none\"\n"
            ),
            Self::Resend(url, key) => format!(
                "[[transports]]\nname = \"out\"\nkind = \"resend\"\nbase_url = \"{url}\"\napi_key = \"{key}\"\n\
                 timeout = \"10s\"\n"
            ),
        }
    }
}

/// Starts servers that share a directory and a configuration.
#[derive(Debug)]
pub struct ServerFixture<'a> {
    /// Owner of the server processes.
    pub children: &'a ChildProcesses,
    /// The server's binary.
    pub binary: &'a Path,
    /// A directory for data, configuration and logs.
    pub root: &'a Path,
    /// URL of the PostgreSQL database that keeps the ledger; `None` for SQLite.
    pub store: Option<&'a str>,
    /// The configuration.
    pub config: String,
}

impl ServerFixture<'_> {
    /// Starts a server, optionally with a failpoint such as `after-marker:kill:3`. Servers of one name share their
    /// data.
    pub fn start(&self, name: &str, failpoint: Option<&str>, paused: bool) -> Result<ServerProcess> {
        self.start_with(name, paused, failpoint.map(|point| ("MAILONCE_FAILPOINT", point.into())).as_slice())
    }

    /// Like [`Self::start`], with more environment variables.
    pub fn start_with(&self, name: &str, paused: bool, more: &[(&str, OsString)]) -> Result<ServerProcess> {
        let file = self.root.join("mailonce.toml");
        std::fs::write(&file, &self.config).with_context(|| format!("writing {}", file.display()))?;
        let data: PathBuf = self.root.join(name);
        let mut env: Vec<(&str, OsString)> = vec![("MAILONCE_CONFIG", file.into())];
        env.extend_from_slice(more);
        let setup = ServerSetup { binary: self.binary, data: &data, store: self.store, paused, env: &env };
        setup.start(self.children)
    }
}

/// The recipient of the n-th mail, which identifies it at the sink.
pub fn recipient(n: usize) -> String {
    format!("m{n}@example.org")
}

/// The `n` of an address that [`recipient`] made.
pub fn mail_number(recipient: &str) -> Option<usize> {
    recipient.strip_prefix('m')?.split('@').next()?.parse().ok()
}

/// The n-th mail.
pub fn sample_mail(n: usize) -> Value {
    json!({"from": "agent@example.com", "to": recipient(n), "subject": format!("Order {n}"), "text": "It is on its way."})
}

/// Sends mails as one batch and returns their ids in order. A repeat returns the same ids.
pub fn send_batch(at: SocketAddr, key: &str, mails: &[Value]) -> Result<Vec<String>> {
    let reply = http::post(at, "/v1/emails/batch", Some(key), &Value::from(mails))?;
    ensure!(matches!(reply.status, 200 | 202), "a batch was answered {}: {}", reply.status, reply.body);
    let data = reply.body["data"].as_array().context("a batch without data")?;
    data.iter().map(|row| row["id"].as_str().map(str::to_owned).context("a row without an id")).collect()
}

/// An email with its handoffs.
pub fn get_email(at: SocketAddr, id: &str) -> Result<Value> {
    let reply = http::get(at, &format!("/v1/emails/{id}"))?;
    ensure!(reply.status == 200, "an email was answered {}: {}", reply.status, reply.body);
    Ok(reply.body)
}

/// The states of emails.
pub fn email_states(at: SocketAddr, ids: &[String]) -> Result<Vec<String>> {
    ids.iter().map(|id| Ok(get_email(at, id)?["state"].as_str().unwrap_or_default().to_owned())).collect()
}

/// Waits until every email is in a wanted state. On timeout, the error lists those that are not.
pub fn wait_for_states(
    at: SocketAddr,
    ids: &[String],
    timeout: Duration,
    wanted: impl Fn(usize, &str) -> bool,
) -> Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let now = email_states(at, ids)?;
        if now.iter().enumerate().all(|(n, state)| wanted(n, state)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let mut message = format!("after {} s", timeout.as_secs());
            for (n, id) in ids.iter().enumerate().filter(|(n, _)| !wanted(*n, &now[*n])) {
                write!(message, "\n  mail {n} is {}: {}", now[n], get_email(at, id)?["handoffs"])?;
            }
            bail!(message);
        }
        sleep(POLL_INTERVAL);
    }
}

/// Waits until `holds` returns true.
pub fn wait_until(what: &str, timeout: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + timeout;
    while !holds() {
        ensure!(Instant::now() < deadline, "{what} did not come within {} s", timeout.as_secs());
        sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// The number of attempts in progress, as the server reports it.
pub fn handoffs_in_flight(at: SocketAddr) -> Option<u64> {
    let reply = http::get(at, "/v1/transports").ok()?;
    reply.body["data"].as_array()?.iter().map(|transport| transport["in_flight"].as_u64()).sum()
}
