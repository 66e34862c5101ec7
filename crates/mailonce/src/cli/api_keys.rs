//! `api-keys` and `team`: credentials, and the teams that own them.
//!
//! The verbs ask a running server. Without one they open the ledger, so that a new installation gets its first key.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use hyper::Method;
use mailonce_core::{
    access::team::{ApiKeyDetails, ApiKeyScope},
    id::{ApiKeyId, TeamId},
    problem::{Code, Problem},
    time::{Time, parse_span},
};
use mailonce_engine::Engine;
use mailonce_store::sqlite::Sqlite;
use mailonce_transport::http::base::percent_encode;
use serde_json::{Value, json};
use std::{path::PathBuf, process::ExitCode, sync::Arc};

use super::{
    ServerArgs, UsageError,
    admin::{open_ledger, problem_error},
    client::{CliClient, read_dev_file},
    listing::show_rows,
    load_config,
};
use crate::{
    api::access::api_keys::{ApiKeyBody, NewApiKeyBody, TeamBody},
    cli::{
        error::CliError,
        printer::{Printer, display_text, field_text, print_stderr},
    },
    config::{Flags, StoreLocation},
    entropy::wall_time,
};

/// The team of keys that name none.
const DEFAULT_TEAM: &str = "default";

#[derive(Debug, Subcommand)]
pub(crate) enum ApiKeysVerb {
    /// Create an API key
    Create(Box<CreateApiKeyArgs>),
    /// List the API keys of a team, newest first
    List {
        #[command(flatten)]
        target: TargetArgs,
        #[command(flatten)]
        team: TeamArg,
    },
    /// Revoke an API key
    Revoke {
        #[command(flatten)]
        target: TargetArgs,
        #[command(flatten)]
        team: TeamArg,
        /// Id of the API key, from `api-keys list`
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TeamVerb {
    /// Create a team and its first API key
    Create {
        #[command(flatten)]
        target: TargetArgs,
        /// Name of the team
        name: String,
    },
    /// List the teams
    List {
        #[command(flatten)]
        target: TargetArgs,
    },
}

/// A running server, or the ledger of a server that does not run.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    flags: Flags,
    /// Base URL of the server to ask; default: the server that runs on the data directory, else the ledger itself
    #[arg(long, env = "MAILONCE_URL", value_name = "URL")]
    url: Option<String>,
    /// API key to ask the server with; default: the key of a running `dev`
    #[arg(long, env = "MAILONCE_API_KEY", value_name = "KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// PEM file with certificate authorities to trust in addition to the public ones
    #[arg(long, env = "MAILONCE_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// A team, which a running server must have as that of the API key.
#[derive(Debug, Args)]
pub(crate) struct TeamArg {
    /// Name of the team; default: `default`, or the team of the API key when a server is asked
    #[arg(long, value_name = "NAME")]
    team: Option<String>,
}

/// A new API key.
#[derive(Debug, Args)]
pub(crate) struct CreateApiKeyArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    team: TeamArg,
    /// Name of the API key, for people
    #[arg(long, default_value = "created on the command line")]
    name: String,
    /// Scope of the API key; may be repeated: send, read, reply, secrets, approve, admin, operator; default: all but operator
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// When the API key expires: a duration such as 90d, or an RFC 3339 time; default: never
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// IP address or network such as 10.0.0.0/8 that may use the API key; may be repeated; default: any
    #[arg(long = "allow-ip", value_name = "CIDR")]
    allow_ips: Vec<String>,
    /// Address or @domain that the API key may send from; may be repeated; default: any
    #[arg(long = "allow-sender", value_name = "ADDRESS")]
    allowed_senders: Vec<String>,
    /// Id of an inbox that the API key is restricted to; may be repeated; default: all
    #[arg(long = "inbox", value_name = "ID")]
    inboxes: Vec<String>,
    /// Requests per second that the API key may make; default: no limit
    #[arg(long, value_name = "N")]
    rate_per_s: Option<u32>,
}

/// Where the verb reads and writes.
pub(super) enum Target {
    Server(CliClient),
    Ledger(Arc<Engine>),
}

impl TargetArgs {
    /// Finds the server, or opens the ledger if no server runs on it.
    pub(super) async fn open(&self) -> anyhow::Result<Target> {
        let config = load_config(&self.flags)?;
        let is_in_use = config.store == StoreLocation::Sqlite && Sqlite::is_busy(&config.data);
        if self.url.is_none() && !is_in_use {
            return Ok(Target::Ledger(open_ledger(&self.flags).await?));
        }
        let runs_dev = read_dev_file(&config.data).is_ok();
        if self.url.is_none() && self.api_key.is_none() && !runs_dev {
            let detail = format!("a server runs on the data directory {}", config.data.display());
            let next = "set MAILONCE_API_KEY to an API key with the scope admin to ask that server, or stop it first";
            return Err(CliError::new("ledger_in_use", detail, next).into());
        }
        let url = self.url.clone().or_else(|| (!runs_dev).then(|| config.url()));
        let (api_key, ca_file) = (self.api_key.clone(), self.ca_file.clone());
        Ok(Target::Server(CliClient::find(&ServerArgs { url, api_key, data: config.data, ca_file })?))
    }

    /// The URL under which people reach the server of the ledger.
    pub(super) fn public_url(&self) -> anyhow::Result<String> {
        Ok(load_config(&self.flags)?.url())
    }
}

impl TeamArg {
    pub(super) fn name(&self) -> &str {
        self.team.as_deref().unwrap_or(DEFAULT_TEAM)
    }

    /// Refuses another team than that of the API key, for which a server acts.
    pub(super) async fn require_own(&self, client: &CliClient) -> anyhow::Result<()> {
        let Some(team) = &self.team else { return Ok(()) };
        let settings = client.get("/v1/settings").await?;
        let own = &settings["team"]["name"];
        if own == team.as_str() {
            return Ok(());
        }
        Err(UsageError(format!(
            "--team {team} is not the team of the API key, {own}, for which a running server acts; pass --api-key of \
             that team instead"
        ))
        .into())
    }
}

/// Runs a verb of `api-keys`.
pub(super) async fn api_keys(out: &Printer, verb: ApiKeysVerb) -> anyhow::Result<ExitCode> {
    match verb {
        ApiKeysVerb::Create(args) => create_key(out, &args).await?,
        ApiKeysVerb::List { target, team } => {
            let page = match target.open().await? {
                Target::Server(client) => {
                    team.require_own(&client).await?;
                    client.get("/v1/api-keys").await?
                }
                Target::Ledger(engine) => {
                    let keys = ledger_keys(&engine, team.name()).await;
                    engine.ctx.store().close().await;
                    json!({ "data": keys?, "next_cursor": null })
                }
            };
            show_keys(out, &page);
        }
        ApiKeysVerb::Revoke { target, team, id } => {
            let key = match target.open().await? {
                Target::Server(client) => {
                    team.require_own(&client).await?;
                    let path = format!("/v1/api-keys/{}", percent_encode(&id));
                    client.call(Method::DELETE, &path, None, None).await?.1
                }
                Target::Ledger(engine) => {
                    let revoked = revoke_in_ledger(&engine, team.name(), &id).await;
                    engine.ctx.store().close().await;
                    revoked?
                }
            };
            show_keys(out, &json!({ "data": [key] }));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create_key(out: &Printer, args: &CreateApiKeyArgs) -> anyhow::Result<()> {
    let body = args.to_body()?;
    let (team, secret, key) = match args.target.open().await? {
        Target::Server(client) => {
            args.team.require_own(&client).await?;
            let (_, created) = client.call(Method::POST, "/v1/api-keys", None, Some(&body)).await?;
            // The answer holds the secret alone, so the limits are read back.
            let keys = client.get("/v1/api-keys").await?;
            (None, display_text(&created["api_key"]), find_by_id(&keys["data"], &created["id"])?)
        }
        Target::Ledger(engine) => {
            let created = create_in_ledger(&engine, args.team.name(), body).await;
            engine.ctx.store().close().await;
            let (secret, key) = created?;
            (Some(args.team.name()), secret, key)
        }
    };
    if out.is_json() {
        let mut value = key;
        value["api_key"] = json!(secret);
        value["team"] = json!(team);
        out.print_json(&value);
    } else {
        out.print_line(&secret);
        print_stderr(&describe_key(team, &key));
    }
    Ok(())
}

/// The name and the limits of a new key, for stderr: stdout carries the secret alone.
fn describe_key(team: Option<&str>, key: &Value) -> String {
    let or = |name: &str, default: &str| match field_text(key, name) {
        text if text.is_empty() || text == "-" => default.to_owned(),
        text => text,
    };
    let team = team.map(|team| format!(" of team {team}")).unwrap_or_default();
    let rate = key["rate_per_s"].as_u64().map_or_else(|| "no limit".to_owned(), |rate| format!("{rate} per second"));
    format!(
        "API key \"{}\"{team}; this is the only time its secret is shown\n  \
         scopes   {}\n  expires  {}\n  IPs      {}\n  senders  {}\n  inboxes  {}\n  rate     {rate}",
        field_text(key, "name"),
        field_text(key, "scopes"),
        or("expires_at", "never"),
        or("allow_ips", "any"),
        or("allowed_senders", "any"),
        or("inboxes", "all"),
    )
}

impl CreateApiKeyArgs {
    /// The body of `POST /v1/api-keys`.
    fn to_body(&self) -> anyhow::Result<Value> {
        let expires = self.expires.as_deref().map(parse_expiry).transpose()?;
        let list = |values: &[String]| if values.is_empty() { Value::Null } else { json!(values) };
        Ok(json!({
            "name": self.name,
            "scopes": parse_scopes(&self.scopes)?,
            "expires_at": expires,
            "allow_ips": list(&self.allow_ips),
            "allowed_senders": list(&self.allowed_senders),
            "inboxes": list(&self.inboxes),
            "rate_per_s": self.rate_per_s,
        }))
    }
}

fn parse_scopes(scopes: &[String]) -> anyhow::Result<Vec<&'static str>> {
    if scopes.is_empty() {
        let all = ApiKeyScope::ALL.iter().filter(|scope| **scope != ApiKeyScope::Operator);
        return Ok(all.map(|scope| scope.as_str()).collect());
    }
    let all: Vec<&str> = ApiKeyScope::ALL.iter().map(|scope| scope.as_str()).collect();
    let parse = |text: &String| {
        let unknown = || UsageError(format!("--scope {text} is not one of {}", all.join(", ")));
        Ok(ApiKeyScope::parse(text).ok_or_else(unknown)?.as_str())
    };
    scopes.iter().map(parse).collect()
}

/// An RFC 3339 time, from such a time or from a duration.
fn parse_expiry(text: &str) -> Result<String, UsageError> {
    if Time::parse(text).is_some() {
        return Ok(text.to_owned());
    }
    let wrong = || UsageError(format!("--expires {text} is neither a duration such as 90d nor an RFC 3339 time"));
    let duration = parse_span(text).ok_or_else(wrong)?;
    Ok(wall_time().plus(duration).to_string())
}

fn find_by_id(keys: &Value, id: &Value) -> anyhow::Result<Value> {
    let found = keys.as_array().into_iter().flatten().find(|key| key["id"] == *id);
    found.cloned().context("the server does not list the new API key")
}

async fn create_in_ledger(engine: &Engine, team: &str, body: Value) -> anyhow::Result<(String, Value)> {
    let details = serde_json::from_value::<NewApiKeyBody>(body)?.validate().map_err(problem_error)?;
    let created = engine.access.ensure_api_key(team, details, None).await.map_err(problem_error)?;
    let keys = json!(ledger_keys(engine, team).await?);
    Ok((created.secret, find_by_id(&keys, &json!(created.id.to_string()))?))
}

async fn ledger_keys(engine: &Engine, team: &str) -> anyhow::Result<Vec<Value>> {
    let keys = engine.ctx.store().api_keys(find_team(engine, team).await?).await?;
    let keys = keys.iter().filter(|key| key.details.on_behalf_of.is_none());
    keys.map(|key| Ok(serde_json::to_value(ApiKeyBody::from(key))?)).collect()
}

async fn revoke_in_ledger(engine: &Engine, team: &str, id: &str) -> anyhow::Result<Value> {
    let key = ApiKeyId(id.parse().map_err(|_error| UsageError(format!("{id} is not the id of an API key")))?);
    let team_id = find_team(engine, team).await?;
    let revoked = engine.ctx.store().revoke_api_key(team_id, key, engine.ctx.now()).await?;
    let missing = || {
        let next = "`mailonce api-keys list` shows the ids";
        CliError::new("not_found", format!("team {team} has no API key {id}"), next)
    };
    Ok(serde_json::to_value(ApiKeyBody::from(&revoked.ok_or_else(missing)?))?)
}

pub(super) async fn find_team(engine: &Engine, name: &str) -> anyhow::Result<TeamId> {
    let teams = engine.access.teams().await.map_err(problem_error)?;
    let missing = || {
        let next = "`mailonce team list` shows the teams";
        CliError::new("not_found", format!("there is no team named {name}"), next)
    };
    Ok(teams.into_iter().find(|team| team.name == name).ok_or_else(missing)?.id)
}

fn show_keys(out: &Printer, page: &Value) {
    show_rows(out, page, &["id", "starts with", "~name", "~scopes", "expires", "last used"], |key| {
        let time = |name: &str| if key[name].is_null() { "never".to_owned() } else { field_text(key, name) };
        let revoked = !key["revoked_at"].is_null();
        let used = if revoked { format!("revoked {}", time("revoked_at")) } else { time("last_used_at") };
        let [id, prefix, name, scopes] = ["id", "secret_prefix", "name", "scopes"].map(|name| field_text(key, name));
        vec![id, prefix, name, scopes, time("expires_at"), used]
    });
}

/// Runs a verb of `team`.
pub(super) async fn team(out: &Printer, verb: TeamVerb) -> anyhow::Result<ExitCode> {
    match verb {
        TeamVerb::Create { target, name } => {
            let created = match target.open().await? {
                Target::Server(client) => {
                    let body = json!({ "name": name });
                    client.call(Method::POST, "/v1/teams", None, Some(&body)).await?.1
                }
                Target::Ledger(engine) => {
                    let created = create_team_in_ledger(&engine, &name).await;
                    engine.ctx.store().close().await;
                    created?
                }
            };
            if out.is_json() {
                out.print_json(&created);
            } else {
                out.print_line(&display_text(&created["api_key"]));
                let id = display_text(&created["id"]);
                print_stderr(&format!("First API key of team {name} ({id}); this is the only time it is shown"));
            }
        }
        TeamVerb::List { target } => {
            let page = match target.open().await? {
                Target::Server(client) => client.get("/v1/teams").await?,
                Target::Ledger(engine) => {
                    let teams = engine.access.teams().await;
                    engine.ctx.store().close().await;
                    let teams: Vec<TeamBody> = teams.map_err(problem_error)?.iter().map(TeamBody::from).collect();
                    json!({ "data": teams, "next_cursor": null })
                }
            };
            show_rows(out, &page, &["id", "~name", "created"], |team| {
                ["id", "name", "created_at"].map(|name| field_text(team, name)).to_vec()
            });
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create_team_in_ledger(engine: &Engine, name: &str) -> anyhow::Result<Value> {
    let scopes = ApiKeyScope::ALL.iter().copied().filter(|scope| *scope != ApiKeyScope::Operator).collect();
    let created = engine.access.create_team_directly(name, ApiKeyDetails::unrestricted("first key", scopes)).await;
    let created = created.map_err(|problem| team_creation_error(problem, name))?;
    Ok(json!({ "id": created.team.to_string(), "name": name, "api_key": created.secret }))
}

/// The error of a team that could not be created. If it exists, the next step is another key for it.
fn team_creation_error(problem: Problem, name: &str) -> anyhow::Error {
    if problem.code != Code::TeamExists {
        return problem_error(problem);
    }
    let next = format!("`mailonce api-keys create --team {name}` creates another API key for it");
    CliError::new(problem.code.as_str(), problem.detail, next).into()
}
