//! The command line. Data goes to stdout, talk to stderr; JSON when piped or with `--json`.

mod admin;
mod backup;
mod bench;
pub(crate) mod client;
mod completions;
mod conversation;
mod demo;
mod doctor;
mod emails;
pub(crate) mod error;
mod handoff;
pub(crate) mod http_client;
mod idempotency_keys;
mod inbox;
mod mcp;
pub(crate) mod printer;
pub(crate) mod private_file;
mod progress;
mod prove;
pub(crate) mod run_server;
mod secrets;
mod send;
mod simulate;
mod table;
mod tail;
mod webhooks;

use clap::{Args, Parser, Subcommand};
use std::process::ExitCode;

use crate::config::{Config, Flags, default_data_dir};
use error::CliError;
use printer::Printer;

/// What stands below the help of the whole.
const AFTER_HELP: &str = "\
Exit codes: 0 done or replayed, 2 nothing came in time, 3 held for a person, 4 accepted and in flight,
5 failed or refused, 6 the key means something else, 7 nobody can tell, 64 wrong usage, 74 no output.
Errors go to stderr with a code and the next step.";

/// Email happens once.
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
    /// Print JSON even on a terminal, errors too
    #[arg(long, global = true)]
    json: bool,
    /// Print words and tables even into a pipe
    #[arg(long, global = true, conflicts_with = "json")]
    plain: bool,
    #[command(subcommand)]
    verb: CliVerb,
}

/// How client verbs reach a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// Base URL of the API; else the file that a running `dev` left in its data directory
    #[arg(long, env = "MAILONCE_URL", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// API key; else the one of a running `dev`
    #[arg(long, env = "MAILONCE_API_KEY", value_name = "KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
    /// Where to look for a running `dev`
    #[arg(long, env = "MAILONCE_DATA", value_name = "DIR", default_value_os_t = default_data_dir())]
    pub(crate) data: std::path::PathBuf,
    /// Certificate authorities to trust besides the public ones, as PEM
    #[arg(long, env = "MAILONCE_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<std::path::PathBuf>,
}

#[derive(Debug, Subcommand)]
enum CliVerb {
    /// Run everything on this machine with nothing configured: embedded ledger, sandbox, a ready key
    Dev(Flags),
    /// Run as a service
    Serve(Flags),
    /// Send an email once
    Send(Box<send::SendArgs>),
    /// Work with keys, the names of wishes
    #[command(subcommand)]
    Key(idempotency_keys::KeyVerb),
    /// Look at emails, take them back, decide about them
    #[command(subcommand)]
    Emails(emails::EmailsVerb),
    /// Work with inboxes and their messages
    #[command(subcommand)]
    Inbox(inbox::InboxVerb),
    /// Wait for a message
    Wait(inbox::WaitArgs),
    /// Take a code or link, once
    Take(inbox::TakeArgs),
    /// Print events as they happen
    Tail(tail::TailArgs),
    /// Receive webhooks on this machine, and tell receivers again
    #[command(subcommand)]
    Webhooks(webhooks::WebhooksVerb),
    /// Answer a message, once
    Reply(Box<conversation::ReplyArgs>),
    /// Work with threads
    #[command(subcommand)]
    Thread(conversation::ThreadVerb),
    /// Questions for people: list, show, resolve
    #[command(subcommand)]
    Escalations(conversation::EscalationsVerb),
    /// Give a model its tools over stdin and stdout, by a running server
    Mcp(Box<mcp::McpArgs>),
    /// Let something happen, to try things out
    #[command(subcommand)]
    Simulate(simulate::SimulateVerb),
    /// Work with API keys
    #[command(subcommand)]
    Keys(admin::KeysVerb),
    /// Work with teams
    #[command(subcommand)]
    Team(admin::TeamVerb),
    /// Let all hand-off of the server rest: mail is accepted and waits
    Pause(ServerArgs),
    /// Let hand-off go on
    Resume(ServerArgs),
    /// See it happen
    #[command(subcommand)]
    Demo(demo::DemoVerb),
    /// Ask any server what a retry does, and say what held
    Prove(Box<prove::ProveArgs>),
    /// Measure how fast a server accepts
    Bench(bench::BenchArgs),
    /// Copy the ledger while it is used
    Backup(backup::BackupArgs),
    /// Put a copy of the ledger in place
    Restore(backup::RestoreArgs),
    /// Look after the key that encrypts the ledger's secrets
    #[command(subcommand)]
    Secrets(secrets::SecretsVerb),
    /// Print the OpenAPI document
    Openapi,
    /// Bring the ledger's schema up to date
    Migrate(Flags),
    /// Check this installation and say what to mend
    Doctor(doctor::DoctorArgs),
    /// Print the completions of a shell
    Completions {
        /// Whose
        shell: clap_complete::Shell,
    },
    /// Print the manual page, of all or of one verb
    Man {
        /// The verb's words: `send`, `inbox create`
        verb: Vec<String>,
    },
    /// List every verb
    Commands,
    /// Name every point at which a rig may stop this binary
    #[cfg(feature = "failpoints")]
    #[command(hide = true)]
    Failpoints,
    /// Fill a ledger with settled keys, for benchmarks
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
    /// Nobody answered, or nothing came in time.
    pub(crate) const TIMEOUT: u8 = 2;
    /// Accepted and held for a person.
    pub(crate) const HELD: u8 = 3;
    /// Accepted and in flight.
    pub(crate) const IN_FLIGHT: u8 = 4;
    /// Failed.
    pub(crate) const FAILED: u8 = 5;
    /// The key means something else.
    pub(crate) const MISMATCH: u8 = 6;
    /// Nobody can tell.
    pub(crate) const UNKNOWN: u8 = 7;
    /// The call was wrong.
    pub(crate) const USAGE: u8 = 64;
    /// The output cannot be written.
    pub(crate) const OUTPUT: u8 = 74;
}

/// Parse, dispatch, exit code.
pub fn main() -> ExitCode {
    use_small_pages();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return parse_failure(&error);
        }
    };
    let json = cli.json;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => report_error(&anyhow::anyhow!("starting the runtime: {error}"), json),
    }
}

/// Help and version are answers; everything else is a usage error, 64 as in sysexits.
fn parse_failure(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().any(|word| word == "--json");
    let lacks_verb = error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if error.use_stderr() && (json || !lacks_verb) {
        let trouble = if lacks_verb { CliError::missing_verb() } else { CliError::usage(&error.render().to_string()) };
        return ExitCode::from(trouble.report(None, json));
    }
    match error.print() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            ExitCode::from(CliError::output(&error).report(None, json))
        }
        _ => ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 }),
    }
}

/// Huge pages make memory resident that thousands of waiting connections never touch: half as much again. Where they
/// cannot be refused, that is all it costs.
fn use_small_pages() {
    #[cfg(target_os = "linux")]
    let _costs_memory = rustix::thread::disable_transparent_huge_pages(true);
}

/// Runs a verb.
async fn run(cli: Cli) -> ExitCode {
    let out = Printer::new(cli.json, cli.plain);
    let done = match cli.verb {
        CliVerb::Dev(flags) => run_server::dev(&out, &flags, cli.json).await,
        CliVerb::Serve(flags) => run_server::serve(&flags).await,
        CliVerb::Send(args) => send::send(&out, *args).await,
        CliVerb::Key(verb) => idempotency_keys::key(&out, verb).await,
        CliVerb::Emails(verb) => emails::emails(&out, verb).await,
        CliVerb::Inbox(verb) => inbox::inbox(&out, verb).await,
        CliVerb::Wait(args) => inbox::wait(&out, args).await,
        CliVerb::Take(args) => inbox::take(&out, args).await,
        CliVerb::Tail(args) => tail::tail(&out, args).await,
        CliVerb::Webhooks(verb) => webhooks::webhooks(&out, verb).await,
        CliVerb::Reply(args) => conversation::reply(&out, *args).await,
        CliVerb::Thread(verb) => conversation::thread(&out, verb).await,
        CliVerb::Escalations(verb) => conversation::escalations(&out, verb).await,
        CliVerb::Mcp(args) => mcp::mcp(&out, *args).await,
        CliVerb::Simulate(verb) => simulate::simulate(&out, verb).await,
        CliVerb::Keys(verb) => admin::keys(&out, verb).await,
        CliVerb::Team(verb) => admin::team(&out, verb).await,
        CliVerb::Pause(reach) => handoff::pause(&out, &reach).await,
        CliVerb::Resume(reach) => handoff::resume(&out, &reach).await,
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
        // Whoever called has no answer, however it went.
        (Ok(_), Some(error)) => ExitCode::from(CliError::output(error).report(None, cli.json)),
        (Ok(code), None) => code,
    }
}

/// Says what went wrong and gives the code for it.
fn report_error(error: &anyhow::Error, json: bool) -> ExitCode {
    ExitCode::from(CliError::from_error(error).report(Some(error), json))
}

/// Reads the configuration with the process's environment.
pub(crate) fn load_config(flags: &Flags) -> anyhow::Result<Config> {
    let loaded = Config::load(flags, |name| std::env::var(name).ok());
    let wrong = |error: anyhow::Error| {
        CliError::new("configuration", format!("{error:#}"), "correct it, then `mailonce doctor` looks again")
    };
    Ok(loaded.map_err(wrong)?)
}

/// Looks up one variable of the environment.
pub(crate) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
