//! HTTP for commands that call another server's API or close a connection halfway. Wraps the client of the SDK with
//! certificate authorities, a timeout and error messages.

use anyhow::Context as _;
use mailonce_sdk::http as sdk;
use std::{path::Path, time::Duration};
use tokio::time::timeout;

pub(crate) use sdk::{Answer, Connection, Request as Call, RequestError, Stream, StreamingResponse};

use super::UsageError;
use crate::tls::load_ca_file;

/// Timeout from the first byte of the request to the last byte of the response.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);
const USER_AGENT: &str = concat!("mailonce-cli/", env!("CARGO_PKG_VERSION"));

/// A server that can be called.
#[derive(Clone)]
pub(crate) struct ApiServer(pub(crate) sdk::ServerUrl);

impl ApiServer {
    /// A server by its base URL. Trusts the public authorities and those in a PEM file.
    pub(crate) fn new(url: &str, ca_file: Option<&Path>) -> anyhow::Result<Self> {
        let roots = load_ca_file(ca_file).map_err(|error| UsageError(format!("{error:#}")))?;
        Ok(Self(sdk::ServerUrl::new(url, &roots, USER_AGENT).map_err(|bad| UsageError(format!("the URL {bad}")))?))
    }

    /// The normalized URL.
    pub(crate) fn url(&self) -> &str {
        self.0.url()
    }

    /// Opens a connection without sending anything.
    pub(crate) async fn open_stream(&self) -> Result<Box<dyn Stream>, RequestError> {
        self.0.open().await
    }

    /// Opens a connection for one request.
    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        Ok(self.0.connect().await?)
    }

    /// Calls once, on a new connection.
    pub(crate) async fn call(&self, call: &Call) -> anyhow::Result<Answer> {
        let connection = self.connect().await.with_context(|| NoAnswer::of(self.url()))?;
        self.call_on(connection, call).await
    }

    /// Calls once, on a new connection, and returns as soon as the answer begins.
    pub(crate) async fn follow(&self, call: &Call) -> anyhow::Result<StreamingResponse> {
        timeout(RESPONSE_TIMEOUT, self.0.open_stream(call))
            .await
            .context(NoAnswer("no answer in time".to_owned()))?
            .with_context(|| NoAnswer::of(self.url()))
    }

    /// Calls once, on an open connection.
    pub(crate) async fn call_on(&self, connection: Connection, call: &Call) -> anyhow::Result<Answer> {
        Ok(timeout(RESPONSE_TIMEOUT, self.0.call_on(connection, call))
            .await
            .context(NoAnswer("no answer in time".to_owned()))??)
    }

    /// The request head as sent, for tests that disconnect halfway.
    pub(crate) fn request_head(&self, call: &Call) -> String {
        self.0.head(call)
    }
}

/// The server did not answer.
#[derive(Debug)]
pub(crate) struct NoAnswer(pub(crate) String);

impl NoAnswer {
    pub(crate) fn of(url: &str) -> Self {
        Self(format!("no answer from {url}"))
    }
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
