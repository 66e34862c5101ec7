//! HTTP for verbs that need more than a call: another server's API, or a connection to break off on. The client
//! is the SDK's; here it gets its trust, its patience and our words for a failure.

use anyhow::Context as _;
use mailonce_sdk::http as sdk;
use std::{path::Path, time::Duration};
use tokio::time::timeout;

pub(crate) use sdk::{Answer, Line, Request as Call, Stream, Trouble};

use super::UsageError;
use crate::engine_deps::load_ca_file;

/// From the request's first byte to the answer's last.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);
const USER_AGENT: &str = concat!("mailonce-cli/", env!("CARGO_PKG_VERSION"));

/// A server that can be called.
#[derive(Clone)]
pub(crate) struct ApiServer(pub(crate) sdk::Place);

impl ApiServer {
    /// Takes a base URL, and trusts the public authorities and those of a PEM file.
    pub(crate) fn new(url: &str, ca_file: Option<&Path>) -> anyhow::Result<Self> {
        let roots = load_ca_file(ca_file).map_err(|error| UsageError(format!("{error:#}")))?;
        Ok(Self(sdk::Place::new(url, &roots, USER_AGENT).map_err(|bad| UsageError(format!("the URL {bad}")))?))
    }

    /// The URL in one spelling.
    pub(crate) fn url(&self) -> &str {
        self.0.url()
    }

    /// Opens a connection and says nothing.
    pub(crate) async fn open_stream(&self) -> Result<Box<dyn Stream>, Trouble> {
        self.0.open().await
    }

    /// Opens a connection for one request.
    pub(crate) async fn connect(&self) -> anyhow::Result<Line> {
        Ok(self.0.line().await?)
    }

    /// Asks once, on a connection of its own.
    pub(crate) async fn call(&self, call: &Call) -> anyhow::Result<Answer> {
        let line = self.connect().await.with_context(|| format!("no answer from {}", self.url()))?;
        self.call_on(line, call).await
    }

    /// Asks once, on a connection that is already open.
    pub(crate) async fn call_on(&self, line: Line, call: &Call) -> anyhow::Result<Answer> {
        Ok(timeout(RESPONSE_TIMEOUT, self.0.ask_on(line, call)).await.context("no answer in time")??)
    }

    /// The head of a call as it stands on the wire, for those who mean to break off.
    pub(crate) fn request_head(&self, call: &Call) -> String {
        self.0.head(call)
    }
}
