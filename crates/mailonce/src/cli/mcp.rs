//! `mcp`: the MCP tools over stdin and stdout, and the configuration of MCP clients.

use clap::{Args, Subcommand};
use std::process::ExitCode;

use super::ServerArgs;
use crate::cli::printer::Printer;
use crate::mcp::{
    install::{self, InstallArgs},
    stdio,
};

/// Options of `mcp`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    verb: Option<McpVerb>,
}

#[derive(Debug, Subcommand)]
enum McpVerb {
    /// Add mailonce to Claude Code, Cursor and other MCP clients, after showing the changes
    Install(InstallArgs),
}

/// Serves a client over stdin and stdout, or configures clients.
pub(super) async fn mcp(out: &Printer, args: McpArgs) -> anyhow::Result<ExitCode> {
    match args.verb {
        None => stdio::run(args.server).await,
        Some(McpVerb::Install(args)) => install::install(out, &args).await,
    }
}
