//! `dev` and `serve`: the two ways to run.

use anyhow::Context as _;
use mailonce_core::{access::team::ApiKeyScope, outbound::email::Channel};
use mailonce_engine::{Engine, inbox::inboxes::NewInbox};
use serde_json::json;
use std::{io::IsTerminal as _, path::Path, process::ExitCode};

use super::{
    client::{AGENT_KEY_FILE, DEV_FILE, DEV_KEY_FILE, DevFile},
    env, load_config, private_file,
};
use crate::cli::{
    error::CliError,
    printer::{Printer, print_stderr},
};
use crate::{
    config::{Config, Flags, StoreLocation},
    wiring::{self, unrestricted_key},
};

/// What an agent may do: everything but decide.
pub(crate) const AGENT_SCOPES: [ApiKeyScope; 3] = [ApiKeyScope::Send, ApiKeyScope::Read, ApiKeyScope::Reply];
/// The domain that is local in `dev`.
const DEV_DOMAIN: &str = "mailonce.test";

/// Logs go to stderr: words for people, JSON for collectors.
fn init_logging(usual: &str) {
    let filter = tracing_subscriber::EnvFilter::try_new(env("MAILONCE_LOG").unwrap_or_else(|| usual.to_owned()));
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    if std::io::stderr().is_terminal() {
        logs.with_ansi(env("NO_COLOR").is_none()).init();
    } else {
        logs.json().init();
    }
}

/// Runs everything on this machine with nothing configured.
pub(super) async fn dev(out: &Printer, flags: &Flags, json: bool) -> anyhow::Result<ExitCode> {
    init_logging("warn");
    let stop = wiring::shutdown_signal()?;
    let mut config = load_config(flags)?;
    // Every team may send from any address, unless the file says otherwise.
    config.defaults.verify_domains.get_or_insert(false);
    config.dev_domains.push(DEV_DOMAIN.to_owned());
    config.clock_trusted.get_or_insert(true);
    let engine = wiring::open_engine(&config).await?;
    let key = dev_key(&engine, &config.data).await?;
    let agent_key = Some(agent_key(&engine, &config.data, &key).await?);
    let doors = bind_listeners(&config).await?;
    let url = config.url_at(doors.http_address()?);
    let smtp = doors.smtp_address()?.map(|at| at.to_string());
    let inbox = dev_inbox(&engine, &key).await?;
    let dev = DevFile { url, api_key: key, agent_key, smtp };
    let file = write_dev_file(&config.data, &dev)?;
    print_welcome(&config, &dev, &inbox);
    if json {
        let DevFile { url, api_key, smtp, .. } = &dev;
        let data = config.data.display().to_string();
        out.print_json(&json!({ "url": url, "api_key": api_key, "smtp": smtp, "inbox": inbox, "data": data }));
    }
    let echo = env("MAILONCE_BENCH_ECHO").is_some();
    let served = wiring::serve(engine, doors, &config, echo, stop).await;
    std::fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
    served?;
    Ok(ExitCode::SUCCESS)
}

/// Runs as a service.
pub(super) async fn serve(flags: &Flags) -> anyhow::Result<ExitCode> {
    init_logging("info");
    let stop = wiring::shutdown_signal()?;
    let config = load_config(flags)?;
    let engine = wiring::open_engine(&config).await?;
    let next = "run `mailonce keys create` first, with the same --data or --store";
    let keyless = |_none| CliError::new("no_api_key", "there is no API key yet, so nobody could call it", next);
    wiring::require_api_key(&engine).await.map_err(keyless)?;
    let doors = bind_listeners(&config).await?;
    let smtp = doors.smtp_address()?.map_or_else(|| "off".to_owned(), |at| at.to_string());
    tracing::info!(http = %doors.http_address()?, smtp, store = store_kind(&config), handoff = config.handoff, "serving");
    let echo = env("MAILONCE_BENCH_ECHO").is_some();
    wiring::serve(engine, doors, &config, echo, stop).await?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Opens the doors. A port that is taken is told as such.
async fn bind_listeners(config: &Config) -> anyhow::Result<wiring::BoundListeners> {
    wiring::bind_listeners(config).await.map_err(|error| {
        let taken = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::AddrInUse;
        if !error.chain().any(|cause| cause.downcast_ref().is_some_and(taken)) {
            return error;
        }
        let (at, flag) = match config.smtp.listen {
            Some(at) if error.to_string().contains("SMTP") => (at, "--smtp"),
            _ => (config.http, "--http"),
        };
        let next = format!("stop what listens there, or choose another with `{flag} ADDR`; port 0 is a free one");
        CliError::new("port_taken", format!("something listens on {at} already"), next).into()
    })
}

fn store_kind(config: &Config) -> &'static str {
    match config.store {
        StoreLocation::Sqlite => "sqlite",
        StoreLocation::Postgres(_) => "postgres",
    }
}

/// The key of `dev`: the one that `MAILONCE_API_KEY` fixes, the one from last time, or a fresh one.
pub(crate) async fn dev_key(engine: &Engine, data: &Path) -> anyhow::Result<String> {
    let kept = data.join(DEV_KEY_FILE);
    let last = private_file::read(&kept)?;
    let about = unrestricted_key("dev", ApiKeyScope::ALL.to_vec());
    let made = engine.ensure_api_key("default", about, env("MAILONCE_API_KEY").or(last)).await;
    let secret = made.map_err(|problem| anyhow::anyhow!("MAILONCE_API_KEY: {}", problem.detail))?.secret;
    private_file::write(&kept, secret.as_bytes())?;
    Ok(secret)
}

/// The key that models get, of the same team: it sends, reads and answers, and decides nothing. The one from last time
/// while it is good.
async fn agent_key(engine: &Engine, data: &Path, dev_key: &str) -> anyhow::Result<String> {
    let told = |problem: mailonce_core::problem::Problem| anyhow::anyhow!("making the agents' key: {}", problem.detail);
    let dev = engine.authenticate(dev_key, Channel::Cli).await.map_err(told)?;
    let kept = data.join(AGENT_KEY_FILE);
    if let Some(last) = private_file::read(&kept)?
        && let Ok(agent) = engine.authenticate(&last, Channel::Cli).await
        && agent.team.id == dev.team.id
        && !agent.key.has_scope(ApiKeyScope::Admin)
    {
        return Ok(last);
    }
    let about = unrestricted_key("agents of dev", AGENT_SCOPES.to_vec());
    let made = engine.create_api_key(&dev, about, None).await.map_err(told)?.value;
    private_file::write(&kept, made.secret.as_bytes())?;
    Ok(made.secret)
}

/// The inbox that is there from the first start.
async fn dev_inbox(engine: &Engine, key: &str) -> anyhow::Result<String> {
    let told = |problem: mailonce_core::problem::Problem| anyhow::anyhow!("making the first inbox: {}", problem.detail);
    let caller = engine.authenticate(key, Channel::Cli).await.map_err(told)?;
    let wish = NewInbox {
        username: Some("agent".into()),
        domain: Some(DEV_DOMAIN.into()),
        client_id: Some("dev".into()),
        ..NewInbox::default()
    };
    Ok(engine.create_inbox(&caller, wish, None).await.map_err(told)?.value.address)
}

/// Leaves a file that client verbs find.
fn write_dev_file(data: &Path, file: &DevFile) -> anyhow::Result<std::path::PathBuf> {
    let path = data.join(DEV_FILE);
    private_file::write(&path, &serde_json::to_vec(file)?)?;
    Ok(path)
}

fn print_welcome(config: &Config, dev: &DevFile, inbox: &str) {
    let DevFile { url, api_key: key, smtp, .. } = dev;
    let arrives = smtp
        .as_ref()
        .map_or_else(|| "no mail comes in: SMTP is off".to_owned(), |at| format!("mail comes in by SMTP at {at}"));
    let place = match &config.store {
        StoreLocation::Sqlite => format!("{}/ledger.db", config.data.display()),
        StoreLocation::Postgres(_) => "PostgreSQL".into(),
    };
    let mail = match config.default_transports().as_slice() {
        [] => "captured by the sandbox; nothing leaves this machine".to_owned(),
        names => format!("handed to {}", names.join(", then ")),
    };
    print_stderr(&format!(
        r#"mailonce {version}: email happens once

  API      {url}
  docs     {url}/docs
  MCP      {url}/mcp, or `mailonce mcp install`
  key      {key}
  inbox    {inbox}, {arrives}
  ledger   {place}
  mail     {mail}

Paste this twice. First it answers 202 and "outcome":"first", then 200, the same
id and "outcome":"replayed". One email, however often you ask.

  curl -si {url}/v1/emails \
    -H 'Authorization: Bearer {key}' \
    -H 'Content-Type: application/json' \
    -d '{{"from":"agent@mailonce.test","to":"ada@example.com",
         "subject":"Order 4821","text":"Thank you for your order.",
         "intent":{{"type":"order.confirmation","entity":"order_4821"}}}}'

Next, in another terminal here: mailonce demo storm · mcp install ·
simulate inbound --code · doctor. Ctrl-C stops it."#,
        version = env!("CARGO_PKG_VERSION"),
    ));
    if !config.handoff || (config.store == StoreLocation::Sqlite && wiring::is_handoff_held(&config.data)) {
        print_stderr("Hand-off is paused: mail is accepted and waits until `mailonce resume`.");
    }
}
