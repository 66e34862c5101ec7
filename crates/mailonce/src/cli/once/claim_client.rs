//! The calls of `once` to the server, with retries.
//!
//! These calls do not go through the `once` of the SDK, which runs a function: a command has an exit code, outputs and
//! signals.

use hyper::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

use crate::{
    cli::printer::print_stderr,
    cli::{client::CliClient, http_client::Call},
};

/// How long the server may take to answer before the command starts. Nothing runs without an answer.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of the command is reported again and again: it is a fact that must not be lost.
pub(super) const RECORD_TIMEOUT: Duration = Duration::from_mins(2);
/// Pauses between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// An answer of the server, whatever its status.
pub(super) struct ClaimAnswer {
    pub(super) status: u16,
    pub(super) body: Value,
}

/// Calls the server of the claims.
#[derive(Clone)]
pub(super) struct ClaimClient(std::sync::Arc<CliClient>);

impl ClaimClient {
    pub(super) fn new(client: CliClient) -> Self {
        Self(std::sync::Arc::new(client))
    }

    /// Posts until the server has answered. Every call of `once` may be repeated: the holder, the token and evidence
    /// have the same effect each time.
    pub(super) async fn post(&self, path: &str, body: &Value, timeout: Duration) -> Result<ClaimAnswer, String> {
        let (deadline, mut pause) = (Instant::now() + timeout, FIRST_PAUSE);
        loop {
            let failure = match tokio::time::timeout_at(deadline, self.post_once(path, body)).await {
                Ok(Ok(answer)) if !matches!(answer.status, 408 | 429 | 500..) => return Ok(answer),
                Ok(Ok(answer)) => format!("the server answered HTTP {}", answer.status),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_late) => "the server did not answer in time".to_owned(),
            };
            if Instant::now() + pause >= deadline {
                return Err(failure);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn post_once(&self, path: &str, body: &Value) -> anyhow::Result<ClaimAnswer> {
        let headers = vec![
            ("authorization", format!("Bearer {}", self.0.api_key)),
            ("content-type", "application/json".to_owned()),
        ];
        let call = Call { method: Method::POST, path: path.to_owned(), headers, body: body.to_string().into() };
        let answer = self.0.server.call(&call).await?;
        let body = serde_json::from_slice(&answer.body).unwrap_or_default();
        Ok(ClaimAnswer { status: answer.status, body })
    }

    /// Renews the lease until the task is aborted.
    pub(super) async fn renew_until_dropped(self, id: String, token: String, lease_s: u32) {
        let period = Duration::from_millis(u64::from(lease_s) * 1_000 / 3);
        let mut renewals = tokio::time::interval_at(Instant::now() + period, period);
        let body = json!({ "token": token, "lease_s": lease_s });
        let mut is_lost = false;
        loop {
            renewals.tick().await;
            match self.post(&format!("/v1/claims/{id}/renew"), &body, period).await {
                Ok(ClaimAnswer { status: 200, .. }) => is_lost = false,
                // The command cannot be undone. It goes on, and its end is reported.
                Ok(answer) if !is_lost => {
                    is_lost = true;
                    print_stderr(&format!("mailonce once: {}", answer.body["detail"].as_str().unwrap_or("lease lost")));
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
}
