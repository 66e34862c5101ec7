//! The command line. Data goes to stdout, messages to stderr; JSON when piped or with `--json`.

mod admin;
mod api_keys;
mod audit;
mod backup;
mod bench;
mod claims;
pub(crate) mod client;
mod completions;
mod conversation;
mod demo;
mod doctor;
mod emails;
mod erasures;
pub(crate) mod error;
pub(crate) mod http_client;
mod idempotency_keys;
mod inbox;
mod kek_status;
mod listing;
mod login;
mod mcp;
mod once;
mod outbox;
mod policy;
pub(crate) mod printer;
mod progress;
mod prove;
pub(crate) mod run_server;
mod search;
mod secrets;
mod send;
mod simulate;
mod stops;
mod table;
mod tail;
mod templates;
mod webhooks;

use clap::{Args, Parser, Subcommand};
use mailonce_core::access::call_origin::CallOrigin;
use std::process::ExitCode;

use crate::{
    config::{Config, Flags, default_data_dir},
    entropy::wall_time,
};
use error::CliError;
use printer::Printer;

/// Shown below `mailonce --help`.
const AFTER_HELP: &str = "\
Exit codes:
   0  done; an email was accepted, sent, or already accepted before
   1  the audit log is damaged
   2  timeout: nothing arrived in time, or the server did not answer
   3  the email is held until a person decides
   4  --wait ran out of time while the email was on its way
   5  failed or refused
   6  the idempotency key belongs to a different email
   7  nobody can tell whether the email was sent
  64  wrong usage
  74  the output could not be written

Errors go to stderr with a code and the next step.";

/// Send and receive email exactly once: an idempotent email gateway
#[derive(Debug, Parser)]
#[command(
    name = "mailonce",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = AFTER_HELP
)]
pub struct Cli {
    /// Print JSON, also on a terminal and for errors
    #[arg(long, global = true)]
    json: bool,
    /// Print text and tables, also into a pipe
    #[arg(long, global = true, conflicts_with = "json")]
    plain: bool,
    #[command(subcommand)]
    verb: CliVerb,
}

/// The server that a command calls.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// Base URL of the server; default: the `mailonce dev` that runs on the data directory
    #[arg(long, env = "MAILONCE_URL", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// API key; default: the key of the running `mailonce dev`
    #[arg(long, env = "MAILONCE_API_KEY", value_name = "KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
    /// Data directory of the running `mailonce dev`
    #[arg(long, env = "MAILONCE_DATA", value_name = "DIR", default_value_os_t = default_data_dir())]
    pub(crate) data: std::path::PathBuf,
    /// PEM file with certificate authorities to trust in addition to the public ones
    #[arg(long, env = "MAILONCE_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<std::path::PathBuf>,
}

#[derive(Debug, Subcommand)]
enum CliVerb {
    /// Run a server for development: no configuration, SQLite, a sandbox for mail, an API key
    Dev(Flags),
    /// Run a server for production
    Serve(Flags),
    /// Send an email
    Send(Box<send::SendArgs>),
    /// Derive, inspect, extend and forget idempotency keys
    #[command(subcommand)]
    Key(idempotency_keys::KeyVerb),
    /// List, show, cancel, reschedule, resend and resolve emails
    #[command(subcommand)]
    Emails(emails::EmailsVerb),
    /// Search emails and messages
    Search(search::SearchArgs),
    /// Create and manage inboxes, and read their messages
    #[command(subcommand)]
    Inbox(inbox::InboxVerb),
    /// Wait for a message
    Wait(inbox::WaitArgs),
    /// Start watches
    #[command(subcommand)]
    Watch(inbox::WatchVerb),
    /// Take a one-time code or link from a message
    Take(inbox::TakeArgs),
    /// Print events as they happen
    Tail(tail::TailArgs),
    /// Create and list webhook endpoints, forward events to this machine, and replay notices
    #[command(subcommand)]
    Webhooks(webhooks::WebhooksVerb),
    /// Reply to a message
    Reply(Box<conversation::ReplyArgs>),
    /// List, show, lease and finish threads
    #[command(subcommand)]
    Thread(conversation::ThreadVerb),
    /// List, show and answer questions for people
    #[command(subcommand)]
    Escalations(conversation::EscalationsVerb),
    /// Serve the MCP tools of a running server over stdin and stdout
    Mcp(Box<mcp::McpArgs>),
    /// Simulate incoming mail
    #[command(subcommand)]
    Simulate(simulate::SimulateVerb),
    /// Create, list and revoke API keys
    #[command(subcommand, alias = "keys")]
    ApiKeys(api_keys::ApiKeysVerb),
    /// Create and list teams
    #[command(subcommand)]
    Team(api_keys::TeamVerb),
    /// Make a link that signs a person in
    Login(Box<login::LoginArgs>),
    /// List, export and verify the audit log: who changed what
    #[command(subcommand)]
    Audit(audit::AuditVerb),
    /// Try what the rules, budgets and guards would do
    #[command(subcommand)]
    Policy(policy::PolicyVerb),
    /// Erase a person: remove the address, names and mail
    Erase(erasures::EraseArgs),
    /// List and show erasures
    #[command(subcommand)]
    Erasures(erasures::ErasuresVerb),
    /// Run a command once, however many machines, timers and people start it
    Once(Box<once::OnceArgs>),
    /// Start the command of `once`, and end it when `once` ends
    #[command(hide = true)]
    OnceChild {
        /// Process id of `once`
        parent: u32,
        /// File to write whether the command was started
        report: std::path::PathBuf,
        /// Command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// List and show claims, and decide about lost ones
    #[command(subcommand)]
    Claims(claims::ClaimsVerb),
    /// Install, inspect and confirm an outbox in your own PostgreSQL
    #[command(subcommand)]
    Outbox(outbox::OutboxVerb),
    /// List, show, change, preview and remove templates
    #[command(subcommand)]
    Templates(templates::TemplatesVerb),
    /// Stop email of an inbox, an API key, the team, a transport or the installation
    Stop(stops::StopArgs),
    /// List the stops
    Stops(ServerArgs),
    /// Stop the whole installation: the server accepts mail and queues it
    Pause(ServerArgs),
    /// End a stop and release its email
    Resume(stops::ResumeArgs),
    /// Run a demonstration
    #[command(subcommand)]
    Demo(demo::DemoVerb),
    /// Test how a server handles retries and idempotency keys
    Prove(Box<prove::ProveArgs>),
    /// Measure how fast a server accepts emails
    Bench(bench::BenchArgs),
    /// Back up the SQLite ledger, also while a server uses it
    Backup(backup::BackupArgs),
    /// Restore a backup of the SQLite ledger
    Restore(backup::RestoreArgs),
    /// Show and rotate the key that encrypts the ledger's secrets
    #[command(subcommand)]
    Secrets(secrets::SecretsVerb),
    /// Print the OpenAPI document
    Openapi,
    /// Create or upgrade the schema of the ledger
    Migrate(Flags),
    /// Check this installation and suggest fixes
    Doctor(doctor::DoctorArgs),
    /// Print shell completions
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of mailonce or of one command
    Man {
        /// Command, such as `send` or `inbox create`
        verb: Vec<String>,
    },
    /// List every command
    Commands,
    /// List the failpoints of this binary
    #[cfg(feature = "failpoints")]
    #[command(hide = true)]
    Failpoints,
    /// Fill a ledger with idempotency keys, for benchmarks
    #[command(hide = true)]
    BenchFill(admin::FillArgs),
}

/// The command line was used wrongly.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Exit codes that scripts rely on.
pub(crate) mod exit {
    /// The audit log is damaged.
    pub(crate) const DAMAGED: u8 = 1;
    /// Nothing arrived in time, or the server did not answer.
    pub(crate) const TIMEOUT: u8 = 2;
    /// The email is held until a person decides.
    pub(crate) const HELD: u8 = 3;
    /// `--wait` ran out of time while the email was on its way.
    pub(crate) const IN_FLIGHT: u8 = 4;
    /// Failed or refused.
    pub(crate) const FAILED: u8 = 5;
    /// The idempotency key belongs to a different email.
    pub(crate) const MISMATCH: u8 = 6;
    /// Nobody can tell whether the email was sent.
    pub(crate) const UNKNOWN: u8 = 7;
    /// Wrong usage.
    pub(crate) const USAGE: u8 = 64;
    /// The output could not be written.
    pub(crate) const OUTPUT: u8 = 74;
}

/// Parses the arguments, runs the command, and returns its exit code.
pub fn main() -> ExitCode {
    use_small_pages();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return parse_failure(&error);
        }
    };
    // Before the runtime starts threads, which the supervisor does not need.
    if let CliVerb::OnceChild { parent, report, command } = &cli.verb {
        return once::supervise(*parent, report, command);
    }
    let json = cli.json;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(CallOrigin::scope(None, run(cli))),
        Err(error) => report_error(&anyhow::anyhow!("starting the runtime: {error}"), json),
    }
}

/// Prints help and the version; everything else is a usage error, 64 as in sysexits.
fn parse_failure(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().any(|argument| argument == "--json");
    let lacks_command = error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if error.use_stderr() && (json || !lacks_command) {
        let usage =
            if lacks_command { CliError::missing_command() } else { CliError::usage(&error.render().to_string()) };
        let code = usage.report(None, json);
        return ExitCode::from(if is_once() { once::USAGE_EXIT } else { code });
    }
    match error.print() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            ExitCode::from(CliError::output(&error).report(None, json))
        }
        _ => ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 }),
    }
}

/// Whether the command is `once`, whose exit codes must not be those of the command that it runs.
fn is_once() -> bool {
    std::env::args_os().skip(1).find(|argument| !argument.as_encoded_bytes().starts_with(b"-")) == Some("once".into())
}

/// Disables transparent huge pages, which make memory resident that thousands of idle connections never touch: about
/// half as much again. A failure costs only that memory.
fn use_small_pages() {
    #[cfg(target_os = "linux")]
    let _ignored = rustix::thread::disable_transparent_huge_pages(true);
}

/// Runs a command.
async fn run(cli: Cli) -> ExitCode {
    let out = Printer::new(cli.json, cli.plain);
    // Commands that open the ledger themselves act as `cli`. A server acts for its callers.
    if !matches!(cli.verb, CliVerb::Dev(_) | CliVerb::Serve(_)) {
        CallOrigin::of_system("cli", wall_time()).set();
    }
    let done = match cli.verb {
        CliVerb::Dev(flags) => run_server::dev(&out, &flags, cli.json).await,
        CliVerb::Serve(flags) => run_server::serve(&flags).await,
        CliVerb::Send(args) => send::send(&out, *args).await,
        CliVerb::Key(verb) => idempotency_keys::key(&out, verb).await,
        CliVerb::Emails(verb) => emails::emails(&out, verb).await,
        CliVerb::Search(args) => search::search(&out, args).await,
        CliVerb::Inbox(verb) => inbox::inbox(&out, verb).await,
        CliVerb::Wait(args) => inbox::wait(&out, args).await,
        CliVerb::Watch(verb) => inbox::watch(&out, verb).await,
        CliVerb::Take(args) => inbox::take(&out, args).await,
        CliVerb::Tail(args) => tail::tail(&out, args).await,
        CliVerb::Webhooks(verb) => webhooks::webhooks(&out, verb).await,
        CliVerb::Reply(args) => conversation::reply(&out, *args).await,
        CliVerb::Thread(verb) => conversation::thread(&out, verb).await,
        CliVerb::Escalations(verb) => conversation::escalations(&out, verb).await,
        CliVerb::Mcp(args) => mcp::mcp(&out, *args).await,
        CliVerb::Simulate(verb) => simulate::simulate(&out, verb).await,
        CliVerb::ApiKeys(verb) => api_keys::api_keys(&out, verb).await,
        CliVerb::Team(verb) => api_keys::team(&out, verb).await,
        CliVerb::Login(args) => login::login(&out, &args).await,
        CliVerb::Audit(verb) => audit::audit(&out, verb).await,
        CliVerb::Policy(verb) => policy::run(&out, verb).await,
        CliVerb::Erase(args) => erasures::erase(&out, args).await,
        CliVerb::Erasures(verb) => erasures::erasures(&out, verb).await,
        CliVerb::Once(args) => return once::once(*args).await,
        CliVerb::OnceChild { parent, report, command } => return once::supervise(parent, &report, &command),
        CliVerb::Claims(verb) => claims::claims(&out, verb).await,
        CliVerb::Outbox(verb) => outbox::outbox(&out, verb).await,
        CliVerb::Templates(verb) => templates::templates(&out, verb).await,
        CliVerb::Stop(args) => stops::stop(&out, args).await,
        CliVerb::Stops(server) => stops::stops(&out, &server).await,
        CliVerb::Pause(server) => stops::pause(&out, &server).await,
        CliVerb::Resume(args) => stops::resume(&out, args).await,
        CliVerb::Demo(verb) => demo::demo(&out, verb).await,
        CliVerb::Prove(args) => prove::prove(&out, *args).await,
        CliVerb::Bench(args) => bench::bench(&out, args).await,
        CliVerb::Backup(args) => backup::backup(&out, args).await,
        CliVerb::Restore(args) => backup::restore(&out, args).await,
        CliVerb::Secrets(verb) => secrets::secrets(&out, verb).await,
        CliVerb::Openapi => {
            out.print_raw(&crate::api::openapi_json());
            Ok(ExitCode::SUCCESS)
        }
        CliVerb::Migrate(flags) => admin::migrate(&out, &flags).await,
        CliVerb::Doctor(args) => doctor::doctor(&out, &args).await,
        CliVerb::Completions { shell } => Ok(completions::completions(&out, shell)),
        CliVerb::Man { verb } => completions::man(&out, &verb),
        CliVerb::Commands => Ok(completions::commands(&out)),
        #[cfg(feature = "failpoints")]
        CliVerb::Failpoints => {
            out.print_raw(&mailonce_core::failpoint::POINTS.join("\n"));
            Ok(ExitCode::SUCCESS)
        }
        CliVerb::BenchFill(args) => admin::fill(&out, args).await,
    };
    match (done, out.write_failure()) {
        (Err(error), _) => report_error(&error, cli.json),
        // The caller has no output, whether or not the command succeeded.
        (Ok(_), Some(error)) => ExitCode::from(CliError::output(error).report(None, cli.json)),
        (Ok(code), None) => code,
    }
}

/// Prints an error and returns its exit code.
fn report_error(error: &anyhow::Error, json: bool) -> ExitCode {
    ExitCode::from(CliError::from_error(error).report(Some(error), json))
}

/// Reads the configuration from flags, the environment and the file.
pub(crate) fn load_config(flags: &Flags) -> anyhow::Result<Config> {
    let loaded = Config::load(flags, |name| std::env::var(name).ok());
    let invalid = |error: anyhow::Error| {
        CliError::new("configuration", format!("{error:#}"), "correct it, then run `mailonce doctor`")
    };
    Ok(loaded.map_err(invalid)?)
}

/// Reads an environment variable that is not empty.
pub(crate) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
