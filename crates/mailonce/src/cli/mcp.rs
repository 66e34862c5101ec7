//! `mcp`: the tools over pipes, and where clients find them.

use clap::{Args, Subcommand};
use std::process::ExitCode;

use super::ServerArgs;
use crate::cli::printer::Printer;
use crate::mcp::{
    install::{self, InstallArgs},
    stdio,
};

/// The tools for a client that starts us.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    reach: ServerArgs,
    #[command(subcommand)]
    verb: Option<McpVerb>,
}

#[derive(Debug, Subcommand)]
enum McpVerb {
    /// Write the configuration of the usual clients, after showing it
    Install(InstallArgs),
}

/// Serves a client over pipes, or tells clients where we are.
pub(super) async fn mcp(out: &Printer, args: McpArgs) -> anyhow::Result<ExitCode> {
    match args.verb {
        None => stdio::run(args.reach).await,
        Some(McpVerb::Install(args)) => install::install(out, &args).await,
    }
}
