//! How a notice is told: one request to a receiver that a tenant named.

use async_trait::async_trait;
use std::fmt;

use crate::events::notice::WebhookError;

/// One request to a receiver.
#[derive(Clone)]
pub struct OutgoingWebhook {
    /// Where to.
    pub url: String,
    /// Names what is told. The same at every attempt, so that a receiver can tell a repeat.
    pub id: String,
    /// When this attempt is made, in seconds since 1970.
    pub timestamp_s: i64,
    /// Secrets that sign it, newest first.
    pub secrets: Vec<Vec<u8>>,
    /// Headers that the team wants beside ours.
    pub headers: Vec<(String, String)>,
    /// What is told, as JSON.
    pub body: Vec<u8>,
}

impl fmt::Debug for OutgoingWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("id", &self.id).field("at", &self.timestamp_s).finish_non_exhaustive()
    }
}

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookResult {
    /// The answer, or why there is none.
    pub response: Result<WebhookResponse, (WebhookError, String)>,
    /// How long it took, in milliseconds.
    pub latency_ms: u32,
}

/// What a receiver answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookResponse {
    /// The HTTP status.
    pub status: u16,
    /// Its `Retry-After`, as it was written.
    pub retry_after: Option<String>,
    /// Its `webhook-delivery`: by `abort-message` it does not want this one again.
    pub delivery_directive: Option<String>,
    /// The beginning of the body.
    pub excerpt: String,
}

impl WebhookResponse {
    /// The headers that mean something.
    pub fn header(&self, name: &str) -> Option<&str> {
        match name {
            "retry-after" => self.retry_after.as_deref(),
            "webhook-delivery" => self.delivery_directive.as_deref(),
            _ => None,
        }
    }
}

/// Tells receivers.
#[async_trait]
pub trait WebhookClient: Send + Sync + 'static {
    /// Refuses an address that could never be told, without asking anybody.
    fn check_url(&self, url: &str) -> Result<(), String>;
    /// Asks once. Never follows, never tries again, and ends within its own limit of time.
    async fn post(&self, post: OutgoingWebhook) -> WebhookResult;
}

/// No network: nobody is ever told.
#[derive(Clone, Copy, Debug)]
pub struct NoWebhooks;

#[async_trait]
impl WebhookClient for NoWebhooks {
    fn check_url(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    async fn post(&self, _: OutgoingWebhook) -> WebhookResult {
        WebhookResult { response: Err((WebhookError::Connect, "no network is wired".into())), latency_ms: 0 }
    }
}
