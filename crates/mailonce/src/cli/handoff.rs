//! `pause` and `resume`: the operator's switch for all hand-off of the server that is asked.

use hyper::Method;
use serde_json::Value;
use std::process::ExitCode;

use super::{
    Reach,
    client::Client,
    out::{Out, say},
};

/// Lets hand-off rest.
pub(super) async fn pause(out: &Out, reach: &Reach) -> anyhow::Result<ExitCode> {
    turn(out, reach, "/v1/handoff/pause", "Mail is accepted and waits; `mailonce resume` lets it go on.").await
}

/// Lets hand-off go on.
pub(super) async fn resume(out: &Out, reach: &Reach) -> anyhow::Result<ExitCode> {
    turn(out, reach, "/v1/handoff/resume", "What waited is handed over now.").await
}

async fn turn(out: &Out, reach: &Reach, path: &str, next: &str) -> anyhow::Result<ExitCode> {
    let (_, state): (_, Value) = Client::find(reach)?.ask(Method::POST, path, None, None).await?;
    super::inbox::show(out, &state, &["handoff", "now", "time_is_sure"]);
    if !out.is_json() {
        say(next);
    }
    Ok(ExitCode::SUCCESS)
}
