//! `pause` and `resume`: stop and start the hand-off of a server.

use hyper::Method;
use serde_json::Value;
use std::process::ExitCode;

use super::{ServerArgs, client::CliClient};
use crate::cli::printer::{Printer, print_stderr};

/// Pauses hand-off.
pub(super) async fn pause(out: &Printer, reach: &ServerArgs) -> anyhow::Result<ExitCode> {
    switch_handoff(out, reach, "/v1/handoff/pause", "The server accepts mail and queues it until `mailonce resume`.")
        .await
}

/// Resumes hand-off.
pub(super) async fn resume(out: &Printer, reach: &ServerArgs) -> anyhow::Result<ExitCode> {
    switch_handoff(out, reach, "/v1/handoff/resume", "Queued mail is sent now.").await
}

async fn switch_handoff(out: &Printer, reach: &ServerArgs, path: &str, next: &str) -> anyhow::Result<ExitCode> {
    let (_, state): (_, Value) = CliClient::find(reach)?.call(Method::POST, path, None, None).await?;
    super::inbox::show(out, &state, &["state", "ledger_time", "clock_trusted"]);
    if !out.is_json() {
        print_stderr(next);
    }
    Ok(ExitCode::SUCCESS)
}
