//! A server whose mail goes out to sinks, and a set of mails whose fate is asked for by the public API.

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

/// Between two looks at something that is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Where mail goes out.
#[derive(Debug, Clone)]
pub enum OutboundTarget {
    /// An SMTP relay on this machine.
    Relay(u16),
    /// A provider that takes a key, at this URL and with this credential.
    Resend(String, String),
}

impl OutboundTarget {
    /// The way in the words of the configuration.
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

/// A place in which servers with the same configuration run.
#[derive(Debug)]
pub struct ServerFixture<'a> {
    /// The keeper of the servers.
    pub children: &'a ChildProcesses,
    /// The server's binary.
    pub binary: &'a Path,
    /// A directory for data, configuration and logs.
    pub root: &'a Path,
    /// The PostgreSQL to keep the ledger in, else SQLite.
    pub store: Option<&'a str>,
    /// Everything that is configured.
    pub config: String,
}

impl ServerFixture<'_> {
    /// Starts a server, with a point at which it is hurt: `after-marker:kill:3`. Servers of one name share their data.
    pub fn start(&self, name: &str, failpoint: Option<&str>, paused: bool) -> Result<ServerProcess> {
        self.start_with(name, paused, failpoint.map(|point| ("MAILONCE_FAILPOINT", point.into())).as_slice())
    }

    /// The same, with more in the server's environment.
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

/// The address of the n-th mail, which names it wherever it turns up.
pub fn recipient(n: usize) -> String {
    format!("m{n}@example.org")
}

/// The number behind an address.
pub fn mail_number(recipient: &str) -> Option<usize> {
    recipient.strip_prefix('m')?.split('@').next()?.parse().ok()
}

/// The n-th mail.
pub fn sample_mail(n: usize) -> Value {
    json!({"from": "agent@example.com", "to": recipient(n), "subject": format!("Order {n}"), "text": "It is on its way."})
}

/// Sends mails in one call, and gives their ids in order. The same again when it is repeated.
pub fn send_batch(at: SocketAddr, key: &str, mails: &[Value]) -> Result<Vec<String>> {
    let reply = http::post(at, "/v1/emails/batch", Some(key), &Value::from(mails))?;
    ensure!(matches!(reply.status, 200 | 202), "a batch was answered {}: {}", reply.status, reply.body);
    let data = reply.body["data"].as_array().context("a batch without data")?;
    data.iter().map(|row| row["id"].as_str().map(str::to_owned).context("a row without an id")).collect()
}

/// What an email is called, and its handoffs.
pub fn get_email(at: SocketAddr, id: &str) -> Result<Value> {
    let reply = http::get(at, &format!("/v1/emails/{id}"))?;
    ensure!(reply.status == 200, "an email was answered {}: {}", reply.status, reply.body);
    Ok(reply.body)
}

/// The states of emails.
pub fn email_states(at: SocketAddr, ids: &[String]) -> Result<Vec<String>> {
    ids.iter().map(|id| Ok(get_email(at, id)?["state"].as_str().unwrap_or_default().to_owned())).collect()
}

/// Waits until every email is as wanted. Says what they are when they do not become so.
pub fn wait_for_states(
    at: SocketAddr,
    ids: &[String],
    patience: Duration,
    wanted: impl Fn(usize, &str) -> bool,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        let now = email_states(at, ids)?;
        if now.iter().enumerate().all(|(n, state)| wanted(n, state)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let mut told = format!("after {} s", patience.as_secs());
            for (n, id) in ids.iter().enumerate().filter(|(n, _)| !wanted(*n, &now[*n])) {
                write!(told, "\n  mail {n} is {}: {}", now[n], get_email(at, id)?["handoffs"])?;
            }
            bail!(told);
        }
        sleep(POLL_INTERVAL);
    }
}

/// Waits until this holds.
pub fn wait_until(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + patience;
    while !holds() {
        ensure!(Instant::now() < deadline, "{what} did not come within {} s", patience.as_secs());
        sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Hand-overs that are under way, by its own account.
pub fn handoffs_in_flight(at: SocketAddr) -> Option<u64> {
    let reply = http::get(at, "/v1/transports").ok()?;
    reply.body["data"].as_array()?.iter().map(|way| way["in_flight"].as_u64()).sum()
}
