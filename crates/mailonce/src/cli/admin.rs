//! API keys, teams and the schema. `keys create` and `team create` work on the ledger itself, so that `serve` has a
//! first key.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use mailonce_core::{
    access::team::{ApiKey, ApiKeyScope},
    id::{ApiKeyId, TeamId},
    key::Key,
    outbound::content::{EmailContent, RawContent},
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::{Caller, Engine, access::api_keys::NewApiKey, outbound::send::SendRequest};
use mailonce_store::{postgres::Postgres, sqlite::Sqlite};
use serde_json::json;
use std::{process::ExitCode, sync::Arc};

use super::{UsageError, load_config, progress::Progress};
use crate::cli::{
    error::CliError,
    printer::{Printer, format_time, print_stderr, sanitize},
};
use crate::{
    config::{Flags, StoreLocation},
    wiring::{self, unrestricted_key},
};

#[derive(Debug, Subcommand)]
pub(crate) enum KeysVerb {
    /// Make an API key, in the ledger itself
    Create(CreateApiKeyArgs),
    /// List the API keys of a team, in the ledger itself
    List {
        #[command(flatten)]
        flags: Flags,
        /// The team's name
        #[arg(long, default_value = "default")]
        team: String,
    },
    /// Take an API key back, in the ledger itself
    Revoke {
        #[command(flatten)]
        flags: Flags,
        /// The team's name
        #[arg(long, default_value = "default")]
        team: String,
        /// The id of the key, as `keys list` shows it
        id: String,
    },
}

/// An API key to make.
#[derive(Debug, Args)]
pub(crate) struct CreateApiKeyArgs {
    #[command(flatten)]
    flags: Flags,
    /// The team's name; made when it does not exist
    #[arg(long, default_value = "default")]
    team: String,
    /// A name for the key
    #[arg(long, default_value = "created on the command line")]
    name: String,
    /// What it may do; repeat for several. All but operator by default
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TeamVerb {
    /// Make a team with its first API key, in the ledger itself
    Create {
        #[command(flatten)]
        flags: Flags,
        /// The team's name
        name: String,
    },
    /// List teams, in the ledger itself
    List {
        #[command(flatten)]
        flags: Flags,
    },
}

fn parse_scopes(words: &[String]) -> anyhow::Result<Vec<ApiKeyScope>> {
    if words.is_empty() {
        return Ok(ApiKeyScope::ALL.iter().copied().filter(|scope| *scope != ApiKeyScope::Operator).collect());
    }
    let all: Vec<&str> = ApiKeyScope::ALL.iter().map(|scope| scope.as_str()).collect();
    let wrong = || UsageError(format!("--scope is one of {}", all.join(", ")));
    let scope = |word: &String| Ok(ApiKeyScope::parse(word).ok_or_else(wrong)?);
    words.iter().map(scope).collect()
}

/// Opens the ledger itself. `instead` is the way while a server holds it.
async fn open_ledger(flags: &Flags, instead: &str) -> anyhow::Result<Arc<Engine>> {
    let mut config = load_config(flags)?;
    if config.store == StoreLocation::Sqlite && Sqlite::is_busy(&config.data) {
        let detail = format!("another process holds the data directory {}", config.data.display());
        return Err(CliError::new("ledger_in_use", detail, format!("stop it first, or ask it: {instead}")).into());
    }
    // Who has the ledger itself needs no proof of a domain.
    config.defaults.verify_domains.get_or_insert(false);
    wiring::open_engine(&config).await.context("opening the ledger")
}

fn problem_error(problem: Problem) -> anyhow::Error {
    CliError::from_problem(&problem).into()
}

/// What to do about a team that was not made. Of one that is there the name is known here.
fn team_creation_error(problem: Problem, name: &str) -> anyhow::Error {
    if problem.code != Code::TeamExists {
        return problem_error(problem);
    }
    let next = format!("`mailonce keys create --team {name}` makes another key for it");
    CliError::new(problem.code.as_str(), problem.detail, next).into()
}

fn show_created_key(out: &Printer, team: &str, made: &NewApiKey) {
    if out.is_json() {
        out.print_json(&json!({ "id": made.id.to_string(), "team": made.team.to_string(), "api_key": made.secret }));
    } else {
        out.print_line(&made.secret);
        print_stderr(&format!("team {team} ({}); the key is shown only now", made.team));
    }
}

/// Verbs about API keys.
pub(super) async fn keys(out: &Printer, verb: KeysVerb) -> anyhow::Result<ExitCode> {
    match verb {
        KeysVerb::Create(args) => {
            let scopes = parse_scopes(&args.scopes)?;
            let engine = open_ledger(&args.flags, "POST /v1/api-keys").await?;
            let made = engine
                .ensure_api_key(&args.team, unrestricted_key(&args.name, scopes), None)
                .await
                .map_err(problem_error);
            engine.store().close().await;
            show_created_key(out, &args.team, &made?);
        }
        KeysVerb::List { flags, team } => {
            let engine = open_ledger(&flags, "GET /v1/api-keys").await?;
            let id = find_team(&engine, &team).await?;
            let keys = engine.store().api_keys(id).await?;
            engine.store().close().await;
            show_keys(out, &keys);
        }
        KeysVerb::Revoke { flags, team, id } => {
            let key = ApiKeyId(id.parse().map_err(|_bad| UsageError(format!("{id} is not the id of a key")))?);
            let engine = open_ledger(&flags, "DELETE /v1/api-keys/{id}").await?;
            let team_id = find_team(&engine, &team).await?;
            let revoked = engine.store().revoke_api_key(team_id, key, engine.now()).await?;
            engine.store().close().await;
            let missing = || {
                CliError::new(
                    "not_found",
                    format!("team {team} has no key {id}"),
                    "`mailonce keys list` shows its keys",
                )
            };
            show_keys(out, &[revoked.ok_or_else(missing)?]);
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn find_team(engine: &Engine, name: &str) -> anyhow::Result<TeamId> {
    let found = engine.teams().await.map_err(problem_error)?.into_iter().find(|team| team.name == name);
    let missing = || {
        CliError::new(
            "not_found",
            format!("there is no team named {name}"),
            "`mailonce team list` shows those there are",
        )
    };
    Ok(found.ok_or_else(missing)?.id)
}

fn show_keys(out: &Printer, keys: &[ApiKey]) {
    let words = |key: &ApiKey| key.details.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>();
    if out.is_json() {
        let one = |key: &ApiKey| {
            json!({ "id": key.id.to_string(), "name": key.details.name, "hint": key.details.hint, "scopes": words(key),
                "revoked_at": key.revoked_at.map(|at| at.to_string()) })
        };
        out.print_json(&json!({ "data": keys.iter().map(one).collect::<Vec<_>>() }));
        return;
    }
    let row = |key: &ApiKey| {
        let at = |time: Option<Time>| time.map_or_else(|| "never".into(), |at| format_time(&at.to_string()));
        let used = key.revoked_at.map_or_else(|| at(key.last_used_at), |_| format!("revoked {}", at(key.revoked_at)));
        vec![
            key.id.to_string(),
            key.details.hint.clone(),
            sanitize(&key.details.name, false),
            words(key).join(" "),
            used,
        ]
    };
    out.print_table(&["id", "starts with", "~name", "~scopes", "last used"], keys.iter().map(row).collect());
}

/// Verbs about teams.
pub(super) async fn team(out: &Printer, verb: TeamVerb) -> anyhow::Result<ExitCode> {
    match verb {
        TeamVerb::Create { flags, name } => {
            let engine = open_ledger(&flags, "POST /v1/teams, with a key that has the scope operator").await?;
            let made = engine.create_team_directly(&name, unrestricted_key("first key", parse_scopes(&[])?)).await;
            engine.store().close().await;
            show_created_key(out, &name, &made.map_err(|problem| team_creation_error(problem, &name))?);
        }
        TeamVerb::List { flags } => {
            let engine = open_ledger(&flags, "GET /v1/teams").await?;
            let teams = engine.teams().await.map_err(problem_error)?;
            engine.store().close().await;
            if out.is_json() {
                let one =
                    |team: &mailonce_core::access::team::Team| json!({ "id": team.id.to_string(), "name": team.name });
                out.print_json(&json!({ "data": teams.iter().map(one).collect::<Vec<_>>() }));
            } else {
                let row = |team: &mailonce_core::access::team::Team| {
                    vec![team.id.to_string(), sanitize(&team.name, false), format_time(&team.created_at.to_string())]
                };
                out.print_table(&["id", "~name", "made"], teams.iter().map(row).collect());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Brings the schema up to date. Opening does it; this says so.
pub(super) async fn migrate(out: &Printer, flags: &Flags) -> anyhow::Result<ExitCode> {
    let config = load_config(flags)?;
    let store = wiring::open_store(&config).await?;
    store.close().await;
    let schema = match &config.store {
        StoreLocation::Sqlite => Sqlite::schema_version(&config.data)?,
        StoreLocation::Postgres(url) => Postgres::schema_version(url).await?.map(i64::from),
    };
    let schema = schema.context("the ledger has no schema")?;
    if out.is_json() {
        out.print_json(&json!({ "schema": schema }))
    } else {
        out.print_line(&format!("the ledger has schema {schema}"))
    }
    Ok(ExitCode::SUCCESS)
}

/// How many keys, and where.
#[derive(Debug, Args)]
pub(crate) struct FillArgs {
    #[command(flatten)]
    flags: Flags,
    /// How many settled keys
    #[arg(long)]
    keys: u64,
}

/// Fills a ledger with settled keys, through the same verbs that requests use.
pub(super) async fn fill(out: &Printer, args: FillArgs) -> anyhow::Result<ExitCode> {
    let engine = open_ledger(&args.flags, "nothing").await?;
    let secret = crate::cli::run_server::dev_key(&engine, &load_config(&args.flags)?.data).await?;
    let progress = Progress::bar("settled keys", args.keys);
    let caller =
        engine.authenticate(&secret, mailonce_core::outbound::email::Channel::Cli).await.map_err(problem_error)?;
    fill_ledger(&engine, &caller, args.keys, |done| progress.set_total(done)).await?;
    drop(progress);
    engine.store().close().await;
    out.print_line(&format!("{} settled keys", args.keys));
    Ok(ExitCode::SUCCESS)
}

/// Accepts `count` keyed emails, a batch at a time, and settles them.
async fn fill_ledger(engine: &Arc<Engine>, caller: &Caller, count: u64, progress: impl Fn(u64)) -> anyhow::Result<()> {
    const BATCH: u64 = 500;
    for first in (0..count).step_by(BATCH as usize) {
        let items = (first..count.min(first + BATCH)).map(filler_email).collect();
        let made = engine.send_batch(caller, None, items, true).await.map_err(problem_error)?;
        while engine.store().capture(mailonce_engine::SANDBOX, BATCH as usize, None, engine.now()).await? > 0 {}
        progress(first + made.items.len() as u64);
    }
    Ok(())
}

/// A small email under a key of its own.
fn filler_email(n: u64) -> Result<SendRequest, Problem> {
    let raw = RawContent {
        from: "filler@example.com".into(),
        to: vec!["reader@example.org".into()],
        subject: format!("Filler {n}"),
        text: Some("Nothing to see.".into()),
        ..RawContent::default()
    };
    let key = Key::parse(&format!("filler-{n}")).ok();
    let content = EmailContent::validate(raw)?;
    Ok(SendRequest::new(content, key))
}
