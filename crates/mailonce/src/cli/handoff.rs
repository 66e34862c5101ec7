//! `pause` and `resume`: the operator's switch for all hand-off of the server that is asked.

use hyper::Method;
use serde_json::Value;
use std::process::ExitCode;

use super::{ServerArgs, client::CliClient};
use crate::cli::printer::{Printer, print_stderr};

/// Lets hand-off rest.
pub(super) async fn pause(out: &Printer, reach: &ServerArgs) -> anyhow::Result<ExitCode> {
    switch_handoff(out, reach, "/v1/handoff/pause", "Mail is accepted and waits; `mailonce resume` lets it go on.")
        .await
}

/// Lets hand-off go on.
pub(super) async fn resume(out: &Printer, reach: &ServerArgs) -> anyhow::Result<ExitCode> {
    switch_handoff(out, reach, "/v1/handoff/resume", "What waited is handed over now.").await
}

async fn switch_handoff(out: &Printer, reach: &ServerArgs, path: &str, next: &str) -> anyhow::Result<ExitCode> {
    let (_, state): (_, Value) = CliClient::find(reach)?.call(Method::POST, path, None, None).await?;
    super::inbox::show(out, &state, &["handoff", "now", "time_is_sure"]);
    if !out.is_json() {
        print_stderr(next);
    }
    Ok(ExitCode::SUCCESS)
}
