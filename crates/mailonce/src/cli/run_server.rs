//! `dev` and `serve`: run a server for development or production.

use anyhow::Context as _;
use mailonce_core::{
    access::{
        person::{Person, Role},
        team::{ApiKeyDetails, ApiKeyScope},
    },
    outbound::email::Channel,
};
use mailonce_engine::{Engine, inbox::inboxes::NewInbox};
use serde_json::json;
use std::{io::IsTerminal as _, path::Path, process::ExitCode};

use super::{
    client::{AGENT_KEY_FILE, DEV_FILE, DEV_KEY_FILE, DevFile},
    env, load_config,
};
use crate::cli::{
    error::CliError,
    printer::{Printer, print_stderr},
};
use crate::{
    api::access::people::sign_in_url,
    config::{Config, Flags, StartHandoff, StoreLocation},
    private_file, wiring,
};

/// Scopes of the API key for agents: everything but decisions.
pub(crate) const AGENT_SCOPES: [ApiKeyScope; 3] = [ApiKeyScope::Send, ApiKeyScope::Read, ApiKeyScope::Reply];
/// The domain of the inboxes of `dev`.
const DEV_DOMAIN: &str = "mailonce.test";
/// The person who runs `dev`.
const DEV_PERSON: &str = "dev";

/// Logs to stderr: text on a terminal, else JSON.
fn init_logging(default: &str) {
    let filter = tracing_subscriber::EnvFilter::try_new(env("MAILONCE_LOG").unwrap_or_else(|| default.to_owned()));
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    if std::io::stderr().is_terminal() {
        logs.with_ansi(env("NO_COLOR").is_none()).init();
    } else {
        logs.json().init();
    }
}

/// Runs a server for development, without configuration.
pub(super) async fn dev(out: &Printer, flags: &Flags, json: bool) -> anyhow::Result<ExitCode> {
    init_logging("warn");
    let stop = wiring::shutdown_signal()?;
    let mut config = load_config(flags)?;
    // Teams may send from any address, unless the configuration says otherwise.
    config.defaults.verify_domains.get_or_insert(false);
    config.dev_domains.push(DEV_DOMAIN.to_owned());
    config.clock_trusted.get_or_insert(true);
    let engine = wiring::open_engine(&config).await?;
    let key = dev_key(&engine, &config.data).await?;
    let agent_key = Some(agent_key(&engine, &config.data, &key).await?);
    let listeners = bind_listeners(&config).await?;
    let url = config.url_at(listeners.http_address()?);
    let smtp = listeners.smtp_address()?.map(|at| at.to_string());
    let inbox = dev_inbox(&engine, &key).await?;
    let sign_in = dev_sign_in_link(&engine, &key, &url).await?;
    let dev = DevFile { url, api_key: key, agent_key, smtp };
    let file = write_dev_file(&config.data, &dev)?;
    print_welcome(&config, &dev, &inbox, &sign_in);
    if json {
        let DevFile { url, api_key, smtp, .. } = &dev;
        let data = config.data.display().to_string();
        out.print_json(&json!({
            "url": url, "api_key": api_key, "smtp": smtp, "inbox": inbox, "data": data, "sign_in": sign_in,
        }));
    }
    let echo = env("MAILONCE_BENCH_ECHO").is_some();
    let served = wiring::serve(engine, listeners, &config, echo, stop).await;
    std::fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
    served?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a server for production.
pub(super) async fn serve(flags: &Flags) -> anyhow::Result<ExitCode> {
    init_logging("info");
    let stop = wiring::shutdown_signal()?;
    let config = load_config(flags)?;
    let engine = wiring::open_engine(&config).await?;
    let next = "run `mailonce api-keys create` first, with the same --data or --store";
    let keyless =
        |_none| CliError::new("no_api_key", "there is no API key yet, so no client could call the server", next);
    wiring::require_api_key(&engine).await.map_err(keyless)?;
    let listeners = bind_listeners(&config).await?;
    let smtp = listeners.smtp_address()?.map_or_else(|| "off".to_owned(), |at| at.to_string());
    tracing::info!(http = %listeners.http_address()?, smtp, store = store_kind(&config), handoff = ?config.handoff, "serving");
    let echo = env("MAILONCE_BENCH_ECHO").is_some();
    wiring::serve(engine, listeners, &config, echo, stop).await?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Binds the listeners. A port that is in use gets its own error.
async fn bind_listeners(config: &Config) -> anyhow::Result<wiring::BoundListeners> {
    wiring::bind_listeners(config).await.map_err(|error| {
        let taken = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::AddrInUse;
        if !error.chain().any(|cause| cause.downcast_ref().is_some_and(taken)) {
            return error;
        }
        let (at, flag) = match error.downcast_ref() {
            Some(wiring::SmtpBindFailed(at)) => (*at, "--smtp"),
            None => (config.http, "--http"),
        };
        let next =
            format!("stop the other process, or choose another address with `{flag} ADDR`; port 0 picks a free port");
        CliError::new("port_taken", format!("another process listens on {at}"), next).into()
    })
}

fn store_kind(config: &Config) -> &'static str {
    match config.store {
        StoreLocation::Sqlite => "sqlite",
        StoreLocation::Postgres(_) => "postgres",
    }
}

/// The API key of `dev`: the value of `MAILONCE_API_KEY`, the key of the last run, or a new one.
pub(crate) async fn dev_key(engine: &Engine, data: &Path) -> anyhow::Result<String> {
    let file = data.join(DEV_KEY_FILE);
    let last = private_file::read(&file)?;
    let details = ApiKeyDetails::unrestricted("dev", ApiKeyScope::ALL.to_vec());
    let key = engine.access.ensure_api_key("default", details, env("MAILONCE_API_KEY").or(last)).await;
    let secret = key.map_err(|problem| anyhow::anyhow!("MAILONCE_API_KEY: {}", problem.detail))?.secret;
    private_file::write(&file, secret.as_bytes())?;
    Ok(secret)
}

/// The API key for models, of the same team: it can send, read and reply, but not decide. Reuses the key of the last
/// run while it is valid.
async fn agent_key(engine: &Engine, data: &Path, dev_key: &str) -> anyhow::Result<String> {
    let failed = |problem: mailonce_core::problem::Problem| {
        anyhow::anyhow!("creating the API key for agents: {}", problem.detail)
    };
    let dev = engine.access.authenticate(dev_key, Channel::Cli).await.map_err(failed)?;
    let file = data.join(AGENT_KEY_FILE);
    if let Some(last) = private_file::read(&file)?
        && let Ok(agent) = engine.access.authenticate(&last, Channel::Cli).await
        && agent.team.id == dev.team.id
        && !agent.key.has_scope(ApiKeyScope::Admin)
    {
        return Ok(last);
    }
    let details = ApiKeyDetails::unrestricted("agents of dev", AGENT_SCOPES.to_vec());
    let created = engine.access.create_api_key(&dev, details, None).await.map_err(failed)?.value;
    private_file::write(&file, created.secret.as_bytes())?;
    Ok(created.secret)
}

/// The inbox that exists from the first start.
async fn dev_inbox(engine: &Engine, key: &str) -> anyhow::Result<String> {
    let failed =
        |problem: mailonce_core::problem::Problem| anyhow::anyhow!("creating the first inbox: {}", problem.detail);
    let caller = engine.access.authenticate(key, Channel::Cli).await.map_err(failed)?;
    let inbox = NewInbox {
        username: Some("agent".into()),
        domain: Some(DEV_DOMAIN.into()),
        client_id: Some("dev".into()),
        ..NewInbox::default()
    };
    Ok(engine.inboxes.create_inbox(&caller, inbox, None).await.map_err(failed)?.value.address)
}

/// The link by which the person at this machine signs in. It works once, and only here.
async fn dev_sign_in_link(engine: &Engine, key: &str, url: &str) -> anyhow::Result<String> {
    let failed =
        |problem: mailonce_core::problem::Problem| anyhow::anyhow!("creating the sign-in link: {}", problem.detail);
    let caller = engine.access.authenticate(key, Channel::Cli).await.map_err(failed)?;
    let person = Person {
        name: DEV_PERSON.into(),
        address: None,
        role: Role::Admin,
        operator: true,
        signed_out_at: None,
        sign_outs: 0,
    };
    let link = engine.people.create_sign_in_link_directly(caller.team.id, person, true).await.map_err(failed)?;
    Ok(sign_in_url(url, &link.token))
}

/// Writes the file by which client commands find the server.
fn write_dev_file(data: &Path, file: &DevFile) -> anyhow::Result<std::path::PathBuf> {
    let path = data.join(DEV_FILE);
    private_file::write(&path, &serde_json::to_vec(file)?)?;
    Ok(path)
}

fn print_welcome(config: &Config, dev: &DevFile, inbox: &str, sign_in: &str) {
    let DevFile { url, api_key: key, smtp, .. } = dev;
    let inbound = smtp
        .as_ref()
        .map_or_else(|| "SMTP is off, so no mail arrives".to_owned(), |at| format!("receives mail by SMTP at {at}"));
    let ledger = match &config.store {
        StoreLocation::Sqlite => format!("{}/ledger.db", config.data.display()),
        StoreLocation::Postgres(_) => "PostgreSQL".into(),
    };
    let mail = match config.default_transports().as_slice() {
        [] => "captured by the sandbox, nothing leaves this machine".to_owned(),
        names => format!("sent via {}", names.join(", then ")),
    };
    print_stderr(&format!(
        r#"mailonce {version}

  API      {url}
  docs     {url}/docs
  sign in  {sign_in}
  MCP      {url}/mcp, or `mailonce mcp install`
  API key  {key}
  inbox    {inbox}, {inbound}
  ledger   {ledger}
  mail     {mail}

Paste this twice. The first response is 202 with "outcome":"first", the second one
200 with the same id and "outcome":"replayed": one email, however often you retry.

  curl -si {url}/v1/emails \
    -H 'Authorization: Bearer {key}' \
    -H 'Content-Type: application/json' \
    -d '{{"from":"agent@mailonce.test","to":"ada@example.com",
         "subject":"Order 4821","text":"Thank you for your order.",
         "intent":{{"type":"order.confirmation","entity":"order_4821"}}}}'

Try in another terminal in this folder: mailonce demo storm, mailonce mcp install,
mailonce simulate inbound --code, mailonce doctor. Ctrl-C stops it."#,
        version = env!("CARGO_PKG_VERSION"),
    ));
    if config.handoff == StartHandoff::Paused
        || (config.store == StoreLocation::Sqlite && wiring::has_hold_mark(&config.data))
    {
        print_stderr("The installation is stopped: mail is accepted and queued until `mailonce resume`.");
    }
}
