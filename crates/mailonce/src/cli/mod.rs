//! The command line. Data goes to stdout, talk to stderr; JSON when piped or with `--json`.

mod admin;
pub(crate) mod client;
mod dev;
mod doctor;
pub(crate) mod http;
mod inbox;
mod look;
mod mcp;
pub(crate) mod out;
mod prove;
mod send;
mod simulate;
mod tail;
mod talk;
mod webhooks;

use clap::{Args, Parser, Subcommand};
use std::process::ExitCode;

use crate::config::{Config, Flags};
use out::Out;

/// Email happens once.
#[derive(Debug, Parser)]
#[command(
    name = "mailonce",
    version,
    about,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// Print JSON even on a terminal
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

/// How client verbs reach a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct Reach {
    /// Base URL of the API; else the file that a running `dev` left in its data directory
    #[arg(long, env = "MAILONCE_URL", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// API key; else the one of a running `dev`
    #[arg(long, env = "MAILONCE_API_KEY", value_name = "KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
    /// Where to look for a running `dev`
    #[arg(long, env = "MAILONCE_DATA", value_name = "DIR", default_value = "./mailonce-data")]
    pub(crate) data: std::path::PathBuf,
    /// Certificate authorities to trust besides the public ones, as PEM
    #[arg(long, env = "MAILONCE_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<std::path::PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run everything on this machine with nothing configured: embedded ledger, sandbox, a ready key
    Dev(Flags),
    /// Run as a service
    Serve(Flags),
    /// Send an email once
    Send(Box<send::SendArgs>),
    /// Work with keys, the names of wishes
    #[command(subcommand)]
    Key(look::KeyVerb),
    /// Look at emails
    #[command(subcommand)]
    Emails(look::EmailsVerb),
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
    Reply(Box<talk::ReplyArgs>),
    /// Work with threads
    #[command(subcommand)]
    Thread(talk::ThreadVerb),
    /// Questions for people: list, show, resolve
    #[command(subcommand)]
    Escalations(talk::EscalationsVerb),
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
    /// Ask any server what a retry does, and say what held
    Prove(Box<prove::ProveArgs>),
    /// Print the OpenAPI document
    Openapi,
    /// Bring the ledger's schema up to date
    Migrate(Flags),
    /// Check this installation and say what to mend
    Doctor(Flags),
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
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

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
            // Help and version are answers; everything else is a usage error, 64 as in sysexits.
            let code = if error.use_stderr() { exit::USAGE } else { 0 };
            if error.print().is_err() {
                return ExitCode::from(exit::OUTPUT);
            }
            return ExitCode::from(code);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => failed(&anyhow::anyhow!("starting the runtime: {error}")),
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
    let out = Out::new(cli.json);
    let done = match cli.verb {
        Verb::Dev(flags) => dev::dev(&flags).await,
        Verb::Serve(flags) => dev::serve(&flags).await,
        Verb::Send(args) => send::send(&out, *args).await,
        Verb::Key(verb) => look::key(&out, verb).await,
        Verb::Emails(verb) => look::emails(&out, verb).await,
        Verb::Inbox(verb) => inbox::inbox(&out, verb).await,
        Verb::Wait(args) => inbox::wait(&out, args).await,
        Verb::Take(args) => inbox::take(&out, args).await,
        Verb::Tail(args) => tail::tail(&out, args).await,
        Verb::Webhooks(verb) => webhooks::webhooks(&out, verb).await,
        Verb::Reply(args) => talk::reply(&out, *args).await,
        Verb::Thread(verb) => talk::thread(&out, verb).await,
        Verb::Escalations(verb) => talk::escalations(&out, verb).await,
        Verb::Mcp(args) => mcp::mcp(&out, *args).await,
        Verb::Simulate(verb) => simulate::simulate(&out, verb).await,
        Verb::Keys(verb) => admin::keys(&out, verb).await,
        Verb::Team(verb) => admin::team(&out, verb).await,
        Verb::Prove(args) => prove::prove(&out, *args).await,
        Verb::Openapi => {
            out.raw(&crate::api::openapi_json());
            Ok(ExitCode::SUCCESS)
        }
        Verb::Migrate(flags) => admin::migrate(&out, &flags).await,
        Verb::Doctor(flags) => doctor::doctor(&out, &flags).await,
        #[cfg(feature = "failpoints")]
        Verb::Failpoints => {
            out.raw(&mailonce_core::failpoint::POINTS.join("\n"));
            Ok(ExitCode::SUCCESS)
        }
        Verb::BenchFill(args) => admin::fill(&out, args).await,
    };
    done.unwrap_or_else(|error| failed(&error))
}

/// Says what went wrong and gives the code for it.
fn failed(error: &anyhow::Error) -> ExitCode {
    out::complain(&format!("{error:#}"));
    if error.is::<Usage>() {
        return ExitCode::from(exit::USAGE);
    }
    match error.downcast_ref::<client::Told>() {
        Some(told) => ExitCode::from(told.exit_code()),
        None => ExitCode::from(exit::FAILED),
    }
}

/// Reads the configuration with the process's environment.
pub(crate) fn configured(flags: &Flags) -> anyhow::Result<Config> {
    Config::load(flags, |name| std::env::var(name).ok())
}

/// Looks up one variable of the environment.
pub(crate) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
